"""Reports as one HTML file with interactive charts, tables and text, in the light or dark of the reader's screen, that asks the
network for nothing: scripts are inside, and the page forbids itself the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import vl_convert

from ranktrial.report.charts import VEGA_LITE, Chart, Spec, as_spec
from ranktrial.report.theme import COLOURS, config


@dataclass(frozen=True, eq=False)
class Figure:
    """A chart on a page.

    Attributes:
        chart: Any Altair chart or Vega-Lite specification.
        caption: Below it, what there is to see.
    """

    chart: Chart
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """A table on a page; numbers are set to the right.

    Attributes:
        columns: Their names.
        rows: Of text or numbers already as they should be read.
        caption: Above it.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""


@dataclass(frozen=True, eq=False)
class Section:
    """A heading and what is below it: figures, tables, and text (a paragraph a string)."""

    title: str
    parts: Sequence[Figure | Table | str]


@dataclass(frozen=True, eq=False)
class Page:
    """A whole report.

    Attributes:
        title: Of the page.
        sections: In order; more than one are listed on top.
        summary: Below the title.
    """

    title: str
    sections: Sequence[Section]
    summary: str = ""

    def to_html(self) -> str:
        """The page as one self-contained text."""
        figures = _Figures()
        body = "\n".join(_section(section, figures) for section in self.sections)
        template = (resources.files("ranktrial.report") / "page.html").read_text(encoding="utf-8")
        values = {
            "title": escape(self.title),
            "summary": f"<p class=summary>{escape(self.summary)}</p>" if self.summary else "",
            "contents": _contents(self.sections),
            "body": body,
            "settings": _json(
                {
                    "specs": figures.specs,
                    "light": config(),
                    "dark": config(dark=True),
                    "darkColours": COLOURS,
                }
            ),
            "library": _library() if figures.specs else "",
        }
        return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], template)

    def write(self, file: Path) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.to_html(), encoding="utf-8")
        return file


class _Figures:
    """The specifications of a page's charts, numbered as they come."""

    def __init__(self) -> None:
        self.specs: list[Spec] = []

    def html(self, figure: Figure) -> str:
        self.specs.append(as_spec(figure.chart))
        caption = f"<figcaption>{escape(figure.caption)}</figcaption>" if figure.caption else ""
        return f"<figure><div class=chart id=chart-{len(self.specs) - 1}></div>{caption}</figure>"


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script."""
    bundle = vl_convert.javascript_bundle(vl_version=VEGA_LITE)  # type: ignore[call-arg]  # its stub forgets the default
    return bundle.replace("</script", r"<\/script")


def _json(value: Any) -> str:
    # Within a script element the only thing that can go wrong is a tag in the text.
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", r"\u003c")


def _anchor(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def _contents(sections: Sequence[Section]) -> str:
    if len(sections) < 2:
        return ""
    links = "".join(f'<li><a href="#{_anchor(s.title)}">{escape(s.title)}</a></li>' for s in sections)
    return f"<nav><ol>{links}</ol></nav>"


def _section(section: Section, figures: _Figures) -> str:
    return "\n".join(
        [
            f'<section id="{_anchor(section.title)}"><h2>{escape(section.title)}</h2>',
            *_parts(section, figures),
            "</section>",
        ]
    )


def _parts(section: Section, figures: _Figures) -> Iterator[str]:
    for part in section.parts:
        if isinstance(part, Figure):
            yield figures.html(part)
        elif isinstance(part, Table):
            yield _table(part)
        else:
            yield f"<p>{escape(part)}</p>"


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    return f"<div class=wide><table>{caption}<thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>"


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    number = re.fullmatch(r"[-+−<≤>≥]?\s?[\d.,]+(e[-+]?\d+)?\s?[%x×]?", text) is not None
    return f"<td{' class=number' if number else ''}>{escape(text)}</td>"
