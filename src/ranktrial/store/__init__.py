"""Stores of a trial's log: the interface (``base``), stores in a SQLite file and in PostgreSQL, and how to open one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ranktrial import extras
from ranktrial.store.base import Overloaded, StoreError, StoreUnavailable
from ranktrial.store.protocols import Store
from ranktrial.store.sql import SQLStore
from ranktrial.store.sqlite import SQLiteStore

__all__ = ["Overloaded", "SQLiteStore", "Store", "StoreError", "StoreUnavailable", "open_store"]

T = TypeVar("T")


def is_postgres(where: str | Path) -> bool:
    """True if an address is one of PostgreSQL, and not a file."""
    return str(where).startswith(("postgresql://", "postgres://"))


def name_of(where: str | Path) -> str:
    """An address as it may be shown: without a password."""
    if not is_postgres(where):
        return str(where)
    _need_psycopg()
    from ranktrial.store.postgres.connection import Address

    return Address.read(str(where)).place


def _need_psycopg() -> None:
    if refusal := extras.missing("postgres", "a store in PostgreSQL"):
        raise StoreError(str(refusal)) from refusal


def open_store(where: str | Path, *, must_exist: bool = False, **options: Any) -> SQLStore:
    """The store at an address, made if it does not exist.

    Args:
        where: The path of a SQLite file, or ``postgresql://USER@HOST:PORT/DATABASE``.
        must_exist: Refuse to make it.
        options: Those of the store, such as ``queue_size`` and ``write_timeout``.
    """
    if is_postgres(where):
        _need_psycopg()
        from ranktrial.store.postgres import PostgresStore

        return PostgresStore(str(where), must_exist=must_exist, **options)
    if must_exist and not Path(where).exists():
        raise StoreError(
            f"{where} does not exist: a trial is made by Trial.create or by PUT /v1/trials/NAME of a service"
        )
    return SQLiteStore(where, **options)


def when_available(
    where: str | Path, seconds: float, ask: Callable[[], T], waiting: Callable[[StoreUnavailable], None]
) -> T:
    """The answer to a question that needs a store; a database that does not answer is waited for.

    Args:
        where: Address of the store. A file is not waited for: it is there, or it is made.
        seconds: How long to wait.
        ask: Asks; raises StoreUnavailable where the store does not answer.
        waiting: Called about once a second with that.
    """
    until = time.monotonic() + (seconds if is_postgres(where) else 0.0)
    while True:
        try:
            return ask()
        except StoreUnavailable as problem:
            if time.monotonic() >= until:
                raise
            waiting(problem)
            time.sleep(1.0)
