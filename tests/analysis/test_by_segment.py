"""Theta by segment: answers are right for each segment and for all, exactly, and theta is divided only where it differs."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from ranktrial.analysis.estimators.by_segment import by_value, fit_by_segment
from ranktrial.analysis.estimators.estimation import estimate, fit_position_bias
from ranktrial.analysis.estimators.results import BiasFit, SegmentBias
from ranktrial.arrays import FloatArray
from ranktrial.log import Log
from ranktrial.log.simulated import simulated_by_segment
from ranktrial.methods import AB, LogOpt
from ranktrial.position_bias import Conditional, Counts
from ranktrial.rankings import Mixture, Pair
from ranktrial.segments import Segments
from ranktrial.users import two_devices

DEVICE = Segments.of({"device": ["phone", "desktop"]})
PAIR = Pair.from_lists([["a", "b", "c"], ["p", "q", "r"]], [["b", "c", "a"], ["q", "r", "s"]], k=2)
THETAS = np.array([[1.0, 0.5], [1.0, 0.15], [1.0, 0.8]])  # other, phone, desktop
ZETAS = np.array([[0.5, 0.3, 0.2, 0.6, 0.4, 0.1, 0.3], [0.2, 0.6, 0.1, 0.1, 0.5, 0.3, 0.2]])  # phone, desktop
SHARES = np.array([0.3, 0.7])
QUERIES = np.array([[0.8, 0.2], [0.4, 0.6]])  # of each segment: what is asked differs, too


def by_design() -> dict[str, list[Mixture]]:
    """Policies of phones and desktops: one for both, or one of each theta."""
    method = LogOpt(bias="known", relevance="constant", loss=None, keep=0, holdback=0.25)
    return {
        "one design": [AB().policy(PAIR)] * 2,
        "a design of each theta": [method.policy(PAIR.knowing(theta=theta)) for theta in THETAS[1:]],
    }


def every_outcome(policies: list[Mixture]) -> tuple[Log, FloatArray]:
    """A log with every impression that can be, and the probability of each."""
    rows, chances = [], []
    for device, policy in enumerate(policies):
        theta, zeta = THETAS[device + 1], ZETAS[device]
        for query in range(2):
            for row in range(policy.offsets[query], policy.offsets[query + 1]):
                shown = policy.rankings[row]
                for clicks in product([False, True], repeat=2):
                    seen = theta * zeta[shown]
                    chance = SHARES[device] * QUERIES[device, query] * policy.weights[row]
                    rows.append((device, shown, clicks))
                    chances.append(chance * np.prod(np.where(clicks, seen, 1 - seen)))
    devices, shown, clicked = (np.array(column) for column in zip(*rows))
    distinct = policies[:1] if policies[0] is policies[1] else policies
    log = Log.of(PAIR, distinct, shown, clicked, versions=devices if len(distinct) > 1 else None)
    return replace(log, attributes=DEVICE, segment=devices + 1), np.array(chances)


def known(thetas: FloatArray = THETAS, *, divided: bool = True) -> BiasFit:
    """A fit that found these thetas, in all of its jackknife."""
    bias = Conditional().fit(Counts.from_dense([[10, 10], [20, 20]], [[4, 2], [8, 4]]))
    without = np.tile(thetas[:, None], (1, 3, 1))
    found = SegmentBias("device", DEVICE.values("device"), thetas, without, (1, 2), 0.0)
    return BiasFit(replace(bias, theta=thetas[0]), without[0], found, found if divided else None)


def truth(device: int) -> float:
    """Clicks of A less those of B in a segment."""
    seen = [
        sum(t * ZETAS[device][d] for t, d in zip(THETAS[device + 1], ranked.tolist())) for top in (PAIR.top_a, PAIR.top_b)
        for ranked in top
    ]  # fmt: skip
    of_a, of_b = np.array(seen[:2]), np.array(seen[2:])
    return float(QUERIES[device] @ (of_a - of_b))


@pytest.mark.parametrize("name", by_design())
@pytest.mark.parametrize("estimator", ["ips", "constant", "rank-aware", "doubly-robust"])
def test_the_sum_over_segments_is_the_difference_exactly(name: str, estimator: str) -> None:
    log, chance = every_outcome(by_design()[name])
    assert chance.sum() == pytest.approx(1, abs=1e-12)
    prediction = None if estimator == "ips" else 0.3
    x = estimate(log, theta=known(), estimator=estimator, prediction=prediction).x
    delta = [truth(device) for device in range(2)]
    for device in range(2):
        of_device = log.levels("device") == device + 1
        assert x[of_device] @ chance[of_device] == pytest.approx(SHARES[device] * delta[device], abs=1e-12)
    assert x @ chance == pytest.approx(SHARES @ delta, abs=1e-12)
    one = estimate(log, theta=known(divided=False), estimator=estimator, prediction=prediction).x
    assert abs(one @ chance - SHARES @ delta) > 0.01  # one theta is right for neither


def test_the_replicates_of_the_jackknife_use_the_theta_of_the_segment() -> None:
    log, _ = every_outcome(by_design()["a design of each theta"])
    units = np.arange(len(log)) % 3
    log = replace(log, unit=units)
    found = estimate(log, theta=known(), estimator="rank-aware", prediction=0.3)
    assert found.replicates is not None
    group = log.group(3)
    for left_out in range(3):
        assert found.replicates[left_out] == pytest.approx(found.x[group != left_out].mean(), abs=1e-12)


def two_of(seed: int, *, visible: int, n: int = 20_000) -> Log:
    random = np.random.default_rng(seed)
    a, b = ([[f"{q} {d}" for d in random.permutation(12)[:8]] for q in range(30)] for _ in range(2))
    pair = Pair.from_lists(a, b, k=6)
    zeta = random.choice([0.1, 0.3, 0.7], pair.n_documents)
    policy = LogOpt(bias="known", relevance="constant", loss=None, holdback=0.5).policy(
        pair.knowing(theta=np.ones(6) / np.arange(1, 7))
    )
    users = two_devices(zeta, 6, visible=visible)
    return simulated_by_segment(
        pair, dict.fromkeys(users, policy), users, {"phone": n // 2, "desktop": n // 2}, seed=seed
    )


def test_theta_is_divided_where_devices_differ_and_found_for_each() -> None:
    log = two_of(1, visible=3)
    fit = fit_position_bias(log)
    found = fit.by_segment
    assert found is not None
    assert found is fit.tested
    assert (found.attribute, found.values, found.own) == ("device", ("other", "desktop", "phone"), (1, 2))
    assert found.p < 1e-6
    assert np.array_equal(found.thetas[0], fit.bias.theta)  # of which there are no searches
    desktop = two_devices([0.1], 6)["desktop"].slope
    assert np.abs(np.log(found.thetas[1] / desktop)).max() < 0.25
    assert np.abs(np.log(found.thetas[2, :3] / desktop[:3])).max() < 0.25
    assert found.thetas[2, 3:].max() < 0.05
    whole = estimate(log, theta=fit)
    assert [len(part) for _, _, part in by_value(log, "device")] == [10_000, 10_000]
    assert whole.delta == pytest.approx(whole.x.mean())


@pytest.mark.slow
def test_one_theta_stays_where_devices_are_alike() -> None:
    """p < .05 in no more than 5 % of logs, within 4 standard errors."""
    p = []
    for seed in range(30):
        fit = fit_position_bias(two_of(seed, visible=6, n=4_000))
        assert fit.tested is not None
        p.append(fit.tested.p)
    assert np.mean(np.array(p) < 0.05) <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 30)
    assert np.mean(p) > 0.25


def test_a_log_without_attributes_has_one_theta() -> None:
    log = two_of(1, visible=3, n=4_000)
    plain = replace(log, attributes=Segments(), segment=np.empty(0, np.int64))
    fit = fit_position_bias(plain)
    assert fit.tested is None
    assert fit.by_segment is None
    assert (
        estimate(plain, theta=fit).delta == estimate(log, theta=replace(fit_position_bias(log), by_segment=None)).delta
    )


def test_a_segment_with_few_clicks_takes_the_theta_of_all() -> None:
    log = two_of(1, visible=3)
    few = np.flatnonzero(log.levels("device") == 2)[20:]  # 20 searches on phones are left
    part = log.take(np.setdiff1d(np.arange(len(log)), few))
    fit = fit_by_segment(part, fit_position_bias(part))
    assert fit.by_segment is None
