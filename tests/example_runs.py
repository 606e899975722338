"""Examples as people start them: by their one command, in processes of their own, on free ports."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FREE_PORTS = ("--port", "0", "--service-port", "0")


@contextlib.contextmanager
def started(example: str, store: Path) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """``python examples/run.py`` in a process of its own; its page, once that answers, and its service."""
    command = [sys.executable, str(EXAMPLES / "run.py"), example, "--store", str(store), *FREE_PORTS]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = re.search(r"search on (\S+)/ and watch (\S+)/", process.stdout.readline())
        assert said is not None
        retrying = httpx.HTTPTransport(retries=12)  # the page listens a moment later
        with (
            httpx.Client(base_url=said[1], timeout=120, transport=retrying) as page,
            httpx.Client(base_url=said[2], timeout=120) as service,
        ):
            yield page, service
    finally:
        process.terminate()
        process.wait(60)


def drawn(page: httpx.Client, id: str) -> str:
    """Results that the trial drew, with an impression's id where the pattern says: on a busy machine some see A's list."""
    for _ in range(30):
        page.cookies.clear()
        text = page.get("/", params={"q": "red shoes"}).text
        if re.search(id, text):
            return text
    raise AssertionError("every visitor saw a fallback")


def clicks_of(service: httpx.Client, at_least: int) -> Any:
    """The report once that many clicks are in it: they are sent in the background."""
    for _ in range(600):
        report = service.get("/v1/trials/shop-search/report").json()
        if report["clicks"] >= at_least:
            break
        threading.Event().wait(0.05)
    return report
