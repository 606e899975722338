"""Laws on the way from one machine to another: packed, taken over, refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from ranktrial.methods import AB, Counterfactual, ExpectedRun, LogOpt, TeamDraft
from ranktrial.paper.study import StudyPlan, Task, run_study, study_cost
from ranktrial.paper.study.folder import StudyFolder
from ranktrial.paper.study.laws import law_columns, read_law
from ranktrial.paper.study.pack import pack_study
from ranktrial.rankings import Pair
from ranktrial.users import position_based, rank_decay

POINTS = np.array([50, 100, 300, 1_500])


def expected_runs() -> list[ExpectedRun]:
    random = np.random.default_rng(3)
    a, b, zeta = random.random((3, 60))
    pair = Pair.from_scores(a, b, np.arange(0, 61, 6), 4).knowing(theta=rank_decay(4))
    user = position_based(zeta, rank_decay(4))
    methods = (
        TeamDraft(),
        AB(estimate="rank-aware"),
        LogOpt(schedule=(100, 200, 1_000)),
        LogOpt(bias="known", schedule=(100, 1_000)),
        Counterfactual(logging="ab", propensities="observed"),  # simulated, without values of single impressions
    )
    return [method.expected(pair, user, POINTS, seed=2, runs=2) for method in methods]


@pytest.mark.parametrize("run", expected_runs(), ids=lambda run: f"{len(run.begins)} stretches")
def test_a_law_is_read_as_it_was_written(run: ExpectedRun) -> None:
    connection = duckdb.connect()
    connection.register("run", law_columns(run))
    columns = connection.execute("select * from run order by run, begin").fetchnumpy()
    again = read_law(POINTS, columns, step=run.step)
    assert np.array_equal(again.sums, run.sums, equal_nan=True)
    assert np.array_equal(again.binary_error(0.1), run.binary_error(0.1))


def test_laws_hold_at_any_checkpoint() -> None:
    learning = expected_runs()[2]
    columns = law_columns(learning)
    assert columns["square_before"].mask.all()  # they go on from stretch to stretch
    connection = duckdb.connect()
    connection.register("run", columns)
    columns = connection.execute("select * from run").fetchnumpy()
    once = read_law(np.array([300]), columns, step=0.0)
    assert once.absolute_error(0.1) == learning.absolute_error(0.1)[2]


@pytest.fixture(scope="module")
def packed(reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("packed") / "all.parquet"
    assert pack_study(reference, file) == 12
    return file


def test_what_was_taken_over_is_not_run_again(
    reference: Path, tiny_plan: StudyPlan, packed: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    done = run_study(tiny_plan, elsewhere, taken=[packed])
    assert done.ran == 0
    assert done.results.read_bytes() == (reference / "results.parquet").read_bytes()
    assert study_cost(elsewhere) == study_cost(reference)
    again = tmp_path / "again.parquet"
    assert pack_study(elsewhere, again) == 12
    assert again.read_bytes() == packed.read_bytes()


def test_a_study_that_grows_keeps_what_it_took_over_from_the_same_file(
    reference: Path, tiny_plan: StudyPlan, packed: Path, tmp_path: Path
) -> None:
    for pairs in (1, 2):
        done = run_study(replace(tiny_plan, pairs=pairs), tmp_path / "study", taken=[packed])
        assert done.ran == 0
    assert done.results.read_bytes() == (reference / "results.parquet").read_bytes()


def test_a_study_goes_on_from_packed_files(reference: Path, tiny_plan: StudyPlan, packed: Path, tmp_path: Path) -> None:
    begun, folder = tmp_path / "begun", tmp_path / "study"
    run_study(replace(tiny_plan, methods=("AB()", "TeamDraft()"), pairs=1), begun)
    files = tmp_path / "files"
    assert pack_study(begun, files / "first.parquet") == 4
    done = run_study(replace(tiny_plan, methods=tiny_plan.methods[:2]), folder, taken=[files])
    assert done.ran == 8 - 2  # A/B on a pair of each set was there; team-draft is not in the plan
    assert pack_study(folder, files / "second.parquet", besides=[files]) == 6
    done = run_study(tiny_plan, folder, taken=[files, packed])
    assert done.ran == 0
    assert done.results.read_bytes() == (reference / "results.parquet").read_bytes()
    assert not StudyFolder(folder).done([Task("first", 0, "TeamDraft()")])
    with pytest.raises(ValueError, match="no run that could be packed besides those in other files"):
        pack_study(folder, files / "third.parquet", besides=[files, packed])


def test_what_does_not_belong_to_the_study_is_refused_in_words(
    reference: Path, tiny_plan: StudyPlan, packed: Path, tmp_path: Path
) -> None:
    def refused(plan: StudyPlan, file: Path, why: str) -> None:
        with pytest.raises(ValueError, match=why):
            run_study(plan, tmp_path / "study", taken=[file])
        assert not (tmp_path / "study" / "plan.json").exists()

    refused(replace(tiny_plan, impressions=3_000), packed, "another study: impressions is 2000 there and 3000 now")
    refused(replace(tiny_plan, seed=2), packed, "seed is 1 there and 2 now")
    first, second = tiny_plan.data
    refused(
        replace(tiny_plan, data=(replace(first, k=3), second)), packed, r"data\.first\.k is not set there and 3 now"
    )
    refused(replace(tiny_plan, data=(replace(first, name="third"),)), packed, "none of which is in the plan")
    refused(replace(tiny_plan, simulate=True), packed, "simulated runs cannot be taken over")
    refused(tiny_plan, tmp_path / "none", "no such file or folder")
    refused(tiny_plan, reference / "results.parquet", "not a file that ranktrial study pack has made")
    (tmp_path / "text").write_text("x")
    refused(tiny_plan, tmp_path / "text", "not a Parquet file")
    other = tmp_path / "other.parquet"
    note = duckdb.execute("select value from parquet_kv_metadata($file)", {"file": str(packed)}).fetchall()[0][0]
    duckdb.execute(
        f"copy (select * replace (ctr_b + 0.001 * pair as ctr_b) from '{packed}') to '{other}' "
        f"(format parquet, kv_metadata {{ranktrial: '{note.decode()}'}})"
    )
    refused(tiny_plan, other, "ranker B of pair 1 of first gets .* other data, or other rankers")
    simulated = run_study(
        replace(tiny_plan, simulate=True, methods=("AB()",), pairs=1, data=tiny_plan.data[1:]), tmp_path / "simulated"
    )
    with pytest.raises(ValueError, match="only laws of expected runs can be packed"):
        pack_study(simulated.folder, tmp_path / "simulated.parquet")
