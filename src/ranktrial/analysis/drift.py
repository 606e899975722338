"""A sequential test of whether a mean stays the same over time, when it changed, and what it has been since.

Suppose it changed after t units. D = mean after - mean before has variance V, and had values a normal law, the likelihood
ratio of "moved by an amount drawn from N(0, T)" to "stayed the same" would be, whatever the mean is,

    L_t(N) = sqrt(V / (V + T)) exp( D^2 / 2 * T / (V (V + T)) ).

If nothing changed it is a martingale in the number N of units, from 1 on at N = t. So is the mean of all L_t over a fixed grid
of times (those still to come count 1), and such a mean exceeds 1/p at any N with probability p at most (Ville): one may
look as often as one likes. T is 4 or 100 times the variance of the mean before, half of the weight on each: small changes
after a while, large ones soon. Values need not be normal, for large numbers (as for ``asymptotic_sequence``).

Values with a daily rhythm are compared within the same hours: a mean of its own for every phase of ``period``, and D the mean
of the differences within phases, each weighted by what it can tell. The likelihood ratio has the same form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.analysis._kernels import part_differences
from ranktrial.analysis.estimators.by_segment import by_value
from ranktrial.analysis.estimators.results import SegmentBias
from ranktrial.analysis.estimators.valuing import scaled
from ranktrial.analysis.intervals import asymptotic_sequence
from ranktrial.arrays import FloatArray, IntArray, weighted_counts
from ranktrial.interval import Interval
from ranktrial.log._kernels import errors_between, sums_between
from ranktrial.log.folding import Statistic, fold
from ranktrial.log.log import Log
from ranktrial.log.units import Units, UnitSums

WARN, FAIL = 0.01, 0.001  # probability of a false alarm, over the whole of a trial
FIRST, LAST, RATIO = 100, 1e7, 1.03  # times of a change that are considered, in units: equally likely in every doubling
SIZES = (4.0, 100.0)  # T over the variance of the mean before
NOT_KNOWN = Interval(-np.inf, np.inf)
ENOUGH = 20  # effective units on either side: below that the normal law is not near enough


@dataclass(frozen=True)
class Drift:
    """Result of a test for a change in a mean over time.

    Attributes:
        status: "pass", "warn" (p < 1 %), "fail" (p < 0.1 %), or "unknown" while there is too little to compare.
        p: The chance of seeing at any time so far as much as was seen, had nothing changed.
        units: Number of units tested.
        at: The most likely time of the change, in units before it; None, as the fields below, if no change was shown.
        between: Interval for the time of the change: 95 % of the likelihood.
        since_time: Time of the first unit after the change, where times are known.
        before: Mean before the change.
        after: Mean since the change.
        since: Confidence sequence for the mean since the change, valid whatever time of change was picked.
        lasting: True if the change still shows; False if later units hide one that was shown before.
        what: Name of the values, for ``text``.
    """

    status: Literal["pass", "warn", "fail", "unknown"]
    p: float
    units: int
    at: int | None = None
    between: tuple[int, int] | None = None
    since_time: float | None = None
    before: float = float("nan")
    after: float = float("nan")
    since: Interval = NOT_KNOWN
    lasting: bool = True
    what: str = "the mean"

    @classmethod
    def of(
        cls,
        values: ArrayLike | UnitSums,
        units: ArrayLike | Units | None = None,
        *,
        times: ArrayLike | None = None,
        period: float | None = None,
        phases: int = 24,
        level: float = 0.95,
        tightest_at: float = 10_000,
        widen: float = 1.0,
        what: str = "the mean",
    ) -> Drift:
        """Test whether the mean of values in order of time stays the same; look as often as you like.

        Args:
            values: One per impression, or sums by unit.
            units: Whose impression each is: a unit counts at the time at which it first came.
            times: Of each impression (of each unit or cohort, for sums), in any measure.
            period: Of a rhythm that is no change, such as a day in the measure of times: values are compared at the same hour.
            phases: How finely.
            level: Of the interval since the change.
            tightest_at: See ``asymptotic_sequence``.
            widen: See ``asymptotic_sequence``; it acts on the interval since the change only, as an error that all values share
                makes no change.
            what: What the values are, for ``Drift.text``.

        >>> x = np.tile([0.0, 1.0, 0.0, -1.0], 1_000)
        >>> print(Drift.of(x).text)
        No sign in 4,000 visitors that the mean changed (p = 1).
        >>> found = Drift.of(x + np.where(np.arange(4_000) < 3_000, 0, 0.3), what="the difference")
        >>> found.status, found.at, found.between, round(found.after, 2)
        ('fail', 2994, (2906, 3084), 0.3)
        """
        units = None if units is None else Units.of(units)
        sums = UnitSums.of(values, units)
        when = _times_of_units(times, units, sums)
        if period is not None and when is None:
            raise ValueError("period needs times, and none are given")
        if sums.count <= FIRST:
            return cls("unknown", 1.0, sums.count, what=what)
        grid = _grid()
        places = sums.places(np.append(grid[grid < sums.count], sums.count))
        points, first, alike = np.unique(places, return_index=True, return_counts=True)  # cohorts are not told apart
        phase = np.empty(0, np.int64)
        if period is not None and when is not None:
            checks.at_least("phases", phases, 2)
            phase = np.minimum(((when / period) % 1.0 * phases).astype(np.int64), phases - 1)
        ratios = _log_ratios(sums, points, phase)
        if not np.isfinite(ratios).any():
            return cls("unknown", 1.0, sums.count, what=what)
        ratios += np.log(alike)
        to_come = len(grid) - first
        terms = np.column_stack([ratios, np.log(np.maximum(to_come, 1e-300))])
        evidence = np.logaddexp.reduce(terms, axis=1) - np.log(len(grid))
        peak = int(np.argmax(evidence))
        p = min(float(np.exp(-evidence[peak])), 1.0)
        lasting = peak == len(points) - 1 or bool(evidence[-1] > -np.log(WARN))
        if p >= WARN:
            return cls("pass", p, sums.count, what=what)
        look = ratios[-1 if lasting else peak]
        likelihood = np.exp(look - look.max())
        share = np.cumsum(likelihood) / likelihood.sum()
        low, high = (int(np.searchsorted(share, edge)) for edge in (0.025, 0.975))
        come = sums.come(points)
        between = int(come[max(low - 1, 0)]), int(come[high + 1])  # the grid can tell no closer
        at = int(points[np.argmax(likelihood)])
        before, after = sums.part(slice(0, at)), sums.part(slice(at, None))
        since = asymptotic_sequence(
            after, [after.count], level=1 - (1 - level) / starts(), tightest_at=tightest_at, widen=widen
        )
        return cls(
            status="fail" if p < FAIL else "warn",
            p=p,
            units=sums.count,
            at=int(come[np.argmax(likelihood)]),
            between=between,
            since_time=None if when is None else float(when[at]),
            before=before.mean,
            after=after.mean,
            since=since.last,
            lasting=lasting,
            what=what,
        )

    @property
    def changed(self) -> bool:
        """True if a change was shown, with status "warn" or "fail"."""
        return self.status in ("warn", "fail")

    @property
    def text(self) -> str:
        """Result as a sentence."""
        if self.status == "unknown":
            return f"Too early to say whether {self.what} stays the same: {self.units:,} visitors, too few that vary."
        if self.between is None:
            return f"No sign in {self.units:,} visitors that {self.what} changed (p = {self.p:.2g})."
        told = (
            f"{self.what[:1].upper()}{self.what[1:]} changed after about {self.at:,} of {self.units:,} visitors, "
            f"{self.between[0]:,} to {self.between[1]:,} (p = {self.p:.2g}): {self.before:.4f} before, {self.after:.4f} since"
        )
        ends = f", between {self.since.low:.4f} and {self.since.high:.4f}" if np.isfinite(self.since.low) else ""
        return f"{told}{ends}.{'' if self.lasting else ' It no longer shows.'}"


def starts() -> int:
    """Number of times of a change that are considered: what is told since one of them has its share of an error probability."""
    return len(_grid())


@cache
def _grid() -> IntArray:
    return np.unique((FIRST * RATIO ** np.arange(np.log(LAST / FIRST) / np.log(RATIO))).astype(np.int64))


def _times_of_units(times: ArrayLike | None, units: ArrayLike | Units | None, sums: UnitSums) -> FloatArray | None:
    """Time of each unit's first impression."""
    if times is None:
        return None
    when = checks.finite("times", times)
    if units is not None:
        known = Units.of(units)
        if known.place.shape != when.shape:
            raise ValueError(f"times have shape {when.shape}, units {known.place.shape}: must be one each")
        when = when[known.first]
    if len(when) != len(sums):
        raise ValueError(f"{len(when)} times for {len(sums)} units, must be one each")
    return when


def _log_ratios(sums: UnitSums, points: IntArray, phase: IntArray) -> FloatArray:
    """log L_t(N) for looks at N (rows) and changes after t units (columns), both at the points; -inf where too little is known.

    A ratio of which too little is known counts 0: less than the martingale does, so the test stays valid.
    """
    phases = int(phase.max(initial=0)) + 1
    cells = sums_between(sums.totals, sums.impressions, points, phase, phases)
    count, shown, summed = np.cumsum(cells, axis=1)
    mean = summed.sum(1) / shown.sum(1)
    # Errors are those from the mean before: what is summed up once stays as it is.
    errors = errors_between(sums.totals, sums.impressions, points, phase, phases, mean)
    squares, fourths = np.cumsum(errors, axis=1).sum(2)
    effective = np.divide(squares**2, fourths * points, out=np.zeros(len(points)), where=fourths > 0)  # of a unit
    away, size = part_differences(points, count, shown, summed, squares, effective, ENOUGH)
    logs = [(away * r / (1 + r) - np.log1p(r)) / 2 for r in (times * size for times in SIZES)]
    return np.where(size > 0, np.logaddexp(*logs) - np.log(len(SIZES)), -np.inf)


def position_scores(log: Log, theta: FloatArray, differs: SegmentBias | None = None) -> UnitSums:
    """Score of every cohort for position bias steeper than theta, as an exponent of the rank.

    With theta_r r^-e in place of theta_r the mean is e, for small e, and it is 0 for e = 0: a click on document d at rank r is
    compared with the rank at which clicks on d are expected under the design that showed it, whatever its relevance is. So
    other queries, other documents and other designs over time do not move the mean, other position bias does; with theta by
    segment, nor does another mix of segments.
    """
    theta = checks.probabilities("theta", theta)
    rank = np.log(np.arange(1, len(theta) + 1))

    def contribution(rows: slice, whole: Log, before: object) -> tuple[FloatArray, float]:
        scores, information = np.empty(len(whole)), 0.0
        for value, own, part in by_value(whole, "" if differs is None else differs.attribute):
            of_value = theta if differs is None else scaled(differs.thetas[value])
            impression, at, slot = part.clicked
            clickable = np.maximum(part.exposure(of_value)[slot], 1e-300)
            expected, squares = (part.exposure(of_value * of)[slot] / clickable for of in (rank, rank**2))
            information += float(np.maximum(squares - expected**2, 0.0).sum())
            scores[own] = weighted_counts(impression, expected - rank[at], len(part))
        return scores, information

    def result(parts: Sequence[tuple[FloatArray, float]]) -> UnitSums:
        information = sum(of for _, of in parts)
        scores = np.concatenate([of for of, _ in parts])
        return log.cohorts.sums(scores * (len(log) / information if information > 0 else 0.0))

    found: UnitSums = fold(log, Statistic("position scores", (theta.tobytes(), differs), contribution, result))[0]
    return found
