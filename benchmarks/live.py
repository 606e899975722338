"""Live trials in process: how long ``rank`` takes, how long a report takes, and how often the interval holds the truth.

``rank`` gets two lists of 100 ids. Its times are of the clock, with the store writing beside it: run this on an idle machine.
The repetitions are whole trials of 50,000 impressions, each with rankers of its own, started from a wrong position bias
(1/sqrt(rank), while users have 1/rank) that is refitted on the way. ``LIVE_REPETITIONS`` sets how many.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks._timing import row
from ranktrial.cli.demo import SimulatedSite
from ranktrial.methods import LogOpt
from ranktrial.seeds import children, generator
from ranktrial.trial import Trial

CALLS, PAUSE = 10_000, 0.001
REPETITIONS, IMPRESSIONS = int(os.environ.get("LIVE_REPETITIONS", "100")), 50_000
Lists = tuple[list[str], list[str]]


def run() -> list[dict[str, object]]:
    return [*rank_times(), *reports(), repetitions(REPETITIONS)]


def rank_times() -> Iterator[dict[str, object]]:
    """Each query for the first time, when its design must be made, and then again for other units."""
    random = np.random.default_rng(0)
    searches = {f"query {q}": lists(q, random) for q in range(CALLS)}
    with (
        tempfile.TemporaryDirectory() as folder,
        Trial.create(Path(folder, "t.db"), method=LogOpt(schedule=()), cache_size=2 * CALLS) as trial,
    ):
        for seen in ("a query's first impression", "a query seen before"):
            times = []
            for query, (a, b) in searches.items():
                begun = time.perf_counter()
                trial.rank(query, a, b, unit=f"{seen}, {query}")
                times.append(time.perf_counter() - begun)
                time.sleep(PAUSE)
            p50, p99 = np.percentile(times, [50, 99]) * 1e3
            yield row(f"rank, {seen}: p50", p50, "-", "ms")
            yield row(f"rank, {seen}: p99", p99, "< 1", "ms")


def lists(query: int, random: np.random.Generator) -> Lists:
    """A's 100 ids, and B's: A's in a noisy order, 20 of them others."""
    ids = [f"sku-{query}-{i}" for i in range(120)]
    order = np.argsort(np.arange(120) % 100 + random.normal(0, 15, 120))
    return ids[:100], [ids[i] for i in order[:100]]


def reports() -> Iterator[dict[str, object]]:
    """The first report after a start, which reads the whole log, and the next after another impression."""
    with tempfile.TemporaryDirectory() as folder:
        path, world = Path(folder, "t.db"), SimulatedSite.make(queries=1_000)
        with Trial.create(path, background=False, clock=count(1_700_000_000).__next__) as trial:
            visit(world, trial, 100_000, np.random.SeedSequence(1))
        with Trial.open(path, background=False) as trial:
            for which in ("first", "next"):
                begun = time.process_time()
                told = trial.report()
                yield row(
                    f"{which} report, {told.impressions:,} impressions", time.process_time() - begun, "-", "CPU s"
                )
                trial.rank("one more", world.a[0], world.b[0], unit="another")


def repetitions(runs: int) -> dict[str, object]:
    with ProcessPoolExecutor() as pool:
        inside = list(pool.map(holds_truth, range(runs)))
    text = f"trials of {IMPRESSIONS:,} impressions, theta estimated: {sum(inside)} of {runs} hold the truth"
    return row(text, sum(inside) / runs, ">= 0.95", "")


def holds_truth(seed: int) -> bool:
    world = SimulatedSite.make(seed=seed)
    clock = count(1_700_000_000).__next__  # so that the order of impressions is the same every time
    with (
        tempfile.TemporaryDirectory() as folder,
        Trial.create(Path(folder, "t.db"), eta=0.5, seed=seed, background=False, clock=clock) as trial,
    ):
        visit(world, trial, IMPRESSIONS, children(seed, 2)[1])
        told = trial.report()
    if not told.theta.fitted:
        raise RuntimeError(f"theta was not fitted: {told.theta.note}")
    return -world.delta in told.interval


def visit(world: SimulatedSite, trial: Trial, impressions: int, seed: np.random.SeedSequence) -> None:
    """Visitors search and click; position bias is refitted when the schedule says, at once."""
    random, due = generator(seed), set(trial.config.comparison.traits.learns_at)
    for visitor in range(impressions):
        if visitor in due or visitor % 1_000 == 0:  # do not let more rows wait than the store takes
            trial.store.flush()
            trial.watcher.step()
        query = int(random.integers(len(world.a)))
        a, b = world.a[query], world.b[query]
        shown = trial.rank(f"query {query}", a, b, unit=f"visitor-{visitor}", size=len(world.theta))
        for document in world.clicks(shown.ranking, random):
            trial.click(shown.id, document, wait=False)
    trial.store.flush()
