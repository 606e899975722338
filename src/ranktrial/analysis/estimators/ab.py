"""Values of A/B traffic, without click model or position bias, and the predictions of ``Adjusted``."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.analysis.estimators.cross_fitting import contributions, groups_of, training_sums
from ranktrial.analysis.estimators.kinds import DeltaEstimator, OfABTraffic, parse_estimator
from ranktrial.arrays import BoolArray, FloatArray, IntArray, weighted_counts
from ranktrial.log.units import Units
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
