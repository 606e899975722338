"""Group commit: one thread of a process writes to its store, and what arrives meanwhile goes into the next commit."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from ranktrial.store.base import (
    Marked,
    Nothing,
    Overloaded,
    Row,
    StoredClicks,
    StoreError,
    StoreUnavailable,
    Void,
    log,
)
from ranktrial.store.stored import Stored

IDLE = 1.0  # seconds
Tallies = Counter[tuple[int, str]]  # by version and name
Transaction = Callable[[list[Stored], Tallies, Callable[[], None]], None]


class Writer:
    """The queue of rows and tallies, and the thread that writes them. ``Store`` describes what the methods do.

    Args:
        place: Where the store is, for messages.
        transaction: Writes rows and tallies in one transaction, on the writing thread. Once it has what it must wait for, such
            as a lock, it may call the function that it is given last: that adds the rows and tallies that have come meanwhile.
            It raises StoreUnavailable where the store is the matter; whatever else it raises is taken for the fault of a row,
            and each is tried alone.
        look_after: Called about once a second while there is nothing to write, on the writing thread.
        hang_up: Called on the writing thread at the end.
        queue_size: Rows that may wait.
    """

    def __init__(
        self,
        place: str,
        transaction: Transaction,
        look_after: Callable[[], None],
        hang_up: Callable[[], None],
        queue_size: int,
    ) -> None:
        self._place, self._transaction = place, transaction
        self._look_after, self._hang_up = look_after, hang_up
        self._queue: list[Stored] = []
        self._queue_size, self.waiting = queue_size, 0
        self._tally: Tallies = Counter()
        self.closed = False
        self._changed = threading.Condition(threading.Lock())  # holds for all of these
        self._thread = threading.Thread(target=self._write_forever, name="ranktrial-writer", daemon=True)
        self._thread.start()

    def put(self, row: Row) -> Stored:
        stored, size = Stored(row), len(row.clicks) if isinstance(row, StoredClicks) else 1
        with self._changed:
            if self.closed:
                raise StoreError(f"{self._place} is closed")
            # Taking something back must always be possible.
            if self.waiting and self.waiting + size > self._queue_size and not isinstance(row, Void):
                raise Overloaded(f"{self.waiting} rows wait to be written to {self._place}")
            self.waiting += size
            self._queue.append(stored)
            self._changed.notify()
        return stored

    def tally(self, version: int, name: str, count: int, soon: bool) -> None:
        with self._changed:
            self._tally[version, name] += count
        if soon and not self._queue:  # otherwise the next commit takes it along
            with contextlib.suppress(StoreError):
                self.put(Nothing())

    def tallied(self, version: int) -> Counter[str]:
        """Counters of a version that are not written yet."""
        with self._changed:
            return Counter({name: count for (of, name), count in self._tally.items() if of == version})

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify()
        self._thread.join()

    def _write_forever(self) -> None:
        more = True
        while more:
            more = self._wait_for_rows()
            rows: list[Stored] = []
            tallied: Tallies = Counter()
            self._take(rows, tallied)
            try:
                self._commit(rows, tallied)
            except Exception as problem:
                self._fail(rows, problem)
        self._hang_up()

    def _wait_for_rows(self) -> bool:
        """Wait until there is something to write; False when what waits now is the last that ever will."""
        while True:
            with self._changed:
                if self._queue or self.closed or self._changed.wait(IDLE):
                    return not self.closed
            try:
                self._look_after()
            except Exception:  # this thread must go on
                log.exception("a store could not be looked after")

    def _take(self, rows: list[Stored], tallied: Tallies) -> None:
        """Add the rows that wait, except those that were taken back, and the tallies so far."""
        with self._changed:
            taken, self._queue, self.waiting = self._queue, [], 0
            more, self._tally = self._tally, Counter()
        rows += Stored.start_all(taken)
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
                    self._transaction([stored], Counter(), _no_more)
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


def _no_more() -> None:
    """Adds no rows."""
