"""Waiting on the event loop for other threads: for a commit, and for one computation that many ask for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ranktrial.live.drawing import Shown, Steps
from ranktrial.live.stores.base import Stored

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

        def wake(_: Stored) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, waiter)

        timer = loop.call_later(timeout, _settle, waiter)
        future.add_done_callback(wake)
        try:
            await waiter
        finally:
            timer.cancel()
    future.result(0)


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
