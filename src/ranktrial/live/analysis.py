"""The numbers of a report: a version's configuration and log in, the estimate of its method out, and when it will decide.

Everything is the library's: position bias by ``fit_position_bias``, Delta by ``estimate`` with guesses of relevance from the
past only, so that the confidence sequence may be looked at any time. A plain A/B test needs no theta at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.inference import BiasFit, Estimate, Log, UnitSums, asymptotic_radius, estimate, fit_position_bias
from ranktrial.interval import Interval
from ranktrial.live.schemas import BandPoint, Forecast, Theta, TrialConfig
from ranktrial.methods import Beliefs
from ranktrial.methods.beliefs import MOST_ERROR
from ranktrial.position_bias import NotIdentifiable

TIGHTEST_AT = 10_000.0
LEAST_CLICKS = 20  # before that nothing is said: the estimate would rest on guesses
FARTHEST = 1e12  # impressions: later than that is never
MICROSECONDS_A_DAY = 86_400e6


@dataclass(frozen=True, eq=False)
class Analysis:
    """A version's log with everything that its report rests on."""

    log: Log
    config: TrialConfig
    fit: BiasFit | None
    theta: Theta
    estimate: Estimate
    band: tuple[BandPoint, ...]

    @cached_property
    def clicks(self) -> int:
        return int(self.log.clicks.sum())

    @property
    def delta(self) -> float:
        return self.estimate.delta if self.clicks >= LEAST_CLICKS else float("nan")

    @property
    def interval(self) -> Interval:
        return Interval(self.band[-1].low, self.band[-1].high) if self.band else Interval(-np.inf, np.inf)

    @cached_property
    def exposures(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """P(examined) of each slot under A, under B, and under its design."""
        theta = np.array(self.theta.theta)
        return *self.log.list_exposures(theta), self.log.exposure(theta)


def analyse(log: Log, config: TrialConfig, beliefs: Beliefs) -> Analysis:
    """``beliefs`` are those in force last: their theta is used when this log cannot tell."""
    method = config.comparison
    fit, note = None, "position bias is taken as known"
    if method.learns_position_bias:
        fit, note = _fit(log)
    theta = beliefs.theta if fit is None else fit.bias.theta
    found = Estimate.of(np.empty(0), np.empty(0), largest_weight=0.0)
    if len(log):
        found = estimate(
            log,
            theta=theta if fit is None else fit,
            estimator=method.estimator,
            cross_fit="past",
            refits=method.learns_at or None,
            independent=f"{'unit' if config.unit == 'user' else 'impression'}s",
            uncovered="leave out",
        )
    reported = Theta(
        theta=tuple(theta.tolist()),
        standard_error=tuple((np.zeros_like(theta) if fit is None else fit.bias.standard_error).tolist()),
        fitted=fit is not None or beliefs.fitted,
        note=note,
        inflation=found.inflation(config.level),
    )
    return Analysis(log, config, fit, reported, found, _band(log, config, found))


def _fit(log: Log) -> tuple[BiasFit | None, str]:
    """Theta from the log, or why not."""
    if log.k == 1:
        return None, "one rank has no position bias"
    if not log.clicks.any():
        return None, "no clicks yet"
    try:
        fit = fit_position_bias(log, most_error=MOST_ERROR)
    except NotIdentifiable as refusal:
        return None, f"position bias cannot be told yet: {refusal}"
    return fit, fit.bias.note


def _band(log: Log, config: TrialConfig, found: Estimate) -> tuple[BandPoint, ...]:
    """The confidence sequence at up to sixty numbers of units, from the first that has enough clicks."""
    sums, n = found.sums, found.units
    if n == 0:
        return ()
    clicks = np.cumsum(
        UnitSums.of(log.clicks.sum(1).astype(np.float64), log.unit if config.unit == "user" else None).totals
    )
    points = np.unique(np.append(np.geomspace(1, n, 60).astype(np.int64), n))
    points = points[clicks[points - 1] >= LEAST_CLICKS]  # what came before must not narrow what comes after
    if not len(points):
        return ()
    told = found.sequence(points, config.level, tightest_at=TIGHTEST_AT)
    means = np.cumsum(sums.totals)[points - 1] / np.cumsum(sums.impressions)[points - 1]
    rows = zip(points.tolist(), means.tolist(), told.low.tolist(), told.high.tolist())
    return tuple(BandPoint(units=u, delta=d, low=lo, high=hi) for u, d, lo, hi in rows)


def forecast(analysis: Analysis) -> Forecast:
    """When the interval will be narrow enough for a decision, if delta and spread stay as they are."""
    low, high = analysis.interval
    smallest, n = analysis.config.smallest, len(analysis.log)
    nan = float("nan")
    if low > 0 or high < 0:
        return Forecast(target=abs(analysis.delta), impressions=n, remaining=0, days=0.0, text="Decided.")
    if smallest is not None and -smallest < low and high < smallest:
        return Forecast(target=smallest, impressions=n, remaining=0, days=0.0, text="Decided.")
    if not np.isfinite(low):
        first = f"the first interval comes after 100 units and {LEAST_CLICKS} clicks, on lists that differ"
        text = f"Too early to forecast: {first}."
        return Forecast(target=nan, impressions=nan, remaining=nan, days=nan, text=text)
    target = max(abs(analysis.delta), smallest or 0.0)
    units = analysis.estimate.units
    spread = analysis.estimate.sums.standard_error * np.sqrt(units) * analysis.theta.inflation
    needed = max(_units_for(target, spread, analysis.config.level) * n / units, float(n))
    span = int(analysis.log.time[-1] - analysis.log.time[0])
    days = (needed - n) / n * span / MICROSECONDS_A_DAY if span > 0 else nan
    if needed > FARTHEST:
        text = "No decision in sight: the difference seen so far is too small to be told from none."
        return Forecast(target=target, impressions=np.inf, remaining=np.inf, days=np.inf, text=text)
    about = f", {days:.1f} days at the rate so far" if days >= 0.1 else ""
    text = f"A decision on a difference of {target:.4g} needs about {needed:,.0f} impressions, {needed - n:,.0f} more{about}."
    return Forecast(target=target, impressions=needed, remaining=needed - n, days=days, text=text)


def _units_for(target: float, spread: float, level: float) -> float:
    """The least number of units whose interval is no wider than the target on either side."""
    low, high = 1.0, FARTHEST * 2
    if target <= 0:
        return high
    while high / low > 1.0001:
        middle = np.sqrt(low * high)
        wide = asymptotic_radius([middle], [spread], level=level, tightest_at=TIGHTEST_AT)[0] > target
        low, high = (middle, high) if wide else (low, middle)
    return float(high)
