"""One computation that many ask for on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


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
