"""Load shedding: more requests at once than can be worked on are refused, so that the others are answered in time."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from ranktrial.live.service.problems import overloaded, response

PROBES = ("/healthz", "/readyz", "/metrics")  # answered however many requests there are: how else to see that


class LoadSheddingMiddleware:
    """Answers 429 to all but probes while too many requests are under way.

    Args:
        in_flight: Requests that are worked on at once.
    """

    def __init__(self, app: ASGIApp, in_flight: int) -> None:
        self._app, self._limit, self._in_flight = app, in_flight, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        self._in_flight += 1
        try:
            if self._in_flight > self._limit and scope["path"] not in PROBES:
                refusal = overloaded(f"more than {self._limit} requests at once")
                return await response(refusal)(scope, receive, send)
            return await self._app(scope, receive, send)
        finally:
            self._in_flight -= 1
