"""Events such as orders: what taking one costs beside ``rank`` and ``click``, and what a report on millions of them does.

* Processor time of a call in process, the thread that writes to the SQLite file included: 20,000 calls of each, without
  waiting for the disk; the best of five rounds.
* A store of ``EVENTS_IMPRESSIONS`` (2150000) searches of shared lists (``reports``) with ``EVENTS_A_CLICK`` (4) events after
  each click: a cart, and orders with amounts, up to two days later. In a process of its own each, its log is read without
  metrics and with ``Carts``, ``Orders`` and ``Revenue``, then once more after another thousand searches and events; and a
  report is made. ``EVENTS_STORE`` keeps the store in a folder for the next time.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks._timing import row
from benchmarks.reports import METHOD, MORE, QUERIES, K, _peak, fill, search, visit
from ranktrial.metrics import Carts, Orders, Revenue
from ranktrial.trial import Shown, Trial

CALLS, ROUNDS = 20_000, 5
IMPRESSIONS = int(os.environ.get("EVENTS_IMPRESSIONS", "2150000"))
A_CLICK = int(os.environ.get("EVENTS_A_CLICK", "4"))
METRICS = Carts(window="1d"), Orders(window="7d"), Revenue(window="7d", cap=500)
DAY = 86_400_000_000  # microseconds
IN_PROCESS = "import sys; from benchmarks.events import in_process; in_process(*sys.argv[1:])"
PARTS = {
    "log": "reading the log without metrics",
    "events": "reading it with three metrics",
    "report": "a report with them",
}


def run() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        return [*calls(Path(folder)), *stored(Path(os.environ.get("EVENTS_STORE", folder)))]


# --- calls ----------------------------------------------------------------------------------------------------------------


def calls(folder: Path) -> Iterator[dict[str, object]]:
    times: dict[str, list[float]] = {"rank, a query seen before": [], "click": [], "event": []}
    for number in range(ROUNDS):
        with Trial.create(folder / f"{number}.db", method=METHOD, k=K, background=False, metrics=METRICS) as trial:
            searches = [search("shared", query) for query in range(QUERIES)]
            for one in searches:
                trial.rank(*one, unit="nobody")
            trial.store.flush()
            shown = [trial.rank(*searches[n % QUERIES], unit=f"visitor {n}", wait=n % 2_000 == 0) for n in range(CALLS)]
            trial.store.flush()
            for one_time, call in zip(times.values(), _work(trial, searches, shown)):
                one_time.append(_seconds_each(trial, call))
    for name, found in times.items():
        yield row(f"{name}, processor time", min(found) * 1e6, "-", "us")


def _work(
    trial: Trial, searches: Sequence[tuple[str, list[str], list[str]]], shown: Sequence[Shown]
) -> tuple[Callable[[int], object], ...]:
    return (
        lambda n: trial.rank(*searches[n % QUERIES], unit=f"another {n}"),
        lambda n: trial.click(shown[n].id, shown[n].ranking[0], wait=False),
        lambda n: trial.event(shown[n].id, shown[n].ranking[0], "order", "39.90", wait=False),
    )


def _seconds_each(trial: Trial, call: Callable[[int], object]) -> float:
    start = time.process_time()
    for number in range(CALLS):
        call(number)
        if number % 2_000 == 0:  # do not let more rows wait than the store takes
            trial.store.flush()
    trial.store.flush()
    return (time.process_time() - start) / CALLS


# --- a store of millions ----------------------------------------------------------------------------------------------------


def stored(folder: Path) -> Iterator[dict[str, object]]:
    path = folder / f"events-{IMPRESSIONS}-{A_CLICK}.db"
    if not path.exists():
        part = path.with_suffix(".part")
        fill(part, "shared", IMPRESSIONS, metrics=METRICS)
        _add_events(part)
        part.rename(path)
    with contextlib.closing(sqlite3.connect(path)) as store:
        clicks, events = (
            store.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("clicks", "events")
        )
        (used,) = store.execute("SELECT sum(pgsize) FROM dbstat WHERE name LIKE '%events%'").fetchone()
    head = f"{IMPRESSIONS:,} searches, {clicks:,} clicks, {events:,} events: "
    yield row(head + "stored of an event", used / events, "-", "bytes")
    for part_of, name in PARTS.items():
        done = subprocess.run(
            [sys.executable, "-c", IN_PROCESS, str(path), part_of], stdout=subprocess.PIPE, check=True
        )
        first, again, peak = json.loads(done.stdout)
        yield row(f"{head}{name}, processor time", first, "-", "s")
        yield row(f"{head}{name}, after {MORE:,} more searches", again, "-", "s")
        yield row(f"{head}{name}, most memory", peak, "-", "MB")


def _add_events(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as store:
        store.executescript("PRAGMA synchronous = OFF; PRAGMA cache_size = -4000000")  # all of it in memory
        for number in range(A_CLICK):
            action, event_id = ("cart", "") if number == 0 else ("order", f"order {number}")
            store.execute(
                "INSERT INTO events (version, key, document, action, event_id, amount, time) "
                "SELECT c.version, c.key, c.document, ?, ? || c.document, ?, i.time + abs(random()) % ? "
                "FROM clicks c JOIN impressions i ON i.key = c.key ORDER BY i.time",
                (action, event_id, 0 if number == 0 else 39_900_000, 2 * DAY),
            )
        store.commit()


def in_process(path: str, part: str) -> None:
    """A log or report, and the next one, in a process of their own."""
    with contextlib.closing(sqlite3.connect(path)) as store:
        latest = store.execute("SELECT max(time) FROM impressions").fetchone()[0] // 1_000_000
    clock = [count(latest + 100 * 86_400)]  # when all windows are over
    with Trial.open(path, background=False, clock=lambda: next(clock[0])) as trial:
        version = trial.state.version
        if part == "log":
            version = replace(version, config=trial.config.model_copy(update={"metrics": ()}).to_store())
        read = trial.report if part == "report" else partial(trial.learning.log, trial.name, version)
        start = time.process_time()
        read()
        middle = time.process_time()
        _visit_and_order(trial, time.time_ns())
        between = time.process_time()
        read()
        end = time.process_time()
    print(json.dumps([middle - start, end - between, _peak(os.getpid())]))


def _visit_and_order(trial: Trial, number: int) -> None:
    visit(trial, "shared", number, MORE)
    for later in range(MORE):
        query, a, b = search("shared", number + later)
        shown = trial.rank(query, a, b, unit=f"visitor-{number + later}")
        trial.event(shown.id, shown.ranking[0], "order", "39.90", wait=False)
    trial.store.flush()
