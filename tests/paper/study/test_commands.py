from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ranktrial.cli.study import adjusted, study_app
from ranktrial.paper.study import StudyPlan, read_plan
from ranktrial.paper.study.folder import StudyFolder

runner = CliRunner()


@pytest.mark.slow
def test_run_and_show(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('pairs = 9\nimpressions = 300\nmethods = ["AB()"]\n[data.set]\nsource = "yahoo-like"\nqueries = 9')
    folder = str(tmp_path / "study")
    options = ["--pairs", "2", "--queries", "12", "--impressions", "1000", "--checkpoints", "3", "--seed", "5"]
    result = runner.invoke(study_app, ["run", str(plan), "--out", folder, *options])
    assert result.exit_code == 0, result.output
    assert "ran 2 tasks" in result.output

    report = json.loads(runner.invoke(study_app, ["show", folder, "--json"]).stdout)
    assert (report["done"], report["total"], report["failures"]) == (2, 2, [])
    assert report["impressions"] == [100, 1000]
    (method,) = report["data"][0]["methods"]
    assert (method["method"], method["pairs"]) == ("AB()", 2)
    assert [len(values) for values in method["errors"].values()] == [2, 2, 2]

    table = runner.invoke(study_app, ["show", folder]).stdout
    for text in ("set: rankers get", "AB()", "binary", "absolute", "squared", "1k", "2 pairs", "s/task"):
        assert text in table

    # Another plan is refused, with the difference; a longer one continues.
    result = runner.invoke(study_app, ["run", str(plan), "--out", folder])
    assert result.exit_code == 2
    assert "impressions is 1000 there and 300 now" in result.stderr.replace("\n", " ")
    result = runner.invoke(study_app, ["run", str(plan), "--out", folder, *options, "--pairs", "3"])
    assert result.exit_code == 0, result.output
    assert "ran 1 task " in result.output

    # Elsewhere it goes on from a packed file, and one of other settings is refused.
    file, elsewhere = str(tmp_path / "packed.parquet"), str(tmp_path / "elsewhere")
    result = runner.invoke(study_app, ["pack", folder, file])
    assert (result.exit_code, "3 runs, " in result.output) == (0, True), result.output
    again = ["run", str(plan), "--out", elsewhere, *options, "--from", file]
    result = runner.invoke(study_app, [*again, "--pairs", "4"])
    assert (result.exit_code, "ran 1 task " in result.output) == (0, True), result.output
    result = runner.invoke(study_app, [*again, "--seed", "6"])
    assert (result.exit_code, "seed is 5 there and 6 now" in result.stderr.replace("\n", " ")) == (2, True)


def test_show_counts_what_is_there_halfway(reference: Path, tiny_plan: StudyPlan, tmp_path: Path) -> None:
    study = StudyFolder(tmp_path)
    study.adopt(tiny_plan)
    assert "12 of 12 tasks have no result yet" in runner.invoke(study_app, ["show", str(tmp_path)]).stdout
    for task in list(tiny_plan.tasks())[:5]:
        study.part(task).parent.mkdir(parents=True, exist_ok=True)
        study.part(task).write_bytes(StudyFolder(reference).part(task).read_bytes())
    result = runner.invoke(study_app, ["show", str(tmp_path), "--json"])
    report = json.loads(result.stdout)
    assert (report["done"], report["total"]) == (5, 12)
    assert [one["pairs"] for one in report["data"][0]["methods"]] == [2, 2, 1]


def test_data_and_rankers_of_the_command_line(tmp_path: Path) -> None:
    train = tmp_path / "train.txt"
    train.write_text("0 qid:1 1:1\n")
    unchanged: dict[str, int | None] = {
        "pairs": None,
        "limits": None,
        "impressions": None,
        "checkpoints": None,
        "seed": None,
    }
    options = {"data": [f"mslr={train}", "yahoo=yahoo-like"], "rankers": [f"mslr={train}"], "queries": None}
    mslr, yahoo = adjusted(read_plan("paper"), **options, **unchanged).data  # type: ignore[arg-type]
    assert (mslr.source, mslr.queries, mslr.rankers) == (str(train), None, str(train))
    assert (yahoo.source, yahoo.queries, yahoo.rankers) == ("yahoo-like", 19_944, "code")
    options = {"data": [f"k3={train}"], "rankers": [], "queries": None}
    (shallow,) = adjusted(read_plan("depth"), **options, **unchanged).data  # type: ignore[arg-type]
    assert (shallow.source, shallow.k, shallow.same_pairs_as) == (str(train), 3, "yahoo")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nothing.toml"], "no file 'nothing.toml', and no preset of that name"),
        (["smoke", "--data", "here"], "--data: 'here' must look like NAME=PATH"),
        (["smoke", "--data", "x=nowhere.txt"], "--data: no file or folder 'nowhere.txt', and not one of yahoo-like"),
        (["smoke", "--data", "x=mslr-like"], "queries is missing, a synthetic set (mslr-like) needs its size"),
        (["smoke", "--rankers", "x=file"], "--rankers: no data set 'x'; there are yahoo"),
        (["smoke", "--pairs", "0"], "pairs is 0, must be at least 1"),
    ],
)
def test_mistakes_end_with_one_sentence(tmp_path: Path, options: list[str], message: str) -> None:
    result = runner.invoke(study_app, ["run", *options, "--out", str(tmp_path / "study")])
    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", " ")
    assert not (tmp_path / "study").exists()


def test_show_wants_a_study(tmp_path: Path) -> None:
    result = runner.invoke(study_app, ["show", str(tmp_path)])
    assert result.exit_code == 2
    assert "no study here" in result.stderr
