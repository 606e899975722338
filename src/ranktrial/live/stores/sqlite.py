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
import json
import queue
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from ranktrial import checks
from ranktrial.live.designs import Design
from ranktrial.live.stores.base import (
    REFUSED,
    Bias,
    Click,
    ClickRow,
    Clicks,
    ConfigVersion,
    DesignRow,
    HistoryRow,
    Impression,
    ImpressionCount,
    ImpressionRow,
    Nothing,
    Overloaded,
    Row,
    Stored,
    StoreError,
    TrialRow,
    Void,
    VoidRow,
)
from ranktrial.methods import Beliefs

R = TypeVar("R", ImpressionRow, ClickRow, VoidRow)
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
    "ALTER TABLE biases ADD COLUMN more TEXT NOT NULL DEFAULT '{}'",
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
DUPLICATE = "duplicate clicks"  # a tally
LONGEST_TIMEOUT = 1e6  # seconds: SQLite counts milliseconds in 32 bits
TOGETHER = 50  # rows in one statement
DESIGNS_KNOWN = 50_000  # whose row numbers are kept in memory
DESIGN_COLUMNS = ", ".join(f"d.{name}" for name in DesignRow._fields)


@dataclass(slots=True)
class _Item:
    row: Row
    done: Stored = field(default_factory=Stored)


class SQLiteStore:
    """A store in one SQLite file. Its methods are described in ``Store``.

    Args:
        path: The file; made if it does not exist.
        queue_size: Rows that may wait to be written.
        read_timeout: Seconds that reading may wait for a lock before it is an error.
        write_timeout: Seconds that a commit may wait for other processes.
    """

    def __init__(
        self, path: str | Path, *, queue_size: int = 10_000, read_timeout: float = 0.05, write_timeout: float = 5.0
    ) -> None:
        self.path = Path(path)
        self._read_timeout = checks.between("read_timeout", read_timeout, 0, LONGEST_TIMEOUT)
        self._write_timeout = checks.between("write_timeout", write_timeout, 0, LONGEST_TIMEOUT)
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._queue_size, self._waiting = queue_size, 0
        self._idle: list[sqlite3.Connection] = []  # connections for reading
        self._lock = threading.Lock()
        self._tally: Counter[tuple[int, str]] = Counter()
        self._design_ids: dict[bytes, int] = {}  # of the writing thread
        self._closed = False
        try:
            setup = self._connect(write_timeout)
            with contextlib.closing(setup):
                _migrate(setup, self.path)
        except sqlite3.Error as problem:
            raise StoreError(f"{self.path} cannot be opened as a store: {problem}") from problem
        self._thread = threading.Thread(target=self._write_forever, name="ranktrial-writer", daemon=True)
        self._thread.start()

    def _connect(self, timeout: float) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=timeout, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for as long as it is needed; there are as many as were needed at once."""
        with self._lock:
            if self._closed:
                raise StoreError(f"{self.path} is closed")
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._connect(self._read_timeout)
        sound = True
        try:
            yield connection
        except sqlite3.Error:
            sound = False  # a fresh one next time: whatever was wrong may be over
            raise
        finally:
            with self._lock:
                keep = sound and not self._closed
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()

    def _select(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._reading() as connection:
            return connection.execute(statement, values).fetchall()

    # --- writing ------------------------------------------------------------------------------------------------------

    def put(self, row: Row) -> Stored:
        size, item = _size(row), _Item(row)
        with self._lock:
            if self._closed:
                raise StoreError(f"{self.path} is closed")
            # Taking something back must always be possible.
            if self._waiting and self._waiting + size > self._queue_size and not isinstance(row, Void):
                raise Overloaded(f"{self._waiting} rows wait to be written to {self.path}")
            self._waiting += size
            self._queue.put(item)
        return item.done

    @property
    def waiting(self) -> int:
        """Rows that wait to be written."""
        return self._waiting

    def tally(self, version: int, name: str, count: int = 1, *, soon: bool = True) -> None:
        with self._lock:
            self._tally[version, name] += count
        if not soon:
            return
        with contextlib.suppress(Overloaded, StoreError):
            if self._queue.empty():  # otherwise the next commit takes it along
                self.put(Nothing())

    def _write_forever(self) -> None:
        connection: sqlite3.Connection | None = None
        while True:
            items = self._next_items()
            rows = [item for item in items if item is not None and item.done.start()]
            try:
                if connection is None:
                    connection = self._connect(self._write_timeout)
                self._commit(connection, rows)
            except Exception as problem:
                self._fail(rows, problem)
                if connection is not None:
                    with contextlib.suppress(sqlite3.Error):
                        connection.close()
                connection = None  # a fresh one next time: whatever was wrong may be over
            if items[-1] is None:
                if connection is not None:
                    connection.close()
                return

    def _next_items(self) -> list[_Item | None]:
        items = [self._queue.get()]
        with contextlib.suppress(queue.Empty):
            while items[-1] is not None:
                items.append(self._queue.get_nowait())
        with self._lock:
            self._waiting -= sum(_size(item.row) for item in items if item is not None)
        return items

    def _commit(self, connection: sqlite3.Connection, items: list[_Item]) -> None:
        with self._lock:
            tallied, self._tally = self._tally, Counter()
        try:
            self._transaction(connection, items, tallied)
        except Exception as problem:
            with self._lock:
                self._tally.update(tallied)
            if len(items) < 2 or isinstance(problem, sqlite3.OperationalError):
                raise
            for item in items:  # one bad row must not take the others with it
                try:
                    self._transaction(connection, [item], Counter())
                except Exception as own:
                    self._fail([item], own)

    def _fail(self, items: Iterable[_Item], problem: Exception) -> None:
        for item in items:
            if not isinstance(item.row, Nothing):
                with self._lock:
                    self._tally[item.row.version, "failed writes"] += 1
            item.done.finish(problem)

    def _transaction(
        self, connection: sqlite3.Connection, items: list[_Item], tallied: Counter[tuple[int, str]]
    ) -> None:
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
        for item in items:
            item.done.finish()

    def _insert_all(self, connection: sqlite3.Connection, items: Sequence[_Item]) -> None:
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

    def flush(self, timeout: float | None = None) -> None:
        self.put(Nothing()).result(timeout)

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    # --- reading ------------------------------------------------------------------------------------------------------

    def tallies(self, version: int) -> Counter[str]:
        stored = self._select("SELECT name, count FROM tallies WHERE version = ?", (version,))
        with self._lock:
            waiting = {name: count for (of, name), count in self._tally.items() if of == version}
        return Counter(dict(stored)) + Counter(waiting)

    def impression(self, key: bytes) -> Impression | None:
        found = self._select(
            f"""SELECT i.version, i.place, i.unit, i.time, {DESIGN_COLUMNS}
                FROM impressions i JOIN designs d ON d.id = i.design WHERE i.key = ?""",
            (key,),
        )
        if not found:
            return None
        version, place, unit, time, *design = found[0]
        return Impression(key, version, DesignRow(*design).design(), place, unit, time)

    def void(self, key: bytes) -> str | None:
        found = self._select("SELECT reason FROM voids WHERE key = ?", (key,))
        return str(found[0][0]) if found else None

    def impressions(self, version: int, after: int) -> Iterator[ImpressionRow]:
        return self._after(ImpressionRow, "impressions", version, after)

    def clicks(self, version: int, after: int) -> Iterator[ClickRow]:
        return self._after(ClickRow, "clicks", version, after)

    def voids(self, version: int, after: int) -> Iterator[VoidRow]:
        return self._after(VoidRow, "voids", version, after)

    def _after(self, kind: type[R], table: str, version: int, after: int) -> Iterator[R]:
        columns = ", ".join(kind._fields)
        statement = f"SELECT {columns} FROM {table} WHERE id > ? AND version = ? ORDER BY id"
        make = partial(tuple.__new__, kind)  # as ``kind._make``, which calls Python for every row
        with self._reading() as connection:
            yield from map(make, connection.execute(statement, (after, version)))

    def designs(self, ids: Sequence[int]) -> Iterator[DesignRow]:
        for start in range(0, len(ids), 500):
            some = ids[start : start + 500]
            marks = ",".join("?" * len(some))
            rows = self._select(f"SELECT {DESIGN_COLUMNS} FROM designs d WHERE d.id IN ({marks})", some)
            yield from map(DesignRow._make, rows)

    def count(self, version: int, after: int) -> ImpressionCount:
        statement = "SELECT count(*), coalesce(max(id), ?) FROM impressions WHERE id > ? AND version = ?"
        return ImpressionCount(*self._select(statement, (after, after, version))[0])

    # --- what is rare ---------------------------------------------------------------------------------------------------

    def trial(self, name: str | None) -> TrialRow:
        found = self._select("SELECT name, secret, stopped FROM trials ORDER BY name")
        names = [row[0] for row in found]
        if name is None and len(found) != 1:
            raise StoreError(
                f"{self.path} holds {len(found)} trials ({', '.join(names) or 'none'}): say which by its name"
            )
        if name is not None and name not in names:
            raise StoreError(f"{self.path} holds no trial {name!r}; it holds {', '.join(names) or 'none'}")
        name, secret, stopped = found[0] if name is None else found[names.index(name)]
        return TrialRow(name, secret, stopped is not None)

    def trial_names(self) -> list[str]:
        return [row[0] for row in self._select("SELECT name FROM trials ORDER BY name")]

    def trial_of_version(self, version: int) -> str | None:
        found = self._select("SELECT trial FROM versions WHERE id = ?", (version,))
        return str(found[0][0]) if found else None

    def _rarely(self, statement: str, values: tuple[Any, ...]) -> None:
        connection = self._connect(self._write_timeout)
        with contextlib.closing(connection):
            connection.execute(statement, values)

    def add_trial(self, name: str, secret: bytes) -> None:
        self._rarely("INSERT OR IGNORE INTO trials VALUES (?, ?, NULL)", (name, secret))

    def stop(self, name: str) -> None:
        self._rarely("UPDATE trials SET stopped = 1 WHERE name = ?", (name,))

    def history(self, trial: str) -> list[HistoryRow]:
        rows = self._select("SELECT id, time, what, unit, reason FROM history WHERE trial = ? ORDER BY id", (trial,))
        return list(map(HistoryRow._make, rows))

    def add_history(self, trial: str, time: int, what: str, unit: int, reason: str) -> None:
        self._rarely("INSERT INTO history VALUES (NULL, ?, ?, ?, ?, ?)", (trial, time, what, unit, reason))

    def versions(self, trial: str) -> list[ConfigVersion]:
        rows = self._select("SELECT id, number, config FROM versions WHERE trial = ? ORDER BY number", (trial,))
        return [ConfigVersion(*row) for row in rows]

    def add_version(self, trial: str, number: int, config: str) -> None:
        self._rarely("INSERT OR IGNORE INTO versions VALUES (NULL, ?, ?, ?)", (trial, number, config))

    def biases(self, version: int) -> list[Bias]:
        rows = self._select(
            "SELECT id, impressions, theta, fitted, note, relevance, more FROM biases WHERE version = ? ORDER BY id",
            (version,),
        )
        return [
            Bias(id, at, tuple(map(float.fromhex, theta.split())), bool(fitted), *rest)
            for id, at, theta, fitted, *rest in rows
        ]

    def add_bias(self, version: int, impressions: int, beliefs: Beliefs) -> None:
        text = " ".join(value.hex() for value in beliefs.theta.tolist())
        self._rarely(
            "INSERT OR IGNORE INTO biases VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)",
            (version, impressions, text, beliefs.fitted, beliefs.note, beliefs.relevance, json.dumps(beliefs.more)),
        )


def _size(row: Row) -> int:
    return len(row.clicks) if isinstance(row, Clicks) else 1


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
    for key, version, document, late, limit in clicks:
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


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring the schema up to date, one transaction a step; several processes may try at once."""
    while _migrate_once(connection, path, migrations):
        pass


def _migrate_once(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> bool:
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > len(migrations):
            raise StoreError(
                f"{path} has schema {version}, this ranktrial knows up to {len(migrations)}: use a newer ranktrial"
            )
        if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{path} is a SQLite file of something else")
        if version < len(migrations):
            for statement in migrations[version].split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return bool(version < len(migrations))
