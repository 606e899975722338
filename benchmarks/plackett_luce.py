"""Speed and exactness of Plackett-Luce placement, exposure, sampling and simulation."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np

from benchmarks._policies import exposure_gradient
from benchmarks._timing import best_time, row
from ranktrial.arrays import FloatArray, offsets_of
from ranktrial.rankings import plackett_luce as pl
from ranktrial.users import position_based, rank_decay

K = 10


def run() -> list[dict[str, object]]:
    return [*_accuracy(), *_single_queries(), *_simulation()]


def _enumerated_exposure(scores: FloatArray, theta: FloatArray) -> FloatArray:
    rho = np.zeros(len(scores))
    for ranking in itertools.permutations(range(len(scores)), len(theta)):
        rho[list(ranking)] += np.exp(pl.log_probability(scores, ranking)) * theta
    return rho


def _accuracy() -> list[dict[str, object]]:
    random = np.random.default_rng(0)
    rows = []
    for spread in (1.0, 30.0, 200.0):
        worst = 0.0
        for k in (1, 2, 3, 5):
            scores, theta = random.uniform(-spread, spread, 6), rank_decay(k)
            truth = _enumerated_exposure(scores, theta)
            possible = truth > 1e-300
            worst = max(
                worst,
                float(
                    np.max(np.abs(pl.PlackettLuce(scores, offsets_of([6]), k).exposure(theta) / truth - 1)[possible])
                ),
            )
        rows.append(row(f"exposure, 6 documents, scores within {spread:g}", worst, "<= 1e-7", "relative error"))
    for n in (24, 120):
        missing = abs(
            pl.PlackettLuce(random.standard_normal(n), offsets_of([n]), K).exposure(rank_decay(K)).sum()
            - rank_decay(K).sum()
        )
        rows.append(row(f"sum of exposure less sum of theta, {n} documents", missing, "<= 1e-9", "clicks"))
    return rows


def _single_queries() -> list[dict[str, object]]:
    random = np.random.default_rng(1)
    theta = rank_decay(K)
    rows = []
    for n in (24, 120):
        weights = random.standard_normal(n)
        for name, scores in (("", random.standard_normal(n)), (", scores 16 apart", 16 * random.random(n) ** 2)):
            what = f"{n} documents, k = {K}{name}"
            policy = pl.PlackettLuce(scores, offsets_of([n]), K)
            seconds = best_time(partial(policy.exposure, theta), 100)
            rows.append(row(f"exposure, {what}", seconds * 1e3, "<= 0.25" if n == 120 else "", "ms"))
            seconds = best_time(partial(exposure_gradient, scores, theta, weights), 100)
            rows.append(row(f"gradient of exposure, {what}", seconds * 1e3, "", "ms"))
            seconds = best_time(policy.placement, 50)
            rows.append(row(f"placement matrix, {what}", seconds * 1e3, "", "ms"))
            seconds = best_time(partial(policy.sample, 0, 1000, seed=1), 20)
            rows.append(row(f"1000 sampled rankings, {what}", seconds * 1e3, "", "ms"))
    return rows


def _simulation() -> list[dict[str, object]]:
    random = np.random.default_rng(2)
    queries, count, rows = 2000, 1_000_000, []
    for n, spread in ((24, 0.0), (24, 1.0), (24, 3.0), (120, 0.0), (120, 1.0), (120, 3.0)):
        documents = queries * n
        scores, values = spread * random.standard_normal(documents), random.standard_normal(documents)
        user = position_based(random.random(documents), rank_decay(K))
        simulate = partial(
            pl.simulate, pl.PlackettLuce(scores, offsets_of([n] * queries), K), user, values, [count], seed=1
        )
        seconds = best_time(simulate, 1, rounds=3)
        name = f"simulated impressions, {queries} queries of {n} documents, sd of scores {spread:g}"
        rows.append(row(name, count / seconds / 1e6, ">= 1.7", "million/s"))
    return rows
