"""What does a study look like? The paper's four figures and ours as files, with their data, an interactive report, and the
table of the paper's claims.

Figures 1 to 4 have the paper's layout: a panel per data set. Figures 5 to 7 are ours: the systematic error of interleaving
without noise, what users got, and how many impressions the same error takes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from ranktrial import checks
from ranktrial.arrays import FloatArray
from ranktrial.charts.charts import FORMATS, Chart, Sheets, decades, highlighting, save_chart, save_rows, zooming
from ranktrial.charts.pages import Figure, Page, Section, Table
from ranktrial.charts.theme import BAD_SHADE, BLUE, GOOD_SHADE, GREY, INK, VERMILLION, Style
from ranktrial.study.claims import SMALL_DELTA, Finding, best_scale, findings, impressions_ratio, shown, wrong_weight
from ranktrial.study.curves import DataResults, Runs, means, reached, read_results, share, standard_errors
from ranktrial.study.labels import INTERLEAVING, ROLES, labels, role, styles
from ranktrial.study.summary import METRICS

Row = dict[str, Any]

WIDTH = 760  # of a figure across two columns, without axes
TITLES = {
    "binary_error": "Binary error",
    "absolute_error": "Absolute error",
    "mean_squared_error": "Mean squared error",
}
# What the paper compares in its figure 2 and in its figure 3; methods we do not know are in both.
POLICIES = ("uniform", "ab-logging", "lambda", "oracle")
LOGGING = (
    *POLICIES,
    *(one for one in ROLES if one.startswith(("published", "network", "closed", "adaptive", "doubly", "rank-aware"))),
)
# A logging policy that stays as it is stands with its kind; LogOpt, which is the same and learns, with the methods.
COMPARED = tuple(one for one in ROLES if one not in (*POLICIES, "closed-form"))
# The paper's LogOpt as published, where the study has it.
BASELINES = (("ab",), ("ab-means",), ("team-draft",), ("published-estimated", "network-estimated"))
LINE_POINTS = 6  # of a drawn curve, a decade
LEVELS = {"absolute_error": (0.05, 0.02, 0.01, 0.005, 0.002, 0.001), "binary_error": (0.2, 0.1, 0.05, 0.02)}
DELTA_EDGES = (0, 0.001, 0.003, 0.01, 0.03, np.inf)


@dataclass(frozen=True, eq=False)
class Drawing:
    """One figure.

    Attributes:
        name: Of its files.
        title: Of its section.
        caption: What there is to see.
        chart: The picture.
        rows: The numbers in it.
        tables: More of them, to read.
    """

    name: str
    title: str
    caption: str
    chart: Chart
    rows: list[Row]
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class DrawnStudy:
    """What was written.

    Attributes:
        files: All of it.
        findings: The claims.
        ratios: Impressions needed, as ratios to baselines.
    """

    files: tuple[Path, ...]
    findings: tuple[Finding, ...]
    ratios: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "files": [str(file) for file in self.files],
            "claims": [one.to_dict() for one in self.findings],
            "ratios": list(self.ratios),
        }


def draw_study(path: Path, out: Path | None = None, formats: Sequence[str] = FORMATS) -> DrawnStudy:
    """Draw a study, finished or not, into ``out`` (the study's own folder ``figures`` by default)."""
    for name in formats:
        checks.one_of("format", name, FORMATS)
    plan, results = read_results(path)
    folder = out or path / "figures"
    names = Names.of(results)
    found = findings(results)
    ratios = list(ratio_rows(results, names))
    drawings = list(draw(results, names, ratios))
    files: list[Path] = []
    for one in drawings:
        files += save_chart(one.chart, folder / one.name, formats=formats, rows=one.rows)
    needed = list(needed_rows(results, names))
    files.append(save_rows(needed, folder / "impressions_needed.csv"))
    files.append(save_rows([one.to_dict() for one in found], folder / "claims.csv"))
    markdown = folder / "claims.md"
    markdown.write_text(claims_markdown(found), encoding="utf-8")
    total = len(plan.data) * plan.pairs * len(plan.methods)
    done = sum(len(runs.pairs) for one in results for runs in one.runs.values())
    unfinished = f" {total - done:,} of {total:,} tasks have no result yet." if done < total else ""
    summary = (
        f"{len(plan.data)} data sets, {len(plan.methods)} methods, {plan.pairs} pairs of rankers on each, "
        f"{plan.impressions:,} impressions of each method on each pair.{unfinished}"
    )
    files += [markdown, report_page(drawings, found, needed, summary).write(folder / "report.html")]
    return DrawnStudy(tuple(files), tuple(found), tuple(ratios))


@dataclass(frozen=True)
class Names:
    """What methods are called and how they are drawn, the same in every figure."""

    labels: Mapping[str, str]
    styles: Mapping[str, Style]

    @classmethod
    def of(cls, results: Sequence[DataResults]) -> Names:
        methods = list(dict.fromkeys(method for one in results for method in (*one.runs, *one.limits)))
        return cls(labels(methods), styles(methods))

    def scale(self, methods: Sequence[str], kind: str) -> alt.Scale:
        drawn = [getattr(self.styles[method], kind) for method in methods]
        return alt.Scale(domain=[self.labels[method] for method in methods], range=drawn)


def draw(results: Sequence[DataResults], names: Names, ratios: Sequence[Row]) -> Iterator[Drawing]:
    yield rankers_figure(results)
    compared = (
        "Mean over pairs of rankers, with a band of one standard error. A binary error drawn at 0 is none at all. Where "
        "methods have different numbers of pairs, compare them in figure 7, which takes the pairs that both have."
    )
    yield curves_figure(
        "figure2_methods", "Methods", f"Comparison of methods. {compared} The absolute error of interleaving contains that "
        "its x is on another scale than Delta (figure 5).", results, COMPARED, names
    )  # fmt: skip
    yield curves_figure("figure3_logging", "Logging policies", f"Logging policies. {compared}", results, LOGGING, names)
    yield errors_figure(results, names)
    if systematic(results):
        yield limits_figure(results, names)
        yield wrong_signs_figure(results, names)
    yield users_figure(results, names)
    if ratios:
        yield ratios_figure(ratios, names, results)


def _methods(results: Sequence[DataResults], parts: Sequence[str]) -> list[str]:
    """The methods of the study that play one of these roles, or none we know."""
    found = dict.fromkeys(method for one in results for method in one.runs)
    return [method for method in found if (played := role(method)) is None or played in parts]


def _count(runs: Sequence[Runs]) -> str:
    counts = [len(one.pairs) for one in runs]
    return f"{max(counts)} pairs" if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} pairs"


# --- figure 1 -----------------------------------------------------------------------------------------------------------------


def rankers_figure(results: Sequence[DataResults]) -> Drawing:
    sheets = Sheets()
    rows: list[Row] = []
    panels = []
    for one in results:
        pairs = {int(p): (a, b) for runs in one.runs.values() for p, a, b in zip(runs.pairs, runs.ctr_a, runs.ctr_b)}
        ctr = np.array(list(pairs.values())).ravel()
        mean, sd = float(ctr.mean()), float(ctr.std())
        counts, edges = np.histogram(ctr, bins=min(30, max(5, len(ctr) // 8)))
        mine = [
            {"data": one.data, "ctr_from": low, "ctr_to": high, "rankers": int(n), "none": 0}
            for (low, high), n in zip(pairwise(edges.tolist()), counts)
        ]
        rows += mine
        x = np.linspace(edges[0], edges[-1], 80)
        spread = max(sd, 1e-12)
        density = (
            len(ctr) * (edges[1] - edges[0]) * np.exp(-(((x - mean) / spread) ** 2) / 2) / (spread * np.sqrt(2 * np.pi))
        )
        curve = [{"x": a, "y": b} for a, b in zip(x.tolist(), density.tolist())]
        bars = (
            alt.Chart(sheets.add(mine))
            .mark_rect(color=GOOD_SHADE, stroke=BLUE, strokeWidth=0.8)
            .encode(
                x=alt.X(
                    "ctr_from:Q", title="clicks per impression", scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5)
                ),
                x2="ctr_to:Q",
                y=alt.Y("rankers:Q", title="rankers", axis=alt.Axis(tickMinStep=1)),
                y2="none:Q",
                tooltip=[
                    alt.Tooltip("ctr_from:Q", format=".3f"),
                    alt.Tooltip("ctr_to:Q", format=".3f"),
                    alt.Tooltip("rankers:Q"),
                ],
            )
        )
        normal = (
            alt.Chart(sheets.add(curve)).mark_line(color=INK, strokeDash=[4, 2], strokeWidth=1).encode(x="x:Q", y="y:Q")
        )
        title = alt.Title(one.data, subtitle=f"{len(ctr)} rankers, mean {mean:.3f}, sd {sd:.3f}")
        panels.append((bars + normal).properties(width=200, height=130, title=title))
    chart = alt.concat(*panels, columns=min(len(panels), 3 if len(panels) != 4 else 2), spacing=24)
    caption = (
        "How many clicks per impression the rankers get, with the normal distribution of the same mean and spread."
    )
    return Drawing("figure1_rankers", "Rankers", caption, sheets.spec(chart), rows)


# --- figures 2 and 3 ----------------------------------------------------------------------------------------------------------


def curves_figure(
    name: str, title: str, caption: str, results: Sequence[DataResults], parts: Sequence[str], names: Names
) -> Drawing:
    methods = _methods(results, parts)
    sheets = Sheets()
    rows: list[Row] = []
    lines = []
    picked, opacity = highlighting("method", f"{name}_picked")
    for i, one in enumerate(results):
        runs = [one.runs[method] for method in methods if method in one.runs]
        if not runs:
            continue
        panels: list[Any] = []
        for metric in METRICS:
            mine = [row for run in runs for row in curve_rows(one.data, run, metric, names)]
            rows += mine
            most = max(len(run.pairs) for run in runs)
            last = i == len(results) - 1
            style = (names, methods, opacity)
            panels.append(_curves(sheets, mine, metric, most, style, f"{name}_{i}_{metric}", top=i == 0, last=last))
        side = alt.Title(f"{one.data} ({_count(runs)})", orient="left", anchor="middle", angle=-90, offset=8)
        lines.append(alt.hconcat(*panels, spacing=14).properties(title=side))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Automatically deduplicated selection parameter")
        chart = alt.vconcat(*lines, spacing=10).add_params(picked)
        return Drawing(name, title, caption, sheets.spec(chart), rows)


def curve_rows(data: str, runs: Runs, metric: str, names: Names) -> Iterator[Row]:
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


def _curves(
    sheets: Sheets, rows: Sequence[Row], metric: str, pairs: int, style: tuple[Names, Sequence[str], Any], zoom: str, *,
    top: bool, last: bool,
) -> alt.LayerChart | alt.FacetChart:  # fmt: skip
    names, methods, opacity = style
    positive = [row["mean"] for row in rows if row["mean"] > 0] or [1.0]
    binary = metric == "binary_error"
    floor = 0.5 / pairs if binary else min(positive) / 1.5
    # A mean of 0 has no place on a log axis: for the binary error the lowest tick stands for it.
    drawn = [
        {
            "method": row["method"],
            "impressions": row["impressions"],
            "y": _rounded(max(row["mean"], floor)),
            "low": _rounded(max(row["mean"] - (row["standard_error"] or 0), floor)),
            "high": _rounded(max(row["mean"] + (row["standard_error"] or 0), floor)),
        }
        for row in rows
    ]
    points = [row["impressions"] for row in rows]
    marked, lined = _spaced(points, 2), _spaced(points, LINE_POINTS)
    answering = [{**row, **place} for row, place in zip(rows, drawn) if row["impressions"] in marked]
    drawn = [row for row in drawn if row["impressions"] in lined]
    if binary:
        ticks = [floor, *(t for t in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if t > 1.2 * floor)]
        text = f"datum.value <= {1.01 * floor} ? '0' : format(datum.value, '~%')"
        axis, top_of = alt.Axis(values=ticks, labelExpr=text), max(0.5, *positive)
    else:
        top_of = 1.1 * max(positive)
        ticks = [t for t in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if floor <= t <= top_of]
        axis = alt.Axis(values=ticks, format="~g") if metric == "mean_squared_error" else decades(floor, top_of)
    first, end = min(row["impressions"] for row in rows), max(row["impressions"] for row in rows)
    x = alt.X(
        "impressions:Q",
        scale=alt.Scale(type="log", nice=False),
        title="number of queries issued" if last else None,
        axis=decades(first, end, labels=last, ticks=last),
    )
    y = alt.Y("y:Q", scale=alt.Scale(type="log", domain=[floor, top_of], nice=False, clamp=True), title=None, axis=axis)
    legend = alt.Legend(title=None, orient="bottom", columns=3, symbolOpacity=1, symbolStrokeWidth=0)
    colour = alt.Color("method:N", scale=names.scale(methods, "colour"), legend=legend)
    dash = alt.StrokeDash("method:N", scale=names.scale(methods, "dash"), legend=legend)
    shape = alt.Shape("method:N", scale=names.scale(methods, "shape"), legend=legend)
    base = alt.Chart(sheets.add(drawn))
    band = base.mark_area(opacity=0.05 if binary else 0.15, clip=True).encode(
        x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour
    )
    line = base.mark_line(clip=True, strokeWidth=1.3).encode(x=x, y=y, color=colour, strokeDash=dash, opacity=opacity)
    shapes = (
        alt.Chart(sheets.add(answering))
        .mark_point(filled=True, size=34, opacity=1)
        .encode(x=x, y=y, color=colour, shape=shape, opacity=opacity, tooltip=_curve_tooltip())
    )
    picture = alt.layer(band, line, shapes).add_params(zooming(zoom))
    title = {"title": alt.Title(TITLES[metric], fontWeight="normal")} if top else {}
    return picture.properties(width=WIDTH / 3 - 28, height=170, **title)


def _rounded(value: float) -> float:
    """What a picture can show; keeps pages small."""
    return float(f"{value:.4g}")


def _spaced(points: Sequence[int], a_decade: int) -> set[int]:
    """The checkpoints nearest to so many a decade, with the last: two of them show the shape of a line and answer to the
    pointer; a line through all checkpoints is mostly jitter."""
    known = np.array(sorted(set(points)))
    wanted = np.arange(np.floor(a_decade * np.log10(known[0])), np.ceil(a_decade * np.log10(known[-1])) + 1) / a_decade
    return {int(known[-1]), *(int(known[np.argmin(np.abs(np.log10(known) - one))]) for one in wanted)}


def _curve_tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("method:N"),
        alt.Tooltip("data:N"),
        alt.Tooltip("impressions:Q", format=","),
        alt.Tooltip("mean:Q", format=".4~g"),
        alt.Tooltip("standard_error:Q", format=".2~g", title="standard error"),
        alt.Tooltip("pairs:Q"),
        alt.Tooltip("spelling:N", title="written"),
    ]


# --- figure 4 -----------------------------------------------------------------------------------------------------------------


def errors_figure(results: Sequence[DataResults], names: Names) -> Drawing:
    methods = _methods(results, COMPARED)
    sheets = Sheets()
    rows: list[Row] = []
    columns: list[Any] = []
    for one in results:
        largest = max(np.abs(runs.delta).max() for runs in one.runs.values())
        width = _bin_width(largest)
        bins = int(np.floor(largest / width + 1e-9)) + 1
        here = {m: list(error_rows(one.data, one.runs[m], width, bins, names)) for m in methods if m in one.runs}
        panels: list[Any] = []
        highest = max(
            (a["pairs"] + b["pairs"] for mine in here.values() for a, b in zip(mine[::2], mine[1::2])), default=1
        )
        for method in methods:
            mine = here.get(method, [])
            rows += mine
            last = method == methods[-1]
            panels.append(_error_panel(sheets, names.labels[method], mine, bins * width, highest, last=last))
        columns.append(alt.vconcat(*panels, spacing=6).properties(title=alt.Title(one.data, anchor="middle")))
    chart = alt.hconcat(*columns, spacing=16).resolve_scale(x="independent", color="shared")
    caption = (
        "Pairs of rankers by the size of their true difference, at the end of the run: right and wrong preferences. The paper "
        f"finds the wrong ones below {SMALL_DELTA} clicks per impression, the dashed line."
    )
    return Drawing("figure4_errors", "Where preferences are wrong", caption, sheets.spec(chart), rows)


def _short(label: str) -> str:
    return label if len(label) <= 48 else f"{label[:47]}…"


def _bin_width(largest: float) -> float:
    """Round, at most 25 bins, and 0.01 is an edge as long as that can be."""
    return next(
        (width for width in (0.001, 0.002, 0.005, 0.01) if largest / width <= 25), 0.01 * np.ceil(largest / 0.25)
    )


def error_rows(data: str, runs: Runs, width: float, bins: int, names: Names) -> Iterator[Row]:
    size = np.abs(runs.delta)
    wrong = runs.errors["binary_error"][:, -1] > 0
    place = np.floor(size / width + 1e-9).astype(int)
    for i in range(bins):
        for outcome, chosen in (("wrong", wrong), ("right", ~wrong)):
            yield {
                "data": data,
                "method": names.labels[runs.method],
                "impressions": int(runs.impressions[-1]),
                "delta_from": round(i * width, 6),
                "delta_to": round((i + 1) * width, 6),
                "preference": outcome,
                "pairs": int((chosen & (place == i)).sum()),
            }


def _error_panel(
    sheets: Sheets, label: str, rows: Sequence[Row], end: float, highest: int, *, last: bool
) -> alt.LayerChart | alt.FacetChart:
    # All panels of a data set have the same axes: only the last one's are labelled.
    total = sum(row["pairs"] for row in rows)
    wrong = sum(row["pairs"] for row in rows if row["preference"] == "wrong")
    below = {row["delta_from"]: row["pairs"] for row in rows if row["preference"] == "wrong"}
    stacked = []
    for row in rows:
        start = 0 if row["preference"] == "wrong" else below[row["delta_from"]]
        if row["pairs"]:
            stacked.append({**row, "from": start, "to": start + row["pairs"]})
    bars = (
        alt.Chart(sheets.add(stacked))
        .mark_rect(stroke=INK, strokeWidth=0.3)
        .encode(
            x=alt.X(
                "delta_from:Q",
                title="CTR difference, |Delta|" if last else None,
                scale=alt.Scale(domain=[0, end], nice=False),
                axis=alt.Axis(tickCount=5, format="~g", labels=last),
            ),
            x2="delta_to:Q",
            y=alt.Y(
                "from:Q",
                title=None,
                scale=alt.Scale(domain=[0, highest], nice=False),
                axis=alt.Axis(values=sorted({0, highest // 2, highest}), format="d"),
            ),
            y2="to:Q",
            color=alt.Color(
                "preference:N",
                scale=alt.Scale(domain=["right", "wrong"], range=[GOOD_SHADE, VERMILLION]),
                legend=alt.Legend(orient="bottom", title="preference"),
            ),
            tooltip=["method:N", "delta_from:Q", "delta_to:Q", "preference:N", "pairs:Q"],
        )
    )
    small = alt.Chart(sheets.add([{"x": SMALL_DELTA}])).mark_rule(strokeDash=[3, 3]).encode(x="x:Q")
    title = alt.Title(
        _short(label),
        subtitle=f"{wrong} of {total} wrong" if total else "no results yet",
        fontWeight="normal",
        fontSize=10,
        subtitleFontSize=9,
        anchor="start",
        offset=2,
    )
    return alt.layer(bars, small).properties(width=165, height=60, title=title)


# --- figure 5 -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Systematic:
    """The systematic error of one method on one data set."""

    data: str
    method: str
    deltas: FloatArray
    limits: FloatArray
    wrong: FloatArray

    @property
    def scale(self) -> float:
        return best_scale(self.limits, self.deltas)

    @property
    def rescaled_errors(self) -> FloatArray:
        return np.abs(self.deltas - self.scale * self.limits)


def systematic(results: Sequence[DataResults]) -> list[Systematic]:
    """Of methods that have one; others have Delta itself as their limit."""
    found = []
    for one in results:
        for method, rows in one.limits.items():
            if any(abs(row.limit - row.delta) > 1e-9 + 5 * row.standard_error for row in rows):
                deltas, limits, wrong = np.array([(row.delta, row.limit, wrong_weight(row)) for row in rows]).T
                found.append(Systematic(one.data, method, deltas, limits, wrong))
    return found


def limits_figure(results: Sequence[DataResults], names: Names) -> Drawing:
    every = systematic(results)
    methods = list(dict.fromkeys(one.method for one in every))
    sheets = Sheets()
    rows: list[Row] = []
    columns: list[Any] = []
    for data in dict.fromkeys(one.data for one in every):
        panels: list[Any] = []
        for method in methods:
            one = next((s for s in every if (s.data, s.method) == (data, method)), None)
            if one is None:
                continue
            mine = limit_rows(one, names)
            rows += mine
            place = f"limits_{len(columns)}_{len(panels)}"
            panels.append(_limit_panel(sheets, one, mine, names.labels[method], place, last=method == methods[-1]))
        columns.append(alt.vconcat(*panels, spacing=6).properties(title=alt.Title(data, anchor="middle")))
    caption = (
        "Where each method's estimate goes with ever more impressions, against the true difference; a point is a pair of "
        "rankers. Shaded: the preference is wrong however long one waits. The dashed line is the best rescaling of x; what is "
        "off the line no rescaling takes away."
    )
    chart = alt.hconcat(*columns, spacing=16)
    return Drawing(
        "figure5_limits", "Systematic error", caption, sheets.spec(chart), rows, (_systematic_table(every, names),)
    )


def limit_rows(one: Systematic, names: Names) -> list[Row]:
    errors = one.rescaled_errors
    return [
        {
            "data": one.data,
            "method": names.labels[one.method],
            "delta": delta,
            "limit": limit,
            "preference": "open" if wrong == 0.5 else "wrong" if wrong else "right",
            "best_scale": one.scale,
            "rescaled_error": error,
        }
        for delta, limit, wrong, error in zip(one.deltas.tolist(), one.limits.tolist(), one.wrong, errors.tolist())
    ]


def _limit_panel(
    sheets: Sheets, one: Systematic, rows: Sequence[Row], label: str, zoom: str, *, last: bool
) -> alt.LayerChart | alt.FacetChart:
    x_end, y_end = (1.08 * float(np.abs(values).max()) or 1.0 for values in (one.deltas, one.limits))
    shades = [{"x": 0, "x2": x_end, "y": -y_end, "y2": 0}, {"x": -x_end, "x2": 0, "y": 0, "y2": y_end}]

    def axis(field: str, title: str | None, end: float) -> dict[str, Any]:
        scale = alt.Scale(domain=[-end, end], nice=False)
        return {"shorthand": field, "title": title, "scale": scale, "axis": alt.Axis(tickCount=5, format="~g")}

    x_title = "Delta" if last else None
    x, y = alt.X(**axis("delta:Q", x_title, x_end)), alt.Y(**axis("limit:Q", "limit of x", y_end))
    shade = alt.Chart(sheets.add(shades)).mark_rect(color=BAD_SHADE, opacity=0.6, clip=True)
    regions = shade.encode(
        x=alt.X(**axis("x:Q", x_title, x_end)), x2="x2:Q", y=alt.Y(**axis("y:Q", "limit of x", y_end)), y2="y2:Q"
    )
    points = (
        alt.Chart(sheets.add(rows))
        .mark_point(filled=True, size=26, clip=True)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "preference:N",
                scale=alt.Scale(domain=["right", "wrong", "open"], range=[BLUE, VERMILLION, GREY]),
                legend=alt.Legend(orient="bottom", title="preference without noise"),
            ),
            shape=alt.Shape(
                "preference:N", scale=alt.Scale(domain=["right", "wrong", "open"], range=["circle", "cross", "square"])
            ),
            tooltip=[
                "method:N",
                "preference:N",
                alt.Tooltip("delta:Q", format=".4f"),
                alt.Tooltip("limit:Q", format=".4f"),
                alt.Tooltip("rescaled_error:Q", format=".4f", title="|error| rescaled"),
            ],
        )
    )
    slope = 1 / one.scale if one.scale else 0.0
    reach = min(x_end, y_end / abs(slope)) if slope else x_end
    ends = [{"delta": s * reach, "limit": s * reach * slope} for s in (-1, 1)]
    fit = alt.Chart(sheets.add(ends)).mark_line(color=INK, strokeDash=[4, 2], strokeWidth=1).encode(x=x, y=y)
    title = alt.Title(
        _short(label),
        subtitle=f"{one.wrong.sum():.3g} of {len(one.wrong)} wrong; times {one.scale:.2f}: |error| "
        f"{one.rescaled_errors.mean():.4f}",
        anchor="start",
        fontSize=10,
        subtitleFontSize=9,
    )
    return alt.layer(regions, fit, points.add_params(zooming(zoom))).properties(width=170, height=120, title=title)


def _systematic_table(every: Sequence[Systematic], names: Names) -> Table:
    rows = []
    for one in every:
        raw, after = np.abs(one.limits - one.deltas), one.rescaled_errors
        rows.append(
            [
                one.data,
                names.labels[one.method],
                str(len(one.wrong)),
                shown(share(one.wrong), percent=True),
                f"{raw.mean():.4f}",
                f"{one.scale:.3f}",
                f"{after.mean():.4f}",
                f"{after.max():.4f}",
            ]
        )
    columns = ["data", "method", "pairs", "wrong", "|error| of x", "best scale", "|error| rescaled", "largest"]
    return Table(
        columns, rows, "Without noise: share of wrong preferences (95 % interval over pairs) and mean |error|."
    )


def wrong_signs_figure(results: Sequence[DataResults], names: Names) -> Drawing:
    rows: list[Row] = []
    every = systematic(results)
    for one in every:
        size = np.abs(one.deltas)
        for low, high in pairwise(DELTA_EDGES):
            inside = one.wrong[(size >= low) & (size < high)]
            if len(inside):
                found = share(inside)
                rows.append(
                    {
                        "data": one.data,
                        "method": names.labels[one.method],
                        "delta": f"{low:g} to {high:g}" if np.isfinite(high) else f"over {low:g}",
                        "wrong": found.value,
                        "low": found.low,
                        "high": found.high,
                        "pairs": found.pairs,
                    }
                )
    methods = list(dict.fromkeys(one.method for one in every if one.wrong.any()))
    kept = [row for row in rows if row["method"] in [names.labels[method] for method in methods]]
    order = [f"{low:g} to {high:g}" if np.isfinite(high) else f"over {low:g}" for low, high in pairwise(DELTA_EDGES)]
    picked, opacity = highlighting("method", "signs_picked")
    legend = alt.Legend(title=None, orient="bottom", columns=3)
    base = alt.Chart().encode(
        x=alt.X(
            "delta:N", scale=alt.Scale(domain=order), title="|Delta|", axis=alt.Axis(labelAngle=-35, labelOverlap=False)
        ),
        xOffset=alt.XOffset("method:N", sort=[names.labels[m] for m in methods]),
        color=alt.Color("method:N", scale=names.scale(methods, "colour"), legend=legend),
        opacity=opacity,
    )
    bars = base.mark_rule(strokeWidth=1).encode(
        y=alt.Y("low:Q", title="wrong preferences", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")),
        y2="high:Q",
    )
    points = base.mark_point(filled=True, size=40).encode(
        y="wrong:Q",
        shape=alt.Shape("method:N", scale=names.scale(methods, "shape"), legend=legend),
        tooltip=["method:N", "delta:N", alt.Tooltip("wrong:Q", format=".1%"), "pairs:Q"],
    )
    sheets = Sheets()
    panels = [
        alt.layer(bars, points, data=sheets.add([row for row in kept if row["data"] == data])).properties(
            width=230, height=130, title=data
        )
        for data in dict.fromkeys(row["data"] for row in kept)
    ]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Automatically deduplicated selection parameter")
        chart = sheets.spec(alt.concat(*panels, columns=2, spacing=20).add_params(picked))
    caption = (
        "Share of wrong preferences without noise by the size of the true difference, with 95 % intervals over pairs."
    )
    return Drawing("figure5_wrong_signs", "Systematic error by size of the difference", caption, chart, rows)


# --- figure 6 -----------------------------------------------------------------------------------------------------------------


def users_figure(results: Sequence[DataResults], names: Names) -> Drawing:
    rows: list[Row] = []
    for one in results:
        for runs in one.runs.values():
            change = runs.ctr / ((runs.ctr_a + runs.ctr_b) / 2) - 1
            mean = float(change.mean())
            error = float(standard_errors(change)) if len(change) > 1 else 0.0
            rows.append(
                {
                    "data": one.data,
                    "method": names.labels[runs.method],
                    "change": mean,
                    "low": mean - 1.96 * error,
                    "high": mean + 1.96 * error,
                    "pairs": len(change),
                }
            )
    order = list(dict.fromkeys(row["method"] for row in rows))
    y = alt.Y("method:N", sort=order, title=None, axis=alt.Axis(labelLimit=260, grid=True))
    sheets = Sheets()
    panels = []
    for i, data in enumerate(dict.fromkeys(row["data"] for row in rows)):
        base = alt.Chart(sheets.add([row for row in rows if row["data"] == data]))
        axis = (
            y
            if i == 0
            else alt.Y("method:N", sort=order, title=None, axis=alt.Axis(labels=False, ticks=False, grid=True))
        )
        x = alt.X("low:Q", title="change in CTR", axis=alt.Axis(format="+.1~%", tickCount=3))
        interval = base.mark_rule(strokeWidth=1.5, color=BLUE).encode(x=x, x2="high:Q", y=axis)
        point = base.mark_point(filled=True, color=BLUE, size=45, opacity=1).encode(
            x="change:Q",
            y=axis,
            tooltip=["method:N", alt.Tooltip("change:Q", format="+.2%"), "pairs:Q"],
        )
        zero = alt.Chart(sheets.add([{"x": 0}])).mark_rule(strokeDash=[3, 3]).encode(x="x:Q")
        panels.append(
            alt.layer(zero, interval, point).properties(
                width=min(190, 480 // len(results)), height=17 * len(order), title=data
            )
        )
    chart = sheets.spec(alt.hconcat(*panels, spacing=14))
    caption = (
        "Clicks per impression on what each method showed over the whole run, against the mean of both rankers; 95 % intervals "
        "over pairs. LogOpt that has learned relevance shows relevant documents more often, above the rankers' own mean."
    )
    return Drawing("figure6_users", "What users got", caption, chart, rows)


# --- figure 7 -----------------------------------------------------------------------------------------------------------------


def ratio_rows(results: Sequence[DataResults], names: Names) -> Iterator[Row]:
    """How many times the impressions of each baseline each method needs, by what is to be reached. The absolute error of
    interleaving is on another scale, so it has only decisions to compare."""
    for one in results:
        for parts in BASELINES:
            baseline = one.playing(*parts)
            if baseline is None:
                continue
            for runs in one.runs.values():
                for metric in LEVELS:
                    interleaving = {role(runs.method), *parts} & set(INTERLEAVING)
                    if runs is baseline or (metric == "absolute_error" and interleaving):
                        continue
                    found = impressions_ratio(runs, baseline, metric)
                    yield {
                        "data": one.data,
                        "method": names.labels[runs.method],
                        "baseline": names.labels[baseline.method],
                        "metric": metric,
                        "ratio": _finite(found.value),
                        "low": _finite(found.low),
                        "high": _finite(found.high),
                        "pairs": found.pairs,
                    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def ratios_figure(ratios: Sequence[Row], names: Names, results: Sequence[DataResults]) -> Drawing:
    order = [names.labels[method] for method in dict.fromkeys(m for one in results for m in one.runs)]
    order = [label for label in order if any(row["method"] == label and row["ratio"] for row in ratios)]
    drawn = [
        {**row, "low": row["low"] or row["ratio"], "high": row["high"] or row["ratio"]}
        for row in ratios
        if row["ratio"]
    ]
    wanted = {"absolute_error": "same absolute error", "binary_error": "same share of wrong decisions"}
    drawn = [{**row, "what": wanted[row["metric"]]} for row in drawn]
    kinds = list(wanted.values())
    sheets = Sheets()
    lines = []
    baselines = list(dict.fromkeys(row["baseline"] for row in drawn))
    sets = list(dict.fromkeys(row["data"] for row in drawn))
    for data in sets:
        panels: list[Any] = []
        for i, baseline in enumerate(baselines):
            mine = [row for row in drawn if (row["data"], row["baseline"]) == (data, baseline)]
            place = {"first": i == 0, "last": data == sets[-1], "width": 540 // len(baselines)}
            panels.append(_ratio_panel(sheets, mine, baseline, order, kinds, **place))
        lines.append(alt.hconcat(*panels, spacing=10).properties(title=alt.Title(data, anchor="start")))
    caption = (
        "How many times a baseline's impressions each method needs: below 1 is better than the baseline. Means over all levels "
        "of error that both reach, on the pairs that both have, with 95 % intervals over pairs. No point: no level in common; "
        "no interval: fewer than 10 pairs."
    )
    return Drawing(
        "figure7_impressions", "Impressions needed", caption, sheets.spec(alt.vconcat(*lines, spacing=14)), list(ratios)
    )


def _ratio_panel(
    sheets: Sheets, rows: Sequence[Row], baseline: str, order: Sequence[str], kinds: Sequence[str], *,
    first: bool, last: bool, width: int,
) -> alt.LayerChart | alt.FacetChart:  # fmt: skip
    axis = alt.Axis(labelLimit=260, grid=True, labels=first, ticks=first)
    y = alt.Y("method:N", sort=list(order), scale=alt.Scale(domain=list(order)), title=None, axis=axis)
    offset = alt.YOffset("what:N", scale=alt.Scale(domain=list(kinds)))
    # Farther out than this nothing is known but the direction: intervals are cut at the edge.
    scale = alt.Scale(type="log", domain=[0.04, 25], nice=False, clamp=True)
    legend = alt.Legend(title=None, orient="bottom")
    colour = alt.Color("what:N", scale=alt.Scale(domain=list(kinds), range=[BLUE, VERMILLION]), legend=legend)
    shape = alt.Shape("what:N", scale=alt.Scale(domain=list(kinds), range=["circle", "diamond"]), legend=legend)
    base = alt.Chart(sheets.add(rows)).encode(y=y, yOffset=offset, color=colour)
    x = alt.X(
        "low:Q",
        scale=scale,
        title="times the impressions" if last else None,
        axis=alt.Axis(values=[0.1, 0.3, 1, 3, 10], format="~g"),
    )
    interval = base.mark_rule(strokeWidth=1.4).encode(x=x, x2="high:Q")
    point = base.mark_point(filled=True, size=34, opacity=1).encode(
        x=alt.X("ratio:Q", scale=scale),
        shape=shape,
        tooltip=[
            "method:N",
            "baseline:N",
            "what:N",
            *(alt.Tooltip(f"{name}:Q", format=".3~g") for name in ("ratio", "low", "high")),
            "pairs:Q",
        ],
    )
    one = alt.Chart(sheets.add([{"x": 1}])).mark_rule(strokeDash=[3, 3]).encode(x=alt.X("x:Q", scale=scale))
    title = alt.Title(f"of {_short(baseline)}", fontWeight="normal", fontSize=10, limit=width + 40)
    return alt.layer(one, interval, point).properties(width=width, height=20 * len(order), title=title)


def needed_rows(results: Sequence[DataResults], names: Names) -> Iterator[Row]:
    """Impressions after which the mean error stays below a level; None if it never does within the run."""
    for one in results:
        for runs in one.runs.values():
            for metric, levels in LEVELS.items():
                curve = means(runs.errors[metric])
                for level, found in zip(levels, reached(runs.impressions, curve, levels).tolist()):
                    yield {
                        "data": one.data,
                        "method": names.labels[runs.method],
                        "metric": metric,
                        "level": level,
                        "impressions": _finite(found),
                        "from_the_start": found == runs.impressions[0],
                        "run": int(runs.impressions[-1]),
                        "pairs": len(runs.pairs),
                    }


def _needed_table(rows: Sequence[Row], data: str) -> Table:
    heads = [(metric, level) for metric, levels in LEVELS.items() for level in levels]
    mine = {(row["method"], row["metric"], row["level"]): row for row in rows if row["data"] == data}
    columns = [
        "method",
        *(f"|error| {level:g}" if metric == "absolute_error" else f"wrong {level:.0%}" for metric, level in heads),
    ]
    body = []
    for method in dict.fromkeys(method for method, _, _ in mine):
        body.append([method, *(_needed_text(mine[method, metric, level]) for metric, level in heads)])
    return Table(columns, body, f"{data}: impressions after which the mean error stays below a level.")


def _needed_text(row: Row) -> str:
    if row["impressions"] is None:
        return "never"
    rounded = float(f"{row['impressions']:.2g}")
    return f"{'≤ ' if row['from_the_start'] else ''}{rounded:,.0f}"


# --- the report ---------------------------------------------------------------------------------------------------------------


def report_page(drawings: Sequence[Drawing], found: Sequence[Finding], needed: Sequence[Row], summary: str) -> Page:
    sections = [Section(one.title, [Figure(one.chart, one.caption), *one.tables]) for one in drawings]
    sets = dict.fromkeys(row["data"] for row in needed)
    sections.append(Section("Impressions to an error", [NEEDED_TEXT, *(_needed_table(needed, data) for data in sets)]))
    sections.append(Section("Claims of the paper", [CLAIMS_TEXT, *_claims_tables(found)]))
    return Page("Comparing rankers: a study", sections, f"{summary} {HOW_TEXT}")


HOW_TEXT = (
    "Click a method in a legend to pick it out (shift-click for more, double click for all); drag a chart to move it, shift "
    "and the wheel to zoom, double click to return."
)
CLAIMS_TEXT = (
    "Ours is given with a 95 % interval over pairs of rankers. A claim holds if the whole interval is within the stated range, "
    "does not hold if all of it is outside, and cannot be told from so few pairs otherwise. LogOpt is the paper's here, with a "
    "trained network: as published if the study has it, else with our click model and gradient. Rows with * are without noise: "
    "limits of the estimates, not simulated clicks."
)
NEEDED_TEXT = (
    "Read off the mean curves, on straight lines in log-log between checkpoints. The absolute error of interleaving contains "
    "that its x is on another scale than Delta. Small differences mean nothing with few pairs: figure 7 has the intervals."
)
CLAIMS_COLUMNS = ("", "claim", "data", "paper", "ours", "holds if", "verdict")


def claim_cells(one: Finding) -> list[str]:
    return [one.number, one.claim, one.data, one.paper, one.text, one.holds_if, one.verdict]


def tested(found: Sequence[Finding]) -> list[Finding]:
    return [one for one in found if not one.verdict.startswith("not tested")]


def untested(found: Sequence[Finding]) -> dict[str, list[str]]:
    """Claims that could not be tested, by what is lacking."""
    lacking: dict[str, list[str]] = {}
    for one in found:
        if one.verdict.startswith("not tested"):
            entry = f"{one.number} {one.data}"
            claims = lacking.setdefault(one.verdict.removeprefix("not tested: "), [])
            if entry not in claims:
                claims.append(entry)
    return lacking


def side_by_side(found: Sequence[Finding]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of a table with a line a claim and a column a data set."""
    shown = tested(found)
    sets = list(dict.fromkeys(one.data for one in shown))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for one in shown:
        claim = (one.number, one.claim, one.paper, one.holds_if)
        rows.setdefault(claim, {})[one.data] = f"{one.text}: {one.verdict}"
    cells = [[*claim, *(by_data.get(name, "") for name in sets)] for claim, by_data in rows.items()]
    return ["", "claim", "paper", "holds if", *sets], cells


def _claims_tables(found: Sequence[Finding]) -> Iterator[Table]:
    yield Table(*side_by_side(found))
    lacking = untested(found)
    if lacking:
        rows = [[reason, ", ".join(claims)] for reason, claims in lacking.items()]
        yield Table(["lacking", "claims"], rows, "Not tested, for want of:")


def claims_markdown(found: Sequence[Finding]) -> str:
    """The claims as a Markdown table."""
    lines = ["# The paper's claims", "", CLAIMS_TEXT, ""]
    columns, rows = side_by_side(found)
    lines += [_markdown_line(columns), _markdown_line(["---"] * len(columns)), *map(_markdown_line, rows)]
    lacking = untested(found)
    if lacking:
        lines += [
            "",
            "Not tested, for want of:",
            "",
            *(f"* {why}: {', '.join(which)}" for why, which in lacking.items()),
        ]
    return "\n".join(lines) + "\n"


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
