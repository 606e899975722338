"""Figure 5: limits of the estimates without noise against the true difference, and how often their sign is wrong."""

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
from ranktrial.paper.study.results import DataResults, MethodLimits
from ranktrial.report.charts import Record, Sheets, add_to_all, decades, highlighting, zooming
from ranktrial.report.pages import Table
from ranktrial.report.theme import BAD_SHADE, BLUE, GREY, INK, VERMILLION, Style

CURVE_POINTS = 60
FOR_A_CURVE = 5 * FEWEST  # pairs
PREFERENCES = {0.0: "right", 0.5: "open", 1.0: "wrong"}
LOOKS = {"right": Style(BLUE), "wrong": Style(VERMILLION, shape="cross"), "open": Style(GREY, shape="square")}
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
