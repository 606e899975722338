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
def number_on(keys: Any, at: Any, table: Any, known: Any, first: Any, count: Any) -> Any:
    """The number of each key, given those of the first ``count`` that are ``known``; keys that are new get the next ones, and
    are noted in all three arrays. ``table`` has numbers by hash, at least twice as many places as numbers ever written to it;
    it may hold some from ``count`` on, or of keys that are known by another one now, which count for nothing.
    """
    bits = 0
    while 2**bits < table.shape[0]:
        bits += 1
    number = np.empty(keys.shape[0], np.int64)
    for i in range(keys.shape[0]):
        place = np.int64((np.uint64(keys[i]) * ODD) >> np.uint64(64 - bits))
        while table[place] >= 0 and (table[place] >= count or known[table[place]] != keys[i]):
            place = (place + 1) & (table.shape[0] - 1)
        if table[place] < 0:
            table[place] = count
            known[count] = keys[i]
            first[count] = at[i]
            count += 1
        number[i] = table[place]
    return number, count


@nb.njit(cache=True)
def first_places(keys: Any) -> Any:
    """Where each distinct key came first, in this order, and which of them each key is."""
    n = keys.shape[0]
    bits = 4
    while 2**bits < 2 * n:
        bits += 1
    first = np.empty(n, np.int64)
    place, met = number_on(keys, np.arange(n), np.full(2**bits, -1, np.int32), np.empty(n, np.int64), first, 0)
    return first[:met].copy(), place


@nb.njit(cache=True)
def sums_so_far(totals: Any, impressions: Any, points: Any, before: Any) -> Any:
    """Sums over the first so many units, at increasing numbers of them: a row each for impressions n, values v (less the mean
    of the first unit), v^2, v n, n^2 and how many units have another mean than the first.

    ``before`` holds these sums of units that are gone through already, and last how many that are; it is brought up to date.
    """
    found = np.empty((6, points.shape[0]))
    first_total, first_n = totals[0], impressions[0]
    middle = first_total / first_n
    at = int(before[6])
    for p in range(points.shape[0]):
        while at < points[p]:
            n = impressions[at]
            value = totals[at] - middle * n
            before[0] += n
            before[1] += value
            before[2] += value * value
            before[3] += value * n
            before[4] += n * n
            if totals[at] * first_n != first_total * n:
                before[5] += 1
            at += 1
        found[:, p] = before[:6]
    before[6] = at
    return found


@nb.njit(cache=True)
def sums_between(totals: Any, impressions: Any, points: Any, phase: Any, phases: Any) -> Any:
    """Units, impressions and values (less the mean of the first unit) between one point and the next, by phase; ``phase`` is
    empty where there is but one.
    """
    found = np.zeros((3, points.shape[0], phases))
    middle = totals[0] / impressions[0]
    cell = 0
    for i in range(totals.shape[0]):
        if i >= points[cell]:
            cell += 1
        one = phase[i] if phases > 1 else 0
        found[0, cell, one] += 1
        found[1, cell, one] += impressions[i]
        found[2, cell, one] += totals[i] - middle * impressions[i]
    return found


@nb.njit(cache=True)
def errors_between(totals: Any, impressions: Any, points: Any, phase: Any, phases: Any, means: Any) -> Any:
    """Squared and fourth powers of what units are away from the mean up to the point before them, as ``sums_between``."""
    found = np.zeros((2, points.shape[0], phases))
    middle = totals[0] / impressions[0]
    cell = 0
    for i in range(totals.shape[0]):
        if i >= points[cell]:
            cell += 1
        one = phase[i] if phases > 1 else 0
        n = impressions[i]
        error = totals[i] - middle * n - means[max(cell - 1, 0)] * n
        square = error * error
        found[0, cell, one] += square
        found[1, cell, one] += square * square
    return found
