"""Servers that misbehave, on the loopback, one connection after the other in a thread."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def tcp_server(handle: Callable[[socket.socket], None]) -> Iterator[str]:
    """An address whose connections are handed over, each to a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=guarded, args=(connection,), daemon=True).start()

        def guarded(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                handle(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def read_request(connection: socket.socket) -> tuple[str, bytes]:
    """The head and the body of a request; an empty head where the other side is gone."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        part = connection.recv(65536)
        if not part:
            return "", b""
        raw += part
    head, _, body = raw.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head.decode(), body


def answer(status: int, content: object, *headers: str) -> bytes:
    body = json.dumps(content).encode()
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
