"""Clients that send half a request: they hold a place for a while, and never one of ``rank``'s."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from live_server import PATIENT, is_problem, rank, serving, start
from ranktrial.cli.serve import listen
from ranktrial.service import Limits
from ranktrial.service.api_keys import KeyFile
from ranktrial.service.silence import close_silent

MANY = 400  # more than the service works on at once
HEAD = "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"


@contextlib.contextmanager
def half_sent(
    client: httpx.Client, count: int, *, path: str = "/v1/events", key: str = ""
) -> Iterator[list[socket.socket]]:
    """Connections that have announced a body of 100 bytes and sent ten of them."""
    address = urlsplit(str(client.base_url))
    request = HEAD.format(path=path, key=key) + "Content-Length: 100\r\n\r\n" + '[{"id": "A'
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection((str(address.hostname), address.port or 0)))
            one.sendall(request.encode())
            made.append(one)
        yield made


def whole_answer(connection: socket.socket) -> bytes:
    """Bytes that come until the other side closes."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def in_flight(client: httpx.Client) -> float:
    lines = client.get("/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("ranktrial_requests_in_flight ")))


@pytest.mark.slow
def test_half_sent_bodies_do_not_take_the_place_of_rank(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    ingest, all_else = file.add("events", ["ingest"]), file.add("page", ["serve", "read", "admin"])
    limits = Limits(timeout=60, write_timeout=60, body_timeout=600)
    with serving(tmp_path / "t.db", keys=file, limits=limits) as client:
        client.headers["Authorization"] = f"Bearer {all_else}"
        start(client)
        with half_sent(client, MANY, key=ingest):
            places = limits.in_flight - limits.kept_for_rank
            while in_flight(client) < places + 1:  # and the one that asks
                pass
            for unit in range(20):
                assert rank(client, f"u{unit}")["fallback"] is None
            is_problem(client.get("/v1/trials/t/report"), 429, says=f"more than {places} requests")


def test_half_sent_bodies_are_given_up(tmp_path: Path) -> None:
    limits = Limits(timeout=60, write_timeout=60, body_timeout=0.2, in_flight=8, kept_for_rank=4)
    with serving(tmp_path / "t.db", limits=limits) as client:
        start(client)
        for path in ("/v1/events", "/v1/trials/t/rank", "/v1/trials/t/exclude"):
            with half_sent(client, 3, path=path) as slow:
                for connection in slow:
                    answer = whole_answer(connection)
                    assert answer.startswith(b"HTTP/1.1 408")
                    assert b"urn:ranktrial:problem:too-slow" in answer
                    assert b"did not arrive within 0.2 s" in answer
        assert rank(client, "u")["fallback"] is None
        assert in_flight(client) == 1


def test_a_body_in_pieces_is_a_body(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db", limits=PATIENT) as client:
        start(client)
        with half_sent(client, 1) as (slow,):
            slow.sendall(b'", "document": "x"}]'.ljust(90))
            while b'"not ours"' not in slow.recv(65536):
                pass


def test_connections_without_a_request_are_closed_and_others_are_not() -> None:
    """Silent from the start, silent after half of the headers, silent in the second request; one that goes on asking stays."""

    async def hello(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("hello")(scope, receive, send)

    async def run() -> None:
        config = uvicorn.Config(hello, log_config=None, lifespan="off", timeout_keep_alive=60)
        server = uvicorn.Server(config)
        listening = listen("127.0.0.1", 0)
        serving_it = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0)
        closing = asyncio.create_task(close_silent(server.server_state.connections, 2.0))
        address = listening.getsockname()
        silent = [await asyncio.open_connection(*address) for _ in range(3)]
        reader, writer = await asyncio.open_connection(*address)
        silent[1][1].write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Half: ")
        silent[2][1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT")
        ends = [asyncio.create_task(one.read()) for one, _ in silent]
        while not all(end.done() for end in ends):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"hello" in await reader.readuntil(b"hello")
        assert [end.result().count(b"hello") for end in ends] == [0, 0, 1]
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"hello" in await reader.readuntil(b"hello")
        closing.cancel()
        for _, one in (*silent, (reader, writer)):
            one.close()
        server.should_exit = True
        await serving_it

    asyncio.run(run())
