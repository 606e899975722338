"""Events after impressions, such as orders: which impression and rank, which action, how much, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial.arrays import BoolArray, IntArray, offsets_of
from ranktrial.log._kernels import sort_by_number, sort_within


@dataclass(frozen=True, eq=False)
class LoggedEvents:
    """Events of a log's impressions, sorted by impression, then time.

    Attributes:
        at: Impression of each.
        rank: Rank from 0 on the page shown; -1 if the document was not on it.
        action: Index into the log's ``actions``.
        amount: In millionths of the currency unit, refunds negative; 0 where there is none.
        delay: Microseconds after the impression.

    >>> events = LoggedEvents.of([3, 0], rank=[1, 0], action=[0, 0], amount=[5_000_000, 0], delay=[60, 30])
    >>> events.at.tolist(), events.take(np.array([3, 2]), 4).at.tolist()
    ([0, 3], [0])
    """

    at: IntArray
    rank: NDArray[np.int8]
    action: NDArray[np.int8]
    amount: IntArray
    delay: IntArray

    EMPTY: ClassVar[LoggedEvents]

    @classmethod
    def of(
        cls, at: ArrayLike, *, rank: ArrayLike, action: ArrayLike, amount: ArrayLike, delay: ArrayLike
    ) -> LoggedEvents:
        """Events in any order."""
        places, delays = np.asarray(at, np.int64), np.asarray(delay, np.int64)
        order = sort_by_number(places, offsets_of(np.bincount(places)))
        sort_within(order, places, delays)
        return cls(
            places[order],
            np.asarray(rank, np.int8)[order],
            np.asarray(action, np.int8)[order],
            np.asarray(amount, np.int64)[order],
            delays[order],
        )

    def __len__(self) -> int:
        return len(self.at)

    def where(self, some: BoolArray | IntArray | slice) -> LoggedEvents:
        """Some of the events."""
        return LoggedEvents(*(getattr(self, name)[some] for name in ("at", "rank", "action", "amount", "delay")))

    def take(self, impressions: BoolArray | IntArray | slice, n: int) -> LoggedEvents:
        """Events of the given impressions of ``n``, with the numbers that these have among themselves."""
        if not len(self):
            return self
        if isinstance(impressions, slice) and impressions.step in (None, 1):
            start, stop, _ = impressions.indices(n)
            low, high = np.searchsorted(self.at, [start, max(stop, start)])
            some = self.where(slice(int(low), int(high)))
            return LoggedEvents(some.at - start, some.rank, some.action, some.amount, some.delay)
        chosen = np.arange(n)[impressions]
        low, high = (np.searchsorted(self.at, chosen, side) for side in ("left", "right"))
        sizes = high - low
        new = np.repeat(np.arange(len(chosen)), sizes)
        first = np.repeat(low - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes) if len(sizes) else low
        some = self.where(first + np.arange(int(sizes.sum())))
        return LoggedEvents(new, some.rank, some.action, some.amount, some.delay)


LoggedEvents.EMPTY = LoggedEvents.of([], rank=[], action=[], amount=[], delay=[])
