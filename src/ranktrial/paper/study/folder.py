"""The folder of a study: a part for every finished task, a note for every failed one, and the tables made of them.

    plan.json            what is being run; a plan that does not continue it is refused
    data/NAME/           prepared data set and rankers, memory-mapped by workers
    parts/NAME/PAIR/     a Parquet file a finished task: the law of a run or a limit, or its curves if it was simulated
    taken/               laws of runs that were taken over from packed files
    failed/NAME/PAIR/    a JSON file a failed task; gone when it succeeds
    results.parquet      a row per (data set, pair, method, checkpoint), when the run has ended (see ``tables``)
    limits.parquet       a row per (data set, pair, method) that has a limit
    timings.parquet      time and memory of each task, apart because no two runs agree on them
    pairs.csv            which systems are A and B of each pair, if systems were given

Files appear whole or not at all, so a study may be killed at any moment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ranktrial
from ranktrial.methods import ExpectedRun, Trajectory
from ranktrial.paper.study.files import read_metadata, read_rows, write_columns, written_whole
from ranktrial.paper.study.laws import curve_columns, law_columns
from ranktrial.paper.study.plan import StudyPlan, Task, differences

MADE_BY = {"format": 3, "ranktrial": ranktrial.__version__}


@dataclass(frozen=True)
class FailedTask:
    """A task without a result, and why."""

    task: Task
    error: str

    def __str__(self) -> str:
        return f"{self.task}: {self.error}"


@dataclass(frozen=True, eq=False)
class TaskResult:
    """The result of a task, and what it took.

    Attributes:
        ctr_a: True clicks per impression of ranker A.
        ctr_b: True clicks per impression of ranker B.
        run: The run of the method; for a limit an expected one.
        seconds: Wall time of the method alone, without opening data; the first task of a process also loads compiled code.
        cpu_seconds: Processor time of the process meanwhile, however busy the machine was with other work.
        peak_memory: Bytes of the process in memory at most, mapped data included. Where the system cannot start the count
            anew (it can on Linux) this is the peak since the process began.
    """

    ctr_a: float
    ctr_b: float
    run: Trajectory | ExpectedRun
    seconds: float
    cpu_seconds: float
    peak_memory: int


@dataclass(frozen=True)
class Failure:
    """The error of a task that has no result.

    Attributes:
        error: In one line.
        details: The traceback.
    """

    error: str
    details: str = ""


class StudyFolder:
    """The folder of one study: its plan, the tasks that are done and those that failed."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock: one run at a time. The operating system lets go of it when a run dies, however it dies."""
        try:
            import fcntl
        except ImportError:  # no such locks on this system: be careful yourself
            yield
            return
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"{self.path}: another run is at work in this folder") from None
            yield

    def read_plan(self) -> StudyPlan:
        return self._plan_and_makers()[0]

    def _plan_and_makers(self) -> tuple[StudyPlan, dict[str, Any]]:
        """The plan, and the formats that it was written with."""
        file = self.path / "plan.json"
        try:
            record = json.loads(file.read_text())
            return StudyPlan.from_dict(record.pop("plan"), str(file), self.path), record
        except FileNotFoundError:
            raise ValueError(f"{self.path}: no study here (no plan.json)") from None
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"{file}: not the plan of a study ({problem!r})") from None

    def adopt(self, plan: StudyPlan) -> StudyPlan | None:
        """Make this the plan of the folder, or refuse if it does not continue the one there. Returns the one there was."""
        if not (self.path / "plan.json").exists():
            self.write_plan(plan)
            return None
        before, made_by = self._plan_and_makers()
        conflicts = [*before.conflicts(plan), *differences(made_by, MADE_BY)]
        if conflicts:
            raise ValueError(
                f"{self.path} holds another study: {'; '.join(conflicts)}. Continue that one or choose another folder"
            )
        self.write_plan(plan)
        return before

    def write_plan(self, plan: StudyPlan | None) -> None:
        """Write the plan, or take it away."""
        if plan is None:
            (self.path / "plan.json").unlink()
            return
        with written_whole(self.path / "plan.json") as path:
            path.write_text(json.dumps({**MADE_BY, "plan": plan.to_dict()}, indent=2) + "\n")

    def part(self, task: Task) -> Path:
        return self._file("parts", task, "parquet")

    def _failure(self, task: Task) -> Path:
        return self._file("failed", task, "json")

    def _file(self, kind: str, task: Task, suffix: str) -> Path:
        """A file of a task: its name is readable, and different for different methods."""
        readable = re.sub(r"[^A-Za-z0-9]+", "-", task.what).strip("-")[:60].strip("-")
        name = f"{readable}-{hashlib.sha256(task.what.encode()).hexdigest()[:10]}.{suffix}"
        return self.path / kind / task.data / f"{task.pair:05}" / name

    def done(self, tasks: Iterable[Task]) -> list[Task]:
        """The given tasks that have a result."""
        taken = set(tasks_in(self.taken_files()))
        return [task for task in tasks if task in taken or self.part(task).exists()]

    def taken_files(self) -> list[Path]:
        return sorted((self.path / "taken").glob("[!.]*.parquet"))

    def files(self, tasks: Iterable[Task]) -> list[Path]:
        """The files that hold what is known of these tasks, perhaps among others."""
        return [part for task in tasks if (part := self.part(task)).exists()] + self.taken_files()

    def record(self, task: Task, result: TaskResult | Failure) -> None:
        """Store the result of a task, or the note of its failure."""
        if isinstance(result, Failure):
            with written_whole(self._failure(task)) as path:
                note = {**task._asdict(), "error": result.error, "details": result.details}
                path.write_text(json.dumps(note, indent=2) + "\n")
            return
        run, delta = result.run, result.ctr_a - result.ctr_b
        known: dict[str, Any] = {
            "data": np.array(task.data, object),
            "pair": np.int32(task.pair),
            "method": np.array(task.method, object),
            "ctr_a": result.ctr_a,
            "ctr_b": result.ctr_b,
            "delta": delta,
            "seconds": result.seconds,
            "cpu_seconds": result.cpu_seconds,
            "peak_memory": result.peak_memory,
        }
        if isinstance(run, ExpectedRun):
            error = np.nan if run.standard_error is None else run.standard_error
            known, columns = {**known, "step": run.step, "standard_error": error}, law_columns(run)
        else:
            columns = curve_columns(run, delta)
        n = len(next(iter(columns.values())))
        same = {name: np.full(n, value) for name, value in known.items()}
        write_columns(self.part(task), same | columns)
        self._failure(task).unlink(missing_ok=True)

    def failures(self, plan: StudyPlan) -> list[FailedTask]:
        """Tasks of the plan that failed the last time they ran, in its order."""
        notes = [json.loads(file.read_text()) for file in (self.path / "failed").glob("*/*/[!.]*.json")]
        errors = {Task(*(note[name] for name in Task._fields)): note["error"] for note in notes}
        return [FailedTask(task, errors[task]) for task in plan.all_tasks() if task in errors] if errors else []

    def sweep(self) -> None:
        """Remove what a killed run was writing."""
        for unfinished in self.path.rglob(".writing-*"):
            unfinished.unlink(missing_ok=True)

    def finished(self, plan: StudyPlan) -> bool:
        """True if the tables of this plan are there; timings are written last, and know their plan."""
        timings = self.path / "timings.parquet"
        return timings.exists() and read_metadata(timings).get("plan") == plan.digest


def tasks_in(files: Sequence[Path]) -> list[Task]:
    """The tasks whose laws are in these files."""
    query = "select distinct data, pair, method from read_parquet($files) order by all"
    return [Task(**row) for row in read_rows(query, files)] if files else []
