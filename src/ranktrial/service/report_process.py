"""A process that makes the reports and refits of a service, so that its requests do not wait for either.

The service has one of these for all of its trials. It opens the store itself, keeps what it has read of each log for the next
report, and passes back no more than the report. If it dies or takes too long that report is an error, and the next one has a
new process; it ends when the service does, however that ends.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from ranktrial.report.schema import Report
from ranktrial.store import open_store
from ranktrial.store.protocols import Store
from ranktrial.trial.learning import Learning

LONGEST = 3600.0  # seconds
NICE = 10  # what is asked for by a page waits for what visitors ask for
# Matrices are tiny: a second thread for each costs more than it does.
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
START = "import sys; sys.path[:] = sys.argv[1:]; from ranktrial.service.report_process import main; main()"


class ReportFailed(RuntimeError):  # noqa: N818 (reads as what it says)
    """The process that makes reports died or took too long; there will be another for the next report."""


class ReportProcess:
    """The process, as the service sees it: started when first needed, one request at a time.

    Args:
        store: Address of the store, as for ``open_store``.
        longest: Seconds that a report or a refit may take.
    """

    def __init__(self, store: str | Path, *, longest: float = LONGEST) -> None:
        self._store, self._longest = store, longest
        # A thread of its own: others must not find all threads of a pool waiting for reports.
        self._thread = ThreadPoolExecutor(1, "ranktrial-reports")
        self._process: subprocess.Popen[bytes] | None = None  # of that thread

    def report(self, trial: str, query_units: int, latencies: Sequence[int], version: int | None = None) -> Report:
        """The report on a version of a trial, the current one by default (``Learning.report``)."""
        return self.begin_report(trial, query_units, latencies, version).result()

    def begin_report(
        self, trial: str, query_units: int, latencies: Sequence[int], version: int | None = None
    ) -> Future[Report]:
        """``report``, without waiting for it."""
        options = {"query_units": query_units, "latencies": tuple(latencies), "version": version}
        return self._thread.submit(self._ask, "report", trial, options)

    def learn(self, trial: str, version: int, at: int | None, who: str) -> None:
        """Refit a version's position bias and put it into the store (``Learning.learn``)."""
        self._thread.submit(self._ask, "learn", trial, {"version": version, "at": at, "who": who}).result()

    def close(self) -> None:
        """End the process, whatever it is working out."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if (process := self._process) is not None:
            process.terminate()
        self._thread.shutdown()
        self._end()

    def _ask(self, *request: Any) -> Any:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        killed = threading.Event()

        def kill() -> None:
            killed.set()
            process.kill()

        timer = threading.Timer(self._longest, kill)
        timer.start()
        try:
            send(process.stdin, request)
            good, answer = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as problem:
            status = self._end()
            why = f"took longer than {self._longest:g} s" if killed.is_set() else f"ended (status {status})"
            raise ReportFailed(f"the process that makes reports {why}; nothing else is affected") from problem
        finally:
            timer.cancel()
        if not good:
            raise answer
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                [sys.executable, "-c", START, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **ONE_THREAD},
            )
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):  # noticed when it is asked
                send(self._process.stdin, self._store)
        return self._process

    def _end(self) -> int | None:
        """Let go of the process, and return how it ended."""
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(OSError):
            process.communicate()  # closes its input, which ends it, and waits
        return process.returncode


def send(to: IO[bytes], message: Any) -> None:
    """Write a message, whole or not at all."""
    to.write(pickle.dumps(message))
    to.flush()


# --- in the process -------------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer requests until there are none any more; ends at once when whoever asks does."""
    if hasattr(os, "nice"):  # not on Windows
        os.nice(NICE)
    gc.set_threshold(50_000, 20, 50)  # rows that are read refer to nothing
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends this
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # nobody else may write there
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        try:
            while True:
                requests.put(pickle.load(sys.stdin.buffer))
        finally:
            os._exit(0)  # whatever is being worked out, nobody waits for it

    threading.Thread(target=read, daemon=True).start()
    reporter = Reporter(requests.get())
    while True:
        send(answers, reporter.answer(*requests.get()))


def _portable(problem: Exception) -> Exception:
    """An error with its traceback as a note, as one that can be sent."""
    try:
        pickle.loads(pickle.dumps(problem))
    except Exception:
        problem = RuntimeError(f"{type(problem).__name__}: {problem}")
    problem.add_note(traceback.format_exc())
    return problem


class Reporter:
    """Trials of a store, as far as this process was asked for them."""

    def __init__(self, place: str | Path) -> None:
        self._place = place
        self._store: Store | None = None

    def answer(self, what: str, trial: str, options: dict[str, Any]) -> tuple[bool, Any]:
        """True and the result of a request; False and an error, after which the next one begins anew."""
        try:
            if self._store is None:
                self._store = open_store(self._place, must_exist=True, upgrade=False)
                self._learning = Learning(self._store, time.time)
            self._store.trials.find(trial)  # raises where it is not there
            return True, getattr(self._learning, what)(trial, **options)
        except Exception as problem:
            with contextlib.suppress(Exception):
                if self._store is not None:
                    self._store.close()
            self._store = None
            return False, _portable(problem)
