"""The designs of a log as columns of numbers: half a kilobyte for each, where an object with its texts takes twelve.

Designs are numbered as they are met, and stay as they are: what is new is appended. A document of a query is known by a hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import BoolArray, FloatArray, IntArray, offsets_of, ragged
from ranktrial.inference.impressions import DocumentOrder
from ranktrial.inference.log_sources import NOTHING, ranks_in
from ranktrial.inference.units import first_seen
from ranktrial.live.columns import Column, Numbers, Offsets, Texts
from ranktrial.live.designs import checksum
from ranktrial.live.known import document_key, query_key
from ranktrial.live.stores.base import Store

LATER_PAGE, NOT_SHOWN, CELLS = 2**32, 2**33, 2**34  # a click's cell is a slot, or one of these plus a check sum
BLOCK = 2_000  # designs that are objects at a time
NO_QUERY = -1  # of a design that is damaged


class _Block(NamedTuple):
    """Columns of some designs: ``sizes`` in slots, rankings and check sums; ``keys``, ``names`` and ``ranks`` of the slots."""

    sound: BoolArray
    bias: IntArray
    sizes: IntArray
    keys: NDArray[np.uint64]
    names: list[bytes]
    ranks: NDArray[np.uint8]
    rankings: NDArray[np.uint8]
    weights: FloatArray
    rest: NDArray[np.uint32]
    queries: NDArray[np.void]
    query_names: list[bytes]


class DesignColumns:
    """The designs that a log has needed so far, numbered in the order in which they were met."""

    def __init__(self, store: Store, k: int) -> None:
        self._store, self._k = store, k
        self._ids = Numbers("i8")  # of a design's row in the store
        self._query = Column(np.int32)
        self._bias = Column(np.int64)  # number of the beliefs that a design was made from
        self._slots, self._rows, self._rests = Offsets(), Offsets(), Offsets()  # of what follows
        self._document = Column(np.int32)  # of each slot
        self._ranks = Column(np.uint8, 2)  # of each slot in A's list and in B's
        self._rankings = Column(np.uint8, k)
        self._weights = Column(np.float64)
        self._rest = Column(np.uint32)
        self._differ = Column(bool)  # whether both lists of a design differ
        self._queries, self.query_names = Numbers("u8"), Texts()  # by their hash
        self._query_keys = Column("V32")  # hash of each, whole
        self._documents, self._names = Numbers("u8"), Texts()
        self._document_query = Column(np.int32)

    def __len__(self) -> int:
        return len(self._query)

    def numbers(self, ids: IntArray) -> IntArray:
        """The numbers of designs by their ids in the store, which is asked for those that are new."""
        unique, inverse = np.unique(ids, return_inverse=True)
        new = unique[self._ids.find(unique) < 0]
        for start in range(0, len(new), BLOCK):
            self._append(self._block(new[start : start + BLOCK].tolist()))
        self._ids.add(new)
        return self._ids.find(unique)[inverse]

    def _block(self, ids: list[int]) -> _Block:
        found = self._store.sound_designs(ids)
        designs = [found.get(id) for id in ids]
        sound = [design for design in designs if design is not None]
        sizes = [(0, 0, 0) if one is None else (len(one.documents), len(one.weights), len(one.rest)) for one in designs]
        offsets = offsets_of([len(design.documents) for design in sound])
        ranks = [ranks_in([getattr(design, ranker) for design in sound], offsets, self._k) for ranker in "ab"]
        of_query = [query_key(design.query) for design in sound]
        return _Block(
            np.array([design is not None for design in designs], bool),
            np.array([0 if design is None else design.bias for design in designs], np.int64),
            np.array(sizes, np.int64),
            np.array(
                [document_key(key, name) for key, one in zip(of_query, sound) for name in one.documents], np.uint64
            ),
            [_encoded(name) for design in sound for name in design.documents],
            np.stack(ranks, axis=1).astype(np.uint8),
            np.concatenate([np.empty((0, self._k), np.uint8), *(design.rankings for design in sound)]),
            np.concatenate([np.empty(0), *(design.weights for design in sound)]),
            np.concatenate([np.empty(0, np.uint32), *(design.rest for design in sound)]),
            np.array(of_query, "V32"),
            [_encoded(design.query) for design in sound],
        )

    def _append(self, new: _Block) -> None:
        fresh = self._queries.add(_short(new.queries))
        self._query_keys.append(new.queries[fresh])
        self.query_names.append([new.query_names[at] for at in fresh.tolist()])
        query = np.full(len(new.sizes), NO_QUERY)
        query[new.sound] = self._queries.find(_short(new.queries))
        ranks, owner = np.minimum(new.ranks, self._k), np.repeat(np.arange(len(new.sizes)), new.sizes[:, 0])
        fresh = self._documents.add(new.keys)
        self._document_query.append(query[owner[fresh]])
        self._names.append([new.names[at] for at in fresh.tolist()])
        self._document.append(self._documents.find(new.keys))
        self._query.append(query)
        self._differ.append(np.bincount(owner[ranks[:, 0] != ranks[:, 1]], minlength=len(new.sizes)) > 0)
        for name in ("bias", "ranks", "rankings", "weights", "rest"):
            getattr(self, f"_{name}").append(getattr(new, name))
        for offsets, sizes in zip((self._slots, self._rows, self._rests), new.sizes.T):
            offsets.append(sizes)

    def may_show(self, design: IntArray, place: IntArray) -> BoolArray:
        """Whether these designs have these rankings, with a chance above zero."""
        row = self._rows[design] + place
        inside = (place >= 0) & (row < self._rows[design + 1])
        inside[inside] = self._weights[row[inside]] > 0
        return inside

    def cells(self, design: IntArray, documents: Sequence[str]) -> IntArray:
        """The slot of each document in its design, or that it is on a later page, or that it is on none."""
        query = self._query[design]
        of_query = np.zeros(len(design), "V32")
        of_query[query >= 0] = self._query_keys[query[query >= 0]]
        keys = np.array(list(map(document_key, of_query.tolist(), documents)), np.uint64)
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

    def slots_shown(self, design: IntArray, place: IntArray) -> NDArray[np.int32]:
        """Numbers of the slots at each rank of these rankings, -1 for nothing."""
        slots = self.shown(design, place)
        return np.where(slots == NOTHING, -1, slots + self._slots[design][:, None]).astype(np.int32)

    def from_end(self, design: IntArray, place: IntArray) -> IntArray:
        """Which of the last rankings of these designs these are: 1 the last one."""
        return np.asarray(self._rows[design + 1] - self._rows[design] - place, np.int64)

    def last_weights(self, design: IntArray) -> FloatArray:
        """Weights of the last two rankings of these designs."""
        last = self._rows[design + 1] - 1
        return np.stack([self._weights[last - 1], self._weights[last]], axis=1)

    def differ(self, design: IntArray) -> BoolArray:
        """Whether both lists of these designs differ."""
        return self._differ[design]

    def queries(self, design: IntArray) -> IntArray:
        """Numbers of their queries, of which ``query_names`` are the names."""
        return np.asarray(self._query[design], np.int64)

    def flat(self, used: IntArray) -> tuple[IntArray, dict[str, Any]]:
        """New numbers of the designs in use, in the order in which they were first used, and their arrays (those of
        ``log_sources.flatten``), with the queries and documents in use only, in the order of their hashes.
        """
        order, _ = first_seen(used)
        arrays = self.part(order)
        queries = _used(np.argsort(_short(self._query_keys[:])), arrays["query"])
        query = _places(queries, len(self._query_keys))
        documents = _used(self.document_order(order).document, arrays["document"])
        document = _places(documents, len(self._documents))
        arrays |= {
            "queries": tuple(self.query_names[at] for at in queries.tolist()),
            "documents": self._names.chosen(documents),
            "document_query": query[self._document_query[documents]],
            "query": query[arrays["query"]],
            "document": document[arrays["document"]],
        }
        return _places(order, len(self._query)), arrays

    def document_order(self, design: IntArray) -> DocumentOrder:
        """Of all documents up to the last of these designs, by the hash of their query, then by their own: whenever they were
        read, it is the same.
        """
        last = self._slots[design.max(initial=-1) + 1]
        by_hash = self._documents.below(int(self._document[:last].max(initial=-1)) + 1)
        query = _places(np.argsort(_short(self._query_keys[:])), len(self._query_keys))[self._document_query[by_hash]]
        document = by_hash[np.argsort(query, kind="stable")]
        return DocumentOrder(
            _places(document, len(document)), document, self._document_query[document].astype(np.int64)
        )

    def listed(self, design: IntArray) -> int:
        """Number of candidates of these designs, each design counted once."""
        return len(self.slots(np.unique(design)))

    def slots(self, design: IntArray) -> IntArray:
        """Numbers of the slots of these designs, one design after the other."""
        return ragged(self._slots[design], self._slots[design + 1] - self._slots[design])

    def part(self, order: IntArray) -> dict[str, Any]:
        """Arrays of some designs, with the numbers that queries and documents have here."""
        slot_sizes, row_sizes = (offsets[order + 1] - offsets[order] for offsets in (self._slots, self._rows))
        slots, rows = ragged(self._slots[order], slot_sizes), ragged(self._rows[order], row_sizes)
        slot_offsets = offsets_of(slot_sizes)
        kind = np.int32 if len(slots) * self._k < 2**31 else np.int64
        table: NDArray[Any] = self._rankings[rows].astype(kind)
        nothing = table == NOTHING
        table += np.repeat(slot_offsets[:-1], row_sizes).astype(kind)[:, None]
        table[nothing] = -1
        return {
            "queries": self.query_names,
            "documents": self._names,
            "document_query": self._document_query[:],
            "query": self._query[order].astype(np.int64),
            "beliefs": self._bias[order],
            "slot_offsets": slot_offsets,
            "document": self._document[slots].astype(np.int64),
            "rank_a": self._ranks[slots, 0].astype(np.int64),
            "rank_b": self._ranks[slots, 1].astype(np.int64),
            "row_offsets": offsets_of(row_sizes),
            "rankings": table,
            "weights": self._weights[rows],
        }


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


def _short(keys: NDArray[np.void]) -> NDArray[np.uint64]:
    """The first 64 bits of hashes."""
    return np.ascontiguousarray(keys).view("<u8").reshape(-1, 4)[:, 0]


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
