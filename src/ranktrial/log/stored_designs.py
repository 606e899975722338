"""Designs of a trial as arrays of a log, read from its store.

Designs are numbered in the order in which they were first used. Queries and documents are told apart by a hash of 64 bits,
whose seed nobody knows: texts are only decoded for people.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import IntArray, offsets_of, ragged
from ranktrial.log._kernels import find_slots, hash_texts
from ranktrial.log.designs import checksum, is_sound
from ranktrial.log.growing import Growing, Numbering, Texts
from ranktrial.log.sources import NOTHING, ranks_of
from ranktrial.store.base import DesignRow
from ranktrial.store.protocols import Store

LATER_PAGE, NOT_SHOWN, CELLS = 2**32, 2**33, 2**34  # a click's cell is a slot, or one of these plus a check sum
AT_ONCE = 2_000  # designs that are read together
DAMAGED = -1  # instead of a query


class StoredDesigns:
    """Designs that a log has needed so far, by number, and their arrays."""

    def __init__(self, store: Store, k: int) -> None:
        self._store, self._k = store, k
        self._seed = secrets.randbits(63)
        self._ids, self._query_keys, self._document_keys = Numbering(), Numbering(), Numbering()
        self._queries, self._documents = Texts(), Texts()
        self._query, self._beliefs, self._hashes = Growing(np.int64), Growing(np.int64), Growing(np.int64)
        self._slots, self._rows, self._rests = Growing(np.int64), Growing(np.int64), Growing(np.int64)
        self._document, self._document_query = Growing(np.int64), Growing(np.int64)
        self._rank_a, self._rank_b = Growing(np.int64), Growing(np.int64)
        self._rankings, self._weights = Growing(np.int32, k), Growing(np.float64)
        self._rest = Growing(np.uint32)
        for offsets in (self._slots, self._rows, self._rests):
            offsets.append([0])

    def numbers(self, ids: IntArray) -> IntArray:
        """Numbers of designs by their ids in the store, which is asked for those that are new."""
        numbers, first = self._ids.add(ids)
        for start in range(0, len(first), AT_ONCE):
            wanted = ids[first[start : start + AT_ONCE]].tolist()
            rows = {row.id: row for row in self._store.designs(wanted) if is_sound(row)}
            self._append([rows.get(number) for number in wanted])
        return numbers

    def _append(self, designs: list[DesignRow | None]) -> None:
        """Add designs; there is nothing of those that are damaged or gone."""
        there = np.array([row is not None for row in designs], bool)
        rows = [row for row in designs if row is not None]
        names = [_names(row.documents) for row in rows]
        sizes = np.zeros((3, len(designs)), np.int64)
        sizes[:, there] = [
            [len(some) for some in names], [len(row.weights) // 8 for row in rows], [len(row.rest) // 4 for row in rows],
        ]  # fmt: skip
        queries = _joined_texts([row.query for row in rows])
        documents = _joined([name for some in names for name in some])
        hashes = hash_texts(*queries, np.full(len(rows), self._seed))
        owner = np.repeat(np.arange(len(rows)), sizes[0, there])
        query, _ = _added(self._query_keys, self._queries, hashes, *queries)
        document, new = _added(self._document_keys, self._documents, hash_texts(*documents, hashes[owner]), *documents)
        self._document_query.append(query[owner[new]])
        first_slot = self._slots.values[-1] + offsets_of(sizes[0])[:-1]
        table = _flat((row.rankings for row in rows), np.uint8).reshape(-1, self._k)
        moved = np.repeat(first_slot[there], sizes[1, there])[:, None]
        of_design = np.full((2, len(designs)), DAMAGED)
        of_design[:, there] = query, hashes
        self._query.append(of_design[0])
        self._hashes.append(of_design[1])
        beliefs = np.zeros(len(designs), np.int64)
        beliefs[there] = [row.bias for row in rows]
        self._beliefs.append(beliefs)
        self._document.append(document)
        own_slots = offsets_of(sizes[0, there])
        for column, lists in ((self._rank_a, [row.a for row in rows]), (self._rank_b, [row.b for row in rows])):
            column.append(ranks_of(_flat(lists, np.uint8), [len(ranked) for ranked in lists], own_slots, self._k))
        self._rankings.append(np.where(table == NOTHING, -1, table + moved))
        self._weights.append(_flat((row.weights for row in rows), "<f8"))
        self._rest.append(_flat((row.rest for row in rows), "<u4"))
        for offsets, some in zip((self._slots, self._rows, self._rests), sizes):
            offsets.append(offsets.values[-1] + np.cumsum(some))

    def row_of(self, design: IntArray, place: IntArray) -> IntArray:
        """Row of the ranking at this index of each design; -1 where it has no such ranking, or never shows it."""
        row = self._rows.values[design] + place
        inside = (place >= 0) & (row < self._rows.values[design + 1])
        inside[inside] = self._weights.values[row[inside]] > 0
        return np.where(inside, row, -1)

    def cells(self, design: IntArray, documents: Sequence[str]) -> IntArray:
        """Slot of each document in its design, counted within it, or that it is on a later page, or that it is on none."""
        hashes = hash_texts(*_joined_texts(documents), self._hashes.values[design])
        cell = find_slots(design, self._document_keys.find(hashes), self._slots.values, self._document.values)
        for at in np.flatnonzero(cell < 0).tolist():
            sum_of, number = checksum(documents[at]), design[at]
            later = sum_of in self._rest.values[self._rests.values[number] : self._rests.values[number + 1]]
            cell[at] = sum_of + (LATER_PAGE if later else NOT_SHOWN)
        return np.asarray(cell)

    def rank_of(self, row: IntArray, design: IntArray, cell: IntArray) -> IntArray:
        """Rank from 0 of these slots in rows of their designs, -1 where they do not stand."""
        hit = self._rankings.values[row] == (self._slots.values[design] + cell)[:, None]
        return np.where(hit.any(1), hit.argmax(1), -1)

    @property
    def arrays(self) -> dict[str, Any]:
        """Arrays of a ``Log`` that describe the designs."""
        return {
            "queries": self._queries,
            "documents": self._documents,
            "document_query": self._document_query.values,
            "query": self._query.values,
            "beliefs": self._beliefs.values,
            "slot_offsets": self._slots.values,
            "document": self._document.values,
            "rank_a": self._rank_a.values,
            "rank_b": self._rank_b.values,
            "row_offsets": self._rows.values,
            "rankings": self._rankings.values,
            "weights": self._weights.values,
        }


def _added(
    known: Numbering, texts: Texts, keys: IntArray, raw: NDArray[np.uint8], lengths: IntArray
) -> tuple[IntArray, IntArray]:
    """Number of each key, and which of them are new, in the order of their numbers; the texts of these are kept."""
    number, new = known.add(keys)
    starts = offsets_of(lengths)[:-1]
    texts.append(raw[ragged(starts[new], lengths[new])], lengths[new])
    return number, new


def _flat(blobs: Any, kind: Any) -> NDArray[Any]:
    return np.frombuffer(b"".join(blobs), kind)


def _joined(texts: Sequence[bytes]) -> tuple[NDArray[np.uint8], IntArray]:
    """Texts one after the other, and the length of each."""
    return _flat(texts, np.uint8), np.array([len(text) for text in texts], np.int64)


def _joined_texts(texts: Sequence[str]) -> tuple[NDArray[np.uint8], IntArray]:
    """``_joined`` of their encodings, all made at once where every character is a byte."""
    raw = _encoded("".join(texts))
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    if len(raw) > lengths.sum():
        return _joined(list(map(_encoded, texts)))
    return np.frombuffer(raw, np.uint8), lengths


def _names(text: str) -> list[bytes]:
    """Documents of a design, as ``designs`` writes them into one text."""
    if text.startswith("["):
        return [_encoded(name) for name in json.loads(text)]
    return _encoded(text).split(b"\n")


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
