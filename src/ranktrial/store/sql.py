"""Base of the stores in SQL databases: what both say in the same words of the rows of a log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from ranktrial.store.base import (
    REFUSED,
    REFUSED_EVENTS,
    Click,
    ClickRow,
    DesignRow,
    Event,
    EventRow,
    Impression,
    ImpressionCount,
    ImpressionRow,
    LogRow,
    Marked,
    MarkRow,
    Nothing,
    Probe,
    ShownRow,
    StoredClicks,
    Void,
    VoidRow,
)
from ranktrial.store.database import COUNTING, Database
from ranktrial.store.erasure import Eraser
from ranktrial.store.migrations import Migrated
from ranktrial.store.stored import Stored
from ranktrial.store.tables import BiasTable, MessageTable, TrialTables
from ranktrial.store.writer import Writer

TABLES: dict[type, str] = {
    ImpressionRow: "impressions", ClickRow: "clicks", EventRow: "events", VoidRow: "voids", MarkRow: "marks",
}  # fmt: skip
DESIGN_COLUMNS = ", ".join(f"d.{name}" for name in DesignRow._fields)
BLOCK = 10_000  # rows that are read at once: nobody waits for a reader, and memory does not grow with the log
KINDS = {Impression, Click, Event, Marked, Void, Probe, Nothing}  # of rows that are put in


class Reports(NamedTuple):
    """Table of clicks or of events: what tells its rows apart, and the tallies of those that are not kept."""

    table: str
    identity: tuple[str, ...]
    duplicate: str
    refused: str


CLICKS = Reports("clicks", ("key", "document", "late"), "duplicate clicks", REFUSED)
EVENTS = Reports("events", ("key", "event_id"), "duplicate events", REFUSED_EVENTS)


def by_kind(rows: Iterable[Stored]) -> defaultdict[type, list[Any]]:
    """Rows by their type, clicks and events that are stored together one by one. Raises TypeError for others."""
    found: defaultdict[type, list[Any]] = defaultdict(list)
    for stored in rows:
        row = stored.row
        for one in row.clicks if isinstance(row, StoredClicks) else (row,):
            found[type(one)].append(one)
    if strange := found.keys() - KINDS:
        raise TypeError(f"{', '.join(kind.__name__ for kind in strange)}: no rows of a store")
    return found


class SQLStore(Writer):
    """The part of a ``Store`` that is the same in SQLite and in PostgreSQL.

    Attributes:
        trials: Trials with their versions and history.
        biases: Position bias of versions.
        eraser: Deletion of what was stored.
        outbox: Messages that wait to be sent.
        migrated: The version that its schema had before it was opened, and the one that it has.
    """

    migrated: Migrated
    quick = True
    _BY_KEY: tuple[str, ...] = ("voids", "marks")  # tables with a row for an impression's key
    _WHERE_KEY = "impressions i JOIN designs d ON d.id = i.design WHERE i.key"  # that of a key, with its design

    def __init__(self, database: Database, queue_size: int) -> None:
        self.trials, self.biases, self.outbox = TrialTables(database), BiasTable(database), MessageTable(database)
        self.eraser = Eraser(database, self._BY_KEY)
        super().__init__(database, queue_size)

    def impression(self, key: bytes) -> ShownRow | None:
        statement = f"SELECT i.version, i.place, i.unit, i.time, {DESIGN_COLUMNS} FROM {self._WHERE_KEY} = ?"
        found = self._database.select(statement, (key,), self._database.patience)
        if not found:
            return None
        version, place, unit, time, *design = found[0]
        return ShownRow(key, version, place, unit, time, DesignRow(*design))

    def void(self, key: bytes) -> str | None:
        found = self._database.select("SELECT reason FROM voids WHERE key = ?", (key,), self._database.patience)
        return str(found[0][0]) if found else None

    def rows(self, kind: type[LogRow], version: int, after: int) -> Iterator[LogRow]:
        make = partial(tuple.__new__, kind)  # as ``kind._make``, which calls Python for every row
        return (make(row) for rows in self.blocks(kind, version, after) for row in rows)

    def blocks(self, kind: type[LogRow], version: int, after: int) -> Iterator[list[tuple[Any, ...]]]:
        columns, last = ", ".join(kind._fields), self._database.last_row()
        statement = f"""SELECT {columns} FROM {TABLES[kind]} WHERE id > ? AND id <= ? AND version = ?
                        ORDER BY id LIMIT {BLOCK}"""
        while rows := self._database.select(statement, (after, last, version)):
            after = rows[-1][0]
            yield rows
            if len(rows) < BLOCK:
                return

    def designs(self, ids: Sequence[int]) -> Iterator[DesignRow]:
        for start in range(0, len(ids), 500):
            some = ids[start : start + 500]
            marks = ",".join("?" * len(some))
            rows = self._database.select(f"SELECT {DESIGN_COLUMNS} FROM designs d WHERE d.id IN ({marks})", some)
            yield from map(DesignRow._make, rows)

    def count(self, version: int, after: int) -> ImpressionCount:
        statement = """SELECT count(*), coalesce(max(id), ?), coalesce(min(time), 0), coalesce(max(time), 0) FROM impressions
                       WHERE id > ? AND id <= ? AND version = ?"""
        values = after, after, self._database.last_row(), version
        return ImpressionCount(*self._database.select(statement, values, COUNTING)[0])

    def tallies(self, version: int) -> Counter[str]:
        statement = "SELECT name, CAST(sum(count) AS BIGINT) FROM tallies WHERE version = ? GROUP BY name"
        written = Counter(dict(self._database.select(statement, (version,))))
        with self._changed:
            return written + Counter({name: count for (of, name), count in self._tally.items() if of == version})

    def check(self) -> None:
        self._database.check()

    def close(self) -> None:
        super().close()
        self._database.close()
