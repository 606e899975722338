"""Times as they are given and told: seconds since 1970, or a date and time as ISO 8601 writes it, in UTC unless it says so."""

from __future__ import annotations

import math
from datetime import UTC, datetime

LATEST = 1e11  # seconds since 1970: beyond it they are milliseconds


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
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise ValueError(f"{name} is {given!r}, {right}")
    if given >= LATEST:
        raise ValueError(f"{name} is {given!r}, must be in seconds since 1970, not in milliseconds")
    return float(given)


def told_time(moment: float) -> str:
    """A time as all reports tell it.

    >>> told_time(1_794_830_400.0)
    '2026-11-16 12:00 UTC'
    """
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"


def iso_time(moment: float) -> str:
    """A time that ``seconds`` reads; "" for one that is not known.

    >>> iso_time(1_794_830_400.4), iso_time(float("nan"))
    ('2026-11-16T12:00:00Z', '')
    """
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}" if math.isfinite(moment) else ""
