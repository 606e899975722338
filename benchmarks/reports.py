"""Reports on large logs: what one takes in time and memory, and what ``rank`` and ``/healthz`` notice of it.

Two kinds of traffic, with lists of 10 ids: *shared* (1,000 queries, whose two lists are the same for everybody) and *personal*
(every search has two lists of its own, in the order in which its visitor would have them, so that every impression has a design
of its own). For each kind and number of impressions

* the store: bytes of an impression and its design, beyond the ids and the query themselves,
* reports in process: the processor time of the first after a start, which reads the whole log, and of the next after another
  thousand impressions, with the most memory that the process ever had,
* the service: the longest ``rank`` and ``/healthz`` and the 99th percentile of ``rank``, under a light load, without the page
  with the page open (which asks for one report after the other) and during a refit, and the most memory of the service and of
  its reports.

Times of the service are of the clock: run this on an idle machine. ``REPORTS_IMPRESSIONS`` (100000), ``REPORTS_KINDS``
(shared,personal) and ``REPORTS_SECONDS`` (40; of load without the page: 2,000 of each, of which 20 are beyond the 99th
percentile) set how much of it, ``REPORTS_MOST_IN_PROCESS`` and
``REPORTS_MOST_SERVED`` up to which size; ``REPORTS_STORES`` keeps the stores in a folder for the next time, each a thousand
impressions longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._timing import row
from benchmarks.service import LISTEN, SERVE, Connection
from ranktrial.log.designs import Design, sound_designs
from ranktrial.trial import Trial
from ranktrial.users import rank_decay

SIZES = [int(size) for size in os.environ.get("REPORTS_IMPRESSIONS", "100000").split(",")]
KINDS = os.environ.get("REPORTS_KINDS", "shared,personal").split(",")
SECONDS = float(os.environ.get("REPORTS_SECONDS", "40"))
MOST_IN_PROCESS = int(
    os.environ.get("REPORTS_MOST_IN_PROCESS", "10000000")
)  # impressions, with reports in process on them,
MOST_SERVED = int(os.environ.get("REPORTS_MOST_SERVED", "300000"))  # and with a service on them
K, QUERIES, CANDIDATES, MORE = 10, 1_000, 16, 1_000
DRAWN = 100_000  # impressions; more than that are these again
PARTS = "query, bias, documents, a, b, rankings, weights, rest"  # of a design in the store
METHOD = "LogOpt(schedule=(1000000000,))"  # so that nothing is worked out that nobody asks for
PAGES = 2  # reports that the page asks for
IN_PROCESS = "import sys; from benchmarks.reports import in_process; in_process(*sys.argv[1:])"


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        stores = Path(os.environ.get("REPORTS_STORES", folder))
        for kind in KINDS:
            for size in SIZES:
                path = stores / f"{kind}-{size}.db"
                if not path.exists():
                    fill(path.with_suffix(".part"), kind, size)
                    path.with_suffix(".part").rename(path)
                head = f"{kind}, {size:,} impressions: "
                rows += [{**one, "name": head + str(one["name"])} for one in measured(path, kind, size)]
    return rows


def measured(path: Path, kind: str, size: int) -> Iterator[dict[str, object]]:
    sample = min(size, 10_000)
    names = sum(map(len, _names(kind, sample))) / sample if kind == "personal" else 0.0  # shared ones weigh nothing
    with contextlib.closing(sqlite3.connect(path)) as store:
        (used,) = store.execute(
            "SELECT sum(pgsize) FROM dbstat WHERE name LIKE '%impressions%' OR name LIKE '%designs%'"
        )
    yield row("stored of an impression and its design, beyond ids and query", used[0] / size - names, "< 200", "bytes")
    if size <= MOST_IN_PROCESS:
        yield from reports(path, kind)
    if size <= MOST_SERVED:
        yield from asyncio.run(served(path, kind))


# --- the traffic ----------------------------------------------------------------------------------------------------------


def search(kind: str, number: int) -> tuple[str, list[str], list[str]]:
    """The query and both lists of the impression of this number."""
    of = number % QUERIES if kind == "shared" else number
    random = np.random.default_rng(of)
    ids = [f"{of % 5_000}-{i}" for i in range(CANDIDATES)]
    a, b = (np.argsort(np.arange(CANDIDATES) + random.normal(0, 3, CANDIDATES))[:K].tolist() for _ in range(2))
    return f"query {of}", [ids[i] for i in a], [ids[i] for i in b]


def _names(kind: str, size: int) -> Iterator[str]:
    for number in range(size):
        query, a, b = search(kind, number)
        yield query
        yield from {*a, *b}


def visit(trial: Trial, kind: str, first: int, impressions: int) -> None:
    """Visitors who search once, and click by the position-based model."""
    random, theta = np.random.default_rng(first), rank_decay(K)
    for number in range(first, first + impressions):
        if number % 2_000 == 0:  # do not let more rows wait than the store takes
            trial.store.flush()
        query, a, b = search(kind, number)
        shown = trial.rank(query, a, b, unit=f"visitor-{number}", look=False)
        luck = random.random(K) * CANDIDATES
        for document, seen, chance in zip(shown.ranking, theta, luck):
            if chance < seen * (CANDIDATES - int(document.split("-")[1])) * 0.5:
                trial.click(shown.id, document, wait=False)
    trial.store.flush()


def fill(path: Path, kind: str, impressions: int, **options: Any) -> None:
    """A store with so many impressions: the first are drawn, then the same come again and again from other visitors, at later
    times and, where lists are personal, for other queries. The options are those of the trial."""
    clock, drawn = count(1_700_000_000).__next__, min(impressions, DRAWN)
    with Trial.create(path, "t", method=METHOD, k=K, background=False, clock=clock, seed=1, **options) as trial:
        visit(trial, kind, 0, drawn)
        with contextlib.closing(sqlite3.connect(path)) as store:
            store.executescript("PRAGMA synchronous = OFF; PRAGMA cache_size = -2000000")  # all of it in memory
            store.create_function("again", 2, _other_key, deterministic=True)
            designs = dict[int, Design]()  # design and impression of a number belong together
            if kind == "personal" and impressions > drawn:
                for first in range(1, drawn + 1, 2_000):
                    designs |= sound_designs(trial.store.designs(range(first, min(first + 2_000, drawn + 1))))
            for time in range(1, -(-impressions // drawn)):
                _come_again(store, designs, time, drawn, min(drawn, impressions - time * drawn))


def _come_again(store: sqlite3.Connection, designs: dict[int, Design], time: int, drawn: int, impressions: int) -> None:
    others = ((id, replace(design, query=f"{design.query}, {time}")) for id, design in designs.items())
    store.executemany(
        f"INSERT INTO designs (id, digest, {PARTS}) VALUES ({', '.join('?' * 10)})",
        ((time * drawn + id, design.digest, *design.parts) for id, design in others if id <= impressions),
    )
    later = time * drawn if designs else 0
    (span,) = store.execute("SELECT max(time) - min(time) + 1 FROM impressions WHERE id <= ?", (drawn,)).fetchone()
    store.execute(
        "INSERT INTO impressions (key, version, design, place, unit, time) SELECT again(key, ?), version, design + ?, place, "
        "unit + ?, time + ? FROM impressions WHERE id <= ? ORDER BY id",
        (time, later, time, time * span, impressions),
    )
    store.execute(
        "INSERT INTO clicks (version, key, document, late) SELECT c.version, again(c.key, ?), c.document, c.late FROM clicks c "
        "JOIN impressions i ON i.key = c.key WHERE i.id <= ? ORDER BY c.id",
        (time, impressions),
    )
    store.commit()


def _other_key(key: bytes, time: int) -> bytes:
    return blake2b(key, digest_size=len(key), salt=time.to_bytes(4, "big")).digest()


# --- in one process -------------------------------------------------------------------------------------------------------


def reports(path: Path, kind: str) -> Iterator[dict[str, object]]:
    done = subprocess.run([sys.executable, "-c", IN_PROCESS, str(path), kind], stdout=subprocess.PIPE, check=True)
    first, again, peak = json.loads(done.stdout)
    yield row("first report, processor time", first, "-", "s")
    yield row(f"the next, after {MORE:,} more", again, "-", "s")
    yield row("most memory of both", peak, "-", "MB")


def in_process(path: str, kind: str) -> None:
    """Two reports, one after the other, in a process of their own."""
    clock = [count(1_700_000_000)]
    with Trial.open(path, background=False, clock=lambda: next(clock[0])) as trial:
        start = time.process_time()
        report = trial.report()
        middle = time.process_time()
        before, clock[0] = report.impressions, count(int(report.pace.latest) + 1)  # visitors come as they came
        visit(trial, kind, before, MORE)
        between = time.process_time()
        after = trial.report().impressions
        end = time.process_time()
    assert after == before + MORE
    print(json.dumps([middle - start, end - between, _peak(os.getpid())]))


def _peak(process: int) -> float:
    """The most memory that a process and its children have had, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    own = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
    threads = [Path(f"/proc/{process}/task/{one.name}/children") for one in Path(f"/proc/{process}/task").iterdir()]
    children = sorted({child for thread in threads for child in thread.read_text().split()})
    return own / 1024 + sum(_peak(int(child)) for child in children)


# --- in the service -------------------------------------------------------------------------------------------------------


async def served(path: Path, kind: str) -> list[dict[str, object]]:
    code = LISTEN + SERVE
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        port = int(await asyncio.to_thread(process.stdout.readline))
        await _loaded(port, kind, 10**8, asyncio.create_task(_wait(2.0)))  # until all is loaded and compiled
        ranks, health = await _loaded(port, kind, 2 * 10**8, asyncio.create_task(_wait(SECONDS)))
        beside = await _beside_a_loop(port, kind)
        page = asyncio.create_task(_asked(port, "GET", "/v1/trials/t/report", PAGES))
        ranks_open, health_open = await _loaded(port, kind, 3 * 10**8, page)
        refit = asyncio.create_task(_asked(port, "POST", "/v1/trials/t/update"))
        ranks_refit, health_refit = await _loaded(port, kind, 4 * 10**8, refit)
        times, peak = page.result(), _peak(process.pid)
    finally:
        process.terminate()
        process.wait()
    before, looped, after, meanwhile = (
        float(np.percentile(some, 99)) * 1e3 for some in (ranks, beside, ranks_open, ranks_refit)
    )
    return [
        row("service: first report", times[0], "-", "s"),
        row("service: the next report", times[-1], "-", "s"),
        row("service: most memory", peak, "-", "MB"),
        row("service: p99 of rank without the page", before, "-", "ms"),
        row("service: p99 of rank beside a loop that only counts", looped, "-", "ms"),
        row("service: p99 of rank with the page open", after, "< 1.2 x", "ms"),
        row("service: longest rank without the page", max(ranks) * 1e3, "-", "ms"),
        row("service: longest rank with the page open", max(ranks_open) * 1e3, "< 100", "ms"),
        row("service: longest /healthz without the page", max(health) * 1e3, "-", "ms"),
        row("service: longest /healthz with the page open", max(health_open) * 1e3, "< 100", "ms"),
        row("service: a refit", refit.result()[0], "-", "s"),
        row("service: p99 of rank during a refit", meanwhile, "< 1.2 x", "ms"),
        row("service: longest rank during a refit", max(ranks_refit) * 1e3, "< 100", "ms"),
        row("service: longest /healthz during a refit", max(health_refit) * 1e3, "< 100", "ms"),
    ]


async def _beside_a_loop(port: int, kind: str) -> list[float]:
    """Times of ``rank`` while another process keeps a core busy that nobody else wants: what any of them costs here."""
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    os.sched_setscheduler(loop.pid, os.SCHED_IDLE, os.sched_param(0))
    try:
        ranks, _ = await _loaded(port, kind, 5 * 10**8, asyncio.create_task(_wait(SECONDS)))
    finally:
        loop.kill()
        loop.wait()
    return ranks


async def _wait(seconds: float) -> list[float]:
    await asyncio.sleep(seconds)
    return []


async def _asked(port: int, method: str, path: str, times: int = 1) -> list[float]:
    """Seconds of requests that are sent one after the other."""
    took = []
    async with Connection.to(port) as connection:
        for _ in range(times):
            start = time.perf_counter()
            await connection.send(method, path, None)
            took.append(time.perf_counter() - start)
    return took


async def _loaded(
    port: int, kind: str, first: int, until: asyncio.Task[list[float]]
) -> tuple[list[float], list[float]]:
    """Times of ``rank`` and of ``/healthz``, each asked for 50 times a second until something is done."""
    ranks: list[float] = []
    health: list[float] = []

    async def ask(path: str, times: list[float], numbers: Iterator[int]) -> None:
        async with Connection.to(port) as connection:
            while not until.done():
                query, a, b = search(kind, number := next(numbers))
                asked = {"query": query, "a": a, "b": b, "unit": f"u{number}"}
                request = ("POST", path, asked) if times is ranks else ("GET", path, None)
                start = time.perf_counter()
                try:
                    await connection.send(*request)
                except (ConnectionError, asyncio.IncompleteReadError):  # the service was frozen for so long
                    times.append(time.perf_counter() - start)
                    break
                times.append(time.perf_counter() - start)
                await asyncio.sleep(0.02)
        if not until.done():
            await ask(path, times, numbers)

    await asyncio.gather(ask("/v1/trials/t/rank", ranks, count(first)), ask("/healthz", health, count(first)))
    return ranks, health
