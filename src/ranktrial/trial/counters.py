"""Counters of what is no row: fallbacks, searches shown again, events that count for nothing."""

from __future__ import annotations

from contextlib import suppress

from ranktrial.store.protocols import Intake


class Counters:
    """The counters of a version.

    Args:
        store: Where they are kept.
        version: Id of the version.
    """

    def __init__(self, store: Intake, version: int) -> None:
        self._store, self._version = store, version

    def count(self, name: str, version: int | None = None, *, soon: bool = True) -> None:
        """Count something, for another version if one is given; never raises: counting a fault must not break the page."""
        with suppress(Exception):
            self._store.tally(self._version if version is None else version, name, soon=soon)
