"""Access log: one line for every request, or only for those that end in a fault or change a trial."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Receive, Scope, Send

from ranktrial.service.middleware.status import StatusSend
from ranktrial.texts import shown

LONGEST = 200  # characters of a path
log = logging.getLogger("ranktrial.service")


class AccessLogMiddleware:
    """Logs method, path, status and time of requests, and the id of the API key that they came with.

    Args:
        log_all: Every request, not only what needs the scope ``admin`` and those with a status of 500 and above.
    """

    def __init__(self, app: ASGIApp, log_all: bool) -> None:
        self._app, self._log_all = app, log_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        start, noted = time.perf_counter(), StatusSend.of(send)
        try:
            return await self._app(scope, receive, noted)
        finally:
            state = scope.get("state", {})
            if self._log_all or noted.status >= 500 or state.get("audited"):
                level = logging.ERROR if noted.status >= 500 else logging.INFO
                milliseconds = round((time.perf_counter() - start) * 1e3, 3)
                fields = {"method": scope["method"], "path": shown(scope["path"], LONGEST), "status": noted.status}
                if key := state.get("key"):
                    fields["key"] = key.id
                log.log(level, "answered", extra={**fields, "milliseconds": milliseconds})
