"""A SQLite file as a database: its schema, connections for reading and for what is rare, and what becomes of its errors."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ranktrial import checks
from ranktrial.store.base import StoreDamaged, StoreError, StoreUnavailable, log
from ranktrial.store.database import Execute, Noted, note
from ranktrial.store.migrations import BEFORE_RELEASE, migrate
from ranktrial.store.sqlite_file import OpenedFile, damaged, explained, make_private, tighten
from ranktrial.store.tables import SHARED_TABLES

TYPES = {
    "name": "text", "bytes": "BLOB", "id": "INTEGER PRIMARY KEY", "row": "INTEGER PRIMARY KEY",
}  # fmt: skip
MIGRATIONS = (
    f"""
    {SHARED_TABLES.format(**TYPES)}
    CREATE TABLE impressions (
        id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, version INTEGER NOT NULL, design INTEGER NOT NULL,
        place INTEGER NOT NULL, unit INTEGER NOT NULL, time INTEGER NOT NULL, segment INTEGER NOT NULL DEFAULT 0,
        covariates BLOB
    );
    CREATE TABLE clicks (
        id INTEGER PRIMARY KEY, version INTEGER NOT NULL, key BLOB NOT NULL, document TEXT NOT NULL, late INTEGER NOT NULL,
        time INTEGER NOT NULL DEFAULT 0, UNIQUE (key, document, late)
    );
    CREATE TABLE events (
        id INTEGER PRIMARY KEY, version INTEGER NOT NULL, key BLOB NOT NULL, document TEXT NOT NULL, action TEXT NOT NULL,
        event_id TEXT NOT NULL, amount INTEGER NOT NULL, time INTEGER NOT NULL, UNIQUE (key, event_id)
    );
    CREATE TABLE tallies (
        version INTEGER NOT NULL, name TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (version, name)
    ) WITHOUT ROWID
    """,
)
APPLICATION_ID = int.from_bytes(
    b"rkt2", "big"
)  # in the file's header; that of stores before the first release was "rktr"
LONGEST_TIMEOUT = 1e6  # seconds: SQLite counts milliseconds in 32 bits
LAST = 2**63 - 1  # beyond every row
SHORT, ATTEMPTS = 0.02, 50  # seconds that writers wait for a log to be emptied, and how often that is tried


class SQLiteDatabase:
    """A SQLite file that is brought up to date and used; ``Database`` describes what it does for all stores.

    Args:
        path: The file; made if it does not exist.
        read_timeout: Seconds that reading may wait for a lock before it is an error.
        write_timeout: Seconds that a commit may wait for other processes.
        upgrade: Bring an older schema up to date.

    Attributes:
        file: The file as it was opened.
        migrated: The version that its schema had before it was opened, and the one that it has.
    """

    def __init__(self, path: Path, read_timeout: float, write_timeout: float, *, upgrade: bool) -> None:
        self.path, self.place = path, str(path)
        self.patience = checks.between("read_timeout", read_timeout, 0, LONGEST_TIMEOUT)
        self.write_timeout = checks.between("write_timeout", write_timeout, 0, LONGEST_TIMEOUT)
        self.over: StoreUnavailable | None = None
        self._ended = False  # whether that was logged
        self._idle: list[sqlite3.Connection] = []  # connections for reading
        self._lock = threading.Lock()
        self._closed = False
        try:
            make_private(path)
            self.file = OpenedFile(path)
            with contextlib.closing(self.connect(write_timeout)) as connection:
                schema = SQLiteSchema(connection)
                self.migrated = migrate(self.place, schema.transaction, MIGRATIONS, upgrade=upgrade)
                self.file.check()
                tighten(path)
        except (sqlite3.Error, OSError) as problem:
            own = explained(problem, path)
            raise type(own)(f"{path} cannot be opened as a store: {own}") from problem

    def connect(self, timeout: float) -> sqlite3.Connection:
        """A new connection."""
        self.file.check()  # to open another one with this log beside it would spoil it
        connection = sqlite3.connect(self.path, timeout=timeout, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def explained(self, problem: Exception) -> Exception:
        """The error of the store for one of SQLite; the same for one about a row, or of anything else."""
        if isinstance(problem, UnicodeDecodeError):  # text that nobody wrote
            own: StoreUnavailable = damaged(self.path, str(problem))
        elif type(problem) in (sqlite3.OperationalError, sqlite3.DatabaseError):
            own = explained(problem, self.path)  # type: ignore[arg-type]
        else:
            return problem
        if isinstance(own, StoreDamaged):
            self.end(own)
        return own

    @contextlib.contextmanager
    def own_errors(self) -> Iterator[None]:
        """Turn SQLite's errors about the file into errors of the store; errors about a row are left as they are."""
        try:
            yield
        except Exception as problem:
            if (own := self.explained(problem)) is problem:
                raise
            raise own from problem

    def end(self, problem: StoreUnavailable) -> None:
        """Write nothing any more, and say why, once: what is acknowledged must be in the file that people will open."""
        if not self._ended:
            self.over, self._ended = problem, True
            log.error("nothing is stored any more: %s", problem)

    def check_usable(self) -> None:
        """Raise the reason why nothing is written any more, if there is one."""
        if self.over is not None:
            raise type(self.over)(str(self.over))

    def begin_again(self) -> None:
        """Use the file that has come back, with nothing in memory that rests on what it was."""
        self._close_idle()
        self.over, self._ended = None, False

    # --- reading ------------------------------------------------------------------------------------------------------

    def select(self, statement: str, values: Sequence[Any] = (), timeout: float = 0) -> list[tuple[Any, ...]]:
        """The rows that a statement finds, on a connection of which there are as many as were needed at once."""
        with self._lock:
            if self._closed:
                raise StoreError(f"{self.place} is closed")
            connection = self._idle.pop() if self._idle else None
        try:
            with self.own_errors():
                if connection is None:
                    connection = self.connect(self.patience)
                else:
                    self.file.check()
                found = connection.execute(statement, values).fetchall()
        except BaseException:
            if connection is not None:
                connection.close()  # a fresh one next time: whatever was wrong may be over
            raise
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return found
        connection.close()
        return found

    def now(self) -> int:
        return time.time_ns() // 1_000

    def last_row(self) -> int:
        return LAST

    def check(self) -> None:
        """Look at every page for damage: a fresh connection, because others have pages in memory."""
        with self.own_errors(), contextlib.closing(self.connect(self.patience)) as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            self.end(damaged(self.path, found))
            self.check_usable()

    def checkpoint(self) -> None:
        """Bring what was committed from the log into the file, as far as nobody has to wait for it."""
        self.check_usable()
        self.select("PRAGMA wal_checkpoint(PASSIVE)")

    def _close_idle(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def close(self) -> None:
        self._closed = True
        self._close_idle()

    # --- what is rare -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def changing(self) -> Iterator[Execute]:
        self.check_usable()
        with self.own_errors(), contextlib.closing(self.connect(self.write_timeout)) as connection:
            connection.execute("PRAGMA secure_delete=ON")  # what is deleted is written over
            connection.execute("BEGIN IMMEDIATE")  # what is not committed is undone when the connection is closed
            yield connection.execute
            connection.execute("COMMIT")
            self.file.check()

    def execute(self, statement: str, values: Sequence[Any], noted: Noted = None) -> None:
        with self.changing() as execute:
            note(execute, execute(statement, values).rowcount, noted)

    def leave_no_trace(self) -> None:
        """Bring all that was written into the file: the log beside it still holds what was erased.

        Writers wait while the log is emptied, which takes a moment without readers: so not for long, and then again.
        """
        with self.own_errors(), contextlib.closing(self.connect(SHORT)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # nobody waits for most of it
            for _ in range(ATTEMPTS):
                if not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                    return
                time.sleep(10 * SHORT)
        log.warning("%s-wal holds what was erased until nobody reads from it: somebody does all the time", self.path)


class SQLiteSchema:
    """The schema of a SQLite file: its version is the pragma ``user_version``, where ``application_id`` is ours."""

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
        (made_by,) = self._connection.execute("PRAGMA application_id").fetchone()
        if made_by == APPLICATION_ID:
            return int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        return BEFORE_RELEASE if self._tables() >= {"trials", "impressions", "clicks"} else 0

    def is_empty(self) -> bool:
        return not self._tables()

    def _tables(self) -> set[str]:
        return {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master")}

    def apply(self, step: str, version: int) -> None:
        for statement in step.split(";"):
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA user_version = {version}")
        self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
