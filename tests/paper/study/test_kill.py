"""A study killed with SIGKILL, again and again, ends with the bytes of one that was left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from ranktrial.paper.study import StudyPlan

RUN = """
import json, sys
from pathlib import Path
from ranktrial.paper.study import StudyPlan, run_study
if __name__ == "__main__":
    plan = StudyPlan.from_dict(json.loads(sys.argv[1]), "test", Path.cwd())
    assert run_study(plan, sys.argv[2], workers=int(sys.argv[3])).failures == ()
"""
LONGEST = 60.0  # seconds for a process to get anywhere; only a broken one needs them


def start(plan: StudyPlan, folder: Path, workers: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RUN, json.dumps(plan.to_dict()), str(folder), str(workers)])


def gone(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_for(happened: Callable[[], bool]) -> None:
    limit = time.monotonic() + LONGEST
    while not happened():
        assert time.monotonic() < limit, "nothing happened for too long"
        time.sleep(0.002)


def test_killed_at_any_moment_and_continued_gives_the_same_bytes(
    reference: Path, tiny_plan: StudyPlan, tmp_path: Path
) -> None:
    folder = tmp_path / "study"

    def parts() -> int:
        return len(list((folder / "parts").rglob("[!.]*.parquet")))

    def preparing() -> bool:
        return bool(list((folder / "data").glob(".building-*/features.npy"))) or parts() > 0

    chance = random.Random(7)
    moments: list[Callable[[], bool]] = [preparing]
    for low in (1, 5):
        target = chance.randint(low, low + 3)
        moments.append(lambda target=target: parts() >= target)  # type: ignore[misc]
    caught = []
    for processes, moment in zip((1, 2, 1), moments):
        study = start(tiny_plan, folder, processes)
        wait_for(lambda study=study, moment=moment: moment() or study.poll() is not None)  # type: ignore[misc]
        if study.poll() is not None:
            continue  # it was faster than we look
        os.kill(study.pid, signal.SIGSTOP)  # the moment stays as it is while we look around
        workers = psutil.Process(study.pid).children(recursive=True)
        os.kill(study.pid, signal.SIGKILL)
        study.wait()
        # Workers must not outlive the study they work for.
        wait_for(lambda workers=workers: all(map(gone, workers)))  # type: ignore[misc]
        caught.append(parts())
    assert any(0 < n < len(list(tiny_plan.tasks())) for n in caught), caught

    assert start(tiny_plan, folder, 1).wait() == 0
    assert (folder / "results.parquet").read_bytes() == (reference / "results.parquet").read_bytes()
    assert not [left for left in folder.rglob(".*") if left.name != ".lock"]
