"""The folder of a study: a part for every finished task, a note for every failed one, and the tables made of them.

    plan.json            what is being run; a plan that does not continue it is refused
    data/NAME/           prepared data set and rankers, memory-mapped by workers
    parts/NAME/PAIR/     a Parquet file a finished run of a method
    limits/NAME/PAIR/    a Parquet file a limit that was found
    failed/NAME/PAIR/    a JSON file a failed task; gone when it succeeds
    results.parquet      a row per (data set, pair, method, checkpoint), when the run has ended
    limits.parquet       a row per (data set, pair, method), if the plan asks for limits
    pairs.csv            which systems are A and B of each pair, if systems were given
    timings.parquet      time and memory of each task, apart because no two runs agree on them

Files appear whole or not at all, so a study may be killed at any moment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

import ranktrial
from ranktrial.methods import ExpectedRun, Trajectory
from ranktrial.study.limits import Limit
from ranktrial.study.plan import StudyPlan, Task
from ranktrial.study.tasks import Failure, TaskResult, written_whole

SIMULATED_ONLY = 1  # the format of folders from before runs could be expected ones
MADE_BY = {"format": 2, "ranktrial": ranktrial.__version__}

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


LIMIT_COLUMNS = ("data", "pair", "method", "ctr_a", "ctr_b", "delta", "limit", "standard_error", "wrong_sign", "ctr")

TIMES = "data, pair, method, kind, impressions, seconds, cpu_seconds, peak_memory"


@dataclass(frozen=True)
class FailedTask:
    """A task without a result, and why."""

    task: Task
    error: str

    def __str__(self) -> str:
        return f"{self.task}: {self.error}"


class StudyFolder:
    """The folder of one study: reads and writes everything in it."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        # One thread and rows in the order they are given: the same rows are the same bytes.
        self._tables = duckdb.connect(config={"threads": 1})
        self._had_tables = False

    def close(self) -> None:
        self._tables.close()

    @property
    def results(self) -> Path:
        return self.path / "results.parquet"

    @property
    def limits(self) -> Path:
        return self.path / "limits.parquet"

    @property
    def timings(self) -> Path:
        return self.path / "timings.parquet"

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
        file = self.path / "plan.json"
        try:
            record = json.loads(file.read_text())
            plan = StudyPlan.from_dict(record["plan"], str(file), self.path)
            return replace(plan, simulate=True) if record.get("format") == SIMULATED_ONLY else plan
        except FileNotFoundError:
            raise ValueError(f"{self.path}: no study here (no plan.json)") from None
        except (json.JSONDecodeError, KeyError, TypeError) as problem:
            raise ValueError(f"{file}: not the plan of a study ({problem!r})") from None

    def adopt(self, plan: StudyPlan) -> StudyPlan | None:
        """Make this the plan of the folder, or refuse if it does not continue the one there. Returns the one there was."""
        file = self.path / "plan.json"
        if not file.exists():
            self._write_plan(plan)
            return None
        before = self.read_plan()
        record = json.loads(file.read_text())
        conflicts = before.conflicts(plan)
        conflicts += [f"{k} is {record.get(k)} there and {v} now" for k, v in MADE_BY.items() if record.get(k) != v]
        if conflicts:
            raise ValueError(
                f"{self.path} holds another study: {'; '.join(conflicts)}. Continue that one or choose another folder"
            )
        if plan != before:
            self._had_tables = self.has_tables()
            self.forget_tables()  # first: tables that are there are those of the plan
            self._write_plan(plan)
        return before

    def abandon(self, before: StudyPlan | None) -> None:
        """Take back a plan that cannot be run."""
        if before is None:
            (self.path / "plan.json").unlink()
        else:
            self._write_plan(before)
            if self._had_tables:
                self.merge(before)

    def _write_plan(self, plan: StudyPlan) -> None:
        with written_whole(self.path / "plan.json") as path:
            path.write_text(json.dumps({**MADE_BY, "plan": plan.to_dict()}, indent=2) + "\n")

    def part(self, task: Task) -> Path:
        kind = "limits" if task.kind == "limit" else "parts"
        return self.path / kind / task.data / f"{task.pair:05}" / f"{_file_name(task.method)}.parquet"

    def _failure(self, task: Task) -> Path:
        return self.path / "failed" / task.data / f"{task.pair:05}" / f"{_file_name(task.what)}.json"

    def done(self, task: Task) -> bool:
        return self.part(task).exists()

    def record(self, task: Task, result: TaskResult | Failure) -> None:
        """Store the result of a task, or the note of its failure."""
        if isinstance(result, Failure):
            with written_whole(self._failure(task)) as path:
                note = {**task._asdict(), "error": result.error, "details": result.details}
                path.write_text(json.dumps(note, indent=2) + "\n")
            return
        delta = result.ctr_a - result.ctr_b
        known = {
            "data": (task.data, "varchar"),
            "pair": (task.pair, "integer"),
            "method": (task.method, "varchar"),
            "ctr_a": (result.ctr_a, "double"),
            "ctr_b": (result.ctr_b, "double"),
            "delta": (delta, "double"),
            "seconds": (result.spent.seconds, "double"),
            "cpu_seconds": (result.spent.cpu_seconds, "double"),
            "peak_memory": (result.spent.peak_memory, "bigint"),
        }
        if isinstance(result.found, Limit):
            self._write_limit(task, result.found, known)
        else:
            self._write_run(task, result.found, known)
        self._failure(task).unlink(missing_ok=True)

    def _write_limit(self, task: Task, limit: Limit, known: dict[str, tuple[Any, str]]) -> None:
        found = {
            "limit": (limit.mean, "double"),
            "standard_error": (limit.standard_error, "double"),
            "wrong_sign": (limit.wrong_sign(known["delta"][0]), "boolean"),
            "ctr": (limit.ctr, "double"),
        }
        with written_whole(self.part(task)) as path:
            self._copy(f"select {_given(known | found)}", path, _values(known | found))

    def _write_run(self, task: Task, run: Trajectory | ExpectedRun, known: dict[str, tuple[Any, str]]) -> None:
        delta = known["delta"][0]
        if isinstance(run, ExpectedRun):
            known = {**known, "standard_error": (run.standard_error, "double")}
        columns = {
            "impressions": run.impressions,
            "estimate": run.estimate,
            "binary_error": run.binary_error(delta),
            "absolute_error": run.absolute_error(delta),
            "mean_squared_error": run.squared_error(delta),
            "ctr": run.ctr,
        }
        # SQL leaves a NULL out of a mean; a NaN would spoil it.
        cleaned = [f"nullif({name}, 'nan'::double) as {name}" for name in columns if name != "impressions"]
        self._tables.register("run", {name: np.ascontiguousarray(values) for name, values in columns.items()})
        with written_whole(self.part(task)) as path:
            self._copy(f"select {_given(known)}, impressions, {', '.join(cleaned)} from run", path, _values(known))
        self._tables.unregister("run")

    def failures(self, plan: StudyPlan) -> list[FailedTask]:
        """Tasks of the plan that failed the last time they ran, in its order."""
        notes = [json.loads(file.read_text()) for file in (self.path / "failed").glob("*/*/[!.]*.json")]
        errors = {
            Task(note["data"], note["pair"], note["method"], note.get("kind", "run")): note["error"] for note in notes
        }
        return [FailedTask(task, errors[task]) for task in plan.all_tasks() if task in errors] if errors else []

    def merge(self, plan: StudyPlan) -> None:
        """Make the tables of all parts; timings last, they tell that all are there."""
        runs = self.parts(plan)
        if runs:
            with written_whole(self.results) as path:
                self._copy(f"select {_quoted(COLUMNS)} from read_parquet($files)", path, {"files": _texts(runs)})
        limits = self._limit_rows(plan, [data.name for data in plan.data])
        if limits:
            with written_whole(self.limits) as path:
                self._copy(limits[0], path, limits[1])
        if runs or limits:
            with written_whole(self.timings) as path:
                query, values = self._times(plan)
                self._copy(query, path, values)

    def times(self, plan: StudyPlan) -> list[dict[str, Any]]:
        """Time and memory of each task of the plan that is done, whether the tables have been made or not."""
        if self.has_tables():
            return self.query(f"select {TIMES} from read_parquet($files)", [self.timings])
        if not (self.parts(plan) or self.limit_parts(plan)):
            return []
        return self._rows(*self._times(plan))

    def _times(self, plan: StudyPlan) -> tuple[str, dict[str, Any]]:
        # Every row of a run has the same times; its last checkpoint stands for it. The oldest parts have seconds only.
        unknown = "select null::double as cpu_seconds, null::bigint as peak_memory where false"
        queries, values = [], {}
        for kind, files, extra in (
            ("run", self.parts(plan), f"where impressions = {int(plan.points[-1])}"),
            ("limit", self.limit_parts(plan), ""),
        ):
            if files:
                impressions = "" if kind == "run" else ", null::bigint as impressions"
                values[kind] = _texts(files)
                parts = f"select *{impressions} from read_parquet(${kind}, union_by_name = true) {extra}"
                queries.append(f"select *, '{kind}' as kind from ({unknown} union all by name {parts})")
        return f"select {TIMES} from ({' union all by name '.join(queries)})", values

    def _copy(self, query: str, path: Path, values: dict[str, Any]) -> None:
        escaped = str(path).replace("'", "''")
        self._tables.execute(f"copy ({query}) to '{escaped}' (format parquet, compression zstd)", values)

    def parts(self, plan: StudyPlan) -> list[Path]:
        """The parts of runs that there are, in the order of the plan."""
        return [self.part(task) for task in plan.tasks() if self.done(task)]

    def limit_parts(self, plan: StudyPlan) -> list[Path]:
        return [self.part(task) for task in plan.limit_tasks() if self.done(task)]

    def limit_rows(self, plan: StudyPlan, data: str) -> list[dict[str, Any]]:
        """Limits on one data set, whether the tables have been made or not."""
        if self.limits.exists():
            return self.query("select * from read_parquet($files) where data = $data", [self.limits], data=data)
        found = self._limit_rows(plan, [data])
        return self._rows(*found) if found else []

    def _limit_rows(self, plan: StudyPlan, sets: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
        """The query of all limits and its values: those found alone, and those that expected runs tell."""
        told = [] if plan.simulate else [task for task in plan.tasks() if task.method in plan.methods_with_limits]
        every = sorted(
            [*told, *plan.limit_tasks()], key=lambda task: sets.index(task.data) if task.data in sets else -1
        )
        files = [self.part(task) for task in every if task.data in sets and self.done(task)]
        if not files:
            return None
        unknown = """select null::double as "limit", null::boolean as wrong_sign, null::double as estimate,
                            null::bigint as impressions where false"""
        query = f"""
            select data, pair, method, ctr_a, ctr_b, delta, coalesce("limit", estimate) as "limit", standard_error,
                   coalesce(wrong_sign, delta <> 0 and estimate * delta <= 0) as wrong_sign, ctr
            from ({unknown} union all by name select * from read_parquet($files, union_by_name = true))
            where impressions is null or impressions = {int(plan.points[-1])}"""
        return query, {"files": _texts(files)}

    def sweep(self) -> None:
        """Remove what a killed run was writing."""
        for unfinished in self.path.rglob(".writing-*"):
            unfinished.unlink(missing_ok=True)

    def has_tables(self) -> bool:
        return self.results.exists() and self.timings.exists()

    def forget_tables(self) -> None:
        for table in (self.timings, self.results, self.limits):
            table.unlink(missing_ok=True)

    def query(self, select: str, files: Sequence[Path], **values: Any) -> list[dict[str, Any]]:
        """Rows of a query in which ``$files`` stands for Parquet files."""
        return self._rows(select, {"files": _texts(files), **values})

    def _rows(self, select: str, values: dict[str, Any]) -> list[dict[str, Any]]:
        found = self._tables.execute(select, values)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row)) for row in found.fetchall()]


def _given(values: dict[str, tuple[Any, str]]) -> str:
    return ", ".join(f'$_{name}::{kind} as "{name}"' for name, (_, kind) in values.items())


def _values(values: dict[str, tuple[Any, str]]) -> dict[str, Any]:
    return {f"_{name}": value for name, (value, _) in values.items()}


def _quoted(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def _texts(files: Sequence[Path]) -> list[str]:
    return [str(file) for file in files]


def _file_name(method: str) -> str:
    """The file name of a method: readable, and different for different methods."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", method).strip("-")[:60].strip("-")
    return f"{readable}-{hashlib.sha256(method.encode()).hexdigest()[:10]}"
