from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ranktrial.analysis.drift import Drift
from ranktrial.analysis.intervals import (
    Band,
    asymptotic_radius,
    asymptotic_sequence,
    betting_sequence,
    difference_values,
    fixed_interval,
    looks,
    refuted_after,
)
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.log._kernels import NEVER, predictable_bets, refuted_at
from ranktrial.log.units import Cohorts, Units, UnitSums


def values(rng: np.random.Generator, n: int) -> FloatArray:
    """Skewed and mostly zero, as IPS values are: mean 0.1 * (2 - 0.5) = 0.15, bounded by 2."""
    return np.where(rng.random(n) < 0.1, 2.0, 0.0) - np.where(rng.random(n) < 0.1, 0.5, 0.0)


MEAN, BOUND = 0.15, 2.0


@pytest.mark.parametrize("kind", ["i8", "u8", "i4", "U8"])
def test_units_are_numbered_as_they_come(kind: str) -> None:
    random = np.random.default_rng(1)
    for n in (0, 1, 7, 3_000):
        names = random.choice([0, 1, -1, 5, 2**40, -(2**62), *range(100, 900)], n).astype(kind)
        units, order = Units.of(names), list(dict.fromkeys(names.tolist()))
        assert units.names.tolist() == order
        assert units.place.tolist() == [order.index(name) for name in names.tolist()]
        assert units.first.tolist() == [names.tolist().index(name) for name in order]


def test_a_fixed_interval_covers_at_a_fixed_number() -> None:
    rng = np.random.default_rng(0)
    runs = 2000
    inside = 0
    for _ in range(runs):
        low, high = fixed_interval(values(rng, 2000))
        inside += low < MEAN < high
    assert abs(inside / runs - 0.95) < 4.5 * np.sqrt(0.95 * 0.05 / runs)


@pytest.mark.slow
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
    """Values ruled out on the way stay ruled out, so single runs differ: the mean of 20."""
    rng = np.random.default_rng(2)
    ratios = []
    for _ in range(20):
        x = values(rng, 5000)
        low, high = fixed_interval(x)
        bands = (
            betting_sequence(x, [5000], bound=BOUND, tightest_at=5000, tolerance=1e-4),
            asymptotic_sequence(x, [5000], tightest_at=5000),
        )
        ratios.append([(band.high[0] - band.low[0]) / (high - low) for band in bands])
    betting, asymptotic = np.mean(ratios, axis=0)
    assert 1.3 < asymptotic < 1.7
    assert 1.2 < betting < 1.6


def test_the_asymptotic_radius_is_the_published_formula() -> None:
    n, sd, alpha, best = 5000.0, 1.7, 0.05, 10_000
    rho2 = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / best
    expected = sd * math.sqrt(2 * (n * rho2 + 1) / (n * n * rho2) * math.log(math.sqrt(n * rho2 + 1) / alpha))
    assert asymptotic_radius([n], [sd])[0] == pytest.approx(expected)
    fixed = 1.96 / np.sqrt([1e3, 1e4, 1e5])
    ratios = asymptotic_radius([1e3, 1e4, 1e5], [1.0, 1.0, 1.0]) / fixed
    assert ratios[1] == ratios.min()


def drifting() -> FloatArray:
    return values(np.random.default_rng(15), 3000) - np.linspace(0, 0.2, 3000)


def test_every_interval_is_that_of_its_own_look() -> None:
    """Values drift, so that the best lower and the best upper end come from different looks."""
    x, points, widen = drifting(), np.arange(200, 3001, 100), 1.5
    mean = np.array([x[:n].mean() for n in points])
    reach = asymptotic_radius(points, [x[:n].std(ddof=1) for n in points])
    band = asymptotic_sequence(x, points, widen=widen)
    assert band.mean == pytest.approx(mean, abs=1e-12)
    assert band.low == pytest.approx(mean - widen * reach, abs=1e-12)
    assert band.high == pytest.approx(mean + widen * reach, abs=1e-12)
    assert band.last == (band.low[-1], band.high[-1])
    # The intersection is of widened looks. To widen that of plain looks by the same factor would be narrower.
    best = band.intersected()
    assert np.array_equal(best.low, np.maximum.accumulate(band.low))
    assert np.array_equal(best.high, np.minimum.accumulate(band.high))
    plain = asymptotic_sequence(x, points).intersected().last
    assert widen * plain.half_width < 0.9 * best.last.half_width


def test_ends_of_an_intersection_never_move_back() -> None:
    x = values(np.random.default_rng(3), 3000)
    points = np.arange(100, 3001, 100)
    for band in (
        asymptotic_sequence(x, points).intersected(),
        betting_sequence(x, points, bound=BOUND, tolerance=1e-4),
    ):
        assert np.all(np.diff(band.low) >= 0)
        assert np.all(np.diff(band.high) <= 0)


def test_an_interval_holds_its_estimate_after_a_change_and_an_intersection_does_not() -> None:
    """Rankers that are equal, and one of them is changed after 8,000 impressions."""
    rng = np.random.default_rng(0)
    x = rng.choice([0.0, 1.8, -1.6], 16_000, p=[0.7, 0.1415, 0.1585])
    x[8000:] -= 0.15
    band = asymptotic_sequence(x, np.arange(100, 16_001))
    assert np.all((band.low <= band.mean) & (band.mean <= band.high))
    best = band.intersected()
    assert np.mean((best.mean < best.low) | (best.mean > best.high)) > 0.1


@pytest.mark.parametrize("seed", range(5))
def test_a_report_repeats_what_earlier_ones_said(seed: int) -> None:
    """A close decision: looks at points that depend on n, or at the last interval only, withdraw some of these."""
    x = np.random.default_rng(seed).choice([0.0, 1.8, -1.6], 10_000, p=[0.7, 0.17, 0.13])
    whole = asymptotic_sequence(x, np.arange(1, 10_001))
    decided = whole.decided_at()
    assert decided is not None
    assert whole.low[decided - 1] > 0
    for n in (decided - 1, decided, decided + 1, 9_000, 10_000):
        band = asymptotic_sequence(x[:n], np.arange(1, n + 1))
        assert np.array_equal(band.low, whole.low[:n])
        assert band.decided_at() == (decided if n >= decided else None)
    shared = looks(7_000)[:-1]
    assert set(shared) <= set(looks(10_000))
    assert np.array_equal(whole.at(shared).high, asymptotic_sequence(x, shared).high)


def test_a_decision_is_told_from_what_the_last_interval_holds() -> None:
    low, high = np.array([[-1, 1], [1, 3], [-1, 2], [2, 3], [-2, 1], [-3, -1]], float).T
    units = np.arange(10, 70, 10)

    def upto(n: int) -> Band:
        return Band(units[:n], (low + high)[:n] / 2, low[:n], high[:n], 0.95)

    assert [upto(n).decided_at(0) for n in range(1, 7)] == [None, 20, 20, 20, 20, 20]
    assert upto(6).decided_at(2) == 10
    best = upto(6).intersected()
    assert best.low[-1] > best.high[-1]


sizes_and_values = st.lists(
    st.tuples(st.integers(1, 4), st.floats(-BOUND, BOUND)).map(lambda unit: (unit[0], unit[0] * unit[1])),
    min_size=2,
    max_size=30,
)


@given(sizes_and_values)
def test_wealth_agrees_with_a_plain_bookkeeper_and_is_monotone(units: list[tuple[int, float]]) -> None:
    """Units of 1 to 4 impressions, at most 4: y = (sum + size * bound) / (2 * bound * 4) of w = size / 4."""
    w = np.array([size / 4 for size, _ in units])
    y = np.clip([(total + size * BOUND) / (8 * BOUND) for size, total in units], 0, w)
    bets = predictable_bets(y, w, 0.05, 10.0)
    needed = 0.7
    for above in (True, False):
        last = None
        for mean in np.linspace(0.05, 0.95, 10):
            wealth, first = 1.0, NEVER
            for i, (value, weight, bet) in enumerate(zip(y, w, bets)):
                stake = min(bet, 0.5 / (mean if above else 1 - mean))
                gain = value - mean * weight if above else mean * weight - value
                assert stake * gain >= -0.5 - 1e-12
                wealth *= 1 + stake * gain
                if first == NEVER and wealth > math.exp(needed):
                    first = i
            found = refuted_at(y, w, bets, mean, above, needed)
            assert found == first or abs(math.log(wealth) - needed) < 1e-9
            time = math.inf if found == NEVER else found
            if last is not None:
                assert time >= last if above else time <= last
            last = time


def test_bets_do_not_look_ahead() -> None:
    x = values(np.random.default_rng(4), 200)
    y, w = (x + BOUND) / (2 * BOUND), np.ones(200)
    changed = y.copy()
    changed[100:] = 1 - changed[100:]
    assert np.array_equal(predictable_bets(y, w, 0.05, 10.0)[:101], predictable_bets(changed, w, 0.05, 10.0)[:101])


def test_a_mean_is_refuted_when_the_sequence_first_leaves_it_out() -> None:
    x = values(np.random.default_rng(8), 400)
    band = betting_sequence(x, np.arange(1, 401), bound=BOUND, tolerance=1e-9)
    for mean in (-0.5, 0.0, 0.1, 0.15, 0.5, 1.0):
        outside = np.flatnonzero((band.low > mean) | (band.high < mean))
        assert refuted_after(x, mean, bound=BOUND) == (outside[0] + 1 if len(outside) else None)


# --- units of several impressions -----------------------------------------------------------------------------------------


def test_the_error_of_units_is_the_direct_formula() -> None:
    rng = np.random.default_rng(9)
    x, units = rng.normal(1, 2, 50), rng.integers(0, 7, 50)
    mean = x.mean()
    squares = sum(sum(x[i] - mean for i in range(50) if units[i] == u) ** 2 for u in range(7))
    error = math.sqrt(7 / 6 * squares) / 50
    sums = UnitSums.of(x, units)
    assert (sums.mean, sums.standard_error) == pytest.approx((mean, error))
    low, high = fixed_interval(x, units=units)
    assert (low + high) / 2 == pytest.approx(mean)
    assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, 6) * error)
    assert fixed_interval(sums) == (low, high)


def test_impressions_as_units_give_the_textbook_interval() -> None:
    x = np.random.default_rng(10).normal(size=30)
    reach = stats.t.ppf(0.95, 29) * x.std(ddof=1) / math.sqrt(30)
    for units in (None, np.arange(30)):
        assert fixed_interval(x, 0.9, units=units) == pytest.approx((x.mean() - reach, x.mean() + reach))


@given(st.lists(st.tuples(st.floats(-2, 2), st.integers(0, 3)), min_size=1, max_size=30), st.data())
def test_merged_parts_are_the_whole(rows: list[tuple[float, int]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(rows)))
    x, units = [value for value, _ in rows], [f"user {unit}" for _, unit in rows]
    whole = UnitSums.of(x, units)
    parts = [UnitSums.of(x[part], units[part]) for part in (slice(0, cut), slice(cut, None)) if x[part]]
    merged = UnitSums.merged(parts)
    assert whole.units is not None
    assert merged.units is not None
    assert merged.units.tolist() == whole.units.tolist() == list(dict.fromkeys(units))
    assert np.array_equal(merged.impressions, whole.impressions)
    assert merged.totals == pytest.approx(whole.totals, abs=1e-12)
    plain = UnitSums.merged([UnitSums.of(x[:cut]), UnitSums.of(x[cut:])])
    assert np.array_equal(plain.totals, x)


def visits(rng: np.random.Generator, users: int) -> tuple[FloatArray, IntArray]:
    """Values of users who come 1 to 8 times, alike each time: those who come often click more. Mean 13/27 per visit."""
    sizes = np.where(rng.random(users) < 0.7, 1, 8)
    taste = np.where(rng.random(users) < np.where(sizes == 1, 0.2, 0.6), 1.0, 0.0)
    units = np.repeat(np.arange(users), sizes)
    return np.where(rng.random(len(units)) < 0.9, taste[units], 0.0), units


VISIT_MEAN = 0.9 * (0.7 * 0.2 + 0.3 * 8 * 0.6) / (0.7 + 0.3 * 8)


def missed_by(band: Band) -> bool:
    return bool(np.any((band.low > VISIT_MEAN) | (band.high < VISIT_MEAN)))


def test_users_as_units_cover_where_their_impressions_as_units_do_not() -> None:
    rng = np.random.default_rng(11)
    runs, points = 400, np.unique(np.geomspace(50, 400, 20).astype(int))
    inside = {"users": 0, "impressions": 0}
    missed = {"asymptotic": 0, "betting": 0}
    for _ in range(runs):
        x, units = visits(rng, 400)
        for name, ends in (("users", fixed_interval(x, units=units)), ("impressions", fixed_interval(x))):
            inside[name] += ends[0] < VISIT_MEAN < ends[1]
        missed["asymptotic"] += missed_by(asymptotic_sequence(x, points, units=units, tightest_at=200))
        missed["betting"] += refuted_after(x, VISIT_MEAN, bound=1, units=units, largest_unit=8) is not None
    assert abs(inside["users"] / runs - 0.95) < 4.5 * np.sqrt(0.95 * 0.05 / runs)
    assert inside["impressions"] / runs < 0.8
    for count in missed.values():
        assert count / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


def test_sequences_over_units_count_units_and_close_in_on_the_ratio() -> None:
    x, units = visits(np.random.default_rng(12), 20_000)
    asymptotic = asymptotic_sequence(x, [20_000], units=units)
    betting = betting_sequence(x, [20_000], bound=1, units=units, largest_unit=8)
    low, high = fixed_interval(x, units=units)
    for band in (asymptotic, betting):
        assert band.low[0] < x.mean() < band.high[0]
        assert 1.2 < (band.high[0] - band.low[0]) / (high - low) < 2.5


def test_equal_units_are_as_good_as_their_means() -> None:
    """Twice every value by the same unit: the same sequences, per unit, as of single values."""
    x = values(np.random.default_rng(13), 500)
    twice, units = np.repeat(x, 2), np.repeat(np.arange(500), 2)
    for single, double in (
        (asymptotic_sequence(x, [200, 500]), asymptotic_sequence(twice, [200, 500], units=units)),
        (
            betting_sequence(x, [200, 500], bound=BOUND),
            betting_sequence(twice, [200, 500], bound=BOUND, units=units, largest_unit=2),
        ),
    ):
        assert double.low == pytest.approx(single.low, abs=1e-6)
        assert double.high == pytest.approx(single.high, abs=1e-6)


def test_the_difference_in_means_is_welchs_in_large_samples() -> None:
    rng = np.random.default_rng(14)
    a = rng.random(5000) < 0.3
    clicks = rng.poisson(np.where(a, 1.2, 1.0)).astype(float)
    sums = UnitSums.of(difference_values(clicks, a))
    assert sums.mean == pytest.approx(clicks[a].mean() - clicks[~a].mean())
    welch = math.sqrt(clicks[a].var() / a.sum() + clicks[~a].var() / (~a).sum())
    assert sums.standard_error == pytest.approx(welch, rel=1e-3)


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
        (lambda: asymptotic_sequence([1.0, 2.0], [2], widen=0.9), "widen is 0.9, must be at least 1"),
        (lambda: asymptotic_sequence([1.0, 2.0], [1]).at([2]), "not worked out at 2 units"),
        (lambda: looks(0), "units is 0, must be at least 1"),
        (lambda: betting_sequence([1.0, 3.0], [2], bound=2), "value 1 is 3, beyond the bound 2"),
        (lambda: betting_sequence([1.0, 1.0], [2], bound=0), "bound is 0, must be positive"),
        (lambda: betting_sequence([1.0, 1.0], [2], bound=2, level=1), "level is 1"),
        (lambda: fixed_interval([0.0] * 9), "all 9 units have the mean 0: without a spread there is no interval"),
        (lambda: fixed_interval([0.1] * 9, units=[1, 1, 1, 2, 2, 2, 3, 3, 3]), "all 3 units have the mean 0.1"),
        (lambda: fixed_interval([1.0, 2.0], units=["ann", "ann"]), "1 units, an interval needs at least 2"),
        (lambda: fixed_interval([1.0, 2.0], units=[1]), r"units have shape \(1,\), values \(2,\)"),
        (lambda: fixed_interval(UnitSums.of([1.0, 2.0]), units=[1, 2]), "units are given twice"),
        (lambda: fixed_interval([]), "0 values"),
        (lambda: UnitSums.merged([]), "nothing to merge"),
        (lambda: UnitSums.of([1.0]) + UnitSums.of([1.0], ["ann"]), "cannot be merged"),
        (lambda: UnitSums.of([]).mean, "have no mean"),
        (lambda: difference_values([1.0, 2.0], [True, True]), "all 2 impressions are of A"),
        (lambda: difference_values([1.0, 2.0], [True]), "must be one each"),
        (
            lambda: betting_sequence([1.0, 1.0], [1], bound=2, units=["ann", "ann"]),
            "unit ann has 2 impressions, largest_unit is 1",
        ),
        (
            lambda: refuted_after([1.0, 3.0, 5.0], 0, bound=2, units=["ann", "bob", "bob"], largest_unit=2),
            "mean of unit bob is 4, beyond the bound 2",
        ),
        (lambda: refuted_after([1.0], 3, bound=2), "mean is 3, must be between -2 and 2"),
    ],
)
def test_bad_input_is_refused(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()


def by_cohorts(sums: UnitSums, most: int) -> UnitSums:
    """Sums of units, put together."""
    cohorts = Cohorts.of(Units.of(np.arange(len(sums))), most)
    return UnitSums(None, cohorts.by(sums.impressions), cohorts.by(sums.totals), cohorts.count)


def test_cohorts_say_what_their_units_do() -> None:
    """The same mean, and intervals as wide, but for what a spread of fewer sums is less sure of."""
    rng = np.random.default_rng(5)
    sums = UnitSums.of(values(rng, 60_000), rng.integers(0, 40_000, 60_000))
    together = by_cohorts(sums, 4_096)
    assert (len(together), together.count) == (-(-sums.count // 8), sums.count)
    assert together.mean == pytest.approx(sums.mean)
    surely = 4.5 / np.sqrt(2 * len(together))  # relative error of a spread
    assert together.standard_error == pytest.approx(sums.standard_error, rel=surely)
    exact, found = (asymptotic_sequence(of, [sums.count], tightest_at=500).last for of in (sums, together))
    assert found.half_width == pytest.approx(exact.half_width, rel=surely)
    assert fixed_interval(together).half_width == pytest.approx(fixed_interval(sums).half_width, rel=surely)


def test_a_sequence_of_cohorts_decides_when_that_of_units_does() -> None:
    rng = np.random.default_rng(6)
    sums = UnitSums.of(values(rng, 40_000) - 0.1)
    together = by_cohorts(sums, 5_000)
    exact, found = (asymptotic_sequence(of, of.come(np.arange(1, len(of) + 1))) for of in (sums, together))
    assert found.units[-1] == exact.units[-1] == 40_000
    decided = exact.decided_at()
    assert decided is not None
    assert exact.last.low > 0
    assert found.last.low > 0
    assert found.decided_at() == pytest.approx(decided, rel=0.1, abs=100)
    for few in (found.units, asymptotic_sequence(together, [1, 99, 100, 30_000]).units):
        assert (np.diff(few) >= 0).all()
    assert not np.isfinite(asymptotic_sequence(together, [90]).low).any()  # as few units as ever


def test_a_change_is_seen_by_cohorts_too() -> None:
    rng = np.random.default_rng(7)
    x = values(rng, 50_000) + np.where(np.arange(50_000) < 30_000, 0.0, 0.1)
    exact, found = Drift.of(UnitSums.of(x)), Drift.of(by_cohorts(UnitSums.of(x), 4_096))
    assert exact.status == found.status == "fail"
    assert exact.at is not None
    assert found.at == pytest.approx(exact.at, rel=0.03)
    assert found.units == 50_000
    assert found.since.half_width == pytest.approx(exact.since.half_width, rel=0.1)
    same = Drift.of(by_cohorts(UnitSums.of(values(rng, 50_000)), 4_096))
    assert same.status == "pass"
