"""`ranktrial report`: on the terminal, as JSON, as HTML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ranktrial.cli import app
from ranktrial.trial import Trial

runner = CliRunner()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "t.db"
    with Trial.create(path, name="shoes", k=3, background=False) as trial:
        shown = trial.rank("red [bold] shoes", ["a", "b", "c"], ["c", "b", "a"])
        trial.click(shown.id, shown.ranking[0])
    return path


def test_it_says_the_verdict_and_every_guardrail(store: Path, tmp_path: Path) -> None:
    html = tmp_path / "r.html"
    result = runner.invoke(app, ["report", str(store), "--html", str(html)])
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "shoes (version 1; running): B against A" in text
    assert "Too early to say after 1 search and 1 click." in text
    with Trial.open(store, background=False) as trial:
        assert all(check.name in text for check in trial.report().guardrails)
    assert "Too early to say after 1 search and 1 click." in html.read_text()


def test_json_is_the_report(store: Path) -> None:
    found = json.loads(runner.invoke(app, ["report", str(store), "--name", "shoes", "--json"]).stdout)
    assert (found["trial"], found["impressions"], found["clicks"]) == ("shoes", 1, 1)
    decision = found["decision"]
    assert (decision["state"], decision["interval"], decision["difference"]) == ("too early", [None, None], None)


def test_a_version_may_be_named(store: Path) -> None:
    Trial.create(store, name="shoes", k=2, new_version=True, background=False).close()
    for options, expected in (([], (2, 0)), (["--version", "1"], (1, 1)), (["--version", "2"], (2, 0))):
        found = json.loads(runner.invoke(app, ["report", str(store), "--json", *options]).stdout)
        assert (found["version"], found["impressions"]) == expected


def test_what_cannot_be_reported_is_said(store: Path, tmp_path: Path) -> None:
    Trial.create(store, name="boots", background=False).close()
    for arguments, message in (
        ([str(tmp_path / "none.db")], "does not exist"),
        ([str(store)], "holds 2 trials (boots, shoes): say which by its name"),
        ([str(store), "--name", "hats"], "holds no trial 'hats'"),
        ([str(store), "--name", "shoes", "--version", "7"], "trial 'shoes' has no version 7, it has 1"),
        ([str(store), "--name", "shoes", "--html", str(tmp_path / "nowhere" / "r.html")], "No such file"),
    ):
        result = runner.invoke(app, ["report", *arguments])
        assert result.exit_code == 2
        assert message in " ".join(result.stderr.split())
    assert not (tmp_path / "none.db").exists()
