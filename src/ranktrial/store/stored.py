"""Rows on their way to the disk, each with the answer of the store to whoever put it in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from enum import IntEnum

from ranktrial import spans
from ranktrial.store.base import Nothing, Row

NOTHING = Nothing()


class Phase(IntEnum):
    """Stage of a row on its way to the disk."""

    WAITING, RUNNING, DONE = range(3)


class Stored:
    """A row that was put in, and the future of it: done when the row is on the disk, or could not be stored.

    Threads wait for its ``result``, event loops for ``on_disk``.

    Attributes:
        row: The row.
        stage: RUNNING while it is being written, so that it cannot be taken back.
        again: True for an impression that may have been there before, perhaps another one: look before showing it.
        unwanted: True for a row that was to be taken back when it was being written: if that must be tried again, leave it.
    """

    __slots__ = ("_problem", "_waiting", "again", "row", "stage", "unwanted")
    lock = threading.Lock()  # of all stages: held for a few instructions

    def __init__(self, row: Row = NOTHING) -> None:
        self.row = row
        self.again = self.unwanted = False
        self.stage = Phase.WAITING
        self._problem: BaseException | None = None
        self._waiting: tuple[threading.Event | asyncio.Future[None], ...] = ()

    def done(self) -> bool:
        """True if the row is on the disk, could not be stored, or was taken back."""
        return self.stage is Phase.DONE

    @property
    def failed(self) -> bool:
        """True if the row could not be stored, or was taken back."""
        return self._problem is not None

    def result(self, timeout: float | None = None) -> None:
        """Wait until done and raise the error if there is one; CancelledError if the row was taken back."""
        done = threading.Event()
        with self.lock:
            waits = self.stage is not Phase.DONE
            if waits:
                self._waiting += (done,)
        if waits and not done.wait(timeout):
            raise TimeoutError
        if self._problem is not None:
            raise self._problem

    async def on_disk(self, timeout: float) -> None:
        """Wait as ``result`` does, on an event loop. Giving up leaves the row in the queue: a retry may wait for it too."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        with self.lock:
            waits = self.stage is not Phase.DONE
            if waits:
                self._waiting += (waiter,)
        if waits:
            timer = loop.call_later(timeout, _settle, (waiter,))
            try:
                with spans.note("store write"):
                    await waiter
            finally:
                timer.cancel()
        if self.stage is not Phase.DONE:
            raise TimeoutError
        if self._problem is not None:
            raise self._problem

    def cancel(self) -> bool:
        """Take the row back; False if it is too late for that."""
        with self.lock:
            self.unwanted = self.stage is not Phase.WAITING
            if self.unwanted:
                return False
            # Whoever writes takes only rows that wait; whoever takes it back too sees that it is.
            self.stage, self._problem = Phase.RUNNING, CancelledError()
        Stored.finish_all((self,), self._problem)
        return True

    @staticmethod
    def finish_all(rows: Sequence[Stored], problem: BaseException | None = None) -> None:
        """Note that rows which were being written are on the disk, or why they could not be stored, and wake who waits.

        An event loop is woken once for all of them, at the end: it takes the interpreter from this thread, which would have
        to wait for it again after every row.
        """
        with Stored.lock:
            rows = [row for row in rows if row.stage is Phase.RUNNING]
            for row in rows:
                row._problem, row.stage = problem, Phase.DONE
        asleep: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        for row in rows:
            for waiter in row._waiting:
                if isinstance(waiter, threading.Event):
                    waiter.set()
                else:
                    asleep.setdefault(waiter.get_loop(), []).append(waiter)
        for loop, waiters in asleep.items():
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, waiters)


def _settle(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


DONE = Stored()  # for what needs no row
DONE.stage = Phase.DONE
