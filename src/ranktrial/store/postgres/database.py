"""A PostgreSQL database: connections for reading and for what is rare, each call with a time limit of ours."""

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
from ranktrial.store.database import READING, Execute, Noted, note
from ranktrial.store.migrations import migrate
from ranktrial.store.postgres.connection import Address, Connection
from ranktrial.store.postgres.schema import MIGRATIONS, Month, PostgresSchema, make_partitions, month_of

LAST_ID = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM row_ids"
LOWEST_IN_FLIGHT = """
    SELECT min((classid::bigint << 32 | objid::bigint) - %s) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (classid::bigint << 32 | objid::bigint) BETWEEN %s AND %s
"""
LONGEST_TIMEOUT = 1e6  # seconds
BACK_OFF = 0.05, 1.0  # seconds between attempts to connect: the first, and the longest
ERASING = 60.0  # seconds that deleting some rows may take
OTHERS_END = 1.0  # seconds that a reader waits for transactions that began before it


class PostgresDatabase:
    """A PostgreSQL database that is brought up to date and used; ``Database`` describes what it does for all stores.

    Args:
        url: As ``PostgresStore`` takes it.
        read_timeout: Seconds that looking up one impression may take.
        write_timeout: Seconds within which what is rare must be written.
        must_exist: Refuse to make the tables.
        upgrade: Bring an older schema up to date; others must not be using it.

    Attributes:
        migrated: The version that its schema had before it was opened, and the one that it has.
        locks: The lowest advisory lock that names a last id.
        months: Those whose partitions are there.
    """

    over: StoreUnavailable | None = None

    def __init__(self, url: str, read_timeout: float, write_timeout: float, *, must_exist: bool, upgrade: bool) -> None:
        self.patience = checks.between("read_timeout", read_timeout, 0, LONGEST_TIMEOUT)
        self.write_timeout = checks.between("write_timeout", write_timeout, 0, LONGEST_TIMEOUT)
        self._address = Address.read(url)
        self.place = self._address.place
        self._idle: list[Connection] = []  # connections for reading
        self._lock = threading.Lock()
        self._closed = False
        self._dialler = ThreadPoolExecutor(1, "ranktrial-dialler")
        self._failures, self._next_attempt = 0, 0.0
        try:
            with contextlib.closing(Connection.to(self._address)) as setup:
                setup.autocommit = True
                schema = PostgresSchema(setup, self._address)
                if must_exist and schema.version() == 0:
                    raise StoreError(
                        f"{self.place} holds no trials: one is made by Trial.create or by PUT /v1/trials/NAME of a service"
                    )
                self.migrated = migrate(self.place, schema.transaction, MIGRATIONS, upgrade=upgrade)
                setup.execute("DELETE FROM writers WHERE seen < now() - interval '1 day'")
                (oid,) = setup.execute("SELECT 'row_ids'::regclass::oid::int8").fetchone() or (0,)
                self.locks: int = (
                    oid % 2**15 * 2**48
                )  # what is above 48 bits tells our advisory locks from those of others
                self.months: set[Month] = {month_of(int(time.time()))}  # no visitor waits for them
                make_partitions(setup, self.months, self.locks >> 48)
        except psycopg.Error as problem:
            kind = StoreUnavailable if isinstance(problem, psycopg.OperationalError) else StoreError
            raise kind(f"{self.place} cannot be opened as a store: {_text(problem)}") from problem

    def unavailable(self, problem: Exception) -> StoreUnavailable:
        """The error of the store for one of the driver."""
        return StoreUnavailable(f"{self.place}: {_text(problem)}")

    def dial(self) -> Connection:
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
            raise self.unavailable(problem) from problem
        self._failures = 0
        return made

    # --- reading ------------------------------------------------------------------------------------------------------

    def _dial_to_read(self) -> None:
        made = self.dial()
        made.autocommit = True
        self._give_back(made)

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _take(self, timeout: float) -> Connection:
        """A connection for reading; there are as many as were needed at once. Making one takes no longer than reading may."""
        while True:
            with self._lock:
                if self._closed:
                    raise StoreError(f"{self.place} is closed")
                if self._idle:
                    return self._idle.pop()
            try:
                self._dialler.submit(self._dial_to_read).result(timeout)
            except TimeoutError as problem:
                raise StoreUnavailable(f"{self.place} cannot be reached in {timeout:g} s") from problem
            except RuntimeError:
                if not self._closed:  # meanwhile
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
                    raise self.unavailable(problem) from problem
                self._close_idle()
            except BaseException:
                connection.close()
                raise
            else:
                self._give_back(connection)
                return found
        raise AssertionError

    def select(self, statement: str, values: Sequence[Any] = (), timeout: float = READING) -> list[tuple[Any, ...]]:
        def read(connection: Connection) -> list[tuple[Any, ...]]:
            return connection.execute(_marked(statement), values, binary=True).fetchall()

        found: list[tuple[Any, ...]] = self._read(read, timeout)
        return found

    def now(self) -> int:
        """Time of the database: one for all instances."""
        return int(self.select("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0][0])

    def last_row(self) -> int:
        """The id below which all rows are there that ever will be. Whatever was acknowledged before this call is among them,
        unless somebody else's transaction takes longer than a second.
        """

        def read(connection: Connection) -> tuple[int, int]:
            with connection.pipeline():  # in this order: whoever has drawn an id by now holds a lock that is seen next
                drawn = connection.execute(LAST_ID, binary=True)
                bounds = self.locks, self.locks, self.locks + 2**48 - 1
                flying = connection.execute(LOWEST_IN_FLIGHT, bounds, binary=True)
                last, lowest = drawn.fetchall()[0][0], flying.fetchall()[0][0]
            return last, last if lowest is None else min(last, lowest)

        until = time.monotonic() + OTHERS_END
        needed, known = self._read(read, READING)
        while known < needed and time.monotonic() < until:
            time.sleep(0.002)
            known = self._read(read, READING)[1]
        return int(known)

    def check(self) -> None:
        self.select("SELECT 1")

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        self._closed = True
        self._dialler.shutdown()
        self._close_idle()

    # --- what is rare -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self, seconds: float) -> Iterator[Execute]:
        if self._closed:
            raise StoreError(f"{self.place} is closed")
        try:
            with contextlib.closing(self.dial()) as connection:
                connection.deadline = time.monotonic() + seconds
                yield lambda statement, values: connection.execute(_marked(statement), values)
                connection.commit()
        except psycopg.Error as problem:
            raise self.unavailable(problem) from problem

    def execute(self, statement: str, values: Sequence[Any], noted: Noted = None) -> None:
        with self._transaction(self.write_timeout) as execute:
            note(execute, execute(statement, values).rowcount, noted)

    @contextlib.contextmanager
    def changing(self) -> Iterator[Execute]:
        with self._transaction(ERASING) as execute:
            execute("LOCK TABLE impression_keys IN SHARE ROW EXCLUSIVE MODE", ())
            yield execute

    def leave_no_trace(self) -> None:
        """Nothing: the database's own vacuum does."""


@cache
def _marked(statement: str) -> str:
    """A statement with the marks of parameters that psycopg knows."""
    return statement.replace("?", "%s")


def _text(problem: Exception) -> str:
    """Error message on one line."""
    if isinstance(problem, psycopg.errors.QueryCanceled):
        return "the server could not do it in time"
    return " ".join(str(problem).split()) or type(problem).__name__
