from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import click_patterns, fixed_world
from ranktrial.arrays import NO_DOCUMENT
from ranktrial.inference import ClickLog, estimate_ips
from ranktrial.rankings import Mixture, Pair, PlackettLuce, RequirementError
from ranktrial.seeds import generator
from ranktrial.users import User, position_based


def small() -> tuple[Pair, User]:
    pair, _ = Pair.from_lists(["abc"], ["bca"], k=2)
    theta = np.array([0.9, 0.5])
    return pair.knowing(theta=theta), position_based([0.3, 0.8, 0.6], theta)


def explicit(pair: Pair, name: str) -> Mixture:
    """A logging policy by name, with all its rankings listed."""
    if name == "uniform":
        return PlackettLuce(np.zeros(pair.n_documents), pair.offsets, pair.k).listed()
    if name == "Plackett-Luce":
        return PlackettLuce(np.array([1.0, -0.5, 0.2]), pair.offsets, pair.k).listed()
    if name == "A/B":
        return Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), pair.n_documents)
    rankings = np.array([[0, 1], [2, 0], [1, 2]], np.int32)
    return Mixture(rankings, np.array([0.2, 0.3, 0.5]), np.array([0, 3]), 3)


@pytest.mark.parametrize("name", ["uniform", "A/B", "Plackett-Luce", "mixture"])
def test_unbiased_exactly_under_any_policy(name: str) -> None:
    """Every ranking and click pattern of an enumerable world, one impression each, weighted by its probability."""
    pair, user = small()
    mixture = explicit(pair, name)
    mean = 0.0
    for row, weight in zip(mixture.rankings, mixture.weights):
        for clicks, probability in click_patterns(user, row):
            log = ClickLog.of([row], [clicks])
            mean += weight * probability * estimate_ips(log, pair, [mixture]).delta
    assert mean == pytest.approx(pair.delta(user), abs=1e-12)


def test_unbiased_exactly_while_the_policy_changes() -> None:
    """Two impressions, the second by another policy: each keeps its own exposure, the mean is still exact."""
    pair, user = small()
    first, second = explicit(pair, "A/B"), explicit(pair, "mixture")
    mean = 0.0
    for (i, a), (j, b) in itertools.product(enumerate(first.rankings), enumerate(second.rankings)):
        for (c, p), (d, q) in itertools.product(click_patterns(user, a), click_patterns(user, b)):
            log = ClickLog.of([a, b], [c, d], [0, 1])
            weight = first.weights[i] * second.weights[j] * p * q
            mean += weight * estimate_ips(log, pair, [first, second]).delta
    assert mean == pytest.approx(pair.delta(user), abs=1e-12)


def draw_log(pair: Pair, user: User, mixture: Mixture, n: int, seed: int) -> ClickLog:
    rng = generator(seed)
    queries = rng.integers(0, pair.n_queries, n)
    rows = np.array(
        [rng.choice(np.arange(mixture.offsets[q], mixture.offsets[q + 1]), p=_weights(mixture, q)) for q in queries]
    )
    rankings = mixture.rankings[rows]
    filled = rankings != NO_DOCUMENT
    chance = np.where(filled, user.zeta[rankings] * user.slope, 0)
    return ClickLog.of(rankings, rng.random(rankings.shape) < chance)


def _weights(mixture: Mixture, query: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return mixture.weights[mixture.offsets[query] : mixture.offsets[query + 1]]


def test_the_standard_error_is_that_of_many_logs() -> None:
    pair, user = fixed_world(seed=1, k=2, n_queries=3)
    mixture = PlackettLuce(np.zeros(pair.n_documents), pair.offsets, 2).listed()
    estimates = [estimate_ips(draw_log(pair, user, mixture, 300, s), pair, [mixture]) for s in range(300)]
    deltas = np.array([e.delta for e in estimates])
    claimed = np.mean([e.standard_error for e in estimates])
    assert deltas.std() == pytest.approx(claimed, rel=4.5 / np.sqrt(600))
    assert abs(deltas.mean() - pair.delta(user)) < 4.5 * claimed / np.sqrt(300)
    inside = [e.confidence_interval()[0] < pair.delta(user) < e.confidence_interval()[1] for e in estimates]
    assert 0.9 < np.mean(inside) < 0.99


def test_diagnostics_by_hand() -> None:
    pair, _ = small()
    mixture = explicit(pair, "A/B")
    log = ClickLog.of([[0, 1], [1, 2], [1, 2]], [[True, True], [False, True], [False, False]])
    # lambda = .9, .5 - .9, -.5; rho = .45, .7, .25: weights 2, -4/7, -2
    estimate = estimate_ips(log, pair, [mixture])
    assert estimate.delta == pytest.approx((2 - 4 / 7 - 2) / 3)
    assert estimate.effective_clicks == pytest.approx((4 + 4 / 7) ** 2 / (8 + 16 / 49))
    assert estimate.largest_weight == pytest.approx(2)
    clipped = estimate_ips(log, pair, [mixture], clip=1.0)
    assert clipped.delta == pytest.approx((1 - 4 / 7 - 1) / 3)
    assert clipped.bias_bound == pytest.approx(0.45 + 0.25)
    low, high = clipped.confidence_interval()
    assert high - low > 2 * clipped.bias_bound


def test_observed_propensities_are_the_authors_formula() -> None:
    pair, _ = small()
    log = ClickLog.of([[0, 1], [1, 2], [1, 2]], [[True, True], [False, True], [False, False]])
    examined = np.array([0.9, 0.5 + 0.9 * 2, 0.5 * 2])
    lam = np.array([0.9, -0.4, -0.5])
    estimate = estimate_ips(log, pair, [explicit(pair, "A/B")], propensities="observed")
    assert estimate.delta == pytest.approx((lam * np.array([1, 1, 1]) / examined).sum())


def test_the_requirement_is_checked_by_name() -> None:
    pair, _ = small()
    only_a = Mixture.always(pair.top_a, 3)
    log = ClickLog.of([[0, 1]], [[True, False]])
    with pytest.raises(RequirementError, match="query 0: document 2"):
        estimate_ips(log, pair, [only_a])


@pytest.mark.parametrize(
    ("rankings", "clicks", "versions", "message"),
    [
        ([[0, 1]], [[True]], None, "must be the same"),
        ([[0, -1]], [[False, True]], None, "impression 0: a click at rank 2, where nothing was shown"),
        ([[0, 1]], [[True, False]], [0, 1], "2 versions for 1 impressions"),
        ([[0, 1]], [[True, False]], [3], "versions 3 to 3, but 1 policies"),
        ([[0, 9]], [[True, False]], None, "shows document 9, the pair has 3"),
        ([[0, 1, 2]], [[True, False, False]], None, "the log shows 3 ranks"),
        ([[0, -2]], [[True, False]], None, "document -2, must be at least -1"),
        ([[1, 1]], [[True, False]], None, "impression 0: document 1 is shown twice"),
        ([[0.9, 1.7]], [[True, False]], None, "must hold document ids"),
        ([[-1, -1]], [[False, False]], None, "impression 0 shows nothing"),
    ],
)
def test_malformed_logs_are_refused(
    rankings: list[list[int]], clicks: list[list[bool]], versions: list[int] | None, message: str
) -> None:
    pair, _ = small()
    with pytest.raises(ValueError, match=message):
        estimate_ips(ClickLog.of(rankings, clicks, versions), pair, [explicit(pair, "A/B")])


def test_a_log_that_mixes_queries_is_refused() -> None:
    pair, _ = Pair.from_lists(["ab", "cd"], ["ba", "dc"], k=2)
    pair = pair.knowing(theta=[1, 0.5])
    policy = Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), 4)
    with pytest.raises(ValueError, match="impression 1 of query 0 shows document 3 of another query"):
        estimate_ips(ClickLog.of([[0, 1], [0, 3]], [[True, False]] * 2), pair, [policy])


def test_a_policy_of_another_shape_is_refused() -> None:
    pair, _ = small()
    log = ClickLog.of([[0, 1]], [[True, False]])
    with pytest.raises(ValueError, match="policy 0 shows 1 of 3 documents, the pair 2 of 3"):
        estimate_ips(log, pair, [PlackettLuce(np.zeros(3), pair.offsets, 1)])
    with pytest.raises(ValueError, match="divides the documents among queries otherwise"):
        estimate_ips(log, pair, [PlackettLuce(np.zeros(3), np.array([0, 1, 3]), 2)])


def test_observed_propensities_cannot_be_clipped() -> None:
    pair, _ = small()
    with pytest.raises(ValueError, match="clip applies to weights from the policy"):
        estimate_ips(
            ClickLog.of([[0, 1]], [[True, False]]), pair, [explicit(pair, "A/B")], clip=1, propensities="observed"
        )


def test_the_clipping_bound_follows_the_logs_own_queries_and_versions() -> None:
    """All impressions of one query, by two policies: the bound is that query's, weighted by version."""
    pair, _ = Pair.from_lists(["ab", "cc"[:1]], ["ba", "c"], k=2)
    pair = pair.knowing(theta=[1, 0.5])
    even = Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), 3)
    uneven = Mixture.of_tables([pair.top_a, pair.top_b], (0.9, 0.1), 3)
    log = ClickLog.of([[0, 1]] * 4, [[True, False]] * 4, [0, 0, 0, 1])
    # lambda = .5, -.5; rho = .75, .75 and .95, .55; clip .5 loses .125 twice, and .025 + .225
    estimate = estimate_ips(log, pair, [even, uneven], clip=0.5)
    assert estimate.bias_bound == pytest.approx(0.75 * 0.25 + 0.25 * 0.25)
    assert estimate_ips(log, pair, [even, uneven]).largest_weight == pytest.approx(0.5 / 0.55)


@given(st.permutations(range(6)))
def test_the_order_of_impressions_does_not_matter(order: list[int]) -> None:
    pair, user = small()
    log = draw_log(pair, user, explicit(pair, "mixture"), 6, seed=3)
    shuffled = ClickLog.of(log.rankings[order], log.clicks[order], log.versions[order])
    policies = [explicit(pair, "mixture")]
    assert estimate_ips(shuffled, pair, policies).delta == pytest.approx(estimate_ips(log, pair, policies).delta)
