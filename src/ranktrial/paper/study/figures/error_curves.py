"""Figures 2, 3, 8 and 9: errors by number of queries, of the paper's methods, logging policies, ours, and of single runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import numpy as np

from ranktrial.paper.study.curves import means, standard_errors
from ranktrial.paper.study.figures.drawing import Drawing, Names, Panel, distinct, impressions_axis, short, tooltip
from ranktrial.paper.study.labels import ROLES, role
from ranktrial.paper.study.results import DataResults, Runs
from ranktrial.paper.study.summary import METRICS
from ranktrial.report.charts import Record, Sheets, add_to_all, decades, highlighting, zooming
from ranktrial.texts import counted

SIMULATED_POINTS = 3  # a decade
WIDTH = 760  # of a figure across two columns, without axes
TITLES = {
    "binary_error": "Binary error",
    "absolute_error": "Absolute error",
    "mean_squared_error": "Mean squared error",
}
BINARY_TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
SQUARED_TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
MORE_TICKS = tuple(first * ten for ten in (0.1, 1, 10) for first in (1, 1.5, 2, 3, 4, 5, 7))  # where few fit
LINE_POINTS = 6  # of a drawn curve, a decade
LEAST_CHANCE = 5e-4  # of a wrong preference that is told from none
MOST_LINES = 8  # of a panel: more cannot be told apart
LABEL_GAP = 11  # pixels between labels beside a panel
LABEL_LENGTH = 72  # of those labels: nothing stands to their right, and options such as steps=200 come last
HEIGHT = 170
PUBLISHED = ("published-known", "published-estimated", "network-known", "network-estimated")
# What the paper compares in its figure 2 and in its figure 3.
METHODS_ROLES = ("ab", "ab-means", "team-draft", "probabilistic", "optimized", "balanced", *PUBLISHED)
LOGGING_ROLES = ("uniform", "ab-logging", *PUBLISHED, "oracle")
# What we add, beside the best of the paper.
OUR_ROLES = (
    "ab-means",
    "network-estimated",
    "oracle",
    "lambda",
    "closed-form",
    *(one for one in ROLES if one.startswith(("adaptive", "rank-aware", "doubly", "budget", "ab-rank", "ab-doubly"))),
)
CAPTION = (
    "Mean over pairs of rankers, with a band of one standard error over pairs; labels stand at the ends of the lines. A binary "
    "error drawn at 0 is none at all, or next to none. Where methods have different pairs, compare them in figure 7: "
    "it takes the pairs that both have."
)
EXPECTATION_CAPTION = (
    "Absolute error: what runs come to on average (lines) and the mean of single simulated runs, one a pair, with two standard "
    "errors over pairs (points)."
)
TOOLTIP = tooltip("data:N", "method:N", "spelling:N", "pairs:Q", impressions=",", mean=".4~g", standard_error=".2~g")
INTERLEAVING_SCALE = "The absolute error of interleaving contains that its x is on another scale than Delta (figure 5)."


def methods_figure(results: Sequence[DataResults], names: Names) -> list[Drawing]:
    """The paper's figure 2: error curves of A/B, interleaving and LogOpt."""
    caption = f"Comparison of methods, as in the paper's figure 2. {CAPTION} {INTERLEAVING_SCALE}"
    methods = methods_playing(results, METHODS_ROLES)
    return _curves_figures("figure2_methods", "Methods", caption, results, methods, names)


def logging_figure(results: Sequence[DataResults], names: Names) -> list[Drawing]:
    """The paper's figure 3: error curves of logging policies for the counterfactual estimate."""
    caption = f"Logging policies, as in the paper's figure 3. {CAPTION}"
    methods = methods_playing(results, LOGGING_ROLES)
    return _curves_figures("figure3_logging", "Logging policies", caption, results, methods, names)


def our_figure(results: Sequence[DataResults], names: Names) -> list[Drawing]:
    """Error curves of our methods beside the best of the paper's; methods that play no role stand here."""
    caption = f"Without training: the closed form, beside A/B and the paper's network and Oracle. {CAPTION}"
    methods = methods_playing(results, OUR_ROLES, strangers=True)
    return _curves_figures("figure8_ours", "Our methods", caption, results, methods, names)


def methods_playing(results: Sequence[DataResults], roles: Sequence[str], *, strangers: bool = False) -> list[str]:
    """The methods of the study that play one of these roles; with ``strangers`` also those that play none we know."""
    found = dict.fromkeys(method for one in results for method in one.runs)
    return [method for method in found if ((played := role(method)) is None and strangers) or played in roles]


def _curves_figures(
    name: str, title: str, caption: str, results: Sequence[DataResults], methods: list[str], names: Names
) -> list[Drawing]:
    """One figure, or several where methods are too many: the first of them then stands in each, to compare with."""
    first, rest = methods[:1], methods[1:]
    groups = (
        [first + rest[i : i + MOST_LINES - 1] for i in range(0, max(len(rest), 1), MOST_LINES - 1)] if first else []
    )
    called = [(name, title), *((f"{name}_{i}", f"{title} ({i})") for i in range(2, len(groups) + 1))]
    return [_curves_figure(*one, caption, results, group, names) for one, group in zip(called, groups)]


def _curves_figure(
    name: str, title: str, caption: str, results: Sequence[DataResults], methods: Sequence[str], names: Names
) -> Drawing:
    sheets = Sheets()
    records: list[Record] = []
    lines = []
    picked, opacity = highlighting("method", f"{name}_picked")
    legend = alt.Legend(title=None, orient="bottom", columns=3, symbolOpacity=1, symbolStrokeWidth=0)
    looks = {kind: names.channel(kind, methods, legend) for kind in ("colour", "dash", "shape")}
    # The first method is there to compare with: alone it says nothing.
    drawn = [one for one in results if any(method in one.runs for method in methods[1:] or methods)]
    for i, one in enumerate(drawn):
        runs = [one.runs[method] for method in methods if method in one.runs]
        panels: list[Panel] = []
        for metric in METRICS:
            mine = [record for run in runs for record in _records(one.data, run, metric, names)]
            if not mine:  # no method of these has it, such as squares where impressions have no value of their own
                continue
            first = all(record["metric"] != metric for record in records)
            records += mine
            panel = _panel(
                sheets, mine, metric, max(len(run.pairs) for run in runs), looks, opacity, last=i == len(drawn) - 1
            )
            top = {"title": alt.Title(TITLES[metric], fontWeight="normal")} if first else {}
            panels.append(panel.add_params(zooming(f"{name}_{i}_{metric}")).properties(**top))
        side = alt.Title(f"{one.data} ({_count(runs)})", orient="left", anchor="middle", angle=-90, offset=8)
        lines.append(alt.hconcat(*panels, spacing=14).properties(title=side))
    chart = add_to_all(alt.vconcat(*lines, spacing=10), picked)
    return Drawing(name, title, caption, sheets.spec(chart), records)


def _count(runs: Sequence[Runs]) -> str:
    counts = [len(one.pairs) for one in runs]
    return counted(max(counts), "pair") if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} pairs"


def _records(data: str, runs: Runs, metric: str, names: Names) -> Iterator[Record]:
    """Mean and standard error at each checkpoint; none where the metric is not known."""
    errors = runs.errors[metric]
    known = np.isfinite(errors).all(1)
    if not known.any():
        return
    mean, spread = means(errors[known]), standard_errors(errors[known])
    for point, value, error in zip(runs.impressions.tolist(), mean.tolist(), spread.tolist()):
        yield {
            **names.key(data, runs.method),
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
    floor = min(0.5 / pairs, max(LEAST_CHANCE, min(positive))) if binary else min(positive) / 1.5
    top = max(0.5, *positive) if binary else 1.1 * max(positive)
    points = [record["impressions"] for record in records]
    marked, lined = _spaced(points, 2), _spaced(points, LINE_POINTS)
    placed = [(record, _place(record, floor)) for record in records]
    drawn = [{"method": r["method"], "impressions": r["impressions"], **place} for r, place in placed]
    answering = [{**record, **place} for record, place in placed if record["impressions"] in marked]
    x = impressions_axis(points, labels=last, ticks=last)
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
        .encode(x=x, y=y, color=looks["colour"], shape=looks["shape"], opacity=opacity, tooltip=TOOLTIP)
    )
    layers = [band, line, shapes]
    if metric == METRICS[-1]:
        ends = _label_places([r for r in placed if r[0]["impressions"] == max(points)], floor, top)
        text = alt.Chart(sheets.add(ends)).mark_text(align="left", dx=6, fontSize=9, clip=False)
        layers.append(text.encode(x=x, y=y, text="label:N", color=looks["colour"], opacity=opacity))
    return alt.layer(*layers).properties(width=WIDTH / 3 - 28, height=HEIGHT)


def _label_places(ends: Sequence[tuple[Record, Record]], floor: float, top: float) -> list[Record]:
    """A label at the end of each line, moved apart where lines end together."""
    gap = LABEL_GAP / HEIGHT * np.log(top / floor)
    height = np.inf
    rows: list[Record] = []
    for record, place in sorted(ends, key=lambda end: -end[1]["y"]):
        height = min(height - gap, float(np.log(place["y"])))
        rows.append({"method": record["method"], "impressions": record["impressions"], "height": height})
    lowest = float(np.log(floor))
    for above, row in enumerate(reversed(rows)):  # those pushed below the panel come up again
        row["height"] = max(row["height"], lowest + above * gap)
    return [
        {
            "method": row["method"],
            "impressions": row["impressions"],
            "label": short(row["method"], LABEL_LENGTH),
            "y": float(np.exp(row["height"])),
        }
        for row in rows
    ]


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
        few, many = ([tick for tick in ticks if floor <= tick <= top] for ticks in (SQUARED_TICKS, MORE_TICKS))
        return alt.Axis(values=few if len(few) > 2 else many, format="~g")
    return decades(floor, top)


def _spaced(points: Sequence[int], a_decade: int) -> set[int]:
    """The checkpoints nearest to so many a decade, with the last: two of them show the shape of a line and answer to the
    pointer; a line through all checkpoints is mostly jitter."""
    known = np.array(sorted(set(points)))
    wanted = np.arange(np.floor(a_decade * np.log10(known[0])), np.ceil(a_decade * np.log10(known[-1])) + 1) / a_decade
    return {int(known[-1]), *(int(known[np.argmin(np.abs(np.log10(known) - one))]) for one in wanted)}


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
        lines = [record for m in here for record in _points(one.data, one.runs[m], names, "expected", None)]
        points = [
            record for m in here for record in _points(one.data, other.runs[m], names, "simulated", SIMULATED_POINTS)
        ]
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
    return [Drawing("figure9_expectation", "Expected and simulated runs", EXPECTATION_CAPTION, chart, records)]


def _points(data: str, runs: Runs, names: Names, what: str, a_decade: int | None) -> Iterator[Record]:
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
