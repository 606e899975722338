"""Reading of one version's log out of the store, the same whatever order it arrived in.

Rows are read once, from where the last reading ended, and stay as numbers: what was read is all that is kept between reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import IntArray
from ranktrial.covariates import unpacked
from ranktrial.log.events import LoggedEvents
from ranktrial.log.folding import Kept
from ranktrial.log.growing import Growing, Numbering
from ranktrial.log.log import Log
from ranktrial.log.stored_designs import CELLS, LATER_PAGE, NOT_SHOWN, StoredDesigns
from ranktrial.log.stored_events import StoredEvents, actions_of
from ranktrial.metrics import CLICK, Metric
from ranktrial.segments import NO_SEGMENTS, Segments
from ranktrial.store.base import ClickRow, EventRow, ImpressionRow, MarkRow, VoidRow
from ranktrial.store.marks import PUBLIC, Mark, mark
from ranktrial.store.protocols import Store
from ranktrial.store.tallies import ELSEWHERE, NOT_STORED, NOT_STORED_PUBLIC, OFF_PAGE, SEEN_OTHERWISE
from ranktrial.tokens import KEY_BYTES

ODD_CLICK = np.dtype([("at", "i4"), ("cell", "i8"), ("rank", "i1"), ("late", "?")])
MARKED = np.dtype([("key", "i8"), ("kind", "i1")])
NO_RANK = -1
KEY_OF = itemgetter(1)  # of rows of all kinds


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
        self._store, self._version, self._k, self._plain = store, version, k, plain
        self._segments, self._covariates = segments, tuple(covariates)
        self._position = dict.fromkeys((ImpressionRow, ClickRow, EventRow, MarkRow, VoidRow), 0)  # read so far
        self._designs = StoredDesigns(store, k)
        self._keys = Numbering()  # numbers impressions
        self._columns = {  # of a log
            "design": Growing(np.int32),
            "row": Growing(np.int32),  # -1 where the design is damaged
            "unit": Growing(np.int64),
            "time": Growing(np.int64),
            "clicks": Growing(bool, k),
        }
        if segments:
            self._columns["segment"] = Growing(np.int32)
        if covariates:
            self._columns["covariates"] = Growing(np.float32, len(covariates))
        self._odd = Growing(ODD_CLICK)  # clicks that came late, or on what was not on the page
        self._events = StoredEvents(actions_of(metrics))
        self._marks, self._voids = Growing(MARKED), Growing(np.int64)
        self._waiting: dict[type, list[tuple[Any, ...]]] = {ClickRow: [], EventRow: []}  # for their impressions
        self._lent = False  # the flags of clicks, to a log
        self._log: Log | None = None
        self._kept = Kept(grows=True)

    def read(self) -> Log:
        """The log as it is in the store now."""
        now = round(self._clock() * 1e6) if self._windows else None
        before = dict(self._position)
        self._add_impressions()
        for clicks in self._new(ClickRow):
            self._add_clicks(clicks)
        if set(self._events.actions) - {CLICK}:
            for events in self._new(EventRow):
                self._add_events(events)
        for voids in self._new(VoidRow):
            self._voids.append(_numbers(map(KEY_OF, voids)))
        for marks in self._new(MarkRow):
            new = np.empty(len(marks), MARKED)
            new["key"], new["kind"] = _numbers(map(KEY_OF, marks)), _column(marks, 2)
            self._marks.append(new)
        self._add_impressions()  # again: one that is stored before its clicks, or events, is then never missed
        if self._log is None or self._position != before:
            for kind, add in ((ClickRow, self._add_clicks), (EventRow, self._add_events)):
                waiting, self._waiting[kind] = self._waiting[kind], []
                add(waiting)
            self._log = self._made(now)
        elif now is not None and self._matured(self._log, now):
            self._log = replace(self._log, read_at=now)
        object.__setattr__(self._log, "kept", self._kept)
        return self._log

    def _new(self, kind: type[Any]) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Rows that were not read yet, some thousand at a time."""
        for rows in self._store.blocks(kind, self._version, self._position[kind]):
            self._position[kind] = rows[-1][0]
            yield rows

    def _matured(self, log: Log, now: int) -> bool:
        """True if the window of a metric has closed for an impression since the log was read."""
        ends = ([moment - window for window in self._windows] for moment in (log.read_at or 0, now))
        before, after = (np.searchsorted(log.time, end, "right") for end in ends)
        return bool((after > before).any())

    def _add_impressions(self) -> None:
        for rows in self._new(ImpressionRow):
            key = _numbers(map(KEY_OF, rows))
            design_id, place, unit, moment = (_column(rows, at) for at in range(2, 6))
            order = np.lexsort((key.view(np.uint64), moment))  # designs then have numbers by their first use
            order = order[self._keys.add(key[order])[1]]
            design = self._designs.numbers(design_id[order])
            columns = {
                "design": design, "row": self._designs.row_of(design, place[order]), "unit": unit[order],
                "time": moment[order], "clicks": np.zeros((len(order), self._k), bool),
            }  # fmt: skip
            if self._segments:
                codes = _column(rows, 6)[order]
                columns["segment"] = np.where(codes < self._segments.size, codes, 0)
            if self._covariates:
                columns["covariates"] = unpacked(map(itemgetter(7), rows), len(self._covariates))[order]
            for name, values in columns.items():
                self._columns[name].append(values)

    def _placed(
        self, kind: type, rows: Sequence[tuple[Any, ...]]
    ) -> tuple[Sequence[tuple[Any, ...]], IntArray, IntArray, IntArray]:
        """Clicks or events whose impression is there, its number, and the cell of the document in its design and its rank on
        the page, ``NO_RANK`` if it is not on it. The others wait.
        """
        at = self._keys.find(_numbers(map(KEY_OF, rows)))
        if (at < 0).any():
            self._waiting[kind] += [rows[i] for i in np.flatnonzero(at < 0).tolist()]
            rows, at = [rows[i] for i in np.flatnonzero(at >= 0).tolist()], at[at >= 0]
        design, row = self._columns["design"].values[at], self._columns["row"].values[at]
        cell, rank = self._designs.cells(design, [row[2] for row in rows]), np.full(len(at), NO_RANK)
        slot = np.flatnonzero((cell < LATER_PAGE) & (row >= 0))
        rank[slot] = self._designs.rank_of(row[slot], design[slot], cell[slot])
        return rows, at, cell, rank

    def _add_clicks(self, clicks: Sequence[tuple[Any, ...]]) -> None:
        if not clicks:
            return
        clicks, at, cell, rank = self._placed(ClickRow, clicks)
        late = _column(clicks, 3) > 0
        odd = late | (rank == NO_RANK)
        new = np.empty(int(odd.sum()), ODD_CLICK)
        new["at"], new["cell"], new["rank"], new["late"] = at[odd], cell[odd], rank[odd], late[odd]
        self._odd.append(new)
        at, rank = at[~odd], rank[~odd]
        if self._lent and len(at):  # a log that was read stays as it is
            self._columns["clicks"], self._lent = self._columns["clicks"].copy(), False
        self._columns["clicks"].values[at, rank] = True
        if CLICK in self._events.actions:
            moment = _column(clicks, 4)[~odd]
            known = moment > 0
            self._events.append(at[known], rank[known], self._events.actions.index(CLICK), 0, moment[known])

    def _add_events(self, events: Sequence[tuple[Any, ...]]) -> None:
        number = {action: number for number, action in enumerate(self._events.actions)}
        events = [row for row in events if row[3] in number]
        if not events:
            return
        events, at, cell, rank = self._placed(EventRow, events)
        rank[cell >= NOT_SHOWN] = NO_RANK - 1
        action = [number[row[3]] for row in events]
        self._events.append(at, rank, action, _column(events, 4), _column(events, 5))

    def _made(self, read_at: int | None) -> Log:
        """The log of all that was read."""
        columns: dict[str, Any] = {name: column.values for name, column in self._columns.items()}
        time, events = columns["time"], LoggedEvents.EMPTY
        void = np.unique(self._keys.find(self._voids.values))
        void = void[void >= 0]
        dropped = np.union1d(np.flatnonzero(columns["row"] < 0), void)
        order: IntArray | slice = slice(None)
        if not (time[1:] > time[:-1]).all():
            order = np.lexsort((self._keys.keys.view(np.uint64), time))
        if len(dropped):
            there = np.ones(len(time), bool)
            there[dropped] = False
            order = np.arange(len(time))[order]
            order = order[there[order]]
        odd = self._odd.values
        left_out = self._left_out(odd, dropped, void)
        marked = self._marked(odd, dropped)
        for what, kind in ((SEEN_OTHERWISE, Mark.SEEN_OTHERWISE), (ELSEWHERE, Mark.ELSEWHERE)):
            left_out[what] = sum(len(marked.get(mark(kind, public), ())) for public in (False, True))
        if len(self._events):
            position = np.full(len(time), -1)
            position[order] = np.arange(len(time) - len(dropped))
            events = self._events.of(time, position)
            left_out.update(self._events.left_out(position < 0))
        columns, self._lent = {name: values[order] for name, values in columns.items()}, True
        if self._covariates:
            columns["covariates"] = columns["covariates"].astype(np.float64)
        return Log(
            k=self._k,
            **columns,
            attributes=self._segments,
            covariate_names=self._covariates,
            plain=self._plain,
            left_out={what: count for what, count in sorted(left_out.items()) if count},
            marked=marked,
            events=events,
            actions=self._events.actions,
            read_at=read_at,
            **self._designs.arrays,
        ).numbered_by_use()

    def _marked(self, odd: NDArray[Any], dropped: IntArray) -> dict[int, IntArray]:
        """Units of impressions by their marks."""
        marks, unit = self._marks.values, self._columns["unit"].values
        at = self._keys.find(marks["key"])
        public = marks["kind"] == mark(Mark.OTHER, True)
        there = (at >= 0) & ~np.isin(at, dropped)
        found = {int(kind): unit[at[there & (marks["kind"] == kind)]] for kind in np.unique(marks["kind"][there])}
        by_anybody = at[there & public]
        off_page = odd[~odd["late"] & ~np.isin(odd["at"], dropped)]
        strange = off_page["cell"] >= NOT_SHOWN
        for kind, of_kind in ((Mark.OFF_PAGE, ~strange), (Mark.STRANGE, strange)):
            where = np.unique(off_page["at"][of_kind])
            open_to_all = np.isin(where, by_anybody)
            found[kind], found[kind | PUBLIC] = unit[where[~open_to_all]], unit[where[open_to_all]]
        found[Mark.LATE] = unit[np.unique(np.setdiff1d(self._only_late(odd), dropped))]
        return {kind: np.sort(units) for kind, units in sorted(found.items()) if len(units)}

    def _left_out(self, odd: NDArray[Any], dropped: IntArray, void: IntArray) -> dict[str, int]:
        """Numbers of rows that do not count, by reason."""
        marks, waiting = self._marks.values, self._waiting[ClickRow]
        unmatched_late, unmatched = ({row[1:3] for row in waiting if bool(row[3]) == late} for late in (True, False))
        keys = {key for key, _ in unmatched}
        public = marks["key"][marks["kind"] == mark(Mark.OTHER, True)]
        off_page, gone = odd[~odd["late"]], np.isin(odd["at"][~odd["late"]], dropped)
        strange = off_page["cell"] >= NOT_SHOWN
        return {
            "void impressions": len(void),
            "damaged impressions": len(np.setdiff1d(dropped, void)),
            "late clicks": len(self._only_late(odd)) + len(unmatched_late - unmatched),
            "clicks without impression": len(unmatched),
            NOT_STORED: len(keys),
            NOT_STORED_PUBLIC: int(np.isin(_numbers(keys), public).sum()),
            "clicks on void impressions": int(self._columns["clicks"].values[dropped].sum() + gone.sum()),
            "clicks on what was not shown": int((strange & ~gone).sum()),
            OFF_PAGE: int((~strange & ~gone).sum()),
            "events without impression": len(self._waiting[EventRow]),
        }

    def _only_late(self, odd: NDArray[Any]) -> IntArray:
        """Impressions of the clicks that came late and not in time as well."""
        late, in_time = odd[odd["late"]], odd[~odd["late"]]
        again = np.isin(*(some["at"].astype(np.int64) * CELLS + some["cell"] for some in (late, in_time)))
        again |= (late["rank"] != NO_RANK) & self._columns["clicks"].values[late["at"], late["rank"]]
        return np.asarray(late["at"][~again])


def _column(rows: Sequence[tuple[Any, ...]], at: int) -> IntArray:
    return np.fromiter(map(itemgetter(at), rows), np.int64, len(rows))  # a tenth of what zip(*rows) takes


def _numbers(keys: Iterable[bytes]) -> IntArray:
    """The first 64 bits of keys, which are random: among a thousand million, two agree in them with a chance of 3 %."""
    raw = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, KEY_BYTES)
    return np.ascontiguousarray(raw[:, :8]).view(">i8")[:, 0].astype(np.int64)
