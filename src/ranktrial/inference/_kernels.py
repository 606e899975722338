"""Compiled loops of confidence sequences, and of the units that they are over.

Units come with y, what they sum to, and w, their number of impressions, both over the most that a unit can have, so that
0 <= y <= w <= 1; the mean in question is the ratio E[y] / E[w]. Single impressions have w = 1.
"""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np

from ranktrial.arrays import ODD

MOST_AT_STAKE = 0.5  # of the wealth, on any one observation
NEVER = -1


@nb.njit(cache=True)
def predictable_bets(y: Any, w: Any, alpha: Any, tightest_at: Any) -> Any:
    """How much to bet on each observation, from those before it (predictable plug-in; Waudby-Smith and Ramdas 2024).

    Their bets fall as 1 / sqrt(t log t) all along; these fall as t^(-1/4) up to ``tightest_at`` observations and as 1 / sqrt(t)
    from there on, which gives two thirds of the width there.
    """
    n = y.shape[0]
    bets = np.empty(n)
    total, weight, spread = 0.5, 1.0, 0.25
    variance = 0.25
    for i in range(n):
        bets[i] = math.sqrt(math.log(2.0 / alpha) / (variance * math.sqrt((i + 1.0) * max(i + 1.0, tightest_at))))
        total += y[i]
        weight += w[i]
        spread += (y[i] - total / weight * w[i]) ** 2
        variance = spread / (i + 2)
    return bets


@nb.njit(cache=True)
def refuted_at(y: Any, w: Any, bets: Any, mean: Any, above: Any, needed: Any) -> Any:
    """The observation at which a player betting that the mean is above (or below) the given one has multiplied its wealth
    by exp(needed); NEVER if it does not.

    The smaller the mean, the richer is who bets above it at any time, and the other way round below, so the means not
    refuted form an interval.
    """
    log_wealth = 0.0
    limit = MOST_AT_STAKE / (mean if above else 1.0 - mean) if 0.0 < mean < 1.0 else MOST_AT_STAKE
    for i in range(y.shape[0]):
        gain = y[i] - mean * w[i] if above else mean * w[i] - y[i]
        log_wealth += math.log1p(min(bets[i], limit) * gain)
        if log_wealth > needed:
            return i
    return NEVER


@nb.njit(cache=True)
def betting_interval(y: Any, w: Any, bets: Any, alpha: Any, tolerance: Any) -> Any:
    """Ends of the set of means in (0, 1) that neither player's wealth ever refuted, by bisection; widened by tolerance."""
    needed = math.log(2.0 / alpha)
    ends = np.empty(2)
    for side in range(2):
        above = side == 0
        low, high = 0.0, 1.0
        while high - low > tolerance:
            middle = 0.5 * (low + high)
            refuted = refuted_at(y, w, bets, middle, above, needed) != NEVER
            if refuted == above:
                low = middle
            else:
                high = middle
        ends[side] = low if above else high
    return ends


@nb.njit(cache=True)
def first_places(keys: Any) -> Any:
    """Where each distinct key came first, in this order, and which of them each key is."""
    bits = 4
    while 2**bits < 2 * keys.shape[0]:
        bits += 1
    table = np.full(2**bits, -1, np.int32)
    first, place = np.empty(keys.shape[0], np.int64), np.empty(keys.shape[0], np.int64)
    met = 0
    for i in range(keys.shape[0]):
        at = np.int64((np.uint64(keys[i]) * ODD) >> np.uint64(64 - bits))
        while table[at] >= 0 and keys[first[table[at]]] != keys[i]:
            at = (at + 1) & (2**bits - 1)
        if table[at] < 0:
            table[at] = met
            first[met] = i
            met += 1
        place[i] = table[at]
    return first[:met].copy(), place
