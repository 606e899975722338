"""The paper's trained logging policy: a network scores documents, gradient steps lower the variance of the estimate.

Algorithm 1 of the paper, lines 5 to 12: draw a query, sample rankings from the Plackett-Luce policy over the network's scores,
estimate the gradient of the variance by the scores, pass it back through the network, step. Inputs are the document's
features, or what the two lists say of it (lambda, ranks), or both; the lists are what makes it work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial import checks
from ranktrial.arrays import BoolArray, FloatArray, IntArray, sum_by_group
from ranktrial.paper.network._gradient_kernels import fill_ranks, list_inputs, scale_by_query
from ranktrial.paper.network._network_kernels import train
from ranktrial.paper.network.network import HIDDEN, Adam, Network, check_blas
from ranktrial.rankings import Pair, PlackettLuce
from ranktrial.seeds import Seed, children, generator, kernel_state

INPUTS = ("lists", "features", "both")
GRADIENTS = ("low-noise", "paper", "authors")  # in the order of the compiled loop
WIDEST_RANGE = 150.0  # lower scores count as this far below the best: rho^-2 must not overflow


def scaled_by_query(columns: Sequence[NDArray[Any]] | NDArray[Any], offsets: IntArray) -> NDArray[np.float32]:
    """A table of the columns, each min-max scaled to [0, 1] within each query; 0 where it is constant."""
    scaled = np.empty((int(offsets[-1]), len(columns)), np.float32)
    for i, column in enumerate(columns):
        scale_by_query(np.ascontiguousarray(column, np.float64), offsets, scaled[:, i])
    return scaled


def lambda_inputs(pair: Pair, lam: FloatArray) -> NDArray[np.float32]:
    """Inputs from two ranked lists, a row per document: lambda, its size, square and sign, and its rank in A and in B."""
    ranks = np.empty((2, pair.n_documents), np.int32)
    for ranker, rank in zip((pair.a, pair.b), ranks):
        fill_ranks(pair.offsets, ranker.offsets, ranker.documents, rank)
    rows = np.empty((pair.n_documents, 7), np.float32)
    list_inputs(lam, *ranks, pair.offsets, rows)
    return rows


def feature_inputs(pair: Pair, which: str) -> NDArray[np.float32]:
    """Document features as inputs: as they are if between 0 and 1, like those of a data set, which are scaled per query
    already."""
    if pair.features is None:
        raise ValueError(f'inputs is "{which}", which needs document features: give them as pair.knowing(features=...)')
    if pair.features.min(initial=0) >= 0 and pair.features.max(initial=1) <= 1:
        return np.asarray(pair.features, np.float32)
    return scaled_by_query(pair.features.T, pair.offsets)


@dataclass(frozen=True, eq=False)
class PolicyInputs:
    """The network's inputs, a row per document. Both parts, of which one may have no column, stand side by side only in the
    rows that are asked for: features of a large data set stay in the file they are mapped from."""

    features: NDArray[np.float32]
    lists: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.lists), self.features.shape[1] + self.lists.shape[1]

    def __getitem__(self, rows: slice | IntArray, /) -> NDArray[np.float32]:
        return np.concatenate([self.features[rows], self.lists[rows]], axis=1)


def policy_inputs(
    pair: Pair, lam: FloatArray, which: str, *, features: NDArray[np.float32] | None = None
) -> PolicyInputs:
    """The network's inputs; ``features`` are those of ``feature_inputs`` where they are at hand."""
    checks.one_of("inputs", which, INPUTS)
    none = np.empty((pair.n_documents, 0), np.float32)
    if which != "lists" and features is None:
        features = feature_inputs(pair, which)
    return PolicyInputs(
        none if features is None else features, none if which == "features" else lambda_inputs(pair, lam)
    )


@dataclass(frozen=True, eq=False)
class Objective:
    """The objective of a policy's training: the variance of the IPS estimate under a (fitted or true) click model."""

    pair: Pair
    theta: FloatArray
    zeta: FloatArray
    lam: FloatArray
    delta: float


def optimise(
    network: Network,
    optimiser: Adam,
    inputs: PolicyInputs,
    objective: Objective,
    *,
    steps: int,
    samples: int,
    seed: Seed,
    gradient: str = "low-noise",
    query_weights: FloatArray | None = None,
) -> None:
    """Train the network in place, one query a step.

    Args:
        gradient: "low-noise"; "paper" as published; "authors" with the scaling of the authors' code.
        query_weights: How often each query is drawn (the log's frequencies); by default all alike. Queries on which the
            rankers do not differ are never drawn: they contribute nothing.
    """
    checks.one_of("gradient", gradient, GRADIENTS)
    checks.at_least("samples", samples, 2 if gradient == "low-noise" else 1)
    offsets = objective.pair.offsets
    lam = objective.lam
    differs = sum_by_group((lam != 0).astype(np.float64), offsets) > 0
    weights = differs * (np.ones(len(differs)) if query_weights is None else query_weights)
    if not weights.any():
        weights = differs.astype(float)  # a log without a query that matters
    if not weights.any():
        return
    check_blas()
    drawing, rankings = children(seed, 2)
    cumulated = np.cumsum(weights)
    queries = np.searchsorted(cumulated, generator(drawing).random(steps) * cumulated[-1], side="right")
    theta, zeta = checks.probabilities("theta", objective.theta), checks.probabilities("zeta", objective.zeta)
    kind = GRADIENTS.index(gradient)
    state = kernel_state(rankings)
    train(
        optimiser.state(network.parameters), HIDDEN, inputs.features, inputs.lists, offsets, queries, theta, zeta, lam,
        float(objective.delta), samples, kind, WIDEST_RANGE, state,
    )  # fmt: skip
    optimiser.steps += steps


@dataclass(eq=False)
class NetworkPolicy:
    """A policy whose documents get their scores when their queries are asked for: most versions of a run show few."""

    network: Network
    inputs: PolicyInputs
    pair: Pair

    def __post_init__(self) -> None:
        self.policy = PlackettLuce(np.zeros(self.pair.n_documents), self.pair.offsets, self.pair.k)
        self._scored = np.zeros(self.pair.n_queries, bool)

    def scored(self, queries: BoolArray) -> PlackettLuce:
        """The policy, with scores for these queries and those that were asked for before."""
        wanted = queries & ~self._scored
        rows = np.flatnonzero(np.repeat(wanted, np.diff(self.pair.offsets)))
        self.policy.scores[rows] = self.network.scores(self.inputs, rows)
        self._scored |= wanted
        return self.policy
