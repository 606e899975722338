"""Compiled loops over draws and values in the order of time."""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np


@nb.njit(cache=True)
def draws_evidence(
    drawn: Any,
    kind: Any,
    chances: Any,
    counts_for: Any,
    seen: Any,
    expected: Any,
    spread: Any,
    log_e: Any,
    evidence: Any,
) -> None:
    """Go on with ``DrawsSoFar`` by draws of these outcomes, each with the chances of its kind; changes all from ``seen`` on."""
    cells = chances.shape[1]
    for i in range(drawn.shape[0]):
        p = chances[kind[i]]
        o = drawn[i]
        top = -np.inf
        for j in range(counts_for.shape[0]):
            c, total = counts_for[j], 0.0
            for cell in range(cells):
                if p[cell] > 0.0:  # what cannot be drawn now has no say, but may have been drawn before
                    total += p[cell] * (c * p[cell] + seen[cell]) / (c * p[cell] + expected[cell])
            if p[o] > 0.0:
                log_e[j] += math.log((c * p[o] + seen[o]) / (c * p[o] + expected[o]) / total)
            else:
                log_e[j] = np.inf  # an impossible draw refutes everything
            top = max(top, log_e[j])
        together = 0.0
        for j in range(counts_for.shape[0]):
            together += 1.0 if log_e[j] == top else math.exp(log_e[j] - top)
        evidence[i] = top + math.log(together / counts_for.shape[0])
        seen[o] += 1.0
        for cell in range(cells):
            expected[cell] += p[cell]
            spread[cell] += p[cell] * (1.0 - p[cell])


@nb.njit(cache=True)
def part_differences(
    points: Any, count: Any, shown: Any, summed: Any, squares: Any, effective: Any, enough: Any
) -> Any:
    """Squared differences between the means up to one point and from there to a later one, in units of their variance V, and
    the variance of the mean before over V: a row for each later point, 0 where too little is known.

    By phase, sums up to each point of units, their impressions and values; squares of errors, and the effective share of units.
    """
    n, phases = shown.shape
    away, size = np.zeros((n, n)), np.zeros((n, n))
    for i in range(n):
        spread = squares[i] / points[i]  # a part with few clicks shows too little
        for j in range(i):
            before, after = points[j], points[i] - points[j]
            if min(before, after) * effective[i] < enough:
                continue
            of_before = max(squares[j] / before, spread)
            of_after = max((squares[i] - squares[j]) / after, spread)
            tells, moved, noise, whole = 0.0, 0.0, 0.0, 0.0
            for one in range(phases):
                n1, n2 = shown[j, one], shown[i, one] - shown[j, one]
                whole += n1
                if n1 > 0.0 and n2 > 0.0:
                    share = 1.0 / (n1 + n2)
                    s1, s2 = summed[j, one], summed[i, one] - summed[j, one]
                    u1, u2 = count[j, one], count[i, one] - count[j, one]
                    tells += n1 * n2 * share
                    moved += (n1 * s2 - n2 * s1) * share
                    noise += share**2 * (of_before * u1 * n2**2 + of_after * u2 * n1**2)
            if noise > 0.0:
                away[i, j] = moved**2 / noise
                size[i, j] = of_before * before * (tells / whole) ** 2 / noise
    return away, size
