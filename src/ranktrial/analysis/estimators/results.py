"""Result of an estimate: Delta, its confidence interval and sequence, and the data it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks, frames, notebook
from ranktrial.analysis.estimators.click_weights import ClickWeights
from ranktrial.analysis.intervals import Band, asymptotic_sequence, fixed_interval, t_widening
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.distributions import t_quantile
from ranktrial.interval import Interval
from ranktrial.log.log import Log
from ranktrial.log.units import Units, UnitSums
from ranktrial.position_bias import PositionBias
from ranktrial.position_bias.jackknife import jackknife_variance, ratio_freedom


@dataclass(frozen=True, eq=False)
class SegmentBias:
    """Position bias by the values of an attribute of searches.

    Attributes:
        attribute: Its name.
        values: Its values, "other" first.
        thetas: Theta of each, ``(values, k)``: that of all where a value has too few clicks for one of its own.
        without: The same without each group of units, ``(values, groups, k)``.
        own: Numbers of the values with a theta of their own.
        p: Of the test that all values have the same.
    """

    attribute: str
    values: tuple[str, ...]
    thetas: FloatArray
    without: FloatArray
    own: tuple[int, ...]
    p: float

    to_frame = frames.to_frame


@dataclass(frozen=True, eq=False)
class BiasFit:
    """Position bias from a log, and from the log without each group of its units.

    Attributes:
        bias: Of the whole log, with jackknife errors.
        without: Theta without each group, ``(groups, k)``.
        tested: The attribute whose values differ most in theta, surely or not; None if none was tested.
        by_segment: Theta by segment, where it surely differs: impressions are then valued by that of their segment.
    """

    bias: PositionBias
    without: FloatArray
    tested: SegmentBias | None = None
    by_segment: SegmentBias | None = None

    to_frame = frames.to_frame

    chart = notebook.chart

    def _repr_html_(self) -> str:
        """Render theta with its intervals for notebooks."""
        return self.bias._repr_html_()


@dataclass(frozen=True, eq=False)
class Estimate:
    """An estimate of Delta, positive when A gets more clicks.

    Attributes:
        delta: The estimate, in clicks per impression: the mean of x.
        standard_error: Of the estimate, over units; the error of an estimated theta included.
        impressions: How many it rests on.
        units: How many independent units gave them.
        effective_clicks: (sum of click weights)^2 / sum of their squares: the number of equally weighted clicks that
            would say as much.
        largest_weight: Largest absolute weight any click can have.
        bias_bound: How far clipping can have moved it; 0 without clipping.
        theta: Position bias it was reckoned with; None for plain A/B estimates.
        bias: Theta with its own errors, where it was estimated from the log.
        clicks_alone: What the standard error would be if theta were known to be as estimated. It can also be the larger one:
            errors of theta and of the clicks it was fitted to may cancel.
        replicates: The estimate without each group of units, where theta was estimated.
        freedom: Degrees of freedom of the ratio of ``standard_error`` to ``clicks_alone``.
        rests: Sums of x without each group of units, with the theta without it, for each value of an attribute
            ``(values, groups)``, by the attribute's name: what errors by segment are made from.
        uncovered: Candidates that matter and could not be seen, where they are left out instead of refused: slots of the log.
        sums: The values of impressions, by unit: what intervals and sequences are made from.
        weights: Of the clicks.
        x: The value of each impression, in the order of the log.
        at: Which impressions of the log these are of; None for all.

    >>> from ranktrial.analysis import estimate_ab
    >>> found = estimate_ab([True, False] * 500, [1, 0, 1, 1] * 250, estimator="means")  # who saw A, clicks of each
    >>> found.delta, found.impressions
    (0.5, 1000)
    >>> print(found.confidence_interval())  # if 1,000 impressions had been agreed on
    +0.4561 to +0.5439
    >>> print(found.anytime_interval())  # if one looks whenever one likes, and stops when one has seen enough
    +0.4138 to +0.5862
    """

    delta: float
    standard_error: float
    impressions: int
    units: int
    effective_clicks: float
    largest_weight: float
    bias_bound: float = 0.0
    theta: FloatArray | None = None
    bias: PositionBias | None = None
    clicks_alone: float = float("nan")
    replicates: FloatArray | None = None
    freedom: float = float("inf")
    rests: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)
    uncovered: IntArray = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    sums: UnitSums = field(default_factory=lambda: UnitSums.of([]), repr=False)
    weights: ClickWeights = field(default_factory=lambda: ClickWeights.of([]), repr=False)
    x: FloatArray = field(default_factory=lambda: np.empty(0), repr=False)
    at: IntArray | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        values: ArrayLike | UnitSums,
        weights: ArrayLike | ClickWeights,
        *,
        units: ArrayLike | Units | None = None,
        **more: Any,
    ) -> Self:
        """Build an estimate from the values of impressions, or their sums by unit, and the weights of their clicks."""
        if not isinstance(values, UnitSums):
            more["x"] = np.asarray(values, np.float64)
        sums = UnitSums.of(values, units)
        known = weights if isinstance(weights, ClickWeights) else ClickWeights.of(weights)
        return cls(
            delta=sums.mean if len(sums) else float("nan"),
            impressions=round(float(sums.impressions.sum())),
            units=sums.count,
            effective_clicks=float(known.absolute**2 / max(known.sizes[1].sum(), 1e-300)),
            sums=sums,
            weights=known,
            **{"standard_error": sums.standard_error, "clicks_alone": sums.standard_error, **more},
        )

    @property
    def picked(self) -> IntArray | slice:
        """``at``, as an index into numbers of all impressions."""
        return slice(None) if self.at is None else self.at

    def confidence_interval(self, level: float = 0.95) -> Interval:
        """Confidence interval for a number of units fixed beforehand; repeated looks need ``anytime_interval``.

        It is ``fixed_interval``, or delta +- t standard errors where theta is estimated, widened by ``bias_bound``. An error
        if there is none: one unit, or no spread (as before the first click).
        """
        if self.replicates is None:
            low, high = fixed_interval(self.sums, level)
        else:
            checks.between("level", level, 0, 1, open_ends=True)
            reach = t_quantile(0.5 + level / 2, len(self.replicates) - 1) * self.standard_error
            low, high = self.delta - reach, self.delta + reach
        return Interval(low - self.bias_bound, high + self.bias_bound)

    def inflation(self, level: float = 0.95) -> float:
        """Factor by which an interval is wider than with theta known: the ratio of jackknife errors, at least 1, times t over
        the normal quantile, as the groups behind the ratio are few."""
        if self.replicates is None:
            return 1.0
        wider = self.standard_error / self.clicks_alone if self.clicks_alone > 0 else 1.0
        return float(max(wider, 1.0) * t_widening(self.freedom, level))

    def sequence(self, units: ArrayLike, level: float = 0.95, *, tightest_at: float = 10_000) -> Band:
        """The asymptotic confidence sequence after numbers of units: right however often one looks."""
        wider = {"widen": self.inflation(level), "bias_bound": self.bias_bound}
        return asymptotic_sequence(self.sums, units, level=level, tightest_at=tightest_at, **wider)

    def anytime_interval(self, level: float = 0.95, *, tightest_at: float = 10_000) -> Interval:
        """The interval of ``sequence`` at all units, from this look alone."""
        return self.sequence([self.units], level, tightest_at=tightest_at).last

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        names = ("delta", "standard_error", "impressions", "units", "effective_clicks", "largest_weight", "bias_bound")
        told: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.theta is not None:
            told["theta"] = self.theta.tolist()
        if self.bias is not None and self.replicates is not None:
            told |= {"clicks_alone": self.clicks_alone, "groups": len(self.replicates), "bias": self.bias.to_dict()}
        return told

    to_frame = frames.to_frame

    chart = notebook.chart

    def _repr_html_(self) -> str:
        """Render who gets more clicks, and the interval, for notebooks."""
        return notebook.of_estimate(self)

    def __str__(self) -> str:
        try:
            low, high = self.confidence_interval()
            interval = f"95% [{low:+.5f}, {high:+.5f}]"
        except ValueError:
            interval = "no interval yet"
        known = (
            ""
            if self.bias is None
            else f"  standard error {self.standard_error:.5f} ({self.clicks_alone:.5f} if theta were known)"
        )
        return (
            f"delta {self.delta:+.5f}  {interval}  impressions {self.impressions:,}  "
            f"effective clicks {self.effective_clicks:,.0f}  largest weight {self.largest_weight:.3g}{known}"
        )

    __repr__ = __str__


def sums_by(independent: str, log: Log, x: FloatArray, at: IntArray | None = None) -> UnitSums:
    """Sums of x over what is independent; ``at`` is as ``Estimate.at``."""
    if independent == "cohorts":
        return log.cohorts.sums(x, at)
    if independent == "impressions":
        return UnitSums.of(x)
    return UnitSums.of(x, log.units if at is None else log.unit[at])


def by_group(log: Log, x: FloatArray, groups: int, at: IntArray | slice = slice(None)) -> FloatArray:
    """Number and sum of the values x of each group of units; ``at`` is as ``Estimate.picked``."""
    group = log.group(groups)[at]
    return np.stack([np.bincount(group, of, groups) for of in (None, x)])


def jackknifed(groups: FloatArray, rest_sums: FloatArray) -> dict[str, Any]:
    """Errors of an estimate, given number and sum of x of each group of units (``by_group``), and the sums of x without each
    group, with what is fitted to the rest."""
    sizes, own = groups
    left = sizes.sum() - sizes
    without, theta_known = rest_sums / left, (own.sum() - own) / left
    return {
        "replicates": without,
        "standard_error": jackknife_error(without),
        "clicks_alone": jackknife_error(theta_known),
        "freedom": ratio_freedom(without, theta_known),
    }


def jackknife_error(values: FloatArray) -> float:
    """Standard error of an estimate from those without each group."""
    return float(np.sqrt(jackknife_variance(values[:, None])[0, 0]))
