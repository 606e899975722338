"""The command `ranktrial stop`: end a trial, or change what a trial shows that has ended."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import typer

from ranktrial.cli.console import plain_errors, tell
from ranktrial.cli.options import JsonOption, NameOption, ReasonOption, StoreArgument
from ranktrial.trial import Trial

Ranker = Literal["A", "B"]


@plain_errors()
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
