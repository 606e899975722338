"""The steps of a draw that waits for the disk, alike in a thread and on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ranktrial.methods import Beliefs, LogOpt
from ranktrial.service.asynchronous import on_disk, wait_on_loop
from ranktrial.store import Overloaded
from ranktrial.store.base import Impression, Row, Stored
from ranktrial.trial import Shown, Trial
from ranktrial.trial.drawing import Steps, wait_in_thread

A = [f"a{i}" for i in range(6)]
B = ["a1", "a0", "b2", "b3", "a4"]
Driver = Callable[[Steps, float], Shown]
IN_A_THREAD: Driver = wait_in_thread
LATE = "the store did not answer in time"


def on_a_loop(steps: Steps, timeout: float) -> Shown:
    return asyncio.run(wait_on_loop(steps, timeout))


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
        assert stored.start()
        stored.finish(problem)

    return fail


@pytest.mark.parametrize("drive", [IN_A_THREAD, on_a_loop])
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
    trial: Trial, monkeypatch: pytest.MonkeyPatch, drive: Driver, fate: Callable[[Stored], None], reason: str
) -> None:
    def put(row: Row) -> Stored:
        stored = Stored()
        if isinstance(row, Impression):
            fate(stored)
        return stored

    with monkeypatch.context() as patch:
        patch.setattr(trial.store, "put", put)
        shown = drive(trial.rank_steps("q", A, B, "u", size=4), 0.0)
    assert (shown.ranking, shown.fallback) == (A[:4], reason)
    report = trial.report()
    assert (report.impressions, report.tallies) == (0, {f"fallback: {reason}": 1})


@pytest.mark.parametrize("drive", [IN_A_THREAD, on_a_loop])
def test_what_was_there_before_is_shown_instead(trial: Trial, tmp_path: Path, drive: Driver) -> None:
    before = [trial.rank("q", A, B, f"u{i}", wait=True) for i in range(20)]
    trial.store.add_bias(1, 1, Beliefs(np.array([1.0, 0.9, 0.1]), fitted=True), 1)
    with Trial.open(tmp_path / "t.db", background=False) as other:
        drawn = [other.rank("q", A, B, f"u{i}", look=False).ranking for i in range(20)]
        other._draws._recent.clear()
        again = [drive(other.rank_steps("q", A, B, f"u{i}", look=False), 60.0) for i in range(20)]
        assert [(one.id, one.ranking) for one in again] == [(one.id, one.ranking) for one in before]
        assert [one.ranking for one in again] != drawn
        report = other.report()
    assert (report.impressions, report.tallies) == (20, {})


@pytest.mark.parametrize("drive", [IN_A_THREAD, on_a_loop])
def test_a_fallback_waits_for_nothing(trial: Trial, drive: Driver) -> None:
    assert drive(trial.rank_steps("q", A, None), 0.0).fallback == "bad input: B's list is None, must be a list of ids"  # type: ignore[arg-type]


def test_the_steps_one_by_one(trial: Trial) -> None:
    steps = trial.rank_steps("q", A, B, "u")
    stored = next(steps)
    stored.result(60)
    with pytest.raises(StopIteration) as end:
        next(steps)
    shown = end.value.value
    assert shown.stored is stored
    assert shown.fallback is None
    assert trial.rank("q", A, B, "u").id == shown.id


def test_a_caller_that_goes_away_leaves_its_impression(trial: Trial) -> None:
    """As when a client hangs up while its request waits: it may ask again, and gets the same."""
    steps = trial.rank_steps("q", A, B, "u")
    next(steps)
    steps.close()
    report = trial.report()
    assert (report.impressions, report.tallies) == (1, {})


def test_rows_that_are_done_together_wake_the_loop_once() -> None:
    async def run() -> int:
        loop, rows = asyncio.get_running_loop(), [Stored() for _ in range(5)]
        waiting = [asyncio.create_task(on_disk(row, 60)) for row in rows]
        await asyncio.sleep(0)
        calls, call_soon = [], loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *call: calls.append(call) or call_soon(*call)  # type: ignore
        for row in rows:
            row.start()
        await asyncio.to_thread(Stored.finish_all, rows)
        await asyncio.gather(*waiting)
        return sum("settle" in call[0].__name__ for call in calls)

    assert asyncio.run(run()) == 1
