from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ranktrial.arrays import FloatArray
from ranktrial.design.closed_form import closed_form
from ranktrial.inference import ClickLog, asymptotic_radius, estimate_ips
from ranktrial.inference.uncertainty import JackknifeEstimate, from_groups, with_estimated_bias
from ranktrial.position_bias import Auto, Conditional, Counts, NotIdentifiable
from ranktrial.rankings import Mixture, Pair, RequirementError, show_counts
from ranktrial.rankings.values import affine_values
from ranktrial.seeds import children, generator
from ranktrial.users import User, position_based

THETA = np.array([1.0, 0.6, 0.35])


def world(queries: int = 8, seed: int = 0) -> tuple[Pair, User, Mixture]:
    """Queries of five documents, lists of three; the closed form for a theta that is not the users'."""
    rng = np.random.default_rng(seed)
    lists = [[[(q, d) for d in rng.permutation(5)] for q in range(queries)] for _ in range(2)]
    pair = Pair.from_lists(lists[0], lists[1], k=3)
    user = position_based(rng.uniform(0.2, 0.9, pair.n_documents), THETA)
    return pair, user, closed_form(pair, [1, 0.5, 0.25])


def a_log(pair: Pair, user: User, policies: list[Mixture], n: int, seed: int) -> ClickLog:
    rng = generator(seed)
    versions = np.sort(rng.integers(0, len(policies), n))
    rows = []
    for version, query in zip(versions, rng.integers(0, pair.n_queries, n)):
        mixture = policies[version]
        mine = np.arange(mixture.offsets[query], mixture.offsets[query + 1])
        rows.append(mixture.rankings[rng.choice(mine, p=mixture.weights[mine])])
    rankings = np.array(rows)
    return ClickLog.of(rankings, rng.random(rankings.shape) < user.zeta[rankings] * user.slope, versions)


def part_of(log: ClickLog, rows: Any) -> ClickLog:
    return ClickLog.of(log.rankings[rows], log.clicks[rows], log.versions[rows])


def counted(log: ClickLog, pair: Pair, policies: list[Mixture]) -> Counts:
    return Counts.merged(
        Counts.from_impressions(
            log.rankings[log.versions == v],
            log.clicks[log.versions == v],
            n_documents=pair.n_documents,
            offsets=pair.offsets,
            placement=policy.placement(),
        )
        for v, policy in enumerate(policies)
    )


@pytest.mark.parametrize("given", ["shown", "design"])
@pytest.mark.parametrize("users", [None, 50])
def test_replicates_are_refits_of_the_raw_log_without_the_group(given: str, users: int | None) -> None:
    """Theta, and the estimate with it, from the impressions outside each group and nothing else; two policies."""
    pair, user, policy = world()
    policies = [policy, Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), pair.n_documents)]
    log = a_log(pair, user, policies, 600, seed=1)
    units = None if users is None else np.arange(600) % users
    estimator = Conditional(given=given)
    found = with_estimated_bias(log, pair, policies, estimator=estimator, groups=5, units=units)
    group = np.arange(600) % 5 if users is None else (np.arange(600) % users) % 5

    def refitted(rows: Any, theta: FloatArray | None = None) -> float:
        rest = part_of(log, rows)
        theta = estimator.fit(counted(rest, pair, policies)).theta if theta is None else theta
        return estimate_ips(rest, pair.knowing(theta=theta), policies).delta

    whole = estimator.fit(counted(log, pair, policies))
    without = np.array([refitted(group != g) for g in range(5)])
    alone = np.array([refitted(group != g, whole.theta) for g in range(5)])
    assert found.delta == pytest.approx(refitted(slice(None)), abs=1e-10)
    assert found.replicates == pytest.approx(without, abs=1e-10)
    assert found.standard_error == pytest.approx(np.sqrt(4 / 5 * np.sum((without - without.mean()) ** 2)), abs=1e-10)
    assert found.clicks_alone == pytest.approx(np.sqrt(4 / 5 * np.sum((alone - alone.mean()) ** 2)), abs=1e-10)
    assert found.bias.theta == pytest.approx(whole.theta, abs=1e-12)
    assert (found.impressions, found.units, found.bias.degrees_of_freedom) == (600, users or 600, 4)


@pytest.mark.parametrize("rank_aware", [False, True])
def test_a_guess_of_the_relevances_enters_as_in_the_one_formula(rank_aware: bool) -> None:
    pair, user, policy = world()
    log = a_log(pair, user, [policy], 400, seed=2)
    guess = np.random.default_rng(3).uniform(0.1, 0.8, pair.n_documents)
    found = with_estimated_bias(log, pair, [policy], groups=4, zeta_hat=guess, rank_aware=rank_aware)
    theta = found.bias.theta
    values = affine_values(policy, pair.lam(theta), theta, pair.offsets, zeta_hat=guess, rank_aware=rank_aware)
    row_of = {tuple(ranking): i for i, ranking in enumerate(policy.rankings.tolist())}
    x = [
        values.base[row] + values.values[row] @ clicks
        for row, clicks in zip((row_of[tuple(r)] for r in log.rankings.tolist()), log.clicks)
    ]
    assert found.delta == pytest.approx(np.mean(x), abs=1e-12)


def test_auto_chooses_once() -> None:
    pair, user, policy = world()
    log = a_log(pair, user, [policy], 600, seed=4)
    chosen = Auto().fit(counted(log, pair, [policy])).method
    by_name = {repr(e): e for e in (Conditional(), Conditional(given="design"))}
    automatic = with_estimated_bias(log, pair, [policy])
    assert np.array_equal(
        automatic.replicates, with_estimated_bias(log, pair, [policy], estimator=by_name[chosen]).replicates
    )
    assert len(automatic.replicates) == 20


def test_with_theta_known_the_jackknife_tells_the_spread_of_impressions() -> None:
    """Left out one by one, the error of clicks alone is that of the plain estimate at the same theta, exactly."""
    pair, user, policy = world(queries=3)
    log = a_log(pair, user, [policy], 120, seed=5)
    found = with_estimated_bias(log, pair, [policy], groups=120, estimator=Conditional())
    plain = estimate_ips(log, pair.knowing(theta=found.bias.theta), [policy])
    assert found.clicks_alone == pytest.approx(plain.standard_error, rel=1e-9)


def growing(
    pair: Pair, user: User, mixture: Mixture, looks: list[int], seed: np.random.SeedSequence
) -> Iterator[JackknifeEstimate]:
    """One log in 20 groups of equal size, analysed at each look."""
    placement = mixture.placement()
    queries = np.repeat(np.arange(pair.n_queries), np.diff(pair.offsets))
    tables = np.zeros((20, 2, pair.n_documents, pair.k))
    seeds = iter(children(seed, 20 * len(looks)))
    for n, more in zip(looks, np.diff(looks, prepend=0)):
        parts = []
        for group in tables:
            group += show_counts(mixture, user, int(more) // 20, seed=next(seeds))
            expected = placement * np.bincount(queries, group[0, :, 0])[queries, None]
            parts.append([Counts.from_dense(group[0], group[1], offsets=pair.offsets, expected=expected)])
        yield from_groups(parts, pair, [placement], units=n, estimator=Conditional())


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """At a number of impressions fixed beforehand, and the sequence at all looks at once."""
    pair, user, policy = world(queries=4)
    truth, runs = pair.delta(user), 60
    found = [list(growing(pair, user, policy, [1000, 4000], child)) for child in children(6, runs)]
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
    radius = asymptotic_radius([2000], [t / z * found.standard_error * np.sqrt(2000)], tightest_at=500)[0]
    low, high = found.anytime_interval(tightest_at=500)
    assert (low, high) == pytest.approx((found.delta - radius, found.delta + radius))
    assert f"standard error {found.standard_error:.5f}" in str(found)
    assert found.to_dict()["groups"] == 20


def test_a_theta_above_the_first_ranks_is_no_obstacle() -> None:
    """Only ratios are estimated: users who look at rank 2 most."""
    pair, _, policy = world()
    odd = position_based(np.full(pair.n_documents, 0.9), [0.5, 1.0, 0.7])
    log = a_log(pair, odd, [policy], 2000, seed=8)
    found = with_estimated_bias(log, pair, [policy], zeta_hat=0.9, rank_aware=True)
    assert found.bias.theta[1] > 1.5
    assert abs(found.delta - pair.delta(odd)) < 4.5 * found.standard_error


def test_rankers_that_agree_differ_by_nothing_surely() -> None:
    pair, user, policy = world()
    same = Pair(pair.a, pair.a, pair.offsets, pair.k)
    found = with_estimated_bias(a_log(pair, user, [policy], 400, seed=9), same, [policy])
    assert (found.delta, found.standard_error) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("change", "options", "error", "message"),
    [
        ("no clicks", {}, NotIdentifiable, "nothing was clicked at rank 1"),
        ("none", {"units": np.zeros(400, int)}, ValueError, "1 units cannot be divided into 20 groups"),
        ("none", {"groups": 1}, ValueError, "groups is 1"),
        ("none", {"units": [1, 2]}, ValueError, "must be one each"),
        ("one display", {}, NotIdentifiable, "shares no clicked document"),
        ("version", {}, ValueError, "versions 1 to 1, but 1 policies"),
        ("empty", {}, ValueError, "the log is empty"),
        ("rare link", {}, NotIdentifiable, "without one of 20 groups of the log"),
        ("none", {"rank_aware": True}, ValueError, "need a guess"),
    ],
)
def test_what_cannot_be_told_is_refused(
    change: str, options: dict[str, Any], error: type[ValueError], message: str
) -> None:
    pair, user, policy = world()
    log = a_log(pair, user, [policy], 400, seed=10)
    rankings, clicks, versions = log.rankings, log.clicks, log.versions
    if change == "no clicks":
        clicks = np.zeros_like(clicks)
    if change == "one display":
        policy = Mixture.always(pair.top_a, pair.n_documents)
        rankings = pair.top_a[np.arange(400) % pair.n_queries]
    if change == "rare link":  # one impression alone shows a document elsewhere
        policy = Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), pair.n_documents)
        rankings, clicks = pair.top_a[np.arange(400) % pair.n_queries], np.ones_like(clicks)
        different = next(q for q in range(pair.n_queries) if len({*pair.top_a[q], *pair.top_b[q]}) == 3)
        rankings[-1] = pair.top_b[different]
        options = {"estimator": Conditional()}
    if change == "version":
        versions = versions + 1
    if change == "empty":
        rankings, clicks, versions = rankings[:0], clicks[:0], versions[:0]
    with pytest.raises(error, match=message):
        with_estimated_bias(ClickLog.of(rankings, clicks, versions), pair, [policy], **options)


def test_the_requirement_is_checked_by_name() -> None:
    """The link between ranks is there, but a document that B alone shows cannot be seen."""
    pair = Pair.from_lists(["ab"], ["bc"], k=2)
    other = np.array([[0, 1], [1, 0]], np.int32)
    policy = Mixture(other, np.array([0.5, 0.5]), np.array([0, 2]), 3)
    log = ClickLog.of(list(itertools.islice(itertools.cycle(other.tolist()), 80)), np.ones((80, 2), bool))
    with pytest.raises(RequirementError, match="query 0: document 2"):
        with_estimated_bias(log, pair, [policy])
