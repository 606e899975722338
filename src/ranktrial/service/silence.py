"""Silent connections: those that send no request, or never the end of its headers, are closed: a process has only so many."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any


async def close_silent(connections: Collection[Any], seconds: float) -> None:
    """Close connections that have waited for so long for a request, again and again.

    Args:
        connections: Protocols of uvicorn: ``cycle`` is the last request that came, None before the first. Those that wait for
            another one after an answer uvicorn closes itself, unless that has begun to arrive.
        seconds: From the last answer, or from the beginning.
    """
    loop, known = asyncio.get_running_loop(), dict[Any, tuple[Any, float]]()
    while True:
        now, waiting = loop.time(), dict[Any, tuple[Any, float]]()
        for one in list(connections):
            if one.cycle is None or one.cycle.response_complete:
                last, since = known.get(one, (one.cycle, now))
                waiting[one] = (one.cycle, since if last is one.cycle else now)
                if now - waiting[one][1] >= seconds:
                    one.transport.close()
        known = waiting
        await asyncio.sleep(min(seconds / 4, 1.0))
