"""Intervention harvesting (Agarwal et al. 2019): theta from documents that happened to stand at two ranks.

A document shown at ranks r and s is its own control: its click rates there differ by theta_r / theta_s. Weighing each
document by its even pairs n_r n_s / (n_r + n_s) gives, for every pair of ranks, the ratio of

    A_rs = sum_d C_dr n_ds / (n_dr + n_ds)    to    A_sr,    with E[A_rs] / E[A_sr] = theta_r / theta_s

whatever the relevances (Mantel and Haenszel's estimate of a rate ratio). n is the expected number of shows where the
design is known, the actual one otherwise. All pairs that are used are reconciled by the Bradley-Terry equations

    sum_s (A_rs theta_s - A_sr theta_r) / (theta_r + theta_s) = 0,

which reduce to products of ratios when the pairs form a tree: the chain of neighbours, or every rank against the
first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranktrial import checks
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.position_bias import _kernels
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import GIVEN, PAIRS, edges, exposure, identifiability
from ranktrial.position_bias.model import PositionBias, by_unit, maximise, on_theta_scale, sandwich, start_theta


@dataclass(frozen=True)
class Harvesting:
    """Harvesting from ``"adjacent"`` ranks, with rank 1 as ``"pivot"``, or from ``"all"`` pairs.

    ``given`` is ``"design"``, ``"shown"``, or None: the design where the counts know it.

    >>> counts = Counts.from_dense([[10, 10], [20, 20]], [[4, 2], [8, 4]])
    >>> Harvesting().fit(counts).theta
    array([1. , 0.5])
    """

    pairs: str = "adjacent"
    given: str | None = None
    limit: int = 200

    def __post_init__(self) -> None:
        checks.one_of("pairs", self.pairs, PAIRS)
        checks.one_of("given", self.given, (*GIVEN, None))
        checks.at_least("limit", self.limit, 1)

    def fit(self, counts: Counts) -> PositionBias:
        given = self.given or ("shown" if counts.expected is None else "design")
        report = identifiability(counts, pairs=self.pairs, given=given)
        report.require()
        wins = report.clicks
        used = edges(counts.k, self.pairs)
        free = counts.clicked_ranks
        free[0] = False

        theta, value, steps, converged = maximise(
            lambda t: bradley_terry(wins, t), start_theta(counts), free, limit=self.limit
        )
        order, offsets = by_unit(counts.queries, len(counts.shown))
        exposed, clicked = exposure(counts, given)[order], counts.clicked[order]

        def terms(units: IntArray) -> tuple[FloatArray, FloatArray]:
            return _slopes(np.where(used, _kernels.paired_clicks_by_unit(exposed, clicked, units), 0.0), theta)

        log_covariance, freedom = sandwich(terms, offsets, _slopes(wins, theta)[1], free)
        # Near theta_r = 0: sum_s A_rs = theta_r sum_s A_sr / theta_s, and one click adds about 1/2 per pair.
        rivals = np.divide(wins, theta[:, None], out=np.zeros_like(wins), where=theta[:, None] > 0).sum(0)
        one_click = 0.5 * used.sum(0) / np.maximum(rivals, 1e-300)
        error, covariance = on_theta_scale(log_covariance, theta, one_click)
        return PositionBias(
            theta,
            error,
            covariance,
            repr(self),
            steps,
            converged,
            report,
            log_likelihood=float(value),
            degrees_of_freedom=freedom,
            remark="weights from what was shown" if given == "shown" else "weights from the design's placement",
        )

    def __repr__(self) -> str:
        given = "" if self.given is None else f", given={self.given!r}"
        return f"Harvesting(pairs={self.pairs!r}{given})"


def bradley_terry(wins: FloatArray, theta: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Value, gradient and information in log theta of sum_rs A_rs log(theta_r / (theta_r + theta_s))."""
    seen = wins > 0
    return float(np.sum(wins[seen] * np.log(_shares(theta)[seen]))), *_slopes(wins, theta)


def _slopes(wins: FloatArray, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gradient and information of that, for one table of wins or many, ``(..., k, k)``."""
    share = _shares(theta)
    total = wins + wins.swapaxes(-1, -2)
    curvature = total * share * share.T
    information = np.eye(len(theta)) * curvature.sum(-1)[..., None] - curvature
    return np.sum(wins - total * share, -1), information


def _shares(theta: FloatArray) -> FloatArray:
    both = theta[:, None] + theta
    return np.divide(theta[:, None], both, out=np.zeros_like(both), where=both > 0)
