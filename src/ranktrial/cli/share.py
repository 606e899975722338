"""The command `ranktrial share`: show or change the share of visitors who take part in a trial."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ranktrial.cli.console import out, plain_errors
from ranktrial.trial import Trial


def share_command(
    store: Annotated[
        str, typer.Argument(help="The trial's store, e.g. shoes.db or postgresql://...; a service may be using it.")
    ],
    share: Annotated[
        float | None, typer.Argument(help="Share of visitors to take part from now on, from 0 to 1.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Reason; every report shows it.")] = "",
    name: Annotated[str | None, typer.Option(help="Name of the trial, if the store holds several.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Show the share of visitors who take part in a trial, or change it. All others see A's list, which is not stored.

    A larger share keeps all who took part. A ramp goes on from a share that is one of its stages, and waits at any other.
    """
    with plain_errors(), Trial.open(store, name, background=False) as trial:
        if share is not None:
            trial.set_share(share, reason)
        told = {"trial": trial.name, "share": trial.share, "ramp": trial.config.ramp}
        entry = trial.history()[-1]
    if as_json:
        print(json.dumps(told, indent=2))
        return
    line = f"{told['trial']}: {trial.share:.10g} of the visitors take part"
    for text in (line, *([str(entry)] if share is not None else [])):
        out.print(text, markup=False, highlight=False, soft_wrap=True)
