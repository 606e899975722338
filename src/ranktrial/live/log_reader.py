"""Reading of one version's log out of the store, the same whatever order it arrived in.

Rows are read once, from where the last reading ended. The arrays are then made from all rows in a fixed order (impressions
by time and key, designs by digest), so every number worked out from them is the same to the last bit on any machine,
after any order of arrival, any number of restarts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import BoolArray, IntArray
from ranktrial.inference.log import Log
from ranktrial.inference.log_sources import flatten
from ranktrial.live.designs import CorruptDesign, Design, checksum
from ranktrial.live.stores.base import ClickRow, DesignRow, Store
from ranktrial.live.tallies import OFF_PAGE
from ranktrial.live.tokens import KEY_BYTES

KEY = f"S{KEY_BYTES}"
IMPRESSION = np.dtype([("key", KEY), ("design", "i8"), ("place", "i8"), ("unit", "i8"), ("time", "i8")])
STORED = np.dtype([("id", "i8"), *IMPRESSION.descr])  # an ImpressionRow
SORTED = np.dtype([("key", KEY), ("at", "i8")])  # impressions by key
CLICK = np.dtype([("at", "i8"), ("cell", "i8"), ("late", "?")])
LATER_PAGE, NOT_SHOWN, CELLS = 2**32, 2**33, 2**34  # a click's cell is a slot, or one of these plus a check sum
BLOCK = 10_000  # rows


class LogReader:
    """Reads what is new in the store and makes the arrays; the same object again if nothing is new.

    ``plain`` says that every design of the version ends with A's own list and B's own: its method has plain traffic.

    A row is looked at once and kept as numbers, some 60 bytes for an impression and 20 for a click. If reading fails, start
    over with another reader.
    """

    def __init__(self, store: Store, version: int, k: int, *, plain: bool) -> None:
        self._store, self._version, self._k, self._plain = store, version, k, plain
        self._designs = _Designs(store, k)
        self._impressions = np.empty(0, IMPRESSION)
        self._sorted = np.empty(0, SORTED)
        self._clicks = np.empty(0, CLICK)
        self._unmatched = _Clicks()  # whose impression is not there (yet)
        self._voids: set[bytes] = set()
        self._position: tuple[int, ...] = (0, 0, 0)
        self._log: Log | None = None

    def read(self) -> Log:
        """The log as it is in the store now."""
        # Clicks first: an impression that is stored before its clicks is then never missed.
        before = self._position
        clicks_to = self._unmatched.add(self._store.clicks(self._version, before[1]), before[1])
        voids = list(self._store.voids(self._version, before[2]))
        blocks, impressions_to = self._new_impressions(before[0])
        self._position = impressions_to, clicks_to, voids[-1].id if voids else before[2]
        if self._log is None or self._position != before:
            self._voids.update(row.key for row in voids)
            self._add_impressions(blocks)
            self._match()
            self._log = self._arrays()
        return self._log

    def _new_impressions(self, after: int) -> tuple[list[NDArray[np.void]], int]:
        rows, blocks = iter(self._store.impressions(self._version, after)), []
        # Plain tuples, because the garbage collector goes through all named ones that are kept.
        while some := [tuple(row) for row in islice(rows, BLOCK)]:
            block = np.array(some, STORED)
            after = int(block["id"][-1])
            blocks.append(block[list(IMPRESSION.names or ())])
        return blocks, after

    def _add_impressions(self, blocks: list[NDArray[np.void]]) -> None:
        if not blocks:
            return
        new = np.concatenate(blocks)
        new["design"] = self._designs.numbers(new["design"])
        order = np.argsort(new["key"])
        keys = np.empty(len(new), SORTED)
        keys["key"], keys["at"] = new["key"][order], len(self._impressions) + order
        self._sorted = np.insert(self._sorted, np.searchsorted(self._sorted["key"], keys["key"]), keys)
        self._impressions = np.concatenate([self._impressions, new])

    def _match(self) -> None:
        """Note for each click its impression, and where in that impression's design its document is."""
        clicks = self._unmatched
        keys = np.array(clicks.keys, KEY)
        place = np.minimum(np.searchsorted(self._sorted["key"], keys), len(self._sorted) - 1)
        known = self._sorted["key"][place] == keys if len(self._sorted) else np.zeros(len(keys), bool)
        at = self._sorted["at"][place[known]]
        matched, self._unmatched = clicks.where(known), clicks.where(~known)
        new = np.empty(len(at), CLICK)
        new["at"], new["late"] = at, matched.late
        new["cell"] = list(map(self._designs.cell, self._impressions["design"][at].tolist(), matched.documents))
        self._clicks = np.concatenate([self._clicks, new])

    def _arrays(self) -> Log:
        rows = self._impressions
        void = np.isin(rows["key"], np.array(sorted(self._voids), KEY))
        sound = self._designs.may_show(rows["design"], rows["place"]) & ~void
        left_out = {"void impressions": int(void.sum()), "damaged impressions": int((~sound & ~void).sum())}
        # By time, then key: as two numbers, which sort faster than bytes.
        key = np.ascontiguousarray(rows["key"]).view(np.uint8).reshape(-1, KEY_BYTES)
        start, end = np.ascontiguousarray(key[:, :8]).view(">u8"), np.ascontiguousarray(key[:, 8:]).view(">u2")
        order = np.lexsort((end[:, 0], start[:, 0], rows["time"]))
        order = order[sound[order]]
        kept = rows[order]
        number, flat = self._designs.flat(kept["design"])
        design = number[kept["design"]]
        row = flat["row_offsets"][design] + kept["place"]
        position = np.full(len(rows), -1)
        position[order] = np.arange(len(order))
        clicks, strange = self._clicked(position, flat["rankings"], row, flat["slot_offsets"][design], left_out)
        return Log(
            k=self._k,
            design=design,
            row=row,
            unit=kept["unit"].copy(),
            time=kept["time"].copy(),
            clicks=clicks,
            left_out={what: count for what, count in sorted(left_out.items()) if count},
            strange_units=np.unique(kept["unit"][strange]),
            plain=self._plain,
            **flat,
        )

    def _clicked(
        self, position: IntArray, rankings: IntArray, row: IntArray, first_slot: IntArray, left_out: dict[str, int]
    ) -> tuple[BoolArray, IntArray]:
        """Which ranks of the impressions were clicked, and impressions where something else was that is on none of their pages;
        all else is counted.
        """
        late = self._clicks["late"]
        unmatched_late, unmatched = self._unmatched.which(late=True), self._unmatched.which(late=False)
        pair = self._clicks["at"] * CELLS + self._clicks["cell"]
        at, cell = position[self._clicks["at"][~late]], self._clicks["cell"][~late]
        valid = at >= 0
        at, cell = at[valid], cell[valid]
        slot = cell < LATER_PAGE
        i = at[slot]
        hit = rankings[row[i]] == (first_slot[i] + cell[slot])[:, None]
        on_page = hit.any(1)
        only_late = ~np.isin(pair[late], pair[~late]) if late.any() else late[:0]
        left_out["late clicks"] = int(only_late.sum()) + len(unmatched_late - unmatched)
        left_out["clicks without impression"] = len(unmatched)
        left_out["impressions that are not stored, with clicks"] = len({key for key, _ in unmatched})
        left_out["clicks on void impressions"] = int((~valid).sum())
        left_out["clicks on what was not shown"] = int((cell >= NOT_SHOWN).sum())
        left_out[OFF_PAGE] = int((~slot & (cell < NOT_SHOWN)).sum() + (~on_page).sum())
        clicks = np.zeros((len(row), self._k), bool)
        clicks[i[on_page], hit[on_page].argmax(1)] = True
        return clicks, at[cell >= NOT_SHOWN]


@dataclass(frozen=True)
class _Clicks:
    """Clicks, column by column."""

    keys: list[bytes] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def add(self, rows: Iterable[ClickRow], after: int) -> int:
        """Add rows with an id above ``after``, and return the highest."""
        for row in rows:
            self.keys.append(row.key)
            self.documents.append(row.document)
            self.late.append(row.late)
            after = row.id
        return after

    def where(self, use: BoolArray) -> _Clicks:
        """Those of the clicks that are marked."""
        at = np.flatnonzero(use).tolist()
        return _Clicks([self.keys[i] for i in at], [self.documents[i] for i in at], [self.late[i] for i in at])

    def which(self, *, late: bool) -> set[tuple[bytes, str]]:
        """Key and document of the clicks that came late, or of those that did not."""
        return {(key, document) for key, document, when in zip(self.keys, self.documents, self.late) if when == late}


class _Designs:
    """The designs that a log has needed so far, numbered in the order in which they were met."""

    def __init__(self, store: Store, k: int) -> None:
        self._store, self._k = store, k
        self._number: dict[int, int] = {}  # of a design's row in the store
        self._all: list[Design | None] = []  # None for a damaged one
        self._offsets = np.zeros(1, np.int64)
        self._possible = np.empty(0, bool)  # rankings that have a chance, of all designs
        self._flat: tuple[IntArray, IntArray, dict[str, Any]] | None = None

    def numbers(self, ids: IntArray) -> IntArray:
        """The numbers of designs by their ids in the store, which is asked for those that are new."""
        unique, inverse = np.unique(ids, return_inverse=True)
        new = [id for id in unique.tolist() if id not in self._number]
        found = {row.id: self._sound(row) for row in self._store.designs(new)}
        self._number.update({id: len(self._all) + place for place, id in enumerate(new)})
        fresh = [found.get(id) for id in new]
        self._all += fresh
        chances = [np.empty(0) if design is None else design.weights for design in fresh]
        ends = self._offsets[-1] + np.cumsum([len(some) for some in chances], dtype=np.int64)
        self._offsets = np.concatenate([self._offsets, ends])
        self._possible = np.concatenate([self._possible, *(some > 0 for some in chances)])
        return np.array([self._number[id] for id in unique.tolist()], np.int64)[inverse]

    def _sound(self, row: DesignRow) -> Design | None:
        try:
            return self._store.design(row)
        except CorruptDesign:
            return None

    def may_show(self, design: IntArray, place: IntArray) -> BoolArray:
        """Whether these designs have these rankings, with a chance above zero."""
        row = self._offsets[design] + place
        inside = (place >= 0) & (row < self._offsets[design + 1])
        inside[inside] = self._possible[row[inside]]
        return inside

    def cell(self, design: int, document: str) -> int:
        """The slot of a document, or that it is on a later page, or that it is on none."""
        made = self._all[design]
        slot = None if made is None else made.slot_of.get(document)
        if slot is not None:
            return slot
        sum_of = checksum(document)
        return sum_of + (LATER_PAGE if made is not None and sum_of in made.rest_sums else NOT_SHOWN)

    def flat(self, used: IntArray) -> tuple[IntArray, dict[str, Any]]:
        """New numbers of the designs in use, by digest, and their arrays; the last ones if the same are in use."""
        needed = np.unique(used)
        if self._flat is None or not np.array_equal(self._flat[0], needed):
            sound = {one: design for one in needed.tolist() if (design := self._all[one]) is not None}
            by_digest = sorted(sound, key=lambda one: sound[one].digest)
            number = np.full(len(self._all), -1)
            number[by_digest] = np.arange(len(by_digest))
            self._flat = needed, number, flatten([sound[one] for one in by_digest], self._k)
        _, number, arrays = self._flat
        return number, arrays
