"""Same-origin check: a browser may send requests for pages of this service, and for no other site's."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from ranktrial.service.middleware.routing import Purpose
from ranktrial.service.problems import Refusal, response


class SameOriginMiddleware:
    """Answers 403 to a request that has an ``Origin`` other than the ``Host`` it is for; beacons have rules of their own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["asked"].purpose is not Purpose.BEACON and (origin := foreign(scope)):
            refusal = Refusal(403, f"the request comes from a page of {origin!r}")
            return await response(refusal)(scope, receive, send)
        return await self._app(scope, receive, send)


def foreign(scope: Scope) -> str | None:
    """The site whose page a browser asks for, where it is not the one that the request is for."""
    headers = dict(scope["headers"])
    origin: bytes = headers.get(b"origin", b"")
    return origin.decode("latin-1") if origin and origin.partition(b"://")[2] != headers.get(b"host", b"") else None
