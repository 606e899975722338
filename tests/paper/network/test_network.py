from __future__ import annotations

import warnings

import numpy as np
import pytest

from ranktrial.arrays import Numbers
from ranktrial.paper.network.network import Adam, Network, NetworkRegression, _product


def test_gradient_agrees_with_differences_in_float64() -> None:
    random = np.random.default_rng(0)
    network = Network.initialise(5, seed=1, dtype=np.float64)
    inputs, by_score = random.standard_normal((7, 5)), random.standard_normal(7)
    gradient = network.backward(network.forward(inputs), by_score)
    h = 1e-6
    for i in range(0, len(network.parameters), 7):
        step = h * np.eye(len(network.parameters))[i]
        up = Network(5, network.parameters + step).scores(inputs)
        down = Network(5, network.parameters - step).scores(inputs)
        assert gradient[i] == pytest.approx(by_score @ (up - down) / (2 * h), abs=1e-8)


def test_float32_follows_its_float64_twin() -> None:
    random = np.random.default_rng(2)
    inputs, by_score = random.random((120, 143)), random.standard_normal(120)
    single, double = Network.initialise(143, seed=3), Network.initialise(143, seed=3, dtype=np.float64)
    assert single.parameters.dtype == single.scores(inputs).dtype == np.float32
    np.testing.assert_allclose(single.scores(inputs), double.scores(inputs), atol=1e-5)
    expected = double.backward(double.forward(inputs), by_score)
    np.testing.assert_allclose(single.backward(single.forward(inputs), by_score), expected, atol=1e-4)


def test_there_are_two_hidden_layers_of_32_units() -> None:
    network = Network.initialise(10, seed=0)
    assert len(network.parameters) == (10 * 32 + 32) + (32 * 32 + 32) + (32 + 1)
    activations = network.forward(np.zeros((4, 10)))
    assert activations.hidden1.shape == activations.hidden2.shape == (4, 32)


def test_the_seed_decides_the_weights() -> None:
    assert np.array_equal(Network.initialise(3, seed=1).parameters, Network.initialise(3, seed=1).parameters)
    assert not np.array_equal(Network.initialise(3, seed=1).parameters, Network.initialise(3, seed=2).parameters)


def test_adam_is_the_textbook_recursion() -> None:
    random = np.random.default_rng(4)
    parameters = random.standard_normal(6)
    expected, mean, square = parameters.copy(), np.zeros(6), np.zeros(6)
    optimiser = Adam(rate=0.01)
    for t in range(1, 20):
        gradient = random.standard_normal(6)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        bias1, bias2 = 1 - 0.9**t, 1 - 0.999**t
        expected -= 0.01 * np.sqrt(bias2) / bias1 * mean / (np.sqrt(square) + 1e-7)
        optimiser.step(parameters, gradient)
        np.testing.assert_allclose(parameters, expected, rtol=1e-10)


def test_adam_keeps_float32() -> None:
    parameters = np.ones(3, np.float32)
    optimiser = Adam()
    optimiser.step(parameters, np.ones(3, np.float32))
    assert parameters.dtype == optimiser.mean.dtype == optimiser.square.dtype == np.float32
    np.testing.assert_allclose(parameters, 1 - 1e-3, rtol=1e-6)


def test_large_inputs_give_probabilities_without_warnings() -> None:
    network = Network.initialise(2, seed=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = network.probabilities(np.array([[1e6, -1e6], [-1e6, 1e6]]))
    assert np.all((p >= 0) & (p <= 1))


def test_products_in_pieces_are_products() -> None:
    random = np.random.default_rng(11)
    for rows, inner, columns in ((3, 4, 5), (2000, 143, 32), (143, 700, 32), (1, 10_000, 100)):
        a, b = random.random((rows, inner)), random.random((inner, columns))
        np.testing.assert_allclose(_product(a, b), a @ b, rtol=1e-12)


def test_regression_learns_where_documents_are_shown() -> None:
    """Rows of weight 0 are never drawn, whatever they ask for."""
    rng = np.random.default_rng(12)
    features = rng.random((400, 2))
    targets = np.where(features[:, 0] > 0.5, 0.8, 0.2)
    shown = np.arange(400) < 300
    targets[~shown] = 1 - targets[~shown]
    regression = NetworkRegression(Network.initialise(2, seed=13), Adam(rate=0.02))
    for _ in range(10):
        regression.fit(features, targets, np.where(shown, rng.integers(1, 50, 400), 0.0), rng)
    predicted = regression.predict(features)
    assert predicted.dtype == np.float64
    assert np.abs(predicted - targets)[shown].mean() < 0.05
    assert np.abs(predicted - targets)[~shown].mean() > 0.4


def step(network: Network, optimiser: Adam, inputs: Numbers, targets: Numbers) -> None:
    """One step on the mean cross-entropy of the network's probabilities to targets in [0, 1]."""
    by_score = (network.probabilities(inputs) - targets) / len(targets)
    optimiser.step(network.parameters, network.backward(network.forward(inputs), by_score))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_compiled_rounds_are_steps_on_the_rows_drawn(kind: type) -> None:
    random = np.random.default_rng(14)
    features: Numbers = random.random((50, 3)).astype(kind)
    targets, weights = random.random(50), random.random(50)
    quick, slow = (NetworkRegression(Network.initialise(3, seed=15), steps=5, batch=20) for _ in range(2))
    for seed in range(2):
        quick.fit(features, targets, weights, np.random.default_rng(seed))
        chances = np.random.default_rng(seed).random((5, 20)) * weights.sum()
        for rows in np.searchsorted(np.cumsum(weights), chances, side="right"):
            step(slow.network, slow.optimiser, features[rows], targets[rows])
    np.testing.assert_allclose(quick.network.parameters, slow.network.parameters, rtol=1e-4, atol=1e-6)
    assert quick.optimiser.steps == slow.optimiser.steps == 10


def test_wrong_width_is_refused() -> None:
    with pytest.raises(ValueError, match=r"inputs have shape \(2, 3\), must have 4 columns"):
        Network.initialise(4, seed=0).scores(np.zeros((2, 3)))
