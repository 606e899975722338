from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ranktrial.paper.study import StudyPlan, run_study

dask = pytest.importorskip("dask", reason="needs the extra cluster")
distributed = pytest.importorskip("distributed", reason="needs the extra cluster")


def test_a_dask_cluster_that_loses_a_worker_gives_the_same_bytes(
    reference: Path, tiny_plan: StudyPlan, tmp_path: Path
) -> None:
    killed: list[int] = []
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    ) as cluster:

        def kill_one(stage: str, done: int, total: int) -> None:
            if stage == "running" and done == 3:
                killed.append(cluster.workers[0].pid)
                os.kill(killed[0], signal.SIGKILL)

        done = run_study(tiny_plan, tmp_path, cluster=cluster.scheduler_address, progress=kill_one)
    assert killed
    assert done.failures == ()
    assert done.results.read_bytes() == (reference / "results.parquet").read_bytes()


def test_a_cluster_that_is_not_there_is_an_error_in_words(tiny_plan: StudyPlan, tmp_path: Path) -> None:
    impatient = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with impatient, pytest.raises(OSError, match=r"127\.0\.0\.1"):
        run_study(tiny_plan, tmp_path, cluster="tcp://127.0.0.1:9")
