"""The command `ranktrial calibrate`: a site's own allowance, from trials that it has finished."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import Annotated

import typer

from ranktrial.analysis.calibration import Discrepancy, calibrate
from ranktrial.analysis.decision import ALLOWANCE
from ranktrial.cli.console import plain_table, tell
from ranktrial.cli.options import JsonOption
from ranktrial.store import open_store
from ranktrial.trial import Trial


def calibrate_command(
    stores: Annotated[list[str], typer.Argument(help="Stores of finished trials, e.g. shoes.db postgresql://...")],
    running: Annotated[bool, typer.Option("--running", help="Use trials that still run, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the allowance for visitors of this site who do not click as the click model assumes.

    Each finished trial has an estimate by the click model and one from its A/B traffic alone. Their difference beyond chance,
    as a share of exposure disagreement x clicks per search, is the allowance that the site's own trials call for: give it to
    new trials as allowance=.
    """
    found = [one for store in stores for one in _discrepancies(store, running=running)]
    answer = calibrate([one for _, one in found])
    trials = [{"trial": name, **asdict(one)} for name, one in found]
    table = plain_table("trial", "click model less A/B", "standard error", "as an allowance")
    for name, one in found:
        share = f"{one.difference / one.unit:+.3f} (+- {2 * one.standard_error / one.unit:.3f})"
        table.add_row(name, f"{one.difference:+.4f}", f"{one.standard_error:.4f}", share)
    text = (
        f"allowance={answer.allowance:.2g} is what these {answer.trials} trials call for; they do not rule out "
        f"{answer.at_most:.2g}. The default is {ALLOWANCE:g}."
    )
    tell(as_json, {**asdict(answer), "found": trials}, table, text)


def _discrepancies(place: str, *, running: bool) -> list[tuple[str, Discrepancy]]:
    """Discrepancies of all versions of a store's trials that have both estimates."""
    found = []
    with closing(open_store(place, must_exist=True)) as store:
        for name in store.trials.names():
            if store.trials.find(name).stopped or running:
                for version in store.trials.versions(name):
                    with Trial.open(store, name, version=version.number, background=False, compile=False) as trial:
                        one = trial.report().discrepancy
                    if one is not None:
                        found.append((f"{name} (version {version.number})", one))
    return found
