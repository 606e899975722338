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


class _Progress(IntEnum):
    WAITING, RUNNING, DONE = range(3)


class Stored:
    """A row that was put in, and the future of it: done when the row is on the disk, or could not be stored.

    Threads wait for its ``result``, event loops for ``on_disk``.

    Attributes:
        row: The row.
        again: True for an impression that may have been there before, perhaps another one: look before showing it.
        unwanted: True for a row that was to be taken back when it was being written: if that must be tried again, leave it.
    """

    __slots__ = ("_problem", "_stage", "_waiting", "again", "row", "unwanted")
    _lock = threading.Lock()  # one for all: held for a few instructions

    def __init__(self, row: Row = NOTHING) -> None:
        self.row = row
        self.again = self.unwanted = False
        self._stage = _Progress.WAITING
        self._problem: BaseException | None = None
        self._waiting: tuple[threading.Event | asyncio.Future[None], ...] = ()

    def done(self) -> bool:
        """True if the row is on the disk, could not be stored, or was taken back."""
        return self._stage is _Progress.DONE

    def running(self) -> bool:
        """True if the row is being written, so that it cannot be taken back."""
        return self._stage is _Progress.RUNNING

    @property
    def failed(self) -> bool:
        """True if the row could not be stored, or was taken back."""
        return self._problem is not None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait until done and return the error, None if there is none; raise TimeoutError if that takes too long."""
        done = threading.Event()
        if self._is_waited_for(done) and not done.wait(timeout):
            raise TimeoutError
        return self._problem

    def result(self, timeout: float | None = None) -> None:
        """Wait until done and raise the error if there is one; CancelledError if the row was taken back."""
        problem = self.exception(timeout)
        if problem is not None:
            raise problem

    async def on_disk(self, timeout: float) -> None:
        """Wait as ``result`` does, on an event loop. Giving up leaves the row in the queue: a retry may wait for it too."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        if self._is_waited_for(waiter):
            timer = loop.call_later(timeout, _settle, (waiter,))
            try:
                with spans.note("store write"):
                    await waiter
            finally:
                timer.cancel()
        if self._stage is not _Progress.DONE:
            raise TimeoutError
        if self._problem is not None:
            raise self._problem

    def cancel(self) -> bool:
        """Take the row back; False if it is too late for that."""
        with self._lock:
            self.unwanted = self._stage is not _Progress.WAITING
            if self.unwanted:
                return False
            self._problem, self._stage = CancelledError(), _Progress.DONE
        _wake((self,))
        return True

    @staticmethod
    def start_all(rows: Iterable[Stored]) -> list[Stored]:
        """Note that rows are being written; returns those that were not taken back."""
        with Stored._lock:
            waiting = [row for row in rows if row._stage is _Progress.WAITING]
            for row in waiting:
                row._stage = _Progress.RUNNING
        return waiting

    @staticmethod
    def finish_all(rows: Sequence[Stored], problem: BaseException | None = None) -> None:
        """Note that rows which were being written are on the disk, or why they could not be stored."""
        with Stored._lock:
            for row in rows:
                if row._stage is _Progress.RUNNING:
                    row._problem, row._stage = problem, _Progress.DONE
        _wake(rows)

    def _is_waited_for(self, waiter: threading.Event | asyncio.Future[None]) -> bool:
        """Have somebody woken when it is done; False if it is."""
        with self._lock:
            waits = self._stage is not _Progress.DONE
            if waits:
                self._waiting += (waiter,)
        return waits


def _wake(rows: Iterable[Stored]) -> None:
    """Wake all who wait for rows that are done.

    An event loop is woken once for all of them, at the end: it takes the interpreter from this thread, which would have to wait
    for it again after every row.
    """
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


def _already() -> Stored:
    stored = Stored()
    Stored.finish_all(Stored.start_all((stored,)))
    return stored


DONE = _already()  # for what needs no row
