"""Compilation beside the service, in processes of its own: requests are answered meanwhile, with A's lists."""

from __future__ import annotations

import asyncio
import logging
import sys
import time

from ranktrial.trial.drawing import warm_up
from ranktrial.trial.warming import PARTS

COMMAND = (sys.executable, "-m", "ranktrial.trial.warming")
log = logging.getLogger("ranktrial.service")


async def compile_beside() -> None:
    """Compile into the cache what ``rank`` needs, load it, then compile what reports need."""
    start = time.perf_counter()
    log.warning("compiling", extra={"until_then": "A's lists are shown", "to_avoid": "run `ranktrial warm` beforehand"})
    for part in PARTS:
        child = await asyncio.create_subprocess_exec(*COMMAND, part)
        try:
            status = await child.wait()
        except BaseException:
            child.kill()
            await child.wait()
            raise
        if status:
            log.error("compiling failed", extra={"part": part, "status": status})
        if part == "drawing":
            await asyncio.to_thread(warm_up)  # from the cache; here, if there is none
        log.info("compiled", extra={"part": part, "seconds": round(time.perf_counter() - start, 1)})
