"""The closed form against plain definitions, exact arithmetic, enumerated subsets, certificates of optimality and a solver."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from exposures import (
    all_exposures,
    candidates_of,
    check_valid,
    floored,
    gap,
    mixture_of,
    needs,
    slots_of,
    thetas,
)
from oracles import click_patterns, small_worlds
from ranktrial.arrays import NO_DOCUMENT, FloatArray, offsets_of
from ranktrial.design.closed_form import (
    closed_form,
    closed_form_query,
)
from ranktrial.rankings import Pair, PlackettLuce, exposure_of, ips_weights, rank_by_score
from ranktrial.users import User, position_based, rank_decay

EXACT = 1e-9
Order = tuple[int, ...]


# --- plain twins ----------------------------------------------------------------------------------------------------------


def best_exposure(need: FloatArray, theta: FloatArray) -> FloatArray:
    """Slopes of the greatest convex minorant by their max-min formula, in exact arithmetic; 0 where nothing is needed."""
    order = np.argsort(-need, kind="stable")
    active = [int(d) for d in order if need[d] > 0]
    needed = [Fraction(0), *itertools.accumulate(Fraction(float(need[d])) for d in active)]
    given = [Fraction(0), *itertools.accumulate(Fraction(float(t)) for t in slots_of(theta, len(need)))]

    def slope(i: int, j: int) -> Fraction:
        return (given[j] - given[i]) / (needed[j] - needed[i])

    rho = np.zeros(len(need))
    for place, d in enumerate(active):
        steepest = max(min(slope(i, j) for j in range(place + 1, len(active) + 1)) for i in range(place + 1))
        rho[d] = float(steepest * Fraction(float(need[d])))
    return rho


def decompose(share: FloatArray, slots: FloatArray) -> list[tuple[Order, float]]:
    """The documents on each slot, best first, and for how long: each order is shown as long as every subset of the
    documents can still get what it is owed, found by trying them all."""
    pieces: list[tuple[float, float, int, Order]] = []  # weight left before and after, first slot, documents

    def show(documents: list[int], start: int, left: float, owed: dict[int, float]) -> None:
        ranked = sorted(documents, key=lambda d: -owed[d])
        on = {d: slots[start + i] for i, d in enumerate(ranked)}
        rest, split = 0.0, None
        for size in range(1, len(documents)):
            for subset in itertools.combinations(ranked, size):
                room = slots[start : start + size].sum() - sum(on[d] for d in subset)
                short = sum(owed[d] - left * on[d] for d in subset)
                if room > 1e-12 and short / room > rest + 1e-12:
                    rest, split = short / room, subset
        pieces.append((left, rest, start, tuple(ranked)))
        if split is not None:
            later = {d: owed[d] - (left - rest) * on[d] for d in documents}
            show(list(split), start, rest, later)
            show([d for d in documents if d not in split], start + len(split), rest, later)

    show(list(range(len(share))), 0, 1.0, dict(enumerate(share)))
    turns = sorted({1.0, *(after for _, after, _, _ in pieces)}, reverse=True)
    result = []
    for before, after in itertools.pairwise(turns):
        shown = [NO_DOCUMENT] * len(share)
        for begin, end, start, documents in pieces:
            if begin >= before and end <= after:
                shown[start : start + len(documents)] = documents
        result.append((tuple(shown), before - after))
    return result


# --- one query, any needs -------------------------------------------------------------------------------------------------


@given(need=needs(8), theta=thetas)
def test_exposure_is_the_greatest_convex_minorant(need: FloatArray, theta: FloatArray) -> None:
    mixture = mixture_of(need, theta)
    check_valid(mixture, [set(range(len(need)))])
    active = need > 0
    rho = mixture.exposure(theta)
    np.testing.assert_allclose(rho[active], best_exposure(need, theta)[active], atol=EXACT)
    assert np.all(rho[active] > 0) or not theta[: len(need)].any()


@given(need=needs(5), theta=thetas)
def test_no_distribution_over_rankings_does_better(need: FloatArray, theta: FloatArray) -> None:
    if need.any() and theta[: len(need)].any():
        rho = mixture_of(need, theta).exposure(theta)
        assert gap(need, rho, all_exposures(theta, len(need))) < 1e-7


@pytest.mark.parametrize("seed", range(8))
def test_a_general_solver_finds_the_same_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 4
    theta, need = rng.uniform(0.05, 1, rng.integers(1, 5)), rng.uniform(0.05, 1, n)
    beta = [0.0, 0.5, 0.9, 1.0][seed % 4]
    corners = all_exposures(theta, n)
    least = beta * corners[rng.permutation(len(corners))[:2]].min(0)
    floors = {"type": "ineq", "fun": lambda w: w @ corners - least, "jac": lambda w: corners.T}
    found = minimize(
        lambda w: np.sum(need**2 / np.maximum(w @ corners, 1e-9)),
        np.full(len(corners), 1 / len(corners)),
        bounds=[(0, 1)] * len(corners),
        constraints=[{"type": "eq", "fun": lambda w: w.sum() - 1}, *([floors] if beta else [])],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 2000},
    )
    rho = mixture_of(need, theta, least).exposure(theta)
    assert np.sum(need**2 / rho) == pytest.approx(found.fun, rel=1e-5)
    np.testing.assert_allclose(rho, found.x @ corners, atol=2e-3)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("seed", range(5))
def test_rankings_and_weights_are_those_of_the_plain_decomposition(n: int, seed: int) -> None:
    """One block: needs nearly equal, so that exposure is proportional to them over the whole page."""
    rng = np.random.default_rng(seed)
    theta = np.sort(rng.uniform(0, 1, n))[::-1]
    need = np.sort(rng.uniform(0.9, 1, n))[::-1]
    plain = decompose(need / need.sum() * theta.sum(), theta)
    mixture = mixture_of(need, theta)
    expected = np.zeros((n, n))
    for order, weight in plain:
        expected[list(order), np.arange(n)] += weight
    np.testing.assert_allclose(mixture.placement(), expected, atol=1e-12)
    assert len(mixture.weights) == len(plain)
    np.testing.assert_allclose(expected @ theta, need / need.sum() * theta.sum(), atol=1e-12)


@pytest.mark.parametrize("k", [1, 10, 64])
@pytest.mark.parametrize("scales", [0, 3, 12, 200])
def test_many_documents_and_scales(k: int, scales: int) -> None:
    rng = np.random.default_rng(k + scales)
    for n in (30, 60):
        theta = rng.uniform(0, 1, k) ** (1 + scales / 10)
        need = rng.uniform(0.1, 1, n) * 10.0 ** -rng.uniform(0, scales, n)
        mixture = mixture_of(need, theta)
        check_valid(mixture, [set(range(n))])
        best = best_exposure(need, theta)
        rho = mixture.exposure(theta)
        np.testing.assert_allclose(rho, best, atol=EXACT)
        assert np.all(rho > 0.99 * best)  # however small: a click on it must not weigh more than it should


def test_needs_so_small_that_sums_lose_them_are_still_served() -> None:
    need = np.array([1.0, 1e-13, 1e-15, 1e-300])
    theta = np.array([1.0, 0.5])
    rho = mixture_of(need, theta).exposure(theta)
    assert rho == pytest.approx([1, 0.5 / 1.01, 0.005 / 1.01, 0], abs=EXACT)
    assert rho[3] > 0


def test_equal_needs_share_equally_and_agreeing_documents_fill_up_in_order() -> None:
    theta = np.array([1.0, 0.6, 0.3, 0.1])
    mixture = mixture_of(np.array([0.0, 0.2, 0.0, 0.2, 0.0]), theta)
    assert mixture.exposure(theta) == pytest.approx([0.3, 0.8, 0.1, 0.8, 0])
    assert mixture.rankings.tolist() == [[1, 3, 0, 2], [3, 1, 0, 2]]


def test_the_page_follows_the_bias_where_it_is_not_monotone() -> None:
    theta = np.array([0.2, 1.0, 0.5])
    mixture = mixture_of(np.array([0.5, 1.0, 0.0]), theta)
    assert mixture.rankings.tolist() == [[2, 1, 0]]


def test_stochastic_rankers() -> None:
    """Two Plackett-Luce policies over 30 documents: their difference in exposure is the need."""
    rng = np.random.default_rng(4)
    offsets, theta = offsets_of([30, 30]), rank_decay(5)
    by_a, by_b = (PlackettLuce(rng.normal(0, 2, 60), offsets, 5).exposure(theta) for _ in range(2))
    candidates = rank_by_score(by_a + by_b, offsets)
    mixture = mixture_of(np.abs(by_a - by_b), theta, candidates=candidates)
    check_valid(mixture, [set(range(30)), set(range(30, 60))])
    rho = mixture.exposure(theta)
    assert np.abs(ips_weights(by_a - by_b, rho, offsets)).max() <= 2 + 1e-6
    for rows in (slice(0, 30), slice(30, 60)):
        np.testing.assert_allclose(rho[rows], best_exposure(np.abs(by_a - by_b)[rows], theta), atol=EXACT)


# --- floors ---------------------------------------------------------------------------------------------------------------


@given(problem=floored())
def test_floors_hold_and_nothing_else_is_lost(problem: tuple[FloatArray, FloatArray, FloatArray]) -> None:
    need, theta, least = problem
    mixture = mixture_of(need, theta, least)
    check_valid(mixture, [set(range(len(need)))])
    rho = mixture.exposure(theta)
    assert np.all(rho >= least - EXACT)
    # Floors may leave nothing for a document that needs it; the floors of rankers' agreement never do.
    starved = (need > 0) & (rho < 1e-6)
    if np.any(need > 0) and not np.any(starved):
        assert gap(need, rho, all_exposures(theta, len(need)), least) < 1e-5


@given(need=needs(8), theta=thetas)
def test_floors_of_nothing_change_nothing(need: FloatArray, theta: FloatArray) -> None:
    free, bound = mixture_of(need, theta), mixture_of(need, theta, np.zeros(len(need)))
    active = need > 0
    np.testing.assert_allclose(free.exposure(theta)[active], bound.exposure(theta)[active], atol=EXACT)


@given(world=small_worlds(queries=2), beta=st.sampled_from([0.2, 0.5, 0.9, 1.0]))
def test_the_agreement_floor_holds_for_every_document(world: tuple[Pair, User], beta: float) -> None:
    pair, _ = world
    theta = pair.known_theta
    mixture = closed_form(pair, theta, floor=beta)
    check_valid(mixture, candidates_of(pair))
    ips_weights(pair.lam(theta), mixture.exposure(theta), pair.offsets)
    by_a, by_b = (exposure_of(table, theta, pair.n_documents) for table in pair.tables)
    assert (mixture.exposure(theta) >= beta * np.minimum(by_a, by_b) - 1e-9).all()


def test_a_higher_floor_costs_more_spread_and_fewer_clicks() -> None:
    rng = np.random.default_rng(5)
    offsets, theta = offsets_of([12] * 200), rank_decay(6)
    quality = rng.normal(size=2400)
    a, b = quality + 0.5 * rng.normal(size=(2, 2400))
    pair = Pair.from_scores(a, b, offsets, 6)
    zeta = 1 / (1 + np.exp(1 - quality))
    lam, user = pair.lam(theta), position_based(zeta, theta)
    shown = [closed_form(pair, theta, floor=floor) for floor in (0, 0.5, 0.9, 1)]
    spreads = [(lam[lam != 0] ** 2 / one.exposure(theta)[lam != 0]).sum() for one in shown]
    clicks = [one.ctr(user) for one in shown]
    assert np.all(np.diff(spreads) > 0)
    assert np.all(np.diff(clicks) > 0)
    assert clicks[0] < sum(pair.ctr(user)) / 2


def test_the_full_floor_keeps_what_both_show_at_the_same_rank() -> None:
    pair = Pair.from_lists(["abcd"], ["acbd"], k=4)
    ids = pair.ids
    theta = np.array([1, 0.6, 0.4, 0.2])
    mixture = closed_form(pair, theta, floor=1)
    assert ["".join(ids[d] for d in row) for row in mixture.rankings] == ["abcd", "acbd"]
    assert mixture.weights == pytest.approx([0.5, 0.5])


# --- pairs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(world=small_worlds(queries=3))
def test_pairs(world: tuple[Pair, User]) -> None:
    """Valid, covering, weights at most 2, the same whichever ranker comes first, unbiased for any relevance."""
    pair, user = world
    theta = pair.known_theta
    mixture = closed_form(pair, theta)
    check_valid(mixture, candidates_of(pair))
    lam, rho = pair.lam(theta), mixture.exposure(theta)
    weights = ips_weights(lam, rho, pair.offsets)
    assert np.abs(weights).max(initial=0) <= 2 + 1e-6
    swapped = closed_form(pair.swapped(), theta)
    assert np.array_equal(swapped.rankings, mixture.rankings)
    assert np.array_equal(swapped.weights, mixture.weights)
    values = np.where(mixture.rankings >= 0, weights[mixture.rankings], 0)
    reader = position_based(user.zeta, theta)
    assert mixture.moments(values, reader).mean == pytest.approx(pair.delta(reader), abs=1e-12)
    for query in range(3):
        rows = slice(pair.offsets[query], pair.offsets[query + 1])
        candidates = np.array(sorted(candidates_of(pair)[query]))
        best = best_exposure(np.abs(lam[candidates]), theta)
        np.testing.assert_allclose(rho[candidates][best > 0], best[best > 0], atol=EXACT)
        assert rho[rows].sum() == pytest.approx(theta[: len(candidates)].sum())


@given(world=small_worlds(max_k=3), floor=st.sampled_from([0.0, 0.5, 1.0]))
def test_unbiased_click_pattern_by_click_pattern(world: tuple[Pair, User], floor: float) -> None:
    pair, user = world
    theta = pair.known_theta
    reader = position_based(user.zeta, theta)
    mixture = closed_form(pair, theta, floor=floor)
    values = ips_weights(pair.lam(theta), mixture.exposure(theta), pair.offsets)
    mean = 0.0
    for row, weight in zip(mixture.rankings, mixture.weights):
        shown = row[row != NO_DOCUMENT]
        for clicks, probability in click_patterns(reader, shown):
            mean += weight * probability * float(values[shown[np.array(clicks)]].sum())
    assert mean == pytest.approx(pair.delta(reader), abs=1e-12)


@given(world=small_worlds(queries=2), floor=st.sampled_from([0.0, 0.5]))
def test_given_relevance(world: tuple[Pair, User], floor: float) -> None:
    pair, user = world
    theta, zeta = pair.known_theta, user.zeta
    mixture = closed_form(pair, theta, zeta=zeta, floor=floor)
    check_valid(mixture, candidates_of(pair))
    lam, rho = pair.lam(theta), mixture.exposure(theta)
    ips_weights(np.where(zeta != 0, lam, 0.0), rho, pair.offsets)
    for documents in candidates_of(pair) if not floor else []:
        rows = np.array(sorted(documents))
        need = np.abs(lam[rows]) * np.sqrt(zeta[rows])
        np.testing.assert_allclose(rho[rows][need > 0], best_exposure(need, theta)[need > 0], atol=EXACT)


@given(world=small_worlds(queries=2), zeta0=st.sampled_from([0.0, 0.3, 0.9]))
def test_the_design_for_rank_aware_estimates(world: tuple[Pair, User], zeta0: float) -> None:
    """Best in the design's bias, whatever the real one says; and every document that matters can still be seen."""
    pair, _ = world
    theta = pair.known_theta
    mixture = closed_form(pair, theta, zeta0=zeta0)
    check_valid(mixture, candidates_of(pair))
    lam, bias = pair.lam(theta), theta / (1 - zeta0 * theta)
    ips_weights(lam, mixture.exposure(theta), pair.offsets)
    for documents in candidates_of(pair):
        rows = np.array(sorted(documents))
        best = best_exposure(np.abs(lam[rows]), bias)
        np.testing.assert_allclose(mixture.exposure(bias)[rows][best > 0], best[best > 0], atol=1e-8)


def lists(a: str, b: str, k: int, theta: list[float], floor: float = 0.0) -> list[tuple[str, float]]:
    pair = Pair.from_lists([a], [b], k)
    ids = pair.ids
    mixture = closed_form(pair, theta, floor=floor)
    return [
        ("".join(ids[d] for d in row if d >= 0), round(float(w), 9))
        for row, w in zip(mixture.rankings, mixture.weights)
    ]


def test_edges_by_hand() -> None:
    assert lists("abc", "abc", 3, [1, 0.5, 0.25]) == [("abc", 1)]  # nothing to learn: A's list
    assert lists("abc", "abc", 3, [0.5, 1, 0.5]) == [("abc", 1)]
    assert lists("abc", "bac", 2, [1, 1]) == [("ab", 1)]  # a plateau: lambda is 0, exposure that of A's list
    assert lists("abc", "def", 3, [0, 0, 0]) == [("adb", 1)]  # never examined
    assert lists("a", "a", 5, [1, 0.5, 0.2, 0.1, 0.1]) == [("a", 1)]
    assert lists("a", "", 1, [1]) == [("a", 1)]  # an empty list
    assert lists("", "ba", 3, [1, 0.5, 0.1]) == [("ba", 1)]
    assert lists("ab", "cd", 1, [1]) == [("a", 0.5), ("c", 0.5)]
    assert lists("ab", "a", 5, [1, 0.5, 0.2, 0.1, 0.1]) == [("ba", 1)]  # n < k, unequal lists
    assert lists("ab", "a", 5, [1, 0.5, 0.2, 0.1, 0.1], floor=1) == [("ab", 1)]
    assert lists("abc", "abd", 3, [1, 0.5, 0], floor=0) == [("abc", 1)]


def test_a_query_without_documents_shows_nothing() -> None:
    pair = Pair.from_lists([[], ["a", "b"]], [[], ["b", "a"]], k=2)
    mixture = closed_form(pair, [1, 0.5])
    assert mixture.rankings.tolist() == [[-1, -1], [0, 1], [1, 0]]


def test_nearly_equal_bias_leaves_no_document_unseen() -> None:
    """lambda of 1e-16 next to lambda of 1, and floors that leave as little."""
    theta = np.array([1.0, 0.5, np.nextafter(0.5, 0), 0.25, np.nextafter(0.25, 0)])
    rng = np.random.default_rng(8)
    for _ in range(300):
        a, b = (rng.permutation(7)[: rng.integers(1, 8)].tolist() for _ in range(2))
        pair = Pair.from_lists([a], [b], k=5)
        for floor in (0, 0.5, 0.99, 1):
            mixture = closed_form(pair, theta, floor=floor)
            check_valid(mixture, candidates_of(pair))
            weights = ips_weights(pair.lam(theta), mixture.exposure(theta), pair.offsets)
            assert np.abs(weights).max(initial=0) <= (1e6 if floor > 0 else 2.001)


def test_large_pairs_have_few_rankings() -> None:
    rng = np.random.default_rng(9)
    offsets, theta = offsets_of([40] * 300), rank_decay(10)
    a, b = rng.normal(size=12000) + 0.7 * rng.normal(size=(2, 12000))
    pair = Pair.from_scores(a, b, offsets, 10)
    for floor in (0.0, 0.5, 1.0):
        mixture = closed_form(pair, theta, floor=floor)
        check_valid(mixture, candidates_of(pair))
        assert np.diff(mixture.offsets).mean() < 16
    for query in range(50):
        rows = pair.offsets[query]
        rankings, weights = closed_form_query(pair.top_a[query] - rows, pair.top_b[query] - rows, theta, floor=1.0)
        cells = slice(mixture.offsets[query], mixture.offsets[query + 1])
        assert np.array_equal(rankings + rows, mixture.rankings[cells])
        assert np.array_equal(weights, mixture.weights[cells])


# --- borders --------------------------------------------------------------------------------------------------------------


def test_arguments_are_checked() -> None:
    pair = Pair.from_lists(["ab"], ["ba"], k=2)
    with pytest.raises(ValueError, match="theta has 3 ranks, must have k = 2"):
        closed_form(pair, [1, 0.5, 0.2])
    with pytest.raises(ValueError, match=r"theta\[1\] is 1\.5"):
        closed_form(pair, [1, 1.5])
    with pytest.raises(ValueError, match=r"floor is 1\.2, must be between 0 and 1"):
        closed_form(pair, [1, 0.5], floor=1.2)
    with pytest.raises(ValueError, match="zeta0 is 1"):
        closed_form(pair, [1, 0.5], zeta0=1)
    with pytest.raises(ValueError, match="1 zeta for 2 documents"):
        closed_form(pair, [1, 0.5], zeta=[0.5])
