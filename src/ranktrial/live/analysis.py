"""The numbers of a report: a version's configuration and log in, the estimate of its method out, and when it will decide.

Everything is the library's: position bias by ``fit_position_bias``, Delta by ``estimate`` with guesses of relevance from the
past only, so that the confidence sequence may be looked at any time. A plain A/B test needs no theta at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ranktrial.arrays import IntArray
from ranktrial.inference import (
    Band,
    BiasFit,
    Drift,
    Estimate,
    Gain,
    Ladder,
    Rung,
    UnitSums,
    asymptotic_radius,
    click_gain,
    fit_position_bias,
    ladder,
    looks,
)
from ranktrial.inference.impressions import Impressions
from ranktrial.inference.intervals import Units
from ranktrial.inference.ladder import AB_RUNG
from ranktrial.inference.power import tightest_for
from ranktrial.interval import Interval
from ranktrial.live.schemas import BandPoint, Forecast, Theta, TrialConfig
from ranktrial.methods import Beliefs
from ranktrial.methods.beliefs import MOST_ERROR
from ranktrial.position_bias import NotIdentifiable
from ranktrial.times import told_time

TIGHTEST_AT = 10_000.0
LEAST_CLICKS = 20  # before that nothing is said: the estimate would rest on guesses
ALL_FITTED, FITTED_STEP = 10_000, 1.1  # impressions, up to which everything is fitted to all; then one fit to the next
MOST_DESIGNS = 1_000_000  # that theta is fitted to: a kilobyte each, as long as that takes
MOST_LEARNT = 200_000  # that relevance is learnt from: several, and more would tell hardly more
FARTHEST = 1e12  # impressions: later than that is never
MICROSECONDS_A_DAY = 86_400e6
MOST_DAYS = 3_650.0  # in which a date says something


@dataclass(frozen=True, eq=False)
class Analysis:
    """A version's log with everything that its report rests on.

    Attributes:
        log: What was shown and clicked.
        config: What decided about it.
        fit: Position bias from the log, if it can tell.
        theta: The same, as it is reported.
        ladder: Every reading of the log, with more and fewer assumptions.
        rung: The reading that speaks; None if none can say anything yet.
        estimate: Of that reading, or one of nothing.
        band: Its confidence sequence, watched after every unit from the first that has enough clicks; None before that.
        drift: Whether the difference stays the same over time.
        fitted: From how many of the first impressions theta is.
        learnt: From how many of them everything else is that was fitted: guesses of relevance, and lines.
        doubt: Why no winner is named though the interval leaves out 0; "" if there is no such reason.
    """

    log: Impressions
    config: TrialConfig
    fit: BiasFit | None
    theta: Theta
    ladder: Ladder
    rung: Rung | None
    estimate: Estimate
    band: Band | None
    drift: Drift
    fitted: int
    learnt: int
    doubt: str = ""

    @cached_property
    def clicks(self) -> int:
        return int(self.log.clicks_each.sum())

    @property
    def delta(self) -> float:
        return self.estimate.delta if self.clicks >= LEAST_CLICKS else float("nan")

    @property
    def interval(self) -> Interval:
        """Of all units so far, or of those since the difference changed."""
        if self.changed:
            return self.drift.since
        return Interval(-np.inf, np.inf) if self.band is None else self.band.last

    @property
    def changed(self) -> bool:
        """Whether the difference was seen to change: what was decided before then is void."""
        return self.drift.status == "fail"

    @property
    def winner(self) -> int:
        """1 if A gets more clicks, -1 if B does, 0 if that is not decided. What a sequence has ruled out stays so."""
        if not self.decides or self.band is None or self.doubt:
            return 0
        if self.changed:
            low, high = self.drift.since
            return int(low > 0) - int(high < 0)
        return self.band.decided_for(0)

    @property
    def points(self) -> tuple[BandPoint, ...]:
        """The confidence sequence for a chart."""
        if self.band is None:
            return ()
        assert self.rung is not None
        shown = looks(int(self.band.units[-1]))
        band = self.band.at(shown[shown >= self.band.units[0]])
        first = self.log.units_of(self.rung.rows).first[band.units - 1]
        times = self.log.time[self.rung.rows][first] / 1e6
        columns = (column.tolist() for column in (band.units, times, band.mean, band.low, band.high))
        return tuple(BandPoint(units=u, time=t, delta=d, low=lo, high=hi) for u, t, d, lo, hi in zip(*columns))

    @cached_property
    def clicks_of_both(self) -> UnitSums | None:
        """Clicks per impression of pages that are half A's and half B's, by unit; None where that cannot be told.

        By plain A/B traffic where that speaks, or nothing else can; by the click model otherwise.
        """
        log = self.log
        if self.gain is not None and self.rung is not None and self.rung.name != AB_RUNG:
            return UnitSums.of(log.clicks_each - self.gain.estimate.x, log.units)
        plain = np.flatnonzero(log.arm)
        shares = log.shares[plain]
        if not len(plain) or not (shares > 0).all():
            return None
        own = np.where(log.arm[plain] > 0, shares[:, 0], shares[:, 1]) / shares.sum(1)
        return UnitSums.of(log.clicks_each[plain] / (2 * own), log.units_of(plain))

    @property
    def decides(self) -> bool:
        """Whether what speaks may name a winner: nothing contradicts what it assumes, though something could have."""
        return self.rung is not None and self.ladder.stands(self.rung)

    @cached_property
    def gain(self) -> Gain | None:
        """Clicks that visitors had more than an A/B test would have got; None where that cannot be told."""
        method = self.config.comparison
        if not method.needs_position_bias or self.clicks < LEAST_CLICKS:
            return None
        known = None if method.learns_position_bias else np.array(self.theta.theta)
        # Guesses at the same points as those of the readings, which need not be made twice then.
        refits = method.learns_at or None
        return click_gain(self.log, known if self.fit is None else self.fit, refits=refits, fitted=self.learnt)


def fitted_impressions(log: Impressions, click_window: float) -> int:
    """From how many of its first impressions everything is that is fitted to a log, such as position bias.

    From all, as long as there are no more than 10,000. Then from as many as a fixed grid says, in which each number is a tenth
    above the one before: the largest that leaves out impressions which may still get clicks (``click_window``, in seconds), or
    a tenth of all if these are more, and whose designs are no more than ``MOST_DESIGNS``. So what impressions are worth stays
    the same while a log grows by a tenth, hardly ever changes with clicks that come late, and depends on the log alone; and
    where every search has lists of its own, memory that fits take does not grow with the log.
    """
    n = len(log)
    if n <= ALL_FITTED:
        return n
    final = int(np.searchsorted(log.time, log.time[-1] - round(click_window * 1e6)))
    most = min(max(final, n - n // 10), with_few_designs(log.designs, MOST_DESIGNS))
    steps = int(np.log(most / ALL_FITTED) / np.log(FITTED_STEP)) + 1
    grid = (ALL_FITTED * FITTED_STEP ** np.arange(steps - 4.0, steps + 1.0)).astype(np.int64)
    return int(grid[grid <= most][-1])


def with_few_designs(design: IntArray, most: int) -> int:
    """How many of the first impressions have no more than so many designs.

    >>> with_few_designs(np.array([0, 1, 0, 2]), 2)
    3
    """
    n = len(design)
    if n <= most:
        return n
    first = np.full(int(design.max()) + 1, n)
    first[design[::-1]] = np.arange(n)[::-1]  # the earliest of a design is written last
    first = first[first < n]
    return n if len(first) <= most else int(np.partition(first, most)[most])


def analyse(log: Impressions, config: TrialConfig, beliefs: Beliefs) -> Analysis:
    """``beliefs`` are those in force last: their theta was assumed or fitted earlier, and is no more than a guess here."""
    method, fitted = config.comparison, fitted_impressions(log, config.click_window)
    learnt = min(fitted, with_few_designs(log.designs, MOST_LEARNT))
    fit, note = None, "position bias is taken as known"
    if method.learns_position_bias:
        fit, note = log.fitted(fitted, "position bias", _fit)
        fit = None if fit is None else replace(fit, group=log.group(len(fit.without)))
    known = beliefs.theta if method.needs_position_bias and not method.learns_position_bias else None
    readings = ladder(
        log,
        theta=known if fit is None else fit,
        fitted=learnt,
        estimator=method.estimator if method.needs_position_bias else "rank-aware",
        level=config.level,
        tightest_at=config.tightest_at or TIGHTEST_AT,
        waits_for=f"position bias ({note})"
        if method.needs_position_bias
        else "an estimate by the click model, not asked for",
        only=None if method.needs_position_bias else method.estimator,
        cross_fit="past",
        refits=method.learns_at or None,
    )
    rung = readings.shown
    found = Estimate.of(np.empty(0), np.empty(0), largest_weight=0.0)
    if rung is not None and rung.estimate is not None:
        found = rung.estimate
    theta = beliefs.theta if fit is None else fit.bias.theta
    reported = Theta(
        theta=tuple(theta.tolist()),
        standard_error=tuple((np.zeros_like(theta) if fit is None else fit.bias.standard_error).tolist()),
        fitted=fit is not None or beliefs.fitted,
        note=note,
        inflation=found.inflation(config.level),
    )
    nothing = Drift("unknown", 1.0, 0, what="the difference")
    return speaking(Analysis(log, config, fit, reported, readings, None, found, None, nothing, fitted, learnt), rung)


def speaking(analysis: Analysis, rung: Rung | None) -> Analysis:
    """The same analysis with this rung as the one that speaks."""
    if rung is None or rung.estimate is None:
        return analysis
    log, found, units = analysis.log, rung.estimate, analysis.log.units_of(rung.rows)
    level = analysis.ladder.level_of(rung, analysis.config.level)
    tight = tightest_at(analysis.config, found)
    drift = Drift.of(
        found.x,
        units,
        times=log.time[rung.rows],
        level=level,
        tightest_at=tight,
        widen=found.inflation(level),
        what="the difference A - B",
    )
    told = replace(analysis, rung=rung, estimate=found, band=_band(log, rung, units, level, tight), drift=drift)
    told.__dict__.update({name: of for name, of in analysis.__dict__.items() if name in ("clicks", "gain")})
    return told


def _fit(log: Impressions) -> tuple[BiasFit | None, str]:
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


def _band(log: Impressions, rung: Rung, units: Units, level: float, tightest_at: float) -> Band | None:
    clicks = np.cumsum(units.sums(log.clicks_each[rung.rows].astype(np.float64)))
    first = int(np.searchsorted(clicks, LEAST_CLICKS)) + 1
    if first > len(clicks) or rung.estimate is None:
        return None
    return rung.estimate.watched(first, level, tightest_at=tightest_at)


def tightest_at(config: TrialConfig, found: Estimate) -> float:
    """Where the sequence is tightest: as configured, or where it finds the smallest difference that matters soonest.

    For that it takes the spread of values so far. The sequence is then a mixture over differences of the order of ``smallest``,
    fixed before the trial, with the variance estimated as it is anyway.
    """
    if config.tightest_at is not None:
        return config.tightest_at
    variance = found.standard_error**2 * found.units
    if config.smallest is None or not variance > 0:
        return TIGHTEST_AT
    return tightest_for(variance, config.smallest, level=config.level)


def forecast(analysis: Analysis) -> Forecast:
    """When the interval will be narrow enough for a decision, if delta and spread stay as they are."""
    low, high = analysis.interval
    smallest, n = analysis.config.smallest, len(analysis.log)
    nan = float("nan")
    if not analysis.decides and np.isfinite(low):
        text = "No decision in sight: nothing tests how people click. A hold-back of plain A/B traffic does."
        return Forecast(target=nan, impressions=np.inf, remaining=np.inf, days=np.inf, text=text)
    if analysis.winner:
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
    tightest = tightest_at(analysis.config, analysis.estimate)
    needed = max(_units_for(target, spread, analysis.config.level, tightest) * n / units, float(n))
    span = int(analysis.log.time[-1] - analysis.log.time[0])
    days = (needed - n) / n * span / MICROSECONDS_A_DAY if span > 0 else nan
    if needed > FARTHEST:
        text = "No decision in sight: the difference seen so far is too small to be told from none."
        return Forecast(target=target, impressions=np.inf, remaining=np.inf, days=np.inf, text=text)
    until = told_time(int(analysis.log.time[-1]) / 1e6 + days * 86_400) if days < MOST_DAYS else ""
    about = f", {days:.1f} days at the rate so far{until and f', until {until[:10]}'}" if days >= 0.1 else ""
    text = f"A decision on a difference of {target:.4g} needs about {needed:,.0f} impressions, {needed - n:,.0f} more{about}."
    return Forecast(target=target, impressions=needed, remaining=needed - n, days=days, text=text)


def _units_for(target: float, spread: float, level: float, tightest: float) -> float:
    """The least number of units whose interval is no wider than the target on either side."""
    low, high = 1.0, FARTHEST * 2
    if target <= 0:
        return high
    while high / low > 1.0001:
        middle = np.sqrt(low * high)
        wide = asymptotic_radius([middle], [spread], level=level, tightest_at=tightest)[0] > target
        low, high = (middle, high) if wide else (low, middle)
    return float(high)
