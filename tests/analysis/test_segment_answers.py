"""Answers by segment: what each is, which of them are no chance, and what is said where segments contradict the whole."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ranktrial.analysis import estimate, fit_position_bias
from ranktrial.analysis.analyse import Analysis, analyse
from ranktrial.analysis.answers import beside, decide, settled, sure_segments, words
from ranktrial.analysis.hostile import most_worth, worth_of_each
from ranktrial.analysis.ladder import AB_TRAFFIC, POSITION_BASED
from ranktrial.analysis.segments import Subject, answer_lines, answers_by_segment
from ranktrial.config import TrialConfig
from ranktrial.log import Log
from ranktrial.log.events import LoggedEvents
from ranktrial.log.simulated import simulated_by_segment
from ranktrial.methods import AB, LogOpt
from ranktrial.metrics import Orders
from ranktrial.rankings import Pair
from ranktrial.report.making import make_report, segmentation
from ranktrial.segments import Segments
from ranktrial.store.base import ConfigVersion
from ranktrial.users import two_devices

DEVICES = {"device": ["phone", "desktop"]}


def a_pair(seed: int, queries: int = 30) -> Pair:
    random = np.random.default_rng(seed)
    a = [[f"{q} {d}" for d in range(6)] for q in range(queries)]
    b = [[f"{q} {d}" for d in random.permutation(6)] for q in range(queries)]
    return Pair.from_lists(a, b, k=6)


def analysed(log: Log, method: str = "LogOpt()", **options: object) -> Analysis:
    config = TrialConfig.model_validate({"method": method, "k": log.k, "segments": DEVICES, **options})
    return analyse(log, config, config.first_beliefs)


def opposite(n: int = 20_000, *, share: float = 0.5, visible: int = 6) -> Log:
    """Phones like what A puts first, desktops what it puts last."""
    pair = a_pair(1)
    zeta = np.zeros(pair.n_documents)
    zeta[pair.top_a] = np.array([0.7, 0.5, 0.4, 0.3, 0.2, 0.1])
    users = two_devices(0.8 - zeta, 6, on_phones=zeta, visible=visible)
    policy = LogOpt(bias="known", relevance="constant", loss=None, holdback=0.5).policy(
        pair.knowing(theta=np.array([1, 0.7, 0.5, 0.4, 0.35, 0.3]))
    )
    phones = round(share * n)
    return simulated_by_segment(
        pair, dict.fromkeys(users, policy), users, {"phone": phones, "desktop": n - phones}, seed=3
    )


@pytest.mark.parametrize("visible", [6, 3])
def test_segments_add_up_to_the_whole_and_each_has_its_own_sign(visible: int) -> None:
    found = settled(analysed(opposite(visible=visible)), {})
    decision, analysis = found.decision, found.analysis
    assert decision.estimator == POSITION_BASED
    answers, tests = answers_by_segment(analysis, decision)
    assert [(one.attribute, one.value) for one in answers] == [("device", "desktop"), ("device", "phone")]
    assert sum(one.searches for one in answers) == decision.searches
    assert sum(one.clicks for one in answers) == decision.clicks
    whole = sum(one.share * one.difference for one in answers)
    assert whole == pytest.approx(-analysis.estimate.delta, abs=1e-12)  # the sum over segments by share
    assert [one.ahead for one in answers] == ["B", "A"]
    assert all(one.discovery and one.rate < 0.05 for one in answers)
    assert answers[1].difference < answers[1].shrunken < answers[0].shrunken < answers[0].difference
    assert all(one.lift.interval.low < one.lift.share < one.lift.interval.high for one in answers)
    assert tests[0].p < 1e-6
    assert (analysis.differs is not None) == (visible == 3)


def test_what_loses_in_a_segment_is_said() -> None:
    found = settled(analysed(opposite(share=0.25)), {})
    segments = segmentation(found, beside(found))
    assert segments is not None
    assert found.decision.winner == "B"
    said = words(found, sure=sure_segments(segments.answers))
    assert "But B gets fewer clicks than A where device is phone (-0." in said.details
    assert "desktop" not in said.details
    assert "The difference is not the same for every device" in segments.text
    assert words(found).details in said.details


def test_segments_are_named_where_there_is_no_answer_for_all() -> None:
    found = settled(analysed(opposite(6_000)), {})
    segments = segmentation(found, beside(found))
    assert found.decision.ahead is None
    assert segments is not None
    said = words(found, sure=sure_segments(segments.answers)).details
    assert "B gets more clicks than A where device is desktop" in said
    assert "B gets fewer clicks than A where device is phone" in said


def test_what_segments_say_waits_as_a_winner_does() -> None:
    """Not before its time, not in favour of B while there is harm, and not if a few hostile searches could have made it up."""
    log = opposite(6_000)
    found = settled(analysed(log), {})
    answers = answers_by_segment(found.analysis, found.decision)[0]
    assert {one.ahead for one in sure_segments(beside(found).segments)} == {"A", "B"}
    assert {one.ahead for one in sure_segments(beside(found).segments, harm=True)} == {"A"}
    assert all(one.stands for one in answers)
    careful = settled(analysed(log, contamination=0.4), {})
    assert not any(one.stands for one in answers_by_segment(careful.analysis, careful.decision)[0])
    assert not sure_segments(beside(careful).segments)

    def details(now: float) -> str:
        weekly = {ConfigVersion(1, 1, "{}"): analysed(log, at_least="7d")}
        return make_report("shoes", weekly, Counter(), None, now=now).text.details

    assert "where device is" in details(8 * 86_400)
    assert "where device is" not in details(6 * 86_400)


@pytest.mark.slow
def test_hostile_searches_of_a_segment_are_a_share_of_all() -> None:
    """Hostile searches may all be in one segment: the smaller that is, the more there."""
    found = settled(analysed(opposite(share=0.1)), {})
    result = found.analysis.ladder.result(POSITION_BASED)
    log = found.analysis.log
    for ranker in (1, -1):
        each = worth_of_each(log, result, ranker)
        assert each.sum() / len(log) == pytest.approx(most_worth(log, result, ranker))
    stands = []
    for contamination in (0.01, 0.02, 0.16):
        careful = settled(analysed(log, contamination=contamination), {})
        stands.append([one.stands for one in answers_by_segment(careful.analysis, careful.decision)[0]])
    assert [sum(one) for one in zip(*stands)] == [3, 1]  # desktop, phone


def test_after_a_change_segments_are_of_the_searches_since() -> None:
    """Desktops first and phones then: what was on desktops before the change counts no more."""
    log = opposite()
    phone, random = log.levels("device") == 2, np.random.default_rng(7)
    order = np.argsort(phone + random.normal(0, 0.3, len(log)), kind="stable")
    found = settled(analysed(replace(log.take(order), time=log.time)), {})
    decision, analysis = found.decision, found.analysis
    assert analysis.changed
    answers, _ = answers_by_segment(analysis, decision)
    assert sum(one.searches for one in answers) == int(analysis.since_change(analysis.log).sum()) < len(log)
    assert sum(one.share for one in answers) == pytest.approx(1)
    assert answers[1].share > 0.8
    whole = sum(one.share * one.difference for one in answers)
    assert decision.interval.low < whole < decision.interval.high < 0
    assert answers[1].ahead == "A"
    assert answers[1].visitors < int(phone.sum())


def test_replicates_by_segment_are_those_of_its_searches_alone() -> None:
    log = opposite(3_000, visible=3)
    fit = fit_position_bias(log)
    orders: dict[str, Any] = {"metric": Orders(window="7d"), "worth": 1.5}
    for options in ({}, orders):
        events = LoggedEvents.of(
            [3, 100, 101, 900], rank=[0, 1, 2, 0], action=[0] * 4, amount=[10**6] * 4, delay=[10] * 4
        )
        shopped = replace(log, events=events, actions=("order",))
        known: dict[str, Any] = {"theta": fit, "estimator": "rank-aware", "prediction": 0.3, "uncovered": "leave out"}
        rests = estimate(shopped, **known, **options).rests["device"]
        assert not rests[0].any()
        for value in (1, 2):
            part = shopped.take(np.flatnonzero(log.levels("device") == value))
            own = estimate(part, **known, **options)
            left = len(part) - np.bincount(part.group(), minlength=20)
            assert own.replicates is not None
            np.testing.assert_allclose(rests[value] / left, own.replicates, rtol=1e-9)


def test_metrics_and_segments_are_one_family() -> None:
    found = settled(analysed(opposite(6_000)), {})
    analysis, decision = found.analysis, found.decision
    clicks, _ = answers_by_segment(analysis, decision)
    result = analysis.ladder.result(POSITION_BASED)
    assert result.estimate is not None
    nothing = replace(result.estimate, x=np.zeros(len(analysis.log)), rests={})
    other = Subject(analysis.log, replace(result, estimate=nothing), np.ones(len(analysis.log)), metric="orders")
    both, tests = answers_by_segment(analysis, decision, [other])
    assert [one.metric for one in both] == ["", "", "orders", "orders"]
    assert [one.metric for one in tests] == ["", "orders"]
    assert not any(one.discovery for one in both[2:])
    for one, alone in zip(both, clicks):
        assert one.difference == alone.difference
        assert one.rate == pytest.approx(min(2 * alone.rate, 1))  # twice as many, none of the others found


def test_an_ab_test_answers_by_segment_without_a_click_model() -> None:
    pair = a_pair(1)
    users = two_devices(np.full(pair.n_documents, 0.2), 6, on_phones=np.full(pair.n_documents, 0.3), visible=6)
    policy = AB().policy(pair)
    sizes = {"phone": 4_000, "desktop": 4_000}
    log = simulated_by_segment(pair, dict.fromkeys(users, policy), users, sizes, seed=4)
    found = settled(analysed(log, "AB()"), {})
    answers, tests = answers_by_segment(found.analysis, found.decision)
    assert found.decision.estimator == AB_TRAFFIC
    for one in answers:
        assert 0 in one.interval
        assert not one.discovery
    counts = [one.visitors for one in answers]
    whole = sum(n * one.difference for n, one in zip(counts, answers)) / sum(counts)
    assert whole == pytest.approx(-found.analysis.estimate.delta, abs=1e-3)
    assert tests[0].p > 0.001


def test_without_attributes_or_clicks_there_is_nothing_by_segment() -> None:
    log = opposite(2_000)
    plain = replace(log, attributes=Segments(), segment=np.empty(0, np.int64))
    for one in (plain, replace(log, clicks=np.zeros_like(log.clicks))):
        found = settled(analysed(one), {})
        assert answers_by_segment(found.analysis, found.decision) == ((), ())
        assert segmentation(found, beside(found)) is None


def test_a_segment_with_few_searches_has_a_row_without_an_interval() -> None:
    log = opposite()
    few = np.flatnonzero(log.levels("device") == 2)[15:]
    part = log.take(np.setdiff1d(np.arange(len(log)), few))
    found = settled(analysed(part), {})
    answers, tests = answers_by_segment(found.analysis, found.decision)
    assert [(one.value, one.searches, np.isfinite(one.interval.low)) for one in answers] == [
        ("desktop", 10_000, True),
        ("phone", 15, False),
    ]
    assert np.isnan(tests[0].p)


def test_a_log_is_decided_with_its_segments() -> None:
    found = decide(opposite(share=0.25))
    assert [one.value for one in found.segments] == ["desktop", "phone"]
    assert "But B gets fewer clicks than A where device is phone (-0." in found.text.details
    assert found.to_dict()["segments"][1]["value"] == "phone"
    once = decide(opposite(share=0.25), anytime=False).segments
    for one, other in zip(once, found.segments, strict=True):
        assert other.interval.low < one.interval.low < one.difference < one.interval.high < other.interval.high
    assert re.match(r"  device: phone +25%  -0\.\d{4}  -0\.", answer_lines(once)[2])
    assert decide(opposite(2_000).take(slice(0, 0))).segments == ()
