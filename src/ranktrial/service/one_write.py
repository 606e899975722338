"""Answers in one piece: uvicorn writes headers and body apart, which is two calls of the system and two packets an answer."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


class GatheringTransport:
    """A transport that gathers what is written until it is flushed, or until the event loop has its next turn."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._loop = transport, asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._turn: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        if data:
            self._parts.append(data)
            if self._turn is None:
                self._turn = self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what has been gathered."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
            parts, self._parts = self._parts, []
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class OneWriteProtocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
    """uvicorn's protocol of HTTP, with answers that are written when they are complete."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(GatheringTransport(transport))

    def on_response_complete(self) -> None:
        self.transport.flush()
        super().on_response_complete()
