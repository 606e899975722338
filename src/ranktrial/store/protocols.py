"""Interfaces of a store, one for each kind of caller, and ``Store``, which is all of them.

Another store is a class with these methods; ``tests/store`` says what must hold for each. What reads raises StoreUnavailable
where the store does not answer, whatever its driver calls that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

from ranktrial.methods import Beliefs
from ranktrial.store.base import (
    Bias,
    ClickRow,
    ConfigVersion,
    DesignRow,
    Entry,
    Erased,
    ErasureRow,
    EventRow,
    HistoryRow,
    ImpressionCount,
    ImpressionRow,
    LogRow,
    MarkRow,
    Message,
    MessageRow,
    Row,
    ShownRow,
    TrialRow,
    VoidRow,
)
from ranktrial.store.stored import Stored


class Intake(Protocol):
    """Rows that are put in, and the few that a search or a click looks up.

    Attributes:
        quick: Whether looking up an impression takes microseconds, so that an event loop may do it.
        place: Where it is, without a password.
    """

    quick: bool
    place: str

    def put(self, row: Row) -> Stored:
        """Queue a row; the future is done when it is on the disk, or fails with StoreUnavailable. Raises Overloaded.

        Cancelling the future before the row's turn takes it back.
        """
        ...

    @property
    def waiting(self) -> int:
        """Rows that wait to be written."""
        ...

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything queued so far is on the disk."""
        ...

    def impression(self, key: bytes) -> ShownRow | None:
        """The impression of this key, if there is one."""
        ...

    def void(self, key: bytes) -> str | None:
        """Reason why an impression was made void; None if it was not."""
        ...

    def tally(self, version: int, name: str, count: int = 1, *, soon: bool = True) -> None:
        """Count something that is no row; written with the next rows, kept in memory while the store is down.

        ``soon=False`` makes no commit of its own: for what comes with a row, or may wait for one.
        """
        ...


class StoredRows(Protocol):
    """The rows of a log, which only grow."""

    def impressions(self, version: int, after: int) -> Iterable[ImpressionRow]:
        """Impressions of a version with an id above ``after``, in order of id."""
        ...

    def clicks(self, version: int, after: int) -> Iterable[ClickRow]:
        """Clicks of a version with an id above ``after``, in order of id."""
        ...

    def events(self, version: int, after: int) -> Iterable[EventRow]:
        """Events of a version with an id above ``after``, in order of id."""
        ...

    def voids(self, version: int, after: int) -> Iterable[VoidRow]:
        """Voids of a version with an id above ``after``, in order of id."""
        ...

    def marks(self, version: int, after: int) -> Iterable[MarkRow]:
        """Marks of a version's impressions with an id above ``after``, in order of id."""
        ...

    def blocks(self, kind: type[LogRow], version: int, after: int) -> Iterable[Sequence[tuple[Any, ...]]]:
        """Rows of this kind as above, some thousand at a time and as plain tuples: for whoever reads all of them."""
        ...

    def designs(self, ids: Sequence[int]) -> Iterable[DesignRow]:
        """The requested designs that exist, in any order."""
        ...

    def count(self, version: int, after: int) -> ImpressionCount:
        """Impressions of a version with an id above ``after``; the highest id is ``after`` where there are none."""
        ...

    def tallies(self, version: int) -> Counter[str]:
        """Counters of a version, written or not."""
        ...


class StoredTrials(Protocol):
    """Trials with their versions, beliefs and history."""

    def trial(self, name: str | None) -> TrialRow:
        """The trial of this name, the only one of the store if no name is given. Raises StoreError."""
        ...

    def trial_names(self) -> list[str]:
        """Names of all trials, sorted."""
        ...

    def trial_of_version(self, version: int) -> str | None:
        """The trial that a version's id belongs to."""
        ...

    def add_trial(self, name: str, secret: bytes) -> None:
        """Add a trial, unless there is one of that name."""
        ...

    def stop(
        self,
        name: str,
        shows: Literal["A", "B"] | None = None,
        entry: Entry | None = None,
        *,
        running: bool = False,
    ) -> None:
        """Mark a trial as stopped, with the ranker whose list is shown from now on; the entry goes into its history, in the
        same transaction, if that is new. Without a ranker it is A, unless the trial is stopped already. With ``running``
        nothing is done to a trial that is stopped.
        """
        ...

    def versions(self, trial: str) -> list[ConfigVersion]:
        """All versions of a trial, in order of their number."""
        ...

    def add_version(self, trial: str, number: int, config: str, entry: Entry | None = None) -> None:
        """Add a version, which is then the current one, and the entry with it, unless the trial has one of that number."""
        ...

    def make_current(self, trial: str, number: int, entry: Entry | None = None) -> None:
        """Make a version the current one, and add the entry, unless it is."""
        ...

    def reconfigure(self, version: ConfigVersion, trial: str, config: str, entry: Entry | None = None) -> None:
        """Put another configuration in place of a version's, and add the entry, unless somebody else has meanwhile."""
        ...

    def biases(self, version: int) -> list[Bias]:
        """Position bias of a version, the latest last."""
        ...

    def effects(self, bias: int) -> bytes:
        """The ``effects`` that came with a bias: what is known of single documents (``log.known``)."""
        ...

    def add_bias(
        self,
        version: int,
        impressions: int,
        beliefs: Beliefs,
        follows: int,
        effects: bytes = b"",
        entry: tuple[str, Entry] | None = None,
    ) -> None:
        """Add position bias, to the last bit, unless the same theta is known from the same number of impressions; with it goes
        an entry of the history of the trial of that name.

        ``follows`` is the id of the one before it, 0 for the first: where another has followed that one meanwhile, from
        another instance, nothing is added, so that all instances have the same.
        """
        ...

    def history(self, trial: str) -> list[HistoryRow]:
        """All entries of a trial's history, in the order in which they were made."""
        ...

    def add_history(
        self, trial: str, time: int, what: str, unit: int | None, reason: str, who: str = "", detail: str = ""
    ) -> None:
        """Add an entry; on the disk when this returns."""
        ...


class Erasing(Protocol):
    """Deletion of what was stored."""

    def erase(
        self, trial: str, time: int, reason: str, *, unit: int | None = None, before: int | None = None, who: str = ""
    ) -> Erased:
        """Delete a unit's impressions, or all from before a time (microseconds), in all versions of a trial.

        With them go their clicks and events, and designs that nothing else shows; gone from the disk when this returns. What
        there was is in ``erasures``.
        """
        ...

    def erase_trial(self, trial: str) -> Erased:
        """Delete a trial and all that is stored of it."""
        ...

    def erasures(self, trial: str) -> list[ErasureRow]:
        """Erasures from a trial, in the order of their requests. Changes whenever rows have been deleted."""
        ...


class StoredMessages(Protocol):
    """Messages to be sent, and the lease of the process that sends them."""

    def add(self, messages: Sequence[Message]) -> None:
        """Add messages, all or none; one with the trial, subject, number and hook of one that is there is left out."""
        ...

    def messages(self, trial: str, *, due: int | None = None) -> list[MessageRow]:
        """Messages of a trial in the order in which they were added: all, or those that are due at a time (microseconds)."""
        ...

    def retry(self, row: int, due: int | None, attempts: int) -> None:
        """Note when a message is due next, None for never, and how often it was tried in vain."""
        ...

    def lead(self, name: str, holder: str, length: int, now: int | None = None) -> bool:
        """Take or keep a lease for so long, unless somebody else has it (microseconds); True if ``holder`` has it now.

        Args:
            now: The time, for trials that have one of their own; by default that of the database where it has a clock, so that
                clocks of instances may differ.
        """
        ...


class Store(Intake, StoredRows, StoredTrials, Erasing, Protocol):
    """A store of several trials and their logs.

    Attributes:
        outbox: Messages that wait to be sent.
    """

    @property
    def outbox(self) -> StoredMessages: ...

    def check(self) -> None:
        """Look for damage, however long that takes; raises StoreDamaged."""
        ...

    def close(self) -> None:
        """Write the queued rows and close all connections."""
        ...
