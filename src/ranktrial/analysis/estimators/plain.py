"""Estimates from the A/B traffic of a log (``ab``), impressions that showed A's own list or B's own, by clicks alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.analysis.estimators.ab import adjusted_values, expected_clicks, values_of_arms
from ranktrial.analysis.estimators.click_weights import ClickWeights
from ranktrial.analysis.estimators.covariates import adjustment
from ranktrial.analysis.estimators.cross_fitting import groups_at, refit_points
from ranktrial.analysis.estimators.kinds import Adjusted, OfABTraffic
from ranktrial.analysis.estimators.results import Estimate
from ranktrial.arrays import FloatArray, IntArray, weighted_counts
from ranktrial.log.log import Log
from ranktrial.log.units import Units, UnitSums, first_seen


def plain_estimate(
    log: Log,
    kind: OfABTraffic,
    independent: str,
    *,
    cross_fit: str,
    folds: int,
    refits: ArrayLike | None,
    each: FloatArray | None = None,
) -> Estimate:
    """Estimate Delta from the A/B traffic, by an estimator of it; options are those of ``estimate``.

    ``each`` is the value of every impression by a metric; its clicks by default.
    """
    at = np.flatnonzero(log.arm)
    if not len(at):
        raise ValueError(f"{kind} needs A/B traffic, and this log has none")
    values = (log.clicks_each if each is None else each)[at].astype(np.float64)
    in_a, shares = log.arm[at] > 0, log.ab_shares[log.design[at]]
    split, differ, query = shares[:, 0] / shares.sum(1), log.differ[log.design[at]], log.asked[at]
    if isinstance(kind, Adjusted) and cross_fit == "past":
        predicted = _by_the_past(log, refit_points(refits), at, query, each)
        x, weight = adjusted_values(in_a, values, split, predicted, differ)
    else:
        x, weight = values_of_arms(
            kind, in_a, values, queries=query, split=split, units=Units.of(log.unit[at]), same=~differ,
            cross_fit=cross_fit, folds=folds, refits=refits,
        )  # fmt: skip
    x = x + adjustment(log, x, x - weight * values, at)
    if independent == "cohorts":
        sums = log.sums_from(log.by_cohort(np.ones(len(at)), at), log.by_cohort(x, at))
    else:
        sums = UnitSums.of(x, log.unit[at] if independent == "units" else None)
    of_events = np.repeat(weight, log.clicks_each[at]) if each is None else (weight * values)[values != 0]
    weights, largest = ClickWeights.of(of_events), float(np.abs(weight).max())
    return Estimate.summed(sums, weights, largest_weight=largest, x=x, at=at)


def _by_the_past(log: Log, points: IntArray, at: IntArray, query: IntArray, each: FloatArray | None) -> FloatArray:
    """Expected clicks (or values) on A's list and on B's, from the impressions before the last of these points: ``(at, 2)``."""
    group = groups_at(log.units.place[at], log.units.first, "past", refits=points)
    predicted = np.empty((len(at), 2))
    for number in np.unique(group).tolist():
        expected = _Expected.of(log.first(int(points[number - 1])), each) if number else _Expected.nothing()
        predicted[group == number] = expected.clicks(query[group == number])
    return predicted


class _Expected(NamedTuple):
    """Expected clicks on A's list and on B's for each query.

    Attributes:
        query: Numbers of queries, sorted.
        of_query: Expected clicks for each of them; the last row is for all other queries.
    """

    query: IntArray
    of_query: FloatArray

    @classmethod
    def nothing(cls) -> _Expected:
        return cls(np.empty(0, np.int64), np.zeros((1, 2)))

    @classmethod
    def of(cls, log: Log, each: FloatArray | None = None) -> _Expected:
        """Estimate the expected clicks from the A/B impressions of a log."""
        rows = np.flatnonzero(log.arm)
        query, number = first_seen(log.asked[rows])
        cells, y = (
            2 * number + (log.arm[rows] < 0),
            (log.clicks_each if each is None else each)[rows].astype(np.float64),
        )
        sums = np.stack([weighted_counts(cells, of, 2 * len(query) + 2) for of in (np.ones(len(y)), y, y**2)])
        order = np.argsort(query)
        return cls(query[order], expected_clicks(sums).reshape(-1, 2)[np.append(order, len(query))])

    def clicks(self, query: IntArray) -> FloatArray:
        place = np.searchsorted(self.query, query)
        met = (
            self.query[np.minimum(place, len(self.query) - 1)] == query
            if len(self.query)
            else np.zeros(len(query), bool)
        )
        return np.asarray(self.of_query[np.where(met, place, -1)])
