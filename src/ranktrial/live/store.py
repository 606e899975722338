"""What does a trial need of a store? A log that only grows: rows that are stored once, and read in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from ranktrial.live.designs import Design


class Overloaded(RuntimeError):  # noqa: N818 (reads as what it says)
    """More waits to be written than the store can take; try again later."""


class StoreError(RuntimeError):
    """The store cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Impression:
    """One row of the log: which ranking (``place``) of which design was shown to which unit, when (microseconds)."""

    key: bytes
    version: int
    design: Design
    place: int
    unit: int
    time: int


@dataclass(frozen=True, slots=True)
class Click:
    key: bytes
    version: int
    document: str
    late: bool


@dataclass(frozen=True, slots=True)
class Clicks:
    """Several clicks of one version that are stored together, or not at all."""

    version: int
    clicks: tuple[Click, ...]


@dataclass(frozen=True, slots=True)
class Void:
    """Take an impression out of the estimate: what was shown is not what the log says."""

    key: bytes
    version: int
    reason: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """Write what has been tallied."""


Row = Impression | Click | Clicks | Void | Nothing
Stored = Future[None]


@dataclass(frozen=True)
class Bias:
    """A theta that was in force from some number of impressions on."""

    id: int
    impressions: int
    theta: tuple[float, ...]
    fitted: bool
    note: str


@dataclass(frozen=True)
class Version:
    """A version of a trial's configuration; ``id`` is unique in the store, ``number`` within the trial."""

    id: int
    number: int
    config: str


class Store(Protocol):
    """What a trial needs of a store."""

    def put(self, row: Row) -> Stored:
        """Queue a row; the future is done when it is on the disk. Raises Overloaded.

        Cancelling the future before the row's turn takes it back.
        """
        ...

    def tally(self, version: int, name: str, count: int = 1) -> None:
        """Count something that is no row; written with the next rows, kept in memory while the store is down."""
        ...

    def tallies(self, version: int) -> Counter[str]: ...

    def impression(self, key: bytes) -> Impression | None:
        """Raises CorruptDesign when what it showed cannot be read."""
        ...

    def void(self, key: bytes) -> str | None:
        """Why an impression was taken out, if it was."""
        ...

    def rows(self, table: str, version: int, after: int) -> list[tuple[Any, ...]]:
        """Rows of a log table with an id above ``after``, in order of id."""
        ...

    def designs(self, ids: Sequence[int]) -> Iterable[tuple[Any, ...]]:
        """(id, digest, parts...) of the designs asked for."""
        ...

    def count(self, version: int, after: int) -> tuple[int, int]:
        """Impressions with an id above ``after``, and the highest id."""
        ...

    def trial(self, name: str | None) -> tuple[str, bytes, bool]:
        """Name, secret and whether it is stopped; the only trial of the store if no name is given."""
        ...

    def trial_names(self) -> list[str]: ...

    def trial_of_version(self, version: int) -> str | None:
        """The trial that a version's id belongs to."""
        ...

    def add_trial(self, name: str, secret: bytes) -> None: ...

    def stop(self, name: str) -> None: ...

    def versions(self, trial: str) -> list[Version]: ...

    def add_version(self, trial: str, number: int, config: str) -> None:
        """Unless the trial has a version of that number."""
        ...

    def biases(self, version: int) -> list[Bias]: ...

    def add_bias(self, version: int, impressions: int, theta: str, fitted: bool, note: str) -> None:
        """Unless it is known already."""
        ...

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything queued so far is on the disk."""
        ...

    def close(self) -> None: ...
