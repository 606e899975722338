"""What people see: charts as files and interactive pages that need no network; what they show is the caller's business."""

from ranktrial.report.charts import (
    FORMATS,
    Chart,
    Rows,
    Sheets,
    Spec,
    as_spec,
    decades,
    highlighting,
    save_chart,
    save_rows,
    zooming,
)
from ranktrial.report.page import Figure, Page, Section, Table
from ranktrial.report.theme import COLOURS, STYLES, Style, config

__all__ = [
    "COLOURS",
    "FORMATS",
    "STYLES",
    "Chart",
    "Figure",
    "Page",
    "Rows",
    "Section",
    "Sheets",
    "Spec",
    "Style",
    "Table",
    "as_spec",
    "config",
    "decades",
    "highlighting",
    "save_chart",
    "save_rows",
    "zooming",
]
