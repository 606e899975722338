"""The command `ranktrial erase`: delete the data of a visitor, data before a time, or a whole trial."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from ranktrial.cli.console import out, plain_errors
from ranktrial.store import open_store
from ranktrial.store.base import Erased, rows_text
from ranktrial.store.protocols import Store
from ranktrial.times import seconds
from ranktrial.trial import Trial

SECONDS_A_DAY = 86_400.0


def erase_command(
    store: Annotated[
        str,
        typer.Argument(help="The store, a SQLite file or postgresql://USER@HOST/DATABASE; services may be using it."),
    ],
    unit: Annotated[
        str | None, typer.Option(help="Erase this visitor: the unit as given to rank, or as a report names it (#...).")
    ] = None,
    before: Annotated[
        str | None, typer.Option(help="Erase everything before this time, e.g. 2026-10-01 or 2026-10-01T12:00, UTC.")
    ] = None,
    keep_days: Annotated[float | None, typer.Option(min=0, help="Erase everything older than so many days.")] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="Erase the whole trial that --name names, which must be stopped.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Reason; every report shows it.")] = "",
    name: Annotated[str | None, typer.Option(help="Name of the trial. [default: all trials of the store]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Delete searches with their clicks and events, and queries and documents that no other search has. This cannot be undone.

    Reports then cover what is left; a trial's history records how much was erased, not whose.
    """
    with plain_errors():
        cut = None if before is None else seconds("--before", before)
        if keep_days is not None:
            cut = time.time() - keep_days * SECONDS_A_DAY
        asked = [
            text
            for text, given in (("--unit", unit), ("--before", before), ("--keep-days", keep_days))
            if given is not None
        ]
        asked += ["--everything"] * everything
        if len(asked) != 1:
            raise ValueError(
                f"one of --unit, --before, --keep-days and --everything is needed, not {', '.join(asked) or 'none'}"
            )
        place = open_store(store, must_exist=True)
        try:
            if everything:
                erased = {str(name): _whole(place, name)}
            else:
                names = place.trial_names() if name is None else [place.trial(name).name]
                erased = {one: _part(place, one, reason, unit, cut) for one in names}
        finally:
            place.close()
    if as_json:
        print(json.dumps({one: much._asdict() for one, much in erased.items()}, indent=2))
        return
    for one, much in erased.items():
        text = f"{one}: erased {rows_text(much)}"
        out.print(text + ", and the trial" * everything, markup=False, highlight=False, soft_wrap=True)
    if any(much.impressions for much in erased.values()):
        out.print("Backups, and folders that ranktrial export wrote, keep what they hold.", highlight=False)


def _part(store: Store, name: str, reason: str, unit: str | None, before: float | None) -> Erased:
    with Trial(store, name, background=False) as trial:
        return trial.erase(reason, unit=unit, before=before)


def _whole(store: Store, name: str | None) -> Erased:
    if name is None:
        raise ValueError("--everything needs the --name of the trial")
    if not store.trial(name).stopped:
        raise ValueError(f"trial {name!r} is running: stop it first (POST /v1/trials/{name}/stop, or Trial.stop)")
    return store.erase_trial(name)
