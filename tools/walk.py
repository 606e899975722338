"""The walks of an impression, a click, a report, an estimate and a task of a study: which functions run, in which files.

python tools/walk.py           functions, files, and how often the next call is in another file than the last
python tools/walk.py --list    the calls too, as a tree

All threads of the process count, also the store's writer, but not the watcher that looks after the trial every second. What
has no name of its own (lambdas, comprehensions) belongs to the function around it; a compiled kernel is one call.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from itertools import product
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx
import numpy as np
import pyarrow
import pyarrow.parquet

import ranktrial
from ranktrial.cli import app
from ranktrial.paper.study import DataPlan, StudyPlan, run_study
from ranktrial.paper.study.folder import Failure
from ranktrial.paper.study.tasks import run_task
from ranktrial.service import create_app
from ranktrial.trial import Trial

SOURCES = Path(ranktrial.__file__).parent
QUERIES, DOCUMENTS, K = 10, 14, 10
IMPRESSIONS = (1, 300)  # with clicks, before: a trial that has just begun, and one with a fitted position bias
REPEATS = 5


@dataclass
class Call:
    """A function, how often it was called from the same place in the tree, and what it called."""

    times: int = 0
    inside: dict[CodeType, Call] = field(default_factory=dict)

    def lines(self, depth: int) -> Iterator[str]:
        for code, call in self.inside.items():
            times = f"  x {call.times}" if call.times > 1 else ""
            yield f"{'  ' * depth}{code.co_qualname}  {_file(code)}:{code.co_firstlineno}{times}"
            yield from call.lines(depth + 1)


@dataclass
class Walk:
    """Calls, in the order of each thread."""

    trees: dict[str, Call] = field(default_factory=dict)  # by thread
    functions: set[CodeType] = field(default_factory=set)
    calls: int = 0
    changes: int = 0
    _stacks: dict[int, list[tuple[FrameType, Call]]] = field(default_factory=dict)
    _last: dict[int, str] = field(default_factory=dict)

    @property
    def files(self) -> set[str]:
        return {code.co_filename for code in self.functions}

    def __call__(self, frame: FrameType, event: str) -> None:
        thread = threading.get_ident()
        stack = self._stacks.setdefault(thread, [])
        if event == "return":
            if stack and stack[-1][0] is frame:
                stack.pop()
            return
        code = frame.f_code
        above = stack[-1][1] if stack else self.trees.setdefault(threading.current_thread().name, Call())
        call = above.inside.setdefault(code, Call())
        call.times += 1
        stack.append((frame, call))
        self.functions.add(code)
        self.calls += 1
        self.changes += self._last.get(thread, code.co_filename) != code.co_filename
        self._last[thread] = code.co_filename


class Tracer:
    """Follows the calls of all threads that start after it, whenever there is something to ``trace``."""

    def __init__(self) -> None:
        self._walk: Walk | None = None
        threading.setprofile(self._event)
        sys.setprofile(self._event)

    @contextmanager
    def trace(self) -> Iterator[Walk]:
        self._walk = walk = Walk()
        yield walk
        self._walk = None

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        walk = self._walk
        if walk is not None and event in ("call", "return"):
            code = frame.f_code
            ours = code.co_filename.startswith(str(SOURCES)) and not code.co_name.startswith("<")
            if ours and not threading.current_thread().name.endswith("watcher"):
                walk(frame, event)


def _file(code: CodeType) -> str:
    return str(Path(code.co_filename).relative_to(SOURCES))


def make_trial(store: Path, impressions: int) -> None:
    """A trial with visitors who click less the lower a document stands."""
    random = np.random.default_rng(1)
    with Trial.create(store, "t", k=K, seed=1, background=False) as trial:
        for visitor in range(impressions):
            query = f"query {random.integers(QUERIES)}"
            shown = trial.rank(**request(query, f"visitor {visitor}"), size=K)
            for rank, document in enumerate(shown.ranking):
                if random.random() < 0.5 / (1 + rank):
                    trial.click(shown.id, document, wait=False)
        trial.store.flush()


def request(query: str, unit: str) -> dict[str, Any]:
    """Lists of a search: two of ids, B's in another order than A's."""
    ids = [f"{query}, document {i}" for i in range(DOCUMENTS)]
    return {"query": query, "a": ids, "b": ids[2:5] + ids[:2] + ids[:4:-1], "unit": unit}


FIRST, SECOND = request("warm", "visitor who comes first"), request("new", "visitor whom we follow")


async def over_http(tracer: Tracer, store: Path) -> dict[str, Walk]:
    """A query's first impression, a click on it, and the first report after a start, of the service."""
    app = create_app(store)
    transport, address = httpx.ASGITransport(app), "http://127.0.0.1/v1/"
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url=address) as client:
        (await client.post("trials/t/rank", json=FIRST)).raise_for_status()  # so that everything is loaded
        with tracer.trace() as rank:
            shown = (await client.post("trials/t/rank", json=SECOND)).raise_for_status().json()
        with tracer.trace() as click:
            event = {"id": shown["id"], "document": shown["ranking"][0]}
            (await client.post("events", json=[event])).raise_for_status()
        with tracer.trace() as report:
            (await client.get("trials/t/report")).raise_for_status()
    return {"rank": rank, "click": click, "report": report}


def in_process(tracer: Tracer, store: Path) -> dict[str, Walk]:
    """Search and click of a trial in Python."""
    with Trial.open(store, "t", background=False) as trial:
        trial.rank(**FIRST, wait=True)
        with tracer.trace() as rank:
            shown = trial.rank(**SECOND, wait=True)
        with tracer.trace() as click:
            trial.click(shown.id, shown.ranking[0])
        with tracer.trace() as report:
            trial.report()
    return {"rank": rank, "click": click, "report": report}


def of_a_file(tracer: Tracer, folder: Path) -> Walk:
    """``ranktrial estimate`` of a Parquet file of an A/B test with both lists."""
    random, file = np.random.default_rng(2), folder / "log.parquet"
    records = []
    for visitor in range(IMPRESSIONS[1]):
        asked = request(f"query {random.integers(QUERIES)}", f"visitor {visitor}")
        shown = asked["ab"[random.integers(2)]][:K]
        clicked = [one for rank, one in enumerate(shown) if random.random() < 0.5 / (1 + rank)]
        records.append({**asked, "shown": shown, "clicked": clicked})
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), file)
    command = ["estimate", str(file), "-k", str(K), "--json"]
    with redirect_stdout(StringIO()), tracer.trace() as walk:
        app(command, standalone_mode=False)
    return walk


def of_a_study(tracer: Tracer, folder: Path) -> Walk:
    """One task of a study: an expected run of a closed form that learns."""
    data = DataPlan("first", "yahoo-like", queries=20)
    plan = StudyPlan(data=(data,), methods=("LogOpt(loss=None, keep=0, holdback=0)",), pairs=1, impressions=2_000, k=5)
    run_study(plan, folder / "study")  # so that data and kernels are there
    with tracer.trace() as walk:
        result = run_task(str(folder / "study"), plan.digest, next(iter(plan.all_tasks())))
    assert not isinstance(result, Failure), result
    return walk


def usual_walks() -> dict[str, Walk]:
    """Median of a few times each: a busy machine adds calls here and there, for example to count a slow answer."""
    tracer = Tracer()
    found: dict[str, list[Walk]] = {}
    for _, impressions in product(range(REPEATS), IMPRESSIONS):
        with tempfile.TemporaryDirectory() as folder:
            for way in ("over HTTP", "in process"):
                store = Path(folder, f"{way}.db")
                make_trial(store, impressions)
                http = way == "over HTTP"
                walks = asyncio.run(over_http(tracer, store)) if http else in_process(tracer, store)
                for what, walk in walks.items():
                    of = f" on {impressions + 2} impressions" if what == "report" else ""
                    found.setdefault(f"{what}{of}, {way}", []).append(walk)
    with tempfile.TemporaryDirectory() as folder:
        of_a_file(tracer, Path(folder))  # so that everything is loaded
        found["estimate log.parquet"] = [of_a_file(tracer, Path(folder))]
        found["task of a study"] = [of_a_study(tracer, Path(folder))]
    return {name: sorted(some, key=lambda walk: walk.calls)[len(some) // 2] for name, some in sorted(found.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the calls, as a tree")
    options = parser.parse_args()
    walks = usual_walks()
    print(f"{'':36}{'functions':>10}{'files':>10}{'changes of file':>18}{'calls':>10}")
    for name, walk in walks.items():
        print(f"{name:36}{len(walk.functions):>10}{len(walk.files):>10}{walk.changes:>18,}{walk.calls:>10,}")
    if options.list:
        for name, walk in walks.items():
            print("", name, sep="\n")
            for thread, tree in walk.trees.items():
                print(f"  in {thread}", *tree.lines(2), sep="\n")


if __name__ == "__main__":
    main()
