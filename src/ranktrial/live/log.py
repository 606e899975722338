"""What happened, as arrays: the log of one version of a trial, the same whatever order it arrived in.

Rows are read once, from where the last reading ended. The arrays are then made from all rows in a fixed order (impressions
by time and key, designs by digest), so every number worked out from them is the same to the last bit on any machine,
after any order of arrival, any number of restarts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import BoolArray, FloatArray, IntArray, offsets_of, weighted_counts
from ranktrial.live.designs import NOTHING, PLAIN, CorruptDesign, Design, checksum
from ranktrial.live.store import Store

GROUPS = 20  # of units, for jackknives


@dataclass(frozen=True, eq=False)
class Log:
    """One version's impressions, in order of time, and the designs that showed them.

    Designs are flattened: candidates of design j are *slots* ``slot_offsets[j]:slot_offsets[j + 1]``, its rankings rows
    ``row_offsets[j]:row_offsets[j + 1]``.

    Attributes:
        queries: Text of each query.
        query: Query of each design.
        slot_offsets: See above.
        document: Number of each slot's (query, document), the same in all designs.
        document_query: Query of each (query, document).
        rank_a: Rank of each slot in A's list, k if A does not show it; rank_b in B's.
        row_offsets: See above.
        rankings: Slot at each rank of each row, -1 where nothing stands.
        weights: Probability of each row within its design.
        design: Of each impression.
        row: That was shown.
        unit: Number of its unit.
        time: In microseconds.
        clicks: Which ranks of it were clicked, ``(impressions, k)``.
        left_out: What is in the store but not in these arrays, and how often.
        position: Last rows of the store that were read.
    """

    k: int
    queries: tuple[str, ...]
    query: IntArray
    slot_offsets: IntArray
    document: IntArray
    document_query: IntArray
    rank_a: IntArray
    rank_b: IntArray
    row_offsets: IntArray
    rankings: IntArray
    weights: FloatArray
    design: IntArray
    row: IntArray
    unit: IntArray
    time: IntArray
    clicks: BoolArray
    left_out: dict[str, int]
    position: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.design)

    @property
    def n_designs(self) -> int:
        return len(self.query)

    @property
    def n_slots(self) -> int:
        return len(self.document)

    @cached_property
    def shown(self) -> IntArray:
        """Slots that each impression showed, -1 where nothing stood."""
        return self.rankings[self.row]

    @cached_property
    def per_design(self) -> IntArray:
        """Impressions of each design."""
        return np.bincount(self.design, minlength=self.n_designs)

    @cached_property
    def placement(self) -> FloatArray:
        """P(slot at rank) under its design, exactly: ``(slots, k)``."""
        filled = self.rankings >= 0
        cells = (self.rankings * self.k + np.arange(self.k))[filled]
        weights = np.broadcast_to(self.weights[:, None], filled.shape)[filled]
        return weighted_counts(cells, weights, self.n_slots * self.k).reshape(self.n_slots, self.k)

    @cached_property
    def arm(self) -> IntArray:
        """Which plain list each impression was drawn as: 1 is A's own, -1 B's own, 0 neither."""
        from_end = self.row_offsets[self.design + 1] - self.row
        return np.where(from_end > PLAIN, 0, np.where(from_end == 2, 1, -1))

    @cached_property
    def group(self) -> IntArray:
        """The part of the log that each unit belongs to, for jackknives and cross-fitting."""
        return np.asarray(self.unit.view(np.uint64) % np.uint64(GROUPS), np.int64)


class LogReader:
    """Reads what is new in the store and makes the arrays; the same object again if nothing is new."""

    def __init__(self, store: Store, version: int, k: int) -> None:
        self._store, self._version, self._k = store, version, k
        self._designs: dict[int, Design | None] = {}  # None for a damaged one
        self._impressions: list[tuple[Any, ...]] = []
        self._clicks: list[tuple[Any, ...]] = []
        self._voids: set[bytes] = set()
        self._position = (0, 0, 0)
        self._log: Log | None = None

    def read(self) -> Log:
        # Clicks first: an impression that is stored before its clicks is then never missed.
        before = self._position
        clicks = self._store.rows("clicks", self._version, before[1])
        voids = self._store.rows("voids", self._version, before[2])
        impressions = self._store.rows("impressions", self._version, before[0])
        if self._log is not None and not (clicks or voids or impressions):
            return self._log
        self._impressions += impressions
        self._clicks += clicks
        self._voids.update(row[2] for row in voids)
        new = sorted({row[3] for row in impressions} - self._designs.keys())
        for id, digest, *parts in self._store.designs(new):
            try:
                self._designs[id] = Design.from_parts(digest, parts)
            except CorruptDesign:
                self._designs[id] = None
        tables = zip((impressions, clicks, voids), before)
        impressions_to, clicks_to, voids_to = (rows[-1][0] if rows else old for rows, old in tables)
        self._position = impressions_to, clicks_to, voids_to
        self._log = self._arrays()
        return self._log

    def _arrays(self) -> Log:
        left_out: Counter[str] = Counter()
        used, kept = self._sound(left_out)
        flat = _flatten([self._designs[id] for id in used], self._k)
        number_of = {id: number for number, id in enumerate(used)}
        kept.sort(key=lambda row: (row[6], row[1]))
        columns = np.array([(number_of[row[3]], row[4], row[5], row[6]) for row in kept], np.int64).reshape(-1, 4)
        design, unit, time = columns[:, 0].copy(), columns[:, 2].copy(), columns[:, 3].copy()
        row = flat["row_offsets"][design] + columns[:, 1]
        clicks = self._clicked(kept, flat["rankings"][row], flat["slot_offsets"][design], left_out)
        return Log(
            k=self._k,
            design=design,
            row=row,
            unit=unit,
            time=time,
            clicks=clicks,
            left_out=dict(sorted((+left_out).items())),
            position=self._position,
            **flat,
        )

    def _sound(self, left_out: Counter[str]) -> tuple[list[int], list[tuple[Any, ...]]]:
        """Ids of the designs in use, by digest, and the impressions that count."""
        kept = []
        for row in self._impressions:
            design = self._designs.get(row[3])
            if row[1] in self._voids:
                left_out["void impressions"] += 1
            elif design is None or not 0 <= row[4] < len(design.weights) or design.weights[row[4]] == 0:
                left_out["damaged impressions"] += 1
            else:
                kept.append(row)
        used = {row[3]: self._designs[row[3]] for row in kept}
        by_digest = sorted(used, key=lambda id: b"" if (design := used[id]) is None else design.digest)
        return by_digest, kept

    def _clicked(
        self, kept: list[tuple[Any, ...]], shown: IntArray, first_slot: IntArray, left_out: Counter[str]
    ) -> BoolArray:
        """Which ranks of the impressions were clicked; what else was clicked is counted."""
        index = {row[1]: i for i, row in enumerate(kept)}
        every = {row[1] for row in self._impressions}
        clicks = np.zeros((len(kept), self._k), bool)
        late = {(row[2], row[3]) for row in self._clicks if row[4]} - {
            (row[2], row[3]) for row in self._clicks if not row[4]
        }
        left_out["late clicks"] += len(late)
        at: list[tuple[int, int]] = []
        for _, _, key, document, is_late in self._clicks:
            if is_late:
                continue
            i = index.get(key)
            if i is None:
                left_out["clicks on void impressions" if key in every else "clicks without impression"] += 1
                continue
            design = self._designs[kept[i][3]]
            slot = None if design is None else design.slot_of.get(document)
            if slot is not None:
                at.append((i, slot))
            elif design is not None and checksum(document) in design.rest:
                left_out["clicks on later pages"] += 1
            else:
                left_out["clicks on what was not shown"] += 1
        if at:
            i, slot = np.array(at, np.int64).T
            hit = shown[i] == (first_slot[i] + slot)[:, None]
            clicks[i[hit.any(1)], hit.argmax(1)[hit.any(1)]] = True
            left_out["clicks on later pages"] += int((~hit.any(1)).sum())
        return clicks


def _flatten(designs: list[Design | None], k: int) -> dict[str, Any]:
    sound = [design for design in designs if design is not None]
    queries = tuple(sorted({design.query for design in sound}))
    query_number = {query: number for number, query in enumerate(queries)}
    names = sorted({(design.query, document) for design in sound for document in design.documents})
    document_number = {name: number for number, name in enumerate(names)}
    slot_offsets = offsets_of([len(design.documents) for design in sound])
    rows = [len(design.weights) for design in sound]
    table = np.concatenate([design.rankings for design in sound] or [np.empty((0, k), np.uint8)]).astype(np.int64)
    first = np.repeat(slot_offsets[:-1], rows)
    return {
        "queries": queries,
        "query": np.array([query_number[design.query] for design in sound], np.int64),
        "slot_offsets": slot_offsets,
        "document": np.array([document_number[d.query, name] for d in sound for name in d.documents], np.int64),
        "document_query": np.array([query_number[query] for query, _ in names], np.int64),
        "rank_a": _ranks([design.a for design in sound], slot_offsets, k),
        "rank_b": _ranks([design.b for design in sound], slot_offsets, k),
        "row_offsets": offsets_of(rows),
        "rankings": np.where(table == NOTHING, -1, table + first[:, None]),
        "weights": np.concatenate([design.weights for design in sound] or [np.empty(0)]),
    }


def _ranks(lists: list[NDArray[np.uint8]], slot_offsets: IntArray, k: int) -> IntArray:
    """Rank of every slot in one ranker's lists, k where it is not among them."""
    ranks = np.full(slot_offsets[-1], k, np.int64)
    lengths = np.array([len(ranked) for ranked in lists], np.int64)
    slots = np.concatenate([*lists, np.empty(0, np.uint8)]).astype(np.int64) + np.repeat(slot_offsets[:-1], lengths)
    ranks[slots] = np.arange(len(slots)) - np.repeat(offsets_of(lengths)[:-1], lengths)
    return ranks
