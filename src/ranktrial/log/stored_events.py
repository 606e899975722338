"""Events of a version's impressions, and times of clicks: those that the metrics of a trial need."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import BoolArray, IntArray
from ranktrial.log.events import LoggedEvents
from ranktrial.log.growing import Growing
from ranktrial.metrics import CLICK, EventMetric, Metric, TimeToFirstClick

EVENT = np.dtype([("at", "i4"), ("rank", "i1"), ("action", "i1"), ("amount", "i8"), ("time", "i8")])
LATER_PAGE, NOT_SHOWN = -1, -2  # instead of a rank


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

    Attributes:
        actions: Those that are kept; clicks among them if their times are needed.
    """

    def __init__(self, actions: Sequence[str]) -> None:
        self.actions = tuple(actions)
        self._events = Growing(EVENT)

    def __len__(self) -> int:
        return len(self._events)

    def append(self, at: IntArray, rank: IntArray, action: ArrayLike, amount: ArrayLike, time: ArrayLike) -> None:
        """Add events, given the impression, rank (or ``LATER_PAGE``, ``NOT_SHOWN``) and number of the action of each."""
        new = np.empty(len(at), EVENT)
        new["at"], new["rank"], new["action"], new["amount"], new["time"] = at, rank, action, amount, time
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
            "events on void impressions": int((void & (rank >= 0)).sum()),
            "events on what was not shown": int((strange == NOT_SHOWN).sum()),
            "events off the drawn page": int((strange == LATER_PAGE).sum()),
        }
