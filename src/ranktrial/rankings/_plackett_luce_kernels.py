"""Compiled loops for Plackett-Luce rankings: sampling, and simulated impressions."""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np

from ranktrial._kernels import U64, alias_tables, below, high_half, low_half, random_word, threshold, uniform
from ranktrial.rankings._race_kernels import sorted_scores

FEW_LEFT = 0.1  # share of the weight below which rejection from the alias table is given up


# What a draw and a click need of a document, in 16 bytes: with many queries the speed is that of fetching it from memory.
# The share only decides when to give up rejection; zeta is a fraction of 2^32, as exact as the Bernoulli draws are.
PLACE = np.dtype([("share", "f4"), ("stay", "u4"), ("other", "u4"), ("zeta", "u4")])


@nb.njit(cache=True)
def fill_places(scores: Any, offsets: Any, zeta: Any, places: Any) -> Any:
    """Put the documents of each query in places by decreasing score, with their shares of the weight and alias tables.

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
        stay, other = alias_tables(share[start:end], np.array([0, end - start]))
        for i in range(end - start):
            places[start + i].share = share[start + i]
            places[start + i].stay = stay[i]
            places[start + i].other = other[i]
            places[start + i].zeta = threshold(zeta[document[start + i]])
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
    """Count how often ``simulate`` will draw each query from this random state."""
    for _ in range(count):
        drawn[below(state, drawn.shape[0])] += 1


@nb.njit(cache=True)
def simulate(
    offsets: Any, s: Any, tail: Any, share: Any, places: Any, document: Any, value: Any, user: Any, checkpoints: Any,
    query_state: Any, state: Any, out: Any, row: Any, shown: Any, clicked: Any,
) -> None:  # fmt: skip
    """Show one ranking after another to the user; out[i] = sum x, sum x^2, clicks after checkpoints[i] impressions.

    x of an impression is the sum over its clicks of ``value``. Where they have rows, displays and clicks by rank are added to
    those of each document, ``row``, in ``shown`` and ``clicked``.
    """
    queries = offsets.shape[0] - 1
    _, slope, intercept, stay_click, stay_skip, reads_on = user
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
                        clicked[row[document[i]], r] += 1
                if not reads_on and uniform(state) >= (stay_click[r] if click else stay_skip[r]):
                    break
            if counting:
                for r in range(depth):
                    shown[row[document[start + placed[r]]], r] += 1
            sum_x += x
            sum_x2 += x * x
        out[checkpoint, 0] = sum_x
        out[checkpoint, 1] = sum_x2
        out[checkpoint, 2] = clicks


@nb.njit(cache=True)
def examinations(shown: Any, clicked: Any, theta: Any, examined: Any, clicks: Any) -> None:
    """Expected examinations, at that position bias, and clicks of each document, from tables of shows and clicks."""
    for d in range(shown.shape[0]):
        total = 0.0
        count = 0
        for r in range(theta.shape[0]):
            total += theta[r] * shown[d, r]
            count += clicked[d, r]
        examined[d] = total
        clicks[d] = count


@nb.njit(cache=True)
def simulate_queries(
    scores: Any, offsets: Any, user: Any, times: Any, places: Any, state: Any, row: Any, shown: Any, clicked: Any
) -> None:
    """Show query after query, each so many times, to a user who reads on; adds to ``shown`` and ``clicked`` as ``simulate``.

    One query's documents stay in the cache, which with many queries is most of the time. ``places`` has room for those of the
    longest.
    """
    zeta, slope, intercept = user.zeta, user.slope, user.intercept
    taken = np.zeros(places.shape[0], np.int64)
    placed = np.empty(slope.shape[0], np.int64)
    impression = 0
    for query in range(offsets.shape[0] - 1):
        start = offsets[query]
        n = offsets[query + 1] - start
        depth = min(slope.shape[0], n)
        if times[query] == 0 or n == 0:
            continue
        own = slice(start, start + n)
        s, tail, share, document = fill_places(scores[own], np.array([0, n]), zeta[own], places)
        for _ in range(times[query]):
            impression += 1
            count = draw_by_rejection(state, 0, n, depth, places, taken, impression, placed)
            if count < depth:
                draw_by_inversion(state, 0, n, depth, s, tail, share, taken, impression, placed, count)
            for r in range(depth):
                i = placed[r]
                counted = row[start + document[i]]
                shown[counted, r] += 1
                chance = slope[r] * (places[i].zeta * 2.0**-32) + intercept[r]
                if high_half(random_word(state)) < threshold(chance):
                    clicked[counted, r] += 1
