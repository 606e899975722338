"""EM for the position-based model (Wang et al. 2018): theta per rank and one relevance per document.

On counts per (document, rank), with P(click) = theta_r zeta_d, the E-step needs per cell

    P(examined | no click) = theta (1 - zeta) / (1 - theta zeta)
    P(relevant | no click) = (1 - theta) zeta / (1 - theta zeta)

and the M-step is a mean over ranks or documents; theta_1 = 1 at the start stays 1. EM creeps where documents are rarely
clicked (thousands of sweeps), so after a few Newton's method takes over, on the likelihood with the best zeta for
each theta. The log-likelihood is concave in (log theta, log zeta), so this is where EM itself would end.

Beware: every zeta_d is one more parameter, and with few impressions per document theta is badly biased upwards, however
long the log (see docs/explanation/position-bias.md). Estimate theta by the conditional equation and give it here to get
relevances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ranktrial import checks
from ranktrial.arrays import BoolArray, FloatArray
from ranktrial.paper.click_models import _kernels
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import identifiability
from ranktrial.position_bias.model import PositionBias, maximise, on_theta_scale, start_theta

# Relevances stay this far from 0 and 1, where EM would be stuck for ever.
EDGE = 1e-9
# Sweeps of EM before Newton's method, and the most steps of it.
HEAD_START = 10
MOST_STEPS = 2000
SETTLED = 1e-12  # growth of the log-likelihood, as a share of itself, at which sweeps end


@dataclass(frozen=True)
class EM:
    """EM for theta and one zeta per document, or for zeta alone when ``theta`` is given ("bias known").

    Args:
        theta: known examination probabilities; None estimates them.

    >>> counts = Counts.from_dense([[10, 10], [20, 20]], [[4, 2], [8, 4]])
    >>> EM(theta=(1, 0.5)).fit(counts).zeta.round(6)
    array([0.4, 0.4])
    """

    theta: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.theta is not None:
            known = checks.probabilities("theta", self.theta)
            object.__setattr__(self, "theta", tuple(known.tolist()))

    def fit(self, counts: Counts) -> PositionBias:
        report = identifiability(counts)
        if self.theta is None:
            report.require()
            theta = start_theta(counts, below=0.99)
        else:
            theta = np.array(self.theta)
            if len(theta) != counts.k:
                raise ValueError(f"theta has {len(theta)} ranks, the counts have {counts.k}")
        seen = counts.seen
        shown, clicked = counts.shown[seen], counts.clicked[seen]
        rate = clicked.sum() / max(float((shown * theta).sum()), 1e-300)
        zeta = np.full(len(shown), np.clip(rate, 0.01, 0.99))
        steps = 0
        converged = True
        if self.theta is None:
            theta, zeta, sweeps = _sweep(shown, clicked, theta, zeta)
            free = counts.clicked_ranks
            free[0] = False
            theta, _, newton_steps, converged = maximise(
                lambda t: _kernels.profile_likelihood(shown, clicked, t, zeta),
                theta,
                free,
                limit=MOST_STEPS,
                highest=1.0,
            )
            steps = sweeps + newton_steps
        value, _, information = _kernels.profile_likelihood(shown, clicked, theta, zeta)

        relevance, predicted = spread(counts, seen, zeta)
        error, covariance = np.zeros(counts.k), np.zeros((counts.k, counts.k))
        if self.theta is None:
            one_click = 1 / np.maximum((shown * zeta[:, None]).sum(0), 1e-300)
            error, covariance = on_theta_scale(_log_covariance(information, theta), theta, one_click)
        return PositionBias(
            theta,
            error,
            covariance,
            repr(self),
            steps,
            converged,
            report,
            log_likelihood=float(value),
            zeta=relevance,
            predicted=predicted,
            remark=self._note(theta, shown),
        )

    def _note(self, theta: FloatArray, shown: FloatArray) -> str:
        if self.theta is not None:
            return "theta was given"
        notes = []
        shows = shown.sum() / max(len(shown), 1)
        if shows < 100:
            notes.append(f"{shows:.3g} shows per document: expect theta to be too high below rank 1")
        stuck = np.flatnonzero(theta[1:] > 0.999) + 2
        if len(stuck):
            notes.append(f"rank {', '.join(map(str, stuck))} is at the upper bound theta_1 = 1")
        return "; ".join(notes)

    def __repr__(self) -> str:
        return "EM()" if self.theta is None else "EM(theta=known)"


def _sweep(
    shown: FloatArray, clicked: FloatArray, theta: FloatArray, zeta: FloatArray
) -> tuple[FloatArray, FloatArray, int]:
    """The few sweeps of EM that bring Newton's method near, and how many they were."""
    last = -np.inf
    for sweep in range(1, HEAD_START + 1):
        next_theta, next_zeta, value = em_step(shown, clicked, theta, zeta)
        if value - last <= SETTLED * abs(value):
            return theta, zeta, sweep
        theta, zeta, last = next_theta, next_zeta, value
    return theta, zeta, HEAD_START


def em_step(
    shown: FloatArray, clicked: FloatArray, theta: FloatArray, zeta: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """One step of EM: the next theta and zeta, and the log-likelihood before it.

    >>> shown, clicked = np.array([[10.0, 10.0]]), np.array([[4.0, 2.0]])
    >>> theta, zeta, value = em_step(shown, clicked, np.array([1.0, 0.8]), np.array([0.5]))
    >>> theta.round(3), zeta.round(3), round(value, 2)
    (array([1.   , 0.733]), array([0.367]), -12.85)
    """
    examined, relevant = np.empty_like(theta), np.empty_like(zeta)
    value = float(_kernels.em_sweep(shown, clicked, theta, zeta, examined, relevant))
    next_zeta = relevant / np.maximum(shown.sum(1), 1e-300)
    return examined / np.maximum(shown.sum(0), 1e-300), np.clip(next_zeta, EDGE, 1 - EDGE), value


def _log_covariance(information: FloatArray, theta: FloatArray) -> FloatArray:
    """Inverse observed information of log theta, every zeta profiled out; zero at rank 1."""
    free = np.asarray(theta > 0)
    free[0] = False
    covariance = np.zeros_like(information)
    covariance[np.ix_(free, free)] = np.linalg.pinv(information[np.ix_(free, free)])
    return covariance


def spread(counts: Counts, seen: BoolArray, zeta: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Relevance of every document of the data set: the mean over shows where it was never shown, and flagged there."""
    shows = counts.shown[seen].sum(1)
    mean = float(shows @ zeta / shows.sum()) if len(zeta) else float("nan")
    everywhere = np.full(counts.n_documents, mean)
    predicted = np.ones(counts.n_documents, bool)
    everywhere[counts.documents[seen]] = zeta
    predicted[counts.documents[seen]] = False
    return everywhere, predicted
