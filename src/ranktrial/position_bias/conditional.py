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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ranktrial import checks
from ranktrial.arrays import BoolArray, FloatArray
from ranktrial.position_bias import _kernels
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import GIVEN, Links, NotIdentifiable, exposure, identifiability
from ranktrial.position_bias.model import (
    Evaluated,
    PositionBias,
    by_unit,
    maximise,
    maximise_all,
    newton,
    on_theta_scale,
    sandwich,
    start_theta,
)


@dataclass(frozen=True)
class Conditional:
    """The conditional estimating equation, given what was ``"shown"`` or given the ``"design"``.

    >>> counts = Counts.from_dense([[10, 10], [20, 20]], [[4, 2], [8, 4]])
    >>> Conditional().fit(counts).theta
    array([1. , 0.5])
    """

    given: str = "shown"

    def __post_init__(self) -> None:
        checks.one_of("given", self.given, GIVEN)

    def fit(self, counts: Counts) -> PositionBias:
        report = identifiability(counts, given=self.given)
        report.require()
        used = np.flatnonzero(counts.clicked.sum(1) > 0)
        order, offsets = by_unit(None if counts.queries is None else counts.queries[used], len(used))
        used = used[order]
        exposed, clicked = exposure(counts, self.given)[used], counts.clicked[used]
        free = _free(counts.clicked_ranks)
        theta, value, steps, converged = maximise(
            lambda t: _kernels.conditional_equation(exposed, clicked, t), start_theta(counts), free
        )
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

    def refits(self, total: Counts, parts: Sequence[Counts], start: FloatArray) -> FloatArray:
        """Theta without each of the parts, begun from that of the whole.

        All documents are gone through at once for all parts. Those of a part are then taken out as they were, and what is
        left of them put back: which pays where a part has few of them, as where lists are personal.
        """
        if 2 * max(len(part.documents) for part in parts) > len(total.documents):
            return np.array([self._refit(total - part, start) for part in parts])
        links = Links.of(total, self.given)
        exposed = exposure(total, self.given)
        searches, changes = [], []
        for part in parts:
            own = total.of(part.documents)
            left = own - part
            known = links.without(Links.of(own, self.given), Links.of(left, self.given))
            searches.append(newton(*_begin(known, start)))
            changes.append([(sign, exposure(one, self.given), one.clicked) for sign, one in ((-1, own), (1, left))])

        def likelihoods(numbers: list[int], thetas: FloatArray) -> Iterator[Evaluated]:
            of_all = _kernels.conditional_equations(exposed, total.clicked, np.ascontiguousarray(thetas.T))
            for at, (number, theta) in enumerate(zip(numbers, thetas)):
                value, gradient, information = (whole[..., at].copy() for whole in of_all)
                for sign, some, clicks in changes[number]:
                    more = _kernels.conditional_equation(some, clicks, theta)
                    value, gradient, information = (a + sign * b for a, b in zip((value, gradient, information), more))
                yield float(value), gradient, information

        return np.array([found[0] for found in maximise_all(likelihoods, searches)])

    def _refit(self, counts: Counts, start: FloatArray) -> FloatArray:
        begin, free = _begin(Links.of(counts, self.given), start)
        return self._found([counts], begin, free)

    def refit(self, parts: Sequence[Counts], start: FloatArray) -> FloatArray:
        """Theta of a log that has grown, begun from what it was; no document of a part is compared with one of another."""
        clicked = np.any([part.clicked_ranks for part in parts], axis=0)
        return self._found(parts, np.where(clicked, start, 0.0), _free(clicked))

    def _found(self, parts: Sequence[Counts], begin: FloatArray, free: BoolArray) -> FloatArray:
        tables = [(exposure(part, self.given), part.clicked) for part in parts]

        def likelihood(theta: FloatArray) -> Evaluated:
            value, gradient, information = zip(*(_kernels.conditional_equation(*both, theta) for both in tables))
            return sum(value), np.sum(gradient, axis=0), np.sum(information, axis=0)

        return maximise(likelihood, begin, free)[0]

    def __repr__(self) -> str:
        return "Conditional()" if self.given == "shown" else f"Conditional(given={self.given!r})"


def _begin(known: Links, near: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Start of the Newton iteration for a part of a log whose theta is near this one, and flags of the free ranks."""
    if (problem := known.problem()) is not None:
        raise NotIdentifiable(problem)
    return np.where(known.clicked_ranks, near, 0.0), _free(known.clicked_ranks)


def _free(clicked: BoolArray) -> BoolArray:
    """Ranks whose theta is fitted: those that were clicked, but for the first."""
    free = clicked.copy()
    free[0] = False
    return free
