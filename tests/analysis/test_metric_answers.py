"""Answers by metric: each as its log says, the primary one decides, guards hold it up, and the rest is one family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from benchmarks.purchases import Purchases

from ranktrial.analysis import estimate
from ranktrial.analysis.analyse import Analysis, analyse
from ranktrial.analysis.answers import Settled, beside, measured_all, settled
from ranktrial.analysis.discoveries import discoveries
from ranktrial.analysis.ladder import AB_TRAFFIC, AFFINE, DIRECT, POSITION_BASED
from ranktrial.analysis.metrics import MetricAnswer, guarded, loss_of_b, measured, metric_answer
from ranktrial.config import TrialConfig
from ranktrial.log import Log
from ranktrial.log.events import LoggedEvents
from ranktrial.methods import LogOpt
from ranktrial.metrics import Abandonment, Clicks, Events, FirstClickRank, Metric, Orders, Revenue
from ranktrial.rankings import Pair
from ranktrial.segments import Segments
from ranktrial.users import position_based

THETA = np.array([1.0, 0.6, 0.3])
QUERIES = 30
PAIR = Pair.from_lists(["abcd"] * QUERIES, ["dbca"] * QUERIES, k=3).knowing(theta=THETA)
VISITORS = position_based(np.tile([0.5, 0.3, 0.6, 0.4], QUERIES), THETA)
RATES = np.tile([0.1, 0.2, 0.2, 0.5], QUERIES)  # of orders after a click: d, which B has at the top, sells most
DAY = 86_400_000_000


def log_of(impressions: int = 6_000, holdback: float = 0.5, rate: Any = RATES) -> Log:
    """A gets more clicks, B more orders, each of 10 and within a day."""
    log = Log.simulated(PAIR, LogOpt(holdback=holdback).policy(PAIR), VISITORS, impressions, seed=3)
    return Purchases(rate=rate, amount=10.0, delay=3600.0).after(replace(log, theta=None), seed=4)


def analysed(log: Log, metrics: Sequence[Metric], method: str = "LogOpt()", **options: Any) -> Analysis:
    config = TrialConfig.model_validate({"k": 3, "metrics": metrics, "method": method, **options})
    return analyse(log, config, config.first_beliefs)


def answered(log: Log, *metrics: Metric, **options: Any) -> tuple[Settled, dict[str, MetricAnswer]]:
    found = settled(analysed(log, metrics, **options), {})
    return found, {one.title: one for one in map(metric_answer, measured_all(found))}


def test_clicks_alone_are_no_answer_by_metric() -> None:
    found, answers = answered(log_of(1_000))
    assert answers == {}
    assert found.of_clicks.decision is found.decision


def test_the_primary_metric_decides_and_clicks_stand_beside_it() -> None:
    log = log_of()
    found, answers = answered(log, Orders(role="primary"), Revenue())
    by_clicks, others = answered(log, Orders())
    assert (found.decision.winner, by_clicks.decision.winner) == ("B", "A")
    assert list(answers) == ["orders", "revenue", "clicks"]
    assert list(others) == ["clicks", "orders"]
    assert (answers["orders"].role, answers["clicks"].role) == ("primary", "secondary")
    for what in ("difference", "interval", "lift", "estimator"):
        assert getattr(answers["orders"], what) == getattr(found.decision, what)
        assert getattr(answers["clicks"], what) == getattr(by_clicks.decision, what)
        assert getattr(answers["orders"], what) == getattr(others["orders"], what)
    assert found.checks == by_clicks.checks  # checks of the click model look at clicks


def test_an_answer_is_what_its_log_says() -> None:
    log = log_of()
    _, answers = answered(log, Orders(role="primary"), Abandonment())
    orders = answers["orders"]
    assert orders.value == pytest.approx(len(log.events) / len(log))
    assert orders.difference == pytest.approx(
        -estimate(
            log, metric=Orders(), cross_fit="past", refits=LogOpt().traits.learns_at, independent="cohorts"
        ).delta,
        abs=3e-3,  # a fit of theta of its own
    )
    empty, ab = answers["searches without a click"], log.arm
    assert empty.value == np.mean(log.clicks_each == 0)
    by_hand = np.mean(log.clicks_each[ab < 0] == 0) - np.mean(log.clicks_each[ab > 0] == 0)
    assert empty.difference == pytest.approx(by_hand, abs=0.01)  # adjusted by query
    assert empty.estimator == AB_TRAFFIC


def test_orders_on_every_click_are_clicks() -> None:
    """The same values, but for the first searches, before any value of a click is known; and no affine estimate."""
    log = log_of(rate=1.0)
    found = settled(analysed(log, [Orders()]), {})
    clicks, orders = measured_all(found)
    for name in (AB_TRAFFIC, DIRECT, POSITION_BASED):
        of_clicks, of_orders = (one.analysis.ladder.result(name) for one in (clicks, orders))
        assert of_orders.estimate is not None
        assert of_clicks.estimate is not None
        apart = np.flatnonzero(np.abs(of_orders.estimate.x - of_clicks.estimate.x) > 1e-9)
        assert apart.max(initial=-1) < (0 if name == AB_TRAFFIC else 100)
    assert [result.name for result in orders.analysis.ladder.results] == [AB_TRAFFIC, DIRECT, POSITION_BASED]
    assert AFFINE in [result.name for result in clicks.analysis.ladder.results]
    assert orders.decision.allowance == pytest.approx(clicks.decision.allowance)
    assert orders.decision.difference == pytest.approx(clicks.decision.difference, rel=0.01)
    both = [one.analysis.clicks_of_both for one in (clicks, orders)]
    assert both[0] is not None
    assert both[1] is not None
    assert both[1].mean == pytest.approx(both[0].mean, rel=0.01)
    points = [one.analysis.points([AB_TRAFFIC], one.widen) for one in (clicks, orders)]
    assert [point.low for point in points[0]] == pytest.approx([point.low for point in points[1]])


def test_everything_scales_with_the_amount() -> None:
    """Orders of 10 each: revenue is ten times the orders in every number, the allowance and the end of a test for harm too."""
    found = settled(analysed(log_of(), [Orders(role="primary"), Revenue()]), {})
    orders, revenue, _ = measured_all(found)
    one, ten = map(metric_answer, [orders, revenue])
    assert ten.value == pytest.approx(10 * one.value)
    assert ten.difference == pytest.approx(10 * one.difference)
    assert ten.interval == pytest.approx([10 * end for end in one.interval])
    assert ten.lift.interval == pytest.approx(one.lift.interval)
    assert revenue.decision.allowance == pytest.approx(10 * orders.decision.allowance)
    assert orders.decision.allowance == pytest.approx(0.06 * orders.analysis.ladder.disagreement * one.value)
    guard = measured(found.of_clicks.analysis, Revenue(role="guard", better="less"), found.rules)
    answer = metric_answer(guard)
    assert answer.loss == pytest.approx(one.lift.share)
    assert answer.at_least > 0


def test_less_is_better_where_the_metric_says_so() -> None:
    log = log_of()
    found, _ = answered(log, Abandonment(role="primary"))
    turned_round, _ = answered(log, Abandonment(role="primary", better="more"))
    assert (found.decision.winner, turned_round.decision.winner) == ("A", "B")
    assert found.decision.ahead == "A"
    assert found.decision.interval == turned_round.decision.interval


def test_what_has_not_matured_is_told() -> None:
    log = replace(log_of(), time=np.arange(6_000) * DAY // 600, read_at=10 * DAY)
    _, answers = answered(log, Orders(window="7d"), Revenue(window="30d"), Orders(window="1d", cap=1, name="sold"))
    assert (answers["clicks"].searches, answers["clicks"].waiting) == (6_000, 0)
    assert (answers["orders"].searches, answers["orders"].waiting) == (1_801, 4_199)
    assert answers["revenue"].note == "No search counts yet: 6,000 searches are too recent."
    assert np.isnan(answers["revenue"].value)
    assert (answers["sold"].searches, answers["sold"].note) == (5_401, "")


def test_what_page_metrics_wait_for() -> None:
    _, answers = answered(log_of(1_000, holdback=0.0), FirstClickRank(), method="LogOpt(holdback=0)")
    note = "Only A/B traffic tells it; waiting for 50 A/B searches of A and of B (0 and 0 so far)."
    assert answers["rank of the first click"].note == note


def test_an_interval_needs_searches_with_a_value() -> None:
    few = log_of(6_000, rate=0.002)
    assert 0 < len(few.events) < 20
    found, answers = answered(few, Orders(role="primary"))
    assert (found.decision.state, found.decision.clicks) == ("too early", len(few.events))
    assert "20 searches with orders" in answers["orders"].note
    none, _ = answered(replace(few, events=LoggedEvents.EMPTY), Orders(role="primary"))
    assert none.decision.state == "no events"


def test_direct_purchases_and_caps_are_told() -> None:
    log = log_of(2_000)
    unclicked = np.flatnonzero(~log.clicks[:, 0])[:100]
    more = LoggedEvents.of(
        [*log.events.at, *unclicked],
        rank=[*log.events.rank, *np.zeros(100)],
        action=np.zeros(len(log.events) + 100),
        amount=[*log.events.amount, *np.full(100, 30_000_000)],
        delay=[*log.events.delay, *np.zeros(100)],
    )
    _, answers = answered(replace(log, events=more), Orders(), Revenue(cap=20))
    sold = len(log.events)
    assert answers["orders"].direct == pytest.approx(100 / (sold + 100))
    assert answers["revenue"].direct == pytest.approx(2_000 / (10 * sold + 2_000))
    assert answers["revenue"].capped == pytest.approx(1_000 / (10 * sold + 3_000))


# --- guards -------------------------------------------------------------------------------------------------------------------


def test_a_winner_that_a_guard_finds_harm_in_is_withheld() -> None:
    found, answers = answered(log_of(20_000), Orders(role="primary"), Clicks(role="guard", tolerance=0.02))
    clicks = answers["clicks"]
    assert clicks.guard == "harm"
    assert 0.02 < clicks.at_least < clicks.loss == pytest.approx(-clicks.lift.share)
    assert found.decision.winner == "B"
    decision = guarded(found.decision, answers.values())
    assert (decision.state, decision.winner, decision.reasons) == ("withheld", None, ("guard",))
    assert decision.harm == (f"at least {100 * clicks.at_least:.1f}% fewer clicks",)
    _, tolerated = answered(log_of(20_000), Orders(role="primary"), Clicks(role="guard", tolerance=0.5))
    assert tolerated["clicks"].guard == "ok"
    assert guarded(found.decision, tolerated.values()) == found.decision


def test_harm_by_a_guard_takes_nothing_from_a() -> None:
    found, answers = answered(log_of(20_000), Clicks(role="primary"), Orders(role="guard", better="less"))
    decision = guarded(found.decision, answers.values())
    assert answers["orders"].guard == "harm"
    assert (decision.winner, len(decision.harm)) == ("A", 1)


def test_guards_know_nothing_without_an_interval() -> None:
    _, answers = answered(log_of(60), Orders(role="primary"), Clicks(role="guard"), Abandonment(role="guard"))
    assert {answers[name].guard for name in ("clicks", "searches without a click")} == {"unknown"}
    assert answers["orders"].guard is None
    assert str(loss_of_b(None)) == "(nan, -inf)"


# --- one family ---------------------------------------------------------------------------------------------------------------


def test_metrics_and_segments_are_one_family() -> None:
    """Every discovery is one of all e-values together: those of metrics, and those of every metric by segment."""
    log = log_of(3_000)
    devices = Segments.of({"device": ["phone", "desktop"]})
    code = np.random.default_rng(5).integers(0, 2, len(log))
    codes = np.array([devices.code({"device": name}).code for name in ("phone", "desktop")])
    log = replace(log, attributes=devices, segment=codes[code])
    config: dict[str, Any] = {"segments": {"device": ("phone", "desktop")}}
    metrics = Orders(role="primary"), Revenue(), Abandonment(), FirstClickRank(role="guard")
    found = settled(analysed(log, metrics, **config), {})
    _, answers, segments, _ = beside(found)
    secondary = [one for one in answers if one.role == "secondary"]
    assert [one.title for one in secondary] == ["revenue", "searches without a click", "clicks"]
    family: list[Any] = [*secondary, *segments]
    assert len(family) == 3 + 4 * 2
    assert {one.metric for one in segments} == {"orders", "revenue", "searches without a click", ""}
    assert [one.discovery for one in family] == discoveries([one.evidence for one in family]).tolist()
    assert any(one.discovery for one in secondary)
    others = [one for one in answers if one.role != "secondary"]
    assert not any(one.discovery for one in others)


@pytest.mark.slow
def test_metrics_that_do_not_differ_are_hardly_ever_discovered() -> None:
    """Twenty metrics of rankers who differ in nothing but the order of equal documents, looked at ten times."""
    theta = np.array([1.0, 0.6])
    pair = Pair.from_lists(["ab"] * 20, ["ba"] * 20, k=2).knowing(theta=theta)
    visitors = position_based(np.full(40, 0.5), theta)
    rng, false = np.random.default_rng(1), 0
    metrics = [Events(actions=(f"a{i}",)) for i in range(20)]
    for seed in range(5):
        log = Log.simulated(pair, LogOpt(holdback=0.5).policy(pair), visitors, 3_000, seed=seed)
        impression, rank, _ = log.clicked
        happened = np.flatnonzero(rng.random((20, len(rank))) < 0.2)
        action, click = np.divmod(happened, len(rank))
        at = impression[click]
        events = LoggedEvents.of(at, rank=rank[click], action=action, amount=0 * at, delay=0 * at)
        log = replace(log, theta=None, events=events, actions=tuple(f"a{i}" for i in range(20)))
        for n in (1_000, 3_000):
            found = settled(analysed(log.first(n), metrics), {})
            answers = beside(found).metrics
            false += sum(one.discovery for one in answers)
    assert false == 0
