"""Speed of the simulation kernels on one core, in impressions a second; set-up is measured apart.

Targets are what a research prototype reached; two sizes: Yahoo-like (24 documents a query) and MSLR-like
(120), theta = 1/r, k = 10.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ranktrial.arrays import offsets_of
from ranktrial.methods import AB, Balanced, Method, Optimized, Probabilistic, TeamDraft
from ranktrial.rankings import Pair
from ranktrial.users import User, position_based, rank_decay

IMPRESSIONS = 2_000_000
TARGETS: dict[Method, str] = {
    AB(estimate="paper"): "9-21",
    TeamDraft(): "4-6",
    Probabilistic(): "1-1.6",
    Optimized(): "9-21, set-up 2 ms",
    Balanced(): "-",
}


def world(n_queries: int, n_documents: int, seed: int = 0) -> tuple[Pair, User]:
    rng = np.random.default_rng(seed)
    offsets = offsets_of([n_documents] * n_queries)
    quality = rng.normal(size=offsets[-1])
    a, b = (quality + 0.7 * rng.normal(size=offsets[-1]) for _ in range(2))
    labels = rng.choice(5, offsets[-1], p=[0.5, 0.3, 0.13, 0.05, 0.02])
    return Pair.from_scores(a, b, offsets, 10), position_based(0.1 + 0.225 * labels, rank_decay(10))


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, n_queries, n_documents in (("Yahoo-like", 5000, 24), ("MSLR-like", 2000, 120)):
        pair, user = world(n_queries, n_documents)
        for method in TARGETS:
            rows.append(kernel_row(method, name, pair, user))
        rows.append(shortcut_row(AB(estimate="paper"), name, pair, user))
        rows.append(shortcut_row(TeamDraft(), name, pair, user))
    return rows


def kernel_row(method: Method, name: str, pair: Pair, user: User) -> dict[str, object]:
    method.simulate(*world(3, 12), [10], seed=1, shortcut=False)  # compiles
    displays = method.displays(pair) if method.traits.lists_displays else None
    setup = 0.0 if displays is None else seconds(lambda: method.displays(pair))

    def simulate() -> None:
        if displays is None:
            method.simulate(pair, user, [IMPRESSIONS], seed=1, shortcut=False)
        else:
            displays.simulate(user, [IMPRESSIONS], seed=1)

    speed = IMPRESSIONS / min(seconds(simulate) for _ in range(3)) / 1e6
    return {
        "kernel": f"{method}, impression by impression",
        "data": name,
        "M impressions/s": speed,
        "target": TARGETS[method],
        "set-up, ms a query": setup / pair.n_queries * 1e3,
    }


def shortcut_row(method: AB | TeamDraft, name: str, pair: Pair, user: User) -> dict[str, object]:
    points = np.unique(np.geomspace(100, 3_000_000, 500).astype(int))
    method.simulate(*world(3, 12), points, seed=1)
    law = method.outcome_law(pair, user)
    whole = min(seconds(lambda: method.draw(law, points, seed=1)) for _ in range(5))
    return {
        "kernel": f"{method}, 3e6 impressions with 500 checkpoints at once",
        "data": name,
        "M impressions/s": 3 / whole,
        "target": "1 ms a run",
        "set-up, ms a query": seconds(lambda: method.outcome_law(pair, user)) / pair.n_queries * 1e3,
        "ms a run": whole * 1e3,
    }
