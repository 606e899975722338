"""How well does a plan predict? Against simulated impressions, on pairs of rankers of each data set.

Variance: predicted from labels, from lists and the click rate alone, and with the standard deviation of clicks as well; the
measured one is that of x in simulated impressions of users with the true relevances. Numbers are the mean ratio of predicted
to measured over the pairs, and the worst. Gain: the rule 1 / E[TV^2] against the exact ratio of variances of an A/B test
stratified by query and the design of least variance. Wrong way: of pairs whose true difference is in a range, the share that
team-draft turns round, beside the share of plausible users.

Promises: trials in memory, evaluated as live ones are (``live.analysis``) at twelve looks, of which the plan said that 80 %
decide by its number of impressions; the share that did, with the true difference as the trial's ``smallest``. `python -m
benchmarks.planning` makes these alone.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from benchmarks.closed_form import good_pairs_of
from benchmarks.logopt import data_sets, pairs_of
from benchmarks.verdicts import Trial, World
from ranktrial.inference.planning import plan
from ranktrial.inference.plausible_users import ClickRate, plausible_users
from ranktrial.live.reports import settled
from ranktrial.live.schemas import TrialConfig
from ranktrial.methods import AB, Counterfactual, LogOpt, Method, TeamDraft
from ranktrial.rankings import Pair
from ranktrial.users import User, position_based, rank_decay

PAIRS = 10  # of each kind of rankers: 20 on each data set
IMPRESSIONS = 200_000
LEAST = LogOpt(relevance="constant", loss=None, holdback=0)
METHODS: tuple[Method, ...] = (
    AB(),
    AB(estimate="means"),
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
TRIED: tuple[Method, ...] = (LogOpt(), AB(estimate="rank-aware"), AB(estimate="means"), AB())
LOOKS = (0.2, 0.3, 0.4, 0.5, 0.58, 0.65, 0.72, 0.78, 0.84, 0.9, 0.95, 1.0)
TRIALS = 200  # of each method in each world
JUDGED = 2  # pairs of each kind
USERS = 20

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
            for row, variance in zip(plan(pair, users, delta=0.01, methods=METHODS).rows, true):
                ratios[row.method, source].append(row.variance / variance)
    return [_row(name, f"variance of {method}", source, found) for (method, source), found in ratios.items()]


def clicks(pair: Pair, user: User) -> tuple[float, float]:
    """Mean and standard deviation of clicks per impression on the two lists: what a team knows from its log."""
    law = AB().outcome_law(pair, user).sum(0)
    number = np.arange(len(law))
    mean = float(law @ number)
    return mean, float(np.sqrt(law @ number**2 - mean**2))


def measured(method: Method, pair: Pair, user: User, seed: int) -> float:
    """Variance of x in simulated impressions."""
    if isinstance(method, LogOpt):
        run = method.planned_displays(pair, user).simulate(user, [IMPRESSIONS], seed=seed)
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


def promises() -> list[Row]:
    """What was promised of trials, and what share of them kept it."""
    rows: list[Row] = []
    for world in WORLDS:
        pair, user = noisy_rankers(*world)
        for planned, method in zip(plan(pair, user, methods=TRIED).rows, TRIED):
            n = int(planned.anytime)
            with ProcessPoolExecutor(2) as pool:
                kept = list(pool.map(partial(decided, World("", pair, user), method, n), range(TRIALS)))
            rows.append(
                {
                    "data": f"{world[0]:,} queries, {planned.ctr:.2f} clicks a page",
                    "what": f"{method} decides {pair.delta(user):.4f}",
                    "impressions": n,
                    "promised": 0.8,
                    "kept": float(np.mean(kept)),
                }
            )
            print(rows[-1], flush=True)
    return rows


def noisy_rankers(queries: int, noise_a: float, noise_b: float, factor: float) -> tuple[Pair, User]:
    """Rankers that sort 20 documents by relevance and noise, for pages of 10."""
    random, theta = np.random.default_rng(1), rank_decay(10, 0.7)
    relevance = random.choice([0.1, 0.3, 0.8], (queries, 20), p=[0.6, 0.25, 0.15])
    lists = [np.argsort(-(relevance + random.normal(0, noise, relevance.shape))) for noise in (noise_a, noise_b)]
    pair = Pair.from_lists(lists[0].tolist(), lists[1].tolist(), k=10)
    query = np.repeat(np.arange(queries), np.diff(pair.offsets))
    return pair.knowing(theta=theta), position_based(factor * relevance[query, np.array(pair.ids)], theta)


def decided(world: World, method: Method, impressions: int, seed: int) -> bool:
    """Whether a trial named a winner at one of twelve looks."""
    smallest = abs(world.pair.delta(world.user))
    config = TrialConfig.model_validate({"method": str(method), "k": world.pair.k, "smallest": smallest})
    at = tuple(sorted({max(int(part * impressions), 1) for part in LOOKS}))
    return any(settled(analysis, {})[0].winner for analysis in Trial(world, config, seed).looks(at))


if __name__ == "__main__":
    promises()
