"""Ids of documents and units as text: anything that is text or a whole number, NumPy's and pandas' included."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

RIGHT = "must be text or a whole number"
LONGEST = 60  # characters of a value in a message


class BadId(TypeError, ValueError):  # noqa: N818 (reads as what it says)
    """Refusal of something that is no id, or no list of ids; the message says which and where."""


def text_id(name: str, value: object) -> str:
    """An id as text.

    >>> text_id("unit", "u1"), text_id("unit", 7)
    ('u1', '7')
    >>> text_id("unit", float("nan"))
    Traceback (most recent call last):
    ranktrial.ids.BadId: unit is nan, must be text or a whole number
    """
    if type(value) is str:
        return value
    if isinstance(value, str):  # NumPy's, or an enumeration's
        return str.__str__(value)
    if not isinstance(value, bool) and type(value).__name__ != "bool":  # NumPy's truth values have an index too
        try:
            return str(operator.index(value))  # type: ignore[arg-type]
        except TypeError:
            pass
    raise BadId(f"{name} is {_told(value)}, {RIGHT}")


def text_ids(whose: str, ids: Iterable[Any]) -> list[str]:
    """Ids of a list as text, each at its first place; ``whose`` names the list in messages.

    >>> text_ids("A", [3, "x", "3"])
    ['3', 'x']
    >>> text_ids("A", ["x", "y", None])
    Traceback (most recent call last):
    ranktrial.ids.BadId: A's 3rd id is None, must be text or a whole number
    """
    if isinstance(ids, str | bytes):
        raise BadId(f"{whose}'s list is {_told(ids)}, must be a list of ids")
    try:
        given = list(ids)
    except TypeError:
        raise BadId(f"{whose}'s list is {_told(ids)}, must be a list of ids") from None
    if set(map(type, given)) - {str}:
        given = [text_id(f"{whose}'s {ordinal(place)} id", id) for place, id in enumerate(given, 1)]
    texts: list[str] = list(dict.fromkeys(given))
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        place = next(place for place, id in enumerate(given, 1) if not _is_unicode(id))
        raise BadId(f"{whose}'s {ordinal(place)} id is {_told(given[place - 1])}, which is not valid Unicode") from None
    return texts


def ordinal(number: int) -> str:
    """The ordinal of a number.

    >>> [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 21, 103)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '21st', '103rd']
    """
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _is_unicode(id: str) -> bool:
    try:
        id.encode()
    except UnicodeEncodeError:
        return False
    return True


def _told(value: object) -> str:
    text = ascii(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
