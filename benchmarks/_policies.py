"""Gradients of one query and variances of policies, as benchmarks and tests look at the paper's network."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import FloatArray, IntArray, Numbers
from ranktrial.paper.network import _gradient_kernels as kernels
from ranktrial.paper.network._race_gradient_kernels import exposure_vjp_into
from ranktrial.paper.network.network import Network, Rows
from ranktrial.paper.network.network_policy import WIDEST_RANGE, Objective
from ranktrial.rankings import Mixture, Pair, PlackettLuce, ips_weights
from ranktrial.seeds import Seed, children, kernel_state
from ranktrial.users import position_based


class Problem(NamedTuple):
    """One query: what a gradient needs, in the order it takes it."""

    scores: FloatArray
    theta: FloatArray
    zeta: FloatArray
    lam: FloatArray

    @property
    def bounded(self) -> Problem:
        """The problem with scores in the range that training keeps."""
        return self._replace(scores=np.maximum(self.scores, self.scores.max() - WIDEST_RANGE))


def low_noise_gradient(problem: Problem, samples: int, seed: Seed) -> FloatArray:
    """The gradient of the variance with exact rho and averaged clicks, pairs of documents from ``samples`` rankings."""
    gradient: FloatArray = kernels.low_noise_gradient(*problem.bounded, samples, kernel_state(seed))
    return gradient


def paper_gradient(
    problem: Problem, delta: float, samples: int, seed: Seed, *, authors_scaling: bool = False
) -> FloatArray:
    """The gradient as published, from ``samples`` rankings with one click pattern each."""
    scales = (1.0 / samples, 1.0 / len(problem.scores)) if authors_scaling else (1.0, 1.0)
    gradient: FloatArray = kernels.paper_gradient(*problem.bounded, delta, samples, *scales, kernel_state(seed))
    return gradient


def exposure_gradient(scores: ArrayLike, theta: ArrayLike, weights: ArrayLike) -> FloatArray:
    """The gradient of sum_d weights_d rho_d by the scores."""
    gradient = np.empty(np.size(scores))
    exposure_vjp_into(*(np.asarray(one, np.float64) for one in (scores, theta, weights)), gradient)
    return gradient


def network_policy(network: Network, inputs: Rows, pair: Pair) -> PlackettLuce:
    """The Plackett-Luce policy over the network's scores."""
    return PlackettLuce(network.scores(inputs).astype(np.float64), pair.offsets, pair.k)


class PlainAdam:
    """Adam (Kingma and Ba 2015), a step at a time."""

    def __init__(self, rate: float = 1e-3, decay2: float = 0.999, epsilon: float = 1e-7) -> None:
        self.rate, self.decay2, self.epsilon = rate, decay2, epsilon
        self.steps = 0
        self.mean: Numbers | float = 0.0
        self.square: Numbers | float = 0.0

    def step(self, parameters: Numbers, gradient: Numbers) -> None:
        """Change the parameters in place, downhill."""
        self.steps += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = self.decay2 * self.square + (1 - self.decay2) * gradient**2
        rate = self.rate * np.sqrt(1 - self.decay2**self.steps) / (1 - 0.9**self.steps)
        parameters -= rate * self.mean / (np.sqrt(self.square) + self.epsilon)


class VarianceEstimate(NamedTuple):
    """A variance with the standard error that sampling pairs of documents leaves."""

    value: float
    standard_error: float


def ips_variance(
    policy: Mixture | PlackettLuce,
    objective: Objective,
    *,
    queries: IntArray | None = None,
    samples: int = 1000,
    seed: Seed = 0,
) -> VarianceEstimate:
    """E[(x - delta)^2] of one impression, over all queries or some: exact for mixtures, else with pairs from drawn rankings."""
    pair, lam, theta = objective.pair, objective.lam, objective.theta
    if isinstance(policy, Mixture):
        weights = ips_weights(lam, policy.exposure(theta), pair.offsets)
        values = np.where(policy.rankings >= 0, weights[policy.rankings], 0.0)
        return VarianceEstimate(policy.moments(values, position_based(objective.zeta, theta)).variance, 0.0)
    chosen = np.arange(pair.n_queries) if queries is None else queries
    rho = policy.exposure(theta, wanted=lam != 0)
    expected = np.divide(objective.zeta * lam, rho, out=np.zeros_like(lam), where=lam != 0)
    values, errors = np.zeros((2, len(chosen)))
    for i, (query, child) in enumerate(zip(chosen, children(seed, len(chosen)))):
        rows = slice(pair.offsets[query], pair.offsets[query + 1])
        clicks = theta[: policy.k] * np.append(expected, 0.0)[policy.sample(query, samples, seed=child)]
        pairs = clicks.sum(1) ** 2 - (clicks**2).sum(1)
        mean = float(objective.zeta[rows] @ lam[rows])
        diagonal = float(expected[rows] @ lam[rows])
        values[i] = diagonal + pairs.mean() - 2 * objective.delta * mean + objective.delta**2
        errors[i] = pairs.std(ddof=1) / np.sqrt(samples)
    return VarianceEstimate(float(values.mean()), float(np.sqrt((errors**2).sum()) / len(chosen)))
