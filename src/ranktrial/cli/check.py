"""The command `ranktrial check`: what a log holds, what is wrong with it and what it can say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ranktrial.cli.console import out, plain_errors
from ranktrial.cli.log_options import reads_log
from ranktrial.cli.report import COLOURS
from ranktrial.logs.doctor import examine


@reads_log
def check_command(
    log: Annotated[Path, typer.Argument(help="CSV, JSON lines or Parquet, or a folder of export or import.")],
    *,
    reading: dict[str, Any],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of tables.")] = False,
) -> None:
    """Look a log over: what is there, what is wrong, whether position bias can be told from it, what would have to be logged.

    Ends with status 1 if something is wrong that no estimate survives.
    """
    with plain_errors():
        found = examine(log, **reading)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        table = Table("", "", box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
        table.add_column("", ratio=1)
        for one in found.findings:
            colour = COLOURS.get(one.status, "dim")
            table.add_row(f"[{colour}]{one.status}[/]", one.name, escape(one.text))
        out.print(table, highlight=False)
        if found.rates:
            told = "  ".join(f"{clicks / shown:.3f}" if shown else "-" for _, shown, clicks in found.rates)
            out.print(f"clicks per show, by rank: {told}", highlight=False, soft_wrap=True)
    if not found.sound:
        raise typer.Exit(1)
