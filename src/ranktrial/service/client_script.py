"""Routes of the JavaScript client: its two files, for whoever has the service and no checkout."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.routing import Route

KINDS = {"ranktrial.js": "text/javascript", "ranktrial.d.ts": "text/plain"}
# Beside this file in an installed package, in its own folder in a checkout.
PLACES = (Path(__file__).parent, Path(__file__).parents[3] / "clients" / "js")


def read_client(name: str) -> str:
    """The text of a file of the client."""
    found = [place / name for place in PLACES if (place / name).is_file()]
    return found[0].read_text(encoding="utf-8")


def mount_client(app: FastAPI) -> None:
    """Add ``/ranktrial.js`` and its types. They hold no data, so they need no key."""

    def add(name: str, kind: str) -> None:
        content = read_client(name)
        headers = {
            "ETag": f'"{hashlib.sha256(content.encode()).hexdigest()[:16]}"',
            "X-Content-Type-Options": "nosniff",
        }

        def answer(request: Request) -> Response:
            if request.headers.get("if-none-match") == headers["ETag"]:
                return Response(status_code=304, headers=headers)
            return Response(content, media_type=kind, headers=headers)

        app.router.routes.append(Route(f"/{name}", answer, methods=["GET"], include_in_schema=False))

    for name, kind in KINDS.items():
        add(name, kind)
