"""The command `ranktrial estimate`: which of two rankers gets more clicks by a log, wherever the log is."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from ranktrial.analysis.answers import Answer, DecisionOptions, decide
from ranktrial.analysis.decision import turned
from ranktrial.analysis.discoveries import RATE
from ranktrial.analysis.guardrails.status import Guardrail, Status
from ranktrial.analysis.metrics import MetricAnswer
from ranktrial.analysis.segments import table_heading, told_lines
from ranktrial.analysis.verdict import lift_text
from ranktrial.cli.console import out, plain_errors
from ranktrial.cli.decision_options import AllowanceOption, ContaminationOption
from ranktrial.cli.log_options import reads_log
from ranktrial.formats.answers import by_sums, of_items
from ranktrial.formats.connecting import connect
from ranktrial.formats.database import SQLLog
from ranktrial.formats.item_level import estimate_items
from ranktrial.formats.layout import LogFolder
from ranktrial.formats.memory import open_bounded
from ranktrial.formats.readers import ITEMS, TRIAL, LogSource, refuse_options
from ranktrial.formats.reading import NO_LISTS, LogTables, read_aside, read_tables
from ranktrial.metrics import Metric, parse_metric
from ranktrial.texts import counted
from ranktrial.trec import Run, read_run

NO_SUMS = (
    "sums have clicks only: other metrics and segments need the log in memory. Give a folder or a file that fits, or leave out "
    "--metric and --by"
)
IN_MEMORY = 1_000_000  # impressions that are read into memory unless asked otherwise


@dataclass(frozen=True)
class _Options:
    """Options of the command."""

    version: int | None
    theta: list[float] | None
    estimators: tuple[str, ...]
    prediction: float | None
    sums: bool | None
    memory: str
    threads: int | None
    uncovered: str
    metrics: tuple[Metric, ...]
    by: tuple[str, ...] | None
    decision: DecisionOptions

    @property
    def more_than_clicks(self) -> bool:
        """True if values of searches or of visitors are asked for that sums do not have."""
        return bool(self.metrics or self.by)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--theta is {text!r}, must be numbers with commas: 1,.6,.4") from None


@reads_log
def estimate_command(
    log: Annotated[
        str,
        typer.Argument(help="A file, a folder of Parquet, or with --connect the table of impressions."),
    ],
    connect_to: Annotated[
        str | None,
        typer.Option(
            "--connect",
            help="Database: postgresql://..., chdb://, FILE.duckdb, or module:function that returns a DB-API connection.",
        ),
    ] = None,
    designs: Annotated[str, typer.Option(help="With --connect: name of the table of designs.")] = "designs",
    dialect: Annotated[
        str | None,
        typer.Option(help="With --connect: SQL dialect, duckdb, postgres, clickhouse, bigquery or snowflake."),
    ] = None,
    version: Annotated[
        int | None, typer.Option(help="Version of the trial's configuration; the latest by default.")
    ] = None,
    theta: Annotated[
        str | None, typer.Option(help="Position bias if it is known, with commas: 1,.6,.4. Default: fitted to the log.")
    ] = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            help="Estimator for --sums: ips, constant, rank-aware or direct (with --prediction), means. Default: constant."
        ),
    ] = None,
    prediction: Annotated[
        float | None, typer.Option(min=0, max=1, help="Relevance to assume of all results, for --sums.")
    ] = None,
    sums: Annotated[
        bool | None,
        typer.Option(
            "--sums/--in-memory",
            help=f"Compute sums where the log is, or read it into memory. Default: read up to {IN_MEMORY:,} searches.",
        ),
    ] = None,
    memory: Annotated[
        str,
        typer.Option(help="Memory limit, except for logs read into memory; the rest goes to the disk."),
    ] = "2GB",
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Threads for --sums over Parquet. Default: one per processor, fewer if memory is short."
        ),
    ] = None,
    level: Annotated[float, typer.Option(min=0.5, max=0.999, help="Level of the interval.")] = 0.95,
    fixed: Annotated[
        bool,
        typer.Option(
            "--fixed/--anytime",
            help="--fixed: the number of searches was fixed beforehand and this is the one look. "
            "--anytime: the interval holds however often one looked, as in a live trial.",
        ),
    ] = False,
    smallest: Annotated[
        float | None, typer.Option(help="The smallest difference that matters, in clicks per search.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help='Measure more than clicks: \'Orders(window="7d")\'; with role="primary" it decides. May be repeated.'
        ),
    ] = None,
    allowance: AllowanceOption = None,
    contamination: ContaminationOption = None,
    leave_out: Annotated[
        bool,
        typer.Option("--leave-out", help="Leave out documents that could never be shown, instead of refusing the log."),
    ] = False,
    a: Annotated[
        Path | None, typer.Option("--a", help="TREC run of another ranker, to be evaluated as A on this log.")
    ] = None,
    b: Annotated[Path | None, typer.Option("--b", help="TREC run of another ranker, to be evaluated as B.")] = None,
    *,
    reading: dict[str, Any],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of tables.")] = False,
) -> None:
    """Estimate from an existing log which ranker gets more clicks, by how much and how surely.

    The log is a file (see ranktrial import), a folder of Parquet, or with --connect a table of impressions. Up to a million
    searches are read into memory and evaluated by several methods, with fewer and more assumptions. For larger logs, and tables
    of a database, sums are computed where the log is: only these leave the engine.
    """
    with plain_errors():
        asked = _Options(
            version, None if theta is None else _numbers(theta), tuple(estimator or ()), prediction, sums, memory, threads,
            "leave out" if leave_out else "refuse", tuple(map(parse_metric, metric or ())),
            reading.pop("segments") or None, DecisionOptions(level, not fixed, smallest, allowance, contamination),
        )  # fmt: skip
        if connect_to is not None:
            if asked.more_than_clicks:
                raise ValueError(NO_SUMS)
            if sums is False:
                raise ValueError("--in-memory reads files; sums of a log in a database are computed there")
            there = SQLLog(connect(connect_to), log, designs, version=version, dialect=dialect)
            answer = _by_sums(there, f"in {there.dialect}", asked)
        else:
            answer = _of_files(log, a, b, reading, asked)
    if as_json:
        print(json.dumps(answer.to_dict(), indent=2))
    else:
        print_answer(answer)


def _of_files(path: str, a: Path | None, b: Path | None, reading: dict[str, Any], asked: _Options) -> Answer:
    if (a is None) != (b is None):
        raise ValueError("--a and --b belong together: the runs of the two rankers to compare")
    rankers = None if a is None or b is None else (read_run(a), read_run(b))
    folder = LogFolder(path)
    if folder.exists and folder.state.get("kind") != ITEMS:
        refuse_options(folder, **reading)
        return _of_folder(folder, rankers, asked)
    with read_aside(path, memory=asked.memory, segments=asked.by or (), **reading) as source:
        if source.kind == ITEMS:
            return _of_items(source, rankers, asked)
        tables = LogTables.of_source(source)
        return _of_tables(tables, lambda: nullcontext(tables), rankers, asked)


def _of_folder(folder: LogFolder, rankers: tuple[Run, Run] | None, asked: _Options) -> Answer:
    kind = folder.state.get("kind", TRIAL)
    if kind != TRIAL:
        raise ValueError(NO_LISTS.format(folder.path, kind))

    @contextmanager
    def bounded() -> Iterator[LogTables]:
        with (
            tempfile.TemporaryDirectory(prefix="ranktrial-") as spill,
            open_bounded(memory=asked.memory, spill=spill, threads=asked.threads) as connection,
        ):
            yield LogTables.of_folder(folder, connection)

    return _of_tables(LogTables.of_folder(folder), bounded, rankers, asked)


def _of_tables(
    tables: LogTables,
    bounded: Callable[[], AbstractContextManager[LogTables]],
    rankers: tuple[Run, Run] | None,
    asked: _Options,
) -> Answer:
    """The answer in memory or by sums; ``bounded`` opens the tables for sums, within the memory that is asked for."""
    number = tables.latest_version() if asked.version is None else asked.version
    if asked.more_than_clicks and (asked.sums or asked.estimators or asked.prediction is not None):
        raise ValueError(NO_SUMS)
    if rankers is not None and asked.sums:
        raise ValueError("other rankers (--a, --b) are evaluated in memory: leave out --sums")
    many = tables.count(number) > IN_MEMORY and not asked.more_than_clicks
    if rankers is not None or not (
        asked.sums or (asked.sums is None and (many or asked.estimators or asked.prediction is not None))
    ):
        log = read_tables(tables, number, rankers=rankers)
        return decide(log, theta=asked.theta, metrics=asked.metrics, by=asked.by, **asdict(asked.decision))
    with bounded() as there:
        there.connection.execute("SET preserve_insertion_order = false")
        sql = SQLLog(there.connection, there.impressions, there.designs, version=number)
        return _by_sums(sql, f"in DuckDB with {asked.memory}", asked)


def _by_sums(there: SQLLog, where: str, asked: _Options) -> Answer:
    return by_sums(
        there, theta=asked.theta, estimators=asked.estimators or ("constant",), prediction=asked.prediction,
        asked=asked.decision, uncovered=asked.uncovered, how=f"by sums, {where}",
    )  # fmt: skip


def _of_items(source: LogSource, rankers: tuple[Run, Run] | None, asked: _Options) -> Answer:
    if asked.more_than_clicks:
        raise ValueError("single results with propensities have clicks only: leave out --metric and --by")
    if rankers is None:
        raise ValueError(f"{source.name} has propensities of single results: --a A.run --b B.run say whom to compare")
    return of_items(*estimate_items(source, *rankers), asked.decision)


def print_answer(answer: Answer) -> None:
    """Print the decision, what to do, and every estimate behind it."""
    text = answer.text
    decision = answer.decision
    out.print(f"[bold]{escape(text.headline)}[/] {escape(text.details)}", highlight=False)
    for line in filter(None, (text.next, lift_text(decision), text.trust, answer.note, answer.worth)):
        out.print(line, markup=False, highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("estimate", "B - A", "its own interval", "used"):
        table.add_column(name, no_wrap=True)
    for result in answer.estimates.results:
        if result.estimate is not None:
            own = str(turned(result.interval)) if result.has_interval else "none yet"
            used = "yes" if result.name in decision.used else "no"
            table.add_row(result.name, f"{0.0 - result.estimate.delta:+.5f}", own, used)
    out.print()
    out.print(table, highlight=False)
    for line in metric_lines(answer.metrics):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    for result in answer.estimates.results:
        test = answer.estimates.plainest_test(result)
        waits = f"{result.name}: waits for {result.missing}" if result.missing else ""
        waits += "; --theta can give it" if result.missing.startswith("position bias (") else ""
        for line in filter(None, (waits, "" if test is None else test.text)):
            out.print(line, markup=False, highlight=False)
    if answer.segments:
        out.print(f"\n{table_heading()}", highlight=False)
    for line in told_lines(answer.segments):
        out.print(line, markup=False, highlight=False)
    for line in filter(None, (*_told_of_checks(answer), answer.unchecked)):
        out.print(line, markup=False, highlight=False)
    if answer.bias is not None:
        told = "  ".join(f"{t:.3f}±{e:.3f}" for t, e in zip(answer.bias.theta, answer.bias.standard_error))
        out.print(f"position bias by rank: {told}", highlight=False, soft_wrap=True)
    out.print(
        f"worked out {answer.how}, from {decision.searches:,} searches", style="dim", markup=False, highlight=False
    )


def metric_lines(answers: Sequence[MetricAnswer]) -> Iterator[str]:
    """A row for each metric, the sentences on it below."""
    width = max((len(one.title) for one in answers), default=0)
    if answers:
        yield f"\nBy metric (*: told from chance, with those by segment; on average at most {RATE:.0%} of these are false)"
    for one in answers:
        counts = f"{one.searches:,} searches" + (f", {one.waiting:,} too recent" if one.waiting else "")
        told = f"{one.difference:+.4f}  {one.interval}" if np.isfinite(one.interval.low) else "none yet"
        yield (
            f"  {one.title:{width}}  {one.role:9}  {one.value:.4f} a search  B - A  {told}  {counts}  "
            + "*" * one.discovery
        )
        if one.note:
            yield f"  {'':{width}}  {one.note}"


def _told_of_checks(answer: Answer) -> Iterator[str]:
    """Checks of the log: those that fail or warn with what was found, and how many pass or cannot be made."""
    by_status: dict[Status, list[Guardrail]] = {}
    for check in answer.checks:
        by_status.setdefault(check.status, []).append(check)
    for status in ("fail", "warn"):
        for check in by_status.get(status, []):
            yield f"{status}: {check}"
    passing, unknown = (by_status.get(status, []) for status in ("pass", "unknown"))
    if answer.checks:
        cannot = f"; cannot be made yet: {', '.join(check.name for check in unknown)}" if unknown else ""
        yield f"{counted(len(passing), 'check')} of the log pass{'es' if len(passing) == 1 else ''}{cannot}."
