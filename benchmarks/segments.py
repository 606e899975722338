"""Declared attributes in ``rank``: its times without and with them, head and tail after 300,000 searches, and a start.

Queries are Zipf's, of a million; ``rank`` gets two lists of 100 ids with designs made before. Times are of the processor, in
the thread that calls, which other work does not change.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks._timing import row
from benchmarks.live import lists
from ranktrial.methods import LogOpt
from ranktrial.segments import Traffic
from ranktrial.trial import Trial

CALLS, PAUSE, SEARCHES, QUERIES = 10_000, 0.001, 300_000, 200
DECLARED = {"device": ["phone", "desktop"], "country": ["de", "fr", "us"]}
CASES = {"no attribute": {}, "two attributes": DECLARED, "two, and head and tail": {**DECLARED, "query": "head/tail"}}
GIVEN = {"device": "phone", "country": "de"}


def run() -> list[dict[str, object]]:
    return [*rank_times(), longest_count(), *starts()]


def asked(number: int) -> list[str]:
    weight = np.cumsum(1 / np.arange(1.0, 1_000_001))
    return [f"query {q}" for q in np.searchsorted(weight / weight[-1], np.random.default_rng(1).random(number))]


def rank_times() -> Iterator[dict[str, object]]:
    """Queries seen before, for new units, after many other searches."""
    random, before = np.random.default_rng(0), asked(SEARCHES)
    searches = [(f"query {q}", *lists(q, random)) for q in range(QUERIES)]
    for what, segments in CASES.items():
        with (
            tempfile.TemporaryDirectory() as folder,
            Trial.create(Path(folder, "t.db"), method=LogOpt(schedule=()), segments=segments) as trial,
        ):
            if trial.showing.attributes.traffic is not None:
                for query in before:
                    trial.showing.attributes.traffic.part_of(query)
            times = []
            for call in range(QUERIES + CALLS):
                query, a, b = searches[call % QUERIES]
                begun = time.thread_time_ns()
                trial.rank(query, a, b, unit=f"u{call}", segment=GIVEN if segments else None)
                times.append((time.thread_time_ns() - begun) / 1e6)
                time.sleep(PAUSE)
            p50, p99, most = np.percentile(times[QUERIES:], [50, 99, 100])
            yield row(f"rank, {what}: p50", p50, "-", "CPU ms")
            yield row(f"rank, {what}: p99", p99, "< 1", "CPU ms")
            yield row(f"rank, {what}: longest", most, "-", "CPU ms")


def longest_count() -> dict[str, object]:
    """The longest that one search took to be counted, under the lock of all draws."""
    traffic, longest = Traffic(), 0
    for query in asked(SEARCHES):
        begun = time.thread_time_ns()
        traffic.part_of(query)
        longest = max(longest, time.thread_time_ns() - begun)
    return row(f"longest count of {SEARCHES:,} searches", longest / 1e6, "< 1", "CPU ms")


def starts() -> Iterator[dict[str, object]]:
    """Opening a trial of 100,000 searches, each of a design of its own or of 200."""
    for designs in (100_000, QUERIES):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "t.db")
            with Trial.create(path, method=LogOpt(schedule=()), segments=CASES["two, and head and tail"]) as trial:
                for search in range(100_000):
                    ids = [f"{search % designs} {i}" for i in range(10)]
                    trial.rank(f"query {search % designs}", ids, ids[::-1], unit=f"u{search}", look=False)
                    if search % 2_000 == 0:
                        trial.store.flush()
            begun = time.process_time()
            with Trial.open(path) as trial:
                trial.showing.attributes.traffic  # noqa: B018
                yield row(f"start, 100,000 searches, {designs:,} designs", time.process_time() - begun, "-", "CPU s")
