"""Figures 4 and 5: wrong preferences at the end of a run, and without noise: limits of the estimates against the true
difference, and how often their sign is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any

import altair as alt
import numpy as np

from ranktrial.paper.study.claims import SMALL_DELTA
from ranktrial.paper.study.curves import FEWEST, share
from ranktrial.paper.study.figures.drawing import (
    Drawing,
    Names,
    Panel,
    channel,
    columns_by_data,
    distinct,
    panel_title,
    tooltip,
    vertical_line,
)
from ranktrial.paper.study.figures.error_curves import METHODS_ROLES, methods_playing
from ranktrial.paper.study.results import DataResults, MethodLimits, Runs
from ranktrial.report.charts import Record, Sheets, add_to_all, decades, highlighting, zooming
from ranktrial.report.pages import Table
from ranktrial.report.theme import BAD_SHADE, BLUE, GOOD_SHADE, GREY, INK, VERMILLION, Style

CURVE_POINTS = 60
FOR_A_CURVE = 5 * FEWEST  # pairs
PREFERENCES = {0.0: "right", 0.5: "open", 1.0: "wrong"}
LOOKS = {"right": Style(BLUE), "wrong": Style(VERMILLION, shape="cross"), "open": Style(GREY, shape="square")}
BIN_LOOKS = {"right": Style(GOOD_SHADE), "wrong": Style(VERMILLION)}
ERRORS_CAPTION = (
    "Pairs of rankers by the size of their true difference, at the end of the run: right and wrong preferences. The paper "
    f"finds the wrong ones below {SMALL_DELTA} clicks per impression, the dashed line."
)
LIMITS_CAPTION = (
    "Where each method's estimate goes with ever more impressions, against the true difference; a point is a pair of "
    "rankers. Shaded: the preference is wrong however long one waits. The dashed line is the best rescaling of x; what is "
    "off the line no rescaling takes away."
)
SIGNS_CAPTION = (
    "Share of wrong preferences without noise among the tenth of all pairs whose true difference is nearest in size, with 95 % "
    f"intervals. The dashed line is the paper's {SMALL_DELTA} clicks per impression."
)
TABLE_CAPTION = "Without noise: share of wrong preferences (95 % interval over pairs) and mean |error|."
TABLE_COLUMNS = ("data", "method", "pairs", "wrong", "|error| of x", "best scale", "|error| rescaled", "largest")


def wrong_preferences_figure(results: Sequence[DataResults], names: Names) -> list[Drawing]:
    """A histogram of |Delta| for each data set and method, wrong preferences apart from right ones."""
    methods = methods_playing(results, METHODS_ROLES)
    if not methods:
        return []
    sheets = Sheets()
    records: list[Record] = []
    panels: dict[str, list[Panel]] = {}
    for one in results:
        largest = max(np.abs(runs.delta).max() for runs in one.runs.values())
        width = _bin_width(largest)
        bins = int(np.floor(largest / width + 1e-9)) + 1
        here = {m: list(_bin_records(one.data, one.runs[m], width, bins, names)) for m in methods if m in one.runs}
        highest = max(
            (a["pairs"] + b["pairs"] for mine in here.values() for a, b in zip(mine[::2], mine[1::2])), default=1
        )
        panels[one.data] = []
        for method in methods:
            mine = here.get(method, [])
            records += mine
            panel = _bin_panel(sheets, mine, names.labels[method], bins * width, highest, last=method == methods[-1])
            panels[one.data].append(panel)
    chart = columns_by_data(panels).resolve_scale(x="independent", color="shared")
    return [Drawing("figure4_errors", "Where preferences are wrong", ERRORS_CAPTION, sheets.spec(chart), records)]


def _bin_width(largest: float) -> float:
    """The width of a bin: round, at most 25 bins, and 0.01 is an edge as long as that can be."""
    return next(
        (width for width in (0.001, 0.002, 0.005, 0.01) if largest / width <= 25), 0.01 * np.ceil(largest / 0.25)
    )


def _bin_records(data: str, runs: Runs, width: float, bins: int, names: Names) -> Iterator[Record]:
    """Wrong and right preferences in each bin, bars that stand on each other."""
    wrong = runs.errors["binary_error"][:, -1]
    place = np.floor(np.abs(runs.delta) / width + 1e-9).astype(int)
    for i in range(bins):
        for preference, chances in (("wrong", wrong), ("right", 1 - wrong)):
            yield {
                **names.key(data, runs.method),
                "impressions": int(runs.impressions[-1]),
                "delta_from": round(i * width, 6),
                "delta_to": round((i + 1) * width, 6),
                "preference": preference,
                "pairs": round(float(chances[place == i].sum()), 3),
            }


def _bin_panel(
    sheets: Sheets, records: Sequence[Record], label: str, end: float, highest: float, *, last: bool
) -> Panel:
    # All panels of a data set have the same axes: only the last one's are labelled.
    stacked = []
    for wrong, right in zip(records[::2], records[1::2]):
        stacked += [{**wrong, "from": 0, "to": wrong["pairs"]}]
        stacked += [{**right, "from": wrong["pairs"], "to": wrong["pairs"] + right["pairs"]}]
    x = alt.X(
        "delta_from:Q",
        title="CTR difference, |Delta|" if last else None,
        scale=alt.Scale(domain=[0, end], nice=False),
        axis=alt.Axis(tickCount=5, format="~g", labels=last),
    )
    y = alt.Y(
        "from:Q",
        title=None,
        scale=alt.Scale(domain=[0, highest], nice=False),
        axis=alt.Axis(values=sorted({0, round(highest) // 2, round(highest)}), format="d"),
    )
    legend = alt.Legend(orient="bottom", title="preference")
    bars = (
        alt.Chart(sheets.add([one for one in stacked if one["pairs"]]))
        .mark_rect(stroke=INK, strokeWidth=0.3)
        .encode(
            x=x,
            x2="delta_to:Q",
            y=y,
            y2="to:Q",
            color=channel("colour", "preference:N", BIN_LOOKS, legend),
            tooltip=["method:N", "delta_from:Q", "delta_to:Q", "preference:N", "pairs:Q"],
        )
    )
    wrong, total = sum(one["pairs"] for one in records[::2]), sum(one["pairs"] for one in records)
    said = f"{wrong:.3g} of {total:.0f} wrong" if total else "no results yet"
    title = panel_title(label, said, fontWeight="normal", offset=2)
    return alt.layer(bars, vertical_line(sheets, SMALL_DELTA)).properties(width=165, height=60, title=title)


def _biased(results: Sequence[DataResults]) -> list[tuple[str, MethodLimits]]:
    """The methods with a systematic error, by data set."""
    return [(one.data, limits) for one in results for limits in one.limits.values() if limits.biased]


def limits_figure(results: Sequence[DataResults], names: Names) -> list[Drawing]:
    """The limit of each method's estimate against Delta; None for a study without limits."""
    every = _biased(results)
    if not every:
        return []
    sets, methods = distinct(data for data, _ in every), distinct(limits.method for _, limits in every)
    sheets = Sheets()
    records: list[Record] = []
    panels: dict[str, list[Panel]] = {data: [] for data in sets}
    for data, limits in sorted(every, key=lambda one: (sets.index(one[0]), methods.index(one[1].method))):
        mine = _limit_records(data, limits, names)
        records += mine
        zoom = f"limits_{sets.index(data)}_{len(panels[data])}"
        panels[data].append(_limit_panel(sheets, limits, mine, zoom, last=limits.method == methods[-1]))
    chart = sheets.spec(columns_by_data(panels))
    return [Drawing("figure5_limits", "Systematic error", LIMITS_CAPTION, chart, records, (_table(every, names),))]


def _limit_records(data: str, one: MethodLimits, names: Names) -> list[Record]:
    by_pair = zip(one.delta.tolist(), one.limit.tolist(), one.wrong.tolist(), one.rescaled_error.tolist())
    return [
        {
            **names.key(data, one.method),
            "delta": delta,
            "limit": limit,
            "preference": PREFERENCES[wrong],
            "best_scale": one.scale,
            "rescaled_error": error,
        }
        for delta, limit, wrong, error in by_pair
    ]


def _limit_panel(sheets: Sheets, one: MethodLimits, records: Sequence[Record], zoom: str, *, last: bool) -> Panel:
    x_end, y_end = (1.08 * float(np.abs(values).max()) or 1.0 for values in (one.delta, one.limit))

    def axes(x: str, y: str) -> dict[str, Any]:
        ticks = alt.Axis(tickCount=5, format="~g")
        x_scale, y_scale = (alt.Scale(domain=[-end, end], nice=False) for end in (x_end, y_end))
        across = alt.X(x, title="Delta" if last else None, scale=x_scale, axis=ticks)
        return {"x": across, "y": alt.Y(y, title="limit of x", scale=y_scale, axis=ticks)}

    shades = [{"x": 0, "x2": x_end, "y": -y_end, "y2": 0}, {"x": -x_end, "x2": 0, "y": 0, "y2": y_end}]
    shade = alt.Chart(sheets.add(shades)).mark_rect(color=BAD_SHADE, opacity=0.6, clip=True)
    regions = shade.encode(**axes("x:Q", "y:Q"), x2="x2:Q", y2="y2:Q")
    legend = alt.Legend(orient="bottom", title="preference without noise")
    points = (
        alt.Chart(sheets.add(records))
        .mark_point(filled=True, size=26, clip=True)
        .encode(
            **axes("delta:Q", "limit:Q"),
            color=channel("colour", "preference:N", LOOKS, legend),
            shape=channel("shape", "preference:N", LOOKS),
            tooltip=tooltip("method:N", "preference:N", delta=".4f", limit=".4f", rescaled_error=".4f"),
        )
    )
    slope = 1 / one.scale if one.scale else 0.0
    reach = min(x_end, y_end / abs(slope)) if slope else x_end
    ends = [{"delta": s * reach, "limit": s * reach * slope} for s in (-1, 1)]
    line = alt.Chart(sheets.add(ends)).mark_line(color=INK, strokeDash=[4, 2], strokeWidth=1)
    fit = line.encode(**axes("delta:Q", "limit:Q"))
    error = f"times {one.scale:.2f}: |error| {one.rescaled_error.mean():.4f}"
    title = panel_title(records[0]["method"], f"{one.wrong.sum():.3g} of {len(one.wrong)} wrong; {error}")
    return alt.layer(regions, fit, points.add_params(zooming(zoom))).properties(width=170, height=120, title=title)


def _table(every: Sequence[tuple[str, MethodLimits]], names: Names) -> Table:
    rows = []
    for data, one in every:
        wrong = share(one.wrong)
        raw, after = np.abs(one.limit - one.delta), one.rescaled_error
        numbers = (f"{raw.mean():.4f}", f"{one.scale:.3f}", f"{after.mean():.4f}", f"{after.max():.4f}")
        rows.append([data, names.labels[one.method], str(wrong.pairs), wrong.text(percent=True), *numbers])
    return Table(TABLE_COLUMNS, rows, TABLE_CAPTION)


def wrong_signs_figure(results: Sequence[DataResults], names: Names) -> list[Drawing]:
    """The share of wrong signs by the size of the true difference, as a curve; None where none is wrong on enough pairs."""
    every = [
        (data, limits) for data, limits in _biased(results) if limits.wrong.any() and len(limits.wrong) >= FOR_A_CURVE
    ]
    records = [record for data, limits in every for record in _sign_records(data, limits, names)]
    if not records:
        return []
    methods = distinct(limits.method for _, limits in every)
    picked, opacity = highlighting("method", "signs_picked")
    legend = alt.Legend(title=None, orient="bottom", columns=3)
    looks = {kind: names.channel(kind, methods, legend) for kind in ("colour", "dash")}
    sheets = Sheets()
    panels = []
    for data in distinct(record["data"] for record in records):
        mine = [record for record in records if record["data"] == data]
        sizes = [record["delta"] for record in mine]
        axis = decades(min(sizes), max(sizes))
        look: dict[str, Any] = {"scale": alt.Scale(type="log", nice=False), "axis": axis, "title": "|Delta|"}
        base = alt.Chart(sheets.add(mine)).encode(x=alt.X("delta:Q", **look), color=looks["colour"])
        y = alt.Y("low:Q", title="wrong preferences", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
        band = base.mark_area(opacity=0.12).encode(y=y, y2="high:Q")
        line = base.mark_line().encode(
            y="wrong:Q",
            strokeDash=looks["dash"],
            opacity=opacity,
            tooltip=tooltip("method:N", "pairs:Q", delta=".3g", wrong=".1%"),
        )
        rule = vertical_line(sheets, SMALL_DELTA, **look)
        panels.append(alt.layer(band, line, rule).properties(width=300, height=150, title=data))
    chart = sheets.spec(add_to_all(alt.concat(*panels, columns=2, spacing=20), picked))
    return [Drawing("figure5_wrong_signs", "Systematic error by size of the difference", SIGNS_CAPTION, chart, records)]


def _sign_records(data: str, one: MethodLimits, names: Names) -> Iterator[Record]:
    """The share among the pairs nearest in size, at sizes from the smallest to the largest."""
    order = np.argsort(np.abs(one.delta))
    size, wrong = np.abs(one.delta)[order], one.wrong[order]
    window = min(len(size), max(FEWEST, len(size) // 10))
    for first in np.unique(np.linspace(0, len(size) - window, CURVE_POINTS).round().astype(int)):
        among = slice(first, first + window)
        found = share(wrong[among])
        middle = float(np.exp(np.log(np.maximum(size[among], 1e-6)).mean()))
        yield {
            **names.key(data, one.method),
            "delta": middle,
            **dict(zip(("wrong", "low", "high", "pairs"), astuple(found))),
        }
