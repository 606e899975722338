"""Figure 6: clicks per impression on what each method showed, against the mean of both rankers."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from ranktrial.paper.study.curves import standard_errors
from ranktrial.paper.study.figures.drawing import Drawing, Names, distinct, tooltip, vertical_line
from ranktrial.paper.study.results import DataResults, Runs
from ranktrial.report.charts import Record, Sheets
from ranktrial.report.theme import BLUE

CAPTION = (
    "Clicks per impression on what each method showed over the whole run, against the mean of both rankers; 95 % intervals "
    "over pairs. LogOpt that has learned relevance shows relevant documents more often, above the rankers' own mean."
)


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
    return [Drawing("figure6_users", "What users got", CAPTION, chart, records)]


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
