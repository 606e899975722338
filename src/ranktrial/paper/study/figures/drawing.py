"""Parts that the figures share: the drawing itself, labels and styles of methods, panels, titles and lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import altair as alt

from ranktrial.paper.study.labels import labels, styles
from ranktrial.paper.study.results import DataResults
from ranktrial.report.charts import Chart, Record, Sheets, decades
from ranktrial.report.pages import Table
from ranktrial.report.theme import Style

Panel = alt.LayerChart | alt.FacetChart
CHANNELS: dict[str, Any] = {"colour": alt.Color, "dash": alt.StrokeDash, "shape": alt.Shape}
Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Drawing:
    """One figure.

    Attributes:
        name: Name of its files.
        title: Title of its section.
        caption: Text below the picture.
        chart: The picture.
        records: The numbers in it.
        tables: More of them, to read.
    """

    name: str
    title: str
    caption: str
    chart: Chart
    records: list[Record]
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Names:
    """Labels and styles of methods, the same in every figure."""

    labels: Mapping[str, str]
    styles: Mapping[str, Style]

    @classmethod
    def of(cls, results: Sequence[DataResults]) -> Names:
        methods = distinct(method for one in results for method in (*one.runs, *one.limits))
        return cls(labels(methods), styles(methods))

    def key(self, data: str, method: str) -> Record:
        """Columns that every record of a figure begins with."""
        return {"data": data, "method": self.labels[method]}

    def channel(self, kind: str, methods: Sequence[str], legend: alt.Legend) -> Any:
        """The encoding that tells these methods apart by colour, dash or shape."""
        return channel(kind, "method:N", {self.labels[method]: self.styles[method] for method in methods}, legend)


def channel(kind: str, field: str, looks: Mapping[str, Style], legend: Any = alt.Undefined) -> Any:
    """The encoding that tells the values of a field apart by colour, dash or shape."""
    drawn = [getattr(style, kind) for style in looks.values()]
    return CHANNELS[kind](field, scale=alt.Scale(domain=list(looks), range=drawn), legend=legend)


def distinct(values: Iterable[Value]) -> list[Value]:
    """Each value once, in the order of its first appearance."""
    return list(dict.fromkeys(values))


def short(label: str, length: int = 48) -> str:
    """A label cut to what fits above a panel."""
    return label if len(label) <= length else f"{label[: length - 1]}…"


def panel_title(label: str, subtitle: str, **options: Any) -> alt.Title:
    """The title of a small panel."""
    return alt.Title(short(label), subtitle=subtitle, anchor="start", fontSize=10, subtitleFontSize=9, **options)


def tooltip(*texts: str, **numbers: str) -> list[alt.Tooltip]:
    """Tooltip of a mark: texts and counts as they are, numbers in these formats."""
    formatted = (alt.Tooltip(f"{name}:Q", format=how, title=name.replace("_", " ")) for name, how in numbers.items())
    return [*map(alt.Tooltip, texts), *formatted]


def impressions_axis(points: Sequence[int], **axis: Any) -> alt.X:
    """A log axis of numbers of impressions."""
    title = "number of queries issued" if axis.get("labels", True) else None
    scale = alt.Scale(type="log", nice=False)
    return alt.X("impressions:Q", title=title, scale=scale, axis=decades(min(points), max(points), **axis))


def vertical_line(sheets: Sheets, at: float, **x: Any) -> alt.Chart:
    """A dashed vertical line to compare with."""
    rule: alt.Chart = alt.Chart(sheets.add([{"x": at}])).mark_rule(strokeDash=[3, 3])
    return rule.encode(x=alt.X("x:Q", **x))


def columns_by_data(panels: Mapping[str, Sequence[Panel]]) -> alt.HConcatChart:
    """A column of panels for each data set."""
    columns = [
        alt.vconcat(*column, spacing=6).properties(title=alt.Title(data, anchor="middle"))
        for data, column in panels.items()
    ]
    return alt.hconcat(*columns, spacing=16)
