"""Readiness: one commit a second at most, whoever asks, and always a reason where there is none."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from live_server import is_problem, serving, start
from ranktrial.service import Limits, readiness
from ranktrial.service.middleware import load_shedding
from ranktrial.service.readiness import Readiness
from ranktrial.store.base import Row, StoreFull
from ranktrial.store.stored import Stored
from store.kinds import begin_writing


class CountingStore:
    """A store that counts what it is given, and does with it what it is told to."""

    def __init__(self, problem: Exception | None = None, *, silent: bool = False) -> None:
        self.problem, self.silent = problem, silent
        self.rows: list[Stored] = []

    def put(self, row: Row) -> Stored:
        done = Stored()
        self.rows.append(done)
        if not self.silent:
            begin_writing(done)
            Stored.finish_all([done], self.problem)
        return done


async def asked(ready: Readiness, times: int) -> list[str | None]:
    return await asyncio.gather(*(ready.problem() for _ in range(times)))


def test_however_many_ask_there_is_one_commit_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = CountingStore()
    clock = [100.0]
    ready = Readiness(store, lambda: clock[0])

    async def run() -> None:
        for seconds in (0.0, 0.5, 0.4):
            clock[0] += seconds
            assert await asked(ready, 300) == [None] * 300
            assert len(store.rows) == 1
        clock[0] += 0.2
        await asked(ready, 300)
        assert len(store.rows) == 2

    asyncio.run(run())


def test_a_store_that_does_not_answer_has_a_reason_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "LONGEST", 0.01)
    silent: Any = CountingStore(silent=True)
    for store, says in (
        (silent, "no commit within 0.01 s"),
        (CountingStore(StoreFull("no room")), "no room"),
        (CountingStore(StoreFull()), "StoreFull"),
    ):
        assert asyncio.run(asked(Readiness(store), 3)) == [says] * 3  # type: ignore[arg-type]
    assert [row.failed for row in silent.rows] == [True]  # taken back: it does not wait in the queue


def test_the_service_says_why_it_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "LONGEST", 0.02)
    monkeypatch.setattr(readiness, "PROBE_EVERY", 0.0)
    monkeypatch.setattr(load_shedding, "A_SECOND", 10**9)
    with serving(tmp_path / "t.db", limits=Limits(timeout=60)) as client:
        start(client)
        other = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        is_problem(client.get("/readyz"), 503, says="the store does not take rows: no commit within 0.02 s")
        other.execute("ROLLBACK")
        other.close()
        while client.get("/readyz").status_code != 200:
            pass
