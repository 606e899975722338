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
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ranktrial import checks
from ranktrial.live.designs import Design
from ranktrial.live.stores.base import REFUSED, Click, Clicks, Impression, StoreError, StoreUnavailable, Void
from ranktrial.live.stores.migrations import migrate
from ranktrial.live.stores.sql import DESIGNS_KNOWN, DUPLICATE, SQLStore
from ranktrial.live.stores.writer import Item, Tallies

MIGRATIONS = (
    """
    CREATE TABLE trials (name TEXT PRIMARY KEY, secret BLOB NOT NULL, stopped INTEGER) WITHOUT ROWID;
    CREATE TABLE versions (
        id INTEGER PRIMARY KEY, trial TEXT NOT NULL, number INTEGER NOT NULL, config TEXT NOT NULL, UNIQUE (trial, number)
    );
    CREATE TABLE biases (
        id INTEGER PRIMARY KEY, version INTEGER NOT NULL, impressions INTEGER NOT NULL, theta TEXT NOT NULL,
        fitted INTEGER NOT NULL, note TEXT NOT NULL, UNIQUE (version, impressions, theta)
    );
    CREATE TABLE designs (
        id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, query TEXT, bias INTEGER, documents TEXT, a BLOB, b BLOB,
        rankings BLOB, weights BLOB, rest BLOB
    );
    CREATE TABLE impressions (
        id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, version INTEGER NOT NULL, design INTEGER NOT NULL,
        place INTEGER NOT NULL, unit INTEGER NOT NULL, time INTEGER NOT NULL
    );
    CREATE TABLE clicks (
        id INTEGER PRIMARY KEY, version INTEGER NOT NULL, key BLOB NOT NULL, document TEXT NOT NULL, late INTEGER NOT NULL,
        UNIQUE (key, document, late)
    );
    CREATE TABLE voids (
        id INTEGER PRIMARY KEY, version INTEGER NOT NULL, key BLOB NOT NULL UNIQUE, reason TEXT NOT NULL
    );
    CREATE TABLE tallies (
        version INTEGER NOT NULL, name TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (version, name)
    ) WITHOUT ROWID;
    """,
    "ALTER TABLE biases ADD COLUMN relevance REAL NOT NULL DEFAULT 0.3",
    """CREATE TABLE history (
        id INTEGER PRIMARY KEY, trial TEXT NOT NULL, time INTEGER NOT NULL, what TEXT NOT NULL, unit INTEGER NOT NULL,
        reason TEXT NOT NULL
    )""",
    """
    ALTER TABLE biases ADD COLUMN follows INTEGER NOT NULL DEFAULT 0;
    UPDATE biases SET follows = coalesce(
        (SELECT max(b.id) FROM biases b WHERE b.version = biases.version AND b.id < biases.id), 0
    );
    CREATE UNIQUE INDEX biases_in_a_row ON biases (version, follows);
    """,
    """
    ALTER TABLE biases ADD COLUMN more TEXT NOT NULL DEFAULT '{}';
    CREATE TABLE known (bias INTEGER PRIMARY KEY, effects BLOB NOT NULL);
    """,
)
INSERT_DESIGN = "INSERT OR IGNORE INTO designs VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_IMPRESSION = "INSERT OR IGNORE INTO impressions VALUES (NULL, ?, ?, ?, ?, ?, ?)"
INSERT_CLICK = "INSERT OR IGNORE INTO clicks VALUES (NULL, ?, ?, ?, ?)"
INSERT_LIMITED_CLICK = """INSERT OR IGNORE INTO clicks SELECT NULL, ?, ?, ?, ?
                          WHERE (SELECT count(*) FROM clicks WHERE key = ?) < ?"""
INSERT_VOID = "INSERT OR IGNORE INTO voids VALUES (NULL, ?, ?, ?)"
OF_ANOTHER_TIME = "SELECT 1 FROM impressions WHERE key = ? AND time <> ?"
ADD_TALLY = """INSERT INTO tallies VALUES (?, ?, ?)
               ON CONFLICT (version, name) DO UPDATE SET count = count + excluded.count"""
LONGEST_TIMEOUT = 1e6  # seconds: SQLite counts milliseconds in 32 bits
TOGETHER = 50  # rows in one statement


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
        self.path = Path(path)
        self._read_timeout = checks.between("read_timeout", read_timeout, 0, LONGEST_TIMEOUT)
        self._write_timeout = checks.between("write_timeout", write_timeout, 0, LONGEST_TIMEOUT)
        self._idle: list[sqlite3.Connection] = []  # connections for reading
        self._lock = threading.Lock()
        self._writing: sqlite3.Connection | None = None  # of the writing thread
        self._design_ids: dict[bytes, int] = {}  # by digest; of the writing thread, too
        try:
            setup = self._connect(write_timeout)
            with contextlib.closing(setup):
                self.migrated = migrate(str(path), SQLiteSchema(setup).transaction, MIGRATIONS, upgrade=upgrade)
        except sqlite3.Error as problem:
            raise StoreError(f"{self.path} cannot be opened as a store: {problem}") from problem
        super().__init__(str(path), queue_size)

    def _connect(self, timeout: float) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=timeout, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for as long as it is needed; there are as many as were needed at once."""
        with self._lock:
            self._check_open()
            connection = self._idle.pop() if self._idle else None
        sound = False
        try:
            with self._own_errors():
                if connection is None:
                    connection = self._connect(self._read_timeout)
                yield connection
            sound = True
        finally:
            with self._lock:
                # Where something was wrong a fresh one next time: it may be over.
                keep = sound and connection is not None and not self._writer.closed
                if keep and connection is not None:
                    self._idle.append(connection)
            if not keep and connection is not None:
                connection.close()

    @contextlib.contextmanager
    def _own_errors(self) -> Iterator[None]:
        """What SQLite raises, as an error of the store."""
        try:
            yield
        except sqlite3.Error as problem:
            raise StoreUnavailable(f"{self.place}: {problem}") from problem

    def _select(self, statement: str, values: Sequence[Any] = (), timeout: float = 0) -> list[tuple[Any, ...]]:
        with self._reading() as connection:
            return connection.execute(statement, values).fetchall()

    def _execute(self, statement: str, values: Sequence[Any]) -> None:
        with self._own_errors(), contextlib.closing(self._connect(self._write_timeout)) as connection:
            connection.execute(statement, values)

    def _let_go(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    # --- writing ------------------------------------------------------------------------------------------------------

    def _transaction(self, items: list[Item], tallied: Tallies) -> None:
        try:
            if self._writing is None:
                self._writing = self._connect(self._write_timeout)
            self._write(self._writing, items, tallied)
        except Exception as problem:
            self._hang_up()  # a fresh one next time: whatever was wrong may be over
            if isinstance(problem, sqlite3.OperationalError):
                raise StoreUnavailable(f"{self.place}: {problem}") from problem
            raise

    def _hang_up(self) -> None:
        if self._writing is not None:
            with contextlib.suppress(sqlite3.Error):
                self._writing.close()
        self._writing = None

    def _write(self, connection: sqlite3.Connection, items: list[Item], tallied: Tallies) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._insert_all(connection, items)
            for (version, name), count in tallied.items():
                connection.execute(ADD_TALLY, (version, name, count))
            connection.execute("COMMIT")
        except BaseException:
            self._design_ids.clear()  # some may be of rows that are not there now
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _insert_all(self, connection: sqlite3.Connection, items: Sequence[Item]) -> None:
        impressions: list[tuple[Any, ...]] = []
        voids: list[tuple[Any, ...]] = []
        taken_back: list[Void] = []
        clicks: list[Click] = []
        for item in items:
            match item.row:
                case Impression(key, version, design, place, unit, time):
                    impressions.append((key, version, self._design_id(connection, design), place, unit, time))
                case Click() as click:
                    clicks.append(click)
                case Clicks(_, several):
                    clicks += several
                case Void() as void:
                    taken_back.append(void)
        if _insert(connection, INSERT_IMPRESSION, impressions) < len(impressions):
            drawn = [(item.row.looked, item.done) for item in items if isinstance(item.row, Impression)]
            for (looked, done), row in zip(drawn, impressions):
                done.again = not looked
                if looked and not _same(connection, row):
                    voids.append((row[1], row[0], "shown in two ways"))
        for void in taken_back:  # now that its impression is there
            if connection.execute(OF_ANOTHER_TIME, (void.key, void.time)).fetchone() is None:
                voids.append((void.version, void.key, void.reason))
        _insert_clicks(connection, clicks)
        _insert(connection, INSERT_VOID, voids)

    def _design_id(self, connection: sqlite3.Connection, design: Design) -> int:
        known = self._design_ids.get(design.digest)
        if known is None:
            if len(self._design_ids) >= DESIGNS_KNOWN:
                self._design_ids.clear()
            connection.execute(INSERT_DESIGN, (design.digest, *design.parts))
            found = connection.execute("SELECT id FROM designs WHERE digest = ?", (design.digest,))
            known = self._design_ids[design.digest] = int(found.fetchone()[0])
        return known


def _same(connection: sqlite3.Connection, row: tuple[Any, ...]) -> bool:
    """Whether this impression is the one that is stored; if not, another process drew another one: users saw either."""
    key, _, design, place, *_ = row
    same = "SELECT 1 FROM impressions WHERE key = ? AND design = ? AND place = ?"
    return connection.execute(same, (key, design, place)).fetchone() is not None


def _insert(connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
    """Insert rows, and return how many were new.

    Many go into one statement: between any two statements another thread may take the interpreter, and it takes its time.
    """
    whole = len(rows) - len(rows) % TOGETHER
    new = 0
    if whole:
        before, mark, after = statement.rpartition("(NULL")
        many = before + ", ".join([mark + after] * TOGETHER)
        for start in range(0, whole, TOGETHER):
            new += connection.execute(many, list(chain.from_iterable(rows[start : start + TOGETHER]))).rowcount
    if whole < len(rows):
        new += connection.executemany(statement, rows[whole:]).rowcount
    return new


def _insert_clicks(connection: sqlite3.Connection, clicks: Iterable[Click]) -> None:
    """Insert clicks and tally what is not new, or too much."""
    rows: dict[int, list[tuple[Any, ...]]] = {}
    tallied: Counter[tuple[int, str]] = Counter()
    for key, version, document, late, limit, _ in clicks:
        row = version, key, document, late
        if limit is None:
            rows.setdefault(version, []).append(row)
        elif connection.execute(INSERT_LIMITED_CLICK, (*row, key, limit)).rowcount == 0:
            known = connection.execute("SELECT 1 FROM clicks WHERE (key, document, late) = (?, ?, ?)", row[1:])
            tallied[version, DUPLICATE if known.fetchone() else REFUSED] += 1
    for version, some in rows.items():
        tallied[version, DUPLICATE] += len(some) - _insert(connection, INSERT_CLICK, some)
    for (version, name), count in tallied.items():
        if count:
            connection.execute(ADD_TALLY, (version, name, count))


class SQLiteSchema:
    """The schema of a SQLite file: its version is the pragma ``user_version``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[SQLiteSchema]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def is_empty(self) -> bool:
        return not self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    def apply(self, step: str, version: int) -> None:
        for statement in step.split(";"):
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA user_version = {version}")
