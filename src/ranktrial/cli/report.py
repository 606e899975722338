"""The command `ranktrial report`: the report of a trial in a store, on the terminal, as JSON or as an HTML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ranktrial.cli.console import err, out, plain_errors
from ranktrial.report.making import QUERY_UNITS
from ranktrial.report.schema import Report
from ranktrial.trial import Trial

QueryUnits = Annotated[
    int, typer.Option(min=0, help="Number of visitors who must have made a query before a report names it.")
]
COLOURS = {"pass": "green", "warn": "yellow", "fail": "red", "unknown": "dim"}


def report_command(
    store: Annotated[
        str, typer.Argument(help="The trial's store, e.g. shoes.db or postgresql://...; a service may be using it.")
    ],
    name: Annotated[str | None, typer.Option(help="Name of the trial, if the store holds several.")] = None,
    version: Annotated[
        int | None, typer.Option(help="Version of its configuration; the current one by default.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write the report as one self-contained HTML file.")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write its numbers as a table of comma-separated values.")
    ] = None,
    query_units: QueryUnits = QUERY_UNITS,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of tables.")] = False,
) -> None:
    """Report which ranker gets more clicks so far, by how much, how surely, and whether the numbers may be trusted."""
    with plain_errors():
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
        err.print(f"wrote {file}", markup=False, highlight=False, soft_wrap=True)


def read_report(
    store: str | Path, name: str | None, query_units: int = QUERY_UNITS, version: int | None = None
) -> Report:
    with Trial.open(store, name, version=version, background=False) as trial:
        return trial.report(query_units=query_units)


def print_report(report: Report) -> None:
    out.print(report.about, markup=False, highlight=False)
    out.print(f"[bold]{escape(report.text.headline)}[/] {escape(report.text.details)}", highlight=False)
    for line in report.lines:
        out.print(line, markup=False, highlight=False)
    for heading, open_, passing in report.grouped():
        out.print(f"\n[bold]{heading}[/]", highlight=False)
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
        for check in open_:
            table.add_row(f"[{COLOURS[check.status]}]{check.status}[/]", escape(str(check)))
        if passing:
            table.add_row(f"[{COLOURS['pass']}]pass[/]", escape(", ".join(check.name for check in passing)))
        out.print(table, highlight=False)
    if report.history:
        out.print("\n[bold]Who changed what[/]", highlight=False)
    for entry in report.history:
        out.print(str(entry), markup=False, highlight=False)
