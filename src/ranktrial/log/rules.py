"""Rules for robots and heavy units: which units of a log are analysed.

They are declared before there is anything to see, and applied when a log is analysed, never when it is collected: an estimate
can be shown with and without. A rule looks at how much a unit does, never at which ranker gains, and leaves a unit out whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ranktrial import checks
from ranktrial.arrays import BoolArray, IntArray
from ranktrial.log.log import Log

EXCLUDED = "excluded"


@dataclass(frozen=True)
class Rules:
    """The most that a unit may do before it is left out; None for no bound.

    Bounds on clicks depend on what is measured: where visitors who click more also differ in which ranker they prefer, what is
    left is about the others. A bound on impressions does less of that; set all of them well above what people do.

    Attributes:
        unit_impressions: Impressions of a unit.
        unit_clicks: Clicks of a unit, on all of its impressions.
        impression_clicks: Clicks on any one of its impressions.
    """

    unit_impressions: int | None = None
    unit_clicks: int | None = None
    impression_clicks: int | None = None

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 (read by pydantic, where rules are part of a configuration)

    def __post_init__(self) -> None:
        for one in fields(self):
            if (most := getattr(self, one.name)) is not None:
                checks.whole(one.name, most, 0)


@dataclass(frozen=True)
class LeftOut:
    """Numbers of units, impressions and clicks that rules and exclusions removed from a log; false if none.

    Attributes:
        units: Number of units by reason; one that breaks several rules counts for the first.
        impressions: Impressions of these units.
        clicks: Clicks on these impressions.
    """

    units: dict[str, int]
    impressions: int
    clicks: int

    def __bool__(self) -> bool:
        return bool(self.units)


def apply_rules(log: Log, rules: Rules | None = None, excluded: Collection[int] = ()) -> tuple[Log, LeftOut]:
    """Remove units that break a rule or are excluded by number; return the log and the numbers removed.

    >>> from ranktrial.log import Log
    >>> records = [{"query": "q", "a": ["x"], "b": ["y"], "shown": ["x"], "unit": unit} for unit in ("ann", "bot", "bot")]
    >>> log = Log.from_records(records, k=1)
    >>> apply_rules(log, Rules(unit_impressions=1))
    (Log(impressions=1, clicks=0, queries=1, designs=1, k=1), LeftOut(units={'unit_impressions': 1}, impressions=2, clicks=0))
    """
    if not excluded and (rules is None or rules == Rules()):
        return log, LeftOut({}, 0, 0)
    names, unit, clicks = log.units.names, log.units.place, log.clicks_each
    done: dict[str, Callable[[], IntArray]] = {
        "unit_impressions": lambda: np.bincount(unit, minlength=len(names)),
        "unit_clicks": lambda: np.bincount(unit, clicks, minlength=len(names)),
        "impression_clicks": lambda: _most_by(unit, clicks, len(names)),
    }
    reasons: dict[str, BoolArray] = {EXCLUDED: np.isin(names, np.array(sorted(excluded), np.int64))}
    for name, by_unit in done.items():
        most = None if rules is None else getattr(rules, name)
        if most is not None:
            reasons[name] = by_unit() > most
    out, counts = np.zeros(len(names), bool), {}
    for reason, units in reasons.items():
        counts[reason] = int((units & ~out).sum())
        out |= units
    if not out.any():
        return log, LeftOut({}, 0, 0)
    left = out[unit]
    kept = log.take(~left)
    object.__setattr__(kept, "kept", log.kept.of_some)
    units_out = {reason: count for reason, count in counts.items() if count}
    return kept, LeftOut(units_out, int(left.sum()), int(clicks[left].sum()))


def _most_by(unit: IntArray, values: NDArray[np.integer], n: int) -> IntArray:
    """The largest value of each of n units."""
    most = np.zeros(n, np.int64)
    np.maximum.at(most, unit, values)
    return most
