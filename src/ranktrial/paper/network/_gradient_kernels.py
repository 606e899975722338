"""Compiled gradients of the variance of one query's IPS value by its Plackett-Luce scores.

For one query, x = sum over clicks of lambda_d / rho_d has Var(x | q) = E[(x - Delta)^2] (the paper's Eq. ipsvariance).
Two estimates of its gradient by the scores have the same expectation but for O(1/M): ``paper_gradient``, the paper's
Eq. approxgrad, from M sampled rankings with sampled clicks and rho estimated from the same rankings; and
``low_noise_gradient``, in which nothing is sampled that need not be. There Delta does not enter: E[x | q] does not
depend on the policy.

Everything sampled is a sum over rankings and ranks of  f_x (1[R_x = d] - pi_x(d)),  pi_x(d) = w_d / W_x while d is
unplaced, W_x the weight left before rank x. Its second half is w_d times the sum of f_x / W_x over the ranks up to
that of d: one running sum per ranking, the same for all unplaced documents, so a ranking costs O(n + k) and not O(n
k).

Documents are numbered by decreasing score. What is left is then the sum from the first unplaced document on less a few
smaller terms, so it keeps its precision when nearly all the weight has been placed.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from ranktrial._kernels import alias_draw, alias_tables, uniform
from ranktrial.paper.network._race_gradient_kernels import exposure_vjp_into
from ranktrial.rankings._race_kernels import exposure_into, sorted_scores

RUN_THROUGH = 12  # places up to which running through the weights is faster than an alias table
HEAD_SHARE = 0.9  # of the weight is in the head
LONGEST_HEAD = 20
KEPT = 1e-6  # the part of a sum down to which subtracting from it keeps ten digits


@nb.njit(cache=True)
def _suffix_sums(terms: Any) -> Any:
    n = terms.shape[0]
    sums = np.zeros(n + 1)
    for i in range(n - 1, -1, -1):
        sums[i] = terms[i] + sums[i + 1]
    return sums


@nb.njit(cache=True)
def _left_before_ranks(ranking: Any, terms: Any, suffix: Any, taken: Any, left: Any) -> None:
    """left[x] = sum of terms over the documents not in ranking[:x]; ``taken`` is all False before and after."""
    first = 0
    for x in range(ranking.shape[0]):
        total = suffix[first]
        for y in range(x):
            if ranking[y] > first:
                total -= terms[ranking[y]]
        left[x] = total
        taken[ranking[x]] = True
        while first < terms.shape[0] and taken[first]:
            first += 1
    for x in range(ranking.shape[0]):
        taken[ranking[x]] = False


@nb.njit(cache=True)
def _add_running_sums(ranking: Any, running: Any, keep: Any, sums: Any) -> None:
    """Add running[x] to the document at rank x, and the last of them to every document not in the ranking."""
    k = ranking.shape[0]
    for x in range(k):
        keep[x] = sums[ranking[x]] + running[x]
    for d in range(sums.shape[0]):
        sums[d] += running[k - 1]
    for x in range(k):
        sums[ranking[x]] = keep[x]


@nb.njit(cache=True)
def _draw(scores: Any, k: Any, samples: Any, state: Any) -> Any:
    """Rankings of places, the weight left before each of their ranks, and the document and the weight at each place.

    Places are by decreasing score. The weight left is kept by subtraction, and added up anew before that costs precision. A
    place is found by running through the weights; where there are many places, through those of the head, which has most of
    the weight, and otherwise from an alias table of the rest until an untaken one comes.
    """
    n = scores.shape[0]
    order, s, _ = sorted_scores(scores)
    w = np.exp(s)
    whole = w.sum()
    head, head_weight = n, whole
    if n > RUN_THROUGH:
        head, head_weight = 0, 0.0
        while head < LONGEST_HEAD and head_weight < HEAD_SHARE * whole:
            head_weight += w[head]
            head += 1
        if head_weight < HEAD_SHARE * whole:  # nearly flat: rejection alone is fast
            head, head_weight = 0, 0.0
    stay, other = alias_tables(w[head:], np.array([0, n - head]))
    rankings = np.empty((samples, k), np.int64)
    left = np.empty((samples, k))
    untaken = np.empty(n)
    for m in range(samples):
        untaken[:] = w
        total, in_head, known, tail_left = whole, head_weight, whole, n - head
        for x in range(k):
            if total < KEPT * known:
                total, in_head = 0.0, 0.0
                for i in range(n - 1, -1, -1):  # the smallest first
                    total += untaken[i]
                    in_head += untaken[i] if i < head else 0.0
                known = total
            left[m, x] = total
            u = uniform(state) * total
            chosen = head
            if u < in_head or tail_left == 0:
                chosen = 0
                while chosen < head:
                    u -= untaken[chosen]
                    if u < 0.0:
                        break
                    chosen += 1
                if chosen == head and tail_left == 0:  # a rounding error beyond the last
                    chosen -= 1
                    while untaken[chosen] == 0.0:
                        chosen -= 1
            if chosen == head:
                chosen = head + alias_draw(state, 0, n - head, stay, other)
                while untaken[chosen] == 0.0:
                    chosen = head + alias_draw(state, 0, n - head, stay, other)
            if chosen < head:
                in_head -= w[chosen]
            else:
                tail_left -= 1
            total -= w[chosen]
            untaken[chosen] = 0.0
            rankings[m, x] = chosen
    return rankings, left, order, w


@nb.njit(cache=True)
def paper_gradient(
    scores: Any,
    theta: Any,
    zeta: Any,
    lam: Any,
    delta: Any,
    samples: Any,
    frequency_scale: Any,
    error_scale: Any,
    state: Any,
) -> Any:
    """The paper's Eq. approxgrad; each of its two terms times a scale.

    With c_d = mean over rankings of 2 (Delta - x) [d clicked] lambda_d / rho_d^2, the error term is the gradient of
    sum_d c_d rho_d at fixed c, where rho_d = mean of sum_x theta_x pi_x(d): by pi_x itself it is c_d rho_d - w_d sum_x
    theta_x b_x / W_x, b_x = sum_d c_d pi_x(d); by the placements before rank x it is the general form of the module
    docstring with f_x = sum_{y > x} theta_y b_y.
    """
    n = scores.shape[0]
    k = min(theta.shape[0], n)
    rankings, left, order, w = _draw(scores, k, samples, state)
    running = np.empty(k)
    keep = np.empty(k)
    rho = np.zeros(n)
    for m in range(samples):
        total = 0.0
        for x in range(k):
            total += theta[x] / left[m, x]
            running[x] = total
        _add_running_sums(rankings[m], running, keep, rho)
    value = np.zeros(n)
    per_rho = np.zeros(n)
    for d in range(n):
        rho[d] *= w[d] / samples
        if lam[order[d]] != 0.0 and rho[d] > 0.0:
            value[d] = lam[order[d]] / rho[d]
            per_rho[d] = value[d] / rho[d]

    error = np.empty(samples)
    c = np.zeros(n)
    clicked = np.empty(k, np.int64)
    for m in range(samples):
        clicks = 0
        x_value = 0.0
        for x in range(k):
            d = rankings[m, x]
            if uniform(state) < theta[x] * zeta[order[d]]:
                clicked[clicks] = d
                clicks += 1
                x_value += value[d]
        error[m] = (delta - x_value) ** 2
        for i in range(clicks):
            c[clicked[i]] += 2.0 * (delta - x_value) * per_rho[clicked[i]] / samples

    cw = c * w
    suffix = _suffix_sums(cw)
    taken = np.zeros(n, np.bool_)
    expected = np.empty(k)
    placed_part = np.zeros(n)
    share_part = np.zeros(n)
    for m in range(samples):
        _left_before_ranks(rankings[m], cw, suffix, taken, expected)
        to_come = 0.0
        for x in range(k - 1, -1, -1):
            placed_part[rankings[m, x]] += frequency_scale * error[m] + error_scale * to_come
            to_come += theta[x] * expected[x] / left[m, x]
            running[x] = (frequency_scale * error[m] + error_scale * to_come) / left[m, x]
        for x in range(1, k):
            running[x] += running[x - 1]
        _add_running_sums(rankings[m], running, keep, share_part)
    gradient = np.empty(n)
    for d in range(n):
        gradient[order[d]] = (placed_part[d] - w[d] * share_part[d]) / samples + error_scale * c[d] * rho[d]
    return gradient


@nb.njit(cache=True)
def _examined_clicks(scores: Any, theta: Any, zeta: Any, lam: Any) -> Any:
    """rho where lambda is not 0, and zeta lambda / rho: what d adds to E[x | ranking] per unit of examination."""
    n = scores.shape[0]
    rho = np.empty(n)
    exposure_into(scores, theta, lam != 0.0, rho)
    g = np.zeros(n)
    for d in range(n):
        if lam[d] != 0.0 and rho[d] > 0.0:
            g[d] = zeta[d] * lam[d] / rho[d]
    return rho, g


@nb.njit(cache=True)
def low_noise_gradient(scores: Any, theta: Any, zeta: Any, lam: Any, samples: Any, state: Any) -> Any:
    """Exact where it can be: E[x^2] = sum_d zeta_d lambda_d^2 / rho_d + E[2 sum_{y<x} a_y a_x], a_x = theta_x g_{R_x}.

    Only the second expectation is sampled. Its part f_x, the pairs that end at rank x or below (earlier placements
    cannot change the others), is compared with its mean over the other rankings.
    """
    n = scores.shape[0]
    k = min(theta.shape[0], n)
    rho, g = _examined_clicks(scores, theta, zeta, lam)
    rankings, left, order, w = _draw(scores, k, samples, state)
    f = np.empty((samples, k))
    mean = np.zeros(k)
    c = np.zeros(n)
    a = np.empty(k)
    for m in range(samples):
        total = 0.0
        for x in range(k):
            a[x] = theta[x] * g[order[rankings[m, x]]]
            f[m, x] = 2.0 * a[x] * total
            total += a[x]
        for x in range(k):
            c[order[rankings[m, x]]] -= 2.0 * a[x] * (total - a[x])
        to_come = 0.0
        for x in range(k - 1, -1, -1):
            to_come += f[m, x]
            f[m, x] = to_come
            mean[x] += to_come
    for d in range(n):
        if rho[d] > 0.0:
            c[d] = (c[d] / samples - g[d] * lam[d]) / rho[d]
    gradient = np.empty(n)
    exposure_vjp_into(scores, theta, c, gradient)

    running = np.empty(k)
    keep = np.empty(k)
    placed_part = np.zeros(n)
    share_part = np.zeros(n)
    for m in range(samples):
        total = 0.0
        for x in range(k):
            above_mean = f[m, x] - mean[x] / samples
            placed_part[rankings[m, x]] += above_mean
            total += above_mean / left[m, x]
            running[x] = total
        _add_running_sums(rankings[m], running, keep, share_part)
    for d in range(n):
        # Dividing by samples - 1 makes the mean above one over the other rankings.
        gradient[order[d]] += (placed_part[d] - w[d] * share_part[d]) / (samples - 1)
    return gradient


@nb.njit(cache=True)
def scale_by_query(column: Any, offsets: Any, scaled: Any) -> None:
    """Min-max scale a column to [0, 1] within each query; 0 where it is constant."""
    for query in range(offsets.shape[0] - 1):
        low, high = np.inf, -np.inf
        for d in range(offsets[query], offsets[query + 1]):
            low = min(low, column[d])
            high = max(high, column[d])
        for d in range(offsets[query], offsets[query + 1]):
            scaled[d] = (column[d] - low) / (high - low) if high > low else 0.0


@nb.njit(cache=True)
def fill_ranks(offsets: Any, list_offsets: Any, documents: Any, ranks: Any) -> None:
    """The rank from 0 of every document in its query's list, or the length of the list where it is not in it."""
    for query in range(offsets.shape[0] - 1):
        first = list_offsets[query]
        for d in range(offsets[query], offsets[query + 1]):
            ranks[d] = list_offsets[query + 1] - first
        for at in range(first, list_offsets[query + 1]):
            ranks[documents[at]] = at - first


@nb.njit(cache=True)
def _scaled(value: Any, low: Any, high: Any) -> Any:
    return (value - low) / (high - low) if high > low else 0.0


@nb.njit(cache=True)
def list_inputs(lam: Any, rank_a: Any, rank_b: Any, offsets: Any, rows: Any) -> None:
    """lambda, its size, square and sign, and both ranks, each min-max scaled within each query as ``scale_by_query`` does."""
    for query in range(offsets.shape[0] - 1):
        start, end = offsets[query], offsets[query + 1]
        if start == end:
            continue
        low, high, least, most, zeros, positive = np.inf, -np.inf, np.inf, 0.0, 0, 0
        low_a, high_a, low_b, high_b = rank_a[start], rank_a[start], rank_b[start], rank_b[start]
        for d in range(start, end):
            low, high = min(low, lam[d]), max(high, lam[d])
            least, most = min(least, abs(lam[d])), max(most, abs(lam[d]))
            zeros += lam[d] == 0.0
            positive += lam[d] > 0.0
            low_a, high_a = min(low_a, rank_a[d]), max(high_a, rank_a[d])
            low_b, high_b = min(low_b, rank_b[d]), max(high_b, rank_b[d])
        some_differ, some_are_not = 0 < zeros < end - start, 0 < positive < end - start
        at_zero = _scaled(0.0, low, high)
        for d in range(start, end):
            if lam[d] == 0.0:  # most documents, in a long list
                rows[d, 0] = at_zero
                rows[d, 1] = 0.0
                rows[d, 2] = 0.0
                rows[d, 3] = 1.0 if some_differ else 0.0
                rows[d, 4] = 0.0
            else:
                rows[d, 0] = _scaled(lam[d], low, high)
                rows[d, 1] = _scaled(abs(lam[d]), least, most)
                rows[d, 2] = _scaled(lam[d] * lam[d], least * least, most * most)
                rows[d, 3] = 0.0
                rows[d, 4] = 1.0 if lam[d] > 0.0 and some_are_not else 0.0
            rows[d, 5] = _scaled(float(rank_a[d]), float(low_a), float(high_a))
            rows[d, 6] = _scaled(float(rank_b[d]), float(low_b), float(high_b))
