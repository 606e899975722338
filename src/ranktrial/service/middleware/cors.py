"""Cross-origin requests (CORS), a guard of beacons: pages of the sites that are named may send them, and nothing else."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ranktrial.service.problems import Refusal, response

VARIES = {"Vary": "Origin"}
PREFLIGHT = {
    "Access-Control-Allow-Methods": "POST",
    "Access-Control-Allow-Headers": "Content-Type",
    "Access-Control-Max-Age": "86400",  # seconds for which a browser need not ask again
}
DEFAULT_PORTS = {"http": 80, "https": 443}


def checked_origin(text: str) -> str:
    """An origin as browsers send it, ``https://shop.example``; anything else is refused with what would be right.

    >>> checked_origin("HTTPS://Shop.example:443/")
    'https://shop.example'
    """
    wrong = f"origin {text!r} must be a scheme, a host and at most a port, such as https://shop.example"
    if "*" in text or text == "null":
        raise ValueError(f"{wrong}: every site has to be named")
    if not text.isascii():
        raise ValueError(f"{wrong}: browsers send the name in ASCII (xn--...)")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as problem:
        raise ValueError(f"{wrong}: {problem}") from problem
    host = parts.hostname
    if parts.scheme not in DEFAULT_PORTS or not host or any(mark in host for mark in " ,;%"):
        raise ValueError(wrong)
    if parts.path not in ("", "/") or "?" in text or "#" in text or "@" in parts.netloc:
        raise ValueError(f"{wrong}: no path, no name of a user")
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}" + ("" if port in (None, DEFAULT_PORTS[parts.scheme]) else f":{port}")


class CORSMiddleware:
    """Answers preflights of beacons, and lets pages of these origins read the answers; 403 to all others there.

    Cookies and other credentials are never allowed. A request without an ``Origin`` comes from no page, and is refused too.

    Args:
        origins: As ``checked_origin`` gives them.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app, self._origins = app, frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = dict(scope["headers"]).get(b"origin", b"").decode("latin-1")
        if origin not in self._origins:
            said = f"a page of {origin!r}" if origin else "no page (it has no Origin)"
            refusal = Refusal(
                403, f"the request comes from {said}; `--origin` names the sites that may", headers=VARIES
            )
            return await response(refusal)(scope, receive, send)
        allowed = {**VARIES, "Access-Control-Allow-Origin": origin}
        if scope["method"] == "OPTIONS":
            return await Response(status_code=204, headers={**allowed, **PREFLIGHT})(scope, receive, send)

        async def send_allowed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update({**allowed, "Access-Control-Expose-Headers": "Retry-After"})
            await send(message)

        return await self._app(scope, receive, send_allowed)
