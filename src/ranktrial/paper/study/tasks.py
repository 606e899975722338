"""Tasks of a study: the run of one method on one pair, from prepared data sets and rankings on disk.

Everything a worker needs is in the study's folder: ``plan.json`` and memory-mapped arrays, so that workers of one machine
share the pages of a large data set. A task's randomness depends on the study's seed and on what the task is, never on when
or where it runs.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import hashlib
import json
import mmap
import sys
import time
import traceback
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.methods import ExpectedRun, Trajectory, parse_method
from ranktrial.paper.data import Dataset, LinearRankers
from ranktrial.paper.data.dataset import load_dataset, mapped
from ranktrial.paper.study.files import written_whole
from ranktrial.paper.study.folder import Failure, StudyFolder, TaskResult
from ranktrial.paper.study.plan import DataPlan, StudyPlan, Task, UserPlan
from ranktrial.paper.study.systems import Ranks, pair_of_ranks, system_pairs
from ranktrial.rankings import Pair, Rankings
from ranktrial.rankings.lists import rank_by_score
from ranktrial.trec.qrels import zeta_by_grade
from ranktrial.users import User

atexit.register(gc.unfreeze)  # some libraries complain of what is left at the end


def peak_memory() -> int:
    """The most bytes this process has had in memory."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    try:
        import resource
    except ImportError:  # neither of the two on this system: not known
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def seed_of(study_seed: int, *key: str | int) -> np.random.SeedSequence:
    """The seed of one thing in a study, the same whatever else is in it."""
    words = np.frombuffer(hashlib.sha256(json.dumps(key).encode()).digest(), "<u4")
    return np.random.SeedSequence([study_seed, *words.tolist()])


def let_go(array: Any) -> None:
    """Give the pages of a mapped array back, unchanged as they are; they are read again when they are needed."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    if array is not None and hasattr(mmap, "MADV_DONTNEED"):
        array.madvise(mmap.MADV_DONTNEED)


def trim() -> None:
    """Give memory that is free back to the system, where it can be, and start the count of the peak anew: what one task has
    used is not held against the next."""
    gc.collect()  # a run refers to itself, with hundreds of megabytes
    gc.freeze()  # what is left stays: to look at all of it again takes longer than a small task
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


@dataclass(frozen=True, eq=False)
class PreparedData:
    """One prepared data set with its rankers and the users who click.

    Attributes:
        rankers: Linear rankers; none where systems were given.
        user: Who clicks on any document of the data set.
        ranks: Ranks of the documents by the given systems (see ``systems``).
    """

    plan: StudyPlan
    data: DataPlan
    folder: Path
    dataset: Dataset
    rankers: LinearRankers
    user: User
    ranks: Ranks | None = None

    def pair(self, index: int) -> Pair:
        """A pair of rankers, over all documents; of given systems over those that either lists."""
        k = self.plan.k_of(self.data)
        features = self.dataset.features
        if self.ranks is None:
            pair = self._linear_pair(index, k)
        else:
            a, b = chosen_pairs(self.plan, self.data)[index]
            pair = pair_of_ranks(self.ranks[a], self.ranks[b], self.dataset.offsets, k)
            if pair.n_documents < self.dataset.n_documents:
                features = features[np.asarray(pair.ids)]
        known = {"features": features} if self.dataset.n_features else {}
        return pair.knowing(theta=self.plan.user_of(self.data).theta(k), **known)

    def user_of(self, pair: Pair) -> User:
        """Simulated user for the documents of a pair."""
        if pair.n_documents == self.dataset.n_documents:
            return self.user
        return self.user.of(np.asarray(pair.ids))

    def _linear_pair(self, index: int, k: int) -> Pair:
        """The first that asks ranks all documents, others map what it wrote."""
        file = rankings_file(self.folder, self.dataset.name, index)
        try:
            both = mapped(file)
        except FileNotFoundError:
            both = self._rank(index)
            with written_whole(file) as path, path.open("wb") as out:
                np.save(out, both)
        offsets = self.dataset.offsets
        return Pair(Rankings(offsets, both[0]), Rankings(offsets, both[1]), offsets, k)

    def _rank(self, index: int) -> Any:
        ties = seed_of(self.plan.seed, self.data.seed_name, index, "ties")
        scores = (self.rankers.scores(self.dataset, 2 * index + i) for i in range(2))
        ranked = np.stack([rank_by_score(s, self.dataset.offsets, seed=ties).documents for s in scores])
        let_go(self.dataset.features)
        return ranked


def rankings_file(folder: Path, data: str, pair: int) -> Path:
    return folder / "rankings" / data / f"{pair:05}.npy"


def chosen_pairs(plan: StudyPlan, data: DataPlan) -> list[tuple[int, int]]:
    """Numbers of the two given systems that are A and B of each pair; empty if rankers are linear."""
    return system_pairs(len(data.systems or ()), seed=seed_of(plan.seed, data.seed_name, "pairs"))


def click_probability(user: UserPlan, dataset: Dataset, top_grade: int | None = None) -> FloatArray:
    """zeta of every document, from its label.

    The user's probabilities are those of labels 0, 1, 2 ...; with the highest grade of a file of judgements they are spread
    evenly over its grades instead.
    """
    if top_grade is not None:
        return zeta_by_grade(top_grade, user.zeta)[dataset.labels]
    highest = int(dataset.labels.max(initial=0))
    if highest >= len(user.zeta):
        raise ValueError(
            f"{dataset.name} has label {highest}, but [user] zeta has probabilities for labels 0 to "
            f"{len(user.zeta) - 1} only"
        )
    return np.asarray(user.zeta)[dataset.labels]


# The digest tells plans apart where a worker outlives a folder that is deleted and used again.
@lru_cache(maxsize=4)
def open_prepared(folder: str, digest: str, name: str) -> PreparedData:
    root = Path(folder)
    try:
        plan = StudyFolder(root).read_plan()
        if plan.digest != digest:
            raise ValueError(f"{root / 'plan.json'} holds another plan than the one that is running")
        data = next(one for one in plan.data if one.name == name)
        prepared = root / "data" / name
        dataset = load_dataset(prepared, name, mapped)
        given = data.systems is not None
        ranks = mapped(prepared / "ranks.npy") if given else None
        weights = np.empty((0, dataset.n_features)) if given else mapped(prepared / "rankers.npy")
        top_grade = None if data.qrels is None else int(mapped(prepared / "top_grade.npy"))
    except FileNotFoundError as missing:
        raise FileNotFoundError(
            f"{missing.filename} is not there on this machine; every worker must see the study's folder under the same path"
        ) from None
    user = plan.user_of(data)
    zeta = click_probability(user, dataset, top_grade)
    rankers = LinearRankers(weights, dataset.feature_ids)
    return PreparedData(plan, data, root, dataset, rankers, user.build(zeta, plan.k_of(data)), ranks)


def run_task(folder: str, digest: str, task: Task) -> TaskResult | Failure:
    """Run one task. Whatever goes wrong is an answer too: exceptions may not survive the way between processes."""
    try:
        trim()
        prepared = open_prepared(folder, digest, task.data)
        plan, pair = prepared.plan, prepared.pair(task.pair)
        user = prepared.user_of(pair)
        ctr_a, ctr_b = pair.ctr(user)
        method = parse_method(task.method)
        run: Trajectory | ExpectedRun
        began, cpu_began = time.perf_counter(), time.process_time()
        if task.kind == "limit":
            run = method.expected(pair, user, [1], seed=seed_of(plan.seed, *task))
        elif plan.simulate:
            run = method.simulate(pair, user, plan.points, seed=seed_of(plan.seed, *task[:3]))
        else:
            run = method.expected(pair, user, plan.points, seed=seed_of(plan.seed, *task[:3]), runs=plan.runs)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
        return TaskResult(ctr_a, ctr_b, run, seconds, cpu_seconds, peak_memory())
    except Exception as problem:
        said = " ".join(str(problem).split())
        return Failure(f"{type(problem).__name__}: {said}" if said else type(problem).__name__, traceback.format_exc())
