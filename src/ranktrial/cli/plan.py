"""The command `ranktrial plan`: the number of searches a comparison will need, before any click."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from ranktrial import checks
from ranktrial.analysis.planning.metrics import KnownMetric
from ranktrial.analysis.planning.plan import plan
from ranktrial.analysis.planning.results import Plan, people_count
from ranktrial.analysis.planning.users import ClickRate
from ranktrial.cli.console import err, number_table, out, progress_bar, say
from ranktrial.cli.decision_options import AllowanceOption, ContaminationOption
from ranktrial.cli.options import JsonOption, SeedOption, number
from ranktrial.cli.two_rankers import CtrOption, names_rankers, read_two_rankers
from ranktrial.methods import parse_method
from ranktrial.metrics import Clicks
from ranktrial.rankings import Pair
from ranktrial.times import span_text
from ranktrial.users import User, position_based

DEFAULT_DELTA = "1%"
ESTIMATED = "*"  # beside a method, instead of a column: names of methods stay whole in a terminal of 80 columns
Users = User | ClickRate


@names_rankers
def plan_command(
    rankers: dict[str, Any],
    as_json: JsonOption = False,
    queries: Annotated[int, typer.Option(min=10, help="Queries of a synthetic set.")] = 1000,
    ctr: CtrOption = None,
    sd: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of clicks per page, for run files. Without it the differences between queries are "
            "unknown, and an A/B test looks up to a fifth better than it is."
        ),
    ] = None,
    zeta: Annotated[
        float | None, typer.Option(help="Instead of --ctr: probability of a click on any result that is looked at.")
    ] = None,
    delta: Annotated[
        str | None,
        typer.Option(
            help="The smallest difference that matters: clicks per page (0.01) or a share of --ctr (1%). "
            f"Default: with labels the rankers' difference, else {DEFAULT_DELTA}."
        ),
    ] = None,
    power: Annotated[float, typer.Option(help="Probability of a right decision.")] = 0.8,
    level: Annotated[float, typer.Option(help="Confidence level of the decision.")] = 0.95,
    impressions: Annotated[
        int, typer.Option(min=1, help="Number of searches to report the smallest detectable difference for.")
    ] = 100_000,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Method to plan, e.g. 'TeamDraft()'; may be repeated. Default: all common ones."),
    ] = None,
    tightest_at: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Number of searches at which the confidence sequence is tightest. Default: that of a live trial with "
            "smallest=delta.",
        ),
    ] = None,
    allowance: AllowanceOption = None,
    contamination: ContaminationOption = None,
    users: Annotated[
        int, typer.Option(min=1, max=10_000, help="Number of plausible users to judge interleaving on.")
    ] = 40,
    segment: Annotated[
        list[str] | None,
        typer.Option(help="Segment with its share of the searches, as phone=0.6; may be repeated."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="What a metric needs: 'Orders(window=\"7d\")=0.05' with the share of clicks that lead to an order, "
            "'Revenue()=0.05,39.90,45' with mean and standard deviation of amounts too, 'Abandonment()=0.3' with its mean a "
            "search; without numbers by --log. May be repeated."
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="Log with events (a file, or a folder of export or import), for metrics without numbers."),
    ] = None,
    daily: Annotated[float | None, typer.Option(help="Searches a day, to tell how many days metrics take.")] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Draw the detectable difference by searches: .svg, .png, .pdf or .html.")
    ] = None,
    seed: SeedOption = 0,
) -> None:
    """Plan a comparison of two rankers: the number of searches each method will need, before any click.

    From two TREC run files and the clicks a page gets:

      ranktrial plan a.run b.run --ctr 0.8 --delta 1%

    With judgements of their documents it is also known which ranker is
    better, and whether interleaving would notice:

      ranktrial plan a.run b.run --qrels judged.qrels

    From labelled documents with two files of scores, or two rankers
    trained on them:

      ranktrial plan a.scores b.scores --data train.txt
      ranktrial plan --data yahoo-like
    """
    if chart is not None:
        from ranktrial.cli.drawing import check_plan_file, draw_plan  # the extra "charts"

        check_plan_file(chart)
    labelled = rankers["data"] is not None or rankers["qrels"] is not None
    if labelled and (zeta is not None or sd is not None):
        raise ValueError("--zeta and --sd are for run files without labels; labels already say what is clicked")
    both = read_two_rankers(**rankers, queries=queries, seed=seed)
    lists = both.pair
    user: Users = both.user(ctr) if labelled else _click_rate(lists, ctr, sd, zeta)
    if not labelled:
        delta = delta or DEFAULT_DELTA
    rate = user.ctr if isinstance(user, ClickRate) else float(np.mean(lists.ctr(user)))
    with progress_bar("planning") as progress:
        result = plan(
            lists,
            user,
            methods=[parse_method(text) for text in method] if method else None,
            delta=None if delta is None else _difference(delta, rate),
            power=power,
            level=level,
            impressions=impressions,
            tightest_at=tightest_at,
            allowance=allowance,
            contamination=contamination,
            users=users,
            segments=dict(map(_share, segment or [])),
            metrics=_metrics(metric or [], log),
            daily=daily,
            seed=seed,
            progress=progress,
        )
    if chart is not None:
        draw_plan(result, chart)
    if as_json:
        print(json.dumps({**result.to_dict(), **both.judged_dict()}, indent=2))
    else:
        print_plan(result, lists)
        if both.judged:
            say(both.judged_text(), wrap=True)
    for line in result.left_out:
        say(f"left out {line}", of=err, style="yellow")


def _share(text: str) -> tuple[str, float]:
    name, _, share = text.rpartition("=")
    if not name:
        raise ValueError(f"--segment is {text}, must be a name and its share: phone=0.6")
    return name, number(share, "--segment")


def _metrics(texts: list[str], log: Path | None) -> list[KnownMetric]:
    """Clicks, and metrics by the numbers that stand behind them or by those of a log."""
    read = None
    known = [KnownMetric.given(Clicks())] if texts else []
    for text in texts:
        name, equals, numbers = text.rpartition(")=")
        if equals:
            known.append(KnownMetric.given(f"{name})", *(number(one, "--metric") for one in numbers.split(","))))
            continue
        if log is None:
            raise ValueError(
                f"--metric {text}: give its numbers ('Orders()=0.05'), or a log that has such events by --log"
            )
        if read is None:
            from ranktrial.formats.reading import read_log  # the extra "logs"

            read = read_log(log)
        known.append(KnownMetric.of_log(read, text))
    return known


def _difference(text: str, ctr: float) -> float:
    relative = text.strip().endswith("%")
    value = number(text.strip().removesuffix("%"), "--delta")
    if not value > 0:
        raise ValueError(f"--delta is {text}, must be more than 0")
    return value / 100 * ctr if relative else value


def _click_rate(pair: Pair, ctr: float | None, sd: float | None, zeta: float | None) -> ClickRate:
    if (ctr is None) == (zeta is None):
        raise ValueError(
            "run files say nothing about clicks: give --ctr (clicks per page, e.g. 0.8) or else --zeta; or judgements "
            "of their documents with --qrels"
        )
    if zeta is not None:
        checks.between("--zeta", zeta, 0, 1)
        ctr = float(np.mean(pair.ctr(position_based(np.full(pair.n_documents, zeta), pair.known_theta))))
    assert ctr is not None
    return ClickRate(ctr, sd)


def print_plan(result: Plan, pair: Pair) -> None:
    known = "" if result.truth is None else f", B - A {result.truth:+.4f}"
    out.print(
        f"{pair.n_queries:,} queries, {pair.k} results a page, {result.ctr:.4g} clicks a page{known}. "
        f"Exposure disagreement {result.disagreement:.2f}"
        + (f": at best about {result.rule:.2g} times fewer searches than A/B." if np.isfinite(result.rule) else "."),
        highlight=False,
    )
    marks = [f" {ESTIMATED}" if row.theta == "estimated" else "" for row in result.rows]
    table = number_table(
        f"to find a difference of {result.delta:.4g} clicks a page ({100 * result.delta / result.ctr:.2g} % of clicks) "
        f"with probability {result.power:g}",
        "variance",
        "searches",
        "looking\noften",
        f"found at\n{result.traffic:,}",
        "wrong\nway",
        text="method",
    )
    table.caption = f"{ESTIMATED} with position bias estimated from the same clicks" if any(marks) else None
    for row, mark in zip(result.rows, marks, strict=True):
        table.add_row(
            escape(row.method) + mark,
            f"{row.variance:.3g}",
            people_count(row.impressions),
            people_count(row.anytime),
            "-" if row.detectable is None else f"{row.detectable:.2g}",
            "-" if row.tends_to_delta else f"[{'red' if row.wrong else 'green'}]{row.wrong:.0%}[/]",
        )
    out.print(table)
    if result.metrics:
        out.print(_metrics_table(result))
    if result.budgets:
        out.print(_budgets_table(result))
    in_table = set(map(str, result.metrics))
    for sentence in (one for one in result.verdict if one not in in_table):
        say(sentence, wrap=True)


def _metrics_table(result: Plan) -> Table:
    """Table of the searches that each metric needs, and of what comes after the last of them."""
    assert result.live is not None
    with_days = any(row.days is not None for row in result.metrics)
    title = f"to find {100 * result.delta / result.ctr:.2g} % of each metric with {result.live.method}, if it decides"
    headings = "a\nsearch", "searches", "looking\noften", "A/B test,\nlooking often", "and then", *["days"] * with_days
    table = number_table(title, *headings, text="metric")
    table.caption = "A: by A/B traffic alone" if any(row.by_ab_only for row in result.metrics) else None
    for row in result.metrics:
        needed = people_count(row.impressions), people_count(row.anytime), people_count(row.ab)
        wait = span_text(row.settles_after) if row.settles_after else ""
        days = [] if row.days is None else [people_count(float(np.ceil(row.days)))]
        title = f"{row.title} A" if row.by_ab_only else row.title
        table.add_row(escape(title), f"{row.value:.3g}", *needed, wait, *days)
    return table


def _budgets_table(result: Plan) -> Table:
    """Table of click budgets: the impressions that each needs, and the clicks that visitors get."""
    title = "share of an A/B test's clicks that visitors may lose, and the searches needed"
    table = number_table(title, "may lose", "clicks\na page", "against\nA/B test", "searches", "looking\noften")
    for row in result.budgets:
        needed = people_count(row.impressions), people_count(row.anytime)
        table.add_row(f"{row.loss:.0%}", f"{row.ctr:.4g}", f"{row.gain:+.1%}", *needed)
    return table
