"""Moments of the conditional equation for theta over the displays of a mixture; see ``methods.influence``."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np


@nb.njit(cache=True)
def score_moments(
    document_offsets: Any,
    offsets: Any,
    rankings: Any,
    weights: Any,
    times: Any,
    values: Any,
    base: Any,
    zeta: Any,
    theta: Any,
    by_design: Any,
) -> Any:
    """Mean over displays of value times click at each rank; and sums over displays, each shown so many ``times``, of the
    equation's information, of the variance of its score and of the covariance of score and x = base + sum of values over
    clicked ranks.

    Given what is shown, clicks are independent; ``by_design`` counts what displays differ in as well. The query in row q of
    ``offsets`` owns the documents from ``document_offsets[q]`` to ``document_offsets[q + 1]``.
    """
    k = rankings.shape[1]
    earned, covariance = np.zeros(k), np.zeros(k)
    information, variance = np.zeros((k, k)), np.zeros((k, k))
    most = 0
    for q in range(offsets.shape[0] - 1):
        most = max(most, document_offsets[q + 1] - document_offsets[q])
    placed, value, share = np.zeros((most, k)), np.zeros((most, k)), np.zeros((most, k))
    rank, noise, mean = np.zeros(k, np.int64), np.zeros(k), np.zeros(k)
    for q in range(offsets.shape[0] - 1):
        start, n = document_offsets[q], document_offsets[q + 1] - document_offsets[q]
        placed[:n] = 0.0
        for row in range(offsets[q], offsets[q + 1]):
            for r in range(k):
                d = rankings[row, r]
                if d < 0:
                    break
                earned[r] += weights[row] * theta[r] * zeta[d] * values[row, r]
                placed[d - start, r] += times[row]
                value[d - start, r] = values[row, r]
        for d in range(n):
            used, examined, noises = 0, 0.0, 0.0
            for r in range(k):
                share[d, r] = placed[d, r] * theta[r]
                if placed[d, r] > 0.0:
                    examined += share[d, r]
                    rank[used] = r
                    used += 1
            if used == 0:
                continue
            clicks = zeta[start + d] * examined
            for i in range(used):
                r = rank[i]
                p = theta[r] * zeta[start + d]
                noise[i] = placed[d, r] * p * (1.0 - p)
                noises += noise[i]
                share[d, r] /= examined
            pull = 0.0
            for i in range(used):
                pull += noise[i] * value[d, rank[i]]
            for i in range(used):
                r = rank[i]
                information[r, r] += clicks * share[d, r]
                variance[r, r] += noise[i]
                covariance[r] += noise[i] * value[d, r] - pull * share[d, r]
                for j in range(used):
                    s = rank[j]
                    both = share[d, r] * share[d, s]
                    information[r, s] -= clicks * both
                    variance[r, s] += noises * both - noise[i] * share[d, s] - noise[j] * share[d, r]
        if not by_design:
            continue
        for row in range(offsets[q], offsets[q + 1]):
            if times[row] == 0:
                continue
            x = base[row]
            mean[:] = 0.0
            for r in range(k):
                d = rankings[row, r]
                if d < 0:
                    break
                p = theta[r] * zeta[d]
                x += p * values[row, r]
                mean[r] += p
                for s in range(k):
                    mean[s] -= p * share[d - start, s]
            for r in range(k):
                covariance[r] += times[row] * x * mean[r]
                for s in range(k):
                    variance[r, s] += times[row] * mean[r] * mean[s]
    return earned / (offsets.shape[0] - 1), information, variance, covariance
