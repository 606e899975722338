"""The kinds of stores that the shared tests run through, and rows to put in. Another kind: a class like ``InSQLite``, and its
name in ``KINDS``.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from postgres_server import binaries, shared_server, url
from ranktrial.log.designs import Design
from ranktrial.store.base import Impression
from ranktrial.store.postgres import PostgresStore
from ranktrial.store.postgres.connection import Address, Connection
from ranktrial.store.protocols import Store
from ranktrial.store.sqlite import SQLiteStore
from ranktrial.store.stored import Phase, Stored

SERVER = "RANKTRIAL_TEST_POSTGRES"  # tells processes that a test starts which folder its server is in

ORDERS = np.array([[0, 1], [1, 0]], np.uint8)
DESIGN = Design("q", 1, ("x", "y"), ORDERS[0], ORDERS[1], ORDERS, np.array([0.1, 0.9]), ("z",))


def key(number: int) -> bytes:
    return b"%010d" % number


def impression(number: int, place: int = 0) -> Impression[Any]:
    return Impression(key(number), 1, DESIGN, place, number, number)


def begin_writing(*rows: Stored) -> None:
    """Note that rows which wait are being written."""
    for row in rows:
        if row.stage is Phase.WAITING:
            row.stage = Phase.RUNNING


def failure(stored: Stored, timeout: float = 60) -> BaseException | None:
    """Error of a row that could not be stored, when that is known; None if it was."""
    try:
        stored.result(timeout)
    except TimeoutError:
        raise
    except BaseException as found:
        return found
    return None


class Kind(Protocol):
    """A kind of store, kept in one place."""

    def __init__(self, folder: Path) -> None: ...

    def open(self, *, queue_size: int = 10_000, write_timeout: float = 60) -> Store:
        """The store as one more process opens it."""
        ...

    def stalled(self) -> contextlib.AbstractContextManager[None]:
        """Hold the lock by which another process keeps everybody from writing."""
        ...


class InSQLite:
    """The store in a SQLite file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "s.db"

    def open(self, **options: Any) -> SQLiteStore:
        return SQLiteStore(self.path, **{"write_timeout": 60, **options})

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        other = sqlite3.connect(self.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")
            other.close()


class InPostgres:
    """The store in a PostgreSQL database, on the server of this process or of the one that started it."""

    def __init__(self, folder: Path) -> None:
        if SERVER not in os.environ:
            try:
                os.environ[SERVER] = str(shared_server().folder)
            except FileNotFoundError as problem:
                pytest.skip(str(problem))
        self.url = url(Path(os.environ[SERVER]), str(folder))

    def open(self, **options: Any) -> PostgresStore:
        patience = max(options.pop("write_timeout", 60), 0.5)  # to connect takes its time
        return PostgresStore(self.url, write_timeout=patience, read_timeout=60, **options)

    def holding(self) -> Connection:
        """A connection that holds its locks as long as a test needs them, however busy the machine is."""
        made = Connection.to(Address.read(self.url))
        made.deadline = math.inf
        made.execute("SET idle_in_transaction_session_timeout = 0")  # a store's own has 10 s
        made.commit()
        return made

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        with self.holding() as other:
            other.execute("LOCK TABLE designs, impression_keys, clicks, events, voids, tallies IN SHARE MODE")
            yield
            other.rollback()


def available() -> list[str]:
    """The kinds that can be had here."""
    return [name for name in KINDS if name != "postgres" or SERVER in os.environ or binaries() is not None]


KINDS: dict[str, type[Kind]] = {"sqlite": InSQLite, "postgres": InPostgres}
