"""Answers reach the system in one piece, however many pieces they are made of."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from ranktrial.service.one_write import GatheringTransport, OneWriteProtocol


class Written:
    """A transport that notes what is written."""

    def __init__(self) -> None:
        self.seen: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.seen.append(data)

    def close(self) -> None:
        self.seen.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.seen

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("127.0.0.1", 1) if name == "peername" else None


def gathered(*steps: Any) -> list[bytes | str]:
    """Writes that reach a transport, of what is written, closed or waited for (None)."""
    written = Written()

    async def run() -> None:
        transport = GatheringTransport(cast(asyncio.Transport, written))
        for step in steps:
            if isinstance(step, bytes):
                transport.write(step)
            elif step is None:
                await asyncio.sleep(0)
            else:
                step(transport)
        assert transport.get_extra_info("peername") == ("127.0.0.1", 1)

    asyncio.run(run())
    return written.seen


def test_what_is_written_is_gathered_until_it_is_flushed() -> None:
    flush, close = GatheringTransport.flush, GatheringTransport.close
    assert gathered(b"head", b"body", b"", flush, flush) == [b"headbody"]
    assert gathered(b"head", b"body", close) == [b"headbody", "closed"]
    assert gathered(b"one", flush, b"two", flush, None) == [b"one", b"two"]


def test_what_nobody_flushes_is_written_at_the_next_turn() -> None:
    assert gathered(b"head", b"first", None, b"second", None, None) == [b"headfirst", b"second"]
    assert gathered(b"", None) == []


def test_an_answer_is_written_once_when_it_is_complete() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("hello")(scope, receive, send)

    async def run() -> list[bytes | str]:
        written, config = Written(), uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
        protocol = OneWriteProtocol(config, ServerState(), {})
        protocol.connection_made(cast(asyncio.Transport, written))
        for _ in range(2):
            protocol.data_received(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            while protocol.tasks:
                await asyncio.sleep(0)
        protocol.timeout_keep_alive_task.cancel()
        return written.seen

    answers = asyncio.run(run())
    assert len(answers) == 2
    for answer in answers:
        assert isinstance(answer, bytes)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\nhello")
