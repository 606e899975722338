from __future__ import annotations

import numpy as np
import pytest
from benchmarks._policies import ips_variance, network_policy

from ranktrial.arrays import offsets_of
from ranktrial.paper.network.network import Adam, Network
from ranktrial.paper.network.network_policy import (
    NetworkPolicy,
    Objective,
    lambda_inputs,
    optimise,
    policy_inputs,
    scaled_by_query,
)
from ranktrial.rankings import Mixture, Pair, PlackettLuce
from ranktrial.users import position_based, rank_decay


def objective(n_queries: int = 40, n_documents: int = 10, k: int = 4, seed: int = 0) -> Objective:
    rng = np.random.default_rng(seed)
    offsets = offsets_of([n_documents] * n_queries)
    zeta = 0.1 + 0.225 * rng.choice(5, offsets[-1], p=[0.4, 0.3, 0.2, 0.07, 0.03])
    a, b = (zeta + 0.3 * rng.normal(size=len(zeta)) for _ in range(2))
    theta = rank_decay(k)
    pair = Pair.from_scores(a, b, offsets, k).knowing(theta=theta)
    return Objective(pair, theta, zeta, pair.lam(theta), pair.delta(position_based(zeta, theta)))


def test_inputs_are_scaled_within_each_query() -> None:
    columns = np.array([[1.0, 5], [3, 5], [2, 5], [7, 1], [7, 3]])
    expected = np.array([[0, 0], [1, 0], [0.5, 0], [0, 0], [0, 1]])
    np.testing.assert_allclose(scaled_by_query(columns.T, np.array([0, 3, 3, 5])), expected)


def test_lambda_inputs_by_hand() -> None:
    pair = Pair.from_lists([["a", "b"]], [["b", "c"]], k=2)
    lam = pair.lam(np.array([1, 0.5]))  # a: 1, b: .5 - 1, c: -.5
    found = lambda_inputs(pair, lam)
    np.testing.assert_allclose(found[:, 0], [1, 0, 0])
    np.testing.assert_allclose(found[:, 1], [1, 0, 0])
    np.testing.assert_allclose(found[:, 3], [0, 0, 0])  # [lambda = 0] is the same for all
    np.testing.assert_allclose(found[:, 4], [1, 0, 0])
    np.testing.assert_allclose(found[:, 5], [0, 0.5, 1])  # c is not in A: below its end
    np.testing.assert_allclose(found[:, 6], [1, 0, 0.5])


def test_lambda_inputs_are_columns_scaled_within_each_query() -> None:
    rng = np.random.default_rng(4)
    a, b = ([rng.permutation(12)[: rng.integers(0, 9)].tolist() for _ in range(30)] for _ in range(2))
    pair = Pair.from_lists(a, b, k=4)
    lam, ranks = pair.lam(rank_decay(4)), []
    for ranker in (pair.a, pair.b):
        lengths = np.diff(ranker.offsets)
        rank = np.repeat(lengths, np.diff(pair.offsets))
        rank[ranker.documents] = np.arange(len(ranker.documents)) - np.repeat(ranker.offsets[:-1], lengths)
        ranks.append(rank)
    columns = [lam, np.abs(lam), lam**2, lam == 0, lam > 0, *ranks]
    assert np.array_equal(lambda_inputs(pair, lam), scaled_by_query(columns, pair.offsets))


def test_a_policy_scores_the_queries_that_are_asked_for() -> None:
    goal = objective(n_queries=5, n_documents=6)
    inputs = policy_inputs(goal.pair, goal.lam, "lists")
    network = Network.initialise(inputs.shape[1], 1)
    all_scores, policy = network_policy(network, inputs, goal.pair).scores, NetworkPolicy(network, inputs, goal.pair)
    for queries in ([1], [1, 3], range(5)):
        asked = np.isin(np.arange(5), queries)
        scores = policy.scored(asked).scores
        np.testing.assert_allclose(scores, np.where(np.repeat(asked, 6), all_scores, 0.0), rtol=1e-5)


def test_features_are_asked_for_when_needed() -> None:
    pair = objective().pair
    with pytest.raises(ValueError, match='inputs is "both", which needs document features'):
        policy_inputs(pair, pair.lam(pair.known_theta), "both")
    wide = pair.knowing(features=np.ones((pair.n_documents, 3), np.float32))
    assert policy_inputs(wide, pair.lam(pair.known_theta), "both").shape[1] == 10
    assert policy_inputs(wide, pair.lam(pair.known_theta), "features").shape[1] == 3


def test_the_variance_of_a_mixture_and_of_its_plackett_luce_twin_agree() -> None:
    """Exact over the listed rankings, against exact diagonal plus sampled pairs, within 4.5 standard errors."""
    goal = objective(n_queries=4, n_documents=6, k=3)
    policy = PlackettLuce(np.random.default_rng(1).normal(size=24), goal.pair.offsets, 3)
    exact = ips_variance(policy.listed(), goal)
    sampled = ips_variance(policy, goal, samples=20_000, seed=2)
    assert exact.standard_error == 0
    assert abs(sampled.value - exact.value) < 4.5 * sampled.standard_error


@pytest.mark.parametrize("gradient", ["low-noise", "paper", "authors"])
def test_optimising_lowers_the_variance_towards_the_best(gradient: str) -> None:
    """From uniform's variance to well below A/B's, with every gradient."""
    goal = objective()
    inputs = policy_inputs(goal.pair, goal.lam, "lists")
    network, optimiser = Network.initialise(inputs.shape[1], 1), Adam(rate=0.01)
    start = ips_variance(network_policy(network, inputs, goal.pair), goal).value
    optimise(network, optimiser, inputs, goal, steps=150, samples=100, seed=2, gradient=gradient)
    end = ips_variance(network_policy(network, inputs, goal.pair), goal).value
    ab = Mixture.of_tables([goal.pair.top_a, goal.pair.top_b], (0.5, 0.5), goal.pair.n_documents)
    assert end < 0.75 * start
    assert end < 0.9 * ips_variance(ab, goal).value


def test_constant_relevance_is_nearly_as_good_as_the_truth() -> None:
    """The paper's finding: only lambda matters."""
    goal = objective(seed=3)
    blind = Objective(goal.pair, goal.theta, np.full(goal.pair.n_documents, 0.3), goal.lam, 0.0)
    inputs = policy_inputs(goal.pair, goal.lam, "lists")
    ends = []
    for target in (goal, blind):
        network, optimiser = Network.initialise(inputs.shape[1], 1), Adam(rate=0.01)
        optimise(network, optimiser, inputs, target, steps=200, samples=100, seed=2)
        ends.append(ips_variance(network_policy(network, inputs, goal.pair), goal).value)
    assert ends[1] < 1.1 * ends[0]


def test_queries_on_which_the_rankers_agree_are_never_drawn() -> None:
    """A pair that differs nowhere leaves the network as it is."""
    goal = objective()
    same = Pair(goal.pair.a, goal.pair.a, goal.pair.offsets, goal.pair.k)
    still = Objective(same, goal.theta, goal.zeta, same.lam(goal.theta), 0.0)
    inputs = policy_inputs(same, still.lam, "lists")
    network = Network.initialise(inputs.shape[1], 1)
    before = network.parameters.copy()
    optimise(network, Adam(), inputs, still, steps=20, samples=10, seed=1)
    assert np.array_equal(network.parameters, before)
    assert ips_variance(network_policy(network, inputs, same), still).value == 0


def test_the_log_decides_which_queries_are_drawn() -> None:
    """With all weight on one query, only that query's scores are trained: another weighting gives another network."""
    goal = objective(n_queries=3)
    inputs = policy_inputs(goal.pair, goal.lam, "lists")
    ends = []
    for weights in ([1.0, 0, 0], [0, 0, 1.0], [0.0, 0, 0]):
        network = Network.initialise(inputs.shape[1], 1)
        optimise(network, Adam(), inputs, goal, steps=5, samples=20, seed=1, query_weights=np.array(weights))
        ends.append(network.parameters)
    assert not np.array_equal(ends[0], ends[1])
    assert not np.array_equal(ends[2], Network.initialise(inputs.shape[1], 1).parameters)  # an empty log: all alike


def test_features_of_any_scale_are_brought_to_the_unit_interval() -> None:
    pair = objective(n_queries=3).pair
    lam = pair.lam(pair.known_theta)
    raw = np.random.default_rng(0).normal(size=(pair.n_documents, 2)).astype(np.float32) * 1e6
    inputs = policy_inputs(pair.knowing(features=raw), lam, "features")
    np.testing.assert_allclose(inputs[:], scaled_by_query(raw.T, pair.offsets))
    unit = np.random.default_rng(1).random((pair.n_documents, 2)).astype(np.float32)
    assert np.array_equal(policy_inputs(pair.knowing(features=unit), lam, "features")[:], unit)
