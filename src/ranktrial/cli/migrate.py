"""The command `ranktrial migrate`: bring the schema of a store up to date."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ranktrial.cli.console import out, plain_errors
from ranktrial.store import name_of, open_store


def migrate_command(
    store: Annotated[str, typer.Argument(help="The store, a SQLite file or postgresql://USER@HOST/DATABASE.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Migrate a store to the current schema; a store of a newer ranktrial is refused and left alone.

    A SQLite file is migrated when it is opened. In PostgreSQL others may be using the store: stop the instances
    of the older version, run this, start those of the newer one.
    """
    with plain_errors():
        made = open_store(store, must_exist=True, upgrade=True)
        made.close()
    before, after = made.migrated
    if as_json:
        print(json.dumps({"store": name_of(store), "before": before, "after": after}))
    else:
        text = f"has schema {after} already" if before == after else f"had schema {before}, has schema {after} now"
        out.print(f"{name_of(store)} {text}", markup=False, highlight=False, soft_wrap=True)
