"""Load shedding: more requests at once than can be worked on are refused, so that the others are answered in time."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from ranktrial.live.service.problems import overloaded, response

PROBES = ("/healthz", "/readyz", "/metrics")  # answered however many requests there are: how else to see that


class LoadSheddingMiddleware:
    """Answers 429 to all but probes while too many requests are under way; ``rank``, which visitors wait for, is refused last.

    Args:
        in_flight: Requests that are worked on at once.
        kept_for_rank: Of these, how many only ``rank`` may take.
    """

    def __init__(self, app: ASGIApp, in_flight: int, kept_for_rank: int = 0) -> None:
        self._app, self._limit, self._others_limit = app, in_flight, max(in_flight - kept_for_rank, 0)
        self._in_flight = self._others = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            return await self._app(scope, receive, send)
        other = not scope["path"].endswith("/rank")
        self._in_flight += 1
        self._others += other
        try:
            if self._in_flight > self._limit or (other and self._others > self._others_limit):
                limit = self._others_limit if other else self._limit
                return await response(overloaded(f"more than {limit} requests at once"))(scope, receive, send)
            return await self._app(scope, receive, send)
        finally:
            self._in_flight -= 1
            self._others -= other
