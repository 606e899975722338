"""Summaries of a study: each method's mean errors over pairs at round numbers of impressions, and what its tasks cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np

from ranktrial import checks
from ranktrial.arrays import IntArray
from ranktrial.paper.study.files import read_rows
from ranktrial.paper.study.folder import FailedTask, StudyFolder
from ranktrial.paper.study.plan import StudyPlan, Task
from ranktrial.paper.study.tables import RESULTS, TIMINGS, tables

METRICS = ("binary_error", "absolute_error", "mean_squared_error")
MILESTONES = (100, 1_000, 10_000, 100_000, 1_000_000, 3_000_000)


@dataclass(frozen=True)
class MethodSummary:
    """The summary of one method on one data set.

    Attributes:
        method: Text of the method.
        pairs: Pairs it has results for.
        errors: The mean over pairs of each metric, at each checkpoint of the summary; None where it is not known.
        ctr: Clicks per impression that users gave while it ran, over the whole run.
        seconds: Median seconds a task.
    """

    method: str
    pairs: int
    errors: Mapping[str, tuple[float | None, ...]]
    ctr: float
    seconds: float


@dataclass(frozen=True)
class DataSummary:
    """The summary of all methods on one data set.

    Attributes:
        data: Its name.
        ctr: Mean clicks per impression of its rankers.
        median_delta: Median over pairs of the absolute difference between the two rankers.
        methods: In the order of the plan.
    """

    data: str
    ctr: float
    median_delta: float
    methods: tuple[MethodSummary, ...]


@dataclass(frozen=True)
class StudySummary:
    """The summary of a study.

    Attributes:
        impressions: The checkpoints nearest to round numbers.
        done: Tasks with results, of ``total``; limits included.
        total: Tasks of the plan.
        data: Data sets that have results.
        failures: Tasks that failed the last time they ran.
    """

    impressions: tuple[int, ...]
    done: int
    total: int
    data: tuple[DataSummary, ...]
    failures: tuple[FailedTask, ...]

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        values["failures"] = [{**failed.task._asdict(), "error": failed.error} for failed in self.failures]
        return values


def nearest_checkpoints(points: IntArray) -> list[int]:
    """The checkpoints nearest to the milestones they reach, and the last.

    >>> nearest_checkpoints(np.array([100, 450, 990, 2000]))
    [100, 990, 2000]
    """
    reached = [m for m in MILESTONES if m <= points[-1]]
    nearest = {int(points[np.argmin(np.abs(np.log(points / m)))]) for m in reached}
    return sorted({*nearest, int(points[-1])})


def summarise(path: Path) -> StudySummary:
    """The summary of a study, finished or not."""
    study = StudyFolder(path)
    plan = study.read_plan()
    shown = nearest_checkpoints(plan.points)
    tasks = list(plan.all_tasks())
    done = study.done(tasks)
    with tables(study, plan, np.array(shown)) as folder:
        sets = _sets(plan, folder, shown) if any(task.kind == "run" for task in done) else ()
    return StudySummary(tuple(shown), len(done), len(tasks), sets, tuple(study.failures(plan)))


def _sets(plan: StudyPlan, folder: Path, shown: Sequence[int]) -> tuple[DataSummary, ...]:
    means = read_rows(
        f"""select data, method, impressions, count(*) as pairs, avg(ctr) as ctr,
                   {", ".join(f"avg({metric}) as {metric}" for metric in METRICS)}
            from read_parquet($files) where list_contains($shown, impressions) group by all order by impressions""",
        [folder / RESULTS],
        shown=shown,
    )
    rankers = read_rows(
        """select data, avg((ctr_a + ctr_b) / 2) as ctr, median(abs(delta)) as median_delta
           from (select distinct data, pair, ctr_a, ctr_b, delta from read_parquet($files)) group by data""",
        [folder / RESULTS],
    )
    times = read_rows(
        "select data, method, median(seconds) as seconds from read_parquet($files) where kind = 'run' group by all",
        [folder / TIMINGS],
    )
    seconds = {(row["data"], row["method"]): row["seconds"] for row in times}
    by_data = {row["data"]: row for row in rankers}
    by_method: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in means:
        by_method[row["data"], row["method"]].append(row)

    def method_summary(data: str, method: str) -> MethodSummary:
        rows = by_method[data, method]
        errors = {metric: tuple(row[metric] for row in rows) for metric in METRICS}
        return MethodSummary(method, rows[-1]["pairs"], errors, rows[-1]["ctr"], seconds[data, method])

    return tuple(
        DataSummary(
            data.name,
            by_data[data.name]["ctr"],
            by_data[data.name]["median_delta"],
            tuple(method_summary(data.name, method) for method in plan.methods if (data.name, method) in by_method),
        )
        for data in plan.data
        if data.name in by_data
    )


@dataclass(frozen=True)
class TaskCost:
    """The cost of one method on one data set.

    Attributes:
        data: Name of the data set.
        task: The method, or "limit of" it.
        done: Tasks measured.
        cpu_seconds: Median processor seconds a task.
        seconds: Median wall seconds a task.
        peak_memory: Largest peak of a task's process, in bytes; None where it was not recorded.
        hours: Hours of all pairs, shared by the workers.
    """

    data: str
    task: str
    done: int
    cpu_seconds: float
    seconds: float
    peak_memory: int | None
    hours: float


@dataclass(frozen=True)
class StudyCost:
    """The cost of a study, by method and in all.

    Attributes:
        pairs: Pairs on each data set that are foretold; limits are for as many as the plan has.
        workers: Processes that share the work.
        hours: Hours of everything measured here together.
        costs: In the order of the plan.
        not_measured: Tasks of the plan of which none is done; they are not in ``hours``.
    """

    pairs: int
    workers: int
    hours: float
    costs: tuple[TaskCost, ...]
    not_measured: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def study_cost(path: Path, *, pairs: int | None = None, workers: int = 1) -> StudyCost:
    """The cost of a study, finished or not, if every task takes the median of those of its kind that are done."""
    checks.at_least("workers", workers, 1)
    study = StudyFolder(path)
    plan = study.read_plan()
    with tables(study, plan, plan.points[-1:]) as folder:
        timings = folder / TIMINGS
        rows = read_rows("select * from read_parquet($files)", [timings]) if timings.exists() else []
    planned = Counter((task.data, task.method, task.kind) for task in plan.all_tasks())
    measured: defaultdict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        measured[row["data"], row["method"], row["kind"]].append(row)
    costs, missing = [], []
    for (data, method, kind), tasks in planned.items():
        what = Task(data, 0, method, kind).what
        if (data, method, kind) in measured:
            number = pairs if kind == "run" and pairs is not None else tasks
            costs.append(_cost(data, what, measured[data, method, kind], number / workers))
        else:
            missing.append(f"{what} on {data}")
    return StudyCost(pairs or plan.pairs, workers, sum(one.hours for one in costs), tuple(costs), tuple(missing))


def _cost(data: str, what: str, rows: list[dict[str, Any]], tasks: float) -> TaskCost:
    # Of two, the lower: the first task of a process also loads compiled code.
    seconds = median_low(row["seconds"] for row in rows)
    cpu = median_low(row["cpu_seconds"] for row in rows)
    peaks = [row["peak_memory"] for row in rows if row["peak_memory"]]
    return TaskCost(data, what, len(rows), cpu, seconds, max(peaks, default=None), tasks * cpu / 3600)
