"""Trust bias: affine click rates, P(click d at rank r) = slope_r zeta_d + intercept_r (Agarwal et al. 2019).

Clicks alone do not identify this model: zeta can be shifted and stretched at will. What they do identify is every
rank relative to the first. With x_d the click rate of d at rank 1,

    P(click d at rank r) = slope_r x_d + intercept_r,    slope_1 = 1, intercept_1 = 0,

a straight line through the documents shown at both ranks. x_d is itself measured with noise, which would flatten the
line; the binomial noise of each document is known and taken out (errors in variables). Under the position-based model
every intercept is 0 and slope_r = theta_r, so intercepts far from 0 speak against it.

Limits: only documents shown at rank 1 (twice or more) and at rank r count, they must differ in relevance, and far
more data is needed than for theta. Standard errors are from leaving out groups of queries (or documents).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranktrial.arrays import FloatArray, IntArray
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import NotIdentifiable
from ranktrial.position_bias.jackknife import jackknife_variance

GROUPS = 20  # of queries (or documents), left out in turn for the standard errors


@dataclass(frozen=True, eq=False)
class TrustBias:
    """Click rate at each rank as a straight line in the click rate of the same document at rank 1.

    Attributes:
        slope, intercept: of the line, per rank; 1 and 0 at the first.
        slope_error, intercept_error: their standard errors.
        documents: how many documents each line was drawn through.

    Where people click at rank 2 as often as 0.4 times at rank 1, plus 5 % whatever stands there:

    >>> relevance, shown = np.tile([0.1, 0.5, 0.9], 20)[:, None], np.full((60, 2), 1e9)
    >>> lines = trust_bias_lines(Counts.from_dense(shown, shown * (relevance * [1.0, 0.4] + [0.0, 0.05])))
    >>> lines.slope.round(3), lines.intercept.round(3)
    (array([1. , 0.4]), array([0.  , 0.05]))
    """

    slope: FloatArray
    intercept: FloatArray
    slope_error: FloatArray
    intercept_error: FloatArray
    documents: IntArray

    def __repr__(self) -> str:
        lines = ["TrustBias", "rank  slope    +-      intercept  +-      documents"]
        columns = zip(self.slope, self.slope_error, self.intercept, self.intercept_error, self.documents)
        lines += [
            f"{r + 1:4d}  {a:.4f}  {b:.4f}   {c:+.4f}  {d:.4f}  {n:9d}" for r, (a, b, c, d, n) in enumerate(columns)
        ]
        return "\n".join(lines)


def trust_bias_lines(counts: Counts) -> TrustBias:
    """Fit the lines; refuses when a rank shares too few documents with rank 1, or documents too alike.

    >>> rng = np.random.default_rng(0)
    >>> shown = np.full((100, 2), 1000)
    >>> clicked = rng.binomial(shown, rng.uniform(0.1, 0.9, (100, 1)) * [1.0, 0.4])
    >>> trust_bias_lines(Counts.from_dense(shown, clicked))  # no trust here: an intercept of 0
    TrustBias
    rank  slope    +-      intercept  +-      documents
       1  1.0000  0.0000   +0.0000  0.0000        100
       2  0.3986  0.0050   +0.0033  0.0027        100
    """
    k = counts.k
    slope, intercept, errors = np.zeros(k), np.zeros(k), np.zeros((k, 2))
    documents = np.zeros(k, np.int64)
    slope[0] = 1.0
    documents[0] = int(np.sum(counts.shown[:, 0] > 0))
    for r in range(1, k):
        usable = (counts.shown[:, 0] >= 2) & (counts.shown[:, r] > 0)
        documents[r] = int(usable.sum())
        if documents[r] < 2 * GROUPS:
            raise NotIdentifiable(
                f"{documents[r]} documents were shown at rank 1 (twice or more) and at rank {r + 1}, "
                f"must be at least {2 * GROUPS}"
            )
        unit = counts.documents[usable] if counts.queries is None else counts.queries[usable]
        group = np.unique(unit, return_inverse=True)[1] % GROUPS
        parts = _moments(counts.shown[usable][:, [0, r]], counts.clicked[usable][:, [0, r]], group)
        slope[r], intercept[r] = _line(parts.sum(0), r)
        replicates = np.array([_line(parts.sum(0) - part, r) for part in parts])
        errors[r] = np.sqrt(np.diag(jackknife_variance(replicates)))
    return TrustBias(slope, intercept, errors[:, 0], errors[:, 1], documents)


def _moments(shown: FloatArray, clicked: FloatArray, group: IntArray) -> FloatArray:
    """Per group: sums of w, w x, w y, w x y and w x^2 less its noise, with w the document's even pairs."""
    (n, m), (x, y) = shown.T, (clicked / shown).T
    w = n * m / (n + m)
    square = x**2 - x * (1 - x) / (n - 1)
    return np.stack([np.bincount(group, w * value, GROUPS) for value in (np.ones_like(x), x, y, x * y, square)], 1)


def _line(sums: FloatArray, rank: int) -> tuple[float, float]:
    _, x, y, xy, xx = sums / sums[0]
    spread = xx - x * x
    if not spread > 0:
        raise NotIdentifiable(f"documents shown at ranks 1 and {rank + 1} do not differ in click rate beyond chance")
    slope = (xy - x * y) / spread
    return float(slope), float(y - slope * x)
