"""The command `ranktrial estimate`: which of two rankers gets more clicks by a log, wherever the log is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Column

from ranktrial.analysis.answers import Answer, DecisionOptions, decide
from ranktrial.analysis.discoveries import RATE
from ranktrial.analysis.guardrails.status import Guardrail
from ranktrial.analysis.metrics import MetricAnswer
from ranktrial.analysis.segments import answer_lines, table_heading
from ranktrial.analysis.verdict import lift_text
from ranktrial.cli.console import out, plain_table, say
from ranktrial.cli.decision_options import AllowanceOption, ContaminationOption
from ranktrial.cli.log_options import reads_log
from ranktrial.cli.options import JsonOption, VersionOption, numbers
from ranktrial.formats.answers import by_sums, of_items
from ranktrial.formats.database import SQLLog, connect
from ranktrial.formats.item_level import estimate_items
from ranktrial.formats.layout import LogFolder
from ranktrial.formats.readers import LogSource
from ranktrial.formats.readers.common import ITEMS
from ranktrial.formats.reading import log_of, read_aside
from ranktrial.metrics import parse_metric
from ranktrial.texts import counted
from ranktrial.trec import Run, read_run

NO_SUMS = (
    "sums of a database have clicks only: export its tables to files, or leave out --metric, --by and --covariates"
)


@reads_log
def estimate_command(
    log: Annotated[str, typer.Argument(help="A file or a folder of Parquet; with --connect the table of impressions.")],
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
    version: VersionOption = None,
    theta: Annotated[
        str | None, typer.Option(help="Position bias if it is known, with commas: 1,.6,.4. Default: fitted to the log.")
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
        typer.Option(
            "--leave-out",
            help="With --connect: leave out documents that could never be shown, instead of refusing the log.",
        ),
    ] = False,
    a: Annotated[
        Path | None, typer.Option("--a", help="TREC run of another ranker, to be evaluated as A on this log.")
    ] = None,
    b: Annotated[Path | None, typer.Option("--b", help="TREC run of another ranker, to be evaluated as B.")] = None,
    *,
    reading: dict[str, Any],
    as_json: JsonOption = False,
) -> None:
    """Estimate from an existing log which ranker gets more clicks, by how much and how surely.

    The log is a file (see ranktrial import) or a folder of Parquet, which is read into memory and evaluated by several methods,
    with fewer and more assumptions. Of tables of a database (--connect), sums are computed where they are: only these leave
    the engine.
    """
    asked = DecisionOptions(level, not fixed, smallest, allowance, contamination)
    known = None if theta is None else numbers(theta, "--theta")
    metrics, by = tuple(map(parse_metric, metric or ())), reading.pop("segments") or None
    if connect_to is not None:
        if metrics or by or reading["covariates"]:
            raise ValueError(NO_SUMS)
        there = SQLLog(connect(connect_to), log, designs, version=version, dialect=dialect)
        uncovered = "leave out" if leave_out else "refuse"
        answer = by_sums(there, theta=known, asked=asked, uncovered=uncovered, how=f"by sums, in {there.dialect}")
    else:
        if (a is None) != (b is None):
            raise ValueError("--a and --b belong together: the runs of the two rankers to compare")
        rankers = None if a is None or b is None else (read_run(a), read_run(b))
        declared = () if LogFolder(log).exists else by or ()  # a folder has its attributes
        with read_aside(log, segments=declared, **reading) as source:
            if source.kind == ITEMS:
                answer = _of_items(source, rankers, asked, more=bool(metrics or by))
            else:
                read = log_of(source, version, rankers=rankers)
                answer = decide(read, theta=known, metrics=metrics, by=by, **asdict(asked))
    if as_json:
        print(json.dumps(answer.to_dict(), indent=2))
    else:
        print_answer(answer)


def _of_items(source: LogSource, rankers: tuple[Run, Run] | None, asked: DecisionOptions, *, more: bool) -> Answer:
    if more:
        raise ValueError("single results with propensities have clicks only: leave out --metric and --by")
    if rankers is None:
        raise ValueError(f"{source.name} has propensities of single results: --a A.run --b B.run say whom to compare")
    return of_items(*estimate_items(source, *rankers), asked)


def print_answer(answer: Answer) -> None:
    """Print the decision, what to do, and every estimate behind it."""
    text, decision = answer.text, answer.decision
    out.print(f"[bold]{escape(text.headline)}[/] {escape(text.details)}", highlight=False)
    for line in filter(None, (text.next, lift_text(decision), text.trust, answer.note, answer.worth)):
        say(line, wrap=True)
    table = plain_table(*(Column(name, no_wrap=True) for name in ("estimate", "B - A", "its own interval", "used")))
    for row in answer.rows:
        if np.isfinite(row.difference):
            own = str(row.interval) if np.isfinite(row.interval.low) else "none yet"
            table.add_row(row.name, f"{row.difference:+.5f}", own, "yes" if row.used else "no")
    out.print()
    out.print(table, highlight=False)
    for line in metric_lines(answer.metrics):
        say(line)
    for result in answer.estimates.results:
        test = answer.estimates.plainest_test(result)
        waits = f"{result.name}: waits for {result.missing}" if result.missing else ""
        waits += "; --theta can give it" if result.missing.startswith("position bias (") else ""
        for line in filter(None, (waits, "" if test is None else test.text)):
            say(line, wrap=True)
    if answer.segments:
        say(f"\n{table_heading()}")
    for line in filter(None, (*answer_lines(answer.segments), *check_lines(answer.checks), answer.unchecked)):
        say(line, wrap=True)
    if answer.bias is not None:
        told = "  ".join(f"{t:.3f}±{e:.3f}" for t, e in zip(answer.bias.theta, answer.bias.standard_error))
        say(f"position bias by rank: {told}")
    say(f"worked out {answer.how}, from {decision.searches:,} searches", style="dim", wrap=True)


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


def check_lines(checks: Sequence[Guardrail]) -> Iterator[str]:
    """Checks of the log: those that fail or warn with what was found, and how many pass or cannot be made."""
    for status in ("fail", "warn"):
        yield from (f"{status}: {check}" for check in checks if check.status == status)
    if checks:
        passing = sum(check.status == "pass" for check in checks)
        unknown = ", ".join(check.name for check in checks if check.status == "unknown")
        cannot = f"; cannot be made yet: {unknown}" if unknown else ""
        yield f"{counted(passing, 'check')} of the log pass{'es' if passing == 1 else ''}{cannot}."
