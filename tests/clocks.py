"""Clocks that tests set."""

from __future__ import annotations

DAY = 86_400.0
START = 1_700_000_000.0


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
