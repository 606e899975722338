"""Interface of the databases that stores are kept in: statements that read, and those that change something rare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ranktrial.store.base import Entry, StoreUnavailable

READING, COUNTING = 30.0, 600.0  # seconds that may take, unless a visitor waits
INSERT_ENTRY = f"INSERT INTO history (trial, {', '.join(Entry._fields)}) VALUES (?{', ?' * len(Entry._fields)})"
Execute = Callable[[str, Sequence[Any]], Any]  # returns a cursor
Noted = tuple[str, Entry | None] | None  # a trial, and the entry for its history


class Database(Protocol):
    """A database in SQL, for all threads. A parameter of a statement is ``?``. What fails raises StoreUnavailable.

    Attributes:
        place: Where it is, without a password.
        patience: Seconds that a visitor waits for a row.
        over: Reason why nothing is written any more; None while something is.
    """

    place: str
    patience: float
    over: StoreUnavailable | None

    def select(self, statement: str, values: Sequence[Any] = (), timeout: float = READING) -> list[tuple[Any, ...]]:
        """The rows that a statement finds, where finding them takes no longer than that."""
        ...

    def execute(self, statement: str, values: Sequence[Any], noted: Noted = None) -> None:
        """Change something rare; on the disk when this returns.

        An entry for the history of the trial of that name is added in the same transaction, if the statement changed a row.
        """
        ...

    def changing(self) -> AbstractContextManager[Execute]:
        """A transaction in which nobody else adds impressions: a function that executes a statement and returns a cursor.

        Committed at the end, rolled back on an error.
        """
        ...

    def leave_no_trace(self) -> None:
        """Called when rows have been deleted: nothing that the database keeps may hold them any more."""
        ...

    def now(self) -> int:
        """Time of the database, in microseconds."""
        ...

    def last_row(self) -> int:
        """The id up to which no row can appear any more that is not there now."""
        ...

    def check(self) -> None:
        """Look for damage, however long that takes; raises StoreDamaged."""
        ...

    def close(self) -> None:
        """Close the connections for reading."""
        ...


def note(execute: Execute, changed: int, noted: Noted) -> None:
    """Add an entry to a trial's history if rows were changed."""
    if noted is not None and noted[1] is not None and changed > 0:
        execute(INSERT_ENTRY, (noted[0], *noted[1]))
