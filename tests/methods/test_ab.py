from __future__ import annotations

import numpy as np
import pytest

from oracles import fixed_world
from ranktrial.methods import AB, Beliefs, Linear, LogOpt
from ranktrial.methods.beliefs import BIAS
from ranktrial.methods.click_model import ESTIMATES, planned_displays, planned_moments


@pytest.mark.slow
@pytest.mark.parametrize("split", [0.5, 0.8])
def test_the_shortcut_and_the_kernel_draw_the_same_law(split: float) -> None:
    pair, user = fixed_world(seed=1, k=3, n_queries=6)
    method = AB(split=split, estimate="paper")
    exact = method.moments(pair, user)
    points = [200, 50_000]
    runs = 400
    for shortcut in (True, False):
        finals = np.array(
            [method.simulate(pair, user, points, seed=s, shortcut=shortcut).estimate for s in range(runs)]
        )
        errors = (finals - exact.mean) / np.sqrt(exact.variance / np.array(points))
        assert np.all(np.abs(errors.mean(0)) < 4.5 / np.sqrt(runs))
        assert np.all(np.abs((errors**2).mean(0) - 1) < 4.5 * np.sqrt(2 / runs))


@pytest.mark.parametrize("split", [0.5, 0.25])
def test_the_variance_of_the_difference_in_means(split: float) -> None:
    """Large-sample variance against the spread of 2,000 runs and the run's own squared error."""
    pair, user = fixed_world(seed=2, k=3, n_queries=6)
    method = AB(split=split)
    exact = method.moments(pair, user)
    n, runs = 4000, 2000
    trials = [method.simulate(pair, user, [n], seed=s) for s in range(runs)]
    finals = np.array([t.estimate[0] for t in trials])
    assert abs(finals.mean() - pair.delta(user)) < 4.5 * np.sqrt(exact.variance / n / runs)
    assert n * finals.var() == pytest.approx(exact.variance, rel=4.5 * np.sqrt(2 / runs))
    own = np.mean([t.squared_error(pair.delta(user))[0] for t in trials])
    assert own == pytest.approx(exact.variance, rel=0.03)


def test_the_difference_in_means_varies_less_than_the_papers_value() -> None:
    pair, user = fixed_world(seed=3, k=3, n_queries=8)
    single, means = AB(estimate="paper").moments(pair, user), AB().moments(pair, user)
    assert means.mean == single.mean
    assert means.variance < single.variance


def test_an_arm_without_impressions_counts_as_zero() -> None:
    pair, user = fixed_world(seed=4)
    run = AB(split=1e-9).simulate(pair, user, [100], seed=1)
    assert run.estimate[0] == pytest.approx(-run.ctr[0])


def test_what_is_shown_is_the_mixture_of_both_rankers() -> None:
    pair, user = fixed_world(seed=5)
    moments = AB(split=0.3).moments(pair, user)
    assert moments.ctr == pytest.approx(np.dot([0.3, 0.7], pair.ctr(user)))


@pytest.mark.parametrize("estimate", ESTIMATES)
@pytest.mark.parametrize("bias", BIAS)
def test_by_the_click_model_it_is_logopt_that_holds_everything_back(estimate: str, bias: str) -> None:
    pair, user = fixed_world(seed=6, n_queries=8)
    plain, held = AB(estimate=estimate, bias=bias), LogOpt(estimate=estimate, bias=bias, holdback=1)
    ours, theirs = planned_displays(plain, pair, user), planned_displays(held, pair, user)
    shown = theirs.mixture.weights > 0
    assert isinstance(ours.value, Linear)
    assert isinstance(theirs.value, Linear)
    np.testing.assert_array_equal(ours.mixture.rankings, theirs.mixture.rankings[shown])
    np.testing.assert_array_equal(ours.mixture.weights, theirs.mixture.weights[shown])
    np.testing.assert_allclose(ours.value.values, theirs.value.values[shown], rtol=1e-12)
    assert ours.value.base is not None
    assert theirs.value.base is not None
    np.testing.assert_allclose(ours.value.base, theirs.value.base[shown], rtol=1e-12)
    for name in ("needs_position_bias", "learns_position_bias", "learns_at", "estimator", "ab_shares"):
        assert getattr(plain.traits, name) == getattr(held.traits, name)


def test_the_click_model_spares_impressions_and_changes_nothing_on_the_page() -> None:
    pair, user = fixed_world(seed=7, k=3, n_queries=8)
    method = AB(estimate="rank-aware")
    assert planned_moments(method, pair, user).mean == pytest.approx(pair.delta(user))
    assert planned_moments(method, pair, user).variance < AB().moments(pair, user).variance / 1.5
    runs = np.array([method.simulate(pair, user, [4_000], seed=s).estimate[0] for s in range(40)])
    spread = planned_moments(method, pair, user).variance / 4_000
    assert abs(runs.mean() - pair.delta(user)) < 4.5 * np.sqrt(2 * spread / 40)
    before, after = (method.policy(pair, Beliefs(theta)) for theta in (np.ones(3), np.array([1.0, 0.1, 0.01])))
    np.testing.assert_array_equal(before.rankings, after.rankings)


@pytest.mark.parametrize("options", [{"bias": "known"}, {"schedule": (5,)}])
def test_options_of_the_click_model_belong_to_its_estimates(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r'belongs to ips, .* not to estimate="means"'):
        AB(**options)  # type: ignore[arg-type]
    assert AB(estimate="ips", **options) != AB(estimate="ips")  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"split": 0.0}, {"split": 1.0}, {"estimate": "median"}, {"bias": "unknown"}])
def test_impossible_tests_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        AB(**options)  # type: ignore[arg-type]
