"""The compiled training loop of the policy network: forward, gradient of the variance, backward and Adam, one query a step."""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np

from ranktrial.design._gradient_kernels import low_noise_gradient, paper_gradient

LOW_NOISE, PAPER, AUTHORS = range(3)


@nb.njit(cache=True)
def _sigmoid_layer(inputs: Any, weights: Any, bias: Any) -> Any:
    result = np.dot(inputs, weights)
    for i in range(result.shape[0]):
        for j in range(result.shape[1]):
            # exp(80) is the order of what a float32 holds
            result[i, j] = 1 / (1 + math.exp(min(-(result[i, j] + bias[j]), bias.dtype.type(80))))
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
    by_weights = np.dot(below.T, above)
    for i in range(by_weights.shape[0]):
        for j in range(by_weights.shape[1]):
            gradient[start] = by_weights[i, j]
            start += 1
    for j in range(above.shape[1]):
        total = above.dtype.type(0)
        for i in range(above.shape[0]):
            total += above[i, j]
        gradient[start] = total
        start += 1
    return start


@nb.njit(cache=True)
def train(
    parameters: Any,
    mean: Any,
    square: Any,
    steps_before: Any,
    settings: Any,
    hidden: Any,
    features: Any,
    lists: Any,
    offsets: Any,
    queries: Any,
    theta: Any,
    zeta: Any,
    lam: Any,
    delta: Any,
    samples: Any,
    kind: Any,
    widest: Any,
    state: Any,
) -> None:
    """Change the parameters, and Adam's moments, in place: a step for each of the queries.

    ``settings`` are Adam's rate, decays and epsilon; ``kind`` is that of the gradient. ``features`` and ``lists`` stand side by
    side as the network's inputs.
    """
    rate, decay1, decay2, epsilon = settings
    n_features, n_inputs = features.shape[1], features.shape[1] + lists.shape[1]
    first, second = n_inputs * hidden, hidden * hidden
    gradient = np.empty_like(parameters)
    for step in range(queries.shape[0]):
        start, end = offsets[queries[step]], offsets[queries[step] + 1]
        n = end - start
        inputs = np.empty((n, n_inputs), parameters.dtype)
        inputs[:, :n_features] = features[start:end]
        inputs[:, n_features:] = lists[start:end]
        w1, b1 = parameters[:first].reshape(n_inputs, hidden), parameters[first : first + hidden]
        at = first + hidden
        w2, b2 = parameters[at : at + second].reshape(hidden, hidden), parameters[at + second : at + second + hidden]
        at += second + hidden
        w3, b3 = parameters[at : at + hidden].reshape(hidden, 1), parameters[at + hidden]
        hidden1 = _sigmoid_layer(inputs, w1, b1)
        hidden2 = _sigmoid_layer(hidden1, w2, b2)
        out = np.dot(hidden2, w3)
        scores = np.empty(n)
        best = -np.inf
        for i in range(n):
            scores[i] = out[i, 0] + b3
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
        above = by_score.astype(parameters.dtype).reshape(n, 1)
        by_hidden2 = _below(above, w3, hidden2)
        by_hidden1 = _below(by_hidden2, w2, hidden1)
        place = _by_parameters(inputs, by_hidden1, gradient, 0)
        place = _by_parameters(hidden1, by_hidden2, gradient, place)
        _by_parameters(hidden2, above, gradient, place)

        done = steps_before + step + 1
        pace = rate * math.sqrt(1 - decay2**done) / (1 - decay1**done)
        for i in range(parameters.shape[0]):
            mean[i] += (1 - decay1) * (gradient[i] - mean[i])
            square[i] += (1 - decay2) * (gradient[i] * gradient[i] - square[i])
            parameters[i] -= pace * mean[i] / (math.sqrt(square[i]) + epsilon)
