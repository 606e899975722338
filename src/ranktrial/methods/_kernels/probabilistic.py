"""Probabilistic interleaving: drawing displays with who may have placed what, and simulation."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from ranktrial._kernels import U64, below, random_word
from ranktrial.methods._kernels.displays import draw_page_clicks, put_totals
from ranktrial.rankings._kernels import expected_sign

_ONE = U64(1)


@nb.njit(inline="always")
def _position_at(u: Any, placed: Any, stamp: Any, head: Any, weight: Any, length: Any) -> Any:
    """The position of a list at which the weights of what is not placed yet, added from ``head`` on, pass u."""
    position = head
    for j in range(head, length):
        if placed[j] != stamp:
            position = j
            u -= weight[j]
            if u < 0.0:
                break
    return position


@nb.njit(inline="always")
def _place(position: Any, placed: Any, stamp: Any, head: Any, deepest: Any, beyond: Any, weight: Any) -> Any:
    """Mark a position as placed. Returns the new head, deepest placed position, and weight placed beyond the head.

    The weight left is tail[head] - tail[length] - beyond. It is never far below tail[head], so nothing cancels, as it would
    if every placed weight were subtracted from the total (weights fall like rank^-tau); ``beyond`` is summed anew whenever
    the head moves for the same reason.
    """
    placed[position] = stamp
    deepest = max(deepest, position)
    if position > head:
        return head, deepest, beyond + weight[position]
    head += 1
    while head <= deepest and placed[head] == stamp:
        head += 1
    beyond = 0.0
    for j in range(deepest, head, -1):
        if placed[j] == stamp:
            beyond += weight[j]
    return head, deepest, beyond


@nb.njit
def _probabilistic(
    q: Any, k: Any, documents_a: Any, offsets_a: Any, documents_b: Any, offsets_b: Any, a_in_b: Any, b_in_a: Any, weight: Any,
    tail: Any, placed_a: Any, placed_b: Any, stamp: Any, state: Any, ranking: Any, odds_a: Any, odds_b: Any,
) -> Any:  # fmt: skip
    """Draw one display of probabilistic interleaving. Returns the length.

    A placed the document at rank r with probability odds_a[r] / (odds_a[r] + odds_b[r]). When one list is used up the other
    fills the page. Clicks count only where neither list can be used up yet, within the length of the shorter; beyond it
    both odds are 0, else a random clicker would favour one ranker.
    """
    first_a, first_b = offsets_a[q], offsets_b[q]
    length_a = offsets_a[q + 1] - first_a
    length_b = offsets_b[q + 1] - first_b
    left_a, left_b = length_a, length_b
    head_a, head_b, deepest_a, deepest_b = 0, 0, -1, -1
    beyond_a, beyond_b = 0.0, 0.0
    r = 0
    while r < k and (left_a > 0 or left_b > 0):
        weight_a = tail[head_a] - tail[length_a] - beyond_a
        weight_b = tail[head_b] - tail[length_b] - beyond_b
        credited = r < length_a and r < length_b
        word = random_word(state)  # the lowest bit is the coin, the upper 53 the document
        u = (word >> U64(11)) * 2.0**-53
        a_draws = word & _ONE == _ONE
        if left_a == 0 or left_b == 0:
            a_draws = left_a > 0
        if a_draws:
            at_a = _position_at(u * weight_a, placed_a, stamp, head_a, weight, length_a)
            at_b = a_in_b[first_a + at_a]
            ranking[r] = documents_a[first_a + at_a]
        else:
            at_b = _position_at(u * weight_b, placed_b, stamp, head_b, weight, length_b)
            at_a = b_in_a[first_b + at_b]
            ranking[r] = documents_b[first_b + at_b]
        odds_a[r], odds_b[r] = 0.0, 0.0
        if at_a >= 0:
            if credited:
                odds_a[r] = weight[at_a] * weight_b
            head_a, deepest_a, beyond_a = _place(at_a, placed_a, stamp, head_a, deepest_a, beyond_a, weight)
            left_a -= 1
        if at_b >= 0:
            if credited:
                odds_b[r] = weight[at_b] * weight_a
            head_b, deepest_b, beyond_b = _place(at_b, placed_b, stamp, head_b, deepest_b, beyond_b, weight)
            left_b -= 1
        r += 1
    return r


@nb.njit(cache=True)
def draw_probabilistic(draws: Any, k: Any, lists: Any, state: Any) -> Any:
    """``draws`` displays of every query with their credits."""
    documents_a, offsets_a, documents_b, offsets_b, a_in_b, b_in_a, weight, tail = lists
    n = offsets_a.shape[0] - 1
    rankings = np.full((n * draws, k), -1, np.int32)
    to_a = np.zeros((n * draws, k))
    to_b = np.zeros((n * draws, k))
    placed_a = np.full(tail.shape[0], -1, np.int64)
    placed_b = np.full(tail.shape[0], -1, np.int64)
    for q in range(n):
        for cell in range(q * draws, (q + 1) * draws):
            _probabilistic(
                q, k, documents_a, offsets_a, documents_b, offsets_b, a_in_b, b_in_a, weight, tail,
                placed_a, placed_b, cell, state, rankings[cell], to_a[cell], to_b[cell],
            )  # fmt: skip
            for r in range(k):
                odds = to_a[cell, r] + to_b[cell, r]
                if odds > 0.0:
                    to_a[cell, r] /= odds
                    to_b[cell, r] /= odds
    return rankings, to_a, to_b


@nb.njit(cache=True)
def simulate_probabilistic(k: Any, lists: Any, user: Any, state: Any, checkpoints: Any, totals: Any) -> None:
    """Probabilistic interleaving impression by impression."""
    documents_a, offsets_a, documents_b, offsets_b, a_in_b, b_in_a, weight, tail = lists
    zeta, slope, intercept, stay_click, stay_skip, reads_on = user
    n_queries = offsets_a.shape[0] - 1
    placed_a = np.full(tail.shape[0], -1, np.int64)
    placed_b = np.full(tail.shape[0], -1, np.int64)
    ranking = np.empty(k, np.int32)
    odds_a, odds_b, sums = np.empty(k), np.empty(k), np.empty(2 * k + 2)
    clicked_a, clicked_b = np.empty(k), np.empty(k)
    sum_x, sum_xx, sum_clicks = 0.0, 0.0, 0
    done = 0
    for i in range(checkpoints.shape[0]):
        for impression in range(done, checkpoints[i]):
            q = below(state, n_queries)
            length = _probabilistic(
                q, k, documents_a, offsets_a, documents_b, offsets_b, a_in_b, b_in_a, weight, tail,
                placed_a, placed_b, impression, state, ranking, odds_a, odds_b,
            )  # fmt: skip
            clicks = draw_page_clicks(state, ranking, length, zeta, slope, intercept, stay_click, stay_skip, reads_on)
            n = 0
            for r in range(length):
                if (clicks >> U64(r)) & _ONE:
                    odds = odds_a[r] + odds_b[r]
                    clicked_a[n] = odds_a[r] / odds if odds > 0.0 else 0.0
                    clicked_b[n] = odds_b[r] / odds if odds > 0.0 else 0.0
                    n += 1
            if n > 0:
                x = clicked_a[0] - clicked_b[0] if n == 1 else expected_sign(clicked_a, clicked_b, n, sums)
                sum_x += x
                sum_xx += x * x
                sum_clicks += n
        done = checkpoints[i]
        put_totals(totals, i, sum_x, sum_xx, sum_clicks)
