"""Routes of the live page: one HTML file, a style sheet and two scripts, which ask nobody but this service."""

from __future__ import annotations

import hashlib

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.routing import Route

from ranktrial.report.live_page import read

KINDS = {"style.css": "text/css", "view.js": "text/javascript", "app.js": "text/javascript"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def mount_page(app: FastAPI) -> None:
    """Add the page at ``/`` and its files below ``/page/``. They hold no data, so they need no key."""

    def add(address: str, name: str, kind: str) -> None:
        content = read(name)
        tag = f'"{hashlib.sha256(content.encode()).hexdigest()[:16]}"'
        headers = {
            "ETag": tag,
            "Cache-Control": "no-cache",
            "Content-Security-Policy": POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }

        def answer(request: Request) -> Response:
            if request.headers.get("if-none-match") == tag:
                return Response(status_code=304, headers=headers)
            return Response(content, media_type=kind, headers=headers)

        app.router.routes.append(Route(address, answer, methods=["GET"], include_in_schema=False))

    add("/", "index.html", "text/html")
    for name, kind in KINDS.items():
        add(f"/page/{name}", name, kind)
