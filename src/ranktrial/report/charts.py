"""Charts as files with the numbers behind them, and what all charts share: ticks at powers of ten, series that a click on the
legend picks out, zoom that leaves the scroll wheel alone."""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ranktrial import checks, extras
from ranktrial.report.theme import FORMATS, config

if refusal := extras.missing("charts", "a chart"):
    raise refusal

import altair as alt
import vl_convert

PNG_SCALE = 2
MARGINS = {
    "left": 24,
    "right": 30,
    "top": 5,
    "bottom": 5,
}  # a reader's font may be wider than the one that was measured
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])

Record = dict[str, Any]
Records = Sequence[Mapping[str, Any]]
Spec = dict[str, Any]
Chart = alt.TopLevelMixin | Spec
Panels = TypeVar("Panels", alt.ConcatChart, alt.VConcatChart)


class Sheets:
    """The rows of a chart, kept beside it until it is done: Altair copies and checks what is inside a chart at every step.

    >>> sheets = Sheets()
    >>> chart = alt.Chart(sheets.add([{"x": 1}])).mark_point().encode(x="x:Q")
    >>> sheets.spec(chart)["datasets"]
    {'sheet0': [{'x': 1}]}
    """

    def __init__(self) -> None:
        self._rows: dict[str, Records] = {}

    def add(self, rows: Records) -> alt.NamedData:
        name = f"sheet{len(self._rows)}"
        self._rows[name] = list(rows)
        return alt.NamedData(name=name)

    def spec(self, chart: alt.TopLevelMixin) -> Spec:
        """The finished chart, with its rows."""
        return {**as_spec(chart), "datasets": dict(self._rows)}


def as_spec(chart: Chart) -> Spec:
    """The Vega-Lite specification, whatever the number of rows in it and whatever theme the caller's notebook uses."""
    if isinstance(chart, dict):
        return chart
    with alt.data_transformers.enable("default", max_rows=None), alt.theme.enable("none"), _shared_selections():
        spec: Spec = chart.to_dict()
    return spec


@contextmanager
def _shared_selections() -> Iterator[None]:
    """Context without Altair's warning about one selection in many panels, which is what we mean."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Automatically deduplicated selection parameter")
        yield


def add_to_all(chart: Panels, selection: alt.Parameter) -> Panels:
    """A chart of many panels with one selection that works in all of them."""
    with _shared_selections():
        return chart.add_params(selection)


def save_chart(
    chart: Chart, stem: Path, *, formats: Sequence[str] = FORMATS, rows: Records | None = None
) -> list[Path]:
    """Write a chart as ``stem.svg``, ``stem.png`` (twice the size) and ``stem.pdf``, and its data as ``stem.csv``."""
    for name in formats:
        checks.one_of("format", name, FORMATS)
    stem.parent.mkdir(parents=True, exist_ok=True)
    svg = vl_convert.vegalite_to_svg(as_spec(chart), vl_version=VEGA_LITE, config={**config(), "padding": MARGINS})
    contents = {
        "svg": lambda: svg.encode(),
        "png": lambda: vl_convert.svg_to_png(svg, scale=PNG_SCALE),
        "pdf": lambda: vl_convert.svg_to_pdf(svg),
    }
    written = []
    for name in formats:
        file = stem.with_name(f"{stem.name}.{name}")
        file.write_bytes(contents[name]())
        written.append(file)
    if rows is not None:
        written.append(save_rows(rows, stem.with_name(f"{stem.name}.csv")))
    return written


def save_rows(rows: Records, file: Path) -> Path:
    """Write rows as CSV, with the columns of the first; None is an empty cell."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as text:
        table = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return file


def decades(low: float, high: float, **options: Any) -> alt.Axis:
    """An axis from low to high with ticks at powers of ten, written 10²."""
    # Superscript digits are not in order in Unicode, hence the list.
    power = "round(log(datum.value) / LN10)"
    digits = "['⁰','¹','²','³','⁴','⁵','⁶','⁷','⁸','⁹']"
    text = f"'10' + ({power} < 0 ? '⁻' : '') + {digits}[abs({power})]"
    powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    return alt.Axis(values=[10.0**power for power in powers], labelExpr=text, **options)


def highlighting(field: str, name: str = "picked") -> tuple[alt.Parameter, Any]:
    """A parameter to add to a chart, and the opacity it gives: a click on the legend (shift-click: several) leaves the rest
    faint, a double click brings all back."""
    picked = alt.selection_point(fields=[field], bind="legend", name=name)
    return picked, alt.when(picked).then(alt.value(1.0)).otherwise(alt.value(0.08))


def zooming(name: str, *encodings: str) -> alt.Parameter:
    """A parameter to add to a chart: drag to move, shift and the wheel to zoom (the wheel alone scrolls the page), double click
    to return."""
    chosen: Any = list(encodings) or ["x", "y"]
    return alt.selection_interval(bind="scales", encodings=chosen, name=name, zoom="wheel![event.shiftKey]")
