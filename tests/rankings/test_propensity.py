from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranktrial.rankings import Mixture, Pair, PlackettLuce, RequirementError, expected_clicks, ips_weights, show_counts
from ranktrial.rankings.plackett_luce import simulate
from ranktrial.users import User, cascade, position_based

OFFSETS = np.array([0, 2, 5])


def test_weights_by_hand() -> None:
    lam = np.array([0.5, -0.5, 0.0, 0.2, -0.2])
    weights = ips_weights(lam, np.array([1.0, 0.25, 0.0, 0.4, 0.1]), OFFSETS)
    np.testing.assert_allclose(weights, [0.5, -2, 0, 0.5, -2])


@pytest.mark.parametrize("lam", [0.2, -0.2])
def test_a_document_that_cannot_be_seen_is_named(lam: float) -> None:
    """The paper prints the requirement for positive lambda only; negative ones matter as much."""
    with pytest.raises(RequirementError, match=r"query 1: document 3 has lambda = [+-]0.2 but can never be seen"):
        ips_weights(np.array([0.5, -0.5, 0, lam, 0]), np.array([1, 1, 0, 0.0, 0]), OFFSETS)


def test_several_unseen_documents_are_counted() -> None:
    with pytest.raises(RequirementError, match="and 1 more documents"):
        ips_weights(np.array([0.5, -0.5, 0, 0, 0]), np.zeros(5), OFFSETS)


@given(st.lists(st.floats(0.05, 1), min_size=4, max_size=4), st.floats(0.01, 3))
def test_clipping_moves_the_mean_by_no_more_than_it_says(zeta: list[float], clip: float) -> None:
    """Exact, over an enumerated Plackett-Luce policy: |E[x clipped] - Delta| <= sum of |lambda| - clip rho."""
    pair = Pair.from_lists(["abcd"], ["dcba"], k=2)
    theta = np.array([1, 0.5])
    user = position_based(zeta, theta)
    policy = PlackettLuce(np.array([0.0, 2, 1, -1]), pair.offsets, 2)
    mixture = policy.listed()
    lam, rho = pair.lam(theta), mixture.exposure(theta)
    weights = ips_weights(lam, rho, pair.offsets, clip=clip)
    mean = mixture.moments(weights[mixture.rankings], user).mean
    assert abs(mean - pair.delta(user)) <= np.maximum(np.abs(lam) - clip * rho, 0).sum() + 1e-12
    assert np.abs(weights).max(initial=0) <= clip + 1e-12


def test_the_listed_policy_is_the_policy() -> None:
    rng = np.random.default_rng(0)
    policy = PlackettLuce(rng.normal(size=9), np.array([0, 4, 5, 9]), 3)
    mixture = policy.listed()
    np.testing.assert_allclose(mixture.placement(), policy.placement(), atol=1e-9)
    theta = np.array([0.9, 0.5, 0.4])
    np.testing.assert_allclose(mixture.exposure(theta), policy.exposure(theta), atol=1e-9)
    with pytest.raises(ValueError, match="too many to list"):
        policy.listed(most=20)


@pytest.mark.parametrize(
    "user",
    [position_based([0.1, 0.9, 0.5, 0.3, 0.6], [0.9, 0.5]), cascade([0.1, 0.9, 0.5, 0.3, 0.6], 2)],
    ids=["reads on", "leaves"],
)
def test_counts_drawn_at_once_follow_the_law_of_single_impressions(user: User) -> None:
    """Shown and clicked per (document, rank): mean and variance over 3,000 draws, against the exact multinomial law."""
    rankings = np.array([[0, 1], [1, 0], [2, -1], [3, 4], [4, 3]], np.int32)
    mixture = Mixture(rankings, np.array([0.3, 0.7, 1.0, 0.5, 0.5]), np.array([0, 2, 3, 5]), 5)
    n, draws = 50, 3000
    tables = [show_counts(mixture, user, n, seed=s) for s in range(draws)]
    shown, clicked = (np.stack(t) for t in zip(*tables))
    placed, clicks = np.zeros((2, 5, 2))
    for row, weight, hits in zip(rankings, mixture.weights / 3, expected_clicks(rankings, user)):
        for r, document in enumerate(row):
            if document >= 0:
                placed[document, r] += weight
                clicks[document, r] += weight * hits[r]
    assert np.all(shown[:, :, 0].sum(1) == n)
    for counts, p in ((shown, placed), (clicked, clicks)):
        spread = np.sqrt(n * p * (1 - p))
        assert np.all(np.abs(counts.mean(0) - n * p) <= 4.5 * spread / np.sqrt(draws) + 1e-12)
        assert np.all(np.abs(counts.var(0) - spread**2) <= 5 * spread**2 * np.sqrt(3 / draws) + 1e-12)


def test_counts_of_both_kinds_of_simulation_agree() -> None:
    """The same policy as a listed mixture (counts at once) and as Plackett-Luce (impression by impression)."""
    policy = PlackettLuce(np.array([0.0, 1, -1, 0.5, 0.5]), np.array([0, 3, 5]), 2)
    user = position_based([0.9, 0.2, 0.5, 0.3, 0.7], [1, 0.6])
    n = 300_000
    at_once = show_counts(policy.listed(), user, n, seed=1)
    one_by_one = np.zeros((2, 5, 2), np.uint32)
    simulate(policy, user, np.zeros(5), [n], seed=2, tables=(one_by_one[0], one_by_one[1]))
    for a, b in zip(at_once, one_by_one):
        p = (a + b) / (2 * n)
        assert np.all(np.abs(a - b) <= 4.5 * np.sqrt(2 * n * p * (1 - p)) + 1e-9)


def test_pair_knowledge_is_checked() -> None:
    pair = Pair.from_lists(["ab"], ["ba"], k=2)
    with pytest.raises(ValueError, match="theta has 3 ranks, must have k = 2"):
        pair.knowing(theta=[1, 0.5, 0.2])
    with pytest.raises(ValueError, match="1 rows of features for 2 documents"):
        pair.knowing(features=np.ones((1, 3), np.float32))
    with pytest.raises(ValueError, match=r"pair.knowing\(theta=...\)"):
        _ = pair.known_theta


@pytest.mark.parametrize("clip", [0, -1, float("inf")])
def test_clips_without_sense_are_refused(clip: float) -> None:
    with pytest.raises(ValueError, match="must be positive and finite"):
        ips_weights(np.array([0.5, -0.5]), np.ones(2), np.array([0, 2]), clip=clip)


def test_features_must_be_a_table() -> None:
    pair = Pair.from_lists(["ab"], ["ba"], k=2)
    with pytest.raises(ValueError, match="features have 1 dimensions"):
        pair.knowing(features=np.ones(2, np.float32))
