"""Time and noise of one gradient of the variance: the paper's against the low-noise one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks._policies import Problem, low_noise_gradient, paper_gradient
from benchmarks._timing import best_time, row
from ranktrial.arrays import FloatArray
from ranktrial.users import rank_decay

K = 10
SAMPLES = 1000
# Marginal frequencies of relevance labels 0..4, and documents per query, as in Yahoo Set 1 and MSLR-WEB30k.
SETS = {"Yahoo-like": (24, [0.26, 0.36, 0.285, 0.075, 0.02]), "MSLR-like": (120, [0.514, 0.325, 0.134, 0.019, 0.008])}


def run() -> list[dict[str, object]]:
    return _gradients()


def _query(n: int, labels: list[float], seed: int) -> tuple[FloatArray, FloatArray]:
    """zeta, and lambda of two random rankings, of one query."""
    random = np.random.default_rng(seed)
    lam = np.zeros(n)
    lam[random.permutation(n)[:K]] += rank_decay(K)
    lam[random.permutation(n)[:K]] -= rank_decay(K)
    return 0.1 + 0.225 * random.choice(5, n, p=labels).astype(np.float64), lam


def _scores(policy: str, lam: FloatArray) -> FloatArray:
    if policy == "uniform":
        return np.zeros(len(lam))
    if policy == "scores N(0, 1)":
        return np.random.default_rng(0).standard_normal(len(lam))
    return 8 * np.abs(lam)


def _noise(gradient: Callable[[int], FloatArray], repeats: int = 60) -> float:
    """Variance of the gradient over seeds, summed over documents."""
    return float(np.array([gradient(seed) for seed in range(repeats)]).var(0, ddof=1).sum())


def _gradients() -> list[dict[str, object]]:
    rows = []
    for name, (n, labels) in SETS.items():
        target = "<= 3" if n == 120 else ""
        for policy in ("uniform", "scores N(0, 1)", "scores 8 |lambda|"):
            where = f"{name}, {n} documents, {policy}"
            ratios = []
            for seed in range(5):
                zeta, lam = _query(n, labels, seed)
                problem = Problem(_scores(policy, lam), rank_decay(K), zeta, lam)
                paper = partial(paper_gradient, problem, float(zeta @ lam), SAMPLES)
                low_noise = partial(low_noise_gradient, problem, SAMPLES)
                ratios.append(_noise(paper) / _noise(low_noise))
            for kind, gradient in (("paper's", paper), ("low-noise", low_noise)):
                seconds = best_time(partial(gradient, 0), 20)
                rows.append(row(f"{kind} gradient, M = {SAMPLES}, {where}", seconds * 1e3, target, "ms"))
            rows.append(
                row(
                    f"noise variance, paper's / low-noise, median of 5 queries, {where}",
                    float(np.median(ratios)),
                    ">= 60",
                    "times",
                )
            )
    return rows
