"""Reading of one version's log out of the store, the same whatever order it arrived in.

Rows are read once, from where the last reading ended, and impressions put in a fixed order, by time and key. Numbers that
designs, queries and documents have in the order in which they were read never decide about the order of a sum, so every number
worked out from a log is the same to the last bit on any machine, after any order of arrival, any number of restarts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import BoolArray, IntArray
from ranktrial.live.columns import Column, Index
from ranktrial.live.design_columns import CELLS, LATER_PAGE, NOT_SHOWN, DesignColumns
from ranktrial.live.stored_log import CHUNK, History, Rows, StoredLog
from ranktrial.live.stores.base import ClickRow, Store
from ranktrial.live.tallies import OFF_PAGE
from ranktrial.live.tokens import KEY_BYTES

KEY = f"S{KEY_BYTES}"
IMPRESSION = np.dtype([("key", KEY), ("design", "i4"), ("place", "i2"), ("unit", "i8"), ("time", "i8"), ("sound", "?")])
STORED = np.dtype([("id", "i8"), ("key", KEY), ("design", "i8"), ("place", "i8"), ("unit", "i8"), ("time", "i8")])
CLICK = np.dtype([("at", "i4"), ("cell", "i8"), ("rank", "i1"), ("late", "?")])
BLOCK = 10_000  # rows
NO_RANK = -1
NEVER = 2**63 - 1


class LogReader:
    """Reads what is new in the store and makes the arrays; the same object again if nothing is new.

    ``plain`` says that every design of the version ends with A's own list and B's own: its method has plain traffic.

    A row is looked at once and kept as numbers, some 50 bytes for an impression, 14 for a click and half a kilobyte for a
    design, in files once they are many (``columns``). If reading fails, start over with another reader.
    """

    def __init__(self, store: Store, version: int, k: int, *, plain: bool) -> None:
        self._store, self._version, self._k, self._plain = store, version, k, plain
        self._designs = DesignColumns(store, k)
        self._impressions, self._clicks = Column(IMPRESSION), Column(CLICK)
        self._keys = Index(KEY)  # where each impression is
        self._order = np.empty(0, np.int32)  # impressions by time, then key
        self._clicked: list[
            BoolArray
        ] = []  # ranks of impressions, CHUNK of them in each; those of a log are never changed
        self._dropped = np.empty(0, np.int32)  # impressions that are void or damaged, sorted
        self._late, self._special = (
            0,
            Column(np.int32, 2),
        )  # clicks that came late; others off the page: where, if strange
        self._history, self._earliest = History(), NEVER  # of what has changed since the last log
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
        impressions_to = self._add_impressions(before[0])
        self._position = impressions_to, clicks_to, voids[-1].id if voids else before[2]
        if self._log is None or self._position != before:
            self._match()
            self._drop([row.key for row in voids])
            self._log = self._made()
        return self._log

    def _add_impressions(self, after: int) -> int:
        rows, first = iter(self._store.impressions(self._version, after)), len(self._impressions)
        # Plain tuples, because the garbage collector goes through all named ones that are kept.
        while some := [tuple(row) for row in islice(rows, BLOCK)]:
            stored, new = np.array(some, STORED), np.empty(len(some), IMPRESSION)
            after = int(stored["id"][-1])
            design = self._designs.numbers(stored["design"])
            for name in ("key", "unit", "time"):
                new[name] = stored[name]
            new["sound"] = self._designs.may_show(design, stored["place"])
            new["design"], new["place"] = design, np.where(new["sound"], stored["place"], 0)
            self._keys.put(new["key"], len(self._impressions) + np.arange(len(new)))
            damaged = len(self._impressions) + np.flatnonzero(~new["sound"])
            self._dropped = np.union1d(self._dropped, damaged).astype(np.int32)
            self._impressions.append(new)
        self._clicked += [
            np.zeros((CHUNK, self._k), bool) for _ in range(-(-len(self._impressions) // CHUNK) - len(self._clicked))
        ]
        self._put_in_order(first)
        return after

    def _put_in_order(self, first: int) -> None:
        """Sort in what was read from ``first`` on. Most of it comes after all that was there."""
        time = self._impressions["time"]
        if first == len(time):
            return
        earliest = int(time[first:].min())
        self._earliest = min(self._earliest, earliest)
        stays = bisect_left(self._order, earliest, key=time.__getitem__)
        moved = np.concatenate([self._order[stays:], np.arange(first, len(time), dtype=np.int32)])
        # By time, then key: as two numbers, which sort faster than bytes.
        key = np.ascontiguousarray(self._impressions["key"][moved]).view(np.uint8).reshape(-1, KEY_BYTES)
        start, end = np.ascontiguousarray(key[:, :8]).view(">u8"), np.ascontiguousarray(key[:, 8:]).view(">u2")
        in_order = moved[np.lexsort((end[:, 0], start[:, 0], time[moved]))]
        self._order = np.concatenate([self._order[:stays], in_order])

    def _match(self) -> None:
        """Note for each click its impression, and where in that impression's design and on its page its document is."""
        clicks = self._unmatched
        at = self._keys.find(np.array(clicks.keys, KEY))
        matched, self._unmatched = clicks.where(at >= 0), clicks.where(at < 0)
        at = at[at >= 0]
        for start in range(0, len(at), BLOCK):
            some = slice(start, start + BLOCK)
            rows, new = self._impressions[at[some]], np.empty(len(at[some]), CLICK)
            design = rows["design"].astype(np.int64)
            cell = self._designs.cells(design, matched.documents[some])
            rank = np.full(len(cell), NO_RANK)
            slot = np.flatnonzero((cell < LATER_PAGE) & rows["sound"])
            hit = self._designs.shown(design[slot], rows["place"][slot]) == cell[slot][:, None]
            rank[slot] = np.where(hit.any(1), hit.argmax(1), NO_RANK)
            new["at"], new["cell"], new["rank"], new["late"] = at[some], cell, rank, matched.late[some]
            self._clicks.append(new)
            self._click(new)

    def _click(self, new: NDArray[Any]) -> None:
        """Note clicks on pages, and others in time."""
        self._late += int(new["late"].sum())
        new = new[~new["late"]]
        off = new[new["rank"] == NO_RANK]
        self._special.append(np.column_stack([off["at"], off["cell"] >= NOT_SHOWN]))
        new = new[new["rank"] != NO_RANK]
        for chunk in np.unique(new["at"] // CHUNK).tolist():
            some = new[new["at"] // CHUNK == chunk]
            clicked = self._clicked[chunk].copy()
            clicked[some["at"] % CHUNK, some["rank"]] = True
            self._clicked[chunk] = clicked
        self._changed(new["at"])

    def _changed(self, impressions: IntArray) -> None:
        if len(impressions):
            self._earliest = min(self._earliest, int(self._impressions["time"][impressions].min()))

    def _drop(self, voids: list[bytes]) -> None:
        """Leave out impressions that are void."""
        self._voids.update(voids)
        at = self._keys.find(np.array(sorted(self._voids), KEY))
        new = np.setdiff1d(at[at >= 0], self._dropped)
        self._dropped = np.union1d(self._dropped, new).astype(np.int32)
        self._changed(new)

    def _made(self) -> StoredLog:
        """The log of all that was read."""
        order, table, dropped = self._order, self._impressions.values, self._dropped
        if len(dropped):
            there = np.ones(len(table), bool)
            there[dropped] = False
            order = order[there[order]]
        self._history.changes.append(bisect_left(order, self._earliest, key=table["time"].__getitem__))
        self._earliest = NEVER
        left_out, strange = self._left_out()
        return StoredLog(
            self._designs,
            k=self._k,
            rows=Rows(table, tuple(self._clicked)),
            order=order,
            plain=self._plain,
            left_out={what: count for what, count in sorted(left_out.items()) if count},
            strange_units=np.unique(table["unit"][strange]),
            history=self._history,
            serial=len(self._history.changes) - 1,
        )

    def _left_out(self) -> tuple[dict[str, int], IntArray]:
        """How often there was what does not count, and impressions with clicks on what is on none of their pages."""
        unmatched_late, unmatched = self._unmatched.which(late=True), self._unmatched.which(late=False)
        special = self._special.values[~np.isin(self._special[:, 0], self._dropped)]
        strange = special[:, 1] > 0
        clicks = self._clicks["at"] if len(self._dropped) else np.empty(0, np.int32)
        void = clicks[~self._clicks["late"][: len(clicks)] & np.isin(clicks, self._dropped)]
        voids = self._keys.find(np.array(sorted(self._voids), KEY))
        left_out = {
            "void impressions": int((voids >= 0).sum()),
            "damaged impressions": len(np.setdiff1d(self._dropped, voids)),
            "late clicks": self._only_late() + len(unmatched_late - unmatched),
            "clicks without impression": len(unmatched),
            "impressions that are not stored, with clicks": len({key for key, _ in unmatched}),
            "clicks on void impressions": len(void),
            "clicks on what was not shown": int(strange.sum()),
            OFF_PAGE: int((~strange).sum()),
        }
        return left_out, special[strange, 0]

    def _only_late(self) -> int:
        """How many clicks came late and not in time as well."""
        if not self._late:
            return 0
        late, at = self._clicks["late"], self._clicks["at"]
        concerned = np.zeros(len(self._impressions), bool)
        concerned[at[late]] = True
        of_these = np.flatnonzero(concerned[at])
        pair, late = at[of_these].astype(np.int64) * CELLS + self._clicks["cell"][of_these], late[of_these]
        return int((~np.isin(pair[late], pair[~late])).sum())


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
