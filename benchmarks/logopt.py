"""LogOpt against the Oracle: variance, how fast it falls, and time.

Var(x) of one impression under each logging policy, exact but for the sampling of document pairs, on Yahoo-like, MSLR-like and
(with ``RANKTRIAL_DATA``) mailru_longtail. The Oracle is the same network with the same steps, given the true position bias and
relevances. The curve is Var(x) after a number of gradient steps for each gradient, from the same start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks._policies import ips_variance, network_policy
from ranktrial.methods import Counterfactual
from ranktrial.paper.data import Dataset, mslr_like, read_splits, train_rankers, yahoo_like
from ranktrial.paper.logopt_network import LogOptNetwork
from ranktrial.paper.network.network import Adam, Network
from ranktrial.paper.network.network_policy import Objective, optimise, policy_inputs
from ranktrial.rankings import Mixture, Pair, PlackettLuce
from ranktrial.users import User, position_based, rank_decay

PAIRS = 3
QUERIES_MEASURED = 300
CURVE = (0, 30, 100, 300, 1000)


def data_sets() -> list[Dataset]:
    found = [yahoo_like(2000, seed=3), mslr_like(1000, seed=3)]
    root = os.environ.get("RANKTRIAL_DATA")
    if root and (Path(root) / "mailru_longtail").exists():
        found.append(read_splits(Path(root) / "mailru_longtail")["train"])
    return found


def pairs_of(dataset: Dataset, count: int) -> list[tuple[Pair, User]]:
    rankers = train_rankers(dataset, 2 * count, seed=11, rankers="code")
    theta = rank_decay(10)
    user = position_based(dataset.zeta(), theta)
    pairs = []
    for i in range(count):
        a, b = rankers.scores(dataset, 2 * i), rankers.scores(dataset, 2 * i + 1)
        pair = Pair.from_scores(a, b, dataset.offsets, 10).knowing(theta=theta, features=dataset.features)
        pairs.append((pair, user))
    return pairs


def truth_of(pair: Pair, user: User) -> Objective:
    theta = pair.known_theta
    return Objective(pair, theta, user.zeta, pair.lam(theta), pair.delta(user))


def measure(pair: Pair, user: User) -> Callable[[Mixture | PlackettLuce], float]:
    goal = truth_of(pair, user)
    queries = np.random.default_rng(0).permutation(pair.n_queries)[:QUERIES_MEASURED]
    return lambda policy: ips_variance(policy, goal, queries=queries, samples=1000, seed=1).value


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for dataset in data_sets():
        table = [policy_variances(pair, user) for pair, user in pairs_of(dataset, PAIRS)]
        for name in table[0]:
            ratio = float(np.mean([variances[name] / variances["Oracle"] for variances in table]))
            value = float(np.mean([variances[name] for variances in table]))
            target = "<= 1.1" if name.startswith("LogOpt") and "after" in name else ""
            rows.append(
                {"data": dataset.name, "policy": name, "variance": value, "to the Oracle": ratio, "target": target}
            )
    rows += curves()
    rows.append(whole_run())
    return rows


def policy_variances(pair: Pair, user: User) -> dict[str, float]:
    variance = measure(pair, user)
    found = {
        f"{logging} logging": variance(Counterfactual(logging=logging).policy(pair))
        for logging in ("uniform", "ab", "lambda")
    }
    for method in (LogOptNetwork(), LogOptNetwork(bias="estimated")):
        versions = method.run(pair, user, [100_001], seed=5).versions
        for version in versions:
            when = f"after {version.begin:,} impressions" if version.begin else "before the first impression"
            found[f"LogOpt, bias {method.bias}, {when}"] = variance(version.policy)
    oracle = LogOptNetwork(relevance="true", schedule=()).run(pair, user, [1], seed=5)
    found["Oracle"] = variance(oracle.versions[0].policy)
    return found


def curves() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for dataset in data_sets():
        pair, user = pairs_of(dataset, 1)[0]
        variance, goal = measure(pair, user), truth_of(pair, user)
        inputs = policy_inputs(pair, goal.lam, "lists")
        for gradient in ("low-noise", "paper", "authors"):
            network, optimiser = Network.initialise(inputs.shape[1], 1), Adam()
            seen: dict[int, float] = {}
            for done, step in pairwise((0, *CURVE)):
                optimise(
                    network, optimiser, inputs, goal, steps=step - done, samples=1000, seed=step, gradient=gradient
                )
                seen[step] = variance(network_policy(network, inputs, pair))
            text = "  ".join(f"{step}: {value:.3f}" for step, value in seen.items())
            rows.append({"data": dataset.name, "policy": f"{gradient} gradient, variance by step", "variance": text})
    return rows


def whole_run() -> dict[str, object]:
    dataset = yahoo_like(5000, seed=3)
    pair, user = pairs_of(dataset, 1)[0]
    method = LogOptNetwork(bias="estimated")
    method.run(pair, user, [10], seed=1)
    start = time.process_time()
    method.run(pair, user, np.unique(np.geomspace(100, 3_000_000, 500).astype(int)), seed=1)
    seconds = time.process_time() - start
    name = "LogOpt, bias estimated, 3e6 impressions, 500 checkpoints, 5,000 queries: seconds on one core"
    return {"data": dataset.name, "policy": name, "variance": seconds, "target": "<= 60"}
