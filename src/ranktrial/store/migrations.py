"""Schema versions: every store is brought up to date by the same steps, all of them or none, and never from the future."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from ranktrial.store.base import StoreError

BEFORE_RELEASE = -1
FIRST = 5  # version of the first migration: lower ones were of development, and cannot be opened any more


class Schema(Protocol):
    """The schema of a store, inside a transaction in which nobody else can change it."""

    def version(self) -> int:
        """Version number; 0 for a schema without tables, BEFORE_RELEASE for one of before the first release."""
        ...

    def is_empty(self) -> bool:
        """True if there are no tables at all, not even somebody else's."""
        ...

    def apply(self, step: str, version: int) -> None:
        """Take a step, and note that this is the version now."""
        ...


class Migrated(NamedTuple):
    """The version that a schema had, and the one that it has."""

    before: int
    after: int


def check_known(place: str, version: int, steps: Sequence[str]) -> None:
    """Raise StoreError for a schema of before the first release, and for one of the future."""
    newest = FIRST + len(steps) - 1
    if version == BEFORE_RELEASE or 0 < version < FIRST:
        raise StoreError(
            f"{place} was made by a ranktrial of before its first release, and such stores cannot be opened any more: make its "
            "reports and exports with the version that made it, and begin new trials in a new store"
        )
    if version > newest:
        raise StoreError(f"{place} has schema {version}, this ranktrial knows up to {newest}: use a newer ranktrial")


def migrate(
    place: str,
    transaction: Callable[[], AbstractContextManager[Schema]],
    steps: Sequence[str],
    *,
    upgrade: bool = True,
) -> Migrated:
    """Bring a schema up to date, wholly or not at all; several processes may try at once.

    Args:
        place: Where the store is, for messages.
        transaction: Begins a transaction; commits it at the end, rolls it back on an error.
        steps: SQL of each version, from ``FIRST`` on.
        upgrade: Change a schema that others may be using; without it only one that is new is made, and an older one refused.
    """
    newest = FIRST + len(steps) - 1
    with transaction() as schema:
        before = schema.version()
        check_known(place, before, steps)
        if before == 0 and not schema.is_empty():
            raise StoreError(f"{place} is a database of something else")
        if 0 < before < newest and not upgrade:
            raise StoreError(
                f"{place} has schema {before}, this ranktrial needs {newest}: stop the instances of the older version "
                "and run `ranktrial migrate`"
            )
        for version in range(max(before + 1, FIRST), newest + 1):
            schema.apply(steps[version - FIRST], version)
    return Migrated(before, newest)
