"""Events and times of clicks as a log has them: matched to impressions like clicks, and as old as the clock says."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from clocks import Clock
from ranktrial.analysis.estimators.metric_values import metric_values
from ranktrial.log import Log
from ranktrial.log.events import LoggedEvents
from ranktrial.log.reader import LogReader
from ranktrial.metrics import Abandonment, Carts, Metric, Orders, Reformulation, Revenue, TimeToFirstClick
from ranktrial.store import sql
from ranktrial.store.base import Event, EventRow, Void
from ranktrial.store.protocols import Store
from ranktrial.tokens import read_token
from ranktrial.trial import Shown, Trial
from store.kinds import KINDS

LISTS = ["a", "b", "c", "d", "e"], ["b", "f", "a", "g"]
K = 3
METRICS = Orders(window="1h"), Revenue(window="1d", cap=50), TimeToFirstClick()
START = 1_700_000_000.0


class Told(NamedTuple):
    """An event in the words of whoever reads a log: unit, rank from 0, action, amount, seconds after the search."""

    unit: int
    rank: int
    action: str
    amount: int
    delay: float


def trial_on(store: Store, clock: Clock, **options: Any) -> Trial:
    given = {"k": K, "seed": 4, "background": False, "timeout": 60.0, "method": "AB()", "metrics": METRICS, **options}
    return Trial.create(store, own_store=False, clock=clock, **given)


def search(trial: Trial, clock: Clock, number: int) -> Shown:
    clock.now = START + 100 * number + 0.25
    return trial.rank("q", *LISTS, unit=f"unit {number}", wait=True)


def event(trial: Trial, shown: Shown, document: str, action: str, amount: int, delay: float, event_id: str) -> Event:
    token = read_token(shown.id, trial.state.secret)
    assert token is not None
    time = round((START + 0.25 + 100 * int(shown_unit(shown)) + delay) * 1e6)
    return Event(token.key, token.version, document, action, event_id, amount, time, token.second)


def shown_unit(shown: Shown) -> str:
    assert shown._impression is not None
    return str((shown._impression.time - round((START + 0.25) * 1e6)) // 100_000_000)


def told(log: Log) -> list[Told]:
    events = log.events
    number = (log.time[events.at] / 1e6 - START) // 100
    columns = (
        number.astype(int),
        events.rank,
        [log.actions[a] for a in events.action],
        events.amount,
        events.delay / 1e6,
    )
    return sorted(Told(*map(as_python, row)) for row in zip(*columns))


def as_python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def test_events_have_the_rank_of_their_document(store: Store, clock: Clock) -> None:
    """Events before their search count too; those not on the page, void, or wanted by no metric are left out."""
    with trial_on(store, clock) as trial:
        shown = [search(trial, clock, number) for number in range(8)]
        first = trial.log()
        assert (len(first), first.actions, len(first.events)) == (8, ("click", "order"), 0)
        expected = []
        for number, one in enumerate(shown[:6]):
            for rank, document in enumerate(one.ranking[:K]):
                amount, delay = 1_000_000 * (number - 2), 10.0 * number + rank
                store.put(event(trial, one, document, "order", amount, delay, f"order {rank}"))
                expected.append(Told(number, rank, "order", amount, delay))
            store.put(event(trial, one, one.ranking[0], "cart", 0, 1.0, "a cart"))  # which no metric counts
        store.put(event(trial, shown[6], shown[6].ranking[K], "order", 7, 1.0, "of a later page"))
        store.put(event(trial, shown[6], "unheard of", "order", 7, 1.0, "of none"))
        store.put(event(trial, shown[6], shown[6].ranking[1], "order", 7, -5.5, "a clock that is behind"))
        store.put(event(trial, shown[7], shown[7].ranking[1], "order", 7, 5.0, "void")._replace(key=b"nothing   "))
        store.flush()
        log = trial.log()
        assert told(log) == sorted([*expected, Told(6, 1, "order", 7, 0.0)])
        assert log.left_out == {
            "events without impression": 1, "events on what was not shown": 1, "events off the drawn page": 1,
        }  # fmt: skip
        assert (np.diff(log.events.at) >= 0).all()


def test_events_of_void_impressions_are_left_out(store: Store, clock: Clock) -> None:
    with trial_on(store, clock) as trial:
        shown = [search(trial, clock, number) for number in range(4)]
        for one in shown:
            store.put(event(trial, one, one.ranking[2], "order", 5, 1.0, "1"))
        trial.click(shown[1].id, shown[1].ranking[0])
        assert shown[1]._impression is not None
        trial.store.flush()
        before = trial.log()
        assert len(before.events) == 5
        store.put(Void(shown[1]._impression.key, trial.state.version.id, "why", shown[1]._impression.time)).result()
        log = trial.log()
        assert [row.unit for row in told(log)] == [0, 2, 3]
        assert log.left_out["events on void impressions"] == 2
        assert len(before.events) == 5  # a log that was read stays as it is


def test_clicks_have_the_time_of_their_first_report(store: Store, clock: Clock) -> None:
    with trial_on(store, clock) as trial:
        shown = [search(trial, clock, number) for number in range(5)]
        for one, rank, delay in ((0, 0, 30.0), (0, 1, 20.0), (0, 1, 5.0), (1, 2, 90.0), (2, 0, -3.0), (3, 0, 1e7)):
            trial.click(shown[one].id, shown[one].ranking[rank], time=START + 0.25 + 100 * one + delay)
        trial.click(shown[4].id, shown[4].ranking[K + 1], time=START + 400)  # of a later page
        clock.now += 1_000
        store.flush()
        log = trial.log()
        assert told(log) == [
            Told(0, 0, "click", 0, 30.0), Told(0, 1, "click", 0, 20.0), Told(1, 2, "click", 0, 90.0),
            Told(2, 0, "click", 0, 0.0),
        ]  # fmt: skip
        assert metric_values(log, TimeToFirstClick()).each.tolist() == [20.0, 60.0, 0.0, 60.0, 60.0]


@pytest.mark.parametrize("steps", [1, 7])
def test_a_log_is_the_same_in_whatever_order_and_steps_it_was_read(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Searches, clicks and events that come in one order, and in others, from another trial of the same secret."""
    monkeypatch.setattr(sql, "BLOCK", 5)
    random = np.random.default_rng(steps)
    with (
        contextlib.closing(KINDS["sqlite"](tmp_path).open()) as one,
        contextlib.closing(KINDS["sqlite"](make(tmp_path / "other")).open()) as other,
    ):
        one.trials.add("trial", b"secret" * 6)
        other.trials.add("trial", b"secret" * 6)
        with trial_on(one, clock) as first, trial_on(other, clock) as second:
            shown = [search(first, clock, number) for number in range(30)]
            rows: list[Any] = [impression._impression for impression in shown]
            for number, each in enumerate(shown):
                for rank in np.flatnonzero(random.random(K) < 0.6).tolist():
                    document, delay = each.ranking[rank], float(random.integers(0, 99))
                    rows.append(event(first, each, document, "order", number, delay, f"{rank}"))
            for row in rows:
                one.put(row).result()
            whole = first.log()
            for part in np.array_split(random.permutation(len(rows)), steps):
                for at in part.tolist():
                    other.put(rows[at]).result()
                second.log()
            assert len(whole.events) > 30
            assert told(second.log()) == told(whole)
            assert second.log().left_out == whole.left_out == {}


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_window_that_closes_without_new_rows_makes_another_log(tmp_path: Path, clock: Clock) -> None:
    with contextlib.closing(KINDS["sqlite"](tmp_path).open()) as store, trial_on(store, clock) as trial:
        for number in range(3):  # searches at 0.25, 100.25 and 200.25 s
            search(trial, clock, number)
        store.flush()
        log = trial.log()
        assert log.read_at == round((START + 200.25) * 1e6)
        assert metric_values(log, Orders(window="1h")).waiting == 3
        clock.now = START + 260.24  # the first click on the last search may still come, within a minute
        assert trial.log() is log
        clock.now = START + 260.25
        again = trial.log()
        assert (again is log, len(again), again.read_at) == (False, 3, round(clock.now * 1e6))
        for seconds, waiting in ((3600.24, 3), (3600.25, 2), (3700.25, 1), (3900.25, 0)):
            clock.now = START + seconds
            assert metric_values(trial.log(), Orders(window="1h")).waiting == waiting
        last = trial.log()
        clock.now = START + 9_000
        assert trial.log() is last
        clock.now = START + 90_000  # a day
        assert trial.log() is not last


def test_an_analysis_is_made_anew_when_a_window_closes(tmp_path: Path, clock: Clock) -> None:
    with contextlib.closing(KINDS["sqlite"](tmp_path).open()) as store, trial_on(store, clock) as trial:
        search(trial, clock, 0)
        (version,) = store.trials.versions(trial.name)
        analysed = [trial.learning.analysed(trial.name, version) for _ in range(2)]
        clock.now += 3600
        analysed += [trial.learning.analysed(trial.name, version) for _ in range(2)]
        assert [one is other for one, other in pairwise(analysed)] == [True, False, True]


def without_events(store: Store, patch: pytest.MonkeyPatch) -> None:
    """Fail where events are read."""
    blocks = store.blocks

    def read(kind: Any, version: int, after: int) -> Any:
        assert kind is not EventRow
        return blocks(kind, version, after)

    patch.setattr(store, "blocks", read)


@pytest.mark.parametrize("metrics", [(), (Abandonment(),), (Reformulation(window="5min"),)])
def test_only_metrics_that_need_events_read_them(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, metrics: tuple[Metric, ...]
) -> None:
    with (
        contextlib.closing(KINDS["sqlite"](tmp_path).open()) as store,
        trial_on(store, clock, metrics=metrics) as trial,
    ):
        without_events(store, monkeypatch)
        one = search(trial, clock, 0)
        trial.click(one.id, one.ranking[0])
        store.put(event(trial, one, one.ranking[0], "order", 5, 1.0, "1")).result()
        log = trial.log()
        assert (len(log), len(log.events), log.actions, log.left_out) == (1, 0, (), {})
        windows = any(metric.settles_after for metric in metrics)
        assert log.read_at == (round(clock.now * 1e6) if windows else None)
        clock.now += 1e6
        assert (trial.log() is log) == (not windows)


def test_times_of_clicks_alone_need_no_events(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = (TimeToFirstClick(),)
    with (
        contextlib.closing(KINDS["sqlite"](tmp_path).open()) as store,
        trial_on(store, clock, metrics=metrics) as trial,
    ):
        without_events(store, monkeypatch)
        assert trial.log().actions == ("click",)


def test_metrics_that_are_added_are_read_from_the_start(tmp_path: Path, clock: Clock) -> None:
    with contextlib.closing(KINDS["sqlite"](tmp_path).open()) as store, trial_on(store, clock, metrics=()) as trial:
        one = search(trial, clock, 0)
        for action in ("order", "cart"):
            store.put(event(trial, one, one.ranking[0], action, 5, 1.0, action)).result()
        assert trial.log().actions == ()
        for metrics in ((Carts(),), (Carts(), Orders())):
            trial_on(store, clock, metrics=metrics).close()
            (version,) = store.trials.versions(trial.name)
            assert trial.learning.analysed(trial.name, version).log.actions == tuple(m.of_actions[0] for m in metrics)
            assert [row.action for row in told(trial.log(1))] == [m.of_actions[0] for m in metrics]


def test_an_erased_visitor_leaves_no_events(store: Store, clock: Clock) -> None:
    with trial_on(store, clock) as trial:
        for number in range(3):
            one = search(trial, clock, number)
            store.put(event(trial, one, one.ranking[0], "order", 5, 1.0, "1"))
        store.flush()
        assert len(trial.log().events) == 3
        assert trial.erase("asked for it", unit="unit 1") == (1, 0, 1)
        assert [row.unit for row in told(trial.log())] == [0, 2]
        assert trial.history()[-1].detail.startswith("a visitor (1 searches, 0 clicks and 1 events, no longer")


def test_a_reader_without_metrics_is_as_before(store: Store, clock: Clock) -> None:
    with trial_on(store, clock) as trial:
        search(trial, clock, 0)
        store.flush()
        log = LogReader(store, trial.state.version.id, K, plain=True).read()
        assert (len(log), log.actions, log.read_at) == (1, (), None)


def test_events_are_sorted_by_impression_then_time_then_as_they_came() -> None:
    random = np.random.default_rng(2)
    at, delay, amount = random.integers(0, 40, 500), random.integers(0, 9, 500), np.arange(500)
    order = np.lexsort((delay, at))
    events = LoggedEvents.of(at, rank=at % 3, action=at % 2, amount=amount, delay=delay)
    for name, column in (("at", at), ("rank", at % 3), ("action", at % 2), ("amount", amount), ("delay", delay)):
        assert getattr(events, name).tolist() == column[order].tolist()
