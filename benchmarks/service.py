"""Speed of the HTTP service: a durable rank and a durable click, against a bare FastAPI endpoint that echoes the same JSON.

With a store in SQLite and in PostgreSQL (where a server is installed), with one instance and with two. Each server is a
process of its own, the load another one. Times are of the clock, since waiting for the disk is part of it: run this on an
idle machine. All take turns, so that what else the machine does falls on all, after a while of load that is not measured, in
which every query gets its design and files and tables their size. ``SERVICE_SECONDS`` sets how long each measurement takes in
all; ``SERVICE_BEFORE``, the src folders of other checkouts (separated as in ``PATH``), has these take turns too, on SQLite;
``SERVICE_INSTANCES`` is how many there are at most; ``SERVICE_STORES=SQLite`` leaves PostgreSQL out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._timing import row

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from postgres_server import Server, binaries

SECONDS, ROUNDS = float(os.environ.get("SERVICE_SECONDS", "15")), 5
CONNECTIONS = (1, 8, 32, 128)
INSTANCES = int(os.environ.get("SERVICE_INSTANCES", "2"))
BEFORE = [Path(src) for src in os.environ.get("SERVICE_BEFORE", "").split(os.pathsep) if src]
STORES = os.environ.get("SERVICE_STORES", "SQLite,PostgreSQL").split(",")
WARM_UP = 2.0  # seconds of load on each server before anything is measured
BATCH = 500
QUERIES = 200
NUMBERS = count()  # of visitors
FALLBACKS = Counter[str]()  # what was shown as A, because the disk took too long
LISTEN = """
import sys
from ranktrial.cli.serve import listen, run_server

listening = listen("127.0.0.1", 0)
print(listening.getsockname()[1], flush=True)
"""
ECHO = """
import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse

app = FastAPI()

@app.post("/echo")
async def echo(body: dict) -> JSONResponse:
    return JSONResponse(body)

@app.post("/echo-list")
async def echo_list(body: list[dict]) -> JSONResponse:
    return JSONResponse(body)

uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])
"""
SERVE = "run_server(sys.argv[1], listening, None, None, log_requests=False, query_units=10, drain=10)"


@contextlib.contextmanager
def server(code: str, *arguments: str, src: str | None = None) -> Iterator[int]:
    """Port of a service, while it runs; of the sources in another folder if one is given."""
    elsewhere = {} if src is None else {"PYTHONPATH": src, "NUMBA_CACHE_DIR": str(Path(src).parent / ".numba_cache")}
    process = subprocess.Popen(
        [sys.executable, "-c", LISTEN + code, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **elsewhere},
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


class Connection:
    """HTTP/1.1 with as little as possible in between, so that the load does not become the limit."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, port: int) -> AsyncIterator[Connection]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    async def send(self, method: str, path: str, body: Any) -> bytes:
        raw = json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self._writer.write(f"{head}content-length: {len(raw)}\r\n\r\n".encode() + raw)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        status, length = int(answer[9:12]), int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        content = await self._reader.readexactly(length)
        if status not in (200, 201):
            raise RuntimeError(f"{path} answered {status}: {content[:300]!r}")
        return content


@dataclass
class Measured:
    """Seconds of single requests, and of all of them together."""

    times: list[float] = field(default_factory=list)
    elapsed: float = 0.0
    fallbacks: int = 0

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.times) / self.elapsed

    def __str__(self) -> str:
        p50, p99 = np.percentile(self.times, [50, 99]) * 1e3
        return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms" + f", {self.fallbacks} fallbacks" * bool(self.fallbacks)


Visit = Callable[[Connection, int], Awaitable[list[float]]]


async def load(ports: Sequence[int], connections: int, visit: Visit, seconds: float, measured: Measured) -> None:
    """Visitors come one after the other on each connection, which go to the instances in turn; a visit gives the time of each
    of its requests.
    """
    start = time.perf_counter()

    async def visitors(port: int) -> None:
        async with Connection.to(port) as connection:
            while time.perf_counter() - start < seconds:
                measured.times.extend(await visit(connection, next(NUMBERS)))

    await asyncio.gather(*(visitors(ports[number % len(ports)]) for number in range(connections)))
    measured.elapsed += time.perf_counter() - start
    measured.fallbacks += FALLBACKS.pop("shown", 0)


def request(number: int) -> dict[str, Any]:
    query = number % QUERIES
    a = [f"sku-{query}-{i}" for i in range(20)]
    return {"query": f"query {query}", "a": a, "b": a[3:12] + a[:3] + a[12:], "unit": f"{os.getpid()}-{number}"}


def click(id: str, document: str) -> dict[str, Any]:
    return {
        "action_name": "click", "query_id": id, "client_id": "benchmark", "timestamp": "2030-01-01T00:00:00.000Z",
        "event_attributes": {"object": {"object_id": document}, "position": {"ordinal": 1}},
    }  # fmt: skip


async def rank_and_click(connection: Connection, number: int) -> list[float]:
    start = time.perf_counter()
    shown = json.loads(await connection.send("POST", "/v1/trials/t/rank", request(number)))
    middle = time.perf_counter()
    event = click(shown["id"], shown["ranking"][0])
    event["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    answer = await connection.send("POST", "/v1/events", [event])
    if (b'"fallback":1' if shown["fallback"] else b'"counted":1') not in answer:
        raise RuntimeError(f"not stored: {shown}, {answer!r}")
    FALLBACKS["shown"] += shown["fallback"] is not None
    return [middle - start, time.perf_counter() - middle]


async def echo_twice(connection: Connection, number: int) -> list[float]:
    start = time.perf_counter()
    await connection.send("POST", "/echo", request(number))
    middle = time.perf_counter()
    await connection.send("POST", "/echo-list", [click("A" * 32, "sku-0-0")])
    return [middle - start, time.perf_counter() - middle]


async def batches(port: int, seconds: float, measured: Measured) -> None:
    """Clicks on stored impressions, every document of each, in batches of 500."""
    async with Connection.to(port) as connection:
        shown = []
        for number in range(2000):
            shown.append(json.loads(await connection.send("POST", "/v1/trials/t/rank", request(10**9 + number))))
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    pairs = [
        (one["id"], document) for rank in range(20) for one in shown for document in one["ranking"][rank : rank + 1]
    ]
    events = [{**click(*pair), "timestamp": now} for pair in pairs]

    async def visit(connection: Connection, number: int) -> list[float]:
        start = (number * BATCH) % len(events)
        begun = time.perf_counter()
        await connection.send("POST", "/v1/events", events[start : start + BATCH])
        return [time.perf_counter() - begun]

    await load([port], 2, visit, min(seconds, 10), measured)


def run() -> list[dict[str, object]]:
    rows = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        echoes = [stack.enter_context(server(ECHO)) for _ in range(INSTANCES)]
        stores = {"SQLite": str(Path(folder, "t.db"))}
        if "PostgreSQL" not in STORES:
            pass
        elif binaries() is None:
            print("no PostgreSQL server is installed: only SQLite is measured", file=sys.stderr)
        else:
            postgres = Server(durable=True)
            stack.callback(postgres.remove)
            stores["PostgreSQL"] = postgres.url("benchmark")
        sources: dict[str, str | None] = dict.fromkeys(stores)
        for src in BEFORE:
            name = f"SQLite, {src.parent.name}"
            stores[name], sources[name] = str(Path(folder, f"{src.parent.name}.db")), str(src)
        ours = {
            name: [stack.enter_context(server(SERVE, url, src=sources[name])) for _ in range(INSTANCES)]
            for name, url in stores.items()
        }
        asyncio.run(load(echoes, 8, echo_twice, WARM_UP, Measured()))
        for ports in ours.values():
            asyncio.run(start_trial(ports))
            asyncio.run(load(ports, 8, rank_and_click, WARM_UP, Measured()))
        for instances in range(1, INSTANCES + 1):
            for connections in CONNECTIONS:
                echo, real = Measured(), {name: Measured() for name in stores}
                for _ in range(ROUNDS):
                    asyncio.run(load(echoes[:instances], connections, echo_twice, SECONDS / ROUNDS, echo))
                    for name, ports in ours.items():
                        asyncio.run(load(ports[:instances], connections, rank_and_click, SECONDS / ROUNDS, real[name]))
                head = f"{instances} instances, {connections} connections: "
                rows.append(row(f"{head}echo, {echo}", echo.rate, "-", "requests/s"))
                for name, measured in real.items():
                    rows += [
                        row(f"{head}rank + click, {name}, {measured}", measured.rate, "-", "requests/s"),
                        row(f"{head}rank + click, {name}, over echo", measured.rate / echo.rate, ">= 0.5", ""),
                    ]
        for name, ports in ours.items():
            many = Measured()
            asyncio.run(batches(ports[0], SECONDS, many))
            text = f"events in batches of {BATCH}, {name}, {many} a batch"
            rows.append(row(text, many.rate * BATCH, ">= 20000", "events/s"))
    return rows


async def start_trial(ports: Sequence[int]) -> None:
    for port in ports:
        async with Connection.to(port) as connection:
            await connection.send("PUT", "/v1/trials/t", {"k": 10, "method": 'LogOpt(bias="known")'})
            shown = {"fallback": "not compiled yet"}
            while shown["fallback"] == "not compiled yet":
                await asyncio.sleep(0.1)
                shown = json.loads(await connection.send("POST", "/v1/trials/t/rank", request(0)))
