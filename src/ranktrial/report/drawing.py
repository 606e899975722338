"""Charts of results as Altair objects: what ``.chart()`` gives in notebooks, and what commands draw."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from ranktrial import extras

if refusal := extras.missing("charts", "a chart"):
    raise refusal

import altair as alt
import numpy as np

from ranktrial.analysis.answers import Answer
from ranktrial.analysis.estimators.results import BiasFit, Estimate
from ranktrial.analysis.planning.results import Plan
from ranktrial.interval import Interval
from ranktrial.position_bias import PositionBias
from ranktrial.report.charts import Sheets, decades, highlighting
from ranktrial.report.schema import Report
from ranktrial.report.theme import BLUE, GOOD_SHADE, INK, SKY, STYLES

WIDTH, HEIGHT = 480, 300


@singledispatch
def chart(result: Any) -> Any:
    """The chart of a result, an Altair object that holds its numbers."""
    raise TypeError(f"there is no chart of a {type(result).__name__}")


def _whole(sheets: Sheets, layers: Any) -> Any:
    """The object with its rows inside."""
    return alt.Chart.from_dict(sheets.spec(layers))


@chart.register
def _(result: Plan) -> Any:
    """Detectable difference by searches, a line per method that tends to Delta."""
    rows = [row for row in result.rows if row.tends_to_delta and 0 < row.impressions < np.inf]
    if not rows:
        raise ValueError("no method to draw; interleaving does not estimate a difference in clicks")
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
    return _whole(sheets, alt.layer(lines, wanted).properties(width=WIDTH, height=HEIGHT))


@chart.register
def _(bias: PositionBias) -> Any:
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
    return _whole(sheets, alt.layer(bars, errors))


@chart.register
def _(fit: BiasFit) -> Any:
    """Position bias by rank, with its intervals."""
    return chart(fit.bias)


@chart.register
def _(found: Estimate) -> Any:
    """B against A with the 95 % interval of one look."""
    low, high = found.confidence_interval()
    return _intervals([("this estimator", -found.delta, Interval(-high, -low))])


@chart.register
def _(answer: Answer) -> Any:
    """The decision on a log above the estimates that it comes from."""
    own = []
    for result in answer.estimates.results:
        if result.estimate is not None:
            low, high = result.estimate.confidence_interval()
            own.append((result.name, -result.estimate.delta, Interval(-high, -low)))
    return _intervals([("decision", answer.decision.difference, Interval(*answer.decision.interval)), *own])


@chart.register
def _(report: Report) -> Any:
    """The interval of B against A as it narrowed, or as it is now where there is no course yet."""
    rows = [
        {"searchers": one.units, "difference": one.difference, "low": one.low, "high": one.high}
        for one in report.band
        if np.isfinite([one.low, one.high]).all()
    ]
    if not rows:
        return _intervals([("so far", report.difference, report.interval)])
    name_a, name_b = report.config.labels
    sheets = Sheets()
    base = alt.Chart(sheets.add(rows), width=WIDTH, height=HEIGHT).encode(x=alt.X("searchers:Q", title="visitors"))
    title = f"clicks per search, {name_b} - {name_a}"
    band = base.mark_area(color=GOOD_SHADE).encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    line = base.mark_line(color=BLUE).encode(y="difference:Q")
    return _whole(sheets, alt.layer(band, line, _zero(sheets, "y")))


def _zero(sheets: Sheets, axis: str) -> Any:
    return alt.Chart(sheets.add([{"none": 0.0}])).mark_rule(strokeDash=[3, 3], color=INK).encode(**{axis: "none:Q"})


def _intervals(rows: list[tuple[str, float, Interval]]) -> Any:
    """Intervals of B against A one below the other, and no difference as a dashed line."""
    known = [
        {"what": what, "difference": value, "low": ends.low, "high": ends.high}
        for what, value, ends in rows
        if np.isfinite([value, *ends]).all()
    ]
    if not known:
        raise ValueError("there is no interval to draw yet")
    sheets = Sheets()
    base = alt.Chart(sheets.add(known), width=WIDTH).encode(
        y=alt.Y("what:N", title=None, sort=None, axis=alt.Axis(labelLimit=0))
    )
    x = alt.X("low:Q", title="clicks per search, B - A")
    ends = base.mark_rule(color=SKY, strokeWidth=5).encode(x=x, x2="high:Q")
    points = base.mark_point(color=BLUE, filled=True, size=90).encode(x="difference:Q")
    return _whole(sheets, alt.layer(_zero(sheets, "x"), ends, points))
