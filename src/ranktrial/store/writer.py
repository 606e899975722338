"""Group commit: one thread of a process writes to its store, and what arrives meanwhile goes into the next commit."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from ranktrial.store.base import Marked, Nothing, Overloaded, Row, StoredClicks, StoreError, StoreUnavailable, Void, log
from ranktrial.store.database import Database
from ranktrial.store.stored import Phase, Stored

IDLE = 1.0  # seconds
Tallies = Counter[tuple[int, str]]  # by version and name


class Writer(ABC):
    """The queue of rows and tallies, and the thread that writes them.

    Args:
        database: Where they are written to.
        queue_size: Rows that may wait.

    Attributes:
        place: Where the store is, without a password.
        waiting: Rows that wait to be written.
    """

    def __init__(self, database: Database, queue_size: int) -> None:
        self.place, self._database, self._queue_size = database.place, database, queue_size
        self.waiting = 0
        self._queue: list[Stored] = []
        self._tally: Tallies = Counter()
        self._closed = False
        self._changed = threading.Condition(threading.Lock())  # holds for all of these
        self._thread = threading.Thread(target=self._write_forever, name="ranktrial-writer", daemon=True)
        self._thread.start()

    @abstractmethod
    def _transaction(self, rows: list[Stored], tallied: Tallies, take_more: Callable[[], None]) -> None:
        """Write rows and tallies in one transaction, on the writing thread.

        Once it has what it must wait for, such as a lock, it may call ``take_more``, which adds the rows and tallies that have
        come meanwhile. It raises StoreUnavailable where the store is the matter; whatever else it raises is taken for the
        fault of a row, and each is tried alone.
        """

    @abstractmethod
    def _hang_up(self) -> None:
        """Let go of what the writing thread has opened, on that thread."""

    def _look_after(self) -> None:  # noqa: B027 (most have nothing to look after)
        """Called about once a second while there is nothing to write, on the writing thread."""

    def put(self, row: Row) -> Stored:
        size = len(row.clicks) if isinstance(row, StoredClicks) else 1
        stored = Stored(row)
        with self._changed:
            if self._closed:
                raise StoreError(f"{self.place} is closed")
            if (over := self._database.over) is not None:
                raise type(over)(str(over))
            # Taking something back must always be possible.
            if self.waiting and self.waiting + size > self._queue_size and not isinstance(row, Void):
                raise Overloaded(f"{self.waiting} rows wait to be written to {self.place}")
            self.waiting += size
            self._queue.append(stored)
            self._changed.notify()
        return stored

    def flush(self, timeout: float | None = None) -> None:
        self.put(Nothing()).result(timeout)

    def tally(self, version: int, name: str, count: int = 1, *, soon: bool = True) -> None:
        with self._changed:
            self._tally[version, name] += count
        if soon and not self._queue:  # otherwise the next commit takes it along
            with contextlib.suppress(StoreError):
                self.put(Nothing())

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _write_forever(self) -> None:
        last = False
        while not last:
            with self._changed:
                idle = not (self._queue or self._closed or self._changed.wait(IDLE))
                last = self._closed and not idle  # what waits now is the last that ever will
            if idle:
                try:
                    self._look_after()
                except Exception:  # this thread must go on
                    log.exception("a store could not be looked after")
                continue
            rows: list[Stored] = []
            tallied: Tallies = Counter()
            self._take(rows, tallied)
            try:
                self._commit(rows, tallied)
            except Exception as problem:
                self._fail(rows, problem)
        self._hang_up()

    def _take(self, rows: list[Stored], tallied: Tallies) -> None:
        """Add the rows that wait, except those that were taken back, and the tallies so far."""
        with self._changed:
            taken, self._queue, self.waiting = self._queue, [], 0
            more, self._tally = self._tally, Counter()
        with Stored.lock:
            for stored in taken:
                if stored.stage is Phase.WAITING:
                    stored.stage = Phase.RUNNING
                    rows.append(stored)
        tallied.update(more)

    def _commit(self, rows: list[Stored], tallied: Tallies) -> None:
        try:
            self._transaction(rows, tallied, partial(self._take, rows, tallied))
        except Exception as problem:
            with self._changed:
                self._tally.update(tallied)
            if len(rows) < 2 or isinstance(problem, StoreUnavailable):
                raise
            for stored in rows:  # one bad row must not take the others with it
                try:
                    self._transaction([stored], Counter(), lambda: None)
                    Stored.finish_all((stored,))
                except Exception as own:
                    self._fail((stored,), own)
        else:
            Stored.finish_all(rows)

    def _fail(self, rows: Sequence[Stored], problem: Exception) -> None:
        with self._changed:
            for stored in rows:
                if not isinstance(stored.row, Nothing | Marked):  # marks are no part of the log
                    self._tally[stored.row.version, "failed writes"] += 1
        Stored.finish_all(rows, problem)
