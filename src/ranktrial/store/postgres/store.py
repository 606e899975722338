"""The store in a PostgreSQL database: what becomes of a transaction when its connection breaks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import psycopg

from ranktrial.store.base import StoreError, StoreUnavailable
from ranktrial.store.postgres.batch import KNOWN_IMPRESSIONS, Batch, Sender, write
from ranktrial.store.postgres.connection import Connection
from ranktrial.store.postgres.database import BACK_OFF, PostgresDatabase
from ranktrial.store.postgres.schema import make_partitions
from ranktrial.store.sql import SQLStore
from ranktrial.store.stored import Stored
from ranktrial.store.writer import Tallies

LOST = frozenset([b""])  # instead of keys: the connection was lost, and with it perhaps what was sent
SLOTS = 16  # rows of a tally, so that instances do not wait for each other to count the same
GRACE = 1.0  # seconds that the server has to say that it has ended a statement
DESIGNS_KNOWN = 50_000  # whose digests are kept in memory


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
        self._server = PostgresDatabase(url, read_timeout, write_timeout, must_exist=must_exist, upgrade=upgrade)
        self.migrated = self._server.migrated
        self._writing: Connection | None = None  # of the writing thread, and so is what follows
        self._batch = 0  # how many there were
        self._known: set[bytes] = set()  # digests of designs that are there
        self._sender = Sender(random.getrandbits(63), self._server.locks, random.randrange(SLOTS))
        super().__init__(self._server, queue_size)

    def _dial(self) -> Connection:
        """A connection whose statements the server itself ends in time: one that nobody waits for must not be committed."""
        made = self._server.dial()
        made.autocommit = True
        milliseconds = str(max(1, round(1000 * self._server.write_timeout)))
        made.execute("SELECT set_config('statement_timeout', %s, false)", (milliseconds,))
        return made

    def _hang_up(self) -> None:
        if self._writing is not None:
            self._writing.close()
        self._writing = None

    def _transaction(self, rows: list[Stored], tallied: Tallies, take_more: Callable[[], None]) -> None:
        batch, deadline = Batch(rows), time.monotonic() + self._server.write_timeout
        self._batch += 1
        while (new := self._attempt(batch, tallied, deadline)) is LOST:
            time.sleep(BACK_OFF[0])
            batch = Batch(stored for stored in rows if not stored.unwanted)
        self._known.update(batch.designs)
        if len(self._known) > DESIGNS_KNOWN:
            self._known.clear()
        for row, stored in batch.known_before(new or frozenset()):
            stored.again = not row.looked

    def _attempt(self, batch: Batch, tallied: Tallies, deadline: float) -> frozenset[bytes] | None:
        """Write a batch, and return the keys of new impressions, None if it is found written; LOST if it is worth another try.

        It has a number by which the server tells whether it has been written: nothing is, twice.
        """
        server = self._server
        try:
            if self._writing is None:
                self._writing = self._dial()
            self._writing.deadline = time.monotonic() + server.write_timeout + GRACE
            months = batch.months - server.months
            if months:
                make_partitions(self._writing, months, server.locks >> 48)
                server.months |= months
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
            raise (problem if isinstance(problem, StoreError) else server.unavailable(problem)) from problem
        except BaseException:
            self._hang_up()
            raise
