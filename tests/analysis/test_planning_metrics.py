"""Plans by metric: what orders add to the variance of clicks, against simulated orders and by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest
from benchmarks.purchases import Purchases
from scipy import stats

from ranktrial import estimate, plan
from ranktrial.analysis.analyse import analyse
from ranktrial.analysis.planning.metrics import KnownMetric
from ranktrial.analysis.planning.theta_error import squared_weights, squared_weights_by_rank
from ranktrial.analysis.planning.users import ClickRate
from ranktrial.config import TrialConfig
from ranktrial.log import Log
from ranktrial.methods import AB, LogOpt
from ranktrial.metrics import Abandonment, Orders, Revenue
from ranktrial.rankings import Mixture, Pair
from ranktrial.report.making import readings_agree
from ranktrial.users import position_based

THETA = np.array([1.0, 0.6, 0.4, 0.3])
Z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
given = KnownMetric.given


def rankers(queries: int = 30, seed: int = 3, apart: float = 1.2) -> Pair:
    """B's lists are A's with neighbours that have changed places, or documents farther apart."""
    random = np.random.default_rng(seed)
    a = [[10 * query + int(one) for one in random.permutation(8)] for query in range(queries)]
    b = [[one[at] for at in np.argsort(np.arange(8) + random.normal(0, apart, 8))] for one in a]
    return Pair.from_lists(a, b, k=4).knowing(theta=THETA)


PAIR = rankers()
USER = position_based(np.random.default_rng(4).uniform(0.1, 0.6, PAIR.n_documents), THETA)


def test_numbers_that_somebody_knows() -> None:
    orders, revenue = given(Orders(), 0.1), given("Revenue()", 0.1, 40, 30)
    assert (orders.mean, orders.noise, orders.occasions) == pytest.approx((0.1, 9, 0.1))
    assert (revenue.mean, revenue.sd**2) == pytest.approx((4, 0.1 * 2_500 - 16))
    assert given(Abandonment(), 0.3).sd ** 2 == pytest.approx(0.21)
    assert given("FirstClickRank()", 3, 2).sd == 2
    assert given("Clicks()").noise == 0


@pytest.mark.parametrize(
    ("metric", "numbers", "message"),
    [
        ("Orders()", (), "has 0 numbers, must have the share of clicks with a value"),
        ("Orders()", (0.1, 1, 0, 0), "has 4 numbers"),
        ("Orders()", (1.1,), "share of"),
        ("Orders()", (0,), "is 0 on average"),
        ("FirstClickRank()", (3,), "must have its mean, and its standard deviation"),
        ("Abandonment()", (0.2, 0.1, 1), "has 3 numbers"),
    ],
)
def test_numbers_that_cannot_be_are_refused(metric: str, numbers: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        given(metric, *numbers)


def test_numbers_of_a_log() -> None:
    """Values without a click count with those of clicks, and searches whose window is open do not."""
    search = {"query": "q", "a": ["x", "y"], "b": ["y", "x"], "shown": ["x", "y"], "arm": "a"}
    bought = [{"document": "x", "action": "order", "value": 30}, {"document": "y", "action": "order", "value": 10}]
    rows: list[Any] = [
        {**search, "clicked": ["x"], "events": bought},
        {**search, "clicked": ["x", "y"]},
        {**search, "clicked": ["x"]},
    ]
    log = Log.from_records(rows, k=2)
    orders, revenue = (KnownMetric.of_log(log, metric) for metric in (Orders(), "Revenue()"))
    assert (orders.mean, orders.occasions, orders.sd**2) == pytest.approx((0.5, 0.5, 0.25))
    assert (revenue.mean, revenue.sd**2) == pytest.approx((10, 250 - 100))
    assert KnownMetric.of_log(log, "FirstClickRank()").mean == 1
    with pytest.raises(ValueError, match="is 0 on average"):
        KnownMetric.of_log(log, Abandonment())


def test_an_ab_test_by_hand() -> None:
    """Orders after a share of the clicks are clicks of users who click so much less: the same variance, and by page metrics."""
    less = position_based(0.1 * USER.zeta, THETA)
    known = [given("Clicks()"), given(Orders(window="1d"), 0.1), given(Abandonment(), 0.3)]
    found = plan(PAIR, USER, methods=[AB(estimate="adjusted")], metrics=known, delta=0.01, daily=100)
    clicks, orders, left = found.metrics
    assert (clicks.anytime, clicks.ab) == (found.rows[0].anytime, found.rows[0].anytime)
    assert orders.delta == pytest.approx(0.001)
    assert orders.impressions == ceil(Z**2 * AB(estimate="adjusted").moments(PAIR, less).variance / 0.001**2)
    assert orders.ab == orders.anytime > 5 * clicks.anytime
    assert orders.days == pytest.approx(orders.anytime / 100 + 1)
    assert left.impressions == ceil(Z**2 * 4 * 0.21 / (0.3 * 0.01 / found.ctr) ** 2)
    assert left.by_ab_only


@pytest.mark.parametrize(
    "method", [AB(estimate="rank-aware", bias="known"), LogOpt(bias="known", holdback=0.2)], ids=str
)
@pytest.mark.parametrize("metric", [Orders(window="1d"), Revenue(window="1d")], ids=str)
def test_variances_are_those_of_simulated_orders(method: AB | LogOpt, metric: Orders | Revenue) -> None:
    """Within 5 % of 200,000 searches: what the estimate learns of the values of clicks makes no more difference."""
    shop = Purchases(rate=0.05, amount=40.0, spread=0.8)
    design: Mixture = method.policy(PAIR)
    log = shop.after(Log.simulated(PAIR, design, USER, 200_000, seed=5), seed=6)
    log = replace(log, plain=isinstance(method, AB))
    known = KnownMetric.of_log(log, metric)
    predicted = known.mean**2 * (
        (estimate(log, estimator="rank-aware").standard_error ** 2 * len(log))
        + known.noise * squared_weights(design, PAIR, USER)
    )
    measured = estimate(log, estimator="rank-aware", metric=metric).standard_error ** 2 * len(log)
    assert measured == pytest.approx(predicted, rel=0.05)
    assert known.mean == pytest.approx(0.05 if isinstance(metric, Orders) else 2.0, rel=0.05)
    assert known.noise == pytest.approx(19.0 if isinstance(metric, Orders) else np.exp(0.64) / 0.05 - 1, rel=0.1)


def test_weights_by_rank_by_hand() -> None:
    """Pages of x above y, and of y above x, each half of the time: (1 / 0.5)^2 for each of four clicks."""
    pair = Pair.from_lists([["x", "y"]], [["y", "x"]], k=2).knowing(theta=[1, 0.5])
    user = position_based([0.4, 0.2], [1, 0.5])
    by_rank = squared_weights_by_rank(AB().policy(pair), pair, user)
    assert by_rank == pytest.approx(2 * (0.4 + 0.1 + 0.2 + 0.2))
    # lambda is +-0.5, rho 0.75 of both: (2 / 3)^2 of clicks 0.75 (0.4 + 0.2)
    assert squared_weights(AB().policy(pair), pair, user) == pytest.approx(4 / 9 * 0.45)


def test_orders_need_more_than_clicks_and_page_metrics_the_ab_traffic() -> None:
    known = [given("Clicks()"), given("Orders()", 0.1), given("Revenue()", 0.1, 40, 40), given(Abandonment(), 0.3)]
    found = plan(PAIR, ClickRate(0.6), methods=[LogOpt()], metrics=known, delta=0.05)
    clicks, orders, revenue, left = found.metrics
    assert clicks.anytime == found.rows[0].anytime
    assert 3 * clicks.anytime < orders.anytime < revenue.anytime < revenue.ab
    assert left.anytime == pytest.approx(
        left.ab + 500
    )  # half of the traffic is A/B at first, and all after 1,000 searches
    assert [one.settles_after for one in found.metrics] == [0, 604_800, 604_800, 0]
    told = json.loads(json.dumps(found.to_dict()))
    assert told["metrics"][1]["metric"] == 'Orders(window="7d")'
    assert told["metrics"][1]["anytime"] == orders.anytime
    assert any(line.startswith("orders, ") and "7 days until the last" in line for line in found.verdict)
    assert plan(PAIR, ClickRate(0.6), methods=[LogOpt()], delta=0.05).metrics == ()


def test_the_share_of_ab_traffic_goes_by_the_metric_that_decides() -> None:
    """Where clicks agree and orders are too few to tell, it stays; a page metric makes all traffic A/B."""
    found = {}
    pair = rankers(apart=5.0)
    by_a = position_based(0.6 / (1 + pair.ranks[0]), THETA)  # the most relevant first
    log = Log.simulated(pair, LogOpt().policy(pair), by_a, 6_000, seed=7)
    log = Purchases(rate=0.03).after(replace(log, theta=None), seed=8)
    for metric in ("Clicks()", 'Orders(window="1d", role="primary")', 'Abandonment(role="primary")'):
        options = {"method": "LogOpt()", "k": 4, "allowance": 0.0, "metrics": [metric]}
        config = TrialConfig.model_validate(options)
        found[metric.partition("(")[0]] = readings_agree(analyse(log, config, config.first_beliefs))
    assert found == {"Clicks": True, "Orders": None, "Abandonment": False}
