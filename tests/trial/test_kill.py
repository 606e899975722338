"""Nothing acknowledged is lost by kill -9 at any moment."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ranktrial.store.base import ClickRow, EventRow
from ranktrial.trial import Trial

A = [f"a{i}" for i in range(6)]
B = ["a1", "a0", "b2", "b3", "a4"]
SERVE = """
import itertools, sys
from ranktrial.store.base import Event
from ranktrial.trial import Trial
from concurrent.futures import ThreadPoolExecutor

a, b = [f"a{i}" for i in range(6)], ["a1", "a0", "b2", "b3", "a4"]
trial = Trial.create(sys.argv[1], k=3, background=False, timeout=60)

def serve(user):
    shown = trial.rank("q", a, b, unit=f"{sys.argv[2]}-{user}", wait=True)
    assert shown.fallback is None, shown
    trial.click(shown.id, shown.ranking[user % 3])
    order = Event(shown._impression.key, 1, shown.ranking[user % 3], "order", "1", user, 0, 0)
    trial.store.put(order).result()
    sys.stdout.write(f"{sys.argv[2]}-{user} {shown.id} {shown.ranking[user % 3]}\\n")
    sys.stdout.flush()

with ThreadPoolExecutor(4) as pool:
    for start in itertools.count(0, 50):
        list(pool.map(serve, range(start, start + 50)))
"""


@pytest.mark.slow
def test_killed_at_any_moment_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    chance = random.Random(3)
    acknowledged: list[tuple[str, str, str]] = []
    for life in range(3):
        server = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(path), f"life{life}"], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        for _ in range(chance.randint(1, 60)):
            user, id, document = server.stdout.readline().split()
            acknowledged.append((user, id, document))
        server.send_signal(signal.SIGKILL)
        rest = [line.split() for line in server.stdout.read().splitlines()]
        acknowledged += [(line[0], line[1], line[2]) for line in rest if len(line) == 3]
        assert server.wait() == -signal.SIGKILL
    with Trial.open(path, background=False, timeout=60) as trial:
        stored = trial.log()
        assert len(stored) >= len(acknowledged)
        clicked = {(row.key, row.document) for row in trial.store.rows(ClickRow, 1, 0)}
        ordered = {(row.key, row.document): row.amount for row in trial.store.rows(EventRow, 1, 0)}
        for user, id, document in acknowledged:
            again = trial.rank("q", A, B, unit=user)
            assert (again.id, again.fallback) == (id, None)
            assert again._impression is not None
            assert (again._impression.key, document) in clicked
            assert ordered[again._impression.key, document] == int(user.split("-")[1])
        assert len(trial.log()) == len(stored)  # all of them were there already
        report = trial.report()
        assert report.clicks >= len(acknowledged)
        assert report.tallies == {}
