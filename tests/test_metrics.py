from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ranktrial.config import TrialConfig
from ranktrial.log import Log
from ranktrial.log.events import LoggedEvents
from ranktrial.metrics import (
    Abandonment,
    Carts,
    Clicks,
    Dwell,
    Events,
    FirstClickRank,
    Metric,
    Orders,
    Reformulation,
    Revenue,
    SessionSuccess,
    TimeToFirstClick,
    parse_metric,
)


def trial_config(**options: Any) -> TrialConfig:
    return TrialConfig.model_validate(options)


WRITTEN = [
    (Clicks(), "Clicks()"),
    (Clicks(role="guard", tolerance=0.02), 'Clicks(role="guard", tolerance=0.02)'),
    (Orders(), 'Orders(window="7d")'),
    (Orders(window=86_400, role="primary"), 'Orders(window="1d", role="primary")'),
    (Carts(window="90s"), 'Carts(window="90s")'),
    (Revenue(window="36h", cap=500.0), 'Revenue(window="36h", cap=500)'),
    (Revenue(since=1_794_830_400), 'Revenue(window="7d", since=1794830400)'),
    (Dwell(seconds=10), 'Dwell(window="1d", seconds=10)'),
    (Events(actions=["signup"]), 'Events(window="1d", actions=("signup",))'),
    (
        Events(actions="tip", amount=True, name="tips"),
        'Events(window="1d", actions=("tip",), amount=True, name="tips")',
    ),
    (Abandonment(), "Abandonment()"),
    (Abandonment(better="more"), 'Abandonment(better="more")'),
    (FirstClickRank(), "FirstClickRank()"),
    (TimeToFirstClick(limit=30), 'TimeToFirstClick(limit="30s")'),
    (Reformulation(window="5min"), 'Reformulation(window="5min")'),
    (SessionSuccess(), 'SessionSuccess(window="30min")'),
]


@pytest.mark.parametrize(("metric", "text"), WRITTEN, ids=[text for _, text in WRITTEN])
def test_metrics_print_as_written_and_parse_back(metric: Metric, text: str) -> None:
    assert str(metric) == text
    assert parse_metric(text) == metric


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Sales()", "no metric 'Sales'; known: Abandonment, Carts"),
        ("orders", "no metric 'orders'"),
        ("Orders(7)", "is not a metric; write one like"),
        ("Orders(days=7)", "Orders has no option 'days'; options: "),
        ("Orders(window='a week')", "window is 'a week', must be seconds, or a number and"),
        ("Revenue(cap=0)", "cap is 0, must be above 0"),
        ("Events()", "actions are (), must be at least one"),
        ("Events(actions=('click',))", "clicks are not events"),
        ("Events(actions=('Sign up',))", "must be 1 to 40 lower-case letters"),
        ("Orders(tolerance=0.1)", "only a guard has one"),
        ("Orders(since=1794830400000)", "since is 1794830400000, must be"),
        ("Orders(role='main')", "role is 'main', must be one of"),
    ],
)
def test_what_is_wrong_with_a_metric_is_said(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_metric(text)


def test_one_metric_decides_and_names_differ() -> None:
    given = trial_config(metrics=["Orders(role='primary')", Abandonment()])
    assert given.measured == (Orders(role="primary"), Abandonment(), Clicks())
    assert trial_config().measured == (Clicks(role="primary"),)
    assert trial_config(metrics=[Orders(), Clicks()]).measured == (Clicks(role="primary"), Orders())
    guard = Clicks(role="guard", tolerance=0.02, name="lost clicks")
    assert trial_config(metrics=[guard, Orders(role="primary")]).measured == (Orders(role="primary"), guard)
    assert trial_config(metrics=[guard, Clicks()]).measured == (Clicks(role="primary"), guard)
    for metrics, says in (
        ([Orders(), Orders(window="1d")], "two metrics are called 'orders'"),
        ([Orders(role="primary"), Revenue(role="primary")], "only one can decide"),
        ([Orders(name="clicks")], "two metrics are called 'clicks'"),
        ([Clicks(role="guard", tolerance=0.02), Orders()], "no other metric is primary: one must decide"),
    ):
        with pytest.raises(ValueError, match=says):
            trial_config(metrics=metrics)


def test_metrics_are_stored_as_texts_and_change_in_place() -> None:
    config = trial_config(metrics=[metric for metric, _ in WRITTEN[2:3] + WRITTEN[5:6]])
    assert TrialConfig.stored(config.to_store()).metrics == config.metrics
    assert trial_config().shows_as(config)
    assert trial_config().changes(config) == {"metrics": 'none -> Orders(window="7d"), Revenue(window="36h", cap=500)'}


def test_a_metric_counts_from_when_it_was_added() -> None:
    before = trial_config(metrics=[Orders(role="primary")])
    after = trial_config(metrics=[Orders(), Clicks(), Revenue()]).measuring_from(before, 9.0)
    assert after.metrics == (Orders(), Clicks(), Revenue(since=9.0))
    again = trial_config(metrics=[Revenue(role="guard"), Orders(window="1d")]).measuring_from(after, 20.0)
    assert again.metrics == (Revenue(role="guard", since=9.0), Orders(window="1d", since=20.0))
    assert trial_config(metrics=[Orders()]).measuring_from(None, 9.0).metrics == (Orders(),)
    later = trial_config(metrics=[Orders(since=30), Carts(since=5)]).measuring_from(after, 19.2)
    assert later.metrics == (Orders(since=30), Carts(since=20.0))


def test_events_go_with_their_impressions() -> None:
    search = {"query": "shoes", "a": ["x", "y"], "b": ["y", "z"], "clicked": []}
    log = Log.from_records([{**search, "shown": ["x", "y"], "unit": f"u{i}"} for i in range(6)], k=2)
    events = LoggedEvents.of(
        [5, 1, 1, 3], rank=[0, 1, -1, 0], action=[0, 0, 1, 0], amount=[1, 2, 3, 4], delay=[9, 9, 5, 2]
    )
    log = replace(log, events=events, actions=("order", "cart"), read_at=99)
    assert log.events.at.tolist() == [1, 1, 3, 5]
    assert log.events.delay.tolist() == [5, 9, 2, 9]
    flags = np.array([False, True, False, False, True, True])
    for some in (flags, np.flatnonzero(flags)):
        taken = log.take(some)
        assert (taken.events.at.tolist(), taken.events.amount.tolist()) == ([0, 0, 2], [3, 2, 1])
    assert log.take(np.array([3, 1])).events.amount.tolist() == [4, 3, 2]
    assert log.last(3).events.at.tolist() == [0, 2]
    assert log.first(2).events.at.tolist() == [1, 1]
    assert log.compact().events is log.events
    assert log.take(flags).read_at == 99
