"""The store in a PostgreSQL database: its connections, and what becomes of a transaction when one breaks."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import psycopg

from ranktrial import checks
from ranktrial.store.base import StoreError, StoreUnavailable
from ranktrial.store.erasure import Execute
from ranktrial.store.migrations import migrate
from ranktrial.store.postgres.batch import KNOWN_IMPRESSIONS, Batch, Sender, write
from ranktrial.store.postgres.connection import Address, Connection
from ranktrial.store.postgres.schema import MIGRATIONS, PostgresSchema, make_partitions, month_of
from ranktrial.store.sql import DESIGNS_KNOWN, READING, Noted, SQLStore, note
from ranktrial.store.stored import Stored
from ranktrial.store.writer import Tallies

LAST_ID = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM row_ids"
LOWEST_IN_FLIGHT = """
    SELECT min((classid::bigint << 32 | objid::bigint) - %s) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (classid::bigint << 32 | objid::bigint) BETWEEN %s AND %s
"""
LOST = frozenset([b""])  # instead of keys: the connection was lost, and with it perhaps what was sent
LONGEST_TIMEOUT = 1e6  # seconds
SLOTS = 16  # rows of a tally, so that instances do not wait for each other to count the same
BACK_OFF = 0.05, 1.0  # seconds between attempts to connect: the first, and the longest
ERASING = 60.0  # seconds that deleting some rows may take
GRACE = 1.0  # seconds that the server has to say that it has ended a statement
OTHERS_END = 1.0  # seconds that a reader waits for transactions that began before it


class PostgresStore(SQLStore):
    """A store in a PostgreSQL database. Its methods are described in ``Store``.

    Args:
        url: ``postgresql://USER@HOST:PORT/DATABASE``, with ``?schema=`` for tables elsewhere than in the schema ``ranktrial``.
            What is not said, the password too, is taken from where libpq looks: PGPASSWORD, ``~/.pgpass``, services.
        queue_size: Rows that may wait to be written.
        read_timeout: Seconds that looking up one impression may take.
        write_timeout: Seconds within which rows must be written, reconnecting included.
        must_exist: Refuse to make the tables.
        upgrade: Bring an older schema up to date; others must not be using it.
    """

    quick = False
    _BY_KEY = ("voids", "marks", "impression_keys")
    _WHERE_KEY = f"{KNOWN_IMPRESSIONS} WHERE key"

    def __init__(
        self,
        url: str,
        *,
        queue_size: int = 10_000,
        read_timeout: float = 0.25,
        write_timeout: float = 5.0,
        must_exist: bool = False,
        upgrade: bool = False,
    ) -> None:
        self._read_timeout = checks.between("read_timeout", read_timeout, 0, LONGEST_TIMEOUT)
        self._write_timeout = checks.between("write_timeout", write_timeout, 0, LONGEST_TIMEOUT)
        self._address = Address.read(url)
        self._idle: list[Connection] = []  # connections for reading
        self._lock = threading.Lock()
        self._dialler = ThreadPoolExecutor(1, "ranktrial-dialler")
        self._failures, self._next_attempt = 0, 0.0
        self._writing: Connection | None = None  # of the writing thread, and so is what follows
        self._batch = 0  # how many there were
        self._known: set[bytes] = set()  # digests of designs that are there
        try:
            with contextlib.closing(Connection.to(self._address)) as setup:
                setup.autocommit = True
                schema = PostgresSchema(setup, self._address)
                if must_exist and schema.version() == 0:
                    raise StoreError(
                        f"{self._address.place} holds no trials: one is made by Trial.create or by PUT /v1/trials/NAME of a "
                        "service"
                    )
                self.migrated = migrate(self._address.place, schema.transaction, MIGRATIONS, upgrade=upgrade)
                setup.execute("DELETE FROM writers WHERE seen < now() - interval '1 day'")
                (oid,) = setup.execute("SELECT 'row_ids'::regclass::oid::int8").fetchone() or (0,)
                locks = oid % 2**15 * 2**48  # what is above 48 bits tells our advisory locks from those of others
                self._months = {month_of(int(time.time()))}  # whose partitions are there: no visitor waits for them
                make_partitions(setup, self._months, locks >> 48)
        except psycopg.Error as problem:
            kind = StoreUnavailable if isinstance(problem, psycopg.OperationalError) else StoreError
            raise kind(f"{self._address.place} cannot be opened as a store: {_text(problem)}") from problem
        self._sender = Sender(random.getrandbits(63), locks, random.randrange(SLOTS))
        super().__init__(self._address.place, queue_size)

    def _let_go(self) -> None:
        self._dialler.shutdown()
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    # --- connections ----------------------------------------------------------------------------------------------------

    def _unavailable(self, problem: Exception) -> StoreUnavailable:
        return StoreUnavailable(f"{self.place}: {_text(problem)}")

    def _dial(self) -> Connection:
        """A new connection; fails at once where the last attempt has failed a moment ago."""
        with self._lock:
            if time.monotonic() < self._next_attempt:
                raise StoreUnavailable(f"{self.place} cannot be reached; the next attempt is made in a moment")
        try:
            made = Connection.to(self._address)
        except psycopg.Error as problem:
            with self._lock:
                first, longest = BACK_OFF
                pause = min(first * 2**self._failures, longest) * random.uniform(0.5, 1)
                self._failures, self._next_attempt = self._failures + 1, time.monotonic() + pause
            raise self._unavailable(problem) from problem
        self._failures = 0
        return made

    def _dial_to_write(self) -> Connection:
        """A connection whose statements the server itself ends in time: one that nobody waits for must not be committed."""
        made = self._dial()
        made.autocommit = True
        milliseconds = str(max(1, round(1000 * self._write_timeout)))
        made.execute("SELECT set_config('statement_timeout', %s, false)", (milliseconds,))
        return made

    def _dial_to_read(self) -> None:
        made = self._dial()
        made.autocommit = True
        self._give_back(made)

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._writer.closed:
                self._idle.append(connection)
                return
        connection.close()

    def _take(self, timeout: float) -> Connection:
        """A connection for reading; there are as many as were needed at once. Making one takes no longer than reading may."""
        while True:
            with self._lock:
                self._check_open()
                if self._idle:
                    return self._idle.pop()
            try:
                self._dialler.submit(self._dial_to_read).result(timeout)
            except TimeoutError as problem:
                raise StoreUnavailable(f"{self.place} cannot be reached in {timeout:g} s") from problem
            except RuntimeError:  # closed meanwhile
                self._check_open()
                raise

    def _read(self, read: Callable[[Connection], Any], timeout: float) -> Any:
        """Read on a connection. One that has broken while it was idle, as after a restart, is replaced."""
        for attempt in range(2):
            connection = self._take(timeout)
            connection.deadline = time.monotonic() + timeout
            try:
                found = read(connection)
            except psycopg.Error as problem:
                stale = connection.closed and attempt == 0
                connection.close()
                if not stale:
                    raise self._unavailable(problem) from problem
                with self._lock:
                    broken, self._idle = self._idle, []
                for one in broken:
                    one.close()
            except BaseException:
                connection.close()
                raise
            else:
                self._give_back(connection)
                return found
        raise AssertionError

    def _select(self, statement: str, values: Sequence[Any] = (), timeout: float = READING) -> list[tuple[Any, ...]]:
        def read(connection: Connection) -> list[tuple[Any, ...]]:
            return connection.execute(_marked(statement), values, binary=True).fetchall()

        found: list[tuple[Any, ...]] = self._read(read, timeout)
        return found

    def _now(self) -> int:
        """Time of the database: one for all instances."""
        return int(self._select("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0][0])

    def _execute(self, statement: str, values: Sequence[Any], noted: Noted = None) -> None:
        self._check_open()
        try:
            with contextlib.closing(self._dial()) as connection:
                connection.deadline = time.monotonic() + self._write_timeout
                changed = connection.execute(_marked(statement), values).rowcount
                note(lambda statement, values: connection.execute(_marked(statement), values), changed, noted)
                connection.commit()
        except psycopg.Error as problem:
            raise self._unavailable(problem) from problem

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Execute]:
        self._check_open()
        try:
            with contextlib.closing(self._dial()) as connection:
                connection.deadline = time.monotonic() + ERASING
                connection.execute("LOCK TABLE impression_keys IN SHARE ROW EXCLUSIVE MODE")
                yield lambda statement, values: connection.execute(_marked(statement), values)
                connection.commit()
        except psycopg.Error as problem:
            raise self._unavailable(problem) from problem

    # --- reading ----------------------------------------------------------------------------------------------------------

    def _last_row(self) -> int:
        """The id below which all rows are there that ever will be. Whatever was acknowledged before this call is among them,
        unless somebody else's transaction takes longer than a second.
        """

        def read(connection: Connection) -> tuple[int, int]:
            with connection.pipeline():  # in this order: whoever has drawn an id by now holds a lock that is seen next
                drawn = connection.execute(LAST_ID, binary=True)
                lock = self._sender.locks
                flying = connection.execute(LOWEST_IN_FLIGHT, (lock, lock, lock + 2**48 - 1), binary=True)
                last, lowest = drawn.fetchall()[0][0], flying.fetchall()[0][0]
            return last, last if lowest is None else min(last, lowest)

        until = time.monotonic() + OTHERS_END
        needed, known = self._read(read, READING)
        while known < needed and time.monotonic() < until:
            time.sleep(0.002)
            known = self._read(read, READING)[1]
        return int(known)

    # --- writing ----------------------------------------------------------------------------------------------------------

    def _hang_up(self) -> None:
        if self._writing is not None:
            self._writing.close()
        self._writing = None

    def _transaction(self, rows: list[Stored], tallied: Tallies, take_more: Callable[[], None]) -> None:
        batch, deadline = Batch.of(rows), time.monotonic() + self._write_timeout
        self._batch += 1
        while (new := self._attempt(batch, tallied, deadline)) is LOST:
            time.sleep(BACK_OFF[0])
            batch = Batch.of(stored for stored in rows if not stored.unwanted)
        self._known.update(batch.designs)
        if len(self._known) > DESIGNS_KNOWN:
            self._known.clear()
        for row, stored in batch.known_before(new or frozenset()):
            stored.again = not row.looked

    def _attempt(self, batch: Batch, tallied: Tallies, deadline: float) -> frozenset[bytes] | None:
        """Write a batch, and return the keys of new impressions, None if it is found written; LOST if it is worth another try.

        It has a number by which the server tells whether it has been written: nothing is, twice.
        """
        try:
            if self._writing is None:
                self._writing = self._dial_to_write()
            self._writing.deadline = time.monotonic() + self._write_timeout + GRACE
            months = batch.months - self._months
            if months:
                make_partitions(self._writing, months, self._sender.locks >> 48)
                self._months |= months
            return write(self._writing, batch, tallied, self._known, self._sender, self._batch)
        except (psycopg.Error, StoreUnavailable) as problem:
            lost = self._writing is None or self._writing.closed or isinstance(problem, psycopg.errors.DeadlockDetected)
            self._hang_up()
            if isinstance(problem, psycopg.IntegrityError) and self._known:
                self._known.clear()  # somebody may have deleted a design
                return LOST
            if isinstance(problem, psycopg.DataError | psycopg.IntegrityError):
                raise
            if lost and time.monotonic() + BACK_OFF[0] < deadline:
                return LOST
            raise (problem if isinstance(problem, StoreError) else self._unavailable(problem)) from problem
        except BaseException:
            self._hang_up()
            raise


@cache
def _marked(statement: str) -> str:
    """A statement with the marks of parameters that psycopg knows."""
    return statement.replace("?", "%s")


def _text(problem: Exception) -> str:
    """Error message on one line."""
    if isinstance(problem, psycopg.errors.QueryCanceled):
        return "the server could not do it in time"
    return " ".join(str(problem).split()) or type(problem).__name__
