"""LogOpt as the closed form: the designs it makes, what it learns, and that it stays unbiased on the way."""

from __future__ import annotations

import numpy as np
import pytest

from oracles import click_patterns
from ranktrial.arrays import NO_DOCUMENT, FloatArray, offsets_of
from ranktrial.design.closed_form import closed_form
from ranktrial.methods import Counterfactual, LogOpt
from ranktrial.methods.closed_form_run import FIRST_GUESS, ClosedFormState
from ranktrial.methods.displays import Displays
from ranktrial.methods.logopt import first_theta
from ranktrial.position_bias import NotIdentifiable
from ranktrial.rankings import Pair
from ranktrial.users import User, cascade, position_based, rank_decay

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


@pytest.mark.parametrize("estimate", ESTIMATES)
def test_every_version_is_unbiased_exactly_whatever_was_learnt_before(estimate: str) -> None:
    """Enumerated on 3 queries: versions whose guesses of relevance came from little and misleading data."""
    pair, user = world(n_queries=3, n_documents=5, k=3)
    misleading = position_based(1 - user.zeta, rank_decay(3, eta=0.2))
    method = LogOpt(estimate=estimate, schedule=(5, 400))
    state = ClosedFormState(method, pair, misleading, pair.known_theta, seed=1)
    guesses = []
    for begin, end in ((0, 5), (5, 400), (400, 500)):
        state.next_version()
        displays = state._displays(state.versions[-1])
        assert expectation(displays, user) == pytest.approx(pair.delta(user), abs=1e-12)
        state.show(begin, end, np.array([end]))
        guesses.append(state.versions[-1].guess)
    if estimate == "ips":
        assert guesses == [None, None, None]
    else:
        assert guesses[0] == FIRST_GUESS
        assert not np.array_equal(np.asarray(guesses[1]), np.asarray(guesses[2]))
    # 400 impressions of 3 queries tell relevance well enough to design for it
    assert state.zeta is not None


@pytest.mark.parametrize("estimate", ESTIMATES)
def test_runs_are_unbiased_and_as_spread_as_they_say(estimate: str) -> None:
    """150 runs in which guesses and design change twice: mean within 4.5 standard errors, spread of means as x^2 tells."""
    pair, user = world()
    method = LogOpt(estimate=estimate, schedule=(300, 1500))
    runs = [method.simulate(pair, user, [3000], seed=seed) for seed in range(150)]
    estimates = np.array([run.estimate[0] for run in runs])
    delta = pair.delta(user)
    error = estimates.std(ddof=1) / np.sqrt(len(runs))
    assert abs(estimates.mean() - delta) < 4.5 * error
    predicted = np.sqrt(np.mean([run.squared_error(delta)[0] for run in runs]) / 3000)
    assert estimates.std(ddof=1) == pytest.approx(predicted, rel=4.5 / np.sqrt(2 * len(runs)))


def test_better_estimates_have_less_variance() -> None:
    pair, user = world(n_queries=40)
    last = {e: LogOpt(estimate=e).simulate(pair, user, [400_000], seed=1).mean_square[0] for e in ESTIMATES}
    assert last["rank-aware"] < 0.97 * last["doubly-robust"] < 0.97 * 0.99 * last["constant"]
    assert last["constant"] < 0.97 * last["ips"]


def test_known_bias_and_relevance_taken_as_constant_is_the_fixed_design() -> None:
    pair, user = world()
    run = LogOpt(relevance="constant", floor=0.5).run(pair, user, [100, 20_000], seed=3)
    fixed = Counterfactual(logging="optimal", floor=0.5)
    assert len(run.designs) == 3
    for version in run.designs:
        np.testing.assert_array_equal(version.policy.rankings, fixed.displays(pair).mixture.rankings)
    exact = fixed.moments(pair, user)
    error = np.sqrt(exact.variance / 20_000)
    assert abs(run.trajectory.estimate[-1] - exact.mean) < 4.5 * error
    assert run.trajectory.ctr[-1] == pytest.approx(exact.ctr, abs=0.05)


def test_design_uses_relevance_once_queries_have_been_seen_often_enough() -> None:
    pair, user = world()
    run = LogOpt(schedule=(500, 5000)).run(pair, user, [6000], seed=1)
    same = closed_form(pair, pair.known_theta)
    assert [np.array_equal(v.policy.rankings, same.rankings) for v in run.designs] == [True, True, False]


def spread(state_theta: FloatArray, pair: Pair) -> float:
    return float(np.abs(state_theta - pair.known_theta).max())


@pytest.mark.parametrize("estimate", ["ips", "rank-aware"])
def test_estimated_bias_comes_near_the_truth_and_revalues_the_past(estimate: str) -> None:
    pair, user = world(n_queries=60)
    run = LogOpt(bias="estimated", estimate=estimate).run(pair, user, [1000, 300_000], seed=2)
    errors = [spread(version.theta, pair) for version in run.designs]
    assert np.array_equal(run.designs[0].theta, first_theta(4))
    assert errors[-1] < 0.02 < errors[0]
    delta = pair.delta(user)
    error = np.sqrt(run.trajectory.squared_error(delta)[-1] / 300_000)
    assert abs(run.trajectory.estimate[-1] - delta) < 5 * error
    # the sum over versions, valued by hand at the last theta, is what the trajectory says
    state = ClosedFormState(LogOpt(bias="estimated", estimate=estimate), pair, user, run.designs[-1].theta, seed=0)
    total = sum(state._displays(v).total(v.shown, v.clicked) for v in run.designs)
    assert total / 300_000 == pytest.approx(run.trajectory.estimate[-1], rel=1e-9)
    assert sum(int(v.shown.sum()) for v in run.designs) == 300_000


def test_bias_that_cannot_be_identified_is_kept_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, counts: object) -> None:
        raise NotIdentifiable("ranks 1 and 2 share no document")

    monkeypatch.setattr("ranktrial.methods.closed_form_run.Auto.fit", refuse)
    pair, user = world()
    run = LogOpt(bias="estimated", schedule=(100,)).run(pair, user, [200], seed=1)
    assert np.array_equal(run.designs[1].theta, first_theta(4))
    assert "kept the position bias: ranks 1 and 2" in run.designs[1].note


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
        run = LogOpt(estimate=estimate, bias="estimated", schedule=(100, 1000)).run(pair, user, [5000], seed=1)
        assert np.isfinite(run.trajectory.estimate).all()
        same = Pair(pair.a, pair.a, pair.offsets, 3).knowing(theta=rank_decay(3))
        assert LogOpt(estimate=estimate).simulate(same, user, [100, 5000], seed=1).estimate.tolist() == [0, 0]


@pytest.mark.parametrize("estimate", ESTIMATES)
def test_an_oracle_that_knows_a_document_to_be_never_clicked_still_compares_it(estimate: str) -> None:
    pair = Pair.from_lists(["a"], ["b"], k=1)
    pair, user = pair.knowing(theta=[1.0]), position_based([0.5, 0.0], [1.0])
    method = LogOpt(relevance="true", estimate=estimate, schedule=())
    state = ClosedFormState(method, pair, user, pair.known_theta, seed=1)
    state.next_version()
    assert expectation(state._displays(state.versions[-1]), user) == pytest.approx(0.5, abs=1e-12)
