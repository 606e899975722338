"""Load shedding: more requests at once than can be worked on are refused, so that the others are answered in time."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from ranktrial.live.service.limits import BEACON
from ranktrial.live.service.problems import overloaded, response

PROBES = ("/healthz", "/readyz", "/metrics")  # answered however many requests there are: how else to see that


class LoadSheddingMiddleware:
    """Answers 429 to all but probes while too many requests are under way; ``rank``, which visitors wait for, is refused last.

    Args:
        in_flight: Requests that are worked on at once.
        kept_for_rank: Of these, how many only ``rank`` may take.
        beacons: Of the others, how many may be those that pages send, which need no key.
    """

    def __init__(self, app: ASGIApp, in_flight: int, kept_for_rank: int = 0, beacons: int = 0) -> None:
        self._app = app
        self._limits = {"rank": in_flight, "others": max(in_flight - kept_for_rank, 0), "beacons": beacons}
        self._under_way = dict.fromkeys(self._limits, 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            return await self._app(scope, receive, send)
        lanes = _lanes(scope["path"])
        for lane in lanes:
            self._under_way[lane] += 1
        try:
            for lane in lanes:
                if self._under_way[lane] > self._limits[lane]:
                    refusal = overloaded(f"more than {self._limits[lane]} requests at once")
                    return await response(refusal)(scope, receive, send)
            return await self._app(scope, receive, send)
        finally:
            for lane in lanes:
                self._under_way[lane] -= 1


def _lanes(path: str) -> tuple[str, ...]:
    """Which limits a request counts for; every lane is a part of the one after it."""
    if path.endswith("/rank"):
        return ("rank",)
    return ("beacons", "others", "rank") if path == BEACON else ("others", "rank")
