"""Distributions against SciPy's, and against what is known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, special, stats

from ranktrial.distributions import (
    beta_quantile,
    find_root,
    noncentral_t_tail,
    normal_cdf,
    normal_density,
    normal_quantile,
    normal_quantiles,
    t_quantile,
)

LEVELS = [0.5, 0.8, 0.95, 0.975, 0.99, 0.9995, 1 - 1e-6]


def test_normal() -> None:
    x = np.linspace(-20, 9, 400)
    np.testing.assert_allclose(normal_cdf(x), stats.norm.cdf(x), rtol=1e-13)
    np.testing.assert_allclose(normal_density(x), stats.norm.pdf(x), rtol=1e-13)
    p = np.concatenate([np.geomspace(1e-300, 0.4, 50), np.linspace(0.4, 1 - 1e-12, 50)])
    np.testing.assert_allclose(normal_quantiles(p), special.ndtri(p), rtol=1e-13)
    assert [normal_quantile(p) for p in (0.0, 0.5, 1.0)] == [-math.inf, 0.0, math.inf]


@pytest.mark.parametrize("freedom", [1, 1.2, 2, 3.7, 9, 19, 100, 999.5, 1000.5, 4_000, 1e6, 1e12, math.inf])
def test_t_quantile(freedom: float) -> None:
    for p in [*LEVELS, *(1 - level for level in LEVELS)]:
        # SciPy itself gives 10 digits of far quantiles.
        assert t_quantile(p, freedom) == pytest.approx(stats.t.ppf(p, freedom), rel=1e-10, abs=1e-15), p
    assert t_quantile(0.75, freedom) == -t_quantile(0.25, freedom)


def test_t_quantile_in_closed_form() -> None:
    for p in LEVELS[1:]:
        assert t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-11)
        assert t_quantile(p, 2) == pytest.approx((2 * p - 1) / math.sqrt(2 * p * (1 - p)), rel=1e-11)
    assert math.isnan(t_quantile(0.975, math.nan))


@pytest.mark.parametrize(
    ("a", "b"), [(0.02, 0.3), (0.5, 0.5), (1, 1), (2, 5), (30, 400), (0.4, 9_000), (3_000, 20_000)]
)
def test_beta_quantile(a: float, b: float) -> None:
    p = (np.arange(200) + 0.5) / 200
    # By what the other implementation says of the answer: quantiles themselves may be 1e-200.
    np.testing.assert_allclose(stats.beta.cdf(beta_quantile(p, a, b), a, b), p, rtol=1e-11)


def test_noncentral_t() -> None:
    for freedom in (9, 19, 60):
        for away in (0.0, 1.5, 3.0, 6.0):
            tail = stats.nct.sf(2.1, freedom, away)
            assert noncentral_t_tail(2.1, freedom, away) == pytest.approx(tail, rel=1e-10)


@pytest.mark.parametrize("xtol", [2e-12, 1e-4])
def test_the_root_is_scipys(xtol: float) -> None:
    """The same steps, so that what is rounded up from a coarse root is the same too."""
    for function, low, high in [
        (lambda x: math.exp(x) - 5, -3.0, 8.0),
        (lambda x: math.tanh(30 * (x - 0.123)), -1.0, 1.0),
        (lambda x: x**3 - 2 * x - 5, -1.0, 3.0),
        (lambda x: 1.0 if x > 0.3 else -1.0, 0.0, 1.0),
    ]:
        assert find_root(function, low, high, xtol=xtol) == optimize.brentq(function, low, high, xtol=xtol)
    assert find_root(lambda x: x, 0.0, 1.0) == 0.0
    with pytest.raises(ValueError, match="must change its sign"):
        find_root(lambda x: x * x + 1, -1.0, 1.0)
