"""Tables of both rankers' lists, and where the documents of one stand in the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import NO_DOCUMENT, DocumentArray, IntArray


def positions_in(lists: DocumentArray, others: DocumentArray) -> IntArray:
    """Position of each entry of ``lists`` in the same row of ``others``, -1 where it is absent."""
    same = (lists[:, :, None] == others[:, None, :]) & (lists != NO_DOCUMENT)[:, :, None]
    return np.where(same.any(2), same.argmax(2), -1)


class ListTables(NamedTuple):
    """Two tables of lists, where each list's documents stand in the other (-1: nowhere), and the lists' lengths."""

    top_a: DocumentArray
    top_b: DocumentArray
    a_in_b: NDArray[np.int8]
    b_in_a: NDArray[np.int8]
    length_a: IntArray
    length_b: IntArray

    @classmethod
    def of(cls, a: DocumentArray, b: DocumentArray) -> ListTables:
        a_in_b, b_in_a = positions_in(a, b).astype(np.int8), positions_in(b, a).astype(np.int8)
        return cls(a, b, a_in_b, b_in_a, (a != NO_DOCUMENT).sum(1), (b != NO_DOCUMENT).sum(1))

    def of_queries(self, queries: IntArray) -> ListTables:
        """Return the tables of some queries."""
        return ListTables._make(table[queries] for table in self)
