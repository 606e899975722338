"""The command `ranktrial export`: incremental export of a trial's log to a folder of Parquet."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ranktrial.cli.console import progress_bar, tell
from ranktrial.cli.options import JsonOption, NameOption, StoreArgument
from ranktrial.formats.exporting import Exported, export
from ranktrial.trial import Trial


def export_command(
    store: StoreArgument,
    to: Annotated[Path, typer.Option(help="Folder of Parquet files, made if it does not exist, added to if it does.")],
    name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export a trial's log as Parquet: searches by day with their clicks, the designs they were drawn from, and events.

    Run it again to add what is new. Rows whose clicks came later are written anew. A run that was killed is completed or
    forgotten by the next one; every impression is there once.
    """
    with Trial.open(store, name, background=False) as trial, progress_bar(f"exporting {trial.name}") as progress:
        total = sum(trial.store.count(one.id, 0).impressions for one in trial.store.trials.versions(trial.name))
        seen = 0

        def more(rows: int) -> None:
            nonlocal seen
            seen += rows
            progress(seen, total)

        done = export(trial.store, trial.name, to, progress=more)
    tell(
        as_json, asdict(done), f"{done.impressions:,} new searches of {done.designs:,} new designs in {to}{_more(done)}"
    )


def _more(done: Exported) -> str:
    """Numbers that an export has besides new searches, each after a semicolon."""
    numbers = {
        "events after searches": done.events,
        "files written anew, for clicks that came later": done.rewritten,
        "damaged searches left out": done.damaged,
        "clicks wait for a search that is not stored": done.waiting,
        "searches were erased from the store since this folder was begun, and are still in it if they had been exported: "
        "delete it and export anew to erase them here too": done.erased,
    }
    return "".join(f"; {number:,} {what}" for what, number in numbers.items() if number)
