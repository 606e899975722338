"""The command `ranktrial exclude`: exclude a visitor from a trial's reports, or include one again."""

from __future__ import annotations

from typing import Annotated

import typer

from ranktrial.cli.console import plain_errors, tell
from ranktrial.cli.options import JsonOption, NameOption, ReasonOption, StoreArgument, VisitorArgument
from ranktrial.trial import Trial


@plain_errors()
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
