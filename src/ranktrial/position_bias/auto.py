"""The choice of an estimator of position bias for a log, by the error that each expects.

Per-document EM is biased on short logs and its own error estimate does not show it; the estimators that eliminate
relevance have no such bias, so among them the estimated error decides, and they differ in what they can use:
comparing a document only with itself (given what was shown) loses documents seen once; a known design can use them,
at the price of the noise between documents.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ranktrial.position_bias.conditional import Conditional
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import NotIdentifiable
from ranktrial.position_bias.model import Estimator, PositionBias


@dataclass(frozen=True)
class Auto:
    """The unbiased estimator with the smallest estimated error on this log; ``note`` says which and why.

    >>> counts = Counts.from_dense([[10, 10], [30, 20], [20, 20]], [[4, 2], [9, 4], [8, 5]])
    >>> bias = Auto().fit(counts)
    >>> bias.theta.round(3), bias.method
    (array([1.   , 0.614]), 'Conditional()')
    >>> print(bias.note)
    chose Conditional(): the design is not known, so each document is compared with itself; 36.7 shows per document, ...
    """

    def fit(self, counts: Counts) -> PositionBias:
        candidates: list[Estimator] = [Conditional()]
        if counts.expected is not None:
            candidates.append(Conditional(given="design"))
        fitted: list[PositionBias] = []
        refusals: list[NotIdentifiable] = []
        for candidate in candidates:
            try:
                fitted.append(candidate.fit(counts))
            except NotIdentifiable as refusal:
                refusals.append(refusal)
        if not fitted:
            raise refusals[0]
        best = min(fitted, key=_error)
        return replace(best, remark=_why(counts, best, fitted, refusals))


def _error(estimate: PositionBias) -> float:
    """Root mean squared standard error over the ranks that are estimated."""
    error = float(np.sqrt(np.mean(estimate.standard_error[1:] ** 2))) if estimate.k > 1 else 0.0
    return np.inf if np.isnan(error) else error


def _why(counts: Counts, best: PositionBias, fitted: list[PositionBias], refusals: list[NotIdentifiable]) -> str:
    shows = counts.shown.sum() / max(int(counts.seen.sum()), 1)
    log = f"{shows:.3g} shows per document, {best.identifiability}"
    if counts.expected is None:
        reason = "the design is not known, so each document is compared with itself"
    elif refusals:
        reason = f"the other is not identified ({refusals[0]})"
    else:
        other = next(estimate for estimate in fitted if estimate is not best)
        reason = f"expected error {_error(best):.2g} against {_error(other):.2g} for {other.method}"
    return f"chose {best.method}: {reason}; {log}"
