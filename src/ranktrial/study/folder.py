"""What does a study leave on disk? A part for every finished task, a note for every failed one, and the tables made of them.

    plan.json            what is being run; another plan is refused
    data/NAME/           prepared data set and rankers, memory-mapped by workers
    parts/NAME/PAIR/     a Parquet file a finished task
    failed/NAME/PAIR/    a JSON file a failed task; gone when it succeeds
    results.parquet      a row per (data set, pair, method, checkpoint), when the run has ended
    timings.parquet      seconds a task, apart because no two runs agree on it

Files appear whole or not at all, so a study may be killed at any moment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

import ranktrial
from ranktrial.study.plan import StudyPlan, Task
from ranktrial.study.tasks import Failure, Outcome, written_whole

FORMAT = 1

COLUMNS = (
    "data",
    "pair",
    "method",
    "impressions",
    "ctr_a",
    "ctr_b",
    "delta",
    "estimate",
    "binary_error",
    "absolute_error",
    "mean_squared_error",
    "ctr",
)


@dataclass(frozen=True)
class FailedTask:
    """A task without a result, and why."""

    task: Task
    error: str

    def __str__(self) -> str:
        return f"{self.task}: {self.error}"


class StudyFolder:
    """The folder of one study."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        # One thread and rows in the order they are given: the same rows are the same bytes.
        self._tables = duckdb.connect(config={"threads": 1})

    def close(self) -> None:
        self._tables.close()

    @property
    def results(self) -> Path:
        return self.path / "results.parquet"

    @property
    def timings(self) -> Path:
        return self.path / "timings.parquet"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One run at a time. The operating system lets go of the lock when a run dies, however it dies."""
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
        file = self.path / "plan.json"
        try:
            record = json.loads(file.read_text())
            return StudyPlan.from_dict(record["plan"], str(file), self.path)
        except FileNotFoundError:
            raise ValueError(f"{self.path}: no study here (no plan.json)") from None
        except (json.JSONDecodeError, KeyError, TypeError) as problem:
            raise ValueError(f"{file}: not the plan of a study ({problem!r})") from None

    def adopt(self, plan: StudyPlan) -> None:
        """Make this the plan of the folder, or refuse if it has another."""
        file = self.path / "plan.json"
        made_by = {"format": FORMAT, "ranktrial": ranktrial.__version__}
        if not file.exists():
            with written_whole(file) as path:
                path.write_text(json.dumps({**made_by, "plan": plan.to_dict()}, indent=2) + "\n")
            return
        differences = self.read_plan().differences(plan)
        record = json.loads(file.read_text())
        differences += [f"{k} is {record.get(k)} there and {v} now" for k, v in made_by.items() if record.get(k) != v]
        if differences:
            raise ValueError(
                f"{self.path} holds another study: {'; '.join(differences)}. Continue that one or choose another folder"
            )

    def part(self, task: Task) -> Path:
        return self.path / "parts" / task.data / f"{task.pair:05}" / f"{_file_name(task.method)}.parquet"

    def _failure(self, task: Task) -> Path:
        return self.path / "failed" / task.data / f"{task.pair:05}" / f"{_file_name(task.method)}.json"

    def done(self, task: Task) -> bool:
        return self.part(task).exists()

    def record(self, task: Task, outcome: Outcome | Failure) -> None:
        """Keep what became of a task."""
        if isinstance(outcome, Failure):
            with written_whole(self._failure(task)) as path:
                note = {**task._asdict(), "error": outcome.error, "details": outcome.details}
                path.write_text(json.dumps(note, indent=2) + "\n")
            return
        run, delta = outcome.run, outcome.ctr_a - outcome.ctr_b
        columns = {
            "impressions": run.impressions,
            "estimate": run.estimate,
            "binary_error": run.binary_error(delta),
            "absolute_error": run.absolute_error(delta),
            "mean_squared_error": run.squared_error(delta),
            "ctr": run.ctr,
        }
        fixed = {
            "data": (task.data, "varchar"),
            "pair": (task.pair, "integer"),
            "method": (task.method, "varchar"),
            "ctr_a": (outcome.ctr_a, "double"),
            "ctr_b": (outcome.ctr_b, "double"),
            "delta": (delta, "double"),
            "seconds": (outcome.seconds, "double"),
        }
        # SQL leaves a NULL out of a mean; a NaN would spoil it.
        cleaned = {name: f"nullif({name}, 'nan'::double)" for name in columns if name != "impressions"}
        given = {name: f"${name}::{kind}" for name, (_, kind) in fixed.items()}
        chosen = [f"{(cleaned | given).get(name, name)} as {name}" for name in (*COLUMNS, "seconds")]
        self._tables.register("run", {name: np.ascontiguousarray(values) for name, values in columns.items()})
        with written_whole(self.part(task)) as path:
            self._copy(
                f"select {', '.join(chosen)} from run", path, {name: value for name, (value, _) in fixed.items()}
            )
        self._tables.unregister("run")
        self._failure(task).unlink(missing_ok=True)

    def failures(self) -> list[FailedTask]:
        """Tasks that failed the last time they ran, in the order of their files."""
        found = []
        for file in sorted((self.path / "failed").glob("*/*/[!.]*.json")):
            note = json.loads(file.read_text())
            found.append(FailedTask(Task(note["data"], note["pair"], note["method"]), note["error"]))
        return found

    def merge(self, plan: StudyPlan) -> None:
        """Make the two tables of all parts."""
        parts = self.parts(plan)
        if not parts:
            return
        files = {"files": [str(part) for part in parts]}
        with written_whole(self.results) as path:
            self._copy(f"select {', '.join(COLUMNS)} from read_parquet($files)", path, files)
        with written_whole(self.timings) as path:
            columns = "data, pair, method, impressions, seconds"
            # Every row of a part has the same seconds; its last checkpoint stands for it.
            last = f"select {columns} from read_parquet($files) where impressions = {int(plan.points[-1])}"
            self._copy(last, path, files)

    def _copy(self, query: str, path: Path, values: dict[str, Any]) -> None:
        escaped = str(path).replace("'", "''")
        self._tables.execute(f"copy ({query}) to '{escaped}' (format parquet, compression zstd)", values)

    def parts(self, plan: StudyPlan) -> list[Path]:
        """The parts there are, in the order of the plan."""
        return [self.part(task) for task in plan.tasks() if self.done(task)]

    def sweep(self) -> None:
        """Remove what a killed run was writing."""
        for unfinished in self.path.rglob(".writing-*"):
            unfinished.unlink(missing_ok=True)

    def has_tables(self) -> bool:
        return self.results.exists() and self.timings.exists()

    def forget_tables(self) -> None:
        self.results.unlink(missing_ok=True)
        self.timings.unlink(missing_ok=True)

    def query(self, select: str, files: Sequence[Path], **values: Any) -> list[dict[str, Any]]:
        """Rows of a query in which ``$files`` stands for Parquet files."""
        found = self._tables.execute(select, {"files": [str(file) for file in files], **values})
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row)) for row in found.fetchall()]


def _file_name(method: str) -> str:
    """Readable, and different for different methods."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", method).strip("-")[:60].strip("-")
    return f"{readable}-{hashlib.sha256(method.encode()).hexdigest()[:10]}"
