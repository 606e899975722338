"""The service on a real port, for tests: in a thread of this process, or as the command in a process of its own."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from ranktrial.cli.serve import listen
from ranktrial.service import Limits, create_app
from ranktrial.trial.drawing import warm_up

A = [f"a{i}" for i in range(6)]
B = ["a1", "a0", "b2", "b3", "a4"]
ASKED = {"query": "q", "a": A, "b": B}
# Tests must not depend on how busy the machine is.
PATIENT = Limits(timeout=60, write_timeout=60, body_timeout=60, beacon_rate=1e6)


def wait_until(happened: Callable[[], bool]) -> None:
    for _ in range(6000):
        if happened():
            return
        threading.Event().wait(0.01)
    raise AssertionError("nothing happened for a minute")


@contextlib.contextmanager
def serving(path: Path, **options: Any) -> Iterator[httpx.Client]:
    """A client of the service in a thread; the service ends as it does on SIGTERM."""
    warm_up()
    app = create_app(path, **{"limits": PATIENT, **options})
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the service did not start"
            threading.Event().wait(0.01)
        with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=120) as client:
            client.app = app  # type: ignore[attr-defined]
            yield client
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@contextlib.contextmanager
def command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`ranktrial serve` in a process of its own, and its address; killed at the end if it still runs."""
    warm_up()  # into the cache, or A's lists would be shown for a while
    code = "from ranktrial.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", *arguments, "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        line = {"event": "starting"}
        while line["event"] != "listening":
            line = json.loads(process.stderr.readline())
        yield process, f"http://127.0.0.1:{line['port']}"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def start(client: httpx.Client, name: str = "t", *, new_version: bool = False, **config: Any) -> None:
    body = {"k": 3, "seed": 5, "method": 'LogOpt(bias="known")', **config}
    answer = client.put(f"/v1/trials/{name}", json=body, params={"new-version": new_version})
    assert answer.status_code in (200, 201), answer.text


def rank(client: httpx.Client, unit: str, name: str = "t", **more: Any) -> dict[str, Any]:
    answer = client.post(f"/v1/trials/{name}/rank", json={**ASKED, "unit": unit, **more})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def send(client: httpx.Client, *events: Any) -> list[dict[str, Any]]:
    answer = client.post("/v1/events", json=list(events))
    assert answer.status_code == 200, answer.text
    return list(answer.json()["results"])


def click(id: str, document: str) -> dict[str, str]:
    return {"id": id, "document": document}


def is_problem(answer: httpx.Response, status: int, *, says: str = "") -> None:
    """A problem document (RFC 9457) with that status."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == status
    assert document["type"].startswith("urn:ranktrial:problem:")
    assert document["title"]
    assert says in document["detail"]
