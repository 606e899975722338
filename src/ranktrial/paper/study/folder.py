"""The folder of a study: a part for every finished task, a note for every failed one, and the tables made of them.

    plan.json            what is being run; a plan that does not continue it is refused
    data/NAME/           prepared data set and rankers, memory-mapped by workers
    parts/NAME/PAIR/     a Parquet file a finished run of a method: its law, or its curves if it was simulated
    taken/               laws of runs that were taken over from packed files
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
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

import ranktrial
from ranktrial.arrays import IntArray
from ranktrial.methods import ExpectedRun, Trajectory
from ranktrial.paper.study.laws import LAW_COLUMNS, law_columns, read_law
from ranktrial.paper.study.limits import Limit
from ranktrial.paper.study.plan import StudyPlan, Task
from ranktrial.paper.study.tasks import Failure, TaskResult, written_whole

MADE_BY = {"format": 3, "ranktrial": ranktrial.__version__}

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


TIMES = "data, pair, method, kind, impressions, seconds, cpu_seconds, peak_memory"

# Of a law: a row per run and stretch (see ``laws``).
RUN_COLUMNS = (
    *("data", "pair", "method", "ctr_a", "ctr_b", "step", "standard_error"),
    *LAW_COLUMNS,
    *("seconds", "cpu_seconds", "peak_memory"),
)

TASKS_AT_ONCE = 400  # whose curves are held in memory


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
        self._tables.execute("set enable_progress_bar = false")  # DuckDB's own, in the midst of ours
        self._had_tables = False
        self._taken: set[Task] | None = None

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
        except FileNotFoundError:
            raise ValueError(f"{self.path}: no study here (no plan.json)") from None
        except (json.JSONDecodeError, KeyError, TypeError) as problem:
            raise ValueError(f"{file}: not the plan of a study ({problem!r})") from None
        return plan

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
        return self.part(task).exists() or task in self.taken

    @property
    def taken(self) -> set[Task]:
        """The runs that were taken over from packed files."""
        if self._taken is None:
            files = self._taken_files()
            self._taken = set(self.tasks_in(files)) if files else set()
        return self._taken

    def tasks_in(self, files: Sequence[Path]) -> list[Task]:
        """The tasks whose laws are in these files."""
        rows = self.query("select distinct data, pair, method from read_parquet($files) order by all", files)
        return [Task(**row) for row in rows]

    def take(self, file: Path, tasks: Sequence[Task]) -> None:
        """Take over the laws of these tasks from a file, beside those that were taken from it before."""
        taken = self.path / "taken" / f"{hashlib.sha256(file.read_bytes()).hexdigest()[:10]}.parquet"
        before = self.tasks_in([taken]) if taken.exists() else []
        with written_whole(taken) as path:
            self._copy_laws([file], [*before, *tasks], path)
        self._taken = None

    def pack(self, path: Path, tasks: Sequence[Task], metadata: Mapping[str, str]) -> None:
        """Write the laws of these tasks, and what they cost, into one file."""
        self._copy_laws(self._files(tasks), tasks, path, metadata)

    def _copy_laws(
        self, files: Sequence[Path], tasks: Sequence[Task], path: Path, metadata: Mapping[str, str] | None = None
    ) -> None:
        query = f"""select {_quoted(RUN_COLUMNS)} from read_parquet($files, union_by_name = true)
                    join planned using (data, pair, method) order by data, method, run, begin, pair"""
        with self._planned(tasks):
            self._copy(query, path, {"files": _texts(files)}, metadata)

    def metadata(self, file: Path) -> dict[str, str]:
        """Key-value metadata of a Parquet file."""
        try:
            rows = self.query("select key, value from parquet_kv_metadata($files)", [file])
        except duckdb.Error:
            raise ValueError(f"{file}: not a Parquet file") from None
        return {row["key"].decode(): row["value"].decode() for row in rows}

    def _taken_files(self) -> list[Path]:
        return sorted((self.path / "taken").glob("[!.]*.parquet"))

    def _files(self, tasks: Iterable[Task]) -> list[Path]:
        """The files that hold what is known of these tasks, perhaps among others."""
        return [part for task in tasks if (part := self.part(task)).exists()] + self._taken_files()

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
        if isinstance(run, ExpectedRun):
            known = {**known, "step": (run.step, "double"), "standard_error": (run.standard_error, "double")}
            columns = law_columns(run)
        else:
            columns = _curve(run, known["delta"][0])
        with self._registered("run", columns), written_whole(self.part(task)) as path:
            self._copy(f"select {_given(known)}, {_cleaned(columns)} from run", path, _values(known))

    @contextlib.contextmanager
    def _registered(self, name: str, columns: dict[str, Any]) -> Iterator[None]:
        """A table of arrays, by name in queries."""
        self._tables.register(name, columns)
        try:
            yield
        finally:
            self._tables.unregister(name)

    def _planned(self, tasks: Sequence[Task]) -> contextlib.AbstractContextManager[None]:
        """The table ``planned`` of tasks and their places in the order in which they are given."""
        columns: dict[str, Any] = {
            name: np.array([getattr(task, name) for task in tasks], object) for name in ("data", "method", "kind")
        }
        columns["pair"] = np.array([task.pair for task in tasks], np.int32)
        return self._registered("planned", {**columns, "place": np.arange(len(tasks))})

    def failures(self, plan: StudyPlan) -> list[FailedTask]:
        """Tasks of the plan that failed the last time they ran, in its order."""
        notes = [json.loads(file.read_text()) for file in (self.path / "failed").glob("*/*/[!.]*.json")]
        errors = {
            Task(note["data"], note["pair"], note["method"], note.get("kind", "run")): note["error"] for note in notes
        }
        return [FailedTask(task, errors[task]) for task in plan.all_tasks() if task in errors] if errors else []

    def merge(self, plan: StudyPlan) -> None:
        """Make the tables of all that is done; timings last, they tell that all are there."""
        runs = [task for task in plan.tasks() if self.done(task)]
        if runs:
            with written_whole(self.results) as path, self.curves(plan, runs, plan.points) as files:
                self._copy(f"select {_quoted(COLUMNS)} from read_parquet($files)", path, {"files": _texts(files)})
        with self._limits(plan, [data.name for data in plan.data]) as limits:
            if limits:
                with written_whole(self.limits) as path:
                    self._copy(limits[0], path, limits[1])
        with self._times(plan) as times:
            if times:
                with written_whole(self.timings) as path:
                    self._copy(times[0], path, times[1])

    @contextlib.contextmanager
    def curves(self, plan: StudyPlan, tasks: Sequence[Task], points: IntArray) -> Iterator[list[Path]]:
        """Files with the curves of tasks that are done, at these checkpoints at least, whether the tables have been made or
        not; perhaps with those of others."""
        if self.has_tables():
            yield [self.results]
        elif plan.simulate:
            yield [self.part(task) for task in tasks]
        else:
            with tempfile.TemporaryDirectory() as folder:
                files = []
                for i in range(0, len(tasks), TASKS_AT_ONCE):
                    files.append(Path(folder) / f"{i:06}.parquet")
                    self._write_curves(files[-1], tasks[i : i + TASKS_AT_ONCE], points)
                yield files

    def _write_curves(self, path: Path, tasks: Sequence[Task], points: IntArray) -> None:
        """Work out curves from laws, in the order of the tasks."""
        query = f"""select place, {_quoted(RUN_COLUMNS)} from read_parquet($files, union_by_name = true)
                    join planned using (data, pair, method) order by place, run, begin"""
        with self._planned(tasks):
            laws = self._tables.execute(query, {"files": _texts(self._files(tasks))}).fetchnumpy()
        ends = np.flatnonzero(np.diff(laws["place"], append=-1)) + 1
        blocks = []
        for begin, end in zip([0, *ends], ends):
            of_run = {name: column[begin:end] for name, column in laws.items()}
            known = {name: of_run[name][0] for name in ("data", "pair", "method", "ctr_a", "ctr_b")}
            known["delta"] = known["ctr_a"] - known["ctr_b"]
            curve = _curve(read_law(points, of_run, step=of_run["step"][0]), known["delta"])
            blocks.append({name: np.full(len(points), value) for name, value in known.items()} | curve)
        columns = {name: np.concatenate([block[name] for block in blocks]) for name in COLUMNS}
        with self._registered("curves", columns):
            self._copy(f"select {_cleaned(COLUMNS)} from curves", path, {})

    def times(self, plan: StudyPlan) -> list[dict[str, Any]]:
        """Time and memory of each task of the plan that is done, whether the tables have been made or not."""
        if self.has_tables():
            return self.query(f"select {TIMES} from read_parquet($files)", [self.timings])
        with self._times(plan) as times:
            return self._rows(*times) if times else []

    @contextlib.contextmanager
    def _times(self, plan: StudyPlan) -> Iterator[_Query | None]:
        """The query of times of all tasks that are done, and its values."""
        done = [task for task in plan.all_tasks() if self.done(task)]
        queries = []
        values = {}
        for kind, impressions in (("run", plan.points[-1]), ("limit", "null")):
            tasks = [task for task in done if task.kind == kind]
            if tasks:
                values[kind] = _texts(self._files(tasks))
                # Every row of a run has the same times.
                queries.append(
                    f"""select data, pair, method, kind, {impressions}::bigint as impressions, any_value(seconds) as seconds,
                               any_value(cpu_seconds) as cpu_seconds, any_value(peak_memory) as peak_memory, place
                        from read_parquet(${kind}, union_by_name = true) join planned using (data, pair, method)
                        where kind = '{kind}' group by all"""
                )
        with self._planned(done):
            yield (f"select {TIMES} from ({' union all '.join(queries)}) order by place", values) if done else None

    def _copy(self, query: str, path: Path, values: dict[str, Any], metadata: Mapping[str, str] | None = None) -> None:
        pairs = ", ".join(f"{key}: {_literal(text)}" for key, text in (metadata or {}).items())
        options = "format parquet, compression zstd" + (f", kv_metadata {{{pairs}}}" if pairs else "")
        self._tables.execute(f"copy ({query}) to {_literal(str(path))} ({options})", values)

    def limit_rows(self, plan: StudyPlan, data: str) -> list[dict[str, Any]]:
        """Limits on one data set, whether the tables have been made or not."""
        if self.limits.exists():
            return self.query("select * from read_parquet($files) where data = $data", [self.limits], data=data)
        with self._limits(plan, [data]) as limits:
            return self._rows(*limits) if limits else []

    @contextlib.contextmanager
    def _limits(self, plan: StudyPlan, sets: Sequence[str]) -> Iterator[_Query | None]:
        """The query of all limits and its values: those found alone, and those that laws of expected runs tell."""
        by_laws = [] if plan.simulate else [task for task in plan.tasks() if task.method in plan.methods_with_limits]
        found = [task for task in (*by_laws, *plan.limit_tasks()) if task.data in sets and self.done(task)]
        found.sort(key=lambda task: sets.index(task.data))
        unknown = """select null::double as "limit", null::boolean as wrong_sign, null::double as ctr, null::double as x,
                            null::double as clicks where false"""
        query = f"""
            select data, pair, method, ctr_a, ctr_b, ctr_a - ctr_b as delta, coalesce("limit", x) as "limit", standard_error,
                   coalesce(wrong_sign, ctr_a <> ctr_b and x * (ctr_a - ctr_b) <= 0) as wrong_sign, coalesce(ctr, clicks) as ctr
            from ({unknown} union all by name select * from read_parquet($files, union_by_name = true))
            join planned using (data, pair, method) order by place"""
        with self._planned(found):
            yield (query, {"files": _texts(self._files(found))}) if found else None

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


_Query = tuple[str, dict[str, Any]]  # and the values in it


def _curve(run: Trajectory | ExpectedRun, delta: float) -> dict[str, Any]:
    """The columns of a run's curves."""
    return {
        "impressions": run.impressions,
        "estimate": run.estimate,
        "binary_error": run.binary_error(delta),
        "absolute_error": run.absolute_error(delta),
        "mean_squared_error": run.squared_error(delta),
        "ctr": run.ctr,
    }


def _cleaned(columns: Iterable[str]) -> str:
    """Columns with NULL for NaN in those of curves: SQL leaves a NULL out of a mean, a NaN would spoil it."""
    curves = COLUMNS[COLUMNS.index("estimate") :]
    return ", ".join(f"nullif({name}, 'nan'::double) as {name}" if name in curves else name for name in columns)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


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
