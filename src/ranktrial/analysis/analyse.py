"""Analysis of a version's log: its estimates, its position bias, and the parts of the log they are fitted to.

Everything is the library's: position bias by ``fit_position_bias``, Delta by ``estimate`` with relevance models fitted to the
past only, so that the confidence sequence may be looked at any time. An A/B test needs no theta at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial.analysis.decision import ALLOWANCE, combine, turned, widened, widening
from ranktrial.analysis.drift import Drift
from ranktrial.analysis.estimators.estimation import fit_position_bias
from ranktrial.analysis.estimators.metric_values import MetricValues, metric_values
from ranktrial.analysis.estimators.results import BiasFit, Estimate, SegmentBias
from ranktrial.analysis.evidence import Gain, click_gain
from ranktrial.analysis.intervals import looks
from ranktrial.analysis.ladder import AB_TRAFFIC, LEAST_CLICKS, TIGHTEST_AT, EstimatorResult, Ladder, ladder
from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.config import TrialConfig
from ranktrial.interval import Interval
from ranktrial.log import UnitSums
from ranktrial.log._kernels import first_places
from ranktrial.log.log import Log
from ranktrial.methods import Beliefs
from ranktrial.methods.beliefs import MOST_ERROR, sound_theta
from ranktrial.metrics import Clicks, Metric
from ranktrial.position_bias import NotIdentifiable
from ranktrial.schema import Frozen

ALL_FITTED, FITTED_STEP = 10_000, 1.1  # impressions, up to which everything is fitted to all; then one fit to the next
MOST_DESIGNS = 1_000_000  # that theta is fitted to: a kilobyte each, as long as that takes
MOST_LEARNT = 200_000  # that relevance is learnt from: several, and more would tell hardly more


class Theta(Frozen):
    """Position bias behind the numbers.

    Attributes:
        theta: Examination probability of each rank, relative to the first.
        standard_error: By a jackknife over units; 0 where it is assumed.
        fitted: From this trial's clicks, or assumed.
        note: How, or why not.
        inflation: How much wider the interval is because theta is estimated.
    """

    theta: tuple[float, ...]
    standard_error: tuple[float, ...]
    fitted: bool
    note: str
    inflation: float


class BandPoint(Frozen):
    """The interval of B against A after a number of units, with what is known of position bias now; ``time`` (seconds since
    1970) is when the last of these units came.
    """

    units: int
    time: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Analysis:
    """A version's log with everything that its report rests on.

    Attributes:
        log: The impressions and their clicks.
        config: The configuration they were shown under.
        fit: Position bias from the log, if it can be fitted.
        theta: Position bias as it is reported.
        ladder: All estimates of the log, with fewer and more assumptions.
        result: The estimate that checks look at; None if there is none yet.
        fitted: Number of first impressions that theta is from.
        learnt: Number of first impressions that predictions of relevance and lines are from.
        values: Values by the metric that it is of; None for clicks.
    """

    log: Log
    config: TrialConfig
    fit: BiasFit | None
    theta: Theta
    ladder: Ladder
    result: EstimatorResult | None
    fitted: int
    learnt: int
    values: MetricValues | None = None

    @property
    def differs(self) -> SegmentBias | None:
        """Theta by segment, where it surely differs."""
        return None if self.fit is None else self.fit.by_segment

    @cached_property
    def clicks(self) -> int:
        return int(self.log.clicks_each.sum())

    @property
    def events(self) -> int:
        """Number of clicks, or of searches with a value by the metric."""
        return self.clicks if self.values is None else self.values.events

    @property
    def estimate(self) -> Estimate:
        """The estimate that checks look at, or an empty one."""
        if self.result is None or self.result.estimate is None:
            return Estimate.of(np.empty(0), np.empty(0), largest_weight=0.0)
        return self.result.estimate

    @cached_property
    def apart(self) -> tuple[str, ...]:
        """Names of estimates whose interval has nothing in common with those that assume less, whatever the tests say."""
        return combine(replace(self.ladder, tests=()), self.widen).contradicted

    @property
    def widen(self) -> Interval:
        """Room that the allowance gives to intervals by the click model."""
        return widening(allowed_share(self.config) * self.ladder.disagreement * self.ladder.ctr)

    @cached_property
    def interval(self) -> Interval:
        """The interval of A - B by all estimates that no test contradicts: over all units, or since the difference changed."""
        return turned(self.drift.since) if self.changed else combine(self.ladder, self.widen).interval

    @cached_property
    def drift(self) -> Drift:
        """The test of whether B against A stays the same over time."""
        if self.result is None or self.result.estimate is None:
            return Drift("unknown", 1.0, 0, what="B against A")
        found, level = self.estimate, self.result.level
        return Drift.of(
            replace(found.sums, totals=-found.sums.totals), times=came(self.log, found.sums), level=level,
            tightest_at=TIGHTEST_AT if np.isnan(self.result.tightest_at) else self.result.tightest_at,
            widen=found.inflation(level), what="B against A",
        )  # fmt: skip

    @property
    def changed(self) -> bool:
        """True if the difference was seen to change: the answer is then that since the change."""
        return self.drift.status == "fail"

    def since_change(self, log: Log) -> BoolArray:
        """Flags of the impressions of a log of the same units that came since the change."""
        drift, sums = self.drift, self.estimate.sums
        assert drift.at is not None
        first = int(came(self.log, sums)[sums.places(drift.at)])
        return np.asarray(log.time[log.units.first][log.units.place] >= first)

    def points(self, used: Sequence[str], widen: Interval, until: float | None = None) -> tuple[BandPoint, ...]:
        """The interval over time, by the same estimates and as much widened as the last one, of B against A.

        Given a time in seconds since 1970, only that of the units that had come ``until`` then.
        """
        if self.result is None or not self.result.has_interval:
            return ()
        log, sums = self.log, self.estimate.sums
        if until is None:
            places = np.unique(sums.places(looks(sums.count)))
        elif not (come := int(np.searchsorted(came(log, sums), int(until * 1e6), side="right"))):
            return ()
        else:
            places = np.array([come])
        times = came(log, sums)[places - 1]
        low, high = (np.full(len(places), side * np.inf) for side in (-1, 1))
        each = log.clicks_each if self.values is None else self.values.each != 0
        for result in self.ladder.results:
            if result.name not in used or result.estimate is None:
                continue
            own = result.estimate.sums
            there = np.searchsorted(came(log, own), times, side="right")  # cohorts that have come by then
            clicks = log.cohorts.by(each * (log.arm != 0) if result.name == AB_TRAFFIC else each)
            so_far = np.append(0.0, np.cumsum(clicks[own.units]))[there]
            some = np.flatnonzero(so_far >= LEAST_CLICKS)
            once, again = np.unique(there[some], return_inverse=True)  # A/B traffic may stand still between two looks
            band = result.estimate.sequence(own.come(once), result.level, tightest_at=result.tightest_at)
            ends = widened(result, widen, Interval(band.low[again], band.high[again]))  # type: ignore[arg-type]  # arrays
            low[some], high[some] = np.maximum(low[some], ends.low), np.minimum(high[some], ends.high)
        band = self.estimate.sequence(sums.come(places), self.result.level, tightest_at=self.result.tightest_at)
        known = np.isfinite(low) & np.isfinite(high) & (low <= high)
        middle = np.clip(band.mean, low, high)
        columns = (column[known].tolist() for column in (band.units, times / 1e6, -middle, -high, -low))
        return tuple(BandPoint(units=u, time=t, difference=d, low=lo, high=hi) for u, t, d, lo, hi in zip(*columns))

    @cached_property
    def clicks_of_both(self) -> UnitSums | None:
        """Clicks (or value) per search of an even A/B split, by unit; None if they cannot be estimated.

        Estimated from A/B traffic if that is the estimate in use, or the only one; by the click model otherwise.
        """
        log, each = self.log, self.log.clicks_each if self.values is None else self.values.each
        if self.result is not None and self.result.name != AB_TRAFFIC and self.gain is not None:
            gained = self.gain.estimate.sums
            return replace(gained, totals=log.cohorts.by(each) - gained.totals)

        counted, values = of_even_split(log, each)
        return None if counted is None else log.cohorts.sums(values[counted], counted)

    @cached_property
    def gain(self) -> Gain | None:
        """Clicks (or value) that visitors gained over an A/B test; None if that cannot be estimated."""
        method = self.config.comparison
        if not method.traits.needs_position_bias or self.events < LEAST_CLICKS:
            return None
        known = None if method.traits.learns_position_bias else np.array(self.theta.theta)
        # Relevance models at the same points as those of the estimates, which need not be fitted twice then.
        refits = method.traits.learns_at or None
        return click_gain(
            self.log, known if self.fit is None else self.fit, refits=refits, fitted=self.learnt, metric=self.values
        )


def fitted_impressions(log: Log, click_window: float) -> int:
    """Number of first impressions that everything is fitted to, such as position bias.

    All of them, as long as there are no more than 10,000. Then a number of a fixed grid, in which each number is a tenth above
    the one before: the largest that leaves out impressions which may still get clicks (``click_window``, in seconds), or a
    tenth of all if these are more, and whose designs are no more than ``MOST_DESIGNS``. So values of impressions stay the same
    while a log grows by a tenth, hardly ever change with late clicks, and depend on the log alone; and where every search has
    lists of its own, the memory of fits does not grow with the log.
    """
    n = len(log)
    if n <= ALL_FITTED:
        return n
    final = int(np.searchsorted(log.time, log.time[-1] - round(click_window * 1e6)))
    most = min(max(final, n - n // 10), with_few_designs(log.design, MOST_DESIGNS))
    steps = int(np.log(most / ALL_FITTED) / np.log(FITTED_STEP)) + 1
    grid = (ALL_FITTED * FITTED_STEP ** np.arange(steps - 4.0, steps + 1.0)).astype(np.int64)
    return int(grid[grid <= most][-1])


def with_few_designs(designs: IntArray, most: int) -> int:
    """Number of the first impressions that have no more than ``most`` designs, given the design of each.

    >>> with_few_designs(np.array([0, 1, 0, 2]), 2)
    3
    """
    first, _ = first_places(np.ascontiguousarray(designs))
    return int(first[most]) if len(first) > most else len(designs)


def analyse(log: Log, config: TrialConfig, beliefs: Beliefs, *, anytime: bool = True) -> Analysis:
    """Make the estimates of a log.

    Args:
        log: The log.
        config: The configuration it was shown under.
        beliefs: The beliefs in force last: their theta was assumed or fitted earlier, and is no more than a prediction here.
        anytime: See ``ladder``.
    """
    method, fitted = config.comparison, fitted_impressions(log, config.click_window)
    learnt = min(fitted, with_few_designs(log.design, MOST_LEARNT))
    fit, note = None, "position bias is taken as known"
    if method.traits.learns_position_bias:
        fit, note = log.kept.fitted(log, fitted, "position bias", (), _fit)
    found = _estimates(log, config, beliefs.theta if fit is None else fit, learnt, note, anytime=anytime)
    theta = beliefs.theta if fit is None else fit.bias.theta
    result = found.shown
    reported = Theta(
        theta=tuple(theta.tolist()),
        standard_error=tuple((np.zeros_like(theta) if fit is None else fit.bias.standard_error).tolist()),
        fitted=fit is not None or beliefs.fitted,
        note=note,
        inflation=1.0 if result is None or result.estimate is None else result.estimate.inflation(config.level),
    )
    return Analysis(log, config, fit, reported, found, result, fitted, learnt)


def analyse_metric(analysis: Analysis, metric: Metric) -> Analysis:
    """The analysis of a metric, of the impressions that count for it, given that of the clicks of all."""
    if isinstance(metric, Clicks):
        return analysis
    values = metric_values(analysis.log, metric)
    known = np.array(analysis.theta.theta) if analysis.fit is None else analysis.fit
    found = _estimates(values.log, analysis.config, known, analysis.learnt, analysis.theta.note, values)
    return replace(analysis, log=values.log, ladder=found, result=found.shown, values=values)


def _estimates(
    log: Log,
    config: TrialConfig,
    theta: FloatArray | BiasFit,
    learnt: int,
    note: str,
    values: MetricValues | None = None,
    *,
    anytime: bool = True,
) -> Ladder:
    """All estimates of a log, of its clicks or by a metric; theta that is no fit is used where it is taken as known."""
    method = config.comparison
    by_model = method.traits.needs_position_bias
    known = theta if isinstance(theta, BiasFit) or (by_model and not method.traits.learns_position_bias) else None
    decides = values is None or values.metric.role == "primary"
    return ladder(
        log,
        theta=known,
        fitted=learnt,
        estimator=method.traits.estimator if by_model else "rank-aware",
        level=config.level,
        anytime=anytime,
        tightest_at=config.tightest_at,
        smallest=config.smallest if decides else None,
        waits_for=f"position bias ({note})" if by_model else "an estimate by the click model, not asked for",
        only=None if by_model else method.traits.estimator,
        metric=values,
        cross_fit="past",
        refits=method.traits.learns_at or None,
    )


def with_segments(beliefs: Beliefs, differs: SegmentBias | None) -> Beliefs:
    """Beliefs with theta by segment, for designs; without it where segments do not differ."""
    if differs is None:
        return replace(beliefs, attribute="", thetas=()) if beliefs.attribute else beliefs
    thetas = tuple(tuple(theta) for theta in sound_theta(differs.thetas).tolist())
    return replace(beliefs, attribute=differs.attribute, thetas=thetas)


def allowed_share(config: TrialConfig) -> float:
    """The allowance of a configuration."""
    return ALLOWANCE if config.allowance is None else config.allowance


def _fit(log: Log) -> tuple[BiasFit | None, str]:
    """Theta from the log, or why not."""
    if log.k == 1:
        return None, "one rank has no position bias"
    if not log.clicks.any():
        return None, "no clicks yet"
    try:
        fit = fit_position_bias(log, most_error=MOST_ERROR)
    except NotIdentifiable as refusal:
        return None, f"it cannot be told yet: {refusal}"
    return fit, fit.bias.note


def came(log: Log, sums: UnitSums) -> IntArray:
    """Times at which the first unit of each of these cohorts came, in microseconds."""
    assert sums.units is not None
    return np.asarray(log.time[log.cohorts.first[sums.units]])


def of_even_split(log: Log, each: NDArray[Any]) -> tuple[IntArray | None, FloatArray]:
    """Numbers of the A/B impressions, and values of all impressions as an even A/B split would have them, 0 for the others.

    None instead of the numbers if there are no such impressions, or some that only one of the rankers could have shown.
    """
    at, shares = np.flatnonzero(log.arm), log.shares
    if not len(at) or not (shares[at] > 0).all():
        return None, np.empty(0)
    own = np.where(log.arm[at] > 0, shares[at, 0], shares[at, 1]) / shares[at].sum(1)
    values = np.zeros(len(log))
    values[at] = each[at] / (2 * own)
    return at, values
