"""The numbers of a report: a version's configuration and log in, the estimate of its method out, and when it will decide.

Everything is the library's: position bias by ``fit_position_bias``, Delta by ``estimate`` with guesses of relevance from the
past only, so that the confidence sequence may be looked at any time. A plain A/B test needs no theta at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import BoolArray, FloatArray, IntArray
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
from ranktrial.inference._kernels import first_places
from ranktrial.inference.impressions import Impressions
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
        return int(self.log.clicks_by_cohort.sum())

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
        if not self.decides or self.band is None or self.doubt or self.blind > 1:
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
        sums = self.estimate.sums
        places = np.unique(sums.places(looks(sums.count)))
        there = np.isin(sums.come(places), self.band.units)
        band = self.band.part(np.searchsorted(self.band.units, sums.come(places)[there]))
        times = came(self.log, sums)[places[there] - 1] / 1e6
        columns = (column.tolist() for column in (band.units, times, band.mean, band.low, band.high))
        return tuple(BandPoint(units=u, time=t, delta=d, low=lo, high=hi) for u, t, d, lo, hi in zip(*columns))

    @cached_property
    def clicks_of_both(self) -> UnitSums | None:
        """Clicks per impression of pages that are half A's and half B's, by unit; None where that cannot be told.

        By plain A/B traffic where that speaks, or nothing else can; by the click model otherwise.
        """
        log = self.log
        if self.gain is not None and self.rung is not None and self.rung.name != AB_RUNG:
            gained = self.gain.estimate.sums
            return replace(gained, totals=log.clicks_by_cohort - gained.totals)

        def half_each(rows: slice) -> tuple[FloatArray, FloatArray]:
            """Of plain impressions 1 and what their clicks are of pages of both, and 0 of others."""
            arm, shares, _ = log.plain_in(rows)
            own = np.where(arm > 0, shares[:, 0], shares[:, 1]) / np.maximum(shares.sum(1), 1e-300)
            plain = (arm != 0).astype(np.float64)
            return plain, np.where(arm != 0, log.clicks_on(rows) / (2 * np.maximum(own, 1e-300)), 0.0)

        if not log.has_plain or not all(log.by_rows("both plain", lambda rows: _either(*log.plain_in(rows)))):
            return None
        numbers = (log.summed(("half each", of), lambda rows, of=of: half_each(rows)[of]) for of in (0, 1))  # type: ignore[misc]
        return log.sums_from(*numbers)

    @property
    def decides(self) -> bool:
        """Whether what speaks may name a winner: nothing contradicts what it assumes, though something could have."""
        return self.rung is not None and self.ladder.stands(self.rung)

    @property
    def blind(self) -> float:
        """``Ladder.blind`` of the rung that speaks."""
        return 0.0 if self.rung is None else self.ladder.blind(self.rung)

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


def _either(arm: NDArray[np.int8], shares: FloatArray, _: BoolArray) -> bool:
    """Whether plain impressions could have been of A and of B."""
    return bool((shares[arm != 0] > 0).all())


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
    latest = log.span()[1] - round(click_window * 1e6)
    final = bisect_left(range(n), latest, key=lambda at: int(log.times(np.array([at]))[0]))
    most = min(max(final, n - n // 10), first_with(log, MOST_DESIGNS))
    steps = int(np.log(most / ALL_FITTED) / np.log(FITTED_STEP)) + 1
    grid = (ALL_FITTED * FITTED_STEP ** np.arange(steps - 4.0, steps + 1.0)).astype(np.int64)
    return int(grid[grid <= most][-1])


def first_with(log: Impressions, most: int) -> int:
    """How many of the first impressions have no more than so many designs."""
    return len(log) if log.most_designs <= most else with_few_designs(log.designs_of, len(log), most)


def with_few_designs(designs: Callable[[slice], IntArray], n: int, most: int) -> int:
    """How many of the first of n impressions have no more than so many designs; ``designs`` gives the numbers of some.

    >>> with_few_designs(lambda rows: np.array([0, 1, 0, 2])[rows], 4, 2)
    3
    """
    some = most
    while some < n:
        some = min(2 * some, n)
        first, _ = first_places(designs(slice(0, some)).astype(np.int64))
        if len(first) > most:
            return int(first[most])
    return n


def analyse(log: Impressions, config: TrialConfig, beliefs: Beliefs) -> Analysis:
    """``beliefs`` are those in force last: their theta was assumed or fitted earlier, and is no more than a guess here."""
    method, fitted = config.comparison, fitted_impressions(log, config.click_window)
    learnt = min(fitted, first_with(log, MOST_LEARNT))
    fit, note = None, "position bias is taken as known"
    if method.learns_position_bias:
        fit, note = log.fitted(fitted, "position bias", _fit)
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
    log, found = analysis.log, rung.estimate
    level = analysis.ladder.level_of(rung, analysis.config.level)
    tight = tightest_at(analysis.config, found)
    drift = Drift.of(
        found.sums,
        times=came(log, found.sums),
        level=level,
        tightest_at=tight,
        widen=found.inflation(level),
        what="the difference A - B",
    )
    told = replace(analysis, rung=rung, estimate=found, drift=drift)
    told = replace(told, band=_band(told, level, tight))
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


def came(log: Impressions, sums: UnitSums) -> IntArray:
    """When the first unit of each of these cohorts did."""
    assert sums.units is not None
    return np.asarray(log.came[sums.units])


def _band(analysis: Analysis, level: float, tightest_at: float) -> Band | None:
    log, found = analysis.log, analysis.estimate
    clicks = log.clicks_by_cohort
    if found.at is not None:
        clicks = log.summed("plain clicks", lambda rows: np.where(log.plain_in(rows)[0] != 0, log.clicks_on(rows), 0.0))
    assert found.sums.units is not None
    so_far = np.cumsum(clicks[found.sums.units])
    first = int(np.searchsorted(so_far, LEAST_CLICKS)) + 1
    if first > len(so_far):
        return None
    return found.watched(int(found.sums.come(np.array(first))), level, tightest_at=tightest_at)


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
    if analysis.rung is not None:
        needed = max(needed, n * analysis.ladder.blind(analysis.rung, target))
    began, latest = analysis.log.span()
    span = latest - began
    days = (needed - n) / n * span / MICROSECONDS_A_DAY if span > 0 else nan
    if needed > FARTHEST:
        text = "No decision in sight: the difference seen so far is too small to be told from none."
        return Forecast(target=target, impressions=np.inf, remaining=np.inf, days=np.inf, text=text)
    until = told_time(latest / 1e6 + days * 86_400) if days < MOST_DAYS else ""
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
