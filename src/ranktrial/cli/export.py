"""The command `ranktrial export`: incremental export of a trial's log to a folder of Parquet."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ranktrial.cli.console import out, plain_errors, progress_bar
from ranktrial.formats.exporting import MEMORY, export
from ranktrial.store import StoreError
from ranktrial.trial import Trial


def export_command(
    store: Annotated[
        str, typer.Argument(help="The trial's store, e.g. shoes.db or postgresql://...; a service may be using it.")
    ],
    to: Annotated[Path, typer.Option(help="Folder of Parquet files, made if it does not exist, added to if it does.")],
    name: Annotated[str | None, typer.Option(help="Name of the trial, if the store holds several.")] = None,
    memory: Annotated[str, typer.Option(help="Memory limit of sorting and joining.")] = MEMORY,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Export a trial's log as Parquet: searches by day with their clicks, the designs they were drawn from, and events.

    Run it again to add what is new. Rows whose clicks came later are written anew. A run that was killed is completed or
    forgotten by the next one; every impression is there once.
    """
    with plain_errors():
        try:
            with (
                Trial.open(store, name, background=False) as trial,
                progress_bar(f"exporting {trial.name}") as progress,
            ):
                total = sum(trial.store.count(one.id, 0).impressions for one in trial.store.versions(trial.name))
                seen = 0

                def more(rows: int) -> None:
                    nonlocal seen
                    seen += rows
                    progress(seen, total)

                done = export(trial.store, trial.name, to, memory=memory, progress=more)
        except StoreError as problem:
            raise ValueError(str(problem)) from problem
    if as_json:
        print(json.dumps(asdict(done)))
        return
    told = f"{done.impressions:,} new searches of {done.designs:,} new designs in {to}"
    if done.events:
        told += f"; {done.events:,} events after searches"
    if done.rewritten:
        told += f"; {done.rewritten:,} files written anew, for clicks that came later"
    if done.damaged:
        told += f"; {done.damaged:,} damaged searches left out"
    if done.waiting:
        told += f"; {done.waiting:,} clicks wait for a search that is not stored"
    if done.erased:
        told += (
            f"; {done.erased:,} searches were erased from the store since this folder was begun, and are still in it "
            "if they had been exported: delete it and export anew to erase them here too"
        )
    out.print(told, markup=False, highlight=False, soft_wrap=True)
