"""The command `ranktrial erase`: delete the data of a visitor, data before a time, or a whole trial."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Annotated

import typer

from ranktrial.cli.console import plain_errors, say, tell
from ranktrial.cli.options import JsonOption, ReasonOption, StoreArgument
from ranktrial.store import open_store
from ranktrial.store.base import Erased, rows_text
from ranktrial.store.protocols import Store
from ranktrial.times import seconds
from ranktrial.trial import Trial

SECONDS_A_DAY = 86_400.0


@plain_errors()
def erase_command(
    store: StoreArgument,
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
    reason: ReasonOption = "",
    name: Annotated[str | None, typer.Option(help="Name of the trial. Default: all trials of the store.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Delete searches with their clicks and events, and queries and documents that no other search has. This cannot be undone.

    Reports then cover what is left; a trial's history records how much was erased, not whose.
    """
    cut = None if before is None else seconds("--before", before)
    if keep_days is not None:
        cut = time.time() - keep_days * SECONDS_A_DAY
    given = {"--unit": unit, "--before": before, "--keep-days": keep_days, "--everything": everything or None}
    asked = [option for option, value in given.items() if value is not None]
    if len(asked) != 1:
        raise ValueError(
            f"one of --unit, --before, --keep-days and --everything is needed, not {', '.join(asked) or 'none'}"
        )
    with closing(open_store(store, must_exist=True)) as place:
        if everything:
            erased = {str(name): _whole(place, name)}
        else:
            names = place.trial_names() if name is None else [place.trial(name).name]
            erased = {one: _part(place, one, reason, unit, cut) for one in names}
    whole = ", and the trial" * everything
    lines = [f"{one}: erased {rows_text(much)}{whole}" for one, much in erased.items()]
    tell(as_json, {one: much._asdict() for one, much in erased.items()}, *lines)
    if not as_json and any(much.impressions for much in erased.values()):
        say("Backups, and folders that ranktrial export wrote, keep what they hold.", wrap=True)


def _part(store: Store, name: str, reason: str, unit: str | None, before: float | None) -> Erased:
    with Trial(store, name, background=False) as trial:
        return trial.erase(reason, unit=unit, before=before)


def _whole(store: Store, name: str | None) -> Erased:
    if name is None:
        raise ValueError("--everything needs the --name of the trial")
    if not store.trial(name).stopped:
        raise ValueError(f"trial {name!r} is running: stop it first (POST /v1/trials/{name}/stop, or Trial.stop)")
    return store.erase_trial(name)
