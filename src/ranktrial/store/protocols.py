"""Interfaces of a store, one for each kind of caller, and ``Store``, which is all of them.

Another store is a class with these methods; ``tests/store`` says what must hold for each. What reads raises StoreUnavailable
where the store does not answer, whatever its driver calls that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ranktrial.store.base import DesignRow, ImpressionCount, LogRow, Row, ShownRow
from ranktrial.store.erasure import Eraser
from ranktrial.store.stored import Stored
from ranktrial.store.tables import BiasTable, MessageTable, TrialTables


class Intake(Protocol):
    """Rows that are put in, and the few that a search or a click looks up.

    Attributes:
        quick: Whether looking up an impression takes microseconds, so that an event loop may do it.
        place: Where it is, without a password.
        waiting: Rows that wait to be written.
    """

    quick: bool
    place: str
    waiting: int

    def put(self, row: Row) -> Stored:
        """Queue a row; the future is done when it is on the disk, or fails with StoreUnavailable. Raises Overloaded.

        Cancelling the future before the row's turn takes it back.
        """
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

    def rows(self, kind: type[LogRow], version: int, after: int) -> Iterable[LogRow]:
        """Rows of a kind (``ClickRow``) and a version with an id above ``after``, in order of id."""
        ...

    def blocks(self, kind: type[LogRow], version: int, after: int) -> Iterable[Sequence[tuple[Any, ...]]]:
        """Rows as above, some thousand at a time and as plain tuples: for whoever reads all of them."""
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


class Store(Intake, StoredRows, Protocol):
    """A store of several trials and their logs.

    Attributes:
        trials: Trials with their versions and history.
        biases: Position bias of versions.
        eraser: Deletion of what was stored.
        outbox: Messages that wait to be sent.
    """

    trials: TrialTables
    biases: BiasTable
    eraser: Eraser
    outbox: MessageTable

    def check(self) -> None:
        """Look for damage, however long that takes; raises StoreDamaged."""
        ...

    def close(self) -> None:
        """Write the queued rows and close all connections."""
        ...
