from __future__ import annotations

import numpy as np

from ranktrial.interval import Interval


def test_an_interval_holds_the_numbers_between_its_ends() -> None:
    interval = Interval(-1.0, 2.0)
    inside = (-1, 0.5, 2.0, np.float64(2), np.float32(0.5), np.int64(1), True)
    outside = (-1.5, 2.01, float("nan"), float("inf"), "1", None)
    assert all(value in interval for value in inside)
    assert not any(value in interval for value in outside)
    assert 1e300 in Interval(0.0, float("inf"))


def test_an_interval_is_a_pair() -> None:
    interval = Interval.around(0.5, 1.5)
    low, high = interval
    assert interval == (low, high) == (-1.0, 2.0)
    assert (interval.middle, interval.half_width) == (0.5, 1.5)
    assert np.array([interval, interval]).shape == (2, 2)
    assert f"{interval} {interval:.0f}" == "-1.0000 to +2.0000 -1 to 2"
