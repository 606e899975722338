"""Compiled loops over designs and impressions for the checks of what stands above a result (``click_model``).

Rows of a table of rankings and slots are as in ``log.log``; rows that are never drawn (weight 0) count for nothing.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np


@nb.njit(cache=True)
def _longest(offsets: Any) -> Any:
    most = 0
    for d in range(offsets.shape[0] - 1):
        most = max(most, offsets[d + 1] - offsets[d])
    return most


@nb.njit(cache=True)
def clicks_by_draw(
    designs: Any,
    starts: Any,
    impressions: Any,
    shown: Any,
    clicks: Any,
    slot_offsets: Any,
    row_offsets: Any,
    rankings: Any,
    weights: Any,
    theta: Any,
    prediction: Any,
    values: Any,
    bound: Any,
) -> Any:
    """Values of impressions, and the largest that each could have had (see ``Interference``); returns what they tell in all.

    Design number i has shown ``impressions[starts[i]:starts[i + 1]]``, of which ``shown`` are the rows.
    """
    k = rankings.shape[1]
    most_slots, most_rows = _longest(slot_offsets), _longest(row_offsets)
    chance, mean = np.zeros((most_slots, k)), np.zeros((most_slots, k))
    away, foreseen, told = np.zeros((most_rows, k)), np.zeros(most_rows), np.zeros(most_rows)
    information = 0.0
    for i in range(designs.shape[0]):
        start, first = slot_offsets[designs[i]], row_offsets[designs[i]]
        rows = row_offsets[designs[i] + 1] - first
        own = slot_offsets[designs[i] + 1] - start
        chance[:own] = 0.0
        mean[:own] = 0.0
        for j in range(rows):
            weight = weights[first + j]
            over = 0.0
            for r in range(k):
                away[j, r] = over
                s = rankings[first + j, r]
                if s >= 0 and weight > 0.0:
                    chance[s - start, r] += weight
                    mean[s - start, r] += weight * over
                    over += theta[r] * prediction[s]
        most = 0.0
        for j in range(rows):
            if not weights[first + j] > 0.0:
                continue
            foreseen[j], told[j], up, down = 0.0, 0.0, 0.0, 0.0
            for r in range(k):
                s = rankings[first + j, r]
                if s < 0:
                    away[j, r] = 0.0
                    continue
                away[j, r] -= mean[s - start, r] / max(chance[s - start, r], 1e-300)
                expected = theta[r] * prediction[s]
                foreseen[j] += expected * away[j, r]
                told[j] += expected * away[j, r] ** 2
                up += max(away[j, r], 0.0)
                down += max(-away[j, r], 0.0)
            most = max(most, up - foreseen[j], down + foreseen[j])
        for at in range(starts[i], starts[i + 1]):
            impression = impressions[at]
            j = shown[impression] - first
            value = -foreseen[j]
            for r in range(k):
                if clicks[impression, r]:
                    value += away[j, r]
            values[impression] = value
            bound[impression] = most
            information += told[j]
    return information


@nb.njit(cache=True)
def added_above(
    times: Any,
    slot_offsets: Any,
    row_offsets: Any,
    rankings: Any,
    weights: Any,
    rank_a: Any,
    rank_b: Any,
    rho: Any,
    theta: Any,
    prediction: Any,
) -> Any:
    """Sums behind ``click_model._shift``: how far the estimate is moved by what clicks are worth, and for the theta that is
    fitted the information, what is added to the score, and what the estimate depends on log theta by.
    """
    k = rankings.shape[1]
    most_slots = _longest(slot_offsets)
    usual, added, by_rank = np.zeros((most_slots, k)), np.zeros((most_slots, k)), np.zeros(k)
    listed = np.zeros((2, k), np.int64)
    moved, information, score, of_log_theta = 0.0, np.zeros((k, k)), np.zeros(k), np.zeros(k)
    for d in range(times.shape[0]):
        if times[d] == 0:
            continue
        start = slot_offsets[d]
        usual[: slot_offsets[d + 1] - start] = 0.0
        added[: slot_offsets[d + 1] - start] = 0.0
        listed[:] = -1
        for row in range(row_offsets[d], row_offsets[d + 1]):
            shows, over = times[d] * weights[row], 0.0
            if not shows > 0.0:
                continue
            for r in range(k):
                s = rankings[row, r]
                if s >= 0:
                    expected = theta[r] * prediction[s]
                    usual[s - start, r] += shows * expected
                    added[s - start, r] += shows * expected * over
                    over += expected
        for s in range(start, slot_offsets[d + 1]):
            in_a, in_b = rank_a[s] < k, rank_b[s] < k
            by_a, by_b = theta[rank_a[s]] if in_a else 0.0, theta[rank_b[s]] if in_b else 0.0
            if in_a:
                listed[0, rank_a[s]] = s
            if in_b:
                listed[1, rank_b[s]] = s
            if not rho[s] > 0.0:
                continue
            worth, clicks, more = (by_a - by_b) / rho[s], 0.0, 0.0
            for r in range(k):
                clicks += usual[s - start, r]
                more += added[s - start, r]
            moved += worth * more
            of_log_theta[rank_a[s] if in_a else 0] += by_a * clicks / rho[s]
            of_log_theta[rank_b[s] if in_b else 0] -= by_b * clicks / rho[s]
            for r in range(k):
                by_rank[r] = usual[s - start, r] / clicks if usual[s - start, r] > 0.0 else 0.0
                score[r] += added[s - start, r] - more * by_rank[r]
                of_log_theta[r] -= worth * clicks * by_rank[r]
                information[r, r] += clicks * by_rank[r]
                for q in range(r + 1):
                    information[r, q] -= clicks * by_rank[r] * by_rank[q]
        for ranker in range(2):
            over, products = 0.0, 0.0
            for r in range(k):
                if listed[ranker, r] >= 0:
                    expected = theta[r] * prediction[listed[ranker, r]]
                    products += expected * over
                    over += expected
            moved -= times[d] * products if ranker == 0 else -times[d] * products
    for r in range(k):
        for q in range(r):
            information[q, r] = information[r, q]
    return moved, information, score, of_log_theta


@nb.njit(cache=True)
def clicks_after(places: Any, clicks: Any, strata: Any, sums: Any) -> Any:
    """Values of impressions in order of time and what they tell (see ``Dependence``); adds them to sums over each stratum.

    A stratum is a place and a rank; ``strata[place, rank]`` is its number, negative where nothing was ever clicked.
    ``places`` are those at each rank of the impressions, negative where nothing is that was ever clicked. Sums are of members,
    members after a click above, clicked ones, and clicked ones after a click.
    """
    k = places.shape[1]
    values, told = np.zeros(places.shape[0]), np.zeros(places.shape[0])
    for i in range(places.shape[0]):
        after = 0.0
        for r in range(k):
            s = places[i, r]
            if s < 0:
                continue
            click = 1.0 if clicks[i, r] else 0.0
            if strata[s, r] >= 0:
                of = sums[strata[s, r]]
                if of[0] > 0.0:
                    away = after - of[1] / of[0]
                    values[i] += away * (click - of[2] / of[0])
                    told[i] += away**2 * of[2] / of[0]
                of[0] += 1.0
                of[1] += after
                of[2] += click
                of[3] += after * click
            after = max(after, click)
    return values, told


@nb.njit(cache=True)
def pair_scores(
    impressions: Any,
    row: Any,
    design: Any,
    clicks: Any,
    row_offsets: Any,
    rankings: Any,
    weights: Any,
    theta: Any,
    depth: Any,
    gram: Any,
    crossed: Any,
    away: Any,
    at_rank: Any,
) -> Any:
    """Add up, over pairs of clicks on each of these impressions, depth_r depth_s less its mean over the design's rankings,
    given that both documents are clicked with chances theta_r theta_s; returns its variance there, over all pairs.

    ``at_rank`` gets the numbers of clicks at each rank less their means; ``gram`` the sum of their covariances at each two
    ranks, ``crossed`` those with depth_r depth_s.
    """
    k, information = rankings.shape[1], 0.0
    at, share, with_depth = np.empty(k, np.int64), np.empty(k), np.empty(k)
    chance, both = np.empty(0), np.empty((0, 2), np.int64)
    for j in range(impressions.shape[0]):
        i, many = impressions[j], 0
        for r in range(k):
            if clicks[i, r]:
                at[many] = r
                many += 1
        first, last = row_offsets[design[i]], row_offsets[design[i] + 1]
        if last - first > chance.shape[0]:
            chance, both = np.empty(last - first), np.empty((last - first, 2), np.int64)
        for u in range(many):
            for v in range(u):
                one, other = rankings[row[i], at[v]], rankings[row[i], at[u]]
                total, found = 0.0, 0
                for q in range(first, last):
                    r, s = -1, -1
                    for rank in range(k):
                        if rankings[q, rank] == one:
                            r = rank
                        elif rankings[q, rank] == other:
                            s = rank
                    if r >= 0 and s >= 0:
                        p = weights[q] * theta[r] * theta[s]
                        if p > 0.0:
                            chance[found], both[found, 0], both[found, 1] = p, r, s
                            total += p
                            found += 1
                if found < 2:
                    continue
                mean, square = 0.0, 0.0
                share[:] = 0.0
                with_depth[:] = 0.0
                for q in range(found):
                    p, r, s = chance[q] / total, both[q, 0], both[q, 1]
                    product = depth[r] * depth[s]
                    mean += p * product
                    square += p * product**2
                    share[r] += p
                    share[s] += p
                    with_depth[r] += p * product
                    with_depth[s] += p * product
                    gram[r, r] += p
                    gram[s, s] += p
                    gram[r, s] += p
                    gram[s, r] += p
                for r in range(k):
                    at_rank[j, r] -= share[r]
                    crossed[r] += with_depth[r] - mean * share[r]
                    for s in range(k):
                        gram[r, s] -= share[r] * share[s]
                at_rank[j, at[u]] += 1.0
                at_rank[j, at[v]] += 1.0
                away[j] += depth[at[v]] * depth[at[u]] - mean
                information += max(square - mean**2, 0.0)
    return information
