"""The gradient of exact exposure under a Plackett-Luce policy by its scores: the recursions of ``_race_kernels``, backwards."""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np

from ranktrial.rankings._race_kernels import (
    LANES,
    ODDS,
    ORDER,
    START,
    add_series,
    arrivals_behind,
    count_arrivals,
    fill_powers,
    finished,
    growth_of,
    move_window,
    power_sums,
    ranks_in_reach,
    ranks_that_count,
    rescale,
    sorted_scores,
    steps_per_doubling,
    value_at,
)


@nb.njit(cache=True)
def exposure_vjp_into(scores: Any, theta: Any, weights: Any, gradient: Any) -> None:
    """gradient[e] = d/d score_e of sum_d weights[d] rho[d], the recursions of ``exposure_into`` differentiated by hand.

    Mark one document d with weights[d] x_d q_d: the sum is the expected theta of the marked one. Documents behind the window
    and those without weight come first, where nothing can be marked: ``plain`` counts their arrivals, so each costs a third of
    one with a weight. Then ``before`` counts arrivals while nothing is marked, ``marked`` after; ``to_mark`` and ``after`` are
    what each is still worth, from the other side. A document behind the window is marked last.
    """
    n = scores.shape[0]
    k = ranks_that_count(theta, n)
    gradient[:] = 0.0
    if k == 0:
        return
    order, s, tail = sorted_scores(scores)
    m = steps_per_doubling(k)
    h = math.log(2.0) / m
    second = theta[1] if k > 1 else 0.0
    first_order = h / math.expm1(h)
    second_order = h / math.expm1(2.0 * h)
    c = weights[order]
    n_weighted = np.count_nonzero(c)
    growth, sums, c_sums = growth_of(h), power_sums(s, np.ones(n)), power_sums(s, c)
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
    powers, odds = np.empty((ORDER, LANES)), np.empty((ORDER, LANES))
    series, summed = np.empty((k, ORDER)), np.empty(k)
    # What a document behind the window has added so far, as series: by its arrival, and by its mark for each unit of c.
    by_arrival, by_weight = np.zeros(ORDER), np.zeros(ORDER)

    y = math.log(START / tail[0])
    by_arrival[0] = second_order * (second - theta[0]) * c_sums[0, 0] * math.exp(y)
    by_weight[0] = theta[0] * first_order + (second - theta[0]) * START * second_order
    by_weight[1] = -2.0 * second * second_order
    low = 0
    high = 0
    while low < min(k, n):
        entered = high
        low, high = move_window(s, y, m, growth, low, high, x, p, q)
        if low >= k:
            break
        for d in range(entered, high):
            gradient[order[d]] = value_at(by_arrival, x[d, 0]) + c[d] * value_at(by_weight, x[d, 0])
        ranks = ranks_in_reach(math.exp(y) * growth[0, LANES - 1] * tail[0], k - low)
        n_others, count = 0, 0
        for d in range(low, high):
            if c[d] == 0.0:
                others[n_others] = d
                n_others += 1
            else:
                inside[count] = d
                count += 1
        first = math.exp(s[high] + y) if high < n else 0.0
        terms = fill_powers(first, c_sums[high], growth, powers)
        for j in range(ranks):
            after[j, :] = theta[low + j]
        after[ranks, :] = 0.0
        to_mark[: ranks + 1] = 0.0
        for i in range(min(terms, ranks)):  # what is behind: the sum of c x u^i is worth theta i ranks further down
            by_mark[:] = 0.0
            for e in range(i, terms):
                for lane in range(LANES):
                    by_mark[lane] += (1.0 - 2.0 * (i % 2)) * ODDS[i, e] * powers[e, lane]
            for j in range(ranks - i):
                for lane in range(LANES):
                    to_mark[j, lane] += by_mark[lane] * theta[low + j + i]
        fill_powers(first, sums[high], growth, powers)
        arrivals_behind(powers, terms, ranks, odds, plain[0])
        count_arrivals(others, n_others, ranks, p, q, plain)
        before[0, :ranks] = plain[n_others, :ranks]
        count_arrivals(inside, count, ranks, p, q, before)
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
        series[:ranks] = 0.0
        add_series(before[count], terms, ranks, h, growth, summed, series)
        for j in range(ranks):
            for i in range(terms):
                by_weight[i] += (i + 1) * theta[low + j] * series[j, i]
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
                total += (by_p[lane] - by_q[lane]) * x[d, lane] * q[d, lane]
                total += by_mark[lane] * c[d] * x[d, lane] * q[d, lane] * (1.0 - x[d, lane])
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
        _add_arrivals(plain[0], to_mark, terms, ranks, h, growth, by_p, by_arrival)
        y += LANES * h
        rescale(by_arrival, math.exp(-LANES * h))
        rescale(by_weight, math.exp(-LANES * h))
        if finished(before[count], ranks):
            break
    for d in range(high, n):
        w = math.exp(s[d] + y)
        gradient[order[d]] = value_at(by_arrival, w) + c[d] * value_at(by_weight, w)


@nb.njit(cache=True)
def _add_arrivals(
    counts: Any, worth: Any, terms: Any, ranks: Any, h: Any, growth: Any, by_sum: Any, by_arrival: Any
) -> None:
    """Add the gradient by arrivals behind the window, where ``worth[j]`` is that by ``counts[j]``, as a series in x.

    log G has the sum of u^i with the factor -(-z)^i / i, and that of x with -1.
    """
    for i in range(min(ranks, terms + 1)):
        by_sum[:] = 0.0
        for j in range(i, ranks):
            for lane in range(LANES):
                by_sum[lane] += worth[j, lane] * counts[j - i, lane]
        factor = h * (2.0 * (i % 2) - 1.0) / max(i, 1)
        for m in range(max(i, 1), terms + 1 if i else 2):
            total = 0.0
            for lane in range(LANES):
                total += growth[m - 1, lane] * by_sum[lane]
            by_arrival[m - 1] += factor * m * (ODDS[i, m] if i else 1.0) * total
