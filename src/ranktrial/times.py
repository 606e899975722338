"""Times as they are given and told: seconds since 1970, or a date and time as ISO 8601 writes it, in UTC unless it says so;
and spans of time, such as ``7d``.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from numbers import Real

LATEST = 1e11  # seconds since 1970: beyond it they are milliseconds
CLOCKS = 60.0  # seconds by which the clock of whoever tells of an event may be behind that of its search
UNITS = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}

Time = float | str | datetime


def seconds(name: str, given: Time) -> float:
    """Seconds since 1970, from a number of them, an ISO 8601 text or a datetime.

    Args:
        name: What the time is called, for messages.
        given: A date alone is its beginning; without an offset it is UTC.

    >>> seconds("time", 1_794_830_400), seconds("time", "2026-11-16T12:00Z"), seconds("time", "2026-11-16T13:00+01:00")
    (1794830400.0, 1794830400.0, 1794830400.0)
    >>> seconds("before", "2026-11-16")
    1794787200.0
    >>> seconds("time", 1_794_830_400_000)
    Traceback (most recent call last):
    ValueError: time is 1794830400000, must be in seconds since 1970, not in milliseconds
    """
    right = 'must be seconds since 1970, or a date and time such as "2026-11-16T12:00Z"'
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise ValueError(f"{name} is {given!r}, {right}") from None
    if isinstance(given, datetime):
        return given.replace(tzinfo=given.tzinfo or UTC).timestamp()
    if isinstance(given, bool) or not isinstance(given, Real) or not math.isfinite(given):
        raise ValueError(f"{name} is {given!r}, {right}")
    if given >= LATEST:
        raise ValueError(f"{name} is {given!r}, must be in seconds since 1970, not in milliseconds")
    return float(given)


def span(name: str, given: float | str) -> float:
    """Seconds of a span of time, from a number of them or a text such as ``7d``.

    >>> span("at_least", "7d"), span("at_least", "1.5h"), span("at_least", 60)
    (604800.0, 5400.0, 60.0)
    >>> span("at_least", "a week")
    Traceback (most recent call last):
    ValueError: at_least is 'a week', must be seconds, or a number and s, min, h, d or w such as "7d"
    """
    number = given
    if isinstance(given, str) and (found := re.fullmatch(r"\s*([0-9]+\.?[0-9]*)\s*(s|min|h|d|w)\s*", given)):
        number = float(found[1]) * UNITS[found[2]]
    if isinstance(number, bool | str) or not isinstance(number, Real) or not 0 <= number < LATEST:
        raise ValueError(f'{name} is {given!r}, must be seconds, or a number and s, min, h, d or w such as "7d"')
    return float(number)


def span_text(length: float) -> str:
    """A span of time in the largest unit that holds it.

    >>> span_text(604_800), span_text(86_400), span_text(5_400), span_text(100)
    ('7 days', '1 day', '1.5 hours', '1.67 minutes')
    """
    for name in ("day", "hour", "minute", "second"):
        size = {"day": 86_400.0, "hour": 3_600.0, "minute": 60.0, "second": 1.0}[name]
        if length >= size or name == "second":
            break
    much = f"{length / size:.3g}"
    return f"{much} {name}" + "s" * (much != "1")


def time_text(moment: float) -> str:
    """A time as all reports tell it.

    >>> time_text(1_794_830_400.0)
    '2026-11-16 12:00 UTC'
    """
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"


def iso_time(moment: float) -> str:
    """A time that ``seconds`` reads; "" for one that is not known.

    >>> iso_time(1_794_830_400.4), iso_time(float("nan"))
    ('2026-11-16T12:00:00Z', '')
    """
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}" if math.isfinite(moment) else ""
