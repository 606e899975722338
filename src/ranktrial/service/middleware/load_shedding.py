"""Load shedding: more requests at once than can be worked on are refused, so that the others are answered in time."""

from __future__ import annotations

import asyncio
import time

from starlette.types import ASGIApp, Receive, Scope, Send

from ranktrial.service.middleware.routing import Purpose
from ranktrial.service.problems import response, try_again

# Which limits a request counts for; every lane is a part of the one after it. Probes are answered however many other requests
# there are: how else to see that.
A_SECOND = 50  # of each kind, of all who ask: more than any monitoring, and any wrong link, needs
COUNTED = {
    Purpose.PROBE: "questions a second how the service is",
    Purpose.NOTHING: "requests a second for what is not there",
}
# Seconds that whoever asks beyond that waits for the refusal: at once it would cost as much as the answer.
HELD_BACK = 1.0
LANES = {
    Purpose.RANK: ("rank",),
    Purpose.BEACON: ("beacons", "others", "rank"),
    Purpose.PROBE: ("probes",),
    Purpose.OTHER: ("others", "rank"),
    Purpose.NOTHING: ("others", "rank"),
}


class LoadSheddingMiddleware:
    """Answers 429 while too many requests are under way; ``rank``, which visitors wait for, is refused last.

    Args:
        in_flight: Requests that are worked on at once.
        kept_for_rank: Of these, how many only ``rank`` may take.
        beacons: Of the others, how many may be those that pages send, which need no key.
        probes: Beside all of these, questions how the service is.
    """

    def __init__(self, app: ASGIApp, in_flight: int, kept_for_rank: int = 0, beacons: int = 0, probes: int = 0) -> None:
        self._app = app
        others = max(in_flight - kept_for_rank, 0)
        self._limits = {"rank": in_flight, "others": others, "beacons": beacons, "probes": probes}
        self._under_way = dict.fromkeys(self._limits, 0)
        self._second, self._come = 0, dict.fromkeys(COUNTED, 0)  # of the clock, and how many came in it

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        purpose: Purpose = scope["asked"].purpose
        if purpose in COUNTED and self._too_often(purpose):
            await asyncio.sleep(HELD_BACK)
            return await response(try_again(429, f"more than {A_SECOND} {COUNTED[purpose]}"))(scope, receive, send)
        lanes = LANES[purpose]
        for lane in lanes:
            self._under_way[lane] += 1
        try:
            for lane in lanes:
                if self._under_way[lane] > self._limits[lane]:
                    refusal = try_again(429, f"more than {self._limits[lane]} requests at once")
                    return await response(refusal)(scope, receive, send)
            return await self._app(scope, receive, send)
        finally:
            for lane in lanes:
                self._under_way[lane] -= 1

    def _too_often(self, purpose: Purpose) -> bool:
        """Count a request of a purpose, and say whether there were too many in this second."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._come = second, dict.fromkeys(COUNTED, 0)
        self._come[purpose] += 1
        return self._come[purpose] > A_SECOND
