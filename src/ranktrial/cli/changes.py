"""The commands that change a trial: share, stop, exclude and erase."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Annotated, Literal, get_args

import typer

from ranktrial.cli.console import say, tell
from ranktrial.cli.options import JsonOption, NameOption, ReasonOption, StoreArgument, VisitorArgument
from ranktrial.store import open_store
from ranktrial.store.base import rows_text
from ranktrial.times import seconds
from ranktrial.trial import Trial

SECONDS_A_DAY = 86_400.0
Ranker = Literal["A", "B"]


def share_command(
    store: StoreArgument,
    share: Annotated[
        float | None, typer.Argument(help="Share of visitors to take part from now on, from 0 to 1.")
    ] = None,
    reason: ReasonOption = "",
    name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the share of visitors who take part in a trial, or change it. All others see A's list, which is not stored.

    A larger share keeps all who took part. A ramp goes on from a share that is one of its stages, and waits at any other.
    """
    with Trial.open(store, name, background=False) as trial:
        if share is not None:
            trial.set_share(share, reason)
        told = {"trial": trial.name, "share": trial.share, "ramp": trial.config.ramp}
        changed = [] if share is None else [trial.history()[-1]]
        tell(as_json, told, f"{trial.name}: {trial.share:.10g} of the visitors take part", *changed)


def stop_command(
    store: StoreArgument,
    show: Annotated[
        str | None, typer.Option(help="Ranker whose list everybody sees from now on, A or B. Default: A.")
    ] = None,
    reason: ReasonOption = "",
    name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop a trial: everybody sees one ranker's list from now on.

    A trial that is stopped shows another list with another --show: so a winner that is served is taken back.
    """
    chosen: dict[str | None, Ranker | None] = {None: None, **{one: one for one in get_args(Ranker)}}
    if show not in chosen:
        raise ValueError(f"--show is {show}, must be A or B")
    with Trial.open(store, name, background=False) as trial:
        trial.stop(reason, show=chosen[show])
        shows = f"{trial.name}: {trial.shows} is shown to everybody"
        tell(as_json, {"trial": trial.name, "shows": trial.shows}, shows, trial.history()[-1])


def exclude_command(
    store: StoreArgument,
    unit: VisitorArgument,
    reason: ReasonOption,
    undo: Annotated[bool, typer.Option("--undo", help="Include the visitor again.")] = False,
    name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Exclude a visitor (a robot, a colleague) from all analyses from now on.

    The visitor's searches stay in the store, and reports show the result with and without them. Decide by what the visitor
    does, never by which ranker gains. --json prints the whole history.
    """
    with Trial.open(store, name, background=False) as trial:
        entry = (trial.include if undo else trial.exclude)(unit, reason)
        left_out = trial.report().everyone
        history = [one.to_dict() for one in trial.history()]
    tell(as_json, history, entry, left_out.text if left_out else "Nothing is left out.")


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
    erased = {}
    with closing(open_store(store, must_exist=True)) as place:
        if everything and name is None:
            raise ValueError("--everything needs the --name of the trial")
        for one in place.trials.names() if name is None else [place.trials.find(name).name]:
            if not everything:
                with Trial(place, one, background=False) as trial:
                    erased[one] = trial.erase(reason, unit=unit, before=cut)
            elif place.trials.find(one).stopped:
                erased[one] = place.eraser.erase_trial(one)
            else:
                stop = f"POST /v1/trials/{one}/stop, or Trial.stop"
                raise ValueError(f"trial {one!r} is running: stop it first ({stop})")
    whole = ", and the trial" * everything
    lines = [f"{one}: erased {rows_text(much)}{whole}" for one, much in erased.items()]
    tell(as_json, {one: much._asdict() for one, much in erased.items()}, *lines)
    if not as_json and any(much.impressions for much in erased.values()):
        say("Backups, and folders that ranktrial export wrote, keep what they hold.", wrap=True)
