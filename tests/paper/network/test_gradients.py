from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from benchmarks._policies import Problem, exposure_gradient, low_noise_gradient, paper_gradient
from hypothesis import given
from hypothesis import strategies as st

from ranktrial._kernels import uniform
from ranktrial.arrays import FloatArray
from ranktrial.paper.network import _gradient_kernels as kernels
from ranktrial.rankings import PlackettLuce
from ranktrial.rankings.plackett_luce import log_probability
from ranktrial.seeds import kernel_state
from ranktrial.users import rank_decay


def problem(n: int, k: int, *, spread: float = 1.0, seed: int = 0, theta: FloatArray | None = None) -> Problem:
    """Two random rankings to compare, random relevance, random scores."""
    random = np.random.default_rng(seed)
    theta = rank_decay(k) if theta is None else theta
    lam = np.zeros(n)
    top = min(k, n)
    lam[random.permutation(n)[:top]] += theta[:top]
    lam[random.permutation(n)[:top]] -= theta[:top]
    zeta = 0.1 + 0.225 * random.integers(0, 4, n).astype(np.float64)
    return Problem(spread * random.standard_normal(n), theta, zeta, lam)


def enumerated_variance(p: Problem, delta: float) -> float:
    """E[(x - delta)^2], the paper's Eq. ipsvariance to the letter: over every ranking and every click pattern."""
    n, k = len(p.scores), min(len(p.theta), len(p.scores))
    rankings = list(itertools.permutations(range(n), k))
    chances = [np.exp(log_probability(p.scores, ranking)) for ranking in rankings]
    rho = np.zeros(n)
    for ranking, chance in zip(rankings, chances):
        rho[list(ranking)] += chance * p.theta[:k]
    total = 0.0
    for ranking, chance in zip(rankings, chances):
        for clicks in itertools.product([0, 1], repeat=k):
            likely = [t * p.zeta[d] if c else 1 - t * p.zeta[d] for t, d, c in zip(p.theta, ranking, clicks)]
            x = sum(p.lam[d] / rho[d] for d, c in zip(ranking, clicks) if c)
            total += chance * float(np.prod(likely)) * (x - delta) ** 2
    return total


def differences(p: Problem, delta: float, h: float = 1e-4) -> FloatArray:
    def at(scores: FloatArray) -> float:
        return enumerated_variance(p._replace(scores=scores), delta)

    return np.array([(at(p.scores + h * e) - at(p.scores - h * e)) / (2 * h) for e in np.eye(len(p.scores))])


CASES = [
    problem(4, 2),
    problem(4, 4, seed=1),
    problem(5, 3, seed=2),
    problem(5, 3, spread=3.0, seed=3),
    problem(5, 3, seed=4, theta=np.array([0.6, 1.0, 0.0])),
    problem(3, 5, seed=5),
]


# --- the objective --------------------------------------------------------------------------------------------------------


def test_delta_moves_the_variance_but_not_its_gradient() -> None:
    np.testing.assert_allclose(differences(CASES[2], 0.0), differences(CASES[2], 0.7), atol=1e-6)


# --- unbiased -------------------------------------------------------------------------------------------------------------


def assert_mean_is(truth: FloatArray, draw: Callable[[int], FloatArray], repeats: int) -> None:
    drawn = np.array([draw(seed) for seed in range(repeats)])
    error = drawn.std(0, ddof=1) / np.sqrt(repeats)
    assert np.all(np.abs(drawn.mean(0) - truth) < 5 * error + 1e-7)


@pytest.mark.parametrize("case", CASES)
def test_low_noise_gradient_has_the_mean_of_the_enumerated_one(case: Problem) -> None:
    assert_mean_is(differences(case, 0.0), lambda seed: low_noise_gradient(case, 50, seed), 4000)


@pytest.mark.parametrize("case", CASES)
def test_paper_gradient_has_the_mean_of_the_enumerated_one(case: Problem) -> None:
    """Up to the bias of order 1 / samples that estimating rho from the same rankings brings."""
    delta = 0.1
    assert_mean_is(differences(case, delta), lambda seed: paper_gradient(case, delta, 10_000, seed), 100)


# --- the kernels and their plain twins ------------------------------------------------------------------------------------


def drawn_rankings(
    p: Problem, samples: int, seed: int
) -> tuple[list[list[int]], np.ndarray[tuple[int], np.dtype[np.uint64]]]:
    """The rankings a kernel will see, and the state of its generator after drawing them."""
    state = kernel_state(seed)
    k = min(len(p.theta), len(p.scores))
    rankings, _, order, _ = kernels._draw(p.scores, k, samples, state)
    return order[rankings].tolist(), state


def shares(p: Problem, above: list[int]) -> FloatArray:
    """pi(d | what stands above)."""
    weights = np.exp(p.scores - p.scores.max())
    weights[above] = 0
    result: FloatArray = weights / weights.sum()
    return result


def by_log_probability(p: Problem, ranking: list[int]) -> FloatArray:
    """Gradient of the logarithm of P(ranking) by the scores: sum over ranks of 1[d chosen] - P(d chosen | those above)."""
    gradient = np.zeros(len(p.scores))
    for x, document in enumerate(ranking):
        gradient += np.eye(len(p.scores))[document] - shares(p, ranking[:x])
    return gradient


def plain_paper_gradient(p: Problem, delta: float, samples: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Mean freq-grad and mean error-grad as Section 4 writes them, with the whole Jacobian of rho."""
    n, k = len(p.scores), min(len(p.theta), len(p.scores))
    rankings, state = drawn_rankings(p, samples, seed)
    rho, jacobian = np.zeros(n), np.zeros((n, n))
    for ranking in rankings:
        for x in range(k):
            pi = shares(p, ranking[:x])
            rho += p.theta[x] * pi / samples
            by_pi = np.diag(pi) - np.outer(pi, pi)
            by_past = np.outer(pi, by_log_probability(p, ranking[:x]))
            jacobian += p.theta[x] * (by_pi + by_past) / samples
    frequency, error = np.zeros(n), np.zeros(n)
    for ranking in rankings:
        clicked = [d for x, d in enumerate(ranking) if uniform(state) < p.theta[x] * p.zeta[d]]
        x_value = sum(p.lam[d] / rho[d] for d in clicked)
        frequency += (delta - x_value) ** 2 * by_log_probability(p, ranking) / samples
        for d in clicked:
            error += 2 * (delta - x_value) * p.lam[d] / rho[d] ** 2 * jacobian[d] / samples
    return frequency, error


def plain_low_noise_gradient(p: Problem, samples: int, seed: int) -> FloatArray:
    n, k = len(p.scores), min(len(p.theta), len(p.scores))
    rankings, _ = drawn_rankings(p, samples, seed)
    rho = PlackettLuce(p.scores, np.array([0, n]), len(p.theta)).exposure(p.theta)
    g = p.zeta * p.lam / rho
    weights = -p.zeta * p.lam**2 / rho**2
    later = np.zeros((samples, k))
    score = np.zeros((samples, k, n))
    for m, ranking in enumerate(rankings):
        a = p.theta[:k] * g[ranking]
        for x in range(k):
            weights[ranking[x]] -= 2 * a[x] * (a.sum() - a[x]) / rho[ranking[x]] / samples
            later[m, x] = sum(2 * a[y] * a[:y].sum() for y in range(x, k))
            score[m, x] = np.eye(n)[ranking[x]] - shares(p, ranking[:x])
    others = (later.sum(0) - later) / (samples - 1)
    cross: FloatArray = np.einsum("mx,mxd->d", later - others, score) / samples
    return exposure_gradient(p.scores, p.theta, weights) + cross


TWINS = [*CASES, problem(24, 10, seed=6), problem(30, 4, spread=6.0, seed=7)]


@pytest.mark.parametrize("case", TWINS)
def test_paper_kernel_agrees_with_its_plain_twin(case: Problem) -> None:
    frequency, error = plain_paper_gradient(case, 0.1, 30, seed=8)
    scale = np.abs(frequency).max() + np.abs(error).max()
    np.testing.assert_allclose(paper_gradient(case, 0.1, 30, seed=8), frequency + error, rtol=1e-9, atol=1e-10 * scale)
    np.testing.assert_allclose(
        paper_gradient(case, 0.1, 30, seed=8, authors_scaling=True),
        frequency / 30 + error / len(case.scores),
        rtol=1e-9,
        atol=1e-10 * scale,
    )


@pytest.mark.parametrize("case", TWINS)
def test_low_noise_kernel_agrees_with_its_plain_twin(case: Problem) -> None:
    expected = plain_low_noise_gradient(case, 30, seed=8)
    gradient = low_noise_gradient(case, 30, seed=8)
    np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())


# --- properties -----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.integers(1, 6), st.sampled_from([0.0, 1.0, 10.0]), st.integers(0, 99))
def test_gradients_are_orthogonal_to_a_shift_and_repeat_with_the_seed(n: int, k: int, spread: float, seed: int) -> None:
    case = problem(n, k, spread=spread, seed=seed)
    for draw in (
        partial(paper_gradient, case, 0.1, 20, seed),
        partial(low_noise_gradient, case, 20, seed),
    ):
        gradient = draw()
        assert gradient.shape == (n,)
        assert abs(gradient.sum()) <= 1e-7 * (1 + np.abs(gradient).sum())
        assert np.array_equal(gradient, draw())


def test_nothing_to_gain_where_both_rankers_agree() -> None:
    case = problem(6, 3)._replace(lam=np.zeros(6))
    assert not low_noise_gradient(case, 10, seed=1).any()
    assert not paper_gradient(case, 0.0, 10, seed=1).any()


@pytest.mark.parametrize("spread", [50.0, 1e4])
def test_extreme_scores_give_finite_gradients(spread: float) -> None:
    case = problem(20, 5, spread=spread, seed=3)
    assert np.all(np.isfinite(low_noise_gradient(case, 50, seed=1)))
    assert np.all(np.isfinite(paper_gradient(case, 0.1, 50, seed=1)))


@pytest.mark.parametrize("n", [24, 120])
def test_low_noise_gradient_is_far_less_noisy_at_equal_samples(n: int) -> None:
    case = problem(n, 10, spread=0.0, seed=n)
    paper = np.array([paper_gradient(case, 0.0, 200, seed) for seed in range(60)])
    low = np.array([low_noise_gradient(case, 200, seed) for seed in range(60)])
    assert low.var(0).sum() < paper.var(0).sum() / 50
    np.testing.assert_allclose(low.mean(0), paper.mean(0), atol=5 * np.sqrt(paper.var(0).max() / 60) + 1e-9)
