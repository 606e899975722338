"""Mergeable summary of click weights: a histogram by size and sums, from which effective counts and outliers follow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import FloatArray, weighted_counts

STEPS = 16  # of a doubling: absolute weights that are less apart count as the same
LEAST, MOST = -40 * STEPS, 40 * STEPS


@dataclass(frozen=True, eq=False)
class ClickWeights:
    """Histogram of click weights by absolute size.

    Attributes:
        sizes: Number of weights of each size, and the sum of their squares: ``(2, sizes)``.
        absolute: Sum of the absolute weights.
        largest: Largest absolute weight.

    >>> some, more = ClickWeights.of([1.0, -1.0, 0.0]), ClickWeights.of([4.0])
    >>> both = ClickWeights.merged([some, more])
    >>> both.count, both.largest, both.absolute, round(both.heaviest(0.25), 3)
    (4, 4.0, 6.0, 0.889)
    """

    sizes: FloatArray
    absolute: float
    largest: float

    @classmethod
    def of(cls, weights: ArrayLike, clicks: ArrayLike | None = None) -> ClickWeights:
        """Summarise weights, each of so many clicks (of one by default)."""
        w = np.abs(np.asarray(weights, np.float64))
        times = np.ones(len(w)) if clicks is None else np.asarray(clicks, np.float64)
        with np.errstate(divide="ignore"):
            size = np.clip(np.ceil(STEPS * np.log2(w)), LEAST, MOST).astype(np.int64) - LEAST
        sizes = np.stack([weighted_counts(size, of, MOST - LEAST + 1) for of in (times, times * w**2)])
        return cls(sizes, float(times @ w), float(w.max(initial=0.0)))

    @classmethod
    def merged(cls, parts: Iterable[ClickWeights]) -> ClickWeights:
        """Merge the summaries of many parts of a log."""
        parts = list(parts)
        sizes = np.sum([part.sizes for part in parts], axis=0)
        return cls(sizes, sum(part.absolute for part in parts), max(part.largest for part in parts))

    @property
    def count(self) -> int:
        return round(float(self.sizes[0].sum()))

    def heaviest(self, share: float) -> float:
        """Fraction of the sum of squares that comes from the given share of clicks with the largest weights (at least one)."""
        few = max(int(share * self.count), 1)
        number, squares = self.sizes[:, ::-1]
        taken = np.clip(few - (np.cumsum(number) - number), 0.0, number)
        part = np.divide(taken, number, out=np.zeros_like(taken), where=number > 0) @ squares
        return float(part / max(squares.sum(), 1e-300))
