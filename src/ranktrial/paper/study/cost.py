"""The cost of a study: processor time and memory of the tasks that are done, and what all pairs will take."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median_low
from typing import Any

from ranktrial import checks
from ranktrial.paper.study.files import read_rows
from ranktrial.paper.study.folder import StudyFolder
from ranktrial.paper.study.plan import Task
from ranktrial.paper.study.tables import TIMINGS, tables


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
