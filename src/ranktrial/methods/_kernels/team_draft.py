"""Team-draft interleaving: one draft, all drafts, simulation and the exact law of outcomes."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from ranktrial._kernels import U64, below, high_half, low_half, random_word, threshold
from ranktrial.methods._kernels.displays import put_totals
from ranktrial.rankings._kernels import add_credit_distribution

_ONE = U64(1)


@nb.njit
def _team_draft(
    q: Any, coins: Any, top_a: Any, top_b: Any, a_in_b: Any, b_in_a: Any, length_a: Any, length_b: Any, page: Any,
    ranking: Any, credit: Any,
) -> Any:  # fmt: skip
    """One team draft with the given coins (bit i: A picks first in round i). Returns the length.

    Clicks count only in rounds that both rankers are sure to complete, whatever was picked before: those within the length
    of the shorter list. Else a random clicker would favour the ranker with more left to pick.
    """
    k = ranking.shape[0]
    placed_a, placed_b = U64(0), U64(0)  # masks over positions in each list
    left_a, left_b = length_a[q], length_b[q]
    ia, ib = 0, 0
    r, rounds = 0, 0
    while r < k and r < left_a and r < left_b and top_a[q, r] == top_b[q, r]:
        ranking[r] = top_a[q, r]
        credit[r] = 0
        placed_a |= _ONE << U64(r)
        placed_b |= _ONE << U64(r)
        r += 1
    shorter = min(left_a, left_b)
    left_a -= r
    left_b -= r
    while r < k and (left_a > 0 or left_b > 0):
        while ia < length_a[q] and (placed_a >> U64(ia)) & _ONE:
            ia += 1
        while ib < length_b[q] and (placed_b >> U64(ib)) & _ONE:
            ib += 1
        if left_a == 0 or left_b == 0:  # one list is used up: the other fills the page, without credit
            if left_a > 0:
                ranking[r] = top_a[q, ia]
                placed_a |= _ONE << U64(ia)
                left_a -= 1
            else:
                ranking[r] = top_b[q, ib]
                placed_b |= _ONE << U64(ib)
                left_b -= 1
            credit[r] = 0
            r += 1
            continue
        credited = r + 2 <= shorter or (r + 1 == shorter and shorter == page)
        a_picks = (coins >> U64(rounds)) & _ONE == _ONE
        rounds += 1
        for _ in range(2):
            if r < k:
                if a_picks and left_a > 0:
                    while (placed_a >> U64(ia)) & _ONE:
                        ia += 1
                    ranking[r] = top_a[q, ia]
                    credit[r] = 1 if credited else 0
                    placed_a |= _ONE << U64(ia)
                    left_a -= 1
                    if a_in_b[q, ia] >= 0:
                        placed_b |= _ONE << U64(a_in_b[q, ia])
                        left_b -= 1
                    r += 1
                elif not a_picks and left_b > 0:
                    while (placed_b >> U64(ib)) & _ONE:
                        ib += 1
                    ranking[r] = top_b[q, ib]
                    credit[r] = -1 if credited else 0
                    placed_b |= _ONE << U64(ib)
                    left_b -= 1
                    if b_in_a[q, ib] >= 0:
                        placed_a |= _ONE << U64(b_in_a[q, ib])
                        left_a -= 1
                    r += 1
            a_picks = not a_picks
    return r


@nb.njit(cache=True)
def team_draft_displays(lists: Any, page: Any, coins_needed: Any) -> Any:
    """All drafts of every query, equally likely within a query: rankings, credits and offsets.

    ``page`` is the length of each query's page, and ``coins_needed`` the most rounds that any draft of it takes.
    """
    top_a, top_b, a_in_b, b_in_a, length_a, length_b = lists
    n, k = top_a.shape
    offsets = np.zeros(n + 1, np.int64)
    ranking = np.empty(k, np.int32)
    credit = np.empty(k, np.int64)
    for q in range(n):
        offsets[q + 1] = offsets[q] + (1 << coins_needed[q])
    rankings = np.full((offsets[n], k), -1, np.int32)
    credits = np.zeros((offsets[n], k), np.int8)
    for q in range(n):
        for coins in range(offsets[q + 1] - offsets[q]):
            length = _team_draft(
                q, U64(coins), top_a, top_b, a_in_b, b_in_a, length_a, length_b, page[q], ranking, credit
            )
            cell = offsets[q] + coins
            for r in range(length):
                rankings[cell, r] = ranking[r]
                credits[cell, r] = credit[r]
    return rankings, credits, offsets


@nb.njit(cache=True)
def simulate_team_draft(
    lists: Any, page: Any, signed: Any, user: Any, state: Any, checkpoints: Any, totals: Any
) -> None:
    """Team-draft impression by impression, each with its own draft."""
    top_a, top_b, a_in_b, b_in_a, length_a, length_b = lists
    zeta, slope, intercept, stay_click, stay_skip, reads_on = user
    n_queries, k = top_a.shape
    ranking = np.empty(k, np.int32)
    credit = np.empty(k, np.int64)
    sum_x, sum_xx, sum_clicks = 0.0, 0.0, 0
    done = 0
    for i in range(checkpoints.shape[0]):
        for _ in range(checkpoints[i] - done):
            q = below(state, n_queries)
            length = _team_draft(
                q, random_word(state), top_a, top_b, a_in_b, b_in_a, length_a, length_b, page[q], ranking, credit
            )
            balance = 0
            word = U64(0)
            for r in range(
                length
            ):  # as ``draw_page_clicks``; a mask of clicks in between would cost half as much again
                if r & 1 == 0 or not reads_on:
                    word = random_word(state)
                    draw = high_half(word)
                else:
                    draw = low_half(word)
                hit = draw * 2.0**-32 < slope[r] * zeta[ranking[r]] + intercept[r]
                if hit:
                    balance += credit[r]
                    sum_clicks += 1
                if not reads_on and low_half(word) >= threshold(stay_click[r] if hit else stay_skip[r]):
                    break
            if signed:
                balance = (balance > 0) - (balance < 0)
            sum_x += balance
            sum_xx += balance * balance
        done = checkpoints[i]
        put_totals(totals, i, sum_x, sum_xx, sum_clicks)


@nb.njit(cache=True)
def team_draft_distribution(lists: Any, page: Any, coins_needed: Any, user: Any) -> Any:
    """Joint distribution of (credited clicks for A minus B, all clicks) over queries, drafts and clicks."""
    top_a, top_b, a_in_b, b_in_a, length_a, length_b = lists
    n, k = top_a.shape
    ranking = np.empty(k, np.int32)
    credit = np.empty(k, np.int64)
    result = np.zeros((2 * k + 1, k + 1))
    scratch = np.zeros((2 * k + 1, k + 1))
    for q in range(n):
        drafts = 1 << coins_needed[q]
        for coins in range(drafts):
            length = _team_draft(
                q, U64(coins), top_a, top_b, a_in_b, b_in_a, length_a, length_b, page[q], ranking, credit
            )
            for r in range(length, k):
                ranking[r] = -1
            add_credit_distribution(ranking, credit, 1.0 / (n * drafts), user, scratch, result)
    return result
