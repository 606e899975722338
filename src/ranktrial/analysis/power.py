"""Power of a comparison: the number of impressions that tell a difference from 0, by one interval or by a sequence.

One interval, at a number of impressions fixed beforehand, leaves out 0 with the probability of a normal (or a noncentral t)
variable. A confidence sequence that is looked at all the time decides when the estimate *first* leaves its boundary. Estimates
of many impressions follow a Brownian motion with drift, so the probability of having left by then is that of a crossing: it is
worked out step by step on a grid of times, exactly for a boundary that is straight between them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ranktrial import checks
from ranktrial.analysis.intervals import FIRST_LOOK, asymptotic_radius
from ranktrial.arrays import FloatArray
from ranktrial.distributions import find_root, noncentral_t_tail, normal_density, normal_quantile, t_quantile
from ranktrial.log.log import GROUPS

CLICKS_TO_SAY = 25  # expected clicks with which there are surely as many as a live sequence needs
MOST = 1e15  # impressions: more is never
ROUNDING = 1e-12
STEP, NODES = 0.07, 64  # of time, on a log scale, and of space: the probability of a crossing is then right to 0.001
GAUSS = np.polynomial.legendre.leggauss(NODES)
FAR = 5.0  # standard deviations to a boundary that nobody crosses


def normal_quantiles(power: float, level: float) -> float:
    """z_{1 - alpha/2} + z_power: how many standard errors a difference must have to be found."""
    checks.between("power", power, 0.5, 1, open_ends=True)
    checks.between("level", level, 0, 1, open_ends=True)
    return normal_quantile(0.5 + level / 2) + normal_quantile(power)


@lru_cache(maxsize=64)
def jackknife_quantiles(power: float, level: float) -> float:
    """Standard errors that a difference must have to be found if the error is a jackknife's: t instead of the normal."""
    start, freedom = normal_quantiles(power, level), GROUPS - 1
    critical = t_quantile(0.5 + level / 2, freedom)
    return find_root(lambda away: noncentral_t_tail(critical, freedom, away) - power, start / 2, start * 3)


def fixed_impressions(
    variance: float, difference: float, *, power: float = 0.8, level: float = 0.95, jackknife: bool = False
) -> float:
    """Number of impressions, fixed beforehand, that find a difference with this power; infinite if it is not positive.

    >>> fixed_impressions(1.0, 0.1), fixed_impressions(1.0, 0.1, jackknife=True)
    (785.0, 873.0)
    """
    away = jackknife_quantiles(power, level) if jackknife else normal_quantiles(power, level)
    if not difference > ROUNDING:
        return np.inf
    return float(np.ceil(away**2 * variance / difference**2))


def tightest_for(variance: float, difference: float, *, level: float = 0.95) -> float:
    """The number of impressions at which a sequence is best tightest, if it is to find this difference.

    That at which one interval would find it with power 0.8. It rests on nothing but the difference and the spread of
    values: a live trial that knows its ``smallest`` difference takes the spread of its own log, and does what was planned.

    >>> tightest_for(1.0, 0.1)
    785.0
    """
    return max(fixed_impressions(variance, difference, level=level), float(FIRST_LOOK))


@lru_cache(maxsize=4096)
def crossing(drift: float, tightest: float, *, start: float = 0.0, widen: float = 1.0, level: float = 0.95) -> float:
    """P(a confidence sequence has left out 0 by time 1), if the estimate is ``drift`` standard errors away from 0 then.

    Args:
        drift: Difference over the standard error of its estimate at time 1.
        tightest: The time at which the sequence is tightest.
        start: The time of the first look.
        widen: A factor on the boundary.

    >>> round(crossing(0.0, 1.0), 3), round(crossing(3.0, 1.0), 2), round(crossing(10.0, 100.0), 2)
    (0.019, 0.62, 0.83)
    """
    scale = 1e6 / min(tightest, 1.0)  # any number will do

    def boundary(times: FloatArray) -> FloatArray:
        radius = asymptotic_radius(times * scale, np.ones(len(times)), level=level, tightest_at=tightest * scale)
        return np.asarray(widen * times * radius * np.sqrt(scale))

    early = np.geomspace(1e-6, 1.0, 400)
    near = boundary(early) - abs(drift) * early < FAR * np.sqrt(early)
    if not near.any():
        return 0.0
    first = max(min(start, 1.0), float(early[np.argmax(near)]))
    steps = round(-np.log(first) / STEP)  # shorter ones would fall between places
    times = np.geomspace(first, 1.0, steps + 1) if steps else np.ones(1)
    bounds, centre, reach = boundary(times), drift * times, (FAR + 1) * np.sqrt(times)
    low, high = np.maximum(-bounds, centre - reach), np.minimum(bounds, centre + reach)
    if (low >= high).any():
        return 1.0
    nodes, weights = GAUSS
    sizes = (high - low) / 2
    places = (high + low)[:, None] / 2 + np.outer(sizes, nodes)
    spread = np.sqrt(times[0])
    inside = normal_density((places[0] - centre[0]) / spread) / spread * sizes[0] * weights
    for i, step in enumerate(np.diff(times)):
        at, to = places[i], places[i + 1][:, None]
        density = normal_density((to - at - drift * step) / np.sqrt(step)) / np.sqrt(step)
        for side in (1, -1):  # that a path from one place to the other stays on this side of the straight line
            density *= -np.expm1(-2 * (bounds[i] - side * at) * (bounds[i + 1] - side * to) / step)
        inside = (density @ inside) * sizes[i + 1] * weights
    return float(np.clip(1 - inside.sum(), 0, 1))


def anytime_impressions(
    variance: Callable[[float], float],
    difference: float,
    *,
    tightest_at: float,
    first_look: float = FIRST_LOOK,
    widen: float = 1.0,
    power: float = 0.8,
    level: float = 0.95,
) -> float:
    """Impressions by which a sequence that is looked at all the time has left out 0 with this power.

    ``variance(n)`` is n times that of the estimate from n impressions. Infinite where there is no first look.

    >>> anytime_impressions(lambda n: 1.0, 0.1, tightest_at=785)
    1262.0
    """
    checks.between("power", power, 0.5, 1, open_ends=True)
    if not (difference > ROUNDING and np.isfinite(first_look)):
        return np.inf

    def missing(log_n: float) -> float:
        n = float(np.exp(log_n))
        spread = variance(n)
        if spread <= 0:
            return 1 - power
        drift = difference * np.sqrt(n / spread)
        return crossing(drift, tightest_at / n, start=first_look / n, widen=widen, level=level) - power

    low = np.log(first_look)
    high = np.log(max(100 * variance(first_look) / difference**2, 2 * first_look))
    if missing(low) >= 0:
        return float(np.ceil(first_look))
    while missing(high) < 0:
        high += 2
        if high > np.log(MOST):
            return np.inf
    return float(np.ceil(np.exp(find_root(missing, low, high, xtol=1e-4))))
