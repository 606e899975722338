from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ranktrial.cli import app
from ranktrial.paper.data import read_rankers

runner = CliRunner()


@pytest.mark.slow
def test_every_method_is_compared() -> None:
    result = runner.invoke(app, ["compare", "--queries", "200", "--impressions", "20000", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["checkpoints"] == [1000, 10000, 20000]
    assert report["difference"] == pytest.approx(report["ctr_b"] - report["ctr_a"])
    names = [row["method"].split("(")[0] for row in report["methods"]]
    interleaving = ["TeamDraft", "Probabilistic", "Optimized", "Balanced"]
    assert names == ["AB", "AB", *interleaving, *["Counterfactual"] * 2, "LogOptNetwork", *["LogOpt"] * 3]
    assert [row["comparable"] for row in report["methods"]] == [name not in interleaving for name in names]
    means = report["methods"][1]
    assert means["errors"][-1] < 0.15
    assert runner.invoke(app, ["compare", "--queries", "200", "--impressions", "1000"]).exit_code == 0


def test_rankers_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.txt", "b.txt.gz")]
    for file, workers in zip(files, ("1", "2")):
        args = ["rankers", str(file), "--data", "yahoo-like", "--queries", "300", "--count", "3", "--workers", workers]
        result = runner.invoke(app, args)
        assert result.exit_code == 0, result.output
        assert "wrote 3 rankers" in result.stdout
    one, two = (read_rankers(file) for file in files)
    assert (one.weights == two.weights).all()


def test_data_says_what_is_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "train.txt"
    file.write_text("2 qid:1 1:0.5 2:3\n0 qid:1 1:1 2:1\n1 qid:2 1:2 2:0\n0 qid:2 1:1 2:1\n")
    (row,) = json.loads(runner.invoke(app, ["data", str(file), "--json"]).stdout)
    assert (row["queries"], row["documents"], row["features"]) == (2, 4, 2)
    assert row["labels"] == {"0": 2, "1": 1, "2": 1}
    assert "documents per label" in runner.invoke(app, ["data", str(tmp_path)]).stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["data", "nowhere.txt"], "no file or folder 'nowhere.txt'"),
        (["compare", "--data", "nowhere"], "not one of yahoo-like, mslr-like"),
        (["rankers", "nowhere/x.txt"], "its folder does not exist"),
        (["rankers", "x.txt", "--kind", "best"], "--kind is 'best'"),
        (["rankers", "."], "it is a folder"),
    ],
)
def test_bad_arguments_are_refused(args: list[str], message: str) -> None:
    result = runner.invoke(app, args)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_one_of_two_sets_in_a_folder_is_chosen_by_prefix(tmp_path: Path) -> None:
    for name, queries in (("set1", 1), ("set2", 2)):
        lines = [f"{d} qid:{q} 1:{d} 2:{d * q}\n" for q in range(1, queries + 1) for d in range(2)]
        (tmp_path / f"{name}.train.txt").write_text("".join(lines))
    assert runner.invoke(app, ["data", str(tmp_path)]).exit_code == 2
    result = runner.invoke(app, ["data", str(tmp_path), "--prefix", "set2", "--json"])
    assert json.loads(result.stdout)[0]["queries"] == 2


def test_an_unusable_cache_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "train.txt"
    file.write_text("1 qid:1 1:0.5\n0 qid:1 1:0.7\n")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RANKTRIAL_CACHE", str(tmp_path / "file" / "cache"))
    result = runner.invoke(app, ["data", str(file)])
    assert result.exit_code == 2
    assert "set RANKTRIAL_CACHE to another" in " ".join(result.stderr.split())


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "bad.txt"
    file.write_text("1 qid:1 1:0.5\n1 qid:1 1:abc\n")
    result = runner.invoke(app, ["data", str(file)])
    assert result.exit_code == 2
    assert "bad.txt" in result.stderr
    assert "line 2" in " ".join(result.stderr.split()) or ":2" in result.stderr
