"""HTTP/1.1 over connections that are kept, with one deadline for each request, however slowly an answer trickles in."""

from __future__ import annotations

import io
import socket
import ssl
import time
from collections import deque
from http.client import HTTPResponse
from typing import NamedTuple
from urllib.parse import urlsplit

IDLE = 4.0  # seconds that a connection is kept for: servers close theirs after five
KEPT = 32  # connections


class HttpResponse(NamedTuple):
    """Status, body, and the seconds after which the server wants to be asked again (0 if it does not say)."""

    status: int
    content: bytes
    retry_after: float


class Endpoint:
    """A server that is asked again and again, from any thread.

    Args:
        url: ``http://host:port`` or ``https://host``, with or without a path that all requests begin with.
        headers: Of every request.
        context: For https; what the system trusts by default.
    """

    def __init__(self, url: str, headers: dict[str, str], context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"url is {url!r}, must be the service's, such as http://127.0.0.1:8000")
        self._address = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        self._context = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._path = parts.path.rstrip("/")
        named = {"Host": parts.netloc.rpartition("@")[2], **headers}
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        if self._headers.count("\n") != len(named) or not self._headers.isascii():
            raise ValueError("url and key must be ASCII text of one line")
        self._idle: deque[tuple[_Connection, float]] = deque(maxlen=KEPT)

    def post(self, path: str, content: bytes, timeout: float) -> HttpResponse:
        """Send a body and give the answer; raises OSError (TimeoutError among them) or HTTPException where there is none.

        A connection that the server closed meanwhile is replaced by a new one, once.
        """
        until = time.monotonic() + timeout
        head = f"POST {self._path}{path} HTTP/1.1\r\n{self._headers}Content-Length: {len(content)}\r\n\r\n"
        request = head.encode("ascii") + content
        kept = self._kept()
        if kept is not None:
            try:
                return self._exchange(kept, request, until)
            except ConnectionError:
                pass
        return self._exchange(_Connection(self._address, self._context, until), request, until)

    def _exchange(self, connection: _Connection, request: bytes, until: float) -> HttpResponse:
        try:
            response, content = connection.exchange(request, until)
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._idle.append((connection, time.monotonic()))
        seconds = response.headers.get("Retry-After", "")
        return HttpResponse(response.status, content, float(seconds) if seconds.isdecimal() else 0.0)

    def _kept(self) -> _Connection | None:
        while self._idle:
            try:
                connection, since = self._idle.pop()
            except IndexError:  # another thread was faster
                return None
            if time.monotonic() - since < IDLE:
                return connection
            connection.close()
        return None

    def close(self) -> None:
        """Close the connections that are kept."""
        while self._idle:
            self._idle.pop()[0].close()


class _Connection:
    """A connection; every wait of an exchange ends at its deadline."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext | None, until: float) -> None:
        self._until = until
        self._socket: socket.socket = socket.create_connection(address, self.left())
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self._socket.settimeout(self.left())
            self._socket = context.wrap_socket(self._socket, server_hostname=address[0])

    def left(self) -> float:
        """Seconds until the deadline."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def exchange(self, request: bytes, until: float) -> tuple[HTTPResponse, bytes]:
        self._until = until
        self._socket.settimeout(self.left())
        self._socket.sendall(request)
        response = HTTPResponse(self, method="POST")  # type: ignore[arg-type]  # which asks for a file, and no more
        response.begin()
        return response, response.read()

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))

    def receive(self, buffer: memoryview) -> int:
        self._socket.settimeout(self.left())
        return self._socket.recv_into(buffer)

    def close(self) -> None:
        self._socket.close()


class _Reader(io.RawIOBase):
    """Readable file over the bytes that a connection receives."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._connection.receive(buffer)
