"""The theme of all charts, for print and screen: colours that colour-blind readers tell apart (Okabe and Ito), and a
dash and a shape beside every colour, so that a grey copy still tells lines apart."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

FORMATS = ("svg", "png", "pdf")  # of pictures
FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"

# Every colour a chart may name, and what a page on a dark screen puts in its place.
COLOURS = {
    "#333333": "#dadada",  # ink
    "#0072b2": "#4aa8e0",  # blue
    "#56b4e9": "#9ad4f5",  # sky
    "#009e73": "#2fc79b",  # green
    "#d55e00": "#ff8a3d",  # vermillion
    "#e69f00": "#f5bf4f",  # orange
    "#cc79a7": "#e6a5c8",  # purple
    "#8c7a00": "#c9b63c",  # olive
    "#999999": "#8a8a8a",  # grey, for what stands back
    "#f6d5bf": "#5a3520",  # shade of a region to avoid
    "#bcdcf0": "#2f4f63",  # shade of what is well
}
INK, BLUE, SKY, GREEN, VERMILLION, ORANGE, PURPLE, OLIVE, GREY, BAD_SHADE, GOOD_SHADE = COLOURS
DASHES = ((1, 0), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2))
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")


@dataclass(frozen=True)
class Style:
    """Colour, dash and shape of one series.

    Attributes:
        colour: One of ``COLOURS``.
        dash: Lengths of strokes and gaps; (1, 0) is solid.
        shape: Of its points.
    """

    colour: str
    dash: tuple[float, ...] = DASHES[0]
    shape: str = SHAPES[0]


# For series that have no style of their own: neighbours differ in colour, dash and shape.
STYLES = tuple(
    Style(colour, dash, SHAPES[(i + 3 * j) % len(SHAPES)])
    for (j, dash), (i, colour) in product(enumerate(DASHES), enumerate(list(COLOURS)[:8]))
)


def config(*, dark: bool = False) -> dict[str, Any]:
    """The theme as a Vega-Lite config."""
    ink, faint, line = ("#e4e4e4", "#3a3d42", "#8b9098") if dark else ("#222222", "#e6e6e6", "#888888")
    return {
        "background": None if dark else "white",
        "font": FONT,
        "view": {"stroke": faint},
        "axis": {
            "labelColor": ink,
            "titleColor": ink,
            "labelFontSize": 10,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "gridColor": faint,
            "domainColor": line,
            "tickColor": line,
            "tickSize": 4,
            "labelOverlap": "greedy",
        },
        "header": {"labelColor": ink, "titleColor": ink, "labelFontSize": 11},
        "title": {"color": ink, "subtitleColor": ink, "fontSize": 12, "subtitleFontSize": 10, "fontWeight": "bold"},
        "legend": {
            "labelColor": ink,
            "titleColor": ink,
            "labelFontSize": 11,
            "symbolSize": 70,
            "symbolStrokeWidth": 2,
            "labelLimit": 420,
            "columnPadding": 16,
        },
        "line": {"strokeWidth": 1.8},
        "text": {"color": ink, "fontSize": 10},
        "rule": {"color": line},
    }
