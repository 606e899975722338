"""Answers as they leave: every one is counted and timed by route, and those that matter are logged."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ranktrial.service.metrics import Metrics
from ranktrial.texts import shown

LONGEST = 200  # characters of a path
METHODS = ("DELETE", "GET", "HEAD", "POST", "PUT")  # a request may make up others
log = logging.getLogger("ranktrial.service")


class AnsweredMiddleware:
    """Notes status and time of every answer in metrics, and a line in the log for those that end in a fault or change a trial.

    What is no route, and methods that are made up, share one label each.

    Args:
        metrics: Where answers are counted.
        log_all: Log every request, not only what needs the scope ``admin`` and those with a status of 500 and above.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, log_all: bool = False) -> None:
        self._app, self._metrics, self._log_all = app, metrics, log_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        start, status = time.perf_counter(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._metrics.in_flight += 1
        try:
            return await self._app(scope, receive, noted)
        finally:
            seconds = time.perf_counter() - start
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if route != "other" and scope["method"] in METHODS else "any"
            self._metrics.in_flight -= 1
            self._metrics.requests(method, route, status).inc()
            self._metrics.seconds(route).observe(seconds)
            if self._log_all or status >= 500 or scope.get("state", {}).get("audited"):
                _log(scope, status, seconds)


def _log(scope: Scope, status: int, seconds: float) -> None:
    """Log method, path, status and time of a request, and the id of the API key that it came with."""
    fields = {"method": scope["method"], "path": shown(scope["path"], LONGEST), "status": status}
    if key := scope.get("state", {}).get("key"):
        fields["key"] = key.id
    level = logging.ERROR if status >= 500 else logging.INFO
    log.log(level, "answered", extra={**fields, "milliseconds": round(seconds * 1e3, 3)})
