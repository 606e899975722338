"""Position bias while the method learns: theta over the truth, counted by design and pooled over the versions of a design.

Trials in memory, drawn, learnt and evaluated as live ones are (``benchmarks.verdicts``), with few and many queries. "Pooled"
is what counting per query and lists gave, over all versions of a design: documents that were lucky early are shown higher
later, and regression to the mean looks like examination. Both are fitted to the same logs. Rankers of the world "top/tail" get
equal clicks, so that every winner is a false one. ``LEARNING_RUNS`` sets how many trials a world has, ``LEARNING_ROWS`` (a
text that rows must hold) which are made.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.verdicts import LONG, K, Row, World, top_tail, verdicts
from benchmarks.visitors import shop
from ranktrial.analysis.answers import settled
from ranktrial.arrays import FloatArray
from ranktrial.methods import LogOpt
from ranktrial.position_bias import fit_groups

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from pooling import pooled_counts

ONLY = os.environ.get("LEARNING_ROWS", "")
TOP_TAIL = partial(top_tail, "position-based, rank^-0.75", 0.8)
LONGEST = (2_000, 5_000, 10_000, 20_000, 30_000, 50_000, 100_000, 150_000)
WORLDS: dict[str, tuple[Callable[[], World], tuple[int, ...], int]] = {  # looks, and trials
    "shop, 200 queries, rank^-0.7": (partial(shop, "repeated", 200, 0), (20_000,), 20),
    "shop, 2,000 queries, 1/rank": (partial(shop, "repeated", 2_000, 0, eta=1.0), (40_000,), 20),
    "top/tail, 600 queries, rank^-0.75": (partial(TOP_TAIL, queries=600), LONG, 200),
    "top/tail, 3,000 queries, rank^-0.75": (partial(TOP_TAIL, queries=3_000), LONGEST, 40),
}


class Learnt(NamedTuple):
    """One trial: theta counted by design and pooled, error of Delta with its standard error, coverage and verdict."""

    by_design: FloatArray
    pooled: FloatArray
    told: FloatArray
    away: float
    error: float
    covers: bool
    winner: str
    checks: tuple[str, ...]


def one_run(world: World, seed: int) -> Learnt:
    found = verdicts(world, LogOpt(), seed)
    log, top = found.last.log, found.last.ladder.results[-1].estimate
    assert top is not None
    by_design, together = (fit_groups(parts)[0] for parts in (log.parts(), pooled_counts(log)))
    status = tuple(check.name for check in settled(found.last, {})[1] if check.status in ("warn", "fail"))
    return Learnt(
        by_design.theta,
        together.theta,
        by_design.standard_error,
        top.delta - world.pair.delta(world.user),
        top.standard_error,
        found.covers,
        found.first,
        status,
    )


def run() -> list[Row]:
    rows: list[Row] = []
    for name, (make, looks, runs) in WORLDS.items():
        if ONLY not in name:
            continue
        world = replace(make(), looks=looks)
        truth = world.reader.slope / world.reader.slope[0]
        with ProcessPoolExecutor(2) as pool:
            found = list(pool.map(partial(one_run, world), range(int(os.environ.get("LEARNING_RUNS", runs)))))
        away = np.array([one.away for one in found])
        for how in ("by_design", "pooled"):
            theta = np.array([getattr(one, how) for one in found])
            mean, spread = (theta / truth).mean(0), (theta / truth).std(0, ddof=1) / np.sqrt(len(found))
            most = np.abs(np.divide(mean - 1, spread, out=np.zeros(K), where=spread > 0))
            row: Row = {
                "world": f"{name}, {looks[-1]:,} impressions, {len(found)} trials",
                "counted": how,
                **{f"rank {r + 1}": f"{mean[r]:.3f} ({spread[r]:.3f})" for r in range(1, K)},
                "most": f"{most.max():.1f} standard errors, at rank {int(most.argmax()) + 1}",
            }
            if how == "by_design":
                row["told / spread, rank 10"] = (
                    f"{np.mean([one.told[9] for one in found]) / theta[:, 9].std(ddof=1):.2f}"
                )
                row["error of Delta"] = f"{away.mean():+.4f} ({away.std(ddof=1) / np.sqrt(len(found)):.4f})"
                row["95 % interval holds"] = f"{np.mean([one.covers for one in found]):.1%}"
                row["winners"] = f"{np.mean([one.winner != '' for one in found]):.1%}"
                row["alarms"] = str(Counter(check for one in found for check in one.checks))
            rows.append(row)
            print(rows[-1], flush=True)
    return rows
