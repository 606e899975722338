from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ranktrial.cli.study import study_app
from ranktrial.methods import ExpectedRun, Trajectory
from ranktrial.paper.data.dataset import mapped
from ranktrial.paper.study import StudyPlan, study_cost
from ranktrial.paper.study.folder import StudyFolder, TaskResult
from ranktrial.paper.study.tables import write_tables
from ranktrial.paper.study.tasks import let_go, peak_memory, trim
from ranktrial.rankings import Moments


@pytest.fixture
def folder(tiny_plan: StudyPlan, tmp_path: Path) -> Path:
    """Task i of the runs took 10 + i processor seconds, each limit 1; nothing of the last method is done."""
    plan = replace(tiny_plan, data=tiny_plan.data[:1], pairs=3, limits=2, simulate=True)
    study = StudyFolder(tmp_path)
    study.adopt(plan)
    points = plan.points
    run = Trajectory(points, np.zeros(len(points)), np.ones(len(points)), np.ones(len(points)))
    for i, task in enumerate(task for task in plan.tasks() if task.method != plan.methods[-1]):
        study.record(task, TaskResult(1.0, 0.9, run, 20.0 + i, 10.0 + i, 1_000_000 * i))
    limit = ExpectedRun.of_moments([1], Moments(0.1, 1.0, ctr=1.0))
    for task in plan.limit_tasks():
        study.record(task, TaskResult(1.0, 0.9, limit, 2.0, 1.0, 5_000_000))
    return tmp_path


@pytest.mark.parametrize("merged", [False, True])
def test_cost_is_the_median_of_the_tasks_done_times_the_pairs(folder: Path, merged: bool) -> None:
    if merged:
        plan = StudyFolder(folder).read_plan()
        write_tables(StudyFolder(folder), plan, plan.points, folder)
    found = study_cost(folder, pairs=500, workers=2)
    ab, counterfactual, limit = found.costs
    assert (ab.task, ab.done, ab.cpu_seconds, ab.seconds, ab.peak_memory) == ("AB()", 3, 12.0, 22.0, 4_000_000)
    assert ab.hours == pytest.approx(12 * 500 / 2 / 3600)
    assert counterfactual.cpu_seconds == 13.0
    assert (limit.task, limit.done) == ("limit of AB()", 2)
    assert limit.hours == pytest.approx(1 * 2 / 2 / 3600)
    assert found.hours == pytest.approx(ab.hours + counterfactual.hours + limit.hours)
    (missing,) = found.not_measured
    assert missing.startswith("LogOptNetwork(")
    assert missing.endswith(" on first")
    assert study_cost(folder).costs[0].hours == pytest.approx(12 * 3 / 3600)


def test_cost_on_the_command_line(folder: Path) -> None:
    run = CliRunner().invoke
    shown = run(study_app, ["cost", str(folder), "--pairs", "600", "--workers", "2"])
    assert shown.exit_code == 0, shown.output
    for text in (
        "AB()",
        "limit of AB()",
        "4 MB",
        "1.0 h",
        "for 600 pairs on 2 workers",
        "not measured yet: LogOptNetwork(",
    ):
        assert text in shown.stdout
    report = json.loads(run(study_app, ["cost", str(folder), "--json"]).stdout)
    assert report["costs"][0]["cpu_seconds"] == 12.0


def test_a_task_is_charged_for_its_own_memory() -> None:
    large = np.ones(20_000_000)
    with_large = peak_memory()
    assert with_large > large.nbytes
    del large
    trim()
    assert 0 < peak_memory() < with_large


def test_pages_of_a_mapped_array_can_be_given_back(tmp_path: Path) -> None:
    np.save(tmp_path / "large.npy", np.ones(4_000_000))
    array = mapped(tmp_path / "large.npy")
    assert array.sum() == 4_000_000
    let_go(array)
    assert array.sum() == 4_000_000
    let_go(np.ones(3))  # not mapped: nothing to give back
    trim()
