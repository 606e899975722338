"""The command `ranktrial migrate`: bring the schema of a store up to date."""

from __future__ import annotations

from ranktrial.cli.console import plain_errors, tell
from ranktrial.cli.options import JsonOption, StoreArgument
from ranktrial.store import name_of, open_store


@plain_errors()
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
