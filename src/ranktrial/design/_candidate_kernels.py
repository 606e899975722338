"""Compiled candidates of a design: the documents that may be shown, with the need and the least exposure of each."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

NOBODY = -1


@nb.njit(cache=True)
def unite(tables: Any, theta: Any, n_documents: Any) -> Any:
    """The documents that either ranker shows for each query, in the order in which they fill a page.

    That is by falling mean exposure, then by mean rank, then by number: the same whichever ranker comes first.

    Args:
        tables: Lists that each ranker shows, (2, queries, k).

    Returns:
        Offsets of the queries and the documents; for each of them how far the exposures that the rankers give it are apart, and
        the lesser of them.
    """
    _, queries, k = tables.shape
    offsets = np.zeros(queries + 1, np.int64)
    documents = np.empty(tables.size, np.int32)
    differences = np.empty(tables.size)
    least = np.empty(tables.size)
    found = np.empty(2 * k, np.int32)
    order = np.empty(2 * k, np.int64)
    exposure = np.empty((2 * k, 2))
    total = np.empty(2 * k)
    ranks = np.empty(2 * k, np.int64)
    number = np.full(n_documents, NOBODY, np.int64)
    filled = 0
    for query in range(queries):
        n = 0
        for ranker in range(2):
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
                    exposure[i, 0] = 0.0
                    exposure[i, 1] = 0.0
                    ranks[i] = 2 * k
                exposure[i, ranker] = theta[rank]
                ranks[i] += rank - k
        for i in range(n):
            number[found[i]] = NOBODY
            total[i] = exposure[i, 0] + exposure[i, 1]
            j = i
            while j > 0 and _fills_after(order[j - 1], i, total, ranks, found):
                order[j] = order[j - 1]
                j -= 1
            order[j] = i
        for i in order[:n]:
            documents[filled] = found[i]
            differences[filled] = abs(exposure[i, 0] - exposure[i, 1])
            least[filled] = min(exposure[i, 0], exposure[i, 1])
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


@nb.njit(cache=True)
def keep_first(tables: Any, offsets: Any, documents: Any, lesser: Any, lowest: Any, floors: Any) -> Any:
    """The document that both rankers put first, of each query, NOBODY where there is none; its floor is raised.

    Args:
        tables: Lists that each ranker shows, (2, queries, k).
        offsets: Start of each query's candidates.
        documents: The candidates.
        lesser: The lesser exposure that the rankers give each.
        lowest: Exposure that the first of all must have, unless the rankers give it less.
        floors: Floor of each candidate; changed.
    """
    first = np.full(tables.shape[1], NOBODY, np.int32)
    for query in range(tables.shape[1]):
        if tables[0, query, 0] == tables[1, query, 0]:
            first[query] = tables[0, query, 0]
        for i in range(offsets[query], offsets[query + 1]):
            if documents[i] == first[query]:
                floors[i] = max(floors[i], min(lesser[i], lowest))
    return first
