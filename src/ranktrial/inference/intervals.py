"""How sure is the estimate, when people look at it once, or again and again?

* ``fixed_interval``: right if the number of impressions was fixed beforehand.
* ``asymptotic_sequence``: stays right however often one looks, for large numbers (Waudby-Smith et al. 2024, "asymptotic
  confidence sequences"); a formula on mean, spread and count.
* ``betting_sequence``: stays right however often one looks, at any number, for values with a known bound (Waudby-Smith and
  Ramdas 2024, "betting"): no approximation.

Values x are those of randomisation units in the order they came: impressions, or users when one user gives several.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ranktrial import checks
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.inference._kernels import betting_interval, predictable_bets

ENOUGH_TO_TELL = 20  # values that differ from the first, before a spread is believed


@dataclass(frozen=True, eq=False)
class Band:
    """Lower and upper ends after numbers of units; what was ruled out once stays ruled out.

    Attributes:
        units: How many units had been seen.
        low: Lower end of the interval for the mean.
        high: Upper end.
        level: Confidence that the mean is inside at all of them at once.
    """

    units: IntArray
    low: FloatArray
    high: FloatArray
    level: float


def fixed_interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """mean +- z sd / sqrt(n), for a number of units fixed before looking."""
    x = checks.finite("values", values)
    checks.between("level", level, 0, 1, open_ends=True)
    if len(x) < 2:
        raise ValueError(f"{len(x)} values, an interval needs at least 2")
    reach = float(stats.norm.ppf(0.5 + level / 2) * x.std(ddof=1) / np.sqrt(len(x)))
    return float(x.mean()) - reach, float(x.mean()) + reach


def asymptotic_radius(
    units: ArrayLike, spread: ArrayLike, *, level: float = 0.95, tightest_at: float = 10_000
) -> FloatArray:
    """Half the width of the asymptotic confidence sequence, given the standard deviation of single values so far.

    >>> asymptotic_radius([10_000], [1.0]).round(4)
    array([0.0304])
    """
    checks.between("level", level, 0, 1, open_ends=True)
    checks.at_least("tightest_at", tightest_at, 1)
    n, alpha = np.asarray(units, np.float64), 1 - level
    rho2 = (-2 * np.log(alpha) + np.log(1 - 2 * np.log(alpha))) / tightest_at
    grown = n * rho2 + 1
    return np.asarray(np.asarray(spread) * np.sqrt(2 * grown / (n**2 * rho2) * np.log(np.sqrt(grown) / alpha)))


def asymptotic_sequence(
    values: ArrayLike,
    checkpoints: ArrayLike,
    *,
    level: float = 0.95,
    tightest_at: float = 10_000,
    first_look: int = 100,
) -> Band:
    """The asymptotic confidence sequence at increasing numbers of units.

    It holds for large numbers only, so nothing is said (the ends are infinite) before ``first_look`` units, nor before 20 of
    them differed from the first: with rare clicks an early spread of zero would rule out the truth for good.
    """
    x = checks.finite("values", values)
    points = _points(checkpoints, len(x))
    mean = np.cumsum(x)[points - 1] / points
    centred = x - x.mean()  # shifting by a constant changes no spread, and keeps the sums small
    first, second = np.cumsum(centred)[points - 1] / points, np.cumsum(centred**2)[points - 1] / points
    variance = np.maximum(second - first**2, 0) * points / np.maximum(points - 1, 1)
    reach = asymptotic_radius(points, np.sqrt(variance), level=level, tightest_at=tightest_at)
    told = (points >= first_look) & (np.cumsum(x != x[0])[points - 1] >= ENOUGH_TO_TELL)
    reach = np.where(told, reach, np.inf)
    return _running(points, mean - reach, mean + reach, level)


def betting_sequence(
    values: ArrayLike, checkpoints: ArrayLike, *, bound: float, level: float = 0.95, tolerance: float = 1e-7
) -> Band:
    """The betting confidence sequence at increasing numbers of units, for values with abs(x) <= bound.

    ``tolerance`` is how finely the ends are found, relative to the bound; ends are rounded outwards.
    """
    x = checks.finite("values", values)
    checks.between("level", level, 0, 1, open_ends=True)
    if not bound > 0:
        raise ValueError(f"bound is {bound!r}, must be positive")
    outside = np.flatnonzero(np.abs(x) > bound)
    if len(outside):
        raise ValueError(
            f"value {outside[0]} is {x[outside[0]]:g}, beyond the bound {bound:g}: the sequence would not be valid"
        )
    points = _points(checkpoints, len(x))
    y = (x + bound) / (2 * bound)
    bets = predictable_bets(y, 1 - level)
    ends = np.array([betting_interval(y[:n], bets[:n], 1 - level, tolerance) for n in points]) * 2 * bound - bound
    return _running(points, ends[:, 0], ends[:, 1], level)


def _running(points: IntArray, low: FloatArray, high: FloatArray, level: float) -> Band:
    """Both sequences hold at all times at once, so each end may keep its best value so far.

    Should the ends cross, an assumption does not hold; then what the latest values say is shown, not an empty set.
    """
    best_low, best_high = np.maximum.accumulate(low), np.minimum.accumulate(high)
    crossed = best_low > best_high
    return Band(points, np.where(crossed, low, best_low), np.where(crossed, high, best_high), level)


def _points(checkpoints: ArrayLike, n: int) -> IntArray:
    points = checks.checkpoints(checkpoints)
    if points[-1] > n:
        raise ValueError(f"the last checkpoint is {points[-1]}, but there are {n} values")
    return points
