"""Whole trials that orders decide: events through the store to the report, as they mature, and guards that stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clocks import DAY, Clock
from ranktrial.metrics import Abandonment, Clicks, FirstClickRank, Metric, Orders, Revenue
from ranktrial.report.schema import Report
from ranktrial.store.protocols import Store
from ranktrial.trial import Trial
from store.kinds import Kind

OPTIONS: dict[str, Any] = {"k": 3, "seed": 1, "background": False, "timeout": 60.0}
LIST = ["a", "b", "c"]


def shop(store: Path | Store, clock: Clock, *metrics: Metric, method: str = "AB()", **options: Any) -> Trial:
    return Trial.create(store, metrics=metrics, clock=clock, method=method, **OPTIONS, **options)


def visit(trial: Trial, clock: Clock, number: int, *, click: str, order: str, seed: int) -> None:
    """Visitors who come every 10 seconds, and mostly click, or order for 20, where this result is first."""
    random = np.random.default_rng(seed)
    for i in range(number):
        clock.now += 10
        shown = trial.rank(f"q{i % 20}", LIST, LIST[::-1], f"u{seed}-{i}")
        first = shown.ranking[0]
        if shown.fallback is None and random.random() < (0.7 if first == click else 0.4):
            trial.click(shown.id, first, wait=False)
            if random.random() < (0.5 if first == order else 0.1):
                trial.event(shown.id, first, "order", "19.90", event_id=f"{seed}-{i}", wait=False)
    trial.store.flush()


def told(report: Report) -> dict[str, Any]:
    return {one.title: one for one in report.metrics}


def test_orders_decide_once_their_window_is_over(kind: Kind) -> None:
    clock, store = Clock(), kind.open()
    with shop(store, clock, Orders(window="7d", role="primary"), Revenue(window="7d", cap=15)) as trial:
        visit(trial, clock, 600, click="a", order="c", seed=1)
        early = trial.report()
        assert early.decision.state == "too early"
        assert early.text.headline == "Too early to say: no search is old enough yet to count for orders."
        assert (early.impressions, told(early)["orders"].waiting) == (600, 600)
        assert told(early)["orders"].note == "No search counts yet: 600 searches are too recent."
        assert told(early)["clicks"].searches == 600
        clock.now += 7 * DAY - 3_000
        half = told(trial.report())["orders"]
        assert (half.searches, half.waiting) == (300, 300)
        clock.now += 3_000
        report = trial.report()
        orders, revenue, clicks = report.metrics
        assert (orders.title, revenue.title, clicks.title) == ("orders", "revenue", "clicks")
        assert report.decision.winner == "B"
        assert report.text.headline.startswith("B gets ")
        assert report.text.headline.endswith(" more orders than A.")
        assert "orders per search" in report.verdict
        assert clicks.difference < 0 < orders.difference == report.difference
        assert revenue.value == pytest.approx(15 * orders.value)
        for row in report.metrics:
            assert 2 < len(row.band) <= 16
            last = row.band[-1]
            assert (last.difference, last.low, last.high) == pytest.approx((row.difference, *row.interval))
        assert revenue.capped == pytest.approx(4.9 / 19.9)
        assert report.to_dict()["metrics"][0]["metric"] == 'Orders(window="7d", role="primary")'
    store.close()


def test_a_winner_by_orders_that_costs_clicks_is_not_to_be_shipped(tmp_path: Path) -> None:
    clock = Clock()
    with shop(tmp_path / "t.db", clock, Orders(window="1h", role="primary"), Clicks(role="guard")) as trial:
        visit(trial, clock, 1_000, click="a", order="c", seed=1)
        clock.now += 3_600
        trial.supervisor.step()
        report = trial.report()
        assert not trial.stopped  # without a tolerance the guard only tells
        assert report.guards == ()
        assert (report.decision.state, report.decision.reasons) == ("withheld", ("guard",))
        assert told(report)["clicks"].guard == "harm"
        assert " more orders than A, but at least " in report.text.headline
        assert report.text.next.startswith("Do not ship B as it is: it has at least ")
        assert report.ended == ""


@pytest.mark.parametrize(
    ("guard", "sentence"),
    [
        (Clicks(role="guard", tolerance=0.05), "B gets at least "),
        (Abandonment(role="guard", tolerance=0.05), "more searches without a click than A"),
        (FirstClickRank(role="guard", tolerance=0.05), "B has a rank of the first click at least "),
    ],
    ids=str,
)
def test_a_guard_with_a_tolerance_stops_the_trial(tmp_path: Path, guard: Metric, sentence: str) -> None:
    clock = Clock()
    with shop(tmp_path / "t.db", clock, Orders(window="1h", role="primary"), guard) as trial:
        for look in range(12):
            visit(trial, clock, 250, click="a", order="c", seed=look)
            trial.supervisor.step()
            trial.watcher.step()
            if trial.stopped:
                break
        assert trial.stopped
        last = trial.history()[-1]
        assert (last.what, last.who) == ("stopped", f"the guard on {guard.title}")
        assert sentence in last.reason
        assert "5.0% is allowed" in last.reason


def test_a_guard_that_finds_no_harm_lets_the_trial_go_on(tmp_path: Path) -> None:
    clock = Clock()
    guard = Abandonment(role="guard", tolerance=0.5)
    with shop(tmp_path / "t.db", clock, Orders(window="1h", role="primary"), guard) as trial:
        for look in range(4):
            visit(trial, clock, 250, click="c", order="c", seed=look)
            trial.supervisor.step()
            trial.watcher.step()
        assert not trial.stopped
        report = trial.report()
        assert [(one.name, one.status) for one in report.guards] == [("searches without a click", "pass")]
        assert told(report)["searches without a click"].guard == "ok"


def test_a_metric_that_is_added_later_counts_from_then_on(tmp_path: Path) -> None:
    clock = Clock()
    with shop(tmp_path / "t.db", clock) as trial:
        visit(trial, clock, 200, click="a", order="c", seed=1)
        assert trial.report().metrics == ()
    clock.now += 1
    with shop(tmp_path / "t.db", clock, Orders(window="1h")) as trial:
        visit(trial, clock, 300, click="a", order="c", seed=2)
        clock.now += 3_600
        report = trial.report()
        assert [(one.title, one.searches) for one in report.metrics] == [("clicks", 500), ("orders", 300)]


def test_a_trial_with_mixed_lists_decides_by_orders(tmp_path: Path) -> None:
    """LogOpt: position bias from clicks, the difference in orders from all estimates, its segments of orders too."""
    clock = Clock()
    segments = {"device": ["phone", "desktop"]}
    primary = Orders(window="1h", role="primary")
    with shop(tmp_path / "t.db", clock, primary, method="LogOpt(holdback=0.3)", segments=segments) as trial:
        random = np.random.default_rng(5)
        for i in range(2_500):
            clock.now += 10
            query, device = i % 20, "phone" if i % 3 else "desktop"
            a = [f"{query}-{name}" for name in "abcd"]
            shown = trial.rank(f"q{query}", a, a[::-1], f"u{i}", segment={"device": device})
            for rank, document in enumerate(shown.ranking):
                if random.random() < 0.6 * 0.6**rank:
                    trial.click(shown.id, document, wait=False)
                    if document[-1] in "cd" and random.random() < 0.7:
                        trial.event(shown.id, document, "order", 5, event_id=f"{i}", wait=False)
        trial.store.flush()
        clock.now += 3_600
        report = trial.report()
        assert (report.decision.winner, report.decision.estimator) == ("B", "position-based")
        assert report.theta.fitted
        assert told(report)["clicks"].guard is None
        assert report.segments is not None
        names = [(one.metric, one.value) for one in report.segments.answers]
        assert names == [("orders", "phone"), ("orders", "desktop"), ("", "phone"), ("", "desktop")]
        assert report.segments.text.count("p =") == 1
        assert report.band[-1].low == report.interval.low
