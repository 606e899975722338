"""Compiled loops of confidence sequences."""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np

MOST_AT_STAKE = 0.5  # of the wealth, on any one observation


@nb.njit(cache=True)
def predictable_bets(y: Any, alpha: Any) -> Any:
    """How much to bet on each observation, from those before it (predictable plug-in; Waudby-Smith and Ramdas 2024)."""
    n = y.shape[0]
    bets = np.empty(n)
    total, spread = 0.0, 0.0
    variance = 0.25
    for i in range(n):
        bets[i] = math.sqrt(2.0 * math.log(2.0 / alpha) / (variance * (i + 1) * math.log(i + 2.0)))
        total += y[i]
        mean = (0.5 + total) / (i + 2)
        spread += (y[i] - mean) ** 2
        variance = (0.25 + spread) / (i + 2)
    return bets


@nb.njit(cache=True)
def greatest_log_wealth(y: Any, bets: Any, mean: Any, above: Any) -> Any:
    """Greatest log wealth on the way of a player who bets that the mean is above (or below) the given one.

    Falls with ``mean`` when betting above, grows when betting below, so the means not refuted form an interval.
    """
    log_wealth, greatest = 0.0, 0.0
    limit = MOST_AT_STAKE / (mean if above else 1.0 - mean) if 0.0 < mean < 1.0 else MOST_AT_STAKE
    for i in range(y.shape[0]):
        gain = y[i] - mean if above else mean - y[i]
        log_wealth += math.log1p(min(bets[i], limit) * gain)
        greatest = max(greatest, log_wealth)
    return greatest


@nb.njit(cache=True)
def betting_interval(y: Any, bets: Any, alpha: Any, tolerance: Any) -> Any:
    """Ends of the set of means in (0, 1) that neither player's wealth ever refuted, by bisection; widened by tolerance."""
    needed = math.log(2.0 / alpha)
    ends = np.empty(2)
    for side in range(2):
        above = side == 0
        low, high = 0.0, 1.0
        while high - low > tolerance:
            middle = 0.5 * (low + high)
            refuted = greatest_log_wealth(y, bets, middle, above) > needed
            if refuted == above:
                low = middle
            else:
                high = middle
        ends[side] = low if above else high
    return ends
