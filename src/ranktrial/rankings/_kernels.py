"""Compiled loops over tables of rankings: sorting, exact click moments, exact distributions of outcomes.

A user is passed as ``UserArrays``, a table of designs as ``DesignRows``.
"""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np

from ranktrial._kernels import below, high_half, low_half, random_word, threshold


@nb.njit(cache=True)
def sort_by_score(scores: Any, offsets: Any, state: Any, documents: Any) -> None:
    """Per query, documents by falling score; equal scores in random order."""
    for q in range(offsets.shape[0] - 1):
        start = offsets[q]
        n = offsets[q + 1] - start
        order = np.argsort(-scores[start : start + n], kind="mergesort")
        i = 0
        while i < n:
            j = i + 1
            while j < n and scores[start + order[j]] == scores[start + order[i]]:
                j += 1
            for a in range(j - 1, i, -1):
                b = i + below(state, a - i + 1)
                order[a], order[b] = order[b], order[a]
            i = j
        for r in range(n):
            documents[start + r] = start + order[r]


@nb.njit(cache=True)
def click_probabilities(rankings: Any, user: Any) -> Any:
    """P(click) at each rank of each ranking, whatever happened above."""
    zeta, slope, intercept, stay_click, stay_skip, _ = user
    n, k = rankings.shape
    result = np.zeros((n, k))
    for c in range(n):
        reading = 1.0
        for r in range(k):
            d = rankings[c, r]
            if d < 0:
                break
            p = slope[r] * zeta[d] + intercept[r]
            result[c, r] = reading * p
            reading *= p * stay_click[r] + (1.0 - p) * stay_skip[r]
    return result


@nb.njit(cache=True)
def click_one_by_one(rankings: Any, shows: Any, most: Any, user: Any, state: Any, clicks: Any) -> None:
    """Add the clicks of users who read on to rankings shown at most so often."""
    zeta, slope, intercept = user.zeta, user.slope, user.intercept
    for c in range(rankings.shape[0]):
        if not 0 < shows[c] <= most:
            continue
        for r in range(rankings.shape[1]):
            d = rankings[c, r]
            if d < 0:
                break
            chance = threshold(slope[r] * zeta[d] + intercept[r])
            for i in range(0, shows[c], 2):
                word = random_word(state)
                clicks[c, r] += high_half(word) < chance
                if i + 1 < shows[c]:
                    clicks[c, r] += low_half(word) < chance


@nb.njit(cache=True)
def linear_moments(rankings: Any, values: Any, user: Any) -> Any:
    """E[x], E[x^2], E[x^3] and E[x^4] of x = sum of values over clicked ranks, for each ranking."""
    zeta, slope, intercept, stay_click, stay_skip, _ = user
    result = np.empty((rankings.shape[0], 4))
    for c in range(rankings.shape[0]):
        first, second, third, fourth, _ = _powers(
            rankings, values, c, 0.0, zeta, slope, intercept, stay_click, stay_skip
        )
        result[c, 0] = first
        result[c, 1] = second
        result[c, 2] = third
        result[c, 3] = fourth
    return result


@nb.njit(cache=True)
def query_moments(offsets: Any, weights: Any, rankings: Any, values: Any, base: Any, user: Any) -> Any:
    """E[x] to E[x^4] of x = base + sum of values over clicked ranks, and expected clicks, for each query of a mixture."""
    zeta, slope, intercept, stay_click, stay_skip, _ = user
    queries = offsets.shape[0] - 1
    result = np.zeros((queries, 5))
    for q in range(queries):
        for c in range(offsets[q], offsets[q + 1]):
            first, second, third, fourth, clicks = _powers(
                rankings, values, c, base[c], zeta, slope, intercept, stay_click, stay_skip
            )
            result[q, 0] += weights[c] * first
            result[q, 1] += weights[c] * second
            result[q, 2] += weights[c] * third
            result[q, 3] += weights[c] * fourth
            result[q, 4] += weights[c] * clicks
    return result


@nb.njit(inline="always")
def _powers(
    rankings: Any, values: Any, c: Any, base: Any, zeta: Any, slope: Any, intercept: Any, stay_click: Any, stay_skip: Any
) -> Any:  # fmt: skip
    """E[x] to E[x^4] of x = base + sum of values over clicked ranks, and expected clicks, of ranking c.

    Carries probability and moments of the sum so far on the paths where the user still reads.
    """
    p0, p1, p2, p3, p4 = 1.0, base, base * base, base * base * base, base * base * base * base
    m1, m2, m3, m4, clicks = 0.0, 0.0, 0.0, 0.0, 0.0  # of those who left
    for r in range(rankings.shape[1]):
        d = rankings[c, r]
        if d < 0:
            break
        v = values[c, r]
        p = slope[r] * zeta[d] + intercept[r]
        c0 = p * p0
        c1 = p * (p1 + v * p0)
        c2 = p * (p2 + v * (2.0 * p1 + v * p0))
        c3 = p * (p3 + v * (3.0 * p2 + v * (3.0 * p1 + v * p0)))
        c4 = p * (p4 + v * (4.0 * p3 + v * (6.0 * p2 + v * (4.0 * p1 + v * p0))))
        clicks += c0
        clicked, skipped = stay_click[r], stay_skip[r] * (1.0 - p)
        left, missed = 1.0 - clicked, (1.0 - stay_skip[r]) * (1.0 - p)
        m1 += left * c1 + missed * p1
        m2 += left * c2 + missed * p2
        m3 += left * c3 + missed * p3
        m4 += left * c4 + missed * p4
        p0 = clicked * c0 + skipped * p0
        p1 = clicked * c1 + skipped * p1
        p2 = clicked * c2 + skipped * p2
        p3 = clicked * c3 + skipped * p3
        p4 = clicked * c4 + skipped * p4
    return m1 + p1, m2 + p2, m3 + p3, m4 + p4, clicks


@nb.njit(cache=True)
def expected_sign(to_a: Any, to_b: Any, n: Any, sums: Any) -> Any:
    """E[sign of the sum] when term i is +1 with probability to_a[i], -1 with to_b[i], else 0 (Poisson-binomial recursion).

    ``sums`` is scratch space of at least 2n + 1 numbers.
    """
    for j in range(2 * n + 1):
        sums[j] = 0.0
    sums[n] = 1.0
    for i in range(n):
        a, b = to_a[i], to_b[i]
        rest = 1.0 - a - b
        previous = 0.0  # the old value left of j
        for j in range(n - i - 1, n + i + 2):
            here = sums[j]
            right = sums[j + 1] if j + 1 <= 2 * n else 0.0
            sums[j] = here * rest + previous * a + right * b
            previous = here
    result = 0.0
    for j in range(n):
        result += sums[2 * n - j] - sums[j]
    return result


@nb.njit(cache=True)
def _shift_sums(sums: Any, reach: Any, middle: Any, a: Any, b: Any, result: Any) -> None:
    """Distribution of a sum after one more term: +1 with probability a, -1 with b, else 0."""
    for j in range(middle - reach - 1, middle + reach + 2):
        result[j] = 0.0
    for j in range(middle - reach, middle + reach + 1):
        result[j - 1] += sums[j] * b
        result[j] += sums[j] * (1.0 - a - b)
        result[j + 1] += sums[j] * a


@nb.njit(cache=True)
def majority_moments(rankings: Any, to_a: Any, to_b: Any, user: Any, squares: Any = True) -> Any:
    """E[x] and E[x^2] of x = E[sign(clicks credited to A - clicks credited to B)], for each ranking.

    ``to_a`` and ``to_b`` are (rankings, rows, ranks): the probability that a click at that rank counts for A or for B. With
    one row the credit is fixed; with k rows the row of the deepest click counts (and credits must be 0 or 1). Where credit is
    uncertain, E[x^2] takes most of the time; without ``squares`` it is not worked out there.
    """
    n, k = rankings.shape
    rows = to_a.shape[1]
    zeta, slope, intercept, stay_click, stay_skip, _ = user
    result = np.zeros((n, 2))
    middle = k + 1
    width = 2 * k + 3
    reading = np.zeros(width)
    clicked = np.zeros(width)
    done = np.zeros(width)
    probability = np.zeros(k)
    quiet = np.ones(k + 1)
    for c in range(n):
        length = 0
        while length < k and rankings[c, length] >= 0:
            probability[length] = slope[length] * zeta[rankings[c, length]] + intercept[length]
            length += 1
        if rows == 1:
            fixed = True
            for r in range(length):
                a, b = to_a[c, 0, r], to_b[c, 0, r]
                fixed &= (a == 0.0 or a == 1.0) and (b == 0.0 or b == 1.0)
            reading[:] = 0.0
            done[:] = 0.0
            reading[middle] = 1.0
            for r in range(length):
                p = probability[r]
                _shift_sums(reading, r, middle, to_a[c, 0, r], to_b[c, 0, r], clicked)
                for j in range(middle - r - 1, middle + r + 2):
                    hit, miss = p * clicked[j], (1.0 - p) * reading[j]
                    done[j] += (1.0 - stay_click[r]) * hit + (1.0 - stay_skip[r]) * miss
                    reading[j] = stay_click[r] * hit + stay_skip[r] * miss
            for j in range(width):
                total = reading[j] + done[j]
                if j != middle:
                    result[c, 0] += total if j > middle else -total
                    result[c, 1] += total
            if squares and not fixed:
                result[c, 1] = _mean_square_of_expected_sign(
                    probability, to_a[c, 0], to_b[c, 0], length, stay_click, stay_skip
                )
        else:
            quiet[length] = 1.0
            for r in range(length - 1, -1, -1):  # no click from rank r on, for a user who reads rank r
                quiet[r] = (1.0 - probability[r]) * (stay_skip[r] * quiet[r + 1] + 1.0 - stay_skip[r])
            for deepest in range(length):
                reading[:] = 0.0
                reading[middle] = 1.0
                for r in range(deepest + 1):
                    p = probability[r]
                    _shift_sums(reading, r, middle, to_a[c, deepest, r], to_b[c, deepest, r], clicked)
                    for j in range(middle - r - 1, middle + r + 2):
                        if r < deepest:
                            reading[j] = stay_click[r] * p * clicked[j] + stay_skip[r] * (1.0 - p) * reading[j]
                        else:
                            end = stay_click[r] * quiet[r + 1] + 1.0 - stay_click[r]
                            reading[j] = end * p * clicked[j]
                for j in range(width):
                    if j != middle:
                        result[c, 0] += reading[j] if j > middle else -reading[j]
                        result[c, 1] += reading[j]
    return result


@nb.njit(cache=True)
def _mean_square_of_expected_sign(p: Any, to_a: Any, to_b: Any, length: Any, stay_click: Any, stay_skip: Any) -> Any:
    """E[E[sign | clicks]^2] = E[sign * sign'] for two assignments drawn independently on the same clicks."""
    width = 2 * length + 3
    middle = length + 1
    reading = np.zeros((width, width))
    half = np.zeros((width, width))
    both = np.zeros((width, width))
    done = np.zeros((width, width))
    reading[middle, middle] = 1.0
    for r in range(length):
        a, b = to_a[r], to_b[r]
        low, high = middle - r - 1, middle + r + 2
        for i in range(low, high):
            _shift_sums(reading[i], r, middle, a, b, half[i])
        for j in range(low, high):
            _shift_sums(half[:, j], r, middle, a, b, both[:, j])
        for i in range(low, high):
            for j in range(low, high):
                hit, miss = p[r] * both[i, j], (1.0 - p[r]) * reading[i, j]
                done[i, j] += (1.0 - stay_click[r]) * hit + (1.0 - stay_skip[r]) * miss
                reading[i, j] = stay_click[r] * hit + stay_skip[r] * miss
    result = 0.0
    for i in range(width):
        for j in range(width):
            if i != middle and j != middle:
                total = reading[i, j] + done[i, j]
                result += total if (i > middle) == (j > middle) else -total
    return result


@nb.njit(cache=True)
def add_credit_distribution(ranking: Any, credit: Any, weight: Any, user: Any, reading: Any, result: Any) -> None:
    """Add ``weight`` times the joint distribution of (sum of credits, number of clicks) on one ranking.

    Credits are -1, 0 or 1. ``result[s + k, c]`` gains P(sum = s, clicks = c); ``reading`` is scratch of the same shape.
    """
    k = ranking.shape[0]
    reading[:] = 0.0
    reading[k, 0] = weight
    length = 0
    for r in range(k):
        d = ranking[r]
        if d < 0:
            break
        length += 1
        p = user.slope[r] * user.zeta[d] + user.intercept[r]
        stay_click, stay_skip = user.stay_click[r], user.stay_skip[r]
        v = credit[r]
        for c in range(r, -1, -1):  # falling c: the cell (s + v, c + 1) is final before it is read again
            for s in range(k - c, k + c + 1):
                here = reading[s, c]
                hit, miss = here * p, here * (1.0 - p)
                result[s + v, c + 1] += (1.0 - stay_click) * hit
                result[s, c] += (1.0 - stay_skip) * miss
                reading[s + v, c + 1] += stay_click * hit
                reading[s, c] = stay_skip * miss
    for c in range(length + 1):
        for s in range(k - c, k + c + 1):
            result[s, c] += reading[s, c]


@nb.njit(cache=True)
def credit_distribution(rankings: Any, credits: Any, weights: Any, user: Any) -> Any:
    """Weighted joint distribution of (sum of credits, number of clicks) over many rankings."""
    n, k = rankings.shape
    result = np.zeros((2 * k + 1, k + 1))
    reading = np.zeros((2 * k + 1, k + 1))
    for i in range(n):
        add_credit_distribution(rankings[i], credits[i], weights[i], user, reading, result)
    return result


@nb.njit(cache=True)
def exposures(rankings: Any, weights: Any, theta: Any, rho: Any) -> None:
    """Add up P(examined) of what stands on each row of a table, shown with the given weights."""
    for row in range(rankings.shape[0]):
        for r in range(rankings.shape[1]):
            if rankings[row, r] >= 0:
                rho[rankings[row, r]] += weights[row] * theta[r]


@nb.njit(cache=True)
def placed(rankings: Any, weights: Any, rank: Any, placement: Any) -> None:
    """Add up P(slot at one rank, its own of ``rank``)."""
    for row in range(rankings.shape[0]):
        for r in range(rankings.shape[1]):
            if rankings[row, r] >= 0 and rank[rankings[row, r]] == r:
                placement[rankings[row, r]] += weights[row]


@nb.njit(cache=True)
def affine_rows(
    rows: Any, design: Any, table: Any, lam: Any, prediction: Any, theta: Any, rank_aware: Any, clip: Any,
    base: Any, values: Any, lost: Any,
) -> Any:  # fmt: skip
    """W and what it takes off for the clicks foreseen, of some rows of a table; see ``values``. Returns the largest weight.

    ``design`` is that of each of the rows, which stand together by design. Placement follows from a design's rows and their
    weights; where it has rows of its own (``placement`` is not empty) these count instead.
    """
    slot_offsets, row_offsets, rankings, weights, placement = table
    top, k = theta.max(), rankings.shape[1]
    largest = 0.0
    i = 0
    while i < rows.shape[0]:
        d = design[i]
        start, end = slot_offsets[d], slot_offsets[d + 1]
        examined = np.zeros(end - start)
        if placement.shape[0] > 0:
            for s in range(start, end):
                for r in range(k):
                    useful = (1.0 - top * prediction[s]) / (1.0 - theta[r] * prediction[s]) if rank_aware else 1.0
                    examined[s - start] += placement[s, r] * theta[r] * useful
        else:
            for row in range(row_offsets[d], row_offsets[d + 1]):
                for r in range(k):
                    s = rankings[row, r]
                    if s >= 0:
                        useful = (1.0 - top * prediction[s]) / (1.0 - theta[r] * prediction[s]) if rank_aware else 1.0
                        examined[s - start] += weights[row] * theta[r] * useful
        worth = np.zeros(end - start)
        given_up = 0.0
        for s in range(start, end):
            if lam[s] != 0.0 and examined[s - start] > 0.0:
                weight = lam[s] / examined[s - start]
                if abs(weight) > clip:
                    given_up += abs(lam[s]) - clip * examined[s - start]
                    weight = math.copysign(clip, weight)
                worth[s - start] = weight
                largest = max(largest, abs(weight))
        while i < rows.shape[0] and design[i] == d:
            foreseen = 0.0
            for r in range(k):
                s = rankings[rows[i], r]
                if s >= 0:
                    useful = (1.0 - top * prediction[s]) / (1.0 - theta[r] * prediction[s]) if rank_aware else 1.0
                    values[i, r] = worth[s - start] * useful
                    foreseen += values[i, r] * theta[r] * prediction[s]
            base[i] = -foreseen
            lost[i] = given_up
            i += 1
    return largest


@nb.njit(cache=True)
def affine_sums(
    rows: Any, design: Any, starts: Any, impressions: Any, clicks: Any, left_out: Any, table: Any, rank_a: Any, rank_b: Any,
    prediction: Any, value_of: Any, thetas: Any, gain: Any, rank_aware: Any, clip: Any, foreseen: Any, code: Any, sums: Any,
) -> None:  # fmt: skip
    """Add up x over impressions at many thetas at once: at number t over those that number t does not leave out.

    ``sums`` has a row for each code of an impression; ``code`` is empty where there is but one.

    The formula of ``affine_rows`` (which see for rows, designs and placement), with lambda from ranks and thetas. Row i was
    shown by ``impressions[starts[i]:starts[i + 1]]``. ``value_of`` is the value of a click on each slot, 1 where it is
    empty. ``thetas`` are columns, with zeros for a rank past the last: each
    of the innermost loops is over all of them, so that a design's placement is worked out once for all. ``foreseen`` says
    whether sum_d lambda_d zh_d is part of x.
    """
    slot_offsets, row_offsets, rankings, weights, placement = table
    k, n = rankings.shape[1], thetas.shape[1]
    most = 0
    for i in range(design.shape[0]):
        most = max(most, slot_offsets[design[i] + 1] - slot_offsets[design[i]])
    placed = np.zeros((most, k))
    rho, examined, worth = np.zeros((most, n)), np.zeros((most, n)), np.zeros((most, n))
    value, first, base, top = np.zeros((k, n)), np.zeros(n), np.zeros(n), np.zeros(n)
    for r in range(k):
        for t in range(n):
            top[t] = max(top[t], thetas[r, t])
    i = 0
    while i < rows.shape[0]:
        d = design[i]
        start, end = slot_offsets[d], slot_offsets[d + 1]
        for s in range(end - start):
            for r in range(k):
                placed[s, r] = placement[start + s, r] if placement.shape[0] > 0 else 0.0
            for t in range(n):
                rho[s, t] = 0.0
                examined[s, t] = 0.0
        if placement.shape[0] == 0:
            for row in range(row_offsets[d], row_offsets[d + 1]):
                for r in range(k):
                    if rankings[row, r] >= 0:
                        placed[rankings[row, r] - start, r] += weights[row]
        for t in range(n):
            first[t] = 0.0
        for s in range(end - start):
            zh = prediction[start + s]
            for r in range(k):
                p = placed[s, r]
                if p > 0.0:
                    for t in range(n):
                        rho[s, t] += p * thetas[r, t]
                    if rank_aware:
                        for t in range(n):
                            examined[s, t] += p * thetas[r, t] * ((1.0 - top[t] * zh) / (1.0 - thetas[r, t] * zh))
            a, b = min(rank_a[start + s], k), min(rank_b[start + s], k)
            of_click = value_of[start + s] if value_of.shape[0] > 0 else 1.0
            for t in range(n):
                lam = (thetas[a, t] - thetas[b, t]) * of_click
                if gain:
                    lam = (rho[s, t] - (thetas[a, t] + thetas[b, t]) / 2.0) * of_click
                over = examined[s, t] if rank_aware else rho[s, t]
                weight = 0.0
                if rho[s, t] > 0.0:
                    first[t] += lam * zh
                    if over > 0.0:
                        weight = lam / over
                worth[s, t] = min(max(weight, -clip), clip)
        while i < rows.shape[0] and design[i] == d:
            for t in range(n):
                base[t] = first[t] if foreseen else 0.0
            for r in range(k):
                if rankings[rows[i], r] >= 0:
                    s = rankings[rows[i], r] - start
                    zh = prediction[start + s]
                    for t in range(n):
                        useful = (1.0 - top[t] * zh) / (1.0 - thetas[r, t] * zh) if rank_aware else 1.0
                        value[r, t] = worth[s, t] * useful
                        base[t] -= value[r, t] * thetas[r, t] * zh
            for j in range(starts[i], starts[i + 1]):
                without, of = left_out[impressions[j]], code[impressions[j]] if code.shape[0] > 0 else 0
                before = sums[of, without]
                for t in range(n):
                    sums[of, t] += base[t]
                for r in range(k):
                    if clicks[impressions[j], r]:
                        for t in range(n):
                            sums[of, t] += value[r, t]
                sums[of, without] = before
            i += 1


@nb.njit(cache=True)
def direct_rows(
    rows: Any, design: Any, table: Any, rank_a: Any, rank_b: Any, prediction: Any, theta: Any, base: Any, values: Any
) -> Any:
    """Values of rankings as in ``affine_rows``, with click weights that need no theta.

    The weight is (1[rank in A] - 1[rank in B]) / P(slot at that rank).
    """
    slot_offsets, row_offsets, rankings, weights, placement = table
    k = rankings.shape[1]
    largest = 0.0
    i = 0
    while i < rows.shape[0]:
        d = design[i]
        start, end = slot_offsets[d], slot_offsets[d + 1]
        at_a, at_b = np.zeros(end - start), np.zeros(end - start)
        if placement.shape[0] > 0:
            for s in range(start, end):
                at_a[s - start] = placement[s, rank_a[s]] if rank_a[s] < k else 0.0
                at_b[s - start] = placement[s, rank_b[s]] if rank_b[s] < k else 0.0
        else:
            for row in range(row_offsets[d], row_offsets[d + 1]):
                for r in range(k):
                    s = rankings[row, r]
                    if s >= 0:
                        if rank_a[s] == r:
                            at_a[s - start] += weights[row]
                        if rank_b[s] == r:
                            at_b[s - start] += weights[row]
        while i < rows.shape[0] and design[i] == d:
            foreseen = 0.0
            for r in range(k):
                s = rankings[rows[i], r]
                if s >= 0 and rank_a[s] != rank_b[s]:
                    if rank_a[s] == r:
                        values[i, r] = 1.0 / at_a[s - start]
                    elif rank_b[s] == r:
                        values[i, r] = -1.0 / at_b[s - start]
                    largest = max(largest, abs(values[i, r]))
                    foreseen += values[i, r] * theta[r] * prediction[s]
            base[i] = -foreseen
            i += 1
    return largest
