"""Stores of a trial's log: what a store must do (``base``), those in a SQLite file and in PostgreSQL, and how one is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ranktrial import extras
from ranktrial.live.stores.base import StoreError
from ranktrial.live.stores.sql import SQLStore


def is_postgres(where: str | Path) -> bool:
    """Whether an address is one of PostgreSQL, and not a file."""
    return str(where).startswith(("postgresql://", "postgres://"))


def name_of(where: str | Path) -> str:
    """An address as it may be shown: without a password."""
    if not is_postgres(where):
        return str(where)
    _need_psycopg()
    from ranktrial.live.stores.postgres.connection import Address

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
        from ranktrial.live.stores.postgres import PostgresStore

        return PostgresStore(str(where), must_exist=must_exist, **options)
    from ranktrial.live.stores.sqlite import SQLiteStore

    if must_exist and not Path(where).exists():
        raise StoreError(
            f"{where} does not exist: a trial is made by Trial.create or by PUT /v1/trials/NAME of a service"
        )
    return SQLiteStore(where, **options)
