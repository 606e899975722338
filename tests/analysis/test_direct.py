"""The direct estimate and position bias within the same lists: right where position-based estimates are not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from oracles import click_patterns
from pooling import pooled_counts
from ranktrial.analysis import estimate, fit_position_bias
from ranktrial.log import Log
from ranktrial.methods import AB, LogOpt
from ranktrial.position_bias import fit_groups
from ranktrial.rankings import Mixture, Pair, PlackettLuce, RequirementError
from ranktrial.users import User, position_based, rank_decay, trust_bias

THETA = np.array([0.9, 0.6, 0.2])


def small() -> Pair:
    return Pair.from_lists(["abcd", "xy"], ["cbda", "z"], k=3).knowing(theta=THETA)


def users(pair: Pair) -> list[User]:
    zeta = np.linspace(0.2, 0.9, pair.n_documents)
    affine = trust_bias(zeta, THETA, relevant=[0.9, 0.8, 0.5], irrelevant=[0.5, 0.2, 0.0])
    return [position_based(zeta, THETA), affine]


def expectation(pair: Pair, user: User, mixture: Mixture, **options: object) -> float:
    """E[estimate] over every impression that can happen."""
    total = 0.0
    for row, weight in zip(mixture.rankings, mixture.weights / mixture.n_queries):
        shown = row[row >= 0]
        for clicks, chance in click_patterns(user, shown):
            padded = clicks + (False,) * (pair.k - len(shown))
            log = Log.of(pair, mixture, [row.tolist()], [padded])
            total += weight * chance * estimate(log, **options).delta  # type: ignore[arg-type]
    return total


@pytest.mark.parametrize("method", [AB(split=0.3), LogOpt(holdback=0.4), LogOpt(holdback=0.1, floor=0)], ids=str)
def test_unbiased_exactly_for_clicks_that_depend_on_document_and_rank(method: LogOpt) -> None:
    """Under trust bias too, where every position-based estimate is off; whatever the prediction."""
    pair = small()
    mixture = method.displays(pair).mixture
    for user, prediction in itertools.product(users(pair), (0.0, 0.3, np.linspace(0.9, 0.1, pair.n_documents))):
        mean = expectation(pair, user, mixture, estimator="direct", prediction=prediction)
        assert mean == pytest.approx(pair.delta(user), abs=1e-12)
    affine = users(pair)[1]
    assert abs(expectation(pair, affine, mixture, estimator="ips") - pair.delta(affine)) > 0.01


def test_a_policy_that_cannot_be_listed_is_valued_by_its_placement() -> None:
    pair = small()
    policy = PlackettLuce(np.linspace(-1, 1, pair.n_documents), pair.offsets, pair.k)
    listed = Log.simulated(pair, policy.listed(), users(pair)[0], 200, seed=1)
    shown = np.append(listed.document, -1)[listed.rankings[listed.row]]
    x = [
        estimate(log, estimator="direct", prediction=0.3).x
        for log in (listed, Log.of(pair, policy, shown, listed.clicks))
    ]
    np.testing.assert_allclose(x[0], x[1], atol=1e-9)


def test_a_rank_that_is_never_shown_is_refused_or_left_out() -> None:
    """Rank 2 of a in B's list: a is shown, but never there."""
    pair = Pair.from_lists(["ab"], ["ca"], k=2).knowing(theta=[1, 0.5])
    mixture = Mixture(np.array([[0, 1], [2, 1]], np.int32), np.array([0.5, 0.5]), np.array([0, 2]), 3)
    log = Log.of(pair, mixture, [[0, 1]], [[True, True]])
    with pytest.raises(RequirementError, match="document a is at rank 1 in A's list and 2 in B's"):
        estimate(log, estimator="direct")
    left = estimate(log, estimator="direct", prediction=0.0, uncovered="leave out")
    assert left.uncovered.tolist() == [0]
    assert left.delta == 1 / 1.0  # b alone, which always stands at rank 2


@pytest.mark.slow
def test_position_bias_from_personal_lists() -> None:
    """Four kinds of visitors under one query text, each with lists that put first what they like: pooled over lists a document
    stands high for those who click it anyway, and theta comes out far too steep."""
    rng, k, n = np.random.default_rng(1), 10, 30
    theta = rank_decay(k, 0.7)
    records, lists_of = [], []
    for _ in range(4):
        zeta = rng.beta(0.6, 1.5, n)
        lists_of.append((zeta, [np.argsort(-(zeta + rng.normal(0, 0.25, n)))[:k] for _ in range(2)]))
    for i in range(40_000):
        zeta, lists = lists_of[i % 4]
        arm = int(rng.random() < 0.5)
        shown = lists[arm]
        clicked = shown[rng.random(k) < theta * zeta[shown]]
        names = [[f"d{d}" for d in each] for each in (*lists, shown, clicked)]
        records.append(dict(zip(("query", "a", "b", "shown", "clicked"), ("home", *names)), arm="ab"[arm]))
    log = Log.from_records(records, k)
    assert len(log.queries) == 1
    assert log.n_designs == 4
    fitted = fit_position_bias(log).bias
    assert np.all(np.abs(fitted.theta - theta) < 4.5 * fitted.standard_error + 1e-9)
    pooled, _ = fit_groups(pooled_counts(log))
    assert pooled.theta[9] < 0.75 * theta[9]
    truth = float(np.mean([(zeta[a] @ theta) - (zeta[b] @ theta) for zeta, (a, b) in lists_of]))
    found = estimate(log)
    assert abs(found.delta - truth) < 4.5 * found.standard_error


@pytest.mark.parametrize("listed", [True, False])
def test_placement_of_some_slots_and_at_one_rank_is_that_of_the_whole_table(listed: bool) -> None:
    pair = small()
    policy = PlackettLuce(np.linspace(-1, 1, pair.n_documents), pair.offsets, pair.k)
    log = Log.simulated(pair, policy.listed() if listed else policy, users(pair)[0], 20, seed=1)
    placement = log.placement_of(np.arange(log.n_slots))
    np.testing.assert_allclose(placement, policy.placement()[log.document], atol=1e-12)
    some = np.arange(log.n_slots)[::-2]
    np.testing.assert_array_equal(log.placement_of(some), placement[some])
    for rank in (log.rank_a, log.rank_b):
        padded = np.column_stack([placement, np.zeros(log.n_slots)])
        expected = padded[np.arange(log.n_slots), np.minimum(rank, pair.k)]
        np.testing.assert_allclose(log.placement_at(rank), expected, atol=1e-15)
        assert (expected > 0).any()
