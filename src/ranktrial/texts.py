"""Texts for people: those of strangers as they may be shown, and numbers of things."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

# Marks that turn the direction of what follows, and control characters, line breaks among them. What is in a language from
# right to left needs none of them: letters have their direction.
MARKS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]+")
ELLIPSIS = "…"


def shown(text: str, longest: int = 80) -> str:
    """Text without marks that turn its direction and without control characters, cut where it is long.

    >>> shown("red\\nshoes"), shown("abc\\u202egpj.exe"), shown("x" * 100, 5)
    ('red shoes', 'abc gpj.exe', 'xxxx…')
    """
    text = " ".join(MARKS.sub(" ", text).split())
    return text if len(text) <= longest else text[: longest - 1].rstrip() + ELLIPSIS


def label(what: str, text: object, longest: int) -> str:
    """A name or value that people see; an error says what is wrong with it.

    >>> label("a name is", "red\\nshoes", 40)
    Traceback (most recent call last):
    ValueError: a name is 'red\\nshoes', must have 1 to 40 characters, none of them a control character or a space at either end
    """
    if not isinstance(text, str) or not text or text != shown(text, longest):
        limit = f"must have 1 to {longest} characters, none of them a control character"
        raise ValueError(f"{what} {text!r}, {limit} or a space at either end")
    return text


def counted(number: int, thing: str, things: str = "") -> str:
    """A number of things, in the plural where they are not one.

    >>> counted(1, "click"), counted(2_000, "click"), counted(0, "search", "searches")
    ('1 click', '2,000 clicks', '0 searches')
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def json_values(value: Any) -> Any:
    """Values as JSON can hold them: what is not finite is None.

    >>> json_values({"delta": float("nan"), "interval": (0.5, float("inf"))})
    {'delta': None, 'interval': [0.5, None]}
    """
    if isinstance(value, dict):
        return {name: json_values(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def text_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table in plain text, indented by two; all columns but the first are set to the right.

    >>> text_table(("", "clicks"), [("A", "12"), ("B", "9")])
    ['     clicks', '  A      12', '  B       9']
    """
    table = [tuple(heads), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*table)]
    lines = (
        "  ".join(cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in enumerate(zip(row, widths)))
        for row in table
    )
    return [f"  {line}".rstrip() for line in lines]
