"""Optimized interleaving (Radlinski and Craswell 2013).

A ranking may be shown if every prefix of it is the union of a prefix of A and a prefix of B. Clicks earn a credit per document
by how differently the rankers place it. The distribution over allowed rankings is chosen so that at every rank the
expected credit is zero: where all documents are equally relevant, neither ranker wins. Among such distributions the one
of greatest sensitivity is taken: with a click at rank r having probability proportional to 1/r, the chance that it is credited
at all times the entropy of whom it favours.

Clicks count within the length of the shorter list only: beyond it one ranker alone has documents to place.

All allowed rankings are enumerated (at most 2^k) and the linear programme is solved exactly. Where the constraints cannot
be met the total violation is minimised and such queries are counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, BoolArray, DocumentArray, IntArray, offsets_of, ragged
from ranktrial.methods._kernels.optimized import optimized_displays
from ranktrial.methods.base import Method, Traits, spelled
from ranktrial.methods.displays import Displays, Linear, TooManyDisplaysError
from ranktrial.methods.list_tables import ListTables
from ranktrial.rankings import Mixture, Pair

MOST_RANKINGS = 1 << 16


@dataclass(frozen=True, repr=False)
class Optimized(Method):
    """Optimized interleaving.

    Attributes:
        credit: A click's credit: "inverse" is 1/rank_A - 1/rank_B, "linear" rank_B - rank_A.
        constraints: Quantity that must be balanced at every rank: "credit" itself, or "linear" whatever the credit is (as the
            authors' code does: then documents of equal relevance do not give zero).

    >>> for shown in Optimized().displays(Pair.from_lists(["abc"], ["bca"], k=2)).of_query(0):
    ...     print(shown.documents, round(shown.probability, 3), [round(credit, 3) for credit in shown.credits])
    (0, 1) 0.429 [0.667, -0.5]
    (1, 0) 0.371 [-0.5, 0.667]
    (1, 2) 0.2 [-0.5, -0.167]
    """

    credit: str = spelled("inverse")
    constraints: str = "credit"

    def __post_init__(self) -> None:
        checks.one_of("credit", self.credit, ("inverse", "linear"))
        checks.one_of("constraints", self.constraints, ("credit", "linear"))

    def displays(self, pair: Pair) -> Displays:
        inverse = self.credit == "inverse"
        # Where several distributions are equally good the solver picks by the order of its columns. Solving every query with
        # its lists in one order, whichever is called A, makes swapping the rankers flip the outcome exactly.
        flip = _comes_after(pair.top_a, pair.top_b)
        first = np.where(flip[:, None], pair.top_b, pair.top_a)
        second = np.where(flip[:, None], pair.top_a, pair.top_b)
        lists = ListTables.of(first, second)
        length_a, length_b = lists.length_a, lists.length_b
        # The programme knows documents by their places in the lists alone: it is solved once for all queries alike in these.
        alike, of_query = _distinct(np.column_stack([lists.a_in_b, length_a, length_b]))
        codes, weights, credits, solved, violations = optimized_displays(
            lists.of_queries(alike),
            inverse,
            inverse and self.constraints == "credit",
            MOST_RANKINGS,
        )
        sizes = np.diff(solved)[of_query]
        violations = violations[of_query]
        rows = ragged(solved[of_query], sizes)
        offsets = offsets_of(sizes)
        each = np.repeat(np.arange(pair.n_queries), sizes)[:, None]
        in_a = codes[rows] < length_a[each]
        own = codes[rows] - np.where(in_a, 0, length_a[each])
        rankings = np.where(codes[rows] < 0, NO_DOCUMENT, np.where(in_a, first[each, own], second[each, own]))
        credits = credits[rows] * np.where(flip, -1.0, 1.0)[each]
        if np.any(violations < 0):
            query = int(np.argmin(violations))
            raise TooManyDisplaysError(
                f"query {query} has more than {MOST_RANKINGS:,} allowed rankings at k = {pair.k}; "
                "optimized interleaving enumerates them all, so use a smaller k"
            )
        unbalanced = int((violations > 0).sum())
        note = f"{unbalanced} of {pair.n_queries} queries could not be balanced" if unbalanced else ""
        return Displays(Mixture(rankings, weights[rows], offsets, pair.n_documents), Linear(credits), note)

    @property
    def traits(self) -> Traits:
        return Traits(fair_to_random_clicks=self.credit == "linear" or self.constraints == "credit")


def _comes_after(one: DocumentArray, other: DocumentArray) -> BoolArray:
    """Row by row, whether one list comes after the other in the order of document ids."""
    differs = one != other
    at = differs.argmax(1)
    rows = np.arange(len(one))
    return np.asarray(one[rows, at] > other[rows, at])


def _distinct(rows: NDArray[np.int64]) -> tuple[IntArray, IntArray]:
    """The first of all rows that are equal, and for each row which of these it is equal to."""
    packed = np.ascontiguousarray(rows, np.int8)
    _, first, which = np.unique(packed.view(f"V{packed.shape[1]}")[:, 0], return_index=True, return_inverse=True)
    return first, which
