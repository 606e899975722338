"""The command `ranktrial check`: contents and problems of a log, and the estimates it allows."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.markup import escape

from ranktrial.cli.console import out, plain_table, say
from ranktrial.cli.log_options import reads_log
from ranktrial.cli.options import JsonOption, LogArgument
from ranktrial.cli.report import COLOURS
from ranktrial.formats.doctor import examine


@reads_log
def check_command(log: LogArgument, *, reading: dict[str, Any], as_json: JsonOption = False) -> None:
    """Check a log: its contents, its problems, whether position bias can be estimated, and what should be logged as well.

    Ends with status 1 if a problem makes every estimate wrong.
    """
    found = examine(log, **reading)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        table = plain_table("", "", show_header=False)
        table.add_column("", ratio=1)
        for one in found.findings:
            colour = COLOURS.get(one.status, "dim")
            table.add_row(f"[{colour}]{one.status}[/]", one.name, escape(one.text))
        out.print(table, highlight=False)
        if found.uses:
            rows = plain_table("rows", "of", "used for, or why not")
            rows.columns[0].justify = "right"
            for use in found.uses:
                rows.add_row(f"{use.count:,}", escape(use.kind), escape(use.use), style="" if use.used else "dim")
            out.print(rows, highlight=False)
        if found.rates:
            told = "  ".join(f"{clicks / shown:.3f}" if shown else "-" for _, shown, clicks in found.rates)
            say(f"clicks per show, by rank: {told}")
    if not found.sound:
        raise typer.Exit(1)
