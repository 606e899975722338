"""Events of a version's impressions, read from its store, and times of clicks: those that the metrics of a trial need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import BoolArray, IntArray
from ranktrial.log.events import LoggedEvents
from ranktrial.log.growing import Growing
from ranktrial.metrics import CLICK, EventMetric, Metric, TimeToFirstClick
from ranktrial.store.base import EventRow
from ranktrial.store.protocols import Store
from ranktrial.tokens import KEY_BYTES

KEY = f"S{KEY_BYTES}"
EVENT = np.dtype([("at", "i4"), ("rank", "i1"), ("action", "i1"), ("amount", "i8"), ("time", "i8")])
LATER_PAGE, NOT_SHOWN = -1, -2  # instead of a rank
Place = Callable[[NDArray[Any], Sequence[str]], tuple[IntArray, IntArray]]


def actions_of(metrics: Sequence[Metric]) -> tuple[str, ...]:
    """Actions whose events some metrics count, sorted.

    >>> from ranktrial.metrics import Abandonment, Carts, Revenue
    >>> actions_of([Revenue(), Carts(), TimeToFirstClick()]), actions_of([Abandonment()])
    (('cart', 'click', 'order'), ())
    """
    found = {action for metric in metrics if isinstance(metric, EventMetric) for action in metric.of_actions}
    if any(isinstance(metric, TimeToFirstClick) for metric in metrics):
        found.add(CLICK)
    return tuple(sorted(found))


class StoredEvents:
    """Events read so far, each with its impression and rank.

    Args:
        store: Where they are.
        version: Whose they are.
        actions: Those that are kept; clicks among them if their times are needed.
        place: Impression of each key and rank of the document on its page: -1 where there is none, and ``NOT_SHOWN`` for a
            document that is not on later pages either.
    """

    def __init__(self, store: Store, version: int, actions: Sequence[str], place: Place) -> None:
        self.actions = tuple(actions)
        self.timed = CLICK in self.actions
        self._store, self._version, self._place = store, version, place
        self._number = {action: number for number, action in enumerate(self.actions)}
        self._events = Growing(EVENT)
        self._waiting: list[tuple[Any, ...]] = []  # for their impressions, which are not there (yet)
        self._position = 0

    def read(self) -> bool:
        """Read new events, some thousand at a time, and tell whether there were any."""
        before = self._position
        if self._number.keys() - {CLICK}:
            for rows in self._store.blocks(EventRow, self._version, before):
                self._position = rows[-1][0]
                self._match(rows)
        return self._position != before

    def match_waiting(self) -> None:
        """Look again for the impressions of events that had none, now that others were read."""
        waiting, self._waiting = self._waiting, []
        self._match(waiting)

    def _match(self, rows: Sequence[tuple[Any, ...]]) -> None:
        rows = [row for row in rows if row[3] in self._number]
        if not rows:
            return
        at, rank = self._place(np.array([row[1] for row in rows], KEY), [row[2] for row in rows])
        new = np.empty(len(rows), EVENT)
        new["at"], new["rank"] = at, rank
        new["action"] = [self._number[row[3]] for row in rows]
        new["amount"], new["time"] = [row[4] for row in rows], [row[5] for row in rows]
        self._events.append(new[at >= 0])
        self._waiting += [rows[i] for i in np.flatnonzero(at < 0).tolist()]

    def add_clicks(self, at: IntArray, rank: IntArray, time: IntArray) -> None:
        """Add clicks on results of impressions, with their times: 0 if that is not known."""
        known = time > 0
        new = np.zeros(int(known.sum()), EVENT)
        new["at"], new["rank"], new["time"] = at[known], rank[known], time[known]
        new["action"] = self._number[CLICK]
        self._events.append(new)

    def of(self, time: IntArray, position: IntArray) -> LoggedEvents:
        """Events of a log, given the time of each impression and where it is in the log, -1 if it is left out."""
        rows = self._events.values
        at = position[rows["at"]]
        use = (at >= 0) & (rows["rank"] >= 0)
        if not use.all():
            rows, at = rows[use], at[use]
        # Clocks differ: what was reported as earlier than the search came right after it.
        delay = np.maximum(rows["time"] - time[rows["at"]], 0)
        return LoggedEvents.of(at, rank=rows["rank"], action=rows["action"], amount=rows["amount"], delay=delay)

    def left_out(self, dropped: BoolArray) -> dict[str, int]:
        """Numbers of events that do not count, by reason, given which impressions are left out."""
        rank, void = self._events.values["rank"], dropped[self._events.values["at"]]
        strange = rank[~void & (rank < 0)]
        return {
            "events without impression": len(self._waiting),
            "events on void impressions": int((void & (rank >= 0)).sum()),
            "events on what was not shown": int((strange == NOT_SHOWN).sum()),
            "events off the drawn page": int((strange == LATER_PAGE).sum()),
        }
