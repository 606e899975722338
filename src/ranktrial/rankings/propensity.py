"""What is a click worth? Inverse-propensity weights lambda_d / rho_d, and when they may not be used.

A click on d counts lambda_d / rho_d: how much more A shows d than B does, over how likely d was to be seen at all (the paper's
Eq. ips). The mean over impressions is unbiased for Delta if and only if every document that matters could be seen: zeta_d
lambda_d != 0 implies rho_d > 0. (The paper prints this requirement with "> 0"; documents that B shows more matter as much.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ranktrial import checks
from ranktrial.arrays import FloatArray, IntArray


class LoggingPolicy(Protocol):
    """What decides which ranking is shown: a ``Mixture`` or a ``PlackettLuce``."""

    @property
    def n_documents(self) -> int: ...

    def placement(self) -> FloatArray:
        """P(document at rank), exactly."""
        ...

    def exposure(self, theta: FloatArray) -> FloatArray:
        """rho: P(document is examined), exactly."""
        ...


class RequirementError(ValueError):
    """A document that matters cannot be seen under the logging policy, so no estimate would be right."""


@dataclass(frozen=True, eq=False)
class IPSWeights:
    """The value of a click on each document.

    Attributes:
        values: lambda / rho per document, clipped if asked; 0 where lambda is 0.
        largest: Largest absolute value.
        bias_bound: How far clipping can move the estimate from Delta at most (0 without clipping).
    """

    values: FloatArray
    largest: float
    bias_bound: float


def ips_weights(
    lam: FloatArray, rho: FloatArray, offsets: IntArray, *, zeta: FloatArray | None = None, clip: float | None = None
) -> IPSWeights:
    """Weights for every document, or an error naming the query and document that could not be seen.

    ``zeta``, where known, spares documents that are never clicked. ``clip`` caps the absolute weights: less variance for
    some bias, at most the mean over queries of sum_d (abs(lambda_d) - clip * rho_d) where positive, as zeta is at most 1.

    >>> ips_weights(np.array([.5, -.5, 0.]), np.array([1., .25, 0.]), np.array([0, 3])).values
    array([ 0.5, -2. ,  0. ])
    """
    matters = lam != 0 if zeta is None else (lam != 0) & (zeta != 0)
    unseen = np.flatnonzero(matters & ~(rho > 0))
    if len(unseen):
        document = int(unseen[0])
        query = int(np.searchsorted(offsets, document, side="right") - 1)
        more = f" (and {len(unseen) - 1} more documents)" if len(unseen) > 1 else ""
        raise RequirementError(
            f"query {query}: document {document} has lambda = {lam[document]:+.3g} but can never be seen under the "
            f"logging policy (rho = {rho[document]:g}){more}; a policy must be able to show every document "
            "on which the rankers differ"
        )
    values = np.divide(lam, rho, out=np.zeros_like(lam), where=matters)
    largest = float(np.abs(values).max(initial=0.0))
    if clip is None:
        return IPSWeights(values, largest, 0.0)
    checks.at_least("clip", clip, 0)
    lost = np.maximum(np.abs(lam) - clip * rho, 0)[matters].sum()
    return IPSWeights(np.clip(values, -clip, clip), min(largest, clip), float(lost / (len(offsets) - 1)))
