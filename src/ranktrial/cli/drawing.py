"""Charts that commands draw on demand, with the extra "charts"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ranktrial import checks, extras

if refusal := extras.missing("charts", "a chart"):
    raise refusal

import altair as alt
import numpy as np

from ranktrial.analysis.planning.results import Plan
from ranktrial.position_bias import PositionBias
from ranktrial.report.charts import Sheets, decades, highlighting, save_chart
from ranktrial.report.pages import Figure, Page, Section
from ranktrial.report.theme import FORMATS, INK, SKY, STYLES


def check_plan_file(file: Path) -> None:
    """Refuse a name that does not say how a plan is to be drawn."""
    checks.one_of("--chart ends in", file.suffix.lstrip("."), (*FORMATS, "html"))


def draw_plan(result: Plan, file: Path) -> None:
    """Detectable difference by searches, a line per method that tends to Delta."""
    rows = [row for row in result.rows if row.tends_to_delta and 0 < row.impressions < np.inf]
    if not rows:
        raise ValueError("--chart: no method to draw; interleaving does not estimate a difference in clicks")
    if not file.absolute().parent.is_dir():
        raise ValueError(f"--chart: cannot write {file}, its folder does not exist")
    # Searches go as 1 / difference^2, so the planned ones give the line.
    needed = np.array([row.impressions for row in rows])
    least, most = 10 ** np.floor(np.log10(needed.min() / 10)), 10 ** np.ceil(np.log10(needed.max() * 2))
    points = np.geomspace(max(least, 10), most, 41)
    names = [row.method for row in rows]
    values: list[dict[str, Any]] = [
        {"method": name, "searches": float(n), "difference": float(result.delta * np.sqrt(enough / n))}
        for name, enough in zip(names, needed)
        for n in points
    ]
    found = [float(value["difference"]) for value in values]
    sheets = Sheets()
    picked, opacity = highlighting("method")
    lines = (
        alt.Chart(sheets.add(values))
        .mark_line()
        .encode(
            x=alt.X("searches:Q", scale=alt.Scale(type="log"), axis=decades(points[0], points[-1], title="searches")),
            y=alt.Y(
                "difference:Q",
                scale=alt.Scale(type="log"),
                axis=decades(min(found), max(found), title="smallest difference found, clicks per search"),
            ),
            color=alt.Color(
                "method:N",
                scale=alt.Scale(domain=names, range=[style.colour for style in STYLES[: len(names)]]),
                legend=alt.Legend(title=None, orient="bottom", columns=1, labelLimit=0),  # names of methods stay whole
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
        figure = Figure(drawn, f"Dotted: the difference to find, {result.delta:.4g} clicks per search.")
        Page("Plan of a trial", [Section("Searches to a decision", [figure, *result.verdict])]).write(file)
    else:
        save_chart(drawn, file.with_suffix(""), formats=[file.suffix.lstrip(".")])


def draw_bias(bias: PositionBias, file: Path) -> None:
    """Position bias by rank, with its intervals."""
    rows = [
        {"rank": number, "theta": float(theta), "low": ends.low, "high": min(ends.high, 2.0)}
        for number, (theta, ends) in enumerate(zip(bias.theta, bias.confidence_interval()), 1)
    ]
    sheets = Sheets()
    base = alt.Chart(sheets.add(rows), width=360, height=220).encode(
        x=alt.X("rank:O", title="rank", axis=alt.Axis(labelAngle=0))
    )
    bars = base.mark_bar(color=SKY).encode(y=alt.Y("theta:Q", title="examined, relative to rank 1"))
    errors = base.mark_rule(color=INK).encode(y="low:Q", y2="high:Q")
    save_chart(sheets.spec(alt.layer(bars, errors)), file.with_suffix(""), formats=(file.suffix.removeprefix("."),))
