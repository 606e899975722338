"""The designs of a log as columns of numbers: half a kilobyte for each, where an object with its texts takes twelve.

Designs are numbered as they are met, and stay as they are: what is new is appended. A document of a query is known by a hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import BoolArray, FloatArray, IntArray, offsets_of, ragged
from ranktrial.inference.impressions import DocumentOrder
from ranktrial.inference.intervals import first_seen
from ranktrial.inference.log import Log
from ranktrial.inference.log_sources import NOTHING, ranks_in
from ranktrial.live.designs import Design, checksum
from ranktrial.live.known import document_key, query_key
from ranktrial.live.stores.base import Store

LATER_PAGE, NOT_SHOWN, CELLS = 2**32, 2**33, 2**34  # a click's cell is a slot, or one of these plus a check sum
BLOCK = 2_000  # designs that are objects at a time
LONGEST = 64  # bytes of a name in an array of them
ODD = 0x9E3779B97F4A7C15  # times it, numbers are spread over all of 64 bits
NO_QUERY = -1  # of a design that is damaged


class Numbers:
    """Numbers of keys, which they keep when others are added.

    >>> numbers = Numbers("i8")
    >>> numbers.add(np.array([7, 3])), numbers.add(np.array([3, 9, 9]))
    (array([1, 0]), array([1]))
    >>> numbers.find(np.array([3, 7, 9, 5])), len(numbers)
    (array([ 0,  1,  2, -1]), 3)
    """

    def __init__(self, kind: str) -> None:
        self._keys = np.empty(0, kind)  # sorted
        self._numbers = np.empty(0, np.int32)

    def find(self, keys: NDArray[Any]) -> IntArray:
        """The number of each key, -1 for those that were never met."""
        if not len(self._keys):
            return np.full(len(keys), -1)
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[place] == keys, self._numbers[place], -1).astype(np.int64)

    def add(self, keys: NDArray[Any]) -> IntArray:
        """Give numbers to those that are new, and return where among the keys these are, in the order of their numbers."""
        distinct, first = np.unique(keys, return_index=True)
        new = self.find(distinct) < 0
        distinct, first = distinct[new], first[new]
        place = np.searchsorted(self._keys, distinct)
        self._numbers = np.insert(self._numbers, place, len(self._numbers) + np.arange(len(distinct), dtype=np.int32))
        self._keys = np.insert(self._keys, place, distinct)
        return first

    @property
    def by_key(self) -> IntArray:
        """All numbers, in the order of their keys."""
        return self._numbers.astype(np.int64)

    def __len__(self) -> int:
        return len(self._keys)


class Names(Sequence[str]):
    """Texts that are kept as one array of bytes, and some that are too long for it."""

    def __init__(self, table: NDArray[np.bytes_], long: dict[int, str]) -> None:
        self._table, self._long = table, long

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        number = range(len(self))[at]
        return self._long.get(number) or self._table[number].decode()

    def __len__(self) -> int:
        return len(self._table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class _Block(NamedTuple):
    """Columns of some designs: ``sizes`` in slots, rankings and check sums; ``keys``, ``names`` and ``ranks`` of the slots."""

    query: IntArray
    lists: NDArray[np.uint64]
    sizes: IntArray
    keys: NDArray[np.uint64]
    names: NDArray[np.bytes_]
    ranks: NDArray[np.uint8]
    rankings: NDArray[np.uint8]
    weights: FloatArray
    rest: NDArray[np.uint32]


class DesignColumns:
    """The designs that a log has needed so far, numbered in the order in which they were met."""

    def __init__(self, store: Store, k: int) -> None:
        self._store, self._k = store, k
        self._ids = Numbers("i8")  # of a design's row in the store
        self._query = np.empty(0, np.int64)
        self._lists = np.empty(0, np.uint64)  # hash of query and lists
        self._slots, self._rows, self._rests = (np.zeros(1, np.int64) for _ in range(3))  # offsets of what follows
        self._document = np.empty(0, np.int32)  # of each slot
        self._ranks = np.empty((0, 2), np.uint8)  # of each slot in A's list and in B's
        self._rankings = np.empty((0, k), np.uint8)
        self._weights = np.empty(0)
        self._rest = np.empty(0, np.uint32)
        self._queries: dict[str, int] = {}
        self._query_keys = np.empty(0, np.uint64)  # hash of each
        self.query_names: list[str] = []
        self._documents = Numbers("u8")
        self._document_query = np.empty(0, np.int32)
        self._names = np.empty(0, "S1")  # of documents
        self._long: dict[int, str] = {}  # names that do not fit in there, by key
        self._differ = np.empty(0, bool)  # whether both lists of a design differ

    def numbers(self, ids: IntArray) -> IntArray:
        """The numbers of designs by their ids in the store, which is asked for those that are new."""
        unique, inverse = np.unique(ids, return_inverse=True)
        new = unique[self._ids.find(unique) < 0]
        blocks, waiting = list[_Block](), 0
        for start in range(0, len(new), BLOCK):
            blocks.append(self._block(new[start : start + BLOCK].tolist()))
            waiting += len(blocks[-1].query)
            if 4 * waiting > len(self._query) or start + BLOCK >= len(new):  # what is there is seldom moved
                self._append(_Block(*(np.concatenate(column) for column in zip(*blocks))))
                blocks, waiting = [], 0
        self._ids.add(new)
        return self._ids.find(unique)[inverse]

    def _block(self, ids: list[int]) -> _Block:
        found = self._store.sound_designs(ids)
        designs = [found.get(id) for id in ids]
        sound = [design for design in designs if design is not None]
        sizes = [(0, 0, 0) if one is None else (len(one.documents), len(one.weights), len(one.rest)) for one in designs]
        for design in sound:
            self._queries.setdefault(design.query, len(self._queries))
        offsets = offsets_of([len(design.documents) for design in sound])
        ranks = [ranks_in([getattr(design, ranker) for design in sound], offsets, self._k) for ranker in "ab"]
        names = [name.encode() for design in sound for name in design.documents]
        keys = [document_key(key, name) for one in sound for key in [query_key(one.query)] for name in one.documents]
        self._long.update(
            (key, name.decode()) for key, name in zip(keys, names) if len(name) > LONGEST or name.endswith(b"\0")
        )
        width = min(max(map(len, names), default=0), LONGEST) or 1
        return _Block(
            np.array([NO_QUERY if one is None else self._queries[one.query] for one in designs], np.int64),
            np.array([0 if one is None else _lists_key(one) for one in designs], np.uint64),
            np.array(sizes, np.int64),
            np.array(keys, np.uint64),
            np.array(names, f"S{width}"),
            np.stack(ranks, axis=1).astype(np.uint8),
            np.concatenate([np.empty((0, self._k), np.uint8), *(design.rankings for design in sound)]),
            np.concatenate([np.empty(0), *(design.weights for design in sound)]),
            np.concatenate([np.empty(0, np.uint32), *(design.rest for design in sound)]),
        )

    def _append(self, new: _Block) -> None:
        fresh = self._documents.add(new.keys)
        of_slot = np.repeat(new.query, new.sizes[:, 0])
        more = list(islice(self._queries, len(self.query_names), None))
        keys = [int.from_bytes(query_key(name)[:8], "little") for name in more]
        self._query_keys = np.concatenate([self._query_keys, np.array(keys, np.uint64)])
        self.query_names += more
        ranks, owner = np.minimum(new.ranks, self._k), np.repeat(np.arange(len(new.sizes)), new.sizes[:, 0])
        apart = np.bincount(owner[ranks[:, 0] != ranks[:, 1]], minlength=len(new.sizes)) > 0
        self._differ = np.concatenate([self._differ, apart])
        self._document_query = np.concatenate([self._document_query, of_slot[fresh].astype(np.int32)])
        self._names = np.concatenate([self._names, new.names[fresh]])
        self._document = np.concatenate([self._document, self._documents.find(new.keys).astype(np.int32)])
        for name in ("query", "lists", "ranks", "rankings", "weights", "rest"):
            setattr(self, f"_{name}", np.concatenate([getattr(self, f"_{name}"), getattr(new, name)]))
        self._slots, self._rows, self._rests = (
            np.append(old, old[-1] + np.cumsum(sizes))
            for old, sizes in zip((self._slots, self._rows, self._rests), new.sizes.T)
        )

    def may_show(self, design: IntArray, place: IntArray) -> BoolArray:
        """Whether these designs have these rankings, with a chance above zero."""
        row = self._rows[design] + place
        inside = (place >= 0) & (row < self._rows[design + 1])
        inside[inside] = self._weights[row[inside]] > 0
        return inside

    def cells(self, design: IntArray, documents: Sequence[str]) -> IntArray:
        """The slot of each document in its design, or that it is on a later page, or that it is on none."""
        names = self.query_names
        of_query = [query_key(names[query]) if query >= 0 else b"" for query in self._query[design].tolist()]
        keys = np.array(list(map(document_key, of_query, documents)), np.uint64)
        start, size = self._slots[design], self._slots[design + 1] - self._slots[design]
        slot, owner = ragged(start, size), np.repeat(np.arange(len(design)), size)
        hit = self._document[slot] == self._documents.find(keys)[owner]
        cell = np.full(len(design), -1)
        cell[owner[hit]] = slot[hit] - start[owner[hit]]
        for at in np.flatnonzero(cell < 0).tolist():
            sum_of, number = checksum(documents[at]), design[at]
            later = sum_of in self._rest[self._rests[number] : self._rests[number + 1]]
            cell[at] = sum_of + (LATER_PAGE if later else NOT_SHOWN)
        return cell

    def shown(self, design: IntArray, place: IntArray) -> NDArray[np.uint8]:
        """The slots, counted within the design, at each rank of these rankings."""
        return np.asarray(self._rankings[self._rows[design] + place])

    def from_end(self, design: IntArray, place: IntArray) -> IntArray:
        """Which of the last rankings of these designs these are: 1 the last one."""
        return self._rows[design + 1] - self._rows[design] - place

    def last_weights(self, design: IntArray) -> FloatArray:
        """Weights of the last two rankings of these designs."""
        last = self._rows[design + 1] - 1
        return np.stack([self._weights[last - 1], self._weights[last]], axis=1)

    def differ(self, design: IntArray) -> BoolArray:
        """Whether both lists of these designs differ."""
        return self._differ[design]

    def queries(self, design: IntArray) -> IntArray:
        """Numbers of their queries, of which ``query_names`` are the names."""
        return self._query[design]

    def flat(self, used: IntArray) -> tuple[IntArray, dict[str, Any]]:
        """New numbers of the designs in use, in the order in which they were first used, and their arrays (those of
        ``log_sources.flatten``), with the queries and documents in use only, in the order of their hashes.
        """
        order, _ = first_seen(used)
        arrays = self.part(order)
        queries = _used(np.argsort(self._query_keys), arrays["query"])
        query = _places(queries, len(self._query_keys))
        documents = _used(self.document_order.document, arrays["document"])
        document = _places(documents, len(self._documents))
        long = {int(document[at]): name for at, name in self._long_names().items() if document[at] >= 0}
        arrays |= {
            "queries": tuple(self.query_names[at] for at in queries.tolist()),
            "documents": Names(self._names[documents], long),
            "document_query": query[self._document_query[documents]],
            "query": query[arrays["query"]],
            "document": document[arrays["document"]],
        }
        return _places(order, len(self._query)), arrays

    @property
    def document_order(self) -> DocumentOrder:
        """By the hash of their query, then by their own: it does not depend on when they were read."""
        by_hash = self._documents.by_key
        query = _places(np.argsort(self._query_keys), len(self._query_keys))[self._document_query[by_hash]]
        document = by_hash[np.argsort(query, kind="stable")]
        return DocumentOrder(
            _places(document, len(document)), document, self._document_query[document].astype(np.int64)
        )

    def listed(self, design: IntArray) -> int:
        """Candidates of these designs, those of the same query and lists counted once."""
        design = np.unique(design)
        of_lists = design[np.unique(self._lists[design], return_index=True)[1]]
        return int((self._slots[of_lists + 1] - self._slots[of_lists]).sum())

    def candidates(self, design: IntArray, log: Log) -> NDArray[np.uint64]:
        """Hash of query, lists and document, for each slot of a log that has these designs."""
        return self._lists[design][log.design_of_slot] + log.document.astype(np.uint64) * np.uint64(ODD)

    def part(self, order: IntArray) -> dict[str, Any]:
        """Arrays of some designs, with the numbers that queries and documents have here."""
        slot_sizes, row_sizes = self._slots[order + 1] - self._slots[order], self._rows[order + 1] - self._rows[order]
        slots, rows = ragged(self._slots[order], slot_sizes), ragged(self._rows[order], row_sizes)
        slot_offsets = offsets_of(slot_sizes)
        kind = np.int32 if len(slots) * self._k < 2**31 else np.int64
        table: NDArray[Any] = self._rankings[rows].astype(kind)
        nothing = table == NOTHING
        table += np.repeat(slot_offsets[:-1], row_sizes).astype(kind)[:, None]
        table[nothing] = -1
        return {
            "queries": self.query_names,
            "documents": Names(self._names, self._long_names()),
            "document_query": self._document_query,
            "query": self._query[order],
            "lists": first_seen(self._lists[order])[1],
            "slot_offsets": slot_offsets,
            "document": self._document[slots].astype(np.int64),
            "rank_a": self._ranks[slots, 0].astype(np.int64),
            "rank_b": self._ranks[slots, 1].astype(np.int64),
            "row_offsets": offsets_of(row_sizes),
            "rankings": table,
            "weights": self._weights[rows],
        }

    def _long_names(self) -> dict[int, str]:
        """Names that do not fit into the array of names, by document."""
        numbers = self._documents.find(np.array(list(self._long), np.uint64))
        return dict(zip(numbers.tolist(), self._long.values()))


def _used(order: IntArray, numbers: IntArray) -> IntArray:
    """Those of an order that occur among numbers."""
    used = np.zeros(len(order), bool)
    used[numbers] = True
    return order[used[order]]


def _places(numbers: IntArray, n: int) -> IntArray:
    """Where each of n numbers stands among some of them, -1 for those that do not."""
    place = np.full(n, -1)
    place[numbers] = np.arange(len(numbers))
    return place


def _lists_key(design: Design) -> int:
    """Hash of a query and two lists."""
    of_lists = "\0".join([str(len(design.documents)), *design.documents]) + repr((design.a.tolist(), design.b.tolist()))
    return document_key(query_key(design.query), of_lists)
