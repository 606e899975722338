"""The command `ranktrial check`: contents and problems of a log, and the estimates it allows."""

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
from ranktrial.formats.doctor import examine


@reads_log
def check_command(
    log: Annotated[Path, typer.Argument(help="CSV, JSON lines or Parquet, or a folder of export or import.")],
    *,
    reading: dict[str, Any],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of tables.")] = False,
) -> None:
    """Check a log: its contents, its problems, whether position bias can be estimated, and what should be logged as well.

    Ends with status 1 if a problem makes every estimate wrong.
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
        if found.uses:
            rows = Table("rows", "of", "used for, or why not", box=None, padding=(0, 2, 0, 0), pad_edge=False)
            rows.columns[0].justify = "right"
            for use in found.uses:
                rows.add_row(f"{use.count:,}", escape(use.kind), escape(use.use), style="" if use.used else "dim")
            out.print(rows, highlight=False)
        if found.rates:
            told = "  ".join(f"{clicks / shown:.3f}" if shown else "-" for _, shown, clicks in found.rates)
            out.print(f"clicks per show, by rank: {told}", highlight=False, soft_wrap=True)
    if not found.sound:
        raise typer.Exit(1)
