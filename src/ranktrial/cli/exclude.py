"""The command `ranktrial exclude`: leave a unit out of a trial's reports, or take it back in."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ranktrial.cli.console import out, plain_errors
from ranktrial.live import Trial


def exclude_command(
    store: Annotated[
        str, typer.Argument(help="The trial's store, e.g. shoes.db or postgresql://...; a service may be using it.")
    ],
    unit: Annotated[str, typer.Argument(help="The unit, as it was given to rank, or as a report names it (#...).")],
    reason: Annotated[str, typer.Option(help="Why; every report shows it.")],
    undo: Annotated[bool, typer.Option("--undo", help="Take the unit back in.")] = False,
    name: Annotated[str | None, typer.Option(help="Which trial, where the store holds several.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole history as JSON.")] = False,
) -> None:
    """Leave a unit (a robot, a colleague) out of everything that is analysed from now on.

    Its impressions stay in the store, and reports tell the result with and without them. Decide by what the unit does, never
    by which ranker gains.
    """
    with plain_errors(), Trial.open(store, name, background=False) as trial:
        entry = (trial.include if undo else trial.exclude)(unit, reason)
        history, left_out = trial.history(), trial.report().everyone
    if as_json:
        print(json.dumps([one.to_dict() for one in history], indent=2))
        return
    for line in (str(entry), left_out.text if left_out else "Nothing is left out."):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
