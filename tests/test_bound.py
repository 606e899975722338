"""The efficiency bound against brute force over all rankings, an assignment solver, exact variances, and cases by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from benchmarks.bound import Bound, efficiency_bound
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment, linprog

from ranktrial.arrays import FloatArray, offsets_of
from ranktrial.design.closed_form import closed_form
from ranktrial.rankings import Mixture, Pair, affine_values
from ranktrial.users import User, position_based, rank_decay

GAP = 1e-5


@st.composite
def worlds(draw: st.DrawFn, queries: int = 1) -> tuple[Pair, User]:
    """Queries of up to four documents, lists of any length, position bias with zeros, plateaus and in any order."""
    k = draw(st.integers(1, 4))
    a: list[list[int]] = []
    b: list[list[int]] = []
    for _ in range(queries):
        n = draw(st.integers(1, 4))
        for lists, fewest in ((a, 1), (b, 0)):
            lists.append(draw(st.permutations(range(n)))[: draw(st.integers(fewest, n))])
    pair = Pair.from_lists(a, b, k)
    ids = pair.ids
    theta = np.array(draw(st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.5, 0.9, 1.0]), min_size=k, max_size=k)))
    zeta = draw(st.lists(st.sampled_from([0.0, 0.05, 0.3, 0.3, 0.6, 0.9, 1.0]), min_size=len(ids), max_size=len(ids)))
    return pair.knowing(theta=theta), position_based(zeta, theta)


def everything(pair: Pair, query: int) -> FloatArray:
    """The placement, documents by ranks, of every ranking of all of a query's documents."""
    n = int(np.diff(pair.offsets)[query])
    page = min(n, pair.k)
    rankings = list(itertools.permutations(range(n), page))
    placements = np.zeros((len(rankings), n, pair.k))
    for placement, ranking in zip(placements, rankings):
        placement[list(ranking), range(page)] = 1
    return placements


def information(placement: FloatArray, zeta: FloatArray, theta: FloatArray) -> FloatArray:
    """About each document in one impression: the expected square of the derivative of the log likelihood by zeta."""
    p = theta * zeta[..., None]
    told = np.divide(theta**2, p * (1 - p), out=np.zeros(p.shape), where=(p > 0) & (p < 1))
    return np.asarray((placement * told).sum(-1))


def brute_force(pair: Pair, user: User, query: int) -> float:
    """The least sum of lambda^2 / I over all mixtures of all rankings, by the multiplicative algorithm for optimal designs."""
    rows = np.arange(pair.offsets[query], pair.offsets[query + 1])
    theta, zeta = user.slope, user.zeta[rows]
    page = theta[: min(len(rows), pair.k)]
    lam = pair.lam(theta)[rows]
    active = (lam != 0) & (zeta > 0) & (zeta * page.max(initial=0) < 1)  # always clicked: known at no cost
    if not np.any(active):
        return 0.0
    told = information(everything(pair, query)[:, active], zeta[active], theta)
    weights = np.full(len(told), 1 / len(told))
    value = np.inf
    for _ in range(5_000):
        total = weights @ told
        value = float((lam[active] ** 2 / total).sum())
        use = told @ (lam[active] / total) ** 2 / value
        if use.max() < 1 + 1e-7:
            return value
        weights = weights * np.sqrt(use)
        weights /= weights.sum()
    assert (
        use.max() < 1 + 1e-3
    )  # the algorithm is slow where a ranking's weight tends to 0; value * (2 - use) is a bound
    return value


def as_mixture(pair: Pair, placement: FloatArray) -> Mixture:
    """Rankings of one query that place every document at least as often as asked."""
    all_of_them = everything(pair, 0)
    asked = all_of_them.reshape(len(all_of_them), -1).T
    found = linprog(
        np.zeros(len(all_of_them)),
        A_ub=-asked,
        b_ub=1e-9 - placement.ravel(),
        A_eq=np.ones((1, len(all_of_them))),
        b_eq=[1],
    )
    assert found.status == 0
    return listed(pair, found.x)


def listed(pair: Pair, weights: FloatArray) -> Mixture:
    """All rankings of the one query of a pair, with these weights."""
    n = pair.n_documents
    rankings = np.full((len(weights), pair.k), -1, np.int32)
    page = min(n, pair.k)
    rankings[:, :page] = list(itertools.permutations(range(n), page))
    return Mixture(rankings, np.maximum(weights, 0) / np.maximum(weights, 0).sum(), offsets_of([len(weights)]), n)


def exact_variance(
    pair: Pair, user: User, shown: Mixture, prediction: FloatArray | float | None, *, rank_aware: bool
) -> float:
    lam = pair.lam(user.slope)
    affine = affine_values(
        shown, lam, user.slope, pair.offsets, zeta_hat=prediction, rank_aware=rank_aware, known_queries=True
    )
    return shown.moments(affine.values, user, affine.base).variance


def check(pair: Pair, bound: Bound, gap: float) -> None:
    """Placements that some distribution over rankings can have, and the promised gap."""
    assert bound.value == pytest.approx(bound.per_query.mean())
    assert 0 <= bound.gap <= gap
    assert np.all(bound.placement >= 0)
    assert np.all(bound.placement.sum(1) <= 1 + 1e-9)
    for query in range(pair.n_queries):
        rows = bound.placement[pair.offsets[query] : pair.offsets[query + 1]]
        assert np.all(rows.sum(0) <= 1 + 1e-9)


# --- few documents --------------------------------------------------------------------------------------------------------


@given(world=worlds(queries=3))
def test_the_least_over_all_mixtures_of_all_rankings(world: tuple[Pair, User]) -> None:
    pair, user = world
    bound = efficiency_bound(pair, user.zeta, user.slope, gap=GAP)
    check(pair, bound, GAP)
    for query in range(3):
        best = brute_force(pair, user, query)
        assert bound.per_query[query] <= best * (1 + 1e-9)
        assert bound.per_query[query] == pytest.approx(best, rel=1e-3)


@given(world=worlds(), seed=st.integers(0, 10**6))
def test_no_estimate_on_any_design_has_less_variance(world: tuple[Pair, User], seed: int) -> None:
    pair, user = world
    bound = efficiency_bound(pair, user.zeta, user.slope, gap=GAP)
    rng = np.random.default_rng(seed)
    count = len(everything(pair, 0))
    designs = [
        closed_form(pair, user.slope),
        closed_form(pair, user.slope, zeta0=0.4, floor=0.5),
        listed(pair, rng.dirichlet(np.ones(count))),
        listed(pair, rng.dirichlet(np.full(count, 0.1)) + 1e-3),
    ]
    for shown in designs:
        for prediction, rank_aware in (
            (None, False),
            (0.4, False),
            (user.zeta, False),
            (user.zeta, True),
            (rng.uniform(0, 1, pair.n_documents), True),
        ):
            assert exact_variance(pair, user, shown, prediction, rank_aware=rank_aware) >= bound.value * (1 - 1e-9)


@given(world=worlds())
def test_rank_aware_estimates_reach_it_on_its_design(world: tuple[Pair, User]) -> None:
    """With the true zeta as the prediction, as far as such weights go (0.01 to 0.9)."""
    pair, user = world
    user = position_based(np.clip(user.zeta, 0.05, 0.9), user.slope)
    bound = efficiency_bound(pair, user.zeta, user.slope, gap=GAP)
    shown = as_mixture(pair, bound.placement)
    reached = exact_variance(pair, user, shown, user.zeta, rank_aware=True)
    assert reached == pytest.approx(bound.value, rel=1e-4, abs=1e-12)


@pytest.mark.parametrize(("theta", "x", "y"), [(1.0, 0.5, 0.5), (0.7, 0.2, 0.9), (0.3, 1.0, 0.01)])
def test_one_place_for_two_documents(theta: float, x: float, y: float) -> None:
    """Each is shown in proportion to |lambda| times the standard deviation of a click on it over theta."""
    pair = Pair.from_lists(["x"], ["y"], k=1)
    share = np.sqrt([x * (1 - theta * x) / theta, y * (1 - theta * y) / theta])
    bound = efficiency_bound(pair, [x, y], [theta], gap=GAP)
    assert bound.value == pytest.approx((theta * share.sum()) ** 2, rel=2 * GAP)
    assert bound.placement[:, 0] == pytest.approx(share / share.sum(), abs=5e-3)


def test_nothing_to_learn_costs_nothing() -> None:
    pair = Pair.from_lists(["abc", "ab"], ["abc", "ab"], k=2)
    bound = efficiency_bound(pair, [0.3] * 5, [1, 0.5])
    assert (bound.value, bound.gap, bound.placement.sum()) == (0, 0, 0)
    differing = Pair.from_lists(["abc", ""], ["cba", ""], k=2)
    assert efficiency_bound(differing, np.zeros(3), [1, 0.5]).value == 0  # never clicked
    assert efficiency_bound(differing, [0.5] * 3, [0, 0]).value == 0  # never examined
    assert efficiency_bound(differing, np.ones(3), [1, 0.5]).value == 0  # always clicked where always examined
    assert efficiency_bound(differing, [0.5] * 3, [1, 0.5]).per_query[1] == 0


# --- many documents -------------------------------------------------------------------------------------------------------


def large(seed: int, k: int, sizes: list[int]) -> tuple[Pair, User]:
    rng = np.random.default_rng(seed)
    offsets, n = offsets_of(sizes), sum(sizes)
    quality = rng.normal(size=n)
    a, b = quality + rng.normal(size=(2, n))
    pair = Pair.from_scores(a, b, offsets, k)
    return pair, position_based(rng.choice([0.1, 0.325, 0.55, 0.775, 1.0], n), rank_decay(k))


@pytest.mark.parametrize("gap", [1e-2, 1e-3, 1e-5])
def test_no_assignment_improves_the_placement(gap: float) -> None:
    """The tangent at the placement found, minimised by a solver of assignments: what could still be gained at most."""
    pair, user = large(1, 10, [24] * 30)
    theta, zeta = user.slope, user.zeta
    bound = efficiency_bound(pair, zeta, theta, gap=gap)
    check(pair, bound, gap)
    lam = pair.lam(theta)
    for query in range(30):
        rows = np.arange(pair.offsets[query], pair.offsets[query + 1])
        rows = rows[(lam[rows] != 0) & (zeta[rows] < 1)]
        placement = bound.placement[rows]
        total = information(placement, zeta[rows], theta)
        value = (lam[rows] ** 2 / total).sum()
        slope = (lam[rows] / total)[:, None] ** 2 * information(np.eye(10)[None], zeta[rows][:, None], theta)
        best = linear_sum_assignment(slope, maximize=True)
        least = value + (slope * placement).sum() - slope[best].sum()
        assert bound.per_query[query] <= value <= bound.per_query[query] * (1 + gap)
        assert bound.per_query[query] <= least * (1 + 1e-9)  # the prices certify no more than the best assignment does
        assert least <= value


def test_queries_of_any_size_share_a_batch() -> None:
    pair, user = large(2, 4, [1, 2, 3, 5, 9, 20])
    together = efficiency_bound(pair, user.zeta, user.slope, gap=GAP)
    for query in range(pair.n_queries):
        rows = slice(pair.offsets[query], pair.offsets[query + 1])
        a, b = pair.a[query] - rows.start, pair.b[query] - rows.start
        alone = Pair.from_scores(-np.argsort(a), -np.argsort(b), offsets_of([len(a)]), 4)
        value = efficiency_bound(alone, user.zeta[rows], user.slope, gap=GAP).value
        assert together.per_query[query] == pytest.approx(value, rel=GAP)


def test_differences_of_any_size() -> None:
    """lambda of 1e-16 next to lambda of 1, relevances down to 1e-9, clicks that are all but certain."""
    theta = np.array([1.0, 0.5, np.nextafter(0.5, 0), 0.25, 1e-12])
    rng = np.random.default_rng(3)
    lists = [[rng.permutation(7)[: rng.integers(1, 8)].tolist() for _ in range(200)] for _ in range(2)]
    pair = Pair.from_lists(lists[0], lists[1], k=5)
    ids = pair.ids
    zeta = rng.choice([1e-9, 1e-3, 0.5, 1 - 1e-9, 1.0], len(ids))
    bound = efficiency_bound(pair, zeta, theta, gap=1e-3)
    check(pair, bound, 1e-3)
    mixture = closed_form(pair, theta)
    assert exact_variance(pair, position_based(zeta, theta), mixture, zeta, rank_aware=True) >= bound.value


def test_which_ranker_comes_first_does_not_matter() -> None:
    pair, user = large(4, 5, [12] * 20)
    bound, swapped = (efficiency_bound(p, user.zeta, user.slope) for p in (pair, pair.swapped()))
    assert np.array_equal(bound.per_query, swapped.per_query)


def test_arguments_are_checked() -> None:
    pair = Pair.from_lists(["ab"], ["ba"], k=2)
    with pytest.raises(ValueError, match="theta has 1 ranks, must have k = 2"):
        efficiency_bound(pair, [0.5, 0.5], [1])
    with pytest.raises(ValueError, match="1 zeta for 2 documents"):
        efficiency_bound(pair, [0.5], [1, 0.5])
    with pytest.raises(ValueError, match=r"zeta\[0\] is 2"):
        efficiency_bound(pair, [2, 0.5], [1, 0.5])
    with pytest.raises(ValueError, match="gap is 0, must be between 1e-05 and 1"):
        efficiency_bound(pair, [0.5, 0.5], [1, 0.5], gap=0)
