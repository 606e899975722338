"""What does every request pass through? One layer around the application: it refuses what is too much, counts, and logs.

Plain ASGI, because it is on the path of every request.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ranktrial.live.service import problems
from ranktrial.live.service.metrics import Metrics

log = logging.getLogger("ranktrial.service")
METHODS = ("GET", "HEAD", "POST", "PUT")  # a request may make up others
GONE = 499  # of a client that did not wait for the answer
PROBES = ("/healthz", "/readyz", "/metrics")  # answered however many requests there are: how else to see that


class Border:
    """Around the application.

    Args:
        metrics: Where answers are counted.
        in_flight: Requests that are worked on at once.
        hosts: Names that a request may call this machine by, any if None. Without keys these are the loopback's own, so that
            a web page cannot reach the service through a name that it points here.
        log_all: One line per request, not only for faults.
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, in_flight: int, hosts: Collection[str] | None, log_all: bool
    ) -> None:
        self._app, self._metrics, self._limit, self._hosts, self._log_all = app, metrics, in_flight, hosts, log_all
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        start, status = time.perf_counter(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._in_flight += 1
        self._metrics.in_flight.set(self._in_flight)
        try:
            refusal = self._refusal(scope)
            if refusal is None:
                await self._app(scope, receive, watched)
            else:
                await problems.response(refusal)(scope, receive, watched)
        except ClientDisconnect:
            status = status or GONE
        except Exception:
            log.exception("fault", extra={"path": scope["path"]})
            if not status:
                await problems.response(problems.Refusal(500, "a fault of the service; its log says more"))(
                    scope, receive, watched
                )
        finally:
            self._in_flight -= 1
            self._metrics.in_flight.set(self._in_flight)
            self._record(scope, status, time.perf_counter() - start)
        return None

    def _refusal(self, scope: Scope) -> problems.Refusal | None:
        if self._in_flight > self._limit and scope["path"] not in PROBES:
            return problems.overloaded(f"more than {self._limit} requests at once")
        if self._hosts is not None:
            headers = dict(scope["headers"])
            host = headers.get(b"host", b"").decode("latin-1")
            origin = headers.get(b"origin", b"").decode("latin-1")
            if _name(host) not in self._hosts:
                return problems.Refusal(
                    403, f"the request is for {host!r}; without API keys only this machine is served"
                )
            if origin and origin.partition("://")[2] != host:
                return problems.Refusal(403, f"the request comes from a page of {origin!r}")
        return None

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if route != "other" and scope["method"] in METHODS else "any"
        self._metrics.answered(method, route, status, seconds)
        if self._log_all or status >= 500:
            level = logging.ERROR if status >= 500 else logging.INFO
            fields = {"method": scope["method"], "path": scope["path"], "status": status}
            log.log(level, "answered", extra={**fields, "milliseconds": round(seconds * 1e3, 3)})


def _name(host: str) -> str:
    """Without the port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, event, and what belongs to it."""

    STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in self.STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
