"""The command `ranktrial plan`: how many impressions a comparison will need, before any click."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import altair as alt
import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from ranktrial import checks
from ranktrial.arrays import FloatArray
from ranktrial.charts.charts import FORMATS, Sheets, decades, highlighting, save_chart
from ranktrial.charts.pages import Figure, Page, Section
from ranktrial.charts.theme import STYLES
from ranktrial.cli.console import err, out, plain_errors, progress_bar
from ranktrial.cli.data_source import DATA_HELP, PrefixOption, open_data
from ranktrial.data import Dataset, read_rankers, read_run, read_scores, train_rankers
from ranktrial.inference.planning import ClickRate, Plan, people_count, plan
from ranktrial.methods import parse_method
from ranktrial.rankings import Pair
from ranktrial.users import User, position_based, rank_decay

DEFAULT_DELTA = "1%"
Users = User | ClickRate


def plan_command(
    ranker_a: Annotated[
        Path | None,
        typer.Argument(help="Ranker A: a TREC run file; with --data, a file with a score per document and line."),
    ] = None,
    ranker_b: Annotated[Path | None, typer.Argument(help="Ranker B, likewise.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of tables.")] = False,
    data: Annotated[
        str | None,
        typer.Option(help=f"Labelled documents. {DATA_HELP} Without score files two rankers are trained on it."),
    ] = None,
    prefix: PrefixOption = None,
    queries: Annotated[int, typer.Option(min=10, help="Queries of a synthetic set.")] = 1000,
    rankers: Annotated[
        Path | None, typer.Option(help="Rankers for --data, as `ranktrial rankers` writes them.")
    ] = None,
    pair: Annotated[str, typer.Option(help="Which two of --rankers are A and B, counted from 1.")] = "1,2",
    k: Annotated[int | None, typer.Option("--k", min=1, max=64, help="Results on a page. [default: 10]")] = None,
    theta: Annotated[
        str | None, typer.Option(help="P(a rank is looked at), from the top, with commas: 1,.5,.3. Also sets --k.")
    ] = None,
    eta: Annotated[float, typer.Option(min=0, help="Position bias 1 / rank^eta, where --theta is not given.")] = 1.0,
    ctr: Annotated[
        float | None,
        typer.Option(help="Clicks per page. With labels the click probabilities are scaled to it."),
    ] = None,
    sd: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of clicks per page, for run files: without it what queries differ in is unknown, "
            "and an A/B test looks up to a fifth better than it is."
        ),
    ] = None,
    zeta: Annotated[
        float | None, typer.Option(help="Instead of --ctr: P(click) of any result that is looked at.")
    ] = None,
    delta: Annotated[
        str | None,
        typer.Option(
            help="The smallest difference that matters: clicks per page (0.01) or a share of --ctr (1%). "
            f"[default: with labels, what the rankers differ by; else {DEFAULT_DELTA}]"
        ),
    ] = None,
    power: Annotated[float, typer.Option(help="Probability of a right decision.")] = 0.8,
    level: Annotated[float, typer.Option(help="Confidence level of the decision.")] = 0.95,
    impressions: Annotated[int, typer.Option(min=1, help="Traffic for the smallest detectable difference.")] = 100_000,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Only this method, e.g. 'TeamDraft()'; may be repeated. Default: all that matter."),
    ] = None,
    users: Annotated[int, typer.Option(min=1, max=10_000, help="Plausible users to judge interleaving on.")] = 40,
    chart: Annotated[
        Path | None, typer.Option(help="Draw detectable difference by impressions: .svg, .png, .pdf or .html.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other trained rankers and plausible users.")] = 0,
) -> None:
    """Say how many impressions a comparison of two rankers will need with each method, before any click.

    From two TREC run files and the clicks a page gets:

      ranktrial plan a.run b.run --ctr 0.8 --delta 1%

    From labelled documents, where it is also known which ranker is better and whether interleaving would notice:

      ranktrial plan --data yahoo-like
    """
    with plain_errors():
        bias = _bias(theta, eta, k)
        if chart is not None:
            checks.one_of("--chart ends in", chart.suffix.lstrip("."), (*FORMATS, "html"))
        files = [file for file in (ranker_a, ranker_b) if file is not None]
        if len(files) == 1 or (not files and data is None):
            raise ValueError("give two files, one for each ranker, or labelled documents with --data")
        if data is not None:
            if zeta is not None or sd is not None:
                raise ValueError("--zeta and --sd are for run files; labels already say what is clicked")
            if rankers is not None and files:
                raise ValueError("give either --rankers or two score files, not both")
            dataset = open_data(data, queries, prefix)
            lists = _labelled_pair(dataset, files, rankers, pair, bias, seed)
            user: Users = _labelled_user(dataset, lists, ctr)
        else:
            lists = Pair.from_runs(read_run(files[0]), read_run(files[1]), len(bias)).knowing(theta=bias)
            user = _click_rate(lists, ctr, sd, zeta)
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
                users=users,
                seed=seed,
                progress=progress,
            )
        if chart is not None:
            draw(result, chart)
    if as_json:
        print(json.dumps(result.to_dict(), indent=2))
    else:
        print_plan(result, lists)
    for line in result.left_out:
        err.print(f"left out {line}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def _bias(theta: str | None, eta: float, k: int | None) -> FloatArray:
    if theta is None:
        return rank_decay(k or 10, eta)
    bias = checks.probabilities("--theta", [_number(text, "--theta") for text in theta.split(",")])
    if k is not None and k != len(bias):
        raise ValueError(f"--theta has {len(bias)} ranks, --k is {k}: leave one of them out")
    return bias


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option}: {text!r} is not a number") from None


def _difference(text: str, ctr: float) -> float:
    relative = text.strip().endswith("%")
    value = _number(text.strip().removesuffix("%"), "--delta")
    if not value > 0:
        raise ValueError(f"--delta is {text}, must be more than 0")
    return value / 100 * ctr if relative else value


def _labelled_pair(
    dataset: Dataset, files: list[Path], rankers: Path | None, pair: str, bias: FloatArray, seed: int
) -> Pair:
    if files:
        scores = [read_scores(file, dataset) for file in files]
    else:
        if rankers is None:
            with progress_bar("training two rankers") as progress:
                found, chosen = train_rankers(dataset, 2, seed=seed, progress=progress), [1, 2]
        else:
            found = read_rankers(rankers, dataset, allow_dropped=True)
            chosen = [int(_number(text, "--pair")) for text in pair.split(",")]
        if len(chosen) != 2 or chosen[0] == chosen[1] or not all(1 <= i <= len(found) for i in chosen):
            raise ValueError(f"--pair is {pair!r}, must name two of the {len(found)} rankers, such as 1,2")
        scores = [found.scores(dataset, i - 1) for i in chosen]
    return Pair.from_scores(scores[0], scores[1], dataset.offsets, len(bias), seed=seed).knowing(theta=bias)


def _labelled_user(dataset: Dataset, pair: Pair, ctr: float | None) -> User:
    zeta = dataset.zeta()
    user = position_based(zeta, pair.known_theta)
    if ctr is None:
        return user
    factor = ctr / float(np.mean(pair.ctr(user)))
    if not 0 < factor * zeta.max() <= 1:
        most = ctr / factor / zeta.max()
        raise ValueError(
            f"--ctr is {ctr:g}, must be more than 0 and at most {most:.4g} with these labels and position bias"
        )
    return position_based(zeta * factor, pair.known_theta)


def _click_rate(pair: Pair, ctr: float | None, sd: float | None, zeta: float | None) -> ClickRate:
    if (ctr is None) == (zeta is None):
        raise ValueError("run files say nothing about clicks: give --ctr (clicks per page, e.g. 0.8) or else --zeta")
    if zeta is not None:
        checks.between("--zeta", zeta, 0, 1)
        ctr = float(np.mean(pair.ctr(position_based(np.full(pair.n_documents, zeta), pair.known_theta))))
    assert ctr is not None
    return ClickRate(ctr, sd)


def print_plan(result: Plan, pair: Pair) -> None:
    known = "" if result.truth is None else f", A - B {result.truth:+.4f}"
    out.print(
        f"{pair.n_queries:,} queries, {pair.k} results a page, {result.ctr:.4g} clicks a page{known}. "
        f"Exposure disagreement {result.disagreement:.2f}"
        + (f": at best about {result.rule:.2g} times fewer impressions than A/B." if np.isfinite(result.rule) else "."),
        highlight=False,
    )
    table = Table(
        title=f"to find a difference of {result.delta:.4g} clicks a page ({100 * result.delta / result.ctr:.2g} % of clicks) "
        f"with probability {result.power:g}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("method", overflow="fold", ratio=1)
    for heading in ("variance", "impressions", "looking\noften", f"found at\n{result.traffic:,}", "wrong\nway"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result.rows:
        table.add_row(
            escape(row.method),
            f"{row.variance:.3g}",
            people_count(row.impressions),
            people_count(row.anytime),
            "-" if row.detectable is None else f"{row.detectable:.2g}",
            "-" if row.tends_to_delta else f"[{'red' if row.wrong else 'green'}]{row.wrong:.0%}[/]",
        )
    out.print(table)
    if result.floors:
        out.print(_floors_table(result))
    for sentence in result.verdict:
        out.print(sentence, highlight=False, markup=False)


def _floors_table(result: Plan) -> Table:
    """What users get while the closed form is shown, against A, B and an A/B test, and what a floor costs."""
    table = Table(
        title="what users would get of the closed form, clicks a page",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for heading in ("agreement\nfloor", "shown", "of A", "of B", "against\nA/B test", "variance\nfor floor"):
        table.add_column(heading, justify="right", no_wrap=True)
    for floor, cost in result.floors:
        clicks = (f"{ctr:.4g}" for ctr in (cost.ctr, cost.ctr_a, cost.ctr_b))
        table.add_row(f"{floor:g}", *clicks, f"{-cost.loss:+.1%}", f"{cost.extra_variance:+.1%}")
    return table


def draw(result: Plan, file: Path) -> None:
    """Detectable difference by impressions, a line per method that tends to Delta."""
    rows = [row for row in result.rows if row.tends_to_delta and row.variance > 0]
    if not rows:
        raise ValueError("--chart: no method to draw; interleaving does not estimate a difference in clicks")
    if not file.absolute().parent.is_dir():
        raise ValueError(f"--chart: cannot write {file}, its folder does not exist")
    spread = np.sqrt([row.variance for row in rows])
    # Every line has impressions = (z sd / difference)^2, so the planned difference gives z.
    needed = np.array([row.impressions for row in rows])
    least, most = 10 ** np.floor(np.log10(needed.min() / 10)), 10 ** np.ceil(np.log10(needed.max() * 2))
    points = np.geomspace(max(least, 10), most, 41)
    scale = result.delta * np.sqrt(needed[0]) / spread[0]
    names = [row.method for row in rows]
    values: list[dict[str, Any]] = [
        {"method": name, "impressions": float(n), "difference": float(scale * sd / np.sqrt(n))}
        for name, sd in zip(names, spread)
        for n in points
    ]
    found = [float(value["difference"]) for value in values]
    sheets = Sheets()
    picked, opacity = highlighting("method")
    lines = (
        alt.Chart(sheets.add(values))
        .mark_line()
        .encode(
            x=alt.X(
                "impressions:Q", scale=alt.Scale(type="log"), axis=decades(points[0], points[-1], title="impressions")
            ),
            y=alt.Y(
                "difference:Q",
                scale=alt.Scale(type="log"),
                axis=decades(min(found), max(found), title="smallest difference found, clicks a page"),
            ),
            color=alt.Color(
                "method:N",
                scale=alt.Scale(domain=names, range=[style.colour for style in STYLES[: len(names)]]),
                legend=alt.Legend(title=None, orient="bottom", columns=2),
            ),
            strokeDash=alt.StrokeDash(
                "method:N",
                scale=alt.Scale(domain=names, range=[list(style.dash) for style in STYLES[: len(names)]]),
                legend=None,
            ),
            opacity=opacity,
        )
        .add_params(picked)
    )
    wanted = alt.Chart(sheets.add([{"difference": result.delta}])).mark_rule(strokeDash=[2, 2]).encode(y="difference:Q")
    drawn = sheets.spec(alt.layer(lines, wanted).properties(width=480, height=300))
    if file.suffix == ".html":
        figure = Figure(drawn, f"Dotted: the difference to find, {result.delta:.4g} clicks a page.")
        Page("Plan of a trial", [Section("Impressions to a decision", [figure, *result.verdict])]).write(file)
    else:
        save_chart(drawn, file.with_suffix(""), formats=[file.suffix.lstrip(".")])
