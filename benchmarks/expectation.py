"""Expected runs against simulated ones: every method on 20 pairs at five checkpoints, differences in standard errors.

Of every pair a number of runs is simulated, and the expected run worked out; for methods of which something is drawn even so,
as many expected runs. "largest" is the largest difference of any error, over pairs together, in standard errors; it should be
below 4. Time is that of one simulated and of one expected run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.methods import parse_method
from ranktrial.paper.data import train_rankers, yahoo_like
from ranktrial.rankings import Pair
from ranktrial.users import User, position_based, rank_decay

PAIRS = int(os.environ.get("PAIRS", "20"))
RUNS = int(os.environ.get("RUNS", "25"))  # a pair
QUERIES, K = 300, 10
POINTS = [100, 1_000, 3_000, 10_000, 100_000]
ERRORS = ("binary_error", "absolute_error", "squared_error")
CLOSED = "loss=None, keep=0, holdback=0"
METHODS = (
    'AB(estimate="paper")',
    "AB()",
    "TeamDraft()",
    "Probabilistic(tau=4)",
    'Optimized(credit="inverse")',
    "Balanced()",
    'Counterfactual(logging="uniform")',
    'Counterfactual(logging="ab")',
    'Counterfactual(logging="lambda")',
    'Counterfactual(logging="optimal")',
    f'LogOpt(bias="known", estimate="ips", {CLOSED})',
    f'LogOpt(bias="known", {CLOSED})',
    f'LogOpt(estimate="ips", {CLOSED})',
    f"LogOpt({CLOSED})",
    "LogOpt()",
    'AB(estimate="rank-aware")',
    'LogOptNetwork(bias="known", steps=50, samples=100)',
    'LogOptNetwork(bias="estimated", steps=50, samples=100)',
    'LogOptNetwork(relevance="true", schedule=(), steps=100, samples=100)',
)


def worlds() -> list[tuple[Pair, User]]:
    dataset = yahoo_like(QUERIES, seed=0)
    rankers = train_rankers(dataset, 2 * PAIRS, seed=1)
    theta = rank_decay(K)
    user = position_based((0.1 + 0.225 * np.arange(5))[dataset.labels], theta)
    scores = [rankers.scores(dataset, i) for i in range(2 * PAIRS)]
    pairs = (Pair.from_scores(a, b, dataset.offsets, K) for a, b in zip(scores[::2], scores[1::2]))
    return [(pair.knowing(theta=theta, features=dataset.features), user) for pair in pairs]


def run() -> list[dict[str, object]]:
    every = worlds()
    return [compared(text, every) for text in METHODS]


def compared(text: str, every: list[tuple[Pair, User]]) -> dict[str, object]:
    method = parse_method(text)
    drawn = method.adapts or method.draws_displays or "lambda" in text or "uniform" in text
    method.expected(*every[0], POINTS, seed=0)
    method.simulate(*every[0], POINTS, seed=0)
    simulated, expected = [], []
    seconds = {"simulated, s": 0.0, "expected, s": 0.0}

    def timed(name: str, work: Callable[..., Any], pair: Pair, user: User, seed: int) -> FloatArray:
        start = time.process_time()
        found = work(pair, user, POINTS, seed=seed)
        seconds[name] += time.process_time() - start
        return np.stack([getattr(found, error)(pair.delta(user)) for error in ERRORS])

    for i, (pair, user) in enumerate(every):
        seeds = range(1_000 * i, 1_000 * i + RUNS)
        simulated.append([timed("simulated, s", method.simulate, pair, user, seed) for seed in seeds])
        more = seeds if drawn else seeds[:1]
        expected.append([timed("expected, s", method.expected, pair, user, 500_000 + seed) for seed in more])
    theirs, ours = np.array(simulated), np.array(expected)  # pairs, runs, errors, checkpoints
    spread = theirs.var(1, ddof=1)
    chance = ours[:, :, 0].mean(1)
    spread[:, 0] = np.maximum(spread[:, 0], chance * (1 - chance))  # errors so rare that no run has one
    noise = spread.sum(0) / theirs.shape[1]
    if drawn:
        noise = noise + ours.var(1, ddof=1).sum(0) / ours.shape[1]
    off = theirs.mean(1).sum(0) - ours.mean(1).sum(0)
    with np.errstate(invalid="ignore"):
        away = np.abs(np.where(noise > 0, off / np.sqrt(np.maximum(noise, 1e-300)), 0.0))
    row: dict[str, object] = {"method": text}
    row |= {f"{error}, SE": float(np.nanmax(away[i])) for i, error in enumerate(ERRORS)}
    row["largest"] = float(np.nanmax(away))
    row |= {"simulated, s": seconds["simulated, s"] / theirs[:, :, 0, 0].size}
    row |= {"expected, s": seconds["expected, s"] / ours[:, :, 0, 0].size}
    return row
