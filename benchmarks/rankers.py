"""Time to train the paper's 1,000 rankers."""

from __future__ import annotations

import os
import time

from ranktrial.paper.data import Dataset, mslr_like, train_rankers, yahoo_like

RANKERS = 40
WORKERS = min(2, os.cpu_count() or 1)


def run() -> list[dict[str, object]]:
    return [_measure(yahoo_like(1_000, seed=1)), _measure(mslr_like(1_000, seed=1))]


def _measure(dataset: Dataset) -> dict[str, object]:
    train_rankers(dataset, 1, seed=1)  # compiles
    start = time.perf_counter()
    train_rankers(dataset, RANKERS, seed=1, rankers="code", workers=WORKERS)
    seconds = (time.perf_counter() - start) / RANKERS * 1_000
    name = f"train 1,000 rankers, {dataset.name}, {WORKERS} threads"
    return {"name": name, "measured": seconds, "target": 300.0, "unit": "s"}
