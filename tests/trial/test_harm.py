"""Guards: a trial that does harm stops by itself, one that does none does not, and what is said of either."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clocks import DAY, START, Clock
from ranktrial.analysis.answers import settled
from ranktrial.analysis.metrics import ends, level_of_each
from ranktrial.config import Guards, TrialConfig
from ranktrial.report.harm import futility
from ranktrial.store.tallies import OUTSIDE_SHARE, SHOWN_AGAIN, SLOW
from ranktrial.trial import Trial, Webhook
from ranktrial.trial.supervisor import ChangeShare, Facts, StopTrial, due
from receiver import SECRET, receiving
from trial.test_share import RAMP

OPTIONS: dict[str, Any] = {"k": 3, "seed": 1, "background": False, "timeout": 60.0, "method": "AB()"}
LIST = ["a", "b", "c"]


def visit(trial: Trial, clock: Clock, number: int, *, of_a: float, of_b: float, seed: int = 1) -> None:
    """Visitors who click on the first result of A's page, or of B's, with these chances."""
    random = np.random.default_rng(seed)
    for i in range(number):
        clock.now += 10
        shown = trial.rank(f"q{i % 20}", LIST, LIST[::-1], f"u{seed}-{i}")
        if shown.fallback is None and random.random() < (of_a if shown.ranking[0] == "a" else of_b):
            trial.click(shown.id, shown.ranking[0], wait=False)
    trial.store.flush()


# --- what is due --------------------------------------------------------------------------------------------------------------


def test_harm_comes_before_growth_and_futility_only_where_it_was_asked_for() -> None:
    ramp = TrialConfig.model_validate({"ramp": RAMP, "share": 0.01})
    facts = Facts(0.0, 0.0)
    assert due(DAY, ramp, facts) == ChangeShare(0.1, "after 1 day at 0.01")
    harm = facts._replace(harm="B is bad.", guard="clicks of B")
    assert due(DAY, ramp, harm) == StopTrial("B is bad.", "the guard on clicks of B")
    futile = facts._replace(futile="B is not better.")
    assert due(DAY, ramp, futile) == ChangeShare(0.1, "after 1 day at 0.01")
    asked = TrialConfig.model_validate({"ramp": RAMP, "share": 0.01, "guards": {"futility": "stop"}})
    assert due(DAY, asked, futile) == StopTrial("B is not better.", "the guard on futility")


@pytest.mark.parametrize(
    ("guards", "problem"),
    [
        ({"clicks": 1.5}, "clicks is 1.5, must be between 0 and 1"),
        ({"level": 1}, "level is 1.0, must be strictly between 0.5 and 1"),
        ({"futility": "perhaps"}, "futility"),
        ({"latency": 5}, "latency"),
    ],
)
def test_what_is_no_guard_is_refused(guards: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        TrialConfig.model_validate({"guards": guards})


def test_the_history_says_what_guards_have_changed() -> None:
    before = TrialConfig.model_validate({})
    assert before.changes(TrialConfig.model_validate({"guards": {"clicks": 0.05}})) == {"guards": "none -> clicks=0.05"}
    assert not before.guards.watch
    assert Guards(clicks=0.0).watch


# --- whole trials -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guards", "name"),
    [
        ({"clicks": 0.05}, "clicks of B"),
        ({"shown": 0.05}, "clicks shown"),
        ({"clicks": 0.3, "shown": 0.1}, "clicks shown"),
    ],
)
def test_a_trial_that_does_harm_stops_by_itself_and_says_so(
    tmp_path: Path, guards: dict[str, float], name: str
) -> None:
    clock = Clock()
    with receiving() as receiver:
        hook = Webhook(receiver.url, SECRET)
        with Trial.create(tmp_path / "t.db", guards=guards, clock=clock, webhooks=[hook], **OPTIONS) as trial:
            looks = 0
            while not trial.stopped:
                visit(trial, clock, 200, of_a=0.6, of_b=0.35, seed=looks)
                trial.supervisor.step()
                trial.watcher.step()
                looks += 1
                assert looks < 30
            clock.now += 1
            trial.supervisor.step()
            shown = trial.rank("q", LIST, LIST[::-1], "u")
            assert (shown.ranking, shown.fallback) == (LIST, "the trial is stopped, A is shown")
            last = trial.history()[-1]
            assert (last.what, last.who, last.detail) == ("stopped", f"the guard on {name}", "(A is shown from now on)")
            assert "is allowed, by a test that is right in 0.99 of all trials" in last.reason
            report = trial.report()
            (guard,) = [one for one in report.guards if one.status == "harm"]
            assert guard.name == name
            assert guard.tolerance < guard.at_least < guard.value
            assert guard.text in str(report)
            assert guard.headline == (f"{guard.text.split(',')[0]}." if name == "clicks of B" else "")
            if guard.headline and report.decision.winner is None:
                assert report.text.headline == guard.headline
        assert receiver.kinds()[-1] == "harm"
        assert receiver.told()[-1][1].startswith(f"trial is stopped (A is shown from now on), by the guard on {name}: ")


@pytest.mark.parametrize("seed", range(6))
def test_a_trial_that_does_no_harm_goes_on(tmp_path: Path, seed: int) -> None:
    """Looked at all the time; B is as good as A, or worse by less than is allowed."""
    clock = Clock()
    guards = {"clicks": 0.1, "shown": 0.05, "fallbacks": 0.1}
    with Trial.create(tmp_path / "t.db", guards=guards, clock=clock, **OPTIONS) as trial:
        for look in range(10):
            visit(trial, clock, 300, of_a=0.5, of_b=0.5 if seed % 2 else 0.47, seed=100 * seed + look)
            trial.supervisor.step()
            trial.watcher.step()
        assert not trial.stopped
        assert {guard.status for guard in trial.report().guards} == {"pass"}


def test_faults_beyond_what_is_allowed_stop_it(tmp_path: Path) -> None:
    clock = Clock()
    with Trial.create(tmp_path / "t.db", guards={"fallbacks": 0.05}, clock=clock, **OPTIONS) as trial:
        visit(trial, clock, 400, of_a=0.5, of_b=0.5)
        for faults, stopped in ((19, False), (16, False), (100, True)):
            trial.store.tally(1, "fallback: the store is overloaded", faults)
            trial.store.tally(1, "fallback: the trial is stopped, A is shown", 1_000)
            clock.now += 60
            trial.supervisor.step()
            trial.watcher.step()
            assert trial.stopped == stopped
        assert trial.history()[-1].reason.startswith("There are at least 1")


def test_slow_calls_beyond_what_is_allowed_stop_it(tmp_path: Path) -> None:
    """A share of all calls: also of those that show a search again, or show A to those who take no part."""
    clock, guards = Clock(), {"latency": 0.05}
    with Trial.create(tmp_path / "t.db", guards=guards, clock=clock, **OPTIONS) as trial:
        visit(trial, clock, 400, of_a=0.5, of_b=0.5)
        visit(trial, clock, 400, of_a=0.5, of_b=0.5)
        made = trial.store.tallies(1)[SLOW]  # by a machine with other things to do
        trial.store.tally(1, SLOW, 40 - made)
        trial.store.tally(1, OUTSIDE_SHARE, 200)
        (guard,) = trial.report().guards
        assert (guard.name, guard.status, guard.value) == ("latency", "pass", 40 / 1_000)
        assert guard.text.startswith(
            "There are about 4.0% of the calls of rank that take more than 5 ms; 5.0% is allowed"
        )
        assert SHOWN_AGAIN not in trial.report().tallies
        for slow, stopped in ((30, False), (100, True)):
            trial.store.tally(1, SLOW, slow)
            clock.now += 60
            trial.supervisor.step()
            trial.watcher.step()
            assert trial.stopped == stopped
        assert trial.history()[-1].who == "the guard on latency"


def test_all_guards_share_one_level(tmp_path: Path) -> None:
    """One-sided ends, each with its part of what the level leaves: the more guards, the later each is sure."""
    everything = {"clicks": 0.05, "shown": 0.05, "fallbacks": 0.05, "latency": 0.05, "level": 0.97}
    cases = [
        ({"fallbacks": 0.05, "level": 0.97}, "AB()", 1),
        ({"fallbacks": 0.05, "latency": 0.05, "level": 0.97}, "AB()", 2),
        ({"clicks": 0.05, "level": 0.97}, "AB()", 2),  # the difference, and the clicks of both
        ({"clicks": 0.05, "shown": 0.05, "level": 0.97}, "AB()", 2),
        (everything, "AB()", 4),
        (everything, "LogOpt()", None),
    ]
    sure = []
    for i, (guards, method, expected) in enumerate(cases):
        options = {**OPTIONS, "method": method, "guards": guards, "clock": Clock()}
        with Trial.create(tmp_path / f"{i}.db", **options) as trial:
            visit(trial, options["clock"], 300, of_a=0.5, of_b=0.5)
            trial.store.tally(1, "fallback: the store is overloaded", 100)
            analysis = trial.learning.analysed("trial", *trial.store.trials.versions("trial")).analysis
            number = ends(analysis)
            assert number == (expected or len(analysis.ladder.results) + 4)
            assert number * (1 - level_of_each(analysis)) / 2 == pytest.approx(0.03)
            sure += [guard.at_least for guard in trial.report().guards if guard.name == "fallbacks"]
    assert len(set(sure)) == len(sure) == 4
    assert sure == sorted(sure, reverse=True)


def test_harm_must_stand_against_hostile_clicks(tmp_path: Path) -> None:
    """A fifth of the visitors click on A's page and never on B's: that stops a trial, unless it is to stand against them."""
    stopped = {}
    for contamination in (None, 0.001, 0.2):
        clock, path = Clock(), tmp_path / f"{contamination}.db"
        options = {**OPTIONS, "guards": {"clicks": 0.05}, "contamination": contamination, "clock": clock}
        with Trial.create(path, **options) as trial:
            for look in range(8):
                visit(trial, clock, 160, of_a=0.5, of_b=0.5, seed=2 * look)
                visit(trial, clock, 40, of_a=1.0, of_b=0.0, seed=2 * look + 1)
                trial.supervisor.step()
                trial.watcher.step()
            stopped[contamination] = trial.stopped
    assert stopped == {None: True, 0.001: True, 0.2: False}


def test_a_person_who_was_quicker_is_not_overruled(tmp_path: Path) -> None:
    clock = Clock()
    with (
        Trial.create(tmp_path / "t.db", guards={"clicks": 0.05}, clock=clock, **OPTIONS) as trial,
        Trial.open(tmp_path / "t.db", background=False) as other,
    ):
        visit(trial, clock, 1_500, of_a=0.6, of_b=0.2)
        made = trial.supervisor._report

        def slow(*of: Any) -> Any:
            report = made(*of)
            other.stop("B it is", show="B", who="ann")
            return report

        trial.supervisor._report = slow
        trial.supervisor.step()
        trial.watcher.step()
        assert (trial.shows, trial.history()[-1].who, len(trial.history())) == ("B", "ann", 2)


def test_nothing_to_be_gained_is_said_and_stops_where_that_was_asked_for(tmp_path: Path) -> None:
    clock = Clock()
    with receiving() as receiver:
        hook = Webhook(receiver.url, SECRET)
        with Trial.create(tmp_path / "t.db", smallest=0.2, clock=clock, webhooks=[hook], **OPTIONS) as trial:
            visit(trial, clock, 1_500, of_a=0.5, of_b=0.35)
            clock.now += 60
            trial.supervisor.step()
            assert trial.report().futile == "B is surely not better by 0.2 clicks per search."
            assert "not better" in receiver.kinds() or "decided" in receiver.kinds()
            assert "B is surely not better by 0.2 clicks per search." in str(trial.report())
            assert not trial.stopped
            Trial.create(tmp_path / "t.db", guards={"futility": "stop"}, clock=clock, **OPTIONS).close()
            clock.now += 60
            trial.supervisor.step()
            trial.watcher.step()
            assert trial.shows == "A"
            assert trial.history()[-1].who == "the guard on futility"


def test_futility_is_as_sure_as_a_guard_and_nothing_where_a_check_fails(tmp_path: Path) -> None:
    clock = Clock()
    with Trial.create(tmp_path / "t.db", guards={"futility": "stop"}, clock=clock, **OPTIONS) as trial:
        visit(trial, clock, 1_500, of_a=0.5, of_b=0.45)
        found = settled(trial.learning.analysed("trial", *trial.store.trials.versions("trial")).analysis, {})
        high = found.decision.interval.high
        said = {}
        for level in (0.95, 0.999):
            config = found.analysis.config.model_copy(update={"guards": Guards(level=level, futility="stop")})
            for above in (0.9, 1.001, 1.3, 3.0):
                asked = replace(found.decision, smallest=high * above)
                analysis = replace(found.analysis, config=config.model_copy(update={"smallest": high * above}))
                said[level, above] = bool(futility(analysis, asked, found.widen))
                assert futility(analysis, replace(asked, failed=("Clicks arrive",)), found.widen) == ""
        assert [above for (level, above), told in said.items() if level == 0.95 and told] == [1.001, 1.3, 3.0]
        assert [above for (level, above), told in said.items() if level == 0.999 and told] == [1.3, 3.0]


def test_guards_of_a_trial_that_was_never_searched_know_nothing(tmp_path: Path) -> None:
    clock = Clock(START)
    guards = {"clicks": 0.05, "shown": 0.05, "fallbacks": 0.05}
    with Trial.create(tmp_path / "t.db", guards=guards, clock=clock, **OPTIONS) as trial:
        trial.supervisor.step()
        trial.watcher.step()
        assert not trial.stopped
        assert [guard.status for guard in trial.report().guards] == ["unknown"] * 3


@pytest.mark.parametrize("method", ["LogOpt()", 'AB(estimate="rank-aware")', "AB(split=0.8)"])
def test_guards_of_other_methods(tmp_path: Path, method: str) -> None:
    """Users click by the position-based model; B has the relevant document last."""
    clock, random = Clock(), np.random.default_rng(3)
    guards = {"clicks": 0.05, "shown": 0.01}
    relevance = {"a": 0.9, "b": 0.2, "c": 0.05}
    with Trial.create(tmp_path / "t.db", guards=guards, clock=clock, **{**OPTIONS, "method": method}) as trial:
        for look in range(20):
            for i in range(300):
                clock.now += 10
                shown = trial.rank(f"q{i % 20}", LIST, LIST[::-1], f"u{look}-{i}", size=3)
                for rank, document in enumerate(shown.ranking):
                    if shown.fallback is None and random.random() < relevance[document] / (1 + rank):
                        trial.click(shown.id, document, wait=False)
            trial.store.flush()
            trial.watcher.step()
            trial.supervisor.step()
        trial.watcher.step()
        assert trial.history()[-1].who.startswith("the guard on clicks")
        by_name = {guard.name: guard for guard in trial.report().guards}
        assert by_name["clicks of B"].status == "harm"
        truth = 1 - (0.05 + 0.1 + 0.3) / (0.9 + 0.1 + 0.05 / 3)
        assert by_name["clicks of B"].at_least < truth
        assert abs(by_name["clicks of B"].value - truth) < 0.15
