"""The service is killed (SIGKILL) 20 times under load: nothing acknowledged is lost, nothing counts twice. About 20 s."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from live_server import ASKED, A, B, click, command, rank, start
from ranktrial.store.base import ClickRow, ImpressionRow
from ranktrial.tokens import read_token
from ranktrial.trial import Trial

ROUNDS = 20
VISITORS = 4
CONFIG = {"k": 3, "seed": 5, "method": 'LogOpt(bias="known")'}
# Imports once and forks for each life of the service, which then takes a moment to start instead of seconds.
NURSERY = """
import os, signal, sys
import uvicorn
from ranktrial.cli.serve import listen
from ranktrial.service import Limits, create_app
from ranktrial.trial.drawing import warm_up

warm_up()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    if os.fork() == 0:
        app = create_app(sys.argv[1], limits=Limits(timeout=60, write_timeout=60))
        listening = listen("127.0.0.1", 0)
        print(os.getpid(), listening.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run(sockets=[listening])
        os._exit(0)
"""


@dataclass
class Visitor:
    """Asks, clicks, asks again; whatever was not acknowledged is sent again in the next life of the service."""

    number: int
    ranked: dict[str, dict[str, Any]] = field(default_factory=dict)  # acknowledged, by unit
    clicked: list[tuple[str, str]] = field(default_factory=list)  # acknowledged
    waiting: dict[str, Any] | None = None  # shown, and not yet clicked

    def step(self, connection: http.client.HTTPConnection) -> None:
        if self.waiting is None:
            unit = f"visitor {self.number}, visit {len(self.ranked)}"
            shown = post(connection, "/v1/trials/t/rank", {**ASKED, "unit": unit})
            assert shown["fallback"] is None
            self.ranked[unit] = self.waiting = shown
        else:
            new = self.waiting["id"], self.waiting["ranking"][len(self.ranked) % 3]
            batch = [click(*pair) for pair in (new, *self.clicked[-2:], new)]  # old ones again, the new one twice
            assert post(connection, "/v1/events", batch)["counts"] == {"counted": len(batch)}
            self.clicked.append(new)
            self.waiting = None

    def visit(self, port: int, acknowledged: threading.Semaphore, last: bool) -> None:
        """Send until the service is gone; or, the last time, until all that was ever sent is acknowledged."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.step(connection)
            while not last or self.waiting is not None:
                acknowledged.release()
                self.step(connection)
        connection.close()


def post(connection: http.client.HTTPConnection, path: str, body: Any) -> Any:
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status == 200, content
    return json.loads(content)


@contextlib.contextmanager
def nursery(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", NURSERY, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def live_once(nursery: subprocess.Popen[str], visitors: list[Visitor], until: int | None) -> None:
    """A life of the service, killed after so many acknowledgements; the last one ends in peace."""
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write("live\n")
    nursery.stdin.flush()
    pid, port = map(int, nursery.stdout.readline().split())
    acknowledged = threading.Semaphore(0)
    threads = [threading.Thread(target=v.visit, args=(port, acknowledged, until is None)) for v in visitors]
    for thread in threads:
        thread.start()
    for _ in range(until or 0):
        assert acknowledged.acquire(timeout=120)
    if until is not None:
        os.kill(pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    if until is None:
        os.kill(pid, signal.SIGTERM)


@pytest.mark.slow
def test_killed_under_load_nothing_acknowledged_is_lost_and_nothing_counts_twice(tmp_path: Path) -> None:
    path, chance = tmp_path / "t.db", random.Random(11)
    Trial.create(path, "t", **CONFIG, background=False).close()  # type: ignore[arg-type]
    visitors = [Visitor(number) for number in range(VISITORS)]
    with nursery(path) as process:
        for _ in range(ROUNDS):
            live_once(process, visitors, until=chance.randint(0, 40))
        live_once(process, visitors, until=None)
    ranked = {unit: shown for visitor in visitors for unit, shown in visitor.ranked.items()}
    clicked = [pair for visitor in visitors for pair in visitor.clicked]
    assert len(clicked) == len(ranked) >= ROUNDS
    with Trial.open(path, background=False) as trial:
        key_of = {unit: read_token(shown["id"], trial.state.secret).key for unit, shown in ranked.items()}  # type: ignore[union-attr]
        time_of = {row.key: row.time for row in trial.store.rows(ImpressionRow, 1, 0)}
        assert sorted(time_of) == sorted(key_of.values())  # each acknowledged impression, once, and no other
        stored = [(row.key, row.document) for row in trial.store.rows(ClickRow, 1, 0)]
        assert sorted(stored) == sorted((read_token(id, trial.state.secret).key, d) for id, d in clicked)  # type: ignore[union-attr]
        report = trial.report()
    assert (report.impressions, report.clicks) == (len(ranked), len(clicked))
    assert replayed(tmp_path / "replay.db", ranked, clicked, {u: time_of[k] for u, k in key_of.items()}) == outcome(
        report
    )


def replayed(
    path: Path, ranked: dict[str, dict[str, Any]], clicked: list[tuple[str, str]], time_of: dict[str, int]
) -> dict[str, Any]:
    """Report of a fresh trial that was given what was acknowledged, and when, and nothing else."""
    units = sorted(ranked, key=lambda unit: time_of[unit])
    times = iter([0.0, *((time_of[unit] + 0.5) / 1e6 for unit in units)])  # the first is when it was made
    options: dict[str, Any] = {**CONFIG, "clock": lambda: next(times, time.time())}
    with Trial.create(path, "t", **options, background=False, timeout=60) as trial:
        for unit in units:
            shown = trial.rank("q", A, B, unit=unit, wait=True)
            assert (shown.id, shown.ranking) == (ranked[unit]["id"], ranked[unit]["ranking"])
        for id, document in clicked:
            trial.click(id, document)
        return outcome(trial.report())


def outcome(report: Any) -> dict[str, Any]:
    """All it says of the trial, without how fast it was and how often it was told the same."""
    said = report.to_dict()
    retold = ("latency", "clicks", "duplicate clicks", "the page shows what was drawn")
    said["guardrails"] = [one for one in said["guardrails"] if one["name"] not in retold]
    for name in ("tallies", "history", "text", "verdict", "days_left"):
        del said[name]
    for name in ("state", "winner", "failed", "forecast"):  # clicks that are told again may make a check fail
        del said["decision"][name]
    for part in said["parts"]:
        del part["verdict"]
    return dict(said)


@pytest.mark.slow
def test_ends_cleanly_when_asked_to(tmp_path: Path) -> None:
    """The command itself: logs are JSON lines, SIGTERM lets open requests end, and what was accepted is in the store."""
    with command(str(tmp_path / "t.db"), "--log-requests") as (process, address):
        acknowledged: list[str] = []
        enough = threading.Semaphore(0)

        def visit(number: int) -> None:
            with httpx.Client(base_url=address, timeout=120) as client, contextlib.suppress(httpx.TransportError):
                while True:
                    shown = rank(client, f"{number}-{len(acknowledged)}")
                    if shown["fallback"] is None:
                        acknowledged.append(shown["id"])
                    enough.release()

        with httpx.Client(base_url=address, timeout=120) as client:
            start(client)
        threads = [threading.Thread(target=visit, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(30):
            enough.acquire()
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
        assert process.wait() == 0
        for thread in threads:
            thread.join()
    assert lines[-1]["event"] == "stopped"
    answered = [line for line in lines if line["event"] == "answered"]
    assert {line["status"] for line in answered} <= {200, 201}
    assert answered[0].keys() >= {"time", "level", "method", "path", "status", "milliseconds"}
    with Trial.open(tmp_path / "t.db", background=False) as trial:
        assert len(trial.log()) >= len(set(acknowledged)) > 0
