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
