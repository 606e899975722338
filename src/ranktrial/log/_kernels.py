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
    """Bet on each observation, from the observations before it (predictable plug-in; Waudby-Smith and Ramdas 2024).

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
def _bits_of(table: Any) -> Any:
    """Binary logarithm of the size of a hash table."""
    bits = 0
    while 2**bits < table.shape[0]:
        bits += 1
    return bits


@nb.njit(cache=True)
def number_on(keys: Any, table: Any, known: Any, count: Any) -> Any:
    """The number of each key, given those of the first ``count`` that are ``known``, and the position at which each new key
    came first. New keys get the next numbers, and are noted in ``known`` and ``table``, which has numbers by hash and more
    places than numbers.
    """
    bits = _bits_of(table)
    number, new = np.empty(keys.shape[0], np.int64), np.empty(keys.shape[0], np.int64)
    before = count
    for i in range(keys.shape[0]):
        place = np.int64((np.uint64(keys[i]) * ODD) >> np.uint64(64 - bits))
        while table[place] >= 0 and known[table[place]] != keys[i]:
            place = (place + 1) & (table.shape[0] - 1)
        if table[place] < 0:
            table[place] = count
            known[count] = keys[i]
            new[count - before] = i
            count += 1
        number[i] = table[place]
    return number, new[: count - before].copy(), count


@nb.njit(cache=True)
def find_numbers(keys: Any, table: Any, known: Any) -> Any:
    """The number of each key by the table of ``number_on``, -1 for keys that are not there."""
    bits = _bits_of(table)
    number = np.empty(keys.shape[0], np.int64)
    for i in range(keys.shape[0]):
        place = np.int64((np.uint64(keys[i]) * ODD) >> np.uint64(64 - bits))
        while table[place] >= 0 and known[table[place]] != keys[i]:
            place = (place + 1) & (table.shape[0] - 1)
        number[i] = table[place]
    return number


@nb.njit(cache=True)
def hash_texts(raw: Any, lengths: Any, seeds: Any) -> Any:
    """Hash of 64 bits of each text, given their bytes one after the other and a seed for each (FNV-1a, mixed at the end)."""
    found = np.empty(lengths.shape[0], np.int64)
    at = 0
    for i in range(lengths.shape[0]):
        h = np.uint64(seeds[i]) ^ np.uint64(0xCBF29CE484222325)
        for _ in range(lengths[i]):
            h = (h ^ np.uint64(raw[at])) * np.uint64(0x100000001B3)
            at += 1
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        found[i] = np.int64(h ^ (h >> np.uint64(33)))
    return found


@nb.njit(cache=True)
def moved_slots(rankings: Any, by: Any) -> Any:
    """A table of rankings whose slots have other numbers, each row's higher by as much as is given for it."""
    found = np.empty_like(rankings)
    for i in range(rankings.shape[0]):
        for r in range(rankings.shape[1]):
            found[i, r] = rankings[i, r] + by[i] if rankings[i, r] >= 0 else -1
    return found


@nb.njit(cache=True)
def find_slots(design: Any, wanted: Any, offsets: Any, document: Any) -> Any:
    """Place of each wanted document among the candidates of a design, -1 where it is none of them."""
    place = np.full(design.shape[0], -1)
    for i in range(design.shape[0]):
        first = offsets[design[i]]
        for slot in range(first, offsets[design[i] + 1]):
            if document[slot] == wanted[i]:
                place[i] = slot - first
                break
    return place


@nb.njit(cache=True)
def first_places(keys: Any) -> Any:
    """Positions of the first occurrence of each distinct key, in order, and for each key its index among them."""
    n = keys.shape[0]
    bits = 4
    while 2**bits < 1.5 * n:
        bits += 1
    table = np.full(2**bits, -1, np.int32)
    first, index = np.empty(n, np.int32), np.empty(n, np.int32)
    met = 0
    for i in range(n):
        place = np.int64((np.uint64(keys[i]) * ODD) >> np.uint64(64 - bits))
        while table[place] >= 0 and keys[first[table[place]]] != keys[i]:
            place = (place + 1) & (2**bits - 1)
        if table[place] < 0:
            table[place] = met
            first[met] = i
            met += 1
        index[i] = table[place]
    return first[:met].copy(), index


@nb.njit(cache=True)
def by_first_use(numbers: Any, n: Any) -> Any:
    """True if the numbers from 0 to n - 1 all occur, each for the first time after those below it."""
    met = 0
    for i in range(numbers.shape[0]):
        if numbers[i] > met:
            return False
        met += numbers[i] == met
    return met == n


@nb.njit(cache=True)
def sums_so_far(totals: Any, impressions: Any, points: Any) -> Any:
    """Sums over the first so many units, at increasing numbers of them: a row each for impressions n, values v (less the mean
    of the first unit), v^2, v n, n^2 and how many units have another mean than the first.
    """
    found, sums = np.empty((6, points.shape[0])), np.zeros(6)
    first_total, first_n = totals[0], impressions[0]
    middle = first_total / first_n
    at = 0
    for p in range(points.shape[0]):
        while at < points[p]:
            n = impressions[at]
            value = totals[at] - middle * n
            sums[0] += n
            sums[1] += value
            sums[2] += value * value
            sums[3] += value * n
            sums[4] += n * n
            if totals[at] * first_n != first_total * n:
                sums[5] += 1
            at += 1
        found[:, p] = sums
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


@nb.njit(cache=True)
def list_clicks(clicks: Any, row: Any, rankings: Any, number: Any) -> Any:
    """Impression, rank and slot of each of this number of clicks."""
    impression, rank, slot = np.empty(number, np.int64), np.empty(number, np.int64), np.empty(number, np.int64)
    at = 0
    for i in range(clicks.shape[0]):
        for r in range(clicks.shape[1]):
            if clicks[i, r]:
                impression[at] = i
                rank[at] = r
                slot[at] = rankings[row[i], r]
                at += 1
    return impression, rank, slot


@nb.njit(cache=True)
def count_clicks(clicks: Any) -> Any:
    """Number of clicks on each impression."""
    found = np.zeros(clicks.shape[0], np.int32)
    for i in range(clicks.shape[0]):
        for r in range(clicks.shape[1]):
            found[i] += clicks[i, r]
    return found


@nb.njit(cache=True)
def mark_clicked(clicks: Any, row: Any, rankings: Any, clicked: Any) -> None:
    """Set the flags of slots that were clicked."""
    for i in range(clicks.shape[0]):
        for r in range(clicks.shape[1]):
            if clicks[i, r]:
                clicked[rankings[row[i], r]] = True


@nb.njit(cache=True)
def sort_by_number(number: Any, starts: Any) -> Any:
    """Positions of each number, in order; those of number j are to stand from ``starts[j]`` on. Negative ones are left out."""
    free = starts[:-1].copy()
    positions = np.empty(starts[-1], np.int64)
    for i in range(number.shape[0]):
        if number[i] >= 0:
            positions[free[number[i]]] = i
            free[number[i]] += 1
    return positions


@nb.njit(cache=True)
def sort_within(positions: Any, number: Any, value: Any) -> None:
    """Sort positions of the same number, which stand together, by value: quick where each number has few."""
    for i in range(1, positions.shape[0]):
        one, j = positions[i], i
        while j > 0 and number[positions[j - 1]] == number[one] and value[positions[j - 1]] > value[one]:
            positions[j] = positions[j - 1]
            j -= 1
        positions[j] = one


@nb.njit(cache=True)
def add_shows(impressions: Any, row: Any, rankings: Any, clicks: Any, number: Any, shown: Any, clicked: Any) -> None:
    """Count shows and clicks by rank of slots in rows of their own: slot s in row ``number[s]``, in none if negative."""
    for j in range(impressions.shape[0]):
        i = impressions[j]
        for r in range(rankings.shape[1]):
            s = rankings[row[i], r]
            if s >= 0 and number[s] >= 0:
                shown[number[s], r] += 1.0
                if clicks[i, r]:
                    clicked[number[s], r] += 1.0


@nb.njit(cache=True)
def add_placements(designs: Any, row_offsets: Any, rankings: Any, weights: Any, number: Any, placement: Any) -> None:
    """Add up P(at rank) of slots of some designs, in rows as of ``add_shows``."""
    for j in range(designs.shape[0]):
        for row in range(row_offsets[designs[j]], row_offsets[designs[j] + 1]):
            for r in range(rankings.shape[1]):
                s = rankings[row, r]
                if s >= 0 and number[s] >= 0:
                    placement[number[s], r] += weights[row]


@nb.njit(cache=True)
def clicks_by_row(impressions: Any, starts: Any, clicks: Any) -> Any:
    """Number of clicks at each rank on rows, of which ``impressions[starts[i]:starts[i + 1]]`` showed row i."""
    found = np.zeros((starts.shape[0] - 1, clicks.shape[1]), np.int64)
    for i in range(found.shape[0]):
        for j in range(starts[i], starts[i + 1]):
            for r in range(found.shape[1]):
                found[i, r] += clicks[impressions[j], r]
    return found


@nb.njit(cache=True)
def values_of_rows(impressions: Any, starts: Any, base: Any, values: Any, clicks: Any, x: Any) -> None:
    """Write the value of each impression, that of its row and of its clicks; rows as in ``clicks_by_row``."""
    for i in range(starts.shape[0] - 1):
        for j in range(starts[i], starts[i + 1]):
            found = base[i]
            for r in range(values.shape[1]):
                if clicks[impressions[j], r]:
                    found += values[i, r]
            x[impressions[j]] = found
