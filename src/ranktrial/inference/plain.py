"""Estimates from the plain A/B traffic of a log (``ab``): impressions that showed A's own list or B's own, by clicks alone."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial.arrays import FloatArray, IntArray, weighted_counts
from ranktrial.inference.ab import ab_values, adjusted_values, expected_clicks
from ranktrial.inference.click_weights import ClickWeights
from ranktrial.inference.cross_fitting import groups_at, refit_points
from ranktrial.inference.impressions import Impressions
from ranktrial.inference.results import Estimate
from ranktrial.inference.units import UnitSums, first_seen


class _Worth(NamedTuple):
    """What the plain impressions of a block are worth: which they are, x of each, and the weights of their clicks."""

    at: IntArray
    x: FloatArray
    weights: ClickWeights
    largest: float

    @classmethod
    def of(cls, at: IntArray, x: FloatArray, weight: FloatArray, clicks: NDArray[np.int32]) -> _Worth:
        each = ClickWeights.of(np.repeat(weight, clicks))
        return cls(at.astype(np.int32), x, each, float(np.abs(weight).max(initial=0.0)))


def plain_estimate(
    log: Impressions, estimator: str, independent: str, *, cross_fit: str, folds: int, refits: ArrayLike | None
) -> Estimate:
    """By one of ``AB_ESTIMATORS``; options are those of ``estimate``."""
    if not log.has_plain:
        raise ValueError(f'estimator="{estimator}" needs plain A/B impressions, and this log has none')
    what: Hashable = None
    if estimator == "adjusted" and cross_fit == "past":
        points = refit_points(refits)
        what = "plain", points.tobytes()
        blocks = _by_the_past(log, points, what)
    else:
        blocks = _all_at_once(log, estimator, cross_fit=cross_fit, folds=folds, refits=refits)
    at, x = [one.at for one in blocks], [one.x for one in blocks]
    if independent == "cohorts":
        ones = [np.ones(len(of)) for of in x]
        of_cohorts = (
            log.summed(None if what is None else (what, name), [_spread(*of) for of in zip(at, values)])
            for name, values in (("impressions", ones), ("x", x))
        )
        sums = log.sums_from(*of_cohorts)
    else:
        rows = np.flatnonzero(log.arm)
        sums = UnitSums.of(np.concatenate(x), log.units_of(rows) if independent == "units" else None)
    weights = ClickWeights.merged(one.weights for one in blocks)
    return Estimate.summed(sums, weights, largest_weight=max(one.largest for one in blocks), values=x, at=at, what=what)


def _spread(at: IntArray, values: FloatArray) -> Any:
    """Values of some impressions of a block as such of all, with 0 for the others."""

    def of_all(rows: slice) -> FloatArray:
        found = np.zeros(rows.stop - rows.start)
        found[at] = values
        return found

    return of_all


def _all_at_once(log: Impressions, estimator: str, **fit: Any) -> list[_Worth]:
    arm = log.arm
    rows = np.flatnonzero(arm)
    shares, clicks = log.shares[rows], log.clicks_each[rows]
    x, weight = ab_values(
        arm[rows] > 0,
        clicks,
        queries=log.asked[1][rows],
        split=shares[:, 0] / shares.sum(1),
        estimator=estimator,
        units=log.units_of(rows),
        same=~log.apart[rows],
        **fit,
    )
    found = []
    for block in log.blocks:
        some = slice(*np.searchsorted(rows, (block.rows.start, block.rows.stop)))
        found.append(_Worth.of(rows[some] - block.rows.start, x[some], weight[some], clicks[some]))
    return found


def _by_the_past(log: Impressions, points: IntArray, what: Hashable) -> list[_Worth]:
    """ "adjusted", with predictions from the past alone: what a block is worth does not change with what comes later."""
    last = int(np.searchsorted(points, len(log) - 1, side="right"))
    expected = [_Expected.nothing()]
    expected += [log.fitted(int(point), "clicks of plain pages", _Expected.of) for point in points[:last]]

    def worth(rows: slice) -> _Worth:
        arm, shares, apart = log.plain_in(rows)
        at = np.flatnonzero(arm)
        in_a, clicks, query = arm[at] > 0, log.clicks_on(rows)[at], log.query_of(rows)[at]
        group = groups_at(log.arrivals(rows)[at], log.arrived, "past", refits=points)
        predicted = np.empty((len(at), 2))
        for number in np.unique(group).tolist():
            predicted[group == number] = expected[number].clicks(query[group == number])
        split = shares[at, 0] / shares[at].sum(1)
        x, weight = adjusted_values(in_a, clicks.astype(np.float64), split, predicted, apart[at])
        return _Worth.of(at, x, weight, clicks)

    return log.by_rows(what, worth)


class _Expected(NamedTuple):
    """Clicks to be expected of A and of B on each query.

    Attributes:
        query: Numbers of queries, sorted.
        of_query: Clicks for each of them, and last for those that were not met.
    """

    query: IntArray
    of_query: FloatArray

    @classmethod
    def nothing(cls) -> _Expected:
        return cls(np.empty(0, np.int64), np.zeros((1, 2)))

    @classmethod
    def of(cls, log: Impressions) -> _Expected:
        """From the plain impressions of a log."""
        arm = log.plain_in(slice(0, len(log)))[0]
        rows = np.flatnonzero(arm)
        # Queries in the order in which they came: the numbers that they have must not decide about the order of a sum.
        query, number = first_seen(log.query_of(rows))
        cells, y = 2 * number + (arm[rows] < 0), log.clicks_on(rows).astype(np.float64)
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
