"""Mean error curves over pairs of rankers, what is read off them, and intervals over pairs (bootstrap and Wilson's)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import FloatArray, IntArray
from ranktrial.paper.study.results import Runs, common

RESAMPLES = 200
FEWEST = 10  # pairs, for an interval: a bootstrap of fewer is far too sure of itself
LEVEL = 0.95


@dataclass(frozen=True)
class Measured:
    """A number with its interval.

    Attributes:
        value: The number from all pairs.
        low: Lower end of the 95 % interval over pairs.
        high: Upper end.
        pairs: How many pairs (or errors) it rests on.
    """

    value: float
    low: float
    high: float
    pairs: int

    @property
    def finite(self) -> tuple[float | None, float | None, float | None]:
        """Value, low and high; None where a number is infinite or not known."""
        return finite(self.value), finite(self.low), finite(self.high)

    def text(self, *, percent: bool = False) -> str:
        """The number with its interval, as people read it.

        >>> Measured(0.1, 0.0434, 0.214, 50).text(percent=True)
        '10.0 % (4.3 to 21.4)'
        """
        value, low, high = (number_text(one, percent=percent) for one in (self.value, self.low, self.high))
        if not np.isfinite(self.low) and not np.isfinite(self.high):
            return value
        return f"{value} ({low.removesuffix(' %')} to {high.removesuffix(' %')})"


def finite(value: float) -> float | None:
    """The number, or None if it is infinite or NaN, which JSON and CSV do not have."""
    return value if np.isfinite(value) else None


def number_text(value: float, *, percent: bool = False) -> str:
    """A number as people read it; infinitely many impressions are "never".

    >>> number_text(0.0712, percent=True), number_text(0.07123), number_text(3_000_000), number_text(np.inf)
    ('7.1 %', '0.0712', '3,000,000', 'never')
    """
    if np.isnan(value):
        return "-"
    if np.isinf(value):
        return "never" if value > 0 else "-"
    return f"{100 * value:.1f} %" if percent else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def means(errors: FloatArray) -> FloatArray:
    """Means over pairs; NaN where nothing is known."""
    known = np.isfinite(errors)
    total = np.where(known, errors, 0.0).sum(0)
    return np.asarray(np.divide(total, known.sum(0), out=np.full(total.shape, np.nan), where=known.any(0)))


def standard_errors(errors: FloatArray) -> FloatArray:
    """Standard errors of means over pairs; NaN from one pair."""
    n = len(errors)
    spread = errors.std(0, ddof=1) if n > 1 else np.full(errors.shape[1:], np.nan)
    return np.asarray(spread / np.sqrt(n))


def bootstrap(measure: Callable[..., float], *errors: FloatArray) -> Measured:
    """A number worked out from mean curves, with the 95 % interval over samples of as many pairs; rows of all arrays are the
    same pairs and are drawn together. The seed is fixed: the same results give the same interval. Few pairs have none."""
    n = len(errors[0])
    if n < FEWEST:
        value = measure(*(array.mean(0) for array in errors))
        return Measured(value, -np.inf, np.inf, n)
    draws = np.random.default_rng(20200914).multinomial(n, np.full(n, 1 / n), RESAMPLES) / n
    shares = np.vstack([np.full(n, 1 / n), draws])
    curves = [shares @ array for array in errors]
    values = np.array([measure(*rows) for rows in zip(*curves)])
    others = np.sort(values[1:][~np.isnan(values[1:])])
    if np.isnan(values[0]) or len(others) < RESAMPLES / 2:
        return Measured(float(values[0]), -np.inf, np.inf, n)
    cut = (1 - LEVEL) / 2
    # Order statistics, not interpolated: values may be infinite ("never").
    low, high = others[int(cut * len(others))], others[min(int((1 - cut) * len(others)), len(others) - 1)]
    return Measured(float(values[0]), float(low), float(high), n)


def share(wrong: FloatArray) -> Measured:
    """A share of zeros and ones with Wilson's interval, which stays sensible at 0 of n.

    >>> share(np.zeros(50))
    Measured(value=0.0, low=0.0, high=0.07135, pairs=50)
    """
    n = len(wrong)
    z2 = 1.959964**2
    if n == 0:
        return Measured(np.nan, -np.inf, np.inf, 0)
    p = float(np.mean(wrong))
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = np.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n**2))) / (1 + z2 / n)
    return Measured(p, round(float(max(middle - half, 0)), 5), round(float(min(middle + half, 1)), 5), n)


def reached(impressions: IntArray, curve: FloatArray, levels: ArrayLike) -> FloatArray:
    """Impressions after which a mean error falls to each level and stays there, between checkpoints on a straight line in
    log-log; infinite if it never does, the first checkpoint if it was there from the start.

    >>> reached(np.array([100, 10_000]), np.array([0.1, 0.01]), [0.2, 0.0316227766, 0.001]).round(3)
    array([ 100., 1000.,   inf])
    """
    wanted = np.asarray(levels, np.float64)
    if np.isnan(curve).any():
        return np.full(wanted.shape, np.inf)
    worst = _still_to_come(curve)
    first = np.searchsorted(-worst, -wanted)  # the first checkpoint at or below the level
    after, before = np.minimum(first, len(worst) - 1), np.clip(first - 1, 0, len(worst) - 1)
    steps, points = np.log(np.maximum(worst, 1e-12)), np.log(impressions)  # an error of 0 has no logarithm
    fall = np.where(steps[before] > steps[after], steps[before] - steps[after], 1.0)
    part = (steps[before] - np.log(wanted)) / fall
    between = np.exp(points[before] + part * (points[after] - points[before]))
    return np.select([first == 0, first == len(worst)], [float(impressions[0]), np.inf], between)


def _still_to_come(curve: FloatArray) -> FloatArray:
    """The worst from each checkpoint on: it falls, whatever the noise."""
    return np.maximum.accumulate(curve[::-1])[::-1]


def needed_ratio(impressions: IntArray, curve: FloatArray, baseline: FloatArray) -> float:
    """The ratio of a method's impressions to a baseline's for the same mean error: the geometric mean over levels that both
    reach on the way; NaN where they have none in common.

    >>> points = np.geomspace(100, 10**6, 50)
    >>> round(needed_ratio(points, 2 / np.sqrt(points), 1 / np.sqrt(points)), 3)
    4.0
    """
    both = [_still_to_come(curve), _still_to_come(baseline)]
    if any(np.isnan(one).any() or one[0] <= 0 for one in both):
        return float("nan")
    top = min(one[0] for one in both)
    bottom = max(one[one > 0].min() for one in both)
    if not bottom < top:
        return float("nan")
    levels = np.geomspace(bottom, top, 12)[1:-1]
    method, other = (np.log(reached(impressions, one, levels)) for one in both)
    return float(np.exp(np.mean(method - other)))


def impressions_ratio(method: Runs, baseline: Runs, metric: str) -> Measured:
    """``needed_ratio`` on the pairs that both methods have, with its interval over pairs."""
    mine, other = common(method, baseline)
    return bootstrap(lambda a, b: needed_ratio(mine.impressions, a, b), mine.errors[metric], other.errors[metric])


def error_slope(runs: Runs) -> Measured:
    """The slope of the mean absolute error against impressions in log-log over the last two decades: -1/2 where only noise is
    left to fall, 0 where a systematic error is all there is."""
    late = runs.impressions >= runs.impressions[-1] / 100
    x = np.log(runs.impressions[late])
    return bootstrap(lambda curve: float(np.polyfit(x, np.log(curve), 1)[0]), runs.errors["absolute_error"][:, late])


def crossing(impressions: IntArray, curve: FloatArray, other: FloatArray) -> float:
    """Impressions from which on a curve is never above the other; infinite if it ends above.

    >>> crossing(np.array([100, 200, 400, 800]), np.array([4.0, 2, 3, 1]), np.array([3.0, 3, 2, 2]))
    800.0
    """
    above = np.flatnonzero(curve > other)
    after = int(above[-1]) + 1 if len(above) else 0
    return float(impressions[after]) if after < len(impressions) else float("inf")
