"""`ranktrial create`: a trial and its changes from a file of options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ranktrial.cli import app
from ranktrial.trial import Trial

runner = CliRunner()
TRIAL = """
k = 3
smallest = 0.1
metrics = ["Orders(window='7d', role='primary')", "Abandonment(role='guard', tolerance=0.02)"]
ramp = [[0.1, "1d"], [0.5]]
[guards]
clicks = 0.05
[segments]
device = ["phone", "desktop"]
"""


def created(store: Path, text: str, *options: str) -> tuple[int, str]:
    file = store.with_suffix(".toml")
    file.write_text(text, encoding="utf-8")
    result = runner.invoke(app, ["create", str(store), "--name", "shoes", "--config", str(file), *options])
    return result.exit_code, " ".join((result.stdout + result.stderr).split())


def test_a_file_makes_a_trial_and_changes_it(tmp_path: Path) -> None:
    store = tmp_path / "t.db"
    status, told = created(store, TRIAL)
    assert (status, told.startswith("shoes: version 1 ")) == (0, True)
    with Trial.open(store, "shoes", background=False) as trial:
        assert [str(metric) for metric in trial.config.measured] == [
            'Orders(window="7d", role="primary")', 'Abandonment(role="guard", tolerance=0.02)', "Clicks()",
        ]  # fmt: skip
        assert trial.config.ramp == ((0.1, 86_400), (0.5, None))
        assert (trial.share, trial.config.guards.clicks, trial.config.segmented.names) == (
            0.1,
            0.05,
            ("device",),
        )
    assert created(store, TRIAL) == (0, "shoes: version 1 nothing has changed")
    status, told = created(store, TRIAL.replace("0.1\n", "0.2\n"))
    assert "smallest: 0.1 -> 0.2" in told
    status, told = created(store, "k = 2")  # decides what is shown
    assert (status, "version 1 of trial 'shoes', which runs (k: 3 -> 2" in told) == (2, True)
    status, told = created(store, "k = 2", "--new-version", "--json")
    assert (status, json.loads(told)["version"], json.loads(told)["config"]["smallest"]) == (0, 2, 0.2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("k = ", "is not a TOML file"),
        ("k = 0", "k: Input should be greater than or equal to 1"),
        ("timeout = 3", "timeout: Extra inputs are not permitted"),
        ('metrics = ["Sales()"]', "metrics.0: Value error, no metric 'Sales'; known: "),
        ("ramp = [[0.1], [0.5]]", "ramp.0"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_before_anything_is_made(tmp_path: Path, text: str, says: str) -> None:
    status, told = created(tmp_path / "t.db", text)
    assert (status, says in told) == (2, True), told
    assert not (tmp_path / "t.db").exists()
