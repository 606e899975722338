"""Compiled best exposure: blocks of documents that share ranks, and each document's share of its block.

Candidates of a query are numbered in the order in which they would fill its page. *Slots* are the ranks of the page by
falling bias, then as many of bias 0 as there are candidates left. A *block* is a stretch of slots and the candidates that
share it: whatever is shown, they stand on these slots. Inside a block everything is counted in shares of its exposure,
so that blocks of any size, and needs of any scale, meet the same rounding.

A service waits for these loops to be compiled, so they are written to be compiled quickly: ``np.int64(0)`` where a plain 0
would have whatever is called with it compiled for the number 0 too, and loops in the place of slices that are set and of
NumPy's sorting, which cost more to compile than all of what is here.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

LEAST_SHARE = 1e-10  # of the mean in its block: no document that matters gets less, or rounding could hide it
ROUNDING = 1e-15  # of a block's exposure: less than this too much is not too much
ROUNDING_OF_FLOOR = 1e-12  # floors that add up to the whole page still fit on it
INSERT_UP_TO = 40


@nb.njit(cache=True)
def sort_down(items: Any, start: Any, end: Any, keys: Any) -> None:
    """Sort items[start:end] by falling key; equal keys stay in order."""
    for first in range(start, end, INSERT_UP_TO):
        for i in range(first + 1, min(first + INSERT_UP_TO, end)):
            item = items[i]
            key = keys[item]
            j = i
            while j > first and keys[items[j - 1]] < key:
                items[j] = items[j - 1]
                j -= 1
            items[j] = item
    if end - start > INSERT_UP_TO:
        _merge_down(items, start, end, keys)


@nb.njit(cache=True)
def _merge_down(items: Any, start: Any, end: Any, keys: Any) -> None:
    """Merge stretches of INSERT_UP_TO items that are sorted by falling key."""
    merged = np.empty(end - start, np.int64)
    width = INSERT_UP_TO
    while width < end - start:
        for first in range(start, end, 2 * width):
            middle = min(first + width, end)
            last = min(middle + width, end)
            i = first
            j = middle
            for at in range(first - start, last - start):
                if j == last or (i < middle and keys[items[i]] >= keys[items[j]]):
                    merged[at] = items[i]
                    i += 1
                else:
                    merged[at] = items[j]
                    j += 1
        for at in range(end - start):
            items[start + at] = merged[at]
        width *= 2


@nb.njit(cache=True)
def fill_slots(bias: Any, page: Any, n: Any, slots: Any, rank_of_slot: Any) -> None:
    """Ranks of a page by falling bias, and the bias of each of n slots."""
    for slot in range(page):
        rank_of_slot[slot] = slot
    sort_down(rank_of_slot, np.int64(0), page, bias)
    for slot in range(page):
        slots[slot] = bias[rank_of_slot[slot]]
    for slot in range(page, n):
        slots[slot] = 0.0


@nb.njit(cache=True)
def _hull_blocks(need: Any, slots: Any, order: Any, ends: Any, share: Any, slot_share: Any) -> Any:
    """Blocks of the greatest convex minorant of (sum of needs, sum of slots), candidates by falling need.

    Inside a block exposure is proportional to need. Pooling neighbours adds only positive numbers, so a need far below the
    others keeps its precision, where differences of running sums would lose it.
    """
    n = need.shape[0]
    for i in range(n):
        order[i] = i
    sort_down(order, np.int64(0), n, need)
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
    start = np.int64(0)
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
def best_blocks(
    need: Any, least: Any, gain: Any, slots: Any, order: Any, ends: Any, share: Any, slot_share: Any
) -> Any:
    """Blocks of the exposure of least sum need^2 / exposure - gain * exposure, for one query; returns how many.

    Args:
        need: Need of each candidate.
        least: Exposure that each must have; an empty array for none.
        gain: Gain of each by a unit of exposure: its relevance times the price of a click; an empty array for none.
        slots: Bias of the slots.
        order: Filled with the candidates, block after block.
        ends: Filled with the end of each block.
        share: Filled with each candidate's share of its block's exposure, in blocks of more than one.
        slot_share: Filled with the share of each slot.
    """
    n = need.shape[0]
    # The page is full whatever is shown, so a gain that all have alike is none.
    priced = False
    for i in range(1, gain.shape[0]):
        priced |= gain[i] != gain[0]
    if not priced and least.shape[0] == 0:
        return _hull_blocks(need, slots, order, ends, share, slot_share)
    floors = least if least.shape[0] else np.zeros(n)
    gains = gain if priced else np.zeros(n)
    return _cut_blocks(need, floors, gains, slots, order, ends, share, slot_share)


@nb.njit(cache=True)
def _cut_blocks(
    need: Any, least: Any, gain: Any, slots: Any, order: Any, ends: Any, share: Any, slot_share: Any
) -> Any:
    """Blocks of the best exposure where candidates have gains, or must have their least.

    A block first ignores how slots limit its candidates, but for their sum; where some of them then have more than as many
    slots can give, the worst such set gets the best slots of the block, and both parts are solved again. (The decomposition
    of Fujishige and Groenevelt, exact for separable convex objectives on what the slots allow.)
    """
    n = need.shape[0]
    for i in range(n):
        order[i] = i
    exposure = np.empty(n)
    open_end = np.empty(n + 1, np.int64)  # ends of the blocks still to solve, the next one last
    open_end[0] = n
    n_open = 1
    blocks = 0
    start = np.int64(0)
    while n_open > 0:
        end = open_end[n_open - 1]
        total = slots[start:end].sum()
        if end - start == 1 or total == 0.0 or _may_just_fill(need, least, gain, slots, order, start, end):
            for i in range(start, end):
                ends[blocks] = i + 1
                blocks += 1
            start = end
            n_open -= 1
            continue
        _share_out(need, least, gain, total, order, start, end, exposure)
        sort_down(order, start, end, exposure)
        cut = _worst_prefix(exposure, slots, total, order, start, end)
        if cut > start:
            open_end[n_open] = cut
            n_open += 1
            continue
        shown = end  # those that nobody needs and no slot is left for have no part in the block
        while slots[shown - 1] == 0.0 and exposure[order[shown - 1]] == 0.0 and need[order[shown - 1]] == 0.0:
            shown -= 1
        for i in range(start, shown):
            share[order[i]] = exposure[order[i]] / total
            slot_share[i] = slots[i] / total
        _lift_least(order, start, shown, need, share)
        ends[blocks] = shown
        blocks += 1
        for i in range(shown, end):
            ends[blocks] = i + 1
            blocks += 1
        start = end
        n_open -= 1
    return blocks


@nb.njit(cache=True)
def _may_just_fill(need: Any, least: Any, gain: Any, slots: Any, order: Any, start: Any, end: Any) -> Any:
    """True if candidates without need reach their least exposure when they fill the slots by falling gain."""
    for i in range(start, end):
        if need[order[i]] > 0.0:
            return False
    in_order = np.empty(order.shape[0])
    for d in range(order.shape[0]):
        in_order[d] = -d
    sort_down(order, start, end, in_order)
    sort_down(order, start, end, gain)
    for i in range(start, end):
        if slots[i] < least[order[i]] * (1.0 - ROUNDING_OF_FLOOR):
            return False
    return True


@nb.njit(cache=True)
def _share_out(need: Any, least: Any, gain: Any, total: Any, order: Any, start: Any, end: Any, exposure: Any) -> None:
    """The best exposure of a block's candidates where only its sum is limited, and none may have less than its least."""
    lowest = np.inf
    highest = 0.0
    needed = 0.0
    for i in range(start, end):
        d = order[i]
        lowest = min(lowest, gain[d])
        highest = max(highest, gain[d])
        needed += need[d]
    # Gains that differ by less than rounding of the least marginal value are the same.
    if highest - lowest <= ROUNDING * (needed / total) ** 2 or highest == lowest:
        _share_out_by_need(need, least, total, order, start, end, exposure)
    else:
        _share_out_by_value(need, least, gain, highest, total, order, start, end, exposure)


@nb.njit(cache=True)
def _share_out_by_need(need: Any, least: Any, total: Any, order: Any, start: Any, end: Any, exposure: Any) -> None:
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
def _share_out_by_value(
    need: Any, least: Any, gain: Any, highest: Any, total: Any, order: Any, start: Any, end: Any, exposure: Any
) -> None:
    """exposure = max(least, need / sqrt(y + highest gain - gain)), y >= 0 such that the block's exposure is used up.

    y + highest gain is the value of a little more exposure, the same for all who have more than their least. With S the
    sum of the exposures above their least, 1 / S^2 is a concave function of y (a mean of order -1/2 of linear ones):
    Newton's steps from below never go too far, and the first is the last where gains are equal. Those who have no more
    than their least on the way have no more in the end. At y = 0 what is left over goes to a candidate of highest gain that
    needs none, the first of them.
    """
    y = 0.0
    for i in range(start, end):
        d = order[i]
        y = max(y, (need[d] / total) ** 2 - (highest - gain[d]))
    while True:
        kept = 0.0
        above = 0.0
        slope = 0.0
        for i in range(start, end):
            d = order[i]
            value = y + (highest - gain[d])
            x = need[d] / np.sqrt(value) if value > 0.0 else 0.0
            if x > least[d]:
                above += x
                slope += x / value
            else:
                x = least[d]
                kept += x
            exposure[d] = x
        room = total - kept
        if above <= room * (1.0 + 8 * ROUNDING):
            break
        if room <= 0.0:  # the floors leave nothing but rounding
            for i in range(start, end):
                exposure[order[i]] = least[order[i]]
            return
        following = y + above / slope * ((above / room) ** 2 - 1.0)
        if not following > y:
            break
        y = following
    if y == 0.0:
        first = -1
        for i in range(start, end):
            d = order[i]
            if gain[d] == highest and (first < 0 or d < first):
                first = d
        exposure[first] += room - above
    elif above > 0.0:
        for i in range(start, end):
            d = order[i]
            if exposure[d] > least[d]:
                exposure[d] *= room / above


@nb.njit(cache=True)
def _worst_prefix(exposure: Any, slots: Any, total: Any, order: Any, start: Any, end: Any) -> Any:
    """End of the prefix of candidates whose exposure exceeds that of the best slots by most; ``start`` if none does.

    The search ends at slots of no exposure: all exposure is above them, so an excess there is rounding.
    """
    worst = 10 * ROUNDING * total
    cut = start
    above = 0.0
    for i in range(start, end - 1):
        if slots[i + 1] == 0.0:
            break
        above += exposure[order[i]] - slots[i]
        if above > worst:
            worst = above
            cut = i + 1
    return cut
