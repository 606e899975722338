"""Preparation of a study before its first task: data sets and rankers, written once into its folder.

A data set is built beside its place and renamed into it, so one that is there is complete.
"""

from __future__ import annotations

import csv
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from ranktrial.paper.data import (
    Dataset,
    LinearRankers,
    read_letor,
    read_rankers,
    read_scores,
    read_splits,
    train_rankers,
)
from ranktrial.paper.data.dataset import ARRAYS, mapped
from ranktrial.paper.study.files import written_whole
from ranktrial.paper.study.plan import SYNTHETIC, TRAINED, DataPlan, StudyPlan
from ranktrial.paper.study.systems import Ranks, ranked_by_runs, ranked_by_scores
from ranktrial.paper.study.tasks import chosen_pairs, click_probability, seed_of
from ranktrial.trec import read_qrels, read_run

Report = Callable[[str, int, int], None]  # what is being done, done, total


def prepare(plan: StudyPlan, folder: Path, *, workers: int, report: Report) -> None:
    """Make every data set of the plan that is not there yet or has too few rankers. What fails leaves no data set behind."""
    root = folder / "data"
    short = [data for data in plan.data if not _is_there(plan, data, root / data.name)]
    for data in short:
        for file in data.files():
            if not file.exists():
                raise ValueError(f"data set {data.name}: no file or folder {str(file)!r}")
    root.mkdir(exist_ok=True)
    for left_over in root.glob(".building-*"):
        shutil.rmtree(left_over)
    built = {data: Path(tempfile.mkdtemp(prefix=".building-", dir=root)) for data in short}
    try:
        for data, building in built.items():
            _build(plan, data, building, workers, report)
            if (root / data.name).exists():
                _check_rankers(data, building / "rankers.npy", root / data.name / "rankers.npy")
        for data, building in built.items():
            if (root / data.name).exists():
                os.replace(building / "rankers.npy", root / data.name / "rankers.npy")
            else:
                building.rename(root / data.name)
    finally:
        for building in built.values():
            shutil.rmtree(building, ignore_errors=True)
    _name_pairs(plan, folder)


def _name_pairs(plan: StudyPlan, folder: Path) -> None:
    """Write which systems are A and B of each pair, where systems were given."""
    rows = []
    for data in plan.data:
        pairs = chosen_pairs(plan, data)[: max(plan.pairs, plan.limits)]
        rows += [(data.name, i, *(data.system_names[system] for system in pair)) for i, pair in enumerate(pairs)]
    if rows:
        with written_whole(folder / "pairs.csv") as path, path.open("w", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows([("data", "pair", "a", "b"), *rows])


def _is_there(plan: StudyPlan, data: DataPlan, prepared: Path) -> bool:
    """True if a data set has been prepared, with all the rankers that the plan needs."""
    if not prepared.exists():
        return False
    try:
        if data.systems is not None:
            return len(mapped(prepared / "ranks.npy")) == len(data.systems)
        return len(mapped(prepared / "rankers.npy")) >= plan.n_rankers
    except FileNotFoundError:
        raise ValueError(f"{prepared} is not a data set of a study; choose another folder") from None


def _check_rankers(data: DataPlan, longer: Path, there: Path) -> None:
    """Refuse a longer list of rankers that begins otherwise: what ran on the first of them must stay true."""
    before = mapped(there)
    if not np.array_equal(mapped(longer)[: len(before)], before):
        raise ValueError(
            f"data set {data.name}: its first {len(before)} rankers do not come out as they did when the study began; "
            "the data or the version of a library has changed"
        )


def _build(plan: StudyPlan, data: DataPlan, building: Path, workers: int, report: Report) -> None:
    if data.runs is not None:
        dataset, ranks, top_grade = _read_runs(data, report)
        np.save(building / "top_grade.npy", top_grade)
        click_probability(plan.user_of(data), dataset, top_grade)
        np.save(building / "ranks.npy", ranks)
    else:
        dataset, validation = _load(data, building, report)
        scores = [read_scores(file, dataset) for file in data.scores or ()]
        if data.queries is not None and data.queries < dataset.n_queries:
            dataset = dataset.take(np.arange(data.queries))
        click_probability(plan.user_of(data), dataset)
        if scores:
            ties = seed_of(plan.seed, data.seed_name, "ties")
            first = [column[: dataset.n_documents] for column in scores]
            np.save(building / "ranks.npy", ranked_by_scores(first, dataset.offsets, seed=ties))
        else:
            rankers = _rankers(plan, data, dataset, validation, workers, report)
            np.save(building / "rankers.npy", rankers.weights[: plan.n_rankers])
    for name in ARRAYS:
        if not (building / f"{name}.npy").exists():
            np.save(building / f"{name}.npy", getattr(dataset, name))


def _load(data: DataPlan, building: Path, report: Report) -> tuple[Dataset, Dataset | None]:
    """The whole data set and, where there is one, the set for the early stopping of rankers."""
    if data.synthetic:
        make, generating = SYNTHETIC[str(data.source)], partial(report, f"generating {data.name}")
        features = building / "features.npy"
        return make(data.queries or 0, seed=data.seed, features_file=features, progress=generating), None
    path, reading = Path(str(data.source)), partial(report, f"reading {data.name}")
    if path.is_dir():
        splits = read_splits(path, prefix=data.prefix, progress=reading)
        return splits["train"], splits.get("vali")
    return read_letor(path, progress=reading), None


def _read_runs(data: DataPlan, report: Report) -> tuple[Dataset, Ranks, int]:
    """The documents that the given runs list, the ranks they have, and the highest grade of the judgements."""
    qrels, files, runs = read_qrels(str(data.qrels)), data.runs or (), []
    for done, file in enumerate(files):
        report(f"reading runs of {data.name}", done, len(files))
        runs.append(read_run(file))
    dataset, ranks = ranked_by_runs(runs, qrels, name=data.name, queries=data.queries)
    return dataset, ranks, qrels.top


def _rankers(
    plan: StudyPlan, data: DataPlan, dataset: Dataset, validation: Dataset | None, workers: int, report: Report
) -> LinearRankers:
    needed = plan.n_rankers
    if data.rankers in TRAINED:
        return train_rankers(
            dataset,
            needed,
            seed=seed_of(plan.seed, data.seed_name, "rankers"),
            validation=validation,
            rankers="code" if data.rankers == "code" else "paper",
            workers=workers,
            progress=partial(report, f"training rankers for {data.name}"),
        )
    read = read_rankers(data.rankers)
    if len(read) < needed:
        raise ValueError(f"{data.rankers}: {len(read)} rankers, {needed // 2} pairs need {needed}")
    used = read.feature_ids[np.any(read.weights != 0, axis=0)]
    known = np.isin(used, dataset.feature_ids)
    # The reader drops features that never differ within a query; where most are unknown, the file is for other data.
    if 2 * known.sum() < len(used):
        raise ValueError(f"{data.rankers}: only {known.sum()} of the {len(used)} features it uses are in {data.name}")
    return read.align(dataset, allow_dropped=True)
