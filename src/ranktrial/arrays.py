"""Array types and the ragged layout used everywhere: flat arrays plus query offsets.

Documents of query q are rows ``offsets[q]:offsets[q + 1]`` of every flat array; a *document id* is such a row number, so
``zeta[document]`` needs no query. A table of rankings is an ``(n, k)`` array of document ids, ``NO_DOCUMENT`` where a
list is shorter than k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.integer[Any]]  # of any width
DocumentArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]
Numbers = NDArray[np.floating[Any]]  # of either precision

NO_DOCUMENT = -1
ODD = np.uint64(0x9E3779B97F4A7C15)  # times it, numbers are spread over all of 64 bits


def offsets_of(lengths: ArrayLike) -> IntArray:
    """Offsets of consecutive groups of the given lengths.

    >>> offsets_of([2, 0, 3])
    array([0, 2, 2, 5])
    """
    lengths = np.asarray(lengths, np.int64)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def ragged(starts: IntArray, sizes: IntArray) -> IntArray:
    """Indices of groups that begin anywhere, one group after the other.

    >>> ragged(np.array([7, 0]), np.array([2, 3]))
    array([7, 8, 0, 1, 2])
    """
    return np.repeat(starts - offsets_of(sizes)[:-1], sizes) + np.arange(int(sizes.sum()))


def sum_by_group(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Sum of a flat array over each group; empty groups give 0.

    >>> sum_by_group(np.array([1., 2., 3.]), np.array([0, 2, 2, 3]))
    array([3., 0., 3.])
    """
    found = np.zeros(len(offsets) - 1)
    full = np.flatnonzero(np.diff(offsets))
    if len(full):
        found[full] = np.add.reduceat(values, offsets[full])
    return found


def weighted_counts(cells: NDArray[np.integer], weights: FloatArray, n: int) -> FloatArray:
    """Sum of the weights that fall into each of n cells."""
    return np.bincount(cells, weights, n).astype(np.float64, copy=False)
