"""Compiled closed form: the few rankings that give the best exposure, query after query.

Blocks, slots and candidates are those of ``_exposure_kernels``.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from ranktrial.design._exposure_kernels import INSERT_UP_TO, ROUNDING, best_blocks, fill_slots, sort_down

NOBODY = -1
LEAST_WEIGHT = 1e-13  # of a ranking; events closer than this are one but for rounding
NEARLY = 1e-9  # of a chance: what is rarer than this never happens


# --- rankings that give it ------------------------------------------------------------------------------------------------


@nb.njit(cache=True)
def _show_for(order: Any, start: Any, end: Any, left: Any, share: Any, slot_share: Any, trial: Any, owed: Any) -> Any:
    """Probability weight with which a block can be shown in its present order before the order must change.

    The order holds until some set of candidates is owed as much as it can still get. With weight ``left`` now and ``rest``
    then, a set Q is owed share(Q) - (left - rest) on_slot(Q) of at most rest best(Q), best being the sum of the first slots, so

        rest = max over Q of (share(Q) - left on_slot(Q)) / (best(Q) - on_slot(Q)),

    by Dinkelbach's iteration: for a given ``rest`` the sets to try are prefixes by falling owed share.

    Returns:
        The weight left then, and the number of candidates in the set: from then on they have the first slots to themselves.
        ``trial`` is filled with the places of the present order by falling share that is owed then.
    """
    rest = 0.0
    cut = 0
    for i in range(start, end):
        trial[i] = start + end - 1 - i  # the last were shown least
    while True:
        _sort_owed(order, start, end, left - rest, share, slot_share, trial, owed)
        late = rest
        short = 0.0  # what the prefix is owed if this order is shown to the end
        room = 0.0  # what it has in better slots
        excess = 0.0
        for i in range(start, end - 1):
            now = slot_share[trial[i]]
            short += share[order[trial[i]]] - left * now
            room += slot_share[i] - now
            excess += owed[i] - rest * slot_share[i]
            if excess > ROUNDING and room > 0.0 and short > late * room:
                late = short / room
                cut = i + 1 - start
        if not late > rest:
            return rest, cut
        rest = late
        if rest >= left:
            for i in range(start, end):
                trial[i] = i
            return left, cut


@nb.njit(cache=True)
def _sort_owed(
    order: Any, start: Any, end: Any, shown: Any, share: Any, slot_share: Any, trial: Any, owed: Any
) -> None:
    """Sort the places of a block by falling share that their candidates are still owed once the order was shown with some
    weight; those owed the same stay in order. The fewer moves the nearer ``trial`` is to that.
    """
    if end - start > INSERT_UP_TO:
        by_place = np.empty(end)
        for i in range(start, end):
            by_place[i] = share[order[i]] - shown * slot_share[i]
            trial[i] = i
        sort_down(trial, start, end, by_place)
        for i in range(start, end):
            owed[i] = by_place[trial[i]]
        return
    for i in range(start, end):
        place = trial[i]
        key = share[order[place]] - shown * slot_share[place]
        j = i
        while j > start and (owed[j - 1] < key or (owed[j - 1] == key and trial[j - 1] > place)):
            owed[j] = owed[j - 1]
            trial[j] = trial[j - 1]
            j -= 1
        owed[j] = key
        trial[j] = place


@nb.njit(cache=True)
def _write(row: Any, order: Any, page: Any, rank_of_slot: Any, documents: Any, apart: Any, upper: Any) -> None:
    """A ranking, with the candidate that was set apart, if any, on its upper slot."""
    for rank in range(page, row.shape[0]):
        row[rank] = NOBODY
    for slot in range(page):
        if apart == NOBODY or slot < upper:
            row[rank_of_slot[slot]] = documents[order[slot]]
        else:
            row[rank_of_slot[slot]] = documents[apart if slot == upper else order[slot - 1]]


@nb.njit(cache=True)
def _mixture(
    order: Any,
    ends: Any,
    blocks: Any,
    share: Any,
    slot_share: Any,
    page: Any,
    rank_of_slot: Any,
    documents: Any,
    steady: Any,
    rankings: Any,
    weights: Any,
) -> Any:
    """Write the rankings of one query and their weights; returns how many, at most twice as many as candidates.

    Args:
        steady: A candidate that must not move by more than one slot from ranking to ranking, or NOBODY.
    """
    n = order.shape[0]
    upper, chance = NOBODY, 1.0
    if steady != NOBODY:
        upper, chance = _set_apart(order, ends, blocks, share, slot_share, page, steady)
    apart = steady if upper != NOBODY else NOBODY
    some = order[: n - 1] if upper != NOBODY else order
    rows = _decompose(
        some, ends, blocks, share, slot_share, page, rank_of_slot, documents, apart, upper, rankings, weights
    )
    if upper == NOBODY:
        return rows
    return _change_places(rankings, weights, rows, rank_of_slot[upper], rank_of_slot[upper + 1], chance)


@nb.njit(cache=True)
def _set_apart(order: Any, ends: Any, blocks: Any, share: Any, slot_share: Any, page: Any, steady: Any) -> Any:
    """Take a candidate out of its block, and one slot with it.

    Two neighbouring slots give it its exposure between them. The others have the mean of what is left of these two instead,
    which leaves them all the exposures that they could have had.

    Returns:
        The upper of the two slots and the chance that the candidate is there; NOBODY where there is nothing to do.
    """
    start = 0
    for block in range(blocks):
        for i in range(start, ends[block]):
            if order[i] != steady:
                continue
            upper = start
            while upper + 2 < ends[block] and slot_share[upper + 1] > share[steady]:
                upper += 1
            if ends[block] - start == 1 or upper + 1 >= page:
                return NOBODY, 1.0
            between = slot_share[upper] - slot_share[upper + 1]
            chance = (share[steady] - slot_share[upper + 1]) / between if between > 0.0 else 1.0
            slot_share[upper] += slot_share[upper + 1] - share[steady]
            for later in range(i, order.shape[0] - 1):
                order[later] = order[later + 1]
            for later in range(upper + 1, order.shape[0] - 1):
                slot_share[later] = slot_share[later + 1]
            for later in range(block, blocks):
                ends[later] -= 1
            return upper, chance
        start = ends[block]
    return NOBODY, 1.0


@nb.njit(cache=True)
def _change_places(rankings: Any, weights: Any, rows: Any, upper: Any, lower: Any, chance: Any) -> Any:
    """Let the document at rank ``upper`` of all rankings be at ``lower`` the rest of the time, whoever is there.

    For each document at ``lower`` rankings of that share of their weight are changed, the last of them in part.
    """
    if chance > 1.0 - NEARLY:
        return rows
    written = rows
    for row in range(rows):
        other = rankings[row, lower]
        together = 0.0
        for i in range(rows):
            if i < row and (rankings[i, lower] == other or rankings[i, upper] == other):
                together = 0.0
                break
            if rankings[i, lower] == other:
                together += weights[i]
        owed = together if chance < NEARLY else (1.0 - chance) * together
        for i in range(row, rows):
            if rankings[i, lower] != other or owed <= LEAST_WEIGHT:
                continue
            if weights[i] > owed + LEAST_WEIGHT:
                for rank in range(rankings.shape[1]):
                    rankings[written, rank] = rankings[i, rank]
                weights[written] = weights[i] - owed
                weights[i] = owed
                written += 1
            rankings[i, lower] = rankings[i, upper]
            rankings[i, upper] = other
            owed -= weights[i]
    return written


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
    apart: Any,
    upper: Any,
    rankings: Any,
    weights: Any,
) -> Any:
    """Write the rankings of a query's blocks and their weights; returns how many.

    Every block is shown in the order of what its candidates are owed, for as long as it can be; then it falls into two, each
    with its own slots. A block of one has nothing left to decide, so there are at most as many rankings as candidates.
    Blocks that fall apart were tied exactly but for rounding, and what is left over of that is never made up for: it is
    as small in the exposure of the result.
    """
    n = share.shape[0]
    trial = np.empty(n, np.int64)
    before = np.empty(n, np.int64)
    owed = np.empty(n)
    starts = np.empty(n + 1, np.int64)
    begun = np.ones(n + 1)  # weight left when a block's present order was first shown
    until = np.zeros(n + 1)  # and when it is last shown
    cuts = np.zeros(n + 1, np.int64)
    start = np.int64(0)
    for block in range(blocks):
        starts[block] = start
        if ends[block] - start > 1:
            sort_down(order, start, ends[block], share)
            until[block], cuts[block] = _show_for(order, start, ends[block], 1.0, share, slot_share, trial, owed)
        start = ends[block]
    left = 1.0
    rows = 0
    while True:
        following = 0.0
        for block in range(blocks):
            following = max(following, until[block])
        if left - following > LEAST_WEIGHT:
            _write(rankings[rows], order, page, rank_of_slot, documents, apart, upper)
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
                before[i] = order[i]
            for i in range(start, end):
                order[i] = before[trial[i]]
            middle = start + cuts[block]
            ends[block] = middle
            starts[blocks] = middle
            ends[blocks] = end
            for part in (block, blocks):
                begun[part] = following
                until[part], cuts[part] = 0.0, 0
                if ends[part] - starts[part] > 1:
                    until[part], cuts[part] = _show_for(
                        order, starts[part], ends[part], following, share, slot_share, trial, owed
                    )
            blocks += 1


@nb.njit(cache=True)
def least_variance(offsets: Any, documents: Any, need: Any, least: Any, gain: Any, bias: Any, steady: Any) -> Any:
    """Rankings, weights and the offsets of each query's, of the mixtures of least sum need^2 / exposure - gain * exposure.

    Args:
        offsets: Start of each query's candidates.
        documents: Candidates in the order in which they fill a page.
        need: Need of each candidate.
        least: Exposure that each must have; an empty array for none.
        gain: Gain of each by a unit of exposure; an empty array for none.
        bias: Position bias of each rank that the design is made for.
        steady: A document of each query that must not move by more than one rank, NOBODY where there is none; an empty
            array for none at all.
    """
    queries = offsets.shape[0] - 1
    k = bias.shape[0]
    most = _most_candidates(offsets)
    slots, rank_of_slot, order, ends, share, slot_share = _scratch(most, k)
    room = 2 * offsets[queries] + queries  # memory that is never written costs nothing
    rankings = np.empty((room, k), np.int32)
    weights = np.empty(room)
    row_offsets = np.zeros(queries + 1, np.int64)
    rows = 0
    for query in range(queries):
        start = offsets[query]
        end = offsets[query + 1]
        n = end - start
        if n == 0:
            for rank in range(k):
                rankings[rows, rank] = NOBODY
            weights[rows] = 1.0
            rows += 1
        else:
            page = min(k, n)
            fill_slots(bias, page, n, slots, rank_of_slot)
            blocks = best_blocks(
                need[start:end], least[start:end], gain[start:end], slots[:n], order[:n], ends, share, slot_share
            )
            rows += _mixture(
                order[:n],
                ends,
                blocks,
                share,
                slot_share,
                page,
                rank_of_slot,
                documents[start:end],
                _place_of(documents[start:end], steady, query),
                rankings[rows:],
                weights[rows:],
            )
        row_offsets[query + 1] = rows
    return rankings[:rows].copy(), weights[:rows].copy(), row_offsets


@nb.njit(cache=True)
def _scratch(most: Any, k: Any) -> Any:
    """Room for the slots, the order and the blocks of one query at a time."""
    order, ends = np.empty(most, np.int64), np.empty(most + 1, np.int64)
    return np.zeros(max(most, k)), np.empty(k, np.int64), order, ends, np.empty(most), np.empty(most)


@nb.njit(cache=True)
def _place_of(documents: Any, wanted: Any, query: Any) -> Any:
    """The candidate that is the document wanted for a query."""
    if wanted.shape[0] > 0:
        for i in range(documents.shape[0]):
            if documents[i] == wanted[query]:
                return i
    return NOBODY


@nb.njit(cache=True)
def _most_candidates(offsets: Any) -> Any:
    most = 1
    for query in range(offsets.shape[0] - 1):
        most = max(most, offsets[query + 1] - offsets[query])
    return most


# --- clicks, for many prices ----------------------------------------------------------------------------------------------


@nb.njit(cache=True, nogil=True)
def predicted_clicks(
    offsets: Any,
    documents: Any,
    need: Any,
    least: Any,
    relevance: Any,
    price: Any,
    bias: Any,
    steady: Any,
    theta: Any,
    judged: Any,
) -> Any:
    """Expected clicks on what ``least_variance`` with gain = price * relevance shows for each query, if theta is position bias
    and documents are as relevant as ``judged``.

    Where the design's bias is position bias, exposure tells them and no ranking is made.
    """
    queries = offsets.shape[0] - 1
    k = bias.shape[0]
    most = _most_candidates(offsets)
    slots, rank_of_slot, order, ends, share, slot_share = _scratch(most, k)
    by_exposure = np.array_equal(bias, theta)
    rankings = np.empty((0 if by_exposure else 2 * most, k), np.int32)
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
            clicks[query] = _clicks_of_blocks(judged[start:end], slots, order, ends, blocks, share)
            continue
        place = _place_of(documents[start:end], steady, query)
        rows = _mixture(
            order[:n], ends, blocks, share, slot_share, page, rank_of_slot, itself, place, rankings, weights
        )
        for row in range(rows):
            for rank in range(page):
                clicks[query] += weights[row] * theta[rank] * judged[start + rankings[row, rank]]
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
