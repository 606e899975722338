"""Schema versions: every store is brought up to date by the same steps, all of them or none, and never from the future."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from ranktrial.live.stores.base import StoreError


class Schema(Protocol):
    """The schema of a store, inside a transaction in which nobody else can change it."""

    def version(self) -> int:
        """How many steps it has taken; 0 for one that has no tables."""
        ...

    def is_empty(self) -> bool:
        """Whether there is nothing at all, not even somebody else's."""
        ...

    def apply(self, step: str, version: int) -> None:
        """Take a step, and note that this is the version now."""
        ...


class Migrated(NamedTuple):
    """The version that a schema had, and the one that it has."""

    before: int
    after: int


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
        steps: SQL of each version, from the first.
        upgrade: Change a schema that others may be using; without it only one that is new is made, and an older one refused.
    """
    with transaction() as schema:
        before = schema.version()
        if before > len(steps):
            raise StoreError(
                f"{place} has schema {before}, this ranktrial knows up to {len(steps)}: use a newer ranktrial"
            )
        if before == 0 and not schema.is_empty():
            raise StoreError(f"{place} is a database of something else")
        if 0 < before < len(steps) and not upgrade:
            raise StoreError(
                f"{place} has schema {before}, this ranktrial needs {len(steps)}: stop the instances of the older version "
                "and run `ranktrial migrate`"
            )
        for version in range(before, len(steps)):
            schema.apply(steps[version], version + 1)
    return Migrated(before, len(steps))
