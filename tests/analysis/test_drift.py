"""The test of change: against the likelihood ratio written out, then how often it alarms, with and without a change."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from ranktrial.analysis import Drift, asymptotic_sequence, estimate, position_scores
from ranktrial.analysis.drift import ENOUGH, FIRST, LAST, SIZES, _grid, _log_ratios
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.log import Log, UnitSums
from ranktrial.rankings import Mixture, Pair
from ranktrial.users import position_based


def values(rng: np.random.Generator, n: int, rate: float = 0.3) -> FloatArray:
    """Mostly 0, skewed, bounded by 4, as x of a trial; mean 0.25 * rate."""
    return np.where(
        rng.random(n) < rate, rng.choice([2, 1, 0.5, -1, -2, 4], n, p=[0.1, 0.25, 0.2, 0.3, 0.1, 0.05]), 0.0
    )


# --- the statistic --------------------------------------------------------------------------------------------------------


def ratio_written_out(x: FloatArray, phase: IntArray, before: int, points: IntArray) -> float:
    """L_t(N) for values of single impressions: D is the coefficient of "after" beside a mean per phase, by least squares."""
    n, after = len(x), np.arange(len(x)) >= before
    starts = np.concatenate([[0], points])
    known = np.array([x[: max(starts[np.searchsorted(points, i, side="right")], points[0])].mean() for i in range(n)])
    error = (x - known) ** 2
    s1, s2 = (max(error[part].mean(), error.mean()) for part in (~after, after))
    weights, moved, noise = [], [], []
    for h in np.unique(phase):
        one, two = x[(phase == h) & ~after], x[(phase == h) & after]
        if len(one) and len(two):
            weights.append(len(one) * len(two) / (len(one) + len(two)))
            moved.append(two.mean() - one.mean())
            noise.append(s1 / len(one) + s2 / len(two))
    w = np.array(weights) / sum(weights)
    d, v = float(w @ moved), float(w**2 @ noise)
    told = 0.0
    for size in SIZES:
        t = size * s1 / before
        told += math.sqrt(v / (v + t)) * math.exp(d**2 / 2 * t / (v * (v + t))) / len(SIZES)
    return told


@pytest.mark.parametrize("phases", [1, 3])
def test_likelihood_ratios_are_those_written_out(phases: int) -> None:
    rng = np.random.default_rng(1)
    x, phase = rng.normal(0.3, 1, 500), rng.integers(0, phases, 500)
    points = np.array([100, 200, 330, 500])
    found = np.exp(_log_ratios(UnitSums.of(x), points, phase))
    for look, at in product(range(4), range(4)):
        if at < look:
            expected = ratio_written_out(x[: points[look]], phase[: points[look]], points[at], points)
            assert found[look, at] == pytest.approx(expected)
        else:
            assert found[look, at] == 0


def test_a_normal_likelihood_ratio_has_mean_one() -> None:
    """Whatever the mean is: with T = 4 V at V = 2 both densities of D, integrated over the smaller."""
    v, t = 2.0, 8.0
    d = np.linspace(-30, 30, 200_001)
    density = np.exp(-(d**2) / (2 * v)) / math.sqrt(2 * math.pi * v)
    ratio = math.sqrt(v / (v + t)) * np.exp(d**2 / 2 * t / (v * (v + t)))
    assert (ratio * density).sum() * (d[1] - d[0]) == pytest.approx(1)


def test_p_is_one_over_the_highest_mean_of_the_ratios() -> None:
    x = values(np.random.default_rng(12), 1500) + np.where(np.arange(1500) < 1000, 0, 0.3)
    grid = _grid()
    points = np.append(grid[grid < 1500], 1500)
    ratios = np.exp(_log_ratios(UnitSums.of(x), points, np.zeros(1500, np.int64)))
    means = [(ratios[i].sum() + np.sum(grid >= n)) / len(grid) for i, n in enumerate(points)]
    assert 1e-6 < Drift.of(x).p < 0.5
    assert Drift.of(x).p == pytest.approx(1 / max(means), rel=1e-12)


def test_units_of_two_equal_impressions_are_as_good_as_their_means() -> None:
    x = values(np.random.default_rng(2), 3000) + np.where(np.arange(3000) < 2000, 0, 0.5)
    single = Drift.of(x)
    double = Drift.of(np.repeat(x, 2), np.repeat(np.arange(3000), 2))
    assert double.p == pytest.approx(single.p)
    assert (double.at, double.units, double.status) == (single.at, 3000, "fail")
    assert (double.before, double.after) == pytest.approx((single.before, single.after))


def test_shifting_and_scaling_change_nothing_but_the_means() -> None:
    x = values(np.random.default_rng(3), 3000) + np.where(np.arange(3000) < 2000, 0, 0.5)
    plain, other = Drift.of(x), Drift.of(7 - 3 * x)
    assert other.p == pytest.approx(plain.p, rel=1e-6)
    assert other.at == plain.at
    assert other.after == pytest.approx(7 - 3 * plain.after)


def test_a_later_report_knows_what_was_seen_before() -> None:
    """p never rises: a change that later values hide has been seen all the same."""
    x = values(np.random.default_rng(4), 30_000)
    x[5000:5250] += 0.6
    grid = [n for n in _grid().tolist() if 5000 < n <= 30_000]
    found = [Drift.of(x[:n]) for n in grid[::6]]
    assert np.all(np.diff([one.p for one in found]) <= 1e-12)
    assert {one.status for one in found[1:]} == {"fail"}
    last = Drift.of(x)
    assert last.status == "fail"
    assert not last.lasting
    assert last.between is not None
    assert last.between[0] <= 5000 <= last.between[1]
    assert "no longer shows" in last.text


# --- how often it alarms --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.3, 0.03])
def test_nothing_changes_and_hardly_any_run_alarms(rate: float) -> None:
    """p is valid at all looks at once: at most one run in 20 below 0.05, of which 4,000 units use up a part."""
    rng = np.random.default_rng(6)
    p = np.array([Drift.of(values(rng, 4000, rate)).p for _ in range(150)])
    assert np.mean(p < 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 150)
    assert np.sum(p < 0.001) == 0


def test_rankers_that_change_after_8000_impressions_are_noticed() -> None:
    rng = np.random.default_rng(7)
    x = rng.choice([0.0, 1.8, -1.6], 16_000, p=[0.7, 0.1415, 0.1585])
    x[8000:] -= 0.15
    found = Drift.of(x, times=np.arange(16_000) * 10.0, what="the difference")
    assert found.status == "fail"
    assert found.lasting
    assert found.between is not None
    assert found.between[0] <= 8000 <= found.between[1]
    assert found.at is not None
    assert found.since_time == found.at * 10
    assert found.before == pytest.approx(x[: found.at].mean())
    assert found.after == pytest.approx(x[found.at :].mean())
    assert found.after in found.since
    assert found.since.high < 0
    assert found.text.startswith(f"The difference changed after about {found.at:,} of 16,000 visitors")


def test_a_daily_rhythm_is_no_change_if_it_is_told_of() -> None:
    """Ten days of 1,000 impressions, clicked three times as often at noon as at midnight."""
    rng = np.random.default_rng(9)
    time = np.sort(rng.random(10_000)) * 10
    chance = 0.2 * (1 - 0.5 * np.cos(2 * np.pi * time))
    clicks = (rng.random(10_000) < chance).astype(float)
    assert Drift.of(clicks).changed
    assert Drift.of(clicks, times=time, period=1.0).status == "pass"
    # The difference between rankers has the rhythm in its spread, not in its mean.
    assert Drift.of(clicks * rng.choice([-2.0, 2.0], 10_000)).status == "pass"
    fewer = clicks * ((time < 5) | (rng.random(10_000) < 0.6))
    found = Drift.of(fewer, times=time, period=1.0)
    assert found.status == "fail"
    assert found.since_time == pytest.approx(5, abs=0.5)


def test_other_spread_alone_is_no_change() -> None:
    """As after a new design: the same mean, a third of the variance, or three times as much."""
    rng = np.random.default_rng(10)
    for factor in (1 / math.sqrt(3), math.sqrt(3)):
        runs = [rng.normal(size=4000) * np.where(np.arange(4000) < 2000, 1, factor) for _ in range(40)]
        assert min(Drift.of(x).p for x in runs) > 0.001


@pytest.mark.parametrize(
    "x", [np.zeros(5000), np.zeros(0), np.arange(50.0), np.where(np.arange(5000) % 200 == 0, 1.0, 0.0)]
)
def test_too_little_to_compare_is_unknown(x: FloatArray) -> None:
    found = Drift.of(x, what="the difference")
    assert found.status == "unknown"
    assert found.text.startswith("Too early to say whether the difference stays the same")


def test_the_grid_does_not_depend_on_the_number_of_units() -> None:
    grid = _grid()
    assert grid[0] == FIRST
    assert grid[-1] <= LAST
    assert np.all(grid[1:] / grid[:-1] < 1.04)
    assert ENOUGH >= 20


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="2 times for 3 units"):
        Drift.of([1.0, 2.0, 3.0], times=[1, 2])
    with pytest.raises(ValueError, match="period needs times"):
        Drift.of([1.0, 2.0, 3.0], period=1)
    with pytest.raises(ValueError, match=r"times have shape \(2,\), units \(3,\)"):
        Drift.of([1.0, 2.0, 3.0], ["a", "b", "a"], times=[1, 2])


def test_a_unit_counts_when_it_first_came() -> None:
    rng = np.random.default_rng(11)
    x = np.concatenate([values(rng, 2000), values(rng, 2000) + 0.5])
    units = np.concatenate([np.arange(2000), np.arange(2000, 4000)])
    late = np.append(units, np.zeros(1, int))
    found = Drift.of(np.append(x, 0.0), late, times=np.arange(4001.0))
    assert found.units == 4000
    assert found.since_time == found.at


# --- position bias --------------------------------------------------------------------------------------------------------

THETA = np.array([1.0, 0.5, 0.3])


def simulated(theta: FloatArray, n: int, seed: int, zeta: tuple[float, ...] = (0.6, 0.3, 0.2, 0.5, 0.1, 0.4)) -> Log:
    pair = Pair.from_lists([["x", "y", "z"], ["u", "v", "w"]], [["y", "z", "x"], ["w", "v", "u"]], k=3)
    even = Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), pair.n_documents)
    return Log.simulated(pair, even, position_based(zeta, theta), n, seed=seed)


@pytest.mark.parametrize("zeta", [(0.6, 0.3, 0.2, 0.5, 0.1, 0.4), (0.1, 0.9, 0.5, 0.2, 0.8, 0.3)])
def test_scores_of_position_bias_have_mean_zero_whatever_the_relevances(zeta: tuple[float, ...]) -> None:
    """Tilt with theta_r r^-0.1 in place of theta: 0.1 to first order."""
    for steeper in (0.0, 0.1):
        x = position_scores(simulated(THETA * np.arange(1, 4) ** -steeper, 40_000, 1, zeta), THETA).totals
        assert abs(x.mean() - steeper) < 4.5 * x.std() / 200 + 0.05 * steeper


def test_other_position_bias_is_noticed_and_other_relevances_are_not() -> None:
    first = position_scores(simulated(THETA, 8000, 2), THETA).totals
    other = position_scores(simulated(THETA, 8000, 3, (0.1, 0.9, 0.5, 0.2, 0.8, 0.3)), THETA).totals
    steeper = position_scores(simulated(np.array([1.0, 0.3, 0.15]), 8000, 4), THETA).totals
    assert Drift.of(np.concatenate([first, other])).status == "pass"
    assert Drift.of(np.concatenate([first, steeper])).status == "fail"


def test_a_log_in_which_nothing_moved_has_no_scores() -> None:
    pair = Pair.from_lists([["x", "y", "z"]], [["x", "y", "z"]], k=3)
    same = Mixture.of_tables([pair.top_a], (1.0,), pair.n_documents)
    log = Log.simulated(pair, same, position_based([0.6, 0.3, 0.2], THETA), 500, seed=5)
    assert not position_scores(log, THETA).totals.any()


# --- a trial --------------------------------------------------------------------------------------------------------------


def test_a_truth_that_reverses_halfway_is_told_and_the_time_since_judged_by_itself() -> None:
    """A's first result is better in the first half, B's in the second."""
    halves = [
        simulated(THETA, 6000, 6, zeta) for zeta in ((0.7, 0.3, 0.2, 0.6, 0.3, 0.2), (0.2, 0.7, 0.3, 0.2, 0.3, 0.7))
    ]
    x = np.concatenate([estimate(log, theta=THETA, estimator="ips").x for log in halves])
    band = asymptotic_sequence(x, np.arange(1, 12_001))
    decided = band.decided_at()
    assert decided is not None
    assert band.low[decided - 1] > 0
    assert band.last.low <= 0
    found = Drift.of(x, what="the difference")
    assert found.status == "fail"
    assert found.before > 0 > found.since.high
    assert found.between is not None
    assert found.between[0] <= 6000 <= found.between[1]
