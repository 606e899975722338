"""Trusted hosts: a request must call this machine by one of its names.

Otherwise a web page could reach a service on the loopback through a name of its own that it points here (DNS rebinding).
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from ranktrial.service.problems import Refusal, response


class TrustedHostMiddleware:
    """Answers 403 to a request with another ``Host`` than these, whatever the port."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app, self._hosts = app, frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
            if _without_port(host) not in self._hosts:
                refusal = Refusal(403, f"the request is for {host!r}; without API keys only this machine is served")
                return await response(refusal)(scope, receive, send)
        return await self._app(scope, receive, send)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
