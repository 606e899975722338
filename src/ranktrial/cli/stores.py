"""The commands for whole stores: backup, restore and migrate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ranktrial.cli.console import tell
from ranktrial.cli.options import JsonOption, StoreArgument
from ranktrial.store import is_postgres, name_of, open_store
from ranktrial.store.sqlite_backup import Copied, backup, restore
from ranktrial.times import time_text


def backup_command(
    store: Annotated[str, typer.Argument(help="The store, a SQLite file; services may be using it.")],
    to: Annotated[Path, typer.Argument(help="The copy; must not exist.")],
    as_json: JsonOption = False,
) -> None:
    """Copy a store into a file: everything stored before the copy began, checked, readable by its owner only."""
    found = backup(_file(store), to)
    tell(as_json, {"backup": str(to), **_told(found)}, f"{to} holds {_held(found)}")


def restore_command(
    backup: Annotated[Path, typer.Argument(help="The copy, from `ranktrial backup`.")],
    store: Annotated[str, typer.Argument(help="Path of the store, a SQLite file; nothing may be using it.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an existing store, which is kept under another name.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Restore a store from a copy. It lacks everything stored after the copy was made."""
    found, before = restore(backup, _file(store), replace=replace)
    kept = f"; what was there before is {before}" if before else ""
    told = {"store": store, "before": None if before is None else str(before), **_told(found)}
    tell(as_json, told, f"{store} holds {_held(found)}{kept}")


def migrate_command(store: StoreArgument, as_json: JsonOption = False) -> None:
    """Migrate a store to the current schema; a store of a newer ranktrial is refused and left alone.

    A SQLite file is migrated when it is opened. In PostgreSQL others may be using the store: stop the instances
    of the older version, run this, start those of the newer one.
    """
    made = open_store(store, must_exist=True, upgrade=True)
    made.close()
    before, after = made.migrated
    text = f"has schema {after} already" if before == after else f"had schema {before}, has schema {after} now"
    tell(as_json, {"store": name_of(store), "before": before, "after": after}, f"{name_of(store)} {text}")


def _file(store: str) -> Path:
    if is_postgres(store):
        raise ValueError("a store in PostgreSQL is copied by pg_dump and put back by pg_restore, as every database")
    return Path(store)


def _held(found: Copied) -> str:
    last = f", the last of {time_text(found.last / 1e6)}" if found.last else ""
    events = f" and {found.events:,} events" if found.events else ""
    return f"{found.impressions:,} searches{last}, and {found.clicks:,} clicks{events}"


def _told(found: Copied) -> dict[str, float]:
    return {**found._asdict(), "last": found.last / 1e6}
