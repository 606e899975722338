"""Gradients of the variance of the IPS estimate by the scores of a Plackett-Luce logging policy.

For one query, x = sum over clicks of lambda_d / rho_d has Var(x | q) = E[(x - Delta)^2] (the paper's Eq. ipsvariance).
Two estimates of its gradient by the scores, of the same expectation but for O(1/M):

* ``paper_gradient``: the paper's Eq. approxgrad, from M sampled rankings with sampled clicks, rho estimated from the
  same rankings.
* ``low_noise_gradient``: nothing is sampled that need not be. Clicks are averaged out, rho and its gradient are exact,
  so is the diagonal sum_d zeta_d lambda_d^2 / rho_d; only pairs of documents, E[theta_d theta_e], come from sampled
  rankings, against a leave-one-out baseline. Delta does not enter: E[x | q] does not depend on the policy.

Scores more than 150 below the best count as 150 below: rho^-2 must not overflow, and the variance is past 1e60 there
anyway.
"""

from __future__ import annotations

from itertools import permutations
from math import perm
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import FloatArray
from ranktrial.paper.network import _gradient_kernels as kernels
from ranktrial.paper.network._race_gradient_kernels import exposure_vjp_into
from ranktrial.rankings.plackett_luce import log_probability
from ranktrial.seeds import Seed, kernel_state

MOST_RANKINGS = 100_000  # that ``variance`` will enumerate
WIDEST_RANGE = 150.0


def _problem(
    scores: ArrayLike, theta: ArrayLike, zeta: ArrayLike, lam: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    scores, lam = np.ascontiguousarray(scores, np.float64), np.ascontiguousarray(lam, np.float64)
    theta, zeta = checks.probabilities("theta", theta), checks.probabilities("zeta", zeta)
    if not scores.shape == zeta.shape == lam.shape:
        raise ValueError(f"{len(scores)} scores, {len(zeta)} zeta and {len(lam)} lambda, there must be one each")
    if len(scores) == 0 or len(theta) == 0:
        raise ValueError(f"{len(scores)} documents and {len(theta)} ranks, there must be at least one of each")
    if not np.all(np.isfinite(scores)):
        bad = int(np.argmin(np.isfinite(scores)))
        raise ValueError(f"score of document {bad} is {scores[bad]}, must be finite")
    return np.maximum(scores, scores.max() - WIDEST_RANGE), theta, zeta, lam


def paper_gradient(
    scores: ArrayLike,
    theta: ArrayLike,
    zeta: ArrayLike,
    lam: ArrayLike,
    delta: float,
    samples: int,
    seed: Seed,
    *,
    authors_scaling: bool = False,
) -> FloatArray:
    """The gradient as published, from ``samples`` rankings with one click pattern each.

    Args:
        authors_scaling: As the authors' code does, divide the frequency term by the number of samples once more and
            average the error term over the documents instead of summing it.
    """
    scores, theta, zeta, lam = _problem(scores, theta, zeta, lam)
    checks.at_least("samples", samples, 1)
    frequency, error = (1.0 / samples, 1.0 / len(scores)) if authors_scaling else (1.0, 1.0)
    gradient: FloatArray = kernels.paper_gradient(
        scores, theta, zeta, lam, float(delta), samples, frequency, error, kernel_state(seed)
    )
    return gradient


def low_noise_gradient(
    scores: ArrayLike, theta: ArrayLike, zeta: ArrayLike, lam: ArrayLike, samples: int, seed: Seed
) -> FloatArray:
    """The gradient with exact rho, exact diagonal, averaged clicks, and pairs from ``samples`` rankings."""
    scores, theta, zeta, lam = _problem(scores, theta, zeta, lam)
    checks.at_least("samples", samples, 2)
    gradient: FloatArray = kernels.low_noise_gradient(scores, theta, zeta, lam, samples, kernel_state(seed))
    return gradient


def exposure_vjp(scores: ArrayLike, theta: ArrayLike, weights: ArrayLike) -> FloatArray:
    """The gradient of sum_d weights_d rho_d by the scores, without ever building the n x n Jacobian of rho."""
    scores, theta, weights = (
        checks.finite("scores", scores),
        checks.probabilities("theta", theta),
        checks.finite("weights", weights),
    )
    if len(weights) != len(scores):
        raise ValueError(f"{len(weights)} weights for {len(scores)} documents, there must be one each")
    gradient = np.empty(len(scores))
    exposure_vjp_into(scores, theta, weights, gradient)
    return gradient


class VarianceEstimate(NamedTuple):
    """Var(x | q) with the standard error that sampling the pairs of documents leaves."""

    value: float
    standard_error: float


def objective_estimate(
    scores: ArrayLike, theta: ArrayLike, zeta: ArrayLike, lam: ArrayLike, delta: float, samples: int, seed: Seed
) -> VarianceEstimate:
    """E[(x - Delta)^2] of one query for any number of documents: exact diagonal, pairs from ``samples`` rankings."""
    scores, theta, zeta, lam = _problem(scores, theta, zeta, lam)
    checks.at_least("samples", samples, 2)
    diagonal, cross = kernels.second_moment(scores, theta, zeta, lam, samples, kernel_state(seed))
    value = diagonal + cross.mean() - 2 * delta * float(zeta @ lam) + delta**2
    return VarianceEstimate(float(value), float(cross.std(ddof=1) / np.sqrt(samples)))


def variance(scores: ArrayLike, theta: ArrayLike, zeta: ArrayLike, lam: ArrayLike, delta: float) -> float:
    """E[(x - Delta)^2] of one query, exactly, by going through every ranking; for few documents.

    >>> round(variance([0.0, 0.0], theta=[1.0], zeta=[0.5, 0.5], lam=[1.0, -1.0], delta=0.0), 9)
    2.0
    """
    scores, theta, zeta, lam = _problem(scores, theta, zeta, lam)
    n, k = len(scores), min(len(theta), len(scores))
    if perm(n, k) > MOST_RANKINGS:
        raise ValueError(f"{n} documents have {perm(n, k)} rankings of {k}, must be at most {MOST_RANKINGS}")
    rankings = np.array(list(permutations(range(n), k)))
    chance = np.exp([log_probability(scores, ranking) for ranking in rankings])
    examined = np.zeros((len(rankings), n))
    examined[np.arange(len(rankings))[:, None], rankings] = theta[:k]
    rho = chance @ examined
    value = np.divide(lam, rho, out=np.zeros(n), where=rho > 0)
    clicks = examined * zeta
    mean, spread = clicks @ value, (clicks * (1 - clicks)) @ value**2
    return float(chance @ ((mean - delta) ** 2 + spread))
