"""Answers by segment: the difference of B against A for each value of an attribute, by the estimator of the decision.

Every search is valued once for all of them (``Estimate.x``, ``Estimate.rests``): an answer by segment adds that up over its
searches. Each interval holds by itself, however often one looks. Which segments differ from nothing is told at one false
discovery rate for all segments and metrics (``discoveries``): the more one looks at, the more would seem to differ by chance.
Whether segments differ from each other is a chi-squared test of their estimates about their mean, at one look; by how much
they do (DerSimonian and Laird 1986) says how far each is shrunken to that mean, for ranking them.

After a change of the difference all of this is of the searches since then, as the decision is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ranktrial.analysis.analyse import Analysis, allowed_share, of_even_split
from ranktrial.analysis.decision import Decision, Lift, lift, made_up_by, must_stand, turned, widened, widening
from ranktrial.analysis.discoveries import RATE, in_one_family, log_evidence
from ranktrial.analysis.drift import starts
from ranktrial.analysis.estimators.click_weights import ClickWeights
from ranktrial.analysis.estimators.results import Estimate, by_group, jackknifed
from ranktrial.analysis.hostile import worth_of_each
from ranktrial.analysis.ladder import AB_TRAFFIC, LEAST_CLICKS, NO_INTERVAL, TIGHTEST_AT, EstimatorResult, disagreements
from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.distributions import f_tail
from ranktrial.interval import Interval
from ranktrial.log import Log, UnitSums
from ranktrial.texts import text_table


@dataclass(frozen=True)
class SegmentAnswer:
    """The answer for the searches with one value of an attribute.

    Attributes:
        attribute: Name of the attribute.
        value: The value; "other" for searches that were given none that is declared.
        searches: Number of them that count; ``visitors`` and ``clicks`` likewise.
        share: Share of all searches that count.
        difference: Clicks per search of B minus those of A; or what ``metric`` measures instead of clicks.
        interval: Its interval at the level of the configuration, by itself.
        lift: The difference as a share of A's clicks there.
        shrunken: The difference, shrunken to the mean of the attribute's values: to rank them by.
        evidence: Logarithm of the e-value against no difference.
        discovery: True if it is no chance at the false discovery rate of all segments together, and of secondary metrics.
        rate: The lowest false discovery rate at which it is one.
        stands: False if no more hostile searches than a winner must withstand could have made it up.
        metric: Name of the metric; "" for clicks.
    """

    attribute: str
    value: str
    searches: int
    visitors: int
    clicks: int
    share: float
    difference: float
    interval: Interval
    lift: Lift
    shrunken: float
    evidence: float = 0.0
    discovery: bool = False
    rate: float = 1.0
    stands: bool = True
    metric: str = ""

    @property
    def ahead(self) -> str | None:
        """The ranker that surely gets more clicks there; None if neither does."""
        if not self.discovery or not self.stands or 0 in self.interval:
            return None
        return "B" if self.difference > 0 else "A"


@dataclass(frozen=True)
class AttributeTest:
    """The test of whether the difference is the same for all values of an attribute.

    Attributes:
        attribute: Its name.
        p: Of the test, at one look; nan where fewer than two values have an estimate.
        values: Number of values with an estimate.
        metric: Name of the metric; "" for clicks.
    """

    attribute: str
    p: float
    values: int
    metric: str = ""


def answer_lines(answers: Sequence[SegmentAnswer]) -> list[str]:
    """A table of text with a row for each answer, those that are told from chance with a star."""
    heads = "segment", "searches", "B - A", "interval", "for ranking", ""
    rows = []
    for one in answers:
        numbers = f"{one.difference:+.4f}", str(one.interval), f"{one.shrunken:+.4f}", "*" if one.discovery else ""
        known = numbers if np.isfinite(one.interval.low) else ("", "no interval", "", "")
        rows.append(
            (f"{one.attribute}: {one.value}" + (f", {one.metric}" if one.metric else ""), f"{one.share:.0%}", *known)
        )
    return text_table(heads, rows) if rows else []


def table_heading(rate: float = RATE) -> str:
    """Heading of that table."""
    return f"By segment (*: told from chance; on average at most {rate:.0%} of these are false)"


@dataclass(frozen=True, eq=False)
class Subject:
    """A question that is asked of every segment: a metric, and its estimate for all searches.

    Attributes:
        log: The searches that count.
        result: Their estimate, by the estimator in use.
        value: Value of each, by the metric.
        both: Flags of searches, over which the mean of such values is that under an even A/B split; None where that is not
            known: there is no lift then.
        metric: Name of the metric; "" for clicks.
    """

    log: Log
    result: EstimatorResult
    value: FloatArray
    both: tuple[BoolArray, FloatArray] | None = None
    metric: str = ""


def subject(analysis: Analysis, estimator: str) -> Subject:
    """The question which ranker gets more clicks, or more by the metric of the analysis, by this estimator."""
    log, values, both = analysis.log, analysis.values, None
    each = log.clicks_each.astype(np.float64) if values is None else values.each
    gain = None if values is not None and estimator == AB_TRAFFIC else analysis.gain
    if gain is not None and len(gain.estimate.x) == len(log):
        both = np.ones(len(log), bool), each - gain.estimate.x
    else:
        plain, values_of_both = of_even_split(log, each)
        both = None if plain is None else (log.arm != 0, values_of_both)
    result, metric = analysis.ladder.result(estimator), "" if values is None else values.metric.title
    return Subject(log, result, each, both, metric)


def answers_by_segment(
    analysis: Analysis,
    decision: Decision,
    others: Sequence[Subject] = (),
    *,
    above: Interval | None = None,
    rate: float = RATE,
) -> tuple[tuple[SegmentAnswer, ...], tuple[AttributeTest, ...]]:
    """Answers for all values of all attributes, and tests of whether these differ; none where nothing is estimated yet.

    Args:
        analysis: The analysis behind the decision.
        decision: The decision, whose estimator is asked.
        others: The same of other metrics; all answers are one family, at one false discovery rate (``in_one_family``).
        above: How far clicks further up may have moved the click model's estimates of A - B.
        rate: The false discovery rate.
    """
    if not analysis.log.attributes or decision.estimator is None:
        return (), ()
    rows: list[SegmentAnswer] = []
    evidence: list[float] = []
    tests = []
    for one in (subject(analysis, decision.estimator), *others):
        cut = _Cut(analysis, one, above)
        for name in analysis.log.attributes.names:
            found = list(cut.answers(name))
            shrunk, p = _compared([estimate for _, estimate, _ in found])
            tests.append(AttributeTest(name, p, sum(estimate is not None for _, estimate, _ in found), one.metric))
            rows += [replace(answer, shrunken=float(value)) for (answer, *_), value in zip(found, shrunk)]
            evidence += [told for *_, told in found]
    told = [replace(row, evidence=one) for row, one in zip(rows, evidence)]
    return in_one_family(told, rate, trusted=not decision.failed), tuple(tests)


class _Cut:
    """A subject as arrays of its log, from which answers by segment are added up."""

    def __init__(self, analysis: Analysis, subject: Subject, above: Interval | None) -> None:
        log, whole, self.subject = subject.log, subject.result.estimate, subject
        assert whole is not None
        config = analysis.config
        self.log, self.whole, self.level, self.above = log, whole, config.level, above
        if above is not None and subject.metric:
            value_of_click = float(subject.value.mean()) / max(float(log.clicks_each.mean()), 1e-300)
            self.above = Interval(*sorted(end * value_of_click for end in above))
        plain = subject.result.name == AB_TRAFFIC
        self.stands_against = must_stand(subject.result, config.contamination, config.allowance)
        self.counted, self.x = np.zeros(len(log), bool), np.zeros(len(log))
        self.counted[whole.picked], self.x[whole.picked] = True, whole.x
        self.granted = np.zeros(len(log))
        if not plain:
            apart = disagreements(log, np.array(analysis.theta.theta))
            self.granted = allowed_share(config) * apart[log.design]
        self.penalty = 0.0
        self.now: BoolArray = np.ones(len(log), bool)
        if analysis.changed:  # one of many times that it could have changed at
            self.level, self.penalty = 1 - (1 - config.level) / starts(), float(np.log(starts()))
            self.now = analysis.since_change(log)

    def answers(self, attribute: str) -> Iterator[tuple[SegmentAnswer, Estimate | None, float]]:
        """Answer, estimate and logarithm of the e-value of every value of an attribute that has searches."""
        log, whole, result = self.log, self.whole, self.subject.result
        names, level, total = log.attributes.values(attribute), log.levels(attribute), int(self.now.sum())
        # Fixed before the trial: the sequence of a segment is tightest at an even share of the searches.
        fixed = bool(np.isnan(result.tightest_at))
        tightest_at = max((TIGHTEST_AT if fixed else result.tightest_at) / len(names), 100.0)
        order = np.argsort(level, kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(level, minlength=len(names)))[:-1])
        for name, ever, rest in zip(names, parts, whole.rests.get(attribute, [None] * len(names))):
            at = ever[self.now[ever]]
            if not len(at):
                continue
            answer = SegmentAnswer(
                attribute, name, len(at), self._visitors(at), int(log.clicks_each[at].sum()), len(at) / total,
                float("nan"), NO_INTERVAL, Lift(), float("nan"), metric=self.subject.metric,
            )  # fmt: skip
            found = self._estimate(ever, at, rest)
            value = self.subject.value[at[self.counted[at]]]
            if found is None or (np.count_nonzero(value) if self.subject.metric else value.sum()) < LEAST_CLICKS:
                yield answer, None, 0.0
                continue
            widen = widening(float(self.granted[at].mean() * self.subject.value[at].mean()), self.above)
            interval = found.anytime_interval(self.level, tightest_at=tightest_at)
            if fixed and np.isfinite(interval.low):
                interval = found.confidence_interval(self.level)
            wide = turned(widened(result, widen, interval))
            both = None if self.subject.both is None else self._sums(at, *self.subject.both)
            answer = replace(
                answer,
                difference=0.0 - found.delta,
                interval=wide,
                lift=lift(wide, 0.0 - found.delta, both, self.level),
                stands=0 in wide or self.subject.metric != "" or self._stands(at, found, interval),
            )
            told = log_evidence(
                found, tightest_at=tightest_at, level=self.level, allowed=0.0 if result.name == AB_TRAFFIC else widen
            )
            yield answer, found if np.isfinite(interval.low) else None, told - self.penalty

    def _estimate(self, ever: IntArray, at: IntArray, rest: FloatArray | None) -> Estimate | None:
        """Estimate of the searches ``at``; its error is as much larger than that with theta known as it is for all those
        that the segment ``ever`` had."""
        whole, sums = self.whole, self._sums(at, self.counted, self.x)
        if len(sums) < 2:
            return None
        alone = sums.standard_error
        error, replicates, freedom, ratio = whole.standard_error, whole.replicates, whole.freedom, 1.0
        without = whole.clicks_alone
        if replicates is not None and rest is not None:
            groups = by_group(self.log, self.x[ever], len(replicates), ever)
            if (groups[0] < groups[0].sum()).all():
                own = jackknifed(groups, rest)
                error, replicates, freedom = own["standard_error"], own["replicates"], own["freedom"]
                without = own["clicks_alone"]
        if without > 0:
            ratio = error / without
        return Estimate.of(
            sums, ClickWeights.of([]), largest_weight=whole.largest_weight, standard_error=ratio * alone,
            clicks_alone=alone, replicates=replicates, freedom=freedom, bias_bound=whole.bias_bound,
        )  # fmt: skip

    def _sums(self, at: IntArray, counted: BoolArray, values: FloatArray) -> UnitSums:
        """Sums over cohorts of some searches, of those that are counted."""
        some = at[counted[at]]
        return replace(self.log.cohorts.sums(values[some], some), count=self._visitors(some))

    def _visitors(self, at: IntArray) -> int:
        seen = np.zeros(len(self.log.units.names), bool)
        seen[self.log.units.place[at]] = True
        return int(seen.sum())

    def _stands(self, at: IntArray, found: Estimate, interval: Interval) -> bool:
        """True unless so few hostile searches as a winner must withstand, all of them in the segment, could have made it up."""
        worth = worth_of_each(self.log.take(at), self.subject.result, 1 if found.delta > 0 else -1).sum()
        share = made_up_by(interval, float(worth) / found.impressions)
        return bool(share * len(at) > self.stands_against * self.now.sum())


def _compared(estimates: Sequence[Estimate | None]) -> tuple[FloatArray, float]:
    """Differences of B against A shrunken to their mean, and p of the test that all are the same."""
    shrunk = np.full(len(estimates), np.nan)
    known = [at for at, one in enumerate(estimates) if one is not None and one.standard_error > 0]
    if not known:
        return shrunk, float("nan")
    some = [one for one in estimates if one is not None and one.standard_error > 0]
    delta = np.array([0.0 - one.delta for one in some])
    variance = np.array([(one.sums.standard_error * one.inflation()) ** 2 for one in some])
    weight = 1 / np.maximum(variance, 1e-300)
    mean = weight @ delta / weight.sum()
    freedom = len(some) - 1
    if not freedom:
        shrunk[known] = delta
        return shrunk, float("nan")
    squares = float(weight @ (delta - mean) ** 2)
    between = max(squares - freedom, 0.0) / (weight.sum() - weight @ weight / weight.sum())
    both = 1 / (between + variance)
    middle = both @ delta / both.sum()
    shrunk[known] = middle + between / (between + variance) * (delta - middle)
    return shrunk, f_tail(squares / freedom, freedom, np.inf)
