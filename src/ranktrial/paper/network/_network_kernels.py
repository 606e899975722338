"""Compiled training loops of the network, forward, gradient, backward and Adam: as a policy, one query a step, and as a
regression.
"""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np

from ranktrial.paper.network._gradient_kernels import low_noise_gradient, paper_gradient

LOW_NOISE, PAPER, AUTHORS = range(3)


@nb.njit(inline="always")
def _sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), with exp as the 1,024th power of a polynomial: multiplications alone, which go through vector
    registers. Right to 4e-9, more than a float32 holds.
    """
    small = min(max(-np.float64(x), -80.0), 80.0) / 1024
    power = 1 + small * (1 + small * (1 / 2 + small * (1 / 6 + small * (1 / 24 + small * (1 / 120 + small / 720)))))
    power *= power
    power *= power
    power *= power
    power *= power
    power *= power
    power *= power
    power *= power
    power *= power
    power *= power
    power *= power
    return 1 / (1 + power)


@nb.njit(cache=True)
def before_exp(x: Any, bias: Any) -> None:
    """Replace x by the exponent of the sigmoid of x + bias, -(x + bias), in place."""
    most = x.dtype.type(80)  # exp(80) is the order of what a float32 holds
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            below = -(x[i, j] + bias[j])
            x[i, j] = below if below < most else most


@nb.njit(cache=True, error_model="numpy")  # with a check of each division it is no vector operation
def after_exp(x: Any) -> None:
    """Replace exponentials x by 1 / (1 + x), in place: the second half of a sigmoid, after ``before_exp``."""
    one = x.dtype.type(1)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] = one / (one + x[i, j])


@nb.njit(cache=True, error_model="numpy")
def _sigmoid_layer(inputs: Any, weights: Any, bias: Any) -> Any:
    result = np.dot(inputs, weights)
    for i in range(result.shape[0]):
        for j in range(result.shape[1]):
            result[i, j] = _sigmoid(result[i, j] + bias[j])
    return result


@nb.njit(cache=True)
def _below(above: Any, weights: Any, hidden: Any) -> Any:
    """The gradient by what goes into a layer of sigmoid units, from that by what comes out of the next."""
    result = np.dot(above, weights.T)
    for i in range(result.shape[0]):
        for j in range(result.shape[1]):
            result[i, j] *= hidden[i, j] * (1 - hidden[i, j])
    return result


@nb.njit(cache=True)
def _by_parameters(below: Any, above: Any, gradient: Any, start: Any) -> Any:
    """Write the gradient by a layer's weights and bias into the flat gradient; returns where the next layer starts."""
    rows, columns = below.shape[1], above.shape[1]
    np.dot(below.T, above, gradient[start : start + rows * columns].reshape(rows, columns))
    start += rows * columns
    end = start + columns
    gradient[start:end] = 0
    for i in range(above.shape[0]):  # row by row, as they lie in memory
        for j in range(above.shape[1]):
            gradient[start + j] += above[i, j]
    return end


@nb.njit(cache=True)
def _layers(parameters: Any, n_inputs: Any, hidden: Any) -> Any:
    """Weights and biases of the three layers as views of the flat parameters."""
    first, second = n_inputs * hidden, hidden * hidden
    w1, b1 = parameters[:first].reshape(n_inputs, hidden), parameters[first : first + hidden]
    at = first + hidden
    w2, b2 = parameters[at : at + second].reshape(hidden, hidden), parameters[at + second : at + second + hidden]
    at += second + hidden
    return w1, b1, w2, b2, parameters[at : at + hidden].reshape(hidden, 1), parameters[at + hidden]


@nb.njit(cache=True)
def _forward(parameters: Any, inputs: Any, hidden: Any) -> Any:
    """Forward pass: activations of both hidden layers and the output, for each row of inputs."""
    w1, b1, w2, b2, w3, b3 = _layers(parameters, inputs.shape[1], hidden)
    hidden1 = _sigmoid_layer(inputs, w1, b1)
    hidden2 = _sigmoid_layer(hidden1, w2, b2)
    return hidden1, hidden2, np.dot(hidden2, w3)[:, 0] + b3


@nb.njit(cache=True, error_model="numpy")  # with a check of each division it is no vector operation
def _descend(adam: Any, done: Any, activations: Any, by_score: Any, gradient: Any) -> None:
    """A step of Adam down the gradient of an objective, given that by the scores; ``done`` counts this step."""
    inputs, hidden1, hidden2 = activations
    parameters, mean, square = adam.parameters, adam.mean, adam.square
    _, _, w2, _, w3, _ = _layers(parameters, inputs.shape[1], hidden1.shape[1])
    by_hidden2 = _below(by_score, w3, hidden2)
    by_hidden1 = _below(by_hidden2, w2, hidden1)
    place = _by_parameters(inputs, by_hidden1, gradient, 0)
    place = _by_parameters(hidden1, by_hidden2, gradient, place)
    _by_parameters(hidden2, by_score, gradient, place)
    rate, decay1, decay2, epsilon = adam.rate, adam.decay1, adam.decay2, adam.epsilon
    pace = rate * math.sqrt(1 - decay2**done) / (1 - decay1**done)
    for i in range(parameters.shape[0]):
        mean[i] += (1 - decay1) * (gradient[i] - mean[i])
        square[i] += (1 - decay2) * (gradient[i] * gradient[i] - square[i])
        parameters[i] -= pace * mean[i] / (math.sqrt(square[i]) + epsilon)


@nb.njit(cache=True)
def fit(adam: Any, hidden: Any, features: Any, targets: Any, rows: Any) -> None:
    """Change the parameters, and Adam's moments, in place: a step on the mean cross-entropy of each row of ``rows``."""
    n_inputs, n = features.shape[1], rows.shape[1]
    gradient = np.empty_like(adam.parameters)
    inputs = np.empty((n, n_inputs), adam.parameters.dtype)
    by_score = np.empty((n, 1), adam.parameters.dtype)
    for step in range(rows.shape[0]):
        for i in range(n):
            for j in range(n_inputs):
                inputs[i, j] = features[rows[step, i], j]
        hidden1, hidden2, out = _forward(adam.parameters, inputs, hidden)
        for i in range(n):
            by_score[i, 0] = (_sigmoid(out[i]) - targets[rows[step, i]]) / n
        done = adam.steps + step + 1
        _descend(adam, done, (inputs, hidden1, hidden2), by_score, gradient)


@nb.njit(cache=True)
def train(
    adam: Any, hidden: Any, features: Any, lists: Any, offsets: Any, queries: Any, theta: Any, zeta: Any, lam: Any, delta: Any,
    samples: Any, kind: Any, widest: Any, state: Any,
) -> None:  # fmt: skip
    """Change the parameters, and Adam's moments, in place: a step for each of the queries.

    ``kind`` is that of the gradient. ``features`` and ``lists`` stand side by side as the network's inputs.
    """
    n_features, n_inputs = features.shape[1], features.shape[1] + lists.shape[1]
    gradient = np.empty_like(adam.parameters)
    for step in range(queries.shape[0]):
        start, end = offsets[queries[step]], offsets[queries[step] + 1]
        n = end - start
        inputs = np.empty((n, n_inputs), adam.parameters.dtype)
        inputs[:, :n_features] = features[start:end]
        inputs[:, n_features:] = lists[start:end]
        hidden1, hidden2, out = _forward(adam.parameters, inputs, hidden)
        scores = np.empty(n)
        best = -np.inf
        for i in range(n):
            scores[i] = out[i]
            best = max(best, scores[i])
        for i in range(n):
            scores[i] = max(scores[i], best - widest)
        if kind == LOW_NOISE:
            by_score = low_noise_gradient(scores, theta, zeta[start:end], lam[start:end], samples, state)
        else:
            frequency, error = (1.0 / samples, 1.0 / n) if kind == AUTHORS else (1.0, 1.0)
            by_score = paper_gradient(
                scores, theta, zeta[start:end], lam[start:end], delta, samples, frequency, error, state
            )
        above = by_score.astype(adam.parameters.dtype).reshape(n, 1)
        done = adam.steps + step + 1
        _descend(adam, done, (inputs, hidden1, hidden2), above, gradient)
