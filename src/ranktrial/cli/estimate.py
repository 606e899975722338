"""The command `ranktrial estimate`: which of two rankers a log speaks for, wherever the log is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import duckdb
import typer
from rich.markup import escape
from rich.table import Table

from ranktrial.cli.console import out, plain_errors
from ranktrial.logs.answers import Answer, by_sums, in_memory
from ranktrial.logs.connecting import connect
from ranktrial.logs.estimating import SQLLog
from ranktrial.logs.layout import LogFolder, quoted
from ranktrial.logs.reading import count_impressions, latest_version, read_folder

IN_MEMORY = 1_000_000  # impressions that are read into memory unless asked otherwise


def estimate_command(
    log: Annotated[
        str,
        typer.Argument(
            help="A folder of Parquet (ranktrial export, ranktrial import), or with --connect a table of impressions."
        ),
    ],
    connect_to: Annotated[
        str | None,
        typer.Option(
            "--connect",
            help="postgresql://..., chdb://, FILE.duckdb, or module:function that returns a DB-API connection.",
        ),
    ] = None,
    designs: Annotated[str, typer.Option(help="With --connect: the table of designs.")] = "designs",
    dialect: Annotated[
        str | None, typer.Option(help="With --connect: duckdb, postgres, clickhouse, bigquery or snowflake.")
    ] = None,
    version: Annotated[int | None, typer.Option(help="Of the trial's configuration; the latest by default.")] = None,
    theta: Annotated[
        str | None, typer.Option(help="Position bias if it is known, with commas: 1,.6,.4. Default: fitted to the log.")
    ] = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(help="For sums: ips, constant, rank-aware or direct (with --guess), means. Default: constant."),
    ] = None,
    guess: Annotated[float | None, typer.Option(min=0, max=1, help="For sums: one guess of all relevances.")] = None,
    sums: Annotated[
        bool | None,
        typer.Option(
            "--sums/--memory",
            help=f"Add up where the log is, or read it. Default: read up to {IN_MEMORY:,} impressions.",
        ),
    ] = None,
    memory: Annotated[str, typer.Option(help="For sums over Parquet: the most memory that DuckDB may use.")] = "1GB",
    threads: Annotated[int | None, typer.Option(min=1, help="For sums over Parquet: threads of DuckDB.")] = None,
    level: Annotated[float, typer.Option(min=0.5, max=0.999, help="Of the intervals.")] = 0.95,
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="Leave out documents that could not be seen, instead of refusing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of tables.")] = False,
) -> None:
    """Say which ranker gets more clicks, by how much and how surely, from a log that is there already.

    Logs up to a million impressions are read into memory and read with fewer and more assumptions. Larger ones, and tables of
    a database, are added up where they are: only sums leave the engine.
    """
    with plain_errors():
        known = None if theta is None else [float(part) for part in theta.split(",")]
        uncovered = "leave out" if leave_out else "refuse"
        if connect_to is not None:
            if sums is False:
                raise ValueError("--memory reads files; a log in a database is added up there")
            there = SQLLog(connect(connect_to), log, designs, version=version, dialect=dialect)
            answer = by_sums(
                there, theta=known, estimators=estimator or ("constant",), guess=guess, level=level, uncovered=uncovered,
                how=f"by sums, in {there.dialect}",
            )  # fmt: skip
        else:
            answer = _of_folder(log, version, known, estimator, guess, sums, memory, threads, level, uncovered)
    if as_json:
        print(json.dumps(answer.to_dict(), indent=2))
    else:
        print_answer(answer)


def _of_folder(
    path: str,
    version: int | None,
    theta: list[float] | None,
    estimators: list[str] | None,
    guess: float | None,
    sums: bool | None,
    memory: str,
    threads: int | None,
    level: float,
    uncovered: str,
) -> Answer:
    folder = LogFolder(path)
    if not folder.exists:
        raise ValueError(
            f"{path} is no folder that ranktrial export or ranktrial import has written: there is no log.json"
        )
    number = latest_version(folder) if version is None else version
    many = count_impressions(folder, number) > IN_MEMORY
    if sums or (sums is None and (many or estimators or guess is not None)):
        connection = duckdb.connect()
        connection.execute(f"SET memory_limit = {quoted(memory)}; SET preserve_insertion_order = false")
        connection.execute(f"SET temp_directory = {quoted(Path(path) / '.spill')}")
        if threads is not None:
            connection.execute(f"SET threads = {threads}")
        there = SQLLog(connection, folder.scan("impressions"), folder.scan("designs"), version=number)
        return by_sums(
            there, theta=theta, estimators=estimators or ("constant",), guess=guess, level=level, uncovered=uncovered,
            how=f"by sums, in DuckDB with {memory}",
        )  # fmt: skip
    return in_memory(read_folder(folder, number), theta=theta, level=level, how="in memory")


def print_answer(answer: Answer) -> None:
    """The verdict, and every reading behind it."""
    out.print(f"[bold]{escape(answer.verdict)}[/]", highlight=False)
    if answer.worth:
        out.print(answer.worth, markup=False, highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("reading", "delta", f"{answer.level:.0%} interval", "at any time"):
        table.add_column(name, no_wrap=True)
    for reading in answer.readings:
        found = reading.estimate
        if found is not None:
            ends = [str(reading.interval or "none yet"), str(reading.anytime)]
            table.add_row(reading.name, f"{found.delta:+.5f}", *ends)
    out.print()
    out.print(table, highlight=False)
    for reading in answer.readings:
        if reading.missing:
            out.print(f"{reading.name}: {reading.missing}", markup=False, highlight=False)
    if answer.bias is not None:
        told = "  ".join(f"{t:.3f}±{e:.3f}" for t, e in zip(answer.bias.theta, answer.bias.standard_error))
        out.print(f"position bias by rank: {told}", highlight=False, soft_wrap=True)
    most = max((reading.estimate.impressions for reading in answer.readings if reading.estimate is not None), default=0)
    out.print(f"reckoned {answer.how}, from {most:,} impressions", style="dim", markup=False, highlight=False)
