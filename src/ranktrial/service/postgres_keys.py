"""API keys in the database, the same for all instances that use it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import psycopg

from ranktrial.service.api_keys import ApiKey, Keys
from ranktrial.store.base import StoreUnavailable
from ranktrial.store.postgres.connection import Address, Connection
from ranktrial.store.postgres.store import PostgresStore

TIMEOUT = 5.0  # seconds


class KeyTable(Keys):
    """The keys in the database of a store. While it cannot be reached the keys known last go on to count."""

    def __init__(self, url: str) -> None:
        self._url, self._address = url, Address.read(url)
        super().__init__(f"the keys of {self._address.place}")
        self._connection: Connection | None = None
        self._one_at_a_time = threading.Lock()

    def all(self) -> list[ApiKey]:
        with self._one_at_a_time, self._own_errors():
            try:
                return self._read(self._connected())
            except psycopg.errors.UndefinedTable:  # there is no store yet
                return []
            finally:
                if self._connection is not None and not self._connection.closed:
                    self._connection.rollback()

    def exist(self) -> bool:
        return bool(self.all())

    def _read(self, connection: Connection) -> list[ApiKey]:
        row = connection.execute("SELECT content FROM api_keys").fetchone()
        return [] if row is None else self._parsed(row[0])

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = Connection.to(self._address)
        self._connection.deadline = time.monotonic() + TIMEOUT
        return self._connection

    @contextlib.contextmanager
    def _own_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as problem:
            if self._connection is not None:
                self._connection.close()
            raise StoreUnavailable(f"{self.place} cannot be read: {problem}") from problem

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[ApiKey]]:
        PostgresStore(self._url).close()  # makes the tables if there are none
        with self._one_at_a_time, self._own_errors(), self._connected().transaction():
            connection = self._connected()
            connection.execute("LOCK TABLE api_keys IN EXCLUSIVE MODE")
            keys = [key for key in self._read(connection) if not key.expired]
            yield keys
            connection.execute("DELETE FROM api_keys")
            connection.execute("INSERT INTO api_keys VALUES (%s)", (self._written(keys),))

    def _reload(self) -> None:
        """Reload the keys in a thread: no request waits for the database, except the first."""
        if self._known is None:
            self._load()
        else:
            threading.Thread(target=self._load, daemon=True).start()

    def _load(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            self._known = {key.id: key for key in self.all()}
