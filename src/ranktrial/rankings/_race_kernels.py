"""Compiled loops for Plackett-Luce rankings: exact exposure and placement, by quadrature.

Plackett-Luce is a race of clocks T_d ~ Exp(w_d), w = exp(score): rank(d) = #{e: T_e < T_d} (0-based). The exposure of
d is the integral over y = log t of  x_d exp(-x_d) H_d,  x_d = w_d t,  where H_d is the expected theta of the rank d
would get at time t. H_d comes from two recursions over the documents, arrivals before d (forward) and expected theta
after d (backward), joined at d: O(n k) per node and no subtraction. The trapezoid rule in y converges geometrically.

What makes it fast:

* The step is ln(2)/m. A document's chance to have arrived by 2t follows from the chance by t, p <- p (2 - p), which
  never loses relative precision, so each document costs m exponentials in all, whatever the number of nodes.
* ``LANES`` nodes go through the recursions side by side, in vector registers (see ``_lane_kernels``).
* Documents are sorted by score. At any time those before a window have arrived for certain, and those behind it have
  x <= ``SMALL``: only the window enters the recursions.
* Documents behind the window are power series in x, cut off after ``ORDER`` terms. With u = exp(x) - 1, the odds that
  one has arrived, the number of them that have has the generating function  prod (1 + u z) / exp(sum x), whose
  logarithm is the sum over i of  -(-z)^i sum u^i / i:  sums of powers of x, which are those of w times a power of t. And
  x_d times the chance that j others have arrived and d has not is x_d times the coefficient of z^j in F / (1 + u_d z), F of
  all documents: a polynomial in x_d whose coefficients are the same for all documents, added up over the nodes.

Nodes before the first are summed in closed form: the integrand is expanded in t to second order, and each power of t
makes a geometric series. With ``START`` = 2^-12 that leaves out 2e-12 of rho.
"""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np

from ranktrial.rankings._lane_kernels import LANES, every, load, store, total, where_above

START = 2.0**-12  # expected arrivals at the first node
SMALL, ORDER = 1.0 / 16.0, 8  # documents behind the window have x <= SMALL, and series in x that many terms
NEGLIGIBLE = 1e-14  # powers of x after which a series ends
LOG_ARRIVED = math.log(40.0)  # exp(-40) = 4e-18
FINISHED = 1e-11  # chance that fewer than k have arrived at which the integral ends
COUNTED = 300  # documents up to which counting those with higher scores is faster than sorting
WIDEST_GAP = 700.0  # of neighbouring sorted scores: exp(-700) is as good as 0, and wider gaps would only cost time


def _powers_of_odds() -> Any:
    """The coefficient of x^m in (exp(x) - 1)^i, at [i, m]."""
    table = np.zeros((ORDER + 1, ORDER + 1))
    table[0, 0] = 1.0
    for i in range(1, ORDER + 1):
        for m in range(i, ORDER + 1):
            table[i, m] = sum(table[i - 1, m - part] / math.factorial(part) for part in range(1, m + 1))
    return table


ODDS = _powers_of_odds()


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
def falling_order(scores: Any) -> Any:
    """Documents by decreasing score, equal ones in the order given."""
    n = scores.shape[0]
    if n > COUNTED:
        return np.argsort(-scores, kind="mergesort")
    order = np.full(n, -1, np.int64)
    for d in range(n):
        own, place = scores[d], 0
        for e in range(n):
            place += 1 if scores[e] > own else 0
        while order[place] >= 0:  # taken by an equal score
            place += 1
        order[place] = d
    return order


@nb.njit(cache=True)
def sorted_scores(scores: Any) -> Any:
    """Documents by decreasing score, their scores s from 0 downwards, and tail[i] = sum_{e >= i} exp(s_e - s_i)."""
    n = scores.shape[0]
    order = falling_order(scores)
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
def power_sums(s: Any, weights: Any) -> Any:
    """sums[i, m] = sum_{e >= i} weights[e] exp((m + 1) (s_e - s_i)), and zeros for i = n."""
    n = s.shape[0]
    sums = np.zeros((n + 1, ORDER))
    for i in range(n - 1, -1, -1):
        ratio = math.exp(s[i + 1] - s[i]) if i + 1 < n else 0.0
        power = 1.0
        for m in range(ORDER):
            power *= ratio
            sums[i, m] = weights[i] + power * sums[i + 1, m]
    return sums


@nb.njit(cache=True)
def growth_of(h: Any) -> Any:
    """growth[m, lane] = exp((m + 1) h lane): powers of x grow by this from the first node of a block on."""
    growth = np.empty((ORDER, LANES))
    for lane in range(LANES):
        growth[0, lane] = math.exp(h * lane)
    for m in range(1, ORDER):
        store(growth, m, load(growth, m - 1) * load(growth, 0))
    return growth


@nb.njit(cache=True)
def arrived_early(x: Any) -> Any:
    """1 - exp(-x) for 0 <= x <= 2 ``SMALL``, where a document enters the window: a series, faster than expm1."""
    result = 1.0
    for m in range(10, 1, -1):
        result = 1.0 - x * (1.0 / m) * result
    return x * result


@nb.njit(cache=True)
def move_window(s: Any, y: Any, m: Any, growth: Any, low: Any, high: Any, x: Any, p: Any, q: Any) -> Any:
    """Advance the window to the nodes that start at y; x = w t, p = P(arrived), q = 1 - p of every document inside.

    Documents already inside are ``LANES / m`` doublings behind. One node block never carries a document past the
    window.
    """
    doublings = LANES // m
    while low < high and s[low] + y > LOG_ARRIVED:
        low += 1
    for d in range(low, high):
        store(x, d, load(x, d) * float(1 << doublings))
        arrived, not_yet = load(p, d), load(q, d)
        for _ in range(doublings):
            # Each of p and q is squared up only while it is the smaller one: that keeps its relative precision.
            by_then = arrived * (2.0 - arrived)
            not_yet = where_above(arrived, 0.5, not_yet * not_yet, 1.0 - by_then)
            arrived = by_then
        store(p, d, arrived)
        store(q, d, not_yet)
    last = math.log(SMALL / growth[0, LANES - 1])
    while high < s.shape[0] and s[high] + y > last:
        first = math.exp(s[high] + y)
        for lane in range(LANES):
            x[high, lane] = first * growth[0, lane]
            if lane < m:
                p[high, lane] = arrived_early(x[high, lane])
                q[high, lane] = 1.0 - p[high, lane]
            else:
                p[high, lane] = p[high, lane - m] * (2.0 - p[high, lane - m])
                q[high, lane] = q[high, lane - m] * q[high, lane - m]
        high += 1
    return low, high


@nb.njit(cache=True)
def fill_powers(first: Any, sums: Any, growth: Any, powers: Any) -> Any:
    """powers[m, lane] = sum of weight x^(m + 1) over the documents behind the window, the first of which has x = ``first``.

    Returns how many powers matter.
    """
    power, terms = 1.0, 0
    while terms < ORDER:
        power *= first
        store(powers, terms, power * sums[terms] * load(growth, terms))
        terms += 1
        if power * growth[terms - 1, LANES - 1] < NEGLIGIBLE:
            break
    return terms


@nb.njit(cache=True)
def arrivals_behind(powers: Any, terms: Any, ranks: Any, odds: Any, counts: Any) -> None:
    """counts[j] = P(exactly j documents behind the window have arrived), and odds[i] = sum of u^(i + 1) over them."""
    for i in range(terms):
        summed = every(0.0)
        for m in range(i, terms):
            summed = summed + ODDS[i + 1, m + 1] * load(powers, m)
        store(odds, i, summed)
    for lane in range(LANES):
        counts[0, lane] = math.exp(-powers[0, lane])
    for j in range(1, ranks):
        chance = every(0.0)
        sign = 1.0 / j
        for i in range(min(j, terms)):
            chance = chance + sign * load(odds, i) * load(counts, j - 1 - i)
            sign = -sign
        store(counts, j, where_above(chance, 0.0, chance, every(0.0)))


@nb.njit(cache=True)
def add_series(arrived: Any, terms: Any, ranks: Any, h: Any, growth: Any, summed: Any, series: Any) -> None:
    """Add what these nodes say of documents behind the window: P(at rank j) is the sum over m of series[j, m] x^(m + 1)."""
    for m in range(terms):
        for j in range(ranks):
            summed[j] = total(load(growth, m) * load(arrived, j))
        for j in range(ranks):
            sign = h
            for i in range(min(m, j) + 1):
                series[j, m] += sign * ODDS[i, m] * summed[j - i]
                sign = -sign


@nb.njit(cache=True)
def value_at(series: Any, x: Any) -> Any:
    """The power series at x, which begins with x itself."""
    value = 0.0
    for m in range(ORDER - 1, -1, -1):
        value = (value + series[m]) * x
    return value


@nb.njit(cache=True)
def rescale(series: Any, factor: Any) -> None:
    """Turn a series in x into one in x / factor."""
    power = 1.0
    for m in range(ORDER):
        power *= factor
        series[m] *= power


@nb.njit(cache=True)
def arrive(d: Any, ranks: Any, p: Any, q: Any, counts: Any, more: Any) -> None:
    """The distribution of the number of arrivals when document d may have arrived too; ``more`` may be ``counts`` itself."""
    late, early = load(q, d), load(p, d)
    fewer = load(counts, 0)
    store(more, 0, fewer * late)
    for j in range(1, ranks):
        as_many = load(counts, j)
        store(more, j, as_many * late + fewer * early)
        fewer = as_many


@nb.njit(cache=True)
def count_arrivals(documents: Any, count: Any, ranks: Any, p: Any, q: Any, before: Any) -> None:
    """Distribution of the number of arrivals before each document.

    before[i, j] = P(exactly j have arrived) before the i-th of the documents, those counted in ``before[0]`` included.
    """
    for i in range(count):
        arrive(documents[i], ranks, p, q, before[i], before[i + 1])


@nb.njit(cache=True)
def finished(before_all: Any, k: Any) -> Any:
    """True if k documents have arrived at the last node, so that nothing is left to add."""
    alive = 0.0
    for j in range(k):
        alive += before_all[j, LANES - 1]
    return alive < FINISHED


@nb.njit(cache=True)
def ranks_that_count(theta: Any, n: Any) -> Any:
    """Ranks up to the last that is examined at all."""
    k = min(theta.shape[0], n)
    while k > 0 and theta[k - 1] == 0.0:
        k -= 1
    return k


@nb.njit(cache=True)
def ranks_in_reach(arrivals: Any, ranks: Any) -> Any:
    """Ranks below which some of ``arrivals`` documents, Poisson or less spread, fall with all but 1e-13 of probability."""
    reach = 1
    chance = arrivals
    while reach < ranks and chance > 1e-13:
        reach += 1
        chance *= arrivals / reach
    return reach


@nb.njit(cache=True)
def _arrivals_of(inside: Any, wanted: Any, low: Any, high: Any, ranks: Any, p: Any, q: Any, before: Any) -> Any:
    """The window's wanted documents, in ``inside``, each with the number of arrivals before it: all others come first.

    ``before[0]`` has the arrivals behind the window. Returns how many there are; ``before`` has one entry more, for all
    documents.
    """
    count = 0
    for d in range(low, high):
        if wanted[d]:
            inside[count] = d
            count += 1
        else:
            arrive(d, ranks, p, q, before[0], before[0])
    count_arrivals(inside, count, ranks, p, q, before)
    return count


@nb.njit(cache=True)
def begin_race(scores: Any, k: Any) -> Any:
    """Common start of all integrals over a race.

    Returns order, s and tail as ``sorted_scores`` does; the steps m per doubling and h = ln(2) / m; the factors by which
    terms of first and of second order in t are summed over all nodes before the first; ``growth_of`` the step, power sums
    of the weights, and room for the window's x, p and q.
    """
    n = scores.shape[0]
    order, s, tail = sorted_scores(scores)
    m = steps_per_doubling(k)
    h = math.log(2.0) / m
    before = h / math.expm1(h), h / math.expm1(2.0 * h)
    window = np.empty((n, LANES)), np.empty((n, LANES)), np.empty((n, LANES))
    return order, s, tail, m, h, before, growth_of(h), power_sums(s, np.ones(n)), window


@nb.njit(cache=True)
def exposure_into(scores: Any, theta: Any, wanted: Any, rho: Any) -> None:
    """rho[d] = E[theta at the rank of d] where ``wanted[d]``, nan elsewhere."""
    n = scores.shape[0]
    k = ranks_that_count(theta, n)
    n_wanted = 0
    for d in range(n):
        rho[d] = 0.0 if wanted[d] else np.nan
        n_wanted += wanted[d]
    if k == 0 or n_wanted == 0:
        return
    if (scores == scores[0]).all():  # every document is at every rank alike
        for d in range(n):
            if wanted[d]:
                rho[d] = theta[:k].sum() / n
        return
    order, s, tail, m, h, (first_order, second_order), growth, sums, (x, p, q) = begin_race(scores, k)
    sought = wanted[order]
    second = theta[1] if k > 1 else 0.0
    inside = np.empty(n_wanted, np.int64)
    before = np.empty((n_wanted + 1, k, LANES))
    after = np.empty((k + 1, LANES))
    powers, odds = np.empty((ORDER, LANES)), np.empty((ORDER, LANES))
    series, summed = np.empty((k, ORDER)), np.empty(k)
    behind = np.zeros(ORDER)  # the exposure so far of documents that have not entered the window, as a series

    y = math.log(START / tail[0])
    behind[0] = theta[0] * first_order + (second - theta[0]) * START * second_order
    behind[1] = -second * second_order
    low = 0
    high = 0
    while low < min(k, n):
        entered = high
        low, high = move_window(s, y, m, growth, low, high, x, p, q)
        if low >= k:
            break
        for d in range(entered, high):
            if sought[d]:
                rho[order[d]] = value_at(behind, x[d, 0])
        ranks = ranks_in_reach(math.exp(y) * growth[0, LANES - 1] * tail[0], k - low)
        terms = fill_powers(math.exp(s[high] + y) if high < n else 0.0, sums[high], growth, powers)
        arrivals_behind(powers, terms, ranks, odds, before[0])
        count = _arrivals_of(inside, sought, low, high, ranks, p, q, before)
        series[:ranks] = 0.0
        add_series(before[count], terms, ranks, h, growth, summed, series)
        for j in range(ranks):
            after[j, :] = theta[low + j]
            for i in range(terms):
                behind[i] += theta[low + j] * series[j, i]
        after[ranks, :] = 0.0
        for i in range(count - 1, -1, -1):
            d = inside[i]
            early, late, expected, here = load(p, d), load(q, d), every(0.0), load(after, 0)
            for j in range(ranks):
                below = load(after, j + 1)
                expected = expected + load(before, i * k + j) * here
                store(after, j, here * late + below * early)
                here = below
            rho[order[d]] += h * total(load(x, d) * late * expected)
        y += LANES * h
        rescale(behind, math.exp(-LANES * h))
        if finished(before[count], ranks):
            break
    for d in range(high, n):
        if sought[d]:
            rho[order[d]] = value_at(behind, math.exp(s[d] + y))


@nb.njit(cache=True)
def placement_into(scores: Any, k: Any, wanted: Any, placement: Any) -> None:
    """placement[d, r] = P(d at rank r) for r < min(k, n), 0 beyond, where ``wanted[d]``; nan elsewhere.

    O(k^2) per node and wanted document of the window, O(k) per other document there.
    """
    n = scores.shape[0]
    k = min(k, n)
    n_wanted = 0
    for d in range(n):
        placement[d] = 0.0 if wanted[d] else np.nan
        n_wanted += wanted[d]
    if k == 0 or n_wanted == 0:
        return
    order, s, tail, m, h, (first_order, second_order), growth, sums, (x, p, q) = begin_race(scores, k)
    sought = wanted[order]
    inside = np.empty(n_wanted, np.int64)
    before = np.empty((n_wanted + 1, k, LANES))
    after = np.empty((k, LANES))
    powers, odds = np.empty((ORDER, LANES)), np.empty((ORDER, LANES))
    behind, summed = np.zeros((k, ORDER)), np.empty(k)

    y = math.log(START / tail[0])
    behind[0, 0] = first_order - START * second_order
    if k > 1:
        behind[1, 0] = START * second_order
        behind[1, 1] = -second_order
    low = 0
    high = 0
    while low < min(k, n):
        entered = high
        low, high = move_window(s, y, m, growth, low, high, x, p, q)
        if low >= k:
            break
        for d in range(entered, high):
            if sought[d]:
                for r in range(k):
                    placement[order[d], r] = max(value_at(behind[r], x[d, 0]), 0.0)
        ranks = ranks_in_reach(math.exp(y) * growth[0, LANES - 1] * tail[0], k - low)
        terms = fill_powers(math.exp(s[high] + y) if high < n else 0.0, sums[high], growth, powers)
        arrivals_behind(powers, terms, ranks, odds, before[0])
        count = _arrivals_of(inside, sought, low, high, ranks, p, q, before)
        add_series(before[count], terms, ranks, h, growth, summed, behind[low:])
        after[:] = 0.0
        after[0, :] = 1.0
        for i in range(count - 1, -1, -1):
            d = inside[i]
            now = load(x, d) * load(q, d)
            for j in range(ranks):
                exactly = load(before, i * k) * load(after, j)
                for below_d in range(1, j + 1):
                    exactly = exactly + load(before, i * k + below_d) * load(after, j - below_d)
                placement[order[d], low + j] += h * total(now * exactly)
            arrive(d, ranks, p, q, after, after)
        y += LANES * h
        for r in range(k):
            rescale(behind[r], math.exp(-LANES * h))
        if finished(before[count], ranks):
            break
    for d in range(high, n):
        if sought[d]:
            for r in range(k):
                placement[order[d], r] = max(value_at(behind[r], math.exp(s[d] + y)), 0.0)


@nb.njit(cache=True)
def exposures_into(scores: Any, offsets: Any, theta: Any, wanted: Any, rho: Any) -> None:
    for query in range(offsets.shape[0] - 1):
        start, end = offsets[query], offsets[query + 1]
        exposure_into(scores[start:end], theta, wanted[start:end], rho[start:end])


@nb.njit(cache=True)
def placements_into(scores: Any, offsets: Any, k: Any, wanted: Any, placement: Any) -> None:
    """Rows of the wanted documents only, one after the other."""
    longest = 0
    for query in range(offsets.shape[0] - 1):
        longest = max(longest, offsets[query + 1] - offsets[query])
    of_query = np.empty((longest, placement.shape[1]))
    row = 0
    for query in range(offsets.shape[0] - 1):
        start, end = offsets[query], offsets[query + 1]
        if wanted[start:end].any():
            placement_into(scores[start:end], k, wanted[start:end], of_query[: end - start])
            for d in range(start, end):
                if wanted[d]:
                    placement[row] = of_query[d - start]
                    row += 1
