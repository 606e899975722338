"""The gradient of exact exposure under a Plackett-Luce policy by its scores: the recursions of ``_race_kernels``, backwards."""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np

from ranktrial.rankings._lane_kernels import LANES, every, load, store, total
from ranktrial.rankings._race_kernels import (
    ODDS,
    ORDER,
    START,
    add_series,
    arrivals_behind,
    begin_race,
    count_arrivals,
    fill_powers,
    finished,
    move_window,
    power_sums,
    ranks_in_reach,
    ranks_that_count,
    rescale,
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
    order, s, tail, m, h, (first_order, second_order), growth, sums, (x, p, q) = begin_race(scores, k)
    second = theta[1] if k > 1 else 0.0
    c = weights[order]
    n_weighted = np.count_nonzero(c)
    c_sums = power_sums(s, c)
    others = np.empty(n - n_weighted, np.int64)
    inside = np.empty(n_weighted, np.int64)
    plain = np.empty((n - n_weighted + 1, k, LANES))
    before = np.empty((n_weighted + 1, k, LANES))
    marked = np.empty((n_weighted + 1, k, LANES))
    after = np.empty((k + 1, LANES))
    to_mark = np.empty((k + 1, LANES))
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
            by_mark = every(0.0)
            for e in range(i, terms):
                by_mark = by_mark + (1.0 - 2.0 * (i % 2)) * ODDS[i, e] * load(powers, e)
            for j in range(ranks - i):
                store(to_mark, j, load(to_mark, j) + by_mark * theta[low + j + i])
        fill_powers(first, sums[high], growth, powers)
        arrivals_behind(powers, terms, ranks, odds, plain[0])
        count_arrivals(others, n_others, ranks, p, q, plain)
        before[0, :ranks] = plain[n_others, :ranks]
        count_arrivals(inside, count, ranks, p, q, before)
        marked[0, :ranks] = 0.0
        for i in range(count):
            d = inside[i]
            early, late, fewer = load(p, d), load(q, d), every(0.0)
            mark = c[d] * load(x, d) * late
            for j in range(ranks):
                as_many = load(marked, i * k + j)
                store(marked, (i + 1) * k + j, as_many * late + fewer * early + load(before, i * k + j) * mark)
                fewer = as_many
        series[:ranks] = 0.0
        add_series(before[count], terms, ranks, h, growth, summed, series)
        for j in range(ranks):
            for i in range(terms):
                by_weight[i] += (i + 1) * theta[low + j] * series[j, i]
        for i in range(count - 1, -1, -1):
            d = inside[i]
            early, late, now = load(p, d), load(q, d), load(x, d)
            mark = c[d] * now * late
            by_q, by_p, by_mark = every(0.0), every(0.0), every(0.0)
            here, here_to_mark = load(after, 0), load(to_mark, 0)
            for j in range(ranks):
                below, below_to_mark = load(after, j + 1), load(to_mark, j + 1)
                unmarked, done = load(before, i * k + j), load(marked, i * k + j)
                by_q = by_q + unmarked * here_to_mark + done * here
                by_p = by_p + unmarked * below_to_mark + done * below
                by_mark = by_mark + unmarked * here
                store(to_mark, j, here_to_mark * late + below_to_mark * early + here * mark)
                store(after, j, here * late + below * early)
                here, here_to_mark = below, below_to_mark
            gradient[order[d]] += h * total((by_p - by_q) * now * late + by_mark * mark * (1.0 - now))
        for i in range(n_others - 1, -1, -1):
            d = others[i]
            early, by_p, here = load(p, d), every(0.0), load(to_mark, 0)
            for j in range(ranks):
                below = load(to_mark, j + 1)
                step = below - here
                by_p = by_p + load(plain, i * k + j) * step
                store(to_mark, j, here + early * step)
                here = below
            gradient[order[d]] += h * total(by_p * load(x, d) * load(q, d))
        _add_arrivals(plain[0], to_mark, terms, ranks, h, growth, by_arrival)
        y += LANES * h
        rescale(by_arrival, math.exp(-LANES * h))
        rescale(by_weight, math.exp(-LANES * h))
        if finished(before[count], ranks):
            break
    for d in range(high, n):
        w = math.exp(s[d] + y)
        gradient[order[d]] = value_at(by_arrival, w) + c[d] * value_at(by_weight, w)


@nb.njit(cache=True)
def _add_arrivals(counts: Any, worth: Any, terms: Any, ranks: Any, h: Any, growth: Any, by_arrival: Any) -> None:
    """Add the gradient by arrivals behind the window, where ``worth[j]`` is that by ``counts[j]``, as a series in x.

    log G has the sum of u^i with the factor -(-z)^i / i, and that of x with -1.
    """
    for i in range(min(ranks, terms + 1)):
        by_sum = every(0.0)
        for j in range(i, ranks):
            by_sum = by_sum + load(worth, j) * load(counts, j - i)
        factor = h * (2.0 * (i % 2) - 1.0) / max(i, 1)
        for m in range(max(i, 1), terms + 1 if i else 2):
            by_arrival[m - 1] += factor * m * (ODDS[i, m] if i else 1.0) * total(load(growth, m - 1) * by_sum)
