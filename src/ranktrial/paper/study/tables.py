"""Tables of a study: curves, limits and times of all tasks that are done, worked out from their laws.

A limit is E[x], what an estimate becomes after infinitely many impressions: the systematic error alone, without the noise of
clicks. Exact wherever a method's displays can be listed; probabilistic interleaving has too many, its displays are drawn, the
clicks on each are not, and the standard error that the drawing leaves is stated. Methods that learn on the way have none
(``Traits.has_exact_limit``), and counterfactual estimates from Plackett-Luce policies are left out: for the position-based
user their limit is Delta by theory. A limit of exactly 0 prefers neither ranker, which is wrong unless they are equal.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ranktrial.arrays import IntArray
from ranktrial.paper.study.files import as_table, read_columns, write_columns, write_query
from ranktrial.paper.study.folder import StudyFolder
from ranktrial.paper.study.laws import CURVE_COLUMNS, RUN_COLUMNS, curve_columns, read_law
from ranktrial.paper.study.plan import StudyPlan, Task

COLUMNS = ("data", "pair", "method", "impressions", "ctr_a", "ctr_b", "delta", *CURVE_COLUMNS)
RESULTS, LIMITS, TIMINGS = TABLES = ("results.parquet", "limits.parquet", "timings.parquet")
TIMES = ("data", "pair", "method", "kind", "impressions", "seconds", "cpu_seconds", "peak_memory")
TASKS_AT_ONCE = 400  # whose curves are held in memory


@contextmanager
def tables(study: StudyFolder, plan: StudyPlan, points: IntArray) -> Iterator[Path]:
    """The folder with the tables of what is done, at these checkpoints at least: the study's own where it is finished, else
    one for the occasion. A table without rows is not there."""
    if study.finished(plan):
        yield study.path
        return
    with tempfile.TemporaryDirectory() as folder:
        write_tables(study, plan, points, Path(folder))
        yield Path(folder)


def forget_tables(study: StudyFolder) -> None:
    for name in reversed(TABLES):
        (study.path / name).unlink(missing_ok=True)


def write_tables(study: StudyFolder, plan: StudyPlan, points: IntArray, folder: Path) -> None:
    """Make the tables of all that is done; timings last, they tell that all are there."""
    done = study.done(plan.all_tasks())
    runs = [task for task in done if task.kind == "run"]
    limits = [task for task in done if task.kind == "limit"]
    if runs:
        _write_curves(study, plan, runs, points, folder / RESULTS)
    have_limits = set() if plan.simulate else set(plan.methods_with_limits)
    _write_limits(study, plan, [*(task for task in runs if task.method in have_limits), *limits], folder / LIMITS)
    if done:
        _write_times(study, plan, done, folder / TIMINGS)


def copy_laws(
    files: Sequence[Path], tasks: Sequence[Task], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Copy the laws of these tasks from files, and what they cost, into one file."""
    query = f"""select {", ".join(RUN_COLUMNS)} from read_parquet($files, union_by_name = true)
                join planned using (data, pair, method) order by data, method, run, begin, pair"""
    with as_table("planned", _planned(tasks)):
        write_query(path, query, files, metadata)


def _write_curves(study: StudyFolder, plan: StudyPlan, tasks: Sequence[Task], points: IntArray, path: Path) -> None:
    query = f"select {', '.join(COLUMNS)} from read_parquet($files)"
    if plan.simulate:
        write_query(path, query, study.files(tasks))
        return
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for i in range(0, len(tasks), TASKS_AT_ONCE):
            files.append(Path(folder) / f"{i:06}.parquet")
            _write_some_curves(study, tasks[i : i + TASKS_AT_ONCE], points, files[-1])
        write_query(path, query, files)


def _write_some_curves(study: StudyFolder, tasks: Sequence[Task], points: IntArray, path: Path) -> None:
    """Work out curves from laws, in the order of the tasks."""
    with as_table("planned", _planned(tasks)):
        laws = read_columns(
            f"""select place, {", ".join(RUN_COLUMNS)} from read_parquet($files, union_by_name = true)
                join planned using (data, pair, method) order by place, run, begin""",
            study.files(tasks),
        )
    ends = np.flatnonzero(np.diff(laws["place"], append=-1)) + 1
    blocks = []
    for begin, end in zip([0, *ends], ends):
        of_run = {name: column[begin:end] for name, column in laws.items()}
        known = {name: of_run[name][0] for name in ("data", "pair", "method", "ctr_a", "ctr_b")}
        known["delta"] = known["ctr_a"] - known["ctr_b"]
        curve = curve_columns(read_law(points, of_run, step=of_run["step"][0]), known["delta"])
        blocks.append({name: np.full(len(points), value) for name, value in known.items()} | curve)
    write_columns(path, {name: np.concatenate([block[name] for block in blocks]) for name in COLUMNS})


def _write_limits(study: StudyFolder, plan: StudyPlan, tasks: Sequence[Task], path: Path) -> None:
    sets = [data.name for data in plan.data]
    tasks = sorted(tasks, key=lambda task: sets.index(task.data))
    query = """select data, pair, method, ctr_a, ctr_b, ctr_a - ctr_b as delta, x as "limit", standard_error,
                      ctr_a <> ctr_b and x * (ctr_a - ctr_b) <= 0 as wrong_sign, clicks as ctr
               from read_parquet($files, union_by_name = true) join planned using (data, pair, method) order by place"""
    if tasks:
        with as_table("planned", _planned(tasks)):
            write_query(path, query, study.files(tasks))


def _write_times(study: StudyFolder, plan: StudyPlan, done: Sequence[Task], path: Path) -> None:
    """Time and memory of all tasks, runs before limits."""
    query = """select data, pair, method, any_value(seconds) as seconds, any_value(cpu_seconds) as cpu_seconds,
                      any_value(peak_memory) as peak_memory
               from read_parquet($files, union_by_name = true) join planned using (data, pair, method)
               group by data, pair, method, place order by place"""  # every row of a law has the same times
    blocks = []
    for kind in ("run", "limit"):
        tasks = [task for task in done if task.kind == kind]
        if tasks:
            with as_table("planned", _planned(tasks)):
                block = read_columns(query, study.files(tasks))
            shown = np.ma.array(np.full(len(tasks), plan.points[-1]), mask=kind == "limit")
            blocks.append({**block, "kind": np.full(len(tasks), kind, object), "impressions": shown})
    columns = {name: np.ma.concatenate([block[name] for block in blocks]) for name in TIMES}  # type: ignore[no-untyped-call]
    write_columns(path, columns, {"plan": plan.digest})


def _planned(tasks: Sequence[Task]) -> dict[str, Any]:
    """Columns of the tasks and of their places in the order in which they are given."""
    data, pair, method, kind = (np.array(column, object) for column in zip(*tasks))
    return {"data": data, "pair": pair.astype(np.int32), "method": method, "kind": kind, "place": np.arange(len(tasks))}
