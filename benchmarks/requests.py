"""Processor time of one request inside the service: ``rank`` and a click over ASGI, with neither network nor HTTP parser.

32 visitors at a time search and click, each for itself. The time of the thread of the event loop, and of the whole process with
its writer; the best round counts, so that other work on the machine changes little. For another checkout put its src folder
into ``PYTHONPATH``.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks._timing import row
from benchmarks.service import click, request
from ranktrial.service import create_app

VISITORS, VISITS, ROUNDS = 32, 20, 24
HEADERS = [(b"host", b"localhost"), (b"content-type", b"application/json")]


def run() -> list[dict[str, object]]:
    loop, process = asyncio.run(times())
    return [
        row("rank or click, thread of the event loop", loop * 1e6, "-", "CPU us"),
        row("rank or click, process", process * 1e6, "-", "CPU us"),
    ]


async def times() -> tuple[float, float]:
    """The least seconds of the processor a request, of the loop's thread and of the process."""
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Path(folder, "t.db"))

        async def call(method: str, path: str, body: Any) -> Any:
            raw, sent = json.dumps(body).encode(), list[Any]()
            scope = {
                "type": "http", "method": method, "path": path, "root_path": "", "query_string": b"", "scheme": "http",
                "http_version": "1.1", "headers": [*HEADERS, (b"content-length", str(len(raw)).encode())], "state": {},
            }  # fmt: skip

            async def receive() -> dict[str, object]:
                return {"type": "http.request", "body": raw, "more_body": False}

            async def send(message: Any) -> None:
                sent.append(message)

            await app(scope, receive, send)
            return json.loads(sent[1]["body"])

        async def visitor(first: int) -> None:
            for visit in range(VISITS):
                shown = await call("POST", "/v1/trials/t/rank", request(first + visit))
                event = click(shown["id"], shown["ranking"][0])
                await call("POST", "/v1/events", [{**event, "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ")}])

        found = []
        async with app.router.lifespan_context(app):
            await call("PUT", "/v1/trials/t", {"k": 10, "method": 'LogOpt(bias="known")'})
            for number in range(ROUNDS):
                begun = time.thread_time(), time.process_time()
                await asyncio.gather(*(visitor((number * VISITORS + one) * VISITS) for one in range(VISITORS)))
                found.append((time.thread_time() - begun[0], time.process_time() - begun[1]))
    requests = 2 * VISITORS * VISITS
    return min(loop for loop, _ in found[1:]) / requests, min(process for _, process in found[1:]) / requests
