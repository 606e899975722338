from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import click_patterns, fixed_world, small_worlds
from ranktrial.arrays import NO_DOCUMENT, FloatArray
from ranktrial.methods.displays import Displays, Linear
from ranktrial.rankings import Affine, Mixture, Pair, PlackettLuce, RequirementError, affine_values
from ranktrial.rankings.values import DesignRows, checked_prediction, expected_value, value_rows, value_sums
from ranktrial.users import User, position_based


def everything(pair: Pair) -> Mixture:
    """A policy that can show any ranking of any query's documents."""
    return PlackettLuce(np.linspace(-1, 1, pair.n_documents), pair.offsets, pair.k).listed()


def wrong_prediction(pair: Pair) -> FloatArray:
    return np.resize([0.7, 0.05, 0.4, 0.9], pair.n_documents)


def formula(
    mixture: Mixture,
    pair: Pair,
    prediction: FloatArray,
    rank_aware: bool,
    row: int,
    query: int,
    clicks: tuple[bool, ...],
) -> float:
    """x of one impression, as printed: no arrays, no rescaling."""
    theta, lam, placement = pair.known_theta, pair.lam(pair.known_theta), mixture.placement()

    def u(d: int, r: int) -> float:
        return 1 / (1 - theta[r] * prediction[d]) if rank_aware else 1.0

    x = sum(lam[d] * prediction[d] for d in range(pair.offsets[query], pair.offsets[query + 1]))
    for r, d in enumerate(mixture.rankings[row]):
        if d != NO_DOCUMENT and lam[d] != 0:
            below = sum(placement[d, s] * theta[s] * u(d, s) for s in range(pair.k))
            x += lam[d] * u(d, r) / below * ((r < len(clicks) and clicks[r]) - theta[r] * prediction[d])
    return float(x)


@pytest.mark.parametrize("rank_aware", [False, True])
def test_x_is_the_printed_formula_on_every_ranking_and_click_pattern(rank_aware: bool) -> None:
    pair, user = fixed_world(seed=3)
    mixture, prediction = everything(pair), wrong_prediction(pair)
    lam, theta = pair.lam(pair.known_theta), pair.known_theta
    affine = affine_values(mixture, lam, theta, pair.offsets, zeta_hat=prediction, rank_aware=rank_aware)
    for query in range(pair.n_queries):
        for row in range(mixture.offsets[query], mixture.offsets[query + 1]):
            shown = mixture.rankings[row][mixture.rankings[row] != NO_DOCUMENT]
            for clicks, _ in click_patterns(user, shown):
                x = affine.base[row] + affine.values[row, : len(shown)][list(clicks)].sum()
                assert x == pytest.approx(formula(mixture, pair, prediction, rank_aware, row, query, clicks), abs=1e-12)
                assert abs(x) <= affine.bound + 1e-12
    rows = np.arange(1, len(mixture.rankings), 3)
    query_of = np.searchsorted(mixture.offsets, rows, side="right") - 1
    table = DesignRows.of(pair.offsets, mixture.offsets, mixture.rankings, mixture.weights)
    inside = checked_prediction(prediction, pair.n_documents, rank_aware=rank_aware)
    some = value_rows(rows, query_of, table, lam, inside, theta, rank_aware=rank_aware).affine
    first = expected_value(lam, inside, pair.offsets, known_queries=False)[query_of]
    assert np.array_equal(first + some.base, affine.base[rows])
    assert np.array_equal(some.values, affine.values[rows])


@given(small_worlds(queries=2, max_k=3), st.sampled_from([None, 0.3, -1.0]), st.booleans(), st.booleans())
def test_unbiased_exactly_whatever_the_prediction(
    world: tuple[Pair, User], kind: float | None, rank_aware: bool, known_queries: bool
) -> None:
    """Lists of unequal length, shorter than k, disjoint or equal; position-based users with any zeta and theta."""
    pair, user = world
    theta = np.maximum(pair.known_theta, 0.05)
    user = position_based(user.zeta, theta)
    prediction = wrong_prediction(pair) if kind == -1 else kind
    if prediction is None:
        rank_aware = False
    mixture = everything(pair)
    affine = affine_values(
        mixture,
        pair.lam(theta),
        theta,
        pair.offsets,
        zeta_hat=prediction,
        rank_aware=rank_aware,
        known_queries=known_queries,
    )
    assert mixture.moments(affine.values, user, affine.base).mean == pytest.approx(pair.delta(user), abs=1e-12)


def exact_variance(pair: Pair, user: User, mixture: Mixture, **options: object) -> float:
    theta = pair.known_theta
    affine = affine_values(mixture, pair.lam(theta), theta, pair.offsets, **options)  # type: ignore[arg-type]
    return mixture.moments(affine.values, user, affine.base).variance


def test_moments_with_a_base_agree_with_enumeration_and_simulation() -> None:
    pair, user = fixed_world(seed=5)
    mixture, theta = everything(pair), pair.known_theta
    affine = affine_values(
        mixture, pair.lam(theta), theta, pair.offsets, zeta_hat=wrong_prediction(pair), rank_aware=True
    )
    exact = mixture.moments(affine.values, user, affine.base)
    first = second = 0.0
    for query in range(pair.n_queries):
        for row in range(mixture.offsets[query], mixture.offsets[query + 1]):
            shown = mixture.rankings[row][mixture.rankings[row] != NO_DOCUMENT]
            for clicks, probability in click_patterns(user, shown):
                x = affine.base[row] + affine.values[row, : len(shown)][list(clicks)].sum()
                first += mixture.weights[row] * probability * x / pair.n_queries
                second += mixture.weights[row] * probability * x**2 / pair.n_queries
    assert exact.mean == pytest.approx(first, abs=1e-12)
    assert exact.variance == pytest.approx(second - first**2, abs=1e-12)
    displays = Displays(mixture, Linear(affine.values, affine.base))
    assert displays.moments(user) == exact
    n = 200_000
    run = displays.simulate(user, [n], seed=2)
    assert abs(run.estimate[-1] - exact.mean) < 4.5 * np.sqrt(exact.variance / n)
    assert run.mean_square[-1] - run.estimate[-1] ** 2 == pytest.approx(exact.variance, rel=0.03)
    assert displays.value_of(0, [False] * pair.k) == affine.base[0]


def test_better_predictions_have_less_variance() -> None:
    """Exact variances: IPS > one constant > true relevances > rank-aware > P(q) known."""
    pair, user = fixed_world(seed=1, n_queries=8)
    mixture = everything(pair)
    true = {"zeta_hat": user.zeta}
    variances = [
        exact_variance(pair, user, mixture),
        exact_variance(pair, user, mixture, zeta_hat=float(user.zeta.mean())),
        exact_variance(pair, user, mixture, **true),
        exact_variance(pair, user, mixture, **true, rank_aware=True),
        exact_variance(pair, user, mixture, **true, rank_aware=True, known_queries=True),
    ]
    assert all(worse > 1.01 * better for worse, better in itertools.pairwise(variances))


def test_rank_aware_weights_are_the_best_of_all_weights_per_document_and_rank() -> None:
    """With the true zeta and one document shown, W minimises the variance under the constraint that makes x unbiased."""
    pair = Pair.from_lists(["ab"], ["ba"], k=2)
    theta = np.array([0.9, 0.4])
    mixture = Mixture.of_tables([pair.top_a, pair.top_b], (0.3, 0.7), 2)
    placement = mixture.placement()
    zeta = np.array([0.8, 0.5])
    lam = pair.lam(theta)
    affine = affine_values(mixture, lam, theta, pair.offsets, zeta_hat=zeta, rank_aware=True)
    weights = np.array([[affine.values[0, 0], affine.values[1, 1]], [affine.values[1, 0], affine.values[0, 1]]])
    np.testing.assert_allclose((placement * theta * weights).sum(1), lam)
    noise = placement * theta * zeta[:, None] * (1 - theta * zeta[:, None])  # Var(c - theta zeta) by rank shown
    multiplier = noise * weights / (placement * theta * zeta[:, None])  # Lagrange: the same at every rank
    np.testing.assert_allclose(multiplier[:, 0], multiplier[:, 1])


def test_a_document_that_cannot_be_seen_is_refused_by_name() -> None:
    pair = Pair.from_lists(["abc"], ["bca"], k=2)
    theta = np.array([0.9, 0.5])
    only_a = Mixture.of_tables([pair.top_a], [1.0], 3)
    for options in ({}, {"zeta_hat": 0.3}, {"zeta_hat": 0.3, "rank_aware": True}):
        with pytest.raises(RequirementError, match="query 0: document 2"):
            affine_values(only_a, pair.lam(theta), theta, pair.offsets, **options)  # type: ignore[arg-type]


def test_agreed_documents_may_stay_unseen() -> None:
    pair = Pair.from_lists(["abc"], ["bac"], k=3)
    theta = np.array([0.9, 0.5, 0.2])
    mixture = Mixture.of_tables([pair.top_a[:, :2], pair.top_b[:, :2]], (0.5, 0.5), 3)
    affine = affine_values(mixture, pair.lam(theta), theta[:2], pair.offsets, zeta_hat=0.5, rank_aware=True)
    assert np.isfinite(affine.values).all()


def test_clipping_caps_every_weight() -> None:
    pair, _ = fixed_world(seed=3)
    mixture, theta = everything(pair), pair.known_theta
    for rank_aware in (False, True):
        table = DesignRows.of(pair.offsets, mixture.offsets, mixture.rankings, mixture.weights)
        rows, query_of = (
            np.arange(len(mixture.rankings)),
            np.repeat(np.arange(pair.n_queries), np.diff(mixture.offsets)),
        )
        prediction = np.full(pair.n_documents, 0.8)
        valued = value_rows(rows, query_of, table, pair.lam(theta), prediction, theta, rank_aware=rank_aware, clip=0.2)
        assert np.abs(valued.affine.values).max() == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank_aware": True}, "rank-aware weights need a relevance"),
        ({"zeta_hat": 1.5}, r"zeta_hat\[0\] is 1.5"),
        ({"zeta_hat": np.ones(2)}, "zeta_hat has 2 numbers for 3 documents"),
    ],
)
def test_predictions_without_sense_are_refused(options: dict[str, object], message: str) -> None:
    pair = Pair.from_lists(["abc"], ["bca"], k=2)
    theta = np.array([0.9, 0.5])
    with pytest.raises(ValueError, match=message):
        affine_values(everything(pair), pair.lam(theta), theta, pair.offsets, **options)  # type: ignore[arg-type]


def test_a_base_of_another_length_is_refused() -> None:
    pair, user = fixed_world()
    mixture = everything(pair)
    with pytest.raises(ValueError, match="base has shape"):
        mixture.moments(np.zeros(mixture.rankings.shape), user, np.zeros(2))


def test_the_bound_of_an_affine_value_by_hand() -> None:
    assert Affine(np.array([0.5, -1.0]), np.array([[1.0, -3.0], [0.2, -0.5]])).bound == 2.5


def test_a_pair_without_documents_is_worth_nothing() -> None:
    pair = Pair.from_lists([[]], [[]], k=2)
    theta = np.array([1, 0.5])
    mixture = Mixture.of_tables([pair.top_a], [1.0], 0)
    affine = affine_values(mixture, pair.lam(theta), theta, pair.offsets, zeta_hat=0.3, rank_aware=True)
    assert affine.base.tolist() == [0]
    assert affine.values.tolist() == [[0, 0]]
    assert affine.bound == 0


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("clip", [None, 1.2])
@pytest.mark.parametrize("gain", [False, True])
@pytest.mark.parametrize("rank_aware", [False, True])
def test_sums_at_many_thetas_are_those_of_each(rank_aware: bool, gain: bool, clip: float | None, listed: bool) -> None:
    """Each theta leaves out some codes of impressions; one lets nothing be seen at most ranks, another is 0 at the last."""
    pair, _ = fixed_world(seed=3)
    mixture, prediction, random = everything(pair), wrong_prediction(pair), np.random.default_rng(3)
    rows = np.sort(random.choice(len(mixture.rankings), 40, replace=False))
    query = np.searchsorted(mixture.offsets, rows, side="right") - 1
    display = np.sort(random.integers(0, len(rows), 200))
    clicks = (random.random((200, pair.k)) < 0.4) & (mixture.rankings[rows[display]] != NO_DOCUMENT)
    impressions, left_out, code = np.arange(200)[::-1].copy(), random.integers(0, 3, 200), random.integers(0, 2, 200)
    thetas = np.sort(random.uniform(0.1, 1, (3, pair.k)))[:, ::-1].copy()
    thetas[1, -1], thetas[2, 1:] = 0.0, 0.0
    weights, placement = (
        (mixture.weights, None) if listed else (np.full(len(mixture.weights), np.nan), mixture.placement())
    )
    found = value_sums(
        rows, query, np.searchsorted(display, np.arange(len(rows) + 1)), impressions, clicks[::-1].copy(),
        left_out[::-1].copy(), DesignRows.of(pair.offsets, mixture.offsets, mixture.rankings, weights, placement),
        (pair.ranks[0], pair.ranks[1]), prediction, thetas, rank_aware=rank_aware, gain=gain, clip=clip,
        code=code[::-1].copy(), codes=2,
    )  # fmt: skip
    for t, theta in enumerate(thetas):
        by_a, by_b = (np.append(theta, 0.0)[np.minimum(rank, pair.k)] for rank in pair.ranks)
        rho = mixture.exposure(theta)
        lam = np.where(rho > 0, rho - (by_a + by_b) / 2 if gain else by_a - by_b, 0.0)
        table = DesignRows.of(pair.offsets, mixture.offsets, mixture.rankings, mixture.weights)
        valued = value_rows(rows, query, table, lam, prediction, theta, rank_aware=rank_aware, clip=clip)
        first = expected_value(lam, prediction, pair.offsets, known_queries=False)[query]
        x = (first + valued.affine.base)[display] + (valued.affine.values[display] * clicks).sum(1)
        for c in range(2):
            assert found[c, t] == pytest.approx(x[(left_out != t) & (code == c)].sum(), abs=1e-10)
            assert abs(found[c, t]) > 0.01
