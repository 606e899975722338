"""Waiting on the event loop for other threads: for a commit, and for one computation that many ask for."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from ranktrial.store.base import Stored
from ranktrial.trial.drawing import Shown, Steps

T = TypeVar("T")


async def wait_on_loop(steps: Steps, timeout: float) -> Shown:
    """Take the steps of a draw, waiting on the event loop for at most so many seconds at each."""
    try:
        stored = next(steps)
        while True:
            try:
                await on_disk(stored, timeout)
            except Exception as fault:
                stored = steps.throw(fault)
            else:
                stored = next(steps)
    except StopIteration as end:
        shown: Shown = end.value
        return shown


async def on_disk(future: Stored, timeout: float) -> None:
    """Wait until a row is on the disk; raises TimeoutError, or what it failed with.

    Not ``asyncio.wrap_future``: giving up on that cancels the row, also for a retry that waits for the same one.
    """
    if not future.done():
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(timeout, _settle, waiter)
        future.add_done_callback(partial(_waker(loop).note, waiter))
        try:
            await waiter
        finally:
            timer.cancel()
    future.result(0)


class Waker:
    """Wakes those who wait on an event loop for rows that another thread writes: all rows of a commit at once.

    To wake the loop lets it take the interpreter from the thread that writes, which would wait for it again for every row.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._done: deque[asyncio.Future[None]] = deque()

    def note(self, waiter: asyncio.Future[None], _: Stored) -> Callable[[], None]:
        """Callback of a row: its waiter is to be woken, by the function that is returned."""
        self._done.append(waiter)
        return self.wake

    def wake(self) -> None:
        """Wake all whose rows are done."""
        if (loop := self._loop()) is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._settle_all)

    def _settle_all(self) -> None:
        while self._done:
            _settle(self._done.popleft())


_wakers: WeakKeyDictionary[asyncio.AbstractEventLoop, Waker] = WeakKeyDictionary()


def _waker(loop: asyncio.AbstractEventLoop) -> Waker:
    """The waker of a loop."""
    known = _wakers.get(loop)
    if known is None:
        known = _wakers[loop] = Waker(loop)
    return known


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Shared(Generic[T]):
    """A long computation, one at a time.

    Whoever asks while one is under way shares the next with all who ask meanwhile: it sees all that was stored before.
    """

    def __init__(self, compute: Callable[[], Awaitable[T]]) -> None:
        self._compute = compute
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """The result of a computation that begins after this call."""
        if self._next is None:
            self._next = asyncio.create_task(self._run())
        return await asyncio.shield(self._next)

    async def _run(self) -> T:
        async with self._one_at_a_time:
            self._next = None
            return await self._compute()
