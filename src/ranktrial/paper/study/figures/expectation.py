"""Figure 9: expected runs as lines, simulated runs of the same methods as points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import altair as alt

from ranktrial.paper.study.curves import means, standard_errors
from ranktrial.paper.study.figures.drawing import Drawing, Names, distinct, impressions_axis
from ranktrial.paper.study.figures.error_curves import MOST_LINES
from ranktrial.paper.study.results import DataResults, Runs
from ranktrial.report.charts import Record, Sheets, decades

CAPTION = (
    "Absolute error: what runs come to on average (lines) and the mean of single simulated runs, one a pair, with two standard "
    "errors over pairs (points)."
)
A_DECADE = 3  # points


def expectation_figure(
    expected: Sequence[DataResults], simulated: Sequence[DataResults], names: Names
) -> list[Drawing]:
    """Figure of the expected and simulated curves of every method that both studies have, by data set; None if none."""
    others = {one.data: one for one in simulated}
    both = [(one, others[one.data]) for one in expected if one.data in others]
    methods = distinct(method for one, other in both for method in one.runs if method in other.runs)[:MOST_LINES]
    sheets = Sheets()
    records: list[Record] = []
    panels = []
    legend = alt.Legend(title=None, orient="bottom", columns=3)
    looks = {kind: names.channel(kind, methods, legend) for kind in ("colour", "dash", "shape")}
    for one, other in both:
        here = [method for method in methods if method in one.runs and method in other.runs]
        lines = [record for m in here for record in _records(one.data, one.runs[m], names, "expected", None)]
        points = [record for m in here for record in _records(one.data, other.runs[m], names, "simulated", A_DECADE)]
        if not lines:
            continue
        records += lines + points
        x = impressions_axis([record["impressions"] for record in lines])
        low, high = min(r["low"] for r in records), max(r["high"] for r in records)
        scale = alt.Scale(type="log", domain=[low, high], nice=False, clamp=True)
        y = alt.Y("mean:Q", title="absolute error", scale=scale, axis=decades(low, high))
        line = alt.Chart(sheets.add(lines)).mark_line(strokeWidth=1.3)
        dots = alt.Chart(sheets.add(points)).encode(x=x, color=looks["colour"])
        panels.append(
            alt.layer(
                line.encode(x=x, y=y, color=looks["colour"], strokeDash=looks["dash"]),
                dots.mark_rule().encode(y=alt.Y("low:Q", scale=scale), y2="high:Q"),
                dots.mark_point(filled=True, size=34, opacity=1).encode(y=y, shape=looks["shape"]),
            ).properties(width=330, height=230, title=one.data)
        )
    if not panels:
        return []
    chart = sheets.spec(alt.concat(*panels, columns=2, spacing=20))
    return [Drawing("figure9_expectation", "Expected and simulated runs", CAPTION, chart, records)]


def _records(data: str, runs: Runs, names: Names, what: str, a_decade: int | None) -> Iterator[Record]:
    errors = runs.errors["absolute_error"]
    mean = means(errors)
    spread = standard_errors(errors) if len(errors) > 1 else 0 * mean
    decade = float("-inf")
    for point, value, error in zip(runs.impressions.tolist(), mean.tolist(), spread.tolist()):
        if a_decade is not None:
            if point < decade:
                continue
            decade = point * 10 ** (1 / a_decade)
        yield {
            **names.key(data, runs.method),
            "what": what,
            "impressions": point,
            "mean": value,
            "low": max(value - 2 * error, value / 3),
            "high": value + 2 * error,
        }
