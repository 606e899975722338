"""Compiled loops over counts per (document, rank): counting, one EM sweep, the conditional equation, pairs of ranks.

Rows are documents, columns are ranks. Plain NumPy twins of these loops are in ``tests/position_bias/test_kernels.py``.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np


@nb.njit(cache=True)
def count_impressions(rankings: Any, clicks: Any, shown: Any, clicked: Any) -> None:
    """Add every placed document to ``shown[document, rank]`` and every click to ``clicked[document, rank]``."""
    n, k = rankings.shape
    for i in range(n):
        for r in range(k):
            d = rankings[i, r]
            if d >= 0:
                shown[d, r] += 1.0
                if clicks[i, r]:
                    clicked[d, r] += 1.0


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
def conditional_equation(exposed: Any, clicked: Any, theta: Any) -> Any:
    """Value, gradient and information, in log theta, of sum_d [sum_r C_dr log theta_r - T_d log sum_s n_ds theta_s]."""
    m, k = exposed.shape
    value = 0.0
    clicks_at, expected, weight = np.zeros(k), np.zeros(k), np.zeros(k)
    products = np.zeros((k, k))
    for d in range(m):
        clicks = 0.0
        total = 0.0
        for r in range(k):
            weight[r] = exposed[d, r] * theta[r]
            total += weight[r]
            clicks += clicked[d, r]
            clicks_at[r] += clicked[d, r]
        if clicks == 0.0:
            continue
        value -= clicks * np.log(total)
        each = clicks / total if total > 0.0 else 0.0
        for r in range(k):
            expected[r] += each * weight[r]
            scaled = each * weight[r] / total if total > 0.0 else 0.0
            for s in range(k):
                products[r, s] += scaled * weight[s]
    for r in range(k):
        if clicks_at[r] > 0.0:
            value += clicks_at[r] * np.log(theta[r])
    return value, clicks_at - expected, np.diag(expected) - products


@nb.njit(cache=True)
def conditional_terms(exposed: Any, clicked: Any, theta: Any, offsets: Any) -> Any:
    """Gradient and information of ``conditional_equation`` per unit; unit g has the rows offsets[g] to offsets[g + 1]."""
    units, k = len(offsets) - 1, exposed.shape[1]
    gradients = np.empty((units, k))
    informations = np.empty((units, k, k))
    for g in range(units):
        rows = slice(offsets[g], offsets[g + 1])
        _, gradient, information = conditional_equation(exposed[rows], clicked[rows], theta)
        for r in range(k):  # setting whole rows would take longer to compile than all of this
            gradients[g, r] = gradient[r]
            for s in range(k):
                informations[g, r, s] = information[r, s]
    return gradients, informations


@nb.njit(cache=True)
def paired_clicks(exposed: Any, clicked: Any) -> Any:
    """For every pair of ranks, the clicks that an even comparison can use, and the number of even pairs.

    ``wins[r, s] = sum_d C_dr n_ds / (n_dr + n_ds)``; ``pairs[r, s] = sum_d 2 n_dr n_ds / (n_dr + n_ds)`` over documents
    clicked at r or s.
    """
    m, k = exposed.shape
    wins = np.zeros((k, k))
    pairs = np.zeros((k, k))
    for d in range(m):
        for r in range(k):
            a = exposed[d, r]
            if a <= 0.0:
                continue
            for s in range(r + 1, k):
                b = exposed[d, s]
                if b <= 0.0:
                    continue
                clicks_r = clicked[d, r]
                clicks_s = clicked[d, s]
                if clicks_r + clicks_s > 0.0:
                    wins[r, s] += clicks_r * b / (a + b)
                    wins[s, r] += clicks_s * a / (a + b)
                    pairs[r, s] += 2.0 * a * b / (a + b)
                    pairs[s, r] = pairs[r, s]
    return wins, pairs


@nb.njit(cache=True)
def paired_clicks_by_unit(exposed: Any, clicked: Any, offsets: Any) -> Any:
    """``wins`` of ``paired_clicks`` per unit."""
    units, k = len(offsets) - 1, exposed.shape[1]
    wins = np.empty((units, k, k))
    for g in range(units):
        rows = slice(offsets[g], offsets[g + 1])
        wins[g] = paired_clicks(exposed[rows], clicked[rows])[0]
    return wins


@nb.njit(cache=True)
def best_relevance(shown: Any, clicked: Any, theta: Any, start: Any, a: Any, b: Any) -> Any:
    """The zeta in [0, 1] of one document that maximises its log-likelihood plus a log zeta + b log(1 - zeta)."""
    k = theta.shape[0]
    low = 0.0
    high = 1.0
    clicks = a
    certain = b == 0.0
    rising = a
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
        slope = a - b * z / (1.0 - z)
        bend = b * z / ((1.0 - z) * (1.0 - z))
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
def profile_likelihood(shown: Any, clicked: Any, theta: Any, zeta: Any, a: Any, b: Any) -> Any:
    """The position-based log-likelihood with the best zeta for this theta; value, gradient, information in log theta.

    ``zeta`` holds the start and receives the maximiser. ``a`` and ``b`` are those of the Beta prior less 1.
    """
    m, k = shown.shape
    value = 0.0
    gradient = np.zeros(k)
    information = np.zeros((k, k))
    weight = np.zeros(k)
    for d in range(m):
        z = best_relevance(shown[d], clicked[d], theta, zeta[d], a, b)
        zeta[d] = z
        if z == 0.0:
            continue
        if a > 0.0:
            value += a * np.log(z)
        if b > 0.0:
            value += b * np.log(1.0 - z)
        bend = b * z / ((1.0 - z) * (1.0 - z)) if b > 0.0 else 0.0
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
