"""Simulation of displays that are listed beforehand, and counts of what was shown and clicked."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from ranktrial._kernels import U64, alias_draw, below, high_half, low_half, random_word, threshold
from ranktrial.rankings._kernels import expected_sign

_ONE = U64(1)


@nb.njit(cache=True)
def click_thresholds(rankings: Any, user: Any) -> Any:
    """32-bit thresholds of P(click | still reading); 0 where nothing stands. Columns are padded to an even number."""
    zeta, slope, intercept = user.zeta, user.slope, user.intercept
    n, k = rankings.shape
    result = np.zeros((n, k + k % 2), np.uint32)
    for c in range(n):
        for r in range(k):
            if rankings[c, r] >= 0:
                result[c, r] = threshold(slope[r] * zeta[rankings[c, r]] + intercept[r])
    return result


@nb.njit(inline="always")
def _draw_clicks(state: Any, thresholds: Any, cell: Any) -> Any:
    """Clicks of a user who reads the whole list, as a mask over ranks."""
    clicks = U64(0)
    for r in range(0, thresholds.shape[1], 2):
        word = random_word(state)
        if high_half(word) < thresholds[cell, r]:
            clicks |= _ONE << U64(r)
        if low_half(word) < thresholds[cell, r + 1]:
            clicks |= _ONE << U64(r + 1)
    return clicks


@nb.njit
def _draw_clicks_while_reading(state: Any, thresholds: Any, cell: Any, stay_click: Any, stay_skip: Any, k: Any) -> Any:
    """Clicks of a user who may leave after each result."""
    clicks = U64(0)
    for r in range(k):
        word = random_word(state)
        hit = high_half(word) < thresholds[cell, r]
        if hit:
            clicks |= _ONE << U64(r)
        if low_half(word) >= threshold(stay_click[r] if hit else stay_skip[r]):
            break
    return clicks


@nb.njit(inline="always")
def draw_page_clicks(
    state: Any, ranking: Any, length: Any, zeta: Any, slope: Any, intercept: Any, stay_click: Any, stay_skip: Any, reads_on: Any
) -> Any:  # fmt: skip
    """Clicks on a page that was made for this impression, as a mask over ranks.

    Readers of the whole list need half a word a rank; the others' second half decides whether they go on.
    """
    clicks = U64(0)
    word = U64(0)
    for r in range(length):
        if r & 1 == 0 or not reads_on:
            word = random_word(state)
            draw = high_half(word)
        else:
            draw = low_half(word)
        hit = draw * 2.0**-32 < slope[r] * zeta[ranking[r]] + intercept[r]
        if hit:
            clicks |= _ONE << U64(r)
        if not reads_on and low_half(word) >= threshold(stay_click[r] if hit else stay_skip[r]):
            break
    return clicks


@nb.njit(inline="always")
def put_totals(totals: Any, i: Any, x: Any, xx: Any, clicks: Any) -> None:
    """Store the running sums of x, x^2 and clicks at a checkpoint."""
    totals[i, 0] = x
    totals[i, 1] = xx
    totals[i, 2] = clicks


@nb.njit(cache=True)
def simulate_linear(
    offsets: Any, stay: Any, other: Any, thresholds: Any, values: Any, base: Any, user: Any, state: Any, checkpoints: Any,
    totals: Any, shown: Any, clicked: Any,
) -> None:  # fmt: skip
    """x = ``base[display]`` + sum of ``values[display, rank]`` over clicked ranks; displays drawn from alias tables.

    Counts displays in ``shown`` and their clicks by rank in ``clicked``, unless these are empty.
    """
    stay_click, stay_skip, reads_on = user.stay_click, user.stay_skip, user.reads_on
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
                    clicks = _draw_clicks_while_reading(state, thresholds, cell, stay_click, stay_skip, k)
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
        put_totals(totals, i, sum_x, sum_xx, sum_clicks)


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
def simulate_majority(
    offsets: Any, stay: Any, other: Any, thresholds: Any, to_a: Any, to_b: Any, user: Any, state: Any, checkpoints: Any,
    totals: Any,
) -> None:  # fmt: skip
    """x = E[sign(clicks for A - clicks for B)]; displays drawn from alias tables."""
    stay_click, stay_skip, reads_on = user.stay_click, user.stay_skip, user.reads_on
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
                clicks = _draw_clicks_while_reading(state, thresholds, cell, stay_click, stay_skip, k)
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
        put_totals(totals, i, sum_x, sum_xx, sum_clicks)


@nb.njit(cache=True)
def add_display_counts(rankings: Any, row: Any, times: Any, clicks: Any, shown: Any, clicked: Any) -> None:
    """Add how often displays were shown, and clicked at each rank, to tables of documents, each in a ``row`` of its own."""
    for display in range(rankings.shape[0]):
        if times[display] == 0:
            continue
        for r in range(rankings.shape[1]):
            if rankings[display, r] >= 0:
                d = row[rankings[display, r]]
                shown[d, r] += times[display]
                clicked[d, r] += clicks[display, r]


@nb.njit(cache=True)
def clicked_documents(rankings: Any, weights: Any, offsets: Any, times: Any, clicks: Any, n_documents: Any) -> Any:
    """Documents that were clicked and their queries; how often each was shown and clicked at each rank, and was to be expected
    there given how often its query came.
    """
    k = rankings.shape[1]
    number = np.full(n_documents, -1, np.int64)
    for display in range(rankings.shape[0]):
        if times[display] > 0:
            for r in range(k):
                if clicks[display, r] > 0:
                    number[rankings[display, r]] = 0
    documents = np.flatnonzero(number == 0)
    for i in range(documents.shape[0]):
        number[documents[i]] = i
    queries = np.empty(documents.shape[0], np.int64)
    shown, clicked, expected = np.zeros((3, documents.shape[0], k))
    for query in range(offsets.shape[0] - 1):
        came = 0
        for display in range(offsets[query], offsets[query + 1]):
            came += times[display]
        if came == 0:
            continue
        for display in range(offsets[query], offsets[query + 1]):
            for r in range(k):
                if rankings[display, r] < 0:
                    break
                i = number[rankings[display, r]]
                if i >= 0:
                    queries[i] = query
                    shown[i, r] += times[display]
                    clicked[i, r] += clicks[display, r]
                    expected[i, r] += came * weights[display]
    return documents, queries, shown, clicked, expected
