"""Counts of a log in plain NumPy, slot by slot, or pooled over the versions of a design: what must not be done, for tests that
show why.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ranktrial.arrays import FloatArray, IntArray, ragged, weighted_counts
from ranktrial.log import Log
from ranktrial.position_bias import Counts


def pooled_counts(log: Log, groups: int = 20) -> list[Counts]:
    """Shows and clicks per query and document, whichever design showed them, for each group of units."""
    return plain_counts(log, log.document, log.document_query, log.group(groups), groups)


def plain_counts(log: Log, candidate: IntArray, query: IntArray, group: IntArray, groups: int) -> list[Counts]:
    """Shows and clicks of candidates, of which each slot is one or (if negative) none, for each group of impressions."""
    n = len(query)
    keys, tables = _tables(log, candidate, n, group, groups)
    ends = np.searchsorted(keys, np.arange(groups + 1) * n).tolist()
    return [
        Counts(n, keys[a:b] - g * n, tables[0, a:b], tables[1, a:b], query[keys[a:b] - g * n], tables[2, a:b])
        for g, (a, b) in enumerate(pairwise(ends))
    ]


def _tables(log: Log, candidate: IntArray, n: int, group: IntArray, groups: int) -> tuple[IntArray, FloatArray]:
    """Tables of shows, clicks and expected shows by rank, and what each row is of: group * n + candidate."""
    k, wanted, inside = log.k, candidate >= 0, group >= 0
    impression, rank = np.nonzero(log.clicks)
    slot = log.rankings[log.row[impression], rank]
    pairs, times = np.unique(log.design[inside] * groups + group[inside], return_counts=True)
    design, of_group = np.divmod(pairs, groups)  # what each group had of each design
    sizes = np.diff(log.slot_offsets)[design]
    slots, which = ragged(log.slot_offsets[design], sizes), np.repeat(np.arange(len(pairs)), sizes)
    use = wanted[slots]
    slots, which = slots[use], which[use]
    keys, row = np.unique(of_group[which] * n + candidate[slots], return_inverse=True)  # of a row of the tables
    tables = np.zeros((3, len(keys), k))
    np.add.at(tables[2], row, times[which][:, None] * log.placement_of(np.arange(log.n_slots))[slots])
    displays, shown = np.unique(log.row[inside] * groups + group[inside], return_counts=True)
    rankings, of_group = log.rankings[displays // groups], displays % groups
    standing = (rankings >= 0) & wanted[rankings]
    number, at = np.nonzero(standing)
    row = np.searchsorted(keys, of_group[number] * n + candidate[rankings[standing]])
    tables[0] = weighted_counts(row * k + at, shown[number].astype(np.float64), tables[0].size).reshape(-1, k)
    hit = inside[impression] & wanted[slot]
    row = np.searchsorted(keys, group[impression[hit]] * n + candidate[slot[hit]])
    tables[1] = np.bincount(row * k + rank[hit], minlength=tables[1].size).reshape(-1, k)
    return keys, tables
