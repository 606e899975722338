"""Reading of one version's log out of the store, the same whatever order it arrived in.

Rows are read once, from where the last reading ended, and stay as numbers: what was read is all that is kept between reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import BoolArray, IntArray
from ranktrial.covariates import unpacked
from ranktrial.log.events import LoggedEvents
from ranktrial.log.folding import Kept
from ranktrial.log.growing import Growing, Numbering
from ranktrial.log.log import NO_CODES, NO_COVARIATES, Log
from ranktrial.log.stored_designs import CELLS, LATER_PAGE, NOT_SHOWN, StoredDesigns
from ranktrial.log.stored_events import StoredEvents, actions_of
from ranktrial.metrics import Metric
from ranktrial.segments import NO_SEGMENTS, Segments
from ranktrial.store.base import ClickRow, ImpressionRow, MarkRow
from ranktrial.store.marks import PUBLIC, Mark, mark
from ranktrial.store.protocols import Store
from ranktrial.store.tallies import ELSEWHERE, NOT_STORED, NOT_STORED_PUBLIC, OFF_PAGE, SEEN_OTHERWISE
from ranktrial.tokens import KEY_BYTES

KEY = f"S{KEY_BYTES}"
STORED = np.dtype(
    [("id", "i8"), ("key", KEY), ("design", "i8"), ("place", "i8"), ("unit", "i8"), ("time", "i8"), ("segment", "i4"),
     ("covariates", "O")]
)  # fmt: skip
CLICK = np.dtype([("at", "i4"), ("cell", "i8"), ("rank", "i1"), ("late", "?")])
MARKED = np.dtype([("key", KEY), ("kind", "i1")])
BLOCKS = 50  # of rows, before they are sorted in
NO_RANK = -1


class LogReader:
    """Reads what is new in the store and makes the log; the same object again if nothing is new.

    ``plain`` says that every design of the version ends with A's own list and B's own: its method has A/B traffic. ``segments``
    are the attributes that its searches were declared to have, ``covariates`` names of what is known of their units. Events,
    times of clicks and the clock are read only if some of the ``metrics`` need them.

    If reading fails, start over with another reader.
    """

    def __init__(
        self,
        store: Store,
        version: int,
        k: int,
        *,
        plain: bool,
        segments: Segments = NO_SEGMENTS,
        covariates: Sequence[str] = (),
        metrics: Sequence[Metric] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.metrics, self._clock = tuple(metrics), clock
        self._windows = sorted({round(metric.settles_after * 1e6) for metric in metrics if metric.settles_after})
        actions = actions_of(metrics)
        self._events = StoredEvents(store, version, actions, self._place) if actions else None
        self._segments, self._segment = segments, Growing(np.int32)
        self._covariates, self._known = tuple(covariates), Growing(np.float32, len(covariates))
        self._store, self._version, self._k, self._plain = store, version, k, plain
        self._designs = StoredDesigns(store, k)
        self._numbers, self._number_at = Numbering(), Growing(np.int64)  # of keys, and where each impression is
        self._key, self._design, self._row = Growing(KEY), Growing(np.int64), Growing(np.int64)
        self._unit, self._time = Growing(np.int64), Growing(np.int64)
        self._clicked = np.zeros((0, k), bool)  # ranks of impressions; never changed once a log has it
        self._dropped = np.empty(0, np.int64)  # impressions that are void or damaged, sorted
        self._clicks, self._late = Growing(CLICK), 0
        self._special = Growing(
            np.int64, 2
        )  # clicks in time off the page: impression, and whether on none of its pages
        self._unmatched = _Clicks()  # whose impression is not there (yet)
        self._marks = Growing(MARKED)
        self._voids: set[bytes] = set()
        self._position: tuple[int, ...] = (0, 0, 0, 0)
        self._log: Log | None = None
        self._kept = Kept(grows=True)

    def read(self) -> Log:
        """The log as it is in the store now."""
        now = round(self._clock() * 1e6) if self._windows else 0
        before, start, events_came = self._position, self._position[0], False
        if self._events is not None:  # of which there may be too many to keep until all impressions are there
            start = self._add_impressions(start)
            events_came = self._events.read()
        # Clicks first: an impression that is stored before its clicks, or events, is then never missed.
        timed = self._events is not None and self._events.timed
        clicks_to = before[1]
        for some in self._store.blocks(ClickRow, self._version, clicks_to):
            clicks_to = self._unmatched.add(some, timed=timed)
        voids = list(self._store.voids(self._version, before[2]))
        marks_to = self._add_marks(before[3])
        impressions_to = self._add_impressions(start)
        self._position = impressions_to, clicks_to, voids[-1].id if voids else before[2], marks_to
        if self._log is None or self._position != before or events_came:
            self._match()
            self._drop([row.key for row in voids])
            self._log = self._made(now if self._windows else None)
        elif self._matured(self._log, now):
            self._log = replace(self._log, read_at=now)
        object.__setattr__(self._log, "kept", self._kept)
        return self._log

    def _matured(self, log: Log, now: int) -> bool:
        """True if the window of a metric has closed for an impression since the log was read."""
        if log.read_at is None:
            return False
        ends = ([moment - window for window in self._windows] for moment in (log.read_at, now))
        before, after = (np.searchsorted(log.time, end, "right") for end in ends)
        return bool((after > before).any())

    def _add_impressions(self, after: int) -> int:
        blocks = iter(self._store.blocks(ImpressionRow, self._version, after))
        while some := [np.array(block, STORED) for block in islice(blocks, BLOCKS)]:
            new = np.concatenate(some)
            after = int(new["id"][-1])
            new = new[_by_time(new["time"], new["key"])]  # designs then have numbers by their first use
            design, first = self._designs.numbers(new["design"]), len(self._key)
            row, known = self._designs.row_of(design, new["place"]), len(self._numbers)
            is_new = self._numbers.add(_short(new["key"])) >= known
            self._number_at.append(first + np.flatnonzero(is_new))
            self._dropped = np.union1d(self._dropped, first + np.flatnonzero(row < 0))
            for column, values in (
                (self._key, new["key"]), (self._design, design), (self._row, row), (self._unit, new["unit"]),
                (self._time, new["time"]),
            ):  # fmt: skip
                column.append(values)
            if self._segments:
                self._segment.append(np.where(new["segment"] < self._segments.size, new["segment"], 0))
            if self._covariates:
                self._known.append(unpacked(new["covariates"].tolist(), len(self._covariates)))
        if missing := len(self._key) - len(self._clicked):
            self._clicked = np.concatenate([self._clicked, np.zeros((missing, self._k), bool)])
        return after

    def _add_marks(self, after: int) -> int:
        for some in self._store.blocks(MarkRow, self._version, after):
            after = int(some[-1][0])
            self._marks.append(np.array([row[1:] for row in some], MARKED))
        return after

    def _find(self, keys: NDArray[Any]) -> IntArray:
        """Impression of each key, -1 where there is none."""
        number = self._numbers.find(_short(keys))
        at = np.full(len(keys), -1)
        known = np.flatnonzero(number >= 0)
        at[known] = self._number_at.values[number[known]]
        at[known[self._key.values[at[known]] != keys[known]]] = -1
        return at

    def _cells(self, at: IntArray, documents: Sequence[str]) -> tuple[IntArray, IntArray]:
        """Cells of documents in the designs of impressions, and ranks on their pages."""
        design, row = self._design.values[at], self._row.values[at]
        cell, rank = self._designs.cells(design, documents), np.full(len(at), NO_RANK)
        slot = np.flatnonzero((cell < LATER_PAGE) & (row >= 0))
        rank[slot] = self._designs.rank_of(row[slot], design[slot], cell[slot])
        return cell, rank

    def _place(self, keys: NDArray[Any], documents: Sequence[str]) -> tuple[IntArray, IntArray]:
        """See ``StoredEvents``."""
        at = self._find(keys)
        there = np.flatnonzero(at >= 0)
        some = documents if len(there) == len(at) else [documents[i] for i in there.tolist()]
        cell, found = self._cells(at[there], some)
        rank = np.full(len(at), NO_RANK)
        rank[there] = np.where(cell >= NOT_SHOWN, NO_RANK - 1, found)
        return at, rank

    def _match(self) -> None:
        """Note for each click its impression, and where in that impression's design and on its page its document is."""
        clicks = self._unmatched
        at = self._find(np.array(clicks.keys, KEY))
        matched, self._unmatched = clicks.where(at >= 0), clicks.where(at < 0)
        at = at[at >= 0]
        new = np.empty(len(at), CLICK)
        cell, rank = self._cells(at, matched.documents)
        new["at"], new["cell"], new["rank"], new["late"] = at, cell, rank, matched.late
        self._clicks.append(new)
        self._late += int(new["late"].sum())
        if self._events is not None:
            self._events.match_waiting()
            if self._events.timed:
                in_time = ~new["late"] & (rank != NO_RANK)
                self._events.add_clicks(at[in_time], rank[in_time], np.array(matched.times, np.int64)[in_time])
        new = new[~new["late"]]
        off = new[new["rank"] == NO_RANK]
        self._special.append(np.column_stack([off["at"], off["cell"] >= NOT_SHOWN]))
        new = new[new["rank"] != NO_RANK]
        if len(new):
            self._clicked = self._clicked.copy()
            self._clicked[new["at"], new["rank"]] = True

    def _drop(self, voids: list[bytes]) -> None:
        """Leave out impressions that are void."""
        self._voids.update(voids)
        at = self._find(np.array(sorted(self._voids), KEY))
        self._dropped = np.union1d(self._dropped, at[at >= 0])

    def _made(self, read_at: int | None) -> Log:
        """The log of all that was read."""
        time, events = self._time.values, LoggedEvents.EMPTY
        in_order = bool((time[1:] > time[:-1]).all())
        order: IntArray | slice = slice(None) if in_order else _by_time(time, self._key.values)
        if len(self._dropped):
            there = np.ones(len(time), bool)
            there[self._dropped] = False
            order = np.arange(len(time))[order]
            order = order[there[order]]
        special = self._special.values[~np.isin(self._special.values[:, 0], self._dropped)]
        marked, left_out = self._marked(special), self._left_out(special)
        for what, kind in ((SEEN_OTHERWISE, Mark.SEEN_OTHERWISE), (ELSEWHERE, Mark.ELSEWHERE)):
            left_out[what] = sum(len(marked.get(mark(kind, public), ())) for public in (False, True))
        if self._events is not None:
            position = np.full(len(time), -1)
            position[order] = np.arange(len(time) - len(self._dropped))
            events = self._events.of(time, position)
            left_out.update(self._events.left_out(position < 0))
        return Log(
            k=self._k,
            design=self._design.values[order],
            row=self._row.values[order],
            unit=self._unit.values[order],
            time=time[order],
            clicks=self._clicked[order],
            attributes=self._segments,
            segment=self._segment.values[order] if self._segments else NO_CODES,
            covariates=self._known.values[order].astype(np.float64) if self._covariates else NO_COVARIATES,
            covariate_names=self._covariates,
            plain=self._plain,
            left_out={what: count for what, count in sorted(left_out.items()) if count},
            marked=marked,
            events=events,
            actions=() if self._events is None else self._events.actions,
            read_at=read_at,
            **self._designs.arrays,
        ).numbered_by_use()

    def _marked(self, special: IntArray) -> dict[int, IntArray]:
        """Units of impressions by their marks; ``special`` are those with clicks off their page, and if on none of them."""
        marks, unit = self._marks.values, self._unit.values
        at = self._find(marks["key"])
        public = marks["kind"] == mark(Mark.OTHER, True)
        there = (at >= 0) & ~np.isin(at, self._dropped)
        found = {int(kind): unit[at[there & (marks["kind"] == kind)]] for kind in np.unique(marks["kind"][there])}
        by_anybody = at[there & public]
        for kind, of_kind in ((Mark.OFF_PAGE, special[:, 1] == 0), (Mark.STRANGE, special[:, 1] > 0)):
            where = np.unique(special[of_kind, 0])
            open_to_all = np.isin(where, by_anybody)
            found[kind], found[kind | PUBLIC] = unit[where[~open_to_all]], unit[where[open_to_all]]
        found[Mark.LATE] = unit[np.unique(np.setdiff1d(self._only_late(), self._dropped))]
        return {kind: np.sort(units) for kind, units in sorted(found.items()) if len(units)}

    def _left_out(self, special: IntArray) -> dict[str, int]:
        """Numbers of rows that do not count, by reason."""
        unmatched_late, unmatched = self._unmatched.which(late=True), self._unmatched.which(late=False)
        strange = special[:, 1] > 0
        keys = np.unique(np.array([key for key, _ in unmatched], KEY))
        marks, clicks = self._marks.values, self._clicks.values
        public = marks["key"][marks["kind"] == mark(Mark.OTHER, True)]
        void = np.isin(clicks["at"][~clicks["late"]], self._dropped) if len(self._dropped) else np.zeros(0, bool)
        voids = self._find(np.array(sorted(self._voids), KEY))
        return {
            "void impressions": int((voids >= 0).sum()),
            "damaged impressions": len(np.setdiff1d(self._dropped, voids)),
            "late clicks": len(self._only_late()) + len(unmatched_late - unmatched),
            "clicks without impression": len(unmatched),
            NOT_STORED: len(keys),
            NOT_STORED_PUBLIC: int(np.isin(keys, public).sum()),
            "clicks on void impressions": int(void.sum()),
            "clicks on what was not shown": int(strange.sum()),
            OFF_PAGE: int((~strange).sum()),
        }

    def _only_late(self) -> IntArray:
        """Impressions of the clicks that came late and not in time as well."""
        if not self._late:
            return np.empty(0, np.int64)
        clicks = self._clicks.values
        late, at = clicks["late"], clicks["at"]
        concerned = np.zeros(len(self._key), bool)
        concerned[at[late]] = True
        of_these = np.flatnonzero(concerned[at])
        pair, late = at[of_these].astype(np.int64) * CELLS + clicks["cell"][of_these], late[of_these]
        alone = pair[late][~np.isin(pair[late], pair[~late])]
        return np.asarray(alone // CELLS)


@dataclass(frozen=True)
class _Clicks:
    """Clicks, column by column."""

    keys: list[bytes] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)  # if they are needed

    def add(self, rows: Sequence[tuple[Any, ...]], *, timed: bool) -> int:
        """Add some rows, and return the highest id."""
        for at, column in enumerate((self.keys, self.documents, self.late, self.times)[: 3 + timed], start=1):
            column.extend(map(itemgetter(at), rows))
        return int(rows[-1][0])

    def where(self, use: BoolArray) -> _Clicks:
        """Return the clicks whose flag is set."""
        at = np.flatnonzero(use).tolist()
        times = [self.times[i] for i in at] if self.times else []
        return _Clicks([self.keys[i] for i in at], [self.documents[i] for i in at], [self.late[i] for i in at], times)

    def which(self, *, late: bool) -> set[tuple[bytes, str]]:
        """Key and document of the clicks that came late, or of those that did not."""
        return {(key, document) for key, document, when in zip(self.keys, self.documents, self.late) if when == late}


def _by_time(time: IntArray, key: NDArray[Any]) -> IntArray:
    """Order by time, then by key: as numbers, which sort faster than bytes."""
    raw = np.ascontiguousarray(key).view(np.uint8).reshape(-1, KEY_BYTES)
    start, end = np.ascontiguousarray(raw[:, :8]).view(">u8"), np.ascontiguousarray(raw[:, 8:]).view(">u2")
    return np.lexsort((end[:, 0], start[:, 0], time))


def _short(key: NDArray[Any]) -> IntArray:
    """The first 64 bits of keys, which are random: among a thousand million, two agree in them with a chance of 3 %."""
    raw = np.ascontiguousarray(key).view(np.uint8).reshape(-1, KEY_BYTES)
    return np.ascontiguousarray(raw[:, :8]).view("<i8")[:, 0]
