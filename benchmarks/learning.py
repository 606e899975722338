"""Position bias while the method learns: theta over the truth, counted by design and pooled over the versions of a design.

Trials in memory, drawn, learnt and evaluated as live ones are (``benchmarks.verdicts``), with few and many queries. "Pooled"
is what counting per query and lists gave, over all versions of a design: documents that were lucky early are shown higher
later, and regression to the mean looks like examination. Both are fitted to the same logs. ``LEARNING_RUNS`` sets how many
trials a world has, ``LEARNING_ROWS`` (a text that rows must hold) which are made.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from benchmarks.verdicts import K, Row, Trial, World, top_tail
from benchmarks.visitors import shop
from ranktrial.arrays import FloatArray
from ranktrial.inference import Log
from ranktrial.inference.log import counts_of_groups
from ranktrial.live.schemas import TrialConfig
from ranktrial.methods import LogOpt
from ranktrial.position_bias import Counts, fit_groups

RUNS = int(os.environ.get("LEARNING_RUNS", "20"))
ONLY = os.environ.get("LEARNING_ROWS", "")
WORLDS: dict[str, tuple[Callable[[], World], int]] = {
    "shop, 200 queries, rank^-0.7": (partial(shop, "repeated", 200, 0), 20_000),
    "top/tail, 600 queries, rank^-0.75": (partial(top_tail, "position-based, rank^-0.75", 0.8, queries=600), 30_000),
    "shop, 2,000 queries, 1/rank": (partial(shop, "repeated", 2_000, 0, eta=1.0), 40_000),
    "top/tail, 3,000 queries, rank^-0.75": (
        partial(top_tail, "position-based, rank^-0.75", 0.8, queries=3_000),
        150_000,
    ),
}


def pooled(log: Log, groups: int = 20) -> list[Counts]:
    """Counts per query and document over all versions of a design."""
    query = log.document_query
    return counts_of_groups(*log.tables(log.document, len(query), log.group(groups), groups), query, groups)


def one_run(world: World, impressions: int, seed: int) -> list[tuple[FloatArray, FloatArray]]:
    """Theta and its standard errors, counted by design and pooled; the error of Delta and its standard error last."""
    config = TrialConfig.model_validate({"method": LogOpt(), "k": K})
    (last,) = Trial(world, config, seed).looks((impressions,))
    log = last.log.whole()
    fits = [fit_groups(parts)[0] for parts in (log.parts(), pooled(log))]
    assert last.ladder.rungs[-1].estimate is not None
    top, delta = last.ladder.rungs[-1].estimate, world.pair.delta(world.user)
    return [(fit.theta, fit.standard_error) for fit in fits] + [
        (np.array([top.delta - delta]), np.array([top.standard_error]))
    ]


def run() -> list[Row]:
    rows: list[Row] = []
    for name, (make, impressions) in WORLDS.items():
        if ONLY not in name:
            continue
        world = make()
        truth = world.user.slope / world.user.slope[0]
        with ProcessPoolExecutor(2) as pool:
            found = list(pool.map(partial(one_run, world, impressions), range(RUNS)))
        for at, how in enumerate(("by design", "pooled")):
            theta, error = (np.array([one[at][part] for one in found]) for part in (0, 1))
            mean, spread = (theta / truth).mean(0), (theta / truth).std(0, ddof=1) / np.sqrt(RUNS)
            away = np.divide(mean - 1, spread, out=np.zeros(K), where=spread > 0)
            rows.append(
                {
                    "world": f"{name}, {impressions:,} impressions",
                    "counted": how,
                    **{f"rank {r + 1}": f"{mean[r]:.3f} ({spread[r]:.3f})" for r in (1, 4, 9)},
                    "most standard errors": f"{np.abs(away).max():.1f} at rank {int(np.abs(away).argmax()) + 1}",
                    "told error / spread at rank 10": f"{error[:, 9].mean() / theta[:, 9].std(ddof=1):.2f}",
                }
            )
            print(rows[-1], flush=True)
        deltas, errors = (np.array([one[2][part][0] for one in found]) for part in (0, 1))
        print(
            f"error of Delta {deltas.mean():+.4f} ({deltas.std(ddof=1) / np.sqrt(RUNS):.4f}), told {errors.mean():.4f}"
        )
    return rows
