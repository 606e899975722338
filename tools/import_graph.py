"""The package's import graph as an SVG: sub-packages in the layers of pyproject.toml, arrows for what imports what.

python tools/import_graph.py            draw docs/imports.svg
python tools/import_graph.py --check    fail if docs/imports.svg is not the graph of these sources
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from xml.sax.saxutils import escape

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, SOURCES, FILE = "ranktrial", ROOT / "src", ROOT / "docs" / "imports.svg"

PITCH, ROW, BOX_WIDTH, BOX_HEIGHT, MARGIN = 61, 56, 136, 42, 20
HEAD = 60  # height of the title
INK, GREY, BLUE, LINE, STRIPE = "#222222", "#767676", "#0072b2", "#a9bccb", "#f3f5f7"
FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"
LEGEND = [
    "A number, where the row of one box meets the column of another: so many times",
    "do modules of the first import modules of the second. No arrow points up.",
    "Dashed: loaded when asked for. A stripe: one layer of pyproject.toml.",
]


@dataclass(frozen=True)
class Graph:
    """Boxes from the top down, and how many imports lead from one to another.

    Attributes:
        layers: Names of sub-packages and modules, by layer; the first layer is the front door, ``ranktrial`` itself.
        imports: Pairs of modules (importing, imported), counted by the boxes that they are in.
        lines: Lines of Python, by box.
    """

    layers: list[list[str]]
    imports: Counter[tuple[str, str]]
    lines: dict[str, int]

    @property
    def boxes(self) -> list[str]:
        return [box for layer in self.layers for box in layer]


def read_graph() -> Graph:
    """The graph of the sources as they are; an error if a box is in no layer or an import points up."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["name"] == "imports point one way")
    layers = [re.findall(r"[\w.]+", layer) for layer in contract["layers"]]

    sys.path.insert(0, str(SOURCES))
    modules = grimp.build_graph(PACKAGE, cache_dir=None)
    known = {PACKAGE, *modules.find_children(PACKAGE)}
    layers = [[PACKAGE], *([box for box in layer if box in known] for layer in layers)]
    boxes = [box for layer in layers for box in layer]
    if known != set(boxes):
        missing = ", ".join(sorted(known - set(boxes)))
        raise SystemExit(f"{missing}: in none of the layers in pyproject.toml, must be in one")

    imports = Counter(
        (_box(importer), _box(imported))
        for importer in modules.modules
        for imported in modules.find_modules_directly_imported_by(importer)
        # Python loads the package itself before any part of it, whether a file says so or not.
        if imported != PACKAGE and _box(importer) != _box(imported)
    )
    up = [pair for pair in imports if boxes.index(pair[0]) > boxes.index(pair[1])]
    if up:
        raise SystemExit("\n".join(f"{a} imports {b}, which is above it in pyproject.toml" for a, b in sorted(up)))
    return Graph(layers, imports, {box: _lines(box) for box in boxes})


def _box(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _lines(box: str) -> int:
    place = SOURCES.joinpath(*box.split("."))
    if box == PACKAGE:
        place /= "__init__"
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    return sum(len(file.read_text().splitlines()) for file in files)


def draw(graph: Graph) -> str:
    """Boxes step down to the right, so that an import is a way right from one box and down to another."""
    boxes = graph.boxes
    right = {box: MARGIN + BOX_WIDTH + PITCH * i for i, box in enumerate(boxes)}
    middle = {box: HEAD + ROW * i + ROW // 2 for i, box in enumerate(boxes)}
    column = {box: right[box] - PITCH // 2 for box in boxes}
    width, height = right[boxes[-1]] + MARGIN, HEAD + ROW * len(boxes) + MARGIN

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{FONT}" role="img" aria-label="Import graph of {PACKAGE}">',
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L10 5L0 10z" fill="{BLUE}"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for i, layer in enumerate(graph.layers):
        if i % 2 == 0 and layer:
            top, tall = middle[layer[0]] - ROW // 2, ROW * len(layer)
            out.append(f'<rect y="{top}" width="{width}" height="{tall}" fill="{STRIPE}"/>')

    for box in boxes:
        reached = [column[b] for b in boxes if (box, b) in graph.imports]
        if reached:
            dashes = ' stroke-dasharray="5 4"' if box == PACKAGE else ""
            out.append(
                f'<path d="M{right[box]} {middle[box]}H{max(reached)}" stroke="{LINE}" stroke-width="1.5"{dashes}/>'
            )
    for box in boxes:
        start = [middle[a] for a in boxes if (a, box) in graph.imports]
        if start:
            out.append(
                f'<path d="M{column[box]} {min(start)}V{middle[box] - BOX_HEIGHT // 2}" stroke="{LINE}" '
                'stroke-width="1.5" marker-end="url(#head)"/>'
            )
    most = max(graph.imports.values(), default=1)
    for a, b in product(boxes, boxes):
        if count := graph.imports[a, b]:
            # The more imports, the darker.
            shade = 0.15 + 0.85 * (count / most) ** 0.5
            ink = "white" if shade > 0.65 else INK
            out.append(
                f'<circle cx="{column[b]}" cy="{middle[a]}" r="11.5" fill="white"/>'
                f'<circle cx="{column[b]}" cy="{middle[a]}" r="11.5" fill="{BLUE}" fill-opacity="{shade:.2f}"/>'
                + _text(column[b], middle[a] + 4, str(count), size=12, fill=ink, anchor="middle")
            )
    for box in boxes:
        name = box.removeprefix(f"{PACKAGE}.")
        out.append(
            f'<rect x="{right[box] - BOX_WIDTH}" y="{middle[box] - BOX_HEIGHT // 2}" width="{BOX_WIDTH}" '
            f'height="{BOX_HEIGHT}" rx="6" fill="white" stroke="{BLUE}" stroke-width="1.5"/>'
            + _text(right[box] - BOX_WIDTH + 11, middle[box] - 3, name, size=15, weight="bold")
            + _text(right[box] - BOX_WIDTH + 11, middle[box] + 14, f"{_rounded(graph.lines[box]):,} lines", fill=GREY)
        )

    out.append(_text(MARGIN, 36, f"What imports what in {PACKAGE}", size=22, weight="bold"))
    for i, line in enumerate(LEGEND):
        out.append(_text(MARGIN, height - MARGIN - ROW - 20 * (len(LEGEND) - i), line, size=13, fill=GREY))
    return "\n".join([*out, "</svg>", ""])


def _text(
    x: int, y: int, text: str, *, size: int = 12, fill: str = INK, weight: str = "normal", anchor: str = "start"
) -> str:
    style = f'font-size="{size}" fill="{fill}" font-weight="{weight}" text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'


def _rounded(lines: int) -> int:
    """Number with two digits: the picture need not change with every edit."""
    return round(lines, 2 - len(str(lines)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is stale")
    options = parser.parse_args()
    picture, file = draw(read_graph()), FILE.relative_to(ROOT)
    if not options.check:
        FILE.write_text(picture)
        print(f"{file} written")
    elif not FILE.exists() or FILE.read_text() != picture:
        raise SystemExit(f"{file} is not the graph of these sources: make graph")


if __name__ == "__main__":
    main()
