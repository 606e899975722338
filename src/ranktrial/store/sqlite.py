"""The store in one SQLite file: a log that only grows.

* Write-ahead log with ``synchronous=FULL``: a commit is on the disk before it is acknowledged, so neither a killed process
  nor a power cut loses what was acknowledged. (NORMAL would survive the first only.)
* One thread per process writes; what arrives while it waits for the disk goes into the next commit (group commit).
* Every row has a key of its own and is inserted once, so retries, repeated clicks and several processes on one file do
  no harm, and any order of arrival leaves the same rows.
* The queue of writes is bounded: beyond it ``Overloaded`` is raised at once.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from ranktrial.store.base import (
    Click,
    DesignRow,
    Event,
    Impression,
    Marked,
    Probe,
    StoreFull,
    StoreGone,
    StoreLost,
    StoreUnavailable,
    Void,
    log,
)
from ranktrial.store.sql import CLICKS, EVENTS, Reports, SQLStore, by_kind
from ranktrial.store.sqlite_database import APPLICATION_ID, SQLiteDatabase
from ranktrial.store.sqlite_file import save_lost
from ranktrial.store.stored import Stored
from ranktrial.store.writer import Tallies

COLUMNS = {
    "designs": DesignRow._fields[1:],
    "impressions": ("key", "version", "design", "place", "unit", "time", "segment", "covariates"),
    "clicks": ("version", "key", "document", "late", "time"),
    "events": ("version", "key", "document", "action", "event_id", "amount", "time"),
    "marks": ("version", "key", "kind"),
    "voids": ("version", "key", "reason"),
}
VALUES = {table: f"({', '.join('?' * len(columns))})" for table, columns in COLUMNS.items()}
VALUES["impressions"] = "(?, ?, (SELECT id FROM designs WHERE digest = ?), ?, ?, ?, ?, nullif(?, x''))"
INSERT = {table: f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES " for table, columns in COLUMNS.items()}
OF_ROW = {table: attrgetter(*columns) for table, columns in COLUMNS.items()}
OF_ROW["impressions"] = attrgetter("key", "version", "design.digest", "place", "unit", "time", "segment", "covariates")
SAME_IMPRESSION = """SELECT 1 FROM impressions i JOIN designs d ON d.id = i.design
                     WHERE i.key = ? AND d.digest = ? AND i.place = ?"""
OF_ANOTHER_TIME = "SELECT 1 FROM impressions WHERE key = ? AND time <> ?"
ADD_TALLY = """INSERT INTO tallies (version, name, count) VALUES (?, ?, ?)
               ON CONFLICT (version, name) DO UPDATE SET count = count + excluded.count"""
LOOK_AGAIN, LONGEST_LOOK = 0.0002, 0.002  # seconds after which a writer tries a lock again that another process holds
TELL_EVERY = 60.0  # seconds between two lines in the log on one kind of trouble
TOGETHER = 50  # rows in one statement
CHECKPOINT_EVERY = 1.0  # seconds


class SQLiteStore(SQLStore):
    """A store in one SQLite file. Its methods are described in ``Store``.

    Args:
        path: The file; made if it does not exist.
        queue_size: Rows that may wait to be written.
        read_timeout: Seconds that reading may wait for a lock before it is an error.
        write_timeout: Seconds that a commit may wait for other processes.
        upgrade: Bring an older schema up to date.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        queue_size: int = 10_000,
        read_timeout: float = 0.05,
        write_timeout: float = 5.0,
        upgrade: bool = True,
    ) -> None:
        self._file = SQLiteDatabase(Path(path), read_timeout, write_timeout, upgrade=upgrade)
        self.migrated = self._file.migrated
        self._may_come_back = False  # whether it is over only until the file is back in its place
        self._troubled = False  # whether that was logged, and no commit has succeeded since
        self._told: dict[str, float] = {}  # when a kind of trouble was logged last
        self._writing: sqlite3.Connection | None = self._dial()  # of the writing thread
        self._committed = False  # since the last checkpoint
        self._closing = threading.Event()
        self._checkpoints = threading.Thread(target=self._make_checkpoints, name="ranktrial-checkpoints", daemon=True)
        self._checkpoints.start()
        super().__init__(self._file, queue_size)

    def _make_checkpoints(self) -> None:
        """Bring committed pages from the log into the file, about once a second while there are commits.

        Otherwise SQLite does it in the commit that makes the log a thousand pages long, which then takes ten times as long or
        more. It still does so where this thread has no time for it: the log does not grow without bound.
        """
        while not self._closing.wait(CHECKPOINT_EVERY):
            if self._committed:
                self._committed = False
                with contextlib.suppress(Exception):  # the next commit will tell
                    self._file.checkpoint()

    def close(self) -> None:
        self._closing.set()
        self._checkpoints.join()
        super().close()

    def _dial(self) -> sqlite3.Connection:
        """A connection for the writing thread, which keeps the log open, and fails at once if another process has the lock."""
        with self._file.own_errors():
            connection = self._file.connect(self._file.write_timeout)
            connection.execute("SELECT count(*) FROM sqlite_master")  # opens the log
            self._file.file.note_log()
            connection.execute("PRAGMA busy_timeout = 0")  # ``_begin`` knows better how to wait
        return connection

    def _hang_up(self) -> None:
        self._file.file.forget_log()  # the last connection removes it
        if self._writing is not None:
            with contextlib.suppress(sqlite3.Error):
                self._writing.close()
        self._writing = None

    def _look_after(self) -> None:
        if self._may_come_back and self._file.file.is_back():
            self._file.begin_again()
            self._may_come_back = False
            log.warning("%s is back: it takes rows again", self.place)
        if self._writing is not None:
            try:
                self._file.file.check()
            except StoreUnavailable as problem:
                self._failed(problem)

    def _failed(self, problem: Exception) -> None:
        """Give up the file where it is lost, and say what is wrong, once in a while."""
        path = self._file.path
        if isinstance(problem, StoreLost) and self._file.over is None:
            told = f"{problem}. Nothing is written to it"
            self._file.over = StoreLost(told)  # at once: to save what it held may take long
            saved, whole = ("", True) if self._writing is None else save_lost(self._writing, path)
            remedy = "Start again to use what is there now"
            self._may_come_back = whole and isinstance(problem, StoreGone) and not self._file.file.is_back()
            if self._may_come_back:
                remedy = f"It is used again when it is back in its place. {remedy}"
            self._file.end(StoreLost(f"{told}. {saved and f'{saved}. '}{remedy}"))
        if not isinstance(problem, StoreFull):
            self._hang_up()  # a fresh one next time: whatever was wrong may be over
        if isinstance(problem, StoreUnavailable) and self._file.over is None:
            now = time.monotonic()
            if now - self._told.get(problem.reason, -TELL_EVERY) >= TELL_EVERY:
                self._troubled, self._told[problem.reason] = True, now
                log.error("not stored: %s", problem)

    def _transaction(self, rows: list[Stored], tallied: Tallies, take_more: Callable[[], None]) -> None:
        try:
            if self._file.over is not None:
                self._file.check_usable()
            if self._writing is None:
                self._writing = self._dial()
            self._file.file.check()
            self._begin(self._writing)
            try:
                take_more()
                _insert_all(self._writing, rows, tallied)
                self._writing.execute("COMMIT")
            except BaseException:
                if self._writing.in_transaction:
                    self._writing.execute("ROLLBACK")
                raise
            self._file.file.check()
        except Exception as problem:
            own = self._file.explained(problem)
            self._failed(own)
            if own is problem:
                raise
            raise own from problem
        self._committed = True
        if self._troubled:
            self._troubled = False
            log.info("%s takes rows again", self.place)

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Take the lock, as soon as another process lets go of it.

        SQLite itself would wait for up to a tenth of a second between two attempts. Commits take less than a millisecond:
        whoever waits for so long is overtaken again and again.
        """
        pause, until = LOOK_AGAIN, time.monotonic() + self._file.write_timeout
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as problem:
                if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                    raise
            time.sleep(pause)
            pause = min(1.1 * pause, LONGEST_LOOK)


def _insert_all(connection: sqlite3.Connection, rows: Sequence[Stored], tallied: Tallies) -> None:
    """Insert rows, and add up what was tallied, here too."""
    kinds, counts = by_kind(rows), Counter(tallied)
    voids: list[tuple[int, bytes, str]] = []
    if shown := kinds[Impression]:
        designs = {one.design.digest: one.design.parts for one in shown}
        _insert(connection, "designs", [(digest, *parts) for digest, parts in designs.items()])
        if _insert(connection, "impressions", list(map(OF_ROW["impressions"], shown))) < len(shown):
            voids += _shown_before(connection, rows)
    for void in kinds[Void]:  # now that its impression is there
        if connection.execute(OF_ANOTHER_TIME, (void.key, void.time)).fetchone() is None:
            voids.append((void.version, void.key, void.reason))
    marks = list(map(OF_ROW["marks"], kinds[Marked]))
    if clicks := kinds[Click]:
        marks += [(one.version, one.key, kind) for one in clicks for kind in one.marks]
        marks += [(one.version, one.key, one.again) for one in _insert_reports(connection, CLICKS, clicks, counts)]
    if kinds[Event]:
        _insert_reports(connection, EVENTS, kinds[Event], counts)
    for table, found in (("marks", marks), ("voids", voids)):
        if found:
            _insert(connection, table, found)
    if counts:
        connection.executemany(ADD_TALLY, [(*one, count) for one, count in counts.items()])
    if kinds[Probe]:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")  # writes the first page


def _shown_before(connection: sqlite3.Connection, rows: Sequence[Stored]) -> Iterator[tuple[int, bytes, str]]:
    """Have impressions looked for before they are shown, and void those that are stored in another way: users saw either."""
    for stored in rows:
        if isinstance(row := stored.row, Impression):
            stored.again = not row.looked
            same = row.key, row.design.digest, row.place
            if row.looked and connection.execute(SAME_IMPRESSION, same).fetchone() is None:
                yield row.version, row.key, "shown in two ways"


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> int:
    """Insert rows, and return how many were new.

    Many go into one statement: between any two statements another thread may take the interpreter, and it takes its time.
    """
    new = 0
    whole = len(rows) - len(rows) % TOGETHER
    for start in range(0, whole, TOGETHER):
        many = INSERT[table] + ", ".join([VALUES[table]] * TOGETHER)
        new += connection.execute(many, list(chain.from_iterable(rows[start : start + TOGETHER]))).rowcount
    if whole < len(rows):
        new += connection.executemany(INSERT[table] + VALUES[table], rows[whole:]).rowcount
    return new


def _insert_reports(connection: sqlite3.Connection, kind: Reports, rows: Sequence[Any], counts: Tallies) -> list[Any]:
    """Insert clicks or events, tally those that are not new, or too many, and return those without a limit that are not new."""
    last = connection.execute(f"SELECT coalesce(max(id), 0) FROM {kind.table}").fetchone()[0]
    known = f"SELECT id FROM {kind.table} WHERE ({', '.join(kind.identity)}) = ({', '.join('?' * len(kind.identity))})"
    of_row, identity, again = OF_ROW[kind.table], attrgetter(*kind.identity), []
    usual = [one for one in rows if one.limit is None]
    if _insert(connection, kind.table, list(map(of_row, usual))) < len(usual):
        met = set[tuple[Any, ...]]()
        for one in usual:
            same = identity(one)
            if same in met or connection.execute(known, same).fetchone()[0] <= last:  # or it was there before
                counts[one.version, kind.duplicate] += 1
                again.append(one)
            met.add(same)
    limited = f"""INSERT OR IGNORE INTO {kind.table} ({", ".join(COLUMNS[kind.table])})
                  SELECT {VALUES[kind.table][1:-1]} WHERE (SELECT count(*) FROM {kind.table} WHERE key = ?) < ?"""
    for one in rows:
        if one.limit is not None and connection.execute(limited, (*of_row(one), one.key, one.limit)).rowcount == 0:
            there = connection.execute(known, identity(one)).fetchone()
            counts[one.version, kind.duplicate if there else kind.refused] += 1
    return again
