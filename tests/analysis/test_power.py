"""Power of sequences against simulated Brownian paths; what an estimated theta adds against simulated logs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from oracles import fixed_world
from ranktrial.analysis import analyse as analysis
from ranktrial.analysis import asymptotic_radius, estimate, fit_position_bias, plan
from ranktrial.analysis.intervals import FIRST_LOOK, t_widening
from ranktrial.analysis.ladder import LEAST_CLICKS, made_result
from ranktrial.analysis.planning.theta_error import (
    learning_stages,
    log_theta_variances,
    mean_bend,
    mean_variance,
    theta_error,
    theta_known_after,
)
from ranktrial.analysis.power import (
    CLICKS_TO_SAY,
    anytime_impressions,
    crossing,
    fixed_impressions,
    jackknife_quantiles,
    tightest_for,
)
from ranktrial.config import TrialConfig
from ranktrial.log import Log
from ranktrial.methods import AB, LogOpt, Method
from ranktrial.methods.beliefs import expected_beliefs
from ranktrial.methods.click_model import planned_displays, planned_moments
from ranktrial.methods.displays import valued
from ranktrial.position_bias import Conditional
from ranktrial.rankings import Pair
from ranktrial.users import position_based


@pytest.mark.parametrize(
    ("drift", "tightest", "start"), [(0.0, 1.0, 0.0), (3.2, 1.0, 0.0), (3.2, 0.3, 0.5), (4.0, 4.0, 0.1)]
)
def test_crossing_is_that_of_simulated_paths(drift: float, tightest: float, start: float) -> None:
    """2,000 paths of 2,000 steps: within 4.5 standard errors, and what is missed between steps (0.58 of a step's deviation)."""
    steps, runs, random = 2_000, 2_000, np.random.default_rng(3)
    times = np.arange(1, steps + 1) / steps
    paths = np.cumsum(random.normal(0, 1 / np.sqrt(steps), (runs, steps)), axis=1) + drift * times
    bound = np.sqrt(steps) * times * asymptotic_radius(times * steps, np.ones(steps), tightest_at=tightest * steps)
    bound -= 0.5826 / np.sqrt(steps)
    found = float(((np.abs(paths) > bound) & (times >= start)).any(1).mean())
    exact = crossing(drift, tightest, start=start)
    assert abs(found - exact) < 4.5 * np.sqrt(max(exact * (1 - exact), 0.01) / runs)


def test_a_trial_that_can_never_tell_position_bias_never_decides_by_it() -> None:
    """Only the first two ranks differ, so that clicks say nothing of the third: there is no first look."""
    assert anytime_impressions(lambda n: 1.0, 0.1, tightest_at=785, first_look=np.inf) == np.inf
    pair = Pair.from_lists([["x", "y", "z"]], [["y", "x", "z"]], k=3).knowing(theta=[1.0, 0.5, 0.4])
    (row,) = plan(pair, [0.4, 0.1, 0.3], methods=[AB(estimate="rank-aware")]).rows
    assert row.trusting == np.inf


def test_looking_often_adds_to_the_power_of_the_last_look_and_keeps_the_level() -> None:
    radius = asymptotic_radius([1e6], [1.0], tightest_at=1e6)[0] * 1e3
    for drift in (2.0, 3.0, 4.0):
        assert crossing(drift, 1.0) > stats.norm.sf(radius - drift)
        assert crossing(drift, 1.0, start=1.0) == pytest.approx(stats.norm.sf(radius - drift), abs=1e-3)
    assert all(crossing(0.0, tightest) < 0.05 for tightest in (1e-4, 1e-2, 1.0, 100.0))


def test_a_sequence_needs_fewest_impressions_if_it_is_tightest_where_the_plan_says() -> None:
    best = tightest_for(1.0, 0.1)
    needed = {
        part: anytime_impressions(lambda n: 1.0, 0.1, tightest_at=best * part) for part in (0.2, 0.5, 1, 2, 5, 13)
    }
    assert min(needed, key=lambda part: needed[part]) == 1
    assert needed[13] > 1.3 * needed[1]  # what D5 saw: a sequence tightest at 10,000 for a trial of a few hundred
    assert anytime_impressions(lambda n: 1.0, 3.0, tightest_at=100) == FIRST_LOOK
    assert anytime_impressions(lambda n: 1.0, 0.0, tightest_at=100) == np.inf
    assert anytime_impressions(lambda n: 1.0, 0.1, tightest_at=best, first_look=5_000) == 5_000


def test_a_jackknife_of_few_groups_costs_power() -> None:
    away, critical = jackknife_quantiles(0.8, 0.95), stats.t.ppf(0.975, 19)
    assert stats.nct.sf(critical, 19, away) == pytest.approx(0.8)
    assert fixed_impressions(1.0, 0.1, jackknife=True) == np.ceil(100 * away**2)
    assert t_widening(19) == pytest.approx(critical / stats.norm.ppf(0.975))


@pytest.mark.parametrize("method", [LogOpt(schedule=()), AB(estimate="rank-aware", schedule=())], ids=str)
def test_what_an_estimated_theta_adds(method: Method) -> None:
    """Against the spread of estimates from 300 simulated logs, theta fitted to each: variance within 4.5 standard errors."""
    rng = np.random.default_rng(4)
    lists = [[rng.permutation(5).tolist() for _ in range(12)] for _ in range(2)]
    pair = Pair.from_lists(lists[0], lists[1], k=3).knowing(theta=[1.0, 0.6, 0.4])
    user = position_based(rng.uniform(0.1, 0.8, pair.n_documents), pair.known_theta)
    runs, n = 300, 4_000
    stages = learning_stages(method, pair, user, n)
    exact = theta_error(stages, n, mean_bend(stages, n))
    policy = planned_displays(method, pair, user).mixture
    prediction = expected_beliefs(pair, user).relevance
    found, with_known, thetas = [], [], []
    for seed in range(runs):
        log = Log.simulated(pair, policy, user, n, seed=seed)
        fit = Conditional(given="design").fit(log.parts(1, clicked_only=False)[0])
        thetas.append(fit.theta)
        found.append(estimate(log, theta=np.minimum(fit.theta, 1.0), prediction=prediction).delta)
        with_known.append(estimate(log, prediction=prediction).delta)
    error = 4.5 * np.sqrt(2 / runs)
    assert n * np.var(found) == pytest.approx(exact.variance, rel=error)
    expected = log_theta_variances(stages, n) * pair.known_theta**2
    assert n * np.var(thetas, axis=0)[1:] == pytest.approx(expected[1:], rel=error)
    assert n * np.var(with_known) == pytest.approx(exact.clicks_alone, rel=error)
    part = exact.variance - exact.clicks_alone - 2 * exact.joint
    assert n * np.var(np.subtract(found, with_known)) == pytest.approx(part, rel=error)
    assert exact.jackknife > exact.variance > exact.clicks_alone
    assert exact.mean_widening() > np.sqrt(exact.variance / exact.clicks_alone)


def test_theta_that_cannot_be_told_leaves_the_decision_to_ab_traffic() -> None:
    pair = Pair.from_lists([["a", "b", "c"]], [["a", "c", "b"]], k=3).knowing(theta=[1.0, 0.6, 0.4])
    found = plan(pair, [0.3, 0.9, 0.1], methods=[AB(estimate="rank-aware"), AB(estimate="rank-aware", bias="known")])
    assert [(row.theta, row.trusting < np.inf) for row in found.rows] == [("estimated", False), ("known", True)]
    assert found.to_dict()["methods"][0]["trusting"] is None
    (alone,) = plan(pair, [0.3, 0.9, 0.1], methods=[AB(estimate="adjusted")]).rows
    assert (
        alone.anytime < found.rows[0].anytime < np.inf
    )  # its A/B traffic decides, with a tenth of the error probability


def test_before_anything_is_learnt_values_vary_more() -> None:
    pair, user = fixed_world(seed=9, k=3, n_queries=12)
    rare = position_based(0.05 * user.zeta, user.slope)
    method = AB(estimate="rank-aware")
    stages = learning_stages(method, pair, rare, 50_000)
    assert [stage.begin for stage in stages] == [0, 100, 1_000, 10_000]
    first, second, *_, last = (stage.variance for stage in stages)
    assert first > 2 * second
    assert last <= planned_moments(method, pair, rare).variance
    assert mean_variance(stages, 200) == pytest.approx((first + second) / 2)
    assert mean_variance(stages, 50) == pytest.approx(first)


@pytest.mark.parametrize(
    ("hides", "expected"),
    [(1e9, [0.5, 0.5, 0.25, 0.125, 0.1]), (0.0, [0.5] * 5)],  # 50 impressions of each list are too few at 100
)
def test_the_share_of_ab_traffic_is_halved_where_little_bias_can_hide(
    hides: float, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ranktrial.analysis.planning.theta_error.SMALL", hides)
    monkeypatch.setattr("ranktrial.analysis.planning.theta_error.VISIBLE", 0.0)
    pair, user = fixed_world(seed=9, k=3, n_queries=12)
    stages = learning_stages(LogOpt(), pair, user, 1_000_000)
    plain = []
    for stage in stages:
        mixture = stage.displays.mixture
        last = mixture.offsets[1:]
        plain.append((mixture.weights[last - 1] + mixture.weights[last - 2]).mean())
    assert [stage.begin for stage in stages] == [0, 100, 1_000, 10_000, 100_000]
    assert plain == pytest.approx(expected)


def test_theta_from_several_designs() -> None:
    """One design cut in two is one design; of two designs H and g are means."""
    pair, user = fixed_world(seed=9, k=3, n_queries=12)
    (whole,) = learning_stages(LogOpt(schedule=()), pair, user, 1_000)
    (other,) = learning_stages(AB(estimate="rank-aware", schedule=()), pair, user, 1_000)
    cut, mixed = [whole, replace(whole, begin=300)], [whole, replace(other, begin=300)]
    for of in ("clicks_alone", "variance", "jackknife", "joint"):
        assert getattr(theta_error(cut, 1_000), of) == pytest.approx(getattr(theta_error([whole], 1_000), of))
    assert theta_error(mixed, 300).variance == pytest.approx(theta_error([whole], 300).variance)
    found = theta_error(mixed, 1_000)
    assert found.clicks_alone == pytest.approx(0.3 * whole.variance + 0.7 * other.variance)
    within = 0.3 * whole.influence.information + 0.7 * other.influence.information
    coefficient = np.append(
        0, np.linalg.solve(within[1:, 1:], (0.3 * whole.influence.gain + 0.7 * other.influence.gain)[1:])
    )
    by_hand = 0.3 * whole.with_theta(coefficient, x=True) + 0.7 * other.with_theta(coefficient, x=True)
    assert found.variance == found.jackknife == pytest.approx(by_hand)
    bent = theta_error(mixed, 1_000, bend=50)  # of the second order: a jackknife counts it twice
    assert bent.variance == pytest.approx(by_hand + 0.05)
    assert bent.jackknife == pytest.approx(by_hand + 0.1)


def test_values_at_an_estimated_theta_vary_more() -> None:
    """``mean_bend`` against the variance of x at 300 drawn errors of theta and their opposites; within 4.5 standard errors."""
    pair, user = fixed_world(seed=9, k=3, n_queries=12)
    stages = learning_stages(AB(estimate="rank-aware", schedule=()), pair, user, 1)
    (stage,), n = stages, 2_000
    covariance = np.linalg.inv(stage.influence.information[1:, 1:]) / n
    errors = np.random.default_rng(1).multivariate_normal(np.zeros(2), covariance, 300)
    more = []
    for error in errors:
        thetas = [pair.known_theta * np.exp(sign * np.append(0, error)) for sign in (1, -1)]
        both = [
            valued(pair, stage.displays.mixture, theta, stage.prediction, estimate="rank-aware").moments(user).variance
            for theta in thetas
        ]
        more.append(np.mean(both) - stage.variance)
    assert np.mean(more) > 0
    assert mean_bend(stages, n) / n == pytest.approx(np.mean(more), abs=4.5 * np.std(more) / np.sqrt(len(more)))


def test_estimates_by_the_click_model_share_the_error_probability() -> None:
    """A live interval by the click model has 80 % of it, so a trial needs more impressions than at the whole level."""
    pair, user = fixed_world(seed=9, k=3, n_queries=12)
    method = LogOpt(bias="known", schedule=(), holdback=0.1)
    (row,) = plan(pair, user, methods=[method], delta=0.01).rows
    needed = {
        level: anytime_impressions(lambda n: row.variance, 0.01, tightest_at=row.tightest_at, level=level)
        for level in (0.95, 0.96)
    }
    assert row.trusting == needed[0.96] > needed[0.95]


def test_a_plan_and_a_live_trial_are_tightest_at_the_same_number() -> None:
    """A trial that is told the difference finds, from its own values, what the plan has found from the lists."""
    pair, user = fixed_world(seed=9, k=3, n_queries=12)
    method = LogOpt(bias="known", schedule=(), holdback=0.1)
    found = plan(pair, user, methods=[method], delta=0.01)
    log = Log.simulated(pair, planned_displays(method, pair, user).mixture, user, 20_000, seed=1)
    theta = tuple((pair.known_theta / pair.known_theta[0]).tolist())
    config = TrialConfig.model_validate({"method": str(method), "k": 3, "smallest": 0.01, "theta": theta})
    values = estimate(log, prediction=expected_beliefs(pair, user).relevance)
    tightest = {}
    for name, given in (("told", {}), ("not told", {"smallest": None}), ("given", {"tightest_at": 500.0})):
        one = config.model_copy(update=given)
        options: dict[str, Any] = {"tightest_at": one.tightest_at, "smallest": one.smallest, "level": one.level}
        tightest[name] = made_result("position-based", values, "", clicks=1_000, share=0.8, **options).tightest_at
        (top,) = analysis.analyse(log, one, one.first_beliefs).ladder.results[-1:]
        assert top.tightest_at == pytest.approx(tightest[name], rel=0.1)  # its predictions are from the past alone
    assert tightest["told"] == pytest.approx(found.rows[0].tightest_at, rel=0.05)
    assert (tightest["not told"], tightest["given"]) == (10_000, 500)
    assert found.live is not None
    assert (found.live.tightest_at, found.live.method) == (found.rows[0].tightest_at, str(method))
    assert (TrialConfig.model_validate({}).method, LEAST_CLICKS < CLICKS_TO_SAY) == (str(LogOpt()), True)
    again = plan(pair, user, methods=[AB(), LogOpt()], delta=0.01, tightest_at=777)
    assert again.live is not None
    assert (again.live.method, again.live.tightest_at, again.live.given) == ("LogOpt()", 777, True)
    assert "tightest_at=777" in again.verdict[-1]


def test_an_unreachable_theta_is_refused_by_the_fit_as_planned() -> None:
    """``theta_known_after``: from about there on logs tell theta, and well before they do not."""
    rng = np.random.default_rng(4)
    lists = [[rng.permutation(12).tolist() for _ in range(100)] for _ in range(2)]
    pair = Pair.from_lists(lists[0], lists[1], k=6).knowing(theta=1 / np.arange(1, 7))
    user = position_based(np.full(pair.n_documents, 0.1), pair.known_theta)
    method = AB(estimate="rank-aware")
    first = theta_known_after(learning_stages(method, pair, user, 1_000), 1_000)
    for part, least, most in ((0.15, 0, 8), (1.5, 17, 20)):
        fits = 0
        for seed in range(20):
            log = Log.simulated(pair, method.policy(pair), user, int(part * first), seed=seed)
            try:
                fits += fit_position_bias(log, most_error=0.5) is not None
            except ValueError:
                continue
        assert least <= fits <= most


def test_trials_decide_when_the_plan_says_and_not_if_they_are_tightest_elsewhere() -> None:
    """80 of 100 A/B tests were promised; within 4.5 standard errors. Tightest at 10,000 instead, far fewer decide by then."""
    rng = np.random.default_rng(1)
    relevance = rng.choice([0.1, 0.3, 0.8], (100, 12))
    lists = [np.argsort(-(relevance + rng.normal(0, noise, relevance.shape))).tolist() for noise in (0.2, 0.6)]
    pair = Pair.from_lists(lists[0], lists[1], k=5).knowing(theta=[1.0, 0.7, 0.5, 0.4, 0.3])
    query = np.repeat(np.arange(100), np.diff(pair.offsets))
    user = position_based(relevance[query, np.array(pair.ids)], pair.known_theta)
    method, delta = AB(), pair.delta(user)
    (row,) = plan(pair, user, methods=[method]).rows
    assert 100 < row.anytime < 500
    kept = {}
    for smallest in (delta, None):
        config = TrialConfig.model_validate({"method": str(method), "k": 5, "smallest": smallest})
        kept[smallest] = 0
        for seed in range(100):
            log = Log.simulated(pair, method.policy(pair), user, int(row.anytime), seed=seed)
            looks = [log.take(np.arange(int(part * len(log)))) for part in (0.5, 0.7, 0.8, 0.9, 1)]
            intervals = [analysis.analyse(look, config, config.first_beliefs).interval for look in looks]
            kept[smallest] += any(interval.low > 0 or interval.high < 0 for interval in intervals)
    assert 80 - 18 <= kept[delta] <= 80 + 18
    assert kept[None] < 40
