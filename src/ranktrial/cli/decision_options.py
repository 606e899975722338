"""Options of commands that decide between rankers, or plan for a decision."""

from __future__ import annotations

from typing import Annotated

import typer

from ranktrial.analysis.decision import ALLOWANCE, PER_HOSTILE

AllowanceOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Allowance for visitors who do not click as the click model assumes, as a share of exposure disagreement x "
        f"clicks per search; 0 trusts the click model. Default: {ALLOWANCE:g}.",
    ),
]
ContaminationOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=0.49,
        help=f"Share of hostile searches that a winner must stand against. Default: {ALLOWANCE / PER_HOSTILE:g} (a fifteenth "
        "of the allowance) where the click model decides, none where A/B traffic does.",
    ),
]
