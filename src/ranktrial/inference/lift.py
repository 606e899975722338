"""Lift: how many per cent more clicks one ranker gets than the other, with an interval as sure as that of the difference.

With e the difference in clicks per impression and m the mean of both, the one ahead has m + e/2 and the other m - e/2, so

    lift = e / (m - e/2),   which is L where (1 + L/2) e - L m = 0.

For every L the left side is the mean of one value per impression, so an interval that holds for means holds for it: the lifts
for which 0 is inside are the interval (Fieller 1954). Its ends are the roots of a quadratic, and 0 is between them if and only
if it is in the interval of e.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ranktrial.inference.units import UnitSums
from ranktrial.interval import Interval

EVERYTHING = Interval(-np.inf, np.inf)


class Lift(NamedTuple):
    """More clicks, as a share of the other's, and its interval; all numbers where it is not known that the other has any."""

    share: float
    interval: Interval


def lift(difference: Interval, values: UnitSums, clicks: UnitSums) -> Lift:
    """The lift of the ranker whose clicks minus the other's the difference is.

    Args:
        difference: Its interval, a number of standard errors to either side.
        values: Of the difference, by unit: they tell the number of standard errors.
        clicks: Per impression of pages that are half A's and half B's, by unit; of the same impressions or others.

    >>> values, clicks = UnitSums.of([1.0, -1.0] * 500 + [0.2] * 100), UnitSums.of([1.0, 0.0] * 550)
    >>> found = lift(Interval(-0.05, 0.09), values, clicks)
    >>> round(found.share, 4), f"{found.interval:+.3f}"
    (0.0408, '-0.102 to +0.184')
    """
    e, reach = difference.middle, difference.half_width
    if not np.isfinite(reach) or not len(clicks) or not clicks.mean - e / 2 > 0:
        return Lift(float("nan"), EVERYTHING)
    m, wide = clicks.mean, reach * clicks.standard_error / values.standard_error
    both = reach * wide * _correlation(values, clicks)
    share = e / (m - e / 2)
    square = (m - e / 2) ** 2 - reach**2 / 4 + both - wide**2
    linear, constant = e**2 - 2 * e * m - reach**2 + 2 * both, e**2 - reach**2
    if not square > 0:  # the other's clicks are not surely above 0
        return Lift(share, EVERYTHING)
    half = np.sqrt(max(linear**2 - 4 * square * constant, 0.0)) / (2 * square)
    return Lift(share, Interval.around(-linear / (2 * square), float(half)))


def _correlation(one: UnitSums, other: UnitSums) -> float:
    """Of two means over units, of which some may have given values to one of them only."""
    first, second = (sums.totals - sums.mean * sums.impressions for sums in (one, other))
    norm = float(np.sqrt((first @ first) * (second @ second)))
    if one.units is not None and other.units is not None and not np.array_equal(one.units, other.units):
        _, at, there = np.intersect1d(one.units, other.units, assume_unique=True, return_indices=True)
        first, second = first[at], second[there]
    return float(first @ second) / norm if norm > 0 else 0.0
