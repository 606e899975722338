"""Each guardrail passes when all is well and raises its voice when what it watches goes wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ranktrial.arrays import BoolArray
from ranktrial.inference.log import Log
from ranktrial.live import Trial
from ranktrial.live import guardrails as checks
from ranktrial.live.analysis import Analysis, analyse
from ranktrial.live.schemas import TrialConfig
from ranktrial.methods import LogOpt
from simulated_trial import Ticks, World

WORLD = World.make(queries=15)
KNOWN: dict[str, Any] = {"theta": tuple(WORLD.theta.tolist())}
METHOD = LogOpt(bias="known", holdback=0.3)


def logged(
    path: Path, impressions: int, *, once: bool = False, world: World = WORLD, **options: Any
) -> tuple[Log, TrialConfig]:
    quiet = {"k": 5, "seed": 1, "background": False, "timeout": 60.0, "clock": Ticks()}
    with Trial.create(path / "t.db", **{**quiet, **options}) as trial:
        world.run(trial, impressions, seed=1, once=once)
        return trial.log(), trial.config


def analysed(log: Log, config: TrialConfig) -> Analysis:
    return analyse(log, config, config.first_beliefs)


def some(log: Log, kept: BoolArray) -> Log:
    """The log without some of its impressions."""
    columns = {name: getattr(log, name)[kept] for name in ("design", "row", "unit", "time", "clicks")}
    return replace(log, **columns)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Log, TrialConfig]:
    return logged(tmp_path_factory.mktemp("good"), 3000, method=METHOD, **KNOWN)


def test_all_pass_when_all_is_well(good: tuple[Log, TrialConfig]) -> None:
    told = checks.guardrails(analysed(*good), {}, [200_000] * 100)
    assert [(g.name, g.status) for g in told if g.status == "fail"] == []
    by_name = {g.name: g for g in told}
    for name in ("sample ratio", "placement calibration", "agreement with the hold-back", "position-based clicking"):
        assert by_name[name].status == "pass"
        assert np.isfinite(by_name[name].value)
    assert "less than 0.20 ms" in by_name["latency"].text


def test_nothing_is_said_before_there_is_anything(tmp_path: Path) -> None:
    told = checks.guardrails(analysed(*logged(tmp_path, 3)), {}, [])
    assert {g.status for g in told} <= {"pass", "warn"}
    assert checks.guardrails(analysed(*logged(tmp_path / "..", 0)), {}, [])


def test_sample_ratio_when_some_of_one_arm_get_lost(good: tuple[Log, TrialConfig]) -> None:
    log, config = good
    lost = (log.arm > 0) & (np.arange(len(log)) % 3 == 0)
    assert checks.sample_ratio(analysed(some(log, ~lost), config)).status == "fail"


def test_calibration_when_some_rankings_are_shown_too_rarely(good: tuple[Log, TrialConfig]) -> None:
    log, config = good
    first = log.row == log.row_offsets[log.design]
    lost = first & (np.arange(len(log)) % 2 == 0)
    assert checks.calibration(analysed(some(log, ~lost), config)).status == "fail"


def test_calibration_statistic_has_its_law(good: tuple[Log, TrialConfig]) -> None:
    """Rows drawn anew from the weights: p is uniform."""
    log, config = good
    random = np.random.default_rng(5)
    cumulative = np.cumsum(log.weights)
    start = np.append(0, cumulative)[log.row_offsets[log.design]]
    ps = []
    for _ in range(200):
        row = np.searchsorted(cumulative, start + random.random(len(log)) * (1 - 1e-9), side="right")
        again = replace(log, row=np.clip(row, log.row_offsets[log.design], log.row_offsets[log.design + 1] - 1))
        ps.append(checks.calibration(Analysis(again, config, *[None] * 4)).value)  # type: ignore[arg-type]
    assert abs(np.mean(ps) - 0.5) < 5 * np.sqrt(1 / 12 / 200)
    assert np.mean(np.array(ps) < 0.1) < 0.1 + 5 * np.sqrt(0.09 / 200)


def test_coverage_when_a_document_cannot_be_seen(good: tuple[Log, TrialConfig]) -> None:
    log, config = good
    only_a = np.zeros_like(log.weights)
    only_a[log.row_offsets[1:] - 2] = 1
    blind = replace(log, weights=only_a)
    told = checks.coverage(analysed(blind, config))
    assert told.status == "fail"
    by_a, by_b = blind.list_exposures(WORLD.theta)
    assert told.value == ((by_a != by_b) & (blind.exposure(WORLD.theta) == 0)).sum() > 0
    assert "query 'q" in told.text


def test_few_clicks_are_few(good: tuple[Log, TrialConfig]) -> None:
    log, config = good
    assert checks.effective_clicks(analysed(some(log, np.arange(len(log)) < 50), config)).status == "warn"
    assert checks.effective_clicks(analysed(log, config)).status == "pass"


def test_largest_weight() -> None:
    assert [checks._above(w, 20, 200) for w in (2.0, 30.0, 300.0)] == ["pass", "warn", "fail"]


def test_holdback_when_clicks_depend_on_the_company(good: tuple[Log, TrialConfig]) -> None:
    """Results that both show at one rank are clicked on A's page and not on B's: no click model of single results sees it."""
    log, config = good
    same = np.append(log.rank_a == log.rank_b, False)[log.rankings[log.row]]
    clicks = np.where(log.arm[:, None] > 0, log.clicks | same, log.clicks & ~same)
    told = checks.holdback(analysed(replace(log, clicks=clicks), config))
    assert told.status == "fail"
    assert told.value > 4
    assert checks.holdback(analysed(log, config)).status == "pass"


@pytest.mark.slow
def test_holdback_holds_its_level_when_theta_is_fitted_to_the_same_clicks(good: tuple[Log, TrialConfig]) -> None:
    """Clicks drawn anew on the same displays: the statistic has the law that its p comes from."""
    log, config = good
    fitted = config.model_copy(update={"method": "LogOpt(holdback=0.3)"})
    names = [(str(log.queries[query]), str(document)) for query, document in zip(log.document_query, log.documents)]
    zeta = np.array([WORLD.zeta[query][document] for query, document in names])
    shown = log.rankings[log.row]
    chance = WORLD.theta * np.where(shown >= 0, zeta[log.document[shown]], 0.0)
    random, away = np.random.default_rng(3), []
    for _ in range(100):
        told = analysed(replace(log, clicks=random.random(chance.shape) < chance), fitted)
        assert told.fit is not None
        away.append(checks.holdback(told).value)
    spread = np.mean(np.square(away)) / (19 / 17)  # of t with 19 degrees of freedom
    assert abs(spread - 1) < 5 * np.sqrt(2.5 / 100)
    assert abs(np.mean(away)) < 5 / np.sqrt(100)


def test_independence_when_people_leave_after_a_click(tmp_path: Path) -> None:
    told = checks.independence(analysed(*logged(tmp_path, 2000, once=True, **KNOWN)))
    assert told.status == "fail"
    assert told.value < -5


@pytest.mark.slow
def test_page_when_the_trial_costs_clicks(tmp_path: Path) -> None:
    options = {"world": World.make(), **KNOWN}
    blind = checks.page(analysed(*logged(tmp_path, 1500, method=LogOpt(bias="known", floor=0, holdback=0), **options)))
    assert blind.status == "warn"
    assert "cannot be told" in blind.text
    costly = checks.page(analysed(*logged(tmp_path, 1500, method=LogOpt(bias="known", holdback=0), **options)))
    assert costly.status == "warn"
    assert costly.value > 0.05
    kind = checks.page(analysed(*logged(tmp_path, 1500, method=LogOpt(bias="known", floor=1, holdback=0), **options)))
    assert kind.value < costly.value


def test_clicks_and_faults_by_their_share(good: tuple[Log, TrialConfig]) -> None:
    analysis = analysed(*good)
    counted = int(analysis.log.clicks.sum())
    for bad, status in ((0, "pass"), (int(0.02 * counted), "warn"), (int(0.1 * counted), "fail")):
        assert checks.clicks(analysis, {"clicks without impression": bad}).status == status
    assert checks.clicks(analysis, {"duplicate clicks": counted}).status == "pass"
    for bad, status in ((1, "pass"), (10, "warn"), (100, "fail")):
        assert checks.faults(analysis, {"fallback: bad input": bad, "failed writes": bad}).status == status
    assert checks.faults(analysis, {"fallback: the trial is stopped": 10_000}).status == "pass"


@pytest.mark.parametrize(("slow", "status"), [(29, "pass"), (31, "warn")])
def test_slow_calls_of_all_processes_count(good: tuple[Log, TrialConfig], slow: int, status: str) -> None:
    told = checks.latency(analysed(*good), {checks.SLOW: slow}, [])
    assert (told.status, told.value) == (status, slow / 3000)


def test_clicks_that_do_not_arrive(good: tuple[Log, TrialConfig]) -> None:
    log, config = good
    silent = replace(log, clicks=np.zeros_like(log.clicks))
    for impressions, status in ((50, "pass"), (150, "warn"), (3000, "fail")):
        analysis = analysed(some(silent, np.arange(len(log)) < impressions), config)
        assert (analysis.interval, np.isnan(analysis.delta)) == ((-np.inf, np.inf), True)
        assert checks.clicks(analysis, {}).status == status


@pytest.mark.parametrize(
    ("tallies", "few", "many"),
    [
        ({"late clicks": 3000}, "warn", "warn"),
        ({checks.NO_TRIAL: 3000}, "warn", "warn"),
        ({"clicks on what was not shown": 3000}, "warn", "fail"),
        ({"late clicks": 1}, "pass", "pass"),
    ],
)
def test_clicks_that_are_lost(good: tuple[Log, TrialConfig], tallies: dict[str, int], few: str, many: str) -> None:
    log, config = good
    assert checks.clicks(analysed(log, config), tallies).status == many
    assert checks.clicks(analysed(some(log, np.arange(len(log)) < 99), config), tallies).status == few


def test_theta_that_can_no_longer_be_told_is_a_warning(good: tuple[Log, TrialConfig]) -> None:
    log, config = good
    known = config.model_copy(update={"method": "LogOpt(holdback=0.3)"})
    told = checks.bias(analyse(some(log, np.arange(len(log)) < 30), known, replace(config.first_beliefs, fitted=True)))
    assert told.status == "warn"
    assert told.text.startswith("From fewer clicks")


def test_a_unit_that_asks_again_with_other_lists_is_one_draw(tmp_path: Path) -> None:
    """The same luck five times is no sign that luck was not fair."""
    options: dict[str, Any] = {
        "k": 5,
        "seed": 3,
        "background": False,
        "timeout": 60.0,
        "clock": Ticks(),
        "method": LogOpt(holdback=0.4),
    }
    with Trial.create(tmp_path / "t.db", **options) as trial:
        for unit in range(300):
            for last in range(5):
                trial.rank("q", ["a", "b", "c", f"x{last}"], ["c", "d", "a", f"x{last}"], unit=f"u{unit}")
        trial.store.flush()
        log = trial.log()
    assert len(log) == 1500
    np.testing.assert_array_equal(log.drawn, np.arange(0, 1500, 5))
    analysis = analysed(log, trial.config)
    assert checks.sample_ratio(analysis).status == "pass"
    assert checks.calibration(analysis).status == "pass"


def test_one_rank_needs_no_position_bias(tmp_path: Path) -> None:
    told = checks.bias(analysed(*logged(tmp_path, 200, k=1, world=World.make(queries=5, k=1))))
    assert (told.status, told.text) == ("pass", "One rank has none.")
