from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ranktrial.cli import app
from ranktrial.cli.console import out

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
    "AB()",
    "--method",
    "LogOpt()",
    "--method",
    "TeamDraft()",
]


@pytest.mark.slow
def test_run_files_as_json(runs: list[str]) -> None:
    result = runner.invoke(app, ["plan", *runs, "--ctr", "0.6", "--delta", "5%", "--json", *SHORT])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["delta"] == pytest.approx(0.03)
    assert found["truth"] is None
    assert found["traffic"] == 100_000
    assert [row["method"] for row in found["methods"]] == ["AB()", "LogOpt()", "TeamDraft()"]
    assert [row["loss"] for row in found["budgets"]] == [0.05, 0.02, 0.01, 0, -0.02, -0.05]
    assert found["gain"] == pytest.approx(found["methods"][0]["impressions"] / found["methods"][1]["impressions"])
    by_zeta = runner.invoke(
        app, ["plan", *runs, "--zeta", str(0.6 / (1 + 1 / 2 + 1 / 3)), "--delta", ".03", "--json", *SHORT]
    )
    assert json.loads(by_zeta.stdout)["methods"][0] == pytest.approx(found["methods"][0])


def test_what_a_live_trial_will_do_is_said(runs: list[str]) -> None:
    found = planned(*runs, "--ctr", "0.6", "--delta", "5%", "--json", *SHORT)
    row = found["methods"][1]
    assert found["live"] == {
        "method": "LogOpt()",
        "smallest": pytest.approx(0.03),
        "tightest_at": row["tightest_at"],
        "given": False,
        "first_look": row["first_look"],
        "impressions": row["anytime"],
        "trusting": row["trusting"],
        "hostile": pytest.approx(0.004),
        "unguarded": row["unguarded"],
        "power": 0.8,
    }
    assert (row["theta"], found["methods"][0]["theta"]) == ("estimated", None)
    assert "method='LogOpt()', smallest=0.03)" in found["verdict"][-1]
    given = planned(*runs, "--ctr", "0.6", "--delta", "5%", "--tightest-at", "100000", "--json", *SHORT)
    assert given["live"]["tightest_at"] == 100_000
    assert given["live"]["trusting"] > 1.15 * found["live"]["trusting"]
    assert given["methods"][1]["impressions"] == row["impressions"]


def test_the_table_fits_and_says_what_to_do(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    longest = 'Optimized(credit="inverse")'
    result = runner.invoke(app, ["plan", *runs, "--ctr", "0.6", *SHORT, "--method", longest, "--allowance", "0"])
    assert result.exit_code == 0, result.stderr
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    text = " ".join(result.stdout.split())
    for part in (
        "12 queries, 3 results a page",
        "Exposure disagreement",
        "TeamDraft()",
        "LogOpt() *",
        "* with position bias estimated from the same clicks",
        longest,
        "times fewer than",
        "plausible users",
        "share of an A/B test's clicks that visitors may lose",
    ):
        assert part in text


@pytest.mark.slow
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
    assert found["truth"] == pytest.approx(-0.45)
    told = runner.invoke(app, [*command[:-1], *SHORT[4:]]).stdout
    assert "B - A -0.4500" in " ".join(told.split())
    assert found["ctr"] == pytest.approx((0.55 + 0.1) / 2 + 0.5 * 0.325)
    assert found["users"] == 1
    assert all(row["wrong"] == 0 for row in found["methods"])
    scaled = json.loads(runner.invoke(app, [*command, "--ctr", "0.4", *SHORT[4:]]).stdout)
    assert scaled["ctr"] == pytest.approx(0.4)


@pytest.fixture
def short_lists(tmp_path: Path) -> list[str]:
    """Runs and qrels of 80 queries: A shows five results, B stops after four, and A's fifth is more relevant than most."""
    rng = np.random.default_rng(8)
    a: list[str] = []
    b: list[str] = []
    judged: list[str] = []
    for query in range(80):
        grades = rng.choice(3, 10, p=(0.35, 0.35, 0.3))
        long = rng.permutation(10)[:5]
        grades[long[-1]] = rng.choice(3, p=(0.15, 0.4, 0.45))
        short = [document for document in rng.permutation(10) if document != long[-1]][:4]
        for lines, ranked in ((a, long), (b, short)):
            lines += [f"q{query} Q0 d{document} {rank} {-rank} r\n" for rank, document in enumerate(ranked, 1)]
        judged += [f"q{query} 0 d{document} {grade}\n" for document, grade in enumerate(grades)]
    files = [tmp_path / name for name in ("long.run", "short.run", "judged.qrels")]
    for file, lines in zip(files, (a, b, judged)):
        file.write_text("".join(lines))
    return [str(file) for file in files]


INTERLEAVING = ["--k", "5", "--json", "--method", "TeamDraft()", "--method", "Optimized()"]


def planned(*arguments: str) -> dict[str, Any]:
    result = runner.invoke(app, ["plan", *arguments])
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_by_the_labels_interleaving_prefers_the_short_lists_that_get_fewer_clicks(short_lists: list[str]) -> None:
    found = planned(*short_lists[:2], "--qrels", short_lists[2], *INTERLEAVING)
    assert found["truth"] / found["ctr"] == pytest.approx(-0.087, abs=0.001)
    assert [row["wrong"] for row in found["methods"]] == [1, 1]
    assert "would point the wrong way" in found["verdict"][-1]


def test_without_labels_nobody_is_promised_that_interleaving_is_right_about_them(short_lists: list[str]) -> None:
    labelled = planned(*short_lists[:2], "--qrels", short_lists[2], *INTERLEAVING)
    ctr, delta = str(labelled["ctr"]), str(labelled["delta"])
    found = planned(*short_lists[:2], "--ctr", ctr, "--delta", delta, *INTERLEAVING)
    assert all(row["wrong"] > 0 for row in found["methods"])
    assert not any("right way for all" in sentence for sentence in found["verdict"])


def test_clicks_meanwhile_are_those_of_the_users_whom_budgets_are_for(runs: list[str]) -> None:
    found = planned(*runs, "--ctr", "0.6", "--delta", "5%", "--json", *SHORT)
    ab, logopt, _ = found["methods"]
    own = next(row for row in found["budgets"] if row["loss"] == 0)
    assert logopt["ctr"] == pytest.approx(own["ctr"])
    assert own["gain"] == pytest.approx(own["ctr"] / ab["ctr"] - 1)
    assert own["gain"] > -0.03  # twelve queries of three results tell little of what lists say


@pytest.mark.slow
def test_a_standard_deviation_that_these_lists_cannot_have_is_told(runs: list[str]) -> None:
    given = {}
    for sd in ("0.6", "1.1"):
        result = runner.invoke(app, ["plan", *runs, "--ctr", "0.6", "--sd", sd, *SHORT])
        assert result.exit_code == 0, result.stderr
        given[sd] = " ".join(result.stdout.split())
    assert "planned with that" not in given["0.6"]
    assert "sd is 1.1, but with these lists" in given["1.1"]


@pytest.mark.slow
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
        (["--ctr", ".6", "--sd", ".4"], "sd is 0.4, which 0.6 clicks a page cannot have"),
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


METRICS = [
    "--metric",
    'Orders(window="7d")=0.05',
    "--metric",
    "Revenue()=0.05,39.90,45",
    "--metric",
    "Abandonment()=0.5",
]


def test_metrics_by_given_numbers(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "_width", 100)  # a width in the environment counts where the console is made
    command = ["plan", *runs, "--ctr", "0.6", "--delta", "5%", *SHORT, *METRICS, "--daily", "1000"]
    found = json.loads(runner.invoke(app, [*command, "--json"]).stdout)["metrics"]
    assert [one["metric"] for one in found] == [
        "Clicks()",
        'Orders(window="7d")',
        'Revenue(window="7d")',
        "Abandonment()",
    ]
    assert found[1]["value"] == pytest.approx(0.03)
    assert found[1]["delta"] == pytest.approx(0.0015)
    assert found[1]["days"] == pytest.approx(found[1]["anytime"] / 1000 + 7)
    assert found[0]["anytime"] < found[1]["anytime"] < found[2]["anytime"]
    told = runner.invoke(app, command).stdout
    assert "to find 5 % of each metric with LogOpt(), if it decides" in told
    assert "searches without a click A" in told
    assert "A: by A/B traffic alone" in told
    assert told.count("7 days") == 2


def test_metrics_by_a_log(runs: list[str], tmp_path: Path) -> None:
    bought = [{"document": "x", "action": "order", "value": 20}]
    search = {"query": "q", "a": ["x", "y"], "b": ["y", "x"], "shown": ["x", "y"], "clicked": ["x"]}
    rows = [{**search, "events": bought if number < 3 else []} for number in range(20)]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["plan", *runs, "--ctr", "0.6", *SHORT[:6], "--metric", "Orders()", "--metric", "Revenue()", "--json"]
    found = json.loads(runner.invoke(app, [*command, "--log", str(log)]).stdout)["metrics"]
    assert [one["value"] for one in found] == pytest.approx([0.6, 0.6 * 0.15, 0.6 * 3])
    refused = runner.invoke(app, command)
    assert refused.exit_code == 2
    assert "give its numbers ('Orders()=0.05'), or a log" in " ".join(refused.output.split())
