"""Learning on the way: what a method believes of its users, and the loop that fits, redesigns and shows.

The same steps run in a simulation and in a live trial. Before the first impression and at each point of a schedule: fit what is
believed to the log so far, work out what to show from that, show it until the next point. A simulation feeds the loop with
counts that it draws, a trial with those of its store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.methods.trajectory import Trajectory
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
    """

    theta: FloatArray
    relevance: float = FIRST_RELEVANCE
    fitted: bool = False
    note: str = ""


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
    # Only ratios of theta matter. No two ranks may come out equal or a rank unseen, or a design would leave out documents
    # that a later, better theta needs.
    theta = fitted.theta / max(1.0, float(fitted.theta.max()))
    theta = np.maximum(theta, LEAST_BIAS / np.arange(1, len(theta) + 1))
    return replace(beliefs, theta=theta, fitted=True, note=fitted.note)


class Stages(Protocol):
    """A simulated run in stages: ``next_version`` fits and redesigns, ``show`` draws impressions begin..end and says estimate,
    mean square and CTR at each point among them."""

    def next_version(self) -> None: ...

    def show(self, begin: int, end: int, points: IntArray) -> list[tuple[float, float, float]]: ...


def run_stages(
    stages: Stages,
    schedule: Sequence[int],
    checkpoints: ArrayLike,
    progress: Callable[[int, int], None] | None = None,
) -> Trajectory:
    """The loop: a version of what is shown before the first impression, and another at each point of the schedule."""
    points = checks.checkpoints(checkpoints)
    turns = [n for n in schedule if n < points[-1]]
    rows: list[tuple[float, float, float]] = []
    for begin, end in zip([0, *turns], [*turns, int(points[-1])]):
        stages.next_version()
        rows += stages.show(begin, end, points[(points > begin) & (points <= end)])
        if progress is not None:
            progress(end, int(points[-1]))
    estimate, mean_square, ctr = np.array(rows).T
    return Trajectory(points, estimate, mean_square, ctr)
