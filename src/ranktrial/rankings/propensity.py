"""Inverse-propensity weights lambda_d / rho_d of clicks, and when they may not be used (the paper's Eq. ips).

A click on d counts lambda_d / rho_d: how much more A shows d than B does, over how likely d was to be seen at all (the paper's
Eq. ips). The mean over impressions is unbiased for Delta if and only if every document that matters could be seen: zeta_d
lambda_d != 0 implies rho_d > 0. (The paper prints this requirement with "> 0"; documents that B shows more matter as much.)
"""

from __future__ import annotations

import numpy as np

from ranktrial.arrays import FloatArray, IntArray


class RequirementError(ValueError):
    """A document that matters cannot be seen under the logging policy, so no estimate would be right."""


def ips_weights(lam: FloatArray, rho: FloatArray, offsets: IntArray, *, clip: float | None = None) -> FloatArray:
    """Value of a click on each document, lambda / rho, or an error naming the query and document that could not be seen.

    ``clip`` caps the absolute weights: less variance for some bias, for a query at most
    sum_d (abs(lambda_d) - clip * rho_d) where positive, as zeta is at most 1.

    >>> ips_weights(np.array([.5, -.5, 0.]), np.array([1., .25, 0.]), np.array([0, 3]))
    array([ 0.5, -2. ,  0. ])
    """
    require_seen(lam, rho, offsets)
    values = np.divide(lam, rho, out=np.zeros_like(lam), where=lam != 0)
    most = checked_clip(clip)
    return np.clip(values, -most, most)


def checked_clip(clip: float | None) -> float:
    """The largest absolute weight allowed; infinite for None."""
    if clip is not None and not 0 < clip < np.inf:
        raise ValueError(f"clip is {clip!r}, must be positive and finite (None for no limit)")
    return np.inf if clip is None else float(clip)


def require_seen(lam: FloatArray, rho: FloatArray, offsets: IntArray, documents: IntArray | None = None) -> None:
    """Raise RequirementError, naming the query and document, where one with lambda other than 0 cannot be seen.

    ``documents`` are the numbers of those that are given, by default all.
    """
    unseen = np.flatnonzero((lam != 0) & ~(rho > 0))
    if not len(unseen):
        return
    document = int(unseen[0] if documents is None else documents[unseen[0]])
    query = int(np.searchsorted(offsets, document, side="right") - 1)
    more = f" (and {len(unseen) - 1} more documents)" if len(unseen) > 1 else ""
    raise RequirementError(
        f"query {query}: document {document} has lambda = {lam[unseen[0]]:+.3g} but can never be seen under the "
        f"logging policy (rho = {rho[unseen[0]]:g}){more}; a policy must be able to show every document "
        "on which the rankers differ"
    )
