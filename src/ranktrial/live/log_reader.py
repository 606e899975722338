"""Reading of one version's log out of the store, the same whatever order it arrived in.

Rows are read once, from where the last reading ended, and impressions put in a fixed order, by time and key. Numbers that
designs, queries and documents have in the order in which they were read never decide about the order of a sum, so every number
worked out from a log is the same to the last bit on any machine, after any order of arrival, any number of restarts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import BoolArray, IntArray
from ranktrial.live.design_columns import CELLS, LATER_PAGE, NOT_SHOWN, DesignColumns
from ranktrial.live.stored_log import StoredLog
from ranktrial.live.stores.base import ClickRow, Store
from ranktrial.live.tallies import OFF_PAGE
from ranktrial.live.tokens import KEY_BYTES

KEY = f"S{KEY_BYTES}"
IMPRESSION = np.dtype([("key", KEY), ("design", "i8"), ("place", "i8"), ("unit", "i8"), ("time", "i8")])
STORED = np.dtype([("id", "i8"), *IMPRESSION.descr])  # an ImpressionRow
SORTED = np.dtype([("key", KEY), ("at", "i8")])  # impressions by key
CLICK = np.dtype([("at", "i8"), ("cell", "i8"), ("late", "?")])
BLOCK = 10_000  # rows


class LogReader:
    """Reads what is new in the store and makes the arrays; the same object again if nothing is new.

    ``plain`` says that every design of the version ends with A's own list and B's own: its method has plain traffic.

    A row is looked at once and kept as numbers, some 60 bytes for an impression, 20 for a click and half a kilobyte for a
    design. If reading fails, start over with another reader.
    """

    def __init__(self, store: Store, version: int, k: int, *, plain: bool) -> None:
        self._store, self._version, self._k, self._plain = store, version, k, plain
        self._designs = DesignColumns(store, k)
        self._impressions = np.empty(0, IMPRESSION)
        self._sorted = np.empty(0, SORTED)
        self._clicks = np.empty(0, CLICK)
        self._unmatched = _Clicks()  # whose impression is not there (yet)
        self._voids: set[bytes] = set()
        self._position: tuple[int, ...] = (0, 0, 0)
        self._log: StoredLog | None = None

    def read(self) -> StoredLog:
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
        new["cell"] = self._designs.cells(self._impressions["design"][at], matched.documents)
        self._clicks = np.concatenate([self._clicks, new])

    def _arrays(self) -> StoredLog:
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
        position = np.full(len(rows), -1)
        position[order] = np.arange(len(order))
        clicks, strange = self._clicked(position, kept, left_out)
        return StoredLog(
            self._designs,
            k=self._k,
            number=kept["design"].copy(),
            place=kept["place"].copy(),
            unit=kept["unit"].copy(),
            time=kept["time"].copy(),
            clicks=clicks,
            plain=self._plain,
            left_out={what: count for what, count in sorted(left_out.items()) if count},
            strange_units=np.unique(kept["unit"][strange]),
        )

    def _clicked(
        self, position: IntArray, kept: NDArray[np.void], left_out: dict[str, int]
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
        hit = self._designs.shown(kept["design"][i], kept["place"][i]) == cell[slot][:, None]
        on_page = hit.any(1)
        only_late = ~np.isin(pair[late], pair[~late]) if late.any() else late[:0]
        left_out["late clicks"] = int(only_late.sum()) + len(unmatched_late - unmatched)
        left_out["clicks without impression"] = len(unmatched)
        left_out["impressions that are not stored, with clicks"] = len({key for key, _ in unmatched})
        left_out["clicks on void impressions"] = int((~valid).sum())
        left_out["clicks on what was not shown"] = int((cell >= NOT_SHOWN).sum())
        left_out[OFF_PAGE] = int((~slot & (cell < NOT_SHOWN)).sum() + (~on_page).sum())
        clicks = np.zeros((len(kept), self._k), bool)
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
