"""Request metrics: answers counted and timed by route, and the requests that are under way."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Receive, Scope, Send

from ranktrial.service.metrics import Metrics
from ranktrial.service.middleware.status import StatusSend

METHODS = ("DELETE", "GET", "HEAD", "POST", "PUT")  # a request may make up others


class RequestMetricsMiddleware:
    """Counts and times every answer. What is no route, and methods that are made up, share one label each."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        start, noted = time.perf_counter(), StatusSend.of(send)
        self._metrics.in_flight.inc()
        try:
            return await self._app(scope, receive, noted)
        finally:
            self._metrics.in_flight.dec()
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if route != "other" and scope["method"] in METHODS else "any"
            self._metrics.answered(method, route, noted.status, time.perf_counter() - start)
