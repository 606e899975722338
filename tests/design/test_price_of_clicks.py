"""Designs with a price of clicks: a hand-made case, greedy steps, a solver, certificates of optimality; and their budgets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize

from exposures import all_exposures, candidates_of, check_valid, floored, gap, mixture_of, needs, slots_of, thetas
from oracles import small_worlds
from ranktrial.arrays import FloatArray, offsets_of
from ranktrial.design.budget import ClickForecast, expected_clicks, price_for
from ranktrial.design.closed_form import closed_form, closed_form_query
from ranktrial.rankings import Mixture, Pair, ips_weights
from ranktrial.users import User, position_based, rank_decay

EXACT = 1e-9
PRICES = (0.0, 1e-4, 0.1, 1.0, 10.0, 1e3, 1e8)
prices = st.one_of(st.sampled_from(PRICES), st.floats(0.01, 100))
relevances = st.one_of(st.sampled_from([0.0, 0.1, 0.3, 0.3, 0.9]), st.floats(0, 1))


def greedy(need: FloatArray, gain: FloatArray, theta: FloatArray, least: FloatArray, steps: int) -> FloatArray:
    """The best exposure to within the size of a step: each step goes to the document to which it is worth most among those
    that can still have it (Federgruen and Groenevelt 1986)."""
    best = np.cumsum(slots_of(theta, len(need)))
    rho = least.copy()
    step = (best[-1] - rho.sum()) / steps
    for _ in range(steps):
        value = gain * step
        value += np.array([a**2 * (1 / x - 1 / (x + step)) if x else (np.inf if a else 0) for a, x in zip(need, rho)])
        for d in np.lexsort((-need, -value)):
            more = rho + step * (np.arange(len(need)) == d)
            if np.all(np.cumsum(np.sort(more)[::-1]) <= best + step / 2):
                rho = more
                break
    return rho


def marginal_violation(
    need: FloatArray, gain: FloatArray, rho: FloatArray, theta: FloatArray, least: FloatArray
) -> float:
    """Largest relative gain from moving exposure to a document from another that could give it up.

    A document can take some from any that shares its slots or has better ones and has more than its least.
    """
    slots = slots_of(theta, len(need))
    total = slots.sum()
    order = np.argsort(-rho, kind="stable")
    room = np.cumsum(slots) - np.cumsum(rho[order])
    assert np.all(room >= -1e-10 * total)
    block = np.zeros(len(need), int)
    block[order[1:]] = np.cumsum(room[:-1] <= 1e-11 * total)
    value = gain + np.divide(need, rho, where=need > 0, out=np.zeros_like(need)) ** 2
    worst, cheapest = 0.0, np.inf
    for stretch in range(block.max() + 1):
        inside = block == stretch
        gives = inside & (rho > least * (1 + 1e-6) + 1e-8 * total)
        cheapest = min(cheapest, value[gives].min(initial=np.inf))
        worst = max(worst, 1 - cheapest / value[inside].max()) if value[inside].any() else worst
    return worst


# --- one query ------------------------------------------------------------------------------------------------------------


def test_by_hand() -> None:
    """x is first for both; y and z change places. With x at exposure r, y and z share the rest, and at the optimum a little
    more is worth the same to all: zeta_y (lambda / rho_y)^2 + price zeta_y = price zeta_x."""
    pair = Pair.from_lists(["xyz"], ["xzy"], k=3)
    theta, zeta = np.array([1, 0.5, 0.25]), np.array([0.8, 0.2, 0.2])
    for price in (0.05, 0.1, 0.2):
        rho = 0.25 / np.sqrt(3 * price)
        found = closed_form(pair, theta, zeta=zeta, price=price).exposure(theta)
        expected = np.clip(rho, 0.375, 0.75)  # x has at most the first rank, at least the last
        assert found == pytest.approx([1.75 - 2 * expected, expected, expected], abs=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_greedy_steps_lead_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, steps = 5, 600
    theta, need = rank_decay(4) if seed % 2 else rng.uniform(0.05, 1, 4), rng.uniform(0, 1, n) * (rng.random(n) < 0.7)
    gain = 10 ** rng.uniform(-1, 1.5) * rng.choice([0.1, 0.3, 0.9], n)
    corners = all_exposures(theta, n)
    least = [0.0, 0.5, 0.9][seed % 3] * corners[rng.permutation(len(corners))[:2]].min(0)
    rho = mixture_of(need, theta, least, gain).exposure(theta)
    plain = greedy(need, gain, theta, least, steps)
    value = [np.sum(need[need > 0] ** 2 / x[need > 0]) - gain @ x for x in (rho, plain)]
    assert value[0] == pytest.approx(value[1], rel=1e-2, abs=1e-2)
    same = [np.flatnonzero((need == need[d]) & (gain == gain[d])) for d in range(n)]  # ties may be broken either way
    found, expected = ([x[others].sum() for others in same] for x in (rho, plain))
    np.testing.assert_allclose(found, expected, atol=8 * theta.sum() / steps)


@pytest.mark.parametrize("seed", range(12))
def test_a_general_solver_finds_the_same_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 4
    theta, need = rng.uniform(0.05, 1, rng.integers(1, 5)), rng.uniform(0.05, 1, n)
    gain = 10 ** rng.uniform(-1, 1) * rng.uniform(0, 1, n)
    beta = [0.0, 0.5, 0.9, 1.0][seed % 4]
    corners = all_exposures(theta, n)
    least = beta * corners[rng.permutation(len(corners))[:2]].min(0)
    floors = {"type": "ineq", "fun": lambda w: w @ corners - least, "jac": lambda w: corners.T}

    def value(rho: FloatArray) -> float:
        return float(np.sum(need**2 / np.maximum(rho, 1e-9)) - gain @ rho)

    found = minimize(
        lambda w: value(w @ corners),
        np.full(len(corners), 1 / len(corners)),
        bounds=[(0, 1)] * len(corners),
        constraints=[{"type": "eq", "fun": lambda w: w.sum() - 1}, *([floors] if beta else [])],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 2000},
    )
    rho = mixture_of(need, theta, least, gain).exposure(theta)
    assert value(rho) == pytest.approx(found.fun, rel=1e-5, abs=1e-5)
    assert value(rho) <= found.fun + 1e-9
    np.testing.assert_allclose(rho, found.x @ corners, atol=5e-3)


@given(problem=floored(), zeta=st.lists(relevances, min_size=5, max_size=5), price=prices)
def test_no_distribution_over_rankings_does_better(
    problem: tuple[FloatArray, FloatArray, FloatArray], zeta: list[float], price: float
) -> None:
    need, theta, least = problem
    gain = price * np.array(zeta[: len(need)])
    mixture = mixture_of(need, theta, least, gain)
    check_valid(mixture, [set(range(len(need)))])
    rho = mixture.exposure(theta)
    assert np.all(rho >= least - EXACT)
    starved = (need > 0) & (rho < 1e-6)  # by floors that leave nothing, or next to others of a billion times its value
    if not np.any(starved) and np.any(need > 0):
        assert gap(need, rho, all_exposures(theta, len(need)), least, gain) < 1e-5


@given(need=needs(8), theta=thetas, zeta=st.lists(relevances, min_size=8, max_size=8), price=prices)
def test_whatever_matters_is_seen(need: FloatArray, theta: FloatArray, zeta: list[float], price: float) -> None:
    mixture = mixture_of(need, theta, gain=price * np.array(zeta[: len(need)]))
    check_valid(mixture, [set(range(len(need)))])
    assert np.all(mixture.exposure(theta)[need > 0] > 0) or not theta[: len(need)].any()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n", [2, 12, 20, 100])
def test_exposure_is_worth_the_same_wherever_it_can_go(n: int, seed: int) -> None:
    """Many documents; ties in need and gain, needs of 0 and of many scales, ranks of no exposure, floors."""
    rng = np.random.default_rng(100 * n + seed)
    for price in (1e-4, 0.1, 1.0, 10.0, 1e3, 1e6):
        theta = rank_decay(10) if seed % 2 else np.sort(rng.uniform(0, 1, 10))[::-1]
        theta[10 - seed % 3 :] = 0
        need = rng.uniform(0, 1, n) * (rng.random(n) < 0.7) * 10.0 ** -rng.uniform(0, [0, 6][seed % 2], n)
        need[rng.random(n) < 0.2] = 0.25
        gain = price * (rng.uniform(0, 1, n) if seed % 3 else rng.choice([0.1, 0.3, 0.3, 0.9], n))
        slots = slots_of(theta, n)
        least = [0.0, 0.5, 1.0][seed // 2] * np.minimum(rng.permutation(slots), rng.permutation(slots))
        mixture = mixture_of(need, theta, least if least.any() else None, gain)
        check_valid(mixture, [set(range(n))])
        rho = mixture.exposure(theta)
        assert np.all(rho >= least - EXACT)
        assert rho.sum() == pytest.approx(slots.sum())
        assert marginal_violation(need, gain, rho, theta, least) < 1e-6


@pytest.mark.parametrize("floor", [0.0, 0.5])
def test_no_price_and_equal_gains_change_nothing(floor: float) -> None:
    rng = np.random.default_rng(3)
    quality = rng.normal(size=2000)
    a, b = quality + 0.5 * rng.normal(size=(2, 2000))
    pair = Pair.from_scores(a, b, offsets_of([20] * 100), 10)
    zeta = rng.uniform(0.1, 0.9, 2000)
    same = np.full(2000, 0.25)
    for free, other in (
        (closed_form(pair, rank_decay(10), zeta=zeta, floor=floor), {"zeta": zeta, "price": 0}),
        (closed_form(pair, rank_decay(10), floor=floor), {"price": 3}),
        (closed_form(pair, rank_decay(10), zeta=same, floor=floor), {"zeta": same, "price": 3}),
    ):
        shown = closed_form(pair, rank_decay(10), floor=floor, **other)
        assert np.array_equal(shown.rankings, free.rankings)
        assert np.array_equal(shown.weights, free.weights)


def test_scales_far_apart() -> None:
    theta = np.array([1.0, 1e-3, 1e-200])
    need, gain = np.array([1.0, 1e-160, 1e-300, 0.5]), np.array([1.0, 1e6, 1e6, 0.0])
    for price in (1e-300, 1e-30, 1.0, 1e30):
        mixture = mixture_of(need, theta, gain=price * gain)
        check_valid(mixture, [{0, 1, 2, 3}])
        rho = mixture.exposure(theta)
        assert np.all(rho > 0)
        assert rho.sum() == pytest.approx(1.001)
    # What gains are too small to change is as without them, and what needs are too small to change as by gains alone.
    np.testing.assert_allclose(
        mixture_of(need, theta, gain=1e-300 * gain).exposure(theta), [2 / 3, 0, 0, 1 / 3], atol=2e-3
    )
    assert mixture_of(need, theta, gain=1e30 * gain).exposure(theta)[[1, 2]].sum() == pytest.approx(1.001)


def test_floors_that_take_the_whole_page_but_for_rounding_leave_what_matters_in_sight() -> None:
    theta = np.array([1.0, 0.5])
    least = (1 + 1e-12) * np.array([1, 0.5, 0, 0])
    for gain in (None, np.array([0.3, 1.2, 2.7, 0.6])):
        rho = mixture_of(np.array([0.3, 0.3, 0.3, 0.2]), theta, least, gain).exposure(theta)
        assert rho == pytest.approx([1, 0.5, 0, 0], abs=EXACT)
        assert np.all(rho > 0)


# --- pairs ----------------------------------------------------------------------------------------------------------------


@given(
    world=small_worlds(queries=2),
    price=prices,
    floor=st.sampled_from([0.0, 0.5, 1.0]),
    keep=st.integers(0, 2),
    zeta0=st.sampled_from([None, 0.4]),
)
def test_pairs(world: tuple[Pair, User], price: float, floor: float, keep: int, zeta0: float | None) -> None:
    """Valid, floors hold, the same whichever ranker comes first, unbiased whatever relevance really is."""
    pair, user = world
    theta, keep = pair.known_theta, min(keep, pair.k)
    prediction = (1 + np.arange(pair.n_documents) % 4) / 5
    mixture = closed_form(pair, theta, zeta=prediction, floor=floor, keep=keep, zeta0=zeta0, price=price)
    check_valid(mixture, candidates_of(pair), each=1 + (keep > 0))
    rho = mixture.exposure(theta)
    tables = pair.top_a, pair.top_b
    by_a, by_b = (Mixture.of_tables([table], [1.0], pair.n_documents).exposure(theta) for table in tables)
    bias = theta if zeta0 is None else theta / (1 - zeta0 * theta)
    least = np.minimum(*(Mixture.of_tables([table], [1.0], pair.n_documents).exposure(bias) for table in tables))
    assert np.all(mixture.exposure(bias) >= floor * least - EXACT)
    lowest = np.sort(theta)[-keep] if keep else np.inf
    for first, other in zip(pair.top_a[:, 0], pair.top_b[:, 0]):
        if first == other and theta[0] >= lowest > 0:
            assert mixture.placement()[first, theta >= lowest].sum() == pytest.approx(1, abs=1e-8)
    weights = ips_weights(by_a - by_b, rho, pair.offsets)
    swapped = closed_form(pair.swapped(), theta, zeta=prediction, floor=floor, keep=keep, zeta0=zeta0, price=price)
    assert np.array_equal(swapped.rankings, mixture.rankings)
    assert np.array_equal(swapped.weights, mixture.weights)
    reader = position_based(user.zeta, theta)
    assume(np.abs(weights).max(initial=0) < 1e4)  # or the sum loses digits
    values = np.where(mixture.rankings >= 0, weights[mixture.rankings], 0)
    assert mixture.moments(values, reader).mean == pytest.approx(pair.delta(reader), abs=1e-9)


@pytest.mark.parametrize("keep", [1, 2, 3])
@pytest.mark.parametrize("zeta0", [None, 0.3])
def test_what_both_put_first_is_kept_among_the_first(keep: int, zeta0: float | None) -> None:
    """Whatever the price and the prediction, on every page, where it could be missing otherwise; and it costs no more than that
    least exposure does: exposures are the best with it, and it moves by one rank at most."""
    rng = np.random.default_rng(12)
    theta = rank_decay(4)
    bias = theta if zeta0 is None else theta / (1 - zeta0 * theta)
    pair = Pair.from_lists([[0, *rng.permutation(np.arange(1, 9))] for _ in range(40)], [[0, *range(1, 9)]] * 40, k=4)
    first, lam = pair.top_a[:, 0], pair.lam(theta)
    prediction = rng.uniform(0.05, 0.9, pair.n_documents)
    for price in PRICES:
        kept = closed_form(pair, theta, zeta=prediction, zeta0=zeta0, price=price, keep=keep)
        check_valid(kept, candidates_of(pair), each=2)
        placement = kept.placement()[first]
        np.testing.assert_allclose(placement[:, :keep].sum(1), 1, atol=1e-12)
        assert np.all((placement > 0).sum(1) <= 2)
        assert np.all(np.ptp(np.where(placement > 0, np.arange(4), placement.argmax(1)[:, None]), axis=1) <= 1)
        loose = closed_form(pair, theta, zeta=prediction, zeta0=zeta0, price=price)
        assert loose.placement()[first].sum(1).min() < 0.1
        for query in range(0, 40, 5):
            documents = np.array(sorted(candidates_of(pair)[query]))
            need = np.abs(lam[documents]) * np.sqrt(prediction[documents])
            least = np.where(documents == first[query], bias[keep - 1], 0)
            best = mixture_of_bias(need, bias, least, price * prediction[documents])
            np.testing.assert_allclose(kept.exposure(bias)[documents][need > 0], best[need > 0], atol=1e-8)


def mixture_of_bias(need: FloatArray, bias: FloatArray, least: FloatArray, gain: FloatArray) -> FloatArray:
    """The best exposure for a bias that may exceed 1: the problem is the same in units of its largest."""
    unit = bias.max()
    best: FloatArray = unit * mixture_of(need, bias / unit, least / unit, gain * unit**2).exposure(bias / unit)
    return best


def some_pair(n_queries: int = 60, k: int = 6) -> tuple[Pair, FloatArray, FloatArray]:
    rng = np.random.default_rng(6)
    quality = rng.normal(size=12 * n_queries)
    a, b = quality + 0.5 * rng.normal(size=(2, 12 * n_queries))
    pair = Pair.from_scores(a, b, offsets_of([12] * n_queries), k)
    return pair, rank_decay(k), np.clip(1 / (1 + np.exp(1 - quality)), 0.02, 0.98)


def test_one_query_is_as_in_a_pair() -> None:
    pair, theta, zeta = some_pair()
    mixture = closed_form(pair, theta, zeta=zeta, floor=0.5, keep=2, zeta0=0.3, price=2, plain=(0.1, 0.2))
    for query in range(pair.n_queries):
        rows = slice(*pair.offsets[query : query + 2])
        a, b = (table[query] - pair.offsets[query] for table in (pair.top_a, pair.top_b))
        rankings, weights = closed_form_query(
            a, b, theta, zeta=zeta[rows], floor=0.5, keep=2, zeta0=0.3, price=2, plain=(0.1, 0.2)
        )
        cells = slice(*mixture.offsets[query : query + 2])
        assert np.array_equal(rankings + pair.offsets[query], mixture.rankings[cells])
        assert np.array_equal(weights, mixture.weights[cells])


def test_a_higher_price_buys_clicks_for_variance() -> None:
    """Each click at its price: no other design of the same clicks has less spread."""
    pair, theta, zeta = some_pair()
    lam = pair.lam(theta)
    rhos = [closed_form(pair, theta, zeta=zeta, price=price).exposure(theta) for price in PRICES]
    clicks = np.array([zeta @ rho for rho in rhos])
    spread = np.array([np.sum(zeta[lam != 0] * lam[lam != 0] ** 2 / rho[lam != 0]) for rho in rhos])
    assert np.all(np.diff(clicks) > -EXACT)
    assert np.all(np.diff(spread) > -EXACT)
    for price, more, one in zip(PRICES, clicks, spread):
        assert np.all(spread - price * clicks >= one - price * more - 1e-6 * (1 + price))
    most = sum(np.sort(zeta[list(documents)])[::-1][:6] @ theta for documents in candidates_of(pair))
    assert clicks[-1] == pytest.approx(most, rel=1e-3)


# --- clicks and budgets ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    world=small_worlds(queries=3),
    price=prices,
    floor=st.sampled_from([0.0, 0.5]),
    keep=st.integers(0, 1),
    zeta0=st.sampled_from([None, 0.4]),
    plain=st.sampled_from([(0.0, 0.0), (0.1, 0.3)]),
)
def test_clicks_are_those_of_the_mixture(
    world: tuple[Pair, User], price: float, floor: float, keep: int, zeta0: float | None, plain: tuple[float, float]
) -> None:
    pair, user = world
    theta, zeta = pair.known_theta, user.zeta
    forecast = ClickForecast.of(pair.tables, theta, zeta, floor=floor, keep=keep, zeta0=zeta0, plain=plain)
    mixture = closed_form(pair, theta, zeta=zeta, floor=floor, keep=keep, zeta0=zeta0, price=price)
    exposure = mixture.exposure(theta) * zeta
    by_query = [exposure[start:end].sum() for start, end in zip(pair.offsets, pair.offsets[1:])]
    np.testing.assert_allclose(forecast.designed(price), by_query, atol=1e-12)
    per_ranking = mixture.weights * expected_clicks(mixture.rankings, theta, zeta)
    np.testing.assert_allclose(np.add.reduceat(per_ranking, mixture.offsets[:-1]), by_query, atol=1e-12)
    reader = position_based(zeta, theta)
    assert forecast.ab == pytest.approx(sum(pair.ctr(reader)) / 2, abs=1e-12)
    with_plain = closed_form(pair, theta, zeta=zeta, floor=floor, keep=keep, zeta0=zeta0, price=price, plain=plain)
    assert forecast.shown(price) == pytest.approx(with_plain.ctr(reader), abs=1e-12)


@pytest.mark.parametrize("zeta0", [None, 0.3])
@pytest.mark.parametrize("plain", [(0.0, 0.0), (0.25, 0.25)])
def test_the_price_of_a_budget_is_the_lowest_that_keeps_it(zeta0: float | None, plain: tuple[float, float]) -> None:
    pair, theta, zeta = some_pair()
    weights = np.arange(1.0, 1 + pair.n_queries)
    forecast = replace(
        ClickForecast.of(pair.tables, theta, zeta, zeta0=zeta0, plain=plain), shares=weights / weights.sum()
    )
    lost = 1 - forecast.shown(0) / forecast.ab
    assert lost > 0.01
    found = [price_for(forecast, loss) for loss in (lost / 3, 0.0, -0.02)]
    assert all(priced.kept and priced.loss <= loss + 1e-9 for priced, loss in zip(found, (lost / 3, 0.0, -0.02)))
    assert 0 < found[0].price < found[1].price < found[2].price
    for priced, loss in zip(found, (lost / 3, 0.0, -0.02)):
        assert priced.clicks == forecast.shown(priced.price)
        assert forecast.shown(priced.price / 1.011) < (1 - loss) * forecast.ab
    shown = closed_form(pair, theta, zeta=zeta, zeta0=zeta0, price=found[1].price, plain=plain)
    clicks = expected_clicks(shown.rankings, theta, zeta) * shown.weights
    shares = np.repeat(weights / weights.sum(), np.diff(shown.offsets))
    assert shares @ clicks == pytest.approx(found[1].clicks)


def test_budgets_at_the_ends() -> None:
    pair, theta, zeta = some_pair()
    forecast = ClickForecast.of(pair.tables, theta, zeta)
    assert price_for(forecast, 0.9).price == 0
    lavish = price_for(forecast, -0.9)
    assert not lavish.kept
    assert (lavish.price, lavish.clicks) == (100, forecast.shown(100))
    assert price_for(forecast, -0.9, most=7).price == 7
    nothing_known = ClickForecast.of(pair.tables, theta, np.full(pair.n_documents, 0.3))
    assert price_for(nothing_known).price == 0
    assert not price_for(nothing_known, -0.01).kept
    # The rankers agree: order by relevance costs no variance, so next to no price is enough.
    agreed = ClickForecast.of(Pair.from_lists(["ab"], ["ab"], k=2).tables, [1, 0.5], [0.1, 0.4])
    assert 0 < price_for(agreed, -0.1).price <= 1e-6
    assert agreed.shown(1e-6) == pytest.approx(0.45)


def test_arguments_are_checked() -> None:
    pair = Pair.from_lists(["ab"], ["ba"], k=2)
    with pytest.raises(ValueError, match=r"price is -1, must be between 0 and 1e\+12"):
        closed_form(pair, [1, 0.5], price=-1)
    with pytest.raises(ValueError, match="keep is 3, must be between 0 and 2"):
        closed_form(pair, [1, 0.5], keep=3)
    with pytest.raises(ValueError, match="1 zeta, but the lists have a document 1"):
        ClickForecast.of(pair.tables, [1, 0.5], [0.3])
    with pytest.raises(ValueError, match="loss is 2, must be between -10 and 1"):
        price_for(ClickForecast.of(pair.tables, [1, 0.5], [0.3, 0.3]), 2)
