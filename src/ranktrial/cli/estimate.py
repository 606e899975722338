"""The command `ranktrial estimate`: which of two rankers a log speaks for, wherever the log is."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ranktrial.cli.console import out, plain_errors
from ranktrial.cli.log_options import reads_log
from ranktrial.data import Run, read_run
from ranktrial.inference.ladder import ASSUMES, DIRECT
from ranktrial.logs.answers import Answer, Reading, by_sums, in_memory
from ranktrial.logs.connecting import connect
from ranktrial.logs.database import SQLLog
from ranktrial.logs.formats import ITEMS, TRIAL, LogSource, refuse_options
from ranktrial.logs.item_level import estimate_items
from ranktrial.logs.layout import LogFolder
from ranktrial.logs.memory import open_bounded
from ranktrial.logs.reading import NO_LISTS, count_impressions, latest_version, read_aside, read_folder, saved_aside

IN_MEMORY = 1_000_000  # impressions that are read into memory unless asked otherwise


@dataclass(frozen=True)
class _Asked:
    """What was asked for."""

    version: int | None
    theta: list[float] | None
    estimators: tuple[str, ...]
    guess: float | None
    sums: bool | None
    memory: str
    threads: int | None
    level: float
    uncovered: str


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--theta is {text!r}, must be numbers with commas: 1,.6,.4") from None


@reads_log
def estimate_command(
    log: Annotated[
        str,
        typer.Argument(help="A file, a folder of Parquet, or with --connect a table of impressions."),
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
            "--sums/--in-memory",
            help=f"Add up where the log is, or read it. Default: read up to {IN_MEMORY:,} impressions.",
        ),
    ] = None,
    memory: Annotated[
        str,
        typer.Option(help="The most that this takes, but for logs read into memory; what is more goes to the disk."),
    ] = "2GB",
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="For sums over Parquet: threads. Default: the processors', fewer where memory is short."
        ),
    ] = None,
    level: Annotated[float, typer.Option(min=0.5, max=0.999, help="Of the intervals.")] = 0.95,
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="Leave out documents that could not be seen, instead of refusing.")
    ] = False,
    a: Annotated[
        Path | None, typer.Option("--a", help="TREC run of another ranker, to be valued as A on what was shown.")
    ] = None,
    b: Annotated[Path | None, typer.Option("--b", help="The same as B.")] = None,
    *,
    reading: dict[str, Any],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of tables.")] = False,
) -> None:
    """Say which ranker gets more clicks, by how much and how surely, from a log that is there already.

    The log is a file (see ranktrial import), a folder of Parquet, or with --connect a table of impressions. Up to a million
    impressions are read into memory and read with fewer and more assumptions. Larger logs, and tables of a database, are added
    up where they are: only sums leave the engine.
    """
    with plain_errors():
        asked = _Asked(
            version, None if theta is None else _numbers(theta), tuple(estimator or ()), guess, sums, memory, threads, level,
            "leave out" if leave_out else "refuse",
        )  # fmt: skip
        if connect_to is not None:
            if sums is False:
                raise ValueError("--in-memory reads files; a log in a database is added up there")
            there = SQLLog(connect(connect_to), log, designs, version=version, dialect=dialect)
            answer = _by_sums(there, f"in {there.dialect}", asked)
        else:
            answer = _of_files(log, a, b, reading, asked)
    if as_json:
        print(json.dumps(answer.to_dict(), indent=2))
    else:
        print_answer(answer)


def _of_files(path: str, a: Path | None, b: Path | None, reading: dict[str, Any], asked: _Asked) -> Answer:
    if (a is None) != (b is None):
        raise ValueError("--a and --b belong together: the runs of the two rankers to compare")
    rankers = None if a is None or b is None else (read_run(a), read_run(b))
    folder = LogFolder(path)
    if folder.exists and folder.state.get("kind") != ITEMS:
        refuse_options(folder, **reading)
        return _of_folder(folder, rankers, asked)
    with read_aside(path, memory=asked.memory, **reading) as (source, aside):
        if source.kind == ITEMS:
            return _of_items(source, rankers, asked)
        return _of_folder(saved_aside(source, aside), rankers, asked, source)


def _of_folder(
    folder: LogFolder,
    rankers: tuple[Run, Run] | None,
    asked: _Asked,
    source: LogSource | None = None,
) -> Answer:
    kind = folder.state.get("kind", TRIAL)
    if kind != TRIAL:
        raise ValueError(NO_LISTS.format(folder.path, kind))
    number = latest_version(folder) if asked.version is None else asked.version
    if rankers is not None:
        if asked.sums:
            raise ValueError("other rankers (--a, --b) are valued in memory: leave out --sums")
        return in_memory(
            read_folder(folder, number, rankers=rankers), theta=asked.theta, level=asked.level, how="in memory"
        )
    many = count_impressions(folder, number) > IN_MEMORY
    if not (asked.sums or (asked.sums is None and (many or asked.estimators or asked.guess is not None))):
        return in_memory(read_folder(folder, number), theta=asked.theta, level=asked.level, how="in memory")
    with ExitStack() as opened:
        if source is not None:
            connection = source.connection
        else:
            spill = opened.enter_context(tempfile.TemporaryDirectory(prefix="ranktrial-"))
            connection = opened.enter_context(open_bounded(memory=asked.memory, spill=spill, threads=asked.threads))
        connection.execute("SET preserve_insertion_order = false")
        there = SQLLog(connection, folder.scan("impressions"), folder.scan("designs"), version=number)
        return _by_sums(there, f"in DuckDB with {asked.memory}", asked)


def _by_sums(there: SQLLog, where: str, asked: _Asked) -> Answer:
    return by_sums(
        there, theta=asked.theta, estimators=asked.estimators or ("constant",), guess=asked.guess, level=asked.level,
        uncovered=asked.uncovered, how=f"by sums, {where}",
    )  # fmt: skip


def _of_items(source: LogSource, rankers: tuple[Run, Run] | None, asked: _Asked) -> Answer:
    if rankers is None:
        raise ValueError(f"{source.name} has propensities of single results: --a A.run --b B.run say whom to compare")
    found, places = estimate_items(source, *rankers)
    missing = ""
    if places.never:
        missing = (
            f"{places.never:,} of {places.differ:,} places on which the rankers differ were never drawn, and count as never "
            f"clicked: {places.example}"
        )
    reading = Reading(DIRECT, ASSUMES[DIRECT], found, missing, asked.level)
    return Answer((reading,), reading, None, "from propensities as logged", asked.level, reading.assumes)


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
