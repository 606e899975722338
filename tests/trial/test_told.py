"""Reports for people who decide: names, per cent, clicks a day, dates, guardrails in plain words."""

from __future__ import annotations

import importlib
import json
import pkgutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ranktrial.analysis import guardrails as checks
from ranktrial.analysis.answers import settled
from ranktrial.analysis.decision import lift, turned
from ranktrial.analysis.guardrails.status import GROUPS, WORDS, Guardrail
from ranktrial.report.schema import Report
from ranktrial.texts import shown
from ranktrial.trial import Trial
from simulated_trial import World, minutes

WORLD = World.make(queries=20, k=5)
NAMES = ("current", "with popularity")
BETTER_B = World(WORLD.zeta, WORLD.b, WORLD.a, WORLD.theta)


def trial_of(path: Path, **options: Any) -> Trial:
    options = {"k": 5, "seed": 1, "background": False, "clock": minutes(), "names": NAMES, **options}
    return Trial.create(path / "t.db", **options)


def run(path: Path, world: World, n: int, **options: Any) -> Report:
    with trial_of(path, **options) as trial:
        world.run(trial, n, seed=1)
        return trial.report(query_units=1)


@pytest.mark.parametrize("method", ["LogOpt()", "AB(split=0.3)"])
@pytest.mark.parametrize("winner", ["A", "B"])
def test_the_winner_is_named_and_every_number_is_of_b_against_a(tmp_path: Path, method: str, winner: str) -> None:
    world = WORLD if winner == "A" else BETTER_B
    report = run(tmp_path, world, 4_000, method=method)
    a, b = "A (current)", "B (with popularity)"
    more, sign, step = ("fewer", "-", f"Keep {a}") if winner == "A" else ("more", "+", f"Ship {b}")
    assert report.winner == winner
    assert report.text.headline.startswith(f"{b} gets ")
    assert report.text.headline.endswith(f"% {more} clicks than {a}.")
    assert report.text.details.startswith(f"B against A: {sign}0.")
    assert report.verdict == f"{report.text.headline} {report.text.details}"
    shares = report.decision.lift.interval
    truth = world.ctr(world.b) / world.ctr(world.a) - 1
    assert shares.low < truth < shares.high
    assert 0 not in shares
    assert report.lift.startswith(f"{b} against {a}: {sign}")
    assert report.decision.state == "decided"
    assert report.decision.forecast.remaining == 0
    assert report.text.next == f"{step}: stop the trial and show {winner} from now on."
    for line in (report.about, report.verdict, *report.lines):
        assert line in str(report)
    low, high = report.interval
    assert (low > 0) == (winner == "B")
    assert (high < 0) == (winner == "A")


def test_the_interval_in_per_cent_leaves_out_zero_when_that_of_the_difference_does(tmp_path: Path) -> None:
    with trial_of(tmp_path) as trial:
        sides = set()
        for part in range(6):
            WORLD.run(trial, 200, seed=part, start=200 * part)
            report = trial.report()
            if np.isfinite(report.decision.lift.interval.low):
                assert (0 in report.decision.lift.interval) == (0 in report.interval)
                sides.add(0 in report.interval)
    assert sides == {True, False}


@pytest.mark.parametrize("method", ["LogOpt()", "AB(split=0.3)"])
def test_of_either_ranker_the_lift_is_the_inverse_of_the_others(tmp_path: Path, method: str) -> None:
    with trial_of(tmp_path, method=method) as trial:
        WORLD.run(trial, 2_000, seed=1)
        analysis = trial.learning.analysed(trial.name, trial.state.version).analysis
    decision, both = settled(analysis, {}).decision, analysis.clicks_of_both
    of_b = decision.lift
    of_a = lift(turned(decision.interval), -decision.difference, both, decision.level)
    assert (1 + of_a.share) * (1 + of_b.share) == pytest.approx(1)
    assert (1 + of_a.interval.low) * (1 + of_b.interval.high) == pytest.approx(1)
    assert (1 + of_a.interval.high) * (1 + of_b.interval.low) == pytest.approx(1)


def test_clicks_a_day_are_those_of_the_trials_own_traffic(tmp_path: Path) -> None:
    with trial_of(tmp_path) as trial:
        WORLD.run(trial, 500, seed=1)
        early = trial.report()
        assert early.pace.days < 1
        assert np.isnan(early.pace.searches_a_day)  # a morning says little of a day
        assert early.lift.startswith("B (with popularity) against A (current): ")
        assert "a day" not in early.lift
        WORLD.run(trial, 1_500, seed=2, start=500)
        report = trial.report()
    log_days = (report.pace.latest - report.pace.began) / 86_400
    assert report.pace.days == log_days > 1
    a_day = 2_000 / log_days
    assert report.pace.searches_a_day == pytest.approx(a_day)
    assert report.units == 2_000
    low, high = (f"{end * a_day:+,.0f}" for end in report.interval)
    assert (
        f"; on {a_day:,.0f} searches a day {report.difference * a_day:+,.0f} clicks ({low} to {high})." in report.lift
    )
    assert report.pace.text.startswith("Began 2026-11-16 12:0")
    assert f"2,000 searches of 2,000 visitors in {log_days:.1f} days, {a_day:,.0f} a day." in report.pace.text


def test_points_of_the_band_have_the_time_at_which_their_last_unit_came(tmp_path: Path) -> None:
    with trial_of(tmp_path) as trial:
        WORLD.run(trial, 1_000, seed=1, users=300)
        report, log = trial.report(), trial.log()
    first: dict[int, float] = {}
    for unit, time in zip(log.unit.tolist(), log.time.tolist()):
        first.setdefault(unit, time / 1e6)
    came = list(first.values())
    assert [point.time for point in report.band] == [came[point.units - 1] for point in report.band]
    assert report.units == len(first)


def test_nothing_is_decided_while_a_guardrail_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a winner, nor the word, beside "not to be trusted"."""
    with trial_of(tmp_path) as trial:
        BETTER_B.run(trial, 4_000, seed=1)
        good = trial.report()
        every = checks.guardrails

        def one_fails(*given: Any) -> tuple[Guardrail, ...]:
            found = every(*given)
            return tuple(c.model_copy(update={"status": "fail"}) if c.name == "duplicate clicks" else c for c in found)

        monkeypatch.setattr("ranktrial.analysis.answers.guardrails", one_fails)
        report = trial.report()
    assert (good.winner, good.decision.state, good.decision.forecast.remaining) == ("B", "decided", 0)
    assert (report.winner, report.decision.state) == (None, "not trusted")
    failing = next(check for check in report.guardrails if check.name == "duplicate clicks")
    assert report.decision.failed == (failing.title,)
    assert report.text.headline == f'Do not rely on these numbers: "{failing.title}" fails.'
    assert report.text.next == failing.remedy
    assert np.isnan(report.decision.forecast.remaining)
    said = " ".join([report.about, report.verdict, *report.lines]).lower()
    assert "decided" not in said
    assert "more clicks than" not in said
    assert "ship" not in said


def test_every_guardrail_has_plain_words(tmp_path: Path) -> None:
    report = run(tmp_path, WORLD, 150)
    names = [check.name for check in report.guardrails]
    for module in pkgutil.iter_modules(checks.__path__, f"{checks.__name__}."):
        importlib.import_module(module.name)
    forgotten = [one.name for one in WORDS.values() if one.name not in names]
    assert forgotten == [], "in no report: name its function in guardrails()"
    assert {check.group for check in report.guardrails} == set(GROUPS)
    titles = {one.name: one.title for one in WORDS.values()}
    assert all(check.title == titles[check.name] for check in report.guardrails)
    for check in report.guardrails:
        assert bool(check.cause) == bool(check.remedy) == (check.status in ("warn", "fail"))
    told = [check.name for _, open_, passing in report.grouped() for check in (*open_, *passing)]
    assert sorted(told) == sorted(names)
    for _, open_, passing in report.grouped():
        statuses = [check.status for check in open_]
        assert statuses == sorted(statuses, key=("fail", "warn", "unknown").index)
        assert {check.status for check in passing} <= {"pass"}
    warned = next(check for check in report.guardrails if check.status == "warn")
    assert f"{warned.title} ({warned.name}): {warned.text} {warned.cause} {warned.remedy}" in str(report)


def test_queries_of_strangers_are_cut_and_turn_nothing(tmp_path: Path) -> None:
    turned, long = "shoes \u202egnp.exe\u2066\u200f", "x" * 500
    with trial_of(tmp_path) as trial:
        for number in range(100):
            for query in (turned, long):
                hit = trial.rank(query, ["x", "y"], ["y", "x"], unit=f"u{number}", wait=True)
                trial.click(hit.id, hit.ranking[0])
        found = {one.query: one.label for one in trial.report(query_units=1).contributors}
    assert found[turned] == "shoes gnp.exe"
    assert found[long] == "x" * 79 + "…"
    assert all(label == shown(query) for query, label in found.items())


def test_an_empty_trial_is_plain_values(tmp_path: Path) -> None:
    with trial_of(tmp_path) as trial:
        report = trial.report()
    told = report.to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert (report.text.headline, report.text.details, report.winner) == ("No searches yet.", "", None)
    assert (told["pace"]["began"], told["decision"]["lift"]["share"], told["units"]) == (None, None, 0)
    assert "nan" not in str(report)


@pytest.mark.slow
def test_a_difference_that_changed_is_told_for_the_time_since(tmp_path: Path) -> None:
    with trial_of(tmp_path) as trial:
        WORLD.run(trial, 3_000, seed=1)
        BETTER_B.run(trial, 6_000, seed=2, start=3_000)
        report = trial.report()
        analysis = trial.learning.analysed(trial.name, trial.state.version).analysis
    assert analysis.changed
    low, high = analysis.drift.since
    allowed = report.decision.allowance
    assert report.interval == pytest.approx((low - allowed, high + allowed))
    assert (0 in report.decision.lift.interval) == (0 in report.interval)
    whole = next(one for one in report.estimates if one.name == report.decision.estimator)
    assert f"Over all of the trial it is {whole.difference:+.4f}." in report.verdict
    unchanged = replace(analysis)
    unchanged.__dict__["drift"] = replace(analysis.drift, status="pass")
    assert not unchanged.changed
    assert settled(unchanged, {}).decision.interval != report.interval
