from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ranktrial.cli import app

runner = CliRunner()


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """Two run files of 12 queries and 6 documents each."""
    rng = np.random.default_rng(2)
    files = []
    for name in ("a", "b"):
        lines = [
            f"q{query} Q0 d{document} {rank} {9 - rank} {name}\n"
            for query in range(12)
            for rank, document in enumerate(rng.permutation(6), 1)
        ]
        file = tmp_path / f"{name}.run"
        file.write_text("".join(lines))
        files.append(str(file))
    return files


SHORT = [
    "--k",
    "3",
    "--users",
    "3",
    "--method",
    "AB(estimate='means')",
    "--method",
    "LogOpt()",
    "--method",
    "TeamDraft()",
]


def test_run_files_as_json(runs: list[str]) -> None:
    result = runner.invoke(app, ["plan", *runs, "--ctr", "0.6", "--delta", "5%", "--json", *SHORT])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["delta"] == pytest.approx(0.03)
    assert found["truth"] is None
    assert found["traffic"] == 100_000
    assert [row["method"] for row in found["methods"]] == ['AB(estimate="means")', "LogOpt()", "TeamDraft()"]
    assert [row["floor"] for row in found["floors"]] == [0, 0.5, 1]
    assert all(row["ctr_mean"] == pytest.approx(0.6) for row in found["floors"])
    assert found["gain"] == pytest.approx(found["methods"][0]["variance"] / found["methods"][1]["variance"])
    by_zeta = runner.invoke(
        app, ["plan", *runs, "--zeta", str(0.6 / (1 + 1 / 2 + 1 / 3)), "--delta", ".03", "--json", *SHORT]
    )
    assert json.loads(by_zeta.stdout)["methods"][0] == pytest.approx(found["methods"][0])


def test_the_table_fits_and_says_what_to_do(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    result = runner.invoke(app, ["plan", *runs, "--ctr", "0.6", *SHORT])
    assert result.exit_code == 0, result.stderr
    assert max(len(line) for line in result.stdout.splitlines()) <= 90
    text = " ".join(result.stdout.split())
    for part in (
        "12 queries, 3 results a page",
        "Exposure disagreement",
        "TeamDraft()",
        "times fewer than",
        "plausible users",
        "what users would get of the closed form",
    ):
        assert part in text


def test_labelled_documents_and_score_files(tmp_path: Path) -> None:
    data = tmp_path / "train.txt"
    data.write_text("".join(f"{label} qid:{query} 1:{label}\n" for query in range(3) for label in (0, 1, 2)))
    files = []
    for name, scores in (("good", [1, 2, 3]), ("bad", [3, 2, 1])):
        files.append(tmp_path / name)
        files[-1].write_text("".join(f"{score}\n" for score in scores * 3))
    command = ["plan", *map(str, files), "--data", str(data), "--theta", "1,.5", "--json"]
    found = json.loads(runner.invoke(app, [*command, *SHORT[4:]]).stdout)
    # A shows labels 2 and 1, B labels 0 and 1: zeta is 0.1 + 0.225 label.
    assert found["truth"] == pytest.approx(0.45)
    assert found["ctr"] == pytest.approx((0.55 + 0.1) / 2 + 0.5 * 0.325)
    assert found["users"] == 1
    assert all(row["wrong"] == 0 for row in found["methods"])
    scaled = json.loads(runner.invoke(app, [*command, "--ctr", "0.4", *SHORT[4:]]).stdout)
    assert scaled["ctr"] == pytest.approx(0.4)


@pytest.mark.parametrize("ending", ["svg", "html"])
def test_the_chart(runs: list[str], tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"plan.{ending}"
    result = runner.invoke(app, ["plan", *runs, "--ctr", "0.6", "--chart", str(file), *SHORT])
    assert result.exit_code == 0, result.stderr
    text = file.read_text()
    assert "LogOpt()" in text
    assert ("<svg" if ending == "svg" else "<html") in text.lower()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --ctr"),
        (["--ctr", "1", "--zeta", ".5"], "give --ctr"),
        (["--ctr", "9"], "ctr is 9"),
        (["--ctr", ".6", "--delta", "x"], "--delta: 'x' is not a number"),
        (["--ctr", ".6", "--delta", "-1%"], "--delta is -1%, must be more than 0"),
        (["--ctr", ".6", "--theta", "1,2"], "--theta[1] is 2"),
        (["--ctr", ".6", "--theta", "1,.5", "--k", "3"], "--theta has 2 ranks, --k is 3"),
        (["--ctr", ".6", "--chart", "plan.gif"], "must be one of"),
        (["--ctr", ".6", "--method", "Nonsense()"], "no method 'Nonsense'"),
        (["--data", "nowhere.txt"], "no file or folder 'nowhere.txt'"),
        (["--data", "yahoo-like", "--zeta", ".5"], "--zeta and --sd are for run files"),
    ],
)
def test_bad_options(runs: list[str], options: list[str], message: str) -> None:
    result = runner.invoke(app, ["plan", *runs, *options])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_files_must_be_two_or_data_given(runs: list[str], tmp_path: Path) -> None:
    for arguments in ([], runs[:1]):
        result = runner.invoke(app, ["plan", *arguments])
        assert result.exit_code == 2
        assert "give two files" in result.stderr
    missing = runner.invoke(app, ["plan", runs[0], str(tmp_path / "c.run"), "--ctr", ".6"])
    assert "c.run: no such file" in " ".join(missing.stderr.split()).replace("\n", "")
