"""Compiled loops over counts per (document, rank) (counting, the conditional equation, pairs of ranks) and over
sums per document (effects of queries and documents).

Rows are documents, columns are ranks. Plain NumPy twins of these loops are in ``tests/position_bias``.
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
def examined_rows(shown: Any, clicked: Any, theta: Any) -> Any:
    """Clicks, examinations and sums of theta^2 over shows, of every document."""
    m, k = shown.shape
    result = np.zeros((m, 3))
    for d in range(m):
        for r in range(k):
            if shown[d, r] > 0.0:
                result[d, 0] += clicked[d, r]
                result[d, 1] += shown[d, r] * theta[r]
                result[d, 2] += shown[d, r] * theta[r] ** 2
    return result


@nb.njit(cache=True)
def conditional_equation(exposed: Any, clicked: Any, theta: Any) -> Any:
    """Value, gradient and information, in log theta, of sum_d [sum_r C_dr log theta_r - T_d log sum_s n_ds theta_s].

    Ranks with theta 0, and documents that stood at no other, add nothing: with them it would not be finite.
    """
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
        if clicks == 0.0 or total == 0.0:
            continue
        value -= clicks * np.log(total)
        each = clicks / total
        for r in range(k):
            if weight[r] == 0.0:  # most documents stood at few ranks
                continue
            expected[r] += each * weight[r]
            scaled = each * weight[r] / total
            for s in range(k):
                products[r, s] += scaled * weight[s]
    for r in range(k):
        if clicks_at[r] > 0.0 and theta[r] > 0.0:
            value += clicks_at[r] * np.log(theta[r])
    return value, clicks_at - expected, np.diag(expected) - products


@nb.njit(cache=True)
def conditional_equations(exposed: Any, clicked: Any, thetas: Any) -> Any:
    """``conditional_equation`` at many thetas (columns) in one pass; of each result the last axis is that of thetas."""
    m, k = exposed.shape
    n = thetas.shape[1]
    values, gradients, informations = np.zeros(n), np.zeros((k, n)), np.zeros((k, k, n))
    share, total, rank = np.zeros((k, n)), np.zeros(n), np.zeros(k, np.int64)
    for d in range(m):
        clicks = 0.0
        for r in range(k):
            clicks += clicked[d, r]
        if clicks == 0.0:
            continue
        total[:] = 0.0
        used = 0
        for r in range(k):
            if exposed[d, r] > 0.0:
                for t in range(n):
                    share[used, t] = exposed[d, r] * thetas[r, t]
                    total[t] += share[used, t]
                rank[used] = r
                used += 1
        for t in range(n):
            if total[t] > 0.0:
                values[t] -= clicks * np.log(total[t])
                total[t] = 1.0 / total[t]
        for i in range(used):
            r = rank[i]
            for t in range(n):
                share[i, t] *= total[t]
                gradients[r, t] -= clicks * share[i, t]
            for j in range(i + 1):
                for t in range(n):
                    informations[r, rank[j], t] -= clicks * share[i, t] * share[j, t]
    for r in range(k):
        for t in range(n):
            informations[r, r, t] -= gradients[r, t]  # so far these are the clicks to be expected, less than zero
            for s in range(r):
                informations[s, r, t] = informations[r, s, t]
        clicks = 0.0
        for d in range(m):
            clicks += clicked[d, r]
        for t in range(n):
            gradients[r, t] += clicks
            if thetas[r, t] > 0.0:
                values[t] += clicks * np.log(thetas[r, t])
    return values, gradients, informations


@nb.njit(cache=True)
def count_links(shown: Any, exposed: Any, clicked: Any) -> Any:
    """Documents that link ranks: ``wins[r, s]`` are clicked at r and exposed at both, ``pairs[r, s]`` clicked at either; and
    documents at each rank: shown there, exposed there and clicked anywhere, clicked there.
    """
    m, k = exposed.shape
    wins, pairs = np.zeros((k, k), np.int64), np.zeros((k, k), np.int64)
    at_rank = np.zeros((3, k), np.int64)
    for d in range(m):
        ever = False
        for r in range(k):
            at_rank[0, r] += shown[d, r] > 0.0
            at_rank[2, r] += clicked[d, r] > 0.0
            ever |= clicked[d, r] > 0.0
        if not ever:
            continue
        for r in range(k):
            if exposed[d, r] <= 0.0:
                continue
            at_rank[1, r] += 1
            if clicked[d, r] > 0.0:
                for s in range(k):
                    if s != r and exposed[d, s] > 0.0:
                        wins[r, s] += 1
                        pairs[r, s] += 1
                        pairs[s, r] += clicked[d, s] <= 0.0
    return wins, pairs, at_rank


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
def affine_equations(shown: Any, clicked: Any, instrument: Any, a: Any, b: Any) -> Any:
    """Left sides ``[w, rank]`` of the equations of ``affine``, and their derivatives ``[w, rank, a or b, rank]``."""
    m, k = shown.shape
    left = np.zeros((2, k))
    slopes = np.zeros((2, k, 2, k))
    rank = np.zeros(k, np.int64)
    for d in range(m):
        examined = 0.0
        clicks = 0.0
        used = 0
        for r in range(k):
            n = shown[d, r]
            clicks += clicked[d, r] - n * b[r]
            if n > 0.0:
                examined += n * a[r]
                rank[used] = r
                used += 1
        over = 1.0 / examined if examined > 0.0 else 0.0
        x = clicks * over
        for i in range(used):
            r = rank[i]
            n = shown[d, r]
            rest = clicked[d, r] - n * (a[r] * x + b[r])
            for j in range(2):
                w = instrument[d] if j else 1.0
                left[j, r] += w * rest
                slopes[j, r, 0, r] -= n * w * x
                slopes[j, r, 1, r] -= n * w
                pull = a[r] * n * w * over
                for h in range(used):
                    s = rank[h]
                    slopes[j, r, 0, s] += pull * x * shown[d, s]
                    slopes[j, r, 1, s] += pull * shown[d, s]
    return left, slopes


@nb.njit(cache=True)
def even_pairs(exposed: Any, clicked: Any) -> Any:
    """Number of even pairs of each two ranks: ``sum_d 2 n_dr n_ds / (n_dr + n_ds)`` over documents clicked at r or s."""
    m, k = exposed.shape
    pairs = np.zeros((k, k))
    for d in range(m):
        for r in range(k):
            a = exposed[d, r]
            if a <= 0.0 or clicked[d, r] <= 0.0:  # each pair is reached from a rank that was clicked
                continue
            for s in range(k):
                b = exposed[d, s]
                if b > 0.0 and (s > r or (s < r and clicked[d, s] <= 0.0)):
                    pairs[r, s] += 2.0 * a * (b / (a + b))
    return pairs + pairs.T


@nb.njit(cache=True)
def spread_sums(residual: Any, examined: Any, noise: Any, offsets: Any) -> Any:
    """Two rows, for single members and for pairs of one group: deviations squared beyond noise, their squares, their scale."""
    sums = np.zeros((2, 3))
    for group in range(offsets.shape[0] - 1):
        r, r2, e, e2, v = 0.0, 0.0, 0.0, 0.0, 0.0
        for d in range(offsets[group], offsets[group + 1]):
            r += residual[d]
            r2 += residual[d] ** 2
            e += examined[d]
            e2 += examined[d] ** 2
            v += noise[d]
            if noise[d] > 0:
                beyond = residual[d] ** 2 / noise[d] - 1.0
                sums[0, 0] += beyond
                sums[0, 1] += beyond**2
                sums[0, 2] += examined[d] ** 2 / noise[d]
        if v > 0:
            together = (r**2 - r2) / v
            sums[1, 0] += together
            sums[1, 1] += together**2
            sums[1, 2] += (e**2 - e2) / v
    return sums


@nb.njit(cache=True)
def shrunken_effects(residual: Any, examined: Any, noise: Any, offsets: Any, within: Any, shared: Any) -> Any:
    """Best linear prediction of each member's deviation per examination, given the variances of members and of groups; and of
    what the members of each group share.
    """
    effects, commons = np.empty(residual.shape[0]), np.empty(offsets.shape[0] - 1)
    for group in range(offsets.shape[0] - 1):
        weighted, precision = 0.0, 0.0
        for d in range(offsets[group], offsets[group + 1]):
            e = examined[d]
            variance = noise[d] + within * e**2
            if e > 0 and variance > 0:
                weighted += e * residual[d] / variance
                precision += e**2 / variance
        common = shared * weighted / (1.0 + shared * precision)
        commons[group] = common
        for d in range(offsets[group], offsets[group + 1]):
            e = examined[d]
            variance = noise[d] + within * e**2
            effects[d] = common
            if variance > 0:
                effects[d] += within * e * (residual[d] - common * e) / variance
    return effects, commons
