"""The conditional estimating equation: theta without relevances, from clicks given each document's total. Our default.

Document d, shown n_dr times at rank r, is clicked C_dr times there and T_d times in all. Given T_d, its clicks fall
on rank r in proportion to n_dr theta_r, whatever zeta_d is, so for every rank

    sum_d [ C_dr - T_d n_dr theta_r / sum_s n_ds theta_s ] = 0,    theta_1 = 1.

Each term has mean zero at the true theta: no relevance is estimated, so short logs bring no bias. The left side is
the gradient, in log theta, of a concave function with at most one maximum, found by a few Newton steps. When the
design is known, its expected shows can stand in for n_dr; the mean is still zero, now over the design's draws too,
and documents seen only once begin to count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranktrial import checks
from ranktrial.arrays import BoolArray, FloatArray
from ranktrial.position_bias import _kernels
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import GIVEN, exposure, identifiability
from ranktrial.position_bias.model import PositionBias, by_unit, maximise, on_theta_scale, sandwich, start_theta


@dataclass(frozen=True)
class Conditional:
    """The conditional estimating equation, given what was ``"shown"`` or given the ``"design"``.

    >>> counts = Counts.from_dense([[10, 10], [20, 20]], [[4, 2], [8, 4]])
    >>> Conditional().fit(counts).theta
    array([1. , 0.5])
    """

    given: str = "shown"
    limit: int = 100

    def __post_init__(self) -> None:
        checks.one_of("given", self.given, GIVEN)
        checks.at_least("limit", self.limit, 1)

    def fit(self, counts: Counts) -> PositionBias:
        report = identifiability(counts, given=self.given)
        report.require()
        used = np.flatnonzero(counts.clicked.sum(1) > 0)
        order, offsets = by_unit(None if counts.queries is None else counts.queries[used], len(used))
        used = used[order]
        exposed, clicked = exposure(counts, self.given)[used], counts.clicked[used]
        (theta, value, steps, converged), free = self._solved(counts, exposed, clicked, start_theta(counts))
        log_covariance, freedom = sandwich(
            lambda units: _kernels.conditional_terms(exposed, clicked, theta, units),
            offsets,
            _kernels.conditional_equation(exposed, clicked, theta)[2],
            free,
        )
        clicks_per_theta = (clicked.sum(1) / (exposed @ theta)) @ exposed
        error, covariance = on_theta_scale(log_covariance, theta, 1 / np.maximum(clicks_per_theta, 1e-300))
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
        )

    def refit(self, counts: Counts, start: FloatArray) -> FloatArray:
        """Theta alone, begun from one that is near: a log without one of its groups."""
        identifiability(counts, given=self.given).require()
        used = counts.clicked.sum(1) > 0
        begin = np.where((start > 0) & counts.clicked_ranks, start, start_theta(counts))
        exposed, clicked = exposure(counts, self.given)[used], counts.clicked[used]
        return self._solved(counts, exposed, clicked, begin)[0][0]

    def _solved(
        self, counts: Counts, exposed: FloatArray, clicked: FloatArray, start: FloatArray
    ) -> tuple[tuple[FloatArray, float, int, bool], BoolArray]:
        """What ``maximise`` finds, and which ranks are free."""
        free = counts.clicked_ranks
        free[0] = False
        found = maximise(lambda t: _kernels.conditional_equation(exposed, clicked, t), start, free, limit=self.limit)
        return found, free

    def __repr__(self) -> str:
        return "Conditional()" if self.given == "shown" else f"Conditional(given={self.given!r})"
