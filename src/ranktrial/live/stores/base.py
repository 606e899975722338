"""What does a trial need of a store? A log that only grows: rows that are stored once, and read in order."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from ranktrial.live.designs import Design

log = logging.getLogger("ranktrial.live")
ALL_TRIALS = 0  # instead of a version: what cannot be told apart


class Overloaded(RuntimeError):  # noqa: N818 (reads as what it says)
    """More waits to be written than the store can take; try again later."""


class StoreError(RuntimeError):
    """The store cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Impression:
    """One row of the log: which ranking (``place``) of which design was shown to which unit, when (microseconds).

    ``looked`` says that the store had none of this key when it was drawn; otherwise ``Stored.again`` tells.
    """

    key: bytes
    version: int
    design: Design
    place: int
    unit: int
    time: int
    looked: bool = True


class Click(NamedTuple):
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
    """Take an impression out of the estimate: what was shown is not what the log says.

    Only the one of this ``time``: another of the same key was shown to somebody.
    """

    key: bytes
    version: int
    reason: str
    time: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """Write what has been tallied."""


Row = Impression | Click | Clicks | Void | Nothing


class _Stage(IntEnum):
    WAITING, RUNNING, DONE = range(3)


class Stored:
    """Done when a row is on the disk, or could not be stored. As a ``Future``, but light: there is one for every row.

    ``again`` is set for an impression that may have been there before, perhaps another one: look before showing it.
    """

    __slots__ = ("_callbacks", "_problem", "_stage", "again")
    _lock = threading.Lock()  # one for all: held for a few instructions

    def __init__(self) -> None:
        self._stage = _Stage.WAITING
        self._problem: BaseException | None = None
        self.again = False
        self._callbacks: tuple[Callable[[Stored], object], ...] = ()

    def done(self) -> bool:
        return self._stage is _Stage.DONE

    def running(self) -> bool:
        """Whether it is being written, so that it cannot be taken back."""
        return self._stage is _Stage.RUNNING

    @property
    def failed(self) -> bool:
        return self._problem is not None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for what went wrong, None if nothing did; raises TimeoutError if that takes too long."""
        if self._stage is not _Stage.DONE:
            done = threading.Event()
            self.add_done_callback(lambda _: done.set())
            if not done.wait(timeout):
                raise TimeoutError
        return self._problem

    def result(self, timeout: float | None = None) -> None:
        """Waits, and raises what went wrong; CancelledError if the row was taken back."""
        problem = self.exception(timeout)
        if problem is not None:
            raise problem

    def cancel(self) -> bool:
        """Take the row back; False if it is too late for that."""
        return self._move(_Stage.WAITING, _Stage.DONE, CancelledError())

    def start(self) -> bool:
        """False if the row was taken back."""
        return self._move(_Stage.WAITING, _Stage.RUNNING, None)

    def finish(self, problem: BaseException | None = None) -> None:
        self._move(_Stage.RUNNING, _Stage.DONE, problem)

    def _move(self, old: _Stage, new: _Stage, problem: BaseException | None) -> bool:
        with self._lock:
            if self._stage is not old:
                return False
            self._problem = problem
            self._stage = new
        if new is _Stage.DONE:
            for callback in self._callbacks:
                self._call(callback)
        return True

    def _call(self, callback: Callable[[Stored], object]) -> None:
        try:
            callback(self)
        except BaseException:  # whatever it is, it must not reach the thread that writes
            log.exception("a callback failed")

    def add_done_callback(self, callback: Callable[[Stored], object]) -> None:
        """Called once, in whichever thread finishes it, or at once."""
        with self._lock:
            if self._stage is not _Stage.DONE:
                self._callbacks += (callback,)
                return
        self._call(callback)

    @classmethod
    def already(cls) -> Stored:
        stored = cls()
        stored._stage = _Stage.DONE
        return stored


@dataclass(frozen=True)
class Bias:
    """A theta that was in force from some number of impressions on."""

    id: int
    impressions: int
    theta: tuple[float, ...]
    fitted: bool
    note: str


@dataclass(frozen=True)
class ConfigVersion:
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

    def rows(self, table: str, version: int, after: int) -> Iterable[tuple[Any, ...]]:
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

    def versions(self, trial: str) -> list[ConfigVersion]: ...

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
