"""Searches that a method saves against an A/B test: squared widths of anytime intervals after 20,000 searches.

Trials in memory, as in ``benchmarks.visitors``, whose worlds these are: head queries, Zipf's law, everybody's own lists. Widths
are those of the method's own estimate, whichever is reported at the last look, at its share of the error probability; the A/B
test has the difference in means and all of it. ``EFFICIENCY_RUNS`` sets how many trials a row has.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from benchmarks.verdicts import K, Row, Trial, World
from benchmarks.visitors import TRAFFIC, shop
from ranktrial.config import TrialConfig
from ranktrial.methods import AB, LogOpt, Method

RUNS = int(os.environ.get("EFFICIENCY_RUNS", "20"))
METHODS: tuple[Method, ...] = (AB(), AB(estimate="rank-aware"), LogOpt())


def one_run(world: World, method: Method, impressions: int, seed: int) -> tuple[float, float, float]:
    """Squared width, variance of one search's value with theta as it is, and the widening by theta's error."""
    config = TrialConfig.model_validate({"method": method, "k": K})
    (last,) = Trial(world, config, seed).looks((impressions,))
    top = last.ladder.results[-1]
    assert top.estimate is not None
    low, high = top.interval
    return (high - low) ** 2, top.estimate.sums.standard_error**2 * impressions, top.estimate.inflation(top.level)


def run() -> list[Row]:
    rows: list[Row] = []
    for name, (traffic, queries, impressions) in TRAFFIC.items():
        world, plain = shop(traffic, queries, impressions), 0.0
        for method in METHODS:
            with ProcessPoolExecutor(2) as pool:
                found = list(pool.map(partial(one_run, world, method, impressions), range(RUNS)))
            width, variance, widening = np.mean(found, axis=0)
            plain = plain or float(width)
            rows.append(
                {
                    "traffic": name,
                    "method": str(method),
                    "times fewer": round(plain / float(width), 2),
                    "variance": round(float(variance), 3),
                    "widening": round(float(widening), 3),
                }
            )
            print(rows[-1], flush=True)
    return rows
