"""Figures 2 and 3: the paper's three errors by number of queries, of methods and of logging policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import numpy as np

from ranktrial.charts.charts import Record, Sheets, add_to_all, decades, highlighting, zooming
from ranktrial.study.curves import means, standard_errors
from ranktrial.study.figures.drawing import Drawing, Names, Panel
from ranktrial.study.labels import ROLES, role
from ranktrial.study.results import DataResults, Runs
from ranktrial.study.summary import METRICS

WIDTH = 760  # of a figure across two columns, without axes
TITLES = {
    "binary_error": "Binary error",
    "absolute_error": "Absolute error",
    "mean_squared_error": "Mean squared error",
}
BINARY_TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
SQUARED_TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
LINE_POINTS = 6  # of a drawn curve, a decade
# What the paper compares in its figure 2 and in its figure 3; methods we do not know are in both.
FIXED_POLICIES = ("uniform", "ab-logging", "lambda", "oracle")
LOGGING_ROLES = (
    *FIXED_POLICIES,
    *(one for one in ROLES if one.startswith(("published", "network", "closed", "adaptive", "doubly", "rank-aware"))),
)
# A logging policy that stays as it is stands with its kind; LogOpt, which is the same and learns, with the methods.
COMPARED_ROLES = tuple(one for one in ROLES if one not in (*FIXED_POLICIES, "closed-form"))
CAPTION = (
    "Mean over pairs of rankers, with a band of one standard error. A binary error drawn at 0 is none at all. Where "
    "methods have different numbers of pairs, compare them in figure 7, which takes the pairs that both have."
)
INTERLEAVING_SCALE = "The absolute error of interleaving contains that its x is on another scale than Delta (figure 5)."


def methods_figure(results: Sequence[DataResults], names: Names) -> Drawing:
    """Error curves of A/B, interleaving and LogOpt."""
    caption = f"Comparison of methods. {CAPTION} {INTERLEAVING_SCALE}"
    return _curves_figure("figure2_methods", "Methods", caption, results, COMPARED_ROLES, names)


def logging_figure(results: Sequence[DataResults], names: Names) -> Drawing:
    """Error curves of logging policies for the counterfactual estimate."""
    caption = f"Logging policies. {CAPTION}"
    return _curves_figure("figure3_logging", "Logging policies", caption, results, LOGGING_ROLES, names)


def methods_playing(results: Sequence[DataResults], roles: Sequence[str]) -> list[str]:
    """The methods of the study that play one of these roles, or none we know."""
    found = dict.fromkeys(method for one in results for method in one.runs)
    return [method for method in found if (played := role(method)) is None or played in roles]


def _curves_figure(
    name: str, title: str, caption: str, results: Sequence[DataResults], roles: Sequence[str], names: Names
) -> Drawing:
    methods = methods_playing(results, roles)
    sheets = Sheets()
    records: list[Record] = []
    lines = []
    picked, opacity = highlighting("method", f"{name}_picked")
    legend = alt.Legend(title=None, orient="bottom", columns=3, symbolOpacity=1, symbolStrokeWidth=0)
    looks = {kind: names.channel(kind, methods, legend) for kind in ("colour", "dash", "shape")}
    for i, one in enumerate(results):
        runs = [one.runs[method] for method in methods if method in one.runs]
        if not runs:
            continue
        panels: list[Panel] = []
        for metric in METRICS:
            mine = [record for run in runs for record in _records(one.data, run, metric, names)]
            records += mine
            panel = _panel(
                sheets, mine, metric, max(len(run.pairs) for run in runs), looks, opacity, last=i == len(results) - 1
            )
            top = {"title": alt.Title(TITLES[metric], fontWeight="normal")} if i == 0 else {}
            panels.append(panel.add_params(zooming(f"{name}_{i}_{metric}")).properties(**top))
        side = alt.Title(f"{one.data} ({_count(runs)})", orient="left", anchor="middle", angle=-90, offset=8)
        lines.append(alt.hconcat(*panels, spacing=14).properties(title=side))
    chart = add_to_all(alt.vconcat(*lines, spacing=10), picked)
    return Drawing(name, title, caption, sheets.spec(chart), records)


def _count(runs: Sequence[Runs]) -> str:
    counts = [len(one.pairs) for one in runs]
    return f"{max(counts)} pairs" if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} pairs"


def _records(data: str, runs: Runs, metric: str, names: Names) -> Iterator[Record]:
    """Mean and standard error at each checkpoint; none where the metric is not known."""
    errors = runs.errors[metric]
    known = np.isfinite(errors).all(1)
    if not known.any():
        return
    mean, spread = means(errors[known]), standard_errors(errors[known])
    for point, value, error in zip(runs.impressions.tolist(), mean.tolist(), spread.tolist()):
        yield {
            "data": data,
            "method": names.labels[runs.method],
            "spelling": runs.method,
            "metric": metric,
            "impressions": point,
            "mean": value,
            "standard_error": None if np.isnan(error) else error,
            "pairs": int(known.sum()),
        }


def _panel(
    sheets: Sheets, records: Sequence[Record], metric: str, pairs: int, looks: dict[str, Any], opacity: Any, *, last: bool
) -> Panel:  # fmt: skip
    positive = [record["mean"] for record in records if record["mean"] > 0] or [1.0]
    binary = metric == "binary_error"
    # A mean of 0 has no place on a log axis: for the binary error the lowest tick stands for it.
    floor = 0.5 / pairs if binary else min(positive) / 1.5
    top = max(0.5, *positive) if binary else 1.1 * max(positive)
    points = [record["impressions"] for record in records]
    marked, lined = _spaced(points, 2), _spaced(points, LINE_POINTS)
    placed = [(record, _place(record, floor)) for record in records]
    drawn = [{"method": r["method"], "impressions": r["impressions"], **place} for r, place in placed]
    answering = [{**record, **place} for record, place in placed if record["impressions"] in marked]
    x = alt.X(
        "impressions:Q",
        scale=alt.Scale(type="log", nice=False),
        title="number of queries issued" if last else None,
        axis=decades(min(points), max(points), labels=last, ticks=last),
    )
    scale = alt.Scale(type="log", domain=[floor, top], nice=False, clamp=True)
    y = alt.Y("y:Q", scale=scale, title=None, axis=_axis(metric, floor, top))
    base = alt.Chart(sheets.add([one for one in drawn if one["impressions"] in lined])).encode(
        x=x, color=looks["colour"]
    )
    band = base.mark_area(opacity=0.05 if binary else 0.15, clip=True).encode(y=alt.Y("low:Q"), y2="high:Q")
    line = base.mark_line(clip=True, strokeWidth=1.3).encode(y=y, strokeDash=looks["dash"], opacity=opacity)
    shapes = (
        alt.Chart(sheets.add(answering))
        .mark_point(filled=True, size=34, opacity=1)
        .encode(x=x, y=y, color=looks["colour"], shape=looks["shape"], opacity=opacity, tooltip=_tooltip())
    )
    return alt.layer(band, line, shapes).properties(width=WIDTH / 3 - 28, height=170)


def _place(record: Record, floor: float) -> Record:
    """Ordinates of a point and its band; four digits are what a picture can show, and keep pages small."""
    mean, error = record["mean"], record["standard_error"] or 0
    ends = {"y": mean, "low": mean - error, "high": mean + error}
    return {name: float(f"{max(value, floor):.4g}") for name, value in ends.items()}


def _axis(metric: str, floor: float, top: float) -> alt.Axis:
    if metric == "binary_error":
        ticks = [floor, *(tick for tick in BINARY_TICKS if tick > 1.2 * floor)]
        return alt.Axis(values=ticks, labelExpr=f"datum.value <= {1.01 * floor} ? '0' : format(datum.value, '~%')")
    if metric == "mean_squared_error":
        return alt.Axis(values=[tick for tick in SQUARED_TICKS if floor <= tick <= top], format="~g")
    return decades(floor, top)


def _spaced(points: Sequence[int], a_decade: int) -> set[int]:
    """The checkpoints nearest to so many a decade, with the last: two of them show the shape of a line and answer to the
    pointer; a line through all checkpoints is mostly jitter."""
    known = np.array(sorted(set(points)))
    wanted = np.arange(np.floor(a_decade * np.log10(known[0])), np.ceil(a_decade * np.log10(known[-1])) + 1) / a_decade
    return {int(known[-1]), *(int(known[np.argmin(np.abs(np.log10(known) - one))]) for one in wanted)}


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("method:N"),
        alt.Tooltip("data:N"),
        alt.Tooltip("impressions:Q", format=","),
        alt.Tooltip("mean:Q", format=".4~g"),
        alt.Tooltip("standard_error:Q", format=".2~g", title="standard error"),
        alt.Tooltip("pairs:Q"),
        alt.Tooltip("spelling:N", title="written"),
    ]
