"""Server errors: what nobody else caught is logged, and answered with a problem document."""

from __future__ import annotations

import logging

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ranktrial.service.middleware.status import StatusSend
from ranktrial.service.problems import Refusal, response
from ranktrial.texts import shown

log = logging.getLogger("ranktrial.service")
CLIENT_CLOSED_REQUEST = 499  # as nginx has it; nobody reads the answer but metrics and log


class ServerErrorMiddleware:
    """Answers 500 where the application fails. A client that did not wait for its answer is no fault."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        noted = StatusSend.of(send)
        try:
            return await self._app(scope, receive, noted)
        except ClientDisconnect:
            answer = Response(status_code=CLIENT_CLOSED_REQUEST)
        except Exception:
            log.exception("fault", extra={"path": shown(scope["path"], 200)})
            answer = response(Refusal(500, "a fault of the service; its log says more"))
        if not noted.status:
            await answer(scope, receive, send)
        return None
