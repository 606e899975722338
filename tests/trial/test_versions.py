"""Configurations: a new version only where somebody asks for it, all else in place; the end, with a choice of what is shown."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from live_server import A, B, is_problem, rank, serving, start
from ranktrial.config import SHOWN, TrialConfig
from ranktrial.trial import Trial
from ranktrial.trial.versions import VersionConflict
from simulated_trial import Ticks, World
from store.kinds import KINDS, Kind

OPTIONS: dict[str, Any] = {"k": 5, "seed": 1, "background": False, "timeout": 60.0}
WORLD = World.make(queries=10)
OTHER: dict[str, Any] = {
    "method": "AB()", "k": 4, "theta": (1.0, 0.5, 0.4, 0.3, 0.2), "eta": 0.5, "seed": 2, "level": 0.9, "smallest": 0.05,
    "tightest_at": 500.0, "click_window": 3600.0, "view_window": 5.0, "rules": {"unit_clicks": 50}, "allowance": 0.02,
    "contamination": 0.01, "guards": {"clicks": 0.05}, "at_least": 60.0, "at_most": 1e9, "whole_weeks": False, "then": "stop",
    "share": 0.9, "ramp": ((0.5, 60.0), (1.0, None)), "names": ("current", "with popularity"),
    "metrics": ('Orders(window="1d", since=2e9)',),  # later than any clock here
    "segments": {"device": ("phone", "desktop"), "query": "head/tail"}, "covariates": ("clicks_last_month",),
}  # fmt: skip


def said(trial: Trial) -> list[str]:
    return [f"{one.what} {one.detail}" for one in trial.history()]


def test_there_is_a_case_for_every_option() -> None:
    assert set(OTHER) == set(TrialConfig.model_fields)


@pytest.mark.parametrize("option", SHOWN)
def test_what_changes_what_is_shown_must_be_asked_for(tmp_path: Path, option: str) -> None:
    with Trial.create(tmp_path / "t.db", **OPTIONS) as trial:
        trial.rank("q", A, B, unit="u", wait=True)
    changed = {**OPTIONS, option: OTHER[option]}
    with pytest.raises(
        VersionConflict, match=rf"version 1 of trial 'trial'.*{option}: .* -> .*new_version=True"
    ) as refused:
        Trial.create(tmp_path / "t.db", **changed)
    assert list(refused.value.changes) == [option]
    with Trial.open(tmp_path / "t.db", background=False) as trial:
        assert (trial.version, trial.report().impressions) == (1, 1)
        assert len(trial.history()) == 1
    with Trial.create(tmp_path / "t.db", new_version=True, **changed) as trial:
        assert trial.version == 2
        assert said(trial)[-1].startswith(f"version 2 ({option}: ")
    with Trial.create(tmp_path / "t.db", new_version=True, **changed) as trial:  # as at the next start
        assert trial.version == 2
        assert len(trial.history()) == 2


@pytest.mark.parametrize("option", [option for option in TrialConfig.model_fields if option not in SHOWN])
def test_everything_else_changes_in_place(tmp_path: Path, option: str) -> None:
    with Trial.create(tmp_path / "t.db", clock=Ticks(), **OPTIONS) as trial:
        shown = trial.rank("q", A, B, unit="u", wait=True)
        with Trial.create(tmp_path / "t.db", clock=Ticks(), who="ann", **OPTIONS, **{option: OTHER[option]}) as changed:
            assert changed.version == 1
            assert getattr(changed.config, option) == getattr(
                TrialConfig.model_validate({option: OTHER[option]}), option
            )
            assert changed.rank("q", A, B, unit="u").ranking == shown.ranking
            assert changed.report().impressions == 1
            (_, entry) = changed.history()
            assert (entry.what, entry.who) == ("changed", "ann")
            assert entry.detail.startswith(f"{option}: ")
        trial.watcher.step()  # what the background does every second
        assert trial.config == changed.config
        assert trial.state.config == trial.state.configs[trial.state.version.id] == changed.config
        with Trial.create(tmp_path / "t.db", **OPTIONS) as again:  # which does not speak of it
            assert again.config == changed.config
            assert len(again.history()) == 2


def test_a_metric_of_a_running_trial_counts_from_when_it_was_added(tmp_path: Path) -> None:
    clock = Ticks()
    first = {**OPTIONS, "clock": clock, "metrics": ["Orders(window='7d')"]}
    with Trial.create(tmp_path / "t.db", **first) as trial:
        assert str(*trial.config.metrics) == 'Orders(window="7d")'  # from the beginning
    added = {**first, "metrics": ["Orders(window='7d', role='primary')", "Carts(window='1d')"]}
    with Trial.create(tmp_path / "t.db", **added) as trial:
        orders, carts = trial.config.metrics
        last = trial.history()[-1]
    assert str(orders) == 'Orders(window="7d", role="primary")'
    assert carts.since is not None
    assert abs(last.time - carts.since) <= 2  # the clock moves on by a second whenever it is read
    told = 'Orders(window="7d", role="primary"), Carts(window="1d") since 2023-11-14 22:13'
    assert last.detail.startswith(f'metrics: Orders(window="7d") -> {told}')
    clock.now += 1e6
    with Trial.create(tmp_path / "t.db", **added) as trial:  # asked for again, as at the next start
        assert trial.config.metrics == (orders, carts)
        assert len(trial.history()) == 2
    with Trial.create(tmp_path / "t.db", **{**added, "metrics": ["Carts(window='2d')"]}) as trial:  # counts otherwise
        (longer,) = trial.config.metrics
        assert longer.since is not None
        assert longer.since >= carts.since + 1e6
        assert trial.version == 1
    with Trial.create(tmp_path / "t.db", **{**added, "metrics": ["Carts()"], "k": 4}, new_version=True) as trial:
        assert (trial.version, str(*trial.config.metrics)) == (2, 'Carts(window="1d")')  # has nothing from before


@pytest.mark.slow
def test_a_metric_put_once_more_counts_from_when_it_did(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db") as client:
        start(client)
        start(client, metrics=["Orders(window='7d')"])
        config = client.get("/v1/trials/t").json()["config"]
        assert re.fullmatch(r'Orders\(window="7d", since=\d{10}\)', *config["metrics"])
        start(client, metrics=["Orders(window='7d')"])
        assert client.put("/v1/trials/t", json=config).status_code == 200  # what GET has told
        assert client.get("/v1/trials/t").json()["config"] == config
        assert len(client.get("/v1/trials/t/report").json()["history"]) == 2


def test_the_history_says_from_what_to_what(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    for options in (
        {"smallest": 0.1}, {"smallest": 0.05}, {"smallest": None, "rules": {"unit_clicks": 50}}, {"names": ("old", "new")},
        {"k": 4, "level": 0.9, "new_version": True}, {}, {"method": "AB()", "new_version": True},
    ):  # fmt: skip
        Trial.create(path, **{**OPTIONS, **options}).close()
    with Trial.open(path, background=False) as trial:
        assert said(trial) == [
            "version 1: LogOpt(), k=5",
            "changed smallest: 0.1 -> 0.05",
            "changed smallest: 0.05 -> none; rules: none -> unit_clicks=50",
            "changed names: A and B -> old and new",
            "version 2 (k: 5 -> 4; level: 0.95 -> 0.9)",
            "version 1 again (k: 4 -> 5)",
            "version 3 (method: LogOpt() -> AB())",
        ]


def test_an_earlier_configuration_is_that_version_again_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Trial.create(path, **OPTIONS, smallest=0.1) as one:
        first = one.rank("q", A, B, unit="u", wait=True)
    with Trial.create(path, **{**OPTIONS, "k": 4}, smallest=0.2, new_version=True) as two:
        for unit in "vw":
            two.rank("q", A, B, unit=unit, wait=True)
    for ask in (False, True):  # asked for or not: there is one that shows this
        with Trial.create(path, **OPTIONS, new_version=ask) as again:
            assert (again.version, again.config.smallest) == (1, 0.1)  # its own
            assert again.rank("q", A, B, unit="u", wait=True).id == first.id
    with Trial.open(path, background=False) as now:
        assert now.version == 1
        now.rank("q", A, B, unit="x", wait=True)
        report = now.report()
        assert (report.version, report.impressions) == (1, 2)
        assert {part.version: part.impressions for part in report.parts} == {1: 2, 2: 2}
        assert "version 2 had 2 searches" in report.about
        other = now.report(version=2)
        assert (other.version, other.impressions, other.config.smallest) == (2, 2, 0.2)
        with pytest.raises(RuntimeError, match="no version 7, it has 1, 2"):
            now.report(version=7)


def test_a_stopped_trial_gets_no_other_version(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    Trial.create(path, **OPTIONS).close()
    with Trial.create(path, **{**OPTIONS, "k": 4}, new_version=True) as trial:
        trial.stop()
    for k in (5, 3):
        with pytest.raises(VersionConflict, match="'trial' is stopped and gets no other version"):
            Trial.create(path, **{**OPTIONS, "k": k}, new_version=True)
    with Trial.create(path, **{**OPTIONS, "k": 4}, level=0.9) as trial:
        assert (trial.version, trial.config.level) == (2, 0.9)


@pytest.mark.parametrize("option", ["level", "smallest", "tightest_at", "rules"])
def test_a_report_after_a_change_in_place_is_that_of_a_new_process(tmp_path: Path, option: str) -> None:
    """Nothing kept from the analysis before may outlive what it was made with."""
    options: dict[str, Any] = {**OPTIONS, "method": "AB()"}
    with Trial.create(tmp_path / "t.db", clock=Ticks(), **options) as trial:
        WORLD.run(trial, 1500, seed=1, users=500)
        before = trial.learning.report(trial.name)
        value: Any = {"unit_impressions": 6} if option == "rules" else OTHER[option]
        Trial.create(tmp_path / "t.db", **options, **{option: value}).close()
        trial.learning._clock = lambda: 1.7e9 + 2000
        kept = trial.learning.report(trial.name)
    with Trial.open(tmp_path / "t.db", background=False, clock=lambda: 1.7e9 + 2000) as fresh:
        assert kept.to_dict() == fresh.learning.report(fresh.name).to_dict()
    assert kept.interval != before.interval or option == "smallest"


# --- several services -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_services_of_different_configurations_never_reset_each_other(tmp_path: Path) -> None:
    """Started in turn ten times on one store, each asking for its own configuration and then serving searches."""
    ours = {"k": 3, "seed": 5, "method": 'LogOpt(bias="known")', "smallest": 0.1}
    theirs = {**ours, "k": 4, "smallest": 0.05}
    answers = []
    for turn in range(10):
        with serving(tmp_path / "t.db") as client:
            answers.append(client.put("/v1/trials/t", json=theirs if turn % 2 else ours).status_code)
            assert rank(client, f"u{turn}")["fallback"] is None
            report = client.get("/v1/trials/t/report").json()
            assert (report["version"], report["impressions"]) == (1, turn + 1)
            assert [part["version"] for part in report["parts"]] == [1]
    assert answers == [201] + [409, 200] * 4 + [409]


@pytest.mark.slow
def test_nor_do_services_that_ask_for_a_version_whenever_they_start(tmp_path: Path) -> None:
    """Each goes on with the version that it asked for the first time."""
    for turn in range(10):
        with serving(tmp_path / "t.db") as client:
            start(client, k=3 + turn % 2, new_version=True)
            assert rank(client, f"u{turn}")["fallback"] is None
            report = client.get("/v1/trials/t/report").json()
            assert (report["version"], report["impressions"]) == (1 + turn % 2, 1 + turn // 2)
    assert {part["version"]: part["impressions"] for part in report["parts"]} == {1: 5, 2: 5}


@pytest.mark.slow
def test_of_two_services_that_differ_in_place_the_last_wins_and_the_history_shows_it(tmp_path: Path) -> None:
    for turn in range(4):
        with serving(tmp_path / "t.db") as client:
            start(client, smallest=0.05 if turn % 2 else 0.1)
            rank(client, f"u{turn}")
            report = client.get("/v1/trials/t/report").json()
            assert (report["version"], report["impressions"]) == (1, turn + 1)
    assert [one["detail"] for one in report["history"]] == [
        '1: LogOpt(bias="known"), k=3',
        "smallest: 0.1 -> 0.05", "smallest: 0.05 -> 0.1", "smallest: 0.1 -> 0.05",
    ]  # fmt: skip


@pytest.mark.slow
def test_over_http(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db") as client, serving(tmp_path / "t.db") as elsewhere:
        start(client)
        rank(client, "u")
        refused = client.put("/v1/trials/t", json={"k": 4, "seed": 5, "method": 'LogOpt(bias="known")'})
        is_problem(
            refused,
            409,
            says="(k: 3 -> 4). To begin a new version, with nothing in it, ask for it: PUT /v1/trials/t?new-version=true",
        )
        assert refused.json()["errors"] == [{"where": "k", "problem": "3 -> 4"}]
        is_problem(client.put("/v1/trials/t?new-version=perhaps", json={"k": 4}), 422, says="new-version")
        made = client.put("/v1/trials/t?new-version=true", json={"k": 4, "seed": 5, "method": 'LogOpt(bias="known")'})
        assert (made.status_code, made.json()["version"]) == (201, 2)
        rank(client, "v")
        rank(client, "w")
        numbers = {version: client.get(f"/v1/trials/t/report?version={version}").json() for version in (1, 2)}
        assert {number: (one["version"], one["impressions"]) for number, one in numbers.items()} == {
            1: (1, 1),
            2: (2, 2),
        }
        for version, impressions in ((1, "1"), (2, "2")):
            table = client.get(f"/v1/trials/t/report.csv?version={version}").text.splitlines()
            row = next(line for line in table if "clicks per search shown" in line)
            assert row.split(",")[4] == impressions
            page = client.get(f"/v1/trials/t/report.html?version={version}").text
            assert f"t (version {version};" in page
        is_problem(client.get("/v1/trials/t/report?version=3"), 404, says="no version 3, it has 1, 2")
        is_problem(client.get("/v1/trials/t/report?version=0"), 422)
        back = client.put("/v1/trials/t", json={"k": 3, "seed": 5, "method": 'LogOpt(bias="known")'})
        assert (back.status_code, back.json()["version"]) == (200, 1)
        elsewhere.app.state.trials.refresh()  # type: ignore[attr-defined]  # what it does every second
        assert elsewhere.get("/v1/trials/t").json()["version"] == 1
        rank(elsewhere, "x")
        assert elsewhere.get("/v1/trials/t/report").json()["impressions"] == 2


# --- the end, with a choice -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_shown_after_the_end_is_chosen_kept_and_obeyed_everywhere(tmp_path: Path, kind: str) -> None:
    place: Kind = KINDS[kind](tmp_path)
    with contextlib.closing(place.open()) as here, contextlib.closing(place.open()) as there:
        trial = Trial.create(here, clock=Ticks(), **OPTIONS)
        other = Trial.open(there, background=False)
        assert (trial.shows, trial.stopped) == (None, False)
        trial.stop("B is better", show="B", who="ann")
        other.watcher.step()
        for one in (trial, other, Trial.open(there, background=False)):
            assert (one.shows, one.stopped) == ("B", True)
            shown = one.rank("q", A, B, unit="u", offset=1, size=2)
            assert (shown.ranking, shown.fallback) == (B[1:3], "the trial is stopped, B is shown")
        assert trial.rank("q", A, None).ranking == A  # type: ignore[arg-type]  # there is no such list
        trial.stop()  # leaves the choice as it is
        assert (other.history()[-1].detail, trial.shows) == ("(B is shown from now on)", "B")
        trial.stop("after all", show="A")
        assert trial.rank("q", A, B).fallback == "the trial is stopped, A is shown"
        assert [f"{one}".partition(": ")[2] for one in trial.history()][1:] == [
            "stopped (B is shown from now on) by ann: B is better",
            f"stopped (A is shown from now on) by {trial.history()[-1].who}: after all",
        ]
        with pytest.raises(ValueError, match='show is \'C\', must be "A" or "B"'):
            trial.stop(show="C")  # type: ignore[arg-type]


def test_the_end_over_http(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db") as client:
        start(client)
        assert client.get("/v1/trials/t").json()["shows"] is None
        is_problem(client.post("/v1/trials/t/stop", json={"show": "C"}), 422, says="show")
        told = client.post("/v1/trials/t/stop", json={"reason": "B is better", "show": "B"}).json()
        assert (told["stopped"], told["shows"]) == (True, "B")
        assert rank(client, "u")["ranking"] == B
    with serving(tmp_path / "t.db") as client:  # after a restart
        shown = rank(client, "u")
        assert (shown["ranking"], shown["fallback"]) == (B, "the trial is stopped, B is shown")
        assert client.post("/v1/trials/t/stop").json()["shows"] == "B"
        assert json.dumps(client.get("/v1/trials").json()).count('"shows": "B"') == 1
