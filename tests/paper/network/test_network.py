from __future__ import annotations

import warnings

import numpy as np
import pytest
from benchmarks._policies import PlainAdam

from ranktrial.arrays import Numbers
from ranktrial.paper.network.network import Adam, Network, NetworkRegression, _product


def layers(network: Network) -> list[Numbers]:
    w1, b1, w2, b2, w3, b3 = network._layers(network.parameters)
    return [w1, b1, w2, b2, w3, b3]


def forward(network: Network, inputs: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Activations of both hidden layers, and the scores."""
    w1, b1, w2, b2, w3, b3 = layers(network)
    hidden1 = 1 / (1 + np.exp(-(inputs @ w1 + b1)))
    hidden2 = 1 / (1 + np.exp(-(hidden1 @ w2 + b2)))
    return hidden1, hidden2, (hidden2 @ w3 + b3)[:, 0]


def backward(network: Network, inputs: Numbers, by_score: Numbers) -> Numbers:
    """The gradient of an objective by the parameters, given its gradient by the scores."""
    _, _, w2, _, w3, _ = layers(network)
    hidden1, hidden2, _ = forward(network, inputs)
    above3 = by_score[:, None]
    above2 = (above3 @ w3.T) * hidden2 * (1 - hidden2)
    above1 = (above2 @ w2.T) * hidden1 * (1 - hidden1)
    pairs = ((inputs, above1), (hidden1, above2), (hidden2, above3))
    return np.concatenate([part for below, above in pairs for part in ((below.T @ above).ravel(), above.sum(0))])


def test_gradient_agrees_with_differences_in_float64() -> None:
    random = np.random.default_rng(0)
    network = Network.initialise(5, seed=1, dtype=np.float64)
    inputs, by_score = random.standard_normal((7, 5)), random.standard_normal(7)
    gradient = backward(network, inputs, by_score)
    h = 1e-6
    for i in range(0, len(network.parameters), 7):
        step = h * np.eye(len(network.parameters))[i]
        up = Network(5, network.parameters + step).scores(inputs)
        down = Network(5, network.parameters - step).scores(inputs)
        assert gradient[i] == pytest.approx(by_score @ (up - down) / (2 * h), abs=1e-8)


def test_float32_follows_its_float64_twin() -> None:
    random = np.random.default_rng(2)
    inputs = random.random((120, 143))
    single, double = Network.initialise(143, seed=3), Network.initialise(143, seed=3, dtype=np.float64)
    assert single.parameters.dtype == single.scores(inputs).dtype == np.float32
    np.testing.assert_allclose(single.scores(inputs), double.scores(inputs), atol=1e-5)


def test_there_are_two_hidden_layers_of_32_units() -> None:
    network = Network.initialise(10, seed=0)
    assert len(network.parameters) == (10 * 32 + 32) + (32 * 32 + 32) + (32 + 1)
    hidden1, hidden2, scores = forward(network, np.zeros((4, 10)))
    assert hidden1.shape == hidden2.shape == (4, 32)
    np.testing.assert_allclose(network.scores(np.zeros((4, 10))), scores, atol=1e-6)


def test_the_seed_decides_the_weights() -> None:
    assert np.array_equal(Network.initialise(3, seed=1).parameters, Network.initialise(3, seed=1).parameters)
    assert not np.array_equal(Network.initialise(3, seed=1).parameters, Network.initialise(3, seed=2).parameters)


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


def step(network: Network, optimiser: PlainAdam, inputs: Numbers, targets: Numbers) -> None:
    """One step on the mean cross-entropy of the network's probabilities to targets in [0, 1]."""
    by_score = (network.probabilities(inputs) - targets) / len(targets)
    optimiser.step(network.parameters, backward(network, inputs, by_score))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_compiled_rounds_are_steps_on_the_rows_drawn(kind: type) -> None:
    random = np.random.default_rng(14)
    features: Numbers = random.random((50, 3)).astype(kind)
    targets, weights = random.random(50), random.random(50)
    quick = NetworkRegression(Network.initialise(3, seed=15), steps=5, batch=20)
    slow, optimiser = Network.initialise(3, seed=15), PlainAdam()
    for seed in range(2):
        quick.fit(features, targets, weights, np.random.default_rng(seed))
        chances = np.random.default_rng(seed).random((5, 20)) * weights.sum()
        for rows in np.searchsorted(np.cumsum(weights), chances, side="right"):
            step(slow, optimiser, features[rows], targets[rows])
    np.testing.assert_allclose(quick.network.parameters, slow.parameters, rtol=1e-4, atol=1e-6)
    assert quick.optimiser.steps == optimiser.steps == 10
    assert quick.network.parameters.dtype == quick.optimiser.mean.dtype == np.float32


def test_wrong_width_is_refused() -> None:
    with pytest.raises(ValueError, match=r"inputs have shape \(2, 3\), must have 4 columns"):
        Network.initialise(4, seed=0).scores(np.zeros((2, 3)))
