"""Compiled simulation: a display, clicks and a value for each impression, and the searches that build displays.

Every simulation draws queries uniformly and writes, at each checkpoint, the running sums of x, x^2 and clicks into a row of
``totals``. Clicks on one display are a 64-bit mask, bit r for rank r. A user is passed as its five arrays (see
``ranktrial.users``).
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from ranktrial._kernels import U64, alias_draw, below, high_half, low_half, random_word, threshold
from ranktrial.rankings._kernels import add_credit_distribution, expected_sign

_ONE = U64(1)


# --- clicks on displays that are known beforehand -------------------------------------------------------------------------


@nb.njit(cache=True)
def click_thresholds(rankings: Any, zeta: Any, slope: Any, intercept: Any) -> Any:
    """32-bit thresholds of P(click | still reading); 0 where nothing stands. Columns are padded to an even number."""
    n, k = rankings.shape
    result = np.zeros((n, k + k % 2), np.uint32)
    for c in range(n):
        for r in range(k):
            if rankings[c, r] >= 0:
                result[c, r] = threshold(slope[r] * zeta[rankings[c, r]] + intercept[r])
    return result


@nb.njit(inline="always")
def _draw_clicks(state: Any, thresholds: Any, cell: Any) -> Any:
    """Clicks of a user who reads the whole list."""
    clicks = U64(0)
    for r in range(0, thresholds.shape[1], 2):
        word = random_word(state)
        if high_half(word) < thresholds[cell, r]:
            clicks |= _ONE << U64(r)
        if low_half(word) < thresholds[cell, r + 1]:
            clicks |= _ONE << U64(r + 1)
    return clicks


@nb.njit
def _draw_clicks_while_reading(state: Any, thresholds: Any, cell: Any, stay_click: Any, stay_skip: Any) -> Any:
    """Clicks of a user who may leave after each result."""
    clicks = U64(0)
    for r in range(stay_click.shape[0]):
        word = random_word(state)
        hit = high_half(word) < thresholds[cell, r]
        if hit:
            clicks |= _ONE << U64(r)
        if low_half(word) >= threshold(stay_click[r] if hit else stay_skip[r]):
            break
    return clicks


@nb.njit(cache=True)
def simulate_linear(
    offsets: Any,
    stay: Any,
    other: Any,
    thresholds: Any,
    values: Any,
    base: Any,
    reads_on: Any,
    stay_click: Any,
    stay_skip: Any,
    state: Any,
    checkpoints: Any,
    totals: Any,
    shown: Any,
    clicked: Any,
) -> None:
    """x = ``base[display]`` + sum of ``values[display, rank]`` over clicked ranks; displays drawn from alias tables.

    Counts displays in ``shown`` and their clicks by rank in ``clicked``, unless these are empty.
    """
    n_queries = offsets.shape[0] - 1
    k = values.shape[1]
    counting = shown.shape[0] > 0
    sum_x, sum_xx, sum_clicks = 0.0, 0.0, 0
    done = 0
    for i in range(checkpoints.shape[0]):
        for _ in range(checkpoints[i] - done):
            q = below(state, n_queries)
            cell = alias_draw(state, offsets[q], offsets[q + 1] - offsets[q], stay, other)
            x = base[cell]
            if reads_on and not counting:
                for r in range(0, thresholds.shape[1], 2):
                    word = random_word(state)
                    if high_half(word) < thresholds[cell, r]:
                        x += values[cell, r]
                        sum_clicks += 1
                    if low_half(word) < thresholds[cell, r + 1]:
                        x += values[cell, r + 1]
                        sum_clicks += 1
            else:
                if reads_on:
                    clicks = _draw_clicks(state, thresholds, cell)
                else:
                    clicks = _draw_clicks_while_reading(state, thresholds, cell, stay_click, stay_skip)
                if counting:
                    shown[cell] += 1
                for r in range(k):
                    if (clicks >> U64(r)) & _ONE:
                        x += values[cell, r]
                        sum_clicks += 1
                        if counting:
                            clicked[cell, r] += 1
            sum_x += x
            sum_xx += x * x
        done = checkpoints[i]
        totals[i, 0] = sum_x
        totals[i, 1] = sum_xx
        totals[i, 2] = sum_clicks


@nb.njit(inline="always")
def _majority(clicks: Any, to_a: Any, to_b: Any, a: Any, b: Any, sums: Any) -> Any:
    """E[sign] of clicks under the credits ``to_a[r]``, ``to_b[r]``; a, b and sums are scratch."""
    n = 0
    for r in range(to_a.shape[0]):
        if (clicks >> U64(r)) & _ONE:
            a[n] = to_a[r]
            b[n] = to_b[r]
            n += 1
    if n == 1:
        return a[0] - b[0]
    return expected_sign(a, b, n, sums)


@nb.njit(cache=True)
def majority_value(clicks: Any, to_a: Any, to_b: Any) -> Any:
    """The value of one click mask on one display (rows of credits as in ``rankings._kernels.majority_moments``)."""
    k = to_a.shape[1]
    if clicks == U64(0):
        return 0.0
    row = 0
    if to_a.shape[0] > 1:
        for r in range(k):
            if (clicks >> U64(r)) & _ONE:
                row = r
    return _majority(clicks, to_a[row], to_b[row], np.empty(k), np.empty(k), np.empty(2 * k + 2))


@nb.njit(cache=True)
def simulate_majority(
    offsets: Any,
    stay: Any,
    other: Any,
    thresholds: Any,
    to_a: Any,
    to_b: Any,
    reads_on: Any,
    stay_click: Any,
    stay_skip: Any,
    state: Any,
    checkpoints: Any,
    totals: Any,
) -> None:
    """x = E[sign(clicks for A - clicks for B)]; displays drawn from alias tables."""
    n_queries = offsets.shape[0] - 1
    rows, k = to_a.shape[1], to_a.shape[2]
    a, b, sums = np.empty(k), np.empty(k), np.empty(2 * k + 2)
    sum_x, sum_xx, sum_clicks = 0.0, 0.0, 0
    done = 0
    for i in range(checkpoints.shape[0]):
        for _ in range(checkpoints[i] - done):
            q = below(state, n_queries)
            cell = alias_draw(state, offsets[q], offsets[q + 1] - offsets[q], stay, other)
            if reads_on:
                clicks = _draw_clicks(state, thresholds, cell)
            else:
                clicks = _draw_clicks_while_reading(state, thresholds, cell, stay_click, stay_skip)
            if clicks == U64(0):
                continue
            row = 0
            for r in range(k):
                if (clicks >> U64(r)) & _ONE:
                    sum_clicks += 1
                    row = r
            if rows == 1:
                row = 0
            x = _majority(clicks, to_a[cell, row], to_b[cell, row], a, b, sums)
            sum_x += x
            sum_xx += x * x
        done = checkpoints[i]
        totals[i, 0] = sum_x
        totals[i, 1] = sum_xx
        totals[i, 2] = sum_clicks


# --- team-draft -----------------------------------------------------------------------------------------------------------


@nb.njit(cache=True)
def positions_in(lists: Any, others: Any) -> Any:
    """For each entry of ``lists``, its position in the same row of ``others``, or -1."""
    n, k = lists.shape
    result = np.full((n, k), -1, np.int8)
    for q in range(n):
        for i in range(k):
            for j in range(k):
                if lists[q, i] >= 0 and lists[q, i] == others[q, j]:
                    result[q, i] = j
                    break
    return result


@nb.njit(cache=True)
def list_lengths(lists: Any) -> Any:
    n, k = lists.shape
    result = np.zeros(n, np.int64)
    for q in range(n):
        while result[q] < k and lists[q, result[q]] >= 0:
            result[q] += 1
    return result


@nb.njit(cache=True)
def page_lengths(a_in_b: Any, length_a: Any, length_b: Any, k: Any) -> Any:
    """Number of results two lists can fill together, at most k."""
    n = length_a.shape[0]
    result = np.empty(n, np.int64)
    for q in range(n):
        union = length_b[q]
        for i in range(length_a[q]):
            union += a_in_b[q, i] < 0
        result[q] = min(k, union)
    return result


@nb.njit
def _team_draft(
    q: Any,
    coins: Any,
    top_a: Any,
    top_b: Any,
    a_in_b: Any,
    b_in_a: Any,
    length_a: Any,
    length_b: Any,
    page: Any,
    ranking: Any,
    credit: Any,
) -> Any:
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


@nb.njit
def _coins_needed(q: Any, top_a: Any, top_b: Any, length_a: Any, length_b: Any, page: Any) -> Any:
    """The most rounds any draft of the query takes, so that coins beyond cannot matter."""
    shorter = min(length_a[q], length_b[q])
    prefix = 0
    while prefix < shorter and top_a[q, prefix] == top_b[q, prefix]:
        prefix += 1
    return min((page[q] - prefix + 1) // 2, shorter - prefix)


@nb.njit(cache=True)
def most_coins(top_a: Any, top_b: Any, a_in_b: Any, b_in_a: Any, length_a: Any, length_b: Any, page: Any) -> Any:
    """The most coins any query's drafts take, and that query."""
    most, where = 0, 0
    for q in range(top_a.shape[0]):
        coins = _coins_needed(q, top_a, top_b, length_a, length_b, page)
        if coins > most:
            most, where = coins, q
    return most, where


@nb.njit(cache=True)
def team_draft_displays(
    top_a: Any, top_b: Any, a_in_b: Any, b_in_a: Any, length_a: Any, length_b: Any, page: Any
) -> Any:
    """All drafts of every query, equally likely within a query: rankings, credits and offsets."""
    n, k = top_a.shape
    offsets = np.zeros(n + 1, np.int64)
    ranking = np.empty(k, np.int32)
    credit = np.empty(k, np.int64)
    for q in range(n):
        offsets[q + 1] = offsets[q] + (1 << _coins_needed(q, top_a, top_b, length_a, length_b, page))
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
    top_a: Any,
    top_b: Any,
    a_in_b: Any,
    b_in_a: Any,
    length_a: Any,
    length_b: Any,
    page: Any,
    signed: Any,
    zeta: Any,
    slope: Any,
    intercept: Any,
    reads_on: Any,
    stay_click: Any,
    stay_skip: Any,
    state: Any,
    checkpoints: Any,
    totals: Any,
) -> None:
    """Team-draft impression by impression, each with its own draft."""
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
            for r in range(length):
                # Readers of the whole list need half a word a rank; the others' second half decides whether they go on.
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
        totals[i, 0] = sum_x
        totals[i, 1] = sum_xx
        totals[i, 2] = sum_clicks


@nb.njit(cache=True)
def team_draft_distribution(
    top_a: Any,
    top_b: Any,
    a_in_b: Any,
    b_in_a: Any,
    length_a: Any,
    length_b: Any,
    page: Any,
    zeta: Any,
    slope: Any,
    intercept: Any,
    stay_click: Any,
    stay_skip: Any,
) -> Any:
    """Joint distribution of (credited clicks for A minus B, all clicks) over queries, drafts and clicks."""
    n, k = top_a.shape
    ranking = np.empty(k, np.int32)
    credit = np.empty(k, np.int64)
    result = np.zeros((2 * k + 1, k + 1))
    scratch = np.zeros((2 * k + 1, k + 1))
    for q in range(n):
        drafts = 1 << _coins_needed(q, top_a, top_b, length_a, length_b, page)
        for coins in range(drafts):
            length = _team_draft(
                q, U64(coins), top_a, top_b, a_in_b, b_in_a, length_a, length_b, page[q], ranking, credit
            )
            for r in range(length, k):
                ranking[r] = -1
            add_credit_distribution(
                ranking, credit, 1.0 / (n * drafts), zeta, slope, intercept, stay_click, stay_skip, scratch, result
            )
    return result


# --- probabilistic --------------------------------------------------------------------------------------------------------


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
    q: Any,
    k: Any,
    lists_a: Any,
    offsets_a: Any,
    lists_b: Any,
    offsets_b: Any,
    a_in_b: Any,
    b_in_a: Any,
    weight: Any,
    tail: Any,
    placed_a: Any,
    placed_b: Any,
    stamp: Any,
    state: Any,
    ranking: Any,
    odds_a: Any,
    odds_b: Any,
) -> Any:
    """Draw one display of probabilistic interleaving. Returns the length.

    A placed the document at rank r with probability odds_a[r] / (odds_a[r] + odds_b[r]). When one list is used up the other
    fills the page. Clicks count only where neither list can be used up yet, within the length of the shorter; beyond it
    both odds are 0, else a random clicker would favour one ranker.
    """
    length_a = offsets_a[q + 1] - offsets_a[q]
    length_b = offsets_b[q + 1] - offsets_b[q]
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
            at_b = a_in_b[offsets_a[q] + at_a]
            ranking[r] = lists_a[offsets_a[q] + at_a]
        else:
            at_b = _position_at(u * weight_b, placed_b, stamp, head_b, weight, length_b)
            at_a = b_in_a[offsets_b[q] + at_b]
            ranking[r] = lists_b[offsets_b[q] + at_b]
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
def positions_of(lists: Any, offsets: Any, n_documents: Any) -> Any:
    """Position of every document in its query's list, -1 where it is not listed."""
    result = np.full(n_documents, -1, np.int32)
    for q in range(offsets.shape[0] - 1):
        for i in range(offsets[q], offsets[q + 1]):
            result[lists[i]] = i - offsets[q]
    return result


@nb.njit(cache=True)
def draw_probabilistic(
    draws: Any,
    k: Any,
    lists_a: Any,
    offsets_a: Any,
    lists_b: Any,
    offsets_b: Any,
    a_in_b: Any,
    b_in_a: Any,
    weight: Any,
    tail: Any,
    state: Any,
) -> Any:
    """``draws`` displays of every query with their credits."""
    n = offsets_a.shape[0] - 1
    rankings = np.full((n * draws, k), -1, np.int32)
    to_a = np.zeros((n * draws, k))
    to_b = np.zeros((n * draws, k))
    placed_a = np.full(weight.shape[0] + 1, -1, np.int64)
    placed_b = np.full(weight.shape[0] + 1, -1, np.int64)
    for q in range(n):
        for cell in range(q * draws, (q + 1) * draws):
            _probabilistic(
                q, k, lists_a, offsets_a, lists_b, offsets_b, a_in_b, b_in_a, weight, tail,
                placed_a, placed_b, cell, state, rankings[cell], to_a[cell], to_b[cell],
            )  # fmt: skip
            for r in range(k):
                odds = to_a[cell, r] + to_b[cell, r]
                if odds > 0.0:
                    to_a[cell, r] /= odds
                    to_b[cell, r] /= odds
    return rankings, to_a, to_b


@nb.njit(cache=True)
def simulate_probabilistic(
    k: Any,
    lists_a: Any,
    offsets_a: Any,
    lists_b: Any,
    offsets_b: Any,
    a_in_b: Any,
    b_in_a: Any,
    weight: Any,
    tail: Any,
    zeta: Any,
    slope: Any,
    intercept: Any,
    reads_on: Any,
    stay_click: Any,
    stay_skip: Any,
    state: Any,
    checkpoints: Any,
    totals: Any,
) -> None:
    """Probabilistic interleaving impression by impression."""
    n_queries = offsets_a.shape[0] - 1
    placed_a = np.full(weight.shape[0] + 1, -1, np.int64)
    placed_b = np.full(weight.shape[0] + 1, -1, np.int64)
    ranking = np.empty(k, np.int32)
    odds_a, odds_b, sums = np.empty(k), np.empty(k), np.empty(2 * k + 2)
    clicked_a, clicked_b = np.empty(k), np.empty(k)
    sum_x, sum_xx, sum_clicks = 0.0, 0.0, 0
    done = 0
    for i in range(checkpoints.shape[0]):
        for impression in range(done, checkpoints[i]):
            q = below(state, n_queries)
            length = _probabilistic(
                q, k, lists_a, offsets_a, lists_b, offsets_b, a_in_b, b_in_a, weight, tail,
                placed_a, placed_b, impression, state, ranking, odds_a, odds_b,
            )  # fmt: skip
            n = 0
            word = U64(0)
            for r in range(length):
                # Readers of the whole list need half a word a rank; the others' second half decides whether they go on.
                if r & 1 == 0 or not reads_on:
                    word = random_word(state)
                    draw = high_half(word)
                else:
                    draw = low_half(word)
                hit = draw * 2.0**-32 < slope[r] * zeta[ranking[r]] + intercept[r]
                if hit:
                    odds = odds_a[r] + odds_b[r]
                    clicked_a[n] = odds_a[r] / odds if odds > 0.0 else 0.0
                    clicked_b[n] = odds_b[r] / odds if odds > 0.0 else 0.0
                    n += 1
                if not reads_on and low_half(word) >= threshold(stay_click[r] if hit else stay_skip[r]):
                    break
            if n > 0:
                x = clicked_a[0] - clicked_b[0] if n == 1 else expected_sign(clicked_a, clicked_b, n, sums)
                sum_x += x
                sum_xx += x * x
                sum_clicks += n
        done = checkpoints[i]
        totals[i, 0] = sum_x
        totals[i, 1] = sum_xx
        totals[i, 2] = sum_clicks


# --- optimized ------------------------------------------------------------------------------------------------------------


@nb.njit(cache=True)
def allowed_rankings(q: Any, a_in_b: Any, b_in_a: Any, length_a: Any, length_b: Any, k: Any, most: Any) -> Any:
    """All rankings of one query whose every prefix is the union of a prefix of A and a prefix of B, grown rank by rank.

    A document is coded by its position in A, or ``length_a + `` its position in B when A does not have it; -1 ends a list
    that is shorter than k. More than ``most`` rankings: an empty table.
    """
    na, nb_ = length_a[q], length_b[q]
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
                next_rows[count, :r] = rows[i, :r]
                next_rows[count, r] = ia
                next_a[count] = mask_a[i] | _ONE << U64(ia)
                next_b[count] = mask_b[i]
                if a_in_b[q, ia] >= 0:
                    next_b[count] |= _ONE << U64(a_in_b[q, ia])
                count += 1
            if ib < nb_ and not same:
                next_rows[count, :r] = rows[i, :r]
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
def balanced_distribution(credits: Any, gain: Any) -> Any:
    """A distribution over rankings under which no rank favours a ranker, of greatest expected gain.

    Maximise sum_R p_R gain_R subject to sum_R p_R credits[R, r] = 0 for every rank r, sum p = 1, p >= 0; where that is
    impossible, minimise the total violation instead. Primal simplex with the inverse of the small basis kept explicitly:
    10 to 50 pivots on a few hundred columns, where a general solver spends ten times as long on setting the problem up.
    Returns (p, total violation). Phase 1 starts at one ranking with a slack per rank and minimises the slacks.
    """
    n, k = credits.shape
    least, first = np.inf, 0
    for j in range(n):
        total = 0.0
        for r in range(k):
            total += abs(credits[j, r])
        if total < least:
            least, first = total, j
    # Column j < n is ranking j; n + r is the slack +e_r, n + k + r the slack -e_r.
    basis = np.empty(k + 1, np.int64)
    inverse = np.zeros((k + 1, k + 1))
    x = np.empty(k + 1)
    for r in range(k):
        sign = -1.0 if credits[first, r] > 0 else 1.0
        basis[r] = n + r if sign > 0 else n + k + r
        inverse[r, r] = sign
        inverse[r, k] = -sign * credits[first, r]
        x[r] = inverse[r, k]
    basis[k] = first
    inverse[k, k] = 1.0
    x[k] = 1.0
    by_rank = credits.T.copy()  # so that the costs of all columns, where most of the time goes, are vector operations
    reduced = np.empty(n + 2 * k)
    dual = np.empty(k + 1)
    direction = np.empty(k + 1)
    violation = 0.0
    for phase in range(1, 3):
        stalled = 0
        for _ in range(200 * (k + 1)):
            for r in range(k + 1):
                dual[r] = 0.0
                for i in range(k + 1):
                    cost = (1.0 if basis[i] >= n else 0.0) if phase == 1 else (-gain[basis[i]] if basis[i] < n else 0.0)
                    dual[r] += cost * inverse[i, r]
            entering, best = -1, -1e-10
            careful = stalled > 30  # Bland's rule ends any cycle of pivots that do not move
            for j in range(n):
                reduced[j] = (0.0 if phase == 1 else -gain[j]) - dual[k]
            for r in range(k):
                for j in range(n):
                    reduced[j] -= dual[r] * by_rank[r, j]
            for r in range(k):
                reduced[n + r] = 1.0 - dual[r]
                reduced[n + k + r] = 1.0 + dual[r]
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
                        direction[i] += inverse[i, r] * credits[entering, r]
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
def optimized_displays(
    top_a: Any,
    top_b: Any,
    a_in_b: Any,
    b_in_a: Any,
    length_a: Any,
    length_b: Any,
    inverse_credit: Any,
    inverse_constraint: Any,
    most: Any,
) -> Any:
    """Displays, probabilities and credits of optimized interleaving for every query.

    Returns rankings, weights, credits, offsets and per query the violation of the constraints (0 when they can be met); a
    query with more than ``most`` allowed rankings gets violation -1 and no display.
    """
    n, k = top_a.shape
    room = n * (k + 1)  # a basic solution has at most k + 1 rankings
    rankings = np.full((room, k), -1, np.int32)
    weights = np.zeros(room)
    credits = np.zeros((room, k))
    offsets = np.zeros(n + 1, np.int64)
    violations = np.zeros(n)
    by_code = np.zeros(2 * k)
    limit_by_code = np.zeros(2 * k)
    document = np.zeros(2 * k, np.int32)
    for q in range(n):
        codes = allowed_rankings(q, a_in_b, b_in_a, length_a, length_b, k, most)
        cell = offsets[q]
        offsets[q + 1] = cell
        if codes.shape[0] == 0:
            violations[q] = -1.0
            continue
        for i in range(length_a[q]):  # a document missing from a list counts as ranked just below its end
            rank_b = a_in_b[q, i] + 1 if a_in_b[q, i] >= 0 else length_b[q] + 1
            document[i] = top_a[q, i]
            by_code[i] = _credit(i + 1, rank_b, inverse_credit)
            limit_by_code[i] = _credit(i + 1, rank_b, inverse_constraint)
        for i in range(length_b[q]):
            code = length_a[q] + i
            document[code] = top_b[q, i]
            by_code[code] = _credit(length_a[q] + 1, i + 1, inverse_credit)
            limit_by_code[code] = _credit(length_a[q] + 1, i + 1, inverse_constraint)
        # Beyond the shorter list only one ranker has documents to place: credit there could never be balanced.
        shorter = min(length_a[q], length_b[q])
        table = np.zeros((codes.shape[0], k))
        gain = np.zeros(codes.shape[0])
        for j in range(codes.shape[0]):
            for_a, for_b, all_ranks = 0.0, 0.0, 0.0
            for r in range(k):
                if codes[j, r] >= 0:
                    all_ranks += 1.0 / (r + 1)
                if codes[j, r] >= 0 and r < shorter:
                    table[j, r] = limit_by_code[codes[j, r]]
                    if by_code[codes[j, r]] > 0:
                        for_a += 1.0 / (r + 1)
                    elif by_code[codes[j, r]] < 0:
                        for_b += 1.0 / (r + 1)
            if for_a > 0 and for_b > 0:
                share = for_a / (for_a + for_b)
                entropy = -share * np.log(share) - (1.0 - share) * np.log(1.0 - share)
                gain[j] = entropy * (for_a + for_b) / all_ranks
        p, violations[q] = balanced_distribution(table, gain)
        for j in range(codes.shape[0]):
            if p[j] > 0.0:
                weights[cell] = p[j]
                for r in range(k):
                    if codes[j, r] >= 0:
                        rankings[cell, r] = document[codes[j, r]]
                        credits[cell, r] = by_code[codes[j, r]] if r < shorter else 0.0
                cell += 1
        offsets[q + 1] = cell
    return rankings[:cell].copy(), weights[:cell].copy(), credits[:cell].copy(), offsets, violations
