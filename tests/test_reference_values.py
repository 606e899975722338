"""Numbers of other packages for the same data, as they gave them: docs/research/checked-against-others.md says how."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ranktrial import estimate_ab
from ranktrial.analysis import asymptotic_radius
from ranktrial.formats import examine

# gbstats 0.8.0, SequentialTwoSidedTTest with difference_type="absolute": tuning parameter, alpha, searches of both groups,
# variance of the difference, its value, and the interval.
GBSTATS = [
    (5000, 0.05, 6868, 0.015570954712186877, 0.29, -0.08941009553834556, 0.6694100955383455),
    (500, 0.05, 6868, 0.015570954712186877, 0.29, -0.1198933811959475, 0.6998933811959475),
    (1000, 0.1, 820, 0.0020752785475451328, 0.05714285714285716, -0.06899393168774284, 0.18327964597345717),
]
# tea-tasting 1.14.0, SampleRatio(1, method="norm", correction=False): searches of both groups, and the p-value.
TEA_TASTING = [(5061, 4939, 0.22246487489566913), (5200, 4800, 6.334248366623973e-05)]


@pytest.mark.parametrize(("tightest_at", "alpha", "units", "variance", "difference", "low", "high"), GBSTATS)
def test_the_asymptotic_sequence_is_that_of_gbstats(
    tightest_at: float, alpha: float, units: int, variance: float, difference: float, low: float, high: float
) -> None:
    radius = asymptotic_radius(units, np.sqrt(variance * units), level=1 - alpha, tightest_at=tightest_at)
    np.testing.assert_allclose([difference - radius, difference + radius], [low, high], rtol=1e-12)


@pytest.mark.parametrize(("of_a", "of_b", "p"), TEA_TASTING)
def test_the_check_of_the_split_is_that_of_tea_tasting(of_a: int, of_b: int, p: float) -> None:
    search = {"query": "q", "a": ["x", "y"], "b": ["y", "x"]}
    arms = [{**search, "shown": search[arm], "clicked": [search[arm][0]]} for arm in "ab"]
    found = examine(pd.DataFrame([arms[0]] * of_a + [arms[1]] * of_b)).findings
    (split,) = (one for one in found if one.name == "A/B traffic")
    assert f"(p = {p:.2g})" in split.text
    assert split.status == ("fail" if p < 1e-4 else "pass")


def test_the_difference_of_means_is_that_of_tea_tasting() -> None:
    """tea-tasting 1.14.0, Mean with Welch's t-test; ours divides variances by n, not by n - 1."""
    in_group = [at % 2 == 1 for at in range(1000)]
    clicks = [(at * 7919 % 13) // 5 + (at % 6 == 3) for at in range(1000)]
    found = estimate_ab(in_group, clicks, estimator="means")
    assert found.delta == pytest.approx(0.33599999999999997, rel=1e-12)
    interval = found.confidence_interval()
    assert list(interval) == pytest.approx([0.23193433095866228, 0.44006566904133765], abs=2e-4)
