"""History of changes: versions, names, refits, exclusions, the end; and names that are labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from live_server import is_problem, rank, serving, start
from ranktrial.config import TrialConfig
from ranktrial.service.api_keys import KeyFile
from ranktrial.trial import Trial
from ranktrial.trial.history import this_user
from simulated_trial import Ticks, World

NAMES = ("current", "with popularity")
OPTIONS: dict[str, Any] = {"k": 5, "seed": 1, "background": False, "timeout": 60.0}
WORLD = World.make(queries=10)


def told(trial: Trial) -> list[tuple[str, str, str, str]]:
    return [(one.what, one.detail, one.reason, one.who) for one in trial.history()]


def test_all_that_is_done_to_a_trial_is_told(tmp_path: Path) -> None:
    me, method = this_user(), "LogOpt(schedule=(50,))"
    with Trial.create(tmp_path / "t.db", method=method, clock=Ticks(), who="ann", **OPTIONS) as trial:
        WORLD.run(trial, 60, seed=1)
        trial.watcher.step()  # what the background does every second
        trial.watcher.step()
        trial.update(who="bob")
        trial.stop("B is better")
        trial.stop("again")
        made, scheduled, asked, stopped = told(trial)
        assert made == ("version", f"1: {method}, k=5", "", "ann")
        assert scheduled == ("updated", "position bias of version 1 from 60 searches", "", "the schedule")
        assert asked == ("updated", "position bias of version 1 from 60 searches", "", "bob")
        assert stopped == ("stopped", "(A is shown from now on)", "B is better", me)
        times = [one.time for one in trial.history()]
        assert times == sorted(times)
        report = trial.report()
        assert report.history == tuple(trial.history())
        assert f"stopped (A is shown from now on) by {me}: B is better" in str(report)


def test_names_are_labels(tmp_path: Path) -> None:
    """They change neither the version nor a draw; only those that are given do, and that is told."""
    with Trial.create(tmp_path / "t.db", **OPTIONS) as trial:
        first = trial.rank("q", ["x", "y", "z"], ["z", "y", "x"], unit="u", wait=True)
        assert trial.report().parts[0].config.names == ("A", "B")
        with Trial.create(tmp_path / "t.db", names=NAMES, who="ann", **OPTIONS) as named:
            assert (named.version, named.config.names) == (1, NAMES)
            assert named.rank("q", ["x", "y", "z"], ["z", "y", "x"], unit="u").ranking == first.ranking
        assert trial.report().parts[0].config.names == NAMES  # in a process that was there before, too
        with Trial.create(tmp_path / "t.db", **OPTIONS) as again:
            assert (again.version, again.config.names) == (1, NAMES)
        assert told(trial)[1:] == [("changed", "names: A and B -> current and with popularity", "", "ann")]
        with Trial.create(tmp_path / "t.db", new_version=True, **{**OPTIONS, "k": 4}) as other:
            assert (other.version, other.config.names) == (2, NAMES)  # those of the version before


@pytest.mark.parametrize(
    "names",
    [("", "x"), ("x", "x"), ("B", "A"), ("x", "A"), ("a\u202eb", "x"), (" x", "y"), ("x" * 41, "y"), ("x",), "xy"],
)
def test_names_that_confuse_are_refused(names: Any) -> None:
    with pytest.raises(ValueError, match="names"):
        TrialConfig.model_validate({"names": names})


@pytest.mark.slow
def test_over_http_the_key_is_named(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys")
    admin = keys.add("ann", ["admin", "read", "serve"])
    who = f"key {admin.split('_')[1]} (ann)"
    with serving(tmp_path / "t.db", keys=keys) as client:
        client.headers["Authorization"] = f"Bearer {admin}"
        start(client)
        rank(client, "u")
        assert client.put("/v1/trials/t", json={"k": 3, "seed": 5, "method": 'LogOpt(bias="known")'}).status_code == 200
        named = {"k": 3, "seed": 5, "method": 'LogOpt(bias="known")', "names": list(NAMES)}
        answer = client.put("/v1/trials/t", json=named)
        assert (answer.status_code, answer.json()["config"]["names"], answer.json()["version"]) == (200, list(NAMES), 1)
        client.post("/v1/trials/t/update").raise_for_status()
        client.post("/v1/trials/t/exclude", json={"unit": "u", "reason": "a robot"}).raise_for_status()
        is_problem(client.post("/v1/trials/t/stop", content=b"why", headers={"content-type": "text/plain"}), 415)
        is_problem(client.post("/v1/trials/t/stop", json={"why": "x"}), 422)
        client.post("/v1/trials/t/stop", json={"reason": "enough"}).raise_for_status()
        client.post("/v1/trials/t/stop").raise_for_status()
        history = client.get("/v1/trials/t/report").json()["history"]
        assert [one["what"] for one in history] == ["version", "changed", "updated", "excluded", "stopped"]
        assert {one["who"] for one in history} == {who}
        assert history[-1]["reason"] == "enough"
        assert client.put("/v1/trials/t", json={**named, "names": ["old", "new"]}).status_code == 200  # stopped or not
        is_problem(client.put("/v1/trials/t", json={**named, "k": 4}), 409)
