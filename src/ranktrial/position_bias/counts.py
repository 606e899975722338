"""Counts of shows and clicks per (document, rank): all that click models need from a log.

These counts are sufficient for every model of this package in which clicks are independent given the ranking, they
add up over machines and days, and their size does not grow with the log. Only documents that were (or could have
been) shown take a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.position_bias import _kernels


@dataclass(frozen=True, eq=False)
class Counts:
    """Shows and clicks per (document, rank); ``a + b`` merges two logs, ``total - part`` takes one out again.

    Attributes:
        n_documents: number of documents of the data set, shown or not; document ids run from 0.
        documents: ids of the rows, increasing.
        shown: how often each of them stood at each rank, ``(rows, k)``.
        clicked: how often it was clicked there.
        queries: query of each row, where known; standard errors then treat queries as the independent units.
        expected: how often the design meant to put it there (impressions times placement), where the design is known.

    >>> counts = Counts.from_impressions([[0, 1], [1, 0]], [[True, False], [True, False]], n_documents=3)
    >>> counts
    Counts(documents=2 of 3, k=2, shows=4, clicks=2)
    >>> (counts + counts).clicked
    array([[2., 0.],
           [2., 0.]])
    """

    n_documents: int
    documents: IntArray
    shown: FloatArray
    clicked: FloatArray
    queries: IntArray | None = None
    expected: FloatArray | None = None

    @property
    def k(self) -> int:
        """Number of ranks."""
        return int(self.shown.shape[1])

    @property
    def seen(self) -> BoolArray:
        """Rows that were shown at least once."""
        return np.asarray(self.shown.sum(1) > 0)

    @property
    def clicked_ranks(self) -> BoolArray:
        """Ranks that were clicked at least once."""
        return np.asarray(self.clicked.sum(0) > 0)

    @property
    def click_rate(self) -> FloatArray:
        """Clicks per show at each rank; 0 where nothing was shown."""
        shows = self.shown.sum(0)
        return np.asarray(self.clicked.sum(0) / np.where(shows > 0, shows, np.inf))

    @classmethod
    def from_dense(
        cls,
        shown: ArrayLike,
        clicked: ArrayLike,
        *,
        offsets: ArrayLike | None = None,
        expected: ArrayLike | None = None,
    ) -> Counts:
        """Build counts from ``(documents, k)`` tables. ``offsets`` says which rows belong to which query.

        Counts need not be whole numbers: expected counts are welcome.

        >>> Counts.from_dense([[9, 9], [4, 5], [7, 0]], [[3, 1], [2, 0], [1, 0]], offsets=[0, 2, 3])
        Counts(documents=3 of 3, k=2, shows=34, clicks=7)
        """
        shown, clicked = _table("shown", shown), _table("clicked", clicked)
        if shown.shape != clicked.shape:
            raise ValueError(f"shown is {shown.shape}, clicked is {clicked.shape} (documents, ranks): must agree")
        _refuse(clicked > shown, "{} is clicked more often than shown", clicked, shown)
        n = len(shown)
        queries = None if offsets is None else _queries(offsets, n)
        design = None
        if expected is not None:
            design = _table("expected", expected)
            if design.shape != shown.shape:
                raise ValueError(f"expected is {design.shape}, shown is {shown.shape} (documents, ranks): must agree")
            _refuse((shown > 0) & (design == 0), "{} is shown although the design never puts it there", shown, design)
        possible = shown if design is None else shown + design
        return cls(n, np.arange(n), shown, clicked, queries, design)._at(np.flatnonzero(possible.any(1)))

    @classmethod
    def from_impressions(
        cls,
        rankings: ArrayLike,
        clicks: ArrayLike,
        *,
        n_documents: int,
        offsets: ArrayLike | None = None,
        placement: ArrayLike | None = None,
    ) -> Counts:
        """Build counts from displayed document ids ``(impressions, k)``, -1 past the end, and clicks of the same shape.

        ``placement`` is the design's P(document at rank), ``(n_documents, k)``, and needs ``offsets``. When the design
        changes during a log, count each version with its own placement and add the parts.

        >>> shown, clicked = [[2, 0], [0, 1], [2, 1]], [[True, False], [True, True], [False, False]]
        >>> Counts.from_impressions(shown, clicked, n_documents=3).clicked
        array([[1., 0.],
               [0., 1.],
               [1., 0.]])
        """
        table, clicks = np.asarray(rankings), np.asarray(clicks, bool)
        if table.ndim != 2 or table.shape != clicks.shape:
            raise ValueError(f"rankings is {table.shape}, clicks is {clicks.shape}: must be the same (impressions, k)")
        if not np.issubdtype(table.dtype, np.integer):
            raise ValueError(f"rankings holds {table.dtype}, must hold document ids (integers)")
        _refuse_impression((table < -1) | (table >= n_documents), table, f"must be -1 or 0 to {n_documents - 1}")
        _refuse_impression((table == -1) & clicks, table, "is clicked although nothing is shown there")
        shown = np.zeros((n_documents, table.shape[1]))
        clicked = np.zeros_like(shown)
        _kernels.count_impressions(table, clicks, shown, clicked)
        expected = None
        if placement is not None:
            if offsets is None:
                raise ValueError("placement needs offsets: how often a query was shown decides what the design expects")
            queries = _queries(offsets, n_documents)
            # Each impression has one document at the top, so its query was shown as often as its documents were there.
            expected = _table("placement", placement) * np.bincount(queries, shown[:, 0])[queries, None]
        return cls.from_dense(shown, clicked, offsets=offsets, expected=expected)

    @classmethod
    def merged(cls, parts: Iterable[Counts]) -> Counts:
        """The sum of many parts of one log."""
        parts = list(parts)
        if not parts:
            raise ValueError("there is nothing to merge: no counts given")
        first = parts[0]
        if len(parts) == 1:
            return first
        for part in parts[1:]:
            first._require_alike(part)
        documents, at, row = np.unique(_joined(parts, "documents"), return_index=True, return_inverse=True)
        rows = np.split(row, np.cumsum([len(part.documents) for part in parts])[:-1])

        def total(name: str) -> Any:
            if getattr(first, name) is None:
                return None
            found = np.zeros((len(documents), first.k))
            for own, part in zip(rows, parts):  # a part has no row twice
                found[own] += getattr(part, name)
            return found

        queries = None if first.queries is None else _joined(parts, "queries")[at]
        return cls(first.n_documents, documents, total("shown"), total("clicked"), queries, total("expected"))

    @classmethod
    def stacked(cls, parts: Sequence[Counts]) -> Counts:
        """Stack many parts of one log so that no document is compared with itself in another part.

        Every part has documents of its own, those of part v numbered from ``v * n_documents`` on.

        >>> day = Counts.from_dense([[9, 9], [4, 5]], [[3, 1], [2, 0]])
        >>> Counts.stacked([day, day])
        Counts(documents=4 of 4, k=2, shows=54, clicks=12)
        """
        first = parts[0]
        if len(parts) == 1:
            return first
        for part in parts:
            first._require_alike(part)
        n = first.n_documents
        documents = np.concatenate([part.documents + n * at for at, part in enumerate(parts)])
        names = ("shown", "clicked", "queries", "expected")
        return cls(n * len(parts), documents, *(_joined(parts, name) for name in names))

    def __add__(self, other: Counts) -> Counts:
        return Counts.merged([self, other])

    def __sub__(self, part: Counts) -> Counts:
        """The log without ``part``, which must be contained in it."""
        self._require_alike(part)
        row = self._rows(part.documents)

        def left(whole: FloatArray, piece: FloatArray) -> FloatArray:
            out = whole.copy()
            out[row] -= piece
            # Sums of fractions need not cancel exactly.
            out[np.abs(out) < 1e-12 * (1 + whole)] = 0.0
            return out

        shown, clicked = left(self.shown, part.shown), left(self.clicked, part.clicked)
        bad = (shown < 0) | (clicked < 0) | (clicked > shown)
        if bad.any():
            d, r = np.argwhere(bad)[0]
            raise ValueError(f"document {self.documents[d]} at rank {r + 1}: the part holds more than these counts")
        expected = None
        if self.expected is not None and part.expected is not None:
            expected = np.maximum(left(self.expected, part.expected), 0.0)
        return replace(self, shown=shown, clicked=clicked, expected=expected)

    def of(self, documents: IntArray) -> Counts:
        """Return the counts of some documents only, by their numbers."""
        return self._at(self._rows(documents))

    def _at(self, rows: IntArray) -> Counts:
        queries = None if self.queries is None else self.queries[rows]
        expected = None if self.expected is None else self.expected[rows]
        return Counts(self.n_documents, self.documents[rows], self.shown[rows], self.clicked[rows], queries, expected)

    def _rows(self, documents: IntArray) -> IntArray:
        row = np.searchsorted(self.documents, documents)
        inside = row < len(self.documents)
        inside[inside] = self.documents[row[inside]] == documents[inside]
        if not inside.all():
            raise ValueError(f"document {documents[~inside][0]} of the part is not in these counts")
        return np.asarray(row)

    def _require_alike(self, other: Counts) -> None:
        if (self.n_documents, self.k) != (other.n_documents, other.k):
            raise ValueError(
                f"counts of {self.n_documents} documents x {self.k} ranks cannot be combined with "
                f"{other.n_documents} x {other.k}"
            )
        for name in ("queries", "expected"):
            if (getattr(self, name) is None) != (getattr(other, name) is None):
                raise ValueError(f"counts that know their {name} cannot be combined with counts that do not")

    def __repr__(self) -> str:
        design = "" if self.expected is None else ", design known"
        return (
            f"Counts(documents={len(self.documents)} of {self.n_documents}, k={self.k}, "
            f"shows={self.shown.sum():.10g}, clicks={self.clicked.sum():.10g}{design})"
        )


def _joined(parts: Sequence[Counts], name: str) -> Any:
    """An array of each part, one after the other; None if they do not have it."""
    return None if getattr(parts[0], name) is None else np.concatenate([getattr(part, name) for part in parts])


def _table(name: str, values: ArrayLike) -> FloatArray:
    table = np.asarray(values, np.float64)
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"{name} has shape {table.shape}, must be (documents, ranks)")
    bad = ~(np.isfinite(table) & (table >= 0))
    if bad.any():
        d, r = np.argwhere(bad)[0]
        raise ValueError(
            f"{name} of document {d} at rank {r + 1} is {table[d, r]:g}, must be a finite number, not negative"
        )
    return table


def _refuse(bad: np.ndarray, message: str, one: FloatArray, other: FloatArray) -> None:
    if bad.any():
        d, r = np.argwhere(bad)[0]
        raise ValueError(message.format(f"document {d} at rank {r + 1}") + f" ({one[d, r]:g} against {other[d, r]:g})")


def _refuse_impression(bad: np.ndarray, table: np.ndarray, message: str) -> None:
    if bad.any():
        i, r = np.argwhere(bad)[0]
        raise ValueError(f"impression {i}, rank {r + 1}: document {table[i, r]} {message}")


def _queries(offsets: ArrayLike, n_documents: int) -> IntArray:
    offsets = np.asarray(offsets, np.int64)
    if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != n_documents:
        raise ValueError(f"offsets must run from 0 to {n_documents}, the number of documents")
    if np.any(np.diff(offsets) < 0):
        raise ValueError(f"offsets decrease after query {int(np.argmax(np.diff(offsets) < 0))}")
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
