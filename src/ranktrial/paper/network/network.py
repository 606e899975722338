"""The paper's neural network, 2 x 32 sigmoid units: a policy score or a relevance from a document's features.

One class serves both uses. As a policy it gives a linear output, the Plackett-Luce score of each document (``scores``). In
regression-EM a sigmoid follows (``probabilities``) and it is fitted by cross-entropy; ``NetworkRegression`` is that recipe.
Training, forward and backward, is compiled (``_network_kernels``).

Numbers are float32: at this size that halves the time, and scores only steer what is shown. Exposure is computed in
float64 from whatever scores come out, so the estimate has no rounding error from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ranktrial import checks, extras
from ranktrial.arrays import FloatArray, IntArray, Numbers
from ranktrial.paper.network._network_kernels import after_exp, before_exp, fit
from ranktrial.seeds import Seed, generator

HIDDEN = 32
MOST_MULTIPLICATIONS = 2**18  # OpenBLAS uses one thread up to here
ROWS_AT_A_TIME = 2048  # whose activations stay in the cache


class Rows(Protocol):
    """A table of inputs that gives some of its rows: an array, or something that puts them together when asked."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice | IntArray, /) -> Numbers: ...


def check_blas() -> None:
    """Raise an error where the compiled training loops cannot multiply matrices: they do it with SciPy's BLAS."""
    if refusal := extras.missing("study", "the compiled training of a network", needed=("scipy",)):
        raise refusal


def _product(a: Numbers, b: Numbers) -> Numbers:
    """a @ b in pieces that BLAS does not split over threads: at this size waiting for another core costs more than it saves,
    up to a hundredfold on a busy machine.
    """
    rows = max(1, MOST_MULTIPLICATIONS // (b.shape[0] * b.shape[1]))
    if len(a) <= rows:
        return a @ b
    result = np.empty((len(a), b.shape[1]), a.dtype)
    for start in range(0, len(a), rows):
        np.matmul(a[start : start + rows], b, out=result[start : start + rows])
    return result


def _sigmoid(x: Numbers, bias: Numbers) -> Numbers:
    """The sigmoid of a table plus a row of biases, in place; NumPy's exp is a vector instruction, a compiled loop's is not."""
    before_exp(x, bias)
    np.exp(x, out=x)
    after_exp(x)
    return x


def _probabilities(scores: Numbers) -> Numbers:
    return _sigmoid(scores[:, None].copy(), np.zeros(1, scores.dtype))[:, 0]


@dataclass(frozen=True, eq=False)
class Network:
    """Two hidden layers of sigmoid units and a linear output; ``parameters`` is one flat array, changed by training."""

    n_inputs: int
    parameters: Numbers

    @classmethod
    def initialise(cls, n_inputs: int, seed: Seed, dtype: DTypeLike = np.float32) -> Network:
        """Weights uniform within +-sqrt(6 / (inputs + outputs)) of each layer (Glorot), biases 0."""
        checks.at_least("n_inputs", n_inputs, 1)
        random = generator(seed)
        layers = []
        for rows, columns in ((n_inputs, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1)):
            limit = np.sqrt(6 / (rows + columns))
            layers += [random.uniform(-limit, limit, rows * columns), np.zeros(columns)]
        return cls(n_inputs, np.concatenate(layers).astype(dtype))

    def _layers(self, flat: Numbers) -> list[Numbers]:
        """Weights and biases of the three layers as views of a flat array."""
        views = []
        start = 0
        for rows, columns in ((self.n_inputs, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1)):
            bias = start + rows * columns
            views += [flat[start:bias].reshape(rows, columns), flat[bias : bias + columns]]
            start = bias + columns
        return views

    def _forward(self, inputs: ArrayLike) -> Numbers:
        w1, b1, w2, b2, w3, b3 = self._layers(self.parameters)
        rows = np.asarray(inputs, self.parameters.dtype)
        if rows.ndim != 2 or rows.shape[1] != self.n_inputs:
            raise ValueError(f"inputs have shape {rows.shape}, must have {self.n_inputs} columns")
        hidden1 = _sigmoid(_product(rows, w1), b1)
        hidden2 = _sigmoid(_product(hidden1, w2), b2)
        scores: Numbers = (hidden2 @ w3 + b3)[:, 0]
        return scores

    def scores(self, inputs: Rows, rows: IntArray | None = None) -> Numbers:
        """One score per row of inputs, or of those that are wanted."""
        scores = np.empty(inputs.shape[0] if rows is None else len(rows), self.parameters.dtype)
        for start in range(0, len(scores), ROWS_AT_A_TIME):
            some = slice(start, start + ROWS_AT_A_TIME)
            scores[some] = self._forward(inputs[some if rows is None else rows[some]])
        return scores

    def probabilities(self, inputs: Rows) -> Numbers:
        """The sigmoid of the scores."""
        return _probabilities(self.scores(inputs))


class AdamState(NamedTuple):
    """Adam's settings and moments beside the parameters that it changes, as compiled loops take them."""

    parameters: Numbers
    mean: Numbers
    square: Numbers
    steps: int
    rate: float
    decay1: float = 0.9
    decay2: float = 0.999
    epsilon: float = 1e-7


@dataclass(eq=False)
class Adam:
    """Adam (Kingma and Ba 2015) with Keras' defaults. It keeps its moments, so training can go on where it stopped."""

    rate: float = 1e-3
    steps: int = 0
    mean: Numbers = field(default_factory=lambda: np.zeros(0, np.float32), repr=False)
    square: Numbers = field(default_factory=lambda: np.zeros(0, np.float32), repr=False)

    def state(self, parameters: Numbers) -> AdamState:
        """The state to train these parameters from; moments are 0 before the first step."""
        if self.steps == 0:
            self.mean, self.square = np.zeros_like(parameters), np.zeros_like(parameters)
        return AdamState(parameters, self.mean, self.square, self.steps, self.rate)


@dataclass(eq=False)
class NetworkRegression:
    """The network as the regression of regression-EM; each round as the authors do, on documents drawn by display frequency.

    Attributes:
        network: trained in place, kept between rounds together with the state of the optimiser.
        steps: Adam steps per round.
        batch: documents per step.
    """

    network: Network
    optimiser: Adam = field(default_factory=Adam)
    steps: int = 75
    batch: int = 512

    def predict(self, features: Numbers) -> FloatArray:
        """Relevance of each row, between 0 and 1."""
        return self.network.probabilities(features).astype(np.float64)

    def fit(self, features: Numbers, targets: FloatArray, weights: FloatArray, rng: np.random.Generator) -> None:
        """One round towards ``targets``; rows are drawn in proportion to ``weights``."""
        check_blas()
        cumulated = np.cumsum(weights)
        rows = np.searchsorted(cumulated, rng.random((self.steps, self.batch)) * cumulated[-1], side="right")
        network, adam = self.network, self.optimiser
        parameters = network.parameters
        fit(adam.state(parameters), HIDDEN, features, targets.astype(parameters.dtype), rows)
        adam.steps += len(rows)
