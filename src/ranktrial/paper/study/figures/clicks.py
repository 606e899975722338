"""Figures 1 and 6: clicks per impression of the rankers, and on what each method showed against the mean of both rankers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import altair as alt
import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.distributions import normal_density
from ranktrial.paper.study.curves import standard_errors
from ranktrial.paper.study.figures.drawing import Drawing, Names, Panel, distinct, tooltip, vertical_line
from ranktrial.paper.study.results import DataResults, Runs
from ranktrial.report.charts import Record, Sheets
from ranktrial.report.theme import BLUE, GOOD_SHADE, INK

RANKERS_CAPTION = (
    "How many clicks per impression the rankers get, with the normal distribution of the same mean and spread."
)
USERS_CAPTION = (
    "Clicks per impression on what each method showed over the whole run, against the mean of both rankers; 95 % intervals "
    "over pairs. LogOpt that has learned relevance shows relevant documents more often, above the rankers' own mean."
)


def rankers_figure(results: Sequence[DataResults], names: Names) -> list[Drawing]:
    """A histogram of the rankers' clicks per impression for each data set."""
    sheets = Sheets()
    records: list[Record] = []
    panels = []
    for one in results:
        pairs = {int(p): (a, b) for runs in one.runs.values() for p, a, b in zip(runs.pairs, runs.ctr_a, runs.ctr_b)}
        ctr = np.array(list(pairs.values())).ravel()
        counts, edges = np.histogram(ctr, bins=min(30, max(5, len(ctr) // 8)))
        bars = [
            {"data": one.data, "ctr_from": low, "ctr_to": high, "rankers": int(n), "none": 0}
            for (low, high), n in zip(pairwise(edges.tolist()), counts)
        ]
        records += bars
        panels.append(_panel(sheets, one.data, ctr, bars, edges))
    chart = alt.concat(*panels, columns=min(len(panels), 3 if len(panels) != 4 else 2), spacing=24)
    return [Drawing("figure1_rankers", "Rankers", RANKERS_CAPTION, sheets.spec(chart), records)]


def _panel(sheets: Sheets, data: str, ctr: FloatArray, records: Sequence[Record], edges: FloatArray) -> Panel:
    bars = (
        alt.Chart(sheets.add(records))
        .mark_rect(color=GOOD_SHADE, stroke=BLUE, strokeWidth=0.8)
        .encode(
            x=alt.X(
                "ctr_from:Q", title="clicks per impression", scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5)
            ),
            x2="ctr_to:Q",
            y=alt.Y("rankers:Q", title="rankers", axis=alt.Axis(tickMinStep=1)),
            y2="none:Q",
            tooltip=tooltip("rankers:Q", ctr_from=".3f", ctr_to=".3f"),
        )
    )
    mean, sd = float(ctr.mean()), float(ctr.std())
    x = np.linspace(edges[0], edges[-1], 80)
    spread = max(sd, 1e-12)
    density = len(ctr) * (edges[1] - edges[0]) * normal_density((x - mean) / spread) / spread
    normal = (
        alt.Chart(sheets.add([{"x": a, "y": b} for a, b in zip(x.tolist(), density.tolist())]))
        .mark_line(color=INK, strokeDash=[4, 2], strokeWidth=1)
        .encode(x="x:Q", y="y:Q")
    )
    title = alt.Title(data, subtitle=f"{len(ctr)} rankers, mean {mean:.3f}, sd {sd:.3f}")
    return alt.layer(bars, normal).properties(width=200, height=130, title=title)


def users_figure(results: Sequence[DataResults], names: Names) -> list[Drawing]:
    """The relative change in clicks that each method brought, for each data set."""
    by_data = {one.data: [_record(one.data, runs, names) for runs in one.runs.values()] for one in results}
    records = [record for mine in by_data.values() for record in mine]
    order = distinct(record["method"] for record in records)
    rows = alt.Scale(domain=order)  # the same in all panels: a set may lack some methods so far
    sheets = Sheets()
    panels = []
    for i, (data, mine) in enumerate(by_data.items()):
        labelled = {"labelLimit": 260} if i == 0 else {"labels": False, "ticks": False}
        base = alt.Chart(sheets.add(mine)).encode(
            y=alt.Y("method:N", sort=order, scale=rows, title=None, axis=alt.Axis(grid=True, **labelled))
        )
        x = alt.X("low:Q", title="change in CTR", axis=alt.Axis(format="+.1~%", tickCount=3))
        interval = base.mark_rule(strokeWidth=1.5, color=BLUE).encode(x=x, x2="high:Q")
        point = base.mark_point(filled=True, color=BLUE, size=45, opacity=1).encode(
            x="change:Q", tooltip=tooltip("method:N", "pairs:Q", change="+.2%")
        )
        size = {"width": min(190, 480 // len(results)), "height": 17 * len(order)}
        panels.append(alt.layer(vertical_line(sheets, 0), interval, point).properties(title=data, **size))
    chart = sheets.spec(alt.hconcat(*panels, spacing=14))
    return [Drawing("figure6_users", "What users got", USERS_CAPTION, chart, records)]


def _record(data: str, runs: Runs, names: Names) -> Record:
    change = runs.ctr / ((runs.ctr_a + runs.ctr_b) / 2) - 1
    mean = float(change.mean())
    error = float(standard_errors(change)) if len(change) > 1 else 0.0
    return {
        **names.key(data, runs.method),
        "change": mean,
        "low": mean - 1.96 * error,
        "high": mean + 1.96 * error,
        "pairs": len(change),
    }
