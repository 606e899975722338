"""Whole trials with and without a budget of clicks: is the truth inside the interval, what do visitors get, when is it decided?

Trials in memory, drawn, learnt and evaluated as live ones are (``benchmarks.verdicts``): rankers that sort by relevance and
noise, position-based users, position bias estimated. Three kinds of traffic: queries that come back often; Zipf's law over
many; and lists that are everybody's own, each seen once. "Before" is a floor of 0.5 instead of a budget and a tenth of plain
traffic throughout. ``VISITOR_RUNS`` sets how many trials a row has, ``VISITOR_ROWS`` (a text that rows must hold) which are
made, ``VISITOR_ALLOWANCE`` another allowance than that of a trial by default, ``VISITOR_WORKERS`` on how many processes.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from benchmarks.verdicts import POOL, Row, Trial, World
from ranktrial.analysis.answers import settled
from ranktrial.arrays import DocumentArray, FloatArray, sum_by_group
from ranktrial.config import TrialConfig
from ranktrial.methods import LogOpt, Method
from ranktrial.rankings import Pair
from ranktrial.users import position_based, rank_decay

RUNS = int(os.environ.get("VISITOR_RUNS", "100"))
ONLY = os.environ.get("VISITOR_ROWS", "")
WORKERS = int(os.environ.get("VISITOR_WORKERS", "2"))
ALLOWANCE = float(os.environ.get("VISITOR_ALLOWANCE", "nan"))
K = 10
METHODS: dict[str, Method] = {
    "before": LogOpt(relevance="constant", loss=None, keep=0, floor=0.5, holdback=0.1),
    "now": LogOpt(),
}
TRAFFIC = {
    "head queries": ("repeated", 60, 20_000),
    "Zipf": ("Zipf", 4_000, 20_000),
    "personalised": ("personalised", 0, 20_000),
}


def shop(traffic: str, queries: int, impressions: int, *, eta: float = 0.7) -> World:
    """Rankers of unequal noise; 20 documents a query, pages of 10."""
    random, theta = np.random.default_rng(1), rank_decay(K, eta)
    n = queries or impressions
    relevance = 0.5 * random.choice([0.1, 0.3, 0.8], (n, POOL), p=[0.6, 0.25, 0.15])
    lists = [np.argsort(-(relevance + random.normal(0, noise, relevance.shape))) for noise in (0.25, 0.3)]
    numbers = [(ranked + POOL * np.arange(n)[:, None]).tolist() for ranked in lists]
    pair = Pair.from_lists(numbers[0], numbers[1], k=K)
    return World(traffic, pair, position_based(relevance.ravel()[np.array(pair.ids)], theta), traffic)


def one_run(world: World, method: Method, impressions: int, seed: int) -> tuple[bool, float, float, float, bool]:
    """Outcome of a trial: truth in the interval or not; clicks gained, true and measured; time and side of the decision."""
    allowance = None if np.isnan(ALLOWANCE) else ALLOWANCE
    config = TrialConfig.model_validate({"method": method, "k": K, "allowance": allowance})
    looks = tuple(n for n in (1_000, 2_000, 4_000, 8_000, 20_000) if n <= impressions)
    chances = np.ones(world.pair.n_queries)
    if world.traffic == "Zipf":
        chances = 1 / (np.arange(world.pair.n_queries) // 2 + 1.0)
    by_query = [_clicks(world, table) for table in (world.pair.top_a, world.pair.top_b)]
    ctr = [float(clicks @ chances / chances.sum()) for clicks in by_query]
    delta, decided, right = ctr[0] - ctr[1], np.nan, True
    trial = Trial(world, config, seed)
    for n, analysis in zip(looks, trial.looks(looks)):
        last = settled(analysis, {})
        winner = last.decision.winner
        if winner is not None and np.isnan(decided):
            decided, right = float(n), (winner == "A") == (delta > 0)
    gain = last.analysis.gain
    log, zeta = last.analysis.log, world.reader.zeta[trial.document]
    of_lists = sum(log.list_exposures(world.reader.slope)) / 2
    got, ab = (
        sum_by_group(zeta * rho, log.slot_offsets)[log.design].mean()
        for rho in (log.exposure(world.reader.slope), of_lists)
    )
    return (
        -delta in last.decision.interval,
        got / ab - 1,
        gain.share if gain else np.nan,
        decided,
        right,
    )


def _clicks(world: World, table: DocumentArray) -> FloatArray:
    return np.asarray(world.reader.zeta[table] @ world.reader.slope)


def run() -> list[Row]:
    rows: list[Row] = []
    for name, (traffic, queries, impressions) in TRAFFIC.items():
        world = shop(traffic, queries, impressions)
        for when, method in METHODS.items():
            if ONLY not in f"{name}, {when}":
                continue
            with ProcessPoolExecutor(WORKERS) as pool:
                found = list(pool.map(partial(one_run, world, method, impressions), range(RUNS), chunksize=2))
            inside, true, measured, decided, right = (np.array(column, np.float64) for column in zip(*found))
            error = 1.96 * true.std() / np.sqrt(RUNS)
            rows.append(
                {
                    "traffic": f"{name}, {impressions:,} impressions",
                    "method": when,
                    "truth inside": f"{inside.mean():.0%}",
                    "clicks against A/B": f"{true.mean():+.1%} +- {error:.1%}",
                    "as measured": f"{np.nanmean(measured):+.1%}",
                    "decided": f"{np.isfinite(decided).mean():.0%}",
                    "for the better": f"{right.mean():.0%}",
                    "median impressions": float(np.median(np.where(np.isfinite(decided), decided, np.inf))),
                }
            )
            print(rows[-1], flush=True)
    return rows
