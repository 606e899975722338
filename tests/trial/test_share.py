"""Shares of visitors: who takes part, what the others get, how a share grows by itself, and that estimates stay exact."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from clocks import DAY, Clock
from live_server import is_problem, rank, serving, start
from ranktrial import tokens
from ranktrial.cli import app
from ranktrial.config import TrialConfig
from ranktrial.store.base import ClickRow, ImpressionRow
from ranktrial.trial import ClickOutcome, SeenOutcome, Trial
from ranktrial.trial.supervisor import ChangeShare, Facts, due
from simulated_trial import World
from store.kinds import KINDS, Kind

A = [f"a{i}" for i in range(6)]
B = ["a1", "a0", "b2", "b3", "a4"]
RAMP = [(0.01, "1d"), (0.1, "2d"), (0.5, None)]
OPTIONS: dict[str, Any] = {"k": 3, "seed": 1, "background": False, "timeout": 60.0}
OUT = "not in the share, A is shown"
SECRET = b"s" * 32


# --- who takes part -----------------------------------------------------------------------------------------------------------


def test_places_are_uniform_and_independent_of_draws_and_of_other_trials() -> None:
    units = [f"user-{i}" for i in range(20_000)]
    places = np.array([tokens.place_of(SECRET, unit) for unit in units])
    draws = np.array([tokens.draw(SECRET, 1, unit, "q") for unit in units])
    elsewhere = np.array([tokens.place_of(b"t" * 32, unit) for unit in units])
    for share in (0.01, 0.1, 0.5, 0.9):
        error = np.sqrt(share * (1 - share) / len(units))
        assert abs((places < share).mean() - share) < 4.5 * error
    for other in (draws, elsewhere):
        assert abs(np.corrcoef(places, other)[0, 1]) < 4.5 / np.sqrt(len(units))
    assert (tokens.place_of(SECRET, "user-1"), places[1]) == (places[1], places[1])


def test_a_larger_share_keeps_who_took_part(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", share=0.05, **OPTIONS) as trial:
        inside: list[set[int]] = []
        for share in (0.05, 0.2, 0.6, 1.0):
            trial.set_share(share)
            inside.append({i for i in range(300) if trial.rank(f"q{share}", A, B, f"u{i}").fallback is None})
    assert all(before < after for before, after in pairwise(inside))
    assert len(inside[-1]) == 300


def test_those_who_take_part_get_what_they_would_get_if_all_did(tmp_path: Path) -> None:
    with (
        Trial.create(tmp_path / "some.db", share=0.3, **OPTIONS) as some,
        Trial.create(tmp_path / "all.db", **OPTIONS) as everybody,
    ):
        drawn = [some.rank("q", A, B, f"u{i}") for i in range(200)]
        of_all = [everybody.rank("q", A, B, f"u{i}") for i in range(200)]
        assert {one.ranking == other.ranking for one, other in zip(drawn, of_all) if one.fallback is None} == {True}
        assert 0 < sum(one.fallback is None for one in drawn) < 200


def test_everybody_else_sees_a_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", share=0.0, **OPTIONS) as trial:
        for i in range(120):
            shown = trial.rank("q", A, B, f"u{i}", wait=True)
            assert (shown.ranking, shown.fallback) == (A, OUT)
        assert trial.rank("q", A, B, "u", offset=2, size=2).ranking == A[2:4]
        assert trial.rank("q", A, B).fallback == OUT  # without a unit too
        assert trial.rank("q", A, None, "u").ranking == A  # type: ignore[arg-type]  # nothing is asked of B
        assert trial.click(shown.id, A[0]).outcome is ClickOutcome.OUTSIDE
        assert trial.seen(shown.id, A[:3]) is SeenOutcome.OUTSIDE
        assert trial.judge.remembers(shown.id)
        assert trial.rank("q", A, B, 3.5).fallback.startswith("bad input")  # type: ignore
        report = trial.report()
        assert (
            report.impressions,
            list(trial.store.rows(ImpressionRow, 1, 0)),
            list(trial.store.rows(ClickRow, 1, 0)),
        ) == (0, [], [])
        assert report.tallies == {
            "searches outside the share": 123, "clicks outside the share": 1, "fallback: bad input": 1,
        }  # fmt: skip
        trial.set_share(1)
        WORLD.run(trial, 200, seed=1)
        checks = {check.name: check.status for check in trial.report().guardrails}
        assert checks["clicks"] == "pass"
        assert checks["fallbacks"] == "pass" or checks["fallbacks"] == "warn"  # of the one bad input


WORLD = World.make(queries=10, k=3)


def test_a_search_is_told_from_one_that_was_never_drawn(tmp_path: Path) -> None:
    """The share is taken back: what was drawn before still counts."""
    with Trial.create(tmp_path / "t.db", **OPTIONS) as trial:
        before = [trial.rank("q", A, B, f"u{i}", wait=True) for i in range(50)]
        trial.set_share(0.2)
        again = [trial.rank("q", A, B, f"u{i}", wait=True) for i in range(50)]
        assert all(two.id == one.id for one, two in zip(before, again) if two.fallback is None)
        assert 0 < sum(two.fallback == OUT for two in again) < 50
        assert {trial.click(one.id, one.ranking[0]).outcome for one in before} == {ClickOutcome.COUNTED}
        assert (trial.report().impressions, trial.report().clicks) == (50, 50)


@pytest.mark.slow
@pytest.mark.parametrize("method", ['AB(estimate="means")', "LogOpt(schedule=(300,))"])
def test_estimates_through_all_stages_are_those_of_a_replay(tmp_path: Path, method: str) -> None:
    """A trial that grows, and one of everybody that gets the searches of those who took part alone, say the same exactly.

    Who comes changes with the stages: regulars first, and strangers who click twice as often later.
    """
    options: dict[str, Any] = {**OPTIONS, "method": method}
    clock, random = Clock(), np.random.default_rng(5)
    with (
        Trial.create(tmp_path / "grown.db", share=0.1, clock=clock, **options) as grown,
        Trial.create(tmp_path / "replayed.db", clock=clock, **options) as replayed,
    ):
        inside = 0
        for stage, share in enumerate((0.1, 0.4, 1.0)):
            grown.set_share(share)
            for i in range(400):
                clock.now += 60
                query, unit = f"q{random.integers(10)}", f"stage {stage * (i % 2)} u{random.integers(150)}"
                chances = random.random(3) / (1 + stage)
                one = grown.rank(query, WORLD.a[query], WORLD.b[query], unit, size=3, wait=True)
                if one.fallback is not None:
                    continue
                inside += 1
                other = replayed.rank(query, WORLD.a[query], WORLD.b[query], unit, size=3, wait=True)
                assert other.ranking == one.ranking
                for shown, trial in ((one, grown), (other, replayed)):
                    for document, chance in zip(shown.ranking, chances):
                        if chance < WORLD.zeta[query][document]:
                            trial.click(shown.id, document)
            for trial in (grown, replayed):
                trial.watcher.step()
        here, there = grown.learning.report(grown.name), replayed.learning.report(replayed.name)
        assert here.decision == there.decision
        assert [one.to_dict() for one in here.estimates] == [one.to_dict() for one in there.estimates]
        assert (here.clicks, here.units, here.impressions) == (there.clicks, there.units, there.impressions)
        assert 300 < inside < 900


# --- a share that grows by itself ---------------------------------------------------------------------------------------------


def test_stages_follow_each_other_in_their_time() -> None:
    """A fortnight of looks, one every ten minutes, with a first search six hours after the set-up."""
    config = TrialConfig.model_validate({"ramp": RAMP}).keeping(None)
    since, began, changes = 0.0, 6 * 3_600.0, []
    for look in range(14 * 144):
        now = 600.0 * look
        action = due(now, config, Facts(since, began if now >= began else float("nan")))
        if isinstance(action, ChangeShare):
            changes.append((now, config.share, action.share, action.reason))
            config, since = config.model_copy(update={"share": action.share}), now
    assert changes == [
        (DAY + 6 * 3_600, 0.01, 0.1, "after 1 day at 0.01"),
        (3 * DAY + 6 * 3_600, 0.1, 0.5, "after 2 days at 0.1"),
    ]


@pytest.mark.parametrize(
    ("share", "hours", "expected"),
    [
        (0.01, 23.9, None),
        (0.01, 24, ChangeShare(0.1, "after 1 day at 0.01")),
        (0.01, 1000, ChangeShare(0.1, "after 1 day at 0.01")),  # one stage at a time, however late
        (0.1, 47.9, None),
        (0.1, 48, ChangeShare(0.5, "after 2 days at 0.1")),
        (0.5, 1000, None),  # the last
        (0.03, 1000, None),  # somebody has chosen another
        (0.0, 1000, None),
    ],
)
def test_a_stage_ends_when_its_time_is_over(share: float, hours: float, expected: ChangeShare | None) -> None:
    config = TrialConfig.model_validate({"ramp": RAMP, "share": share})
    assert due(hours * 3_600, config, Facts(0.0, 0.0)) == expected
    assert due(hours * 3_600, config, Facts(0.0, float("nan"))) is None  # nobody has searched
    assert due(hours * 3_600, config, Facts(float("nan"), 0.0)) is None
    assert due(hours * 3_600, TrialConfig.model_validate({"share": share}), Facts(0.0, 0.0)) is None


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_trial_grows_while_it_is_watched(tmp_path: Path, kind: str) -> None:
    """Whichever process looks changes it, once; and the history says so."""
    place: Kind = KINDS[kind](tmp_path)
    clock = Clock()
    with contextlib.closing(place.open()) as here, contextlib.closing(place.open()) as there:
        trial = Trial.create(here, ramp=RAMP, clock=clock, **OPTIONS)
        other = Trial.open(there, background=False, clock=clock)
        both = trial, other
        assert (trial.share, trial.stopped) == (0.01, False)
        clock.now += 10 * DAY  # nobody searches
        for one in both:
            one.supervisor.step()
        assert trial.share == 0.01
        user = next(i for i in range(10_000) if trial.rank("q", A, B, f"u{i}", wait=True).fallback is None)
        for later, share in ((0.5, 0.01), (0.6, 0.1), (1.9, 0.1), (0.2, 0.5), (30, 0.5)):
            clock.now += later * DAY
            for one in (*both, *both):
                one.supervisor.step()
                one.watcher.step()
            assert (trial.share, other.config.share) == (share, share)
            assert other.rank("q", A, B, f"u{user}").fallback is None
        assert [(one.what, one.detail, one.reason, one.who) for one in trial.history()][1:] == [
            ("changed", "share: 0.01 -> 0.1", "after 1 day at 0.01", "the ramp"),
            ("changed", "share: 0.1 -> 0.5", "after 2 days at 0.1", "the ramp"),
        ]


def test_two_who_look_at_the_same_moment_change_it_once(tmp_path: Path) -> None:
    clock = Clock()
    with Trial.create(tmp_path / "t.db", ramp=[(0.5, 60), (1.0, None)], clock=clock, **OPTIONS) as trial:
        while trial.rank("q", A, B, f"{clock.now}", wait=True).fallback is not None:
            clock.now += 1
        clock.now += 100
        version = trial.store.trials.versions(trial.name)[-1]  # as both have read it
        trial.supervisor.step()
        trial.set_share(0.2, "too much for our servers")
        trial.store.trials.reconfigure(version, trial.name, version.config, None)
        trial.supervisor.step()
        assert (trial.share, len(trial.history())) == (0.2, 3)
        clock.now += 100 * DAY
        trial.supervisor.step()
        assert trial.share == 0.2  # none of the stages: until somebody says otherwise
        trial.set_share(0.5)
        clock.now += 61
        trial.supervisor.step()
        trial.watcher.step()
        assert trial.share == 1.0


def test_a_deploy_does_not_begin_a_ramp_anew_and_a_new_version_does(tmp_path: Path) -> None:
    path = tmp_path / "t.db"

    def deployed(**options: Any) -> tuple[int, float, int]:
        with Trial.create(path, **{**OPTIONS, **options}) as trial:
            return trial.version, trial.share, len(trial.history())

    assert deployed(ramp=RAMP) == (1, 0.01, 1)
    with Trial.open(path, background=False) as trial:
        trial.set_share(0.1)
    assert deployed(ramp=RAMP) == (1, 0.1, 2)
    assert deployed() == (1, 0.1, 2)
    with Trial.open(path, background=False) as trial:
        trial.set_share(0.0, "B crashes")
    assert deployed(ramp=RAMP) == (1, 0.0, 3)  # nor does it undo what somebody has done by hand
    assert deployed(share=0.1, ramp=RAMP) == (1, 0.1, 4)
    assert deployed(ramp=[(0.1, "5d"), (1.0, None)]) == (1, 0.1, 5)  # another ramp, with this share
    assert deployed(ramp=[(0.2, "5d"), (1.0, None)]) == (1, 0.2, 6)  # and one without
    assert deployed(ramp=None) == (1, 0.2, 7)
    assert deployed(ramp=RAMP, k=4, new_version=True) == (2, 0.01, 8)
    with Trial.open(path, background=False) as trial:
        trial.set_share(0.5)
    assert deployed(k=5, new_version=True) == (3, 0.01, 10)  # its ramp begins anew, without being given
    with Trial.open(path, background=False) as trial:
        assert trial.history()[-1].detail == "3 (k: 4 -> 5; share: 0.5 -> 0.01)"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"share": 1.5}, "less than or equal to 1"),
        ({"share": -0.1}, "greater than or equal to 0"),
        ({"ramp": []}, "a ramp ends with a stage that lasts"),
        ({"ramp": [(0.1, "1d"), (0.5, "1d")]}, "a ramp ends with a stage that lasts"),
        ({"ramp": [(0.1, None), (0.5, None)]}, "a ramp ends with a stage that lasts"),
        ({"ramp": [(0.5, "1d"), (0.1, None)]}, r"shares of a ramp are \[0.5, 0.1\], each must be above the one before"),
        ({"ramp": [(0.0, "1d"), (0.1, None)]}, "all from 0 to 1"),
        ({"ramp": [(0.1, "a day"), (0.5, None)]}, 'it is \'a day\', must be seconds, or a number and s, min, h, d or w'),
        ({"ramp": [0.1, 0.5]}, "ramp"),
    ],
)  # fmt: skip
def test_what_is_no_share_and_no_ramp_is_refused(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Trial.create(tmp_path / "t.db", **options)
    assert not (tmp_path / "t.db").exists()


def test_a_share_that_is_none_changes_nothing(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", **OPTIONS) as trial:
        for share in (1.1, -0.1, float("nan"), True):
            with pytest.raises(ValueError, match="share is"):
                trial.set_share(share)
        trial.set_share(1.0)  # as it is
        assert len(trial.history()) == 1


# --- over HTTP, and on the command line ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_over_http(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db") as client:
        start(client, ramp=[[0.5, "1d"], [1, None]])
        assert client.get("/v1/trials/t").json()["config"]["ramp"] == [[0.5, DAY], [1.0, None]]
        changed = client.post("/v1/trials/t/share", json={"share": 0, "reason": "B crashes"})
        assert (changed.status_code, changed.json()["config"]["share"]) == (200, 0.0)
        shown = rank(client, "u")
        assert (shown["ranking"], shown["fallback"]) == (A, OUT)
        sent = client.post("/v1/events", json=[{"id": shown["id"], "document": A[0]}])
        assert sent.json()["counts"] == {"outside the share": 1}
        history = client.get("/v1/trials/t/report").json()["history"]
        assert (history[-1]["detail"], history[-1]["reason"]) == ("share: 0.5 -> 0", "B crashes")
        metrics = client.get("/metrics").text
        assert 'ranktrial_outside_share_total{trial="t"} 1.0' in metrics
        assert "ranktrial_fallbacks_total{" not in metrics
        is_problem(client.post("/v1/trials/t/share", json={"share": 2}), 422, says="share")
        is_problem(client.post("/v1/trials/other/share", json={"share": 1}), 404)
        client.put("/v1/trials/t", json={"share": 1, "k": 3, "seed": 5, "method": 'LogOpt(bias="known")'})
        assert rank(client, "u")["fallback"] is None


def test_a_service_looks_after_trials_that_nobody_has_asked_for_yet(tmp_path: Path) -> None:
    Trial.create(tmp_path / "t.db", "t", **OPTIONS).close()
    Trial.create(tmp_path / "t.db", "over", **OPTIONS).close()
    with Trial.open(tmp_path / "t.db", "over", background=False) as trial:
        trial.stop()
    with serving(tmp_path / "t.db") as client:
        trials = client.app.state.trials  # type: ignore[attr-defined]
        trials.refresh()
        assert ("t" in trials.opened, "over" in trials.opened) == (True, False)


def test_on_the_command_line(tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    Trial.create(path, ramp=RAMP, **OPTIONS).close()
    told = CliRunner().invoke(app, ["share", path])
    assert told.output == "trial: 0.01 of the visitors take part\n"
    changed = CliRunner().invoke(app, ["share", path, "0.1", "--reason", "all is well"])
    assert changed.output.startswith("trial: 0.1 of the visitors take part\n")
    assert changed.output.rstrip().endswith(": all is well")
    assert "changed share: 0.01 -> 0.1 by " in changed.output
    as_json = json.loads(CliRunner().invoke(app, ["share", path, "--json"]).output)
    assert as_json == {"trial": "trial", "share": 0.1, "ramp": [[0.01, DAY], [0.1, 2 * DAY], [0.5, None]]}
    refused = CliRunner().invoke(app, ["share", path, "7"])
    assert refused.exit_code != 0
    assert "share is 7.0, must be between 0 and 1" in refused.output
