from __future__ import annotations

import numpy as np
import pytest

from ranktrial.arrays import FloatArray, IntArray, offsets_of
from ranktrial.position_bias import Examinations, RelevanceFit, relevance_prediction
from ranktrial.position_bias._kernels import spread_sums
from ranktrial.position_bias.relevance import nested_effects, spreads


def queries(n: int, size: int) -> IntArray:
    return offsets_of([size] * n)


def test_nothing_known_is_the_prior_everywhere() -> None:
    none = np.zeros((6, 2))
    prediction = relevance_prediction(none, none, np.array([1, 0.5]), queries(2, 3), np.arange(6.0)[:, None])
    np.testing.assert_allclose(prediction, 0.3)


def test_equal_documents_get_the_same_prediction() -> None:
    """Clicks exactly as expected of one constant leave nothing to learn."""
    shown = np.array([[3.0, 1.0], [0, 4], [2, 0], [0, 0]])
    theta = np.array([1, 0.5])
    clicked = shown * theta * 0.4
    prediction = relevance_prediction(shown, clicked, theta, queries(2, 2), np.arange(4.0)[:, None])
    np.testing.assert_allclose(prediction, prediction[0])


def test_effects_are_the_best_linear_prediction() -> None:
    """Against the dense formula: covariance of effects with rates, times the inverse covariance of rates."""
    rng = np.random.default_rng(0)
    sizes = np.resize([3, 1, 4], 30)
    offsets, query = offsets_of(sizes), np.repeat(np.arange(30), sizes)
    examined, effect = rng.uniform(1, 9, 80), rng.normal(0, 0.4, 30)[query] + rng.normal(0, 0.2, 80)
    noise = 0.2 * examined
    residual = effect * examined + rng.normal(0, np.sqrt(noise))
    within, shared = spreads(residual, examined, noise, offsets)
    assert within > 0
    assert shared > 0
    effects = shared * (query[:, None] == query) + within * np.eye(80)
    expected = effects @ np.linalg.solve(effects + np.diag(noise / examined**2), residual / examined)
    np.testing.assert_allclose(nested_effects(residual, examined, noise, offsets)[0], expected, rtol=1e-10)


def test_sums_of_spreads_are_those_of_whole_arrays() -> None:
    """Sums of members and of pairs of different members, with empty groups and members that were never examined."""
    rng = np.random.default_rng(2)
    sizes = np.array([3, 0, 1, 4, 2, 0])
    offsets, group = offsets_of(sizes), np.repeat(np.arange(6), sizes)
    examined = np.where(np.arange(10) % 4 == 1, 0.0, rng.uniform(1, 9, 10))
    examined[group == 4] = 0.0  # nothing is known of this group
    noise, residual = 0.2 * examined, rng.normal(size=10) * (examined > 0)
    known = examined > 0
    beyond = residual[known] ** 2 / noise[known] - 1
    other = (group[:, None] == group) & ~np.eye(10, dtype=bool)
    together = np.array([(np.outer(residual, residual) * other)[group == g].sum() for g in range(6)])
    scale = np.array([(np.outer(examined, examined) * other)[group == g].sum() for g in range(6)])
    weight = np.array([1 / of if (of := noise[group == g].sum()) > 0 else 0.0 for g in range(6)])
    expected = [
        [beyond.sum(), (beyond**2).sum(), (examined[known] ** 2 / noise[known]).sum()],
        [(weight * together).sum(), ((weight * together) ** 2).sum(), (weight * scale).sum()],
    ]
    np.testing.assert_allclose(spread_sums(residual, examined, noise, offsets), expected, rtol=1e-12)


def test_spreads_are_found() -> None:
    rng = np.random.default_rng(1)
    n, size = 4000, 5
    offsets, examined = queries(n, size), rng.uniform(0.5, 6, n * size)
    effect = np.repeat(rng.normal(0, 0.15, n), size) + rng.normal(0, 0.1, n * size)
    residual = effect * examined + rng.normal(0, np.sqrt(0.2 * examined))
    within, shared = spreads(residual, examined, 0.2 * examined, offsets)
    assert within == pytest.approx(0.01, rel=0.1)
    assert shared == pytest.approx(0.0225, rel=0.1)


def world(per_query: float, seed: int = 0) -> tuple[FloatArray, Examinations, IntArray, FloatArray]:
    """Relevances with a share per query, per input and per document, and a log of about so many impressions of a query."""
    rng = np.random.default_rng(seed)
    n, size, theta = 1500, 8, 1 / np.arange(1.0, 5)
    offsets = queries(n, size)
    inputs = np.column_stack([rng.normal(size=n * size), rng.normal(size=n * size)])
    hidden = 0.1 * inputs[:, 0] + np.repeat(rng.normal(0, 0.12, n), size) + rng.normal(0, 0.1, n * size)
    zeta = np.clip(0.35 + hidden, 0.02, 0.95)
    shown = rng.poisson(per_query / size, (n * size, 4)).astype(float)
    clicked = rng.binomial(shown.astype(int), zeta[:, None] * theta).astype(float)
    return zeta, Examinations.from_counts(shown, clicked, theta), offsets, inputs


def error(zeta: FloatArray, prediction: FloatArray | float) -> float:
    return float(np.mean((zeta - prediction) ** 2))


@pytest.mark.parametrize(("per_query", "at_most"), [(0.05, 1.0), (1, 0.9), (10, 0.65), (100, 0.35)])
def test_never_worse_than_the_constant_and_better_the_more_is_seen(per_query: float, at_most: float) -> None:
    zeta, seen, offsets, inputs = world(per_query)
    assert error(zeta, RelevanceFit.of(seen, offsets, inputs).prediction) < at_most * error(zeta, seen.mean)
    assert error(zeta, RelevanceFit.of(seen, offsets).prediction) <= 1.001 * error(zeta, seen.mean)


def test_far_better_than_raw_rates_at_few_impressions() -> None:
    zeta, seen, offsets, inputs = world(3)
    raw = np.divide(seen.clicks, seen.examined, out=np.full(len(zeta), seen.mean), where=seen.examined > 0)
    assert error(zeta, RelevanceFit.of(seen, offsets, inputs).prediction) < 0.1 * error(zeta, raw)


def test_the_truth_in_the_long_run() -> None:
    zeta, seen, offsets, inputs = world(100_000)
    assert error(zeta, RelevanceFit.of(seen, offsets, inputs).prediction) < 2e-4


def test_inputs_that_tell_nothing_do_no_harm() -> None:
    zeta, seen, offsets, _ = world(2)
    noise = np.random.default_rng(5).normal(size=(len(zeta), 6))
    with_noise = error(zeta, RelevanceFit.of(seen, offsets, noise).prediction)
    assert with_noise < 1.01 * error(zeta, RelevanceFit.of(seen, offsets).prediction)


def test_constant_inputs_change_nothing() -> None:
    _, seen, offsets, inputs = world(5)
    more = np.column_stack([inputs, np.full(len(inputs), 0.1)])
    np.testing.assert_allclose(
        RelevanceFit.of(seen, offsets, more).prediction, RelevanceFit.of(seen, offsets, inputs).prediction, atol=1e-9
    )


def test_parts_add_up_and_can_be_taken_out_again() -> None:
    theta = np.array([0.9, 0.3])
    shown = np.array([[2, 0], [1, 2], [1, 1], [0, 0]], float)
    clicked = np.array([[2, 0], [1, 1], [0, 1], [0, 0]], float)
    whole = Examinations.from_counts(shown, clicked, theta)
    half = np.array([[1, 0], [0, 1], [1, 0], [0, 0]], float)
    parts = [
        Examinations.from_counts(some, some_clicked, theta)
        for some, some_clicked in ((half, half * clicked), (shown - half, clicked - half * clicked))
    ]
    for one, other in side_by_side(parts[0] + parts[1], whole):
        np.testing.assert_allclose(one, other)
    for one, other in side_by_side(whole - parts[0], parts[1]):
        np.testing.assert_allclose(one, other)
    assert (whole - whole).examined.tolist() == [0, 0, 0, 0]
    by_hand = Examinations(np.array([2.0, 2, 1, 0]), np.array([1.8, 1.5, 1.2, 0]), np.array([1.62, 0.99, 0.9, 0]))
    for one, other in side_by_side(whole, by_hand):
        np.testing.assert_allclose(one, other)


def side_by_side(a: Examinations, b: Examinations) -> list[tuple[FloatArray, FloatArray]]:
    return [(a.clicks, b.clicks), (a.examined, b.examined), (a.squared, b.squared)]


@pytest.mark.parametrize("prior", [None, np.array([1.0, 0.2, -0.1])])
def test_inputs_that_are_given_once_say_the_same_as_for_every_document(prior: FloatArray | None) -> None:
    zeta, seen, offsets, inputs = world(5)
    place = np.random.default_rng(5).integers(0, 7, len(zeta))
    table = inputs[:7]
    short = RelevanceFit.of(seen, offsets, table, place=place, prior=prior)
    whole = RelevanceFit.of(seen, offsets, table[place], prior=prior)
    np.testing.assert_allclose(short.prediction, whole.prediction, atol=1e-12)
    np.testing.assert_allclose(short.slopes, whole.slopes, atol=1e-12)
    assert np.abs(short.slopes).max() > 1e-4


def test_effects_from_the_same_clicks_are_those_of_the_fit() -> None:
    zeta, seen, offsets, inputs = world(5)
    fit = RelevanceFit.of(seen, offsets, inputs)
    again = fit.with_effects_from(seen, inputs, np.arange(len(zeta)), offsets)
    np.testing.assert_allclose(again.prediction, fit.prediction, atol=1e-12)
    less = fit.with_effects_from(seen - seen, inputs, np.arange(len(zeta)), offsets)
    assert not less.effects.any()
