"""Optimized interleaving: the allowed rankings, and the linear programme that balances them."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from ranktrial._kernels import U64

_ONE = U64(1)


@nb.njit(cache=True)
def allowed_rankings(q: Any, lists: Any, k: Any, most: Any) -> Any:
    """All rankings of one query whose every prefix is the union of a prefix of A and a prefix of B, grown rank by rank.

    A document is coded by its position in A, or ``length_a + `` its position in B when A does not have it; -1 ends a list
    that is shorter than k. More than ``most`` rankings: an empty table.
    """
    na, nb_ = lists.length_a[q], lists.length_b[q]
    a_in_b, b_in_a = lists.a_in_b, lists.b_in_a
    rows = np.full((1, k), -1, np.int16)
    mask_a = np.zeros(1, np.uint64)
    mask_b = np.zeros(1, np.uint64)
    for r in range(k):
        n = rows.shape[0]
        next_rows = np.full((2 * n, k), -1, np.int16)
        next_a = np.zeros(2 * n, np.uint64)
        next_b = np.zeros(2 * n, np.uint64)
        count = 0
        for i in range(n):
            ia, ib = 0, 0
            while ia < na and (mask_a[i] >> U64(ia)) & _ONE:
                ia += 1
            while ib < nb_ and (mask_b[i] >> U64(ib)) & _ONE:
                ib += 1
            same = ia < na and a_in_b[q, ia] == ib
            if ia < na:
                for above in range(r):
                    next_rows[count, above] = rows[i, above]
                next_rows[count, r] = ia
                next_a[count] = mask_a[i] | _ONE << U64(ia)
                next_b[count] = mask_b[i]
                if a_in_b[q, ia] >= 0:
                    next_b[count] |= _ONE << U64(a_in_b[q, ia])
                count += 1
            if ib < nb_ and not same:
                for above in range(r):
                    next_rows[count, above] = rows[i, above]
                next_rows[count, r] = b_in_a[q, ib] if b_in_a[q, ib] >= 0 else na + ib
                next_a[count] = mask_a[i]
                if b_in_a[q, ib] >= 0:
                    next_a[count] |= _ONE << U64(b_in_a[q, ib])
                next_b[count] = mask_b[i] | _ONE << U64(ib)
                count += 1
        if count == 0:
            break  # both lists are used up
        if count > most:
            return np.empty((0, k), np.int16)
        rows = next_rows[:count]
        mask_a = next_a[:count]
        mask_b = next_b[:count]
    return rows


@nb.njit(cache=True)
def _price_rankings(credits: Any, gain: Any, dual: Any, with_gain: Any, reduced: Any) -> None:
    """reduced[j] = what ranking j would add to the cost, per unit of its probability."""
    k, n = credits.shape
    for j in range(n):
        reduced[j] = (-gain[j] if with_gain else 0.0) - dual[k]
    r = 0
    while r + 5 <= k:  # several ranks at a time: less is read and written in between
        for j in range(n):
            reduced[j] = (
                reduced[j]
                - dual[r] * credits[r, j]
                - dual[r + 1] * credits[r + 1, j]
                - dual[r + 2] * credits[r + 2, j]
                - dual[r + 3] * credits[r + 3, j]
                - dual[r + 4] * credits[r + 4, j]
            )
        r += 5
    for rest in range(r, k):
        for j in range(n):
            reduced[j] -= dual[rest] * credits[rest, j]


@nb.njit(cache=True)
def balanced_distribution(credits: Any, gain: Any) -> Any:
    """A distribution over rankings under which no rank favours a ranker, of greatest expected gain.

    Maximise sum_R p_R gain_R subject to sum_R p_R credits[r, R] = 0 for every rank r, sum p = 1, p >= 0; where that is
    impossible, minimise the total violation instead. Primal simplex with the inverse of the small basis kept explicitly:
    some 60 pivots on a thousand columns, where a general solver spends ten times as long on setting the problem up.
    Returns (p, total violation). Phase 1 starts at one ranking with a slack per rank and minimises the slacks.
    """
    k, n = credits.shape
    reduced = np.zeros(n + 2 * k)
    for r in range(k):
        for j in range(n):
            reduced[j] += abs(credits[r, j])
    least, first = np.inf, 0
    for j in range(n):
        if reduced[j] < least:
            least, first = reduced[j], j
    # Column j < n is ranking j; n + r is the slack +e_r, n + k + r the slack -e_r.
    basis = np.empty(k + 1, np.int64)
    inverse = np.zeros((k + 1, k + 1))
    x = np.empty(k + 1)
    for r in range(k):
        sign = -1.0 if credits[r, first] > 0 else 1.0
        basis[r] = n + r if sign > 0 else n + k + r
        inverse[r, r] = sign
        inverse[r, k] = -sign * credits[r, first]
        x[r] = inverse[r, k]
    basis[k] = first
    inverse[k, k] = 1.0
    x[k] = 1.0
    dual = np.empty(k + 1)
    direction = np.empty(k + 1)
    violation = 0.0
    for phase in range(1, 3):
        stalled = 0
        for _ in range(200 * (k + 1)):
            dual[:] = 0.0
            for i in range(k + 1):
                cost = (1.0 if basis[i] >= n else 0.0) if phase == 1 else (-gain[basis[i]] if basis[i] < n else 0.0)
                for r in range(k + 1):
                    dual[r] += cost * inverse[i, r]
            _price_rankings(credits, gain, dual, phase == 2, reduced)
            for r in range(k):
                reduced[n + r] = 1.0 - dual[r]
                reduced[n + k + r] = 1.0 + dual[r]
            entering, best = -1, -1e-10
            careful = stalled > 30  # Bland's rule ends any cycle of pivots that do not move
            for j in range(n + 2 * k if phase == 1 else n):
                if reduced[j] < best:
                    entering, best = j, reduced[j]
                    if careful:
                        break
            if entering < 0:
                break
            leaving, step = -1, np.inf
            for i in range(k + 1):
                if entering < n:
                    direction[i] = inverse[i, k]
                    for r in range(k):
                        direction[i] += inverse[i, r] * credits[r, entering]
                elif entering < n + k:
                    direction[i] = inverse[i, entering - n]
                else:
                    direction[i] = -inverse[i, entering - n - k]
            for i in range(k + 1):
                if phase == 2 and basis[i] >= n and abs(direction[i]) > 1e-9:
                    ratio = 0.0  # a slack left in the basis at zero must stay zero
                elif direction[i] > 1e-9:
                    ratio = max(x[i], 0.0) / direction[i]
                else:
                    continue
                if leaving < 0 or ratio < step - 1e-13:
                    leaving, step = i, ratio
                elif (
                    ratio <= step + 1e-13
                ):  # a tie: slacks leave first, then the safest pivot (or the first, to end cycles)
                    rank_new, rank_old = basis[i] >= n, basis[leaving] >= n
                    if rank_new != rank_old:
                        better = rank_new
                    elif careful:
                        better = basis[i] < basis[leaving]
                    else:
                        better = abs(direction[i]) > abs(direction[leaving])
                    if better:
                        leaving, step = i, min(step, ratio)
            if leaving < 0:
                break
            stalled = stalled + 1 if step <= 1e-13 else 0
            pivot = direction[leaving]
            for r in range(k + 1):
                inverse[leaving, r] /= pivot
            for i in range(k + 1):
                if i != leaving and direction[i] != 0.0:
                    for r in range(k + 1):
                        inverse[i, r] -= direction[i] * inverse[leaving, r]
            basis[leaving] = entering
            for i in range(k + 1):
                x[i] = inverse[i, k]
        if phase == 1:
            violation = 0.0
            for i in range(k + 1):
                if basis[i] >= n:
                    violation += max(x[i], 0.0)
            if violation > 1e-9:
                break
            violation = 0.0
    p = np.zeros(n)
    total = 0.0
    for i in range(k + 1):
        if basis[i] < n and x[i] > 1e-12:
            p[basis[i]] += x[i]
            total += x[i]
    return p / total, violation


@nb.njit(inline="always")
def _credit(rank_a: Any, rank_b: Any, inverse_rank: Any) -> Any:
    """Credit of a click on a document at these (1-based) ranks: positive when A ranks it higher."""
    return 1.0 / rank_a - 1.0 / rank_b if inverse_rank else float(rank_b - rank_a)


@nb.njit(cache=True)
def optimized_displays(lists: Any, inverse_credit: Any, inverse_constraint: Any, most: Any) -> Any:
    """Displays, probabilities and credits of optimized interleaving for every query.

    Returns rankings of documents coded as in ``allowed_rankings``, weights, credits, offsets and per query the violation of the
    constraints (0 when they can be met); a query with more than ``most`` allowed rankings gets violation -1 and no display.
    """
    a_in_b, length_a, length_b = lists.a_in_b, lists.length_a, lists.length_b
    n, k = a_in_b.shape
    room = n * (k + 1)  # a basic solution has at most k + 1 rankings
    rankings = np.full((room, k), -1, np.int16)
    weights = np.zeros(room)
    credits = np.zeros((room, k))
    offsets = np.zeros(n + 1, np.int64)
    violations = np.zeros(n)
    by_code, limit_by_code, favours_a, favours_b = np.zeros((4, 2 * k))
    for q in range(n):
        codes = allowed_rankings(q, lists, k, most)
        cell = offsets[q]
        offsets[q + 1] = cell
        count = codes.shape[0]
        if count == 0:
            violations[q] = -1.0
            continue
        # A document missing from a list counts as ranked just below its end.
        for code in range(length_a[q] + length_b[q]):
            if code < length_a[q]:
                rank_a = code + 1
                rank_b = a_in_b[q, code] + 1 if a_in_b[q, code] >= 0 else length_b[q] + 1
            else:
                rank_a, rank_b = length_a[q] + 1, code - length_a[q] + 1
            by_code[code] = _credit(rank_a, rank_b, inverse_credit)
            limit_by_code[code] = _credit(rank_a, rank_b, inverse_constraint)
            favours_a[code] = by_code[code] > 0
            favours_b[code] = by_code[code] < 0
        # Beyond the shorter list only one ranker has documents to place: credit there could never be balanced.
        shorter = min(length_a[q], length_b[q])
        all_ranks = 0.0
        for r in range(k):
            if codes[0, r] >= 0:  # all rankings are of one length
                all_ranks += 1.0 / (r + 1)
        table = np.zeros((k, count))
        for_a, for_b = np.zeros((2, count))
        for r in range(shorter):
            for j in range(count):
                table[r, j] = limit_by_code[codes[j, r]]
                for_a[j] += favours_a[codes[j, r]] * (1.0 / (r + 1))
                for_b[j] += favours_b[codes[j, r]] * (1.0 / (r + 1))
        gain = np.zeros(count)
        for j in range(count):
            if for_a[j] > 0 and for_b[j] > 0:
                share = for_a[j] / (for_a[j] + for_b[j])
                entropy = -share * np.log(share) - (1.0 - share) * np.log(1.0 - share)
                gain[j] = entropy * (for_a[j] + for_b[j]) / all_ranks
        p, violations[q] = balanced_distribution(table, gain)
        for j in range(count):
            if p[j] > 0.0:
                weights[cell] = p[j]
                rankings[cell] = codes[j]
                for r in range(shorter):
                    credits[cell, r] = by_code[codes[j, r]]
                cell += 1
        offsets[q + 1] = cell
    return rankings[:cell].copy(), weights[:cell].copy(), credits[:cell].copy(), offsets, violations
