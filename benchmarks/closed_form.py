"""Speed of the closed form, the variance it leaves, and its cost in clicks.

Speed: processor time on one core, pages of 10, queries of the usual number of documents. Variance: Var(x) of one impression
of the IPS estimate over all queries of each data set, the mean of pairs of rankers; exact for explicit mixtures, up to the
sampling of document pairs (a thousandth) for Plackett-Luce. The Oracle is the paper's network after its 1,000 steps with
the true relevances. Clicks lost are against an A/B test of the same pair; extra spread is that of the mean of
sum lambda^2 / rho over the design without a floor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks._policies import ips_variance
from benchmarks.logopt import data_sets, pairs_of, truth_of
from ranktrial.arrays import offsets_of
from ranktrial.design._closed_form_kernels import least_variance
from ranktrial.design.closed_form import NONE_EACH, NOT_KEPT, closed_form, closed_form_query
from ranktrial.methods import Counterfactual
from ranktrial.paper.data import Dataset, mslr_like, train_rankers, yahoo_like
from ranktrial.paper.logopt_network import LogOptNetwork
from ranktrial.rankings import Mixture, Pair, PlackettLuce, rank_by_score
from ranktrial.users import User, position_based, rank_decay

PAIRS = 5
FLOORS = (0.5, 0.9, 1.0)
CONSTANT = "closed form, constant zeta"
Row = dict[str, object]


def run() -> list[Row]:
    rows: list[Row] = []
    for dataset in (yahoo_like(5000, seed=3), mslr_like(2000, seed=3)):
        rows += speed(dataset)
    rows += unusual_speed()
    for dataset in data_sets():
        rows += variances(f"{dataset.name}, rankers of the code", pairs_of(dataset, PAIRS))
        rows += variances(f"{dataset.name}, rankers of the paper", good_pairs_of(dataset, PAIRS))
    return rows


def _row(data: str, what: str, value: float, unit: str = "", target: str = "") -> Row:
    return {"data": data, "what": what, "value": float(f"{value:.4g}"), "unit": unit, "target": target}


def _best_time(work: Callable[[], object], rounds: int = 5) -> float:
    """Processor seconds in the best round, after one to compile."""
    work()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def speed(dataset: Dataset) -> list[Row]:
    pair, _ = pairs_of(dataset, 1)[0]
    theta, n = pair.known_theta, pair.n_queries
    lists = [(a - start, b - start) for a, b, start in zip(pair.top_a, pair.top_b, pair.offsets)][:1000]

    def one_by_one(floor: float) -> None:
        for a, b in lists:
            closed_form_query(a, b, theta, floor=floor)

    rows = []
    for floor in (0.0, 0.5):
        seconds = _best_time(partial(closed_form, pair, theta, floor=floor))
        rows.append(_row(dataset.name, f"in batch, floor {floor:g}", n / seconds, "queries/s", ">= 20,000"))
        seconds = _best_time(partial(one_by_one, floor)) / len(lists)
        what = f"one query of {pair.n_documents / n:.0f} documents, floor {floor:g}"
        rows.append(_row(dataset.name, what, seconds * 1e6, "us", "<= 60"))
    rankings = len(closed_form(pair, theta).weights) / n
    rows.append(_row(dataset.name, "rankings in the mixture of a query, mean", rankings))
    return rows


def unusual_speed() -> list[Row]:
    """Pairs in which more documents matter than two pages hold."""
    rng = np.random.default_rng(0)
    offsets, theta = offsets_of([120] * 200), rank_decay(10)
    by_a, by_b = (PlackettLuce(rng.normal(0, 2, 24_000), offsets, 10).exposure(theta) for _ in range(2))
    documents = rank_by_score(by_a + by_b, offsets).documents
    need = np.abs(by_a - by_b)[documents]
    stochastic = _best_time(lambda: least_variance(offsets, documents, need, NONE_EACH, NONE_EACH, theta, NOT_KEPT))
    return [_row("random", "two stochastic rankers, all 120 documents matter", stochastic / 200 * 1e6, "us")]


def good_pairs_of(dataset: Dataset, count: int) -> list[tuple[Pair, User]]:
    """Rankers trained as the paper's text says: they rank better, and agree more, than those of the authors' code."""
    rankers = train_rankers(dataset, 2 * count, seed=11, rankers="paper")
    theta = rank_decay(10)
    user = position_based(dataset.zeta(), theta)
    scores = [rankers.scores(dataset, i) for i in range(2 * count)]
    return [
        (Pair.from_scores(a, b, dataset.offsets, 10).knowing(theta=theta, features=dataset.features), user)
        for a, b in zip(scores[::2], scores[1::2])
    ]


def variances(name: str, pairs: list[tuple[Pair, User]]) -> list[Row]:
    found = [measured(pair, user) for pair, user in pairs]
    rows = []
    for policy in found[0]:
        variance, loss, extra = np.mean([table[policy] for table in found], axis=0)
        row = _row(name, policy, float(variance), "variance")
        row["to constant zeta"] = float(np.mean([table[policy][0] / table[CONSTANT][0] for table in found]))
        row["clicks lost"] = f"{loss:.1%}"
        row["extra spread"] = f"{extra:.1%}" if "floor" in policy else ""
        rows.append(row)
    return rows


def measured(pair: Pair, user: User) -> dict[str, tuple[float, float, float]]:
    """Variance, share of clicks lost and extra spread (constant zeta, against no floor) of each policy."""
    theta, goal = pair.known_theta, truth_of(pair, user)
    policies: dict[str, Mixture | PlackettLuce] = {
        "uniform": Counterfactual(logging="uniform").policy(pair),
        "A/B logging": Counterfactual(logging="ab").policy(pair),
        "Plackett-Luce, 16 |lambda|": Counterfactual(logging="lambda").policy(pair),
        "network, true zeta (Oracle)": oracle(pair, user),
        "closed form, true zeta": closed_form(pair, theta, zeta=user.zeta),
        CONSTANT: closed_form(pair, theta),
    }
    for floor in FLOORS:
        policies[f"the same, floor {floor:g}"] = closed_form(pair, theta, floor=floor)
    clicks = np.mean(pair.ctr(user))
    result = {}
    for name, policy in policies.items():
        extra = _spread(policy, pair) / _spread(policies[CONSTANT], pair) - 1 if isinstance(policy, Mixture) else 0.0
        loss = 1 - _clicks(policy, pair, user) / float(clicks)
        result[name] = ips_variance(policy, goal, samples=1000, seed=1).value, loss, extra
    return result


def oracle(pair: Pair, user: User) -> PlackettLuce:
    policy: PlackettLuce = LogOptNetwork(relevance="true", schedule=()).run(pair, user, [1], seed=5).versions[0].policy
    return policy


def _clicks(policy: Mixture | PlackettLuce, pair: Pair, user: User) -> float:
    return float(policy.exposure(pair.known_theta) @ user.zeta / pair.n_queries)


def _spread(policy: Mixture | PlackettLuce, pair: Pair) -> float:
    """Objective of the closed form, if all documents are alike."""
    lam, rho = pair.lam(pair.known_theta), policy.exposure(pair.known_theta)
    return float((lam[lam != 0] ** 2 / rho[lam != 0]).sum())
