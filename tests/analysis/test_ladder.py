"""Estimates with fewer and more assumptions agree where all of these hold; one whose assumption fails is not used."""

from __future__ import annotations

import numpy as np
import pytest

from ranktrial.analysis import estimate, fit_position_bias, ladder
from ranktrial.analysis.decision import decide
from ranktrial.analysis.estimators.affine import fit_affine
from ranktrial.analysis.estimators.results import Estimate
from ranktrial.analysis.ladder import (
    AB_TRAFFIC,
    AFFINE,
    DIRECT,
    POSITION_BASED,
    SHARES,
    EstimatorResult,
    Hausman,
    Ladder,
)
from ranktrial.interval import Interval
from ranktrial.log import Log
from ranktrial.methods import AB, LogOpt
from ranktrial.rankings import Mixture, Pair
from ranktrial.users import User, position_based, rank_decay, trust_bias

K = 5
THETA = rank_decay(K, 0.8)


def top_and_tail(queries: int = 20) -> tuple[Pair, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Half of the queries swap the two best in A's favour; on the others B has better documents from rank 3 on."""
    a: list[list[str]] = []
    b: list[list[str]] = []
    zeta: dict[str, float] = {}
    for q in range(queries):
        ids = [f"{q}-{d}" for d in range(8)]
        a.append(ids[:K])
        b.append([ids[1], ids[0], *ids[2:K]] if q % 2 else [*ids[:2], *ids[5:]])
        zeta |= dict.fromkeys(ids, 0.3)
        if q % 2:
            zeta[ids[0]] = 0.7
        else:
            zeta |= dict.fromkeys(ids[5:], 0.6)
    pair = Pair.from_lists(a, b, K)
    return pair, np.array([zeta[str(d)] for d in pair.ids])


def simulated(user: User, n: int, seed: int, holdback: float = 0.5) -> Log:
    pair, _ = top_and_tail()
    return Log.simulated(pair, designed(pair, holdback), user, n, seed=seed)


def designed(pair: Pair, holdback: float) -> Mixture:
    """Mixture of the closed form of equal relevance and so much A/B traffic."""
    method = LogOpt(relevance="constant", keep=0, floor=0.5, holdback=holdback)
    return method.policy(pair.knowing(theta=THETA))


def position_based_user() -> User:
    return position_based(top_and_tail()[1], THETA)


def trusting_user() -> User:
    """Clicks are affine in relevance: high ranks are clicked whatever stands there."""
    return trust_bias(
        top_and_tail()[1], THETA, relevant=[1, 0.9, 0.8, 0.7, 0.6], irrelevant=[0.9, 0.45, 0.2, 0.05, 0.0]
    )


def used(found: Ladder) -> EstimatorResult | None:
    """The last estimate that has an interval, is tested and is not contradicted."""
    able = (r for r in reversed(found.results) if r.has_interval and found.tested(r) and not found.contradictions(r))
    return next(able, None)


def test_all_estimates_hold_the_truth_and_none_contradicts_another_where_clicks_are_position_based() -> None:
    """100 logs, theta fitted: intervals miss no more often than they may, differences scatter as they say."""
    user, truth = position_based_user(), top_and_tail()[0].delta(position_based_user())
    apart: dict[tuple[str, str], list[float]] = {}
    missed, refuted, tops = 0, 0, list[str | None]()
    for seed in range(100):
        log = simulated(user, 2000, seed)
        found = ladder(log, theta=fit_position_bias(log))
        missed += any(truth not in result.interval for result in found.results)
        refuted += any(test.refuted for test in found.tests)
        top = used(found)
        tops.append(None if top is None else top.name)
        for test in found.tests:
            apart.setdefault((test.upper, test.lower), []).append(test.difference / test.standard_error)
    assert sum(SHARES.values()) == pytest.approx(1)
    assert missed <= 5  # of a sequence that allows 5 % over all looks, at one look
    assert refuted <= 5
    assert tops.count(POSITION_BASED) >= 80  # two standard errors at one look step down
    for z in apart.values():
        assert abs(np.mean(z)) < 4.5 / 10
        assert 0.6 < np.mean(np.square(z)) < 1.5


def test_under_trust_bias_the_position_based_estimate_is_not_used() -> None:
    """The estimate has the wrong sign there; what assumes less has not, and is used instead."""
    pair, user = top_and_tail()[0], trusting_user()
    truth = pair.delta(user)
    log = simulated(user, 40_000, seed=1)
    found = ladder(log, theta=fit_position_bias(log))
    top = found.result(POSITION_BASED)
    assert top.estimate is not None
    assert truth not in top.interval
    assert found.contradictions(top)
    assert "it is not true that a click is the chance" in found.contradictions(top)[0].text
    below = used(found)
    assert below is not None
    assert below is found.shown
    assert below.name == DIRECT
    assert truth in below.interval
    assert found.hidden(below) < np.inf


def varied(queries: int = 30) -> tuple[Pair, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Pair like ``top_and_tail``, with documents of all relevances everywhere: a and b of affine clicks can be told."""
    random = np.random.default_rng(1)
    zeta = random.uniform(0.02, 0.95, (queries, 8))
    a, b = [], []
    for q in range(queries):
        ids = random.permutation(8).tolist()
        pages = [ids[:K], [ids[1], ids[0], *ids[2:K]] if q % 2 else [*ids[:2], *ids[5:]]]
        worth = [zeta[q, page[0] if q % 2 else page[2:]].sum() for page in pages]
        better = int(worth[1] > worth[0])
        a.append(pages[better if q % 2 else 1 - better])
        b.append(pages[1 - better if q % 2 else better])
    pair = Pair.from_lists(a, b, K)
    return pair, zeta[np.repeat(np.arange(queries), np.diff(pair.offsets)), np.array(pair.ids, np.int64)]


def test_under_trust_bias_the_affine_estimate_is_used_where_the_log_can_tell_it() -> None:
    """It is surer than the direct one, and the position-based one has the wrong sign."""
    pair, zeta = varied()
    user = trust_bias(zeta, THETA, relevant=[1, 0.9, 0.8, 0.7, 0.6], irrelevant=[0.5, 0.3, 0.15, 0.05, 0.0])
    policy, truth = designed(pair, 0.5), pair.delta(user)
    log = Log.simulated(pair, policy, user, 30_000, seed=1)
    found = ladder(log, theta=fit_position_bias(log))
    assert [result.name for result in found.results] == [AB_TRAFFIC, DIRECT, AFFINE, POSITION_BASED]
    assert found.shown is used(found) is found.result(AFFINE)
    affine, direct, top = (found.result(name).estimate for name in (AFFINE, DIRECT, POSITION_BASED))
    assert affine is not None
    assert direct is not None
    assert top is not None
    assert affine.standard_error < direct.standard_error
    assert abs(affine.delta - truth) < 4 * affine.standard_error
    assert abs(top.delta - truth) > 5 * top.standard_error
    lines = fit_affine(log, fit_position_bias(log))
    slope, intercept = user.slope / user.slope[0], user.intercept - user.slope / user.slope[0] * user.intercept[0]
    assert (np.abs(lines.slope - slope) < 5 * lines.slope_error + 1e-12).all()
    assert (np.abs(lines.intercept - intercept) < 5 * lines.intercept_error + 1e-12).all()


def test_there_is_no_affine_estimate_where_documents_do_not_differ_enough() -> None:
    log = simulated(trusting_user(), 2000, seed=7)
    found = ladder(log, theta=fit_position_bias(log)).result(AFFINE)
    assert not found.has_interval
    assert found.missing.startswith("more clicks")
    assert ladder(log, theta=THETA).result(AFFINE).missing == "position bias from the trial's own clicks"


def test_affine_and_position_based_estimates_differ_by_chance_where_both_are_right() -> None:
    """20 logs of varied relevance: z of the estimate and of its difference to the one above."""
    pair, zeta = varied()
    user = position_based(zeta, THETA)
    policy, truth = designed(pair, 0.3), pair.delta(user)
    off, apart = [], []
    for seed in range(20):
        log = Log.simulated(pair, policy, user, 8000, seed=seed)
        found = ladder(log, theta=fit_position_bias(log))
        affine = found.result(AFFINE).estimate
        if affine is not None:
            off.append((affine.delta - truth) / affine.standard_error)
            apart += [
                t.difference / t.standard_error for t in found.tests if (t.upper, t.lower) == (POSITION_BASED, AFFINE)
            ]
    assert len(off) == len(apart) == 20
    for z in (off, apart):
        assert abs(np.mean(z)) < 4.5 / np.sqrt(20)
        assert 0.2 < np.mean(np.square(z)) < 1 + 4.5 * np.sqrt(2 / 20)


def test_before_theta_is_known_estimates_with_fewer_assumptions_are_used() -> None:
    log = simulated(position_based_user(), 3000, seed=2)
    found = ladder(log, theta=None, waits_for="clicks at rank 7")
    top = found.result(POSITION_BASED)
    assert not top.has_interval
    assert top.missing == "clicks at rank 7"
    assert found.shown is used(found) is found.result(DIRECT)
    known = ladder(log, theta=THETA)
    assert known.shown is used(known) is known.result(POSITION_BASED)


def test_without_ab_traffic_nothing_is_tested_so_nothing_decides() -> None:
    log = simulated(position_based_user(), 3000, seed=3, holdback=0.0)
    found = ladder(log, theta=THETA)
    assert found.result(AB_TRAFFIC).missing.startswith("50 A/B searches of A and of B (0 and 0 so far)")
    assert used(found) is None
    assert found.shown is found.result(POSITION_BASED)
    assert found.hidden(found.shown) == np.inf
    decision = decide(found, searches=3000, visitors=3000, clicks=2000, allowance=0)
    assert (decision.state, decision.winner, decision.reasons) == ("withheld", None, ("untested",))


def test_few_units_or_clicks_say_nothing() -> None:
    log = simulated(position_based_user(), 90, seed=4)
    found = ladder(log, theta=THETA)
    assert not any(result.has_interval for result in found.results)
    assert decide(found, searches=90, visitors=90, clicks=50).state == "too early"
    silent = ladder(
        simulated(position_based(np.full(top_and_tail()[0].n_documents, 1e-4), THETA), 900, seed=5), theta=THETA
    )
    assert not any(result.has_interval for result in silent.results)


def test_an_ab_test_has_one_estimate_with_all_of_the_level() -> None:
    log = simulated(position_based_user(), 1000, seed=6, holdback=1.0)
    found = ladder(log, theta=None, only="means", level=0.9)
    assert [result.name for result in found.results] == [AB_TRAFFIC]
    assert used(found) is found.results[0]
    assert found.results[0].level == pytest.approx(0.9)
    assert found.hidden(found.results[0]) == 0


def test_searches_with_equal_lists_add_no_noise_to_the_ab_estimate() -> None:
    """Where both rankers show the same page they get the same clicks: such impressions are worth 0, exactly."""
    lists = [["x", "y", "z"], ["p", "q", "r"]]
    pair = Pair.from_lists(lists, [["y", "x", "z"], ["p", "q", "r"]], k=3)
    user = position_based([0.6, 0.1, 0.3, 0.9, 0.9, 0.9], THETA[:3])
    log = Log.simulated(pair, AB().policy(pair), user, 4000, seed=1)
    found = estimate(log, estimator="adjusted")
    assert not found.x[log.query[log.design] == 1].any()
    assert found.standard_error < 0.7 * estimate(log, estimator="means").standard_error
    assert abs(found.delta - pair.delta(user)) < 4.5 * found.standard_error


def result_with(name: str, delta: float, half: float) -> EstimatorResult:
    x = np.tile([delta - 1, delta + 1], 50)
    return EstimatorResult(
        name, Estimate.of(x, np.ones(3), largest_weight=1.0), Interval(delta - half, delta + half), ""
    )


@pytest.mark.parametrize(
    ("error", "difference", "half", "settled", "decides"),
    [
        (0.01, 0.001, 0.03, True, True),  # what could hide is small against the interval
        (0.01, 0.025, 0.03, None, False),  # contradicted at this look, not refuted
        (0.01, 0.05, 0.03, False, False),  # refuted, however often one looked
        (0.01, 0.001, 0.01, None, True),  # not contradicted, but more could hide than the interval allows for
        (0.03, 0.001, 0.03, None, False),  # a bias of 0.04 would not have been seen
    ],
)
def test_when_less_ab_traffic_will_do_and_when_a_winner_may_be_named(
    error: float, difference: float, half: float, settled: bool | None, decides: bool
) -> None:
    top, lower = result_with(POSITION_BASED, 0.04, half), result_with(DIRECT, 0.04 - difference, 0.2)
    test = Hausman(POSITION_BASED, DIRECT, difference, error, reach=3 * error)
    found = Ladder((lower, top), (test,))
    assert found.settled is settled
    decision = decide(found, searches=100, visitors=100, clicks=100)
    assert (used(found) is top and found.blind(top) <= 1) is decides
    assert (decision.winner == "A") is (decides and 0 not in top.interval)


def test_the_affine_estimate_is_no_witness_for_the_position_based_one() -> None:
    """It shares what the position-based one assumes: alone it tests nothing, and says nothing of how much could hide."""
    top, affine = result_with(POSITION_BASED, 0.04, 0.03), result_with(AFFINE, 0.04, 0.05)
    sure = Hausman(POSITION_BASED, AFFINE, 0.0, 0.001, reach=0.003)
    found = Ladder((affine, top), (sure,))
    assert found.hidden(top) == np.inf
    assert not found.tested(top)
    assert found.settled is None


def test_the_test_to_look_at_is_that_by_ab_traffic_or_one_that_fails() -> None:
    """Agreement with an estimate that shares most of the assumption says little, however sure it is."""
    top = result_with(POSITION_BASED, 0.04, 0.03)
    by_ab, by_direct = (
        Hausman(POSITION_BASED, AB_TRAFFIC, 0.01, 0.02, 0.06),
        Hausman(POSITION_BASED, DIRECT, 0.0, 0.001, 0.003),
    )
    failed, refuted = (
        Hausman(POSITION_BASED, DIRECT, 0.025, 0.01, 0.03),
        Hausman(POSITION_BASED, AFFINE, 0.05, 0.01, 0.03),
    )
    for tests, expected in (
        ((), None),
        ((by_ab, by_direct), by_ab),
        ((by_ab, failed), failed),
        ((by_ab, failed, refuted), refuted),
    ):
        assert Ladder((top,), tests).plainest_test(top) is expected
