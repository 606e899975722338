"""Many differences at once, at one false discovery rate: e-values of estimates, and e-BH among them.

The e-value of an estimate after N units with sum S and variance s^2 per unit is

    e_N = (1 + N r2)^(-1/2) exp(r2 S^2 / (2 s^2 (1 + N r2)))

the normal mixture behind the asymptotic confidence sequence, at most 1 on average where there is no difference, whenever one
looks. e-BH (Wang and Ramdas 2022) takes the k largest of K e-values with e_(k) >= K / (rate k): no more than ``rate`` of them
are false on average, however they depend on each other. So metrics, segments, or both together may be one family.

>>> discoveries(np.log([90.0, 50.0, 20.0, 0.2]), rate=0.05)
array([ True,  True, False, False])
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.analysis.estimators.results import Estimate
from ranktrial.analysis.intervals import mixture_scale
from ranktrial.arrays import BoolArray, FloatArray
from ranktrial.interval import Interval

RATE = 0.05  # of discoveries that may be false


def log_evidence(
    estimate: Estimate, *, tightest_at: float = 10_000, level: float = 0.95, allowed: float | Interval = 0.0
) -> float:
    """Logarithm of the e-value against "A and B differ by no more than ``allowed``", after all units of an estimate.

    0, no evidence, where its sequence has no interval yet.

    Args:
        tightest_at: The number of units at which the evidence grows soonest; the trial's, fixed before it.
        level: Level of its interval, which decides how ``tightest_at`` is meant.
        allowed: A difference that is no discovery, such as the allowance for visitors who do not follow the click model; or
            by how much intervals are widened, downwards and upwards.
    """
    error, n = estimate.sums.standard_error * estimate.inflation(level), estimate.units
    if not error > 0 or not np.isfinite(estimate.anytime_interval(level, tightest_at=tightest_at).low):
        return 0.0
    if isinstance(allowed, Interval):
        allowed = allowed.low if estimate.delta > 0 else allowed.high
    away = max(abs(estimate.delta) - allowed - estimate.bias_bound, 0.0) / error
    grown = n * mixture_scale(level, tightest_at)
    return float(grown * away**2 / (2 * (1 + grown)) - np.log1p(grown) / 2)


def discoveries(log_evidence: ArrayLike, rate: float = RATE) -> BoolArray:
    """Flags of the discoveries in a family, given the logarithms of all its e-values; no evidence is 0, or nan."""
    checks.between("rate", rate, 0, 1, open_ends=True)
    found = np.nan_to_num(np.asarray(log_evidence, np.float64), nan=0.0)
    order = np.argsort(-found, kind="stable")
    needed = np.log(len(found) / (rate * np.arange(1, len(found) + 1))) if len(found) else found
    enough = np.flatnonzero(found[order] >= needed)
    flags = np.zeros(len(found), bool)
    flags[order[: enough[-1] + 1 if len(enough) else 0]] = True
    return flags


def least_rates(log_evidence: ArrayLike) -> FloatArray:
    """Smallest false discovery rate at which each member of a family is a discovery; 1 at most.

    >>> least_rates(np.log([90.0, 50.0, 20.0, 0.2])).round(3)
    array([0.04 , 0.04 , 0.067, 1.   ])
    """
    found = np.nan_to_num(np.asarray(log_evidence, np.float64), nan=0.0)
    order = np.argsort(-found, kind="stable")
    rates = np.log(len(found) / np.arange(1, len(found) + 1)) - found[order] if len(found) else found
    least = np.empty(len(found))
    least[order] = np.exp(np.minimum(np.minimum.accumulate(rates[::-1])[::-1], 0.0))
    return least


class Looked(Protocol):
    """An answer that is looked at beside the decision: a dataclass with ``discovery`` and ``rate``."""

    @property
    def evidence(self) -> float: ...


Answer = TypeVar("Answer", bound=Looked)


def in_one_family(answers: Iterable[Answer], rate: float = RATE, *, trusted: bool = True) -> tuple[Answer, ...]:
    """Answers with the discoveries among them, by segment and by metric alike, at one false discovery rate.

    Nothing is discovered unless the checks are ``trusted`` that all numbers rest on.
    """
    found = tuple(answers)
    evidence = [one.evidence for one in found]
    told = zip(found, discoveries(evidence, rate), least_rates(evidence))
    return tuple(
        replace(one, discovery=bool(flag) and trusted, rate=float(least))  # type: ignore[type-var]
        for one, flag, least in told
    )
