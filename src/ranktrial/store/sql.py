"""Base of the stores in SQL databases: the queue of writes, and the statements that both databases share."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal

from ranktrial.methods import Beliefs
from ranktrial.store.base import (
    Bias,
    ClickRow,
    ConfigVersion,
    DesignRow,
    Entry,
    Erased,
    ErasureRow,
    EventRow,
    HistoryRow,
    ImpressionCount,
    ImpressionRow,
    LogRow,
    MarkRow,
    Nothing,
    Row,
    ShownRow,
    StoreError,
    TrialRow,
    VoidRow,
)
from ranktrial.store.erasure import Eraser, Execute
from ranktrial.store.migrations import Migrated
from ranktrial.store.outbox import MessageTable
from ranktrial.store.stored import Stored
from ranktrial.store.writer import Tallies, Writer

TABLES: dict[type, str] = {
    ImpressionRow: "impressions", ClickRow: "clicks", EventRow: "events", VoidRow: "voids", MarkRow: "marks",
}  # fmt: skip
DUPLICATE = "duplicate clicks"  # a tally
DUPLICATE_EVENT = "duplicate events"  # a tally
DESIGN_COLUMNS = ", ".join(f"d.{name}" for name in DesignRow._fields)
BIAS_COLUMNS = ("id", "impressions", "theta", "fitted", "note", "relevance", "more")
DESIGNS_KNOWN = 50_000  # whose row numbers are kept in memory
BLOCK = 10_000  # rows that are read at once: nobody waits for a reader, and memory does not grow with the log
READING, COUNTING = 30.0, 600.0  # seconds that may take, unless a visitor waits
LAST = 2**63 - 1  # beyond every row
INSERT_ENTRY = f"""INSERT INTO history (trial, {", ".join(Entry._fields)}) VALUES (?{", ?" * len(Entry._fields)})"""
LAST_TURN = "coalesce((SELECT max(v.turn) FROM versions v WHERE v.trial = ?), 0)"
Noted = tuple[str, Entry | None] | None  # a trial, and the entry for its history


def note(execute: Execute, changed: int, noted: Noted) -> None:
    """Add an entry to a trial's history if rows were changed, with the function that executes statements."""
    if noted is not None and noted[1] is not None and changed > 0:
        execute(INSERT_ENTRY, (noted[0], *noted[1]))


class SQLStore(ABC):
    """The part of a ``Store`` that is the same in SQLite and in PostgreSQL. A parameter of a statement is ``?`` in both.

    Args:
        place: Where it is, for messages.
        queue_size: Rows that may wait to be written.

    Attributes:
        place: Where it is, without a password.
        outbox: Messages that wait to be sent.
        migrated: The version that its schema had before it was opened, and the one that it has.
    """

    migrated: Migrated
    _BY_KEY: tuple[str, ...] = ("voids", "marks")  # tables with a row for an impression's key
    quick = True
    _read_timeout: float
    _WHERE_KEY = (
        "impressions i JOIN designs d ON d.id = i.design WHERE i.key"  # the impression of a key, with its design
    )

    def __init__(self, place: str, queue_size: int) -> None:
        self.place = place
        self.outbox = MessageTable(self._select, self._execute, self._now)
        self._writer = Writer(place, self._transaction, self._look_after, self._hang_up, queue_size)

    @abstractmethod
    def _transaction(self, rows: list[Stored], tallied: Tallies, take_more: Callable[[], None]) -> None:
        """Write rows and tallies in one transaction, on the writing thread (``Writer``). Raises StoreUnavailable."""

    @abstractmethod
    def _hang_up(self) -> None:
        """Let go of what the writing thread has opened, on that thread."""

    @abstractmethod
    def _let_go(self) -> None:
        """Close the connections for reading."""

    @abstractmethod
    def _select(self, statement: str, values: Sequence[Any] = (), timeout: float = READING) -> list[tuple[Any, ...]]:
        """The rows that a statement finds, where finding them takes no longer than that. Raises StoreUnavailable."""

    @abstractmethod
    def _execute(self, statement: str, values: Sequence[Any], noted: Noted = None) -> None:
        """Change something rare; on the disk when this returns. Raises StoreUnavailable.

        An entry for the history of the trial of that name is added in the same transaction, if the statement changed a row.
        """

    @abstractmethod
    def _changing(self) -> AbstractContextManager[Execute]:
        """A transaction in which nobody else adds impressions: a function that executes a statement and returns a cursor.

        Committed at the end, rolled back on an error. Raises StoreUnavailable.
        """

    def _look_after(self) -> None:  # noqa: B027 (most have nothing to look after)
        """Called about once a second while there is nothing to write, on the writing thread."""

    def check(self) -> None:
        self._select("SELECT 1")

    def _last_row(self) -> int:
        """The id up to which no row can appear any more that is not there now."""
        return LAST

    def _check_open(self) -> None:
        if self._writer.closed:
            raise StoreError(f"{self.place} is closed")

    # --- the log ------------------------------------------------------------------------------------------------------

    def put(self, row: Row) -> Stored:
        return self._writer.put(row)

    @property
    def waiting(self) -> int:
        """Rows that wait to be written."""
        return self._writer.waiting

    def flush(self, timeout: float | None = None) -> None:
        self.put(Nothing()).result(timeout)

    def tally(self, version: int, name: str, count: int = 1, *, soon: bool = True) -> None:
        self._writer.tally(version, name, count, soon)

    def tallies(self, version: int) -> Counter[str]:
        found = self._select(
            "SELECT name, CAST(sum(count) AS BIGINT) FROM tallies WHERE version = ? GROUP BY name", (version,)
        )
        return Counter(dict(found)) + self._writer.tallied(version)

    def impression(self, key: bytes) -> ShownRow | None:
        found = self._select(
            f"SELECT i.version, i.place, i.unit, i.time, {DESIGN_COLUMNS} FROM {self._WHERE_KEY} = ?",
            (key,),
            self._read_timeout,
        )
        if not found:
            return None
        version, place, unit, time, *design = found[0]
        return ShownRow(key, version, place, unit, time, DesignRow(*design))

    def void(self, key: bytes) -> str | None:
        found = self._select("SELECT reason FROM voids WHERE key = ?", (key,), self._read_timeout)
        return str(found[0][0]) if found else None

    def impressions(self, version: int, after: int) -> Iterator[ImpressionRow]:
        return self._rows(ImpressionRow, version, after)

    def clicks(self, version: int, after: int) -> Iterator[ClickRow]:
        return self._rows(ClickRow, version, after)

    def events(self, version: int, after: int) -> Iterator[EventRow]:
        return self._rows(EventRow, version, after)

    def voids(self, version: int, after: int) -> Iterator[VoidRow]:
        return self._rows(VoidRow, version, after)

    def marks(self, version: int, after: int) -> Iterator[MarkRow]:
        return self._rows(MarkRow, version, after)

    def blocks(self, kind: type[LogRow], version: int, after: int) -> Iterator[list[tuple[Any, ...]]]:
        columns, last = ", ".join(kind._fields), self._last_row()
        statement = f"""SELECT {columns} FROM {TABLES[kind]} WHERE id > ? AND id <= ? AND version = ?
                        ORDER BY id LIMIT {BLOCK}"""
        while rows := self._select(statement, (after, last, version)):
            after = rows[-1][0]
            yield rows
            if len(rows) < BLOCK:
                return

    def _rows(self, kind: type[LogRow], version: int, after: int) -> Iterator[LogRow]:
        make = partial(tuple.__new__, kind)  # as ``kind._make``, which calls Python for every row
        return (make(row) for rows in self.blocks(kind, version, after) for row in rows)

    def designs(self, ids: Sequence[int]) -> Iterator[DesignRow]:
        for start in range(0, len(ids), 500):
            some = ids[start : start + 500]
            marks = ",".join("?" * len(some))
            rows = self._select(f"SELECT {DESIGN_COLUMNS} FROM designs d WHERE d.id IN ({marks})", some)
            yield from map(DesignRow._make, rows)

    def count(self, version: int, after: int) -> ImpressionCount:
        statement = """SELECT count(*), coalesce(max(id), ?), coalesce(min(time), 0), coalesce(max(time), 0) FROM impressions
                       WHERE id > ? AND id <= ? AND version = ?"""
        return ImpressionCount(*self._select(statement, (after, after, self._last_row(), version), COUNTING)[0])

    def close(self) -> None:
        self._writer.close()
        self._let_go()

    # --- what is rare ---------------------------------------------------------------------------------------------------

    def trial(self, name: str | None) -> TrialRow:
        found = self._select("SELECT name, secret, shows FROM trials ORDER BY name")
        names = [row[0] for row in found]
        if name is None and len(found) != 1:
            raise StoreError(
                f"{self.place} holds {len(found)} trials ({', '.join(names) or 'none'}): say which by its name"
            )
        if name is not None and name not in names:
            raise StoreError(f"{self.place} holds no trial {name!r}; it holds {', '.join(names) or 'none'}")
        return TrialRow(*(found[0] if name is None else found[names.index(name)]))

    def trial_names(self) -> list[str]:
        return [row[0] for row in self._select("SELECT name FROM trials ORDER BY name")]

    def trial_of_version(self, version: int) -> str | None:
        found = self._select("SELECT trial FROM versions WHERE id = ? AND number > 0", (version,))
        return str(found[0][0]) if found else None

    def add_trial(self, name: str, secret: bytes) -> None:
        self._execute("INSERT INTO trials (name, secret) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, secret))

    def stop(
        self,
        name: str,
        shows: Literal["A", "B"] | None = None,
        entry: Entry | None = None,
        *,
        running: bool = False,
    ) -> None:
        statement = "UPDATE trials SET shows = ? WHERE name = ? AND (shows IS NULL OR shows <> ?)"
        self._execute(statement, (shows or "A", name, None if running else shows), (name, entry))

    def history(self, trial: str) -> list[HistoryRow]:
        columns = ", ".join(HistoryRow._fields)
        rows = self._select(f"SELECT {columns} FROM history WHERE trial = ? ORDER BY id", (trial,))
        return list(map(HistoryRow._make, rows))

    def add_history(
        self, trial: str, time: int, what: str, unit: int | None, reason: str, who: str = "", detail: str = ""
    ) -> None:
        self._execute(INSERT_ENTRY, (trial, *Entry(time, what, unit, reason, who, detail)))

    def erase(
        self, trial: str, time: int, reason: str, *, unit: int | None = None, before: int | None = None, who: str = ""
    ) -> Erased:
        return self._eraser().some(trial, time, reason, unit, before, who)

    def erase_trial(self, trial: str) -> Erased:
        return self._eraser().trial(trial)

    def _eraser(self) -> Eraser:
        return Eraser(partial(self._select, timeout=COUNTING), self._changing, self._BY_KEY)

    def erasures(self, trial: str) -> list[ErasureRow]:
        columns = ", ".join(ErasureRow._fields)
        rows = self._select(f"SELECT {columns} FROM erasures WHERE trial = ? ORDER BY id", (trial,))
        return list(map(ErasureRow._make, rows))

    def versions(self, trial: str) -> list[ConfigVersion]:
        rows = self._select(
            "SELECT id, number, config, turn FROM versions WHERE trial = ? AND number > 0 ORDER BY number", (trial,)
        )
        return [ConfigVersion(*row) for row in rows]

    def add_version(self, trial: str, number: int, config: str, entry: Entry | None = None) -> None:
        statement = f"""INSERT INTO versions (trial, number, config, turn) VALUES (?, ?, ?, {LAST_TURN} + 1)
                        ON CONFLICT DO NOTHING"""
        self._execute(statement, (trial, number, config, trial), (trial, entry))

    def make_current(self, trial: str, number: int, entry: Entry | None = None) -> None:
        statement = f"UPDATE versions SET turn = {LAST_TURN} + 1 WHERE trial = ? AND number = ? AND turn < {LAST_TURN}"
        self._execute(statement, (trial, trial, number, trial), (trial, entry))

    def reconfigure(self, version: ConfigVersion, trial: str, config: str, entry: Entry | None = None) -> None:
        statement = "UPDATE versions SET config = ? WHERE id = ? AND config = ?"
        self._execute(statement, (config, version.id, version.config), (trial, entry))

    def _now(self) -> int:
        """Time of the store, in microseconds."""
        return time.time_ns() // 1_000

    def biases(self, version: int) -> list[Bias]:
        statement = f"SELECT {', '.join(BIAS_COLUMNS)} FROM biases WHERE version = ? ORDER BY id"
        return list(map(_bias, self._select(statement, (version,))))

    def effects(self, bias: int) -> bytes:
        found = self._select("SELECT effects FROM biases WHERE id = ?", (bias,))
        return bytes(found[0][0]) if found else b""

    def add_bias(
        self,
        version: int,
        impressions: int,
        beliefs: Beliefs,
        follows: int,
        effects: bytes = b"",
        entry: tuple[str, Entry] | None = None,
    ) -> None:
        text = " ".join(value.hex() for value in beliefs.theta.tolist())
        same = version, impressions, text
        self._execute(
            """INSERT INTO biases (version, impressions, theta, follows, fitted, note, relevance, more, effects)
               SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?
               WHERE NOT EXISTS (SELECT 1 FROM biases WHERE version = ? AND impressions = ? AND theta = ?)
               ON CONFLICT DO NOTHING""",
            (
                *same,
                follows,
                int(beliefs.fitted),
                beliefs.note,
                beliefs.relevance,
                json.dumps(beliefs.more),
                effects,
                *same,
            ),
            entry,
        )


def _bias(row: Sequence[Any]) -> Bias:
    """Build the beliefs from the columns of ``BIAS_COLUMNS``."""
    id, impressions, theta, fitted, *rest = row
    return Bias(id, impressions, tuple(map(float.fromhex, theta.split())), bool(fitted), *rest)
