"""Predictions of a plan against simulated impressions, on pairs of rankers of each data set.

Variance: predicted from labels, from lists and the click rate alone, and with the standard deviation of clicks as well; the
measured one is that of x in simulated impressions of users with the true relevances. Numbers are the mean ratio of predicted
to measured over the pairs, and the worst. Gain: the rule 1 / E[TV^2] against the exact ratio of variances of an A/B test
stratified by query and the design of least variance. Wrong way: of pairs whose true difference is in a range, the share that
team-draft turns round, beside the share of plausible users.

Promises: trials in memory, evaluated as live ones are (``analysis.analyse``) at twelve looks, of which the plan said that 80 %
decide by its number of impressions; the share that did, with the true difference as the trial's ``smallest``. So it is by
metric: orders after a tenth of the clicks, and searches without a click. `python -m benchmarks.planning` makes these alone.
``PROMISE_TRIALS`` sets how many trials a row has, ``PROMISE_ROWS`` (a text within "world: method" or "world: metric") which
rows are made, ``PROMISE_WORKERS`` how many processes run.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from benchmarks.closed_form import good_pairs_of
from benchmarks.logopt import data_sets, pairs_of
from benchmarks.verdicts import Trial, World
from ranktrial.analysis.answers import settled
from ranktrial.analysis.planning.metrics import KnownMetric
from ranktrial.analysis.planning.plan import plan
from ranktrial.analysis.planning.users import ClickRate, click_sd, plausible_users
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.config import TrialConfig
from ranktrial.methods import AB, Counterfactual, LogOpt, Method, TeamDraft
from ranktrial.methods.click_model import planned_displays, planned_moments
from ranktrial.metrics import Abandonment, Metric, Orders
from ranktrial.rankings import Pair, expected_clicks
from ranktrial.users import User, position_based, rank_decay

PAIRS = 10  # of each kind of rankers: 20 on each data set
IMPRESSIONS = 200_000
LEAST = LogOpt(relevance="constant", loss=None, holdback=0)
METHODS: tuple[Method, ...] = (
    AB(estimate="paper"),
    AB(),
    Counterfactual(logging="ab"),
    LogOpt(),
    LogOpt(relevance="constant", estimate="ips", loss=None, holdback=0),
    LEAST,
    TeamDraft(),
)
RANGES = ((0.0, 0.005), (0.005, 0.01), (0.01, 0.02), (0.02, 1.0))  # of |Delta| as a share of clicks
WORLDS = (  # queries, noise in A's and in B's ranking, and a factor on clicks: few impressions to many
    (300, 0.2, 0.45, 1.0),
    (500, 0.3, 0.5, 0.3),
    (1000, 0.3, 0.45, 0.1),
    (1000, 0.3, 0.33, 0.15),
)
BY_CLICK_MODEL: tuple[Method, ...] = (LogOpt(), AB(estimate="rank-aware"))
TRIED: tuple[Method, ...] = (*BY_CLICK_MODEL, AB(), AB(estimate="paper"))
ZIPF = ((0.15, 0.3, 1.0), (0.15, 0.22, 0.8), (0.2, 0.3, 0.5))  # noise in A's and in B's ranking, and a factor on clicks
RARE = ((0.3, 1.5, 0.2), (0.4, 1.0, 0.1), (0.5, 0.9, 0.1))
SEARCHES = 4_000  # of queries that do not come equally often, by which a plan knows them
LOOKS = (0.2, 0.3, 0.4, 0.5, 0.58, 0.65, 0.72, 0.78, 0.84, 0.9, 0.95, 1.0)
TRIALS = int(os.environ.get("PROMISE_TRIALS", "200"))  # of each method in each world
ONLY, WORKERS = os.environ.get("PROMISE_ROWS", ""), int(os.environ.get("PROMISE_WORKERS", "2"))
JUDGED = 2  # pairs of each kind
USERS = 20
ORDERED = 0.1  # of the clicks

Row = dict[str, object]
Pairs = list[tuple[Pair, User]]


def run() -> list[Row]:
    rows: list[Row] = []
    for dataset in data_sets():
        kinds = [pairs_of(dataset, PAIRS), good_pairs_of(dataset, PAIRS)]
        pairs = [one for kind in kinds for one in kind]
        rows += variances(dataset.name, pairs)
        rows += gains(dataset.name, pairs)
        rows += wrong_ways(dataset.name, pairs, [one for kind in kinds for one in kind[:JUDGED]])
    return rows + promises()


def _row(data: str, what: str, source: str, ratios: list[float]) -> Row:
    mean, worst = float(np.mean(ratios)), max(ratios, key=lambda ratio: abs(np.log(ratio)))
    return {"data": data, "what": what, "from": source, "predicted/true": f"{mean:.3f}", "worst": f"{worst:.3f}"}


def variances(name: str, pairs: Pairs) -> list[Row]:
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    for seed, (pair, user) in enumerate(pairs):
        ctr, sd = clicks(pair, user)
        knowledge: dict[str, User | ClickRate] = {
            "labels": user,
            "lists, ctr": ClickRate(ctr),
            "lists, ctr, sd": ClickRate(ctr, sd),
        }
        true = [measured(method, pair, user, seed) for method in METHODS]
        for source, known in knowledge.items():
            users = known if isinstance(known, User) else known.user(pair)
            for method, variance in zip(METHODS, true):
                ratios[str(method), source].append(planned_moments(method, pair, users).variance / variance)
    return [_row(name, f"variance of {method}", source, found) for (method, source), found in ratios.items()]


def clicks(pair: Pair, user: User) -> tuple[float, float]:
    """Mean and standard deviation of clicks per impression on the two lists: what a team knows from its log."""
    return float(np.mean(pair.ctr(user))), click_sd(pair, user)


def measured(method: Method, pair: Pair, user: User, seed: int) -> float:
    """Variance of x in simulated impressions."""
    if isinstance(method, LogOpt):
        run = planned_displays(method, pair, user).simulate(user, [IMPRESSIONS], seed=seed)
    else:
        run = method.simulate(pair, user, [IMPRESSIONS], seed=seed)
    return float(run.mean_square[0] - run.estimate[0] ** 2)


def gains(name: str, pairs: Pairs) -> list[Row]:
    by_rule = []
    for pair, user in pairs:
        (row,) = (found := plan(pair, user, delta=0.01, methods=[LEAST])).rows
        by_rule.append(found.rule / (AB(estimate="adjusted").moments(pair, user).variance / row.variance))
    return [_row(name, "gain over A/B stratified by query", "1 / E[TV^2]", by_rule)]


def wrong_ways(name: str, pairs: Pairs, judged: Pairs) -> list[Row]:
    relative, wrong = [], []
    for pair, user in pairs:
        delta = pair.delta(user)
        relative.append(abs(delta) / clicks(pair, user)[0])
        wrong.append(TeamDraft().moments(pair, user).mean * delta <= 0)
    rows: list[Row] = []
    for low, high in RANGES:
        inside = (np.array(relative) >= low) & (np.array(relative) < high)
        share = (low + min(high, 2 * low or high)) / 2
        rows.append(
            {
                "data": name,
                "what": f"team-draft wrong, |Delta| {low:.1%} to {high:.1%} of clicks",
                "true": f"{int(np.sum(np.array(wrong)[inside]))} of {int(inside.sum())} pairs",
                "plausible users": f"{np.mean([wrong_share(pair, user, share) for pair, user in judged]):.0%} at {share:.2%}",
            }
        )
    return rows


def wrong_share(pair: Pair, user: User, share: float) -> float:
    ctr, _ = clicks(pair, user)
    displays = TeamDraft().displays(pair)
    users = plausible_users(pair, ClickRate(ctr).user(pair), share * ctr, USERS)
    return float(np.mean([displays.moments(each).mean * pair.delta(each) <= 0 for each in users]))


@dataclass(frozen=True)
class Promise:
    """A world of trials, and what a plan knows of it.

    Attributes:
        name: Of its rows.
        world: That trials run in.
        pair: Rankers as the plan has them: a query stands there as often as it comes.
        user: Users of these.
        methods: That are tried.
    """

    name: str
    world: World
    pair: Pair
    user: User
    methods: tuple[Method, ...] = BY_CLICK_MODEL


def promises() -> list[Row]:
    """Promises of trials, and the share of them that kept each."""
    rows: list[Row] = []
    for promise in promised_worlds():
        methods = [method for method in promise.methods if ONLY in f"{promise.name}: {method}"]
        if not methods:
            continue
        planned = plan(promise.pair, promise.user, methods=methods)
        for row, method in zip(planned.rows, methods):
            one = partial(decided, promise.world, method, int(row.anytime), planned.delta)
            with ProcessPoolExecutor(WORKERS) as pool:
                kept = list(pool.map(one, range(TRIALS)))
            rows.append(
                {
                    "data": f"{promise.name}, {planned.ctr:.2f} clicks a page",
                    "what": f"{method} decides {planned.delta:.4f}",
                    "impressions": int(row.anytime),
                    "promised": 0.8,
                    "kept": float(np.mean(kept)),
                }
            )
            print(rows[-1], flush=True)
    return rows + promises_by_metric()


def promises_by_metric() -> list[Row]:
    """Promises where orders, or searches without a click, decide."""
    rows: list[Row] = []
    method = LogOpt()
    for promise in (next(promised_worlds()), zipf_traffic(*ZIPF[0])):
        pair, user = promise.pair, promise.user
        left = [float(np.mean(np.prod(1 - expected_clicks(table, user), axis=1))) for table in (pair.top_a, pair.top_b)]
        orders = KnownMetric.given(Orders(window="1d", role="primary"), ORDERED)
        page = KnownMetric.given(Abandonment(role="primary"), float(np.mean(left)))
        for known, share in ((orders, None), (page, abs(left[0] - left[1]) / page.mean)):
            name = f"{promise.name}: {known.metric.title}"
            if ONLY not in name:
                continue
            delta = None if share is None else share * float(np.mean(pair.ctr(user)))
            (row,) = plan(pair, user, methods=[method], delta=delta, metrics=[known]).metrics
            world = replace(promise.world, ordered=ORDERED)
            one = partial(decided, world, method, int(row.anytime), row.delta, metric=known.metric)
            with ProcessPoolExecutor(WORKERS) as pool:
                kept = list(pool.map(one, range(TRIALS)))
            found = {"impressions": int(row.anytime), "trials": TRIALS, "promised": 0.8, "kept": float(np.mean(kept))}
            rows.append({"data": name, "what": f"{method} decides {row.delta:.4f} of {row.value:.4f}", **found})
            print(rows[-1], flush=True)
    return rows


def promised_worlds() -> Iterator[Promise]:
    for world in WORLDS:
        pair, user = noisy_rankers(*world)
        yield Promise(f"{world[0]:,} queries", World("", pair, user), pair, user, TRIED)
    yield from (zipf_traffic(*noise) for noise in ZIPF)
    yield from (rare_clicks(*noise) for noise in RARE)


def noisy_rankers(queries: int, noise_a: float, noise_b: float, factor: float) -> tuple[Pair, User]:
    """Rankers that sort 20 documents by relevance and noise, for pages of 10."""
    random, theta = np.random.default_rng(1), rank_decay(10, 0.7)
    relevance = random.choice([0.1, 0.3, 0.8], (queries, 20), p=[0.6, 0.25, 0.15])
    lists = [np.argsort(-(relevance + random.normal(0, noise, relevance.shape))) for noise in (noise_a, noise_b)]
    return _as_pair(lists, factor * relevance, theta, np.arange(queries))


def zipf_traffic(noise_a: float, noise_b: float, factor: float) -> Promise:
    """600 queries of which few make most of the traffic, position bias 1 / rank, noise with heavy tails."""
    random, queries = np.random.default_rng(2), 600
    relevance = random.beta(0.6, 1.8, (queries, 15))
    lists = [np.argsort(-(relevance + random.laplace(0, noise, relevance.shape))) for noise in (noise_a, noise_b)]
    chances = 1 / (np.arange(queries) // 2 + 1)  # as ``World.traffic`` has them
    come = np.repeat(np.arange(queries), np.round(SEARCHES * chances / chances.sum()).astype(np.int64))
    world, planned = (_as_pair(lists, factor * relevance, rank_decay(10), rows) for rows in (np.arange(queries), come))
    return Promise("Zipf traffic, 600 queries", World("", *world, traffic="Zipf"), *planned)


def rare_clicks(noise_a: float, noise_b: float, factor: float) -> Promise:
    """2,000 queries, position bias rank^-0.5, few clicks, uniform noise."""
    random, queries = np.random.default_rng(3), 2_000
    relevance = random.choice([0.05, 0.2, 0.6, 1.0], (queries, 12), p=[0.5, 0.25, 0.15, 0.1])
    lists = [np.argsort(-(relevance + random.uniform(-noise, noise, relevance.shape))) for noise in (noise_a, noise_b)]
    pair, user = _as_pair(lists, factor * relevance, rank_decay(10, 0.5), np.arange(queries))
    return Promise("few clicks, 2,000 queries", World("", pair, user), pair, user)


def _as_pair(
    lists: Sequence[IntArray], relevance: FloatArray, theta: FloatArray, queries: IntArray
) -> tuple[Pair, User]:
    """The rankers and users of some queries."""
    pair = Pair.from_lists(lists[0][queries].tolist(), lists[1][queries].tolist(), k=len(theta))
    query = np.repeat(queries, np.diff(pair.offsets))
    return pair.knowing(theta=theta), position_based(relevance[query, np.array(pair.ids)], theta)


def decided(
    world: World, method: Method, impressions: int, smallest: float, seed: int, metric: Metric | None = None
) -> bool:
    """True if a trial named a winner at one of twelve looks, by clicks or by a metric."""
    options = {} if metric is None else {"metrics": [str(metric)]}
    config = TrialConfig.model_validate({"method": str(method), "k": world.pair.k, "smallest": smallest, **options})
    at = tuple(sorted({max(int(part * impressions), 1) for part in LOOKS}))
    return any(settled(analysis, {})[0].winner for analysis in Trial(world, config, seed).looks(at))


if __name__ == "__main__":
    promises()
