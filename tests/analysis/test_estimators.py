from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import click_patterns, fixed_world
from ranktrial.analysis import DeltaEstimator, Estimate, estimate, fixed_interval
from ranktrial.analysis.estimators.kinds import ByFormula, OfABTraffic
from ranktrial.arrays import NO_DOCUMENT
from ranktrial.design.closed_form import closed_form
from ranktrial.formats import read_log
from ranktrial.log import Log
from ranktrial.methods import AB
from ranktrial.paper.data import yahoo_like
from ranktrial.position_bias import Examinations, RelevanceFit
from ranktrial.rankings import (
    Mixture,
    Pair,
    PlackettLuce,
    RequirementError,
    affine_values,
    rank_inputs,
    show_counts,
)
from ranktrial.users import User, position_based, rank_decay


def small() -> tuple[Pair, User]:
    pair = Pair.from_lists(["abc"], ["bca"], k=2)
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


Outcome = tuple[list[int], tuple[bool, ...], float]
UNBIASED = ("ips", "constant", "doubly-robust", "rank-aware")
ESTIMATORS = {
    name: kind
    for name, kind in DeltaEstimator.registry.items()
    if kind.__module__.startswith("ranktrial.") and not issubclass(kind, OfABTraffic)
}
OF_THEIR_OWN = [name for name, kind in ESTIMATORS.items() if not issubclass(kind, ByFormula)]


def outcomes(mixture: Mixture, user: User) -> list[Outcome]:
    """Every impression that can happen, queries being equally likely, with its probability."""
    found: list[Outcome] = []
    for row, weight in zip(mixture.rankings, mixture.weights / mixture.n_queries):
        shown = row[row != NO_DOCUMENT]
        for clicks, probability in click_patterns(user, shown):
            padded = clicks + (False,) * (mixture.k - len(shown))
            found.append((row.tolist(), padded, float(weight * probability)))
    return found


def mean_estimate(
    pair: Pair, user: User, policies: list[Mixture], *, units: list[int] | None = None, **options: Any
) -> float:
    """E[estimate] over every log of one impression of each policy."""
    mean = 0.0
    for impressions in itertools.product(*(outcomes(policy, user) for policy in policies)):
        rankings, clicks, chances = zip(*impressions)
        log = Log.of(pair, policies, rankings, clicks, versions=range(len(policies)), units=units)
        mean += float(np.prod(chances)) * estimate(log, **options).delta
    return mean


@pytest.mark.parametrize("name", ["uniform", "A/B", "Plackett-Luce", "mixture"])
@pytest.mark.parametrize("estimator", UNBIASED)
def test_unbiased_exactly_under_any_policy(name: str, estimator: str) -> None:
    """Every ranking and click pattern of an enumerable world, one impression each, weighted by its probability."""
    pair, user = small()
    mean = mean_estimate(pair, user, [explicit(pair, name)], estimator=estimator)
    assert mean == pytest.approx(pair.delta(user), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "fit"),
    [
        ("doubly-robust", {"folds": 3}),
        ("rank-aware", {"folds": 3}),
        ("rank-aware", {"cross_fit": "past", "refits": [1, 2]}),
        ("rank-aware", {"folds": 2, "units": [7, 7, 3]}),
    ],
)
def test_cross_fitted_estimates_are_unbiased_exactly_while_the_policy_changes(
    estimator: str, fit: dict[str, Any]
) -> None:
    """Every log of three impressions by three policies: predictions come from the log, and the mean is still exact."""
    pair, user = small()
    tables = [pair.top_a, pair.top_b]
    policies = [Mixture.of_tables(tables, (w, 1 - w), 3) for w in (0.5, 0.3, 0.8)]
    mean = mean_estimate(pair, user, policies, estimator=estimator, **fit)
    assert mean == pytest.approx(pair.delta(user), abs=1e-12)


@pytest.mark.parametrize("fit", [{"folds": 2}, {"cross_fit": "past", "refits": [1]}])
@pytest.mark.parametrize("known_queries", [False, True])
def test_unbiased_exactly_on_unequal_and_short_lists(fit: dict[str, Any], known_queries: bool) -> None:
    """Lists of unequal length, shorter than k, with documents that one ranker alone has; two queries, two impressions."""
    pair = Pair.from_lists(["ab", "d"], ["c", "de"], k=2)
    theta = np.array([0.9, 0.4])
    pair, user = pair.knowing(theta=theta), position_based([0.3, 0.8, 0.6, 0.5, 0.9], theta)
    policies = [Mixture.of_tables([pair.top_a, pair.top_b], (w, 1 - w), 5) for w in (0.5, 0.3)]
    for estimator in ("constant", "rank-aware"):
        mean = mean_estimate(pair, user, policies, estimator=estimator, known_queries=known_queries, **fit)
        assert mean == pytest.approx(pair.delta(user), abs=1e-12)


@pytest.mark.parametrize(("cross_fit", "exact"), [("past", True), ("folds", False)])
def test_predictions_from_the_past_stay_exact_when_clicks_decide_the_next_policy(cross_fit: str, exact: bool) -> None:
    """The second policy depends on the first impression's clicks: with folds the prediction of the first then knows them."""
    pair, user = small()
    first, others = explicit(pair, "A/B"), (explicit(pair, "mixture"), explicit(pair, "uniform"))
    options = {"refits": [1]} if cross_fit == "past" else {}
    mean = 0.0
    for ranking, clicks, chance in outcomes(first, user):
        second = others[sum(clicks) > 0]
        for then, then_clicks, then_chance in outcomes(second, user):
            log = Log.of(pair, [first, second], [ranking, then], [clicks, then_clicks], versions=[0, 1])
            found = estimate(log, cross_fit=cross_fit, **options)  # type: ignore[arg-type]
            mean += chance * then_chance * found.delta
    assert (abs(mean - pair.delta(user)) < 1e-12) == exact


@pytest.mark.parametrize(("units", "exact"), [([7, 7], True), (None, False)])
def test_a_user_who_is_shown_the_same_again_is_valued_with_one_prediction(units: list[int] | None, exact: bool) -> None:
    """The ranking is drawn once for both impressions: a prediction that has seen the first knows the second's ranking."""
    pair, user = small()
    mixture = explicit(pair, "mixture")
    mean = 0.0
    for ranking, clicks, chance in outcomes(mixture, user):
        for again, then_clicks, then_chance in outcomes(mixture, user):
            if again == ranking:
                weight = mixture.weights[mixture.rankings.tolist().index(ranking)]
                log = Log.of(pair, mixture, [ranking, again], [clicks, then_clicks], units=units)
                found = estimate(log, cross_fit="past", refits=[1])
                mean += chance * then_chance / weight * found.delta
    assert (abs(mean - pair.delta(user)) < 1e-12) == exact


@pytest.mark.parametrize("estimator", ["self-normalised", "observed"])
def test_ratio_estimates_are_biased_with_few_impressions(estimator: str) -> None:
    pair, user = small()
    bias = mean_estimate(pair, user, [explicit(pair, "mixture")], estimator=estimator) - pair.delta(user)
    assert abs(bias) > 0.01


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimate_tends_to_delta(estimator: str) -> None:
    pair, user = fixed_world(seed=4, k=2, n_queries=3)
    mixture = PlackettLuce(np.zeros(pair.n_documents), pair.offsets, 2).listed()
    found = estimate(Log.simulated(pair, mixture, user, 20_000, seed=1), estimator=estimator)
    assert abs(found.delta - pair.delta(user)) < 4.5 * found.standard_error


def test_no_two_estimators_by_the_formula_are_the_same() -> None:
    """An estimator that is named, and has nothing of its own, would be the paper's."""
    pair, user = fixed_world(seed=4, k=2, n_queries=3)
    mixture = PlackettLuce(np.zeros(pair.n_documents), pair.offsets, 2).listed()
    log = Log.simulated(pair, mixture, user, 400, seed=1)
    x = {name: estimate(log, estimator=name).x for name in ESTIMATORS if name not in OF_THEIR_OWN}
    alike = [(one, other) for one, other in itertools.combinations(x, 2) if np.allclose(x[one], x[other])]
    assert alike == []


@pytest.mark.parametrize("estimator", OF_THEIR_OWN)
def test_estimators_with_values_of_their_own_follow_the_options_of_a_log(estimator: str) -> None:
    pair, user = small()
    log = Log.simulated(pair, explicit(pair, "uniform"), user, 400, seed=1, units=np.arange(400) // 4)
    assert (
        estimate(log, estimator=estimator).units
        == estimate(log, estimator=estimator, independent="cohorts").units
        == 100
    )
    assert estimate(log, estimator=estimator, independent="impressions").units == 400
    only = Log.of(
        pair, Mixture(np.array([[0, 1]], np.int32), np.ones(1), np.array([0, 1]), 3), [[0, 1]], [[True, False]]
    )
    with pytest.raises(RequirementError, match="could never be seen"):
        estimate(only, estimator=estimator)
    assert estimate(only, estimator=estimator, uncovered="leave out").impressions == 1


def test_fitted_predictions_approach_the_true_ones_on_a_yahoo_like_set() -> None:
    """Exact variances of the closed form, predictions from another log: no worse than one constant at 1 impression a query."""
    data, theta = yahoo_like(400, seed=3), rank_decay(5)
    rank = data.features @ np.random.default_rng(1).normal(size=(data.features.shape[1], 2)) / 5 + data.labels[:, None]
    pair = Pair.from_scores(rank[:, 0], rank[:, 1], data.offsets, 5).knowing(theta=theta)
    user = position_based(data.zeta(), theta)
    mixture = closed_form(pair, theta)

    def variance(prediction: Any) -> float:
        rank_aware = prediction is not None
        affine = affine_values(
            mixture, pair.lam(theta), theta, pair.offsets, zeta_hat=prediction, rank_aware=rank_aware
        )
        return mixture.moments(affine.values, user, affine.base).variance

    best = variance(user.zeta)
    for per_query, least_gain in ((1, 0.0), (10, 0.25), (100, 0.75)):
        gains = []
        for seed in range(4):
            seen = Examinations.from_counts(*show_counts(mixture, user, 400 * per_query, seed=seed), theta)
            constant, fitted = (
                variance(seen.mean),
                variance(RelevanceFit.of(seen, pair.offsets, rank_inputs(*pair.ranks)).prediction),
            )
            assert constant < 0.95 * variance(None)
            gains.append((constant - fitted) / (constant - best))
        assert least_gain <= np.mean(gains) < 1


def test_self_normalised_by_hand() -> None:
    """Per sign of lambda: clicks' weights over examinations' weights, times the mean of sum lambda."""
    pair, _ = small()
    log = Log.of(pair, explicit(pair, "A/B"), [[0, 1], [1, 2], [1, 2]], [[True, True], [False, True], [False, False]])
    # weights 2 (document 0), -4/7, -2; theta = .9, .5
    up = 2 / (2 * 0.9)
    down = (4 / 7 + 2) / (4 / 7 * (0.5 + 2 * 0.9) + 2 * 2 * 0.5)
    found = estimate(log, estimator="self-normalised")
    assert found.delta == pytest.approx(0.9 * up - 0.9 * down)


def test_better_predictions_give_smaller_standard_errors_on_one_log() -> None:
    pair, user = fixed_world(seed=1, k=3, n_queries=8)
    mixture = PlackettLuce(np.zeros(pair.n_documents), pair.offsets, 3).listed()
    log = Log.simulated(pair, mixture, user, 5000, seed=3)
    errors = [estimate(log, estimator=e).standard_error for e in UNBIASED]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.95 * errors[0]
    known = estimate(log, known_queries=True)
    assert known.standard_error < errors[-1]


def test_the_standard_error_is_over_units() -> None:
    """Every impression twice, by the same user: half the information."""
    pair, user = small()
    log = Log.simulated(pair, explicit(pair, "mixture"), user, 300, seed=1)
    twice = log.take(np.repeat(np.arange(300), 2))
    once, paired = estimate(log, estimator="ips"), estimate(twice, estimator="ips")
    alone = estimate(twice, estimator="ips", independent="impressions")
    assert alone.standard_error < 0.8 * paired.standard_error
    assert paired.delta == pytest.approx(once.delta)
    assert paired.standard_error == pytest.approx(once.standard_error)


def test_the_confidence_interval_is_the_fixed_interval_of_its_units() -> None:
    pair, user = small()
    users = np.arange(12) // 3
    found = estimate(Log.simulated(pair, explicit(pair, "mixture"), user, 12, seed=1, units=users))
    assert found.units == 4
    assert found.confidence_interval(0.9) == fixed_interval(found.x, 0.9, units=users)


def test_without_a_spread_there_is_no_interval() -> None:
    pair, _ = small()
    for n in (1, 3):
        log = Log.of(pair, explicit(pair, "A/B"), [[0, 1]] * n, [[False, False]] * n)
        found = estimate(log, estimator="ips")
        assert "no interval yet" in str(found)
        with pytest.raises(ValueError, match="interval"):
            found.confidence_interval()


def test_clipping_bounds_the_bias_of_every_estimate() -> None:
    pair, user = small()
    policy = explicit(pair, "mixture")
    for estimator in UNBIASED:
        log = Log.of(pair, policy, [[0, 1]], [[True, False]])
        bound = estimate(log, estimator=estimator, clip=0.6).bias_bound
        mean = mean_estimate(pair, user, [policy], estimator=estimator, clip=0.6)
        assert 0 < abs(mean - pair.delta(user)) <= bound
        assert estimate(log, estimator=estimator, clip=0.6).largest_weight == 0.6


def test_an_estimate_prints_and_exports_without_its_values() -> None:
    pair, user = small()
    found = estimate(Log.simulated(pair, explicit(pair, "A/B"), user, 50, seed=2))
    assert isinstance(found, Estimate)
    assert "x" not in found.to_dict()
    assert found.delta == pytest.approx(found.x.mean())
    assert str(found).startswith("delta ")
    assert "array" not in repr(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "magic"}, "no estimator 'magic'; known: ips"),
        ({"cross_fit": "future"}, "cross_fit is 'future'"),
        ({"folds": 1}, "folds is 1"),
        ({"refits": [1]}, 'refits belong to cross_fit="past"'),
        ({"independent": "users"}, "independent is 'users'"),
        ({"theta": "known"}, "theta is 'known'"),
        ({"theta": [1.0]}, "theta has 1 ranks, the log k = 2"),
        ({"estimator": "ips", "prediction": 0.3}, "prediction belongs to"),
        ({"prediction": [0.3]}, "zeta_hat has 1 numbers for 3 documents"),
        ({"estimator": "adjusted"}, "needs A/B traffic"),
    ],
)
def test_options_without_sense_are_refused(options: dict[str, Any], message: str) -> None:
    pair, _ = small()
    with pytest.raises(ValueError, match=message):
        estimate(Log.of(pair, explicit(pair, "A/B"), [[0, 1]], [[True, False]]), **options)


@pytest.mark.slow
def test_the_standard_error_is_that_of_many_logs() -> None:
    pair, user = fixed_world(seed=1, k=2, n_queries=3)
    mixture = PlackettLuce(np.zeros(pair.n_documents), pair.offsets, 2).listed()
    logs = [Log.simulated(pair, mixture, user, 300, seed=s) for s in range(300)]
    estimates = [estimate(log, estimator="ips") for log in logs]
    deltas = np.array([e.delta for e in estimates])
    claimed = np.mean([e.standard_error for e in estimates])
    assert deltas.std() == pytest.approx(claimed, rel=4.5 / np.sqrt(600))
    assert abs(deltas.mean() - pair.delta(user)) < 4.5 * claimed / np.sqrt(300)
    inside = [e.confidence_interval()[0] < pair.delta(user) < e.confidence_interval()[1] for e in estimates]
    assert 0.9 < np.mean(inside) < 0.99


def test_diagnostics_by_hand() -> None:
    pair, _ = small()
    log = Log.of(pair, explicit(pair, "A/B"), [[0, 1], [1, 2], [1, 2]], [[True, True], [False, True], [False, False]])
    # lambda = .9, .5 - .9, -.5; rho = .45, .7, .25: weights 2, -4/7, -2
    ips = estimate(log, estimator="ips")
    assert ips.delta == pytest.approx((2 - 4 / 7 - 2) / 3)
    np.testing.assert_allclose(ips.x, [2 - 4 / 7, -2, 0])
    assert ips.effective_clicks == pytest.approx((4 + 4 / 7) ** 2 / (8 + 16 / 49))
    assert ips.largest_weight == pytest.approx(2)
    clipped = estimate(log, estimator="ips", clip=1.0)
    assert clipped.delta == pytest.approx((1 - 4 / 7 - 1) / 3)
    assert clipped.bias_bound == pytest.approx(0.45 + 0.25)
    low, high = clipped.confidence_interval()
    assert high - low > 2 * clipped.bias_bound


def test_observed_propensities_are_the_authors_formula() -> None:
    pair, _ = small()
    log = Log.of(pair, explicit(pair, "A/B"), [[0, 1], [1, 2], [1, 2]], [[True, True], [False, True], [False, False]])
    examined = np.array([0.9, 0.5 + 0.9 * 2, 0.5 * 2])
    lam = np.array([0.9, -0.4, -0.5])
    observed = estimate(log, estimator="observed")
    assert observed.delta == pytest.approx((lam * np.array([1, 1, 1]) / examined).sum())
    assert observed.largest_weight == pytest.approx(np.abs(3 * lam / examined).max())


def test_the_requirement_is_checked_by_name() -> None:
    pair, _ = small()
    only_a = Mixture.of_tables([pair.top_a], [1.0], 3)
    log = Log.of(pair, only_a, [[0, 1]], [[True, False]])
    with pytest.raises(RequirementError, match="query 0: document c is at rank none in A's list and 2 in B's"):
        estimate(log)
    left_out = estimate(log, uncovered="leave out")
    assert left_out.uncovered.tolist() == [2]


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
        ([[0, 1], [2, 0]], [[False, False]] * 2, None, "impression 1 shows .2, 0., which its policy never shows"),
    ],
)
def test_malformed_logs_are_refused(
    rankings: list[list[int]], clicks: list[list[bool]], versions: list[int] | None, message: str
) -> None:
    pair, _ = small()
    with pytest.raises(ValueError, match=message):
        Log.of(pair, explicit(pair, "A/B"), rankings, clicks, versions=versions)


def test_a_log_that_mixes_queries_is_refused() -> None:
    pair = Pair.from_lists(["ab", "cd"], ["ba", "dc"], k=2)
    pair = pair.knowing(theta=[1, 0.5])
    policy = Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), 4)
    with pytest.raises(ValueError, match="impression 1 of query 0 shows document 3 of another query"):
        Log.of(pair, policy, [[0, 1], [0, 3]], [[True, False]] * 2)


def test_a_policy_of_another_shape_is_refused() -> None:
    pair, _ = small()
    shown = ([[0, 1]], [[True, False]])
    with pytest.raises(ValueError, match="policy 0 shows 1 of 3 documents, the pair 2 of 3"):
        Log.of(pair, PlackettLuce(np.zeros(3), pair.offsets, 1), *shown)
    with pytest.raises(ValueError, match="divides the documents among queries otherwise"):
        Log.of(pair, PlackettLuce(np.zeros(3), np.array([0, 1, 3]), 2), *shown)
    with pytest.raises(
        TypeError, match=r"policy 0 is AB\(\), must be a Mixture or a PlackettLuce.*AB\(\).policy\(pair\)"
    ):
        Log.of(pair, AB(), *shown)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="log is AB, must be a Log"):
        estimate(AB())


@pytest.mark.parametrize("estimator", ["observed", "self-normalised"])
def test_ratio_estimates_cannot_be_clipped(estimator: str) -> None:
    pair, _ = small()
    with pytest.raises(ValueError, match="has no option 'clip'; options: none"):
        estimate(Log.of(pair, explicit(pair, "A/B"), [[0, 1]], [[True, False]]), clip=1, estimator=estimator)


def test_the_clipping_bound_follows_the_logs_own_queries_and_versions() -> None:
    """All impressions of one query, by two policies: the bound is that query's, weighted by version."""
    pair = Pair.from_lists(["ab", "cc"[:1]], ["ba", "c"], k=2)
    pair = pair.knowing(theta=[1, 0.5])
    even = Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), 3)
    uneven = Mixture.of_tables([pair.top_a, pair.top_b], (0.9, 0.1), 3)
    log = Log.of(pair, [even, uneven], [[0, 1]] * 4, [[True, False]] * 4, versions=[0, 0, 0, 1])
    # lambda = .5, -.5; rho = .75, .75 and .95, .55; clip .5 loses .125 twice, and .025 + .225
    clipped = estimate(log, estimator="ips", clip=0.5)
    assert clipped.bias_bound == pytest.approx(0.75 * 0.25 + 0.25 * 0.25)
    assert estimate(log, estimator="ips").largest_weight == pytest.approx(0.5 / 0.55)


@given(st.permutations(range(6)))
def test_the_order_of_impressions_does_not_matter(order: list[int]) -> None:
    pair, user = small()
    log = Log.simulated(pair, explicit(pair, "mixture"), user, 6, seed=3)
    shuffled = log.take(np.array(order))
    assert estimate(shuffled, estimator="ips").delta == pytest.approx(estimate(log, estimator="ips").delta)


def test_a_policy_that_cannot_be_listed_is_valued_by_its_placement() -> None:
    """The same impressions, shown by a policy as it is and by the mixture of all its rankings: every estimate agrees."""
    pair, user = fixed_world(seed=6, k=2, n_queries=3)
    policy = PlackettLuce(np.linspace(-1, 1, pair.n_documents), pair.offsets, 2)
    listed = Log.simulated(pair, policy.listed(), user, 400, seed=1)
    documents = np.append(listed.document, NO_DOCUMENT)
    shown = documents[listed.rankings[listed.row]]
    unlisted = Log.of(pair, policy, shown, listed.clicks)
    np.testing.assert_allclose(
        unlisted.exposure(pair.known_theta)[unlisted.clicked[2]], listed.exposure(pair.known_theta)[listed.clicked[2]]
    )
    for estimator in ESTIMATORS:
        np.testing.assert_allclose(
            estimate(unlisted, estimator=estimator).x, estimate(listed, estimator=estimator).x, atol=1e-9
        )


def test_a_log_of_an_ab_test_is_read_from_records(tmp_path: Path) -> None:
    """Both lists for every search are enough: the click model's estimate and the plain one from the same log."""
    pair, user = fixed_world(seed=2, k=2, n_queries=4)
    policy = AB(split=0.3).policy(pair)
    log = Log.simulated(pair, policy, user, 300, seed=5)
    assert log.plain
    names = [str(d) for d in range(pair.n_documents)]
    file = tmp_path / "log.jsonl"
    with file.open("w") as out:
        for i in range(300):
            query = int(log.query[log.design[i]])
            lists = {
                name: [names[d] for d in table[query] if d >= 0]
                for name, table in (("a", pair.top_a), ("b", pair.top_b))
            }
            arm = "a" if log.arm[i] > 0 else "b"
            clicked = [d for d, hit in zip(lists[arm], log.clicks[i]) if hit]
            record = {"query": f"q{query}", **lists, "shown": lists[arm], "clicked": clicked, "arm": arm, "split": 0.3}
            out.write(json.dumps(record) + "\n")
    read = read_log(file, k=2)
    theta = pair.known_theta
    for estimator in ("ips", "constant", "rank-aware", "paper", "means", "adjusted"):
        # Ranks beyond the page are not in the file, so predictions from list positions would differ.
        options: dict[str, Any] = {"prediction": 0.3} if estimator == "rank-aware" else {}
        found, expected = (estimate(each, theta=theta, estimator=estimator, **options) for each in (read, log))
        np.testing.assert_allclose(found.x, expected.x, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": "xy"}, "record 1: a is 'xy', must be a list of ids"),
        ({"shown": ["z"]}, "record 1: shown is .'z'., which is none of the rankings"),
        ({"clicked": ["q"]}, "record 1: clicked 'q' is not among the 2 results shown"),
        ({"b": ["x", "y"]}, "both lists are the same: arm must say"),
        ({"arm": "b"}, "arm is 'b', but shown is not that ranker's list"),
        ({"arm": "c"}, "arm is 'c', must be one of"),
        ({"split": 1.5}, "split is 1.5"),
        ({"rankings": [(["x", "y"], 0.5)]}, "sum to 0.5, not to 1"),
        ({"a": None}, "a is None"),
        ({"query": None}, "record 1: query is None, must be text"),
        ({"query": float("nan")}, "record 1: query is nan, must be text"),
        ({"a": ["x", None]}, "record 1: a's 2nd id is None, must be text or a whole number"),
        ({"clicks": ["y"]}, "record 1: the key 'clicks' is not known; keys are query, a, b, shown, clicked, "),
        ({"unit": None}, "record 1: unit is None, must be text or a whole number"),
        ({"unit": float("nan")}, "record 1: unit is nan, must be text or a whole number"),
        ({"time": -1.0}, "record 1: time is -1.0, must be at least 0"),
        ({"time": float("nan")}, "record 1: time is nan, must be seconds since 1970"),
        ({"time": None}, "record 1: time is None, must be seconds since 1970"),
    ],
)
def test_records_without_sense_are_refused(change: dict[str, Any], message: str) -> None:
    record = {"query": "q", "a": ["x", "y"], "b": ["y", "x"], "shown": ["x", "y"], "clicked": ["y"]}
    with pytest.raises(ValueError, match=message):
        Log.from_records([{**record, **change}], k=2)


def test_records_may_hold_numpys_numbers_and_texts() -> None:
    record = {"query": "q", "a": np.array(["x", "y"]), "b": ["y", "x"], "shown": np.array(["x", "y"]), "clicked": []}
    more = [
        {**record, "unit": unit, "time": np.int64(at)} for at, unit in enumerate((np.int64(7), "7", np.str_("u"), 0))
    ]
    log = Log.from_records(more, k=2)
    assert log.unit.tolist() == [0, 0, 1, 2]
    assert Log.from_records([record, {**record, "unit": 0}, record], k=2).unit.tolist() == [
        0,
        1,
        2,
    ]  # not the record's number


def test_a_record_says_what_could_have_been_shown() -> None:
    even = [(["x", "z"], 0.25), (["y", "z"], 0.75)]
    log = Log.from_records(
        [{"query": "q", "a": ["x"], "b": ["y"], "shown": ["y", "z"], "clicked": ["y"], "rankings": even}], k=2
    )
    assert not log.plain
    ips = estimate(log, theta=[1.0, 0.5], estimator="ips")
    assert ips.delta == pytest.approx(-1 / 0.75)
    with pytest.raises(ValueError, match="the log is empty"):
        Log.from_records([], k=2)
    with pytest.raises(ValueError, match="record 1: there is no 'a'"):
        Log.from_records([{"query": "q"}], k=2)
