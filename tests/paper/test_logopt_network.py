from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from ranktrial.arrays import offsets_of
from ranktrial.methods import Counterfactual, parse_method
from ranktrial.methods.beliefs import first_theta
from ranktrial.methods.counterfactual import observed_estimate
from ranktrial.paper.logopt_network import LogOptNetwork, _State, shrunken_relevance
from ranktrial.paper.network.network import NetworkRegression
from ranktrial.paper.study.labels import part_of
from ranktrial.rankings import Pair
from ranktrial.users import User, position_based, rank_decay


@pytest.fixture(autouse=True)
def small_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of the paper's 75 steps on 512 documents a round of regression-EM, of which tests/paper/network has tests."""
    small = partial(NetworkRegression, steps=5, batch=64)
    monkeypatch.setattr("ranktrial.paper.logopt_network.NetworkRegression", small)


# Small and quick: what is tested is the machinery; how well it optimises is tested in tests/design.
def quick(**options: Any) -> LogOptNetwork:
    return LogOptNetwork(steps=30, samples=20, **options)


def world(n_queries: int = 20, n_documents: int = 8, k: int = 4, seed: int = 0) -> tuple[Pair, User]:
    rng = np.random.default_rng(seed)
    offsets = offsets_of([n_documents] * n_queries)
    n = int(offsets[-1])
    features = rng.normal(size=(n, 3)).astype(np.float32)
    zeta = 1 / (1 + np.exp(1.5 - features[:, 0]))
    a, b = (zeta + 0.3 * rng.normal(size=n) for _ in range(2))
    theta = rank_decay(k)
    pair = Pair.from_scores(a, b, offsets, k).knowing(theta=theta, features=features)
    return pair, position_based(zeta, theta)


VARIANTS = [
    quick(),
    quick(bias="estimated", schedule=(500, 5000)),
    quick(relevance="true", schedule=()),
    quick(gradient="paper", inputs="both", warm_start=True, queries="data", schedule=(500,)),
    quick(gradient="authors", inputs="features", start="rank-2", schedule=(500,)),
    quick(bias="estimated", click_model="em", true_lambda=True, schedule=(500, 5000)),
    quick(bias="estimated", click_model="regression-em", schedule=(500,)),
    quick(bias="estimated", click_model="regression-em", authors_rows=True, schedule=(500,)),
    quick(propensities="observed", schedule=(500,)),
]


@pytest.mark.parametrize("method", VARIANTS, ids=str)
def test_every_variant_runs_repeats_and_parses_back(method: LogOptNetwork) -> None:
    pair, user = world()
    run = method.simulate(pair, user, [100, 500, 3000], seed=1)
    again = method.simulate(pair, user, [100, 500, 3000], seed=1)
    assert np.array_equal(run.estimate, again.estimate)
    assert np.all(np.isfinite(run.estimate))
    assert np.all((run.ctr > 0) & (run.ctr < 4))
    assert parse_method(str(method)) == method


def test_bias_known_is_unbiased_through_updates_of_the_policy() -> None:
    """Mean of 120 runs, the policy changing twice on the way, within 4.5 standard errors; x^2 as the spread says."""
    pair, user = world()
    method = quick(schedule=(200, 1000))
    runs = [method.simulate(pair, user, [2000], seed=s) for s in range(120)]
    estimates = np.array([r.estimate[0] for r in runs])
    assert abs(estimates.mean() - pair.delta(user)) < 4.5 * estimates.std() / np.sqrt(len(runs))
    per_impression = np.mean([r.squared_error(pair.delta(user))[0] for r in runs])
    assert 2000 * estimates.var() == pytest.approx(per_impression, rel=4.5 * np.sqrt(2 / 120))


def test_bias_estimated_finds_the_position_bias_and_the_difference() -> None:
    pair, user = world(n_queries=30)
    method = quick(bias="estimated", schedule=(1_000, 10_000, 100_000))
    run = method.run(pair, user, [400_000], seed=3)
    assert run.versions[0].theta == pytest.approx(first_theta(pair.k))
    assert run.versions[-1].theta == pytest.approx(user.slope, abs=0.02)
    known = quick(schedule=method.schedule).run(pair, user, [400_000], seed=3)
    error = np.sqrt(known.trajectory.squared_error(pair.delta(user))[0] / 400_000)
    assert abs(run.trajectory.estimate[0] - pair.delta(user)) < 6 * error
    assert [v.begin for v in run.versions] == [0, 1_000, 10_000, 100_000]


def test_past_clicks_are_weighted_anew_when_the_position_bias_changes() -> None:
    """At the end of a run the estimate is the sum over versions of clicks times lambda-hat / rho-hat of that version."""
    pair, user = world()
    method = quick(bias="estimated", schedule=(500, 2000))
    run = method.run(pair, user, [5000], seed=2)
    theta = run.versions[-1].theta
    lam = pair.lam(theta)
    total = sum(v.clicks @ np.divide(lam, v.policy.placement() @ theta)[pair.listed] for v in run.versions)
    assert run.trajectory.estimate[-1] == pytest.approx(total / 5000, rel=1e-9)


def test_a_log_that_cannot_tell_keeps_the_position_bias_and_says_so() -> None:
    """One impression has no document at two ranks, so the first update learns nothing."""
    pair, user = world()
    run = quick(bias="estimated", schedule=(1, 20)).run(pair, user, [30], seed=1)
    assert run.versions[1].theta == pytest.approx(first_theta(pair.k))
    assert "kept the position bias" in run.versions[1].note


def test_checkpoints_do_not_change_the_run() -> None:
    pair, user = world()
    method = quick(schedule=(500,))
    often = method.simulate(pair, user, [10, 400, 700, 1500], seed=5)
    once = method.simulate(pair, user, [1500], seed=5)
    assert often.estimate[-1] == once.estimate[-1]
    assert often.mean_square[-1] == pytest.approx(once.mean_square[-1])


def test_the_authors_estimate_needs_many_impressions_of_a_query() -> None:
    """Observed propensities: near the truth when queries are seen often, and steadier than when seen about once."""
    pair, user = world(n_queries=400, seed=4)
    method = Counterfactual(logging="uniform", propensities="observed")
    runs = np.array([method.simulate(pair, user, [100, 20_000], seed=s).estimate for s in range(60)])
    delta, error = pair.delta(user), runs.std(0) / np.sqrt(60)
    assert abs(runs[:, 1].mean() - delta) < 0.2 * abs(delta) + 4.5 * error[1]
    assert runs.std(0)[1] < runs.std(0)[0]


def test_observed_estimate_by_hand() -> None:
    pair = Pair.from_lists(["ab", "c"], ["ba", "c"], k=2)
    shown = np.array([[3.0, 1], [1, 3], [2, 0]])
    clicked = np.array([[1.0, 0], [0, 1], [2, 0]])
    theta = np.array([1, 0.5])
    # lambda = .5, -.5, 0; examined 3.5, 2.5, 2; query 0 has 4 of 6 impressions
    found = observed_estimate(pair, pair.lam(theta), theta, shown, clicked)
    assert found == pytest.approx(4 / 6 * (0.5 / 3.5 - 0.5 / 2.5))


def test_rankings_a_step_are_the_papers_unless_the_gradient_needs_fewer() -> None:
    assert LogOptNetwork().rankings_a_step == 100
    assert LogOptNetwork(gradient="paper").rankings_a_step == 1000
    assert LogOptNetwork(samples=7).rankings_a_step == 7
    for method, told in ((LogOptNetwork(), True), (LogOptNetwork(samples=99), False)):
        assert ("samples" in part_of(method)[1]) == told


def test_relevance_is_shrunk_towards_the_mean() -> None:
    shown, clicked = np.array([[10.0, 0], [0, 20], [0, 0]]), np.array([[5.0, 0], [0, 1], [0, 0]])
    zeta = shrunken_relevance(shown, clicked, np.array([1, 0.5]))
    mean = 6 / 20
    np.testing.assert_allclose(zeta, [(5 + 10 * mean) / 20, (1 + 10 * mean) / 20, mean])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bias": "predicted"}, "bias is 'predicted'"),
        ({"schedule": (1000, 100)}, "checkpoints must increase"),
        ({"samples": 1}, "samples is 1"),
        ({"gradient": "exact"}, "gradient is 'exact'"),
        ({"schedule": (10.7,)}, "whole numbers"),
        ({"steps": 10.5}, "steps is 10.5, must be a whole number"),
        ({"true_lambda": True}, "true_lambda changes nothing"),
        ({"authors_rows": True}, "authors_rows needs"),
        ({"relevance": "true", "bias": "estimated"}, "the Oracle, which knows the bias"),
        ({"relevance": "true", "start": "rank-2"}, "the Oracle, which assumes nothing"),
        ({"relevance": "constant"}, "relevance is 'constant'"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LogOptNetwork(**options)  # type: ignore[arg-type]


def test_what_a_variant_needs_is_asked_for() -> None:
    pair, user = world()
    bare = Pair(pair.a, pair.b, pair.offsets, pair.k)
    with pytest.raises(ValueError, match=r"knowing\(theta"):
        quick().simulate(bare, user, [10], seed=1)
    with pytest.raises(ValueError, match=r"knowing\(features"):
        quick(bias="estimated", inputs="features").simulate(bare, user, [10], seed=1)
    assert quick(bias="estimated").simulate(bare, user, [10], seed=1).impressions[0] == 10


class Optimisations:
    """Records what each optimisation of a run is asked to do, instead of doing it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[dict[str, Any]] = []
        monkeypatch.setattr("ranktrial.paper.logopt_network.optimise", self)

    def __call__(self, network: Any, optimiser: Any, inputs: Any, objective: Any, **options: Any) -> None:
        self.calls.append({"network": network, "inputs": inputs, "objective": objective, **options})

    def of(self, method: LogOptNetwork, *, pair: Pair | None = None, user: User | None = None) -> list[dict[str, Any]]:
        self.calls = []
        default_pair, default_user = world()
        method.run(pair or default_pair, user or default_user, [4000], seed=1)
        return self.calls


def test_what_is_optimised_at_each_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Algorithm 1: before any click equal relevance; then the fitted model, the estimate so far, the log's queries."""
    pair, user = world()
    first, second = Optimisations(monkeypatch).of(quick(schedule=(2000,), gradient="paper"))
    assert np.ptp(first["objective"].zeta) == 0
    assert first["objective"].delta == 0
    assert first["query_weights"] is None
    assert np.array_equal(first["objective"].lam, pair.lam(pair.known_theta))
    assert np.ptp(second["objective"].zeta) > 0.05
    assert np.corrcoef(second["objective"].zeta, user.zeta)[0, 1] > 0.3
    assert second["objective"].delta != 0
    assert abs(second["objective"].delta - pair.delta(user)) < 0.3
    assert second["query_weights"].sum() == 2000
    assert np.all(second["query_weights"] > 50)
    assert second["network"] is not first["network"]
    assert (first["gradient"], first["steps"], first["samples"]) == ("paper", 30, 20)
    quiet = Optimisations(monkeypatch).of(quick(schedule=(2000,)))[1]
    assert (quiet["gradient"], quiet["objective"].delta) == ("low-noise", 0)  # which does not ask for the estimate
    assert first["inputs"].shape[1] == 7


def test_each_switch_changes_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, user = world()
    spy = Optimisations(monkeypatch)
    for gradient in ("paper", "authors"):
        assert spy.of(quick(gradient=gradient))[0]["gradient"] == gradient
    assert spy.of(quick(inputs="features"))[0]["inputs"].shape[1] == 3
    assert spy.of(quick(inputs="both"))[0]["inputs"].shape[1] == 10
    warm = spy.of(quick(schedule=(2000,), warm_start=True))
    assert warm[1]["network"] is warm[0]["network"]
    assert spy.of(quick(schedule=(2000,), queries="data"))[1]["query_weights"] is None
    start = spy.of(quick(start="rank-2"))[0]["objective"]
    assert start.theta.tolist() == [0, 1, 0, 0]
    assert np.array_equal(start.lam, pair.lam(np.array([0.0, 1, 0, 0])))
    oracle = spy.of(quick(relevance="true", schedule=()))[0]["objective"]
    assert np.array_equal(oracle.zeta, user.zeta)
    assert np.array_equal(oracle.theta, user.slope)


def test_lambda_follows_the_estimated_position_bias_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, _ = world()
    spy = Optimisations(monkeypatch)
    fitted = spy.of(quick(bias="estimated", schedule=(2000,)))[1]["objective"]
    assert not np.allclose(fitted.theta, pair.known_theta)
    assert np.array_equal(fitted.lam, pair.lam(fitted.theta))
    true = spy.of(quick(bias="estimated", schedule=(2000,), true_lambda=True))[1]["objective"]
    assert np.array_equal(true.lam, pair.lam(pair.known_theta))
    assert not np.allclose(true.theta, pair.known_theta)


def test_the_authors_rows_reach_the_click_model(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Optimisations(monkeypatch)
    zeta = [
        spy.of(quick(bias="estimated", click_model="regression-em", schedule=(30,), authors_rows=rows))[1][
            "objective"
        ].zeta
        for rows in (False, True)
    ]
    assert not np.array_equal(zeta[0], zeta[1])


def test_the_designs_expected_counts_add_up_over_versions() -> None:
    """Shows that position bias is estimated from: impressions of each query times the placement of the version showing them."""
    pair, user = world()
    state = _State(quick(bias="estimated", schedule=(500,)), pair, user, first_theta(pair.k), 1)
    expected = np.zeros((pair.n_documents, pair.k))
    for begin, end in ((0, 500), (500, 2000)):
        state.next_version()
        state.show(begin, end, np.array([end]))
        expected += np.repeat(state.versions[-1].drawn, 8)[:, None] * state.versions[-1].policy.placement()
    counts = state._designed_counts()
    assert np.array_equal(counts.documents, state.listed)  # every query came
    assert counts.expected is not None
    np.testing.assert_allclose(counts.expected, expected[state.listed], atol=1e-9)
    assert np.array_equal(counts.shown, state.shown[: len(state.listed)])
    assert np.array_equal(state.shown.sum(0), np.full(pair.k, 2000))
    assert set(np.flatnonzero(pair.lam(pair.known_theta))) <= set(counts.documents)


@pytest.mark.parametrize("logging", ["uniform", "lambda", "ab", "optimal"])
@pytest.mark.parametrize("propensities", ["policy", "observed"])
def test_a_user_who_could_see_more_sees_the_page_only(logging: str, propensities: str) -> None:
    pair, user = world()
    deep = position_based(user.zeta, np.append(user.slope, [0.9, 0.9, 0.9]))
    method = Counterfactual(logging=logging, propensities=propensities)
    runs = [method.simulate(pair, u, [300], seed=1).estimate[0] for u in (user, deep)]
    assert runs[0] == runs[1]
    short = position_based(user.zeta, user.slope[:2])
    with pytest.raises(ValueError, match="knows 2 ranks"):
        method.simulate(pair, short, [300], seed=1)


def test_queries_without_documents_are_skipped() -> None:
    rng = np.random.default_rng(0)
    offsets = offsets_of([8, 0, 8, 0, 0, 8, 0])
    theta = rank_decay(4)
    pair = Pair.from_scores(rng.normal(size=24), rng.normal(size=24), offsets, 4).knowing(theta=theta)
    run = quick(schedule=()).simulate(pair, position_based(np.full(24, 0.5), theta), [200], seed=1)
    assert np.isfinite(run.estimate[0])
