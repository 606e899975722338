"""Estimates of a trial's log: those of a log from arrays, and near a known truth."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ranktrial.analysis import estimate, evidence, looks
from ranktrial.analysis.analyse import analyse
from ranktrial.analysis.ladder import LEAST_CLICKS, POSITION_BASED
from ranktrial.arrays import FloatArray
from ranktrial.config import TrialConfig
from ranktrial.interval import Interval
from ranktrial.log import Log
from ranktrial.log.reader import LogReader
from ranktrial.methods import LogOpt
from ranktrial.position_bias import Counts
from ranktrial.rankings import Mixture, Pair, Rankings
from ranktrial.trial import Trial
from ranktrial.users import rank_decay
from simulated_trial import Ticks, World

WORLD = World.make()


def trial_of(path: Path, **options: Any) -> Trial:
    quiet = {"k": 5, "seed": 1, "background": False, "timeout": 60.0, "clock": Ticks()}
    return Trial.create(path / "t.db", **{**quiet, **options})


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """1,500 impressions with a change of design on the way, one list empty, one short."""
    a, b = dict(WORLD.a), dict(WORLD.b)
    a["q0"], b["q1"], a["q2"] = [], b["q1"][:2], a["q2"][:1]
    world = World(WORLD.zeta, a, b, WORLD.theta)
    with trial_of(tmp_path_factory.mktemp("log")) as trial:
        world.run(trial, 700, seed=1)
        trial.update()
        world.run(trial, 800, seed=2, start=700)
        return trial.log()


def as_pair(log: Log, theta: FloatArray) -> tuple[Pair, Mixture]:
    """Every design as a query of its own."""
    lists = []
    for ranks in (log.rank_a, log.rank_b):
        documents, offsets = [], [0]
        for start, end in zip(log.slot_offsets, log.slot_offsets[1:]):
            inside = np.flatnonzero(ranks[start:end] < log.k)
            documents += (start + inside[np.argsort(ranks[start:end][inside])]).tolist()
            offsets.append(len(documents))
        lists.append(Rankings(np.array(offsets), np.array(documents, np.int32)))
    pair = Pair(lists[0], lists[1], log.slot_offsets, log.k, theta=theta)
    return pair, Mixture(log.rankings.astype(np.int32), log.weights, log.row_offsets, log.n_slots)


def test_a_trials_log_is_valued_as_a_log_from_arrays(log: Log) -> None:
    """The same impressions through both constructors: every estimate is the same, impression by impression."""
    theta = rank_decay(5, 0.8)
    pair, mixture = as_pair(log, theta)
    filled = log.rankings[log.row][:, 0] >= 0  # a page without results, as A's on q0, cannot be given as an array
    assert 0 < (~filled).sum() < 20
    part = log.take(filled)
    copy = Log.of(pair, mixture, part.rankings[part.row], part.clicks)
    for estimator in ("ips", "constant"):
        x = [estimate(each, theta=theta, estimator=estimator, cross_fit="past").x for each in (part, copy)]
        np.testing.assert_allclose(x[0], x[1], atol=1e-12)
    x = [estimate(each, theta=theta, estimator="rank-aware", prediction=0.3).x for each in (part, copy)]
    np.testing.assert_allclose(x[0], x[1], atol=1e-12)


def test_a_unit_that_comes_again_keeps_the_prediction_from_before_it_came(log: Log) -> None:
    """First and last impression of a query; those between must not be in the prediction for either."""
    units = np.arange(len(log))
    units[-1] = 0
    alone, again = (
        estimate(each, theta=rank_decay(5), estimator="constant", cross_fit="past").x
        for each in (log, replace(log, unit=units))
    )
    np.testing.assert_array_equal(again[:-1], alone[:-1])
    short = log.take(np.array([len(log) - 1]))  # valued with the first prediction, as in a log where it stands alone
    assert again[-1] == estimate(short, theta=rank_decay(5), estimator="constant", cross_fit="past").x[0] != alone[-1]


def test_counts_are_those_of_going_through_the_log(log: Log) -> None:
    total = Counts.merged(log.parts())
    shown, clicked, expected = (np.zeros((log.n_slots, 5)) for _ in range(3))
    for i in range(len(log)):
        for rank, slot in enumerate(log.rankings[log.row][i]):
            if slot >= 0:
                shown[slot, rank] += 1
                clicked[slot, rank] += log.clicks[i, rank]
        for row in range(log.row_offsets[log.design[i]], log.row_offsets[log.design[i] + 1]):
            for rank, slot in enumerate(log.rankings[row]):
                if slot >= 0:
                    expected[slot, rank] += log.weights[row]
    assert total.documents.tolist() == np.flatnonzero(clicked.any(1)).tolist()
    assert total.expected is not None
    np.testing.assert_array_equal(total.shown, shown[total.documents])
    np.testing.assert_array_equal(total.clicked, clicked[total.documents])
    np.testing.assert_allclose(total.expected, expected[total.documents])
    np.testing.assert_array_equal(evidence(log).shows, shown.sum(0))
    everything = log.parts(1, clicked_only=False)[0]
    np.testing.assert_array_equal(everything.shown, shown[everything.documents])
    assert everything.expected is not None
    np.testing.assert_allclose(everything.expected, expected[everything.documents])


@pytest.mark.parametrize("seed", [1, 2])
def test_delta_and_theta_are_inside_their_intervals(tmp_path: Path, seed: int) -> None:
    with trial_of(tmp_path, seed=seed, method=LogOpt(schedule=(100, 500, 2000))) as trial:
        for part in range(5):
            WORLD.run(trial, 600, seed=100 * seed + part, start=600 * part)
            trial.watcher.step()
        assert [bias.impressions for bias in trial.store.biases.of(1)] == [0, 500, 2000]
        report = trial.report()
    assert report.impressions == 3000
    low, high = report.interval
    assert low < -WORLD.delta < high
    assert high < 0
    said = r"B gets \d+% fewer clicks than A\. B against A: -0\.\d{4} clicks per search "
    assert re.match(said, report.verdict)
    assert report.theta.fitted
    assert report.theta.inflation > 1
    errors = np.array(report.theta.standard_error)
    assert np.all(np.abs(np.array(report.theta.theta) - WORLD.theta) <= 4 * errors)
    assert errors.max() < 0.1
    assert {g.name: g.status for g in report.guardrails if g.status == "fail"} == {}


@pytest.mark.slow
def test_ab_needs_no_theta_and_more_impressions(tmp_path: Path) -> None:
    with trial_of(tmp_path, method='AB(split=0.4, estimate="paper")') as trial:
        WORLD.run(trial, 3000, seed=1)
        plain = trial.report()
    with trial_of(tmp_path, method="LogOpt()", new_version=True) as trial:
        WORLD.run(trial, 3000, seed=1)
        designed = trial.report()
    for report in (plain, designed):
        assert -WORLD.delta in report.interval
    assert [part.version for part in designed.parts] == [1, 2]
    assert designed.parts[0].interval == plain.interval
    width = [high - low for low, high in (plain.interval, designed.interval)]
    assert width[0] > 1.2 * width[1]
    assert not plain.theta.fitted


def test_what_cannot_be_told_keeps_the_old_theta_and_says_so(tmp_path: Path) -> None:
    with trial_of(tmp_path) as trial:
        world = World(WORLD.zeta, WORLD.a, WORLD.a, WORLD.theta)  # one ranker: nothing ever moves
        world.run(trial, 300, seed=1)
        bias = trial.update()
        report = trial.report()
    assert bias.theta == tuple(rank_decay(5).tolist())
    assert not bias.fitted
    assert "cannot be told" in bias.note
    assert report.theta.theta == bias.theta
    assert {g.name: g.status for g in report.guardrails}["position bias"] == "warn"
    assert {one.difference for one in report.estimates if not np.isnan(one.difference)} == {0}


def test_a_known_theta_is_never_refitted(tmp_path: Path) -> None:
    with trial_of(tmp_path, method=LogOpt(bias="known"), theta=tuple(WORLD.theta.tolist())) as trial:
        WORLD.run(trial, 800, seed=1)
        assert "taken as known" in trial.update().note
        report = trial.report()
    assert report.theta.theta == tuple(WORLD.theta.tolist())
    assert report.theta.inflation == 1
    assert -WORLD.delta in report.interval


@pytest.mark.slow
def test_users_who_come_often_are_the_units(tmp_path: Path) -> None:
    with trial_of(tmp_path) as trial:
        WORLD.run(trial, 1500, seed=1, users=60)
        log, config = trial.log(), trial.config
    by_user = analyse(log, config, config.first_beliefs)
    assert by_user.estimate.units == 60
    by_impression = estimate(log, theta=by_user.fit, estimator="constant", cross_fit="past", independent="impressions")
    assert by_impression.units == len(log)
    assert not np.isfinite(by_user.interval[0])  # 60 units are too few to say anything


def test_the_report_is_plain_values(tmp_path: Path) -> None:
    with trial_of(tmp_path, smallest=0.5) as trial:
        empty = trial.report()
        assert empty.verdict == "No searches yet."
        json.dumps(empty.to_dict(), allow_nan=False)
        WORLD.run(trial, 60, seed=1)
        early = trial.report()
        assert early.verdict == f"Too early to say after 60 searches and {early.clicks} clicks."
        WORLD.run(trial, 440, seed=2, start=60)
        report = trial.report()
        trial.stop()
    told = report.to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert [point["units"] for point in told["band"]][-1] == 500
    assert told["band"][0]["units"] >= 100
    assert all(np.isfinite([point.difference, point.low, point.high]).all() for point in report.band)
    last = report.band[-1]
    assert (last.difference, last.low, last.high) == pytest.approx((report.difference, *report.interval))
    assert len(report.contributors) == 10
    assert abs(report.contributors[0].contribution) >= abs(report.contributors[-1].contribution)
    assert report.verdict.startswith(("A and B differ by less than 0.5 clicks per search.", "B gets "))
    assert report.decision.state in ("alike", "decided")
    assert report.decision.forecast.remaining == 0
    assert report.ctr == report.clicks / 500


def test_contributions_add_up(tmp_path: Path) -> None:
    small = World.make(queries=6)
    with trial_of(tmp_path) as trial:
        small.run(trial, 300, seed=1)
        report = trial.report()
    assert sum(one.contribution for one in report.contributors) == pytest.approx(report.difference)
    assert sum(one.impressions for one in report.contributors) == 300
    assert sum(one.clicks for one in report.contributors) == report.clicks


def test_queries_of_few_units_are_not_named(tmp_path: Path) -> None:
    """They are one row with all they did; a query that one unit asks many times is such a query."""
    documents = [f"d{number}" for number in range(5)]
    with trial_of(tmp_path) as trial:
        asked = {"hats": 10, "my name is ann": 1, "caps": 9}
        for query, units in asked.items():
            for number in range(40):
                a, b = [*documents[:4], f"{query} {number}"], documents[::-1]
                shown = trial.rank(query, a, b, unit=f"{query} {number % units}", wait=True)
                trial.click(shown.id, shown.ranking[0])
        report, all_named = trial.report(), trial.report(query_units=0)
        two = trial.report(query_units=2)
    rare = "2 queries, each of fewer than 10 visitors"
    assert {(one.query, one.impressions, one.rare) for one in report.contributors} == {("hats", 40, 0), (rare, 80, 2)}
    assert not any("my name" in text for text in (json.dumps(report.to_dict()), str(report)))
    assert {one.query for one in all_named.contributors} == set(asked)
    assert {one.rare for one in two.contributors} == {0, 1}
    difference = [one.difference for one in report.estimates if not np.isnan(one.difference)][-1]
    for one in (report, all_named, two):
        assert sum(row.contribution for row in one.contributors) == pytest.approx(difference)
        assert sum(row.clicks for row in one.contributors) == report.clicks


@pytest.mark.slow
def test_the_forecast_says_when_the_interval_will_be_narrow_enough(tmp_path: Path) -> None:
    close = World.make(noise=0.02)
    with trial_of(tmp_path, smallest=0.05, method=LogOpt(bias="known"), theta=tuple(close.theta.tolist())) as trial:
        close.run(trial, 400, seed=1)
        early = trial.report()
        forecast = early.decision.forecast
        assert forecast.target == pytest.approx(max(0.05, abs(early.difference)))
        assert forecast.remaining == pytest.approx(forecast.searches - 400)
        assert early.days_left == pytest.approx(forecast.remaining / 400 * early.pace.days)
        assert f"about {float(f'{forecast.remaining:.2g}'):,.0f} more searches" in early.text.next
        close.run(trial, int(1.3 * forecast.remaining), seed=2, start=400)
        report = trial.report()
    half = (report.interval[1] - report.interval[0]) / 2
    assert half < 1.1 * forecast.target


def test_the_log_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with trial_of(tmp_path) as trial:
        WORLD.run(trial, 50, seed=1)
        first = trial.log()
        assert trial.log() is first
        read: list[int] = []

        def counted(blocks: Any, *arguments: Any) -> list[Any]:
            got = list(blocks(*arguments))
            read.append(sum(map(len, got)))
            return got

        monkeypatch.setattr(trial.store, "blocks", partial(counted, trial.store.blocks))
        WORLD.run(trial, 7, seed=2, start=50)
        assert len(trial.log()) == 57
        assert 7 <= max(read) <= 20


def test_a_reading_that_fails_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with trial_of(tmp_path) as trial:
        WORLD.run(trial, 50, seed=1)
        trial.log()
        WORLD.run(trial, 7, seed=2, start=50)

        def broken(*_: object) -> None:
            raise OSError("no disk")

        with monkeypatch.context() as patch:
            patch.setattr(LogReader, "_add_clicks", broken)
            with pytest.raises(OSError, match="no disk"):
                trial.log()
        again = trial.log()
        assert len(again) == 57
        assert again.clicks.sum() == Trial.open(trial.store, background=False).log().clicks.sum()


def test_what_came_before_enough_clicks_does_not_narrow_the_interval(log: Log) -> None:
    """Values without clicks hardly vary: an interval from them would be far too narrow, and would stay."""
    first = np.flatnonzero(log.clicks.any(1))[400]
    silent = replace(log, clicks=log.clicks & (np.arange(len(log)) >= first)[:, None])
    config = TrialConfig.model_validate({"k": 5, "method": LogOpt(bias="known")})
    analysis = analyse(silent, config, config.first_beliefs)
    points = analysis.points((POSITION_BASED,), Interval(0.0, 0.0))
    enough = np.searchsorted(np.cumsum(silent.clicks.sum(1)), LEAST_CLICKS) + 1
    assert points[0].units > first
    assert points[0].units == min(units for units in looks(len(silent)) if units >= enough)
    assert points[-1].units == len(silent)
