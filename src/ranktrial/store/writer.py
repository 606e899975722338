"""Group commit: one thread of a process writes to its store, and what arrives meanwhile goes into the next commit."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from ranktrial.store.base import (
    Marked,
    Nothing,
    Overloaded,
    Row,
    Stored,
    StoredClicks,
    StoreError,
    StoreUnavailable,
    Void,
    log,
)

IDLE = 1.0  # seconds
Tallies = Counter[tuple[int, str]]  # by version and name


@dataclass(slots=True)
class Item:
    """A row in the queue, and its future."""

    row: Row
    done: Stored = field(default_factory=Stored)


Transaction = Callable[[list[Item], Tallies, Callable[[], None]], None]


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
        self._queue: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._queue_size, self.waiting = queue_size, 0
        self._lock = threading.Lock()
        self._tally: Tallies = Counter()
        self.closed = False
        self._ended = False  # of the writing thread: whether all has been taken that ever will be put in
        self._thread = threading.Thread(target=self._write_forever, name="ranktrial-writer", daemon=True)
        self._thread.start()

    def put(self, row: Row) -> Stored:
        size, item = _size(row), Item(row)
        with self._lock:
            if self.closed:
                raise StoreError(f"{self._place} is closed")
            # Taking something back must always be possible.
            if self.waiting and self.waiting + size > self._queue_size and not isinstance(row, Void):
                raise Overloaded(f"{self.waiting} rows wait to be written to {self._place}")
            self.waiting += size
            self._queue.put(item)
        return item.done

    def tally(self, version: int, name: str, count: int, soon: bool) -> None:
        with self._lock:
            self._tally[version, name] += count
        if not soon:
            return
        with contextlib.suppress(StoreError):
            if self._queue.empty():  # otherwise the next commit takes it along
                self.put(Nothing())

    def tallied(self, version: int) -> Counter[str]:
        """Counters of a version that are not written yet."""
        with self._lock:
            return Counter({name: count for (of, name), count in self._tally.items() if of == version})

    def close(self) -> None:
        with self._lock:
            if not self.closed:
                self.closed = True
                self._queue.put(None)
        self._thread.join()

    def _write_forever(self) -> None:
        while not self._ended:
            items: list[Item] = []
            self._take(items, self._next_item())
            self._take_all(items)
            try:
                self._commit(items)
            except Exception as problem:
                self._fail(items, problem)
        self._hang_up()

    def _take_all(self, items: list[Item]) -> None:
        """Add what waits in the queue."""
        with contextlib.suppress(queue.Empty):
            while not self._ended:
                self._take(items, self._queue.get_nowait())

    def _take(self, items: list[Item], item: Item | None) -> None:
        """Add an item that has come from the queue, unless it was taken back, or is the end of all."""
        if item is None:
            self._ended = True
            return
        with self._lock:
            self.waiting -= _size(item.row)
        if item.done.start():
            items.append(item)

    def _next_item(self) -> Item | None:
        while True:
            try:
                return self._queue.get(timeout=IDLE)
            except queue.Empty:
                try:
                    self._look_after()
                except Exception:  # this thread must go on
                    log.exception("a store could not be looked after")

    def _take_more(self, items: list[Item], tallied: Tallies) -> None:
        """Add what waits in the queue, and then what has been counted: a tally that belongs to a row comes before it."""
        self._take_all(items)
        with self._lock:
            more, self._tally = self._tally, Counter()
        tallied.update(more)

    def _commit(self, items: list[Item]) -> None:
        with self._lock:
            tallied, self._tally = self._tally, Counter()
        try:
            self._write(items, tallied, partial(self._take_more, items, tallied))
        except Exception as problem:
            with self._lock:
                self._tally.update(tallied)
            if len(items) < 2 or isinstance(problem, StoreUnavailable):
                raise
            for item in items:  # one bad row must not take the others with it
                try:
                    self._write([item], Counter(), _no_more)
                except Exception as own:
                    self._fail([item], own)

    def _write(self, items: list[Item], tallied: Tallies, take_more: Callable[[], None]) -> None:
        self._transaction(items, tallied, take_more)
        Stored.finish_all(item.done for item in items)

    def _fail(self, items: Iterable[Item], problem: Exception) -> None:
        for item in items:
            if not isinstance(item.row, Nothing | Marked):  # marks are no part of the log
                with self._lock:
                    self._tally[item.row.version, "failed writes"] += 1
            item.done.finish(problem)


def _no_more() -> None:
    """Adds no rows."""


def _size(row: Row) -> int:
    return len(row.clicks) if isinstance(row, StoredClicks) else 1
