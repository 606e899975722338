"""Changes on the way are noticed, with date and effect on the estimate; other searches and other designs are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ranktrial.analysis.analyse import Analysis, analyse
from ranktrial.analysis.answers import settled, words
from ranktrial.analysis.guardrails import over_time as checks
from ranktrial.analysis.guardrails.over_time import MICROSECONDS_A_DAY
from ranktrial.analysis.guardrails.status import Found, Guardrail
from ranktrial.arrays import FloatArray
from ranktrial.config import TrialConfig
from ranktrial.log import Log
from ranktrial.methods import Beliefs, LogOpt
from ranktrial.rankings import Pair
from ranktrial.users import position_based, rank_decay

K, N, DAYS = 5, 12_000, 6
BEGIN = 1_767_225_600e6  # 2026 begins
EARLY, LATE = rank_decay(K, 0.4), rank_decay(K, 1.4)
CONFIG = TrialConfig.model_validate({"method": LogOpt(), "k": K})


def world(queries: int = 30) -> tuple[Pair, FloatArray]:
    random = np.random.default_rng(1)
    zeta = random.choice([0.1, 0.3, 0.7], (queries, 9))
    a, b = (np.argsort(-(zeta + random.normal(0, noise, zeta.shape)), 1) for noise in (0.2, 0.5))
    pair = Pair.from_lists(a.tolist(), b.tolist(), k=K).knowing(theta=EARLY)
    assert pair.ids is not None
    return pair, zeta[np.repeat(np.arange(queries), np.diff(pair.offsets)), np.array(pair.ids, np.int64)]


def logged(seed: int) -> tuple[Log, FloatArray]:
    """Six days with two designs, one after the other, and the relevance of what stands at each rank."""
    pair, zeta = world()
    designs = [LogOpt().policy(pair), LogOpt(floor=0.0, holdback=0.3).policy(pair, Beliefs(LATE, 0.3))]
    log = Log.simulated(pair, designs, position_based(zeta, EARLY), [N // 3, N - N // 3], seed=seed)
    times = (BEGIN + np.arange(N) * (DAYS * MICROSECONDS_A_DAY / N)).astype(np.int64)
    slots = log.rankings[log.row]
    return replace(log, time=times, theta=None), np.where(slots >= 0, zeta[log.document][slots], 0.0)


def clicked(chance: FloatArray, log: Log, seed: int) -> Analysis:
    clicks = np.random.default_rng(seed).random(chance.shape) < chance
    return analyse(replace(log, clicks=clicks), CONFIG, CONFIG.first_beliefs)


def over_time(analysis: Analysis) -> list[Found]:
    return [check(analysis) for check in (checks.difference_over_time, checks.clicks_over_time, checks.bias_over_time)]


@pytest.mark.parametrize("seed", range(4))
def test_nothing_changes_though_designs_do_and_nights_are_quiet(seed: int) -> None:
    log, relevance = logged(seed)
    day = 1 - 0.4 * np.cos(2 * np.pi * np.arange(N) * DAYS / N)
    analysis = clicked(EARLY * relevance * day[:, None] / 1.4, log, seed)
    assert analysis.fit is not None
    assert [told.status for told in over_time(analysis)] == ["pass"] * 3


def test_clicks_per_page_that_change_only_warn_and_say_what_the_difference_was() -> None:
    log, relevance = logged(1)
    rate = np.where(np.arange(N) < N // 2, 0.7, 1.0)[:, None]
    _, clicks, bias = over_time(clicked(EARLY * relevance * rate, log, 1))
    assert (clicks.status, bias.status) == ("warn", "pass")
    assert "That was on 2026-01-0" in clicks.text
    assert "B against A was -" in clicks.text
    assert "other visitors" in clicks.text


def test_other_searches_are_no_change_of_position_bias() -> None:
    """The second half has other queries."""
    log, relevance = logged(2)
    late = np.arange(N) >= N // 2
    kept = (log.query[log.design] >= 15) == late
    chance = EARLY * relevance
    analysis = clicked(chance[kept], log.take(kept), 2)
    assert checks.bias_over_time(analysis).status == "pass"


def test_position_bias_that_changes_fails_with_its_effect_and_an_estimate_without_it_is_used() -> None:
    """Users look at less from halfway on: one theta for all of the time moves the estimate by as much as is said."""
    log, relevance = logged(3)
    late = np.arange(N) >= N // 2
    analysis = clicked(np.where(late[:, None], LATE, EARLY) * relevance, log, 3)
    told = checks.bias_over_time(analysis)
    assert told.value < 0.001
    assert "That was on 2026-01-0" in told.text
    pair, zeta = world()
    truth = np.mean([pair.delta(position_based(zeta, theta)) for theta in (EARLY, LATE)])
    top = analysis.ladder.results[-1].estimate
    assert top is not None
    effect = float(told.text.rsplit("by ", 1)[1].rstrip("."))
    assert abs(-top.delta - effect + truth) < 4 * top.standard_error
    failed = Guardrail(name=checks.BIAS_OVER_TIME, status="fail", value=0.0, text="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ranktrial.analysis.answers.guardrails", lambda *_: (failed,))
        patch.setattr("ranktrial.analysis.answers.clicks_above", lambda _: None)
        found = settled(analysis, {})
    assert found.decision.estimator in ("direct", "A/B")
    assert "position-based" not in found.decision.used
    assert found.analysis.result is analysis.ladder.result(found.decision.estimator)
    assert found.decision.state != "not trusted"


@pytest.mark.slow
def test_rankers_that_change_are_a_warning_and_the_report_is_of_the_time_since() -> None:
    """A gets all of the clicks on what it favours at first, B later."""
    log, relevance = logged(4)
    favoured = np.append(np.sign(log.rank_b - log.rank_a), 0)[log.rankings[log.row]]
    sign = np.where(np.arange(N) < N // 2, 1, -1)[:, None]
    analysis = clicked(EARLY * relevance * (1 + 0.5 * sign * favoured) / 1.5, log, 4)
    told = checks.difference_over_time(analysis)
    assert told.status == "warn"
    assert told.text.endswith("The report is of the time since.")
    assert "That was on 2026-01-0" in words(settled(analysis, {})).details


def test_an_ab_test_needs_no_position_bias_and_counts_clicks_as_they_are() -> None:
    pair, zeta = world()
    config = TrialConfig.model_validate({"method": 'AB(estimate="adjusted")', "k": K})
    method = config.comparison
    log = Log.simulated(pair, method.policy(pair), position_based(zeta, EARLY), 4_000, seed=5)
    analysis = analyse(replace(log, theta=None), config, config.first_beliefs)
    assert checks.bias_over_time(analysis).text == "An A/B test needs none."
    assert checks.clicks_over_time(analysis).status == "pass"
    assert checks.clicks_over_time(replace(analysis, log=log.take(np.arange(20)))).status == "unknown"
