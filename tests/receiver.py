"""A receiver of webhooks on the loopback: takes messages, checks their signature, and refuses as many as it is told to."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "a secret of receiver and trial"


class Receiver:
    """Requests in the order in which they came.

    Attributes:
        url: Where it listens.
        bodies: JSON of the messages that were taken.
        answers: Statuses to answer with before it takes anything.
        forged: Messages whose signature was not right.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.bodies: list[dict[str, Any]] = []
        self.answers: list[int] = []
        self.refused: list[dict[str, Any]] = []
        self.forged = 0

    def told(self) -> list[tuple[str, str]]:
        """Kinds and texts, each message once, in the order in which they came."""
        return list({one["id"]: (one["type"], one["text"]) for one in self.bodies}.values())

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.told()]

    def ids(self) -> list[str]:
        return [one["id"] for one in self.bodies]


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver in a thread."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            id, second = self.headers["webhook-id"], self.headers["webhook-timestamp"]
            mac = hmac.new(SECRET.encode(), f"{id}.{second}.".encode() + raw, hashlib.sha256).digest()
            body = json.loads(raw)
            right = self.headers["webhook-signature"] == f"v1,{base64.b64encode(mac).decode()}" and body["id"] == id
            found.forged += not right
            status = found.answers.pop(0) if found.answers else 200
            (found.bodies if status == 200 else found.refused).append(body)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Receiver(f"http://127.0.0.1:{server.server_port}/hook?team=search")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
