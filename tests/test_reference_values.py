"""Numbers of other packages for the same data, as they gave them: docs/research/checked-against-others.md says how."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from ranktrial import Log, Pair, estimate, estimate_ab
from ranktrial.analysis import asymptotic_radius
from ranktrial.analysis.discoveries import log_evidence
from ranktrial.formats import examine
from ranktrial.interval import Interval
from ranktrial.methods import Balanced, Optimized
from ranktrial.rankings import Mixture

# gbstats 0.8.0, SequentialTwoSidedTTest with difference_type="absolute": tuning parameter, alpha, searches of both groups,
# variance of the difference, its value, and the interval.
GBSTATS = [
    (5000, 0.05, 6868, 0.015570954712186877, 0.29, -0.08941009553834556, 0.6694100955383455),
    (500, 0.05, 6868, 0.015570954712186877, 0.29, -0.1198933811959475, 0.6998933811959475),
    (1000, 0.1, 820, 0.0008548104956268223, 0.057142857142857106, -0.023811176922685737, 0.13809689120839996),
]
# confseq 0.0.11, two-sided normal mixture with alpha_opt = alpha: units, tightest_at, alpha and the boundary of their sum; a
# sum, and the logarithm of the e-value that it has.
CONFSEQ = [
    (10_000, 10_000, 0.05, 303.52089903762527, 300.0, 2.901375010405019),
    (6_868, 5_000, 0.05, 251.9801934983101, 248.62019225317473, 2.883568254930558),
    (500, 10_000, 0.05, 105.51542955311444, 67.0820393249937, 1.1112736243108305),
    (2_000, 800, 0.1, 125.67678091608282, -200.0, 7.994197423757866),
]
# obp 0.4.1, on the log that it comes with (random policy, all items): 10,000 impressions of one of 80 items. "Always item 49"
# less "always item 53", which were shown 114 and 105 times, with 3 and 2 clicks.
OBP = {"ips": 0.008, "self-normalised": 0.00726817042606516, "doubly-robust": 0.007712000000000014}
# github.com/mpkato/interleaving, tests/test_optimized.py and test_balanced.py: lists 1 2 and 2 3, two results a page.
MPKATO_OPTIMIZED = {(0, 1): 0.4285714273469387, (1, 0): 0.37142857025306114, (1, 2): 0.20000000240000002}
MPKATO_BALANCED: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {
    (0, 1): {(0, 1): 0, (0,): 1, (1,): -1, (): 0},
    (1, 0): {(0, 1): 0, (0,): -1, (1,): 1, (): 0},
}
# tea-tasting 1.14.0, SampleRatio(1, method="norm", correction=False): searches of both groups, and the p-value.
TEA_TASTING = [(5061, 4939, 0.22246487489566913), (5200, 4800, 6.334248366623973e-05)]


@pytest.mark.parametrize(("tightest_at", "alpha", "units", "variance", "difference", "low", "high"), GBSTATS)
def test_the_asymptotic_sequence_is_that_of_gbstats(
    tightest_at: float, alpha: float, units: int, variance: float, difference: float, low: float, high: float
) -> None:
    radius = asymptotic_radius(units, np.sqrt(variance * units), level=1 - alpha, tightest_at=tightest_at)
    np.testing.assert_allclose([difference - radius, difference + radius], [low, high], rtol=1e-12)


@pytest.mark.parametrize(("units", "tightest_at", "alpha", "bound", "total", "log_e"), CONFSEQ)
def test_the_boundary_and_the_e_value_are_those_of_confseq(
    units: int, tightest_at: int, alpha: float, bound: float, total: float, log_e: float
) -> None:
    (radius,) = asymptotic_radius([units], [1.0], level=1 - alpha, tightest_at=tightest_at)
    assert radius * units == pytest.approx(bound, rel=1e-12)
    error = 1 / np.sqrt(units)  # of a mean of values with variance 1
    found = SimpleNamespace(
        sums=SimpleNamespace(standard_error=error), inflation=lambda level: 1.0, units=units, delta=total / units,
        bias_bound=0.0, anytime_interval=lambda level, tightest_at: Interval(-1.0, 1.0),
    )  # fmt: skip
    found_log_e = log_evidence(found, tightest_at=tightest_at, level=1 - alpha)  # type: ignore[arg-type]
    assert found_log_e == pytest.approx(log_e, rel=1e-9)


@pytest.mark.parametrize("estimator", OBP)
def test_estimates_from_a_random_log_are_those_of_obp(estimator: str) -> None:
    pair = Pair.from_lists([range(80)], [[1, 0, *range(2, 80)]], k=1).knowing(theta=[1.0])
    every = Mixture(np.arange(80, dtype=np.int32)[:, None], np.full(80, 1 / 80), np.array([0, 80]), 80)
    shown = np.repeat([0, 1, 2], [114, 105, 10_000 - 114 - 105])
    clicked = np.isin(np.arange(10_000), [0, 1, 2, 114, 115])
    log = Log.of(pair, every, shown[:, None], clicked[:, None])
    prediction = {"prediction": 0.004} if estimator == "doubly-robust" else {}
    found = estimate(log, estimator=estimator, **prediction)  # type: ignore[arg-type]
    assert found.delta == pytest.approx(OBP[estimator], rel=1e-10)


def test_interleaving_is_that_of_mpkato() -> None:
    pair = Pair.from_lists([["1", "2"]], [["2", "3"]], k=2)
    shown = {one.documents: one.probability for one in Optimized().displays(pair).of_query(0)}
    assert shown == pytest.approx(MPKATO_OPTIMIZED, abs=1e-7)
    displays = Balanced().displays(pair)
    for row, display in enumerate(displays.of_query(0)):
        for clicks, winner in MPKATO_BALANCED[display.documents].items():
            assert np.sign(displays.value_of(row, [rank in clicks for rank in range(2)])) == winner


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
