"""The checks that every method must pass, whatever it is. A new method is added to METHODS and to nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given

from oracles import click_patterns, fixed_world, small_worlds
from ranktrial.arrays import NO_DOCUMENT
from ranktrial.methods import (
    AB,
    Balanced,
    Counterfactual,
    Linear,
    LogOpt,
    Method,
    Optimized,
    Probabilistic,
    TeamDraft,
    parse_method,
)
from ranktrial.rankings import Pair
from ranktrial.users import User, cascade, position_based, trust_bias


@dataclass(frozen=True)
class Case:
    """A method and what is known about it.

    Attributes:
        unbiased: E[x] = Delta on every world ("known bias": for position-based users of known position bias).
        fair: A random clicker, who clicks each rank with a chance of its own whatever stands there, gets E[x] = 0.
    """

    method: Method
    unbiased: bool | str = False
    fair: bool = True

    def __str__(self) -> str:
        return str(self.method)


METHODS = [
    Case(AB(), unbiased=True),
    Case(AB(split=0.8), unbiased=True),
    Case(AB(estimate="means"), unbiased=True),
    Case(TeamDraft()),
    Case(TeamDraft(outcome="sum")),
    Case(Balanced(), fair=False),
    Case(Probabilistic(tau=4)),
    Case(Probabilistic(tau=0)),
    Case(Optimized(credit="inverse")),
    Case(Optimized(credit="linear")),
    Case(Optimized(credit="inverse", constraints="linear"), fair=False),
    Case(Counterfactual(logging="ab"), unbiased="known bias"),
    Case(Counterfactual(logging="uniform"), unbiased="known bias"),
    Case(Counterfactual(logging="lambda"), unbiased="known bias"),
    Case(Counterfactual(logging="optimal"), unbiased="known bias"),
    Case(Counterfactual(logging="optimal", floor=0.5), unbiased="known bias"),
    Case(Counterfactual(logging="ab", clip=0.5), fair=False),
    # Designs that change on the way have tests of their own.
    Case(LogOpt(schedule=()), unbiased="known bias"),
    Case(LogOpt(schedule=(), estimate="constant", floor=0.5), unbiased="known bias"),
    Case(LogOpt(schedule=(), estimate="rank-aware"), unbiased="known bias"),
]
every_method = pytest.mark.parametrize("case", METHODS, ids=str)


@every_method
def test_prints_as_written_and_parses_back(case: Case) -> None:
    assert parse_method(str(case.method)) == case.method
    assert hash(parse_method(str(case.method))) == hash(case.method)


@every_method
@given(world=small_worlds(queries=2, max_k=3))
def test_displays_are_a_distribution_over_valid_rankings(case: Case, world: tuple[Pair, User]) -> None:
    pair, _ = world
    mixture = case.method.displays(pair).mixture
    for query in range(2):
        deep = isinstance(
            case.method, (Probabilistic, Counterfactual)
        )  # may show what neither ranker puts in its top k
        one_ranker = isinstance(case.method, AB) or "ab" in str(case.method)
        listed = {*pair.a[query], *pair.b[query]} if deep else {*pair.top_a[query], *pair.top_b[query]}
        cells = slice(mixture.offsets[query], mixture.offsets[query + 1])
        assert mixture.weights[cells].sum() == pytest.approx(1, abs=1e-12)
        for row in mixture.rankings[cells]:
            shown = row[row != NO_DOCUMENT]
            assert np.all(row[len(shown) :] == NO_DOCUMENT)
            assert len(set(shown)) == len(shown)
            assert np.all((shown >= pair.offsets[query]) & (shown < pair.offsets[query + 1]))
            assert listed.issuperset(shown)
            if not one_ranker:  # as many results as the two lists can fill
                assert len(shown) == min(pair.k, len({*pair.a[query], *pair.b[query]}))


@every_method
@given(world=small_worlds(queries=2, max_k=4))
def test_moments_and_placement_agree_with_enumeration(case: Case, world: tuple[Pair, User]) -> None:
    pair, user = world
    displays = case.method.displays(pair)
    mixture = displays.mixture
    placement = np.zeros((pair.n_documents, pair.k))
    first = second = clicks = 0.0
    for display, row in enumerate(mixture.rankings):
        shown = row[row != NO_DOCUMENT]
        weight = mixture.weights[display] / 2
        placement[shown, np.arange(len(shown))] += mixture.weights[display]
        for pattern, probability in click_patterns(user, shown):
            x = displays.value_of(display, pattern)
            first += weight * probability * x
            second += weight * probability * x**2
            clicks += weight * probability * sum(pattern)
    moments = case.method.moments(pair, user)
    assert moments.mean == pytest.approx(first, abs=1e-12)
    assert moments.ctr == pytest.approx(clicks, abs=1e-12)
    if case.method != AB(estimate="means"):  # its variance is a large-sample one, checked in test_ab
        assert moments.variance == pytest.approx(second - first**2, abs=1e-10)
    np.testing.assert_allclose(case.method.placement(pair), placement, atol=1e-9)


@every_method
@given(world=small_worlds(queries=2, max_k=3))
def test_unbiased_methods_expect_the_true_difference(case: Case, world: tuple[Pair, User]) -> None:
    pair, user = world
    if case.unbiased == "known bias":
        user = position_based(user.zeta, pair.known_theta)
    if case.unbiased:
        assert case.method.moments(pair, user).mean == pytest.approx(pair.delta(user), abs=1e-12)


@pytest.mark.parametrize("case", [c for c in METHODS if not c.unbiased], ids=str)
def test_the_others_are_known_to_be_biased(case: Case) -> None:
    """Each misses the true difference by far on the paper's example (documents A, B, C; ABC against BCA)."""
    pair = Pair.from_lists(["ABC"], ["BCA"], k=3)
    user = position_based([0.5, 0, 1], [1, 0.9, 0.3])
    pair = pair.knowing(theta=user.slope)
    assert abs(case.method.moments(pair, user).mean - pair.delta(user)) > 0.05


@every_method
@given(world=small_worlds(queries=1, max_k=5))
def test_random_clicks_favour_neither_ranker(case: Case, world: tuple[Pair, User]) -> None:
    """Clicks that do not look at documents: equal zeta, any position bias, lists of any length."""
    pair, user = world
    if case.unbiased and (pair.top_a >= 0).sum() != (pair.top_b >= 0).sum():
        return  # a longer list gets more random clicks: that is a true difference
    blind = User("blind", np.full(pair.n_documents, 0.7), user.slope, user.intercept, *([np.ones(pair.k)] * 2))
    if case.unbiased == "known bias":
        blind = position_based(blind.zeta, pair.known_theta)
    if case.fair:
        assert case.method.moments(pair, blind).mean == pytest.approx(0, abs=1e-9)


@every_method
@given(world=small_worlds(queries=2, max_k=3))
def test_swapping_the_rankers_flips_the_sign(case: Case, world: tuple[Pair, User]) -> None:
    pair, user = world
    method = case.method
    swapped = AB(1 - method.split, method.estimate) if isinstance(method, AB) else method
    here, there = method.moments(pair, user), swapped.moments(pair.swapped(), user)
    assert there.mean == pytest.approx(-here.mean, abs=1e-12)
    assert there.variance == pytest.approx(here.variance, abs=1e-12)
    assert there.ctr == pytest.approx(here.ctr, abs=1e-12)


@every_method
@pytest.mark.parametrize("user_kind", ["position", "cascade"])
def test_identical_rankers_give_zero(case: Case, user_kind: str) -> None:
    lists = [["a", "b", "c", "d"], ["e"], ["f", "g"]]
    pair = Pair.from_lists(lists, lists, k=3)
    ids = pair.ids
    zeta = np.linspace(0.1, 0.9, len(ids))
    user = position_based(zeta, [1, 0.5, 0.3]) if user_kind == "position" else cascade(zeta, 3)
    pair = pair.knowing(theta=[1, 0.5, 0.3])
    moments = case.method.moments(pair, user)
    assert moments.mean == pytest.approx(0, abs=1e-12)
    if not isinstance(case.method, (AB, Probabilistic)):
        assert moments.variance == 0
        assert np.all(case.method.simulate(pair, user, [1000], seed=1).mean_square == 0)


@every_method
def test_the_same_seed_repeats_and_another_differs(case: Case) -> None:
    pair, user = fixed_world(seed=2)
    first = case.method.simulate(pair, user, [100, 1000], seed=7)
    again = case.method.simulate(pair, user, [100, 1000], seed=7)
    other = case.method.simulate(pair, user, [100, 1000], seed=8)
    assert np.array_equal(first.estimate, again.estimate)
    assert np.array_equal(first.mean_square, again.mean_square)
    assert np.array_equal(first.ctr, again.ctr)
    assert not np.array_equal(first.ctr, other.ctr)


@every_method
def test_a_checkpoint_reports_the_run_so_far(case: Case) -> None:
    """More checkpoints only look more often: the run impression by impression stays the same."""
    pair, user = fixed_world(seed=3)
    if case.method == AB(estimate="means"):
        pytest.skip("has no run impression by impression: it is drawn from counts")
    often = case.method.simulate(pair, user, [1, 10, 500, 2000], seed=4, shortcut=False)
    once = case.method.simulate(pair, user, [2000], seed=4, shortcut=False)
    assert often.estimate[-1] == once.estimate[0]
    assert often.mean_square[-1] == once.mean_square[0]


USERS = {
    "position-based": lambda zeta: position_based(zeta, [1, 0.6, 0.3]),
    "trust bias": lambda zeta: trust_bias(zeta, [1, 0.7, 0.4], relevant=[0.9, 0.8, 0.7], irrelevant=[0.4, 0.2, 0.1]),
    "cascade": lambda zeta: cascade(zeta, 3, leave_after_click=0.6, leave_after_skip=0.2),
}


@every_method
@pytest.mark.parametrize("shortcut", [False, True], ids=["kernel", "shortcut"])
@pytest.mark.parametrize("kind", USERS)
def test_simulation_agrees_with_exact_moments(case: Case, kind: str, shortcut: bool) -> None:
    """Queries of 1 to 5 documents at k = 3: mean of x, of x^2 and of clicks within 4 standard errors."""
    pair, base = fixed_world(seed=5, k=3, n_queries=5)
    user = USERS[kind](base.zeta)
    n = 400_000
    run = case.method.simulate(pair, user, [n], seed=11, shortcut=shortcut)
    exact = case.method.moments(pair, user)
    assert abs(run.estimate[0] - exact.mean) < 4 * np.sqrt(exact.variance / n) + 1e-12
    assert abs(run.ctr[0] - exact.ctr) < 4 * np.sqrt(3 * exact.ctr / n)
    # |x| is at most the largest value times k, so the standard deviation of x^2 at most that times the root of E[x^2].
    value = case.method.displays(pair).value
    largest = 3 * np.abs(value.values).max() if isinstance(value, Linear) else 1
    spread = largest * np.sqrt(exact.variance + exact.mean**2)
    assert abs(run.mean_square[0] - (exact.variance + exact.mean**2)) < 4 * spread / np.sqrt(n) + 1e-12


@every_method
def test_squared_error_is_that_of_single_impressions(case: Case) -> None:
    pair, user = fixed_world(seed=6)
    delta = pair.delta(user)
    run = case.method.simulate(pair, user, [200_000], seed=3)
    exact = case.method.moments(pair, user)
    expected = exact.variance + (exact.mean - delta) ** 2
    assert run.squared_error(delta)[0] == pytest.approx(expected, rel=0.05)


@every_method
def test_checkpoints_are_checked(case: Case) -> None:
    pair, user = fixed_world()
    for bad in ([], [0, 5], [5, 5], [10, 5]):
        with pytest.raises(ValueError, match="checkpoints"):
            case.method.simulate(pair, user, bad, seed=1)
