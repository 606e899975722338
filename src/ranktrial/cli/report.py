"""The command `ranktrial report`: the report of a trial in a store, on the terminal, as JSON or as an HTML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ranktrial.cli.console import err, out, plain_table, say
from ranktrial.cli.options import JsonOption, NameOption, QueryUnitsOption, StoreArgument, VersionOption
from ranktrial.report.making import QUERY_UNITS
from ranktrial.report.schema import Report
from ranktrial.trial import Trial

COLOURS = {"pass": "green", "warn": "yellow", "fail": "red", "unknown": "dim"}


def report_command(
    store: StoreArgument,
    name: NameOption = None,
    version: VersionOption = None,
    html: Annotated[Path | None, typer.Option(help="Also write the report as one self-contained HTML file.")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write its numbers as a table of comma-separated values.")
    ] = None,
    query_units: QueryUnitsOption = QUERY_UNITS,
    as_json: JsonOption = False,
) -> None:
    """Report which ranker gets more clicks so far, by how much, how surely, and whether the numbers may be trusted."""
    report = read_report(store, name, query_units, version)
    if html is not None:
        report.to_html(html)
    if csv is not None:
        report.to_csv(csv)
    if as_json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        print_report(report)
    for file in filter(None, (html, csv)):
        say(f"wrote {file}", of=err)


def read_report(
    store: str | Path, name: str | None, query_units: int = QUERY_UNITS, version: int | None = None
) -> Report:
    with Trial.open(store, name, version=version, background=False) as trial:
        return trial.report(query_units=query_units)


def print_report(report: Report) -> None:
    say(report.about, wrap=True)
    out.print(f"[bold]{escape(report.text.headline)}[/] {escape(report.text.details)}", highlight=False)
    for line in report.lines:
        say(line, wrap=True)
    for heading, open_, passing in report.grouped():
        out.print(f"\n[bold]{heading}[/]", highlight=False)
        table = plain_table(show_header=False)
        for check in open_:
            table.add_row(f"[{COLOURS[check.status]}]{check.status}[/]", escape(str(check)))
        if passing:
            table.add_row(f"[{COLOURS['pass']}]pass[/]", escape(", ".join(check.name for check in passing)))
        out.print(table, highlight=False)
    if report.history:
        out.print("\n[bold]Who changed what[/]", highlight=False)
    for entry in report.history:
        say(entry, wrap=True)
