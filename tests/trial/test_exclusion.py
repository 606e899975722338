"""Units that a trial's rules leave out, or that people exclude afterwards: both numbers are told, and history says why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from live_server import rank, send, serving, start
from ranktrial.analysis.analyse import Analysis, analyse
from ranktrial.analysis.answers import settled
from ranktrial.analysis.guardrails.pages import clicks
from ranktrial.analysis.guardrails.status import Found, Guardrail, Status, guardrail
from ranktrial.cli import app
from ranktrial.config import TrialConfig
from ranktrial.log import Rules
from ranktrial.report.schema import Report
from ranktrial.tokens import named_unit, unit_name, unit_number
from ranktrial.trial import Trial
from ranktrial.trial.history import excluded_units
from simulated_trial import Ticks, World

WORLD = World.make(queries=15)
OPTIONS: dict[str, Any] = {"k": 5, "seed": 1, "background": False, "timeout": 60.0, "method": "LogOpt(holdback=0.3)"}
ROBOT = "robot"


def with_a_robot(trial: Trial) -> Trial:
    """2,000 searches of people, and 120 of a robot that clicks on whatever stands last on a page."""
    WORLD.run(trial, 2000, seed=1)
    for number in range(120):
        query = f"q{number % 15}"
        a, b = ([*ranked[:4], f"more {number // 15}"] for ranked in (WORLD.a[query], WORLD.b[query]))
        shown = trial.rank(query, a, b, unit=ROBOT, size=5)
        for document in shown.ranking[-2:]:
            trial.click(shown.id, document, wait=False)
    trial.store.flush()
    return trial


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    with Trial.create(tmp_path / "t.db", clock=Ticks(), **OPTIONS) as made:
        yield with_a_robot(made)


def of_people(trial: Trial) -> Analysis:
    log = trial.log()
    people = log.take(log.unit != unit_number(trial.state.secret, ROBOT))
    assert len(people) == len(log) - 120
    return analyse(people, trial.config, trial.state.policy.bias.beliefs)


def numbers(report: Report | Analysis) -> list[Any]:
    """Numbers to nine digits: the order in which sums are made is another in memory."""
    theta = report.theta
    decision = report.decision if isinstance(report, Report) else settled(report, {}).decision
    found = (decision.difference, *decision.interval, *theta.theta, *theta.standard_error, theta.inflation)
    return [*(f"{number:.9g}" for number in found), theta.fitted, theta.note]


def test_an_excluded_unit_leaves_the_estimate_and_theta(trial: Trial) -> None:
    """As if it had never come; and comes back by another entry."""
    before, expected = trial.report(), of_people(trial)
    assert numbers(before) != numbers(expected)
    entry = trial.exclude(ROBOT, "120 searches in two minutes")
    report = trial.report()
    assert numbers(report) == numbers(expected)
    assert report.impressions == 2000
    assert report.history[1:] == (entry,)  # after the entry of the version
    assert report.everyone is not None
    assert report.everyone.decision == before.decision
    assert (report.everyone.units, report.everyone.without) == ({"excluded": 1}, 120)
    for told in (str(report), report.everyone.text):
        assert "Left out: 1 visitor (1 by name) with 120 searches. With everybody in: " in told
    assert "120 searches in two minutes" in str(report)

    trial.include(ROBOT, "it was the tester of the search team")
    again = trial.report()
    assert numbers(again) == numbers(before)
    assert again.everyone is None
    assert [(one.what, one.reason) for one in again.history[1:]] == [
        ("excluded", "120 searches in two minutes"),
        ("included", "it was the tester of the search team"),
    ]
    assert {one.unit for one in trial.history()[1:]} == {unit_name(unit_number(trial.state.secret, ROBOT))}
    assert again.history[1].time < again.history[2].time


def test_with_those_left_out_nothing_is_decided_that_the_report_withholds(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither before its time, nor where a check fails, whether it fails with everybody in or not."""
    trial.exclude(ROBOT, "a robot")
    before = trial.report().everyone
    assert before is not None
    assert before.decision.winner == "A"
    Trial.create(trial.store, clock=Ticks(), **{**OPTIONS, "at_least": "4w"}).close()
    trial.watcher.step()
    soon = trial.report().everyone
    assert soon is not None
    assert (soon.decision.winner, soon.decision.reasons) == (None, ("too soon",))
    assert "no winner is named yet" in soon.text

    def fails(analysis: Analysis, *_: Any) -> tuple[Guardrail, ...]:
        status: Status = "fail" if len(analysis.log) == 2_000 else "pass"
        return (guardrail(clicks, Found(status, 0.0, "None.")),)

    monkeypatch.setattr("ranktrial.analysis.answers.guardrails", fails)
    trial.stop("enough")
    report = trial.report()
    assert report.everyone is not None
    for text in (report.text.headline, report.everyone.text, report.parts[-1].verdict):
        assert 'Do not rely on these numbers: "Clicks belong to what was shown" fails.' in text


def test_no_version_that_has_ended_waits_for_more(trial: Trial) -> None:
    """Neither an earlier one, nor the last once the trial is stopped."""
    with Trial.create(trial.store, clock=Ticks(), new_version=True, **{**OPTIONS, "k": 4}) as other:
        assert [part.verdict for part in other.report().parts][1] == "No searches yet."
        with_a_robot(other)
        other.stop("enough")
        report = other.report()
        assert len(report.parts) == 2
        assert not [part.verdict for part in report.parts if re.search(r"\byet\b", part.verdict)]
        assert not re.search(r"\byet\b", report.verdict)


def test_an_earlier_version_tells_who_was_left_out_after_a_report_on_the_later_one(trial: Trial) -> None:
    trial.exclude(ROBOT, "a robot")
    expected = trial.report().everyone
    with Trial.create(trial.store, clock=Ticks(), new_version=True, **{**OPTIONS, "k": 4}) as later:
        assert later.report().everyone is None  # nobody has asked for anything
        told = later.report(version=1)
        assert told.everyone is not None
        assert expected is not None
        assert (told.everyone.units, told.everyone.without) == (expected.units, expected.without)
        assert told.everyone.text == expected.text


def test_designs_learn_nothing_from_an_excluded_unit(trial: Trial) -> None:
    trial.exclude(ROBOT, "a robot")
    learnt, expected = trial.update(), of_people(trial)
    np.testing.assert_allclose(learnt.theta, expected.theta.theta, rtol=1e-12)
    assert learnt.impressions == len(trial.log())


def test_another_process_takes_it_over_and_a_restart_keeps_it(trial: Trial, tmp_path: Path) -> None:
    with Trial.open(tmp_path / "t.db", background=False) as other:
        before = other.report()
        trial.exclude(ROBOT, "a robot")
        assert other.report().impressions == before.impressions - 120
    with Trial.create(trial.store, clock=Ticks(), new_version=True, **{**OPTIONS, "k": 4}) as next_version:
        assert sorted(one.what for one in next_version.history()) == ["excluded", "version", "version"]
        assert excluded_units(trial.store, trial.name) == {unit_number(trial.state.secret, ROBOT)}


def test_a_unit_may_be_named_as_reports_name_it(trial: Trial) -> None:
    secret = trial.state.secret
    number = unit_number(secret, ROBOT)
    assert named_unit(secret, ROBOT) == named_unit(secret, unit_name(number)) == number
    for extreme in (-(2**63), -1, 0, 2**63 - 1):
        assert named_unit(secret, unit_name(extreme)) == extreme
    heaviest = next(one for one in trial.report().guardrails if one.name == "heaviest unit")
    assert (heaviest.status, heaviest.value) == ("warn", 120 / 2120)
    assert unit_name(number) in heaviest.text
    trial.exclude(unit_name(number), "a robot")
    assert trial.report().impressions == 2000


@pytest.mark.parametrize(("unit", "reason"), [("", "why"), (ROBOT, ""), (7, "why"), (ROBOT, None)])
def test_an_entry_has_a_unit_and_a_reason(tmp_path: Path, unit: Any, reason: Any) -> None:
    with Trial.create(tmp_path / "t.db", **OPTIONS) as trial:
        with pytest.raises(ValueError, match="must be text, and not empty"):
            trial.exclude(unit, reason)
        assert [one.what for one in trial.history()] == ["version"]


def test_rules_are_part_of_the_configuration_and_apply_to_reports(tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", clock=Ticks(), **OPTIONS, rules={"unit_impressions": 100}) as trial:
        assert trial.config.rules == Rules(unit_impressions=100)
        with_a_robot(trial)
        report, expected = trial.report(), of_people(trial)
        assert numbers(report) == numbers(expected)
        assert report.everyone is not None
        assert report.everyone.units == {"unit_impressions": 1}
        everyone = analyse(trial.log(), trial.config, trial.state.policy.bias.beliefs)
        difference = settled(everyone, {}).decision.difference
        assert report.everyone.decision.difference == pytest.approx(difference, rel=1e-9)
        assert len(trial.log()) == 2120  # nothing is left out when it is collected
    with Trial.create(tmp_path / "t.db", **OPTIONS, rules=Rules(unit_impressions=100)) as same:
        assert same.version == 1
    with Trial.create(tmp_path / "t.db", **OPTIONS, rules={}) as other:
        assert (other.version, other.config.rules) == (1, Rules())
        assert other.report().impressions == 2120


@pytest.mark.parametrize("rules", [{"unit_impressions": -1}, {"unit_impression": 5}, {"unit_clicks": "many"}, 7])
def test_rules_that_make_no_sense_are_refused(tmp_path: Path, rules: Any) -> None:
    with pytest.raises(ValueError, match="rules"):
        Trial.create(tmp_path / "t.db", **OPTIONS, rules=rules)


@pytest.mark.slow
def test_over_http(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db") as client:
        start(client, rules={"unit_impressions": 1000})
        for unit in ("a", "b"):
            shown = rank(client, unit)
            send(client, {"id": shown["id"], "document": shown["ranking"][0]})
        answer = client.post("/v1/trials/t/exclude", json={"unit": "a", "reason": "a robot"})
        assert answer.status_code == 200
        assert [(one["what"], one["reason"]) for one in answer.json()["history"][1:]] == [("excluded", "a robot")]
        report = client.get("/v1/trials/t/report").json()
        assert (report["impressions"], report["everyone"]["without"], report["history"]) == (
            1,
            1,
            answer.json()["history"],
        )
        answer = client.post("/v1/trials/t/include", json={"unit": "a", "reason": "no robot"})
        assert [one["what"] for one in answer.json()["history"]] == ["version", "excluded", "included"]
        report = client.get("/v1/trials/t/report").json()
        assert (report["impressions"], report["everyone"]) == (2, None)
        for body in (
            {"unit": "a"},
            {"unit": "a", "reason": ""},
            {"unit": "", "reason": "why"},
            {"unit": 1.5, "reason": "x"},
        ):
            assert client.post("/v1/trials/t/exclude", json=body).status_code == 422
        assert client.post("/v1/trials/none/exclude", json={"unit": "a", "reason": "x"}).status_code == 404
        assert client.put("/v1/trials/u", json={"rules": {"unit_clicks": -1}}).status_code == 422


def test_on_the_command_line(tmp_path: Path) -> None:
    store = str(tmp_path / "t.db")
    with Trial.create(store, **OPTIONS) as trial:
        for unit in ("ann", "bot", "bot "):
            trial.rank("q", ["x", "y"], ["y", "x"], unit=unit)
    told = CliRunner().invoke(app, ["exclude", store, "bot", "--reason", "a [bold] robot"])
    assert told.exit_code == 0, told.output
    assert "a [bold] robot" in told.stdout
    assert "Left out: 1 visitor (1 by name) with 1 search." in told.stdout
    shown = CliRunner().invoke(app, ["report", store])
    assert "2 searches" in shown.stdout
    assert "a [bold] robot" in " ".join(shown.stdout.split())
    told = CliRunner().invoke(app, ["exclude", store, "bot", "--reason", "no robot", "--undo", "--json"])
    assert '"what": "included"' in told.stdout
    for arguments in ([store, ""], [str(tmp_path / "none.db"), "bot"], [store, "bot", "--name", "hats"]):
        assert CliRunner().invoke(app, ["exclude", *arguments, "--reason", "why"]).exit_code == 2


def test_configurations_read_the_same_with_rules() -> None:
    config = TrialConfig.model_validate({"rules": {"unit_clicks": 7}})
    assert TrialConfig.stored(config.model_dump_json()) == config
    assert TrialConfig.stored("{}") == TrialConfig.model_validate({})
