"""Clicks far down that go together: none beyond chance while all visitors look at ranks alike, whatever else they differ in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oracles import click_patterns
from ranktrial.analysis.analyse import analyse
from ranktrial.analysis.guardrails.alike import look_alike, together
from ranktrial.analysis.guardrails.status import guardrail
from ranktrial.arrays import NO_DOCUMENT
from ranktrial.config import TrialConfig
from ranktrial.log import Log
from ranktrial.log.simulated import simulated_by_segment
from ranktrial.methods import AB, LogOpt
from ranktrial.rankings import Pair
from ranktrial.segments import NO_SEGMENTS
from ranktrial.users import User, cascade, position_based, rank_decay, two_devices

THETA = rank_decay(4, 0.7)
SMALL = Pair.from_lists(["abcd"], ["dcea"], k=4).knowing(theta=THETA)
LIKED = np.array([0.5, 0.2, 0.7, 0.4, 0.3])


def mean_score(*visitors: User) -> float:
    """Mean of the score over everything that can happen, with as many visitors of each kind."""
    mixture = LogOpt(holdback=0.4).policy(SMALL)
    happened = []
    for user in visitors:
        for row, weight in zip(mixture.rankings, mixture.weights):
            for clicks, chance in click_patterns(user, row[row != NO_DOCUMENT]):
                happened.append((row, clicks, weight * chance / len(visitors)))
    log = Log.of(SMALL, mixture, [one[0] for one in happened], [one[1] for one in happened])
    return float(together(log, THETA).values.totals @ [one[2] for one in happened])


def test_the_score_has_mean_zero_if_all_look_alike() -> None:
    everybody = position_based(LIKED, THETA)
    assert mean_score(everybody) == pytest.approx(0, abs=1e-12)
    keen, idle = position_based(LIKED * 1.4, THETA), position_based(LIKED * 0.3, THETA)
    others = position_based(LIKED[::-1].copy(), THETA)  # who want other documents
    assert mean_score(keen, idle, others) == pytest.approx(0, abs=1e-12)


def test_the_score_is_positive_if_some_see_less() -> None:
    everybody = position_based(LIKED, THETA)
    assert mean_score(everybody, position_based(LIKED, [1.0, 0.6, 0.0, 0.0])) > 0.001
    assert mean_score(cascade(LIKED, 4, leave_after_click=0.0, leave_after_skip=0.5)) > 0.001  # who stop reading


def traffic(users: dict[str, User], n: int) -> Log:
    random = np.random.default_rng(4)
    lists = [[random.permutation(9)[:6].tolist() for _ in range(2)] for _ in range(40)]
    pair = Pair.from_lists([a for a, _ in lists], [b for _, b in lists], k=6).knowing(theta=rank_decay(6, 0.7))
    policy = LogOpt(bias="known", relevance="constant", loss=None, holdback=0.3).policy(pair)
    zeta = random.uniform(0.1, 0.6, pair.n_documents)
    known = {name: replace(user, zeta=zeta) for name, user in users.items()}
    return simulated_by_segment(pair, dict.fromkeys(known, policy), known, dict.fromkeys(known, n // 2), seed=5)


def test_the_slope_is_the_variance_of_the_exponent() -> None:
    log = traffic(
        {"shy": position_based([0.0], rank_decay(6, 1.0)), "keen": position_based([0.0], rank_decay(6, 0.4))}, 120_000
    )
    found = together(log, rank_decay(6, 0.7))
    totals = found.values.totals
    error = found.variance / totals.sum() * np.sqrt(totals @ totals)
    assert error < 0.02
    assert found.variance == pytest.approx(0.3**2, abs=4 * error)


def test_phones_that_nobody_declared_are_noticed_and_those_declared_are_not() -> None:
    log = traffic(two_devices([0.0], 6, visible=2), 30_000)
    blind = replace(log, attributes=NO_SEGMENTS, segment=np.empty(0, np.int64))
    found = []
    for one, declared in ((blind, {}), (log, {"device": ["desktop", "phone"]})):
        config = TrialConfig.model_validate({"method": "LogOpt()", "k": 6, "segments": declared})
        found.append(guardrail(look_alike, look_alike(analyse(one, config, config.first_beliefs))))
    assert [one.status for one in found] == ["warn", "pass"]
    assert "visitors look down the page in different ways" in found[0].text
    assert "Phones show fewer results" in found[0].cause
    assert 'Declare the device (segments={"device": [...]})' in found[0].remedy
    assert "beyond what device explains" in found[1].text


def test_where_it_cannot_be_told() -> None:
    log = traffic(two_devices([0.0], 6, visible=6), 60)
    config = TrialConfig.model_validate({"method": "LogOpt()", "k": 6})
    assert look_alike(analyse(log, config, config.first_beliefs)).status == "unknown"
    plain = TrialConfig.model_validate({"method": AB(), "k": 6})
    assert look_alike(analyse(log, plain, plain.first_beliefs)).status == "pass"
