"""LogOpt as the closed form: the designs it makes, what it learns, and that it stays unbiased on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oracles import click_patterns
from ranktrial.arrays import NO_DOCUMENT, FloatArray, offsets_of
from ranktrial.design.closed_form import closed_form
from ranktrial.methods import AB, Beliefs, Counterfactual, LogOpt
from ranktrial.methods.beliefs import FIRST_RELEVANCE, first_theta
from ranktrial.methods.click_model import SimulatedTrial
from ranktrial.methods.displays import Displays, Linear
from ranktrial.position_bias import Conditional, Counts, NotIdentifiable
from ranktrial.rankings import Pair
from ranktrial.users import User, cascade, position_based, rank_decay


def free(**options: Any) -> LogOpt:
    """Least variance whatever it costs, position bias known, relevance learnt: what the study runs."""
    return LogOpt(**{"bias": "known", "loss": None, "keep": 0, "holdback": 0, **options})


ESTIMATES = ("ips", "constant", "doubly-robust", "rank-aware")


def world(n_queries: int = 20, n_documents: int = 8, k: int = 4, seed: int = 0) -> tuple[Pair, User]:
    rng = np.random.default_rng(seed)
    offsets = offsets_of([n_documents] * n_queries)
    zeta = rng.beta(1, 2, size=int(offsets[-1]))
    a, b = (zeta + 0.3 * rng.normal(size=len(zeta)) for _ in range(2))
    theta = rank_decay(k)
    return Pair.from_scores(a, b, offsets, k).knowing(theta=theta), position_based(zeta, theta)


def expectation(displays: Displays, user: User) -> float:
    """E[x] by going through every display and click pattern."""
    total = 0.0
    mixture = displays.mixture
    for display, row in enumerate(mixture.rankings):
        shown = row[row != NO_DOCUMENT]
        for pattern, probability in click_patterns(user, shown):
            total += mixture.weights[display] * probability * displays.value_of(display, pattern)
    return total / mixture.n_queries


@pytest.mark.parametrize("budgeted", [False, True])
@pytest.mark.parametrize("estimate", ESTIMATES)
def test_every_version_is_unbiased_exactly_whatever_was_learnt_before(estimate: str, budgeted: bool) -> None:
    """Enumerated on 3 queries: versions whose predictions of relevance, and prices of a click, came from misleading data."""
    pair, user = world(n_queries=3, n_documents=5, k=3)
    misleading = position_based(1 - user.zeta, rank_decay(3, eta=0.2))
    method = free(estimate=estimate, schedule=(5, 400))
    if budgeted:
        method = LogOpt(bias="known", estimate=estimate, schedule=(5, 400))
    state = SimulatedTrial(method, pair, misleading, pair.known_theta, seed=1)
    predictions = []
    for begin, end in ((0, 5), (5, 400), (400, 500)):
        state.next_version()
        displays = state.versions[-1].displays(state.beliefs.theta)
        assert expectation(displays, user) == pytest.approx(pair.delta(user), abs=1e-12)
        state.show(begin, end, np.array([end]))
        predictions.append(state.versions[-1].prediction)
    if estimate == "ips":
        assert predictions == [None, None, None]
    else:
        assert predictions[0] == FIRST_RELEVANCE
        assert not np.array_equal(np.asarray(predictions[1]), np.asarray(predictions[2]))
    assert state.beliefs.effects is not None


@pytest.mark.parametrize("estimate", ESTIMATES)
def test_runs_are_unbiased_and_as_spread_as_they_say(estimate: str) -> None:
    """150 runs in which predictions and design change twice: mean within 4.5 standard errors, spread of means as x^2 tells."""
    pair, user = world()
    method = free(estimate=estimate, schedule=(300, 1500))
    runs = [method.simulate(pair, user, [3000], seed=seed) for seed in range(150)]
    estimates = np.array([run.estimate[0] for run in runs])
    delta = pair.delta(user)
    error = estimates.std(ddof=1) / np.sqrt(len(runs))
    assert abs(estimates.mean() - delta) < 4.5 * error
    predicted = np.sqrt(np.mean([run.squared_error(delta)[0] for run in runs]) / 3000)
    assert estimates.std(ddof=1) == pytest.approx(predicted, rel=4.5 / np.sqrt(2 * len(runs)))


def test_better_estimates_have_less_variance() -> None:
    pair, user = world(n_queries=40)
    last = {e: free(estimate=e).simulate(pair, user, [400_000], seed=1).mean_square[0] for e in ESTIMATES}
    assert last["rank-aware"] < 0.97 * last["doubly-robust"] < 0.97 * 0.99 * last["constant"]
    assert last["constant"] < 0.97 * last["ips"]


def test_known_bias_and_relevance_taken_as_constant_is_the_fixed_design() -> None:
    pair, user = world()
    run = free(relevance="constant", estimate="ips", floor=0.5, schedule=(1000, 10_000)).run(
        pair, user, [100, 20_000], seed=3
    )
    fixed = Counterfactual(logging="optimal", floor=0.5)
    assert len(run.versions) == 3
    for version in run.versions:
        np.testing.assert_array_equal(version.policy.rankings, fixed.displays(pair).mixture.rankings)
    exact = fixed.moments(pair, user)
    error = np.sqrt(exact.variance / 20_000)
    assert abs(run.trajectory.estimate[-1] - exact.mean) < 4.5 * error
    assert run.trajectory.ctr[-1] == pytest.approx(exact.ctr, abs=0.05)


def test_design_uses_relevance_once_there_are_clicks() -> None:
    pair, user = world()
    run = free(estimate="ips", schedule=(500, 5000)).run(pair, user, [6000], seed=1)
    same = closed_form(pair, pair.known_theta)
    assert [np.array_equal(v.policy.rankings, same.rankings) for v in run.versions] == [True, False, False]


def spread(state_theta: FloatArray, pair: Pair) -> float:
    return float(np.abs(state_theta - pair.known_theta).max())


@pytest.mark.parametrize("estimate", ["ips", "rank-aware"])
def test_estimated_bias_comes_near_the_truth_and_revalues_the_past(estimate: str) -> None:
    pair, user = world(n_queries=60)
    method = free(bias="estimated", estimate=estimate)
    run = method.run(pair, user, [1000, 300_000], seed=2)
    errors = [spread(version.theta, pair) for version in run.versions]
    assert np.array_equal(run.versions[0].theta, first_theta(4))
    assert errors[-1] < 0.02 < errors[0]
    delta = pair.delta(user)
    error = np.sqrt(run.trajectory.squared_error(delta)[-1] / 300_000)
    assert abs(run.trajectory.estimate[-1] - delta) < 5 * error
    # the sum over versions, valued by hand at the last theta, is what the trajectory says
    state = method.stages(pair, user, first_theta(4), seed=2)
    for begin, end in method.fitted(state, [*method.stretches(300_000)[1:], 300_000]):
        state.show(begin, end, np.array([end]))
    # theta of a report is that of all clicks so far, compared within versions of the design
    assert state.report()[0] == run.trajectory.estimate[-1]
    found = [Conditional(given).fit(Counts.stacked(state.parts)).theta for given in ("shown", "design")]
    assert min(np.abs(state.beliefs.theta - theta).max() for theta in found) < 1e-9
    total = 0.0
    for version in run.versions:
        value = version.displays(state.beliefs.theta).value
        assert isinstance(value, Linear)
        assert value.base is not None
        total += value.base @ version.shown + (value.values * version.clicked).sum()
    assert total / 300_000 == pytest.approx(run.trajectory.estimate[-1], rel=1e-9)
    assert sum(int(v.shown.sum()) for v in run.versions) == 300_000


def test_bias_that_cannot_be_identified_is_kept_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, counts: object) -> None:
        raise NotIdentifiable("ranks 1 and 2 share no document")

    monkeypatch.setattr("ranktrial.position_bias.Auto.fit", refuse)
    pair, user = world()
    run = LogOpt(schedule=(100,)).run(pair, user, [200], seed=1)
    assert np.array_equal(run.versions[1].theta, first_theta(4))
    assert "position bias cannot be told yet: ranks 1 and 2" in run.versions[1].note


def test_users_who_leave_early_can_be_simulated_too() -> None:
    pair, user = world()
    leaving = cascade(user.zeta, 4, theta=rank_decay(4), leave_after_click=0.9, leave_after_skip=0.0)
    stays = LogOpt().simulate(pair, user, [20_000], seed=1).ctr[0]
    assert LogOpt().simulate(pair, leaving, [20_000], seed=1).ctr[0] < 0.9 * stays


def test_lists_shorter_than_a_page_and_identical_rankers() -> None:
    pair = Pair.from_lists([["x", "y"], ["p"], ["u", "v", "w"]], [["y", "x"], ["q", "p"], ["u", "v", "w"]], k=3)
    pair = pair.knowing(theta=rank_decay(3))
    user = position_based(np.full(pair.n_documents, 0.4), rank_decay(3))
    for estimate in ESTIMATES:
        run = LogOpt(estimate=estimate, schedule=(100, 1000)).run(pair, user, [5000], seed=1)
        assert np.isfinite(run.trajectory.estimate).all()
        same = Pair(pair.a, pair.a, pair.offsets, 3).knowing(theta=rank_decay(3))
        assert LogOpt(estimate=estimate).simulate(same, user, [100, 5000], seed=1).estimate.tolist() == [0, 0]


@pytest.mark.parametrize("estimate", ESTIMATES)
def test_an_oracle_that_knows_a_document_to_be_never_clicked_still_compares_it(estimate: str) -> None:
    pair = Pair.from_lists(["a"], ["b"], k=1)
    pair, user = pair.knowing(theta=[1.0]), position_based([0.5, 0.0], [1.0])
    method = free(relevance="true", estimate=estimate, schedule=())
    state = SimulatedTrial(method, pair, user, pair.known_theta, seed=1)
    state.next_version()
    assert expectation(state.versions[-1].displays(state.beliefs.theta), user) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bias": "predicted"}, "bias is 'predicted'"),
        ({"estimate": "dr"}, "estimate is 'dr'"),
        ({"floor": 1.5}, "floor is 1.5"),
        ({"holdback": -0.1}, "holdback is -0.1"),
        ({"holdback": (0.1, 0.5)}, "must be one share, or the first and the least"),
        ({"schedule": (10.7,)}, "whole numbers"),
        ({"relevance": "true"}, "the Oracle, which knows the bias"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LogOpt(**options)


def test_the_hold_back_is_two_more_rankings_of_every_query() -> None:
    """Plain A and plain B have their share, the rest keeps its proportions; values stay unbiased, exactly."""
    pair, user = world(n_queries=3, n_documents=5, k=3)
    method = LogOpt(holdback=0.3)
    mixture, free_of_it = method.policy(pair), LogOpt(holdback=0).policy(pair)
    assert mixture.plain
    assert not free_of_it.plain
    for query in range(3):
        start, end = mixture.offsets[query], mixture.offsets[query + 1]
        assert mixture.rankings[end - 2].tolist() == pair.top_a[query].tolist()
        assert mixture.rankings[end - 1].tolist() == pair.top_b[query].tolist()
        assert mixture.weights[end - 2 : end].tolist() == [0.15, 0.15]
        own = slice(free_of_it.offsets[query], free_of_it.offsets[query + 1])
        np.testing.assert_array_equal(mixture.rankings[start : end - 2], free_of_it.rankings[own])
        np.testing.assert_allclose(mixture.weights[start : end - 2], 0.7 * free_of_it.weights[own])
    for estimate in ESTIMATES:
        displays = LogOpt(holdback=0.3, estimate=estimate).displays(pair)
        assert expectation(displays, user) == pytest.approx(pair.delta(user), abs=1e-12)
    only_plain = LogOpt(holdback=1.0).policy(pair)
    assert only_plain.placement() == pytest.approx(AB().policy(pair).placement())


def test_plain_traffic_is_halved_while_readings_agree_and_is_everything_while_they_do_not() -> None:
    method, fitted = LogOpt(), Beliefs(np.array([1.0, 0.5]), fitted=True)
    shares, beliefs = [], fitted
    for agree in (None, True, True, True, True, False, None, True, True):
        share = method.next_share(beliefs, agree)
        beliefs = replace(beliefs, plain=share)
        shares.append(share)
    assert shares == [0.5, 0.25, 0.125, 0.1, 0.1, 1, 1, 0.5, 0.25]
    assert method.next_share(replace(fitted, fitted=False), True) == 0.5  # nothing agrees with an assumption
    for agree in (None, True, False):
        assert LogOpt(holdback=0.3).next_share(fitted, agree) == 0.3
    pair = Pair.from_lists([["a", "b", "c"]], [["b", "c", "a"]], k=2).knowing(theta=[1.0, 0.5])
    for share in (0.25, 1.0):
        weights = method.policy(pair, replace(fitted, plain=share)).weights
        assert weights[-2:].tolist() == [share / 2, share / 2]
        assert weights.sum() == pytest.approx(1)


def test_a_run_keeps_less_and_less_plain_traffic() -> None:
    pair = Pair.from_lists([["a", "b", "c"]], [["b", "c", "a"]], k=2).knowing(theta=[1.0, 0.5])
    user = position_based(zeta=[0.5, 0.3, 0.2], theta=[1.0, 0.5])
    run = LogOpt(bias="known").run(pair, user, [200_000], seed=1)
    assert [version.policy.weights[-1] for version in run.versions] == [0.25, 0.125, 0.0625, 0.05, 0.05]


def learnt(method: LogOpt, impressions: int = 4000, seed: int = 1) -> tuple[SimulatedTrial, Pair, User]:
    """A trial after its first impressions."""
    pair, user = world(n_queries=60)
    trial = SimulatedTrial(method, pair, user, pair.known_theta, seed)
    trial.next_version()
    trial.show(0, impressions, np.array([impressions]))
    trial.next_version()
    return trial, pair, user


def test_a_budget_is_kept_and_asking_for_more_costs_variance() -> None:
    clicks, variances, prices = [], [], []
    for loss in (0.05, 0.0, -0.05):
        trial, pair, user = learnt(LogOpt(bias="known", loss=loss, holdback=0.1))
        shown = trial.versions[-1].policy
        clicks.append(shown.ctr(user) / np.mean(pair.ctr(user)) - 1)
        variances.append(trial.versions[-1].displays(trial.beliefs.theta).moments(user).variance)
        prices.append(trial.beliefs.price)
    assert clicks == sorted(clicks)
    assert variances == sorted(variances)
    assert prices == sorted(prices)
    assert 0 < clicks[1] < 0.005  # and no more than was asked for
    assert 0.05 < clicks[2] < 0.055


def test_a_budget_is_kept_on_average_where_only_lists_are_known_and_little_of_them() -> None:
    """Two impressions a query: designs judged by the prediction that made them lost 1.7 % here."""
    method, lost = LogOpt(bias="known", holdback=0.1), []
    for seed in range(12):
        pair, user = world(n_queries=300, seed=seed)
        trial = SimulatedTrial(method, pair, user, pair.known_theta, seed)
        trial.next_version()
        trial.show(0, 600, np.array([600]))
        trial.next_version()
        beliefs = replace(trial.beliefs, effects=None)
        beliefs = replace(beliefs, price=method.price(trial.searches, beliefs))
        lost.append(1 - method.policy(pair, beliefs).ctr(user) / np.mean(pair.ctr(user)))
    assert np.mean(lost) < 0.005


def test_what_visitors_have_lost_is_asked_for_beyond_the_budget() -> None:
    trial, _, _ = learnt(method := LogOpt(bias="known", holdback=0.1))
    losses = [method.allowed_loss(gained, 1_000) for gained in ((0.02, 0.001), None, (-0.1, 0.001))]
    prices = [method.price(trial.searches, trial.beliefs, loss) for loss in losses]
    assert prices[0] <= prices[1] < prices[2]  # measured to be well, nothing measured, measured to have lost a tenth
    assert LogOpt(bias="known", loss=None).price(trial.searches, trial.beliefs) == trial.beliefs.price


@pytest.mark.parametrize(
    ("loss", "gained", "impressions", "allowed"),
    [
        (0.0, None, 1_000, 0.0),
        (0.0, (0.045, 0.0), 1_000, 0.005),  # 9,000 searches to the next point may lose a ninth of what 1,000 gained
        (0.0, (-0.045, 0.0), 1_000, -0.005),
        (0.01, (-0.01, 0.0), 1_000, 0.01),  # nothing was gained or lost beyond the budget
        (0.0, (0.045, 0.01), 1_000, 0.0025),  # half is believed of what is no surer than a forecast
        (0.0, (0.5, 0.0), 1_000, 0.02),  # bounds
        (0.0, (-0.5, 0.0), 1_000, -0.02),
        (0.0, (0.001, 0.0), 9_999, 0.001),  # one search ahead cannot make up for all before it
        (0.0, (0.01, 0.0), 2_000_000, 0.01),  # beyond the schedule's end
    ],
)
def test_clicks_gained_may_be_spent_until_the_next_point(
    loss: float, gained: tuple[float, float] | None, impressions: int, allowed: float
) -> None:
    assert LogOpt(loss=loss).allowed_loss(gained, impressions) == pytest.approx(allowed)


def test_a_result_that_both_put_first_is_on_every_page() -> None:
    pair = Pair.from_lists([["x", *"abcd"], ["y", *"efgh"]], [["x", *"ijkl"], ["f", "y", *"ghe"]], k=5)
    pair = pair.knowing(theta=rank_decay(5))
    for keep in (1, 3):
        placement = LogOpt(holdback=0, keep=keep).policy(pair).placement()
        assert placement[pair.ids.index("x"), :keep].sum() == pytest.approx(1)
    without = LogOpt(holdback=0, keep=0, relevance="constant").policy(pair).placement()
    assert without[pair.ids.index("x"), 0] < 0.01
