"""Values by a metric: exact expectations over everything that can happen, windows, caps, and what counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from benchmarks.purchases import Purchases

from oracles import click_patterns
from ranktrial.analysis import estimate, fit_position_bias
from ranktrial.analysis.estimators.metric_values import metric_values
from ranktrial.arrays import NO_DOCUMENT
from ranktrial.log import Log, folding
from ranktrial.log.events import LoggedEvents
from ranktrial.methods import LogOpt
from ranktrial.metrics import (
    Abandonment,
    Carts,
    Dwell,
    EventMetric,
    FirstClickRank,
    Metric,
    Orders,
    Reformulation,
    Revenue,
    SessionSuccess,
    TimeToFirstClick,
)
from ranktrial.rankings import Mixture, Pair, PlackettLuce
from ranktrial.users import User, position_based

HOUR = 3_600_000_000
THETA, ZETA = np.array([0.9, 0.5]), np.array([0.3, 0.8, 0.6])
PAIR = Pair.from_lists(["abc"], ["bca"], k=2).knowing(theta=THETA)
VISITORS = position_based(ZETA, THETA)
# What a click on each document brings: (probability, amount, hours until then).
BRINGS = [[(0.4, 10, 1), (0.6, 0, 0)], [(0.3, 70, 2), (0.5, 20, 30), (0.2, 0, 0)], [(1.0, 5, 1)]]
METRICS: list[tuple[Metric, list[float]]] = [  # with the mean value of a click on each document
    (Orders(window="1d"), [0.4, 0.3, 1.0]),
    (Orders(window="7d"), [0.4, 0.8, 1.0]),
    (Revenue(window="7d"), [4.0, 31.0, 5.0]),
    (Revenue(window="7d", cap=15), [4.0, 12.0, 5.0]),
]


class Outcome(NamedTuple):
    row: tuple[int, ...]
    clicks: tuple[bool, ...]
    orders: tuple[tuple[int, float, float], ...]  # rank, amount, hours
    chance: float


def outcomes(mixture: Mixture, user: User = VISITORS) -> Iterator[Outcome]:
    """Every impression that can happen, with its orders and its probability."""
    for row, weight in zip(mixture.rankings, mixture.weights / mixture.n_queries):
        shown = row[row != NO_DOCUMENT]
        for clicks, probability in click_patterns(user, shown):
            clicked = [rank for rank, hit in enumerate(clicks) if hit]
            for brought in itertools.product(*(BRINGS[shown[rank]] for rank in clicked)):
                chance = float(weight * probability * np.prod([one[0] for one in brought]))
                orders = tuple((rank, one[1], one[2]) for rank, one in zip(clicked, brought) if one[1])
                yield Outcome(tuple(row.tolist()), clicks, orders, chance)


def log_of(mixtures: list[Mixture], happened: list[Outcome], *, plain: bool = False, **columns: Any) -> Log:
    versions = range(len(mixtures))
    log = Log.of(PAIR, mixtures, [one.row for one in happened], [one.clicks for one in happened], versions=versions)
    rows = [(at, *order) for at, one in enumerate(happened) for order in one.orders]
    events = LoggedEvents.of(
        [row[0] for row in rows],
        rank=[row[1] for row in rows],
        action=np.zeros(len(rows)),
        amount=[row[2] * 1_000_000 for row in rows],
        delay=[row[3] * HOUR for row in rows],
    )
    return replace(log, events=events, actions=("order",), plain=plain, **columns)


def mean_estimate(happened: Iterable[Outcome], mixture: Mixture, name: str, **options: Any) -> float:
    """Mean over everything that can happen, where ``name`` is that of the policy."""
    return sum(
        one.chance * estimate(log_of([mixture], [one], plain=name != "uniform"), **options).delta for one in happened
    )


def policy(name: str) -> Mixture:
    if name == "uniform":
        return PlackettLuce(np.zeros(3), PAIR.offsets, PAIR.k).listed()
    if name == "A/B":
        return Mixture.of_tables([PAIR.top_a, PAIR.top_b], (0.3, 0.7), 3)
    mixed = np.array([[2, 0], *PAIR.top_a.tolist(), *PAIR.top_b.tolist()], np.int32)
    return Mixture(mixed, np.array([0.4, 0.35, 0.25]), np.array([0, 3]), 3)


def difference(of_click: list[float]) -> float:
    exposed = np.zeros((2, 3))
    for own, top in zip(exposed, (PAIR.top_a[0], PAIR.top_b[0])):
        own[top] = THETA
    return float((exposed[0] - exposed[1]) @ (ZETA * of_click))


@pytest.mark.parametrize(("metric", "of_click"), METRICS, ids=[str(metric) for metric, _ in METRICS])
@pytest.mark.parametrize(
    ("name", "estimator"),
    [
        *itertools.product(["uniform", "A/B", "mixed"], ["ips", "constant", "doubly-robust", "rank-aware"]),
        *itertools.product(["A/B", "mixed"], ["direct", "adjusted"]),
        ("A/B", "paper"),
    ],
)
def test_every_estimate_has_the_difference_in_value_as_its_mean(
    name: str, estimator: str, metric: Metric, of_click: list[float]
) -> None:
    """Every ranking, click and order of an enumerable world; with predictions of relevance and of a click's value, and none."""
    known: list[dict[str, Any]] = [{}]
    if estimator in ("rank-aware", "direct", "doubly-robust"):
        known.append({"prediction": np.array([0.5, 0.2, 0.7]), "worth": np.array([2.0, 9.0, 0.5])})
    if estimator == "adjusted" and name == "mixed":
        pytest.skip("what is not A/B traffic has no A/B estimate: an impression alone may have none")
    mixture = policy(name)
    for options in known:
        mean = mean_estimate(outcomes(mixture), mixture, name, estimator=estimator, metric=metric, **options)
        assert mean == pytest.approx(difference(of_click), abs=1e-12)


# What an examined result brings without a click on it, and with one: (probability, [(amount, hours)]), among them refunds.
Brought = list[list[tuple[float, list[tuple[float, float]]]]]
WITHOUT: Brought = [[(0.5, []), (0.5, [(8, 1)])], [(0.8, []), (0.2, [(40, 30)])], [(1.0, [])]]
WITH: Brought = [
    [(0.4, [(10, 1)]), (0.6, [])],
    [(0.3, [(70, 2), (-70, 5)]), (0.5, [(20, 30), (5, 1)]), (0.2, [])],
    [(0.7, [(5, 1)]), (0.3, [(5, 1), (-9, 2)])],
]


def bought(mixture: Mixture) -> Iterator[Outcome]:
    """Every impression that can happen if examined results are also bought without a click, and some are taken back."""
    for row, weight in zip(mixture.rankings, mixture.weights / mixture.n_queries):
        of_rank = []
        for rank, document in enumerate(row.tolist()):
            seen, clicked = THETA[rank], ZETA[document]
            unclicked = [(seen * (1 - clicked) * p, False, orders) for p, orders in WITHOUT[document]]
            of_click = [(seen * clicked * p, True, orders) for p, orders in WITH[document]]
            of_rank.append([(1 - seen, False, []), *unclicked, *of_click])
        for what in itertools.product(*of_rank):
            orders = tuple((rank, *order) for rank, one in enumerate(what) for order in one[2])
            chance = float(weight * np.prod([one[0] for one in what]))
            yield Outcome(tuple(row.tolist()), tuple(one[1] for one in what), orders, chance)


def worth_of(metric: EventMetric, orders: list[tuple[float, float]]) -> float:
    """Value of a result by hand."""
    counted = [amount for amount, hours in orders if hours * 3600 <= metric.settles_after]
    value = sum(counted) if metric.sums_amounts else float(sum(amount >= 0 for amount in counted))
    return min(value, metric.cap or np.inf)


@pytest.mark.parametrize(
    "metric",
    [Orders(window="1d"), Orders(window="7d", cap=1), Revenue(window="7d"), Revenue(window="1d", cap=9)],
    ids=str,
)
@pytest.mark.parametrize(
    ("name", "estimator"),
    [
        *itertools.product(["uniform", "A/B", "mixed"], ["ips", "rank-aware"]),
        ("mixed", "doubly-robust"),
        *itertools.product(["A/B", "mixed"], ["direct"]),
        ("A/B", "adjusted"),
    ],
)
def test_direct_purchases_and_refunds_count_in_all_estimates_alike(
    name: str, estimator: str, metric: EventMetric
) -> None:
    mixture = policy(name)
    known: list[dict[str, Any]] = [{}]
    if estimator in ("rank-aware", "direct"):
        known.append({"prediction": np.array([0.5, 0.2, 0.7]), "worth": np.array([2.0, 9.0, 0.5])})
    brings = np.array(
        [
            (1 - zeta) * sum(p * worth_of(metric, orders) for p, orders in without)
            + zeta * sum(p * worth_of(metric, orders) for p, orders in of_click)
            for zeta, without, of_click in zip(ZETA, WITHOUT, WITH)
        ]
    )
    for options in known:
        mean = mean_estimate(bought(mixture), mixture, name, estimator=estimator, metric=metric, **options)
        assert mean == pytest.approx(difference((brings / ZETA).tolist()), abs=1e-12)


def test_the_share_bought_without_a_click_is_told() -> None:
    one = next(
        one for one in bought(policy("A/B")) if one.clicks == (True, False) and len(one.orders) == 2 and one.chance > 0
    )
    log = log_of([policy("A/B")], [one], plain=True)
    found = metric_values(log, Revenue(window="7d"))
    amounts = {rank: sum(a for r, a, _ in one.orders if r == rank) for rank in (0, 1)}
    assert found.direct == pytest.approx(amounts[1] / sum(amounts.values()))
    assert found.of_results is not None
    assert found.of_results.rank.tolist() == [1]


@pytest.mark.parametrize("estimator", ["rank-aware", "direct", "adjusted"])
def test_slow_buyers_of_one_ranker_do_not_bend_early_estimates(estimator: str) -> None:
    """B's first result mostly sells after 30 hours, A's after 1. Of two searches only the first counts, 50 hours after it: what
    the second has sold by then would favour A."""
    mixture, metric = policy("A/B"), Orders(window="2d")
    known: dict[str, Any] = {} if estimator == "adjusted" else {"prediction": 0.5, "worth": 0.5}
    mean = early = 0.0
    for one in outcomes(mixture):
        then = one._replace(
            orders=tuple(order for order in one.orders if order[2] <= 25)
        )  # what is known of the second
        log = log_of([mixture, mixture], [one, then], plain=True, time=np.array([0, 25 * HOUR]), read_at=50 * HOUR)
        values = metric_values(log, metric)
        assert (len(values.log), values.waiting) == (1, 1)
        mean += one.chance * estimate(log, estimator=estimator, metric=values, **known).delta
        second = replace(log.take(slice(1, 2)), read_at=None)
        early += one.chance * estimate(second, estimator=estimator, metric=metric, **known).delta
    assert mean == pytest.approx(difference([0.4, 0.8, 1.0]), abs=1e-12)
    assert early == pytest.approx(difference([0.4, 0.3, 1.0]), abs=1e-12)
    assert early > mean


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["rank-aware", "direct", "adjusted"])
def test_means_stay_exact_while_designs_learn_from_clicks_and_orders(estimator: str) -> None:
    """The second policy depends on what the first impression brought; predictions of both kinds are from the past."""
    metric, of_click = METRICS[3]
    first = policy("A/B")
    others = [Mixture.of_tables([PAIR.top_a, PAIR.top_b], (w, 1 - w), 3) for w in (0.5, 0.8, 0.2)]
    mean = 0.0
    for one in outcomes(first):
        second = others[min(sum(one.clicks), 1) + bool(one.orders)]
        for then in outcomes(second):
            log = log_of([first, second], [one, then], plain=True)
            found = estimate(log, estimator=estimator, metric=metric, cross_fit="past", refits=[1])
            mean += one.chance * then.chance * found.delta
    assert mean == pytest.approx(difference(of_click), abs=1e-12)


def test_an_impression_counts_once_its_window_is_over() -> None:
    mixture = policy("A/B")
    happened = [one for one in outcomes(mixture) if one.orders][:3]
    log = log_of([mixture] * 3, happened, time=np.array([0, 10 * HOUR, 40 * HOUR]), read_at=34 * HOUR)
    found = metric_values(log, Orders(window="1d"))
    assert (len(found.log), found.waiting) == (2, 1)
    assert found.log.events.at.max() <= 1
    assert len(metric_values(log, Orders(window="1d", since=9 * 3600.0)).log) == 1
    assert metric_values(log, Orders(window="30d")).waiting == 3
    with pytest.raises(ValueError, match="no search counts for Orders"):
        estimate(log, metric=Orders(window="30d"))
    assert metric_values(replace(log, read_at=None), Orders(window="30d")).log is not None


def world(impressions: int = 4_000, holdback: float = 0.5) -> Log:
    theta = np.array([1.0, 0.6, 0.3])
    pair = Pair.from_lists(["abcd"] * 30, ["dbca"] * 30, k=3).knowing(theta=theta)
    visitors = position_based(np.tile([0.5, 0.3, 0.6, 0.4], 30), theta)
    log = Log.simulated(pair, LogOpt(holdback=holdback).policy(pair), visitors, impressions, seed=3)
    return Purchases(rate=0.3, amount=np.tile([10, 20, 30, 40], 30), spread=0.5, delay=36_000).after(log, seed=4)


def test_metrics_of_a_world_sum_to_what_it_sold() -> None:
    log = world()
    n, k = len(log.events), log.k
    rng = np.random.default_rng(8)
    extra = LoggedEvents.of(  # refunds, direct purchases, and what stands on pages that do not count
        [*log.events.at, *rng.integers(0, len(log), 300)],
        rank=[*log.events.rank, *rng.integers(-1, k + 2, 300)],
        action=[*np.zeros(n), *rng.integers(0, 2, 300)],
        amount=[*log.events.amount, *rng.integers(-30_000_000, 30_000_000, 300)],
        delay=[*log.events.delay, *rng.integers(0, 24 * HOUR, 300)],
    )
    log = replace(log, events=extra, actions=("order", "cart"))
    orders = extra.where(extra.action == 0)
    revenue = metric_values(log, Revenue(window="365d"))
    assert revenue.of_results is not None
    orders, on_page = (of.where((of.rank >= 0) & (of.rank < k)) for of in (orders, extra))  # no others count
    assert revenue.each.sum() == pytest.approx(orders.amount.sum() / 1e6, abs=1e-6)
    counted = metric_values(log, Orders(window="365d"))
    assert counted.each.sum() == (orders.amount >= 0).sum()
    assert counted.each.sum() + metric_values(log, Carts(window="365d")).each.sum() == (on_page.amount >= 0).sum()
    by_click = set(zip(*(column.tolist() for column in log.clicked[:2])))
    sold: dict[tuple[int, int], int] = {}
    for at, rank, amount in zip(orders.at.tolist(), orders.rank.tolist(), orders.amount.tolist()):
        sold[at, rank] = sold.get((at, rank), 0) + amount
    assert revenue.of_results.of_clicks.sum() == pytest.approx(
        sum(v for cell, v in sold.items() if cell in by_click) / 1e6
    )
    without = sum(abs(v) for cell, v in sold.items() if cell not in by_click) / sum(map(abs, sold.values()))
    assert revenue.direct == pytest.approx(without)
    capped = metric_values(log, Revenue(window="365d", cap=25))
    cut = sum(max(v / 1e6 - 25, 0) for v in sold.values())
    assert capped.capped == pytest.approx(cut / (cut + sum(abs(min(v / 1e6, 25)) for v in sold.values())))
    assert capped.each.sum() == pytest.approx(revenue.each.sum() - cut)


@pytest.mark.parametrize("theta", ["known", "estimated"])
@pytest.mark.parametrize("estimator", ["rank-aware", "doubly-robust", "direct", "adjusted"])
def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch, estimator: str, theta: str) -> None:
    log = world(3_000)
    given = fit_position_bias(log) if theta == "estimated" else None
    options: dict[str, Any] = {"estimator": estimator, "theta": given, "cross_fit": "past", "metric": Revenue(cap=60)}
    whole = estimate(log, **options)
    monkeypatch.setattr(folding, "CHUNK", 700)
    parts = estimate(log, **options)
    assert parts.delta == pytest.approx(whole.delta, rel=1e-10)
    assert parts.standard_error == pytest.approx(whole.standard_error, rel=1e-10)


def test_a_jackknife_of_values_is_the_estimate_without_each_group() -> None:
    """The sums at other thetas, which are made for all groups at once, against estimates of the other impressions."""
    log = world(1_200)
    fit = fit_position_bias(log, groups=4)
    prediction, worth = np.full(len(log.documents), 0.4), np.full(len(log.documents), 7.0)
    options: dict[str, Any] = {"metric": Revenue(), "prediction": prediction, "worth": worth}
    found = estimate(log, theta=fit, **options)
    for group, theta in enumerate(fit.without):
        rest = log.take(log.group(4) != group)
        alone = estimate(rest, theta=np.minimum(theta / max(theta.max(), 1.0), 1.0), **options)
        assert found.replicates is not None
        assert found.replicates[group] == pytest.approx(alone.delta, rel=1e-9)


def test_two_part_values_have_less_variance() -> None:
    """Orders with a prediction of a click's value, against orders as if they were clicks: the noise of looks is gone."""
    log = world(20_000)
    split = estimate(log, metric=Orders(window="30d"))
    whole = estimate(log, metric=Orders(window="30d"), prediction=0.3, worth=0.0)
    means = estimate(log, metric=Orders(window="30d"), estimator="means")
    assert split.standard_error < whole.standard_error < means.standard_error


@pytest.mark.parametrize(
    ("metric", "values"),
    [
        (Abandonment(), [0, 1, 0, 1, 1]),
        (FirstClickRank(), [2, 3, 1, 3, 3]),
        (Reformulation(window="5min"), [0, 1, 0, 0, 0]),
        (SessionSuccess(window="5min"), [1, 1, 1, 0, 0]),
        (SessionSuccess(window="2min"), [1, 0, 1, 0, 0]),
        (TimeToFirstClick(limit="1min"), [20, 60, 4, 60, 60]),
    ],
    ids=str,
)
def test_page_metrics(metric: Metric, values: list[float]) -> None:
    """Ann searches for shoes, again, and for boots three minutes later; Bob for boots, and after an hour for shoes."""
    search = {"a": ["x", "y"], "b": ["y", "x"], "shown": ["x", "y"], "arm": "a"}
    shoes, boots = {**search, "query": "shoes"}, {**search, "query": "boots"}
    log = Log.from_records(
        [
            {**shoes, "unit": "ann", "time": 0, "clicked": ["y"]},
            {**shoes, "unit": "ann", "time": 20, "clicked": []},
            {**boots, "unit": "ann", "time": 200, "clicked": ["x", "y"]},
            {**boots, "unit": "bob", "time": 210, "clicked": []},
            {**shoes, "unit": "bob", "time": 3_810, "clicked": []},
        ],
        k=2,
    )
    seconds = [20, 9, 4]
    clicks = LoggedEvents.of(
        [0, 2, 2], rank=[1, 0, 1], action=[0] * 3, amount=[0] * 3, delay=[s * 1_000_000 for s in seconds]
    )
    log = replace(log, events=clicks, actions=("click",))
    assert metric_values(log, metric).each.tolist() == values
    with pytest.raises(ValueError, match="is of the whole page"):
        estimate(log, metric=metric)


def test_page_metrics_are_unbiased_on_ab_traffic() -> None:
    mixture = policy("A/B")

    def value(metric: Metric, clicks: tuple[bool, ...]) -> float:
        return float([*clicks, True].index(True) + 1 if metric == FirstClickRank() else not any(clicks))

    for metric in (Abandonment(), FirstClickRank()):
        means = [
            sum(chance * value(metric, clicks) for clicks, chance in click_patterns(VISITORS, top))
            for top in (PAIR.top_a[0], PAIR.top_b[0])
        ]
        mean = sum(
            one.chance * estimate(log_of([mixture], [one], plain=True), estimator="adjusted", metric=metric).delta
            for one in outcomes(mixture)
        )
        assert mean == pytest.approx(means[0] - means[1], abs=1e-12)


def test_long_visits_count_results_once() -> None:
    log = Log.from_records([{"query": "q", "a": ["x"], "b": ["y"], "shown": ["x"], "clicked": ["x"]}] * 3, k=1)
    seconds = np.array([40, 50, 10, 30])
    visits = LoggedEvents.of([0, 0, 1, 2], rank=[0] * 4, action=[0] * 4, amount=seconds * 1_000_000, delay=[0] * 4)
    assert metric_values(replace(log, events=visits, actions=("dwell",)), Dwell()).each.tolist() == [1, 0, 1]


def test_clicks_are_the_metric_that_needs_nothing() -> None:
    log = world(500)
    assert estimate(log, metric="Clicks()").delta == estimate(log).delta
    assert metric_values(log, Orders()).log is log
