"""Guards against harm: trials that stop though B is harmless, and clicks that visitors lose before the stop.

One pair of rankers with ten results each and no document in common: B's are less relevant by 0, 5, 10 or 20 %, so that it gets
so many fewer clicks. Visitors click by the position-based model, a click a search, and every one comes once. The trial is
``AB()``; the guard on clicks of B is looked at after every 50 searches, up to 40,000, at its level of 99 %.

``HARM_RUNS`` sets how many trials of each kind there are, ``HARM_WORKERS`` on how many processes.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from ranktrial.analysis.analyse import analyse
from ranktrial.analysis.intervals import asymptotic_sequence
from ranktrial.analysis.metrics import GUARDS_TIGHTEST, level_of_each
from ranktrial.arrays import FloatArray
from ranktrial.config import TrialConfig
from ranktrial.log import Log
from ranktrial.log.sources import of_pair
from ranktrial.methods import AB
from ranktrial.rankings import Pair
from ranktrial.users import rank_decay

RUNS = int(os.environ.get("HARM_RUNS", "1000"))
WORKERS = int(os.environ.get("HARM_WORKERS", "2"))
SEARCHES, EVERY, K, CLICKS = 40_000, 50, 10, 1.0
PLAN = 20_000  # searches of a trial whose length was fixed beforehand
THETA = rank_decay(K, 1.0)
POINTS = np.arange(EVERY, SEARCHES + 1, EVERY)
CONFIG = TrialConfig.model_validate({"method": "AB()", "k": K, "guards": {"clicks": 0.0}})


def surely_lost(worse: float, seed: int) -> FloatArray:
    """Share of A's clicks that B surely loses, at every look of a trial."""
    names = [f"{ranker}{rank}" for ranker in "ab" for rank in range(K)]
    pair = Pair.from_lists([names[:K]], [names[K:]], k=K)
    relevance = np.full(2 * K, CLICKS / THETA.sum())
    relevance[K:] *= 1 - worse
    policy, random = AB().policy(pair), np.random.default_rng(seed)
    rows = random.integers(0, 2, SEARCHES)
    page, nothing = policy.rankings[rows], np.zeros(SEARCHES, np.int64)
    clicked = random.random((SEARCHES, K)) < THETA * relevance[page]
    log = Log(**of_pair(pair, [policy], nothing, nothing, page, clicked, np.arange(SEARCHES), None, rows))
    analysis = analyse(log, CONFIG, CONFIG.first_beliefs)
    (rung,) = analysis.ladder.rungs
    assert rung.estimate is not None
    both = analysis.clicks_of_both
    assert both is not None
    level = level_of_each(analysis)
    apart = -rung.estimate.sequence(POINTS, level, tightest_at=GUARDS_TIGHTEST).low
    mean = asymptotic_sequence(both, POINTS, level=level, tightest_at=GUARDS_TIGHTEST).high
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(apart < 0, -apart / (mean - apart / 2), -np.inf)


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with ProcessPoolExecutor(WORKERS) as pool:
        for worse in (0.0, 0.05, 0.1, 0.2):
            paths = list(pool.map(partial(surely_lost, worse), range(RUNS), chunksize=10))
            for tolerance in (0.0, 0.02):
                rows.append(row(worse, tolerance, np.array([stop_at(path, tolerance) for path in paths])))
    return rows


def stop_at(path: FloatArray, tolerance: float) -> float:
    """Searches until the stop; infinite if there was none."""
    sure = np.flatnonzero(path > tolerance)
    return float(POINTS[sure[0]]) if len(sure) else float("inf")


def row(worse: float, tolerance: float, stops: FloatArray) -> dict[str, object]:
    lost = worse * CLICKS / 2  # of every search: half of them are B's
    stopped = np.isfinite(stops)
    return {
        "B worse by": f"{worse:.0%}",
        "allowed": f"{tolerance:.0%}",
        "trials": len(stops),
        "stopped": f"{stopped.mean():.1%}",
        "searches to the stop (median)": float(np.median(stops)),
        "clicks lost": float(np.mean(np.minimum(stops, SEARCHES)) * lost),
        "lost by a plan of 20,000": PLAN * lost,
        "lost without a stop": SEARCHES * lost,
    }
