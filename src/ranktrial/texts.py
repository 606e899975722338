"""Texts for people: those of strangers as they may be shown, and numbers of things."""

from __future__ import annotations

import re

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


def counted(number: int, thing: str) -> str:
    """A number of things.

    >>> counted(1, "click"), counted(2_000, "impression")
    ('1 click', '2,000 impressions')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
