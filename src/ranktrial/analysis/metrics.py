"""Answers by metric: the decision by the primary one, and what every other metric says beside it.

Each metric has the estimates of ``ladder``, by what it says an impression is worth, and an interval of its own that holds
however often one looks. The primary one decides. A guard is a one-sided test for harm at the level of the trial's guards: it
fails where B is surely worse by more than a share of A's value. Which of all others differ is told at one false discovery rate
for all of them, and for all segments (``discoveries.in_one_family``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from ranktrial.analysis.analyse import Analysis, BandPoint, analyse_metric
from ranktrial.analysis.decision import Decision, Lift, decide, must_stand, turned, widened, widening
from ranktrial.analysis.discoveries import log_evidence
from ranktrial.analysis.hostile import most_worth
from ranktrial.analysis.intervals import asymptotic_sequence
from ranktrial.analysis.ladder import AB_TRAFFIC, NO_INTERVAL, SHARES
from ranktrial.analysis.verdict import decimals, percent
from ranktrial.config import WrittenMetric
from ranktrial.interval import Interval
from ranktrial.methods import AB
from ranktrial.metrics import Clicks, Metric, Role
from ranktrial.texts import counted

NO_LIFT = Lift()
GUARDS_TIGHTEST = 1_000  # visitors after which guards are quickest: harm is to be found early


class CheckLimits(NamedTuple):
    """Limits that checks of clicks set to decisions by any metric.

    Attributes:
        failed: Titles of checks that fail and that all numbers rest on.
        barred: Names of estimates whose assumption a check has found wrong.
        above: How far clicks further up may have moved the click model's estimates of A - B, in clicks per search.
    """

    failed: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()
    above: Interval | None = None


class MetricDecision(NamedTuple):
    """The decision by one metric.

    Attributes:
        metric: The metric.
        analysis: Its analysis, with the estimate in use.
        decision: The decision, if it were the metric that decides.
        widen: By how much intervals that rest on the click model are widened, downwards and upwards.
    """

    metric: Metric
    analysis: Analysis
    decision: Decision
    widen: Interval


@dataclass(frozen=True)
class MetricAnswer:
    """The answer by one metric, of B against A.

    Attributes:
        metric: The metric; in JSON as it is written.
        title: Its name.
        role: "primary", "secondary" or "guard".
        better: Whether "more" or "less" of it is better.
        estimator: The estimator with most assumptions among those used; None if there is none yet.
        searches: Searches that count.
        waiting: Searches whose window is still open.
        value: Mean per search of what was shown; nan without searches.
        difference: Value per search of B minus that of A.
        interval: Its interval, by itself, however often one looks.
        lift: The difference as a share of A's value.
        capped: Share of the value that caps cut off.
        direct: Share of the value that came without a click.
        evidence: Logarithm of the e-value against no difference.
        discovery: True for a secondary metric that differs by no chance, at the false discovery rate of all that is looked at
            beside the primary one.
        rate: The lowest false discovery rate at which it does.
        guard: For a guard: "harm" if B is surely worse than allowed, "ok" if that is not shown, "unknown" if nothing is known.
        loss: For a guard: share of A's value by which B is worse; nan if that is not known.
        at_least: For a guard: share by which B is surely worse; negative infinity where nothing is sure.
        note: What cannot be told yet, and why, or what a guard has found, in a sentence; "" where there is nothing to say.
        band: Its interval over time, at a few moments, in reports of trials.
    """

    metric: WrittenMetric
    title: str
    role: Role
    better: str
    estimator: str | None = None
    searches: int = 0
    waiting: int = 0
    value: float = float("nan")
    difference: float = float("nan")
    interval: Interval = NO_INTERVAL
    lift: Lift = NO_LIFT
    capped: float = 0.0
    direct: float = 0.0
    evidence: float = 0.0
    discovery: bool = False
    rate: float = 1.0
    guard: Literal["ok", "harm", "unknown"] | None = None
    loss: float = float("nan")
    at_least: float = float("-inf")
    note: str = ""
    band: tuple[BandPoint, ...] = ()

    @property
    def finding(self) -> str:
        """The answer in a few words."""
        if self.guard is not None:
            return {"ok": "no harm shown", "harm": "harm", "unknown": "not known"}[self.guard]
        if self.role == "primary":
            return "decides"
        if self.discovery:
            return "told from chance"
        return "may be chance" if np.isfinite(self.interval.low) else "too early"

    @property
    def cells(self) -> tuple[str, ...]:
        """Cells of its row in a table: the metric, its role, the lift, B - A, searches, and the finding."""
        known = np.isfinite(self.interval.low)
        lift = f"{self.lift.share:+.1%}" if np.isfinite(self.lift.share) else ""
        spec = f"+.{decimals(self.interval)}f"
        difference = f"{self.difference:{spec}} ({self.interval:{spec}})" if known else "no interval"
        counts = f"{self.searches:,}" + (f" ({self.waiting:,} wait)" if self.waiting else "")
        return self.title, self.role, lift, difference, counts, self.finding


def measured(analysis: Analysis, metric: Metric, rules: CheckLimits) -> MetricDecision:
    """Decide by one metric, given the analysis of clicks."""
    config = analysis.config
    decides, of_clicks = metric.role == "primary", isinstance(metric, Clicks)
    own = analyse_metric(analysis, metric)
    effect = rules.above
    if effect is not None and not of_clicks:
        scale = own.ladder.ctr / analysis.ladder.ctr if analysis.ladder.ctr > 0 else 0.0
        effect = Interval(*sorted(end * scale for end in effect))
    barred = (*rules.barred, *(name for name in SHARES if name != AB_TRAFFIC)) if own.apart else rules.barred
    decided = partial(
        decide,
        own.ladder,
        searches=len(own.log),
        visitors=own.log.cohorts.count,
        clicks=own.events,
        level=config.level,
        smallest=config.smallest if decides else None,
        allowance=config.allowance,
        contamination=config.contamination,
        above=effect,
        barred=barred,
        failed=rules.failed,
        both=own.clicks_of_both,
        worth=partial(most_worth, own.log) if of_clicks else None,
        metric=metric,
    )
    decision = decided()
    if not len(own.log) and len(analysis.log):
        return MetricDecision(metric, own, replace(decision, state="too early"), widening(0.0))
    if decision.estimator is not None and decision.estimator != (own.result and own.result.name):
        own = replace(own, result=own.ladder.result(decision.estimator))
    if (decides or of_clicks) and decision.estimator is not None and own.changed:
        drift = own.drift
        decision = decided(since=turned(drift.since), units_since=drift.units - (drift.at or drift.units))
    return MetricDecision(metric, own, decision, widening(decision.allowance, effect))


def metric_answer(found: MetricDecision) -> MetricAnswer:
    """The answer by a metric, given the decision by it; discoveries are those of ``discoveries.in_one_family``."""
    metric, analysis, decision, widen = found
    values = analysis.values
    answer = MetricAnswer(
        metric, metric.title, metric.role, metric.better,
        estimator=decision.estimator,
        searches=len(analysis.log),
        waiting=0 if values is None else values.waiting,
        value=analysis.ladder.ctr if len(analysis.log) else float("nan"),
        difference=decision.difference,
        interval=decision.interval,
        lift=decision.lift,
        capped=0.0 if values is None else values.capped,
        direct=0.0 if values is None else values.direct,
        note=_note(found),
    )  # fmt: skip
    if metric.role == "secondary" and decision.estimator is not None and not decision.failed:
        result = analysis.ladder.result(decision.estimator)
        assert result.estimate is not None
        allowed = 0.0 if result.name == AB_TRAFFIC else max(widen)
        told = log_evidence(
            result.estimate, tightest_at=result.tightest_at, level=analysis.config.level, allowed=allowed
        )
        return replace(answer, evidence=told)
    return _guarded(answer, found) if metric.role == "guard" else answer


def _note(found: MetricDecision) -> str:
    """Reason why there is no answer yet; "" if there is one."""
    analysis, decision = found.analysis, found.decision
    values = analysis.values
    if np.isfinite(decision.interval.low):
        return ""
    if values is not None and not len(analysis.log):
        waiting = counted(values.waiting, "search is", "searches are")
        return f"No search counts yet: {waiting} too recent." if values.waiting else "No search counts yet."
    if values is not None and values.of_results is None:
        return f"Only A/B traffic tells it; waiting for {'; '.join(decision.waits)}."
    return f"Waiting for {'; '.join(decision.waits)}." if decision.waits else ""


# --- guards -------------------------------------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """Value per search of B less that of A, and of both on average, each with an interval."""

    difference: float
    apart: Interval
    mean: float
    both: Interval


def compared(analysis: Analysis, decision: Decision, widen: Interval, level: float) -> Compared | None:
    """A and B by the estimates of the decision, each interval at a level; None where there are none yet."""
    both = analysis.clicks_of_both
    if both is None or not len(both) or not decision.used:
        return None
    mean = asymptotic_sequence(both, [both.count], level=level, tightest_at=GUARDS_TIGHTEST).last
    return Compared(decision.difference, apart(analysis, decision, widen, level), both.mean, mean)


def apart(analysis: Analysis, decision: Decision, widen: Interval, level: float) -> Interval:
    """Interval of B against A by the estimates of the decision, each at a level."""
    config, (low, high) = analysis.config, NO_INTERVAL
    for result in analysis.ladder.results:
        if result.name in decision.used and result.estimate is not None:
            own = result.estimate.anytime_interval(level, tightest_at=GUARDS_TIGHTEST)
            lower, upper = widened(result, widen, own)
            hostile = must_stand(result, config.contamination, config.allowance) if analysis.values is None else 0.0
            if lower > 0 and hostile:  # either, not both: like a winner
                lower = min(lower, own.low - hostile * most_worth(analysis.log, result, 1))
            low, high = max(low, lower), min(high, upper)
    return Interval(0.0 - high, 0.0 - low)


def ends(analysis: Analysis) -> int:
    """Number of one-sided ends of intervals that all guards of a trial rest on together, its metrics among them.

    Those of clicks, and of a metric, need one of each estimate and one of the mean of both; what is shown needs one of the gain
    over an A/B test; futility has those of the estimates by the metric that decides.
    """
    config = analysis.config
    wanted, method, (first, *_) = config.guards, config.comparison, config.measured

    def estimates(metric: Metric) -> int:
        if not (method.traits.needs_position_bias and metric.of_results):
            return 1
        return len(SHARES) if isinstance(metric, Clicks) else len(SHARES) - 1

    clicks = (estimates(Clicks()) + 1) * (wanted.clicks is not None or wanted.shown is not None)
    futile = estimates(first) * (wanted.futility == "stop" and config.smallest is not None)
    gain = wanted.shown is not None and not isinstance(method, AB)
    shares = sum(one is not None for one in (wanted.fallbacks, wanted.latency))
    others = sum(estimates(metric) + 1 for metric in config.measured if metric.role == "guard")
    return (max(clicks, futile) if isinstance(first, Clicks) else clicks + futile) + gain + shares + others


def level_of_each(analysis: Analysis, number: int | None = None) -> float:
    """Level of each of several two-sided intervals whose ends on one side hold together at the level of the guards."""
    return 1 - 2 * (1 - analysis.config.guards.level) / (max(ends(analysis), 1) if number is None else number)


def loss_of_b(known: Compared | None, sign: int = 1) -> tuple[float, float]:
    """Share of A's value by which B is worse, and that by which it surely is; more is better if the sign is 1, or else less.

    With e the difference and m the mean of both, A has m - e/2: B is worse by -e / (m - e/2), or by e / (m - e/2) where less is
    better. Where B is worse, both fall with m.
    """
    if known is None:
        return float("nan"), float("-inf")
    value = share(-sign * known.difference, known.mean - known.difference / 2)
    e, m = known.apart.high if sign > 0 else known.apart.low, known.both.high
    lost = -sign * e
    return value, share(lost, m - e / 2) if lost > 0 and np.isfinite(m) else float("-inf")


def share(lost: float, of: float) -> float:
    """A loss as a share; nan where there is nothing to lose."""
    return lost / of if of > 0 else float("nan")


def _guarded(answer: MetricAnswer, found: MetricDecision) -> MetricAnswer:
    """The answer of a metric that guards, with the test for harm."""
    metric, analysis, decision, widen = found
    loss, at_least = loss_of_b(compared(analysis, decision, widen, level_of_each(analysis)), metric.sign)
    allowed = metric.tolerance or 0.0
    if not np.isfinite(loss):
        return replace(answer, guard="unknown")
    harm = at_least > allowed
    b = analysis.config.labels[1]
    note = f"{b} has {_worse(metric, at_least)}; {percent(allowed)} is allowed." if harm else answer.note
    return replace(answer, guard="harm" if harm else "ok", loss=loss, at_least=at_least, note=note)


def _worse(metric: Metric, at_least: float) -> str:
    return metric.compared(f"at least {percent(at_least)}", metric.sign < 0)


def guarded(decision: Decision, answers: Iterable[MetricAnswer]) -> Decision:
    """The decision with the harm that guards have found: B is no winner then."""
    harm = tuple(_worse(one.metric, one.at_least) for one in answers if one.guard == "harm")
    if decision.winner != "B" or not harm:
        return replace(decision, harm=harm)
    return replace(decision, state="withheld", winner=None, reasons=("guard",), harm=harm)
