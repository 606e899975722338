"""`ranktrial calibrate`: the allowance that finished trials call for, from their stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ranktrial.cli import app
from ranktrial.trial import Trial
from simulated_trial import World

runner = CliRunner()
SEARCHES = 4000  # which tell the difference of a trial to 0.05 of exposure disagreement x clicks per search


def finished(file: Path, name: str, *, seed: int, searches: int = SEARCHES, compare: bool = False) -> Path:
    """A store with one more trial that is over."""
    with Trial.create(file, name, k=5, seed=seed, background=False) as trial:
        World.of_best_and_random(seed=seed).run(trial, searches, seed=seed, compare=compare)
        trial.stop()
    return file


def answer(*arguments: object) -> dict[str, Any]:
    result = runner.invoke(app, ["calibrate", "--json", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


@pytest.mark.slow
def test_visitors_who_click_by_position_need_hardly_any_and_visitors_who_compare_much(tmp_path: Path) -> None:
    """Four trials of two shops each. Those who compare make the click model miss the truth by about half of the unit.

    With a standard error of 0.05 each, four trials of position-based visitors come to more than 0.13 once in 10^5 times.
    """
    found = {}
    for compare in (False, True):
        stores = [tmp_path / f"{shop} {compare}.db" for shop in ("shoes", "hats")]
        for seed, (file, name) in enumerate((file, name) for file in stores for name in ("first", "second")):
            finished(file, name, seed=seed, compare=compare)
        found[compare] = answer(*stores)
        assert found[compare]["trials"] == 4
        assert [one["trial"] for one in found[compare]["found"]] == ["first (version 1)", "second (version 1)"] * 2
        assert all(one["standard_error"] < 0.08 * one["unit"] for one in found[compare]["found"])
    assert found[False]["allowance"] < 0.13
    assert found[True]["allowance"] > 0.25
    assert all(one["allowance"] <= one["at_most"] for one in found.values())

    told = runner.invoke(app, ["calibrate", *map(str, stores)])
    assert told.exit_code == 0, told.output
    text, compared = " ".join(told.stdout.split()), found[True]
    assert f"allowance={compared['allowance']:.2g} is what these 4 trials call for" in text
    assert f"they do not rule out {compared['at_most']:.2g}. The default is 0.06." in text


def test_only_finished_trials_count_unless_running_ones_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "shoes.db"
    for seed in range(3):
        finished(file, f"trial {seed}", seed=seed, searches=300)
    with Trial.create(file, "running", k=5, seed=3, background=False) as trial:
        World.of_best_and_random(seed=3).run(trial, 300, seed=3)
    names = [f"trial {seed} (version 1)" for seed in range(3)]
    assert [one["trial"] for one in answer(file)["found"]] == names
    assert [one["trial"] for one in answer(file, "--running")["found"]] == ["running (version 1)", *names]


def test_two_trials_are_too_few(tmp_path: Path) -> None:
    for seed in range(2):
        finished(tmp_path / "shoes.db", f"trial {seed}", seed=seed, searches=300)
    refused = runner.invoke(app, ["calibrate", str(tmp_path / "shoes.db")])
    assert refused.exit_code == 2
    assert "2 trials have a position-based and an A/B estimate, must be at least 3" in " ".join(refused.output.split())
