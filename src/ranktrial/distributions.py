"""Normal, t and beta distributions and a root finder, as far as estimates and plans need them.

SciPy has them too, but is as large as all else that a service needs, compiler apart, and takes a second to load. The tests hold
these against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import FloatArray

MANY = 1000  # degrees of freedom from which on the series for t is right to 12 digits
NODES = 100  # of the integral over a noncentral t
LARGEST_LOGIT = 745.0  # exp(-745) is the least positive number
_STANDARD = NormalDist()
_erfc = np.frompyfunc(math.erfc, 1, 1)
_quantile = np.frompyfunc(_STANDARD.inv_cdf, 1, 1)


def normal_density(x: ArrayLike) -> FloatArray:
    """Density of the standard normal distribution."""
    return np.asarray(np.exp(-(np.asarray(x, np.float64) ** 2) / 2) / math.sqrt(2 * math.pi))


def normal_cdf(x: ArrayLike) -> FloatArray:
    """P(standard normal <= x), with all digits where it is tiny.

    >>> normal_cdf([0.0, -10.0])
    array([5.00000000e-01, 7.61985302e-24])
    """
    return np.asarray(_erfc(np.asarray(x, np.float64) / -math.sqrt(2)), np.float64) / 2


def normal_quantile(p: float) -> float:
    """Quantile of the standard normal distribution.

    >>> round(normal_quantile(0.975), 6)
    1.959964
    """
    return _STANDARD.inv_cdf(p) if 0 < p < 1 else (math.inf if p else -math.inf)


def normal_quantiles(p: ArrayLike) -> FloatArray:
    """``normal_quantile`` of many probabilities between 0 and 1."""
    return np.asarray(_quantile(p), np.float64)


@lru_cache(maxsize=1024)
def t_quantile(p: float, freedom: float) -> float:
    """Quantile of Student's t distribution; NaN if the degrees of freedom, at least 1, are NaN.

    >>> round(t_quantile(0.975, 19), 6), round(t_quantile(0.975, 1e6), 6)
    (2.093024, 1.959966)
    """
    if math.isnan(freedom):
        return math.nan
    if not 0 < p < 1 or p == 0.5:
        return 0.0 if p == 0.5 else normal_quantile(p)
    if freedom > MANY:
        return _t_by_series(normal_quantile(p), freedom)
    # t^2 / (t^2 + freedom) has a beta distribution, so its logit is that of t^2 / freedom.
    away = _beta_logits(np.array([abs(2 * p - 1)]), 0.5, freedom / 2)[0]
    return math.copysign(math.sqrt(freedom) * math.exp(away / 2), p - 0.5)


def _t_by_series(z: float, freedom: float) -> float:
    """Cornish and Fisher's series (Abramowitz and Stegun 26.7.5)."""
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def noncentral_t_tail(x: float, freedom: float, away: float) -> float:
    """P(noncentral t > x): of (z + away) / s, where freedom * s^2 is a chi-squared variable.

    >>> round(noncentral_t_tail(2.093, 19, 3.0), 4)
    0.8121
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = (1 + 12 / math.sqrt(2 * freedom)) / 2
    s = half * (1 + nodes)
    log_density = (freedom - 1) * np.log(s) - freedom * s**2 / 2
    constant = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    return float(half * weights @ (normal_cdf(away - x * s) * np.exp(log_density + constant)))


def f_tail(x: float, freedom: float, error_freedom: float) -> float:
    """P(F > x) for F with these degrees of freedom; a chi-squared variable over its own is F with infinitely many.

    >>> round(f_tail(4.3807, 1, 19), 4), round(f_tail(3.8415, 1, np.inf), 4)
    (0.05, 0.05)
    """
    if not x > 0:
        return 1.0
    a, b = min(error_freedom, 1e7) / 2, freedom / 2
    rest = freedom * x / (freedom * x + 2 * a)
    at = 2 * a / (freedom * x + 2 * a)
    density = np.asarray(math.exp(a * math.log(at) + b * math.log(rest) - _log_beta(a, b)))
    return float(_beta_cdf(np.asarray(at), np.asarray(rest), density, a, b))


def beta_quantile(p: ArrayLike, a: float, b: float) -> FloatArray:
    """The numbers that a beta variable stays below with these probabilities.

    >>> beta_quantile([0.25, 0.5], 2.0, 1.0) ** 2  # P(below x) = x^2
    array([0.25, 0.5 ])
    """
    return np.asarray(np.exp(-np.logaddexp(0, -_beta_logits(np.atleast_1d(np.asarray(p, np.float64)), a, b))))


def _beta_logits(p: FloatArray, a: float, b: float) -> FloatArray:
    """Logits of a beta variable's quantiles, by Newton's steps, or halves of what is left where these lead outside."""
    at = np.full(p.shape, math.log(a / b))
    low, high = np.full(p.shape, -LARGEST_LOGIT), np.full(p.shape, LARGEST_LOGIT)
    constant = _log_beta(a, b)
    for _ in range(200):
        log_x, log_rest = -np.logaddexp(0, -at), -np.logaddexp(0, at)
        density = np.exp(a * log_x + b * log_rest - constant)  # of the logit
        missing = p - _beta_cdf(np.exp(log_x), np.exp(log_rest), density, a, b)
        low, high = np.where(missing > 0, at, low), np.where(missing > 0, high, at)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            following = at + missing / density
        inside = (following > low) & (following < high)
        following = np.where(missing == 0, at, np.where(inside, following, (low + high) / 2))
        done = np.abs(following - at) <= 1e-14 * np.maximum(np.abs(at), 1)
        at = following
        if done.all():
            break
    return at


def _beta_cdf(x: FloatArray, rest: FloatArray, density: FloatArray, a: float, b: float) -> FloatArray:
    """P(beta variable <= x) by the continued fraction that is quick there; ``rest`` is 1 - x, ``density`` that of the logit."""
    left = x < (a + 1) / (a + b + 2)
    below = density / a * _beta_fraction(np.where(left, x, 0.0), a, b)
    above = density / b * _beta_fraction(np.where(left, 0.0, rest), b, a)
    return np.where(left, below, 1 - above)


def _beta_fraction(x: FloatArray, a: float, b: float) -> FloatArray:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    c = np.ones_like(x)
    fraction = d = 1 / (1 - (a + b) * x / (a + 1))
    for m in range(1, 10_000):
        for term in (
            m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * x * d)
            c = 1 + term * x / c
            fraction = fraction * (c * d)
        if (np.abs(c * d - 1) < 1e-15).all():
            break
    return fraction


def _log_beta(a: float, b: float) -> float:
    """Logarithm of the beta function; the difference of two large logarithms is worked out as such."""
    small, large = sorted((a, b))
    if large < 20:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    # Stirling's formula of large and of large + small, what they share left out.
    ratio = (large - 0.5) * math.log1p(small / large) + small * math.log(large + small) - small
    return math.lgamma(small) - ratio + _stirling_rest(large) - _stirling_rest(large + small)


def _stirling_rest(x: float) -> float:
    """Remainder of Stirling's formula for the logarithm of the gamma function."""
    return 1 / (12 * x) - 1 / (360 * x**3) + 1 / (1260 * x**5) - 1 / (1680 * x**7) + 1 / (1188 * x**9)


def find_root(
    function: Callable[[float], float], low: float, high: float, *, xtol: float = 2e-12, rtol: float = 8.9e-16
) -> float:
    """Root of a function that changes its sign between low and high, by Brent's method.

    >>> round(find_root(lambda x: x**3 - 2, 0, 2), 12)
    1.259921049895
    """
    before, at = low, high
    f_before, f_at = function(before), function(at)
    if f_before == 0 or f_at == 0:
        return before if f_before == 0 else at
    if (f_before > 0) == (f_at > 0):
        raise ValueError(f"the function is {f_before:g} at {low:g} and {f_at:g} at {high:g}, and must change its sign")
    other, f_other, step, last = before, f_before, 0.0, 0.0  # ``other`` is on the other side of the root
    for _ in range(100):
        if f_before != 0 and (f_before > 0) != (f_at > 0):
            other, f_other = before, f_before
            step = last = at - before
        if abs(f_other) < abs(f_at):
            before, at, other = at, other, at
            f_before, f_at, f_other = f_at, f_other, f_at
        least = (xtol + rtol * abs(at)) / 2
        middle = (other - at) / 2
        if f_at == 0 or abs(middle) < least:
            return at
        if abs(last) > least and abs(f_at) < abs(f_before):
            if before == other:
                tried = -f_at * (at - before) / (f_at - f_before)
            else:
                slope, slope_other = (f_before - f_at) / (before - at), (f_other - f_at) / (other - at)
                tried = -f_at * (f_other * slope_other - f_before * slope)
                tried /= slope_other * slope * (f_other - f_before)
            short = 2 * abs(tried) < min(abs(last), 3 * abs(middle) - least)
            last, step = (step, tried) if short else (middle, middle)
        else:
            last = step = middle
        before, f_before = at, f_at
        at += step if abs(step) > least else math.copysign(least, middle)
        f_at = function(at)
    raise ArithmeticError(f"no root between {low:g} and {high:g} after 100 steps, the last at {at:g}")
