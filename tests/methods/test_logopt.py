from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ranktrial.arrays import offsets_of
from ranktrial.methods import Counterfactual, LogOpt, parse_method
from ranktrial.methods.counterfactual import observed_estimate
from ranktrial.methods.logopt import first_theta, shrunken_relevance
from ranktrial.rankings import Pair
from ranktrial.users import User, position_based, position_bias


# Small and quick: what is tested is the machinery; how well it optimises is tested in tests/design.
def quick(**options: Any) -> LogOpt:
    return LogOpt(steps=30, samples=20, **options)


def world(n_queries: int = 20, n_documents: int = 8, k: int = 4, seed: int = 0) -> tuple[Pair, User]:
    rng = np.random.default_rng(seed)
    offsets = offsets_of([n_documents] * n_queries)
    n = int(offsets[-1])
    features = rng.normal(size=(n, 3)).astype(np.float32)
    zeta = 1 / (1 + np.exp(1.5 - features[:, 0]))
    a, b = (zeta + 0.3 * rng.normal(size=n) for _ in range(2))
    theta = position_bias(k)
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
def test_every_variant_runs_repeats_and_parses_back(method: LogOpt) -> None:
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
    total = sum(v.clicks @ np.divide(lam, v.policy.placement() @ theta) for v in run.versions)
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
    """Observed propensities: far too small when queries are seen about once, fine when seen often."""
    pair, user = world(n_queries=400, seed=4)
    method = Counterfactual(logging="uniform", propensities="observed")
    runs = np.array([method.simulate(pair, user, [100, 20_000], seed=s).estimate for s in range(60)])
    delta, error = pair.delta(user), runs.std(0) / np.sqrt(60)
    assert abs(runs[:, 1].mean() - delta) < 0.2 * abs(delta) + 4.5 * error[1]
    assert runs.std(0)[1] < runs.std(0)[0]


def test_observed_estimate_by_hand() -> None:
    pair, _ = Pair.from_lists(["ab", "c"], ["ba", "c"], k=2)
    shown = np.array([[3.0, 1], [1, 3], [2, 0]])
    clicked = np.array([[1.0, 0], [0, 1], [2, 0]])
    theta = np.array([1, 0.5])
    # lambda = .5, -.5, 0; examined 3.5, 2.5, 2; query 0 has 4 of 6 impressions
    assert observed_estimate(pair, theta, shown, clicked) == pytest.approx(4 / 6 * (0.5 / 3.5 - 0.5 / 2.5))


def test_relevance_is_shrunk_towards_the_mean() -> None:
    shown, clicked = np.array([[10.0, 0], [0, 20], [0, 0]]), np.array([[5.0, 0], [0, 1], [0, 0]])
    zeta = shrunken_relevance(shown, clicked, np.array([1, 0.5]), strength=10)
    mean = 6 / 20
    np.testing.assert_allclose(zeta, [(5 + 10 * mean) / 20, (1 + 10 * mean) / 20, mean])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bias": "guessed"}, "bias is 'guessed'"),
        ({"schedule": (1000, 100)}, "checkpoints must increase"),
        ({"samples": 1}, "samples is 1"),
        ({"gradient": "exact"}, "gradient is 'exact'"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LogOpt(**options)  # type: ignore[arg-type]


def test_what_a_variant_needs_is_asked_for() -> None:
    pair, user = world()
    bare = Pair(pair.a, pair.b, pair.offsets, pair.k)
    with pytest.raises(ValueError, match=r"knowing\(theta"):
        quick().simulate(bare, user, [10], seed=1)
    with pytest.raises(ValueError, match=r"knowing\(features"):
        quick(bias="estimated", inputs="features").simulate(bare, user, [10], seed=1)
    assert quick(bias="estimated").simulate(bare, user, [10], seed=1).impressions[0] == 10
