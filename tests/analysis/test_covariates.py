"""Regression adjustment by covariates: the same mean exactly, less variance, honest intervals, and nothing without them."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from ranktrial.analysis import estimate, fit_position_bias
from ranktrial.analysis.estimators.covariates import adjustment
from ranktrial.covariates import packed, unpacked
from ranktrial.log import Log
from ranktrial.methods import AB
from ranktrial.rankings import Pair
from ranktrial.users import position_based

THETA = np.array([1.0, 0.9, 0.8, 0.7, 0.6])
ZETA = np.array([0.5, 0.4, 0.4, 0.3, 0.3])
PAIR = Pair.from_lists([["v", "w", "x", "y", "z"]], [["z", "v", "w", "x", "y"]], k=5).knowing(theta=THETA)
DELTA = PAIR.delta(position_based(ZETA, THETA))
POLICY = AB().policy(PAIR)
ADJUSTABLE = ("adjusted", "direct", "constant", "doubly-robust", "rank-aware")


def visits(seed: int, n: int = 3000, per_unit: int = 1, signal: bool = True) -> Log:
    """A/B impressions of visitors of whom half click nine times as often, which the covariate says, or says nothing of."""
    rng = np.random.default_rng(seed)
    unit = np.arange(n) // per_unit
    eager = rng.random(unit[-1] + 1) < 0.5
    table = np.array([PAIR.top_a[0], PAIR.top_b[0]])[(rng.random(n) < 0.5).astype(int)]
    chance = np.where(eager, 1.8, 0.2)[unit, None] * ZETA[table] * THETA
    log = Log.of(PAIR, POLICY, table, rng.random((n, 5)) < chance, units=unit)
    told = eager if signal else rng.random(len(eager)) < 0.5
    return replace(
        log,
        plain=True,
        covariates=np.array(3.0 * told + 1, np.float64)[unit, None],
        covariate_names=("clicks_last_month",),
    )


def plain(log: Log) -> Log:
    return replace(log, covariates=np.empty((0, 0)), covariate_names=())


@pytest.mark.parametrize("estimator", ADJUSTABLE)
def test_the_mean_of_a_search_is_the_same_exactly(estimator: str) -> None:
    """Over all that can be shown and clicked, whatever was learnt from the 200 searches before."""
    past, theta = visits(1, 200), THETA[:2]
    pair = Pair.from_lists([["v", "w"]], [["w", "v"]], k=2).knowing(theta=theta)
    policy, tops = AB().policy(pair), np.array([pair.top_a[0], pair.top_b[0]])
    shown = np.argsort(np.argsort(past.row != 0))[:, None] % 2 == 0
    before = np.where(shown, tops[0], tops[1])
    total = np.zeros(2)
    for last, *clicks in product((0, 1), (False, True), (False, True)):
        rankings = np.vstack([before, tops[last]])
        log = Log.of(pair, policy, rankings, np.vstack([past.clicks[:, :2], clicks]))
        log = replace(log, plain=True, covariates=np.append(past.covariates, 4.0)[:, None], covariate_names=("m",))
        chances = np.where(clicks, ZETA[tops[last]] * theta, 1 - ZETA[tops[last]] * theta)
        options: dict[str, Any] = {} if estimator == "adjusted" else {"theta": theta}
        both = [estimate(one, estimator=estimator, cross_fit="past", **options).x[-1] for one in (log, plain(log))]
        assert both[0] != both[1]
        total += 0.5 * chances.prod() * np.array(both)
    assert total == pytest.approx(pair.delta(position_based(ZETA[:2], theta)), abs=1e-12)


def test_the_variance_falls_by_the_share_that_the_covariate_explains() -> None:
    log = visits(2, 8000)
    with_it, without = (estimate(one, estimator="adjusted", cross_fit="past") for one in (log, plain(log)))
    explained = np.corrcoef(log.clicks_each, log.covariates[:, 0])[0, 1] ** 2
    assert explained > 0.6
    left = (with_it.standard_error / without.standard_error) ** 2
    assert left == pytest.approx(1 - explained, abs=0.05)
    for estimator, most in (("direct", 0.9), ("rank-aware", 0.99)):
        both = [estimate(one, estimator=estimator, cross_fit="past") for one in (log, plain(log))]
        assert both[0].standard_error < most * both[1].standard_error
        low, high = both[0].anytime_interval()
        assert high - low < most * (both[1].anytime_interval().high - both[1].anytime_interval().low)


@pytest.mark.parametrize("per_unit", [1, 4])
def test_intervals_hold_and_a_covariate_that_says_nothing_costs_nothing(per_unit: int) -> None:
    level, errors, missed, ever = 0.9, [], 0, 0
    for seed in range(100):
        log = visits(100 + seed, 1200, per_unit)
        found = estimate(log, estimator="adjusted", cross_fit="past")
        low, high = found.confidence_interval(level)
        missed += not low <= DELTA <= high
        band = found.sequence([150, 200, 300], level)
        ever += bool(((band.low > DELTA) | (band.high < DELTA)).any())
        errors.append((found.delta - DELTA) / found.standard_error)
    assert abs(np.mean(errors)) < 0.4  # four standard errors
    assert missed <= 22  # of 100, at a level of 90 %
    assert ever <= 10
    useless = visits(3, 6000, signal=False)
    both = [estimate(one, estimator="adjusted", cross_fit="past").standard_error for one in (useless, plain(useless))]
    assert both[0] == pytest.approx(both[1], rel=0.02)


def test_a_missing_value_is_the_mean_and_the_first_search_of_a_visitor_counts() -> None:
    log = visits(4, 400, per_unit=2)
    x0 = np.ones(400)
    whole = adjustment(log, log.clicks_each.astype(float), x0)
    assert (whole[:100] == 0).all()  # before the first fit
    assert (whole[100:] != 0).all()
    holes = log.covariates.copy()
    holes[300] = np.nan  # first search of its visitor
    holes[303] = 1000.0  # second search of the next
    moved = adjustment(replace(log, covariates=holes), log.clicks_each.astype(float), x0)
    assert (moved[300:302] == 0).all()
    assert (np.delete(moved, [300, 301]) == np.delete(whole, [300, 301])).all()
    nothing = replace(log, covariates=np.full((400, 1), np.nan))
    assert estimate(nothing, estimator="direct").delta == estimate(plain(log), estimator="direct").delta


def test_the_error_of_a_fitted_theta_stays_part_of_the_error() -> None:
    log = visits(5, 3000)
    theta = fit_position_bias(log)
    found, before = (estimate(one, theta=theta, cross_fit="past") for one in (log, plain(log)))
    assert found.replicates is not None
    assert before.replicates is not None
    moved = found.x - before.x
    group = log.group(20)
    expected = [before.replicates[g] + moved[group != g].sum() / (group != g).sum() for g in range(20)]
    np.testing.assert_allclose(found.replicates, expected)
    assert found.clicks_alone < before.clicks_alone
    assert found.standard_error > found.clicks_alone


def test_other_estimators_stay_as_they_are() -> None:
    log = visits(6, 1000)
    for options in ({"estimator": "ips"}, {"clip": 10.0}, {"of": "gain"}, {"known_queries": True}):
        assert estimate(log, **options).delta == estimate(plain(log), **options).delta


def test_revenue_is_adjusted() -> None:
    rng = np.random.default_rng(7)
    records = []
    for i in range(3000):
        rich, a = rng.random() < 0.5, rng.random() < 0.5
        shown = ["x", "y"] if a else ["y", "x"]
        clicked = [one for one, p in zip(shown, (0.6, 0.3)) if rng.random() < p]
        amount = 1.9 if rich else 0.1
        events = [{"document": one, "action": "order", "value": amount} for one in clicked]
        record = {"query": "q", "a": ["x", "y"], "b": ["y", "x"], "shown": shown, "clicked": clicked, "unit": i}
        records.append({**record, "time": i, "events": events, "covariates": {"spent": 100.0 if rich else 0.0}})
    log = Log.from_records(records, k=2)
    assert log.covariate_names == ("spent",)
    for estimator in ("adjusted", "direct", "rank-aware"):
        options: dict[str, Any] = {"estimator": estimator, "metric": "Revenue()", "cross_fit": "past"}
        options |= {} if estimator == "adjusted" else {"theta": [1.0, 0.5]}
        both = [estimate(one, **options) for one in (log, plain(log))]
        assert both[0].standard_error < 0.98 * both[1].standard_error
        assert abs(both[0].delta - both[1].delta) < 2 * both[1].standard_error


def test_records_have_covariates_by_name_in_the_order_of_time() -> None:
    record = {"query": "q", "a": ["x"], "b": ["y"], "shown": ["x"], "clicked": []}
    log = Log.from_records([{**record, "time": 2, "covariates": {"b": 1, "a": None}}, {**record, "time": 1}], k=1)
    assert log.covariate_names == ("b",)
    np.testing.assert_array_equal(log.covariates, [[np.nan], [1.0]])
    np.testing.assert_array_equal(log.last(1).covariates, [[1.0]])
    with pytest.raises(ValueError, match="record 1: covariates are"):
        Log.from_records([{**record, "covariates": {"b": "much"}}], k=1)


def test_what_is_stored_is_read_again_and_what_is_wrong_is_missing() -> None:
    names = ["age", "clicks"]
    stored, problems = packed(names, {"age": float("nan"), "clicks": 2.5, "other": 1})
    assert problems == ("age is not a number", "what is given is not declared")
    np.testing.assert_array_equal(unpacked([stored, b"", None, b"damaged"], 2), [[np.nan, 2.5]] + [[np.nan] * 2] * 3)
    assert packed(names, None) == (b"", ())
    assert packed(names, [1, 2]) == (b"", ("what is given is not declared",))
    assert packed(names, {"age": 10**400, "clicks": True})[0] == b""
