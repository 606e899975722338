"""A log as analyses see it: columns of all impressions in order of time, and their designs a block of impressions at a time.

Two kinds of things are worked out of a log. What is *fitted* to it (position bias, guesses of relevance) rests on its first
impressions, all of them by default. What impressions are *worth*, given that, is a matter of each block alone. A log that
grows keeps both, so that the next analysis costs what is new; one in memory is a single block, and keeps nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.inference._kernels import first_places
from ranktrial.inference.intervals import Units
from ranktrial.position_bias import Counts

if TYPE_CHECKING:
    from ranktrial.inference.log import Log

T = TypeVar("T")
GROUPS = 20  # of units, for jackknives


@dataclass
class Kept:
    """What was worked out, by what it is and what it rests on: in this analysis, and in the one before."""

    now: dict[Hashable, Any] = field(default_factory=dict)
    before: dict[Hashable, Any] = field(default_factory=dict)

    def get(self, key: Hashable, work: Callable[[], T]) -> T:
        """What is kept under a key, or found by ``work`` and kept."""
        if key not in self.now:
            self.now[key] = self.before.pop(key) if key in self.before else work()
        found: T = self.now[key]
        return found

    def later(self) -> Kept:
        """For the next analysis, which lets go of what it does not ask for."""
        return Kept(before=self.now)


@dataclass(frozen=True, eq=False)
class Block:
    """Impressions in a row of a log.

    Attributes:
        rows: Which.
        load: Gives them with their designs, numbered by themselves.
        kept: What was worked out of them; None where that is not kept.
    """

    rows: slice
    load: Callable[[], Log]
    kept: Kept | None = None

    def found(self, what: Hashable, work: Callable[[], T]) -> T:
        """What ``work`` finds, or what is kept of that."""
        return work() if self.kept is None else self.kept.get(what, work)


class DocumentOrder(NamedTuple):
    """An order of a log's documents by query, which depends on what they are and not on their numbers.

    Attributes:
        position: In it, of every document by its number.
        document: At each position.
        query: And its query.
    """

    position: IntArray
    document: IntArray
    query: IntArray


class Impressions(ABC):
    """What every log has, whether its designs are all in memory (``Log``) or not.

    Attributes:
        k: Ranks that count.
        unit: Number of each impression's unit.
        time: In microseconds.
        clicks: Which ranks were clicked, ``(impressions, k)``.
        theta: Position bias, where it is known.
        left_out: What was logged but is not in here, and how often.
        strange_units: Units that clicked on what was on none of their pages.
    """

    k: int
    unit: IntArray
    time: IntArray
    clicks: BoolArray
    theta: FloatArray | None
    left_out: Mapping[str, int]
    strange_units: IntArray

    @property
    @abstractmethod
    def arm(self) -> NDArray[np.int8]:
        """Which plain list each impression was drawn as: 1 is A's own, -1 B's own, 0 neither."""

    @property
    @abstractmethod
    def shares(self) -> FloatArray:
        """Probabilities of A's own list and of B's own under each impression's design: ``(impressions, 2)``."""

    @property
    @abstractmethod
    def apart(self) -> BoolArray:
        """Whether the two lists of each impression differ."""

    @property
    @abstractmethod
    def asked(self) -> tuple[Sequence[Hashable], IntArray]:
        """Names of queries, and which of them each impression is of."""

    @property
    @abstractmethod
    def designs(self) -> IntArray:
        """Number of each impression's design."""

    @property
    @abstractmethod
    def blocks(self) -> Sequence[Block]:
        """The impressions, block by block."""

    @property
    @abstractmethod
    def document_order(self) -> DocumentOrder: ...

    @property
    @abstractmethod
    def rank_width(self) -> int:
        """More than any rank of a candidate."""

    @property
    @abstractmethod
    def listed(self) -> int:
        """Number of documents in the lists of all impressions, those of the same query and lists counted once."""

    @abstractmethod
    def shown(self, impressions: IntArray) -> NDArray[np.int32]:
        """Documents at each rank of some impressions, -1 for nothing."""

    @abstractmethod
    def parts(self, groups: int = GROUPS, *, clicked_only: bool = True) -> list[Counts]:
        """Counts of each group of units; without documents that are never clicked, which tell estimators that eliminate
        relevance nothing."""

    @abstractmethod
    def whole(self) -> Log:
        """The log with all of its designs in memory."""

    @abstractmethod
    def first(self, impressions: int) -> Impressions:
        """The first impressions."""

    @abstractmethod
    def take(self, impressions: BoolArray | IntArray | slice) -> Self:
        """The same log of some impressions only."""

    def last(self, impressions: int) -> Self:
        """The last impressions."""
        n = len(self)
        return self if impressions == n else self.take(slice(n - impressions, n))

    def __len__(self) -> int:
        return len(self.unit)

    def release(self) -> None:  # noqa: B027 (a log in memory has nothing else)
        """Let go of what can be made again."""

    @cached_property
    def units(self) -> Units:
        return Units.of(self.unit)

    def units_of(self, rows: IntArray) -> Units:
        """Those of some impressions, in order."""
        return self.units if len(rows) == len(self) else Units.of(self.unit[rows])

    @cached_property
    def clicks_each(self) -> NDArray[np.int32]:
        """Number of clicks on each impression."""
        return np.asarray(self.clicks.sum(1, dtype=np.int32))

    @cached_property
    def drawn(self) -> IntArray:
        """Impressions that are draws of their own: a unit that asks the same again, with other lists, has the same luck."""
        units, (names, query) = self.units, self.asked
        again = units.impressions[units.place] > 1
        back = np.flatnonzero(again)
        once, _ = first_places(units.place[back] * max(len(names), 1) + query[back])
        again[back[once]] = False
        return np.flatnonzero(~again)

    def group(self, groups: int = GROUPS) -> IntArray:
        """The group of units that each impression belongs to, for jackknives."""
        return np.asarray(self.unit.astype(np.int64).view(np.uint64) % np.uint64(groups), np.int64)

    @cached_property
    def fits(self) -> Kept:
        """What was fitted to first impressions."""
        return Kept()

    def fitted(self, first: int, what: Hashable, work: Callable[[Impressions], T]) -> T:
        """What ``work`` fits to the first impressions; ``what`` says what that is and what else it rests on."""
        return self.fits.get((first, what), lambda: work(self.first(first)))

    def by_block(self, what: Hashable, work: Callable[[Log, slice], T]) -> list[T]:
        """What ``work`` finds in each block, given its impressions and which they are.

        It may rest on these, on impressions before them, and on what ``what`` names.
        """
        return [block.found(what, lambda block=block: work(block.load(), block.rows)) for block in self.blocks]  # type: ignore[misc]

    def running(self, what: Hashable, start: T, work: Callable[[Log, slice, T], T]) -> list[T]:
        """What ``work`` finds in each block, given what it found in the block before, and at first ``start``."""
        found = [start]
        for block in self.blocks:
            before = found[-1]
            found.append(block.found(what, lambda block=block, before=before: work(block.load(), block.rows, before)))  # type: ignore[misc]
        return found[1:]

    def each(self, what: Hashable, work: Callable[[Log, slice], FloatArray]) -> FloatArray:
        """One number per impression, found block by block."""
        return np.concatenate(self.by_block(what, work))
