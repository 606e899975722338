"""Rules for robots and heavy units: which units of a log are analysed.

They are declared before there is anything to see, and applied when a log is analysed, never when it is collected: an estimate
can be shown with and without. A rule looks at how much a unit does, never at which ranker gains, and leaves a unit out whole.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ranktrial import checks
from ranktrial.arrays import BoolArray, IntArray
from ranktrial.inference.impressions import Impressions
from ranktrial.inference.results import Estimate

EXCLUDED = "excluded"
L = TypeVar("L", bound=Impressions)


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
                checks.whole(one.name, most, 0, sys.maxsize)


@dataclass(frozen=True)
class LeftOut:
    """What rules and exclusions took out of a log; false if that is nothing.

    Attributes:
        units: How many units, by why; one that breaks several rules counts for the first.
        impressions: Of these units.
        clicks: On these impressions.
    """

    units: dict[str, int]
    impressions: int
    clicks: int

    def __bool__(self) -> bool:
        return bool(self.units)


def apply_rules(log: L, rules: Rules | None = None, excluded: Collection[int] = ()) -> tuple[L, LeftOut]:
    """The log without units that break a rule or are excluded by number, and what that took out; the log itself if nothing.

    >>> from ranktrial.inference import Log
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
    units_out = {reason: count for reason, count in counts.items() if count}
    return kept, LeftOut(units_out, int(left.sum()), int(clicks[left].sum()))


def _most_by(unit: IntArray, values: NDArray[np.integer], n: int) -> IntArray:
    """The largest value of each of n units."""
    most = np.zeros(n, np.int64)
    np.maximum.at(most, unit, values)
    return most


class Heaviest(NamedTuple):
    """The unit with most impressions: its number, and its share of the impressions and of the estimate's variance."""

    unit: int
    impressions: float
    variance: float


def heaviest_unit(log: Impressions, found: Estimate) -> Heaviest:
    """The unit with most impressions of all: where its share of the variance is large, the estimate is about one visitor."""
    units = [log.arrivals(block.rows) for block in log.blocks]
    if found.at is not None:
        units = [some[at] for some, at in zip(units, found.at)]
    impressions = np.bincount(np.concatenate(units), minlength=log.cohorts.count)
    heavy = int(impressions.argmax())
    own = sum(float(x[some == heavy].sum()) for x, some in zip(found.values, units))
    sums, most = found.sums, int(impressions[heavy])
    away = (sums.totals - sums.mean * sums.impressions) ** 2
    variance = (own - sums.mean * most) ** 2 / max(away.sum(), 1e-300)
    first = int(log.arrived[heavy])
    return Heaviest(int(log.unit_of(slice(first, first + 1))[0]), most / found.impressions, float(variance))
