"""Packed results: the laws of a study's runs in one small file, to go on from on another machine.

A file knows the settings that its tasks depend on, and is refused by a plan with others. That data and rankers are the same is
seen from the clicks that rankers get, to what another processor may round differently.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ranktrial.paper.study.files import read_metadata, read_rows
from ranktrial.paper.study.folder import MADE_BY, StudyFolder, tasks_in
from ranktrial.paper.study.plan import StudyPlan, differences
from ranktrial.paper.study.tables import copy_laws
from ranktrial.paper.study.tasks import open_prepared

PAIRS_COMPARED = 3  # of each data set
SAME_CTR = 1e-4  # a ranking that ties break otherwise moves less, another ranker more


def pack_study(folder: Path, file: Path, *, besides: Sequence[Path] = ()) -> int:
    """Write the laws of all runs that are done into a file, but for those in other files, and return how many runs they are."""
    study = StudyFolder(folder)
    plan = study.read_plan()
    if plan.simulate:
        raise ValueError(f"{folder}: a simulated study has curves, only laws of expected runs can be packed")
    known = set(tasks_in(packed_files(besides)))
    tasks = [task for task in study.done(plan.tasks()) if task not in known]
    if not tasks:
        raise ValueError(f"{folder}: no run that could be packed{' besides those in other files' if known else ''}")
    copy_laws(study.files(tasks), tasks, file, {"ranktrial": json.dumps({**MADE_BY, "settings": plan.settings()})})
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


def check_settings(plan: StudyPlan, file: Path) -> None:
    """Refuse a file whose tasks are not those of the plan."""
    there = read_metadata(file).get("ranktrial")
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
    wanted = set(plan.tasks()) - set(study.done(plan.tasks()))
    missing = [task for task in tasks_in([file]) if task in wanted]
    if not missing:
        return
    for data in plan.data:
        _compare_rankers(
            study, plan, file, data.name, sorted({task.pair for task in missing if task.data == data.name})
        )
    taken = study.path / "taken" / f"{hashlib.sha256(file.read_bytes()).hexdigest()[:10]}.parquet"
    before = tasks_in([taken]) if taken.exists() else []
    copy_laws([file], [*before, *missing], taken)


def _compare_rankers(study: StudyFolder, plan: StudyPlan, file: Path, data: str, pairs: Sequence[int]) -> None:
    """Refuse a file where some of these pairs get other clicks than here."""
    for place in range(PAIRS_COMPARED if pairs else 0):
        pair = pairs[place * (len(pairs) - 1) // (PAIRS_COMPARED - 1)]
        query = "select ctr_a, ctr_b from read_parquet($files) where data = $data and pair = $pair limit 1"
        (row,) = read_rows(query, [file], data=data, pair=pair)
        prepared = open_prepared(str(study.path), plan.digest, data)
        ranked = prepared.pair(pair)
        for name, there, here in zip("AB", row.values(), ranked.ctr(prepared.user_of(ranked))):
            if abs(there - here) > SAME_CTR:
                raise ValueError(
                    f"{file}: ranker {name} of pair {pair} of {data} gets {there:.6f} clicks per impression there and "
                    f"{here:.6f} here: other data, or other rankers"
                )
