"""How sure is the estimate when position bias is estimated from the same log?

A wrong theta moves every weight lambda / rho, so the spread of the values x alone does not tell how far the estimate may be
from Delta. The delete-a-group jackknife does: leave out one group of units at a time, fit theta to the rest, work out lambda
and rho (from each version's exact placement) and the estimate of the rest with it; the estimates' spread is the error, both
parts of it and their dependence included.

Counts per (group, version, document, rank) are all it takes, so the work does not grow with the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ranktrial import checks
from ranktrial.arrays import BoolArray, FloatArray
from ranktrial.inference.cross_fitting import groups_of
from ranktrial.inference.intervals import asymptotic_radius
from ranktrial.inference.log import ClickLog, checked_queries
from ranktrial.position_bias import Auto, Conditional, Counts, Estimator, NotIdentifiable, PositionBias
from ranktrial.position_bias.jackknife import jackknife_variance, replicates, with_errors
from ranktrial.rankings import LoggingPolicy, Pair
from ranktrial.rankings.values import Guess, checked_guess, expected_value, rank_weights

GROUPS = 20


@dataclass(frozen=True, eq=False)
class JackknifeEstimate:
    """An estimate of Delta with theta from the same log, and how sure it is.

    Attributes:
        delta: The estimate, positive when A gets more clicks, in clicks per impression.
        standard_error: Of the estimate, the uncertainty of theta included.
        clicks_alone: What the standard error would be if theta were known to be as estimated. It can also be the larger one:
            errors of theta and of the clicks it was fitted to may cancel.
        bias: Theta with its own standard errors, from the same groups.
        impressions: How many the estimate rests on.
        units: How many independent units gave them.
        replicates: The estimate without each group.
    """

    delta: float
    standard_error: float
    clicks_alone: float
    bias: PositionBias
    impressions: int
    units: int
    replicates: FloatArray

    def confidence_interval(self, level: float = 0.95) -> tuple[float, float]:
        """For a number of units fixed beforehand: t with one degree of freedom less than groups."""
        checks.between("level", level, 0, 1, open_ends=True)
        reach = float(stats.t.ppf(0.5 + level / 2, len(self.replicates) - 1)) * self.standard_error
        return self.delta - reach, self.delta + reach

    def anytime_interval(self, level: float = 0.95, *, tightest_at: float = 10_000) -> tuple[float, float]:
        """For looking again and again: the asymptotic sequence with standard error * sqrt(units) as the spread of one unit.

        As an error from few groups is itself uncertain, it is widened as the fixed interval is, by t over the normal
        quantile. Holds for large numbers; how often it missed over whole runs is in docs/intervals.md.
        """
        wider = stats.t.ppf(0.5 + level / 2, len(self.replicates) - 1) / stats.norm.ppf(0.5 + level / 2)
        spread = wider * self.standard_error * np.sqrt(self.units)
        reach = float(asymptotic_radius([self.units], [spread], level=level, tightest_at=tightest_at)[0])
        return self.delta - reach, self.delta + reach

    def to_dict(self) -> dict[str, Any]:
        return {
            "delta": self.delta,
            "standard_error": self.standard_error,
            "clicks_alone": self.clicks_alone,
            "impressions": self.impressions,
            "units": self.units,
            "groups": len(self.replicates),
            "bias": self.bias.to_dict(),
        }

    def __str__(self) -> str:
        low, high = self.confidence_interval()
        return (
            f"delta {self.delta:+.5f}  95% [{low:+.5f}, {high:+.5f}]  impressions {self.impressions:,}  "
            f"standard error {self.standard_error:.5f} ({self.clicks_alone:.5f} if theta were known)"
        )


def with_estimated_bias(
    log: ClickLog,
    pair: Pair,
    policies: Sequence[LoggingPolicy],
    *,
    estimator: Estimator | None = None,
    groups: int = GROUPS,
    units: ArrayLike | None = None,
    zeta_hat: Guess = None,
    rank_aware: bool = False,
) -> JackknifeEstimate:
    """Delta from a log shown by ``policies`` (one per version), theta being estimated from the same log.

    Args:
        estimator: Of theta; ``Auto()`` by default, which decides once, on the whole log.
        groups: Units are dealt out to them in the order in which they first came.
        units: Whose impression each is (users, queries); by default each impression is its own.
        zeta_hat: A guess of the relevances that was not made from this log: one number, or one per document. None is IPS;
            anything near the truth has less variance (see ``rankings.values``).
        rank_aware: Weigh clicks by what their rank can tell, given the guess.
    """
    checked_queries(log, pair, policies)
    checks.whole("groups", groups, 2, 1000)
    group = groups_of(len(log), "folds", folds=groups, refits=None, units=units)
    n_units = len(log) if units is None else len(np.unique(np.asarray(units)))
    if n_units < groups:
        raise ValueError(f"{n_units} units cannot be divided into {groups} groups")
    placements = [policy.placement() for policy in policies]
    parts = [
        [_counts(log, (group == g) & (log.versions == v), pair, p) for v, p in enumerate(placements)]
        for g in range(groups)
    ]
    return from_groups(
        parts, pair, placements, units=n_units, estimator=estimator, zeta_hat=zeta_hat, rank_aware=rank_aware
    )


def _counts(log: ClickLog, rows: BoolArray, pair: Pair, placement: FloatArray) -> Counts:
    return Counts.from_impressions(
        log.rankings[rows], log.clicks[rows], n_documents=pair.n_documents, offsets=pair.offsets, placement=placement
    )


def from_groups(
    parts: Sequence[Sequence[Counts]],
    pair: Pair,
    placements: Sequence[FloatArray],
    *,
    units: int,
    estimator: Estimator | None = None,
    zeta_hat: Guess = None,
    rank_aware: bool = False,
) -> JackknifeEstimate:
    """The same from counts that know their queries: ``parts[group][version]``, and each version's placement."""
    by_group = [Counts.merged(versions) for versions in parts]
    by_version = [Counts.merged(groups) for groups in zip(*parts)]
    chosen = _chosen(Auto() if estimator is None else estimator, Counts.merged(by_version))
    try:
        fitted, thetas = replicates(chosen, by_group)
    except NotIdentifiable as refusal:
        raise NotIdentifiable(f"without one of {len(parts)} groups of the log: {refusal}") from refusal
    values = [_Values.of(pair, placements, theta, zeta_hat, rank_aware) for theta in (fitted.theta, *thetas)]
    left = [[total - part for total, part in zip(by_version, versions)] for versions in parts]
    without = np.array([value.mean(rest) for value, rest in zip(values[1:], left)])
    theta_known = np.array([values[0].mean(rest) for rest in left])
    return JackknifeEstimate(
        values[0].mean(by_version),
        _jackknife_error(without),
        _jackknife_error(theta_known),
        with_errors(fitted, thetas),
        round(sum(counts.shown[:, 0].sum() for counts in by_version)),
        units,
        without,
    )


@dataclass(frozen=True, eq=False)
class _Values:
    """What clicks and shows are worth at one theta.

    Attributes:
        first: Per query, the value of an impression that gets the clicks the guess expects.
        weights: Per version, document and rank, the value of a click more than that.
        expected: Per document and rank, the clicks of a show that the guess expects.
    """

    first: FloatArray
    weights: list[FloatArray]
    expected: FloatArray

    @classmethod
    def of(
        cls, pair: Pair, placements: Sequence[FloatArray], theta: FloatArray, zeta_hat: Guess, rank_aware: bool
    ) -> _Values:
        # Only ratios of theta are known, and an estimated one may exceed that of the first rank.
        theta = theta / max(theta.max(), 1.0)
        guess = checked_guess(zeta_hat, pair.n_documents, rank_aware=rank_aware)
        lam = pair.lam(theta)
        weights = [rank_weights(lam, p, theta, pair.offsets, guess, rank_aware) for p in placements]
        return cls(expected_value(lam, guess, pair.offsets, known_queries=False), weights, guess[:, None] * theta)

    def mean(self, by_version: Sequence[Counts]) -> float:
        """Of x over the impressions that were counted."""
        total, impressions = 0.0, 0.0
        for counts, weights in zip(by_version, self.weights):
            surprise = counts.clicked - self.expected[counts.documents] * counts.shown
            total += float(
                self.first[counts.queries] @ counts.shown[:, 0] + np.sum(weights[counts.documents] * surprise)
            )
            impressions += counts.shown[:, 0].sum()
        return float(total / impressions)


def _chosen(estimator: Estimator, counts: Counts) -> Estimator:
    """What ``Auto`` chooses on all counts: were it to choose anew without each group, the jackknife would count that too."""
    if not isinstance(estimator, Auto):
        return estimator
    method = estimator.fit(counts).method
    return next(c for c in (Conditional(), Conditional(given="design")) if repr(c) == method)


def _jackknife_error(values: FloatArray) -> float:
    return float(np.sqrt(jackknife_variance(values[:, None])[0, 0]))
