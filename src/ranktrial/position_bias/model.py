"""What an estimate of position bias looks like, whoever made it, and the arithmetic that the estimators share.

Every estimator is a small value object with ``fit(counts) -> PositionBias``. Theta is relative: only ratios of
examination probabilities are identified from clicks, so theta_1 = 1 everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import stats

from ranktrial import checks
from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import Identifiability


@dataclass(frozen=True, eq=False)
class PositionBias:
    """An estimate of theta with its uncertainty.

    Attributes:
        theta: examination probability per rank, relative to the first.
        standard_error: of each theta; nan where the method gives none (use ``jackknife``), 0 at rank 1.
        covariance: of theta, ``(k, k)``.
        method: the estimator, as it is written.
        iterations: sweeps or Newton steps taken.
        converged: False when the limit of iterations stopped it.
        identifiability: what the log can tell.
        log_likelihood: at the estimate; of the clicks given each document's total for the conditional equation.
        zeta: relevance of every document of the data set, from models that estimate it.
        guessed: documents that were never shown: their zeta is the mean (or the regression's prediction).
        degrees_of_freedom: of the t distribution behind ``confidence_interval``.
        note: why this estimator, what to beware of.
    """

    theta: FloatArray
    standard_error: FloatArray
    covariance: FloatArray
    method: str
    iterations: int
    converged: bool
    identifiability: Identifiability
    log_likelihood: float | None = None
    zeta: FloatArray | None = None
    guessed: BoolArray | None = None
    degrees_of_freedom: float = float("inf")
    note: str = ""

    @property
    def k(self) -> int:
        return len(self.theta)

    def confidence_interval(self, level: float = 0.95) -> FloatArray:
        """Lower and upper ends per rank, ``(k, 2)``, symmetric on the log scale as a ratio wants it."""
        checks.between("level", level, 0, 1, open_ends=True)
        z = float(stats.t.ppf(0.5 + level / 2, self.degrees_of_freedom))
        positive = self.theta > 0
        factor = np.exp(z * self.standard_error / np.where(positive, self.theta, 1.0))
        low = np.where(positive, self.theta / factor, 0.0)
        return np.stack([low, np.where(positive, self.theta * factor, z * self.standard_error)], 1)

    def to_dict(self) -> dict[str, object]:
        """Plain numbers for JSON; relevances are left out."""
        return {
            "theta": self.theta.tolist(),
            "standard_error": [None if np.isnan(e) else float(e) for e in self.standard_error],
            "method": self.method,
            "iterations": self.iterations,
            "converged": self.converged,
            "log_likelihood": self.log_likelihood,
            "identifiability": str(self.identifiability),
            "note": self.note,
        }

    def __repr__(self) -> str:
        lines = [f"PositionBias by {self.method}{'' if self.converged else ' (not converged)'}", "rank  theta   +-"]
        lines += [f"{r + 1:4d}  {t:.4f}  {e:.4f}" for r, (t, e) in enumerate(zip(self.theta, self.standard_error))]
        return "\n".join([*lines, *([self.note] if self.note else [])])


class Estimator(Protocol):
    """Anything that estimates position bias from counts."""

    def fit(self, counts: Counts) -> PositionBias: ...


Objective = Callable[[FloatArray], tuple[float, FloatArray, FloatArray]]


def maximise(
    objective: Objective, start: FloatArray, free: BoolArray, *, limit: int, highest: float = np.inf
) -> tuple[FloatArray, float, int, bool]:
    """Newton's method on log theta for a concave objective; returns theta, its value, steps taken, success.

    The objective gives value, gradient and information (minus the second derivative). Steps are halved until the value
    does not fall, and never change a theta by more than a factor e^2 or beyond ``highest``.
    """
    theta = start.copy()
    value, gradient, information = objective(theta)
    for step in range(1, limit + 1):
        loose = free & ~((theta >= highest) & (gradient > 0))
        move = np.zeros_like(theta)
        move[loose] = _solve(information[np.ix_(loose, loose)], gradient[loose])
        move *= min(1.0, 2.0 / max(np.abs(move).max(), 1e-300))
        for _ in range(40):
            candidate = np.where(loose, np.minimum(theta * np.exp(move), highest), theta)
            new = objective(candidate)
            if new[0] >= value - 1e-12 * abs(value):
                break
            move /= 2
        theta, (value, gradient, information) = candidate, new
        if np.abs(move).max() < 1e-10:
            return theta, value, step, True
    return theta, value, limit, False


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    if len(right) == 0:
        return right
    return np.asarray(np.linalg.lstsq(matrix, right, rcond=None)[0])


def sandwich(information: FloatArray, scores: FloatArray, units: IntArray | None, free: BoolArray) -> FloatArray:
    """Covariance of log theta from one score per document and rank, summed within units; zero where theta is fixed.

    Scores add up to zero at the estimate, so few units make it too small: corrected by G / (G - 1), and nan for one unit.
    """
    if units is not None:
        _, unit = np.unique(units, return_inverse=True)
        grouped = np.zeros((unit.max(initial=-1) + 1, scores.shape[1]))
        np.add.at(grouped, unit, scores)
        scores = grouped
    correction = len(scores) / (len(scores) - 1) if len(scores) > 1 else np.nan
    bread = np.linalg.pinv(information[np.ix_(free, free)])
    covariance = np.zeros_like(information)
    covariance[np.ix_(free, free)] = correction * bread @ (scores[:, free].T @ scores[:, free]) @ bread.T
    return covariance


def on_theta_scale(
    log_covariance: FloatArray, theta: FloatArray, one_click: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Standard errors and covariance of theta from those of log theta.

    ``one_click`` is the theta that a single click would have meant: the error where no click was seen and theta is 0.
    """
    covariance = log_covariance * theta * theta[:, None]
    unclicked = theta == 0
    covariance[unclicked, unclicked] = one_click[unclicked] ** 2
    return np.sqrt(np.maximum(np.diag(covariance), 0.0)), covariance


def start_theta(counts: Counts, *, below: float = 1.0) -> FloatArray:
    """The click rate per rank relative to the first, with theta_1 = 1 and the others at most ``below``."""
    rate = counts.click_rate
    theta = np.minimum(rate / rate[0], below)
    theta[0] = 1.0
    return np.asarray(theta)
