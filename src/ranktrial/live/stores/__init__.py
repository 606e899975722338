"""Stores of a trial's log: what a store must do (``base``), the one in a SQLite file (``sqlite``), and how one is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ranktrial.live.stores.base import Store, StoreError


def open_store(where: str | Path, *, must_exist: bool = False, **options: Any) -> Store:
    """The store at an address.

    Args:
        where: The path of a SQLite file, made if it does not exist.
        must_exist: Refuse to make it.
        options: Those of the store, such as ``queue_size`` and ``write_timeout``.
    """
    from ranktrial.live.stores.sqlite import SQLiteStore

    if must_exist and not Path(where).exists():
        raise StoreError(
            f"{where} does not exist: a trial is made by Trial.create or by PUT /v1/trials/NAME of a service"
        )
    return SQLiteStore(where, **options)
