"""What a method believes of its users and shows for it, learnt from a log in simulations and live alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.position_bias import Counts, NotIdentifiable, fit_groups

BIAS = ("known", "estimated")
FIRST_RELEVANCE = 0.3  # P(click) of an examined document, before any click
RELEVANCES = (0.01, 0.9)
LEAST_BIAS = 0.001  # over the rank: the least examination an estimate may come to
MOST_ERROR = 0.5  # of a theta, in units of theta_1: what is less sure than that is not used


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What a method takes its users to be, which decides what it shows.

    Attributes:
        theta: Position bias.
        relevance: P(click) of an examined document, on average.
        fitted: Whether theta comes from clicks; else it was assumed, or known.
        note: How it was fitted, or why not.
        plain: The share of impressions that show A's own list or B's own now; None as long as it is the method's first.
    """

    theta: FloatArray
    relevance: float = FIRST_RELEVANCE
    fitted: bool = False
    note: str = ""
    plain: float | None = None

    @property
    def more(self) -> dict[str, Any]:
        """What is kept of it beside theta, relevance, fitted and note, as JSON can hold it."""
        return {"plain": self.plain}


def first_theta(k: int) -> FloatArray:
    """Position bias assumed before any click: the discount of DCG, 1 / log2(1 + rank)."""
    return np.asarray(1 / np.log2(np.arange(2, k + 2)))


def learnt(parts: Sequence[Counts], shows: FloatArray, beliefs: Beliefs, *, bias: str) -> Beliefs:
    """Beliefs after a log; what it cannot tell stays as it was, and ``note`` says so.

    Args:
        parts: Counts of groups of units, whose differences tell how sure theta is; or of the whole log, as one part. Documents
            never clicked may be left out.
        shows: Results shown at each rank, in all.
        bias: "estimated" fits theta; a "known" one stays.
    """
    if bias == "estimated":
        beliefs = _with_bias(parts, beliefs)
    else:
        beliefs = replace(beliefs, note="position bias is taken as known")
    clicks = sum(float(part.clicked.sum()) for part in parts)
    examined = float(shows @ beliefs.theta)
    mean = clicks / examined if examined > 0 else beliefs.relevance
    return replace(beliefs, relevance=float(np.clip(mean, *RELEVANCES)))


def _with_bias(parts: Sequence[Counts], beliefs: Beliefs) -> Beliefs:
    if len(beliefs.theta) == 1:
        return replace(beliefs, note="one rank has no position bias")
    if not any(part.clicked.any() for part in parts):
        return replace(beliefs, note="no clicks yet")
    try:
        fitted, _ = fit_groups(parts, most_error=MOST_ERROR)
    except NotIdentifiable as refusal:
        return replace(beliefs, note=f"position bias cannot be told yet: {refusal}")
    return replace(beliefs, theta=sound_theta(fitted.theta), fitted=True, note=fitted.note)


def sound_theta(theta: FloatArray) -> FloatArray:
    """An estimate of theta (or several) as designs can use it.

    Only ratios of theta matter. No two ranks may come out equal or a rank unseen, or a design would leave out documents that a
    later, better theta needs.
    """
    scaled = theta / np.maximum(theta.max(axis=-1, keepdims=True), 1.0)
    return np.asarray(np.maximum(scaled, LEAST_BIAS / np.arange(1, theta.shape[-1] + 1)))
