"""Decisions from estimates made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from ranktrial.analysis.decision import Decision, decide
from ranktrial.analysis.estimators.results import Estimate
from ranktrial.analysis.ladder import AB_TRAFFIC, NO_INTERVAL, SHARES, EstimatorResult, Hausman, Ladder
from ranktrial.interval import Interval

COUNTS: dict[str, Any] = {"searches": 1_000, "visitors": 900, "clicks": 700}


def result(
    name: str, low: float, high: float, *, delta: float | None = None, spread: float = 0.0, fixed: bool = False
) -> EstimatorResult:
    """An estimate of 200 units with this interval of A - B, in its middle or elsewhere, and a spread that fits it."""
    middle = (low + high) / 2 if delta is None else delta
    at, level = float("nan") if fixed else 10_000.0, 1 - 0.05 * SHARES[name]

    def spreading(size: float) -> EstimatorResult:
        found = Estimate.of(np.tile([middle - size, middle + size], 100), np.ones(3), largest_weight=1.0)
        return EstimatorResult(name, found, Interval(low, high), "", level, at)

    return spreading(spread or (high - low) / 2 / float(spreading(1.0).radius(200)))


def waiting(name: str, missing: str) -> EstimatorResult:
    """An estimate that is not there yet."""
    return EstimatorResult(name, None, NO_INTERVAL, missing)


def agrees(upper: str, lower: str = AB_TRAFFIC, *, error: float = 0.001, apart: float = 0.0) -> Hausman:
    """A test of one estimate by another, which agrees unless they are said to be apart."""
    return Hausman(upper, lower, apart, error, reach=4 * error)


def decided(*results: EstimatorResult, tests: tuple[Hausman, ...] | None = None, **options: Any) -> Decision:
    """The decision on estimates that agree with the first, without an allowance unless one is given."""
    known = {"disagreement": options.pop("disagreement", 0.5), "ctr": options.pop("ctr", 2.0)}
    if tests is None:
        tests = tuple(agrees(one.name, results[0].name) for one in results[1:])
    return decide(Ladder(results, tests, **known), **{**COUNTS, "allowance": 0.0, **options})
