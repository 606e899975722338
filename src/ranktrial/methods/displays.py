"""Displays of a method on a pair of rankers: their distribution, and a value for each click pattern on one.

Two kinds of value cover every method of the paper:

* ``Linear``: x = sum over clicked ranks of a number per (display, rank), plus a number per display where there is a base:
  A/B, optimized interleaving, every counterfactual estimate. It is unbiased or not according to the numbers.
* ``Majority``: x = E[sign(clicks credited to A - clicks credited to B)], the expectation over who is credited:
  team-draft (credit is certain), probabilistic (it is not), balanced (it depends on the deepest click).

``Displays`` holds both halves and gives exact moments, exact placement and simulation for any user.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial._kernels import alias_tables
from ranktrial.arrays import NO_DOCUMENT, FloatArray, IntArray
from ranktrial.methods._kernels.displays import click_thresholds, simulate_linear, simulate_majority
from ranktrial.methods.trajectory import Trajectory
from ranktrial.rankings import Mixture, Moments, Pair, affine_values, expected_clicks
from ranktrial.rankings._kernels import expected_sign, majority_moments
from ranktrial.rankings.lists import UserArrays, check_user
from ranktrial.rankings.values import Prediction
from ranktrial.seeds import Seed, kernel_state
from ranktrial.users import User

NOTHING = np.zeros((1, 0), np.int64)


class TooManyDisplaysError(ValueError):
    """A method has more displays on these queries than can be listed."""


@dataclass(frozen=True, eq=False)
class Linear:
    """The value x = ``base[display]`` + sum over clicked ranks of ``values[display, rank]``; no base is 0."""

    values: FloatArray
    base: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Majority:
    """The value x = E[sign of (clicks for A - clicks for B)].

    ``to_a[display, row, rank]`` is the probability that a click there counts for A, ``to_b`` for B; what is missing to 1
    counts for nobody. One row: fixed credit. k rows: the row of the deepest click counts, and credit must be certain.
    """

    to_a: FloatArray
    to_b: FloatArray

    @classmethod
    def certain(cls, credits: NDArray[np.int8]) -> Majority:
        """Build the value from certain credits: 1 (A), -1 (B) and 0 (nobody)."""
        return cls((credits > 0).astype(float)[:, None, :], (credits < 0).astype(float)[:, None, :])

    @property
    def is_certain(self) -> bool:
        """True if every click is known to count for A, for B or for nobody."""
        return bool(np.isin(self.to_a, (0, 1)).all() and np.isin(self.to_b, (0, 1)).all())


@dataclass(frozen=True)
class Display:
    """One display of one query, for people to look at.

    Attributes:
        documents: Documents from the top.
        probability: How often it is shown with these credits.
        credits: Value of a click at each rank alone.
        added_by_a: The probability that a click at each rank alone counts for A; None where values are linear.
    """

    documents: tuple[int, ...]
    probability: float
    credits: tuple[float, ...]
    added_by_a: tuple[float, ...] | None = None


@dataclass(frozen=True, eq=False)
class Displays:
    """Displays of a method for every query: rankings, their probabilities, and the value of clicks on them.

    Attributes:
        mixture: The rankings of every query and their probabilities.
        value: Value of clicks on each ranking.
        note: Note for readers, such as how many queries could not be balanced.

    >>> from ranktrial.methods import AB
    >>> from ranktrial.rankings import Pair
    >>> displays = AB().displays(Pair.from_lists(["ab"], ["ba"], k=2))
    >>> displays.mixture.rankings.tolist(), displays.value_of(0, [True, True]), displays.value_of(1, [True])
    ([[0, 1], [1, 0]], 4.0, -2.0)
    """

    mixture: Mixture
    value: Linear | Majority
    note: str = ""

    def moments(self, user: User) -> Moments:
        """Exact mean and variance of x under a user, queries drawn uniformly."""
        mixture = self.mixture
        if isinstance(self.value, Linear):
            return mixture.moments(self.value.values, user, self.value.base)
        check_user(user, mixture.k, mixture.n_documents)
        first, second = majority_moments(mixture.rankings, self.value.to_a, self.value.to_b, UserArrays.of(user)).T
        clicks = mixture.mean(expected_clicks(mixture.rankings, user).sum(1))
        mean, mean_square = mixture.mean(first), mixture.mean(second)
        if self.value.is_certain:  # x is -1, 0 or 1
            return Moments.of_queries(mean, mean_square, clicks, mean, mean_square)
        return Moments.of_queries(mean, mean_square, clicks)

    def value_of(self, display: int, clicks: Sequence[bool]) -> float:
        """The value x of one click pattern (a flag per rank) on one display (a row of ``mixture.rankings``)."""
        flags = np.zeros(self.mixture.k, bool)
        flags[: len(clicks)] = clicks
        hollow = np.flatnonzero(flags & (self.mixture.rankings[display] == NO_DOCUMENT))
        if len(hollow):
            raise ValueError(f"display {display} shows nothing at rank {hollow[0] + 1}, so it cannot be clicked")
        if isinstance(self.value, Linear):
            base = 0.0 if self.value.base is None else float(self.value.base[display])
            return base + float(self.value.values[display][flags].sum())
        ranks = np.flatnonzero(flags)
        row = ranks[-1] if len(ranks) and self.value.to_a.shape[1] > 1 else 0
        to_a, to_b = self.value.to_a[display, row, ranks], self.value.to_b[display, row, ranks]
        return float(expected_sign(to_a, to_b, len(ranks), np.empty(2 * len(ranks) + 1)))

    def simulate(self, user: User, checkpoints: ArrayLike, *, seed: Seed) -> Trajectory:
        """Impression by impression: draw a query, a display, clicks; report at every checkpoint."""
        return Trajectory.of_sums(checkpoints, lambda points: self._sums(user, points, seed))

    def simulate_counts(self, user: User, points: IntArray, *, seed: Seed) -> tuple[FloatArray, IntArray, IntArray]:
        """Running sums of x, x^2 and clicks at each point; how often each display was shown, and clicked at each rank."""
        shown = np.zeros(len(self.mixture.rankings), np.int64)
        clicked = np.zeros(self.mixture.rankings.shape, np.int64)
        return self._sums(user, points, seed, shown, clicked), shown, clicked

    def _sums(
        self, user: User, points: IntArray, seed: Seed, shown: IntArray = NOTHING[0], clicked: IntArray = NOTHING
    ) -> FloatArray:
        mixture = self.mixture
        check_user(user, mixture.k, mixture.n_documents)
        arrays = UserArrays.of(user)
        totals = np.zeros((len(points), 3))
        tables = alias_tables(mixture.weights, mixture.offsets)
        drawn = (mixture.offsets, *tables, click_thresholds(mixture.rankings, arrays))
        rest = (arrays, kernel_state(seed), points, totals)
        if isinstance(self.value, Linear):
            base = np.zeros(len(mixture.rankings)) if self.value.base is None else self.value.base
            simulate_linear(*drawn, self.value.values, base, *rest, shown, clicked)
        else:
            simulate_majority(*drawn, self.value.to_a, self.value.to_b, *rest)
        return totals

    def of_query(self, query: int) -> Iterator[Display]:
        """The displays of one query with their credits; equal ones are merged."""
        merged: dict[Display, float] = {}
        for display in range(self.mixture.offsets[query], self.mixture.offsets[query + 1]):
            row = self.mixture.rankings[display]
            shown = row[row != NO_DOCUMENT]
            ranks = np.arange(len(shown))
            added_by_a = None
            if isinstance(self.value, Linear):
                credits = self.value.values[display, ranks]
            else:  # for balanced, a click at rank r alone makes r the deepest
                rows = ranks if self.value.to_a.shape[1] > 1 else np.zeros(len(shown), int)
                for_a, for_b = self.value.to_a[display, rows, ranks], self.value.to_b[display, rows, ranks]
                credits = for_a - for_b
                added_by_a = tuple(for_a.tolist())
            key = Display(tuple(shown.tolist()), 0.0, tuple(credits.tolist()), added_by_a)
            merged[key] = merged.get(key, 0.0) + float(self.mixture.weights[display])
        for key, probability in merged.items():
            yield replace(key, probability=probability)


def valued(pair: Pair, policy: Mixture, theta: FloatArray, prediction: Prediction, *, estimate: str) -> Displays:
    """Displays of a design with their values at a position bias and, except for "ips", a predicted relevance."""
    affine = affine_values(
        policy,
        pair.lam(theta),
        theta,
        pair.offsets,
        zeta_hat=None if estimate == "ips" else prediction,
        rank_aware=estimate == "rank-aware",
    )
    return Displays(policy, Linear(affine.values, affine.base))
