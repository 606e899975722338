"""Figure 7: impressions for the same error as ratios to baselines, and the table of impressions to levels of error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import altair as alt

from ranktrial.paper.study.curves import finite, impressions_ratio, means, reached
from ranktrial.paper.study.figures.drawing import (
    Drawing,
    Names,
    Panel,
    channel,
    distinct,
    short,
    tooltip,
    vertical_line,
)
from ranktrial.paper.study.labels import INTERLEAVING, role
from ranktrial.paper.study.results import DataResults
from ranktrial.report.charts import Record, Sheets
from ranktrial.report.pages import Table
from ranktrial.report.theme import BLUE, VERMILLION, Style

# The paper's LogOpt as published, where the study has it.
BASELINES = (("ab",), ("ab-means",), ("team-draft",), ("published-estimated", "network-estimated"))
LEVELS = {"absolute_error": (0.05, 0.02, 0.01, 0.005, 0.002, 0.001), "binary_error": (0.2, 0.1, 0.05, 0.02)}
SAME = {"absolute_error": "same absolute error", "binary_error": "same share of wrong decisions"}
LOOKS = dict(zip(SAME.values(), (Style(BLUE), Style(VERMILLION, shape="diamond"))))
CAPTION = (
    "How many times a baseline's impressions each method needs: below 1 is better than the baseline. Means over all levels "
    "of error that both reach, on the pairs that both have, with 95 % intervals over pairs. No point: no level in common; "
    "no interval: fewer than 10 pairs."
)


def ratios_figure(results: Sequence[DataResults], names: Names) -> list[Drawing]:
    """Ratios of impressions to each baseline's; None for a study without any baseline."""
    records = list(_ratio_records(results, names))
    if not records:
        return []
    drawn = [
        {**one, "low": one["low"] or one["ratio"], "high": one["high"] or one["ratio"], "what": SAME[one["metric"]]}
        for one in records
        if one["ratio"]
    ]
    known = {one["method"] for one in drawn}
    order = [names.labels[m] for m in distinct(m for one in results for m in one.runs) if names.labels[m] in known]
    baselines, sets = distinct(one["baseline"] for one in drawn), distinct(one["data"] for one in drawn)
    sheets = Sheets()
    lines = []
    for data in sets:
        panels = []
        for i, baseline in enumerate(baselines):
            mine = [one for one in drawn if (one["data"], one["baseline"]) == (data, baseline)]
            place = {"first": i == 0, "last": data == sets[-1], "width": 540 // len(baselines)}
            panels.append(_panel(sheets, mine, baseline, order, **place))
        lines.append(alt.hconcat(*panels, spacing=10).properties(title=alt.Title(data, anchor="start")))
    chart = sheets.spec(alt.vconcat(*lines, spacing=14))
    return [Drawing("figure7_impressions", "Impressions needed", CAPTION, chart, records)]


def _ratio_records(results: Sequence[DataResults], names: Names) -> Iterator[Record]:
    """Ratios of each method to each baseline, by what is to be reached. The absolute error of interleaving is on another
    scale, so it has only decisions to compare."""
    for one in results:
        for roles in BASELINES:
            baseline = one.playing(*roles)
            if baseline is None:
                continue
            for runs in one.runs.values():
                interleaving = {role(runs.method), *roles} & set(INTERLEAVING)
                for metric in LEVELS:
                    if runs is baseline or (metric == "absolute_error" and interleaving):
                        continue
                    found = impressions_ratio(runs, baseline, metric)
                    yield {
                        **names.key(one.data, runs.method),
                        "baseline": names.labels[baseline.method],
                        "metric": metric,
                        **dict(zip(("ratio", "low", "high"), found.finite)),
                        "pairs": found.pairs,
                    }


def _panel(
    sheets: Sheets, records: Sequence[Record], baseline: str, order: Sequence[str], *, first: bool, last: bool, width: int
) -> Panel:  # fmt: skip
    axis = alt.Axis(labelLimit=260, grid=True, labels=first, ticks=first)
    legend = alt.Legend(title=None, orient="bottom")
    base = alt.Chart(sheets.add(records)).encode(
        y=alt.Y("method:N", sort=list(order), scale=alt.Scale(domain=list(order)), title=None, axis=axis),
        yOffset=alt.YOffset("what:N", scale=alt.Scale(domain=list(LOOKS))),
        color=channel("colour", "what:N", LOOKS, legend),
    )
    # Farther out than this nothing is known but the direction: intervals are cut at the edge.
    scale = alt.Scale(type="log", domain=[0.04, 25], nice=False, clamp=True)
    x = alt.X(
        "low:Q",
        scale=scale,
        title="times the impressions" if last else None,
        axis=alt.Axis(values=[0.1, 0.3, 1, 3, 10], format="~g"),
    )
    interval = base.mark_rule(strokeWidth=1.4).encode(x=x, x2="high:Q")
    point = base.mark_point(filled=True, size=34, opacity=1).encode(
        x=alt.X("ratio:Q", scale=scale),
        shape=channel("shape", "what:N", LOOKS, legend),
        tooltip=tooltip("method:N", "baseline:N", "what:N", "pairs:Q", ratio=".3~g", low=".3~g", high=".3~g"),
    )
    title = alt.Title(f"of {short(baseline)}", fontWeight="normal", fontSize=10, limit=width + 40)
    layers = alt.layer(vertical_line(sheets, 1, scale=scale), interval, point)
    return layers.properties(width=width, height=20 * len(order), title=title)


def needed_records(results: Sequence[DataResults], names: Names) -> Iterator[Record]:
    """Impressions after which the mean error stays below a level; None if it never does within the run."""
    for one in results:
        for runs in one.runs.values():
            for metric, levels in LEVELS.items():
                curve = means(runs.errors[metric])
                for level, found in zip(levels, reached(runs.impressions, curve, levels).tolist()):
                    yield {
                        **names.key(one.data, runs.method),
                        "metric": metric,
                        "level": level,
                        "impressions": finite(found),
                        "from_the_start": found == runs.impressions[0],
                        "run": int(runs.impressions[-1]),
                        "pairs": len(runs.pairs),
                    }


def needed_tables(records: Sequence[Record]) -> Iterator[Table]:
    """Tables of impressions needed: one for each data set, with a line a method and a column a level."""
    heads = {"absolute_error": "|error| {:g}", "binary_error": "wrong {:.0%}"}
    columns = ["method", *(heads[metric].format(level) for metric, levels in LEVELS.items() for level in levels)]
    for data in distinct(one["data"] for one in records):
        lines: dict[str, list[str]] = {}
        for one in records:
            if one["data"] == data:
                lines.setdefault(one["method"], [one["method"]]).append(_needed_text(one))
        yield Table(
            columns, list(lines.values()), f"{data}: impressions after which the mean error stays below a level."
        )


def _needed_text(record: Record) -> str:
    if record["impressions"] is None:
        return "never"
    rounded = float(f"{record['impressions']:.2g}")
    return f"{'≤ ' if record['from_the_start'] else ''}{rounded:,.0f}"
