"""The value of an impression: every estimator that is unbiased given theta is one formula.

With a prediction zh of the relevances, made without looking at this impression,

    u_d(r) = 1 / (1 - theta_r zh_d)  (rank-aware)   or   1  (plain)
    W_d(r) = lambda_d u_d(r) / sum_s P(d, s) theta_s u_d(s)
    x      = sum_d lambda_d zh_d + sum_r W_{R_r}(r) (c_{R_r} - theta_r zh_{R_r})

has mean Delta whatever the prediction. zh = 0 is the paper's IPS; a constant already takes out most of the variance that a
good prediction takes out; a good prediction is doubly robust estimation. A click at rank r that was to be expected (theta_r
zh_d near 1) says more when it fails to come, which is what the rank-aware weights use.

Clicks may have values V, such as orders: with v a prediction of the value of a click, as zh is of relevance,

    x      = sum_d lambda_d v_d zh_d + sum_r W_{R_r}(r) v_{R_r} (c_{R_r} - theta_r zh_{R_r})
             + sum_r lambda_{R_r} / rho_{R_r} c_{R_r} (V_r - v_{R_r})

has the difference in value as its mean, as V does not depend on the rank once there was a click: the first line is that of
clicks with lambda v for lambda, the second has the noise of values, not of looks.

x is affine in the clicks: a number per ranking plus numbers per clicked rank (``Affine``). So exact moments and simulation need
no more than for IPS, and a log needs them for the rankings that it shows. W does not change when u_d is scaled, and here
u_d is at most 1: |W_d(r)| is at most |lambda_d| over the denominator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ranktrial import checks
from ranktrial.arrays import BoolArray, DocumentArray, FloatArray, IntArray, sum_by_group
from ranktrial.rankings._kernels import affine_rows, affine_sums, direct_rows
from ranktrial.rankings.mixture import Mixture
from ranktrial.rankings.propensity import require_seen

RANK_AWARE_PREDICTIONS = (0.01, 0.9)  # beyond, 1 / (1 - theta zh) would trust a prediction too much

Prediction = float | FloatArray | None


@dataclass(frozen=True, eq=False)
class Affine:
    """x = ``base[ranking]`` + sum over clicked ranks of ``values[ranking, rank]``, for the rankings of a mixture."""

    base: FloatArray
    values: FloatArray

    @property
    def bound(self) -> float:
        """The largest absolute value x can have, over all rankings and click patterns: what betting needs to know."""
        above = self.base + np.maximum(self.values, 0).sum(1)
        below = self.base + np.minimum(self.values, 0).sum(1)
        return float(np.maximum(np.abs(above), np.abs(below)).max())


class DesignRows(NamedTuple):
    """Designs of many queries as one table: the candidates of each are numbered through, and rankings speak of these numbers.

    Attributes:
        slot_offsets: The candidates of each design.
        row_offsets: The rankings that each may show.
        rankings: All of these.
        weights: Probability of each of them.
        placement: P(candidate at rank), where rankings are too many to list; no row where they are not.
    """

    slot_offsets: IntArray
    row_offsets: IntArray
    rankings: DocumentArray | IntArray
    weights: FloatArray
    placement: FloatArray

    @classmethod
    def of(
        cls,
        slot_offsets: IntArray,
        row_offsets: IntArray,
        rankings: DocumentArray | IntArray,
        weights: FloatArray,
        placement: FloatArray | None = None,
    ) -> DesignRows:
        exact = np.empty((0, rankings.shape[1])) if placement is None else placement
        return cls(slot_offsets, row_offsets, rankings, weights, exact)


@dataclass(frozen=True, eq=False)
class Valued:
    """Some rankings with their values, and what the weights behind them are.

    Attributes:
        affine: x of each ranking.
        largest: Largest absolute weight that a click can have.
        lost: For each ranking, how far clipping can move the mean of x at most; 0 without clipping.
    """

    affine: Affine
    largest: float
    lost: FloatArray


def affine_values(
    mixture: Mixture,
    lam: FloatArray,
    theta: FloatArray,
    offsets: IntArray,
    *,
    zeta_hat: Prediction = None,
    rank_aware: bool = False,
    known_queries: bool = False,
) -> Affine:
    """The formula on every ranking of a mixture; refuses, naming query and document, where one that matters cannot be seen.

    ``offsets`` are the pair's. ``zeta_hat`` is None (IPS), one number, or one per document. ``known_queries`` replaces the
    first sum by its mean over all queries, uniformly: less variance where P(q) is known.

    >>> mixture = Mixture.of_tables([np.array([[0, 1]], np.int32), np.array([[1, 0]], np.int32)], (0.5, 0.5), 2)
    >>> affine_values(mixture, np.array([0.5, -0.5]), np.array([1.0, 0.5]), np.array([0, 2])).values.round(3)
    array([[ 0.667, -0.667],
           [-0.667,  0.667]])
    """
    prediction = checked_prediction(zeta_hat, len(lam), rank_aware=rank_aware)
    require_seen(lam, mixture.exposure(theta), offsets)
    rows = np.arange(len(mixture.rankings))
    query = np.searchsorted(mixture.offsets, rows, side="right") - 1
    table = DesignRows.of(offsets, mixture.offsets, mixture.rankings, mixture.weights)
    valued = value_rows(rows, query, table, lam, prediction, theta, rank_aware=rank_aware)
    first = expected_value(lam, prediction, offsets, known_queries=known_queries)
    return Affine(first[query] + valued.affine.base, valued.affine.values)


def value_rows(
    rows: IntArray,
    design: IntArray,
    table: DesignRows,
    lam: FloatArray,
    prediction: FloatArray,
    theta: FloatArray,
    *,
    rank_aware: bool,
    clip: float | None = None,
    direct: tuple[IntArray, IntArray] | None = None,
) -> Valued:
    """The second sum of the formula, without the first, for some rankings of a table; no checks.

    Args:
        rows: Which, those of one design together; ``design`` is that of each.
        table: The designs; lam and prediction speak of its candidates.
        direct: Ranks of the candidates in A's list and in B's, to count clicks at these ranks only, over how often they stand
            there: right for clicks that depend on document and rank in any way, with more variance.
    """
    most = np.inf if clip is None else float(clip)
    base, lost, values = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros((len(rows), table.rankings.shape[1]))
    if direct is None:
        largest = affine_rows(rows, design, table, lam, prediction, theta, rank_aware, most, base, values, lost)
    else:
        largest = direct_rows(rows, design, table, *direct, prediction, theta, base, values)
    return Valued(Affine(base, values), float(largest), lost)


def value_sums(
    rows: IntArray,
    design: IntArray,
    starts: IntArray,
    impressions: IntArray,
    clicks: BoolArray,
    left_out: IntArray,
    table: DesignRows,
    ranks: tuple[IntArray, IntArray],
    prediction: FloatArray,
    thetas: FloatArray,
    *,
    rank_aware: bool,
    gain: bool = False,
    first: bool = True,
    clip: float | None = None,
    worth: FloatArray | None = None,
    code: IntArray | None = None,
    codes: int = 1,
) -> FloatArray:
    """Sums of x over impressions at many thetas, number t over those that it does not leave out, by code; no checks.

    Args:
        rows: Rankings that were shown, as of ``value_rows``.
        starts: Row i was shown by ``impressions[starts[i]:starts[i + 1]]``.
        clicks: Clicks of all impressions, by rank.
        left_out: Number of the theta that leaves out each impression.
        ranks: Ranks of the candidates in A's list and in B's: lambda is the difference of exposures there or, for the
            ``gain`` in clicks, what they have beyond the mean of both; 0 for what cannot be seen.
        thetas: A row for each.
        first: Whether the first sum of the formula is part of x.
        worth: Value of a click on each candidate, by which lambda is multiplied; 1 by default.
        code: Code of each impression, a number below ``codes``; 0 by default. Sums have a row for each.
    """
    sums = np.zeros((codes, len(thetas)))
    columns = np.ascontiguousarray(np.pad(thetas, ((0, 0), (0, 1))).T)
    affine_sums(
        rows, design, starts, impressions, clicks, left_out, table, *ranks, prediction,
        np.empty(0) if worth is None else worth, columns, gain, rank_aware, np.inf if clip is None else float(clip), first,
        np.empty(0, np.int64) if code is None else code, sums,
    )  # fmt: skip
    return sums


def checked_prediction(zeta_hat: Prediction, n_documents: int, *, rank_aware: bool) -> FloatArray:
    """Relevance as one number per document: 0 for None; moved inside (0, 1) where rank-aware weights divide by it."""
    if zeta_hat is None:
        if rank_aware:
            raise ValueError("zeta_hat is None, but rank-aware weights need a relevance")
        return np.zeros(n_documents)
    prediction = checks.probabilities("zeta_hat", np.atleast_1d(np.asarray(zeta_hat, np.float64)))
    if np.ndim(zeta_hat) and len(prediction) != n_documents:
        raise ValueError(f"zeta_hat has {len(prediction)} numbers for {n_documents} documents, must have one each")
    if rank_aware:
        prediction = np.clip(prediction, *RANK_AWARE_PREDICTIONS)
    return np.array(np.broadcast_to(prediction, n_documents))


def expected_value(lam: FloatArray, prediction: FloatArray, offsets: IntArray, *, known_queries: bool) -> FloatArray:
    """The first sum per query: the expected x if the relevances were right."""
    per_query = sum_by_group(lam * prediction, offsets)
    return np.full_like(per_query, per_query.mean()) if known_queries else per_query
