"""The data set: queries, each with its documents, their labels and their features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial.arrays import FloatArray, IntArray, offsets_of, ragged
from ranktrial.checks import probabilities

ARRAYS = ("offsets", "labels", "features", "query_ids", "feature_ids")
LEAST_ZETA = 0.1
ZETA_STEP = 0.225


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Labelled documents of many queries in flat arrays (see ``ranktrial.arrays`` for the layout).

    Attributes:
        offsets: documents of query q are rows ``offsets[q]:offsets[q + 1]``; int64, one more than there are queries.
        labels: relevance grade of each document; int16.
        features: one row per document; float32, since the files carry at most 7 significant digits and half the memory
            means half the time to read it. May be memory-mapped.
        query_ids: the ids of the file; int64.
        feature_ids: the ids of the columns in the file, counted from 1; int32.
        name: what to call the set in tables and charts.
    """

    offsets: IntArray
    labels: NDArray[np.int16]
    features: NDArray[np.float32]
    query_ids: IntArray
    feature_ids: NDArray[np.int32]
    name: str = "dataset"

    def __post_init__(self) -> None:
        if len(self.offsets) == 0 or self.offsets[0] != 0 or np.any(np.diff(self.offsets) < 0):
            raise ValueError("offsets must start at 0 and never decrease")
        documents = int(self.offsets[-1])
        if len(self.labels) != documents:
            raise ValueError(f"{len(self.labels)} labels, but the offsets count {documents} documents")
        if self.features.shape != (documents, len(self.feature_ids)):
            raise ValueError(
                f"features have shape {self.features.shape}, must be {documents} documents x "
                f"{len(self.feature_ids)} feature ids"
            )
        if len(self.query_ids) != self.n_queries:
            raise ValueError(f"{len(self.query_ids)} query ids, but the offsets count {self.n_queries} queries")

    @property
    def n_queries(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_documents(self) -> int:
        return int(self.offsets[-1])

    @property
    def n_features(self) -> int:
        return len(self.feature_ids)

    def rows(self, queries: ArrayLike) -> IntArray:
        """Row numbers of all documents of these queries, query after query."""
        queries = np.asarray(queries, np.int64)
        return ragged(self.offsets[queries], np.diff(self.offsets)[queries])

    def take(self, queries: ArrayLike) -> Dataset:
        """The data set of these queries (positions from 0), in the order given; features are copied into memory."""
        queries = np.asarray(queries, np.int64)
        outside = queries[(queries < 0) | (queries >= self.n_queries)]
        if len(outside):
            raise ValueError(f"query {outside[0]} does not exist, {self.name} has queries 0 to {self.n_queries - 1}")
        rows = self.rows(queries)
        return Dataset(
            offsets=offsets_of(np.diff(self.offsets)[queries]),
            labels=self.labels[rows],
            features=np.ascontiguousarray(self.features[rows]),
            query_ids=self.query_ids[queries],
            feature_ids=self.feature_ids,
            name=self.name,
        )

    def zeta(self) -> FloatArray:
        """Probability that each document is clicked once examined: ``0.1 + 0.225 * label``, as in the paper."""
        # Rounding may pass 1 by one unit in the last place (0.1 + 4 * 0.225); anything more is an error.
        zeta = LEAST_ZETA + ZETA_STEP * self.labels.astype(np.float64)
        if np.any(zeta > 1 + 1e-12):
            top = int(self.labels.max())
            raise ValueError(f"label {top} would be clicked with probability {zeta.max():g}, labels must be at most 4")
        return probabilities("zeta", np.where(np.abs(zeta - 1) < 1e-12, 1.0, zeta))

    def __repr__(self) -> str:
        lengths = np.diff(self.offsets)
        spread = f"{lengths.min()} to {lengths.max()} a query, median {np.median(lengths):g}" if len(lengths) else ""
        share = np.bincount(np.maximum(self.labels, 0)) / max(self.n_documents, 1)
        labels = "  ".join(f"{label}: {part:.1%}" for label, part in enumerate(share[:10]))
        kept = "memory-mapped" if isinstance(self.features, np.memmap) else "in memory"
        return "\n".join(
            [
                f"Dataset {self.name}",
                f"  queries   {self.n_queries:>11,}",
                f"  documents {self.n_documents:>11,}  {spread}".rstrip(),
                f"  features  {self.n_features:>11,}  {self.features.dtype}, {kept}",
                f"  labels    {labels}",
            ]
        )


def load_dataset(folder: Path, name: str, read: Callable[[Path], Any]) -> Dataset:
    """The data set whose arrays are files of a folder."""
    return Dataset(**{array: read(folder / f"{array}.npy") for array in ARRAYS}, name=name)


def mapped(file: Path) -> Any:
    """An array shared with every process that maps the file. Copy-on-write rather than read-only, so that kernels see the
    same type as for an array in memory and are not compiled twice."""
    try:
        return np.load(file, mmap_mode="c")
    except ValueError:
        return np.load(file)  # no operating system maps an empty array
