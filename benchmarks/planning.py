"""How well does a plan predict? Against simulated impressions, on pairs of rankers of each data set.

Variance: predicted from labels, from lists and the click rate alone, and with the standard deviation of clicks as well; the
measured one is that of x in simulated impressions of users with the true relevances. Numbers are the mean ratio of predicted
to measured over the pairs, and the worst. Gain: the rule 1 / E[TV^2] against the exact ratio of variances of an A/B test
stratified by query and LogOpt(floor=0, holdback=0). Wrong way: of pairs whose true difference is in a range, the share that
team-draft turns round, beside the share of plausible users.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from benchmarks.closed_form import good_pairs_of
from benchmarks.logopt import data_sets, pairs_of
from ranktrial.inference.planning import plan
from ranktrial.inference.plausible_users import ClickRate, plausible_users
from ranktrial.methods import AB, Counterfactual, LogOpt, Method, TeamDraft
from ranktrial.rankings import Pair
from ranktrial.users import User

PAIRS = 10  # of each kind of rankers: 20 on each data set
IMPRESSIONS = 200_000
LEAST = LogOpt(floor=0, holdback=0)
METHODS: tuple[Method, ...] = (
    AB(),
    AB(estimate="means"),
    Counterfactual(logging="ab"),
    LogOpt(),
    LogOpt(estimate="ips", floor=0, holdback=0),
    LEAST,
    TeamDraft(),
)
RANGES = ((0.0, 0.005), (0.005, 0.01), (0.01, 0.02), (0.02, 1.0))  # of |Delta| as a share of clicks
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
    return rows


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
