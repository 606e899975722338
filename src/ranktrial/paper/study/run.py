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
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ranktrial import checks, extras
from ranktrial.paper.study.folder import FailedTask, StudyFolder
from ranktrial.paper.study.pack import check_settings, packed_files, take_over
from ranktrial.paper.study.plan import StudyPlan, Task
from ranktrial.paper.study.prepare import prepare
from ranktrial.paper.study.tasks import Failure, TaskResult, rankings_file, run_task
from ranktrial.paper.study.warm_up import warm_up

COMPILING = "compiling, once, for a minute or two"
# Workers share the cores already; more threads inside each only get in each other's way.
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class StudyProgress:
    """The progress of a study.

    Attributes:
        stage: Present stage.
        done: Number done of ``total``; while tasks run, those of earlier runs included.
        total: How many there are.
        failed: Tasks that failed in this run.
        seconds_left: Forecast from the times of each method so far; None before one of each has ended.
        speed: Seconds a task, by method, over this run.
        failure: The task that has just failed.
        detail: More of what is being done, such as the loop that is being compiled.
    """

    stage: str
    done: int
    total: int
    failed: int = 0
    seconds_left: float | None = None
    speed: Mapping[str, float] = field(default_factory=dict)
    failure: FailedTask | None = None
    detail: str = ""


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


OnProgress = Callable[[StudyProgress], None]


def run_study(
    plan: StudyPlan,
    folder: str | os.PathLike[str],
    *,
    workers: int = 1,
    cluster: str | None = None,
    taken: Sequence[Path] = (),
    progress: OnProgress | None = None,
) -> StudyRun:
    """Run what is not done yet of a plan and make the tables of results.

    A folder may hold an earlier, smaller plan: with more pairs, limits or data sets, or other methods, the study goes on
    there, and ends with the results of one that was begun so.

    Args:
        folder: Made if it does not exist. On a cluster, every worker must see it under the same path.
        workers: Processes of this machine; with ``cluster``, only the threads that train rankers.
        cluster: Address of a Dask scheduler, such as tcp://10.0.0.1:8786.
        taken: Packed files, or folders of them, whose results are taken over (see ``pack``).
        progress: Called after each step and each task.

    Results do not depend on workers or cluster. A task that fails is recorded and does not stop the others.
    """
    checks.at_least("workers", workers, 1)
    report = progress or (lambda _: None)
    start = time.perf_counter()
    path = Path(folder).absolute()
    files = packed_files(taken)
    path.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(StudyFolder(path)) as study, study.locked():
        for file in files:
            check_settings(study, plan, file)
        before = study.adopt(plan)
        study.sweep()
        try:
            prepare(plan, path, workers=workers, report=lambda what, done, of: report(StudyProgress(what, done, of)))
            for done, file in enumerate(files):
                report(StudyProgress("taking over results", done, len(files)))
                take_over(study, plan, file)
        except Exception:
            study.abandon(before)
            raise
        waiting = _in_running_order([task for task in plan.all_tasks() if not study.done(task)])
        if waiting:
            study.forget_tables()
            if not cluster:
                warm_up(
                    list(dict.fromkeys(task.method for task in waiting)),
                    simulate=plan.simulate,
                    report=lambda loop, done, of: report(StudyProgress(COMPILING, done, of, detail=loop)),
                )
            with _cluster(cluster, path) if cluster else _processes(workers) as pool:
                _Run(plan, study, pool, waiting, report).execute()
        shutil.rmtree(path / "rankings", ignore_errors=True)
        if waiting or not study.has_tables():
            report(StudyProgress("writing results", 0, 1))
            study.merge(plan)
        return StudyRun(path, study.results, len(waiting), tuple(study.failures(plan)), time.perf_counter() - start)


def _in_running_order(tasks: Sequence[Task]) -> list[Task]:
    """Tasks pair by pair, so that what is there halfway covers all data sets and methods alike."""
    return sorted(tasks, key=lambda task: task.pair)


class _Run:
    """The tasks of one run, from the first submitted to the last recorded."""

    def __init__(
        self, plan: StudyPlan, study: StudyFolder, pool: _Pool, waiting: list[Task], report: OnProgress
    ) -> None:
        self.plan = plan
        self.study = study
        self.pool = pool
        self.report = report
        self.waiting = deque(waiting)
        self.total = sum(1 for _ in plan.all_tasks())
        self.left = Counter((task.data, task.what) for task in waiting)
        self.left_of_pair = Counter((task.data, task.pair) for task in waiting)
        self.times: defaultdict[tuple[str, str], _Times] = defaultdict(_Times)
        self.failed = 0

    def execute(self) -> None:
        self._say()
        flying: dict[Future[TaskResult | Failure], Task] = {}
        landed: SimpleQueue[Future[TaskResult | Failure]] = SimpleQueue()
        while self.waiting or flying:
            suspects: list[Task] = []
            while self.waiting and len(flying) < 2 * self.pool.slots() and not suspects:
                task = self.waiting.popleft()
                try:
                    future = self._submit(self.pool.executor, task)
                except BrokenExecutor:
                    suspects.append(task)
                else:
                    flying[future] = task
                    future.add_done_callback(landed.put)
            if not suspects:
                future = landed.get()
                task = flying.pop(future)
                try:
                    self._record(task, self.pool.answer(future))
                except BrokenExecutor:
                    suspects.append(task)
            if suspects:
                # A dead process takes all tasks in flight with it. Which of them killed it shows when each runs alone.
                suspects += flying.values()
                flying.clear()
                landed = SimpleQueue()
                self.pool.restart()
                self._one_by_one(suspects)

    def _submit(self, executor: Executor, task: Task) -> Future[TaskResult | Failure]:
        return executor.submit(run_task, str(self.study.path), self.plan.digest, task)

    def _one_by_one(self, tasks: Sequence[Task]) -> None:
        with _processes(1) as pool:
            for task in tasks:
                try:
                    result = pool.answer(self._submit(pool.executor, task))
                except BrokenExecutor:
                    result = Failure("the worker process died (killed, or out of memory)")
                    pool.restart()
                self._record(task, result)

    def _record(self, task: Task, result: TaskResult | Failure) -> None:
        self.study.record(task, result)
        self.left[task.data, task.what] -= 1
        self.left_of_pair[task.data, task.pair] -= 1
        if self.left_of_pair[task.data, task.pair] == 0:
            rankings_file(self.study.path, task.data, task.pair).unlink(missing_ok=True)
        if isinstance(result, Failure):
            self.failed += 1
            self._say(FailedTask(task, result.error))
        else:
            self.times[task.data, task.what].add(result.spent.seconds)
            self._say()

    def _say(self, failure: FailedTask | None = None) -> None:
        left = sum(self.left.values())
        by_what: defaultdict[str, list[float]] = defaultdict(list)
        for (_, what), times in self.times.items():
            by_what[what].append(times.mean)
        names = (f"{prefix}{method}" for prefix in ("", "limit of ") for method in self.plan.methods)
        speed = {what: sum(by_what[what]) / len(by_what[what]) for what in names if what in by_what}
        self.report(
            StudyProgress(
                "running", self.total - left, self.total, self.failed, self._seconds_left(speed), speed, failure
            )
        )

    def _seconds_left(self, speed: Mapping[str, float]) -> float | None:
        """None until there is a time of every method: they differ a thousandfold."""
        work = 0.0
        for (data, what), count in self.left.items():
            if count and what not in speed:
                return None
            work += count * (self.times[data, what].mean if (data, what) in self.times else speed.get(what, 0.0))
        return work / max(self.pool.slots(), 1)


class _Times:
    """Seconds of the tasks of one method on one data set. The first, which also loads compiled code, counts only alone."""

    def __init__(self) -> None:
        self.first, self.others, self.count = 0.0, 0.0, 0

    def add(self, seconds: float) -> None:
        if self.count:
            self.others += seconds
        else:
            self.first = seconds
        self.count += 1

    @property
    def mean(self) -> float:
        return self.others / (self.count - 1) if self.count > 1 else self.first


class _Pool:
    """An executor of tasks, and how many it runs at a time."""

    executor: Executor

    def slots(self) -> int:
        raise NotImplementedError

    def answer(self, future: Future[TaskResult | Failure]) -> TaskResult | Failure:
        return future.result()

    def restart(self) -> None:
        """Start the executor again after a BrokenExecutor."""


class _LocalPool(_Pool):
    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.restart()

    def slots(self) -> int:
        return self.workers

    def restart(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.executor = ProcessPoolExecutor(self.workers, context, initializer=_begin_worker)


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
    others = set(multiprocessing.active_children())
    with _environment(dict.fromkeys(ONE_THREAD, "1")):
        pool = _LocalPool(workers)
        try:
            yield pool
        except BaseException:
            # Do not wait for minutes of work that nobody will record.
            pool.executor.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
        pool.executor.shutdown()


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Context with environment variables for processes started meanwhile; those that are set already stay."""
    ours = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in ours})
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


class _ClusterPool(_Pool):
    def __init__(self, client: Any, address: str) -> None:
        self.client = client
        self.address = address
        self.executor = client.get_executor(pure=False)

    def slots(self) -> int:
        try:
            return max(1, int(sum(self.client.nthreads().values())))
        except OSError as problem:
            raise self._lost() from problem

    def answer(self, future: Future[TaskResult | Failure]) -> TaskResult | Failure:
        try:
            return future.result()
        except CancelledError as problem:
            raise self._lost() from problem
        except Exception as problem:  # such as a task that has killed several workers
            return Failure(f"{type(problem).__name__}: {' '.join(str(problem).split())}")

    def _lost(self) -> ConnectionError:
        return ConnectionError(f"lost the cluster at {self.address}; start again to continue")


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
