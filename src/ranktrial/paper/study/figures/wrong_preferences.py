"""Figure 4: right and wrong preferences at the end of the run, by the size of the true difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import altair as alt
import numpy as np

from ranktrial.paper.study.claims import SMALL_DELTA
from ranktrial.paper.study.figures.drawing import (
    Drawing,
    Names,
    Panel,
    channel,
    columns_by_data,
    panel_title,
    vertical_line,
)
from ranktrial.paper.study.figures.error_curves import METHODS_ROLES, methods_playing
from ranktrial.paper.study.results import DataResults, Runs
from ranktrial.report.charts import Record, Sheets
from ranktrial.report.theme import GOOD_SHADE, INK, VERMILLION, Style

CAPTION = (
    "Pairs of rankers by the size of their true difference, at the end of the run: right and wrong preferences. The paper "
    f"finds the wrong ones below {SMALL_DELTA} clicks per impression, the dashed line."
)
LOOKS = {"right": Style(GOOD_SHADE), "wrong": Style(VERMILLION)}


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
        here = {m: list(_records(one.data, one.runs[m], width, bins, names)) for m in methods if m in one.runs}
        highest = max(
            (a["pairs"] + b["pairs"] for mine in here.values() for a, b in zip(mine[::2], mine[1::2])), default=1
        )
        panels[one.data] = []
        for method in methods:
            mine = here.get(method, [])
            records += mine
            panel = _panel(sheets, mine, names.labels[method], bins * width, highest, last=method == methods[-1])
            panels[one.data].append(panel)
    chart = columns_by_data(panels).resolve_scale(x="independent", color="shared")
    return [Drawing("figure4_errors", "Where preferences are wrong", CAPTION, sheets.spec(chart), records)]


def _bin_width(largest: float) -> float:
    """The width of a bin: round, at most 25 bins, and 0.01 is an edge as long as that can be."""
    return next(
        (width for width in (0.001, 0.002, 0.005, 0.01) if largest / width <= 25), 0.01 * np.ceil(largest / 0.25)
    )


def _records(data: str, runs: Runs, width: float, bins: int, names: Names) -> Iterator[Record]:
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


def _panel(sheets: Sheets, records: Sequence[Record], label: str, end: float, highest: float, *, last: bool) -> Panel:
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
            color=channel("colour", "preference:N", LOOKS, legend),
            tooltip=["method:N", "delta_from:Q", "delta_to:Q", "preference:N", "pairs:Q"],
        )
    )
    wrong, total = sum(one["pairs"] for one in records[::2]), sum(one["pairs"] for one in records)
    said = f"{wrong:.3g} of {total:.0f} wrong" if total else "no results yet"
    title = panel_title(label, said, fontWeight="normal", offset=2)
    return alt.layer(bars, vertical_line(sheets, SMALL_DELTA)).properties(width=165, height=60, title=title)
