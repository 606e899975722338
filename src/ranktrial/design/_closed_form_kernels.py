"""Compiled closed form: the few rankings that give the best exposure, query after query.

Blocks, slots and candidates are those of ``_exposure_kernels``.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from ranktrial.design._exposure_kernels import ROUNDING, best_blocks, fill_slots, sort_down

NOBODY = -1
LEAST_WEIGHT = 1e-13  # of a ranking; events closer than this are one but for rounding


# --- who may be shown, and who needs it -----------------------------------------------------------------------------------


@nb.njit(cache=True)
def unite(tables: Any, theta: Any, n_documents: Any) -> Any:
    """The documents that any ranker shows for each query, in the order in which they fill a page.

    That is by falling mean exposure, then by mean rank, then by number: the same whichever ranker comes first.

    Args:
        tables: What each ranker shows, (rankers, queries, k).

    Returns:
        Offsets of the queries and the documents; for each of them the root of the sum over pairs of rankers of (exposure
        under one - under the other)^2, and the least exposure that any ranker gives it.
    """
    rankers, queries, k = tables.shape
    offsets = np.zeros(queries + 1, np.int64)
    documents = np.empty(tables.size, np.int32)
    differences = np.empty(tables.size)
    least = np.empty(tables.size)
    found = np.empty(rankers * k, np.int32)
    order = np.empty(rankers * k, np.int64)
    exposure = np.empty((rankers * k, rankers))
    total = np.empty(rankers * k)
    ranks = np.empty(rankers * k, np.int64)
    number = np.full(n_documents, NOBODY, np.int64)
    filled = 0
    for query in range(queries):
        n = 0
        for ranker in range(rankers):
            for rank in range(k):
                document = tables[ranker, query, rank]
                if document < 0:
                    continue
                i = number[document]
                if i == NOBODY:
                    i = n
                    n += 1
                    number[document] = i
                    found[i] = document
                    exposure[i] = 0.0
                    ranks[i] = rankers * k
                exposure[i, ranker] = theta[rank]
                ranks[i] += rank - k
        for i in range(n):
            number[found[i]] = NOBODY
            total[i] = exposure[i].sum()
            j = i
            while j > 0 and _fills_after(order[j - 1], i, total, ranks, found):
                order[j] = order[j - 1]
                j -= 1
            order[j] = i
        for i in order[:n]:
            documents[filled] = found[i]
            difference = 0.0
            lowest = exposure[i, 0]
            for one in range(rankers):
                lowest = min(lowest, exposure[i, one])
                for other in range(one):
                    # The square of a tiny difference could vanish.
                    difference = np.hypot(difference, exposure[i, one] - exposure[i, other])
            differences[filled] = difference
            least[filled] = lowest
            filled += 1
        offsets[query + 1] = filled
    return offsets, documents[:filled].copy(), differences[:filled].copy(), least[:filled].copy()


@nb.njit(cache=True)
def _fills_after(one: Any, other: Any, total: Any, ranks: Any, found: Any) -> Any:
    if total[one] != total[other]:
        return total[one] < total[other]
    if ranks[one] != ranks[other]:
        return ranks[one] > ranks[other]
    return found[one] > found[other]


# --- rankings that give it ------------------------------------------------------------------------------------------------


@nb.njit(cache=True)
def _show_for(
    order: Any, start: Any, end: Any, left: Any, share: Any, slot_share: Any, on_slot: Any, trial: Any, owed: Any
) -> Any:
    """How long a block can be shown in its present order, candidates by falling share that they are still owed.

    Until some set of candidates is owed as much as it can still get. With weight ``left`` now and ``rest`` then, a set Q is
    owed share(Q) - (left - rest) on_slot(Q) of at most rest best(Q), best being the sum of the first slots, so

        rest = max over Q of (share(Q) - left on_slot(Q)) / (best(Q) - on_slot(Q)),

    by Dinkelbach's iteration: for a given ``rest`` the sets to try are prefixes by falling owed share.

    Returns:
        The weight left then, and the number of candidates in the set: from then on they have the first slots to themselves.
    """
    rest = 0.0
    cut = 0
    for i in range(start, end):
        on_slot[order[i]] = slot_share[i]
        trial[i] = order[i]
    while True:
        for i in range(start, end):
            d = order[i]
            owed[d] = share[d] - (left - rest) * on_slot[d]
        sort_down(trial, start, end, owed)
        late = rest
        short = 0.0  # what the prefix is owed if this order is shown to the end
        room = 0.0  # what it has in better slots
        excess = 0.0
        for i in range(start, end - 1):
            d = trial[i]
            short += share[d] - left * on_slot[d]
            room += slot_share[i] - on_slot[d]
            excess += owed[d] - rest * slot_share[i]
            if excess > ROUNDING and room > 0.0 and short > late * room:
                late = short / room
                cut = i + 1 - start
        if not late > rest:
            return rest, cut
        rest = late
        if rest >= left:
            return left, cut


@nb.njit(cache=True)
def _write(row: Any, order: Any, page: Any, rank_of_slot: Any, documents: Any) -> None:
    row[page:] = NOBODY
    for slot in range(page):
        row[rank_of_slot[slot]] = documents[order[slot]]


@nb.njit(cache=True)
def _decompose(
    order: Any,
    ends: Any,
    blocks: Any,
    share: Any,
    slot_share: Any,
    page: Any,
    rank_of_slot: Any,
    documents: Any,
    rankings: Any,
    weights: Any,
) -> Any:
    """Write the rankings of one query and their weights; returns how many.

    Every block is shown in the order of what its candidates are owed, for as long as it can be; then it falls into two, each
    with its own slots. A block of one has nothing left to decide, so there are at most as many rankings as candidates.
    Blocks that fall apart were tied exactly but for rounding, and what is left over of that is never made up for: it is
    as small in the exposure of the result.
    """
    n = order.shape[0]
    on_slot = np.empty(n)
    trial = np.empty(n, np.int64)
    owed = np.empty(n)
    starts = np.empty(n + 1, np.int64)
    begun = np.ones(n + 1)  # weight left when a block's present order was first shown
    until = np.zeros(n + 1)  # and when it is last shown
    cuts = np.zeros(n + 1, np.int64)
    start = 0
    for block in range(blocks):
        starts[block] = start
        if ends[block] - start > 1:
            sort_down(order, start, ends[block], share)
            until[block], cuts[block] = _show_for(
                order, start, ends[block], 1.0, share, slot_share, on_slot, trial, owed
            )
        start = ends[block]
    left = 1.0
    rows = 0
    while True:
        following = 0.0
        for block in range(blocks):
            following = max(following, until[block])
        if left - following > LEAST_WEIGHT:
            _write(rankings[rows], order, page, rank_of_slot, documents)
            weights[rows] = left - following
            rows += 1
            left = following
        if following == 0.0:
            weights[rows - 1] += left
            return rows
        for block in range(blocks):
            if until[block] < following:
                continue
            start = starts[block]
            end = ends[block]
            for i in range(start, end):
                share[order[i]] -= (begun[block] - following) * slot_share[i]
            sort_down(order, start, end, share)
            middle = start + cuts[block]
            ends[block] = middle
            starts[blocks] = middle
            ends[blocks] = end
            for part in (block, blocks):
                begun[part] = following
                until[part], cuts[part] = 0.0, 0
                if ends[part] - starts[part] > 1:
                    until[part], cuts[part] = _show_for(
                        order, starts[part], ends[part], following, share, slot_share, on_slot, trial, owed
                    )
            blocks += 1


@nb.njit(cache=True)
def least_variance(offsets: Any, documents: Any, need: Any, least: Any, gain: Any, bias: Any) -> Any:
    """Rankings, weights and the offsets of each query's, of the mixtures of least sum need^2 / exposure - gain * exposure.

    Args:
        offsets: Of the queries' candidates.
        documents: Candidates in the order in which they fill a page.
        need: Of each candidate.
        least: Exposure that each must have; an empty array for none.
        gain: Of each, for a unit of exposure; an empty array for none.
        bias: Of each rank, the design's.
    """
    queries = offsets.shape[0] - 1
    k = bias.shape[0]
    most = _most_candidates(offsets)
    slots = np.zeros(max(most, k))
    rank_of_slot = np.empty(k, np.int64)
    order = np.empty(most, np.int64)
    ends = np.empty(most + 1, np.int64)
    share = np.empty(most)
    slot_share = np.empty(most)
    rankings = np.empty((most + 8 * queries, k), np.int32)
    weights = np.empty(most + 8 * queries)
    row_offsets = np.zeros(queries + 1, np.int64)
    rows = 0
    for query in range(queries):
        start = offsets[query]
        end = offsets[query + 1]
        n = end - start
        if rows + max(n, 1) > weights.shape[0]:
            rankings, weights = _grown(rankings, weights, rows + max(n, 1))
        if n == 0:
            rankings[rows] = NOBODY
            weights[rows] = 1.0
            rows += 1
        else:
            page = min(k, n)
            fill_slots(bias, page, n, slots, rank_of_slot)
            blocks = best_blocks(
                need[start:end], least[start:end], gain[start:end], slots[:n], order[:n], ends, share, slot_share
            )
            rows += _decompose(
                order[:n],
                ends,
                blocks,
                share,
                slot_share,
                page,
                rank_of_slot,
                documents[start:end],
                rankings[rows:],
                weights[rows:],
            )
        row_offsets[query + 1] = rows
    return rankings[:rows].copy(), weights[:rows].copy(), row_offsets


@nb.njit(cache=True)
def _most_candidates(offsets: Any) -> Any:
    most = 1
    for query in range(offsets.shape[0] - 1):
        most = max(most, offsets[query + 1] - offsets[query])
    return most


@nb.njit(cache=True)
def _grown(rankings: Any, weights: Any, at_least: Any) -> Any:
    size = max(2 * weights.shape[0], at_least)
    more_rankings = np.empty((size, rankings.shape[1]), np.int32)
    more_weights = np.empty(size)
    more_rankings[: rankings.shape[0]] = rankings
    more_weights[: weights.shape[0]] = weights
    return more_rankings, more_weights


# --- clicks, for many prices ----------------------------------------------------------------------------------------------


@nb.njit(cache=True, nogil=True)
def predicted_clicks(offsets: Any, need: Any, least: Any, relevance: Any, price: Any, bias: Any, theta: Any) -> Any:
    """Expected clicks on what ``least_variance`` with gain = price * relevance shows for each query.

    Where the design's bias is position bias, exposure tells them and no ranking is made.
    """
    queries = offsets.shape[0] - 1
    k = bias.shape[0]
    most = _most_candidates(offsets)
    slots = np.zeros(max(most, k))
    rank_of_slot = np.empty(k, np.int64)
    order = np.empty(most, np.int64)
    ends = np.empty(most + 1, np.int64)
    share = np.empty(most)
    slot_share = np.empty(most)
    by_exposure = np.array_equal(bias, theta)
    rankings = np.empty((0 if by_exposure else most, k), np.int32)
    weights = np.empty(rankings.shape[0])
    itself = np.arange(most).astype(np.int32)
    clicks = np.zeros(queries)
    for query in range(queries):
        start = offsets[query]
        end = offsets[query + 1]
        n = end - start
        if n == 0:
            continue
        page = min(k, n)
        zeta = relevance[start:end]
        fill_slots(bias, page, n, slots, rank_of_slot)
        blocks = best_blocks(
            need[start:end], least[start:end], price * zeta, slots[:n], order[:n], ends, share, slot_share
        )
        if by_exposure:
            clicks[query] = _clicks_of_blocks(zeta, slots, order, ends, blocks, share)
            continue
        rows = _decompose(order[:n], ends, blocks, share, slot_share, page, rank_of_slot, itself, rankings, weights)
        for row in range(rows):
            for rank in range(page):
                clicks[query] += weights[row] * theta[rank] * zeta[rankings[row, rank]]
    return clicks


@nb.njit(cache=True)
def _clicks_of_blocks(zeta: Any, slots: Any, order: Any, ends: Any, blocks: Any, share: Any) -> Any:
    clicks = 0.0
    start = 0
    for block in range(blocks):
        end = ends[block]
        if end - start == 1:
            clicks += zeta[order[start]] * slots[start]
        else:
            mean = 0.0
            for i in range(start, end):
                mean += zeta[order[i]] * share[order[i]]
            clicks += mean * slots[start:end].sum()
        start = end
    return clicks
