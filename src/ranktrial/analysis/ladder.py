"""Estimates of one log under fewer and more assumptions, each tested against those that assume less.

| estimator | assumes | estimate |
|---|---|---|
| A/B | nothing | clicks on A/B traffic, adjusted by query |
| direct | a click depends on the document and its rank | ``Direct()`` |
| affine | and is a_rank times the document's relevance plus b_rank (trust bias) | ``affine.affine_estimate`` |
| position-based | and is theta_rank times the document's relevance | the method's own, with the least variance |

Affine clicks are position-based with a click on top that comes whatever stands there, so the affine estimate assumes less and
comes first; a and b come from the same clicks, where documents of different relevance stand at the same ranks.

Every estimate is unbiased under its assumption on the same impressions, so the difference of two has mean zero if the upper
one's assumption holds (Hausman 1978). Its error is that over units, with what fitting theta anew without each of 20 groups adds
to it. A difference of two standard errors is enough not to use the upper one, at any look: that costs power where it happens by
chance, and no truth, while a test that must hold over all looks at once misses most of the biases that name a wrong winner
(docs/research/verdicts.md). Beyond an asymptotic confidence sequence the assumption is refuted, however often one looked.

Error probabilities are divided among the estimates (``SHARES``): the probability that the interval of any of those whose
assumption holds ever leaves out the truth is at most 1 - level. ``decision.decide`` makes one answer of them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.analysis.estimators.affine import affine_estimate, fit_affine
from ranktrial.analysis.estimators.estimation import estimate
from ranktrial.analysis.estimators.kinds import Adjusted, DeltaEstimator, Direct, RankAware
from ranktrial.analysis.estimators.metric_values import MetricValues
from ranktrial.analysis.estimators.results import BiasFit, Estimate, by_group, jackknife_error
from ranktrial.analysis.estimators.valuing import scaled
from ranktrial.analysis.intervals import asymptotic_radius, t_widening
from ranktrial.analysis.power import tightest_for
from ranktrial.arrays import FloatArray, sum_by_group
from ranktrial.distributions import normal_quantile
from ranktrial.interval import Interval
from ranktrial.log.log import Log
from ranktrial.position_bias import NotIdentifiable
from ranktrial.position_bias.affine import AffineBias
from ranktrial.rankings import RequirementError
from ranktrial.users import rank_decay

AB_TRAFFIC, DIRECT, AFFINE, POSITION_BASED = "A/B", "direct", "affine", "position-based"
ASSUMES = {
    AB_TRAFFIC: Adjusted.assumes,
    DIRECT: Direct.assumes,
    AFFINE: "a click is what the rank lets through of the document's relevance, and chance of the rank's own on top",
    POSITION_BASED: RankAware.assumes,
}
# Of the error probability: a verdict mostly comes from the top, so the top has most of it.
SHARES = {AB_TRAFFIC: 0.1, DIRECT: 0.05, AFFINE: 0.05, POSITION_BASED: 0.8}
CONTRADICTED = 2.0  # standard errors between two results, at one look: the upper one is not used
VISIBLE = 1.5  # standard errors of the surest test: a smaller difference could be all bias and not be seen
REFUTED = 0.05  # error probability over all looks of the test that an assumption is wrong
SMALL = 2.0  # half-widths of an interval: a bias that could hide in it is small below that
MOST_ERROR = 0.5  # of a slope, and of an intercept in clicks at rank 1: beyond, they cannot be told
LEAST_UNITS, LEAST_CLICKS, LEAST_ARM = 100, 20, 50  # before that an estimate and its error are not believed
TIGHTEST_AT = 10_000.0
NO_INTERVAL = Interval(-np.inf, np.inf)


@dataclass(frozen=True, eq=False)
class EstimatorResult:
    """One estimate of a log.

    Attributes:
        name: "A/B", "direct", "affine" or "position-based".
        estimate: The estimate; None if there is none yet.
        interval: Its interval at its share of the level; infinite where there is none.
        missing: What it waits for.
        level: Its share of the level.
        tightest_at: The number of units at which its confidence sequence is tightest; nan for a fixed number of units.
    """

    name: str
    estimate: Estimate | None
    interval: Interval
    missing: str
    level: float = 0.95
    tightest_at: float = float("nan")

    @property
    def has_interval(self) -> bool:
        """True if it has an interval."""
        return self.estimate is not None and bool(np.isfinite(self.interval.low))

    def radius(self, units: ArrayLike) -> FloatArray:
        """Half-width of its interval after numbers of units, if the spread of its values stays as it is."""
        assert self.estimate is not None
        found = self.estimate
        spread = found.sums.standard_error * np.sqrt(found.units) * found.inflation(self.level)
        if np.isnan(self.tightest_at):
            return np.asarray(normal_quantile(0.5 + self.level / 2) * spread / np.sqrt(units))
        return asymptotic_radius(units, spread, level=self.level, tightest_at=self.tightest_at)


@dataclass(frozen=True)
class Hausman:
    """Test of an estimator's assumption by an estimator that assumes less.

    Attributes:
        upper: Name of the estimator that is tested.
        lower: Name of the estimator that tests it.
        difference: Upper estimate minus lower estimate.
        standard_error: Standard error of the difference.
        reach: Largest absolute difference, at any time, that is consistent with the assumption.

    >>> test = Hausman("position-based", "direct", difference=0.025, standard_error=0.01, reach=0.03)
    >>> test.contradicted, test.refuted, round(test.hidden, 3)
    (True, False, 0.055)
    """

    upper: str
    lower: str
    difference: float
    standard_error: float
    reach: float

    @property
    def contradicted(self) -> bool:
        """True if the two results differ by more than two standard errors at this look."""
        return abs(self.difference) > CONTRADICTED * self.standard_error

    @property
    def refuted(self) -> bool:
        """True if the upper estimator's assumption is refuted, however often one looked."""
        return abs(self.difference) > self.reach

    @property
    def hidden(self) -> float:
        """A bias of this size could be there without being seen."""
        return abs(self.difference) + self.reach

    @property
    def text(self) -> str:
        """The result of the test in a sentence; differences are of B against A."""
        apart = f"{0.0 - self.difference:+.4f} (standard error {self.standard_error:.4f})"
        told = f"The {self.upper} estimate differs from the {self.lower} estimate by {apart}"
        if self.refuted:
            return f"{told}, more than chance explains: it is not true that {ASSUMES[self.upper]}."
        if self.contradicted:
            return f"{told}, more than {CONTRADICTED:g} standard errors: it is not used for now."
        return f"{told}, no more than chance explains; a bias below {self.hidden:.4f} could hide."


@dataclass(frozen=True, eq=False)
class Ladder:
    """All estimates of a log, those with fewest assumptions first, and the tests between them.

    Attributes:
        results: The estimates.
        tests: Tests of each by those before it.
        disagreement: Exposure disagreement of A and B, the mean over searches.
        ctr: Clicks per search on what was shown, or value per search by a metric.
    """

    results: tuple[EstimatorResult, ...]
    tests: tuple[Hausman, ...]
    disagreement: float = 0.0
    ctr: float = 0.0

    def result(self, name: str) -> EstimatorResult:
        """The estimate of this name."""
        return next(result for result in self.results if result.name == name)

    def tested(self, result: EstimatorResult) -> bool:
        """True if an estimate with fewer assumptions could have contradicted it; the first one needs no test."""
        return self.hidden(result) < np.inf

    def blind(self, result: EstimatorResult, difference: float | None = None) -> float:
        """Factor by which searches are too few for a winner by this estimate; at most 1 where they are enough.

        A winner by an estimate that assumes something needs a test in which a bias as large as its whole estimate would show,
        or as large as another ``difference``. That is for biases of document and rank, such as trust bias; what other results
        on a page do is the allowance's business, as most tests share that assumption.
        """
        if result.name == AB_TRAFFIC or result.estimate is None:
            return 0.0
        surest = min((test.standard_error for test in self.tests if test.upper == result.name), default=float("inf"))
        size = abs(result.estimate.delta if difference is None else difference)
        ratio = VISIBLE * surest / max(size, 1e-150)
        return float(ratio * ratio)

    @property
    def shown(self) -> EstimatorResult | None:
        """The estimate to look at: the last that is tested and not contradicted, or at least not contradicted."""
        found = [
            result
            for result in reversed(self.results)
            if result.estimate is not None and not self.contradictions(result)
        ]
        tested = (result for result in found if result.has_interval and self.tested(result))
        return next(tested, None) or next(
            (result for result in found if result.has_interval), found[0] if found else None
        )

    def contradictions(self, result: EstimatorResult) -> tuple[Hausman, ...]:
        """Tests that contradict an estimate at this look."""
        return tuple(test for test in self.tests if test.upper == result.name and test.contradicted)

    def plainest_test(self, result: EstimatorResult) -> Hausman | None:
        """The test of an estimate to look at: one that it fails, or else the one by the estimate that assumes least."""
        tests = [test for test in self.tests if test.upper == result.name]
        return min(tests, key=lambda test: (not test.refuted, not test.contradicted), default=None)

    def hidden(self, result: EstimatorResult) -> float:
        """Largest bias that the surest test of an estimate could have missed; infinite where nothing tests it.

        The affine estimate tests nothing here: it has most of the position-based one's assumption.
        """
        if result.name == AB_TRAFFIC:
            return 0.0
        tests = [test for test in self.tests if test.upper == result.name and test.lower != AFFINE]
        return min((test.hidden for test in tests), default=float("inf"))

    @property
    def settled(self) -> bool | None:
        """True if A/B traffic may be halved: a bias that could hide in the last estimate is small against its interval, and
        one as large as the estimate would show. False if its assumption is refuted, None if more must be known.
        """
        top = self.results[-1]
        tests = [test for test in self.tests if test.upper == top.name]
        if any(test.refuted for test in tests):
            return False
        small = self.hidden(top) <= SMALL * (top.interval.high - top.interval.low) / 2
        return True if small and self.blind(top) <= 1 and not self.contradictions(top) else None


def ladder(
    log: Log,
    *,
    theta: FloatArray | BiasFit | None,
    fitted: int | None = None,
    estimator: str | DeltaEstimator = "rank-aware",
    level: float = 0.95,
    anytime: bool = True,
    tightest_at: float | None = None,
    smallest: float | None = None,
    waits_for: str = "position bias",
    only: str | DeltaEstimator | None = None,
    metric: MetricValues | None = None,
    **options: Any,
) -> Ladder:
    """Make every estimate that a log supports, and test them against each other.

    Args:
        theta: Position bias known, or fitted to the log (``fit_position_bias``); None if it is neither (yet): then the
            position-based estimate waits for ``waits_for``.
        fitted: Number of first impressions that theta, predictions and lines of the affine estimate are from; all by default.
        estimator: Estimator of the position-based estimate.
        anytime: Intervals that hold however often one looks; False for one look after a number of units fixed beforehand.
        tightest_at: The number of units at which confidence sequences are tightest; by default where they find ``smallest``
            soonest, and 10,000 without one.
        smallest: The smallest difference that matters.
        only: An A/B test without a click model has one estimate, by this estimator, with all of the level.
        metric: Values of the log's impressions by a metric; clicks by default. The affine estimate is of clicks only, and page
            metrics have the A/B estimate only.
        options: Options of ``estimate``: cross-fitting.

    >>> from ranktrial.log import Log
    >>> from ranktrial.methods import LogOpt
    >>> from ranktrial.rankings import Pair
    >>> from ranktrial.users import position_based
    >>> pair = Pair.from_lists([["x", "y", "z"]] * 9, [["z", "x", "y"]] * 9, k=3).knowing(theta=[1, 0.5, 0.3])
    >>> user = position_based([0.6, 0.3, 0.2] * 9, [1, 0.5, 0.3])
    >>> found = ladder(Log.simulated(pair, LogOpt(holdback=0.5).policy(pair), user, 4000, seed=2), theta=pair.theta)
    >>> [(result.name, str(result.interval)) for result in found.results], found.shown.name
    (..., 'position-based')
    """
    options["independent"] = "cohorts"
    if metric is not None:
        only = Adjusted() if only is None and metric.of_results is None else only
        options["metric"], fitted = metric, None if fitted is None else min(fitted, len(log))
    fit, known = (theta, scaled(theta.bias.theta)) if isinstance(theta, BiasFit) else (None, theta)
    found = {AB_TRAFFIC: _of_ab_traffic(log, only, options)}
    if only is None:
        found |= dict.fromkeys((DIRECT, AFFINE, POSITION_BASED), "")
    if only is None and len(log):
        try:
            found[DIRECT] = estimate(log, estimator=Direct(), theta=known, fitted=fitted, **options)
        except RequirementError as refusal:
            found[DIRECT] = f"A/B traffic: {refusal}"
        found[POSITION_BASED] = waits_for
        if theta is not None:
            found[POSITION_BASED] = estimate(
                log, theta=theta, estimator=estimator, uncovered="leave out", fitted=fitted, **options
            )
        if metric is None:
            found[AFFINE] = _affine(log, fit, found[DIRECT], fitted, options)
        else:
            del found[AFFINE]
    each, of_ab = log.clicks_each if metric is None else metric.each != 0, log.arm != 0
    results = tuple(
        made_result(
            name, None if isinstance(one, str) else one, one if isinstance(one, str) else "",
            clicks=float((each[of_ab] if name == AB_TRAFFIC else each).sum()), level=level,
            share=1.0 if only else SHARES[name], anytime=anytime, tightest_at=tightest_at, smallest=smallest,
            of="clicks" if metric is None else metric.metric.occasions,
        )
        for name, one in found.items()
    )  # fmt: skip
    tests = [
        _hausman(log, upper, lower, fit, tightest_at or TIGHTEST_AT)
        for at, upper in enumerate(results)
        for lower in results[:at]
        if upper.has_interval and lower.has_interval
    ]
    return Ladder(
        results,
        tuple(test for test in tests if test.standard_error > 0),
        float(disagreements(log, rank_decay(log.k) if known is None else known)[log.design].mean())
        if len(log)
        else 0.0,
        float((log.clicks_each if metric is None else metric.each).sum()) / max(len(log), 1),
    )


def _of_ab_traffic(log: Log, only: str | DeltaEstimator | None, options: dict[str, Any]) -> Estimate | str:
    """The A/B estimate, or what it waits for: impressions of A and of B that could have shown either."""
    could = (log.ab_shares.min(1) > 0)[log.design]
    of_a, of_b = (int((could & (log.arm == arm)).sum()) for arm in (1, -1))
    if min(of_a, of_b) < (LEAST_ARM if only is None else 1):
        return f"{LEAST_ARM} A/B searches of A and of B ({of_a} and {of_b} so far)"
    return estimate(log, estimator=only or Adjusted(), **options)


def _affine(
    log: Log, fit: BiasFit | None, direct: Estimate | str, fitted: int | None, options: dict[str, Any]
) -> Estimate | str:
    """The affine estimate, or what it waits for."""
    if fit is None:
        return "position bias from the trial's own clicks"
    if fit.by_segment is not None:
        return f"one position bias for all: that of {fit.by_segment.attribute} differs"

    def lines_of(first: Log) -> AffineBias | str:
        try:
            return fit_affine(first, fit, most_error=MOST_ERROR)
        except NotIdentifiable as refusal:
            return str(refusal)

    lines = log.kept.fitted(log, len(log) if fitted is None else fitted, "lines", (fit,), lines_of)
    if isinstance(lines, str):
        return f"more clicks on documents of different relevance at the same ranks ({lines})"
    found = affine_estimate(log, fit, lines, fitted=fitted, **options)
    if isinstance(direct, Estimate) and found.standard_error > direct.standard_error:
        return "more clicks: the direct estimate assumes less and is surer"
    return found


def disagreements(log: Log, theta: FloatArray) -> FloatArray:
    """Exposure disagreement of A and B for each design: 0 for the same lists, 1 for nothing in common.

    >>> from ranktrial.log import Log
    >>> search = {"query": "q", "a": ["x", "y"], "b": ["y", "z"], "shown": ["x", "y"], "clicked": []}
    >>> disagreements(Log.from_records([search], k=2), np.array([1, 0.5])).round(4)
    array([0.6667])
    """
    by_a, by_b = log.list_exposures(theta)
    away, both = (sum_by_group(of, log.slot_offsets) for of in (np.abs(by_a - by_b), by_a + by_b))
    return np.divide(away, both, out=np.zeros(log.n_designs), where=both > 0)


def made_result(
    name: str,
    found: Estimate | None,
    missing: str,
    *,
    clicks: float,
    level: float,
    share: float,
    anytime: bool = True,
    tightest_at: float | None = None,
    smallest: float | None = None,
    of: str = "clicks",
) -> EstimatorResult:
    """An estimate with its interval, at its share of the error probability.

    Args:
        missing: What it waits for, if it is None.
        clicks: Number of clicks it rests on: before 20 of them, and 100 units, there is no interval.
        tightest_at: See ``ladder``; by default where a sequence finds ``smallest`` soonest, by the spread of values so far. It
            is then a mixture over differences of the order of ``smallest``, fixed before the trial, with the variance estimated
            as it is anyway.
        of: Name of what is counted as ``clicks``.
    """
    result = EstimatorResult(name, found, NO_INTERVAL, missing, 1 - (1 - level) * share)
    if found is None:
        return result
    if anytime:
        variance = found.standard_error**2 * found.units
        if tightest_at is None:
            known = smallest is not None and variance > 0
            tightest_at = tightest_for(variance, smallest, level=level) if known else TIGHTEST_AT  # type: ignore[arg-type]
        result = replace(result, tightest_at=tightest_at)
    interval = NO_INTERVAL
    if clicks >= LEAST_CLICKS and anytime:
        interval = found.anytime_interval(result.level, tightest_at=result.tightest_at)
    elif clicks >= LEAST_CLICKS and found.units >= LEAST_UNITS:
        with suppress(ValueError):
            interval = found.confidence_interval(result.level)
    told = "" if np.isfinite(interval.low) else f"{LEAST_UNITS} visitors and {LEAST_CLICKS} {of}, on lists that differ"
    return replace(result, interval=interval, missing=told or missing)


def _hausman(
    log: Log, upper: EstimatorResult, lower: EstimatorResult, fit: BiasFit | None, tightest_at: float
) -> Hausman:
    """The spread of the difference over units, with theta as it is, times what refitting theta adds to it."""
    above, below = upper.estimate, lower.estimate
    assert above is not None
    assert below is not None
    n, units = len(log.cohorts), log.cohorts.count
    away = np.zeros(n)  # influence of each cohort on the difference
    for sign, sums in ((1, above.sums), (-1, below.sums)):
        assert sums.units is not None
        away[sums.units] += sign * (sums.totals - sums.mean * sums.impressions) / sums.impressions.sum()
    error = float(np.sqrt(n / (n - 1) * (away @ away)))
    level, wider = 1 - REFUTED, 1.0
    if fit is not None and above.replicates is not None:
        fixed, refitted = np.zeros((2, len(fit.without)))
        for sign, one in ((1, above), (-1, below)):
            sizes, sums = by_group(log, one.x, len(fit.without), one.picked)
            without = (sums.sum() - sums) / np.maximum(sizes.sum() - sizes, 1)
            fixed += sign * without
            refitted += sign * (without if one.replicates is None else one.replicates)
        spread = jackknife_error(fixed)
        error *= max(jackknife_error(refitted) / spread, 1.0) if spread > 0 else 1.0
        wider = t_widening(len(fit.without) - 1, level)
    reach = asymptotic_radius(units, wider * error * np.sqrt(units), level=level, tightest_at=tightest_at)
    return Hausman(upper.name, lower.name, above.delta - below.delta, error, float(reach))
