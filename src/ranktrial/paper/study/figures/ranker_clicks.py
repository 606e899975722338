"""Figure 1: clicks per impression of the rankers under comparison."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import altair as alt
import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.distributions import normal_density
from ranktrial.paper.study.figures.drawing import Drawing, Names, Panel, tooltip
from ranktrial.paper.study.results import DataResults
from ranktrial.report.charts import Record, Sheets
from ranktrial.report.theme import BLUE, GOOD_SHADE, INK

CAPTION = "How many clicks per impression the rankers get, with the normal distribution of the same mean and spread."


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
    return [Drawing("figure1_rankers", "Rankers", CAPTION, sheets.spec(chart), records)]


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
