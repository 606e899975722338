"""Answers by segment: the difference of B against A for each value of an attribute, by the estimator of the decision.

Each interval holds by itself, however often one looks. Which segments differ from nothing is told at one false discovery rate
for all of them (``discoveries``), as the more segments one looks at, the more would seem to differ by chance. Whether they
differ from each other is a chi-squared test of their estimates about their mean, at one look; by how much they do (DerSimonian
and Laird 1986) says how far each is shrunken to that mean, for ranking them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ranktrial.analysis.analyse import Analysis
from ranktrial.analysis.decision import ALLOWANCE, Decision, Lift, lift, turned, widened, widening
from ranktrial.analysis.discoveries import RATE, discoveries, least_rates, log_evidence
from ranktrial.analysis.estimators.by_segment import by_value
from ranktrial.analysis.estimators.click_weights import ClickWeights
from ranktrial.analysis.estimators.estimation import estimates_by
from ranktrial.analysis.estimators.results import Estimate
from ranktrial.analysis.ladder import AB_RUNG, LEAST_CLICKS, NO_INTERVAL, POSITION_BASED, Rung, disagreement
from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.distributions import f_tail
from ranktrial.interval import Interval
from ranktrial.log import Log, UnitSums


@dataclass(frozen=True)
class SegmentAnswer:
    """The answer for the searches with one value of an attribute.

    Attributes:
        attribute: Name of the attribute.
        value: The value; "other" for searches that were given none that is declared.
        searches: Number of them; ``visitors`` and ``clicks`` likewise.
        share: Share of all searches.
        difference: Clicks per search of B minus those of A.
        interval: Its interval at the level of the configuration, by itself.
        lift: The difference as a share of A's clicks there.
        shrunken: The difference, shrunken to the mean of the attribute's values: to rank them by.
        discovery: True if it is no chance at the false discovery rate of all segments together.
        rate: The lowest false discovery rate at which it is one.
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
    discovery: bool = False
    rate: float = 1.0

    @property
    def ahead(self) -> str | None:
        """The ranker that surely gets more clicks there; None if neither does."""
        if not self.discovery or 0 in self.interval:
            return None
        return "B" if self.difference > 0 else "A"


@dataclass(frozen=True)
class AttributeTest:
    """The test of whether the difference is the same for all values of an attribute.

    Attributes:
        attribute: Its name.
        p: Of the test, at one look; nan where fewer than two values have an estimate.
        values: Number of values with an estimate.
    """

    attribute: str
    p: float
    values: int


def answers_by_segment(
    analysis: Analysis, decision: Decision, *, rate: float = RATE
) -> tuple[tuple[SegmentAnswer, ...], tuple[AttributeTest, ...]]:
    """Answers for all values of all attributes, and tests of whether these differ; none where nothing is estimated yet."""
    log = analysis.log
    if not log.attributes or decision.estimator is None:
        return (), ()
    rung = analysis.ladder.rung(decision.estimator)
    rows: list[SegmentAnswer] = []
    evidence: list[float] = []
    tests = []
    for name in log.attributes.names:
        found = list(_answers(analysis, rung, name))
        shrunk, p = _compared([estimate for _, estimate, _ in found])
        tests.append(AttributeTest(name, p, sum(estimate is not None for _, estimate, _ in found)))
        rows += [replace(answer, shrunken=float(value)) for (answer, *_), value in zip(found, shrunk)]
        evidence += [told for *_, told in found]
    flags, rates = discoveries(evidence, rate), least_rates(evidence)
    trusted = not decision.failed
    told = [
        replace(row, discovery=bool(flag) and trusted, rate=float(least))
        for row, flag, least in zip(rows, flags, rates)
    ]
    return tuple(told), tuple(tests)


def _answers(analysis: Analysis, rung: Rung, attribute: str) -> Iterator[tuple[SegmentAnswer, Estimate | None, float]]:
    """Answer, estimate and logarithm of the e-value of every value of an attribute that has searches."""
    log, config = analysis.log, analysis.config
    values = log.attributes.values(attribute)
    own = _estimates(analysis, rung, attribute)
    # Fixed before the trial: the sequence of a segment is tightest at an even share of the searches.
    tightest_at = max(rung.tightest_at / len(values), 100.0)
    for value, at, part in by_value(log, attribute):
        found, clicks = own.get(value), int(part.clicks_by_cohort.sum())
        answer = SegmentAnswer(
            attribute, values[value], len(part), part.cohorts.count, clicks, len(part) / len(log),
            float("nan"), NO_INTERVAL, Lift(), float("nan"),
        )  # fmt: skip
        if found is None or clicks < LEAST_CLICKS or not found.units:
            yield answer, None, 0.0
            continue
        granted = 0.0
        if rung.name != AB_RUNG:
            allowance = ALLOWANCE if config.allowance is None else config.allowance
            granted = allowance * disagreement(part, np.array(analysis.theta.theta)) * clicks / len(part)
        interval = found.anytime_interval(config.level, tightest_at=tightest_at)
        wide = turned(widened(rung, widening(granted), interval))
        yield (
            replace(
                answer,
                difference=0.0 - found.delta,
                interval=wide,
                lift=lift(wide, 0.0 - found.delta, _clicks_of_both(analysis, part, at), config.level),
            ),
            found if np.isfinite(interval.low) else None,
            log_evidence(found, tightest_at=tightest_at, level=config.level, allowed=granted),
        )


def _estimates(analysis: Analysis, rung: Rung, attribute: str) -> dict[int, Estimate]:
    """Estimates of each value of an attribute, by the estimator of a rung."""
    log, whole = analysis.log, rung.estimate
    assert whole is not None
    if rung.name == POSITION_BASED and analysis.fit is not None:
        return estimates_by(
            log, attribute, theta=analysis.fit, estimator=analysis.config.comparison.estimator, fitted=analysis.learnt,
            refits=analysis.config.comparison.learns_at or None,
        )  # fmt: skip
    counted, x = np.zeros((2, len(log)))
    counted[whole.picked], x[whole.picked] = 1.0, whole.x
    ratio = whole.standard_error / whole.clicks_alone if whole.clicks_alone > 0 else 1.0
    found = {}
    for value, at, part in by_value(log, attribute):
        sums = part.sums_from(part.by_cohort(counted[at]), part.by_cohort(x[at]))
        if len(sums):
            alone = sums.standard_error
            found[value] = Estimate.summed(
                sums, ClickWeights.of([]), largest_weight=whole.largest_weight, standard_error=ratio * alone,
                clicks_alone=alone, replicates=whole.replicates, freedom=whole.freedom, bias_bound=whole.bias_bound,
            )  # fmt: skip
    return found


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


def _clicks_of_both(analysis: Analysis, part: Log, at: IntArray | slice) -> UnitSums | None:
    """Clicks per search of an even A/B split in a segment, by unit (``Analysis.clicks_of_both``)."""
    gain = analysis.gain
    if gain is not None and len(gain.estimate.x) == len(analysis.log):
        return part.sums(part.clicks_each - gain.estimate.x[at])
    plain: BoolArray = part.arm != 0
    shares = part.shares
    if not plain.any() or not (shares[plain] > 0).all():
        return None
    own = np.where(part.arm > 0, shares[:, 0], shares[:, 1]) / np.maximum(shares.sum(1), 1e-300)
    clicks = np.where(plain, part.clicks_each / (2 * np.maximum(own, 1e-300)), 0.0)
    return part.sums_from(part.by_cohort(plain.astype(np.float64)), part.by_cohort(clicks))
