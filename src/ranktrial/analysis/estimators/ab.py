"""Estimates from A/B traffic, impressions that showed A's own list or B's own: by clicks alone, without a click model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.analysis.estimators.click_weights import ClickWeights
from ranktrial.analysis.estimators.covariates import adjustment
from ranktrial.analysis.estimators.cross_fitting import CrossFit
from ranktrial.analysis.estimators.kinds import Adjusted, DeltaEstimator, OfABTraffic, parse_estimator
from ranktrial.analysis.estimators.results import Estimate, sums_by
from ranktrial.arrays import BoolArray, FloatArray, IntArray, weighted_counts
from ranktrial.log.folding import Statistic, fold
from ranktrial.log.log import Log
from ranktrial.log.units import Units, first_seen
from ranktrial.position_bias.relevance import nested_effects


def estimate_ab(
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
    independent: str = "units",
    same: ArrayLike = False,
) -> Estimate:
    """Delta from an A/B test of which no more is known than whose list each impression showed and how often it was clicked.

    ``split`` is the probability of A by design (one, or one for each impression), ``queries`` the query of each impression (any
    names), for ``Adjusted``, and ``same`` where both rankers have the same list. The other options are those of ``estimate``. A
    log with both lists of every search says more (``Log.from_records``).

    >>> print(estimate_ab([True, False, True, False], [2, 1, 0, 1], estimator="means").delta)
    0.0
    >>> estimate_ab([True, False, True], [2, 1, 0], split=0.25, estimator="paper").x.round(3)
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
    share = np.broadcast_to(np.asarray(split, np.float64), y.shape)
    checks.between("split", float(share.min()), 0, 1, open_ends=True)
    checks.between("split", float(share.max()), 0, 1, open_ends=True)
    known = Units.of(np.arange(len(y)) if units is None else units)
    if known.place.shape != y.shape:
        raise ValueError(f"units have shape {known.place.shape}, clicks {y.shape}: must be one each")
    fitting = CrossFit.of(cross_fit, folds, refits)
    if isinstance(kind, Adjusted):
        if queries is None:
            raise ValueError('estimator="adjusted" needs the query of each impression: queries=...')
        if np.shape(queries) != y.shape:
            raise ValueError(f"queries have shape {np.shape(queries)}, must be one for each of {len(y)} impressions")
        query, counted = first_seen(np.asarray(queries))[1], fitting.counted(np.arange(len(y)), known)

        def expected(group: int) -> FloatArray:
            usable = fitting.usable(counted, group)
            return expected_clicks(query[usable], a[usable], y[usable])

        differ = ~np.broadcast_to(np.asarray(same, bool), y.shape)
        x, weight = adjusted_values(a, y, share, differ, query, fitting.groups(known), expected)
    else:
        x, weight = kind.arm_values(a, y, share)
    owners = known if units is not None and independent == "units" else None
    return Estimate.of(
        x, np.repeat(weight, y.astype(np.int64)), largest_weight=float(np.abs(weight).max()), units=owners
    )


def ab_estimate(
    log: Log, kind: OfABTraffic, independent: str, fitting: CrossFit, each: FloatArray | None = None
) -> Estimate:
    """Estimate Delta from the A/B traffic of a log, by an estimator of it.

    ``each`` is the value of every impression by a metric; its clicks by default.
    """
    at = np.flatnonzero(log.arm)
    if not len(at):
        raise ValueError(f"{kind} needs A/B traffic, and this log has none")
    values = (log.clicks_each if each is None else each)[at].astype(np.float64)
    if isinstance(kind, Adjusted):
        x, weight = _adjusted(log, at, values, fitting, kept=each is None)
    else:
        shares = log.shares[at]
        x, weight = kind.arm_values(log.arm[at] > 0, values, shares[:, 0] / shares.sum(1))
    x = x + adjustment(log, x, x - weight * values, at)
    of_events = np.repeat(weight, log.clicks_each[at]) if each is None else (weight * values)[values != 0]
    sums, largest = sums_by(independent, log, x, at), float(np.abs(weight).max())
    return Estimate.of(sums, ClickWeights.of(of_events), largest_weight=largest, x=x, at=at)


def _adjusted(
    log: Log, at: IntArray, values: FloatArray, fitting: CrossFit, *, kept: bool
) -> tuple[FloatArray, FloatArray]:
    """x and the weight of a click of the A/B impressions ``at``, by ``Adjusted``; ``kept`` if values stay while a log grows."""
    if fitting.how == "past":
        group, counted = fitting.groups(log.units)[at], fitting.counted(at, log.units)
    else:
        group = counted = fitting.groups(Units.of(log.unit[at]))

    @cache
    def expected(number: int) -> FloatArray:
        usable = fitting.usable(counted, number)
        return expected_clicks(log.asked[at[usable]], log.arm[at[usable]] > 0, values[usable])

    def contribution(rows: slice, part: Log, before: object) -> tuple[FloatArray, FloatArray]:
        own, own_at = np.flatnonzero(part.arm), slice(*np.searchsorted(at, [rows.start, rows.stop]))
        design, y = part.design[own], values[own_at]
        shares = part.ab_shares[design]
        return adjusted_values(
            part.arm[own] > 0, y, shares[:, 0] / shares.sum(1), part.differ[design], part.query[design], group[own_at],
            expected,
        )  # fmt: skip

    beliefs = (fitting,) if kept and fitting.how == "past" else None
    x, weight = zip(*fold(log, Statistic("A/B, adjusted", beliefs, contribution, list))[0])
    return np.concatenate(x), np.concatenate(weight)


def adjusted_values(
    in_a: BoolArray,
    y: FloatArray,
    share: FloatArray,
    differ: BoolArray,
    query: IntArray,
    group: IntArray,
    expected: Callable[[int], FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """x and the weight of a click by ``Adjusted``, given ``expected_clicks`` for each group; 0 where lists do not differ."""
    predicted = np.empty((len(y), 2))
    for number in np.unique(group).tolist():
        rows, table = np.flatnonzero(group == number), expected(number)
        predicted[rows] = table[np.minimum(query[rows], len(table) - 1)]
    sign_over_share = np.where(in_a, 1 / share, -1 / (1 - share))
    x = predicted[:, 0] - predicted[:, 1] + sign_over_share * (y - np.where(in_a, predicted[:, 0], predicted[:, 1]))
    return np.where(differ, x, 0.0), np.where(differ, sign_over_share, 0.0)


def expected_clicks(query: IntArray, in_a: BoolArray, y: FloatArray) -> FloatArray:
    """Clicks to be expected of A and of B by number of the query, from these impressions; the last row for all other queries.

    Means per query and arm, shrunk towards those of the arms as much as their spread tells.
    """
    n = 2 * (int(query.max(initial=-1)) + 2)
    cells = 2 * query + ~in_a
    impressions, clicks, squares = (weighted_counts(cells, of, n) for of in (np.ones(len(y)), y, y**2))
    total = impressions.sum()
    arms = np.array([[part[0::2].sum(), part[1::2].sum()] for part in (impressions, clicks)])
    overall = clicks.sum() / max(total, 1)
    means = np.tile(np.where(arms[0] > 0, arms[1] / np.maximum(arms[0], 1), overall), n // 2)
    filled = impressions > 0
    repeated = total - filled.sum()  # without repetitions the spread around the arms' means has to do
    centre = clicks[filled] / impressions[filled] if repeated > 0 else means[filled]
    around = squares[filled] - 2 * centre * clicks[filled] + centre**2 * impressions[filled]
    noise = around.sum() / max(repeated if repeated > 0 else total, 1)
    effects, _ = nested_effects(clicks - impressions * means, impressions, noise * impressions, np.arange(0, n + 1, 2))
    return np.asarray(means + effects).reshape(-1, 2)
