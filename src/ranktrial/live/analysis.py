"""What does a trial's log say? Position bias from its clicks, the value of every impression, and how sure that is.

Every impression keeps the mixture that showed it; lambda and rho are worked out with the theta that the whole log gives now.
The value is the one-formula estimate of ``rankings.values`` with one constant as the guess of relevance, made from earlier
impressions only, so that the confidence sequence may be looked at any time. A plain A/B test needs no theta at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from ranktrial.arrays import BoolArray, FloatArray, IntArray, sum_by_group, weighted_counts
from ranktrial.inference.ab import estimate_ab
from ranktrial.inference.cross_fitting import training_sums
from ranktrial.inference.intervals import UnitSums, asymptotic_radius, asymptotic_sequence
from ranktrial.inference.log import GROUPS, Log
from ranktrial.live.schemas import BandPoint, Forecast, Theta, TrialConfig
from ranktrial.position_bias import Auto, Conditional, Counts, NotIdentifiable
from ranktrial.position_bias.jackknife import jackknife_variance, replicates, with_errors
from ranktrial.position_bias.relevance import Examinations

MOST_ERROR = 0.5  # of a theta, in units of theta_1: what is less sure than that is not used
TIGHTEST_AT = 10_000.0
LEAST_CLICKS = 20  # before that nothing is said: the estimate would rest on guesses
FARTHEST = 1e12  # impressions: later than that is never
MICROSECONDS_A_DAY = 86_400e6


# --- position bias --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fit:
    """Position bias from a log, and from the log without each group of units; None if the log cannot tell."""

    theta: FloatArray | None
    standard_error: FloatArray | None
    without: FloatArray | None
    note: str

    @classmethod
    def refused(cls, why: str) -> Fit:
        return cls(None, None, None, why)


def counts_by_group(log: Log) -> list[Counts]:
    """Shows and clicks of each group per (query, document) and rank, with what the designs expected.

    Documents never clicked tell nothing about theta and take no row.
    """
    ever = np.zeros(len(log.document_query), bool)
    ever[log.document[log.clicked[2]]] = True
    return [_counts(log, log.group == group, ever) for group in range(GROUPS)]


def _counts(log: Log, inside: BoolArray, ever: BoolArray) -> Counts:
    """Of some impressions, for documents that were ever clicked."""
    k, n = log.k, len(ever)
    ranks = np.arange(k)
    per_design = np.bincount(log.design[inside], minlength=log.n_designs)
    slots = np.flatnonzero(ever[log.document] & (per_design[log.design_of_slot] > 0))
    rows, row = np.unique(log.document[slots], return_inverse=True)
    row_of = np.full(n + 1, -1)  # the last for where nothing stands
    row_of[rows] = np.arange(len(rows))

    def table(cells: IntArray, weights: FloatArray) -> FloatArray:
        return weighted_counts(cells.ravel(), weights.ravel(), len(rows) * k).reshape(-1, k)

    expected = log.placement[slots] * per_design[log.design_of_slot[slots]][:, None]
    rankings, display = log.displays
    shown, times = np.unique(display[inside], return_counts=True)
    documents = row_of[np.append(log.document, n)[rankings[shown]]]
    use = documents >= 0
    impression, rank, slot = log.clicked
    clicks = inside[impression]
    clicked = row_of[log.document[slot[clicks]]] * k + rank[clicks]
    return Counts(
        n,
        rows,
        table((documents * k + ranks)[use], np.broadcast_to(times[:, None], use.shape)[use].astype(np.float64)),
        table(clicked, np.ones(len(clicked))),
        log.document_query[rows],
        table((row * k)[:, None] + ranks, expected),
    )


def fit_theta(log: Log, config: TrialConfig) -> Fit:
    """Refused where the log cannot tell position bias from relevance, also without any one of 20 groups of its units."""
    if config.k == 1:
        return Fit.refused("one rank has no position bias")
    if not log.clicks.any():
        return Fit.refused("no clicks yet")
    parts = counts_by_group(log)
    try:
        best = Auto().fit(Counts.merged(parts))
        chosen = Conditional(given="design" if "design" in best.method else "shown")
        fitted, without = replicates(chosen, parts)
    except NotIdentifiable as refusal:
        return Fit.refused(f"position bias cannot be told yet: {refusal}")
    fitted = with_errors(fitted, without)
    worst = int(np.argmax(fitted.standard_error))
    if not fitted.standard_error[worst] <= MOST_ERROR or not np.isfinite(without).all():
        error = fitted.standard_error[worst]
        return Fit.refused(
            f"position bias is too uncertain yet: {fitted.theta[worst]:.2f} +- {error:.2f} at rank {worst + 1}"
        )
    return Fit(fitted.theta, fitted.standard_error, without, best.note)


# --- values ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Weights:
    """Per slot, given theta: exposure under A and B, rho, and what a click is worth; ``unseen`` could not be seen."""

    theta: FloatArray
    by_a: FloatArray
    by_b: FloatArray
    rho: FloatArray
    worth: FloatArray
    unseen: BoolArray

    @property
    def lam(self) -> FloatArray:
        return self.by_a - self.by_b


def slot_weights(log: Log, theta: FloatArray) -> Weights:
    padded = np.append(theta, 0.0)
    by_a, by_b = padded[log.rank_a], padded[log.rank_b]
    rho = log.placement @ theta
    lam = by_a - by_b
    seen = rho > 0
    worth = np.divide(lam, rho, out=np.zeros_like(lam), where=seen & (lam != 0))
    return Weights(theta, by_a, by_b, rho, worth, (lam != 0) & ~seen)


def guesses(log: Log, theta: FloatArray) -> FloatArray:
    """Clicks per examination, for each impression from those before its unit came first: a unit that asks again is shown
    the same, so what it did then must not be in the guess."""
    before, counted = log.past
    n = int(counted.max(initial=-1)) + 1
    rankings, display = log.displays
    examined = ((rankings >= 0) * theta).sum(1)[display]
    clicks = log.clicks.sum(1).astype(np.float64)
    sums = [weighted_counts(counted, part, n) for part in (clicks, examined, examined)]
    parts = [Examinations(*(np.array([part[g]]) for part in sums)) for g in range(n)]
    by_group = np.array([seen.mean for seen in training_sums(parts, "past")]) if n else np.empty(0)
    return by_group[before]


def click_sums(log: Log, worth: FloatArray) -> FloatArray:
    """What each impression's clicks are worth together, given what one on each slot is."""
    impression, _, slot = log.clicked
    return weighted_counts(impression, worth[slot], len(log))


def values(log: Log, weights: Weights) -> FloatArray:
    """x of every impression: unbiased for Delta given theta, whatever the guess of relevance."""
    guess = guesses(log, weights.theta)
    covered = np.where(weights.unseen, 0.0, weights.lam)
    expected = sum_by_group(covered, log.slot_offsets)[log.design]
    rankings, display = log.displays
    foreseen = (np.append(weights.worth, 0.0)[rankings] * weights.theta).sum(1)[display]
    return np.asarray(guess * (expected - foreseen) + click_sums(log, weights.worth))


def plain_values(log: Log, config: TrialConfig, rows: IntArray) -> FloatArray:
    """x of impressions that showed A's own or B's own list, from clicks alone."""
    for_a, for_b = config.plain
    in_a, clicks = log.arm[rows] > 0, log.clicks[rows].sum(1)
    queries = log.query[log.design[rows]]
    split = for_a / (for_a + for_b)
    return estimate_ab(in_a, clicks, queries=queries, split=split, cross_fit="past", units=log.unit[rows]).x


# --- how sure -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Analysis:
    """A version's log with everything that its report rests on."""

    log: Log
    config: TrialConfig
    fit: Fit
    theta: Theta
    weights: Weights
    x: FloatArray
    sums: UnitSums
    band: tuple[BandPoint, ...]
    interval: tuple[float, float]

    @property
    def clicks(self) -> int:
        return len(self.log.clicked[0])

    @property
    def delta(self) -> float:
        return self.sums.mean if self.clicks >= LEAST_CLICKS else float("nan")


def analyse(log: Log, config: TrialConfig, last_theta: FloatArray, last_fitted: bool) -> Analysis:
    """``last_theta`` is what was in force last: used when this log cannot tell."""
    fit = (
        fit_theta(log, config) if config.refit and not config.is_ab else Fit.refused("position bias is taken as known")
    )
    theta = last_theta if fit.theta is None else fit.theta
    weights = slot_weights(log, theta)
    everything = np.arange(len(log))
    x = plain_values(log, config, everything) if config.is_ab and len(log) else values(log, weights)
    units = None if config.unit == "impression" else log.unit
    sums, clicks = UnitSums.of(x, units), UnitSums.of(log.clicks.sum(1).astype(np.float64), units)
    inflation = _inflation(log, fit, x, config.level)
    errors = np.zeros_like(theta) if fit.standard_error is None else fit.standard_error
    reported = Theta(
        theta=tuple(theta.tolist()),
        standard_error=tuple(errors.tolist()),
        fitted=fit.theta is not None or last_fitted,
        note=fit.note,
        inflation=inflation,
    )
    band = _band(sums, np.cumsum(clicks.totals), config.level, inflation)
    interval = (band[-1].low, band[-1].high) if band else (-np.inf, np.inf)
    return Analysis(log, config, fit, reported, weights, x, sums, band, interval)


def _inflation(log: Log, fit: Fit, x: FloatArray, level: float) -> float:
    """How much wider the interval must be because theta was fitted to the same log.

    The delete-a-group jackknife tells the error of the estimate with theta fitted anew without each group, and with theta as
    it is; their ratio is applied to the interval, and t over the normal quantile as 20 groups are few.
    """
    if fit.theta is None or fit.without is None:
        return 1.0
    refitted, fixed = [], []
    for group, theta in enumerate(fit.without):
        rest = log.group != group
        refitted.append(float(values(log, slot_weights(log, theta))[rest].mean()))
        fixed.append(float(x[rest].mean()))
    with_theta, without = (float(jackknife_variance(np.array(v)[:, None])[0, 0]) for v in (refitted, fixed))
    ratio = np.sqrt(with_theta / without) if without > 0 else 1.0
    half = 0.5 + level / 2
    return float(max(ratio, 1.0) * stats.t.ppf(half, GROUPS - 1) / stats.norm.ppf(half))


def _band(sums: UnitSums, clicks: FloatArray, level: float, inflation: float) -> tuple[BandPoint, ...]:
    """``clicks`` are those of all units so far."""
    n = len(sums)
    if n == 0:
        return ()
    steps = np.unique(np.geomspace(1, n, 60).astype(np.int64)) if n > 1 else np.array([1])
    points = np.unique(np.append(steps, n))
    points = points[clicks[points - 1] >= LEAST_CLICKS]  # what came before must not narrow what comes after
    if not len(points):
        return ()
    told = asymptotic_sequence(sums, points, level=level, tightest_at=TIGHTEST_AT)
    means = np.cumsum(sums.totals)[points - 1] / np.cumsum(sums.impressions)[points - 1]
    with np.errstate(invalid="ignore"):
        middle, half = (told.low + told.high) / 2, (told.high - told.low) / 2 * inflation
    known = np.isfinite(half)
    low, high = np.where(known, middle - half, -np.inf), np.where(known, middle + half, np.inf)
    rows = zip(points.tolist(), means.tolist(), low.tolist(), high.tolist())
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
    units = len(analysis.sums)
    spread = analysis.sums.standard_error * np.sqrt(units) * analysis.theta.inflation
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
