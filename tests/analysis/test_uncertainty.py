from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ranktrial.analysis import Estimate, asymptotic_radius, estimate, fit_position_bias
from ranktrial.arrays import FloatArray
from ranktrial.design.closed_form import closed_form
from ranktrial.log import Log
from ranktrial.position_bias import Auto, Conditional, NotIdentifiable
from ranktrial.rankings import Mixture, Pair, RequirementError
from ranktrial.rankings.values import affine_values
from ranktrial.seeds import children
from ranktrial.users import User, position_based

THETA = np.array([1.0, 0.6, 0.35])


def world(queries: int = 8, seed: int = 0) -> tuple[Pair, User, Mixture]:
    """Queries of five documents, lists of three; the closed form for a theta that is not the users'."""
    rng = np.random.default_rng(seed)
    lists = [[[(q, d) for d in rng.permutation(5)] for q in range(queries)] for _ in range(2)]
    pair = Pair.from_lists(lists[0], lists[1], k=3)
    user = position_based(rng.uniform(0.2, 0.9, pair.n_documents), THETA)
    return pair, user, closed_form(pair, [1, 0.5, 0.25])


def a_log(pair: Pair, user: User, policies: list[Mixture], n: int, seed: int, units: Any = None) -> Log:
    sizes = [n // len(policies)] * len(policies)
    return Log.simulated(pair, policies, user, sizes, seed=seed, units=units)


def estimated(log: Log, *, bias: Any = None, groups: int = 20, **options: Any) -> Estimate:
    fit = fit_position_bias(log, estimator=bias, groups=groups)
    return estimate(log, theta=fit, **{"estimator": "ips", **options})


@pytest.mark.parametrize("given", ["shown", "design"])
@pytest.mark.parametrize("users", [None, 50])
def test_replicates_are_refits_of_the_raw_log_without_the_group(given: str, users: int | None) -> None:
    """Theta, and the estimate with it, from the impressions outside each group and nothing else; two policies."""
    pair, user, policy = world()
    policies = [policy, Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), pair.n_documents)]
    units = None if users is None else np.arange(600) % users
    log = a_log(pair, user, policies, 600, seed=1, units=units)
    estimator = Conditional(given=given)
    found = estimated(log, bias=estimator, groups=5)
    group = np.arange(600) % 5 if users is None else (np.arange(600) % users) % 5

    def refitted(rows: Any, theta: FloatArray | None = None) -> float:
        rest = log.take(rows)
        theta = estimator.fit(rest.parts(1, clicked_only=False)[0]).theta if theta is None else theta
        return estimate(rest, theta=theta, estimator="ips").delta

    whole = estimator.fit(log.parts(1, clicked_only=False)[0])
    without = np.array([refitted(group != g) for g in range(5)])
    alone = np.array([refitted(group != g, whole.theta) for g in range(5)])
    assert found.delta == pytest.approx(refitted(slice(None)), abs=1e-10)
    assert found.replicates is not None
    assert found.bias is not None
    assert found.replicates == pytest.approx(without, abs=1e-10)
    assert found.standard_error == pytest.approx(np.sqrt(4 / 5 * np.sum((without - without.mean()) ** 2)), abs=1e-10)
    assert found.clicks_alone == pytest.approx(np.sqrt(4 / 5 * np.sum((alone - alone.mean()) ** 2)), abs=1e-10)
    assert found.bias.theta == pytest.approx(whole.theta, abs=1e-12)
    assert (found.impressions, found.units, found.bias.degrees_of_freedom) == (600, users or 600, 4)


@pytest.mark.parametrize("rank_aware", [False, True])
def test_a_prediction_of_the_relevances_enters_as_in_the_one_formula(rank_aware: bool) -> None:
    pair, user, policy = world()
    log = a_log(pair, user, [policy], 400, seed=2)
    prediction = np.random.default_rng(3).uniform(0.1, 0.8, pair.n_documents)
    found = estimated(log, groups=4, prediction=prediction, estimator="rank-aware" if rank_aware else "doubly-robust")
    assert found.theta is not None
    theta = found.theta
    values = affine_values(policy, pair.lam(theta), theta, pair.offsets, zeta_hat=prediction, rank_aware=rank_aware)
    x = [values.base[row] + values.values[row] @ clicks for row, clicks in zip(log.row, log.clicks)]
    assert found.delta == pytest.approx(np.mean(x), abs=1e-12)


def test_auto_chooses_once() -> None:
    pair, user, policy = world()
    log = a_log(pair, user, [policy], 600, seed=4)
    chosen = Auto().fit(log.parts(1, clicked_only=False)[0]).method
    by_name = {repr(e): e for e in (Conditional(), Conditional(given="design"))}
    automatic, by_hand = fit_position_bias(log), fit_position_bias(log, estimator=by_name[chosen])
    assert np.array_equal(automatic.without, by_hand.without)
    assert len(automatic.without) == 20


def test_with_theta_known_the_jackknife_tells_the_spread_of_impressions() -> None:
    """Left out one by one, the error of clicks alone is that of the plain estimate at the same theta, exactly."""
    pair, user, policy = world(queries=3)
    log = a_log(pair, user, [policy], 120, seed=5)
    found = estimated(log, groups=120, bias=Conditional())
    plain = estimate(log, theta=found.theta, estimator="ips")
    assert found.clicks_alone == pytest.approx(plain.standard_error, rel=1e-9)


def growing(pair: Pair, user: User, mixture: Mixture, looks: list[int], seed: np.random.SeedSequence) -> list[Estimate]:
    """One log, analysed at each look."""
    log = Log.simulated(pair, mixture, user, looks[-1], seed=seed)
    return [estimated(log.take(np.arange(n)), bias=Conditional()) for n in looks]


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """At a number of impressions fixed beforehand, and the sequence at all looks at once."""
    pair, user, policy = world(queries=4)
    truth, runs = pair.delta(user), 60
    found = [growing(pair, user, policy, [1000, 4000], child) for child in children(6, runs)]
    deltas = np.array([looks[0].delta for looks in found])
    assert abs(deltas.mean() - truth) < 4.5 * deltas.std() / np.sqrt(runs)
    claimed = np.sqrt(np.mean([looks[0].standard_error ** 2 for looks in found]))
    assert deltas.std() == pytest.approx(claimed, rel=4.5 / np.sqrt(2 * runs))
    inside = np.mean([low < truth < high for low, high in (looks[0].confidence_interval() for looks in found)])
    assert abs(inside - 0.95) < 4.5 * np.sqrt(0.95 * 0.05 / runs)
    ends = np.array([[estimate.anytime_interval(tightest_at=2000) for estimate in looks] for looks in found])
    missed = np.mean(np.any((ends[:, :, 0] > truth) | (ends[:, :, 1] < truth), axis=1))
    assert missed <= 0.05


def test_both_intervals_by_hand() -> None:
    pair, user, policy = world()
    [found] = growing(pair, user, policy, [2000], np.random.SeedSequence(7))
    t, z = stats.t.ppf(0.975, 19), stats.norm.ppf(0.975)
    assert np.ptp(found.confidence_interval()) == pytest.approx(2 * t * found.standard_error)
    wider = max(found.standard_error / found.clicks_alone, 1.0)
    t = stats.t.ppf(0.975, found.freedom)  # of the ratio, known better than either error where both go together
    assert found.freedom > 19
    assert found.inflation() == pytest.approx(wider * t / z)
    spread = found.inflation() * found.sums.standard_error * np.sqrt(2000)
    radius = asymptotic_radius([2000], [spread], tightest_at=500)[0]
    low, high = found.anytime_interval(tightest_at=500)
    assert (low, high) == pytest.approx((found.delta - radius, found.delta + radius))
    assert f"standard error {found.standard_error:.5f}" in str(found)
    assert found.to_dict()["groups"] == 20


def test_a_theta_above_the_first_ranks_is_no_obstacle() -> None:
    """Only ratios are estimated: users who look at rank 2 most."""
    pair, _, policy = world()
    odd = position_based(np.full(pair.n_documents, 0.9), [0.5, 1.0, 0.7])
    log = a_log(pair, odd, [policy], 2000, seed=8)
    found = estimated(log, prediction=0.9, estimator="rank-aware")
    assert found.bias is not None
    assert found.bias.theta[1] > 1.5
    assert abs(found.delta - pair.delta(odd)) < 4.5 * found.standard_error


def test_rankers_that_agree_differ_by_nothing_surely() -> None:
    pair, user, policy = world()
    same = Pair(pair.a, pair.a, pair.offsets, pair.k)
    found = estimated(a_log(same, user, [policy], 400, seed=9))
    assert (found.delta, found.standard_error) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("change", "options", "error", "message"),
    [
        ("no clicks", {}, NotIdentifiable, "nothing was clicked at rank 1"),
        ("one unit", {}, NotIdentifiable, "it takes 20 visitors, there are 1"),
        ("none", {"groups": 1}, ValueError, "groups is 1"),
        ("one display", {}, NotIdentifiable, "no clicked document connects"),
        ("rare link", {"bias": Conditional()}, NotIdentifiable, "without one of 20 groups of the log"),
    ],
)
def test_what_cannot_be_told_is_refused(
    change: str, options: dict[str, Any], error: type[ValueError], message: str
) -> None:
    pair, user, policy = world()
    log = a_log(pair, user, [policy], 400, seed=10)
    clicks = np.ones((400, 3), bool)
    if change == "no clicks":
        log = replace(log, clicks=np.zeros_like(clicks))
    if change == "one unit":
        log = replace(log, unit=np.zeros(400, np.int64))
    if change == "one display":
        log = Log.of(
            pair, Mixture.of_tables([pair.top_a], [1.0], pair.n_documents), pair.top_a[np.arange(400) % 8], clicks
        )
    if change == "rare link":  # one impression alone shows a document elsewhere
        policy = Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), pair.n_documents)
        rankings = pair.top_a[np.arange(400) % pair.n_queries]
        different = next(q for q in range(pair.n_queries) if len({*pair.top_a[q], *pair.top_b[q]}) == 3)
        rankings[-1] = pair.top_b[different]
        log = Log.of(pair, policy, rankings, clicks)
    with pytest.raises(error, match=message):
        estimated(log, **options)


def test_the_requirement_is_checked_by_name() -> None:
    """The link between ranks is there, but a document that B alone shows cannot be seen."""
    pair = Pair.from_lists(["ab"], ["bc"], k=2)
    other = np.array([[0, 1], [1, 0]], np.int32)
    policy = Mixture(other, np.array([0.5, 0.5]), np.array([0, 2]), 3)
    log = Log.of(pair, policy, list(itertools.islice(itertools.cycle(other.tolist()), 80)), np.ones((80, 2), bool))
    with pytest.raises(RequirementError, match="query 0: document c"):
        estimate(log)


def test_theta_is_the_logs_own_if_it_knows_it_and_estimated_if_not() -> None:
    pair, user, policy = world()
    log = a_log(pair, user, [policy], 600, seed=3)
    assert estimate(log).bias is not None
    known = replace(log, theta=THETA)
    assert estimate(known).bias is None
    assert estimate(known, theta="estimated").delta == estimate(log).delta
