"""Estimates from A/B traffic, impressions that showed A's own list or B's own: by clicks alone, without a click model."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.analysis.estimators.click_weights import ClickWeights
from ranktrial.analysis.estimators.covariates import adjustment
from ranktrial.analysis.estimators.cross_fitting import contributions, groups_at, groups_of, refit_points, training_sums
from ranktrial.analysis.estimators.kinds import Adjusted, DeltaEstimator, OfABTraffic, parse_estimator
from ranktrial.analysis.estimators.results import Estimate
from ranktrial.arrays import BoolArray, FloatArray, IntArray, weighted_counts
from ranktrial.log.folding import Statistic, fold
from ranktrial.log.log import Log
from ranktrial.log.units import Units, UnitSums, first_seen
from ranktrial.position_bias.relevance import nested_effects

MOST_NUMBERS = 10  # times as many as impressions: then numbers need not be sorted to be told apart


def ab_values(
    in_a: ArrayLike,
    clicks: ArrayLike,
    *,
    queries: ArrayLike | None = None,
    split: ArrayLike = 0.5,
    estimator: str | DeltaEstimator = "adjusted",
    cross_fit: str = "folds",
    folds: int = 5,
    refits: ArrayLike | None = None,
    units: ArrayLike | Units | None = None,
    same: ArrayLike = False,
) -> tuple[FloatArray, FloatArray]:
    """Values x of impressions that showed A (``in_a``) or B, from the clicks on each, and the weight of a click.

    ``split`` is the probability of A by design (one, or one for each impression), ``queries`` the query of each impression (any
    names), for ``Adjusted``, and ``same`` where both rankers have the same list. The other options are those of ``estimate``.

    >>> ab_values([True, False, True], [2, 1, 0], split=0.25, estimator="paper")[0].round(3)
    array([ 8.   , -1.333,  0.   ])
    """
    kind = parse_estimator(estimator)
    if not isinstance(kind, OfABTraffic):
        raise ValueError(
            f"{kind} needs more than an A/B test's clicks: estimator must be Means(), Adjusted() or Paper()"
        )
    a, y = np.asarray(in_a, bool), checks.finite("clicks", clicks)
    if a.shape != y.shape or len(y) == 0:
        raise ValueError(f"in_a has shape {a.shape}, clicks {y.shape}: must be one each, and at least one")
    odd = np.flatnonzero((y < 0) | (y != np.floor(y)))
    if len(odd):
        raise ValueError(f"clicks[{odd[0]}] is {y[odd[0]]:g}, must be a number of clicks")
    return values_of_arms(
        kind, a, y, queries=queries, split=split, cross_fit=cross_fit, folds=folds, refits=refits,
        units=units, same=same,
    )  # fmt: skip


def values_of_arms(
    kind: OfABTraffic,
    a: BoolArray,
    y: FloatArray,
    *,
    queries: ArrayLike | None,
    split: ArrayLike,
    cross_fit: str,
    folds: int,
    refits: ArrayLike | None,
    units: ArrayLike | Units | None,
    same: ArrayLike,
) -> tuple[FloatArray, FloatArray]:
    """``ab_values`` of any values of impressions instead of their clicks."""
    share = np.broadcast_to(np.asarray(split, np.float64), y.shape)
    checks.between("split", float(share.min()), 0, 1, open_ends=True)
    checks.between("split", float(share.max()), 0, 1, open_ends=True)
    values = kind.arm_values(a, y, share)
    if values is not None:
        return values
    groups = groups_of(len(y), cross_fit, folds=folds, refits=refits, units=units)
    counted = contributions(groups, cross_fit, refits=refits)
    predicted = _predictions(a, y, _numbered(queries, len(y)), counted, groups, cross_fit)
    return adjusted_values(a, y, share, predicted, ~np.broadcast_to(np.asarray(same, bool), y.shape))


def adjusted_values(
    a: BoolArray, y: FloatArray, share: FloatArray, predicted: FloatArray, differ: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """x and the weight of a click, given what clicks were predicted of A and of B, and whether their lists differ."""
    sign_over_share = np.where(a, 1 / share, -1 / (1 - share))
    surprise = y - np.where(a, predicted[:, 0], predicted[:, 1])
    x = predicted[:, 0] - predicted[:, 1] + sign_over_share * surprise
    return np.where(differ, x, 0.0), np.where(differ, sign_over_share, 0.0)


def _numbered(queries: ArrayLike | None, n: int) -> IntArray:
    if queries is None:
        raise ValueError('estimator="adjusted" needs the query of each impression: queries=...')
    if np.shape(queries) != (n,):
        raise ValueError(f"queries have shape {np.shape(queries)}, must be one for each of {n} impressions")
    numbers = np.asarray(queries)
    if numbers.dtype.kind == "i" and n and numbers.min() >= 0 and numbers.max() < MOST_NUMBERS * n:
        there = np.bincount(numbers) > 0
        return np.asarray((np.cumsum(there) - 1)[numbers])
    return np.unique(numbers, return_inverse=True)[1]


def _predictions(
    a: BoolArray, y: FloatArray, queries: IntArray, counted: IntArray, groups: IntArray, cross_fit: str
) -> FloatArray:
    """Clicks to be expected of A and of B on each impression's query, from impressions that may be used for its group."""
    n_cells = 2 * (int(queries.max()) + 1)
    cells = 2 * queries + ~a

    def counted_in(group: int) -> FloatArray:
        rows = counted == group
        sums = (np.ones(rows.sum()), y[rows], y[rows] ** 2)
        return np.stack([weighted_counts(cells[rows], s, n_cells) for s in sums])

    predicted = np.empty((len(y), 2))
    for group, sums in enumerate(training_sums(counted_in, int(counted.max()) + 1, cross_fit)):
        rows = np.flatnonzero(groups == group)
        predicted[rows] = expected_clicks(sums).reshape(-1, 2)[queries[rows]]
    return predicted


def expected_clicks(sums: FloatArray) -> FloatArray:
    """Per (query, arm), from their impressions, clicks and squared clicks."""
    impressions, clicks, squares = sums
    total = impressions.sum()
    arms = np.array([[part[0::2].sum(), part[1::2].sum()] for part in (impressions, clicks)])
    overall = clicks.sum() / max(total, 1)
    means = np.tile(np.where(arms[0] > 0, arms[1] / np.maximum(arms[0], 1), overall), len(clicks) // 2)
    filled = impressions > 0
    repeated = total - filled.sum()  # without repetitions the spread around the arms' means has to do
    centre = clicks[filled] / impressions[filled] if repeated > 0 else means[filled]
    around = squares[filled] - 2 * centre * clicks[filled] + centre**2 * impressions[filled]
    noise = around.sum() / max(repeated if repeated > 0 else total, 1)
    offsets = np.arange(0, len(clicks) + 1, 2)
    effects, _ = nested_effects(clicks - impressions * means, impressions, noise * impressions, offsets)
    return np.asarray(means + effects)


# --- of a log ---------------------------------------------------------------------------------------------------------


class _Arms(NamedTuple):
    """A/B impressions of a chunk: their numbers, values (of their clicks or by a metric), x, and the weight of a click."""

    at: IntArray
    values: FloatArray
    x: FloatArray
    weight: FloatArray


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
    if isinstance(kind, Adjusted) and cross_fit == "past":
        found: _Arms = fold(log, adjusted_by_the_past(log, refit_points(refits), each))[0]
    else:
        found = _arms_of(log, kind, each, cross_fit=cross_fit, folds=folds, refits=refits)
    at, values, x, weight = found
    if not len(at):
        raise ValueError(f"{kind} needs A/B traffic, and this log has none")
    x = x + adjustment(log, x, x - weight * values, at)
    if independent == "cohorts":
        sums = log.cohorts.sums(x, at)
    else:
        sums = UnitSums.of(x, log.unit[at] if independent == "units" else None)
    of_events = np.repeat(weight, log.clicks_each[at]) if each is None else (weight * values)[values != 0]
    weights, largest = ClickWeights.of(of_events), float(np.abs(weight).max())
    return Estimate.summed(sums, weights, largest_weight=largest, x=x, at=at)


def _arms_of(
    log: Log, kind: OfABTraffic, each: FloatArray | None, *, cross_fit: str, folds: int, refits: ArrayLike | None
) -> _Arms:
    """Values that need the whole log: the means of both arms, or predictions from the other folds."""
    at = np.flatnonzero(log.arm)
    values = (log.clicks_each if each is None else each)[at].astype(np.float64)
    design, shares = log.design[at], log.shares[at]
    if not len(at):
        return _Arms(at, values, values, values)
    x, weight = values_of_arms(
        kind, log.arm[at] > 0, values, queries=log.asked[at], split=shares[:, 0] / shares.sum(1),
        units=Units.of(log.unit[at]), same=~log.differ[design], cross_fit=cross_fit, folds=folds, refits=refits,
    )  # fmt: skip
    return _Arms(at, values, x, weight)


def adjusted_by_the_past(log: Log, points: IntArray, each: FloatArray | None) -> Statistic[_Arms, _Arms]:
    """``Adjusted``, with the clicks that are expected by the impressions before the last of these points."""
    group = groups_at(log.units.place, log.units.first, "past", refits=points)

    @cache
    def expected(number: int) -> _Expected:
        if not number:
            return _Expected(np.empty(0, np.int64), np.zeros((1, 2)))
        first = int(points[number - 1])
        if each is not None:
            return _Expected.of(log.first(first), each)
        return log.kept.fitted(log, first, "clicks of both arms", (first,), _Expected.of)

    def contribution(rows: slice, part: Log, before: object) -> _Arms:
        own = np.flatnonzero(part.arm)
        at, design = rows.start + own, part.design[own]
        values = (part.clicks_each[own] if each is None else each[at]).astype(np.float64)
        predicted, of_own = np.empty((len(own), 2)), group[at]
        for number in np.unique(of_own).tolist():
            predicted[of_own == number] = expected(number).clicks(part.query[design[of_own == number]])
        shares = part.ab_shares[design]
        split = shares[:, 0] / shares.sum(1)
        return _Arms(at, values, *adjusted_values(part.arm[own] > 0, values, split, predicted, part.differ[design]))

    beliefs = None if each is not None else (points.tobytes(),)
    return Statistic("A/B, adjusted", beliefs, contribution, lambda parts: _Arms(*map(np.concatenate, zip(*parts))))


class _Expected(NamedTuple):
    """Expected clicks on A's list and on B's for each query.

    Attributes:
        query: Numbers of queries, sorted.
        of_query: Expected clicks for each of them; the last row is for all other queries.
    """

    query: IntArray
    of_query: FloatArray

    @classmethod
    def of(cls, log: Log, each: FloatArray | None = None) -> _Expected:
        """Estimate the expected clicks from the A/B impressions of a log."""
        rows = np.flatnonzero(log.arm)
        query, number = first_seen(log.asked[rows])
        cells = 2 * number + (log.arm[rows] < 0)
        y = (log.clicks_each if each is None else each)[rows].astype(np.float64)
        sums = np.stack([weighted_counts(cells, of, 2 * len(query) + 2) for of in (np.ones(len(y)), y, y**2)])
        order = np.argsort(query)
        return cls(query[order], expected_clicks(sums).reshape(-1, 2)[np.append(order, len(query))])

    def clicks(self, query: IntArray) -> FloatArray:
        if not len(self.query):
            return np.repeat(self.of_query[-1:], len(query), axis=0)
        place = np.minimum(np.searchsorted(self.query, query), len(self.query) - 1)
        return np.asarray(self.of_query[np.where(self.query[place] == query, place, -1)])
