"""Trials with a duration, and what becomes of them when a winner counts or the time is over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from typer.testing import CliRunner

from clocks import DAY, START, Clock
from ranktrial.cli import app
from ranktrial.config import TrialConfig
from ranktrial.report.course import counts_from, course, is_over, week_end
from ranktrial.trial import Trial, Webhook
from ranktrial.trial.supervisor import Facts, StopTrial, due
from receiver import SECRET, receiving

OPTIONS: dict[str, Any] = {"k": 3, "seed": 1, "background": False, "timeout": 60.0, "method": "AB()"}
LIST = ["a", "b", "c"]


def days(trial: Trial, clock: Clock, number: int, *, of_a: list[float], of_b: list[float], each: int = 400) -> None:
    """Days with so many visitors, who click on the first result with chances that depend on the day of the week."""
    for _ in range(number):
        day = int((clock.now - START) // DAY)
        random, end = np.random.default_rng(day), START + (day + 1) * DAY
        for i in range(each):
            shown = trial.rank(f"q{i % 20}", LIST, LIST[::-1], f"u{day}-{i}")
            chance = (of_a if shown.ranking[0] == "a" else of_b)[day % 7]
            if shown.fallback is None and random.random() < chance:
                trial.click(shown.id, shown.ranking[0], wait=False)
            clock.now += (end - clock.now) / (each - i + 1)
        trial.store.flush()
        clock.now = end
        trial.supervisor.step()
        trial.watcher.step()


# --- when a winner counts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, float("-inf")),
        ({"at_least": "7d"}, 7),
        ({"at_least": "1h"}, 7),
        ({"at_least": "8d"}, 14),
        ({"at_least": "8d", "whole_weeks": False}, 8),
        ({"at_most": "28d"}, 7),
        ({"at_most": "3d"}, 3),
        ({"at_least": "3w", "at_most": "20d"}, None),
        ({"at_least": "15d", "at_most": "20d"}, 20),
        ({"then": "serve winner"}, 7),
        ({"then": "stop", "whole_weeks": False}, float("-inf")),
    ],
)
def test_the_time_is_rounded_up_to_whole_weeks(options: dict[str, Any], expected: float | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="at_least is 21 days, must be no longer than at_most"):
            TrialConfig.model_validate(options)
        return
    config = TrialConfig.model_validate(options)
    assert counts_from(config, 0.0) / DAY == expected
    assert is_over(config, 0.0, 28 * DAY) == ("at_most" in options)
    assert not is_over(config, 0.0, 2 * DAY)
    assert not is_over(config, float("nan"), 2 * DAY)
    assert bool(course(config, 0.0, DAY)) == (expected != float("-inf"))


def test_weeks_that_count_are_whole() -> None:
    weekly = TrialConfig.model_validate({"at_most": "20d"})
    ends = [week_end(weekly, 0.0, day * DAY) for day in (0, 6.9, 7, 9, 13.9, 14, 19, 20)]
    assert ends == [None, None, 7 * DAY, 7 * DAY, 7 * DAY, 14 * DAY, 14 * DAY, None]
    for options in ({}, {"then": "stop", "whole_weeks": False}, {"at_least": "2w", "whole_weeks": False}):
        assert week_end(TrialConfig.model_validate(options), 0.0, 9 * DAY) is None
    assert week_end(weekly, float("nan"), 9 * DAY) is None


def test_what_follows_from_the_end() -> None:
    facts = Facts(0.0, 0.0, ended="B gets more clicks than A.", winner="B")
    plans: dict[str, StopTrial | None] = {
        "tell": None,
        "stop": StopTrial("B gets more clicks than A.", "the plan", "A"),
        "serve winner": StopTrial("B gets more clicks than A.", "the plan", "B"),
    }
    for then, expected in plans.items():
        assert due(DAY, TrialConfig.model_validate({"then": then}), facts) == expected
        assert due(DAY, TrialConfig.model_validate({"then": then}), facts._replace(ended="")) is None
    serve = TrialConfig.model_validate({"then": "serve winner"})
    assert due(DAY, serve, facts._replace(winner=None, ended="Alike.")) == StopTrial("Alike.", "the plan", "A")
    harm = facts._replace(harm="Faults.", guard="fallbacks")
    assert due(DAY, serve, harm) == StopTrial("Faults.", "the guard on fallbacks", "A")


def test_a_winner_of_two_days_is_not_that_of_the_week(tmp_path: Path) -> None:
    """B is far better on the first two days of each week, and worse on the others; A is better over the week.

    The difference is seen to change after two days, and must have lasted for a week since then.
    """
    of_b = [0.6, 0.6, 0.2, 0.2, 0.2, 0.2, 0.2]
    winners = {}
    for whole_weeks in (False, True):
        clock, path = Clock(), tmp_path / f"{whole_weeks}.db"
        options = {**OPTIONS, "at_least": "2d", "whole_weeks": whole_weeks, "then": "serve winner", "clock": clock}
        with Trial.create(path, **options) as trial:
            for _ in range(14):
                if not trial.stopped:
                    days(trial, clock, 1, of_a=[0.4] * 7, of_b=of_b)
            winners[whole_weeks] = trial.shows, clock.now - START
    assert winners == {False: ("B", 2 * DAY), True: ("A", 10 * DAY)}


@pytest.mark.parametrize("of_b", [[0.55, 0.55, *[0.4] * 5], [0.9, 0.9, *[0.25] * 5]])  # the second is seen to change
def test_a_winner_of_nine_days_is_not_that_of_a_week(tmp_path: Path, of_b: list[float]) -> None:
    """B is better on the first two days of each week; nine days have four of those."""
    clock = Clock()
    options = {**OPTIONS, "at_least": "7d", "clock": clock}
    with Trial.create(tmp_path / "t.db", **options) as trial:
        days(trial, clock, 9, of_a=[0.4] * 7, of_b=of_b, each=200)
        report = trial.report()
        assert (report.decision.state, report.decision.reasons) == ("withheld", ("too soon",))
        assert report.course == "Over whole weeks none is ahead so far, and searches differ by day."
        Trial.create(tmp_path / "t.db", **{**options, "whole_weeks": False}).close()
        trial.watcher.step()
        assert trial.report().winner == "B"


def test_by_default_what_is_done_by_itself_waits_for_a_week_and_what_is_told_says_that_none_was_seen(
    tmp_path: Path,
) -> None:
    for then, winner in (("tell", "B"), ("serve winner", None)):
        clock = Clock()
        with Trial.create(tmp_path / f"{then}.db", **OPTIONS, then=then, clock=clock) as trial:
            days(trial, clock, 2, of_a=[0.2] * 7, of_b=[0.7] * 7, each=200)
            report = trial.report()
            assert (report.winner, trial.shows) == (winner, None)
            if winner:
                assert report.course == (
                    "This is from searches of 2 days, not of a whole week: those of other days may differ."
                )
            else:
                assert report.course.startswith("A winner counts from 2023-11-21 22:13 UTC on, after whole weeks")


def test_what_seems_alike_waits_for_its_time_too(tmp_path: Path) -> None:
    clock = Clock()
    with Trial.create(tmp_path / "t.db", **OPTIONS, smallest=0.3, then="stop", clock=clock) as trial:
        days(trial, clock, 2, of_a=[0.4] * 7, of_b=[0.4] * 7, each=200)
        report = trial.report()
        assert (report.decision.state, report.decision.reasons) == ("undecided", ("too soon",))
        assert (report.text.next, report.ended) == ("Let it run for its time.", "")
        days(trial, clock, 5, of_a=[0.4] * 7, of_b=[0.4] * 7, each=40)
        clock.now += 60
        trial.supervisor.step()
        trial.watcher.step()
        assert trial.shows == "A"


@pytest.mark.parametrize(("then", "shows"), [("tell", None), ("stop", "A"), ("serve winner", "B")])
def test_a_winner_waits_for_its_time_and_is_then_served_and_taken_back(
    tmp_path: Path, then: str, shows: Literal["A", "B"] | None
) -> None:
    clock, path = Clock(), tmp_path / "t.db"
    with receiving() as receiver:
        hook = Webhook(receiver.url, SECRET)
        options = {**OPTIONS, "at_least": "7d", "then": then, "clock": clock, "webhooks": [hook]}
        with Trial.create(path, **options) as trial:
            assert trial.report().course == "The time of the trial begins with its first search."
            days(trial, clock, 6, of_a=[0.3] * 7, of_b=[0.6] * 7, each=200)
            report = trial.report()
            assert (report.decision.state, report.winner, report.decision.reasons) == ("withheld", None, ("too soon",))
            assert report.course.startswith("A winner counts from 2023-11-21 22:13 UTC on, after whole weeks")
            assert report.text.next == "Let it run for its time."
            assert "The trial is to take longer before a winner counts." in str(report)
            assert report.course in str(report)
            assert "decided" not in receiver.kinds()
            days(trial, clock, 1, of_a=[0.3] * 7, of_b=[0.6] * 7, each=200)
            assert (trial.report().winner, trial.shows) == ("B", shows)
            clock.now += 1
            trial.supervisor.step()
            assert "decided" in receiver.kinds()
            if shows is None:
                return
            assert receiver.told()[-1][1].startswith(
                f"trial is stopped ({shows} is shown from now on), by the plan: B gets "
            )
            shown = trial.rank("q", LIST, LIST[::-1], "u")
            assert shown.ranking == (LIST if shows == "A" else LIST[::-1])
            assert shown.fallback == f"the trial is stopped, {shows} is shown"
    back = CliRunner().invoke(app, ["stop", str(path), "--show", "A", "--reason", "complaints", "--json"])
    assert json.loads(back.output) == {"trial": "trial", "shows": "A"}
    with Trial.open(path, background=False) as trial:
        assert trial.rank("q", LIST, LIST[::-1], "u").ranking == LIST


@pytest.mark.parametrize("options", [{"then": "serve winner"}, {"guards": {"futility": "stop"}}])
def test_that_both_are_alike_waits_for_its_time_too(tmp_path: Path, options: dict[str, Any]) -> None:
    clock = Clock()
    options = {**OPTIONS, "at_least": "7d", "smallest": 0.4, "clock": clock, **options}
    with Trial.create(tmp_path / "t.db", **options) as trial:
        days(trial, clock, 6, of_a=[0.4] * 7, of_b=[0.4] * 7, each=150)
        report = trial.report()
        assert (report.decision.state, report.decision.reasons) == ("undecided", ("too soon",))
        assert report.decision.interval.high < 0.4
        assert (report.ended, report.futile, trial.stopped) == ("", "", False)
        assert report.text.next == "Let it run for its time."
        days(trial, clock, 1, of_a=[0.4] * 7, of_b=[0.4] * 7, each=150)
        clock.now += 100
        trial.supervisor.step()
        trial.watcher.step()
        report = trial.report()
        assert (report.decision.state, trial.shows) == ("alike", "A")
        assert report.futile == "B is surely not better by 0.4 clicks per search."


@pytest.mark.parametrize("then", ["tell", "serve winner"])
def test_the_time_is_over_without_a_winner(tmp_path: Path, then: str) -> None:
    clock = Clock()
    with receiving() as receiver:
        hook = Webhook(receiver.url, SECRET)
        options = {**OPTIONS, "at_most": "3d", "then": then, "clock": clock, "webhooks": [hook]}
        with Trial.create(tmp_path / "t.db", **options) as trial:
            days(trial, clock, 3, of_a=[0.4] * 7, of_b=[0.4] * 7, each=50)
            clock.now += 100
            trial.supervisor.step()
            trial.watcher.step()
            assert "time is over" in receiver.kinds()
            assert trial.shows == (None if then == "tell" else "A")
            if trial.stopped:
                last = trial.history()[-1]
                assert (last.who, last.reason) == ("the plan", "The time is over. Neither is ahead.")
            else:
                assert "The time was up on 2023-11-17 22:13 UTC." in str(trial.report())


def test_stop_on_the_command_line(tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    Trial.create(path, **OPTIONS).close()
    refused = CliRunner().invoke(app, ["stop", path, "--show", "C"])
    assert refused.exit_code != 0
    assert "--show is C, must be A or B" in refused.output
    told = CliRunner().invoke(app, ["stop", path, "--show", "B", "--reason", "B is better"])
    assert told.output.startswith("trial: B is shown to everybody\n")
    assert "stopped (B is shown from now on) by " in told.output
