"""The command `ranktrial share`: show or change the share of visitors who take part in a trial."""

from __future__ import annotations

from typing import Annotated

import typer

from ranktrial.cli.console import plain_errors, tell
from ranktrial.cli.options import JsonOption, NameOption, ReasonOption, StoreArgument
from ranktrial.trial import Trial


@plain_errors()
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
