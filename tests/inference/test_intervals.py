from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranktrial.arrays import FloatArray
from ranktrial.inference import asymptotic_radius, asymptotic_sequence, betting_sequence, fixed_interval
from ranktrial.inference._kernels import greatest_log_wealth, predictable_bets


def values(rng: np.random.Generator, n: int) -> FloatArray:
    """Skewed and mostly zero, as IPS values are: mean 0.1 * (2 - 0.5) = 0.15, bounded by 2."""
    return np.where(rng.random(n) < 0.1, 2.0, 0.0) - np.where(rng.random(n) < 0.1, 0.5, 0.0)


MEAN, BOUND = 0.15, 2.0


def test_a_fixed_interval_covers_at_a_fixed_number() -> None:
    rng = np.random.default_rng(0)
    runs = 2000
    inside = 0
    for _ in range(runs):
        low, high = fixed_interval(values(rng, 2000))
        inside += low < MEAN < high
    assert abs(inside / runs - 0.95) < 4.5 * np.sqrt(0.95 * 0.05 / runs)


@pytest.mark.parametrize("kind", ["asymptotic", "betting"])
def test_a_sequence_covers_at_all_looks_at_once(kind: str) -> None:
    """A fixed interval looked at 40 times misses far more often than 5 %; a sequence does not, at any of its looks."""
    rng = np.random.default_rng(1)
    points = np.unique(np.geomspace(50, 5000, 40).astype(int))
    runs = 300
    missed = peeked = 0
    for _ in range(runs):
        x = values(rng, 5000)
        if kind == "betting":
            band = betting_sequence(x, points, bound=BOUND, tolerance=1e-4)
        else:
            band = asymptotic_sequence(x, points, tightest_at=2000)
        missed += bool(np.any((band.low > MEAN) | (band.high < MEAN)))
        peeked += any(not low < MEAN < high for low, high in (fixed_interval(x[:n]) for n in points))
    assert missed / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    assert peeked / runs > 0.15


def test_looking_from_the_first_click_on_rules_nothing_out_too_early() -> None:
    """3 % of impressions have a click; a look at every impression from the first. An early spread of 0 must not count."""
    rng = np.random.default_rng(7)
    runs, missed = 200, 0
    points = np.arange(1, 1501)
    for _ in range(runs):
        x = np.where(rng.random(1500) < 0.03, rng.choice([2.0, -1.0], 1500, p=[0.7, 0.3]), 0.0)
        band = asymptotic_sequence(x, points)
        assert np.all(band.low <= band.high)
        assert np.all(np.isinf(band.low[:99]))
        missed += bool(np.any((band.low > 0.033) | (band.high < 0.033)))
    assert missed / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


def test_the_betting_sequence_is_about_as_tight_as_the_asymptotic() -> None:
    x = values(np.random.default_rng(2), 10_000)
    betting = betting_sequence(x, [10_000], bound=BOUND)
    asymptotic = asymptotic_sequence(x, [10_000])
    low, high = fixed_interval(x)
    for band in (betting, asymptotic):
        ratio = (band.high[0] - band.low[0]) / (high - low)
        assert 1.2 < ratio < 2.2


def test_the_asymptotic_radius_is_the_published_formula() -> None:
    n, sd, alpha, best = 5000.0, 1.7, 0.05, 10_000
    rho2 = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / best
    expected = sd * math.sqrt(2 * (n * rho2 + 1) / (n * n * rho2) * math.log(math.sqrt(n * rho2 + 1) / alpha))
    assert asymptotic_radius([n], [sd])[0] == pytest.approx(expected)
    fixed = 1.96 / np.sqrt([1e3, 1e4, 1e5])
    ratios = asymptotic_radius([1e3, 1e4, 1e5], [1.0, 1.0, 1.0]) / fixed
    assert ratios[1] == ratios.min()


def test_ends_never_move_back() -> None:
    x = values(np.random.default_rng(3), 3000)
    points = np.arange(100, 3001, 100)
    for band in (asymptotic_sequence(x, points), betting_sequence(x, points, bound=BOUND, tolerance=1e-4)):
        assert np.all(np.diff(band.low) >= 0)
        assert np.all(np.diff(band.high) <= 0)


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=30))
def test_wealth_agrees_with_a_plain_bookkeeper_and_is_monotone(x: list[float]) -> None:
    y = (np.array(x) + BOUND) / (2 * BOUND)
    bets = predictable_bets(y, 0.05)
    for above in (True, False):
        last = None
        for mean in np.linspace(0.05, 0.95, 10):
            wealth, best = 1.0, 1.0
            for value, bet in zip(y, bets):
                stake = min(bet, 0.5 / (mean if above else 1 - mean))
                wealth *= 1 + stake * ((value - mean) if above else (mean - value))
                best = max(best, wealth)
            found = greatest_log_wealth(y, bets, mean, above)
            assert found == pytest.approx(math.log(best), abs=1e-9)
            if last is not None:
                assert found <= last + 1e-12 if above else found >= last - 1e-12
            last = found


def test_bets_do_not_look_ahead() -> None:
    x = values(np.random.default_rng(4), 200)
    y = (x + BOUND) / (2 * BOUND)
    changed = y.copy()
    changed[100:] = 1 - changed[100:]
    assert np.array_equal(predictable_bets(y, 0.05)[:101], predictable_bets(changed, 0.05)[:101])


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_a_large_mean_does_not_spoil_the_spread(shift: float) -> None:
    x = values(np.random.default_rng(5), 1000)
    plain, moved = asymptotic_sequence(x, [1000]), asymptotic_sequence(x + shift, [1000])
    assert moved.high[0] - moved.low[0] == pytest.approx(plain.high[0] - plain.low[0], rel=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fixed_interval([1.0]), "needs at least 2"),
        (lambda: fixed_interval([1.0, float("nan")]), r"values\[1\] is nan"),
        (lambda: fixed_interval([[1.0]]), "2 dimensions"),
        (lambda: asymptotic_sequence([1.0, 2.0], [3]), "the last checkpoint is 3, but there are 2 values"),
        (lambda: betting_sequence([1.0, 3.0], [2], bound=2), "value 1 is 3, beyond the bound 2"),
        (lambda: betting_sequence([1.0, 1.0], [2], bound=0), "bound is 0, must be positive"),
        (lambda: betting_sequence([1.0, 1.0], [2], bound=2, level=1), "level is 1"),
    ],
)
def test_bad_input_is_refused(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()
