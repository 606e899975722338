"""The answer of a log: its estimates, the checks behind them, and the one decision that they allow, in numbers and in words.

Reports of trials, ``ranktrial estimate`` and ``ranktrial.decide`` all decide here.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import notebook
from ranktrial.analysis.analyse import Analysis, analyse
from ranktrial.analysis.decision import Decision, turned
from ranktrial.analysis.discoveries import in_one_family
from ranktrial.analysis.guardrails import guardrails
from ranktrial.analysis.guardrails.click_model import ASSUMPTIONS, COMPANY, INDEPENDENCE, clicks_above
from ranktrial.analysis.guardrails.estimates import BIAS
from ranktrial.analysis.guardrails.over_time import BIAS_OVER_TIME, drift_text
from ranktrial.analysis.guardrails.status import Guardrail
from ranktrial.analysis.ladder import AB_TRAFFIC, AFFINE, ASSUMES, DIRECT, POSITION_BASED, Ladder
from ranktrial.analysis.metrics import CheckLimits, MetricAnswer, MetricDecision, guarded, measured, metric_answer
from ranktrial.analysis.segments import AttributeTest, SegmentAnswer, answers_by_segment, subject
from ranktrial.analysis.verdict import SureSegment, Verdict, segment_text, verdict
from ranktrial.config import TrialConfig
from ranktrial.interval import Interval
from ranktrial.log.log import NO_CODES, Log
from ranktrial.methods import Beliefs, LogOpt
from ranktrial.metrics import Clicks, Metric
from ranktrial.position_bias import PositionBias
from ranktrial.schema import Frozen
from ranktrial.segments import Segments
from ranktrial.texts import json_values

MODEL = (ASSUMPTIONS, BIAS, BIAS_OVER_TIME, COMPANY)  # guardrails of the click model
LOG_CHECKS = (
    "A log does not tell whether pages showed what was drawn, "
    "or whether clicks were lost or sent twice: checks of a trial do."
)


class Settled(NamedTuple):
    """A decision with the checks behind it.

    Attributes:
        decision: The decision.
        checks: All guardrails.
        analysis: The analysis by the metric that decides, with the estimate in use.
        widen: By how much intervals that rest on the click model are widened, downwards and upwards.
        of_clicks: The same of clicks.
        rules: What the checks allow, for all metrics alike.
    """

    decision: Decision
    checks: tuple[Guardrail, ...]
    analysis: Analysis
    widen: Interval
    of_clicks: MetricDecision
    rules: CheckLimits


def settled(
    analysis: Analysis,
    tallies: Mapping[str, int] | None,
    nanoseconds: Sequence[int] = (),
    *,
    distrusted: Sequence[str] = (),
) -> Settled:
    """Run all guardrails, and decide by the estimates that they allow.

    Where clicks depend on what stands above, no estimate by document and rank is right: only A/B traffic is used. So it is
    where intervals have nothing in common, as one of them at least is wrong. Where position bias changed, or is not what was
    given, estimates without one are used. Where clicks merely go with clicks above them, visitors may differ, which harms
    nothing, or leave, which does: intervals are then widened by the effect that the log cannot rule out.

    Args:
        analysis: The analysis of a log.
        tallies: Counters of the trial; None for a log of which there are none.
        nanoseconds: Times that recent calls of ``rank`` took.
        distrusted: Titles of checks that fail elsewhere, and that these numbers rest on too.
    """
    above = clicks_above(analysis)
    checks = guardrails(analysis, tallies, nanoseconds, above)
    status = {check.name: check.status for check in checks}
    barred = barred_by([name for name, found in status.items() if found == "fail"], apart=bool(analysis.apart))
    effect = above.effect if above is not None and status.get(INDEPENDENCE) == "warn" else None
    failed = [check.title for check in checks if check.status == "fail" and check.name not in MODEL]
    rules = CheckLimits(tuple(dict.fromkeys([*failed, *distrusted])), barred, effect)
    first = analysis.config.measured[0]
    found = measured(analysis, first, rules)
    of_clicks = found if isinstance(first, Clicks) else measured(analysis, Clicks(), rules)
    return Settled(found.decision, checks, found.analysis, found.widen, of_clicks, rules)


def measured_all(found: Settled) -> tuple[MetricDecision, ...]:
    """The decision by each metric of a trial, the primary one first; none where it has clicks alone."""
    config, of_clicks = found.analysis.config, found.of_clicks
    if not config.metrics:
        return ()
    first, *others = config.measured
    primary = MetricDecision(first, found.analysis, found.decision, found.widen)
    return primary, *(
        of_clicks._replace(metric=metric)
        if isinstance(metric, Clicks)
        else measured(of_clicks.analysis, metric, found.rules)
        for metric in others
    )


class Beside(NamedTuple):
    """Answers beside the decision.

    Attributes:
        decisions: The decision by each metric, the primary one first; none where there are clicks alone.
        metrics: The answer by each metric; none where there are clicks alone.
        segments: The answer for each value of the attributes of searches.
        tests: Tests of whether the values of an attribute differ.
    """

    decisions: tuple[MetricDecision, ...]
    metrics: tuple[MetricAnswer, ...]
    segments: tuple[SegmentAnswer, ...]
    tests: tuple[AttributeTest, ...]


def beside(found: Settled) -> Beside:
    """Answers by metric and by segment; those beside the decision are one family, at one false discovery rate."""
    decisions = measured_all(found)
    secondary = [one for one in decisions if one.metric.role == "secondary"]
    others = [subject(one.analysis, name) for one in secondary if (name := one.decision.estimator) is not None]
    segments, tests = answers_by_segment(found.analysis, found.decision, others, above=found.rules.above)
    answers = tuple(map(metric_answer, decisions))
    if secondary:
        looked_at: list[Any] = [one for one in answers if one.role == "secondary"]
        family = iter(in_one_family([*looked_at, *segments], trusted=not found.decision.failed))
        answers = tuple(next(family) if one.role == "secondary" else one for one in answers)
        segments = tuple(family)
    return Beside(decisions, answers, segments, tests)


def sure_segments(
    answers: Sequence[SegmentAnswer], decision: Decision | None = None, *, harm: bool = False
) -> tuple[SegmentAnswer, ...]:
    """Answers by segment that the decision names, of its metric; none in favour of B while there is harm."""
    harmful = harm or (decision is not None and bool(decision.harm))
    kept = "A" if decision is None or decision.metric.sign > 0 else "B"  # has more where A is better
    return tuple(
        one
        for one in answers
        if one.metric == answers[0].metric and one.ahead is not None and (one.ahead == kept or not harmful)
    )


def barred_by(failed: Container[str], *, apart: bool = False) -> tuple[str, ...]:
    """Estimates that must not be used, given the checks that fail, and whether their intervals have nothing in common."""
    if COMPANY in failed or apart:
        return DIRECT, AFFINE, POSITION_BASED
    return (AFFINE, POSITION_BASED) if BIAS in failed or BIAS_OVER_TIME in failed else ()


def words(
    found: Settled,
    *,
    days: float = float("nan"),
    shows: str | None = None,
    ended: bool = False,
    live: bool = True,
    sure: Sequence[SureSegment] = (),
    harm: str = "",
) -> Verdict:
    """Put a decision with its checks into words, with the segments that surely differ from nothing; see ``verdict``."""
    decision, checks, analysis = found[:3]
    drift = analysis.drift
    changed = ""
    if analysis.changed:
        whole = f"Over all of the {'trial' if live else 'log'} it is {0.0 - analysis.estimate.delta:+.4f}."
        changed = f"These numbers are since a change. {drift_text(drift)} {whole}"
    elif drift.status == "warn":
        changed = drift_text(drift)
    fails = [check for check in checks if check.status == "fail"]
    failing = next((check for check in fails if check.title in decision.failed), None)
    bad = fails or [check for check in checks if check.status == "warn"]
    first = "data", "assumptions", "visitors"  # those that the numbers rest on
    worst = failing or min(bad, key=lambda check: first.index(check.group), default=None)
    remedy = "" if failing is None else failing.remedy
    if failing is None and fails and decision.estimator is None:
        more = "a version with a larger hold-back gets there sooner" if live else "log some of it too"
        remedy = f"Only A/B traffic can tell: {more}."
    return verdict(
        decision,
        analysis.config.labels,
        days=days,
        harm=harm,
        shows=shows,
        ended=ended,
        live=live,
        changed=changed,
        segments=segment_text(decision, sure, analysis.config.labels),
        remedy=remedy,
        weakest="" if worst is None else f'"{worst.title}". {worst.text}',
    )


class EstimateRow(Frozen):
    """One estimate of the log.

    Attributes:
        name: "A/B", "direct", "affine" or "position-based".
        assumes: Its assumption on how people click.
        difference: Clicks per search of B minus those of A; nan if there is no estimate yet, or no click.
        interval: Its interval, not widened; those of all estimates hold together at the level of the configuration.
        used: True if the decision is made from it.
        contradicted: True if an estimate with fewer assumptions contradicts it.
        text: What it waits for, and the tests of it.
    """

    name: str
    assumes: str
    difference: float
    interval: Interval
    used: bool
    contradicted: bool
    text: str


def estimate_rows(estimates: Ladder, decision: Decision) -> tuple[EstimateRow, ...]:
    """Rows of all estimates, those with fewest assumptions first.

    Before any click an estimate has nothing but predictions to rest on, and is not shown.
    """
    return tuple(
        EstimateRow(
            name=one.name,
            assumes=ASSUMES[one.name],
            difference=0.0 - one.estimate.delta if one.estimate is not None and decision.clicks else float("nan"),
            interval=turned(one.interval),
            used=one.name in decision.used,
            contradicted=bool(estimates.contradictions(one)),
            text=" ".join(
                [f"Waiting for {one.missing}." if one.missing else ""]
                + [test.text for test in estimates.tests if test.upper == one.name]
            ).strip(),
        )
        for one in estimates.results
    )


# --- logs ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DecisionOptions:
    """Options of a decision on a log.

    Attributes:
        level: Level of the interval.
        anytime: True for an interval that holds however often one looked; False if the number of searches was fixed beforehand.
        smallest: The smallest difference that matters.
        allowance: Share of exposure disagreement x clicks per search that visitors who follow no click model may move it by.
        contamination: Share of hostile searches against which a winner must stand.
    """

    level: float = 0.95
    anytime: bool = True
    smallest: float | None = None
    allowance: float | None = None
    contamination: float | None = None


AS_IN_A_TRIAL = DecisionOptions()


@dataclass(frozen=True, eq=False)
class Answer:
    """The decision on a log, and what is behind it.

    Attributes:
        decision: The decision, of B against A.
        estimates: The estimates and the tests between them.
        text: The decision in words.
        bias: Position bias, where it was fitted.
        how: Where it was worked out.
        checks: Checks of the log; empty where it was added up in SQL.
        unchecked: Sentence on checks that could not be made.
        note: Sentences on what else the log could not show.
        metrics: Answers by metric, where others than clicks were asked for.
        segments: Answers by segment, of a log whose searches have attributes.
    """

    decision: Decision
    estimates: Ladder
    text: Verdict
    bias: PositionBias | None = None
    how: str = ""
    checks: tuple[Guardrail, ...] = ()
    unchecked: str = ""
    note: str = ""
    metrics: tuple[MetricAnswer, ...] = ()
    segments: tuple[SegmentAnswer, ...] = ()

    @property
    def rows(self) -> tuple[EstimateRow, ...]:
        """Rows of all estimates, those with fewest assumptions first."""
        return estimate_rows(self.estimates, self.decision)

    @property
    def gain(self) -> float:
        """Factor by which an A/B test alone would need more searches to be as sure; nan if that is not known."""
        by_name = {result.name: result.estimate for result in self.estimates.results}
        ab, used = by_name.get(AB_TRAFFIC), by_name.get(self.decision.estimator or "")
        if ab is None or used is None or ab is used or not used.standard_error > 0:
            return float("nan")
        return ab.standard_error**2 * ab.impressions / (used.standard_error**2 * used.impressions)

    @property
    def worth(self) -> str:
        """Sentence on the searches that both lists in the log save; "" if that is not known."""
        if not self.gain > 1:
            return ""
        return (
            f"The A/B estimate alone would need {self.gain:.1f} times as many searches to be as sure: both lists in the log "
            "tell which clicks could have made a difference."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        text = self.text
        return {
            "verdict": str(text),
            "text": {name: getattr(text, name) for name in ("headline", "details", "next", "trust")},
            "decision": self.decision.to_dict(),
            "gain": json_values(self.gain),
            "how": self.how,
            "note": self.note,
            "unchecked": self.unchecked,
            "checks": [check.to_dict() for check in self.checks],
            "estimates": [self._plain(row) for row in self.rows],
            "metrics": [json_values({**asdict(one), "metric": str(one.metric)}) for one in self.metrics],
            "segments": [json_values(asdict(one)) for one in self.segments],
        }

    def _plain(self, row: EstimateRow) -> dict[str, Any]:
        result = self.estimates.result(row.name)
        values = {
            "name": row.name,
            "assumes": row.assumes,
            "used": row.used,
            "waits_for": result.missing,
            "difference": row.difference,
            "interval": row.interval,
            "tests": [test.text for test in self.estimates.tests if test.upper == row.name],
        }
        if np.isfinite(row.difference) and result.estimate is not None:
            values |= {name: value for name, value in result.estimate.to_dict().items() if name != "delta"}
        found: dict[str, Any] = json_values(values)
        return found

    def __str__(self) -> str:
        return " ".join(filter(None, (str(self.text), self.text.next, self.text.trust)))

    def __repr__(self) -> str:
        return f"<Answer: {self.text.headline}>"

    chart = notebook.chart

    def _repr_html_(self) -> str:
        """Render the decision, its interval and the checks for notebooks."""
        return notebook.of_answer(self)


def decide(
    log: Log,
    *,
    theta: ArrayLike | None = None,
    level: float = 0.95,
    anytime: bool = True,
    smallest: float | None = None,
    allowance: float | None = None,
    contamination: float | None = None,
    metrics: Sequence[Metric | str] = (),
    by: Sequence[str] | None = None,
) -> Answer:
    """Decide which ranker gets more clicks by a log, as a live trial does: by all estimates and checks of it.

    Args:
        log: The log.
        theta: Position bias if it is known; by default it is fitted to the log.
        level: Level of the interval.
        anytime: True for an interval that holds however often one looked; False if the number of searches was fixed beforehand
            and this is the one look.
        smallest: The smallest difference that matters, in clicks per search.
        allowance: Share of exposure disagreement x clicks per search by which visitors who follow no click model may move the
            answer; 0 for those who know their visitors.
        contamination: Share of hostile searches against which a winner must stand.
        metrics: What is measured beside clicks, such as ``Orders(window="7d")``; the one whose role is "primary" decides.
        by: Attributes of searches to answer by; by default all that the log has.

    >>> from ranktrial import AB, Log, Pair, decide, position_based
    >>> pair = Pair.from_lists([["x", "y", "z"]] * 9, [["z", "x", "y"]] * 9, k=3)
    >>> log = Log.simulated(pair, AB().policy(pair), position_based([0.6, 0.3, 0.2] * 9, [1, 0.5, 0.3]), 4000, seed=1)
    >>> found = decide(log)
    >>> found.decision.winner, found.text.headline
    ('A', 'B gets 28% fewer clicks than A.')
    """
    known = None if theta is None else np.asarray(theta, np.float64)
    method = LogOpt() if known is None else LogOpt(bias="known")
    log = log if by is None else _by_attributes(log, by)
    asked = {"level": level, "smallest": smallest, "allowance": allowance, "contamination": contamination}
    config = TrialConfig.model_validate({"method": str(method), "k": log.k, "metrics": tuple(metrics), **asked})
    beliefs = config.first_beliefs if known is None else Beliefs(known)
    found = settled(analyse(log, config, beliefs, anytime=anytime), None)
    fit, others = found.analysis.fit, beside(found)
    found = found._replace(decision=guarded(found.decision, others.metrics))
    text = words(found, live=False, sure=sure_segments(others.segments, found.decision))
    return Answer(
        found.decision, found.analysis.ladder, text, None if fit is None else fit.bias, "in memory", found.checks,
        LOG_CHECKS, metrics=others.metrics, segments=others.segments,
    )  # fmt: skip


def _by_attributes(log: Log, names: Sequence[str]) -> Log:
    """The log with these attributes of its searches only."""
    kept = Segments.of({name: log.attributes.values(name)[1:] for name in names})
    code, factor = np.zeros(len(log), np.int64), 1
    for name in kept.names:
        code += factor * log.levels(name)
        factor *= len(kept.values(name))
    return replace(log, attributes=kept, segment=code if kept else NO_CODES)
