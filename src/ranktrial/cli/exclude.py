"""The command `ranktrial exclude`: exclude a visitor from a trial's reports, or include one again."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ranktrial.cli.console import out, plain_errors
from ranktrial.trial import Trial


def exclude_command(
    store: Annotated[
        str, typer.Argument(help="The trial's store, e.g. shoes.db or postgresql://...; a service may be using it.")
    ],
    unit: Annotated[
        str, typer.Argument(help="The visitor: the unit as given to rank, or as a report names it (#...).")
    ],
    reason: Annotated[str, typer.Option(help="Reason; every report shows it.")],
    undo: Annotated[bool, typer.Option("--undo", help="Include the visitor again.")] = False,
    name: Annotated[str | None, typer.Option(help="Name of the trial, if the store holds several.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole history as JSON.")] = False,
) -> None:
    """Exclude a visitor (a robot, a colleague) from all analyses from now on.

    The visitor's searches stay in the store, and reports show the result with and without them. Decide by what the visitor
    does, never by which ranker gains.
    """
    with plain_errors(), Trial.open(store, name, background=False) as trial:
        entry = (trial.include if undo else trial.exclude)(unit, reason)
        history = trial.history()
        left_out = trial.report().everyone
    if as_json:
        print(json.dumps([one.to_dict() for one in history], indent=2))
        return
    for line in (str(entry), left_out.text if left_out else "Nothing is left out."):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
