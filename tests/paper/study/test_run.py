from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from ranktrial.methods import ExpectedRun, Optimized
from ranktrial.paper.study import DataPlan, StudyPlan, Task, UserPlan, run_study, summarise
from ranktrial.paper.study import run as runs_of_studies
from ranktrial.paper.study.folder import Failure, StudyFolder, TaskResult
from ranktrial.paper.study.tables import COLUMNS
from ranktrial.paper.study.tasks import open_prepared, run_task
from ranktrial.rankings import Pair


def rows_of(file: Path, where: str = "true") -> list[tuple[Any, ...]]:
    return duckdb.execute(f"select * from read_parquet($file) where {where}", {"file": str(file)}).fetchall()


def test_one_row_for_every_data_set_pair_method_and_checkpoint(reference: Path, tiny_plan: StudyPlan) -> None:
    table = duckdb.execute("select * from read_parquet($file)", {"file": str(reference / "results.parquet")})
    assert tuple(column[0] for column in table.description or ()) == COLUMNS
    rows = [dict(zip(COLUMNS, row)) for row in table.fetchall()]
    keys = [(row["data"], row["pair"], row["method"], row["impressions"]) for row in rows]
    assert keys == [(*task[:3], n) for task in tiny_plan.tasks() for n in tiny_plan.points.tolist()]
    for row in rows:
        error = row["estimate"] - row["delta"]
        assert row["delta"] == row["ctr_a"] - row["ctr_b"]
        assert row["absolute_error"] > abs(error)
        assert 0 < row["binary_error"] < 1
        assert row["mean_squared_error"] >= error**2 - 1e-12
        assert 0 < row["ctr"] < tiny_plan.k


def test_single_runs_may_be_simulated_as_the_paper_did(tiny_plan: StudyPlan, tmp_path: Path) -> None:
    plan = replace(tiny_plan, data=tiny_plan.data[1:], pairs=1, simulate=True)
    rows = [dict(zip(COLUMNS, row)) for row in rows_of(run_study(plan, tmp_path).results)]
    assert len(rows) == len(plan.methods) * len(plan.points)
    for row in rows:
        assert row["absolute_error"] == abs(row["estimate"] - row["delta"])
        assert row["binary_error"] == float(row["estimate"] * row["delta"] <= 0)
    with pytest.raises(ValueError, match="simulate is true there and false now"):
        run_study(replace(plan, simulate=False), tmp_path)


def test_timings_are_apart_because_they_are_not_reproducible(reference: Path, tiny_plan: StudyPlan) -> None:
    rows = rows_of(reference / "timings.parquet")
    assert [row[:4] for row in rows] == list(tiny_plan.tasks())
    for *_, impressions, seconds, cpu_seconds, peak_memory in rows:
        assert impressions == tiny_plan.impressions
        assert seconds > 0
        assert cpu_seconds > 0
        assert peak_memory > 10_000_000


def test_a_task_is_the_method_on_the_pair_with_the_tasks_own_seed(reference: Path, tiny_plan: StudyPlan) -> None:
    task = Task("second", 1, "AB()")
    result = run_task(str(reference), tiny_plan.digest, task)
    assert isinstance(result, TaskResult)
    assert isinstance(result.run, ExpectedRun)
    where = f"data = '{task.data}' and pair = {task.pair} and method = '{task.method}'"
    recorded = rows_of(reference / "results.parquet", where)
    assert [row[COLUMNS.index("estimate")] for row in recorded] == result.run.estimate.tolist()

    prepared = open_prepared(str(reference), tiny_plan.digest, "second")
    a, b = (prepared.rankers.scores(prepared.dataset, ranker) for ranker in (2, 3))
    pair = Pair.from_scores(a, b, prepared.dataset.offsets, tiny_plan.k)
    assert result.ctr_a - result.ctr_b == pytest.approx(pair.delta(prepared.user), abs=1e-12)


def test_two_workers_write_the_same_bytes(reference: Path, tiny_plan: StudyPlan, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    run_study(tiny_plan, tmp_path, workers=2, progress=lambda *step: seen.append(step))
    assert (tmp_path / "results.parquet").read_bytes() == (reference / "results.parquet").read_bytes()
    assert {stage for stage, _, _ in seen} >= {"generating first", "training rankers for second", "running"}
    assert [step[1:] for step in seen if step[0] == "running"] == [(done, 12) for done in range(13)]
    assert not (tmp_path / "rankings").exists()


def test_results_do_not_depend_on_the_rest_of_the_plan(reference: Path, tiny_plan: StudyPlan, tmp_path: Path) -> None:
    less = replace(tiny_plan, data=tiny_plan.data[1:], methods=tiny_plan.methods[1:2], pairs=1)
    run_study(less, tmp_path)
    where = f"data = 'second' and pair = 0 and method = '{less.methods[0]}'"
    assert rows_of(tmp_path / "results.parquet") == rows_of(reference / "results.parquet", where)


def test_a_finished_study_has_nothing_left_to_do(reference: Path, tiny_plan: StudyPlan) -> None:
    before = (reference / "results.parquet").stat().st_mtime_ns
    assert run_study(tiny_plan, reference).ran == 0
    assert (reference / "results.parquet").stat().st_mtime_ns == before


def test_another_plan_in_the_same_folder_is_refused_with_the_difference(reference: Path, tiny_plan: StudyPlan) -> None:
    other = replace(
        tiny_plan,
        pairs=1,
        impressions=3_000,
        data=(replace(tiny_plan.data[0], queries=21), tiny_plan.data[1]),
    )
    with pytest.raises(ValueError, match="holds another study") as caught:
        run_study(other, reference)
    assert "pairs is 2 there and 1 now" in str(caught.value)
    assert "impressions is 2000 there and 3000 now" in str(caught.value)
    assert "data.first.queries is 20 there and 21 now" in str(caught.value)
    with pytest.raises(ValueError, match=r'data\.second\.source is "yahoo-like" there and not set now'):
        run_study(replace(tiny_plan, data=tiny_plan.data[:1]), reference)
    assert StudyFolder(reference).read_plan() == tiny_plan


def test_a_study_that_grows_ends_with_the_bytes_of_one_begun_so(
    reference: Path, tiny_plan: StudyPlan, tmp_path: Path
) -> None:
    ab, _, logopt = tiny_plan.methods
    begun = replace(tiny_plan, data=tiny_plan.data[1:], methods=(logopt, "TeamDraft()"), pairs=1)
    folder = tmp_path / "study"
    assert run_study(begun, folder).ran == 2
    StudyFolder(folder).record(Task("second", 0, "TeamDraft()"), Failure("of a method that will leave"))
    results = (folder / "results.parquet").read_bytes()
    with pytest.raises(ValueError, match="no file or folder"):
        run_study(replace(begun, pairs=2, data=(*begun.data, DataPlan("third", str(tmp_path / "none")))), folder)
    assert StudyFolder(folder).read_plan() == begun  # what cannot be run does not replace what can
    assert (folder / "results.parquet").read_bytes() == results

    grown = replace(tiny_plan, methods=(ab, logopt))
    done = run_study(grown, folder)
    assert (done.ran, done.failures) == (7, ())
    where = f"method in ('{ab}', '{logopt}')"
    assert rows_of(done.results) == rows_of(reference / "results.parquet", where)
    assert len(rows_of(done.results)) == 8 * len(tiny_plan.points)

    assert run_study(tiny_plan, folder, workers=2).ran == 4
    assert done.results.read_bytes() == (reference / "results.parquet").read_bytes()
    assert StudyFolder(folder).part(Task("second", 0, "TeamDraft()")).exists()
    fewer = replace(tiny_plan, methods=(ab,))
    assert run_study(fewer, folder).ran == 0
    assert rows_of(done.results) == rows_of(reference / "results.parquet", f"method = '{ab}'")
    assert (summarise(folder).done, summarise(folder).total) == (4, 4)


def test_limits_are_tasks_like_others(reference: Path, tiny_plan: StudyPlan, tmp_path: Path) -> None:
    fast = replace(tiny_plan, methods=("AB()", "TeamDraft()", tiny_plan.methods[1]))
    fresh, grown = tmp_path / "fresh", tmp_path / "grown"
    done = run_study(replace(fast, limits=3), fresh)
    assert (done.ran, done.failures) == (2 * 2 * 3 + 2 * 1 * 2, ())  # of two pairs in three the runs tell the limits
    table = duckdb.execute("select * from read_parquet($file)", {"file": str(fresh / "limits.parquet")})
    columns = [column[0] for column in table.description or ()]
    numbers = ["ctr_a", "ctr_b", "delta", "limit", "standard_error", "wrong_sign", "ctr"]
    assert columns == ["data", "pair", "method", *numbers]
    rows = [dict(zip(columns, row)) for row in table.fetchall()]
    assert [(row["data"], row["pair"], row["method"]) for row in rows] == [
        (data, pair, method) for data in ("first", "second") for pair in range(3) for method in ("AB()", "TeamDraft()")
    ]
    for row in rows:
        assert row["delta"] == row["ctr_a"] - row["ctr_b"]
        assert row["standard_error"] == 0
        assert row["wrong_sign"] == (row["limit"] * row["delta"] <= 0)
        if row["method"] == "AB()":
            assert row["limit"] == pytest.approx(row["delta"], abs=1e-12)
    assert any(abs(row["limit"] - row["delta"]) > 1e-3 for row in rows)
    where = f"method in ('AB()', '{tiny_plan.methods[1]}')"
    assert rows_of(fresh / "results.parquet", where) == rows_of(reference / "results.parquet", where)
    assert len(rows_of(fresh / "timings.parquet", "kind = 'limit'")) == 4
    simulated = run_study(replace(fast, limits=3, simulate=True, methods=fast.methods[:2]), tmp_path / "simulated")
    assert simulated.ran == 2 * 2 * 2 + 2 * 3 * 2
    assert rows_of(tmp_path / "simulated" / "limits.parquet") == rows_of(fresh / "limits.parquet")

    run_study(replace(fast, methods=fast.methods[:1], limits=1), grown)
    run_study(replace(fast, limits=3), grown, workers=2)
    for name in ("results.parquet", "limits.parquet"):
        assert (grown / name).read_bytes() == (fresh / name).read_bytes()
    with pytest.raises(ValueError, match="limits is 3 there and 2 now"):
        run_study(replace(fast, limits=2), grown)


@pytest.mark.slow
def test_a_data_set_may_have_its_own_k_and_users_on_the_same_pairs(tiny_plan: StudyPlan, tmp_path: Path) -> None:
    first = tiny_plan.data[0]
    alone = replace(first, name="shallow", same_pairs_as="first", k=2, user=UserPlan(kind="cascade", assumed_eta=0.5))
    plan = replace(tiny_plan, data=(first, alone), methods=("AB()",), pairs=1)
    run_study(plan, tmp_path)
    whole, shallow = (open_prepared(str(tmp_path), plan.digest, data.name) for data in plan.data)
    assert np.array_equal(whole.rankers.weights, shallow.rankers.weights)
    assert (whole.pair(0).k, shallow.pair(0).k) == (5, 2)
    assert np.array_equal(whole.pair(0).top_a[:, :2], shallow.pair(0).top_a)
    assert (whole.user.name, shallow.user.name, shallow.user.k) == ("position-based", "cascade", 2)
    assert shallow.pair(0).known_theta.tolist() == [1, 2**-0.5]
    one, other = rows_of(tmp_path / "results.parquet", f"impressions = {tiny_plan.impressions}")
    assert other[COLUMNS.index("ctr_a")] == shallow.pair(0).ctr(shallow.user)[0] < one[COLUMNS.index("ctr_a")]


@pytest.mark.slow
def test_more_rankers_must_begin_with_those_there_were(tiny_plan: StudyPlan, tmp_path: Path) -> None:
    plan = replace(tiny_plan, data=tiny_plan.data[:1], methods=("AB()",), pairs=1)
    run_study(plan, tmp_path)
    file = tmp_path / "data" / "first" / "rankers.npy"
    np.save(file, np.load(file) + 1e-9)
    with pytest.raises(ValueError, match="its first 2 rankers do not come out as they did when the study began"):
        run_study(replace(plan, pairs=2), tmp_path)


def test_two_runs_at_once_in_one_folder_are_refused(reference: Path, tiny_plan: StudyPlan) -> None:
    with StudyFolder(reference).locked(), pytest.raises(ValueError, match="another run is at work"):
        run_study(tiny_plan, reference)


def test_a_failed_task_is_tried_again_and_forgotten_when_it_works(
    reference: Path, tiny_plan: StudyPlan, tmp_path: Path
) -> None:
    folder = tmp_path / "study"
    shutil.copytree(reference, folder)
    task = Task("first", 1, "AB()")
    study = StudyFolder(folder)
    study.part(task).unlink()
    study.record(task, Failure("OSError: no space left"))
    (failed,) = summarise(folder).failures
    assert str(failed) == "first, pair 1, AB(): OSError: no space left"
    again = run_study(tiny_plan, folder)
    assert (again.ran, again.failures) == (1, ())
    assert summarise(folder).failures == ()
    (folder / "timings.parquet").unlink()  # killed between the two tables
    assert run_study(tiny_plan, folder).ran == 0
    assert (folder / "timings.parquet").exists()
    assert (folder / "results.parquet").read_bytes() == (reference / "results.parquet").read_bytes()


@pytest.fixture
def opposed(tmp_path: Path) -> StudyPlan:
    """Two sets ranked by opposite rankers at k = 17. Where a query has 40 documents, optimized interleaving has more
    rankings than it can list; on the set of short queries it works."""
    for name, documents in (("long", 40), ("short", 4)):
        lines = [f"{d % 3} qid:{q} 1:{d} 2:{d * d % 7}\n" for q in (1, 2) for d in range(documents)]
        (tmp_path / f"{name}.txt").write_text("".join(lines))
    rankers = tmp_path / "rankers.txt"
    rankers.write_text("1:1 2:0.001\n1:-1 2:-0.001\n")
    data = tuple(DataPlan(name, str(tmp_path / f"{name}.txt"), rankers=str(rankers)) for name in ("long", "short"))
    return StudyPlan(data, ("AB()", "Optimized()"), pairs=1, impressions=200, checkpoints=2, k=17)


@pytest.mark.slow
def test_a_failing_task_does_not_stop_the_rest(opposed: StudyPlan, tmp_path: Path) -> None:
    seen: list[str] = []
    done = run_study(opposed, tmp_path / "study", progress=lambda stage, *_: seen.append(stage))
    (failed,) = done.failures
    assert failed.task == Task("long", 0, str(Optimized()))
    assert "Error: query 0 has more than 65,536 allowed rankings at k = 17" in str(failed)
    assert "\n" not in str(failed)
    assert seen[-2] == "running, 1 failed"
    assert {(*row[:3], "run") for row in rows_of(done.results)} == set(opposed.tasks()) - {failed.task}

    (note,) = (tmp_path / "study" / "failed").rglob("*.json")
    assert "Traceback" in json.loads(note.read_text())["details"]
    assert run_study(opposed, tmp_path / "study").ran == 1

    summary = summarise(tmp_path / "study")
    assert (summary.done, summary.total, summary.failures) == (3, 4, (failed,))
    assert [[one.method for one in data.methods] for data in summary.data] == [["AB()"], ["AB()", str(Optimized())]]


def test_files_that_cannot_be_used_are_refused_before_any_work(opposed: StudyPlan, tmp_path: Path) -> None:
    long, short = opposed.data
    missing = replace(opposed, data=(long, replace(short, source=str(tmp_path / "none.txt"))))
    with pytest.raises(ValueError, match=r"data set short: no file or folder '.*none.txt'"):
        run_study(missing, tmp_path / "missing")
    assert not (tmp_path / "missing" / "data").exists()
    with pytest.raises(ValueError, match=r"rankers.txt: 2 rankers, 2 pairs need 4"):
        run_study(replace(opposed, pairs=2), tmp_path / "few")
    few_labels = replace(opposed, user=replace(opposed.user, zeta=(0.1, 0.2)))
    with pytest.raises(ValueError, match=r"has label 2, but \[user\] zeta has probabilities for labels 0 to 1 only"):
        run_study(few_labels, tmp_path / "labels")
    (tmp_path / "other.txt").write_text("7:1 8:1 9:1\n7:2 8:1\n")
    others = replace(opposed, data=(replace(long, rankers=str(tmp_path / "other.txt")),))
    with pytest.raises(ValueError, match="only 0 of the 3 features it uses are in long"):
        run_study(others, tmp_path / "features")


def test_a_worker_that_dies_costs_nothing(reference: Path, tiny_plan: StudyPlan, tmp_path: Path) -> None:
    def kill_one(stage: str, done: int, total: int) -> None:
        if stage == "running" and done == 8:
            victim = multiprocessing.active_children()[0]
            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL)

    done = run_study(tiny_plan, tmp_path, workers=2, progress=kill_one)
    assert done.failures == ()
    assert done.results.read_bytes() == (reference / "results.parquet").read_bytes()


@pytest.mark.slow
def test_a_task_that_kills_its_worker_fails_alone(
    tiny_plan: StudyPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadly = Task("second", 1, "AB()")

    class Pool(runs_of_studies._Pool):
        def restart(self) -> None:
            super().restart()
            self.executor, self.processes = self, self.executor  # type: ignore[assignment]

        def submit(self, run: Any, folder: str, digest: str, task: Task) -> Future[TaskResult | Failure]:
            return self.processes.submit(*((os._exit, 1) if task == deadly else (run, folder, digest, task)))  # type: ignore[arg-type]

        def shutdown(self, **options: Any) -> None:
            self.processes.shutdown(**options)

    monkeypatch.setattr(runs_of_studies, "_Pool", Pool)
    done = run_study(replace(tiny_plan, methods=("AB()",)), tmp_path)
    assert [str(failed) for failed in done.failures] == [
        "second, pair 1, AB(): the worker process died (killed, or out of memory)"
    ]
    assert len(rows_of(done.results)) == 3 * len(np.unique(tiny_plan.points))
