"""Rows of tables and times of pieces of work, for all benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable


def row(name: str, measured: float, target: str, unit: str) -> dict[str, object]:
    return {"name": name, "measured": float(f"{measured:.3g}"), "target": target, "unit": unit}


def best_time(work: Callable[[], object], repeats: int, rounds: int = 7) -> float:
    """Processor seconds per call in the best round: what one core can do when nothing else runs."""
    work()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(repeats):
            work()
        times.append((time.process_time() - start) / repeats)
    return min(times)
