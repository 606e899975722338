"""Compiled loops against plain NumPy twins, to 1e-9 and better."""

from __future__ import annotations

import numpy as np
import pytest

from ranktrial.arrays import FloatArray
from ranktrial.paper.click_models import _kernels as em_kernels
from ranktrial.paper.click_models.em import EM, em_step
from ranktrial.position_bias import _kernels
from ranktrial.position_bias.conditional import Conditional
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.identifiability import NotIdentifiable
from ranktrial.position_bias.model import maximise


def log_of(seed: int, documents: int = 40, k: int = 6) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    shown = rng.poisson(6.0, (documents, k)).astype(float)
    shown[rng.random((documents, k)) < 0.3] = 0
    theta, zeta = 1 / np.arange(1, k + 1), rng.random(documents)
    return shown, rng.binomial(shown.astype(int), theta * zeta[:, None]).astype(float)


def em_twin(
    shown: FloatArray, clicked: FloatArray, theta: FloatArray, zeta: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    z = zeta[:, None]
    miss = 1 - theta * z
    examined = clicked + (shown - clicked) * theta * (1 - z) / miss
    relevant = clicked + (shown - clicked) * (1 - theta) * z / miss
    value = np.sum(clicked * np.log(theta * z) + (shown - clicked) * np.log(miss))
    next_zeta = np.clip(relevant.sum(1) / shown.sum(1), 1e-9, 1 - 1e-9)
    return examined.sum(0) / shown.sum(0), next_zeta, float(value)


def test_em_steps_equal_their_numpy_twin() -> None:
    shown, clicked = log_of(0)
    theta, zeta = np.linspace(1, 0.3, 6), np.full(40, 0.4)
    twin_theta, twin_zeta = theta, zeta
    for _ in range(50):
        theta, zeta, value = em_step(shown, clicked, theta, zeta)
        twin_theta, twin_zeta, twin_value = em_twin(shown, clicked, twin_theta, twin_zeta)
        np.testing.assert_allclose(theta, twin_theta, rtol=0, atol=1e-9)
        np.testing.assert_allclose(zeta, twin_zeta, rtol=0, atol=1e-9)
        assert value == pytest.approx(twin_value, rel=1e-12)
    assert theta[0] == 1.0


@pytest.mark.slow
def test_newton_ends_where_em_ends() -> None:
    shown, clicked = log_of(1)
    fast = EM().fit(Counts.from_dense(shown, clicked))
    theta, zeta = np.append(1.0, np.full(5, 0.5)), np.full(40, 0.5)
    for _ in range(30_000):
        theta, zeta, value = em_step(shown, clicked, theta, zeta)
    assert fast.converged
    np.testing.assert_allclose(fast.theta, theta, atol=1e-6)
    np.testing.assert_allclose(fast.zeta, zeta, atol=1e-4)  # type: ignore[arg-type]
    assert fast.log_likelihood == pytest.approx(value, abs=1e-5)


def test_the_likelihood_never_falls() -> None:
    shown, clicked = log_of(2)
    theta, zeta = np.append(1.0, np.full(5, 0.2)), np.full(40, 0.7)
    values = []
    for _ in range(100):
        theta, zeta, value = em_step(shown, clicked, theta, zeta)
        values.append(value)
    assert np.all(np.diff(values) >= -1e-9)


def test_profile_likelihood_has_the_best_relevance_and_the_right_derivatives() -> None:
    shown, clicked = log_of(3)
    theta = np.array([1.0, 0.6, 0.3, 0.3, 0.2, 0.1])

    def profile(log_theta: FloatArray) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        zeta = np.full(40, 0.5)
        value, gradient, information = em_kernels.profile_likelihood(shown, clicked, np.exp(log_theta), zeta)
        return value, gradient, information, zeta

    at = np.log(theta)
    value, gradient, information, zeta = profile(at)
    grid = np.linspace(1e-6, 1 - 1e-6, 2001)[:, None, None]
    by_zeta = np.sum(clicked * np.log(theta * grid) + (shown - clicked) * np.log(1 - theta * grid), axis=2)
    np.testing.assert_allclose(zeta, grid[np.argmax(by_zeta, 0), 0, 0], atol=6e-4)
    assert value == pytest.approx(float(by_zeta.max(0).sum()), abs=1e-2)
    step = 1e-5
    for r in range(1, 6):
        up, down = at.copy(), at.copy()
        up[r] += step
        down[r] -= step
        above, below = profile(up), profile(down)
        assert gradient[r] == pytest.approx((above[0] - below[0]) / (2 * step), rel=1e-5, abs=1e-5)
        np.testing.assert_allclose(information[r], -(above[1] - below[1]) / (2 * step), rtol=1e-4, atol=1e-4)


def test_conditional_equation_equals_its_numpy_twin() -> None:
    shown, clicked = log_of(4)
    theta = np.array([1.0, 0.6, 0.3, 0.3, 0.2, 0.1])
    value, gradient, information = _kernels.conditional_equation(shown, clicked, theta)
    exposed = shown * theta
    share = exposed / exposed.sum(1, keepdims=True)
    clicks = clicked.sum(1)
    expected = clicks[:, None] * share
    assert value == pytest.approx(np.sum(clicked * np.log(theta)) - clicks @ np.log(exposed.sum(1)), rel=1e-12)
    np.testing.assert_allclose(gradient, (clicked - expected).sum(0), atol=1e-9)
    np.testing.assert_allclose(information, np.diag(expected.sum(0)) - expected.T @ share, atol=1e-9)


def test_even_pairs_equal_their_numpy_twin() -> None:
    shown, clicked = log_of(5)
    pairs = _kernels.even_pairs(shown, clicked)
    for r in range(6):
        for s in range(6):
            both = (shown[:, r] > 0) & (shown[:, s] > 0) & (r != s)
            n, m, c, e = shown[both, r], shown[both, s], clicked[both, r], clicked[both, s]
            assert pairs[r, s] == pytest.approx(np.sum((2 * n * m / (n + m))[c + e > 0]), abs=1e-9)


def test_sums_by_unit_are_the_sums_of_their_rows() -> None:
    shown, clicked = log_of(7)
    theta, offsets = np.array([1.0, 0.6, 0.3, 0.3, 0.2, 0.1]), np.array([0, 1, 1, 15, 40])
    gradients, informations = _kernels.conditional_terms(shown, clicked, theta, offsets)
    for g in range(4):
        rows = slice(offsets[g], offsets[g + 1])
        _, gradient, information = _kernels.conditional_equation(shown[rows], clicked[rows], theta)
        np.testing.assert_array_equal(gradients[g], gradient)
        np.testing.assert_array_equal(informations[g], information)


def test_counting_equals_its_numpy_twin() -> None:
    rng = np.random.default_rng(6)
    rankings = np.array([rng.permutation(7)[:4] for _ in range(200)])
    rankings[:50, 3] = -1
    clicks = (rng.random((200, 4)) < 0.3) & (rankings >= 0)
    counts = Counts.from_impressions(rankings, clicks, n_documents=7)
    for d in range(7):
        np.testing.assert_array_equal(counts.shown[d], np.sum(rankings == d, 0))
        np.testing.assert_array_equal(counts.clicked[d], np.sum((rankings == d) & clicks, 0))


def test_affine_equations_equal_their_numpy_twin_and_have_the_right_derivatives() -> None:
    shown, clicked = log_of(7)
    shown[3], clicked[3] = 0.0, 0.0
    random = np.random.default_rng(8)
    instrument, a, b = random.normal(size=40), np.linspace(1, 0.3, 6), np.append(0.0, random.uniform(0, 0.1, 5))

    def left(a: FloatArray, b: FloatArray) -> FloatArray:
        examined = np.maximum(shown @ a, 1e-300)
        x = (clicked - shown * b).sum(1) / examined
        rest = clicked - shown * (a * x[:, None] + b)
        return np.stack([rest.sum(0), instrument @ rest])

    found, slopes = _kernels.affine_equations(shown, clicked, instrument, a, b)
    np.testing.assert_allclose(found, left(a, b), atol=1e-11)
    for rank, step in enumerate(np.eye(6) * 1e-6):
        by_a, by_b = (left(a + step, b) - left(a - step, b)), (left(a, b + step) - left(a, b - step))
        np.testing.assert_allclose(slopes[:, :, 0, rank], by_a / 2e-6, atol=1e-6)
        np.testing.assert_allclose(slopes[:, :, 1, rank], by_b / 2e-6, atol=1e-6)


def test_the_conditional_equation_at_many_thetas_is_that_at_each() -> None:
    """Also where a theta is 0 at a rank that was clicked: both leave it out, so that parts can be taken out of a whole."""
    shown, clicked = log_of(4)
    thetas = np.random.default_rng(4).uniform(0.1, 1, (5, 6))
    thetas[3, 2] = 0.0
    shown[:3, [0, 1, 3, 4, 5]] = 0.0  # some documents stood nowhere else
    clicked = np.minimum(clicked, shown)
    clicked[7] = 0.0
    together = _kernels.conditional_equations(shown, clicked, np.ascontiguousarray(thetas.T))
    for number, theta in enumerate(thetas):
        for whole, one in zip(together, _kernels.conditional_equation(shown, clicked, theta)):
            assert np.isfinite(one).all()
            np.testing.assert_allclose(whole[..., number], one, rtol=1e-12, atol=1e-12)


def test_links_of_ranks_are_those_of_even_pairs() -> None:
    shown, clicked = log_of(5, documents=8)
    exposed = shown * np.random.default_rng(5).uniform(0.5, 2, shown.shape)
    wins, pairs, at_rank = _kernels.count_links(shown, exposed, clicked)
    at_both = [
        [((exposed[:, r] > 0) & (exposed[:, s] > 0) & (clicked[:, r] > 0) & (r != s)).sum() for s in range(6)]
        for r in range(6)
    ]
    assert np.array_equal(wins, at_both)
    assert np.array_equal(pairs > 0, _kernels.even_pairs(exposed, clicked) > 0)
    ever = clicked.any(1)
    assert np.array_equal(at_rank, [(shown > 0).sum(0), (exposed[ever] > 0).sum(0), (clicked > 0).sum(0)])
    assert (wins == 0).any()


@pytest.mark.parametrize("personal", [False, True])
@pytest.mark.parametrize("given", ["shown", "design"])
def test_theta_without_each_part_is_that_of_the_rest(given: str, personal: bool) -> None:
    """One part has all clicks at the last rank. Documents are in most parts, or most of them in one part only."""
    parts = []
    for seed in range(4):
        shown, clicked = log_of(10 + seed)
        apart = (np.arange(40) % 4 == seed) != personal
        apart[:3] &= not personal
        shown[apart], clicked[apart] = 0, 0
        if seed != 2:
            clicked[:, -1] = 0
        expected = np.random.default_rng(seed).uniform(0.5, 2, shown.shape) * (
            shown + 0.1 * (shown.sum(1) > 0)[:, None]
        )
        parts.append(Counts.from_dense(shown, clicked, offsets=np.arange(41), expected=expected))
    total, estimator = Counts.merged(parts), Conditional(given)
    found = estimator.refits(total, parts, estimator.fit(total).theta)
    assert found[2, -1] == 0
    assert (2 * max(len(part.documents) for part in parts) < len(total.documents)) == personal
    for theta, part in zip(found, parts):
        np.testing.assert_allclose(theta, estimator.fit(total - part).theta, atol=1e-9)


def test_theta_without_a_part_that_alone_has_clicks_at_rank_1_is_refused() -> None:
    one = Counts.from_dense([[4, 4], [4, 4]], [[2, 1], [1, 1]])
    other = Counts.from_dense([[4, 4], [4, 4]], [[0, 1], [0, 2]])
    with pytest.raises(NotIdentifiable, match="rank 1"):
        Conditional().refits(Counts.merged([one, other]), [one, other], np.array([1.0, 0.5]))


def test_newton_halves_steps_that_go_too_far() -> None:
    """-log cosh(5 (u - 1)) of u = log theta has its maximum at u = 1; full steps from 0.4 go to 2.4 and back for ever."""

    def likelihood(theta: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        away = 5 * (np.log(theta) - 1)
        return float(-np.log(np.cosh(away)).sum()), -5 * np.tanh(away), np.diag(25 * np.cosh(away) ** -2.0)

    theta, _, _, converged = maximise(likelihood, np.exp([0.4]), np.array([True]), limit=100)
    assert converged
    assert theta == pytest.approx(np.exp([1.0]), rel=1e-9)
