"""Several instances of the service on one store, killed and started again under load, with other faults in between."""

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from postgres_server import Server
from ranktrial.log.designs import sound_designs
from ranktrial.store import SQLiteStore
from ranktrial.store.base import ClickRow, ImpressionRow, VoidRow
from ranktrial.tokens import read_token
from ranktrial.trial import Trial
from store.replay import replay

A = [f"a{i}" for i in range(6)]
B = ["a1", "a0", "b2", "b3", "a4"]
QUERIES = [f"query {number}" for number in range(20)]
METHOD = "LogOpt(schedule=(50, 100, 200, 400, 800, 1600, 3200, 6400))"  # whichever instance finds a refit due makes it
# Imports once and forks for each life of an instance, which then takes a moment to start instead of seconds.
NURSERY = """
import logging, os, signal, sys
import uvicorn
from ranktrial.cli.serve import listen
from ranktrial.service import create_app
from ranktrial.trial.drawing import warm_up

logging.basicConfig(level=logging.CRITICAL)  # a store that is away is what this is about; answers tell the rest
warm_up()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    if os.fork() == 0:
        app = create_app(sys.argv[1])
        listening = listen("127.0.0.1", 0)

        class Server(uvicorn.Server):
            async def startup(self, sockets=None):
                await super().startup(sockets)
                if self.started:
                    print(os.getpid(), listening.getsockname()[1], flush=True)

        server = Server(uvicorn.Config(app, log_config=None, access_log=False))
        try:
            server.run(sockets=[listening])
        finally:
            if not server.started:
                print("did not start", flush=True)
            os._exit(0)
"""


class Instances:
    """Instances of the service on one store, each with a port that changes with its life."""

    def __init__(self, url: str, number: int) -> None:
        self._nursery = subprocess.Popen(
            [sys.executable, "-c", NURSERY, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lock = threading.Lock()
        self._alive: list[tuple[int, int]] = [self._new() for _ in range(number)]

    def _new(self) -> tuple[int, int]:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        with self._lock:
            self._nursery.stdin.write("live\n")
            self._nursery.stdin.flush()
            pid, port = map(int, self._nursery.stdout.readline().split())
        return pid, port

    def ports(self) -> list[int]:
        return [port for _, port in self._alive]

    def kill(self, which: int) -> None:
        """End one with SIGKILL, and start another in its place."""
        self.end(which)
        self.renew(which)

    def end(self, which: int) -> None:
        """End one with SIGKILL."""
        os.kill(self._alive[which][0], signal.SIGKILL)

    def renew(self, which: int) -> None:
        """Start another in the place of one that has ended."""
        self._alive[which] = self._new()

    def freeze(self, which: int, *, thaw: bool = False) -> None:
        """Stop one in the middle of whatever it does, or let it go on."""
        os.kill(self._alive[which][0], signal.SIGCONT if thaw else signal.SIGSTOP)

    def close(self) -> None:
        for pid, _ in self._alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._nursery.kill()
        self._nursery.wait()


Event = Callable[[Instances], None]


@dataclass
class Visitor:
    """Asks one instance, clicks at another, tells old news to a third; what is not acknowledged is sent again, elsewhere."""

    number: int
    instances: Instances
    ranked: dict[str, dict[str, Any]] = field(default_factory=dict)  # acknowledged, by unit
    fallen_back: dict[str, dict[str, Any]] = field(default_factory=dict)
    clicked: list[tuple[str, str]] = field(default_factory=list)  # acknowledged
    answers: list[float] = field(default_factory=list)  # seconds that answers of rank took
    sent_again: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.number)

    def visit(self, stop: threading.Event) -> None:
        while not stop.is_set():
            unit = f"visitor {self.number}, visit {len(self.ranked) + len(self.fallen_back)}"
            asked = {"query": self._chance.choice(QUERIES), "a": A, "b": B, "unit": unit}
            shown = self._post("/v1/trials/t/rank", asked)
            (self.ranked if shown["fallback"] is None else self.fallen_back)[unit] = {**shown, "query": asked["query"]}
            if shown["fallback"] is not None:
                continue
            if self._chance.random() < 0.3:  # a reload, perhaps at another instance
                again = self._post("/v1/trials/t/rank", asked)
                assert again["fallback"] or (again["id"], again["ranking"]) == (shown["id"], shown["ranking"])
            new = shown["id"], self._chance.choice(shown["ranking"][:3])
            batch = [{"id": id, "document": document} for id, document in (new, *self.clicked[-2:], new)]
            counts = self._post("/v1/events", batch)["counts"]
            # "waiting" where the database could not be asked what was shown, "void" at an instance that showed A on the reload;
            # what counts is decided from the whole log.
            assert sum(counts.get(what, 0) for what in ("counted", "waiting", "void")) == len(batch), counts
            self.clicked.append(new)

    def _post(self, path: str, body: Any) -> Any:
        while True:
            port = self._chance.choice(self.instances.ports())
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                begun = time.perf_counter()
                connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
                answer = connection.getresponse()
                content = answer.read()
                if answer.status == 200:
                    if path.endswith("rank"):
                        self.answers.append(time.perf_counter() - begun)
                    return json.loads(content)
                assert answer.status in (429, 503), content
            except (OSError, http.client.HTTPException):
                pass  # killed
            finally:
                connection.close()
            self.sent_again += 1
            time.sleep(0.02)


@dataclass(frozen=True)
class Outcome:
    """Fate of the rows that were acknowledged.

    Attributes:
        impressions: Acknowledged; clicks: too.
        fallbacks: Answers that were A's list because of a fault.
        sent_again: Requests that were not answered, or not with 200, and sent again.
        lost: Acknowledged impressions that are not in the store as they were shown, or clicks that are not.
        twice: Rows beyond one for an impression or a click.
        unexpected: Impressions that count though nobody was shown what was drawn.
        refits: Of position bias, by whichever instance; each has one place in a row that all instances agree on.
        same_report: Whether the report is, to the last bit, that of the same rows in SQLite, put in sorted by what they say.
        answers: Seconds that answers of rank took.
        kills: Instances that were killed; restarts: of the database.
    """

    impressions: int
    clicks: int
    fallbacks: int
    sent_again: int
    lost: int
    twice: int
    unexpected: int
    refits: int
    same_report: bool
    answers: list[float]
    kills: int
    restarts: int


def run(
    server: Server, folder: Path, *, instances: int, kills: int, restarts: int, visitors: int, pause: float, seed: int
) -> Outcome:
    """Load on all instances, each killed so many times, at random, and the database restarted in between."""
    url, chance = server.url(str(folder)), random.Random(seed)
    events: list[Event] = [partial(_kill, which=which) for which in range(instances) for _ in range(kills)]
    chance.shuffle(events)
    for number in range(restarts):
        restart = partial(_restart, server=server, mode=["fast", "immediate"][number % 2], seconds=pause)
        events.insert((number + 1) * len(events) // (restarts + 1), restart)
    people = under_load(url, events, instances=instances, visitors=visitors, pause=pause, chance=chance)
    return compare(url, folder, people, len(events) - restarts, restarts)


def _kill(alive: Instances, which: int) -> None:
    alive.kill(which)


def _restart(alive: Instances, server: Server, mode: str, seconds: float) -> None:
    server.stop(mode)
    time.sleep(seconds)
    server.start()


def under_load(
    url: str, events: Sequence[Event], *, instances: int, visitors: int, pause: float, chance: random.Random
) -> list[Visitor]:
    """Visitors of all instances while one event comes after the other; returns the visitors, who know what was acknowledged."""
    Trial.create(url, "t", k=3, method=METHOD, background=False).close()
    alive = Instances(url, instances)
    people, stop = [Visitor(number, alive) for number in range(visitors)], threading.Event()
    failed: list[BaseException] = []

    def visit(visitor: Visitor) -> None:
        try:
            visitor.visit(stop)
        except BaseException as problem:
            failed.append(problem)
            raise

    threads = [threading.Thread(target=visit, args=(visitor,)) for visitor in people]
    try:
        for thread in threads:
            thread.start()
        for event in events:
            time.sleep(chance.uniform(0, 2 * pause))
            event(alive)
        time.sleep(4 * pause)
        _wait_for_a_refit(url)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        alive.close()
    if failed:
        raise failed[0]
    return people


def _wait_for_a_refit(url: str) -> None:
    """Go on until position bias was refitted, by a process that an instance must start anew after every kill."""
    with Trial.open(url, background=False) as trial:
        until = time.monotonic() + 60
        while len(trial.store.biases.of(1)) < 2 and time.monotonic() < until:
            time.sleep(0.1)


def compare(url: str, folder: Path, people: list[Visitor], kills: int, restarts: int) -> Outcome:
    """Hold what was acknowledged against what is stored."""
    ranked = {unit: shown for visitor in people for unit, shown in visitor.ranked.items()}
    clicked = [pair for visitor in people for pair in visitor.clicked]
    with Trial.open(url, background=False) as trial:

        def key_of(id: str) -> bytes:
            token = read_token(id, trial.state.secret)
            assert token is not None
            return token.key

        rows = list(trial.store.rows(ImpressionRow, 1, 0))
        voids = {row.key for row in trial.store.rows(VoidRow, 1, 0)}
        designs = sound_designs(trial.store.designs(sorted({row.design for row in rows})))
        shown = {row.key: designs[row.design].top(row.place) for row in rows if row.key not in voids}
        clicks = [(row.key, row.document) for row in trial.store.rows(ClickRow, 1, 0)]
        acknowledged = {key_of(one["id"]): one["ranking"][:3] for one in ranked.values()}
        sent = {(key_of(id), document) for id, document in clicked}
        lost = sum(shown.get(key) != top for key, top in acknowledged.items()) + len(sent - set(clicks))
        twice = len(rows) - len({row.key for row in rows}) + len(clicks) - len(set(clicks))
        unexpected = len(shown.keys() - acknowledged.keys())
        refits = trial.store.biases.of(1)
        with contextlib.closing(SQLiteStore(folder / "replay.db")) as copy:
            replay(trial.store, copy)
            same = told(trial) == told(Trial.open(copy, background=False))
    answers = [seconds for visitor in people for seconds in visitor.answers]
    fallbacks, again = sum(len(one.fallen_back) for one in people), sum(one.sent_again for one in people)
    return Outcome(
        len(ranked), len(clicked), fallbacks, again, lost, twice, unexpected, len(refits), same, answers, kills, restarts
    )  # fmt: skip


def told(trial: Trial) -> dict[str, Any]:
    """The report but for how quick this process was."""
    report = trial.report().to_dict()
    report["guardrails"] = [one for one in report["guardrails"] if one["name"] != "latency"]
    return report
