"""Routes of files: the live page, which asks nobody but this service, and the JavaScript client."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.routing import Route

from ranktrial.report.live_page import read

KINDS = {"style.css": "text/css", "view.js": "text/javascript", "app.js": "text/javascript"}
CLIENT = {"ranktrial.js": "text/javascript", "ranktrial.d.ts": "text/plain"}
# Where the client is: beside this file in an installed package, in its own folder in a checkout.
PLACES = (Path(__file__).parent, Path(__file__).parents[3] / "clients" / "js")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
OF_PAGE = {"Cache-Control": "no-cache", "Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}


def mount_files(app: FastAPI) -> None:
    """Add the page at ``/``, its files below ``/page/``, and the client. They hold no data, so they need no key."""
    _mount(app, "/", read("index.html"), "text/html", OF_PAGE)
    for name, kind in KINDS.items():
        _mount(app, f"/page/{name}", read(name), kind, OF_PAGE)
    for name, kind in CLIENT.items():
        file = next(place / name for place in PLACES if (place / name).is_file())
        _mount(app, f"/{name}", file.read_text(encoding="utf-8"), kind, {})


def _mount(app: FastAPI, address: str, content: str, kind: str, more: dict[str, str]) -> None:
    tag = f'"{hashlib.sha256(content.encode()).hexdigest()[:16]}"'
    headers = {"ETag": tag, "X-Content-Type-Options": "nosniff", **more}

    def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    app.router.routes.append(Route(address, answer, methods=["GET"], include_in_schema=False))
