"""Reports on a log that grows: the same as on the whole log at once, whatever comes when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clocks import Clock
from ranktrial.analysis import analyse as analysis
from ranktrial.analysis import estimate, fit_position_bias
from ranktrial.analysis.analyse import analyse, fitted_impressions
from ranktrial.analysis.answers import settled
from ranktrial.analysis.guardrails import click_model
from ranktrial.config import TrialConfig
from ranktrial.log import Log, folding, units
from ranktrial.methods import LogOpt
from ranktrial.rankings import Pair
from ranktrial.trial import Shown, Trial
from ranktrial.users import position_based
from trial.test_any_order import told

OPTIONS: dict[str, Any] = {
    "k": 3,
    "seed": 4,
    "background": False,
    "timeout": 60.0,
    "method": "LogOpt(schedule=(60,), holdback=0.5)",
}
TALLIED = ("latency", "clicks", "duplicate clicks", "fallbacks", "the page shows what was drawn")
THETA = np.array([1.0, 0.6, 0.4])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments and fits as of a long log."""
    monkeypatch.setattr(folding, "CHUNK", 64)
    monkeypatch.setattr(analysis, "ALL_FITTED", 150)
    monkeypatch.setattr(click_model, "MOST_COMPARED", 650)


def visit(trial: Trial, clock: Clock, random: np.random.Generator, impressions: int, personal: bool) -> list[Shown]:
    """Visitors, of whom some come again; with lists of their own, or those of six queries."""
    seen = []
    for _ in range(impressions):
        clock.now += float(random.integers(1, 9))
        unit = f"visitor {random.integers(10_000) if random.random() < 0.7 else random.integers(20)}"
        of = int(random.integers(10**6)) if personal and random.random() < 0.8 else int(random.integers(6))
        ids = [f"{of}-{i}" for i in range(6)]
        order = np.random.default_rng(of)
        a, b = ([ids[i] for i in order.permutation(6)[:4]] for _ in range(2))
        shown = trial.rank(f"query {of}", a, b, unit=unit, wait=True)
        seen.append(shown)
        for place, document in enumerate(shown.ranking[:3]):
            if random.random() < THETA[place] * (6 - int(document.split("-")[1])) / 8:
                trial.click(shown.id, document, time=clock.now)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize("cohorts", [1_000, 128])
def test_a_report_on_what_has_grown_is_that_on_the_whole_log(
    tmp_path: Path, personal: bool, cohorts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "MOST_COHORTS", cohorts)
    seed = 1 if cohorts < 200 else 2
    clock, random = Clock(), np.random.default_rng(seed)
    seen: list[Shown] = []
    with Trial.create(tmp_path / "t.db", clock=clock, **OPTIONS) as trial:
        for piece, impressions in enumerate((200, 200, 200, 30, 200, 30, 30, 30, 30, 20, 20)):
            now = clock.now
            if piece == 4:  # impressions that are stored late: before others that have been reported on
                clock.now -= 300
            seen += visit(trial, clock, random, impressions, personal)
            clock.now = max(now, clock.now)
            if piece in (3, 6):  # a click on an impression of the first report
                late = seen[10 * piece]
                trial.click(late.id, late.ranking[0], time=now)
            if piece == 5:
                trial.showing.take_back(seen[-40], "changed my mind")
            if piece == 7:
                trial.exclude("visitor 3", "a robot")
            trial.store.flush()
            report = told(trial)
            with Trial.open(tmp_path / "t.db", background=False, clock=clock) as fresh:
                assert told(fresh) == report, piece
                assert fresh.report().impressions == trial.report().impressions
                whole = analyse(fresh.log(), fresh.config, fresh.state.policy.bias.beliefs)
                if piece < 7:
                    found = settled(whole, {})
                    expected = pytest.approx(found.decision.difference, rel=1e-9, nan_ok=True)
                    assert fresh.report().difference == expected
                    for one, other in zip(found.checks, fresh.report().guardrails, strict=True):
                        if one.name not in TALLIED:
                            assert one.value == pytest.approx(other.value, rel=1e-9, nan_ok=True), one.name


def simulated(impressions: int, seed: int = 1) -> Log:
    pair = Pair.from_lists([["x", "y", "z"]] * 9, [["z", "x", "y"]] * 9, k=3).knowing(theta=THETA)
    user = position_based([0.6, 0.3, 0.2] * 9, THETA)
    return Log.simulated(pair, LogOpt(holdback=0.5).policy(pair), user, impressions, seed=seed)


def test_everything_fitted_is_from_the_first_impressions_of_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "ALL_FITTED", 1_000)
    log = simulated(4_000)
    fitted = [fitted_impressions(log.take(np.arange(n)), 0.5) for n in range(4_001)]
    assert fitted[:1_001] == list(range(1_001))
    later = np.array(fitted[1_001:])
    assert len(np.unique(later)) == 16
    assert (np.diff(later) >= 0).all()
    assert (later <= 0.9 * np.arange(1_001, 4_001) + 1).all()  # clicks still come to all of them
    assert (later >= 0.9 * np.arange(1_001, 4_001) / 1.1 - 1).all()
    assert fitted_impressions(log, 2e-4) == 3_797  # and here to the last 200


def test_nothing_is_fitted_to_more_designs_than_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    log = simulated(4_000)
    designs = log.design.copy()
    designs[3_000:] = 100 + np.arange(1_000)  # from here on everybody has lists of their own
    for most, first, last in ((2_000, 4_000, 4_000), (1_000, 3_991, 1_000), (109, 3_100, 109), (3, None, 3)):
        found = analysis.with_few_designs(designs, most)
        assert first in (None, found)
        assert len(np.unique(designs[:found])) == min(most, 1_009)
        assert found == 4_000 or len(np.unique(designs[: found + 1])) == most + 1
        assert analysis.with_few_designs(designs[::-1], most) == last
    monkeypatch.setattr(analysis, "ALL_FITTED", 10)
    monkeypatch.setattr(analysis, "MOST_DESIGNS", 8)
    few = fitted_impressions(log, 0.5)
    assert 0 < few < 3_000
    assert len(np.unique(log.design[:few])) <= 8
    np.testing.assert_array_equal(log.last(7).unit, log.unit[-7:])


def test_relevance_is_learnt_from_fewer_designs_than_theta(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrialConfig.model_validate({"method": LogOpt(), "k": 3})
    log = simulated(4_000)
    whole = analyse(log, config, config.first_beliefs)
    monkeypatch.setattr(analysis, "MOST_LEARNT", 8)
    few = analyse(log, config, config.first_beliefs)
    assert few.fitted == whole.learnt == whole.fitted > 3_000
    assert few.learnt == analysis.with_few_designs(log.design, 8) < 1_000
    assert few.theta == whole.theta.model_copy(update={"inflation": few.theta.inflation})
    found = few.ladder.result("position-based").estimate
    fit, refits = fit_position_bias(log, fitted=few.fitted), config.comparison.traits.learns_at
    by_hand = estimate(log, theta=fit, fitted=few.learnt, cross_fit="past", refits=refits)
    assert found is not None
    np.testing.assert_array_equal(found.x, by_hand.x)


def test_values_stay_until_the_next_fit() -> None:
    config = TrialConfig.model_validate({"method": LogOpt(), "k": 3})
    log = simulated(4_000)
    looks = [analyse(log.take(np.arange(n)), config, config.first_beliefs) for n in (3_500, 3_600, 4_000)]
    assert [look.fitted for look in looks] == [2_879, 3_167, 3_483]
    same = analyse(log.take(np.arange(3_510)), config, config.first_beliefs)
    for name in ("direct", "position-based"):
        now, before, later = (one.ladder.result(name).estimate for one in (same, looks[0], looks[2]))
        assert now is not None
        assert before is not None
        assert later is not None
        np.testing.assert_array_equal(now.x[:3_500], before.x)
        assert (later.x[:3_500] != before.x).mean() > 0.5
    fit = fit_position_bias(log, fitted=2_879)
    refits = config.comparison.traits.learns_at
    by_hand = estimate(log, theta=fit, fitted=2_879, cross_fit="past", refits=refits)
    now = same.ladder.result("position-based").estimate
    assert now is not None
    np.testing.assert_array_equal(by_hand.x[:3_510], now.x)
    again = estimate(log, theta="estimated", fitted=2_879, cross_fit="past", refits=refits)
    assert again.delta == by_hand.delta
    assert again.standard_error == by_hand.standard_error
    assert same.theta.theta == looks[0].theta.theta != looks[2].theta.theta


def test_an_early_impression_of_a_unit_that_is_left_out_changes_no_number_of_others(tmp_path: Path) -> None:
    """It is stored late, and its unit excluded then: the rows that are left are those of the report before."""
    clock, random = Clock(), np.random.default_rng(5)
    began = clock.now
    with Trial.create(tmp_path / "t.db", clock=clock, **OPTIONS) as trial:
        visit(trial, clock, random, 200, personal=False)
        told(trial)
        with Trial.open(
            tmp_path / "t.db", background=False, clock=lambda: began, timeout=60.0
        ) as other:  # its clock is slow
            other.rank("query 1", ["1-0", "1-1", "1-2"], ["1-2", "1-1", "1-0"], unit="robot", wait=True)
        assert trial.log().time[0] == int(began * 1e6)
        trial.exclude("robot", "a robot")
        for _ in range(2):
            visit(trial, clock, random, 100, personal=False)
            report = told(trial)
            with Trial.open(tmp_path / "t.db", background=False, clock=clock) as fresh:
                assert told(fresh) == report
