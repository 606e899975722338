"""The commands `ranktrial backup` and `ranktrial restore`: a copy of a store, and a copy put in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ranktrial.cli.console import out, plain_errors
from ranktrial.store import is_postgres
from ranktrial.store.sqlite_backup import Copied, backup, restore
from ranktrial.times import time_text

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def backup_command(
    store: Annotated[str, typer.Argument(help="The store, a SQLite file; services may be using it.")],
    to: Annotated[Path, typer.Argument(help="The copy; must not exist.")],
    as_json: Json = False,
) -> None:
    """Copy a store into a file: everything stored before the copy began, checked, readable by its owner only."""
    with plain_errors():
        found = backup(_file(store), to)
    _tell(as_json, {"backup": str(to)}, f"{to} holds {_held(found)}", found)


def restore_command(
    backup: Annotated[Path, typer.Argument(help="The copy, from `ranktrial backup`.")],
    store: Annotated[str, typer.Argument(help="Path of the store, a SQLite file; nothing may be using it.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an existing store, which is kept under another name.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Restore a store from a copy. It lacks everything stored after the copy was made."""
    with plain_errors():
        found, before = restore(backup, _file(store), replace=replace)
    kept = f"; what was there before is {before}" if before else ""
    _tell(
        as_json,
        {"store": store, "before": None if before is None else str(before)},
        f"{store} holds {_held(found)}{kept}",
        found,
    )


def _file(store: str) -> Path:
    if is_postgres(store):
        raise ValueError("a store in PostgreSQL is copied by pg_dump and put back by pg_restore, as every database")
    return Path(store)


def _held(found: Copied) -> str:
    last = f", the last of {time_text(found.last / 1e6)}" if found.last else ""
    events = f" and {found.events:,} events" if found.events else ""
    return f"{found.impressions:,} searches{last}, and {found.clicks:,} clicks{events}"


def _tell(as_json: bool, where: dict[str, str | None], text: str, found: Copied) -> None:
    if as_json:
        print(json.dumps({**where, **found._asdict(), "last": found.last / 1e6}))
    else:
        out.print(text, markup=False, highlight=False, soft_wrap=True)
