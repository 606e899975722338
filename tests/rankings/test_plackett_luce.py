from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from benchmarks._policies import exposure_gradient
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from oracles import click_patterns, small_users
from ranktrial.arrays import NO_DOCUMENT, BoolArray, DocumentArray, FloatArray, offsets_of
from ranktrial.rankings import plackett_luce as pl
from ranktrial.users import User, cascade, position_based, rank_decay, trust_bias


def exposures(scores: ArrayLike, offsets: ArrayLike, theta: ArrayLike, wanted: BoolArray | None = None) -> FloatArray:
    return pl.PlackettLuce(np.asarray(scores), np.asarray(offsets), np.size(theta)).exposure(theta, wanted=wanted)


def exposure(scores: ArrayLike, theta: ArrayLike) -> FloatArray:
    return exposures(scores, [0, np.size(scores)], theta)


def placements(scores: ArrayLike, offsets: ArrayLike, k: int, wanted: BoolArray | None = None) -> FloatArray:
    return pl.PlackettLuce(np.asarray(scores), np.asarray(offsets), k).placement(wanted=wanted)


def placement(scores: ArrayLike, k: int) -> FloatArray:
    return placements(scores, [0, np.size(scores)], k)


def sample(scores: ArrayLike, k: int, count: int, seed: int) -> DocumentArray:
    n = np.size(scores)
    return pl.PlackettLuce(np.asarray(scores), np.array([0, n]), k).sample(0, count, seed=seed)[:, : min(k, n)]


def simulated(scores: ArrayLike, offsets: ArrayLike, user: User, *args: Any, seed: int, **tables: Any) -> FloatArray:
    policy = pl.PlackettLuce(np.asarray(scores, float), np.asarray(offsets), user.k)
    return pl.simulate(policy, user, *args, seed=seed, **tables)


def log_shares(scores: FloatArray) -> FloatArray:
    shares: FloatArray = scores - np.logaddexp.reduce(scores)
    return shares


def every_ranking(scores: ArrayLike, k: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every top-k ranking with its probability, by choosing one document after the other."""
    values = np.asarray(scores, float)
    for ranking in itertools.permutations(range(len(values)), min(k, len(values))):
        log_p, left = 0.0, list(range(len(values)))
        for d in ranking:
            log_p += log_shares(values[left])[left.index(d)]
            left.remove(d)
        yield ranking, float(np.exp(log_p))


def enumerated_placement(scores: ArrayLike, k: int) -> FloatArray:
    result = np.zeros((np.size(scores), k))
    for ranking, probability in every_ranking(scores, k):
        for rank, d in enumerate(ranking):
            result[d, rank] += probability
    return result


def dense_quadrature(scores: FloatArray, k: int, step: float = 0.02) -> FloatArray:
    """Placement by the plain trapezoid rule on a grid far finer and wider than needed, one document at a time."""
    n, weights = len(scores), np.exp(scores - scores.max())
    t = np.exp(np.arange(-32 - np.log(weights.sum()), 45 - np.log(weights.min()), step))
    arrived = -np.expm1(-weights[:, None] * t)
    result = np.zeros((n, k))
    for d in range(n):
        others = np.zeros((k, len(t)))
        others[0] = 1
        for e in range(n):
            if e != d:
                others[1:] = others[1:] * (1 - arrived[e]) + others[:-1] * arrived[e]
                others[0] *= 1 - arrived[e]
        result[d] = (weights[d] * t * np.exp(-weights[d] * t) * others).sum(1) * step
    return result


def close(estimate: float | FloatArray, truth: float | FloatArray, standard_error: float | FloatArray) -> bool:
    return bool(np.all(np.abs(np.asarray(estimate) - truth) <= 5 * np.asarray(standard_error)))


scores_lists = st.lists(st.integers(-40, 40).map(lambda x: x / 10), min_size=1, max_size=8)
wide_scores = st.lists(st.integers(-200, 200).map(float), min_size=1, max_size=8)
thetas = st.lists(st.integers(0, 20).map(lambda x: x / 20), min_size=1, max_size=6)


# --- exposure and placement: enumerated -----------------------------------------------------------------------------------


def test_placement_of_two_documents_by_hand() -> None:
    np.testing.assert_allclose(placement([np.log(3), 0], 2), [[0.75, 0.25], [0.25, 0.75]], rtol=1e-10)


def test_exposure_of_equal_scores_is_the_mean_of_theta() -> None:
    np.testing.assert_allclose(exposure([7.0] * 4, [1, 0.5, 0.25]), [1.75 / 4] * 4, rtol=1e-10)


@pytest.mark.parametrize("k", [1, 2, 3, 6, 9])
@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0, 30.0])
def test_placement_agrees_with_enumeration_of_six_documents(k: int, spread: float) -> None:
    scores = spread * np.random.default_rng(k).standard_normal(6)
    np.testing.assert_allclose(placement(scores, k), enumerated_placement(scores, k), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "theta",
    [[1.0], [1, 1 / 2, 1 / 3], [1, 1, 0.4, 0.4], [0, 0, 1], [0.2, 1, 0, 0.5], [1, 0.5, 0, 0], [1.0] * 6, [0.0, 0.0]],
    ids=["top", "inverse", "plateaus", "third only", "zigzag", "zeros below", "flat", "nothing"],
)
@pytest.mark.parametrize("spread", [1.0, 8.0])
def test_exposure_agrees_with_enumeration_for_any_theta(theta: list[float], spread: float) -> None:
    scores = spread * np.random.default_rng(len(theta)).standard_normal(6)
    expected = enumerated_placement(scores, len(theta)) @ theta
    np.testing.assert_allclose(exposure(scores, theta), expected, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("spread", [20.0, 100.0, 200.0, 3000.0])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_exposure_of_unlikely_documents_is_relatively_exact(spread: float, k: int) -> None:
    random = np.random.default_rng(k)
    theta = rank_decay(k)
    for _ in range(10):
        scores = random.uniform(-spread, spread, 6)
        scores[:2] = scores[0]
        expected = enumerated_placement(scores, k) @ theta
        possible = expected > 1e-300
        np.testing.assert_allclose(exposure(scores, theta)[possible], expected[possible], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "k"), [(24, 10), (120, 10), (40, 20), (70, 60)])
def test_placement_agrees_with_a_dense_quadrature(n: int, k: int) -> None:
    scores = np.random.default_rng(n).standard_normal(n)
    expected = dense_quadrature(scores, k)
    found = placement(scores, k)
    np.testing.assert_allclose(found, expected, rtol=2e-9, atol=1e-11)
    theta = rank_decay(k)
    np.testing.assert_allclose(exposure(scores, theta), expected @ theta, rtol=2e-9)


@given(st.one_of(scores_lists, wide_scores), st.integers(1, 9))
def test_every_rank_is_filled_once_and_every_document_shown_at_most_once(scores: list[float], k: int) -> None:
    found = placement(scores, k)
    filled = np.arange(k) < len(scores)
    np.testing.assert_allclose(found.sum(0), filled, atol=1e-9)
    assert np.all(found.sum(1) <= 1 + 1e-9)
    assert np.all(found >= 0)


@given(st.one_of(scores_lists, wide_scores), thetas)
def test_exposure_is_placement_times_theta_and_adds_up(scores: list[float], theta: list[float]) -> None:
    rho = exposure(scores, theta)
    np.testing.assert_allclose(rho, placement(scores, len(theta)) @ theta, atol=1e-9)
    assert rho.sum() == pytest.approx(sum(theta[: len(scores)]), abs=1e-9)


@given(st.one_of(scores_lists, wide_scores), st.integers(0, 9), st.integers(-300, 300))
def test_exposure_follows_the_scores_and_ignores_a_shift(scores: list[float], seed: int, shift: int) -> None:
    theta, values = rank_decay(3), np.array(scores)
    rho = exposure(values, theta)
    order = np.random.default_rng(seed).permutation(len(values))
    np.testing.assert_allclose(exposure(values[order] + shift, theta), rho[order], rtol=1e-8, atol=1e-300)
    assert np.all(np.diff(rho[values.argsort()]) >= -1e-9)


def test_ties_share_alike() -> None:
    rho = exposure([1.0, 3.0, 1.0, 3.0, 1.0], rank_decay(4))
    assert np.ptp(rho[[0, 2, 4]]) < 1e-15
    assert np.ptp(rho[[1, 3]]) < 1e-15


# --- the gradient of exposure ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "k", "spread"), [(5, 3, 1.0), (5, 3, 12.0), (6, 6, 2.0), (2, 5, 1.0), (6, 1, 3.0)])
def test_vjp_agrees_with_differences_of_the_enumerated_exposure(n: int, k: int, spread: float) -> None:
    random = np.random.default_rng(n + k)
    scores, theta, weights = spread * random.standard_normal(n), random.random(k), random.standard_normal(n)

    def objective(at: FloatArray) -> float:
        return float(weights @ enumerated_placement(at, k) @ theta)

    h = 1e-5
    expected = [(objective(scores + h * e) - objective(scores - h * e)) / (2 * h) for e in np.eye(n)]
    np.testing.assert_allclose(exposure_gradient(scores, theta, weights), expected, atol=1e-9)


@pytest.mark.parametrize(("n", "k"), [(24, 10), (120, 10)])
def test_vjp_of_long_lists_agrees_with_differences_of_the_exposure(n: int, k: int) -> None:
    random = np.random.default_rng(n)
    scores, theta, weights = 2 * random.standard_normal(n), rank_decay(k), random.standard_normal(n)
    gradient = exposure_gradient(scores, theta, weights)
    h = 1e-4
    for d in (0, int(scores.argmax()), int(scores.argmin())):
        step = h * np.eye(n)[d]
        difference = weights @ (exposure(scores + step, theta) - exposure(scores - step, theta)) / (2 * h)
        assert gradient[d] == pytest.approx(difference, abs=1e-7)


@given(st.one_of(scores_lists, wide_scores), thetas, st.integers(0, 9))
def test_vjp_is_blind_to_a_shift_of_scores_and_of_weights(scores: list[float], theta: list[float], seed: int) -> None:
    weights = np.random.default_rng(seed).standard_normal(len(scores))
    gradient = exposure_gradient(scores, theta, weights)
    assert gradient.sum() == pytest.approx(0, abs=1e-8)
    np.testing.assert_allclose(exposure_gradient(scores, theta, weights + 3), gradient, atol=1e-8)


# --- the probability of a ranking -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3, 4])
def test_log_probability_agrees_with_enumeration(k: int) -> None:
    scores = [0.3, -1.0, 2.0, 0.0]
    for ranking, probability in every_ranking(scores, k):
        assert pl.log_probability(scores, ranking) == pytest.approx(np.log(probability), abs=1e-12)


def test_log_probability_does_not_overflow() -> None:
    assert pl.log_probability([1000.0, 0.0, -1000.0], [2, 1, 0]) == pytest.approx(-3000)
    assert pl.log_probability([1000.0, 0.0, -1000.0], [0, 1, 2]) == 0


# --- sampling -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", [[0.0, 0.0, 0.0, 0.0], [2.0, -1.0, 0.5, 1.0], [6.0, 0.0, 0.0, -3.0]])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_sampled_rankings_have_the_enumerated_probabilities(scores: list[float], k: int) -> None:
    count = 40_000
    drawn, times = np.unique(sample(scores, k, count, seed=k), axis=0, return_counts=True)
    seen = {tuple(r): t / count for r, t in zip(drawn.tolist(), times)}
    for ranking, p in every_ranking(scores, k):
        assert close(seen.get(ranking, 0.0), p, np.sqrt(p * (1 - p) / count) + 1 / count)


def test_samples_of_a_long_list_have_the_exact_placement() -> None:
    scores, k, count = 2 * np.random.default_rng(1).standard_normal(60), 5, 40_000
    rankings = sample(scores, k, count, seed=2)
    expected = placement(scores, k)
    seen = np.stack([np.bincount(rankings[:, r], minlength=60) for r in range(k)], 1) / count
    assert close(seen, expected, np.sqrt(expected * (1 - expected) / count) + 1 / count)


@pytest.mark.parametrize("gap", [60.0, 500.0, 5000.0])
def test_sampling_stays_exact_behind_a_document_that_always_wins(gap: float) -> None:
    count = 20_000
    rankings = sample([0.0, gap, np.log(3), -gap], 4, count, seed=5)
    assert np.all(rankings[:, 0] == 1)
    assert np.all(rankings[:, 3] == 3)
    assert close(np.mean(rankings[:, 1] == 2), 0.75, np.sqrt(0.75 * 0.25 / count))


@given(st.one_of(scores_lists, wide_scores), st.integers(1, 9), st.integers(0, 5))
def test_samples_are_rankings_and_repeat_with_the_seed(scores: list[float], k: int, seed: int) -> None:
    rankings = sample(scores, k, 7, seed)
    assert rankings.shape == (7, min(k, len(scores)))
    assert all(len(set(row)) == len(row) and set(row) <= set(range(len(scores))) for row in rankings.tolist())
    assert np.array_equal(rankings, sample(scores, k, 7, seed))


# --- simulated impressions ------------------------------------------------------------------------------------------------


def exact_moments(scores: list[list[float]], user: User, values: FloatArray) -> tuple[float, float, float, float]:
    """E[x], E[x^2], E[x^4] and expected clicks of one impression by enumeration of queries, rankings and clicks."""
    moments, start = np.zeros(4), 0
    for query in scores:
        for ranking, probability in every_ranking(query, user.k) if query else [((), 1.0)]:
            shown = [start + d for d in ranking]
            for clicks, chance in click_patterns(user, shown):
                x = sum(values[d] for d, clicked in zip(shown, clicks) if clicked)
                moments += probability * chance / len(scores) * np.array([x, x**2, x**4, sum(clicks)])
        start += len(query)
    mean, square, fourth, clicked_in_all = moments.tolist()
    return mean, square, fourth, clicked_in_all


QUERIES = [[0.5, -1.0, 2.0, 0.0], [3.0], [], [40.0, 0.0, 1.0], [5.0, 5.0, 4.0]]


@pytest.mark.parametrize("reads_on", [True, False])
def test_simulated_impressions_have_the_enumerated_moments(reads_on: bool) -> None:
    offsets = offsets_of([len(q) for q in QUERIES])
    random = np.random.default_rng(3)
    zeta, values = random.random(offsets[-1]), random.standard_normal(offsets[-1])
    user = position_based(zeta, [0.9, 0.5, 0.4]) if reads_on else cascade(zeta, 3, theta=[1, 0.8, 0.9])
    mean, square, fourth, clicks = exact_moments(QUERIES, user, values)
    count = 200_000
    out = simulated(np.concatenate(QUERIES), offsets, user, values, [count], seed=11)[0] / count
    assert close(out[0], mean, np.sqrt((square - mean**2) / count))
    assert close(out[1], square, np.sqrt((fourth - square**2) / count))
    assert close(out[2], clicks, np.sqrt(clicks * user.k / count))


@given(st.data())
def test_simulation_honours_every_behaviour(data: st.DataObject) -> None:
    user = data.draw(small_users(4, 3))
    values = np.array([1.0, -1.0, 2.0, 0.5])
    mean, square, _, _ = exact_moments([[0.0, 1.0, -1.0, 0.5]], user, values)
    count = 4000
    out = simulated([0.0, 1.0, -1.0, 0.5], [0, 4], user, values, [count], seed=1)[0] / count
    assert close(out[0], mean, np.sqrt(max(square - mean**2, 0) / count) + 1e-6)


@pytest.mark.parametrize("spread", [0.0, 2.0, 6.0, 60.0, 900.0])
def test_simulated_displays_have_the_exact_placement_whatever_the_scores(spread: float) -> None:
    """With zeta = 1 and one rank examined, the value of a document counts its displays at that rank."""
    scores = spread * np.random.default_rng(7).standard_normal(30)
    count, k = 20_000, 4
    expected = placement(scores, k)
    for rank in range(k):
        user = position_based(np.ones(30), np.eye(k)[rank])
        for d in np.argsort(-expected[:, rank])[:4]:
            out = simulated(scores, [0, 30], user, np.eye(30)[d], [count], seed=int(d))
            p = expected[d, rank]
            assert close(out[0, 0] / count, p, np.sqrt(p * max(1 - p, 0) / count) + 1 / count)


def test_ips_values_estimate_lambda_without_bias() -> None:
    offsets, theta = offsets_of([12] * 50), rank_decay(4)
    random = np.random.default_rng(9)
    scores, zeta = 2 * random.standard_normal(600), random.random(600)
    lam = exposures(random.standard_normal(600), offsets, theta) - exposures(-scores, offsets, theta)
    values = lam / exposures(scores, offsets, theta)
    out = simulated(scores, offsets, position_based(zeta, theta), values, [400_000], seed=4)[0] / 400_000
    assert close(out[0], lam @ zeta / 50, np.sqrt((out[1] - out[0] ** 2) / 400_000))


def test_checkpoints_are_views_of_one_run() -> None:
    user = position_based([0.5, 0.9, 0.1], [1, 0.5])
    many = simulated([0.0, 1.0, 2.0], [0, 3], user, [1.0, 2.0, 3.0], [10, 500, 1000], seed=3)
    for i, count in enumerate([10, 500, 1000]):
        assert np.array_equal(many[i], simulated([0.0, 1.0, 2.0], [0, 3], user, [1.0, 2.0, 3.0], [count], seed=3)[0])


@pytest.mark.parametrize("reads_on", [True, False])
def test_counts_are_those_of_the_same_impressions(reads_on: bool) -> None:
    offsets, scores = offsets_of([len(q) for q in QUERIES]), np.concatenate(QUERIES)
    zeta = np.random.default_rng(5).random(len(scores))
    user = position_based(zeta, [0.9, 0.5, 0.4]) if reads_on else cascade(zeta, 3)
    count, values = 50_000, np.arange(1.0, len(scores) + 1)
    shown, clicked = np.zeros((2, len(scores), 3), np.uint32)
    sums = simulated(scores, offsets, user, values, [7, count], seed=6, tables=(shown, clicked))
    assert np.array_equal(sums, simulated(scores, offsets, user, values, [7, count], seed=6))
    assert values @ clicked.sum(1) == sums[1, 0]
    assert clicked.sum() == sums[1, 2]
    assert np.all(clicked <= shown)
    expected = placements(scores, offsets, 3) / len(QUERIES)
    assert close(shown / count, expected, np.sqrt(expected * (1 - expected) / count) + 1 / count)
    chance = expected * np.outer(zeta, user.slope)
    if reads_on:
        assert close(clicked / count, chance, np.sqrt(chance * (1 - chance) / count) + 1 / count)
    else:
        assert close(clicked[:, 0] / count, chance[:, 0], np.sqrt(chance[:, 0] / count) + 1 / count)
        assert clicked[:, 2].sum() < 0.9 * count * chance[:, 2].sum()


def test_counts_of_queries_shown_so_many_times_have_the_law_of_single_impressions() -> None:
    offsets, scores = offsets_of([len(q) for q in QUERIES]), np.concatenate(QUERIES)
    zeta = np.random.default_rng(5).random(len(scores))
    user = trust_bias(zeta, [0.9, 0.5, 0.4], relevant=[0.9, 0.8, 0.8], irrelevant=[0.3, 0.2, 0.1])
    policy = pl.PlackettLuce(scores, offsets, 3)
    times = 20_000 * (1 + np.arange(len(QUERIES)) % 3)
    shown, clicked = (np.zeros((len(scores), 3), np.uint32) for _ in range(2))
    pl.add_counts(policy, user, times, (shown, clicked), seed=6)
    assert np.all(clicked <= shown)
    count = np.repeat(times, np.diff(offsets))[:, None]
    placed = placements(scores, offsets, 3)
    for table, chance in ((shown, placed), (clicked, placed * (np.outer(zeta, user.slope) + user.intercept))):
        assert close(table / count, chance, np.sqrt(chance * (1 - chance) / count) + 1 / count)
    row = np.minimum(np.arange(len(scores)), 3)
    together = np.zeros((4, 3), np.uint32), np.zeros((4, 3), np.uint32)
    pl.add_counts(policy, user, times, together, seed=6, rows=row)
    for table, whole in zip(together, (shown, clicked)):
        assert np.array_equal(table, np.vstack([whole[:3], whole[3:].sum(0)]))
    with pytest.raises(ValueError, match="may stop reading"):
        pl.add_counts(policy, cascade(zeta, 3), times, (shown, clicked), seed=6)


def test_counts_are_added_to_tables_and_queries_are_known_beforehand() -> None:
    offsets, scores = offsets_of([len(q) for q in QUERIES]), np.concatenate(QUERIES)
    user, values = position_based(np.full(len(scores), 0.5), [0.9, 0.5, 0.4]), np.ones(len(scores))
    shown, clicked = np.zeros((2, len(scores), 3), np.uint32)
    simulated(scores, offsets, user, values, [400], seed=6, tables=(shown, clicked))
    tables = shown.copy(), clicked.copy()
    simulated(scores, offsets, user, values, [400], seed=6, tables=tables)
    assert np.array_equal(tables, (2 * shown, 2 * clicked))
    first = np.zeros((1, 3), np.uint32), np.zeros((1, 3), np.uint32)
    simulated(scores, offsets, user, values, [400], seed=6, tables=first, rows=np.zeros(len(scores), np.int64))
    assert np.array_equal(first, (shown.sum(0, keepdims=True), clicked.sum(0, keepdims=True)))
    drawn = pl.queries_drawn(len(QUERIES), 400, seed=6)
    assert drawn.sum() == 400
    for query, (start, end) in enumerate(itertools.pairwise(offsets)):
        assert shown[start:end, 0].sum() == (drawn[query] if end > start else 0)
    with pytest.raises(ValueError, match=r"must be .* of uint32"):
        simulated(scores, offsets, user, values, [4], seed=6, tables=(shown[1:], clicked))


# --- many queries ---------------------------------------------------------------------------------------------------------


def test_batches_are_the_single_queries_side_by_side() -> None:
    offsets, scores, theta = offsets_of([len(q) for q in QUERIES]), np.concatenate(QUERIES), rank_decay(3)
    queries = [np.array(q) for q in QUERIES if q]
    assert np.array_equal(exposures(scores, offsets, theta), np.concatenate([exposure(q, theta) for q in queries]))
    assert np.array_equal(placements(scores, offsets, 3), np.concatenate([placement(q, 3) for q in queries]))


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
def test_some_documents_alone_are_as_among_all(spread: float) -> None:
    random = np.random.default_rng(4)
    offsets, scores = offsets_of([40, 0, 3, 1, 25]), spread * random.standard_normal(69)
    wanted = random.random(69) < 0.3
    wanted[offsets[3] : offsets[4]] = False  # nothing of this query
    some, everything = (exposures(scores, offsets, rank_decay(6), wanted=which) for which in (wanted, None))
    np.testing.assert_allclose(some[wanted], everything[wanted], rtol=1e-9, atol=1e-12)
    assert np.isnan(some[~wanted]).all()
    some, everything = (placements(scores, offsets, 6, wanted=which) for which in (wanted, None))
    np.testing.assert_allclose(some, everything[wanted], rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="5 documents are wanted or not, there are 69"):
        exposures(scores, offsets, rank_decay(6), wanted=wanted[:5])


def test_policy_over_many_queries() -> None:
    policy = pl.PlackettLuce(np.concatenate(QUERIES), offsets_of([len(q) for q in QUERIES]), k=3)
    assert (policy.n_queries, policy.n_documents) == (5, 11)
    assert repr(policy) == "PlackettLuce(queries=5, documents=11, k=3)"
    theta = np.array([1, 0.5, 0.2, 0.1])
    np.testing.assert_allclose(policy.exposure(theta), policy.placement() @ theta[:3], atol=1e-9)
    assert policy.sample(1, 2, seed=1).tolist() == [[4, NO_DOCUMENT, NO_DOCUMENT]] * 2
    assert policy.sample(2, 1, seed=1).tolist() == [[NO_DOCUMENT] * 3]
    assert set(policy.sample(3, 50, seed=1)[:, 0].tolist()) == {5}
    assert policy.sample(0, 9, seed=1).max() < 4


def test_errors_name_the_value_and_the_limit() -> None:
    with pytest.raises(ValueError, match=r"scores\[1\] is nan, must be finite"):
        exposure([0.0, np.nan], [1.0])
    with pytest.raises(ValueError, match=r"theta\[0\] is 1.5"):
        exposure([0.0], [1.5])
    with pytest.raises(ValueError, match="2 scores for 3 documents"):
        exposures([0.0, 1.0], [0, 3], [1.0])
    with pytest.raises(ValueError, match="offsets must be"):
        exposures([0.0, 1.0], [0, 3, 2], [1.0])
    with pytest.raises(ValueError, match=r"ranking is \[0, 0\]"):
        pl.log_probability([0.0, 1.0], [0, 0])
    with pytest.raises(ValueError, match="k is 0"):
        sample([0.0], 0, 1, 1)
    with pytest.raises(ValueError, match="theta has 1 ranks, must have k = 2"):
        pl.PlackettLuce(np.zeros(2), np.array([0, 2]), 2).exposure([1.0])
    with pytest.raises(ValueError, match="2 scores, 2 zeta and 1 values"):
        simulated([0.0, 1.0], [0, 2], position_based([0.5, 0.5], [1.0]), [1.0], [1], seed=0)
    with pytest.raises(ValueError, match="no query"):
        simulated([], [0], position_based([], [1.0]), [], [1], seed=0)
