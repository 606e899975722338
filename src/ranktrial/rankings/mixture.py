"""Mixtures: an explicit distribution over rankings for each query, with its exact moments.

For one query the mixture shows ranking R with probability w_R. From it follow, exactly,

* placement: P(d, r) = sum_R w_R 1[R_r = d],
* exposure: rho_d = sum_r P(d, r) theta_r (the paper's propensity), and
* mean and variance of any affine value x = a number per ranking + sum over clicked ranks of a number per (ranking, rank).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import NO_DOCUMENT, DocumentArray, FloatArray, IntArray, offsets_of, sum_by_group, weighted_counts
from ranktrial.rankings._kernels import exposures, query_moments
from ranktrial.rankings.lists import UserArrays, check_user, expected_clicks
from ranktrial.users import User, Users


@dataclass(frozen=True)
class Moments:
    """Exact mean and variance of the value of one impression, and the clicks it is expected to get.

    Attributes:
        mean: E[x], what the estimate converges to.
        variance: Var(x) of one impression, queries drawn uniformly; the estimate from N has variance / N.
        ctr: Expected clicks per impression on what is shown.
        third: Third cumulant of x, which the estimate from N has over N^2; 0 where it was not worked out.
        fourth: Fourth cumulant, likewise over N^3.
        standard_error: Standard error of ``mean``, where displays were drawn and not listed.
    """

    mean: float
    variance: float
    ctr: float
    third: float = 0.0
    fourth: float = 0.0
    standard_error: float = 0.0

    @classmethod
    def of_queries(
        cls,
        mean: FloatArray,
        mean_square: FloatArray,
        clicks: FloatArray,
        cube: FloatArray | None = None,
        fourth_power: FloatArray | None = None,
    ) -> Moments:
        """Build from per-query E[x], E[x^2] and expected clicks; with E[x^3] and E[x^4] also the higher cumulants."""
        overall = float(mean.mean())
        # Centred per query, so that a variance far below the squared mean does not cancel away.
        within = mean_square - mean**2
        variance = float(np.maximum(within, 0).mean() + ((mean - overall) ** 2).mean())
        if cube is None or fourth_power is None:
            return cls(overall, variance, float(clicks.mean()))
        powers = (overall, *(float(power.mean()) for power in (mean_square, cube, fourth_power)))
        return cls(overall, variance, float(clicks.mean()), *higher_cumulants(*powers))


def higher_cumulants(first: float, second: float, third: float, fourth: float) -> tuple[float, float]:
    """Third and fourth cumulant from E[x], E[x^2], E[x^3] and E[x^4].

    >>> higher_cumulants(0.0, 1.0, 0.0, 1.0)  # a coin of -1 and 1
    (0.0, -2.0)
    """
    variance = second - first**2
    cube = third - 3 * first * second + 2 * first**3
    return cube, fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4 - 3 * variance**2


@dataclass(frozen=True, eq=False)
class Mixture:
    """Distribution over rankings for each of many queries, as rankings and their probabilities.

    Rankings of query q are rows ``offsets[q]:offsets[q + 1]`` of ``rankings`` (document ids, NO_DOCUMENT padding) and
    ``weights`` (summing to 1 within a query). ``plain`` says that the last two of every query are A's own list and B's own.
    """

    rankings: DocumentArray
    weights: FloatArray
    offsets: IntArray
    n_documents: int
    plain: bool = False

    def __post_init__(self) -> None:
        if not len(self.rankings) == len(self.weights) == self.offsets[-1]:
            raise ValueError(
                f"{len(self.rankings)} rankings and {len(self.weights)} weights, the offsets say {self.offsets[-1]}"
            )
        if len(self.offsets) < 2:
            raise ValueError("a mixture needs at least 1 query")
        low, high = self.rankings.min(initial=NO_DOCUMENT), self.rankings.max(initial=NO_DOCUMENT)
        if low < NO_DOCUMENT or high >= self.n_documents:
            raise ValueError(f"rankings hold documents {low} to {high}, must be -1 (nothing) to {self.n_documents - 1}")
        empty = np.flatnonzero(np.diff(self.offsets) < 1)
        if len(empty):
            raise ValueError(f"query {empty[0]} has no ranking to show")
        bad = np.flatnonzero(~(self.weights >= 0))
        if len(bad):
            raise ValueError(f"weight {bad[0]} is {self.weights[bad[0]]:g}, must not be negative")
        totals = sum_by_group(self.weights, self.offsets)
        if np.any(np.abs(totals - 1) > 1e-9):
            query = int(np.argmax(np.abs(totals - 1)))
            raise ValueError(f"weights must sum to 1; those of query {query} sum to {totals[query]:g}")

    @classmethod
    def of_tables(
        cls, tables: list[DocumentArray], weights: ArrayLike, n_documents: int, *, plain: bool = False
    ) -> Mixture:
        """Show each query its row of one of the tables, drawn with the given weights."""
        n, k = tables[0].shape
        stacked = np.stack(tables, axis=1).reshape(n * len(tables), k)
        return cls(stacked, np.tile(np.asarray(weights, float), n), offsets_of([len(tables)] * n), n_documents, plain)

    @property
    def n_queries(self) -> int:
        return len(self.offsets) - 1

    @property
    def k(self) -> int:
        return int(self.rankings.shape[1])

    def placement(self) -> FloatArray:
        """P(document at rank) as a (documents, k) matrix, exactly."""
        shown = self.rankings != NO_DOCUMENT
        cells = (self.rankings.astype(np.int64) * self.k + np.arange(self.k))[shown]
        weights = np.broadcast_to(self.weights[:, None], shown.shape)[shown]
        return weighted_counts(cells, weights, self.n_documents * self.k).reshape(self.n_documents, self.k)

    def exposure(self, theta: FloatArray) -> FloatArray:
        """rho_d: the probability that each document is examined, exactly."""
        if len(theta) < self.k:
            raise ValueError(f"theta has {len(theta)} ranks, must have k = {self.k}")
        rho = np.zeros(self.n_documents)
        exposures(self.rankings, self.weights, theta, rho)
        return rho

    def mean(self, per_ranking: FloatArray) -> FloatArray:
        """Per query, the expectation of a number per ranking."""
        return sum_by_group(self.weights * per_ranking, self.offsets)

    def ctr(self, user: Users) -> float:
        """Expected clicks per impression on what the mixture shows."""
        return float(self.mean(expected_clicks(self.rankings, user).sum(1)).mean())

    def moments(self, values: FloatArray, user: User, base: FloatArray | None = None) -> Moments:
        """Exact moments of x = ``base[ranking]`` + sum over clicked ranks of ``values[ranking, rank]``."""
        check_user(user, self.k, self.n_documents)
        if values.shape != self.rankings.shape:
            raise ValueError(f"values have shape {values.shape}, must have that of the rankings, {self.rankings.shape}")
        if base is not None and base.shape != self.weights.shape:
            raise ValueError(
                f"base has shape {base.shape}, must have one number for each of {len(self.weights)} rankings"
            )
        base = np.zeros(len(self.weights)) if base is None else base
        found = query_moments(self.offsets, self.weights, self.rankings, values, base, UserArrays.of(user))
        first, second, third, fourth, clicks = found.T
        return Moments.of_queries(first, second, clicks, third, fourth)
