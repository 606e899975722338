"""Cost of a price of clicks: time, variance, and the look of a page.

Time: one query at a time (both rankers' lists, as a live trial asks) and in batch, with and without a price, in turns within
one run. Trade-off: impressions against an A/B test (difference in means) and clicks against it, and the pages that visitors
see: how often the document that both rankers put first is shown first, among the first three, and at all; means of six
pairs of rankers on 200 queries each, exact, at given prices and at those of budgets. Relevance is predicted with nothing known
(one number for all documents), from what the two lists say (one regression over all queries, 2,000 impressions in all), and
with 10 impressions of every query.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypedDict

import numpy as np

from benchmarks.logopt import data_sets
from benchmarks.variance import variance
from ranktrial.arrays import FloatArray, offsets_of
from ranktrial.design._closed_form_kernels import least_variance
from ranktrial.design.budget import ClickForecast, price_for
from ranktrial.design.closed_form import NONE_EACH, NOT_KEPT, closed_form, closed_form_query
from ranktrial.methods import AB
from ranktrial.paper.data import Dataset, train_rankers
from ranktrial.position_bias import relevance_prediction
from ranktrial.position_bias.relevance import Examinations
from ranktrial.rankings import Mixture, Pair, rank_inputs, show_counts
from ranktrial.users import User, position_based, rank_decay


class Limits(TypedDict, total=False):
    floor: float
    keep: int
    zeta0: float


PAIRS = 3  # of each kind of rankers
QUERIES = 200
IMPRESSIONS = 2_000
PRICES = (0.0, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
LIMITS: dict[str, Limits] = {
    "no floor": {},
    "floor 0.5": {"floor": 0.5},
    "floor 0.9": {"floor": 0.9},
    "keep 1": {"keep": 1},
    "keep 3": {"keep": 3},
    "no floor, zeta0 0.3": {"zeta0": 0.3},
}
BUDGETS = (0.0, -0.02)
SEARCHES = 1_000
Row = dict[str, object]
Works = dict[str, Callable[[], object]]


def run() -> list[Row]:
    return [*speed(), *(row for dataset in data_sets() for row in trade_off(dataset))]


# --- time -----------------------------------------------------------------------------------------------------------------


def in_turns(works: Works, rounds: int = 9) -> dict[str, float]:
    """Processor seconds of each in its best round; a round does all of them, so that what disturbs one disturbs all."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            start = time.process_time()
            work()
            times[name].append(time.process_time() - start)
    return {name: min(found[1:]) for name, found in times.items()}


def speed() -> list[Row]:
    rows: list[Row] = []
    for k in (10, 5):
        for noise, alike in ((0.3, "alike"), (3.0, "unlike")):
            rows += speed_of_pair(k, noise, alike)
        for matter in (1.0, 0.2):
            rows += speed_of_many(k, matter)
    return rows


def _row(what: str, before: float, after: dict[float, float], unit: float) -> Row:
    row: Row = {"what": what, "no price, us": round(before / unit * 1e6, 1)}
    row |= {f"price {price:g}": f"{seconds / before:.2f} times" for price, seconds in after.items()}
    return row


def speed_of_pair(k: int, noise: float, alike: str) -> list[Row]:
    rng = np.random.default_rng(1)
    n = 20
    quality = rng.normal(size=n * SEARCHES)
    a, b = quality + noise * rng.normal(size=(2, n * SEARCHES))
    pair, theta = Pair.from_scores(a, b, offsets_of([n] * SEARCHES), k), rank_decay(k)
    zeta = 1 / (1 + np.exp(1 - quality))
    lists = [
        (top_a - start, top_b - start, zeta[start : start + n])
        for top_a, top_b, start in zip(pair.top_a, pair.top_b, pair.offsets)
    ]

    def one_by_one(floor: float, price: float) -> None:
        for top_a, top_b, prediction in lists:
            closed_form_query(top_a, top_b, theta, zeta=prediction if price else None, floor=floor, price=price)

    rows = []
    for floor in (0.0, 0.5):
        name = f"k = {k}, {n} documents, rankers {alike}, floor {floor:g}"
        forecast = ClickForecast.of(pair.tables, theta, zeta, floor=floor)
        works: Works = {}
        for price in PRICES:
            works[f"one {price}"] = partial(one_by_one, floor, price)
            works[f"batch {price}"] = partial(closed_form, pair, theta, zeta=zeta, floor=floor, price=price)
            works[f"clicks {price}"] = partial(forecast.designed, price)
        works["budget"] = partial(price_for, forecast)
        found = in_turns(works)
        for kind, what in (("one", "one query"), ("batch", "batch, a query")):
            after = {price: found[f"{kind} {price}"] for price in PRICES[1:]}
            rows.append(_row(f"{name}: {what}", found[f"{kind} 0.0"], after, SEARCHES))
        rows.append(_row(f"{name}: predicted clicks, a query", found["clicks 1.0"], {}, SEARCHES))
        rows.append(_row(f"{name}: price of a budget, {SEARCHES:,} queries", found["budget"], {}, 1))
    return rows


def speed_of_many(k: int, matter: float) -> list[Row]:
    """Documents that may be shown whether or not a list has them, as of stochastic rankers."""
    rng = np.random.default_rng(2)
    n, queries = 100, 200
    need = np.abs(rng.normal(size=n * queries)) * (rng.random(n * queries) < matter)
    zeta = rng.uniform(0.1, 0.9, n * queries)
    offsets = offsets_of([n] * queries)
    documents = _numbers(n * queries)
    works: Works = {
        str(price): partial(
            least_variance,
            offsets,
            documents,
            need,
            NONE_EACH,
            price * zeta if price else NONE_EACH,
            rank_decay(k),
            NOT_KEPT,
        )
        for price in PRICES
    }
    found = in_turns(works)
    after = {price: found[str(price)] for price in PRICES[1:]}
    return [_row(f"k = {k}, {n} documents, {matter:.0%} matter: batch, a query", found["0.0"], after, queries)]


def _numbers(n: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.arange(n, dtype=np.int32)


# --- variance, clicks, pages ----------------------------------------------------------------------------------------------


def trade_off(dataset: Dataset) -> list[Row]:
    tables = [measured(pair, user, seed) for seed, (pair, user) in enumerate(compared(dataset))]
    rows = []
    for known, price in tables[0]:
        row: Row = {"what": dataset.name, "known": known, "price": price}
        for name in LIMITS:
            found = [table[known, price][name] for table in tables]
            times, clicks = np.transpose([(one.times, one.clicks) for one in found])
            first, three, shown = np.concatenate([one.agreed for one in found]).mean(0)
            row[name] = f"{times.mean():.2f} {clicks.mean():+.1%} (worst {clicks.min():+.1%})"
            row[f"{name}: first, in 3, shown"] = f"{first:.0%} {three:.0%} {shown:.0%}"
        rows.append(row)
    return rows


def compared(dataset: Dataset) -> Iterator[tuple[Pair, User]]:
    kinds: tuple[Literal["paper", "code"], ...] = ("paper", "code")
    for kind in kinds:
        rankers = train_rankers(dataset, 2 * PAIRS, seed=11, rankers=kind)
        for i in range(PAIRS):
            part = dataset.take(np.arange(QUERIES * i, QUERIES * (i + 1)) % dataset.n_queries)
            theta = rank_decay(10)
            pair = Pair.from_scores(rankers.scores(part, 2 * i), rankers.scores(part, 2 * i + 1), part.offsets, 10)
            yield pair.knowing(theta=theta), position_based(part.zeta(), theta)


@dataclass(frozen=True)
class Measured:
    """Times fewer impressions than an A/B test, clicks against it, and how every document that both put first is shown."""

    times: float
    clicks: float
    agreed: FloatArray


def measured(pair: Pair, user: User, seed: int) -> dict[tuple[str, str], dict[str, Measured]]:
    """Measurements by what is known and the price, given or found for a budget from clicks as predicted."""
    theta, mean = pair.known_theta, sum(pair.ctr(user)) / 2
    ab = AB().moments(pair, user).variance
    result: dict[tuple[str, str], dict[str, Measured]] = {}
    for known, prediction in predictions(pair, user, seed).items():
        for name, limits in LIMITS.items():
            forecast = ClickForecast.of(pair.tables, theta, prediction, **limits)
            prices = {f"{price:g}": price for price in PRICES}
            prices |= {f"for a loss of {loss:.0%}": price_for(forecast, loss).price for loss in BUDGETS}
            for label, price in prices.items() if known != "nothing" else [("0", 0.0)]:
                shown = closed_form(pair, theta, zeta=prediction, price=price, **limits)
                times = ab / variance(pair, user, shown, zeta_hat=prediction, rank_aware=True)
                clicks = shown.ctr(user) / mean - 1
                row = result.setdefault((known, label), {})
                row[name] = Measured(times, clicks, first_of_both(pair, shown))
    return result


def predictions(pair: Pair, user: User, seed: int) -> dict[str, FloatArray]:
    theta, inputs = pair.known_theta, rank_inputs(*pair.ranks)
    shown, clicked = show_counts(closed_form(pair, theta, floor=0.9), user, IMPRESSIONS, seed=seed)
    seen = Examinations.from_counts(shown, clicked, theta)
    columns = np.column_stack([np.ones(pair.n_documents), inputs])
    root = np.sqrt(seen.examined)
    rate = np.divide(seen.clicks, root, where=root > 0, out=np.zeros_like(root))
    slopes = np.linalg.lstsq(columns * root[:, None], rate, rcond=None)[0]
    return {
        "nothing": np.full(pair.n_documents, seen.mean),
        "lists": np.clip(columns @ slopes, 0.02, 0.98),
        "10 impressions": relevance_prediction(shown, clicked, theta, pair.offsets, inputs),
    }


def first_of_both(pair: Pair, shown: Mixture) -> FloatArray:
    """Shares of pages that show each document that both put first, among the first three, and at all."""
    placement = shown.placement()[pair.top_a[pair.top_a[:, 0] == pair.top_b[:, 0], 0]]
    return np.column_stack([placement[:, 0], placement[:, :3].sum(1), placement.sum(1)])
