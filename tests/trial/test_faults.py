"""Whatever breaks, the page does not: A's list is shown, flagged, left out of the estimate, and counted."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ranktrial.store import SQLiteStore
from ranktrial.store.base import Impression, ImpressionRow, Row, StoreUnavailable
from ranktrial.store.stored import Phase, Stored
from ranktrial.trial import ClickOutcome, Trial, showing
from store.kinds import failure

A = [f"a{i}" for i in range(6)]
B = ["a1", "a0", "b2", "b3", "a4"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


@pytest.fixture
def trial(path: Path) -> Iterator[Trial]:
    with Trial.create(
        SQLiteStore(path, write_timeout=60), k=3, seed=5, background=False, timeout=60, own_store=True
    ) as made:
        good = made.rank("q", A, B, unit="good", wait=True)
        made.click(good.id, good.ranking[0])
        yield made


def fallbacks(trial: Trial) -> dict[str, int]:
    tallies = trial.report().tallies
    return {name: count for name, count in tallies.items() if name.startswith("fallback: ")}


def lock(path: Path) -> sqlite3.Connection:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


def unlock(other: sqlite3.Connection) -> None:
    other.execute("ROLLBACK")
    other.close()


def test_a_stalled_store(trial: Trial, path: Path) -> None:
    other = lock(path)
    trial._timeout = 0.02
    shown = [trial.rank("q", A, B, unit=f"u{i}", wait=True) for i in range(3)]
    assert [(s.ranking, s.fallback) for s in shown] == [(A, "the store did not answer in time")] * 3
    unlock(other)
    report = trial.report()
    assert (report.impressions, report.clicks) == (1, 1)
    assert fallbacks(trial) == {"fallback: the store did not answer in time": 3}
    # The first was already being written when its time was up: it is in the log, and void.
    assert report.tallies.get("void impressions", 0) <= 1
    trial._timeout = 60
    again = trial.rank("q", A, B, unit="u2", wait=True)
    assert again.fallback is None


def test_a_retry_before_the_void_is_stored_is_void_too(trial: Trial, path: Path) -> None:
    other = lock(path)
    shown = trial.rank("q", A, B, unit="u")
    while shown.stored.stage is not Phase.RUNNING:  # too late to be taken back
        assert not shown.stored.done()
        threading.Event().wait(0.001)
    trial.fall_back(shown, A)
    again = trial.rank("q", A, B, unit="u")
    assert (again.ranking, again.fallback) == (A, "shown as A before")
    unlock(other)
    assert trial.click(shown.id, shown.ranking[0]).outcome == ClickOutcome.VOID
    report = trial.report()
    assert (report.impressions, report.tallies["void impressions"]) == (1, 1)


def test_a_retry_that_takes_too_long_leaves_what_was_shown_alone(trial: Trial, path: Path) -> None:
    """Drawn without looking and too late: the impression of before was shown and clicked, and stays."""
    before = trial.rank("q", A, B, unit="good", wait=True)
    trial.showing.impressions._recent.clear()  # as after a restart
    other = lock(path)
    again = trial.rank("q", A, B, unit="good", look=False)
    while again.stored.stage is not Phase.RUNNING:
        assert not again.stored.done()
        threading.Event().wait(0.001)
    assert trial.fall_back(again, A).ranking == A
    unlock(other)
    trial.store.flush()
    assert trial.rank("q", A, B, unit="good", wait=True).ranking == before.ranking
    report = trial.report()
    assert (report.impressions, report.clicks) == (1, 1)


def test_a_second_look_that_fails_leaves_nothing_behind(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    trial.rank("q", A, B, unit="known", wait=True)
    trial.showing.impressions._recent.clear()
    draw = trial.store.put

    def put(row: Row) -> Stored:
        stored = draw(row)
        stored.result(60)
        stored.again = isinstance(row, Impression)
        return stored

    def broken(_: bytes) -> None:
        raise OSError("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(trial.store, "put", put)
        patch.setattr(trial.store, "impression", broken)
        for unit in ("known", "new"):
            assert trial.rank("q", A, B, unit=unit, look=False, wait=True).fallback == "OSError"
    report = trial.report()
    assert (report.impressions, report.tallies["void impressions"]) == (2, 1)


def test_void_stays_void(trial: Trial, path: Path) -> None:
    shown = trial.rank("q", A, B, unit="u", wait=True)
    assert trial.fall_back(shown, A).ranking == A
    trial.store.flush()
    again = trial.rank("q", A, B, unit="u", wait=True)
    assert (again.ranking, again.fallback) == (A, "shown as A before")
    assert trial.click(shown.id, shown.ranking[0]).outcome == ClickOutcome.VOID
    report = trial.report()
    assert (report.impressions, report.clicks) == (1, 1)
    assert report.tallies["void impressions"] == 1
    assert report.tallies["clicks on void impressions"] == 1


def test_a_full_disk(trial: Trial, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = trial.store
    assert isinstance(store, SQLiteStore)
    pages = sqlite3.connect(path).execute("PRAGMA page_count").fetchone()[0]
    connect = store._file.connect

    def tiny(timeout: float) -> sqlite3.Connection:
        connection = connect(timeout)
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(store._file, "connect", tiny)
    failure(store.put(Bad()))  # makes the writer connect anew
    long = ["x" * 900 + str(i) for i in range(30)]
    shown = [trial.rank(f"q{i}", long, long[::-1], unit="u", wait=True) for i in range(10)]
    assert {(s.fallback, s.ranking == long) for s in shown} >= {("the disk is full", True)}
    monkeypatch.undo()
    failure(store.put(Bad()))
    full = sum(s.fallback is not None for s in shown)
    report = trial.report()
    assert fallbacks(trial) == {"fallback: the disk is full": full}
    assert report.impressions == 1 + len(shown) - full
    assert {g.name: g.status for g in report.guardrails}["fallbacks"] == "warn"
    assert trial.rank("another", A, B, unit="u", wait=True).fallback is None


class Bad(Impression[Any]):
    """A row that cannot be written."""

    def __init__(self) -> None:
        for field in fields(Impression):
            object.__setattr__(self, field.name, 1 if field.name == "version" else None)


def test_without_waiting_a_lost_impression_is_counted_and_a_retry_stores_it(trial: Trial, path: Path) -> None:
    store = trial.store
    assert isinstance(store, SQLiteStore)
    store._file.write_timeout = 0.01
    failure(store.put(Bad()))
    other = lock(path)
    shown = trial.rank("q", A, B, unit="u")
    assert shown.fallback is None
    assert isinstance(failure(shown.stored), StoreUnavailable)
    unlock(other)
    assert trial.report().impressions == 1
    assert trial.rank("q", A, B, unit="u", wait=True).ranking == shown.ranking
    assert trial.report().impressions == 2


def test_an_overloaded_store(trial: Trial, path: Path) -> None:
    store = trial.store
    assert isinstance(store, SQLiteStore)
    store._queue_size = 4
    other = lock(path)
    shown = [trial.rank("q", A, B, unit=f"u{i}") for i in range(12)]
    refused = [s for s in shown if s.fallback]
    assert {s.fallback for s in refused} == {"the store is overloaded"}
    assert all(s.ranking == A for s in refused)
    unlock(other)
    store._queue_size = 100
    store.flush()
    assert trial.report().impressions == 1 + len(shown) - len(refused)
    assert fallbacks(trial) == {"fallback: the store is overloaded": len(refused)}


def damage(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def test_a_damaged_design(trial: Trial, path: Path) -> None:
    trial.rank("other", A, B, unit="u", wait=True)
    trial.store.flush()
    damage(path, "UPDATE designs SET weights = zeroblob(length(weights)) WHERE query = 'q'")
    with Trial.open(path, background=False, timeout=60) as later:
        shown = later.rank("q", A, B, unit="good", wait=True)
        assert (shown.ranking, shown.fallback) == (A, "a stored design is damaged")
        report = later.report()
        assert report.impressions == 1
        assert report.tallies["damaged impressions"] == 1
        assert {g.name: g.status for g in report.guardrails}["fallbacks"] == "warn"


def test_a_damaged_place(trial: Trial, path: Path) -> None:
    damage(path, "UPDATE impressions SET place = 1000")
    with Trial.open(path, background=False, timeout=60) as later:
        shown = later.rank("q", A, B, unit="good", wait=True)
        assert shown.ranking == A
        assert shown.fallback is not None
        assert later.report().tallies["damaged impressions"] == 1


def test_a_clock_that_goes_back_does_not_take_the_log_with_it(tmp_path: Path) -> None:
    times = iter([1900.0, 2000.0, 3000.0, 1000.0, 1500.0, 4000.0])  # the first for the trial's history
    with Trial.create(tmp_path / "c.db", k=3, background=False, timeout=60, clock=lambda: next(times, 4000.0)) as trial:
        shown = [trial.rank("q", A, B, unit=f"u{i}", wait=True) for i in range(5)]
        assert all(s.fallback is None for s in shown)
        assert (trial.log().time / 1e6).tolist() == [2000, 3000, 3000, 3000, 4000]
        assert trial.report().tallies == {"clock went backwards": 2}


def test_times_recover_after_a_clock_that_had_jumped_ahead_was_set_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand still while the clock is behind them for a moment, and follow it once it has been so for a minute."""
    times = iter([1900.0, 2000.0, 9e8, 2001.0, 2002.0, 2003.0])
    with Trial.create(tmp_path / "c.db", k=3, background=False, timeout=60, clock=lambda: next(times, 4000.0)) as trial:
        for number in range(5):
            if number == 3:
                monkeypatch.setattr(showing, "BEHIND", 0.0)  # a minute has passed
            assert trial.rank("q", A, B, unit=f"u{number}", wait=True).fallback is None
        stored = sorted(row.time // 1_000_000 for row in trial.store.rows(ImpressionRow, 1, 0))
        assert stored == [2000, 2002, 2003, 9e8, 9e8]
        assert trial.report().tallies == {"clock went backwards": 2}


@pytest.mark.parametrize("now", [float("nan"), 1e300])
def test_a_clock_that_makes_no_sense(tmp_path: Path, now: float) -> None:
    with Trial.create(tmp_path / "c.db", k=3, background=False, timeout=60, clock=lambda: now) as trial:
        shown = trial.rank("q", A, B, unit="u", wait=True)
        assert shown.ranking == A
        assert shown.fallback is not None
        assert trial.report().impressions == 0


class Broken:
    """A store of which one operation fails."""

    def __init__(self, inner: SQLiteStore, name: str, fault: Exception) -> None:
        self._inner, self._name, self._fault = inner, name, fault
        self.broken = True

    def __getattr__(self, name: str) -> Any:
        if name != self._name or not self.broken:
            return getattr(self._inner, name)

        def fail(*_: object, **__: object) -> object:
            raise self._fault

        return fail


@pytest.mark.parametrize(
    "fault", [OSError("disk gone"), sqlite3.DatabaseError("malformed"), MemoryError(), KeyError("x")]
)
@pytest.mark.parametrize("operation", ["put", "impression", "void", "tally"])
def test_any_operation_may_fail(path: Path, operation: str, fault: Exception) -> None:
    inner = SQLiteStore(path, write_timeout=60)
    store = Broken(inner, operation, fault)
    with Trial.create(store, k=3, seed=5, background=False, timeout=60, own_store=True) as trial:
        for unit in ("u", "v"):
            shown = trial.rank("q", A, B, unit=unit, wait=True)
            if operation in ("put", "impression"):
                assert (shown.ranking, shown.fallback) == (A, type(fault).__name__)
            else:
                assert shown.fallback is None
        trial.fall_back(shown, A)
        trial.click("nonsense", "x")
        store.broken = False
        assert trial.report().impressions == (0 if operation in ("put", "impression") else 1)


def test_a_write_that_never_ends(path: Path) -> None:
    with Trial.create(SQLiteStore(path), k=3, background=False, timeout=0.01, own_store=True) as trial:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trial.store, "put", lambda row: Stored())
            shown = trial.rank("q", A, B, unit="u", wait=True)
        assert (shown.ranking, shown.fallback) == (A, "the store did not answer in time")
        assert trial.report().impressions == 0
