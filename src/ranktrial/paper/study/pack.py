"""Packed results: the laws of a study's runs in one small file, to go on from on another machine.

A file knows the settings that its tasks depend on, and is refused by a plan with others. That data and rankers are the same is
seen from the clicks that rankers get, to what another processor may round differently.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ranktrial.paper.study.folder import MADE_BY, StudyFolder
from ranktrial.paper.study.plan import StudyPlan, Task, differences
from ranktrial.paper.study.tasks import open_prepared, written_whole

PAIRS_COMPARED = 3  # of each data set
SAME_CTR = 1e-4  # a ranking that ties break otherwise moves less, another ranker more


def pack_study(folder: Path, file: Path, *, besides: Sequence[Path] = ()) -> int:
    """Write the laws of all runs that are done into a file, but for those in other files, and return how many runs they are."""
    with contextlib.closing(StudyFolder(folder)) as study:
        plan = study.read_plan()
        if plan.simulate:
            raise ValueError(f"{folder}: a simulated study has curves, only laws of expected runs can be packed")
        others = packed_files(besides)
        known = set(study.tasks_in(others)) if others else set()
        tasks = [task for task in plan.tasks() if study.done(task) and task not in known]
        if not tasks:
            raise ValueError(f"{folder}: no run that could be packed{' besides those in other files' if known else ''}")
        with written_whole(file) as path:
            study.pack(path, tasks, {"ranktrial": json.dumps({**MADE_BY, "settings": plan.settings()})})
        return len(tasks)


def packed_files(paths: Sequence[Path]) -> list[Path]:
    """The files that are meant: those named, and all Parquet files of a folder that is named."""
    files = []
    for path in paths:
        found = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not found or not found[0].exists():
            raise ValueError(
                f"{path}: {'no Parquet file in this folder' if path.is_dir() else 'no such file or folder'}"
            )
        files += found
    return files


def check_settings(study: StudyFolder, plan: StudyPlan, file: Path) -> None:
    """Refuse a file whose tasks are not those of the plan."""
    there = study.metadata(file).get("ranktrial")
    if there is None or plan.simulate:
        why = "simulated runs cannot be taken over" if there else "not a file that ranktrial study pack has made"
        raise ValueError(f"{file}: {why}")
    record = json.loads(there)
    settings: dict[str, Any] = record.pop("settings")
    ours = plan.settings()
    shared = settings["data"].keys() & ours["data"].keys()
    if not shared:
        raise ValueError(f"{file}: results on {', '.join(settings['data'])}, none of which is in the plan")
    for one in (settings, ours):
        one["data"] = {name: data for name, data in one["data"].items() if name in shared}
    conflicts = differences({**record, **settings}, {**MADE_BY, **ours})
    if conflicts:
        raise ValueError(f"{file} holds results of another study: {'; '.join(conflicts)}")


def take_over(study: StudyFolder, plan: StudyPlan, file: Path) -> None:
    """Take over what is missing in a study, of which the data sets have been prepared."""
    there = study.tasks_in([file])
    wanted = {task for task in plan.tasks() if not study.done(task)}
    missing = [task for task in there if task in wanted]
    if not missing:
        return
    for data in plan.data:
        _compare_rankers(study, plan, file, [task for task in missing if task.data == data.name])
    study.take(file, missing)


def _compare_rankers(study: StudyFolder, plan: StudyPlan, file: Path, tasks: Sequence[Task]) -> None:
    pairs = sorted({task.pair for task in tasks})
    for pair in sorted(
        {pairs[i * (len(pairs) - 1) // (PAIRS_COMPARED - 1)] for i in range(PAIRS_COMPARED)} if pairs else ()
    ):
        data = tasks[0].data
        query = "select ctr_a, ctr_b from read_parquet($files) where data = $data and pair = $pair limit 1"
        (row,) = study.query(query, [file], data=data, pair=pair)
        prepared = open_prepared(str(study.path), plan.digest, data)
        ranked = prepared.pair(pair)
        for name, there, here in zip("AB", row.values(), ranked.ctr(prepared.user_of(ranked))):
            if abs(there - here) > SAME_CTR:
                raise ValueError(
                    f"{file}: ranker {name} of pair {pair} of {data} gets {there:.6f} clicks per impression there and "
                    f"{here:.6f} here: other data, or other rankers"
                )
