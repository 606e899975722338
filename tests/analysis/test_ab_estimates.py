from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from oracles import click_patterns, fixed_world
from ranktrial.analysis import estimate_ab
from ranktrial.methods import AB
from ranktrial.rankings import Pair
from ranktrial.seeds import generator
from ranktrial.users import User, position_based


def world() -> tuple[Pair, User]:
    pair = Pair.from_lists(["ab", "c"], ["b", "cd"], k=2)
    theta = np.array([0.9, 0.4])
    return pair.knowing(theta=theta), position_based([0.3, 0.8, 0.5, 0.9], theta)


def outcomes(pair: Pair, user: User, split: float) -> list[tuple[int, bool, int, float]]:
    """Query, arm and clicks of one impression, with its probability."""
    chances: dict[tuple[int, bool, int], float] = {}
    for query, (in_a, table, share) in itertools.product(
        range(pair.n_queries), ((True, pair.top_a, split), (False, pair.top_b, 1 - split))
    ):
        shown = [d for d in table[query].tolist() if d >= 0]
        for clicks, probability in click_patterns(user, shown):
            key = (query, in_a, sum(clicks))
            chances[key] = chances.get(key, 0.0) + share * probability / pair.n_queries
    return [(*key, chance) for key, chance in chances.items()]


@pytest.mark.slow
@pytest.mark.parametrize("fit", [{"folds": 2}, {"cross_fit": "past", "refits": [1, 2]}])
@pytest.mark.parametrize(("estimator", "split"), [("paper", 0.3), ("adjusted", 0.5), ("adjusted", 0.3)])
def test_unbiased_exactly(estimator: str, split: float, fit: dict[str, Any]) -> None:
    """Every log of three impressions on two queries."""
    pair, user = world()
    mean = 0.0
    for impressions in itertools.product(outcomes(pair, user, split), repeat=3):
        queries, arms, clicks, chances = zip(*impressions)
        found = estimate_ab(arms, clicks, queries=queries, split=split, estimator=estimator, **fit)
        mean += float(np.prod(chances)) * found.delta
    assert mean == pytest.approx(pair.delta(user), abs=1e-12)


def draw(pair: Pair, user: User, n: int, seed: int) -> tuple[Any, Any, Any]:
    rng = generator(seed)
    queries, in_a = rng.integers(0, pair.n_queries, n), rng.random(n) < 0.5
    shown = np.where(in_a[:, None], pair.top_a[queries], pair.top_b[queries])
    chance = np.where(shown >= 0, user.zeta[shown] * user.slope, 0)
    return queries, in_a, (rng.random(shown.shape) < chance).sum(1)


def test_each_has_less_variance_than_the_one_before_and_means_what_its_moments_say() -> None:
    pair, user = fixed_world(seed=2, n_queries=30)
    n = 20_000
    queries, in_a, clicks = draw(pair, user, n, 1)
    found = [estimate_ab(in_a, clicks, queries=queries, estimator=e) for e in ("paper", "means", "adjusted")]
    for estimate in found:
        assert abs(estimate.delta - pair.delta(user)) < 4.5 * estimate.standard_error
        assert estimate.delta == pytest.approx(estimate.x.mean())
    for estimate, method in zip(found, (AB(estimate="paper"), AB())):
        assert estimate.standard_error**2 * n == pytest.approx(method.moments(pair, user).variance, rel=0.05)
    assert found[1].standard_error < found[0].standard_error
    assert found[2].standard_error < 0.95 * found[1].standard_error


def test_adjusting_by_queries_never_seen_twice_is_the_difference_from_the_arms() -> None:
    """Nothing is known of a query from other impressions, so predictions are the arms' means elsewhere: no harm done."""
    rng = generator(5)
    n = 4000
    in_a, clicks = rng.random(n) < 0.5, rng.poisson(1.0, n)
    adjusted = estimate_ab(in_a, clicks, queries=np.arange(n))
    means = estimate_ab(in_a, clicks, estimator="means")
    assert adjusted.standard_error == pytest.approx(means.standard_error, rel=0.01)
    assert adjusted.delta == pytest.approx(means.delta, abs=0.1 * means.standard_error)


def test_by_hand() -> None:
    single = estimate_ab([True, False, True], [2, 1, 0], split=0.25, estimator="paper")
    np.testing.assert_allclose(single.x, [8, -4 / 3, 0])
    assert single.largest_weight == 4
    assert single.effective_clicks == pytest.approx((8 + 4 / 3) ** 2 / (2 * 16 + 16 / 9))
    means = estimate_ab([True, False, True], [2, 1, 0], estimator="means")
    assert means.delta == 0


@pytest.mark.parametrize(
    ("in_a", "clicks", "options", "message"),
    [
        ([True], [1, 2], {}, "must be one each"),
        ([], [], {}, "at least one"),
        ([True, False], [1, -1], {}, r"clicks\[1\] is -1, must be a number of clicks"),
        ([True, False], [1, 0.5], {}, r"clicks\[1\] is 0.5"),
        ([True, False], [1, 1], {}, "needs the query of each impression"),
        ([True, False], [1, 1], {"queries": [1]}, "must be one for each of 2 impressions"),
        ([True, False], [1, 1], {"split": 1.0, "estimator": "paper"}, "split is 1.0"),
        ([True, True], [1, 1], {"estimator": "means"}, "there is no difference"),
        ([True, True], [1, 1], {"estimator": "other"}, "no estimator 'other'; known: "),
    ],
)
def test_malformed_traffic_is_refused(in_a: Any, clicks: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate_ab(in_a, clicks, **options)
