"""Run a study: every task of the plan, on the processes of this machine or on a Dask cluster, to the same bytes.

The seam is ``concurrent.futures.Executor``. Workers compute and answer; this process alone writes results. Killed at any
moment and started again, a study continues with the tasks that have no part yet.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ranktrial import checks, extras
from ranktrial.paper.study.folder import FailedTask, Failure, StudyFolder, TaskResult
from ranktrial.paper.study.pack import check_settings, packed_files, take_over
from ranktrial.paper.study.plan import StudyPlan, Task
from ranktrial.paper.study.prepare import Report, prepare
from ranktrial.paper.study.tables import forget_tables, write_tables
from ranktrial.paper.study.tasks import rankings_file, run_task
from ranktrial.paper.study.warm_up import warm_up

# Workers share the cores already; more threads inside each only get in each other's way.
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

Answer = TaskResult | Failure


@dataclass(frozen=True)
class StudyRun:
    """The result of a run.

    Attributes:
        folder: Where everything is.
        results: The table of results.
        ran: Tasks run this time, failed ones included.
        failures: Tasks without a result; the next run tries them again.
        seconds: Wall time of this run.
    """

    folder: Path
    results: Path
    ran: int
    failures: tuple[FailedTask, ...]
    seconds: float


def run_study(
    plan: StudyPlan,
    folder: str | os.PathLike[str],
    *,
    workers: int = 1,
    cluster: str | None = None,
    taken: Sequence[Path] = (),
    progress: Report = lambda stage, done, total: None,
) -> StudyRun:
    """Run what is not done yet of a plan and make the tables of results.

    A folder may hold an earlier, smaller plan: with more pairs, limits or data sets, or other methods, the study goes on
    there, and ends with the results of one that was begun so.

    Args:
        folder: Made if it does not exist. On a cluster, every worker must see it under the same path.
        workers: Processes of this machine; with ``cluster``, only the threads that train rankers.
        cluster: Address of a Dask scheduler, such as tcp://10.0.0.1:8786.
        taken: Packed files, or folders of them, whose results are taken over (see ``pack``).
        progress: Called with the present stage, how much of it is done and how much there is; while tasks run, those of
            earlier runs count as done.

    Results do not depend on workers or cluster. A task that fails is recorded and does not stop the others.
    """
    checks.at_least("workers", workers, 1)
    start = time.perf_counter()
    path = Path(folder).absolute()
    files = packed_files(taken)
    path.mkdir(parents=True, exist_ok=True)
    study = StudyFolder(path)
    with study.locked():
        _begin(plan, study, files, workers, progress)
        tasks = list(plan.all_tasks())
        there = set(study.done(tasks))
        # Pair by pair, so that what is there halfway covers all data sets and methods alike.
        waiting = sorted((task for task in tasks if task not in there), key=lambda task: task.pair)
        if waiting:
            forget_tables(study)
            if not cluster:
                warm_up(list(dict.fromkeys(task.method for task in waiting)), simulate=plan.simulate, report=progress)
            with _cluster(cluster, path) if cluster else _processes(workers) as pool:
                _run_tasks(plan, study, pool, waiting, progress)
        shutil.rmtree(path / "rankings", ignore_errors=True)
        if not study.finished(plan):
            progress("writing results", 0, 1)
            forget_tables(study)
            write_tables(study, plan, plan.points, path)
        seconds = time.perf_counter() - start
        return StudyRun(path, path / "results.parquet", len(waiting), tuple(study.failures(plan)), seconds)


def _begin(plan: StudyPlan, study: StudyFolder, files: Sequence[Path], workers: int, progress: Report) -> None:
    """Make a folder ready for a plan, or leave the plan that it has."""
    for file in files:
        check_settings(plan, file)
    before = study.adopt(plan)
    study.sweep()
    try:
        prepare(plan, study.path, workers=workers, report=progress)
        for done, file in enumerate(files):
            progress("taking over results", done, len(files))
            take_over(study, plan, file)
    except Exception:
        study.write_plan(before)
        raise


def _run_tasks(plan: StudyPlan, study: StudyFolder, pool: _Pool, waiting: Sequence[Task], progress: Report) -> None:
    total = sum(1 for _ in plan.all_tasks())
    left, failed = Counter((task.data, task.pair) for task in waiting), 0
    progress("running", total - len(waiting), total)
    for task, result in _answers(pool, waiting, str(study.path), plan.digest):
        study.record(task, result)
        left[task.data, task.pair] -= 1
        if left[task.data, task.pair] == 0:
            rankings_file(study.path, task.data, task.pair).unlink(missing_ok=True)
        failed += isinstance(result, Failure)
        progress(f"running, {failed} failed" if failed else "running", total - sum(left.values()), total)


def _answers(pool: _Pool, tasks: Sequence[Task], folder: str, digest: str) -> Iterator[tuple[Task, Answer]]:
    """Each task with its result, as they come."""
    waiting = deque(tasks)
    flying: dict[Future[Answer], Task] = {}
    while waiting or flying:
        try:
            while waiting and len(flying) < 2 * pool.slots():
                future = pool.executor.submit(run_task, folder, digest, waiting[0])
                flying[future] = waiting.popleft()
            for future in wait(flying, return_when=FIRST_COMPLETED).done:
                yield flying[future], pool.answer(future)
                del flying[future]
        except BrokenExecutor:
            # A dead process takes all tasks in flight with it. Which of them killed it shows when each runs alone.
            suspects = list(flying.values())
            flying.clear()
            pool.restart()
            for task in suspects:
                try:
                    yield task, pool.answer(pool.executor.submit(run_task, folder, digest, task))
                except BrokenExecutor:
                    pool.restart()
                    yield task, Failure("the worker process died (killed, or out of memory)")


class _Pool:
    """Processes of this machine that run tasks."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.restart()

    def restart(self) -> None:
        """Start the executor, or start it again after a BrokenExecutor."""
        context = multiprocessing.get_context("spawn")
        self.executor: Executor = ProcessPoolExecutor(self.workers, context, initializer=_begin_worker)

    def slots(self) -> int:
        """Number of tasks that run at a time."""
        return self.workers

    def answer(self, future: Future[Answer]) -> Answer:
        return future.result()


def _begin_worker() -> None:
    """Begin a worker process, which leaves Ctrl-C to its parent and does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()


@contextlib.contextmanager
def _processes(workers: int) -> Iterator[_Pool]:
    """A pool of processes with one thread each, unless the environment says otherwise."""
    others = set(multiprocessing.active_children())
    ours = [name for name in ONE_THREAD if name not in os.environ]
    os.environ.update(dict.fromkeys(ours, "1"))
    pool = _Pool(workers)
    try:
        yield pool
    except BaseException:
        # Do not wait for minutes of work that nobody will record.
        pool.executor.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        for name in ours:
            os.environ.pop(name, None)
    pool.executor.shutdown()


class _ClusterPool(_Pool):
    """A Dask cluster that runs tasks."""

    def __init__(self, client: Any, address: str) -> None:
        self.client = client
        self.lost = ConnectionError(f"lost the cluster at {address}; start again to continue")
        self.executor = client.get_executor(pure=False)

    def slots(self) -> int:
        try:
            return max(1, int(sum(self.client.nthreads().values())))
        except OSError as problem:
            raise self.lost from problem

    def answer(self, future: Future[Answer]) -> Answer:
        try:
            return future.result()
        except CancelledError as problem:
            raise self.lost from problem
        except Exception as problem:  # such as a task that has killed several workers
            return Failure(f"{type(problem).__name__}: {' '.join(str(problem).split())}")


@contextlib.contextmanager
def _cluster(address: str, folder: Path) -> Iterator[_Pool]:
    if refusal := extras.missing("cluster", "a cluster"):
        raise refusal
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        for worker, sees in client.run(_sees, str(folder)).items():
            if not sees:
                raise ValueError(
                    f"worker {worker} does not see {folder}; all workers must share it under the same path"
                )
        yield _ClusterPool(client, address)


def _sees(folder: str) -> bool:
    return (Path(folder) / "plan.json").exists()
