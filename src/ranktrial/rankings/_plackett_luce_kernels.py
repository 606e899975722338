"""Compiled loops for Plackett-Luce rankings: exact exposure by quadrature, sampling, simulated impressions.

Plackett-Luce is a race of clocks T_d ~ Exp(w_d), w = exp(score): rank(d) = #{e: T_e < T_d} (0-based). The exposure of
d is the integral over y = log t of  x_d exp(-x_d) H_d,  x_d = w_d t,  where H_d is the expected theta of the rank d
would get at time t. H_d comes from two recursions over the documents, arrivals before d (forward) and expected theta
after d (backward), joined at d: O(n k) per node and no subtraction anywhere. The trapezoid rule in y converges
geometrically.

What makes it fast:

* The step is ln(2)/m. A document's chance to have arrived by 2t follows from the chance by t, p <- p (2 - p), which
  never loses relative precision, so each document costs ``LANES`` exponentials in all, whatever the number of nodes.
* ``LANES`` nodes go through the recursions side by side, so that the innermost loop is a vector operation.
* Documents are sorted by score. At any time those before a window have arrived for certain, those behind it have not
  (``DORMANT`` bounds the chance that any of them has): only the window enters the recursions, and the exposure of all
  documents behind it grows in proportion to w, kept as one number.

Nodes before the first are summed in closed form: the integrand is expanded in t to second order, and each power of t
makes a geometric series. With ``START`` = 2^-12 that leaves out 2e-12 of rho.
"""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np

from ranktrial._kernels import U64, alias_tables, below, high_half, low_half, random_word, threshold, uniform

LANES = 12  # a multiple of every number of steps per doubling below
START = 2.0**-12  # expected arrivals at the first node
LOG_DORMANT = math.log(1e-13)
LOG_ARRIVED = math.log(40.0)  # exp(-40) = 4e-18
FINISHED = 1e-11  # chance that fewer than k have arrived at which the integral ends
FEW_LEFT = 0.1  # share of the weight below which rejection from the alias table is given up
WIDEST_GAP = 700.0  # of neighbouring sorted scores: exp(-700) is as good as 0, and wider gaps would only cost time


@nb.njit(cache=True)
def steps_per_doubling(k: Any) -> Any:
    """Nodes per factor 2 of t, for an error of at most about 1e-9 of any placement probability.

    With n equal weights and n large, rank k has the relative error 2 |Gamma(k + i omega)| / Gamma(k), omega = 2 pi m /
    ln 2; that is the worst case, and at most 2e-10 for k <= 10, 1e-9 for k <= 25 and for k <= 60, 2e-9 for k <= 300.
    """
    if k <= 2:
        return 2
    if k <= 10:
        return 3
    if k <= 25:
        return 4
    if k <= 60:
        return 6
    return 12


@nb.njit(cache=True)
def sorted_scores(scores: Any) -> Any:
    """Documents by decreasing score, their scores s from 0 downwards, and tail[i] = sum_{e >= i} exp(s_e - s_i)."""
    n = scores.shape[0]
    order = np.argsort(-scores, kind="mergesort")
    s = np.empty(n)
    s[0] = 0.0
    for i in range(1, n):
        s[i] = s[i - 1] - min(scores[order[i - 1]] - scores[order[i]], WIDEST_GAP)
    tail = np.empty(n)
    tail[n - 1] = 1.0
    for i in range(n - 2, -1, -1):
        tail[i] = 1.0 + math.exp(s[i + 1] - s[i]) * tail[i + 1]
    return order, s, tail


@nb.njit(cache=True)
def _move_window(s: Any, tail: Any, y: Any, m: Any, growth: Any, low: Any, high: Any, x: Any, p: Any, q: Any) -> Any:
    """Advance the window to the nodes that start at y; x = w t, p = P(arrived), q = 1 - p of every document inside.

    Documents already inside are ``LANES / m`` doublings behind. One node block never carries a document past the
    window.
    """
    h = math.log(2.0) / m
    doublings = LANES // m
    while low < high and s[low] + y > LOG_ARRIVED:
        low += 1
    for d in range(low, high):
        for lane in range(LANES):
            x[d, lane] *= 1 << doublings
        for _ in range(doublings):
            for lane in range(LANES):
                # Each of p and q is squared up only while it is the smaller one: that keeps its relative precision.
                late = p[d, lane] > 0.5
                p[d, lane] *= 2.0 - p[d, lane]
                q[d, lane] = q[d, lane] * q[d, lane] if late else 1.0 - p[d, lane]
    y_last = y + (LANES - 1) * h
    while high < s.shape[0] and s[high] + y_last + math.log(tail[high]) > LOG_DORMANT:
        first = math.exp(s[high] + y)
        for lane in range(LANES):
            x[high, lane] = first * growth[lane]
        if x[high, LANES - 1] < 1.0 / 64.0:
            for lane in range(LANES):
                z = x[high, lane]
                p[high, lane] = z * (1 - z / 2 * (1 - z / 3 * (1 - z / 4 * (1 - z / 5 * (1 - z / 6 * (1 - z / 7))))))
        else:
            for lane in range(LANES):
                p[high, lane] = -math.expm1(-x[high, lane])
        for lane in range(LANES):
            q[high, lane] = 1.0 - p[high, lane]
        high += 1
    return low, high


@nb.njit(cache=True)
def _arrivals(documents: Any, count: Any, ranks: Any, p: Any, q: Any, before: Any) -> None:
    """before[i, j] = P(exactly j have arrived) before the i-th of the documents, those counted in ``before[0]`` included."""
    for i in range(count):
        d = documents[i]
        for lane in range(LANES):
            before[i + 1, 0, lane] = before[i, 0, lane] * q[d, lane]
        for j in range(1, ranks):
            for lane in range(LANES):
                before[i + 1, j, lane] = before[i, j, lane] * q[d, lane] + before[i, j - 1, lane] * p[d, lane]


@nb.njit(cache=True)
def _finished(before_all: Any, k: Any) -> Any:
    """Whether k documents have arrived at the last node, so that nothing is left to add."""
    alive = 0.0
    for j in range(k):
        alive += before_all[j, LANES - 1]
    return alive < FINISHED


@nb.njit(cache=True)
def _ranks_that_count(theta: Any, n: Any) -> Any:
    """Ranks up to the last that is examined at all."""
    k = min(theta.shape[0], n)
    while k > 0 and theta[k - 1] == 0.0:
        k -= 1
    return k


@nb.njit(cache=True)
def _ranks_in_reach(arrivals: Any, ranks: Any) -> Any:
    """Ranks below which some of ``arrivals`` documents, Poisson or less spread, fall with all but 1e-13 of probability."""
    reach = 1
    chance = arrivals
    while reach < ranks and chance > 1e-13:
        reach += 1
        chance *= arrivals / reach
    return reach


@nb.njit(cache=True)
def _arrive(p: Any, q: Any, ranks: Any, counts: Any) -> None:
    """One more document may have arrived: change the distribution of the number of arrivals in place."""
    for j in range(ranks - 1, 0, -1):
        for lane in range(LANES):
            counts[j, lane] = counts[j, lane] * q[lane] + counts[j - 1, lane] * p[lane]
    for lane in range(LANES):
        counts[0, lane] *= q[lane]


@nb.njit(cache=True)
def _arrivals_of(inside: Any, wanted: Any, low: Any, high: Any, ranks: Any, p: Any, q: Any, before: Any) -> Any:
    """The window's wanted documents, in ``inside``, each with the number of arrivals before it: all others come first.

    Returns how many there are; ``before`` has one entry more, for all documents of the window.
    """
    before[0, :ranks] = 0.0
    before[0, 0] = 1.0
    count = 0
    for d in range(low, high):
        if wanted[d]:
            inside[count] = d
            count += 1
        else:
            _arrive(p[d], q[d], ranks, before[0])
    _arrivals(inside, count, ranks, p, q, before)
    return count


@nb.njit(cache=True)
def exposure_into(scores: Any, theta: Any, wanted: Any, rho: Any) -> None:
    """rho[d] = E[theta at the rank of d] where ``wanted[d]``, nan elsewhere."""
    n = scores.shape[0]
    k = _ranks_that_count(theta, n)
    n_wanted = 0
    for d in range(n):
        rho[d] = 0.0 if wanted[d] else np.nan
        n_wanted += wanted[d]
    if k == 0 or n_wanted == 0:
        return
    order, s, tail = sorted_scores(scores)
    if s[n - 1] == 0.0:  # all scores are equal: every document is at every rank alike
        for d in range(n):
            if wanted[d]:
                rho[d] = theta[:k].sum() / n
        return
    sought = wanted[order]
    m = steps_per_doubling(k)
    h = math.log(2.0) / m
    second = theta[1] if k > 1 else 0.0
    first_order = h / math.expm1(h)
    second_order = h / math.expm1(2.0 * h)
    growth = np.exp(h * np.arange(LANES))
    x = np.empty((n, LANES))
    p = np.empty((n, LANES))
    q = np.empty((n, LANES))
    inside = np.empty(n_wanted, np.int64)
    before = np.empty((n_wanted + 1, k, LANES))
    after = np.empty((k + 1, LANES))
    expected = np.empty(LANES)

    y = math.log(START / tail[0])
    # The exposure so far of a document that has not entered the window, divided by exp(score + y).
    behind = theta[0] * first_order + (second - theta[0]) * START * second_order
    low = 0
    high = 0
    while low < min(k, n):
        entered = high
        low, high = _move_window(s, tail, y, m, growth, low, high, x, p, q)
        if low >= k:
            break
        for d in range(entered, high):
            if sought[d]:
                rho[order[d]] = x[d, 0] * behind
                if entered == 0:  # where d itself does not count among the others that have arrived
                    others = second * max(START - x[d, 0], 0.0) * second_order
                    rho[order[d]] = x[d, 0] * (theta[0] * (first_order - START * second_order) + others)
        ranks = _ranks_in_reach(math.exp(y) * growth[LANES - 1] * tail[0], k - low)
        count = _arrivals_of(inside, sought, low, high, ranks, p, q, before)
        for j in range(ranks):
            after[j, :] = theta[low + j]
        after[ranks, :] = 0.0
        expected[:] = 0.0
        for j in range(ranks):
            for lane in range(LANES):
                expected[lane] += before[count, j, lane] * after[j, lane]
        for lane in range(LANES):
            behind += h * growth[lane] * expected[lane]
        for i in range(count - 1, -1, -1):
            d = inside[i]
            expected[:] = 0.0
            for j in range(ranks):
                for lane in range(LANES):
                    expected[lane] += before[i, j, lane] * after[j, lane]
                    after[j, lane] = after[j, lane] * q[d, lane] + after[j + 1, lane] * p[d, lane]
            total = 0.0
            for lane in range(LANES):
                total += x[d, lane] * q[d, lane] * expected[lane]
            rho[order[d]] += h * total
        y += LANES * h
        behind *= math.exp(-LANES * h)
        if _finished(before[count], ranks):
            break
    for d in range(high, n):
        if sought[d]:
            rho[order[d]] = math.exp(s[d] + y) * behind


@nb.njit(cache=True)
def exposure_vjp_into(scores: Any, theta: Any, weights: Any, gradient: Any) -> None:
    """gradient[e] = d/d score_e of sum_d weights[d] rho[d], the recursions of ``exposure_into`` differentiated by hand.

    Mark one document d with weights[d] x_d q_d: the sum is the expected theta of the marked one. Documents without weight come
    first, where nothing can be marked: ``plain`` counts their arrivals, so each costs a third of one with a weight. Then
    ``before`` counts arrivals while nothing is marked, ``marked`` after; ``to_mark`` and ``after`` are what each is still
    worth, from the other side.
    """
    n = scores.shape[0]
    k = _ranks_that_count(theta, n)
    gradient[:] = 0.0
    if k == 0:
        return
    order, s, tail = sorted_scores(scores)
    m = steps_per_doubling(k)
    h = math.log(2.0) / m
    second = theta[1] if k > 1 else 0.0
    first_order = h / math.expm1(h)
    second_order = h / math.expm1(2.0 * h)
    growth = np.exp(h * np.arange(LANES))
    c = np.empty(n)
    c_tail = np.empty(n + 1)
    c_tail[n] = 0.0
    n_weighted = 0
    for d in range(n - 1, -1, -1):
        c[d] = weights[order[d]]
        n_weighted += c[d] != 0.0
        c_tail[d] = c[d] + (math.exp(s[d + 1] - s[d]) * c_tail[d + 1] if d + 1 < n else 0.0)
    x = np.empty((n, LANES))
    p = np.empty((n, LANES))
    q = np.empty((n, LANES))
    others = np.empty(n - n_weighted, np.int64)
    inside = np.empty(n_weighted, np.int64)
    plain = np.empty((n - n_weighted + 1, k, LANES))
    before = np.empty((n_weighted + 1, k, LANES))
    marked = np.empty((n_weighted + 1, k, LANES))
    after = np.empty((k + 1, LANES))
    to_mark = np.empty((k + 1, LANES))
    mark = np.empty(LANES)
    by_q = np.empty(LANES)
    by_p = np.empty(LANES)
    by_mark = np.empty(LANES)

    y = math.log(START / tail[0])
    behind = theta[0] * first_order + (second - theta[0]) * START * second_order
    c_sum = c_tail[0] * math.exp(y)
    low = 0
    high = 0
    while low < min(k, n):
        entered = high
        low, high = _move_window(s, tail, y, m, growth, low, high, x, p, q)
        if low >= k:
            break
        for d in range(entered, high):
            gradient[order[d]] = c[d] * x[d, 0] * behind
            if entered == 0:
                of_others = (second - theta[0]) * c_sum - 2.0 * second * c[d] * x[d, 0]
                gradient[order[d]] += x[d, 0] * of_others * second_order
        ranks = _ranks_in_reach(math.exp(y) * growth[LANES - 1] * tail[0], k - low)
        n_others, count = 0, 0
        for d in range(low, high):
            if c[d] == 0.0:
                others[n_others] = d
                n_others += 1
            else:
                inside[count] = d
                count += 1
        plain[0, :ranks] = 0.0
        plain[0, 0] = 1.0
        _arrivals(others, n_others, ranks, p, q, plain)
        before[0, :ranks] = plain[n_others, :ranks]
        _arrivals(inside, count, ranks, p, q, before)
        marked[0, :ranks] = 0.0
        for i in range(count):
            d = inside[i]
            for lane in range(LANES):
                mark[lane] = c[d] * x[d, lane] * q[d, lane]
                marked[i + 1, 0, lane] = marked[i, 0, lane] * q[d, lane] + before[i, 0, lane] * mark[lane]
            for j in range(1, ranks):
                for lane in range(LANES):
                    marked[i + 1, j, lane] = (
                        marked[i, j, lane] * q[d, lane]
                        + marked[i, j - 1, lane] * p[d, lane]
                        + before[i, j, lane] * mark[lane]
                    )
        c_behind = math.exp(s[high] + y) * c_tail[high] if high < n else 0.0
        for j in range(ranks):
            for lane in range(LANES):
                after[j, lane] = theta[low + j]
                to_mark[j, lane] = theta[low + j] * c_behind * growth[lane]
        after[ranks, :] = 0.0
        to_mark[ranks, :] = 0.0
        for j in range(ranks):
            for lane in range(LANES):
                behind += h * growth[lane] * before[count, j, lane] * after[j, lane]
        for i in range(count - 1, -1, -1):
            d = inside[i]
            by_q[:] = 0.0
            by_p[:] = 0.0
            by_mark[:] = 0.0
            for lane in range(LANES):
                mark[lane] = c[d] * x[d, lane] * q[d, lane]
            for j in range(ranks):
                for lane in range(LANES):
                    unmarked = before[i, j, lane]
                    done = marked[i, j, lane]
                    by_q[lane] += unmarked * to_mark[j, lane] + done * after[j, lane]
                    by_p[lane] += unmarked * to_mark[j + 1, lane] + done * after[j + 1, lane]
                    by_mark[lane] += unmarked * after[j, lane]
                    to_mark[j, lane] = (
                        to_mark[j, lane] * q[d, lane] + to_mark[j + 1, lane] * p[d, lane] + after[j, lane] * mark[lane]
                    )
                    after[j, lane] = after[j, lane] * q[d, lane] + after[j + 1, lane] * p[d, lane]
            total = 0.0
            for lane in range(LANES):
                by_arrival = (by_p[lane] - by_q[lane]) * x[d, lane] * q[d, lane]
                total += by_arrival + by_mark[lane] * c[d] * x[d, lane] * q[d, lane] * (1.0 - x[d, lane])
            gradient[order[d]] += h * total
        for i in range(n_others - 1, -1, -1):
            d = others[i]
            by_p[:] = 0.0
            for j in range(ranks):
                for lane in range(LANES):
                    step = to_mark[j + 1, lane] - to_mark[j, lane]
                    by_p[lane] += plain[i, j, lane] * step
                    to_mark[j, lane] += p[d, lane] * step
            total = 0.0
            for lane in range(LANES):
                total += by_p[lane] * x[d, lane] * q[d, lane]
            gradient[order[d]] += h * total
        y += LANES * h
        behind *= math.exp(-LANES * h)
        if _finished(before[count], ranks):
            break
    for d in range(high, n):
        gradient[order[d]] = c[d] * math.exp(s[d] + y) * behind


@nb.njit(cache=True)
def placement_into(scores: Any, k: Any, wanted: Any, placement: Any) -> None:
    """placement[d, r] = P(d at rank r) for r < min(k, n), 0 beyond, where ``wanted[d]``; nan elsewhere.

    O(k^2) per node and wanted document, O(k) per other document.
    """
    n = scores.shape[0]
    k = min(k, n)
    n_wanted = 0
    for d in range(n):
        placement[d] = 0.0 if wanted[d] else np.nan
        n_wanted += wanted[d]
    if k == 0 or n_wanted == 0:
        return
    order, s, tail = sorted_scores(scores)
    sought = wanted[order]
    m = steps_per_doubling(k)
    h = math.log(2.0) / m
    first_order = h / math.expm1(h)
    second_order = h / math.expm1(2.0 * h)
    growth = np.exp(h * np.arange(LANES))
    x = np.empty((n, LANES))
    p = np.empty((n, LANES))
    q = np.empty((n, LANES))
    inside = np.empty(n_wanted, np.int64)
    before = np.empty((n_wanted + 1, k, LANES))
    after = np.empty((k, LANES))
    exactly = np.empty(LANES)
    behind = np.zeros(k)

    y = math.log(START / tail[0])
    behind[0] = first_order - START * second_order
    if k > 1:
        behind[1] = START * second_order
    low = 0
    high = 0
    while low < min(k, n):
        entered = high
        low, high = _move_window(s, tail, y, m, growth, low, high, x, p, q)
        if low >= k:
            break
        for d in range(entered, high):
            if sought[d]:
                for r in range(k):
                    placement[order[d], r] = x[d, 0] * behind[r]
                if entered == 0 and k > 1:
                    placement[order[d], 1] = x[d, 0] * max(START - x[d, 0], 0.0) * second_order
        ranks = _ranks_in_reach(math.exp(y) * growth[LANES - 1] * tail[0], k - low)
        count = _arrivals_of(inside, sought, low, high, ranks, p, q, before)
        after[:] = 0.0
        after[0, :] = 1.0
        for j in range(ranks):
            for lane in range(LANES):
                behind[low + j] += h * growth[lane] * before[count, j, lane]
        for i in range(count - 1, -1, -1):
            d = inside[i]
            for j in range(ranks):
                exactly[:] = 0.0
                for below_d in range(j + 1):
                    for lane in range(LANES):
                        exactly[lane] += before[i, below_d, lane] * after[j - below_d, lane]
                total = 0.0
                for lane in range(LANES):
                    total += x[d, lane] * q[d, lane] * exactly[lane]
                placement[order[d], low + j] += h * total
            _arrive(p[d], q[d], ranks, after)
        y += LANES * h
        behind *= math.exp(-LANES * h)
        if _finished(before[count], ranks):
            break
    for d in range(high, n):
        if sought[d]:
            for r in range(k):
                placement[order[d], r] = math.exp(s[d] + y) * behind[r]


@nb.njit(cache=True)
def exposures_into(scores: Any, offsets: Any, theta: Any, wanted: Any, rho: Any) -> None:
    for query in range(offsets.shape[0] - 1):
        start, end = offsets[query], offsets[query + 1]
        exposure_into(scores[start:end], theta, wanted[start:end], rho[start:end])


@nb.njit(cache=True)
def placements_into(scores: Any, offsets: Any, k: Any, wanted: Any, placement: Any) -> None:
    for query in range(offsets.shape[0] - 1):
        start, end = offsets[query], offsets[query + 1]
        placement_into(scores[start:end], k, wanted[start:end], placement[start:end])


@nb.njit(cache=True)
def race(scores: Any, state: Any, rankings: Any) -> None:
    """Fill each row with the first arrivals of one race of exponential clocks, in order of arrival.

    A clock reads -log(1 - u) / w >= u / w, so most documents are seen to be late without taking a logarithm.
    """
    n = scores.shape[0]
    count, k = rankings.shape
    order, s, _ = sorted_scores(scores)
    times = np.empty(k)
    first = np.empty(k, np.int64)
    for row in range(count):
        arrived = 0
        unit = 0.0
        for d in range(n):
            if s[d] < unit - WIDEST_GAP:  # measure times in a longer unit before they overflow
                for j in range(arrived):
                    times[j] *= math.exp(s[d] - unit)
                unit = s[d]
            slowness = math.exp(unit - s[d])
            u = uniform(state) + 2.0**-54  # never 0: no document beats one that is 2^54 times faster
            if arrived == k and u * slowness >= times[k - 1]:
                continue
            time = -math.log1p(-u) * slowness
            if arrived == k and time >= times[k - 1]:
                continue
            j = arrived if arrived < k else k - 1
            while j > 0 and times[j - 1] > time:
                times[j] = times[j - 1]
                first[j] = first[j - 1]
                j -= 1
            times[j] = time
            first[j] = d
            arrived = min(arrived + 1, k)
        for r in range(k):
            rankings[row, r] = order[first[r]]


# What a draw and a click need of a document, in 16 bytes: with many queries the speed is that of fetching it from memory.
# The share only decides when to give up rejection; zeta is a fraction of 2^32, as exact as the Bernoulli draws are.
PLACE = np.dtype([("share", "f4"), ("stay", "u4"), ("other", "u4"), ("zeta", "u4")])


@nb.njit(cache=True)
def fill_places(scores: Any, offsets: Any, zeta: Any, places: Any) -> Any:
    """Put every query's documents in places by decreasing score, with their shares of the weight and alias tables.

    Returns, for each place, s and tail as ``sorted_scores`` does, the share in full precision, and the document there.
    """
    total = scores.shape[0]
    document = np.empty(total, np.int64)
    s = np.empty(total)
    tail = np.empty(total)
    share = np.empty(total)
    for query in range(offsets.shape[0] - 1):
        start, end = offsets[query], offsets[query + 1]
        if start == end:
            continue
        order, s[start:end], tail[start:end] = sorted_scores(scores[start:end])
        for i in range(end - start):
            document[start + i] = start + order[i]
            share[start + i] = math.exp(s[start + i]) / tail[start]
    stay, other = alias_tables(share, offsets)
    for query in range(offsets.shape[0] - 1):
        for i in range(offsets[query], offsets[query + 1]):
            places[i].share = share[i]
            places[i].stay = stay[i]
            places[i].other = other[i] - offsets[query]
            places[i].zeta = threshold(zeta[document[i]])
    return s, tail, share, document


@nb.njit(inline="always")
def draw_by_rejection(
    state: Any, start: Any, n: Any, depth: Any, places: Any, taken: Any, now: Any, placed: Any
) -> Any:
    """Fill ``placed`` from the top, drawing from the alias table until an untaken place comes (``taken[i] != now``).

    Stops when ``depth`` are placed, or so little weight is left that rejection would be slow and the table's 32 bits
    coarse. Returns the number placed.
    """
    count = 0
    left = 1.0
    while count < depth and left > FEW_LEFT:
        word = random_word(state)
        i = np.int64(((word >> U64(32)) * U64(n)) >> U64(32))
        if low_half(word) >= places[start + i].stay:
            i = np.int64(places[start + i].other)
        if taken[i] != now:
            taken[i] = now
            placed[count] = i
            left -= places[start + i].share
            count += 1
    return count


@nb.njit(cache=True)
def draw_by_inversion(
    state: Any,
    start: Any,
    n: Any,
    depth: Any,
    s: Any,
    tail: Any,
    share: Any,
    taken: Any,
    now: Any,
    placed: Any,
    count: Any,
) -> None:
    """Fill ``placed[count:depth]`` exactly, whatever the scores.

    With the places sorted, the untaken weight is that from the first untaken place on, less at most ``count`` weights
    none of which exceeds the first's: the difference keeps its precision. Weights are relative to the first's where
    shares underflow.
    """
    first = start
    for rank in range(count, depth):
        while taken[first - start] == now:
            first += 1
        deep = share[first] < 1e-200
        smallest = 1.0 if deep else share[first]
        total = tail[first] * smallest
        for r in range(rank):
            i = start + placed[r]
            if i > first:
                total -= math.exp(s[i] - s[first]) if deep else share[i]
        u = uniform(state) * max(total, smallest)
        chosen = first
        for i in range(first, start + n):
            if taken[i - start] != now:
                chosen = i
                u -= math.exp(s[i] - s[first]) if deep else share[i]
                if u < 0.0:
                    break
        taken[chosen - start] = now
        placed[rank] = chosen - start


@nb.njit(cache=True)
def draw_rankings(
    offsets: Any, s: Any, tail: Any, share: Any, places: Any, document: Any, state: Any, out: Any
) -> None:
    """Fill the table with rankings of documents, the same number for every query, one query after the other."""
    queries = offsets.shape[0] - 1
    draws, k = out.shape[0] // queries, out.shape[1]
    longest = 1
    for query in range(queries):
        longest = max(longest, offsets[query + 1] - offsets[query])
    taken = np.full(longest, -1, np.int64)
    placed = np.empty(k, np.int64)
    for query in range(queries):
        start = offsets[query]
        n = offsets[query + 1] - start
        depth = min(k, n)
        for row in range(query * draws, (query + 1) * draws):
            count = draw_by_rejection(state, start, n, depth, places, taken, row, placed)
            if count < depth:
                draw_by_inversion(state, start, n, depth, s, tail, share, taken, row, placed, count)
            for r in range(depth):
                out[row, r] = document[start + placed[r]]
            for r in range(depth, k):
                out[row, r] = -1


@nb.njit(cache=True)
def count_queries(count: Any, state: Any, drawn: Any) -> None:
    """How often each query will be drawn by ``simulate`` with this state of its queries."""
    for _ in range(count):
        drawn[below(state, drawn.shape[0])] += 1


@nb.njit(cache=True)
def simulate(
    offsets: Any, s: Any, tail: Any, share: Any, places: Any, document: Any, value: Any, slope: Any, intercept: Any,
    stay_after_click: Any, stay_after_skip: Any, reads_on: Any, checkpoints: Any, query_state: Any, state: Any, out: Any,
    shown: Any, clicked: Any,
) -> None:  # fmt: skip
    """Show one ranking after another to the user; out[i] = sum x, sum x^2, clicks after checkpoints[i] impressions.

    x of an impression is the sum over its clicks of ``value``. Where they have rows, displays and clicks per document and rank
    are added to ``shown`` and ``clicked``.
    """
    queries = offsets.shape[0] - 1
    k = slope.shape[0]
    counting = shown.shape[0] > 0
    longest = 1
    for query in range(queries):
        longest = max(longest, offsets[query + 1] - offsets[query])
    taken = np.zeros(longest, np.int64)
    placed = np.empty(k, np.int64)
    sum_x = 0.0
    sum_x2 = 0.0
    clicks = 0
    impression = 0
    for checkpoint in range(checkpoints.shape[0]):
        while impression < checkpoints[checkpoint]:
            impression += 1
            query = below(query_state, queries)
            start = offsets[query]
            n = offsets[query + 1] - start
            depth = min(k, n)
            count = draw_by_rejection(state, start, n, depth, places, taken, impression, placed)
            if count < depth:
                draw_by_inversion(state, start, n, depth, s, tail, share, taken, impression, placed, count)
            x = 0.0
            for r in range(depth):
                i = start + placed[r]
                chance = slope[r] * (places[i].zeta * 2.0**-32) + intercept[r]
                click = high_half(random_word(state)) < threshold(chance)
                if click:
                    x += value[document[i]]
                    clicks += 1
                    if counting:
                        clicked[document[i], r] += 1
                if not reads_on and uniform(state) >= (stay_after_click[r] if click else stay_after_skip[r]):
                    break
            if counting:
                for r in range(depth):
                    shown[document[start + placed[r]], r] += 1
            sum_x += x
            sum_x2 += x * x
        out[checkpoint, 0] = sum_x
        out[checkpoint, 1] = sum_x2
        out[checkpoint, 2] = clicks


@nb.njit(cache=True)
def simulate_queries(
    offsets: Any, s: Any, tail: Any, share: Any, places: Any, document: Any, slope: Any, intercept: Any, times: Any,
    state: Any, shown: Any, clicked: Any,
) -> None:  # fmt: skip
    """Show query after query, each so many times, to a user who reads on; adds to ``shown`` and ``clicked`` as ``simulate``.

    One query's documents stay in the cache, which with many queries is most of the time.
    """
    longest = 1
    for query in range(offsets.shape[0] - 1):
        longest = max(longest, offsets[query + 1] - offsets[query])
    taken = np.zeros(longest, np.int64)
    placed = np.empty(slope.shape[0], np.int64)
    impression = 0
    for query in range(offsets.shape[0] - 1):
        start = offsets[query]
        n = offsets[query + 1] - start
        depth = min(slope.shape[0], n)
        for _ in range(times[query]):
            impression += 1
            count = draw_by_rejection(state, start, n, depth, places, taken, impression, placed)
            if count < depth:
                draw_by_inversion(state, start, n, depth, s, tail, share, taken, impression, placed, count)
            for r in range(depth):
                i = start + placed[r]
                shown[document[i], r] += 1
                chance = slope[r] * (places[i].zeta * 2.0**-32) + intercept[r]
                if high_half(random_word(state)) < threshold(chance):
                    clicked[document[i], r] += 1
