"""The decision, from estimates made by hand: what they allow together, who is named a winner and why nobody is.

Estimates are of A - B, as the library has them; decisions are of B against A.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hand_made import COUNTS, agrees, decided, result, waiting
from ranktrial.analysis.analyse import analyse
from ranktrial.analysis.decision import (
    ALLOWANCE,
    Decision,
    combine,
    decide,
    decides_by_ab_first,
    lift,
    turned,
    widening,
)
from ranktrial.analysis.estimators.results import Estimate
from ranktrial.analysis.intervals import asymptotic_sequence
from ranktrial.analysis.ladder import (
    AB_TRAFFIC,
    AFFINE,
    DIRECT,
    NO_INTERVAL,
    POSITION_BASED,
    EstimatorResult,
    Ladder,
    made_result,
)
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.config import TrialConfig
from ranktrial.distributions import normal_quantile
from ranktrial.interval import Interval
from ranktrial.log import Log
from ranktrial.log.units import UnitSums
from ranktrial.methods import LogOpt
from ranktrial.rankings import Pair
from ranktrial.report.making import readings_agree
from ranktrial.users import position_based

# --- what all estimates allow -----------------------------------------------------------------------------------------------


def test_the_answer_is_what_all_estimates_allow() -> None:
    found = decided(
        result(AB_TRAFFIC, -0.10, 0.02),
        result(DIRECT, -0.11, -0.01),
        result(AFFINE, -0.2, 0.1),
        result(POSITION_BASED, -0.07, 0.01),
    )
    assert found.interval == (
        0.01,
        0.07,
    )  # of B against A: low from the direct estimate, high from the position-based one
    assert found.difference == pytest.approx(0.03)
    assert found.ab == (-0.02, 0.10)
    assert found.used == (AB_TRAFFIC, DIRECT, AFFINE, POSITION_BASED)
    assert (found.state, found.winner, found.estimator) == ("decided", "B", POSITION_BASED)
    assert found.off_by == pytest.approx(0.07)  # from 0.03 to the farther end of what A/B traffic allows


def test_an_estimate_outside_what_the_others_allow_is_moved_to_its_edge() -> None:
    found = decided(result(AB_TRAFFIC, -0.10, -0.04), result(POSITION_BASED, -0.06, 0.02))
    assert found.interval == (0.04, 0.06)
    assert found.difference == 0.04


def test_the_allowance_widens_what_rests_on_the_click_model_and_nothing_else() -> None:
    """1 % of an exposure disagreement of 0.5 and 2 clicks per search is 0.01."""
    pair = result(AB_TRAFFIC, -0.02, 0.10), result(POSITION_BASED, 0.005, 0.035)
    with_it, without = decided(*pair, allowance=0.01), decided(*pair, allowance=0.0)
    assert (without.winner, without.interval) == ("A", (-0.035, -0.005))
    assert (with_it.winner, with_it.state, with_it.allowance) == (None, "undecided", 0.01)
    assert with_it.interval == pytest.approx((-0.045, 0.005))
    assert with_it.ab == without.ab == (-0.10, 0.02)
    narrow = decided(
        result(AB_TRAFFIC, 0.02, 0.03), result(DIRECT, 0.0, 0.04), result(POSITION_BASED, 0.0, 0.04), allowance=0.5
    )
    assert narrow.interval == (-0.03, -0.02)  # that of A/B traffic, whatever is allowed
    assert decided(*pair, allowance=None).allowance == pytest.approx(ALLOWANCE * 0.5 * 2)
    assert decided(*pair, allowance=0.1, disagreement=0.0).interval == without.interval


def test_an_empty_intersection_drops_the_estimate_with_more_assumptions() -> None:
    apart = result(AB_TRAFFIC, 0.05, 0.15), result(POSITION_BASED, -0.05, -0.01)
    found = decided(*apart)
    assert (found.used, found.interval, found.winner) == ((AB_TRAFFIC,), (-0.15, -0.05), "A")
    assert found.off_by == 0
    assert combine(Ladder(apart, ())).contradicted == (POSITION_BASED,)
    assert decided(*apart, allowance=0.07).used == (AB_TRAFFIC, POSITION_BASED)  # 0.07 x 0.5 x 2 bridges 0.06
    three = result(AB_TRAFFIC, -0.1, 0.1), result(DIRECT, 0.02, 0.08), result(POSITION_BASED, -0.05, -0.01)
    assert decided(*three).used == (AB_TRAFFIC, DIRECT)
    assert decided(*three, barred=[DIRECT]).used == (AB_TRAFFIC, POSITION_BASED)


def test_an_estimate_that_a_test_contradicts_is_not_used() -> None:
    pair = result(AB_TRAFFIC, -0.10, 0.10), result(POSITION_BASED, 0.02, 0.04)
    assert decided(*pair).winner == "A"
    found = decided(*pair, tests=(agrees(POSITION_BASED, apart=0.0025),))
    assert (found.used, found.state) == ((AB_TRAFFIC,), "undecided")


def test_clicks_further_up_widen_the_side_that_they_may_have_moved() -> None:
    """They may have moved A - B by -0.02 to 0.05: the truth may be 0.05 below the estimate, or 0.02 above it."""
    pair, above = (result(AB_TRAFFIC, -0.2, 0.3), result(POSITION_BASED, 0.03, 0.09)), Interval(-0.02, 0.05)
    found = decided(*pair, above=above)
    assert found.interval == pytest.approx((-0.11, 0.02))
    assert found.state == "undecided"
    assert decided(*pair, above=Interval(-0.05, 0.02)).winner == "A"
    more = decided(*pair, above=above, allowance=0.03)  # the larger of both, on either side
    assert more.interval == pytest.approx((-0.12, 0.02))
    assert widening(0.03, above) == (0.05, 0.03)


# --- states and reasons -----------------------------------------------------------------------------------------------------


def test_before_anything_can_be_said() -> None:
    nothing = waiting(AB_TRAFFIC, "50 A/B searches"), waiting(POSITION_BASED, "position bias")
    made = Ladder(nothing, ())
    assert decide(made, searches=0, visitors=0, clicks=0).state == "no searches"
    assert decide(made, searches=9, visitors=8, clicks=0).state == "no clicks"
    early = decide(made, searches=9, visitors=8, clicks=1, level=0.9, smallest=0.1)
    assert (early.state, early.winner, early.estimator, early.used) == ("too early", None, None, ())
    assert early.waits == ("50 A/B searches", "position bias")
    assert (early.interval, early.level, early.smallest) == (NO_INTERVAL, 0.9, 0.1)
    assert (early.searches, early.visitors, early.clicks) == (9, 8, 1)
    assert early.to_dict()["interval"] == [None, None]


@pytest.mark.parametrize(("low", "high", "winner"), [(0.01, 0.05, "A"), (-0.05, -0.01, "B"), (-0.01, 0.05, None)])
def test_a_winner_is_named_where_zero_is_outside(low: float, high: float, winner: str | None) -> None:
    found = decided(result(AB_TRAFFIC, low, high))
    assert (found.winner, found.ahead) == (winner, winner)
    assert found.state == ("undecided" if winner is None else "decided")
    assert found.reasons == ()


def test_what_nothing_tests_names_no_winner() -> None:
    found = decided(waiting(AB_TRAFFIC, "50 A/B searches"), result(POSITION_BASED, 0.01, 0.05), tests=())
    assert (found.state, found.winner, found.ahead, found.reasons) == ("withheld", None, "A", ("untested",))
    assert found.off_by == np.inf
    both = decided(result(AB_TRAFFIC, 0.01, 0.10), result(POSITION_BASED, 0.01, 0.05), tests=())
    assert (both.state, both.winner) == ("decided", "A")  # A/B traffic needs no test


@pytest.mark.parametrize(("error", "reasons"), [(0.0201, ("blind",)), (0.0199, ())])
def test_a_bias_as_large_as_the_difference_must_have_been_visible(error: float, reasons: tuple[str, ...]) -> None:
    """1.5 standard errors of the surest test, against 0.03."""
    tests = agrees(POSITION_BASED, error=0.05), agrees(POSITION_BASED, DIRECT, error=error)
    found = decided(result(AB_TRAFFIC, -0.2, 0.2), result(POSITION_BASED, 0.01, 0.05), tests=tests)
    assert found.reasons == reasons
    assert found.winner == (None if reasons else "A")
    affine = agrees(
        POSITION_BASED, AFFINE, error=0.0001
    )  # sees biases of document and rank as well as any, beside another
    assert (
        decided(result(AB_TRAFFIC, -0.2, 0.2), result(POSITION_BASED, 0.01, 0.05), tests=(*tests, affine)).reasons == ()
    )
    alone = decided(result(AB_TRAFFIC, -0.2, 0.2), result(POSITION_BASED, 0.01, 0.05), tests=(affine,))
    assert alone.reasons == ("untested",)


@pytest.mark.parametrize(("low", "high", "side"), [(0.02, 0.06, 1), (-0.06, -0.02, -1)])
def test_a_winner_must_stand_against_hostile_searches(low: float, high: float, side: int) -> None:
    """Each adds a click per search: without 0.02 of them the end of the interval is at 0."""
    asked = []

    def worth(one: EstimatorResult, ranker: int) -> float:
        asked.append((one.name, ranker))
        return 1.0

    stands, falls = (
        decided(result(AB_TRAFFIC, low, high), worth=worth, contamination=least) for least in (0.02 - 1e-9, 0.02 + 1e-9)
    )
    assert set(asked) == {(AB_TRAFFIC, side)}
    assert stands.overturned_by == falls.overturned_by == pytest.approx(0.02)
    assert (stands.winner, stands.reasons) == ("A" if side > 0 else "B", ())
    assert (falls.winner, falls.state, falls.reasons) == (None, "withheld", ("hostile",))
    assert np.isnan(decided(result(AB_TRAFFIC, -0.02, 0.06), worth=worth, contamination=0).overturned_by)


def test_a_winner_stands_if_one_of_the_estimates_that_decide_does_and_the_allowance_is_not_counted_twice() -> None:
    results = result(AB_TRAFFIC, 0.01, 0.09), result(POSITION_BASED, 0.03, 0.05)
    tests = (agrees(POSITION_BASED, error=0.001),)
    worth = {AB_TRAFFIC: 10.0, POSITION_BASED: 2.0}
    found = decided(*results, tests=tests, worth=lambda one, _: worth[one.name], allowance=0.02)
    assert found.allowance > 0
    assert found.overturned_by == pytest.approx(0.03 / 2)


def test_ab_traffic_decides_first_where_the_allowance_leaves_the_click_model_no_room() -> None:
    """A/B needs (0.1 / size)^2 times its searches, the click model (0.04 / (size - allowance))^2 times the same."""
    by_ab, by_model = result(AB_TRAFFIC, -0.09, 0.11), result(POSITION_BASED, -0.03, 0.05)
    assert by_model.estimate is not None
    size = 0.01 + by_model.estimate.standard_error
    found = Ladder((by_ab, by_model), (agrees(POSITION_BASED),), disagreement=0.5, ctr=2.0)
    even = size * (1 - 0.04 / 0.1)  # the allowance with which both need as many

    def first(allowance: float, of: Ladder = found) -> bool:
        return decides_by_ab_first(of, widening(allowance))

    assert (first(0.0), first(0.9 * even), first(1.1 * even), first(2 * size)) == (False, False, True, True)
    unseen = Ladder(found.results, (agrees(POSITION_BASED, error=size),), disagreement=0.5, ctr=2.0)
    assert not first(0.0, unseen)  # 1.5^2 times as many until a bias would show, and A/B needs more
    late = Ladder(found.results, (agrees(POSITION_BASED, error=6 * size),), disagreement=0.5, ctr=2.0)
    assert first(0.0, late)
    assert not first(2 * size, Ladder((by_ab,), ()))
    assert not first(2 * size, Ladder((waiting(AB_TRAFFIC, "searches"), by_model), ()))


@pytest.mark.parametrize(
    ("name", "options", "must"),
    [
        (POSITION_BASED, {"allowance": 0.015}, 0.001),  # by default a fifteenth of the allowance
        (POSITION_BASED, {"allowance": 0.012, "contamination": 0.003}, 0.003),
        (AB_TRAFFIC, {"allowance": 0.012}, 0.0),
        (AB_TRAFFIC, {"contamination": 0.003}, 0.003),
    ],
)
def test_hostile_searches_a_winner_must_stand_against(name: str, options: dict[str, float], must: float) -> None:
    """An interval 0.05 away from 0, which a little more or a little less than the share asked for could have made up."""
    results = (
        [result(AB_TRAFFIC, 0.05, 0.09)]
        if name == AB_TRAFFIC
        else [result(AB_TRAFFIC, -1, 1), result(name, 0.05, 0.09)]
    )
    tests = () if name == AB_TRAFFIC else (agrees(name, error=0.001),)
    for times, winner in ((1.01, "A"), (0.99, None)):
        made_up_by = max(times * must, 1e-6)
        found = decided(
            *results, tests=tests, worth=lambda *_, of=made_up_by: 0.05 / of, disagreement=0.1, ctr=0.1, **options
        )
        assert found.overturned_by == pytest.approx(made_up_by)
        assert found.winner == (winner if must else "A")


def test_the_forecast_counts_hostile_searches() -> None:
    """Where .02 of the searches are worth a click each, an estimate of 0.04 is decided when its interval is 0.02 wide."""
    one = result(AB_TRAFFIC, -0.001, 0.081)
    without, with_hostile, never = (
        decided(one, worth=lambda *_: 1.0, contamination=least).forecast.searches for least in (0.0, 0.02, 0.04)
    )
    assert one.estimate is not None
    units = one.estimate.units / COUNTS["searches"]
    assert one.radius(without * units) == pytest.approx(0.04, rel=1e-3)
    assert one.radius(with_hostile * units) == pytest.approx(0.02, rel=1e-3)
    assert never == np.inf


def test_rankers_are_alike_within_the_smallest_difference_that_matters() -> None:
    inside, outside = result(AB_TRAFFIC, -0.03, 0.05), result(AB_TRAFFIC, 0.01, 0.05)
    assert decided(inside, smallest=0.06).state == "alike"
    assert decided(inside, smallest=0.05).state == "undecided"
    assert decided(inside).state == "undecided"
    assert (decided(outside, smallest=0.06).state, decided(outside, smallest=0.06).winner) == ("decided", "A")


def test_nothing_is_decided_while_a_check_fails() -> None:
    found = decided(result(AB_TRAFFIC, 0.01, 0.05), failed=["Clicks arrive"], smallest=0.1)
    assert (found.state, found.winner, found.failed) == ("not trusted", None, ("Clicks arrive",))
    assert found.ahead == "A"
    assert np.isnan(found.forecast.searches)


def test_a_difference_that_changed_is_that_since() -> None:
    """Estimates of all of the time are no longer intersected; who is named a winner needs what it always does."""
    pair = result(AB_TRAFFIC, -0.09, -0.01), result(POSITION_BASED, -0.05, -0.03)
    found = decided(*pair, since=Interval(0.02, 0.06), allowance=0.01)
    assert found.interval == pytest.approx((-0.07, -0.01))
    assert found.difference == pytest.approx(-0.04)
    assert (found.winner, found.state) == ("A", "decided")
    open_ = decided(*pair, since=Interval(-0.02, 0.06))
    assert (open_.winner, open_.state) == (None, "undecided")
    assert np.isnan(open_.forecast.searches)  # it is not said how many came since
    known = decided(*pair, since=Interval(-0.02, 0.06), units_since=50).forecast
    assert (known.target, known.remaining) == pytest.approx((0.02, 750))  # half as wide takes 150 of 200 units more
    narrower = decided(*pair, since=Interval(-0.02, 0.06), units_since=50, allowance=0.01).forecast
    assert narrower.remaining == pytest.approx(5 * 50 * 15)  # a quarter as wide
    alike = decided(*pair, since=Interval(-0.03, 0.05), units_since=50, smallest=0.03).forecast
    assert alike.remaining == pytest.approx(5 * 50 * 3)
    nothing = decided(*pair, since=Interval(-np.inf, np.inf), units_since=50)
    assert np.isnan(nothing.forecast.searches)
    untested = decided(
        waiting(AB_TRAFFIC, ""), result(POSITION_BASED, -0.05, -0.03), since=Interval(0.02, 0.06), tests=()
    )
    assert (untested.winner, untested.reasons) == (None, ("untested",))


def test_an_interval_for_one_look_is_told_from_one_for_every_look() -> None:
    assert decided(result(AB_TRAFFIC, 0.01, 0.05)).anytime
    assert not decided(result(AB_TRAFFIC, 0.01, 0.05, fixed=True)).anytime
    values = np.random.default_rng(1).normal(0.1, 1, 900)
    found = Estimate.of(values, np.ones(30), largest_weight=1.0)
    often, once = (
        decided(made_result(AB_TRAFFIC, found, "", clicks=30, level=0.95, share=1.0, anytime=anytime))
        for anytime in (True, False)
    )
    assert often.interval.half_width > 1.2 * once.interval.half_width
    assert once.interval.half_width == pytest.approx(normal_quantile(0.975) * found.standard_error, rel=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_swapping_a_and_b_flips_the_sign_exactly(seed: int) -> None:
    random = np.random.default_rng(seed)
    names = (AB_TRAFFIC, DIRECT, AFFINE, POSITION_BASED)
    halves = random.uniform(0.01, 0.1, 4)
    middles = random.normal(0.03, 0.04, 4)
    errors = random.uniform(0.001, 0.04, 3)
    apart = random.normal(0, errors)
    effect, above, smallest = Interval(0.0, 0.01), Interval(-0.01, 0.02), 0.05
    both = UnitSums.of(random.random(500) < 0.4)
    one, other = (
        decide(
            Ladder(
                tuple(
                    result(name, sign * m - half, sign * m + half, delta=sign * m)
                    for name, m, half in zip(names, middles, halves)
                ),
                tuple(agrees(name, error=e, apart=sign * a) for name, e, a in zip(names[1:], errors, apart)),
                disagreement=0.3,
                ctr=0.4,
            ),
            **COUNTS,
            smallest=smallest,
            allowance=0.02,
            contamination=0.01,
            above=above if sign > 0 else turned(above),
            since=None if seed % 4 else (effect if sign > 0 else turned(effect)),
            both=both,
            worth=lambda result, winner, sign=sign: 0.5 if winner == sign else 0.8,  # type: ignore[misc]
        )
        for sign in (1, -1)
    )
    assert one.difference == 0.0 - other.difference
    assert one.interval == turned(other.interval)
    assert one.ab == turned(other.ab)
    assert one.winner == {"A": "B", "B": "A", None: None}[other.winner]
    for name in ("state", "reasons", "used", "overturned_by", "forecast"):
        assert str(getattr(one, name)) == str(getattr(other, name))
    assert (1 + one.lift.share) * (1 + other.lift.share) == pytest.approx(1)
    if np.isfinite(one.lift.interval.low):
        assert (1 + one.lift.interval.low) * (1 + other.lift.interval.high) == pytest.approx(1)
        assert (1 + one.lift.interval.high) * (1 + other.lift.interval.low) == pytest.approx(1)


# --- the forecast -----------------------------------------------------------------------------------------------------------


def growing(mean: float, n: int, **options: Any) -> Decision:
    """An A/B test whose values have this mean of A - B and a standard deviation of 1, after so many searches."""
    found = Estimate.of(np.tile([mean - 1, mean + 1], n // 2), np.ones(30), largest_weight=1.0)
    made = made_result(AB_TRAFFIC, found, "", clicks=30, level=0.95, share=1.0, smallest=options.get("smallest"))
    return decide(Ladder((made,), ()), searches=n, visitors=n, clicks=n, allowance=0.0, **options)


@pytest.mark.parametrize(
    ("mean", "smallest", "ends"), [(0.05, None, "decided"), (0.01, 0.06, "alike"), (-0.05, 0.06, "decided")]
)
def test_a_forecast_shrinks_to_the_decision_and_has_not_come_before_it(
    mean: float, smallest: float | None, ends: str
) -> None:
    before = np.inf
    for n in (200, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 10_000, 20_000):
        found = growing(mean, n, smallest=smallest)
        forecast = found.forecast
        assert np.isfinite(forecast.searches)
        assert forecast.remaining == pytest.approx(forecast.searches - n)
        assert (forecast.remaining == 0) == (found.state in ("decided", "alike"))
        assert forecast.remaining <= before
        before = forecast.remaining
        if found.state == "undecided":
            later = growing(mean, 2 * round(1.01 * forecast.searches / 2), smallest=smallest)
            sooner = growing(mean, 2 * round(0.97 * forecast.searches / 2), smallest=smallest)
            assert (later.state, sooner.state) == (ends, "undecided")
    assert found.state == ends


def test_no_difference_at_all_is_never_decided() -> None:
    assert growing(0.0, 1_000).forecast.searches == np.inf
    assert growing(0.0, 1_000, smallest=0.1).forecast.searches < 20_000


def test_a_forecast_has_not_come_while_estimates_scatter_around_zero() -> None:
    """A/B traffic is sure enough to find 0.05, but has 0; the other one has 0.05, and is not."""
    found = decided(result(AB_TRAFFIC, -0.03, 0.03), result(POSITION_BASED, -0.01, 0.11))
    assert found.state == "undecided"
    assert found.forecast.remaining > 0
    blind = decided(
        result(AB_TRAFFIC, -0.2, 0.2),
        result(POSITION_BASED, 0.01, 0.05, spread=0.01),
        tests=(agrees(POSITION_BASED, error=0.04),),
        smallest=0.5,
    )
    assert blind.reasons == ("blind",)
    assert blind.forecast.remaining == pytest.approx(1_000 * (1.5 * 0.04 / 0.03) ** 2 - 1_000)


# --- lift -------------------------------------------------------------------------------------------------------------------


def clicks_of(seed: int, n: int = 4_000) -> tuple[FloatArray, FloatArray, IntArray]:
    """Clicks that A and that B would get on each search, which go together, and whose search it is."""
    random = np.random.default_rng(seed)
    common = random.random(n) < 0.2
    a, b = ((common | (random.random(n) < chance)).astype(float) for chance in (0.1, 0.2))
    return a, b, random.integers(0, n // 2, n)


TRUE_LIFT = (0.2 + 0.8 * 0.2) / (0.2 + 0.8 * 0.1) - 1


@pytest.mark.parametrize("seed", range(30))
def test_the_lift_leaves_out_zero_where_the_difference_does(seed: int) -> None:
    random = np.random.default_rng(seed)
    both = UnitSums.of(random.random(random.integers(50, 3_000)) < random.uniform(0.05, 0.9))
    low, high = sorted(random.normal(0, 0.05, 2).tolist())
    for ends in (Interval(low, high), Interval(0.0, abs(high)), Interval(low, low + 1e-9), Interval(-abs(low), 0.0)):
        found = lift(ends, ends.middle, both)
        if np.isfinite(found.interval.low):
            assert (0 in found.interval) == (0 in ends)
            assert found.interval.low <= found.share <= found.interval.high
            assert found.interval.low > -1


@pytest.mark.parametrize("seed", [1, 2])
def test_no_lift_is_ruled_out_that_its_own_values_do_not_rule_out(seed: int) -> None:
    """A lift of L is (1 + L/2) e - L m = 0; what that mean over units leaves open (Fieller 1954) is inside."""
    a, b, units = clicks_of(seed)
    e, m = UnitSums.of(b - a, units), UnitSums.of((a + b) / 2, units)
    reach = normal_quantile(0.975)
    found = lift(Interval.around(e.mean, reach * e.standard_error), e.mean, m)
    assert found.share == pytest.approx(b.mean() / a.mean() - 1)
    assert found.interval.low < found.share < found.interval.high

    def ruled_out(share: float) -> bool:
        values = UnitSums.of((1 + share / 2) * (b - a) - share * (a + b) / 2, units)
        return abs(values.mean) > reach * values.standard_error

    assert not ruled_out(found.share)
    for end, outwards in ((found.interval.low, -1e-6), (found.interval.high, 1e-6)):
        assert ruled_out(end + outwards)


def test_the_interval_of_the_lift_covers_the_truth() -> None:
    """At one look: no fewer than the level says (it is cautious), of 400 runs within 4.5 standard errors. Looked at any time
    it covers more: of 200 runs none to three miss.
    """
    missed = missed_any = 0
    for seed in range(400):
        a, b, units = clicks_of(500 + seed, 1_000)
        e, m = UnitSums.of(b - a, units), UnitSums.of((a + b) / 2, units)
        around = Interval.around(e.mean, normal_quantile(0.975) * e.standard_error)
        missed += TRUE_LIFT not in lift(around, e.mean, m).interval
        if seed < 200:
            anytime = asymptotic_sequence(e, [len(e)]).last
            missed_any += TRUE_LIFT not in lift(anytime, e.mean, m).interval
    assert missed <= 400 * 0.05 + 4.5 * np.sqrt(400 * 0.05 * 0.95)
    assert missed_any <= 3


def test_clicks_may_be_known_from_fewer_searches() -> None:
    a, b, units = clicks_of(4)
    some = np.isin(units, np.arange(500))
    whole, part = UnitSums.of((a + b) / 2, units), UnitSums.of((a + b)[some] / 2, units[some])
    around = Interval(0.06, 0.1)
    fewer, more = lift(around, 0.08, part), lift(around, 0.08, whole)
    assert fewer.share == pytest.approx(0.08 / (part.mean - 0.04))
    assert fewer.interval.low < more.interval.low
    assert fewer.interval.high > more.interval.high


def test_there_is_no_share_of_nothing() -> None:
    none, some = UnitSums.of([0.0] * 100), UnitSums.of([1.0] * 100)
    assert lift(Interval(-0.1, 0.2), 0.05, none).interval == NO_INTERVAL
    assert np.isnan(lift(Interval(-0.1, 0.2), 0.05, none).share)
    assert np.isnan(lift(NO_INTERVAL, 0.0, some).share)
    assert np.isnan(lift(Interval(-0.1, 0.2), 0.05, None).share)
    rare = UnitSums.of([1.0] + [0.0] * 99)  # one click: it may be none
    assert lift(Interval(-0.02, 0.03), 0.005, rare).interval == NO_INTERVAL
    few = UnitSums.of([1.0, 0.0] * 50)
    found = lift(Interval(0.1, 1.2), 0.9, few)  # A may have none
    assert found.interval == NO_INTERVAL


def test_the_lift_of_a_decision_has_its_level() -> None:
    both = UnitSums.of([1.0, 0.0] * 200)
    wide, narrow = (
        decided(result(AB_TRAFFIC, 0.02, 0.06), both=both, level=level).lift.interval for level in (0.99, 0.9)
    )
    assert wide.low < narrow.low
    assert wide.high > narrow.high


def test_values_for_json_are_plain() -> None:
    found = decided(result(AB_TRAFFIC, 0.02, 0.06)).to_dict()
    assert found["interval"] == [-0.06, -0.02]
    assert found["lift"] == {"share": None, "interval": [None, None]}
    assert set(found) == set(Decision.__dataclass_fields__)
    assert replace(decided(result(AB_TRAFFIC, 0.02, 0.06)), ab=NO_INTERVAL).to_dict()["ab"] == [None, None]


@pytest.mark.parametrize(("allowance", "alone"), [(0.0, False), (0.49, True)])
def test_a_trial_shows_ab_traffic_alone_where_that_decides_first(allowance: float, alone: bool) -> None:
    """An allowance larger than the difference leaves only A/B traffic to decide."""
    pair = Pair.from_lists([["x", "y", "z"]] * 9, [["z", "x", "y"]] * 9, k=3).knowing(theta=[1, 0.5, 0.3])
    user = position_based([0.4, 0.35, 0.3] * 9, [1, 0.5, 0.3])
    method = LogOpt(bias="known")
    log = Log.simulated(pair, method.policy(pair), user, 4_000, seed=2)
    config = TrialConfig.model_validate({"method": method, "k": 3, "theta": (1, 0.5, 0.3), "allowance": allowance})
    found = readings_agree(analyse(log, config, config.first_beliefs))
    assert (found is False) == alone
    assert (method.next_share(config.first_beliefs, found) == 1) == alone
