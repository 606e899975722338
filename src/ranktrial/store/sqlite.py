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
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ranktrial import checks
from ranktrial.store.base import (
    MOST_PUBLIC,
    REFUSED,
    REFUSED_EVENTS,
    Click,
    Erased,
    Event,
    Impression,
    Marked,
    Probe,
    Row,
    Storable,
    StoreDamaged,
    StoredClicks,
    StoreFull,
    StoreGone,
    StoreLost,
    StoreUnavailable,
    Void,
    log,
)
from ranktrial.store.erasure import Execute
from ranktrial.store.marks import Mark, mark
from ranktrial.store.migrations import BEFORE_RELEASE, migrate
from ranktrial.store.sql import DESIGNS_KNOWN, DUPLICATE, DUPLICATE_EVENT, Noted, SQLStore, note
from ranktrial.store.sqlite_checkpoints import Checkpoints
from ranktrial.store.sqlite_file import OpenedFile, damaged, explained, make_private, save_lost, tighten
from ranktrial.store.stored import Stored
from ranktrial.store.writer import Tallies

MIGRATIONS = (
    """
    CREATE TABLE trials (name TEXT PRIMARY KEY, secret BLOB NOT NULL, shows TEXT) WITHOUT ROWID;
    CREATE TABLE versions (
        id INTEGER PRIMARY KEY, trial TEXT NOT NULL, number INTEGER NOT NULL, config TEXT NOT NULL, turn INTEGER NOT NULL,
        UNIQUE (trial, number)
    );
    CREATE TABLE biases (
        id INTEGER PRIMARY KEY, version INTEGER NOT NULL, impressions INTEGER NOT NULL, theta TEXT NOT NULL,
        fitted INTEGER NOT NULL, note TEXT NOT NULL, relevance REAL NOT NULL, follows INTEGER NOT NULL, more TEXT NOT NULL,
        effects BLOB NOT NULL, UNIQUE (version, impressions, theta), UNIQUE (version, follows)
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
    CREATE TABLE marks (
        id INTEGER PRIMARY KEY, version INTEGER NOT NULL, key BLOB NOT NULL, kind INTEGER NOT NULL, UNIQUE (key, kind)
    );
    CREATE TABLE tallies (
        version INTEGER NOT NULL, name TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (version, name)
    ) WITHOUT ROWID;
    CREATE TABLE history (
        id INTEGER PRIMARY KEY, trial TEXT NOT NULL, time INTEGER NOT NULL, what TEXT NOT NULL, unit INTEGER,
        reason TEXT NOT NULL, who TEXT NOT NULL, detail TEXT NOT NULL
    );
    CREATE TABLE erasures (
        id INTEGER PRIMARY KEY, trial TEXT NOT NULL, time INTEGER NOT NULL, earlier_than INTEGER, impressions INTEGER NOT NULL,
        clicks INTEGER NOT NULL, designs INTEGER NOT NULL, reason TEXT NOT NULL, who TEXT NOT NULL
    );
    """,
    """
    CREATE TABLE outbox (
        number_of_row INTEGER PRIMARY KEY, trial TEXT NOT NULL, subject TEXT NOT NULL, number INTEGER NOT NULL,
        state TEXT NOT NULL, hook TEXT NOT NULL, time INTEGER NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, due INTEGER,
        attempts INTEGER NOT NULL, UNIQUE (trial, subject, number, hook)
    );
    CREATE TABLE leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID
    """,
    "ALTER TABLE impressions ADD COLUMN segment INTEGER NOT NULL DEFAULT 0",
    """
    ALTER TABLE clicks ADD COLUMN time INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE erasures ADD COLUMN events INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE events (
        id INTEGER PRIMARY KEY, version INTEGER NOT NULL, key BLOB NOT NULL, document TEXT NOT NULL, action TEXT NOT NULL,
        event_id TEXT NOT NULL, amount INTEGER NOT NULL, time INTEGER NOT NULL, UNIQUE (key, event_id)
    )
    """,
    "ALTER TABLE impressions ADD COLUMN covariates BLOB",
)
INSERT_DESIGN = "INSERT OR IGNORE INTO designs VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_IMPRESSION = "INSERT OR IGNORE INTO impressions VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_CLICK = "INSERT OR IGNORE INTO clicks VALUES (NULL, ?, ?, ?, ?, ?)"
INSERT_LIMITED_CLICK = """INSERT OR IGNORE INTO clicks SELECT NULL, ?, ?, ?, ?, ?
                          WHERE (SELECT count(*) FROM clicks WHERE key = ?) < ?"""
KNOWN_CLICK = "SELECT id FROM clicks WHERE (key, document, late) = (?, ?, ?)"
INSERT_EVENT = "INSERT OR IGNORE INTO events VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)"
INSERT_PUBLIC_EVENT = f"""INSERT OR IGNORE INTO events SELECT NULL, ?, ?, ?, ?, ?, ?, ?
                          WHERE (SELECT count(*) FROM events WHERE key = ?) < {MOST_PUBLIC}"""
KNOWN_EVENT = "SELECT 1 FROM events WHERE (key, event_id) = (?, ?)"
INSERT_MARK = "INSERT OR IGNORE INTO marks VALUES (NULL, ?, ?, ?)"
INSERT_VOID = "INSERT OR IGNORE INTO voids VALUES (NULL, ?, ?, ?)"
OF_ANOTHER_TIME = "SELECT 1 FROM impressions WHERE key = ? AND time <> ?"
ADD_TALLY = """INSERT INTO tallies VALUES (?, ?, ?)
               ON CONFLICT (version, name) DO UPDATE SET count = count + excluded.count"""
APPLICATION_ID = int.from_bytes(
    b"rkt2", "big"
)  # in the file's header; that of stores before the first release was "rktr"
LONGEST_TIMEOUT = 1e6  # seconds: SQLite counts milliseconds in 32 bits
SHORT, ATTEMPTS = 0.02, 50  # seconds that writers wait for a log to be emptied, and how often that is tried
LOOK_AGAIN, LONGEST_LOOK = 0.0002, 0.002  # seconds after which a writer tries a lock again that another process holds
TELL_EVERY = 60.0  # seconds between two lines in the log on one kind of trouble
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
        self._design_ids: dict[bytes, int] = {}  # by digest; of the writing thread
        self._changed: tuple[
            int, ...
        ] = ()  # what the file said when it was last asked: by others, and how much was erased
        self._erased: tuple[int | None, ...] = ()
        self._over: StoreUnavailable | None = None  # why nothing is written any more
        self._ended = False  # whether that was logged
        self._may_come_back = False  # whether it is over only until the file is back in its place
        self._troubled = False  # whether that was logged, and no commit has succeeded since
        self._told: dict[str, float] = {}  # when a kind of trouble was logged last
        try:
            make_private(self.path)
            self._file = OpenedFile(self.path)
            self._writing: sqlite3.Connection | None = self._connect(write_timeout)  # of the writing thread, too
            with contextlib.ExitStack() as stack:
                stack.callback(self._hang_up)
                schema = SQLiteSchema(self._writing)
                self.migrated = migrate(str(path), schema.transaction, MIGRATIONS, upgrade=upgrade)
                self._file.note_log()
                self._file.check()
                tighten(self.path)
                _do_not_wait(self._writing)
                stack.pop_all()
        except (sqlite3.Error, OSError) as problem:
            own = explained(problem, self.path)
            raise type(own)(f"{self.path} cannot be opened as a store: {own}") from problem
        super().__init__(str(path), queue_size)
        self._checkpoints = Checkpoints(self._bring_over)

    def _connect(self, timeout: float) -> sqlite3.Connection:
        self._file.check()  # to open another one with this log beside it would spoil it
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
                else:
                    self._file.check()
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
        """Turn SQLite's errors about the file into errors of the store; errors about a row are left as they are."""
        try:
            yield
        except Exception as problem:
            if (own := self._explained(problem)) is problem:
                raise
            raise own from problem

    def _explained(self, problem: Exception) -> Exception:
        """The error of the store for one of SQLite; the same for one about a row, or of anything else."""
        if isinstance(problem, UnicodeDecodeError):  # text that nobody wrote
            own: StoreUnavailable = damaged(self.path, str(problem))
        elif type(problem) in (sqlite3.OperationalError, sqlite3.DatabaseError):
            own = explained(problem, self.path)  # type: ignore[arg-type]
        else:
            return problem
        if isinstance(own, StoreDamaged):
            self._end(own)
        return own

    def _end(self, problem: StoreUnavailable) -> None:
        """Write nothing any more, and say why, once: what is acknowledged must be in the file that people will open."""
        if not self._ended:
            self._over, self._ended = problem, True
            log.error("nothing is stored any more: %s", problem)

    def _check_usable(self) -> None:
        if self._over is not None:
            raise type(self._over)(str(self._over))

    def _select(self, statement: str, values: Sequence[Any] = (), timeout: float = 0) -> list[tuple[Any, ...]]:
        with self._reading() as connection:
            return connection.execute(statement, values).fetchall()

    def _execute(self, statement: str, values: Sequence[Any], noted: Noted = None) -> None:
        self._check_usable()
        with self._own_errors(), contextlib.closing(self._connect(self._write_timeout)) as connection:
            connection.execute("BEGIN IMMEDIATE")  # what is not committed is undone when the connection is closed
            note(connection.execute, connection.execute(statement, values).rowcount, noted)
            connection.execute("COMMIT")
            self._file.check()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Execute]:
        self._check_usable()
        with self._own_errors(), contextlib.closing(self._connect(self._write_timeout)) as connection:
            connection.execute("PRAGMA secure_delete=ON")  # what is deleted is written over
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection.execute
                connection.execute("COMMIT")
                self._file.check()
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def erase(
        self, trial: str, time: int, reason: str, *, unit: int | None = None, before: int | None = None, who: str = ""
    ) -> Erased:
        erased = super().erase(trial, time, reason, unit=unit, before=before, who=who)
        self._empty_log()
        return erased

    def erase_trial(self, trial: str) -> Erased:
        erased = super().erase_trial(trial)
        self._empty_log()
        return erased

    def _empty_log(self) -> None:
        """Bring all that was written into the file: the log beside it still holds what was erased.

        Writers wait while the log is emptied, which takes a moment without readers: so not for long, and then again.
        """
        with self._own_errors(), contextlib.closing(self._connect(SHORT)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # nobody waits for most of it
            for _ in range(ATTEMPTS):
                if not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                    return
                time.sleep(10 * SHORT)
        log.warning("%s-wal holds what was erased until nobody reads from it: somebody does all the time", self.path)

    def check(self) -> None:
        """Look at every page for damage: a fresh connection, because others have pages in memory."""
        with self._own_errors(), contextlib.closing(self._connect(self._read_timeout)) as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            self._end(damaged(self.path, found))
            self._check_usable()

    def _bring_over(self) -> None:
        """Bring what was committed from the log into the file, as far as nobody has to wait for it."""
        self._check_usable()
        with self._reading() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _let_go(self) -> None:
        self._checkpoints.close()
        self._close_idle()

    def _close_idle(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    # --- writing ------------------------------------------------------------------------------------------------------

    def put(self, row: Row) -> Stored:
        if self._over is not None:
            self._check_usable()
        return self._writer.put(row)

    def _transaction(self, rows: list[Stored], tallied: Tallies, take_more: Callable[[], None]) -> None:
        try:
            self._write(rows, tallied, take_more)
        except Exception as problem:
            own = self._explained(problem)
            self._failed(own)
            if own is problem:
                raise
            raise own from problem
        self._checkpoints.due = True
        if self._troubled:
            self._troubled = False
            log.info("%s takes rows again", self.path)

    def _failed(self, problem: Exception) -> None:
        if isinstance(problem, StoreLost) and self._over is None:
            told = f"{problem}. Nothing is written to it"
            self._over = StoreLost(told)  # at once: to save what it held may take long
            saved, whole = ("", True) if self._writing is None else save_lost(self._writing, self.path)
            remedy = "Start again to use what is there now"
            self._may_come_back = whole and isinstance(problem, StoreGone) and not self._file.is_back()
            if self._may_come_back:
                remedy = f"It is used again when it is back in its place. {remedy}"
            self._end(StoreLost(f"{told}. {saved and f'{saved}. '}{remedy}"))
        if not isinstance(problem, StoreFull):
            self._hang_up()  # a fresh one next time: whatever was wrong may be over
        if isinstance(problem, StoreUnavailable) and self._over is None:
            now = time.monotonic()
            if now - self._told.get(problem.reason, -TELL_EVERY) >= TELL_EVERY:
                self._troubled, self._told[problem.reason] = True, now
                log.error("not stored: %s", problem)

    def _look_after(self) -> None:
        if self._may_come_back and self._file.is_back():
            self._take_up_again()
        if self._writing is not None:
            try:
                self._file.check()
            except StoreUnavailable as problem:
                self._failed(problem)

    def _take_up_again(self) -> None:
        """Use the file that has come back, with nothing in memory that rests on what it was."""
        self._close_idle()
        self._design_ids.clear()
        self._changed = ()
        self._over, self._ended, self._may_come_back = None, False, False
        log.warning("%s is back: it takes rows again", self.path)

    def _hang_up(self) -> None:
        self._file.forget_log()  # the last connection removes it
        if self._writing is not None:
            with contextlib.suppress(sqlite3.Error):
                self._writing.close()
        self._writing = None

    def _write(self, rows: list[Stored], tallied: Tallies, take_more: Callable[[], None]) -> None:
        if self._over is not None:
            self._check_usable()
        if self._writing is None:
            self._writing = self._connect(self._write_timeout)
            self._writing.execute("SELECT count(*) FROM sqlite_master")  # opens the log
            self._file.note_log()
            _do_not_wait(self._writing)
        connection = self._writing
        self._file.check()
        self._begin(connection)
        try:
            take_more()
            self._forget_erased(connection)
            self._insert_all(connection, rows)
            if tallied:
                _add_tallies(connection, tallied)
            connection.execute("COMMIT")
        except BaseException:
            self._design_ids.clear()  # some may be of rows that are not there now
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._file.check()

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Take the lock, as soon as another process lets go of it.

        SQLite itself would wait for up to a tenth of a second between two attempts. Commits take less than a millisecond:
        whoever waits for so long is overtaken again and again.
        """
        pause, until = LOOK_AGAIN, time.monotonic() + self._write_timeout
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as problem:
                if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                    raise
            time.sleep(pause)
            pause = min(1.1 * pause, LONGEST_LOOK)

    def _forget_erased(self, connection: sqlite3.Connection) -> None:
        """Rely on no design from before the last erasure, by whichever process."""
        changed = connection.execute("PRAGMA data_version").fetchone()  # by others
        if changed != self._changed:
            self._changed = changed
            erasures = connection.execute("SELECT count(*), sum(impressions), sum(designs) FROM erasures").fetchone()
            trials = connection.execute("SELECT count(*) FROM versions WHERE number < 0").fetchone()
            if (*erasures, *trials) != self._erased:
                self._erased = (*erasures, *trials)
                self._design_ids.clear()

    def _insert_all(self, connection: sqlite3.Connection, rows: Sequence[Stored]) -> None:
        drawn: list[Stored] = []
        impressions: list[tuple[Any, ...]] = []
        voids: list[tuple[Any, ...]] = []
        taken_back: list[Void] = []
        clicks: list[Click] = []
        events: list[Event] = []
        marks: list[tuple[int, bytes, int]] = []
        for stored in rows:
            match stored.row:
                case Impression(key, version, design, place, unit, time, _, segment, covariates):
                    number = self._design_id(connection, design)
                    impressions.append((key, version, number, place, unit, time, segment, covariates or None))
                    drawn.append(stored)
                case Click() as click:
                    clicks.append(click)
                case Event() as event:
                    events.append(event)
                case StoredClicks(_, several):
                    for one in several:
                        events.append(one) if isinstance(one, Event) else clicks.append(one)
                case Marked(key, version, kind):
                    marks.append((version, key, kind))
                case Void() as void:
                    taken_back.append(void)
                case Probe():
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")  # writes the first page
        if _insert(connection, INSERT_IMPRESSION, impressions) < len(impressions):
            for stored, row in zip(drawn, impressions):
                assert isinstance(stored.row, Impression)
                stored.again = not stored.row.looked
                if stored.row.looked and not _same(connection, row):
                    voids.append((row[1], row[0], "shown in two ways"))
        for void in taken_back:  # now that its impression is there
            if connection.execute(OF_ANOTHER_TIME, (void.key, void.time)).fetchone() is None:
                voids.append((void.version, void.key, void.reason))
        if clicks:
            marks += _insert_clicks(connection, clicks)
        if events:
            _insert_events(connection, events)
        if marks or voids:
            _insert(connection, INSERT_MARK, marks)
            _insert(connection, INSERT_VOID, voids)

    def _design_id(self, connection: sqlite3.Connection, design: Storable) -> int:
        known = self._design_ids.get(design.digest)
        if known is None:
            if len(self._design_ids) >= DESIGNS_KNOWN:
                self._design_ids.clear()
            connection.execute(INSERT_DESIGN, (design.digest, *design.parts))
            found = connection.execute("SELECT id FROM designs WHERE digest = ?", (design.digest,))
            known = self._design_ids[design.digest] = int(found.fetchone()[0])
        return known


def _do_not_wait(connection: sqlite3.Connection) -> None:
    """Let SQLite fail at once if another process holds a lock: ``_begin`` knows better how to wait for it."""
    connection.execute("PRAGMA busy_timeout = 0")


def _same(connection: sqlite3.Connection, row: tuple[Any, ...]) -> bool:
    """True if this impression is the one that is stored; if not, another process drew another one, and users saw either."""
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


def _insert_clicks(connection: sqlite3.Connection, clicks: Sequence[Click]) -> list[tuple[int, bytes, int]]:
    """Insert clicks, tally what is not new, or too much, and return the marks that belong to them."""
    last = connection.execute("SELECT coalesce(max(id), 0) FROM clicks").fetchone()[0]
    tallied: Counter[tuple[int, str]] = Counter()
    usual = [one for one in clicks if one.limit is None]
    marks = [(one.version, one.key, kind) for one in clicks for kind in one.marks]
    if _insert(connection, INSERT_CLICK, [_click_row(one) for one in usual]) < len(usual):
        marks += _sent_again(connection, usual, last, tallied)
    for one in clicks:
        if one.limit is None:
            continue
        if connection.execute(INSERT_LIMITED_CLICK, (*_click_row(one), one.key, one.limit)).rowcount == 0:
            known = connection.execute(KNOWN_CLICK, (one.key, one.document, one.late)).fetchone()
            tallied[one.version, DUPLICATE if known else REFUSED] += 1
    _add_tallies(connection, tallied)
    return marks


def _add_tallies(connection: sqlite3.Connection, counts: Tallies) -> None:
    connection.executemany(ADD_TALLY, [(version, name, count) for (version, name), count in counts.items() if count])


def _click_row(click: Click) -> tuple[Any, ...]:
    return click.version, click.key, click.document, click.late, click.time


def _sent_again(
    connection: sqlite3.Connection, clicks: Iterable[Click], last: int, tallied: Counter[tuple[int, str]]
) -> list[tuple[int, bytes, int]]:
    """Tally and mark clicks that were there before, in the store up to row ``last`` or among these."""
    marks, met = [], set[tuple[bytes, str, bool]]()
    for one in clicks:
        same = one.key, one.document, one.late
        if same in met or connection.execute(KNOWN_CLICK, same).fetchone()[0] <= last:
            tallied[one.version, DUPLICATE] += 1
            marks.append((one.version, one.key, mark(Mark.AGAIN, one.public)))
        met.add(same)
    return marks


def _insert_events(connection: sqlite3.Connection, events: Sequence[Event]) -> None:
    """Insert events, and tally those that are not new, or too many."""
    tallied: Counter[tuple[int, str]] = Counter()
    usual: dict[int, list[tuple[Any, ...]]] = {}
    for one in events:
        if not one.public:
            usual.setdefault(one.version, []).append(_event_row(one))
    for version, rows in usual.items():
        tallied[version, DUPLICATE_EVENT] += len(rows) - _insert(connection, INSERT_EVENT, rows)
    for one in events:
        if one.public and connection.execute(INSERT_PUBLIC_EVENT, (*_event_row(one), one.key)).rowcount == 0:
            known = connection.execute(KNOWN_EVENT, (one.key, one.event_id)).fetchone()
            tallied[one.version, DUPLICATE_EVENT if known else REFUSED_EVENTS] += 1
    _add_tallies(connection, tallied)


def _event_row(event: Event) -> tuple[Any, ...]:
    return event.version, event.key, event.document, event.action, event.event_id, event.amount, event.time


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
