"""Designs of a log as arrays, whoever made them.

A *design* is a query, two ranked lists, and the distribution that an impression was drawn from: rankings with their
probabilities. Its candidates are *slots*, numbered through over all designs; its rankings are *rows* of one table of slots.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.log._kernels import add_placements
from ranktrial.rankings._kernels import exposures, placed


@dataclass(frozen=True, eq=False, kw_only=True)
class Designs:
    """Designs of a log: the queries and documents, and the rankings that could be shown.

    Attributes:
        k: Ranks that count.
        queries: Name of each query.
        documents: Id of each (query, document), by query.
        document_query: Query of each.
        query: Query of each design.
        beliefs: Number of the beliefs that it was made from, increasing over time; 0 where nothing is learnt or known of it.
        slot_offsets: Candidates of design j are slots ``slot_offsets[j]:slot_offsets[j + 1]``.
        document: Number of each slot's (query, document), the same in all designs.
        rank_a: Rank from 0 of each slot in A's list, k or more if A does not show it; rank_b in B's.
        row_offsets: Rankings of design j are rows ``row_offsets[j]:row_offsets[j + 1]``.
        rankings: Slot at each rank of each row, -1 where nothing stands.
        weights: Probability of each row within its design; nan where they cannot be listed (see ``given_placement``).
        plain: Whether the last two rows of every design are A's own list and B's own: plain A/B traffic.
        given_placement: P(slot at rank), where a policy has too many rankings to list them.
    """

    k: int
    queries: Sequence[Hashable]
    documents: Sequence[Hashable]
    document_query: IntArray
    query: IntArray
    beliefs: IntArray
    slot_offsets: IntArray
    document: IntArray
    rank_a: IntArray
    rank_b: IntArray
    row_offsets: IntArray
    rankings: IntArray
    weights: FloatArray
    plain: bool = False
    given_placement: FloatArray | None = None

    @cached_property
    def n_designs(self) -> int:
        return len(self.query)

    @cached_property
    def n_slots(self) -> int:
        return len(self.document)

    @cached_property
    def design_of_slot(self) -> IntArray:
        return np.repeat(np.arange(self.n_designs), np.diff(self.slot_offsets))

    @cached_property
    def rank_width(self) -> int:
        """More than any rank of a candidate."""
        return int(max(self.rank_a.max(initial=0), self.rank_b.max(initial=0))) + 1

    def placement_of(self, slots: IntArray) -> FloatArray:
        """P(slot at rank) under its design, exactly, for some slots: ``(slots, k)``."""
        if self.given_placement is not None:
            return self.given_placement[slots]
        number, found = np.full(self.n_slots, -1, np.int32), np.zeros((len(slots), self.k))
        number[slots] = np.arange(len(slots))
        add_placements(
            np.unique(self.design_of_slot[slots]), self.row_offsets, self.rankings, self.weights, number, found
        )
        return found

    def placement_at(self, rank: IntArray) -> FloatArray:
        """P(slot at its rank of these) under its design; 0 for ranks past the last."""
        if self.given_placement is not None:
            at_rank = self.given_placement[np.arange(self.n_slots), np.minimum(rank, self.k - 1)]
            return np.where(rank < self.k, at_rank, 0.0)
        found = np.zeros(self.n_slots)
        placed(self.rankings, self.weights, rank, found)
        return found

    def exposure(self, theta: FloatArray) -> FloatArray:
        """rho of each slot: the probability that it is examined under its design."""
        if self.given_placement is not None:
            return np.asarray(self.given_placement @ theta)
        rho = np.zeros(self.n_slots)
        exposures(self.rankings, self.weights, theta, rho)
        return rho

    def list_exposures(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """P(examined) of each slot in A's list and in B's."""
        padded = np.append(theta, 0.0)
        return padded[np.minimum(self.rank_a, self.k)], padded[np.minimum(self.rank_b, self.k)]

    @cached_property
    def ab_shares(self) -> FloatArray:
        """Probabilities of A's own list and of B's own, for each design: ``(designs, 2)``."""
        if not self.plain:
            return np.zeros((self.n_designs, 2))
        last = self.row_offsets[1:] - 1
        return np.stack([self.weights[last - 1], self.weights[last]], axis=1)

    @cached_property
    def differ(self) -> BoolArray:
        """Flags of the designs whose two lists differ."""
        apart = np.minimum(self.rank_a, self.k) != np.minimum(self.rank_b, self.k)
        return np.asarray(np.bincount(self.design_of_slot[apart], minlength=self.n_designs) > 0)
