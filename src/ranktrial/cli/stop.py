"""The command `ranktrial stop`: end a trial, or change what a trial shows that has ended."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from ranktrial.cli.console import out, plain_errors
from ranktrial.trial import Trial


def stop_command(
    store: Annotated[
        str, typer.Argument(help="The trial's store, e.g. shoes.db or postgresql://...; a service may be using it.")
    ],
    show: Annotated[str | None, typer.Option(help="Ranker whose list everybody sees from now on, A or B.")] = None,
    reason: Annotated[str, typer.Option(help="Reason; every report shows it.")] = "",
    name: Annotated[str | None, typer.Option(help="Name of the trial, if the store holds several.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Stop a trial: everybody sees one ranker's list from now on, A's unless --show says B.

    A trial that is stopped shows another list with another --show: so a winner that is served is taken back.
    """
    with plain_errors(), Trial.open(store, name, background=False) as trial:
        chosen: dict[str | None, Literal["A", "B"] | None] = {"A": "A", "B": "B", None: None}
        if show not in chosen:
            raise ValueError(f"--show is {show}, must be A or B")
        trial.stop(reason, show=chosen[show])
        told, entry = {"trial": trial.name, "shows": trial.shows}, trial.history()[-1]
    if as_json:
        print(json.dumps(told, indent=2))
        return
    for line in (f"{told['trial']}: {told['shows']} is shown to everybody", str(entry)):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
