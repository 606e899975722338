"""Each guardrail passes when all is well and raises its voice when what it watches goes wrong."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hand_made import agrees, result
from ranktrial.analysis.analyse import Analysis, analyse
from ranktrial.analysis.answers import Settled, settled, words
from ranktrial.analysis.decision import turned
from ranktrial.analysis.guardrails import click_model, draws, estimates, guardrails, over_time, pages, visitors
from ranktrial.analysis.guardrails.status import Found, Guardrail, above, guardrail
from ranktrial.analysis.ladder import AB_TRAFFIC, DIRECT, POSITION_BASED, Ladder
from ranktrial.analysis.verdict import percent
from ranktrial.arrays import BoolArray
from ranktrial.config import TrialConfig
from ranktrial.interval import Interval
from ranktrial.log.log import Log
from ranktrial.log.units import UnitSums
from ranktrial.methods import LogOpt
from ranktrial.report.making import make_report
from ranktrial.store.base import ConfigVersion
from ranktrial.store.marks import Mark, mark
from ranktrial.store.tallies import NO_TRIAL, SLOW
from ranktrial.trial import Trial
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
    told = guardrails(analysed(*good), {}, [200_000] * 100)
    assert [(g.name, g.status) for g in told if g.status == "fail"] == []
    by_name = {g.name: g for g in told}
    for name in ("sample ratio", "placement calibration", "how people click", "position-based clicking"):
        assert by_name[name].status == "pass"
        assert np.isfinite(by_name[name].value)
    assert "less than 0.20 ms" in by_name["latency"].text


def test_a_check_without_plain_words_is_refused() -> None:
    def same_lists() -> Found:
        return Found("pass", 0.0, "None.")

    with pytest.raises(LookupError, match=r"the check same_lists has no plain words: put @advised\(\.\.\.\) above it"):
        guardrail(same_lists, same_lists())


def test_nothing_is_said_before_there_is_anything(tmp_path: Path) -> None:
    told = guardrails(analysed(*logged(tmp_path, 3)), {}, [])
    assert {g.status for g in told} <= {"pass", "warn", "unknown"}
    unknown = {g.name: g.text for g in told if g.status == "unknown"}
    assert {"sample ratio", "placement calibration", "how people click"} <= unknown.keys()
    assert all("it takes" in text for text in unknown.values())
    (tmp_path / "few").mkdir()
    clicked = guardrails(analysed(*logged(tmp_path / "few", 15)), {}, [])
    waits = next(g.text for g in clicked if g.name == "how people click")
    assert (
        waits
        == "Cannot be checked: it takes position bias (it cannot be told yet: it takes 20 visitors, there are 15)."
    )
    assert guardrails(analysed(*logged(tmp_path / "..", 0)), {}, [])


def test_sample_ratio_when_some_of_one_arm_get_lost(good: tuple[Log, TrialConfig]) -> None:
    log, config = good
    lost = (log.arm > 0) & (np.arange(len(log)) % 3 == 0)
    assert draws.sample_ratio(analysed(some(log, ~lost), config)).status == "fail"


def test_calibration_when_some_rankings_are_shown_too_rarely(good: tuple[Log, TrialConfig]) -> None:
    log, config = good
    first = log.row == log.row_offsets[log.design]
    lost = first & (np.arange(len(log)) % 2 == 0)
    assert draws.calibration(analysed(some(log, ~lost), config)).status == "fail"


def test_draws_alarm_no_more_often_than_promised(good: tuple[Log, TrialConfig]) -> None:
    """Rows drawn anew from the weights, looked at after every impression."""
    log, config = good
    random = np.random.default_rng(5)
    cumulative = np.cumsum(log.weights)
    start = np.append(0, cumulative)[log.row_offsets[log.design]]
    ps: dict[str, list[float]] = {"sample_ratio": [], "calibration": []}
    for _ in range(300):
        row = np.searchsorted(cumulative, start + random.random(len(log)) * (1 - 1e-9), side="right")
        again = replace(log, row=np.clip(row, log.row_offsets[log.design], log.row_offsets[log.design + 1] - 1))
        for name, values in ps.items():
            values.append(getattr(draws, name)(Analysis(again, config, *[None] * 6)).value)  # type: ignore[arg-type]
    for values in ps.values():
        for level in (0.1, 0.01):
            assert np.mean(np.array(values) < level) < level + 4 * np.sqrt(level / 300)


def test_coverage_when_a_document_cannot_be_seen(good: tuple[Log, TrialConfig]) -> None:
    log, config = good
    only_a = np.zeros_like(log.weights)
    only_a[log.row_offsets[1:] - 2] = 1
    blind = replace(log, weights=only_a)
    told = estimates.coverage(analysed(blind, config))
    assert told.status == "fail"
    by_a, by_b = blind.list_exposures(WORLD.theta)
    unseen = (by_a != by_b) & (blind.exposure(WORLD.theta) == 0)
    assert told.value == unseen.sum() > 0
    queries = {log.queries[query] for query in log.query[log.design_of_slot[unseen]]}
    assert f"for {len(queries)} queries" in told.text
    assert not any(repr(query) in told.text for query in queries)  # one that few have asked may tell who they are


def test_few_clicks_are_few(good: tuple[Log, TrialConfig]) -> None:
    log, config = good
    assert estimates.effective_clicks(analysed(some(log, np.arange(len(log)) < 50), config)).status == "warn"
    assert estimates.effective_clicks(analysed(log, config)).status == "pass"


def test_largest_weight() -> None:
    assert [above(w, 20, 200) for w in (2.0, 30.0, 300.0)] == ["pass", "warn", "fail"]


def test_clicks_that_depend_on_the_company_contradict_the_click_model(good: tuple[Log, TrialConfig]) -> None:
    """Results that both show at one rank are clicked on A's page and not on B's: no click model of single results sees it."""
    log, config = good
    same = np.append(log.rank_a == log.rank_b, False)[log.rankings[log.row]]
    clicks = np.where(log.arm[:, None] > 0, log.clicks | same, log.clicks & ~same)
    analysis = analysed(replace(log, clicks=clicks), config)
    told = click_model.assumptions(analysis)
    assert told.status == "fail"
    assert told.text.endswith("The A/B estimate is reported instead.")
    assert analysis.result is not None
    assert analysis.result.name == "A/B"
    right = analysed(log, config)
    assert click_model.assumptions(right).status == "pass"
    assert right.result is not None
    assert right.result.name == "position-based"


def test_intervals_without_anything_in_common_are_a_failed_check(good: tuple[Log, TrialConfig]) -> None:
    """Also where a test that must hold over all looks refutes nothing yet; with an allowance that bridges them it passes."""
    analysis = analysed(*good)
    for low, high, refuted, status in (
        (0.02, 0.1, False, "fail"),
        (-0.02, 0.1, False, "pass"),  # contradicted at this look, as chance does too
        (-0.02, 0.1, True, "fail"),
    ):
        test = agrees(POSITION_BASED, error=0.03, apart=0.13 if refuted else 0.07)
        apart = Ladder((result(AB_TRAFFIC, -0.1, 0.01), result(POSITION_BASED, low, high)), (test,))
        told = click_model.assumptions(replace(analysis, ladder=apart, result=apart.results[0]))
        assert told.status == status
        assert ("nothing in common" in told.text) is (low > 0.01)
        assert told.text.endswith("The A/B estimate is reported instead.")
    bridged = Ladder(
        (result(AB_TRAFFIC, -0.1, 0.01), result(POSITION_BASED, 0.02, 0.1)), (agrees(POSITION_BASED),), 0.5, 2.0
    )
    assert click_model.assumptions(replace(analysis, ladder=bridged)).status == "pass"


def test_where_intervals_have_nothing_in_common_only_ab_traffic_is_used(good: tuple[Log, TrialConfig]) -> None:
    """Also where the estimate that is apart is not the one with most assumptions, and where no test contradicts it."""
    analysis = analysed(*good)
    ab, direct, top = (analysis.ladder.result(name) for name in (AB_TRAFFIC, DIRECT, POSITION_BASED))
    tests = agrees(DIRECT, error=0.03), agrees(POSITION_BASED, error=0.03)

    def found(of_ab: Interval, of_direct: Interval, of_top: Interval) -> Settled:
        results = replace(ab, interval=of_ab), replace(direct, interval=of_direct), replace(top, interval=of_top)
        return settled(replace(analysis, ladder=Ladder(results, tests), result=results[-1]), None)

    below, near, above = Interval(-0.1, 0.01), Interval(-0.08, 0.0), Interval(0.02, 0.1)
    assert found(below, near, near).decision.used == (AB_TRAFFIC, DIRECT, POSITION_BASED)
    for intervals in ((below, above, near), (below, near, above), (below, above, above)):
        told = found(*intervals)
        check = next(one for one in told.checks if one.name == click_model.ASSUMPTIONS)
        assert check.status == "fail"
        assert check.text.endswith("Their intervals have nothing in common. The A/B estimate is reported instead.")
        assert told.decision.used == (AB_TRAFFIC,)
        assert told.decision.interval == turned(below)
        assert words(told).trust.endswith(f'Weakest check: "{check.title}". {check.text}')
    nothing = Interval(-np.inf, np.inf)
    told = found(nothing, below, above)
    assert told.decision.used == (AB_TRAFFIC,) if told.decision.used else told.decision.state == "too early"
    assert words(told).next.endswith("gets there sooner.")


def test_a_check_of_the_click_model_that_fails_is_named(
    good: tuple[Log, TrialConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it does not make the numbers untrustworthy: before a check that only warns."""
    analysis = analysed(*good)
    for check in (click_model.assumptions, estimates.bias, click_model.company, over_time.bias_over_time):
        failing = guardrail(check, Found("fail", 0.0, "Found so."))
        warning = guardrail(pages.clicks, Found("warn", 0.0, "Late."))
        monkeypatch.setattr("ranktrial.analysis.answers.guardrails", lambda *_, both=(warning, failing): both)
        found = settled(analysis, None)
        assert not found.decision.failed
        assert f'Weakest check: "{failing.title}". Found so.' in words(found).trust


def test_independence_when_people_leave_after_a_click(tmp_path: Path) -> None:
    analysis = analysed(*logged(tmp_path, 2000, once=True, **KNOWN))
    told = click_model.independence(analysis, click_model.clicks_above(analysis))
    assert told.status == "warn"  # what it does to the estimate is another matter
    assert told.value == 0
    assert "may have moved B against A by -" in told.text


@pytest.mark.slow
def test_page_when_the_trial_costs_clicks(tmp_path: Path) -> None:
    options = {"new_version": True, "world": World.make(), **KNOWN}
    free = LogOpt(bias="known", relevance="constant", loss=None, keep=0, holdback=0)

    def told(method: LogOpt) -> Found:
        return visitors.page(analysed(*logged(tmp_path, 1500, method=method, **options)))

    blind = told(free)
    assert blind.status == "unknown"
    assert "cannot be told" in blind.text
    costly = told(replace(free, floor=0.5))
    assert costly.status == "warn"
    assert costly.value > 0.05
    assert told(replace(free, floor=1)).value < costly.value
    budgeted = told(LogOpt(bias="known", holdback=0.1))
    assert budgeted.status == "pass"
    assert budgeted.value < 0


def test_clicks_and_faults_by_their_share(good: tuple[Log, TrialConfig]) -> None:
    analysis = analysed(*good)
    counted = int(analysis.log.clicks.sum())
    clicking = int(analysis.log.clicks.any(1).sum())  # each a unit
    for bad, status in ((0, "pass"), (int(0.02 * clicking), "warn"), (int(0.1 * clicking), "fail")):
        assert pages.clicks(analysis, {"impressions that are not stored, with clicks": bad}).status == status
        strange = replace(analysis, log=replace(good[0], marked={Mark.STRANGE: np.arange(bad)}))
        assert pages.clicks(strange, {"clicks on what was not shown": 100 * bad}).status == status
        public = replace(analysis, log=replace(good[0], marked={mark(Mark.STRANGE, True): np.arange(bad)}))
        assert pages.clicks(public, {}).status == status.replace("fail", "warn")
    for bad, status in ((int(0.005 * counted), "pass"), (int(0.02 * counted), "warn"), (100 * counted, "warn")):
        assert pages.clicks(analysis, {"clicks with an id that is not ours": bad}).status == status
    assert pages.clicks(analysis, {"duplicate clicks": counted}).status == "pass"
    clicking_units = good[0].unit[good[0].clicks.any(1)]
    for again, units, status in (
        (100 * counted, 1, "pass"),  # one visitor, as often as they like
        (counted // 10, clicking // 10, "pass"),
        (counted // 2, clicking // 2, "warn"),
        (counted, clicking, "warn"),  # every click twice, which does no harm
        (2 * counted, clicking, "fail"),
    ):
        twice = replace(analysis, log=replace(good[0], marked={Mark.AGAIN: clicking_units[:units]}))
        assert pages.duplicates(twice, {"duplicate clicks": again}).status == status
    for bad, status in ((1, "pass"), (10, "warn"), (100, "fail")):
        assert pages.faults(analysis, {"fallback: bad input": bad, "failed writes": bad}).status == status
    assert pages.faults(analysis, {"fallback: the trial is stopped": 10_000}).status == "pass"


@pytest.mark.parametrize(("slow", "status"), [(29, "pass"), (31, "warn")])
def test_slow_calls_of_all_processes_count(good: tuple[Log, TrialConfig], slow: int, status: str) -> None:
    told = visitors.latency(analysed(*good), {SLOW: slow}, [])
    assert (told.status, told.value) == (status, slow / 3000)


def test_clicks_that_do_not_arrive(good: tuple[Log, TrialConfig]) -> None:
    log, config = good
    silent = replace(log, clicks=np.zeros_like(log.clicks))
    for impressions, status in ((50, "unknown"), (150, "warn"), (3000, "fail")):
        analysis = analysed(some(silent, np.arange(len(log)) < impressions), config)
        decision = settled(analysis, {}).decision
        assert (decision.interval, np.isnan(decision.difference)) == ((-np.inf, np.inf), True)
        assert decision.state in ("no clicks", "not trusted")
        assert pages.clicks(analysis, {}).status == status


@pytest.mark.parametrize(
    ("tallies", "few", "many"),
    [
        ({NO_TRIAL: 3000}, "warn", "warn"),
        ({"impressions that are not stored, with clicks": 3000}, "warn", "fail"),
        ({"late clicks": 3000, "clicks on what was not shown": 3000}, "pass", "pass"),  # of whom, marks tell
    ],
)
def test_clicks_that_are_lost(good: tuple[Log, TrialConfig], tallies: dict[str, int], few: str, many: str) -> None:
    log, config = good
    assert pages.clicks(analysed(log, config), tallies).status == many
    assert pages.clicks(analysed(some(log, np.arange(len(log)) < 99), config), tallies).status == few


def test_theta_that_can_no_longer_be_told_is_a_warning(good: tuple[Log, TrialConfig]) -> None:
    log, config = good
    known = config.model_copy(update={"method": "LogOpt(holdback=0.3)"})
    told = estimates.bias(
        analyse(some(log, np.arange(len(log)) < 30), known, replace(config.first_beliefs, fitted=True))
    )
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
    np.testing.assert_array_equal(np.flatnonzero(log.drawn[:1500]), np.arange(0, 1500, 5))
    analysis = analysed(log, trial.config)
    assert draws.sample_ratio(analysis).status == "pass"
    assert draws.calibration(analysis).status == "pass"


def test_one_rank_needs_no_position_bias(tmp_path: Path) -> None:
    told = estimates.bias(analysed(*logged(tmp_path, 200, k=1, world=World.make(queries=5, k=1))))
    assert (told.status, told.text) == ("pass", "One rank has none.")


def test_no_winner_is_named_that_clicks_above_could_undo(
    good: tuple[Log, TrialConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where clicks go with clicks above them, an effect that the log cannot rule out must not be what decides."""
    log, config = good
    analysis = analysed(log.take(np.arange(900)), config)
    assert settled(analysis, {}).decision.winner == "A"
    warned = Guardrail(name=click_model.INDEPENDENCE, status="warn", value=0.7, text="")
    monkeypatch.setattr("ranktrial.analysis.answers.guardrails", lambda *_: (warned,))
    more = click_model.Dependence(UnitSums.of(np.full(100, 0.5)), 25.0, 100.0, 1.5, np.zeros(100))
    fewer = click_model.Dependence(UnitSums.of(np.full(100, -0.5)), 25.0, 100.0, 0.5, np.zeros(100))
    d = analysis.estimate.delta
    assert 0 in analysis.ladder.results[0].interval  # A/B traffic alone does not decide
    for slope, error, shift, seen, winner in (
        (0.0, 0.1, 0.001, more, "A"),
        (1.0, 0.001, d, more, None),
        (0.0, 1.0, d, more, None),
        (0.0, 1.0, -d, more, None),
        (0.0, 1.0, d, fewer, "A"),  # users who stop would have made it smaller
        (-1.0, 1.0, -0.1 * d, fewer, "A"),
        (-1.0, 1.0, -d, fewer, None),
        (-1.0, 0.001, -d, fewer, None),
    ):
        drawn = click_model.Interference(UnitSums.of([]), slope, error, shift, np.zeros(0))
        above = click_model.Above(drawn, seen, seen)
        monkeypatch.setattr("ranktrial.analysis.answers.clicks_above", lambda _, above=above: above)
        told = settled(analysis, {})
        assert told.decision.winner == winner
        said = r"B gets \d+% fewer clicks than A\. " if winner else r"Neither is ahead yet\. "
        assert re.match(said, str(words(told)))
        report = make_report("shoes", {ConfigVersion(1, 1, "{}"): analysis}, Counter(), None)
        assert re.match(said, report.verdict)
        assert re.match(said, report.parts[0].verdict)
    early = analysed(log.take(np.arange(250)), config)  # too few A/B pages for an estimate of their own
    assert early.ladder.results[0].estimate is None
    without = replace(analysis.ladder, results=(early.ladder.results[0], *analysis.ladder.results[1:]))
    assert settled(replace(analysis, ladder=without), {}).decision.winner is None
    whole = settled(analysed(log, config), {})  # A/B traffic names a winner by now, whatever is above
    assert whole.decision.winner == "A"
    assert whole.decision.interval.high <= whole.decision.ab.high < 0
    failed = Guardrail(name=click_model.COMPANY, status="fail", value=0.0, text="")
    monkeypatch.setattr("ranktrial.analysis.answers.guardrails", lambda *_: (failed,))
    told = settled(analysis, {})
    assert told.analysis.result is analysis.ladder.results[0]
    assert told.decision.used == ("A/B",)
    assert "This assumes nothing about how visitors click." in words(told).trust


def test_position_bias_that_was_given_is_held_against_clicks(good: tuple[Log, TrialConfig]) -> None:
    """A position bias that was given right; a steeper one is not, and an estimate without one is used."""
    log, config = good
    told = estimates.bias(analysed(log, config))
    assert (told.status, told.text.startswith("Taken as known")) == ("pass", True)
    steep = config.model_copy(update={"theta": tuple((WORLD.theta**2.5).tolist())})
    analysis = analysed(log, steep)
    told = estimates.bias(analysis)
    assert told.value < 0.001
    assert "That moves B against A by" in told.text
    found = settled(analysis, {})
    assert guardrail(estimates.bias, told) in found.checks
    if told.status == "fail":
        assert found.analysis.result is not analysis.ladder.results[-1]
    assert estimates.bias(analysed(log.take(np.arange(5)), config)).status == "unknown"


def test_a_winner_that_hostile_searches_made_up_does_not_stand_against_as_many(good: tuple[Log, TrialConfig]) -> None:
    """Visitors who click on all that B favours make the worse ranker the winner, until it must stand against their share."""
    log, config = good
    found = settled(analysed(log, config), {})
    assert found.decision.winner == "A"
    made_up_by = found.decision.overturned_by
    assert 0 < made_up_by < 0.1
    told = f"{int(made_up_by * 3000) + 1} hostile visitors of 3,000 ({percent(made_up_by)}) could have made this up."
    assert told in words(found).trust
    favoured = np.append(log.rank_b < log.rank_a, False)[log.rankings[log.row]]
    share = 0.25
    hostile = np.random.default_rng(1).random(len(log)) < share
    bent = replace(log, clicks=np.where(hostile[:, None], favoured, log.clicks))
    before, after = (
        settled(analysed(bent, config.model_copy(update={"contamination": least})), {}).decision
        for least in (0.0, share)
    )
    assert (before.winner, after.winner) == ("B", None)
    assert before.overturned_by < hostile.mean()
    assert after.reasons == ("hostile",)
    assert np.isnan(settled(analysed(log.take(np.arange(150)), config), {}).decision.overturned_by)


def test_pages_with_many_clicks_that_decide_are_a_failure(good: tuple[Log, TrialConfig]) -> None:
    """B's results are all clicked on 2 % of the pages: that B wins rests on these."""
    log, config = good
    assert visitors.crowded_pages(analysed(log, config)).status == "pass"
    favoured = np.append(log.rank_b < log.rank_a, False)[log.rankings[log.row]]
    few = (np.arange(len(log)) % 50 == 0) & (favoured.sum(1) >= 2)
    equal = np.where(np.random.default_rng(1).random(len(log)) < 0.5, 1, -1)[:, None]  # A and B are much alike
    favours = np.append(np.sign(log.rank_b - log.rank_a), 0)[log.rankings[log.row]]
    clicks = log.clicks & ((favours == equal) | (favours == 0)) & (np.cumsum(log.clicks, 1) == 1)
    analysis = analysed(replace(log, clicks=np.where(few[:, None], favoured, clicks)), config)
    told = visitors.crowded_pages(analysis)
    assert told.status in ("warn", "fail")
    assert "without them B against A is" in told.text
    assert visitors.crowded_pages(analysed(log.take(np.arange(20)), config)).status == "unknown"


def test_pages_that_have_all_the_clicks_leave_nothing_without_them(good: tuple[Log, TrialConfig]) -> None:
    """A page that many share gets the clicks of all, and nobody else's gets any."""
    log, config = good
    few = np.arange(len(log)) % 60 == 0
    told = visitors.crowded_pages(analysed(replace(log, clicks=few[:, None] & (log.rankings[log.row] >= 0)), config))
    assert "without them B against A is +0.0000" in told.text
    assert told.value == 1.0


@pytest.mark.parametrize("kind", [Mark.LATE, Mark.STRANGE])
def test_late_and_strange_clicks_count_by_pages(good: tuple[Log, TrialConfig], kind: Mark) -> None:
    log, config = good
    for shown, status in ((len(log), "warn"), (1, "pass")):
        analysis = analysed(replace(log, marked={kind: log.unit[:shown]}), config)
        found = pages.clicks(analysis, {}).status
        assert found == ("fail" if kind is Mark.STRANGE and status == "warn" else status)
