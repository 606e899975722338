"""Trajectories of simulated runs: the estimate, and the squared error of single impressions, at each checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.seeds import Seed, generator


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A simulated run at increasing numbers of impressions.

    Attributes:
        impressions: The checkpoints.
        estimate: Mean of x over the impressions so far.
        mean_square: Mean of x^2.
        ctr: Clicks per impression on what was shown.

    >>> run = Trajectory(np.array([10, 20]), np.array([0.5, -0.1]), np.array([1.0, 1.0]), np.array([0.3, 0.3]))
    >>> run.absolute_error(0.2), run.binary_error(0.2)
    (array([0.3, 0.3]), array([0., 1.]))
    """

    impressions: IntArray
    estimate: FloatArray
    mean_square: FloatArray
    ctr: FloatArray

    @classmethod
    def of_sums(cls, checkpoints: ArrayLike, run: Callable[[IntArray], FloatArray]) -> Trajectory:
        """Build from the running sums of x, x^2 and clicks that ``run`` gives at each checkpoint."""
        points = checks.checkpoints(checkpoints)
        means = run(points) / points[:, None]
        return cls(points, means[:, 0], means[:, 1], means[:, 2])

    def squared_error(self, delta: float) -> FloatArray:
        """The paper's mean squared error: the mean of (delta - x)^2 over single impressions, at each checkpoint."""
        return delta**2 - 2 * delta * self.estimate + self.mean_square

    def absolute_error(self, delta: float) -> FloatArray:
        """Distance of the estimate from the true difference, at each checkpoint."""
        return np.asarray(np.abs(self.estimate - delta))

    def binary_error(self, delta: float) -> FloatArray:
        """1 where the estimate points the wrong way; an estimate of exactly 0 counts as wrong."""
        return np.asarray(np.sign(self.estimate) * np.sign(delta) <= 0, float)


def draw_counts(law: FloatArray, points: IntArray, seed: Seed) -> IntArray:
    """Draw the number of each outcome in the first ``points[i]`` impressions, for outcomes of the given probabilities."""
    drawn = generator(seed).multinomial(np.diff(points, prepend=0), law.ravel() / law.sum())
    return drawn.cumsum(axis=0).reshape(len(points), *law.shape)
