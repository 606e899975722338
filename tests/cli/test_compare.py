"""Two rankers from files and labels, compared by every method; the truth by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ranktrial.cli import app
from ranktrial.cli.compare import Comparison, run_methods
from ranktrial.cli.two_rankers import TwoRankers, position_bias, read_two_rankers
from ranktrial.methods import AB, Optimized

runner = CliRunner()

A = "q1 Q0 x 1 3 first\nq1 Q0 y 2 2 first\nq2 Q0 x 1 1 first\nq3 Q0 u 1 1 first\n"
B = "q2 Q0 z 1 2 second\nq2 Q0 x 2 1 second\nq1 Q0 w 1 1 second\n"
QRELS = "q1 0 x 1\nq1 0 w 0\nq2 0 z 2\nq9 0 x 2\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Run files of A and B and qrels: lists of unequal length, documents and a query without judgement."""
    paths = (tmp_path / "a.run", tmp_path / "b.run", tmp_path / "q.qrels")
    for path, text in zip(paths, (A, B, QRELS)):
        path.write_text(text)
    return paths


def two_rankers(files: tuple[Path, Path, Path]) -> TwoRankers:
    return read_two_rankers(files[:2], qrels=files[2], theta=np.array([1.0, 0.5]))


# Grades go to 2, so zeta is 0.1, 0.55, 1. A shows x y and x: clicks 0.55 + 0.5 * 0.1, and 0.1. B shows w, and z x:
# 0.1, and 1 + 0.5 * 0.1.
CTR_A, CTR_B = (0.6 + 0.1) / 2, (0.1 + 1.05) / 2


def test_clicks_follow_from_judgements(files: tuple[Path, Path, Path]) -> None:
    found = two_rankers(files)
    assert found.pair.queries == ("q1", "q2")
    assert found.pair.ctr(found.user()) == pytest.approx((CTR_A, CTR_B))
    assert found.judged == ((1, 3), (2, 3))
    assert found.judged_text() == (
        "Judged are 1 of the 3 results A shows and 2 of the 3 results B shows; the others count as label 0. "
        "Queries without any judgement, left out: 1."
    )
    scaled = found.user(0.3)
    assert np.mean(found.pair.ctr(scaled)) == pytest.approx(0.3)
    assert scaled.zeta / found.user().zeta == pytest.approx(np.full(5, 0.3 / np.mean([CTR_A, CTR_B])))
    with pytest.raises(ValueError, match=r"--ctr is 0.5, must be more than 0 and at most 0.4625"):
        found.user(0.5)


def test_compare_and_plan_know_the_same_truth(files: tuple[Path, Path, Path]) -> None:
    arguments = [*map(str, files[:2]), "--qrels", str(files[2]), "--theta", "1,.5", "--json"]
    result = runner.invoke(app, ["compare", *arguments, "--impressions", "5000"])
    assert result.exit_code == 0, result.output
    compared = json.loads(result.stdout)
    assert (compared["ctr_a"], compared["ctr_b"]) == pytest.approx((CTR_A, CTR_B))
    assert compared["judged"] == {
        "a": {"judged": 1, "shown": 3},
        "b": {"judged": 2, "shown": 3},
        "queries_left_out": 1,
    }
    assert compared["left_out"] == []
    means = compared["methods"][1]
    assert means["method"] == "AB()"
    assert compared["difference"] == pytest.approx(CTR_B - CTR_A)
    assert means["estimates"][-1] == pytest.approx(CTR_B - CTR_A, abs=5 * 2 * 0.5 / 5000**0.5)
    assert means["prefers"] == "B"

    told = " ".join(runner.invoke(app, ["compare", *arguments[:-1], "--impressions", "5000"]).stdout.split())
    assert f"B - A {CTR_B - CTR_A:+.4f}" in told

    planned = json.loads(runner.invoke(app, ["plan", *arguments]).stdout)
    assert planned["truth"] == pytest.approx(CTR_B - CTR_A)
    assert planned["judged"] == compared["judged"]


def test_a_method_with_too_many_displays_is_left_out(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.run", "b.run", "q.qrels")]
    for side, file in enumerate(files[:2]):
        file.write_text("".join(f"q Q0 d{side}{i} {i} {-i} r\n" for i in range(17)))
    files[2].write_text("q 0 d03 1\n")
    theta = position_bias(None, 1.0, 17)
    comparison = Comparison.of(read_two_rankers((files[0], files[1]), qrels=files[2], theta=theta))
    rows, left_out = run_methods([AB(), Optimized()], comparison, [1000], seed=1)
    assert [row.method for row in rows] == ["AB()"]
    assert "more than 65,536 allowed rankings" in left_out[0]


def test_score_files_and_labels(tmp_path: Path) -> None:
    data = tmp_path / "train.txt"
    data.write_text("".join(f"{label} qid:{query} 1:{label}\n" for query in range(3) for label in (0, 1, 2)))
    files = (tmp_path / "good", tmp_path / "bad")
    for file, scores in zip(files, ([1, 2, 3], [3, 2, 1])):
        file.write_text("".join(f"{score}\n" for score in scores * 3))
    found = Comparison.of(read_two_rankers(files, data=str(data), theta=np.array([1.0, 0.5])))
    assert (found.ctr_a, found.ctr_b) == pytest.approx((0.55 + 0.325 / 2, 0.1 + 0.325 / 2))
    assert found.rankers.judged == ()
    assert found.rankers.judged_dict() == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give judgements of their documents with --qrels"),
        (["--qrels", "nowhere.qrels"], "nowhere.qrels: no such file"),
        (["--qrels", "q.qrels", "--data", "yahoo-like"], "--qrels is for run files; --data has labels of its own"),
        (["--qrels", "other.qrels"], "judges none of the 3 queries of a.run and b.run; it has queries such as 'q7'"),
        (["--qrels", "bad.qrels"], "bad.qrels:2: grade 'x' is not an integer"),
        (["--qrels", "q.qrels", "--rankers", "r.txt"], "--rankers needs --data"),
        (["--qrels", "q.qrels", "--theta", "1,.5", "--k", "3"], "--theta has 2 ranks, --k is 3"),
    ],
)
def test_mistakes_end_with_one_sentence(
    files: tuple[Path, Path, Path], options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    Path("other.qrels").write_text("q7 0 x 1\n")
    Path("bad.qrels").write_text("q1 0 x 1\nq1 0 y x\n")
    result = runner.invoke(app, ["compare", "a.run", "b.run", *options])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_one_file_is_not_enough(files: tuple[Path, Path, Path]) -> None:
    result = runner.invoke(app, ["compare", str(files[0]), "--qrels", str(files[2])])
    assert result.exit_code == 2
    assert "give two files" in result.stderr
