"""Rankings sampled a gradient step of the policy network: what the policy comes to, and the time of a step.

E[(x - 0)^2] of one impression after 1,000 steps with the low-noise gradient, mean of six starts and its standard error; the
same starts and queries whatever the number of rankings.
"""

from __future__ import annotations

import time

import numpy as np

from ranktrial.paper.data import Dataset, mslr_like, train_rankers, yahoo_like
from ranktrial.paper.network.network import Adam, Network
from ranktrial.paper.network.network_policy import Objective, ips_variance, network_policy, optimise, policy_inputs
from ranktrial.rankings import Pair
from ranktrial.users import rank_decay

SAMPLES = (1000, 300, 100, 30)
STEPS, STARTS = 1000, 6


def run() -> list[dict[str, object]]:
    return [row for data in (yahoo_like(400, seed=0), mslr_like(200, seed=0)) for row in of_data(data)]


def of_data(dataset: Dataset) -> list[dict[str, object]]:
    rankers, theta = train_rankers(dataset, 2, seed=1), rank_decay(10)
    a, b = (rankers.scores(dataset, i) for i in range(2))
    pair = Pair.from_scores(a, b, dataset.offsets, 10).knowing(theta=theta)
    goal = Objective(pair, theta, dataset.zeta(), pair.lam(theta), 0.0)
    inputs = policy_inputs(pair, goal.lam, "lists")
    measured = np.arange(0, pair.n_queries, 2)
    rows: list[dict[str, object]] = []
    for samples in SAMPLES:
        found, seconds = [], 0.0
        for start in range(STARTS):
            network, begin = Network.initialise(inputs.shape[1], start), time.process_time()
            optimise(network, Adam(), inputs, goal, steps=STEPS, samples=samples, seed=100 + start)
            seconds += time.process_time() - begin
            policy = network_policy(network, inputs, pair)
            found.append(ips_variance(policy, goal, queries=measured, samples=300, seed=1).value)
        error = float(np.std(found, ddof=1) / np.sqrt(STARTS))
        row: dict[str, object] = {"data": dataset.name, "rankings a step": samples, "E[x^2]": float(np.mean(found))}
        rows.append({**row, "standard error": error, "step, us": 1e6 * seconds / STARTS / STEPS})
    return rows
