"""Compiled closed form: the exposure of least variance and the few rankings that give it, query after query.

Candidates of a query are numbered in the order in which they would fill its page. *Slots* are the ranks of the page by
falling bias, then as many of bias 0 as there are candidates left. A *block* is a stretch of slots and the candidates that
share it: whatever is shown, they stand on these slots. Inside a block everything is counted in shares of its exposure,
so that blocks of any size, and needs of any scale, meet the same rounding.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

NOBODY = -1
LEAST_SHARE = 1e-10  # of the mean in its block: no document that matters gets less, or rounding could hide it
ROUNDING = 1e-15  # of a block's exposure: less than this too much is not too much
LEAST_WEIGHT = 1e-13  # of a ranking; events closer than this are one but for rounding
ROUNDING_OF_FLOOR = 1e-12  # floors that add up to the whole page still fit on it
INSERT_UP_TO = 40


@nb.njit(cache=True)
def _sort_down(items: Any, start: Any, end: Any, keys: Any) -> None:
    """Sort items[start:end] by falling key; equal keys stay in order."""
    if end - start > INSERT_UP_TO:
        stretch = items[start:end].copy()
        items[start:end] = stretch[np.argsort(-keys[stretch], kind="mergesort")]
        return
    for i in range(start + 1, end):
        item = items[i]
        key = keys[item]
        j = i
        while j > start and keys[items[j - 1]] < key:
            items[j] = items[j - 1]
            j -= 1
        items[j] = item


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


# --- the best exposure ----------------------------------------------------------------------------------------------------


@nb.njit(cache=True)
def _fill_slots(bias: Any, page: Any, n: Any, slots: Any, rank_of_slot: Any) -> None:
    """Ranks of a page by falling bias, and the bias of each of n slots."""
    for slot in range(page):
        rank_of_slot[slot] = slot
    _sort_down(rank_of_slot, 0, page, bias)
    for slot in range(page):
        slots[slot] = bias[rank_of_slot[slot]]
    slots[page:n] = 0.0


@nb.njit(cache=True)
def _hull_blocks(need: Any, slots: Any, order: Any, ends: Any, share: Any, slot_share: Any) -> Any:
    """Blocks of the greatest convex minorant of (sum of needs, sum of slots), candidates by falling need.

    Inside a block exposure is proportional to need. Pooling neighbours adds only positive numbers, so a need far below the
    others keeps its precision, where differences of running sums would lose it.
    """
    n = need.shape[0]
    for i in range(n):
        order[i] = i
    _sort_down(order, 0, n, need)
    needed = np.empty(n)
    given = np.empty(n)
    blocks = 0
    for i in range(n):
        needed[blocks] = need[order[i]]
        given[blocks] = slots[i]
        ends[blocks] = i + 1
        blocks += 1
        if need[order[i]] == 0.0:
            continue
        while blocks > 1 and given[blocks - 2] * needed[blocks - 1] > given[blocks - 1] * needed[blocks - 2]:
            needed[blocks - 2] += needed[blocks - 1]
            given[blocks - 2] += given[blocks - 1]
            ends[blocks - 2] = ends[blocks - 1]
            blocks -= 1
    start = 0
    for block in range(blocks):
        if ends[block] - start > 1:
            for i in range(start, ends[block]):
                share[order[i]] = need[order[i]] / needed[block]
                slot_share[i] = slots[i] / given[block]
            _lift_least(order, start, ends[block], need, share)
        start = ends[block]
    return blocks


@nb.njit(cache=True)
def _lift_least(order: Any, start: Any, end: Any, need: Any, share: Any) -> None:
    """Mix in a trace of equal shares where a document that matters would get next to nothing. Equal shares always fit."""
    mean = 1.0 / (end - start)
    for i in range(start, end):
        if need[order[i]] > 0.0 and share[order[i]] < LEAST_SHARE * mean:
            for j in range(start, end):
                share[order[j]] += LEAST_SHARE * (mean - share[order[j]])
            return


@nb.njit(cache=True)
def _floored_blocks(need: Any, least: Any, slots: Any, order: Any, ends: Any, share: Any, slot_share: Any) -> Any:
    """Blocks of the best exposure where each candidate must have its least.

    A block first ignores how slots limit its candidates, but for their sum; where some of them then have more than as many
    slots can give, the worst such set gets the best slots of the block, and both parts are solved again.
    """
    n = need.shape[0]
    for i in range(n):
        order[i] = i
    exposure = np.empty(n)
    open_end = np.empty(n + 1, np.int64)  # ends of the blocks still to solve, the next one last
    open_end[0] = n
    n_open = 1
    blocks = 0
    start = 0
    while n_open > 0:
        end = open_end[n_open - 1]
        total = slots[start:end].sum()
        if end - start == 1 or total == 0.0 or _may_just_fill(need, least, slots, order, start, end):
            for i in range(start, end):
                ends[blocks] = i + 1
                blocks += 1
            start = end
            n_open -= 1
            continue
        _share_out(need, least, total, order, start, end, exposure)
        _sort_down(order, start, end, exposure)
        cut = _worst_prefix(exposure, slots, total, order, start, end)
        if cut > start:
            open_end[n_open] = cut
            n_open += 1
            continue
        for i in range(start, end):
            share[order[i]] = exposure[order[i]] / total
            slot_share[i] = slots[i] / total
        _lift_least(order, start, end, need, share)
        ends[blocks] = end
        blocks += 1
        start = end
        n_open -= 1
    return blocks


@nb.njit(cache=True)
def _may_just_fill(need: Any, least: Any, slots: Any, order: Any, start: Any, end: Any) -> Any:
    """Whether candidates on which nothing depends have their least when they simply fill the slots, one after the other."""
    for i in range(start, end):
        if need[order[i]] > 0.0:
            return False
    order[start:end].sort()
    for i in range(start, end):
        if slots[i] < least[order[i]] * (1.0 - ROUNDING_OF_FLOOR):
            return False
    return True


@nb.njit(cache=True)
def _share_out(need: Any, least: Any, total: Any, order: Any, start: Any, end: Any, exposure: Any) -> None:
    """exposure = max(least, x need), x such that the block's exposure is used up.

    Where no candidate needs any, all get more than their least in proportion.
    """
    x = np.inf
    while True:
        kept = 0.0
        needed = 0.0
        for i in range(start, end):
            d = order[i]
            if need[d] > 0.0 and (x == np.inf or x * need[d] >= least[d]):
                needed += need[d]
            else:
                kept += least[d]
        if needed == 0.0:  # nothing is needed, or rounding left nothing beyond the floors
            for i in range(start, end):
                exposure[order[i]] = least[order[i]] * (total / kept)
            return
        lower = max(total - kept, 0.0) / needed
        if lower >= x:
            break
        x = lower
    for i in range(start, end):
        exposure[order[i]] = max(least[order[i]], x * need[order[i]])


@nb.njit(cache=True)
def _worst_prefix(exposure: Any, slots: Any, total: Any, order: Any, start: Any, end: Any) -> Any:
    """Where to cut off the candidates that exceed the best slots by most; ``start`` where none do."""
    worst = 10 * ROUNDING * total
    cut = start
    above = 0.0
    for i in range(start, end - 1):
        above += exposure[order[i]] - slots[i]
        if above > worst:
            worst = above
            cut = i + 1
    return cut


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
        _sort_down(trial, start, end, owed)
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
            _sort_down(order, start, ends[block], share)
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
            _sort_down(order, start, end, share)
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
def least_variance(offsets: Any, documents: Any, need: Any, least: Any, bias: Any) -> Any:
    """Rankings, weights and the offsets of each query's, of the mixtures of least sum need^2 / exposure.

    Args:
        offsets: Of the queries' candidates.
        documents: Candidates in the order in which they fill a page.
        need: Of each candidate.
        least: Exposure that each must have; an empty array for none.
        bias: Of each rank, the design's.
    """
    queries = offsets.shape[0] - 1
    k = bias.shape[0]
    most = 1
    for query in range(queries):
        most = max(most, offsets[query + 1] - offsets[query])
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
            _fill_slots(bias, page, n, slots, rank_of_slot)
            if least.shape[0] > 0:
                blocks = _floored_blocks(
                    need[start:end], least[start:end], slots[:n], order[:n], ends, share, slot_share
                )
            else:
                blocks = _hull_blocks(need[start:end], slots[:n], order[:n], ends, share, slot_share)
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
def _grown(rankings: Any, weights: Any, at_least: Any) -> Any:
    size = max(2 * weights.shape[0], at_least)
    more_rankings = np.empty((size, rankings.shape[1]), np.int32)
    more_weights = np.empty(size)
    more_rankings[: rankings.shape[0]] = rankings
    more_weights[: weights.shape[0]] = weights
    return more_rankings, more_weights
