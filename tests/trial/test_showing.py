"""Answers that wait for the disk, alike in a thread and on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ranktrial.methods import Beliefs, LogOpt
from ranktrial.store import Overloaded
from ranktrial.store.base import Impression, Row
from ranktrial.store.stored import Stored
from ranktrial.trial import Shown, Trial
from ranktrial.trial.showing import Latest
from store.kinds import begin_writing

A = [f"a{i}" for i in range(6)]
B = ["a1", "a0", "b2", "b3", "a4"]
Rank = Callable[..., Shown]
LATE = "the store did not answer in time"


def in_a_thread(trial: Trial, timeout: float, *asked: Any, **options: Any) -> Shown:
    trial._timeout = timeout
    return trial.rank(*asked, wait=True, look=False, **options)


def on_a_loop(trial: Trial, timeout: float, *asked: Any, **options: Any) -> Shown:
    return asyncio.run(trial.rank_async(*asked, timeout=timeout, **options))


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    method = LogOpt(relevance="constant", loss=None, keep=0, holdback=0.1)  # whose designs differ much from each other
    with Trial.create(tmp_path / "t.db", method=method, k=3, seed=5, background=False) as made:
        yield made


def never(_: Stored) -> None:
    """Leave the row where it is: nobody writes it."""


def cancelled(stored: Stored) -> None:
    assert stored.cancel()


def failed(problem: Exception) -> Callable[[Stored], None]:
    def fail(stored: Stored) -> None:
        begin_writing(stored)
        Stored.finish_all([stored], problem)

    return fail


@pytest.mark.parametrize("rank", [in_a_thread, on_a_loop])
@pytest.mark.parametrize(
    ("fate", "reason"),
    [
        (never, LATE),
        (cancelled, LATE),
        (failed(OSError("no disk")), "OSError"),
        (failed(Overloaded("too much")), "the store is overloaded"),
    ],
)
def test_what_is_not_on_the_disk_is_not_shown(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, rank: Rank, fate: Callable[[Stored], None], reason: str
) -> None:
    def put(row: Row) -> Stored:
        stored = Stored()
        if isinstance(row, Impression):
            fate(stored)
        return stored

    with monkeypatch.context() as patch:
        patch.setattr(trial.store, "put", put)
        shown = rank(trial, 0.0, "q", A, B, "u", size=4)
    assert (shown.ranking, shown.fallback) == (A[:4], reason)
    report = trial.report()
    assert (report.impressions, report.tallies) == (0, {f"fallback: {reason}": 1})


@pytest.mark.parametrize("rank", [in_a_thread, on_a_loop])
def test_what_was_there_before_is_shown_instead(trial: Trial, tmp_path: Path, rank: Rank) -> None:
    before = [trial.rank("q", A, B, f"u{i}", wait=True) for i in range(20)]
    trial.store.biases.add(1, 1, Beliefs(np.array([1.0, 0.9, 0.1]), fitted=True), 1)
    with Trial.open(tmp_path / "t.db", background=False) as other:
        drawn = [other.rank("q", A, B, f"u{i}", look=False).ranking for i in range(20)]
        other.showing.impressions._recent.clear()
        again = [rank(other, 60.0, "q", A, B, f"u{i}") for i in range(20)]
        assert [(one.id, one.ranking) for one in again] == [(one.id, one.ranking) for one in before]
        assert [one.ranking for one in again] != drawn
        report = other.report()
    assert (report.impressions, report.tallies) == (20, {})


@pytest.mark.parametrize("rank", [in_a_thread, on_a_loop])
def test_a_fallback_waits_for_nothing(trial: Trial, rank: Rank) -> None:
    assert rank(trial, 0.0, "q", A, None).fallback == "bad input: B's list is None, must be a list of ids"


def test_a_caller_that_goes_away_leaves_its_impression(trial: Trial) -> None:
    """As when a client hangs up while its request waits: it may ask again, and gets the same."""

    async def run() -> str:
        asking = asyncio.create_task(trial.rank_async("q", A, B, "u", timeout=60))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        return (await trial.rank_async("q", A, B, "u", timeout=60)).id

    id = asyncio.run(run())
    report = trial.report()
    assert (report.impressions, report.tallies) == (1, {})
    assert trial.rank("q", A, B, "u").id == id


def test_what_is_latest_stays_however_many_threads_add() -> None:
    latest = Latest[int](50)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: latest.keep(b"%d" % number, number), range(5_000)))
    assert len(latest) == 50
    assert latest.keep(b"last", -1) == latest[b"last"] == -1
    nothing = Latest[int](0)
    assert nothing.keep(b"x", 1) == 1
    assert not nothing
