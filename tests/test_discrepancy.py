"""Limits of the benchmark of discrepancies, against sums over all pages and a plain solution of the estimating equation."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.discrepancy import (
    FAMILIES,
    TRAFFIC,
    Behaviour,
    disagreement,
    limit,
    top_heavy,
    traffic_of,
)
from benchmarks.verdicts import top_tail

from ranktrial.analysis.ladder import POSITION_BASED
from ranktrial.arrays import FloatArray
from ranktrial.rankings import Mixture, Pair, expected_clicks
from ranktrial.users import Users, cascade, comparing, crowd, position_based, rank_decay

ZETA = np.array([0.9, 0.2, 0.5, 0.6, 0.3, 0.4, 0.1, 0.8])
THETA = rank_decay(3, 0.7)
PAIR = Pair.from_lists([[0, 1, 2], [4, 5, 6]], [[2, 0, 3], [6, 7, 4]], k=3)
USERS: list[Users] = [
    position_based(ZETA, THETA),
    cascade(ZETA, 3, leave_after_click=0.5, leave_after_skip=0, theta=THETA),
    crowd([0.4, 0.6], [comparing(ZETA, 3), position_based(ZETA, THETA)]),
]


def some_traffic() -> Mixture:
    """Both lists and one more for each of two queries."""
    other = np.array([[3, 2, 1], [7, 4, 5]], np.int32)
    return Mixture.of_tables([PAIR.top_a, PAIR.top_b, other], (0.3, 0.3, 0.4), PAIR.n_documents)


def plainly(pair: Pair, user: Users, traffic: Mixture) -> tuple[FloatArray, float, float]:
    """Theta by fixed-point iteration, and the means of the rank-aware and the direct estimate, written out."""
    k, shown, clicked = pair.k, np.zeros((pair.n_documents, pair.k)), np.zeros((pair.n_documents, pair.k))
    chances = expected_clicks(traffic.rankings, user)
    for ranking, weight, chance in zip(traffic.rankings, traffic.weights, chances):
        for r, d in enumerate(ranking):
            shown[d, r] += weight
            clicked[d, r] += weight * chance[r]
    theta = np.ones(k)
    for _ in range(20_000):
        theta = clicked.sum(0) / (clicked.sum(1) / (shown @ theta) @ shown)
        theta /= theta[0]
    theta /= max(theta.max(), 1)
    zeta = np.clip(clicked.sum(1) / (shown @ theta), 0.01, 0.9)
    lam = pair.lam(theta)
    x = direct = 0.0
    for d in range(pair.n_documents):
        u = 1 / (1 - theta * zeta[d])
        x += lam[d] * sum(u * clicked[d]) / sum(u * theta * shown[d])
        for sign, table in ((1, pair.top_a), (-1, pair.top_b)):
            direct += sum(sign * clicked[d, r] / shown[d, r] for r in range(k) if (table[:, r] == d).any())
    return theta, x / pair.n_queries, direct / pair.n_queries


@pytest.mark.parametrize("user", USERS)
def test_limits_are_those_of_all_pages_that_can_be_shown(user: Users) -> None:
    found, (theta, x, direct) = limit(PAIR, user, some_traffic()), plainly(PAIR, user, some_traffic())
    np.testing.assert_allclose(found.theta, theta, atol=1e-9)
    np.testing.assert_allclose([found.position_based, found.direct], [x, direct], atol=1e-9)


def test_position_based_users_have_no_discrepancy_and_others_do() -> None:
    right, *wrong = (limit(PAIR, user, some_traffic()).position_based - PAIR.delta(user) for user in USERS)
    assert abs(right) < 1e-9
    assert min(map(abs, wrong)) > 1e-3


@pytest.mark.parametrize("traffic", TRAFFIC[1:])
@pytest.mark.parametrize("family", [POSITION_BASED, "half on phones"])
def test_crowds_that_are_position_based_on_average_are_no_problem(traffic: str, family: str) -> None:
    """Half on phones is position-based with the mean of both thetas."""
    pair, user = top_heavy(FAMILIES[family], disjoint=False, queries=4)
    _, found = traffic_of(traffic, pair, user)
    assert abs(found.position_based) < 1e-7
    np.testing.assert_allclose(found.theta / found.theta[0], expected(family), atol=1e-6)


def expected(family: str) -> FloatArray:
    theta = rank_decay(10, 0.7)
    return theta if family == POSITION_BASED else np.where(np.arange(10) < 4, theta, theta / 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_structured_pairs_have_equal_clicks(family: str) -> None:
    behaviour: Behaviour = FAMILIES[family]
    world = top_tail(behaviour, 0.8)
    pairs = [(world.pair, world.user), *(top_heavy(behaviour, disjoint=disjoint) for disjoint in (False, True))]
    assert all(abs(pair.delta(user)) < 1e-9 for pair, user in pairs)
    assert all(pair.ctr(user)[0] > 0.3 for pair, user in pairs)


def test_disagreement_is_half_the_difference_of_exposures() -> None:
    theta = np.array([1.0, 0.5])
    same, swapped, disjoint = ([["x", "y"]], [["y", "x"]], [["z", "w"]])
    found = [disagreement(Pair.from_lists(same, other, k=2), theta) for other in (same, swapped, disjoint)]
    np.testing.assert_allclose(found, [0, 1 / 3, 1])
