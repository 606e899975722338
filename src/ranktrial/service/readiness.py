"""Readiness: whether the store takes rows, tried by a commit at most once a second, whoever asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ranktrial.store.base import Probe
from ranktrial.store.protocols import Store

PROBE_EVERY = 1.0  # seconds from one commit to the next
LONGEST = 1.0  # seconds that a commit may take


class Readiness:
    """The last attempt to store something, shared by all who ask; anybody may, so it must cost nothing.

    Args:
        store: What must take rows.
        clock: Seconds.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._tried_at = 0.0
        self._attempt: asyncio.Task[str | None] | None = None

    async def problem(self) -> str | None:
        """Reason why the store takes no rows; None if it does."""
        attempt = self._attempt
        if attempt is None or (attempt.done() and self._clock() - self._tried_at >= PROBE_EVERY):
            self._tried_at = self._clock()
            attempt = self._attempt = asyncio.create_task(self._try())
        return attempt.result() if attempt.done() else await asyncio.shield(attempt)

    async def _try(self) -> str | None:
        stored = None
        try:
            stored = self._store.put(Probe())
            await stored.on_disk(LONGEST)
        except TimeoutError:
            if stored is not None:
                stored.cancel()
            return f"no commit within {LONGEST:g} s"
        except Exception as problem:
            return str(problem) or type(problem).__name__
        return None
