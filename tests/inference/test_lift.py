"""Lift in per cent: its interval is that of means, turned over; checked value by value against the sequence itself."""

from __future__ import annotations

import numpy as np
import pytest

from ranktrial.inference.intervals import asymptotic_sequence
from ranktrial.inference.lift import lift
from ranktrial.inference.units import UnitSums
from ranktrial.interval import Interval


def clicks_of(seed: int, n: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clicks that A and that B would get on each impression, which go together, and whose impression it is."""
    random = np.random.default_rng(seed)
    common = random.random(n) < 0.2
    a, b = ((common | (random.random(n) < chance)).astype(float) for chance in (0.1, 0.2))
    return a, b, random.integers(0, n // 2, n)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_lift_is_inside_where_the_sequence_of_its_own_values_holds_zero(seed: int) -> None:
    a, b, units = clicks_of(seed)
    e, m = UnitSums.of(b - a, units), UnitSums.of((a + b) / 2, units)
    last = asymptotic_sequence(e, [len(e)]).last
    found = lift(last, e, m)
    assert found.share == pytest.approx(b.mean() / a.mean() - 1)
    assert found.interval.low < found.share < found.interval.high

    def holds_zero(share: float) -> bool:
        values = (1 + share / 2) * (b - a) - share * (a + b) / 2
        return 0 in asymptotic_sequence(UnitSums.of(values, units), [len(e)]).last

    for end, inward in ((found.interval.low, 1e-6), (found.interval.high, -1e-6)):
        assert holds_zero(end + inward)
        assert not holds_zero(end - inward)


def test_the_other_way_round_is_the_inverse() -> None:
    a, b, units = clicks_of(3)
    e, m = UnitSums.of(b - a, units), UnitSums.of((a + b) / 2, units)
    low, high = asymptotic_sequence(e, [len(e)]).last
    of_b, of_a = lift(Interval(low, high), e, m), lift(Interval(-high, -low), UnitSums.of(a - b, units), m)
    assert (1 + of_b.share) * (1 + of_a.share) == pytest.approx(1)
    assert (1 + of_b.interval.low) * (1 + of_a.interval.high) == pytest.approx(1)
    assert (1 + of_b.interval.high) * (1 + of_a.interval.low) == pytest.approx(1)


def test_clicks_may_be_known_from_fewer_units() -> None:
    """As if the others had given the mean: they tell nothing of it."""
    a, b, units = clicks_of(4)
    plain = np.isin(units, np.arange(500))
    e, m = UnitSums.of(b - a, units), UnitSums.of((a + b)[plain] / 2, units[plain])
    last = asymptotic_sequence(e, [len(e)]).last
    fewer = lift(last, e, m)
    filled = m.mean + np.where(plain, (a + b) / 2 - m.mean, 0.0) * len(units) / plain.sum()
    whole = lift(last, e, UnitSums.of(filled, units))
    assert fewer.share == pytest.approx(whole.share)
    assert fewer.interval == pytest.approx(whole.interval, abs=1e-3)


def test_nothing_is_said_of_a_share_of_nothing() -> None:
    e, none = UnitSums.of([0.1, 0.0] * 50), UnitSums.of([0.0] * 100)
    assert lift(Interval(-0.1, 0.2), e, none).interval == (-np.inf, np.inf)
    assert np.isnan(lift(Interval(-np.inf, np.inf), e, UnitSums.of([1.0] * 100)).share)
    rare = UnitSums.of([1.0] + [0.0] * 99)  # one click: it may be none
    assert lift(Interval(-0.02, 0.03), e, rare).interval == (-np.inf, np.inf)


def test_it_covers_the_truth() -> None:
    """A nominal 95 % at any time covers more at one time; of 200 runs none to three miss."""
    missed = 0
    for seed in range(200):
        a, b, units = clicks_of(100 + seed, 1000)
        e, m = UnitSums.of(b - a, units), UnitSums.of((a + b) / 2, units)
        truth = (0.2 + 0.8 * 0.2) / (0.2 + 0.8 * 0.1) - 1
        missed += truth not in lift(asymptotic_sequence(e, [len(e)]).last, e, m).interval
    assert missed <= 3
