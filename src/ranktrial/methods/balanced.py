"""Balanced interleaving (Joachims 2002): the oldest method, kept for its known bias.

A coin decides which ranker leads; the lists are merged by turns, skipping what is placed. To read clicks, find the
deepest clicked document, let j be its better rank in the two lists, and compare the clicks in each ranker's top j. A random
clicker can favour one ranker: with A = a b c and B = b c a, B wins twice as often.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranktrial.arrays import NO_DOCUMENT, BoolArray, DocumentArray, FloatArray, IntArray
from ranktrial.methods.base import Method, Traits
from ranktrial.methods.displays import Displays, Majority
from ranktrial.methods.list_tables import positions_in
from ranktrial.rankings import Mixture, Pair


@dataclass(frozen=True, repr=False)
class Balanced(Method):
    """Balanced interleaving.

    Random clicks favour B here, which has moved one document of A's list to the end:

    >>> from ranktrial.users import position_based
    >>> pair = Pair.from_lists(["abcd"], ["bcda"], k=4)
    >>> round(Balanced().moments(pair, position_based([0.3] * 4, [1.0] * 4)).mean, 3)
    -0.357
    """

    traits = Traits(fair_to_random_clicks=False, step=1.0)

    def displays(self, pair: Pair) -> Displays:
        a_leads = _merge(pair.top_a, pair.top_b)
        b_leads = _merge(pair.top_b, pair.top_a)
        mixture = Mixture.of_tables([a_leads, b_leads], (0.5, 0.5), pair.n_documents)
        queries = np.repeat(np.arange(pair.n_queries), 2)
        in_a = rank_in(mixture.rankings, pair.top_a[queries])
        in_b = rank_in(mixture.rankings, pair.top_b[queries])
        # Row r of the credits: the deepest click is at rank r, so each ranker's top min(in_a, in_b) + 1 counts.
        reach = np.minimum(in_a, in_b)[:, :, None]
        for_a, for_b = in_a[:, None, :] <= reach, in_b[:, None, :] <= reach
        return Displays(mixture, Majority(_alone(for_a, for_b), _alone(for_b, for_a)))


def _alone(mine: BoolArray, other: BoolArray) -> FloatArray:
    """A click in both tops counts for both, so it counts for neither."""
    return (mine & ~other).astype(float)


def _merge(first: DocumentArray, second: DocumentArray) -> DocumentArray:
    """Merge two tables of lists by turns, ``first`` leading, skipping documents already placed."""
    n, k = first.shape
    merged = np.full((n, k), NO_DOCUMENT, np.int32)
    length = np.zeros(n, np.int64)
    rows = np.arange(n)
    for source in np.stack([first, second], axis=2).reshape(n, 2 * k).T:
        new = (source != NO_DOCUMENT) & ~(merged == source[:, None]).any(1) & (length < k)
        merged[rows[new], length[new]] = source[new]
        length += new
    return merged


def rank_in(rankings: DocumentArray, lists: DocumentArray) -> IntArray:
    """0-based rank in ``lists`` of each document of ``rankings``, past every rank where it is absent."""
    found = positions_in(rankings, lists)
    return np.where(found < 0, 2 * lists.shape[1], found)
