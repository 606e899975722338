"""Expected runs: the law of a run's estimate at each checkpoint, and its errors on average, without the noise of one run.

The estimate from N impressions is a mean, so its cumulants are those of one impression over N, N^2 and N^3; the law is normal
with two terms of Edgeworth's series, which matter up to some thousand impressions. Where x takes whole multiples of a step
(A/B, team-draft) an estimate of exactly 0, which prefers nobody, has a probability of its own: half a step is added before
the tail is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.distributions import normal_cdf, normal_density
from ranktrial.methods.trajectory import Trajectory
from ranktrial.rankings import Moments


@dataclass(frozen=True, eq=False)
class ExpectedRun:
    """The law of a run's estimate at increasing numbers of impressions; read like a ``Trajectory``.

    Between two fits every impression has the same law, so a few numbers for each such stretch hold the whole run. The six
    sums in question are the cumulants of the sum of x (mean, variance, third, fourth), the expected sum of x^2 and of clicks.

    Attributes:
        impressions: The checkpoints.
        begins: How many impressions were shown before each stretch.
        before: The sums so far where a stretch begins, an array of (runs, stretches, 6). The mean over runs is taken of errors,
            not of laws.
        each: Contribution of each impression of a stretch to them.
        step: x takes whole multiples of this number only; 0 where it does not.
        standard_error: Standard error of the limit, where displays were drawn; None where there is no limit that
            is known beforehand.

    >>> law = ExpectedRun.of_moments([100, 10_000], Moments(0.1, 1.0, ctr=0.5))
    >>> law.estimate, law.absolute_error(0.1).round(4), law.binary_error(0.1).round(3)
    (array([0.1, 0.1]), array([0.0798, 0.008 ]), array([0.159, 0.   ]))
    """

    impressions: IntArray
    begins: IntArray
    before: FloatArray = field(repr=False)
    each: FloatArray = field(repr=False)
    step: float = 0.0
    standard_error: float | None = None

    @classmethod
    def of_moments(cls, checkpoints: ArrayLike, moments: Moments, *, step: float = 0.0) -> ExpectedRun:
        """The run of a method that never changes, from the moments of one impression."""
        each = one_impression(moments)[None, None]
        start = np.zeros(1, np.int64)
        return cls(checks.checkpoints(checkpoints), start, np.zeros_like(each), each, step, moments.standard_error)

    @classmethod
    def of_runs(cls, runs: Sequence[Trajectory]) -> ExpectedRun:
        """Simulated runs as they are, their errors averaged: for estimates whose law is not known."""
        sums = np.zeros((len(runs), len(runs[0].impressions), 6))
        for row, run in zip(sums, runs):
            row[:, [0, 4, 5]] = np.stack([run.estimate, run.mean_square, run.ctr], axis=1) * run.impressions[:, None]
        points = runs[0].impressions
        # Nothing is said between checkpoints, and nothing of what single impressions have no value for.
        return cls(points, points - 1, np.nan_to_num(sums), np.where(np.isnan(sums), np.nan, 0.0))

    @cached_property
    def sums(self) -> FloatArray:
        """The sums at each checkpoint, an array of (runs, checkpoints, 6). A fit at a checkpoint comes after it."""
        at = np.searchsorted(self.begins, self.impressions) - 1
        return np.asarray(self.before[:, at] + (self.impressions - self.begins[at])[:, None] * self.each[:, at])

    @property
    def estimate(self) -> FloatArray:
        """E[estimate]."""
        return np.asarray(self.sums[:, :, 0].mean(0) / self.impressions)

    @property
    def mean_square(self) -> FloatArray:
        return np.asarray(self.sums[:, :, 4].mean(0) / self.impressions)

    @property
    def ctr(self) -> FloatArray:
        return np.asarray(self.sums[:, :, 5].mean(0) / self.impressions)

    def squared_error(self, delta: float) -> FloatArray:
        """The paper's mean squared error, of single impressions, on average."""
        return delta**2 - 2 * delta * self.estimate + self.mean_square

    def absolute_error(self, delta: float) -> FloatArray:
        """E|estimate - delta|."""
        away, spread, skewness, kurtosis = self._law(delta)
        noisy = spread > 0
        at = np.divide(-away, spread, out=np.zeros_like(away), where=noisy)
        density = normal_density(at)
        folded = away * (1 - 2 * normal_cdf(at)) + 2 * spread * density
        series = (
            2 * skewness / 6 * at + 2 * kurtosis / 24 * (at**2 - 1) + 2 * skewness**2 / 72 * (at**4 - 6 * at**2 + 3)
        )
        return np.asarray(np.where(noisy, folded + spread * density * series, np.abs(away)).mean(0))

    def binary_error(self, delta: float) -> FloatArray:
        """P(estimate points the wrong way); an estimate of exactly 0 counts as wrong."""
        if delta == 0:
            return np.ones(len(self.impressions))
        side = 1.0 if delta > 0 else -1.0
        mean, spread, skewness, kurtosis = self._law(0.0)
        noisy = spread > 0
        middle = self.step / 2 / self.impressions - side * mean  # between 0 and the least estimate that is right
        at = np.divide(middle, spread, out=np.zeros_like(mean), where=noisy)
        tail = _tail(at, side * skewness, kurtosis)
        return np.asarray(np.where(noisy, tail, side * mean <= 0).mean(0))

    def _law(self, origin: float) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Mean less origin, standard deviation, skewness and excess kurtosis of the estimate, by run and checkpoint; the last
        two as far as a series can take them."""
        total, variance, third, fourth = np.moveaxis(self.sums[:, :, :4], 2, 0)
        spread = np.sqrt(variance)
        known = spread > 0
        skewness = np.divide(third, spread**3, out=np.zeros_like(spread), where=known)
        kurtosis = np.divide(fourth, spread**4, out=np.zeros_like(spread), where=known)
        # Where few impressions have most of the variance (a design made with a theta that is far off) a series says nonsense,
        # such as an absolute error below 0. E|z| is then less than that of a normal law, here by half at most.
        bounded = 12 * (1 - 1 / np.sqrt(1 + np.maximum(kurtosis, 0.0) / 6))
        share = np.divide(bounded, kurtosis, out=np.ones_like(spread), where=kurtosis > 0)
        return total / self.impressions - origin, spread / self.impressions, skewness * np.sqrt(share), kurtosis * share


def one_impression(moments: Moments) -> FloatArray:
    """Contribution of one impression to the six sums of an expected run."""
    mean, variance = moments.mean, moments.variance
    return np.array([mean, variance, moments.third, moments.fourth, variance + mean**2, moments.ctr])


def _tail(at: FloatArray, skewness: FloatArray, kurtosis: FloatArray) -> FloatArray:
    """P(z <= at) of a standardised variable, to the second order of Edgeworth's series, kept within 0 and 1."""
    he2, he3, he5 = at**2 - 1, at**3 - 3 * at, at**5 - 10 * at**3 + 15 * at
    series = skewness / 6 * he2 + kurtosis / 24 * he3 + skewness**2 / 72 * he5
    return np.asarray(np.clip(normal_cdf(at) - normal_density(at) * series, 0.0, 1.0))
