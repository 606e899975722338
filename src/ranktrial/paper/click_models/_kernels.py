"""Compiled loops of EM over counts per (document, rank): one sweep, and the likelihood with the best relevances.

Rows are documents, columns are ranks. Plain NumPy twins of these loops are in ``tests/position_bias``.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np


@nb.njit(cache=True)
def em_sweep(shown: Any, clicked: Any, theta: Any, zeta: Any, examined: Any, relevant: Any) -> Any:
    """E-step of the position-based model: expected examinations per rank and relevances per document.

    Fills ``examined[r]`` and ``relevant[d]`` (sums over impressions) and returns the log-likelihood at (theta, zeta).
    """
    m, k = shown.shape
    log_theta = np.zeros(k)
    for r in range(k):
        examined[r] = 0.0
        if theta[r] > 0.0:
            log_theta[r] = np.log(theta[r])
    total = 0.0
    for d in range(m):
        z = zeta[d]
        log_z = np.log(z) if z > 0.0 else 0.0
        sum_relevant = 0.0
        for r in range(k):
            n = shown[d, r]
            if n > 0.0:
                c = clicked[d, r]
                skipped = n - c
                miss = max(1.0 - theta[r] * z, 1e-300)
                share = skipped / miss
                examined[r] += c + share * theta[r] * (1.0 - z)
                sum_relevant += c + share * (1.0 - theta[r]) * z
                if c > 0.0:
                    total += c * (log_theta[r] + log_z)
                if skipped > 0.0:
                    total += skipped * np.log(miss)
        relevant[d] = sum_relevant
    return total


@nb.njit(cache=True)
def best_relevance(shown: Any, clicked: Any, theta: Any, start: Any) -> Any:
    """The zeta in [0, 1] of one document that maximises its log-likelihood."""
    k = theta.shape[0]
    low = 0.0
    high = 1.0
    clicks = 0.0
    certain = True
    rising = 0.0
    for r in range(k):
        clicks += clicked[r]
        if shown[r] > clicked[r]:
            if theta[r] >= 1.0:
                certain = False
            elif certain:
                rising += clicked[r] - (shown[r] - clicked[r]) * theta[r] / (1.0 - theta[r])
        else:
            rising += clicked[r]
    if clicks == 0.0:
        return 0.0
    if certain and rising >= 0.0:
        return 1.0
    z = min(max(start, 1e-6), 1.0 - 1e-6)
    for _ in range(100):
        slope = 0.0
        bend = 0.0
        for r in range(k):
            skipped = shown[r] - clicked[r]
            slope += clicked[r]
            if skipped > 0.0:
                odds = theta[r] * z / (1.0 - theta[r] * z)
                slope -= skipped * odds
                bend += skipped * odds * (1.0 + odds)
        if slope > 0.0:
            low = z
        else:
            high = z
        # Newton on log zeta; bisection where that leaves the bracket.
        new = z * np.exp(min(slope / bend, 30.0)) if bend > 0.0 else high
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - z) <= 1e-15 + 1e-14 * z:
            return new
        z = new
    return z


@nb.njit(cache=True)
def profile_likelihood(shown: Any, clicked: Any, theta: Any, zeta: Any) -> Any:
    """The position-based log-likelihood with the best zeta for this theta; value, gradient, information in log theta.

    ``zeta`` holds the start and receives the maximiser.
    """
    m, k = shown.shape
    value = 0.0
    gradient = np.zeros(k)
    information = np.zeros((k, k))
    weight = np.zeros(k)
    for d in range(m):
        z = best_relevance(shown[d], clicked[d], theta, zeta[d])
        zeta[d] = z
        if z == 0.0:
            continue
        bend = 0.0
        for r in range(k):
            weight[r] = 0.0
            c = clicked[d, r]
            if c > 0.0:
                value += c * np.log(theta[r] * z)
                gradient[r] += c
            skipped = shown[d, r] - c
            if skipped > 0.0:
                miss = max(1.0 - theta[r] * z, 1e-300)
                odds = theta[r] * z / miss
                value += skipped * np.log(miss)
                gradient[r] -= skipped * odds
                weight[r] = skipped * odds * (1.0 + odds)
                information[r, r] += weight[r]
                bend += weight[r]
        if z < 1.0 and bend > 0.0:
            for r in range(k):
                if weight[r] > 0.0:
                    for s in range(k):
                        information[r, s] -= weight[r] * weight[s] / bend
    return value, gradient, information
