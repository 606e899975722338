"""Confidence intervals and confidence sequences for a mean, from values of impressions grouped into independent units.

* ``fixed_interval``: right if the number of units was fixed beforehand.
* ``asymptotic_sequence``: stays right however often one looks, for large numbers (Waudby-Smith et al. 2024, "asymptotic
  confidence sequences"); a formula on mean, spread and count.
* ``betting_sequence``: stays right however often one looks, at any number, for values with a known bound (Waudby-Smith and
  Ramdas 2024, "betting"): no approximation. ``refuted_after`` says when it ruled out one mean, such as 0.

Values x are those of impressions. Impressions of one unit (a user, a query) may depend on each other; different units must
not. The mean is always that of impressions, sum x / number of impressions: with units of unequal size a ratio of two sums,
whose error follows from the units' own sums (``UnitSums``). Sequences take units in the order in which they first came and
hold if every unit is complete: all its impressions that count are there when it is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.distributions import normal_quantile, t_quantile
from ranktrial.interval import Interval
from ranktrial.log._kernels import NEVER, betting_interval, predictable_bets, refuted_at, sums_so_far
from ranktrial.log.units import Units, UnitSums

LOOKS = 4  # per doubling of the number of units
FIRST_LOOK = 100  # units, before which nothing is said
ENOUGH_TO_TELL = 20  # units that differ from the first, before a spread is believed


def looks(units: int) -> IntArray:
    """Numbers of units at which to look: a fixed grid, so that two reports agree on what they share of the past, and the last.

    >>> looks(11)
    array([ 1,  2,  3,  4,  5,  6,  8,  9, 11])
    """
    checks.at_least("units", units, 1)
    grid = 2 ** (np.arange(int(LOOKS * np.log2(units)) + 1) / LOOKS)
    return np.unique(np.append(np.floor(grid + 1e-9).astype(np.int64), units))


@dataclass(frozen=True, eq=False)
class Band:
    """A confidence sequence at given numbers of units: the interval of each, and what they ruled out on the way.

    Attributes:
        units: How many units had been seen.
        mean: The estimate, per impression.
        low: Lower end of the interval for the mean.
        high: Upper end.
        level: Confidence that the mean is inside at all of them at once.

    >>> band = asymptotic_sequence([0.0, 1.0] * 500, [100, 1_000])
    >>> band.low.round(2), band.high.round(2)
    (array([0.04, 0.44]), array([0.96, 0.56]))
    >>> print(band.last)
    +0.4390 to +0.5610
    >>> band.decided_at(0.4)
    1000
    """

    units: IntArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    level: float

    @property
    def last(self) -> Interval:
        """The interval after the most units."""
        return Interval(float(self.low[-1]), float(self.high[-1]))

    def decided_at(self, value: float = 0.0) -> int | None:
        """Number of units after which an interval first excluded this value; None if none did.

        If the mean has stayed the same, the value may be taken as ruled out from there on: the chance that the true mean is
        ever left out is 1 - level, whatever later intervals hold.
        """
        outside = np.flatnonzero((self.low > value) | (self.high < value))
        return int(self.units[outside[0]]) if len(outside) else None

    def intersected(self) -> Band:
        """The running intersection: each end keeps its best value so far.

        Never wider and as valid, but only for a mean that stays the same; it need not hold the estimate. Where low > high
        nothing is left: the mean has changed, or the sequence had missed it.
        """
        return replace(self, low=np.maximum.accumulate(self.low), high=np.minimum.accumulate(self.high))

    def at(self, units: ArrayLike) -> Band:
        """Return the sequence at some of its numbers of units, as for a chart."""
        wanted = checks.checkpoints(units)
        place = np.searchsorted(self.units, wanted)
        missing = np.flatnonzero(self.units[np.minimum(place, len(self.units) - 1)] != wanted)
        if len(missing):
            raise ValueError(f"the band was not worked out at {wanted[missing[0]]} units, so it cannot be shown there")
        mean, low, high = (of[place] for of in (self.mean, self.low, self.high))
        return replace(self, units=wanted, mean=mean, low=low, high=high)


def fixed_interval(
    values: ArrayLike | UnitSums, level: float = 0.95, *, units: ArrayLike | Units | None = None
) -> Interval:
    """mean +- t standard errors, for a number of units fixed before looking; t has one degree of freedom less than units.

    ``units`` says whose impression each value is; without it impressions are independent. Values without any spread (as
    before the first click) are refused: they do not say how far the mean may be.

    >>> print(fixed_interval([0, 1, 0, 3, 0, 2], units=["ann", "ann", "bob", "bob", "eve", "eve"]))
    -0.2421 to +2.2421
    """
    checks.between("level", level, 0, 1, open_ends=True)
    sums = UnitSums.of(values, units)
    if len(sums) < 2:
        what = "values" if sums.units is None else "units"
        raise ValueError(f"{len(sums)} {what}, an interval needs at least 2")
    error, mean = sums.standard_error, sums.mean
    if error <= 1e-14 * float(np.abs(sums.totals).max()):
        raise ValueError(f"all {len(sums)} units have the mean {mean:g}: without a spread there is no interval")
    return Interval.around(mean, float(t_quantile(0.5 + level / 2, len(sums) - 1)) * error)


def difference_values(clicks: ArrayLike, in_a: ArrayLike) -> FloatArray:
    """The difference in means of an A/B test as one value per impression, for ``fixed_interval`` of any unit.

    Their mean is mean(clicks in A) - mean(clicks in B), their spread that of the difference in large samples.

    >>> difference_values([3, 1, 1, 1], [True, True, False, False])
    array([ 3., -1.,  1.,  1.])
    """
    y, a = checks.finite("clicks", clicks), np.asarray(in_a, bool)
    if a.shape != y.shape:
        raise ValueError(f"in_a has shape {a.shape}, clicks {y.shape}: must be one each")
    if a.all() or not a.any():
        raise ValueError(f"all {len(a)} impressions are {'of A' if a.any() else 'of B'}: there is no difference")
    of_a, of_b = y[a].mean(), y[~a].mean()
    return np.asarray(of_a - of_b + np.where(a, (y - of_a) / a.mean(), (of_b - y) / (~a).mean()))


def mixture_scale(level: float, tightest_at: float) -> float:
    """Variance, in variances of a value, of the normal mixture whose sequence is tightest after so many units."""
    alpha = 1 - level
    return float((-2 * np.log(alpha) + np.log(1 - 2 * np.log(alpha))) / tightest_at)


def asymptotic_radius(
    units: ArrayLike, spread: ArrayLike, *, level: float = 0.95, tightest_at: float = 10_000
) -> FloatArray:
    """Half the width of the asymptotic confidence sequence, given the standard deviation of single values so far.

    >>> asymptotic_radius([10_000], [1.0]).round(4)
    array([0.0304])
    """
    checks.between("level", level, 0, 1, open_ends=True)
    checks.at_least("tightest_at", tightest_at, 1)
    n, rho2 = np.asarray(units, np.float64), mixture_scale(level, tightest_at)
    grown = n * rho2 + 1
    reach = np.sqrt(2 * grown / (n**2 * rho2) * np.log(np.sqrt(grown) / (1 - level)))
    return np.asarray(np.asarray(spread, np.float64) * reach)


def t_widening(freedom: float, level: float = 0.95) -> float:
    """Factor by which an interval is wider for an error with few degrees of freedom: t over the normal quantile.

    >>> round(t_widening(19), 3), round(t_widening(200), 3)
    (1.068, 1.006)
    """
    return t_quantile(0.5 + level / 2, freedom) / normal_quantile(0.5 + level / 2)


def asymptotic_sequence(
    values: ArrayLike | UnitSums,
    checkpoints: ArrayLike,
    *,
    level: float = 0.95,
    tightest_at: float = 10_000,
    first_look: float = FIRST_LOOK,
    widen: float = 1.0,
    bias_bound: float = 0.0,
    units: ArrayLike | Units | None = None,
) -> Band:
    """The asymptotic confidence sequence at increasing numbers of units.

    It holds for large numbers only, so nothing is said (the ends are infinite) before ``first_look`` units, nor before 20 of
    them differed from the first: with rare clicks an early spread of zero would rule out the truth for good.

    Each interval is that of its own look: the estimate +- a radius. It is meant for the mean over the units so far, also where
    that changes over time; see ``Band.intersected`` for what a constant mean allows. What is said after some units
    depends on those units only, so a later report repeats it.

    Args:
        checkpoints: Increasing numbers of units at which to look.
        tightest_at: The number of units at which it is narrowest next to a fixed interval; valid at any other too.
        widen: A factor of at least 1 on every radius, for errors that the values do not show (as that of an estimated
            theta). It acts on each look: widening an intersection of looks instead gives an interval too narrow.
        bias_bound: How far the mean may be off whatever the number of units; it is added to every radius.
        units: Whose impression each value is.

    >>> x = [0.0, 1.0] * 500
    >>> print(asymptotic_sequence(x, [1_000]).last, "or", asymptotic_sequence(x, [1_000], widen=2).last)
    +0.4390 to +0.5610 or +0.3780 to +0.6220
    """
    checks.at_least("widen", widen, 1)
    sums = UnitSums.of(values, units)
    points = sums.places(_points(checkpoints, sums.count))
    middle = sums.totals[0] / sums.impressions[0]  # shifting by a constant changes no spread, and keeps the sums small
    seen, summed, squared, crossed, counted, differ = sums_so_far(sums.totals, sums.impressions, points)
    mean = summed / seen
    squares = squared - 2 * mean * crossed + mean**2 * counted
    spread = np.sqrt(np.maximum(squares, 0) / np.maximum(points - 1, 1)) / (seen / points)
    come = points * sums.together
    of_units = spread * np.sqrt(sums.together)
    reach = widen * asymptotic_radius(come, of_units, level=level, tightest_at=tightest_at) + bias_bound
    reach = np.where((come >= first_look) & (differ >= ENOUGH_TO_TELL), reach, np.inf)
    return Band(sums.come(points), middle + mean, middle + mean - reach, middle + mean + reach, level)


def betting_sequence(
    values: ArrayLike | UnitSums,
    checkpoints: ArrayLike,
    *,
    bound: float,
    level: float = 0.95,
    tightest_at: float = 10_000,
    tolerance: float = 1e-7,
    units: ArrayLike | Units | None = None,
    largest_unit: int = 1,
) -> Band:
    """The betting confidence sequence at increasing numbers of units, for values with abs(x) <= bound.

    Its intervals are intersections: a mean refuted after any unit stays refuted. So they are for a mean that stays the same,
    need not hold the estimate, and are empty (low > high) where no constant mean is left.

    Args:
        checkpoints: Increasing numbers of units at which to look.
        bound: Known before the first value: the largest abs(x) that any display and clicks can give (``Affine.bound``).
        tightest_at: The number of units for which the bets are made; valid at any other number too.
        tolerance: How finely the ends are found, relative to the bound; ends are rounded outwards.
        units: Whose impression each value is.
        largest_unit: The most impressions that any unit can give, also known beforehand: count no more of each.

    >>> print(betting_sequence([0.0, 1.0] * 500, [100, 1_000], bound=1).last)
    +0.4469 to +0.5527
    """
    sums = UnitSums.of(values, units)
    points = _points(checkpoints, len(sums))
    y, w, bets = _bets(sums, bound, level, tightest_at, largest_unit)
    ends = np.array([betting_interval(y[:n], w[:n], bets[:n], 1 - level, tolerance) for n in points])
    low, high = (ends * 2 * bound - bound).T
    mean = np.cumsum(sums.totals)[points - 1] / np.cumsum(sums.impressions)[points - 1]
    return Band(points, mean, low, high, level).intersected()  # they differ from intersections by the tolerance at most


def refuted_after(
    values: ArrayLike | UnitSums,
    mean: float,
    *,
    bound: float,
    level: float = 0.95,
    tightest_at: float = 10_000,
    units: ArrayLike | Units | None = None,
    largest_unit: int = 1,
) -> int | None:
    """Number of units after which the betting sequence, looked at after each, first excluded this mean; None if never.

    >>> refuted_after([1.0] * 40, 0.0, bound=1.0, tightest_at=10), refuted_after([1.0, -1.0] * 40, 0.0, bound=1.0)
    (10, None)
    """
    checks.between("mean", mean, -bound, bound)
    y, w, bets = _bets(UnitSums.of(values, units), bound, level, tightest_at, largest_unit)
    scaled, needed = (mean + bound) / (2 * bound), np.log(2 / (1 - level))
    times = [refuted_at(y, w, bets, scaled, above, needed) for above in (True, False)]
    return min((int(at) + 1 for at in times if at != NEVER), default=None)


def _bets(
    sums: UnitSums, bound: float, level: float, tightest_at: float, largest_unit: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Units scaled to 0 <= y <= w <= 1, checked, and the bets on them."""
    checks.between("level", level, 0, 1, open_ends=True)
    checks.at_least("tightest_at", tightest_at, 1)
    checks.at_least("largest_unit", largest_unit, 1)
    if not bound > 0:
        raise ValueError(f"bound is {bound!r}, must be positive")
    named = range(len(sums)) if sums.units is None else sums.units
    big = np.flatnonzero(sums.impressions > largest_unit)
    if len(big):
        raise ValueError(
            f"unit {named[big[0]]} has {sums.impressions[big[0]]:g} impressions, largest_unit is {largest_unit}: "
            "the sequence would not be valid"
        )
    outside = np.flatnonzero(np.abs(sums.totals) > bound * (1 + 1e-9) * sums.impressions)
    if len(outside):
        what, at = "value" if sums.units is None else "mean of unit", outside[0]
        value = sums.totals[at] / sums.impressions[at]
        raise ValueError(
            f"{what} {named[at]} is {value:g}, beyond the bound {bound:g}: the sequence would not be valid"
        )
    w = sums.impressions / largest_unit
    y = np.clip((sums.totals / largest_unit + bound * w) / (2 * bound), 0, w)
    return y, w, predictable_bets(y, w, 1 - level, float(tightest_at))


def _points(checkpoints: ArrayLike, n: int) -> IntArray:
    points = checks.checkpoints(checkpoints)
    if points[-1] > n:
        raise ValueError(f"the last checkpoint is {points[-1]}, but there are {n} values")
    return points
