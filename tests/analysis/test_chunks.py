"""A log is worked on chunk by chunk: what comes out is the same however it is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cut_logs import THETA, listless, numbered, personal, shared
from pooling import plain_counts
from ranktrial.analysis import estimate, evidence, fit_position_bias, ladder, position_scores
from ranktrial.analysis.analyse import analyse
from ranktrial.analysis.answers import settled
from ranktrial.config import TrialConfig
from ranktrial.log import Log, folding
from ranktrial.log import log as logs
from ranktrial.methods import LogOpt
from ranktrial.rankings import Pair
from ranktrial.users import position_based


@pytest.mark.parametrize("clicked_only", [False, True])
@pytest.mark.parametrize("make", [shared, personal, listless])
def test_counts_are_those_of_the_plain_version(make: Callable[[], Log], clicked_only: bool) -> None:
    log = make()
    slots = np.arange(log.n_slots)
    if clicked_only:
        slots[~np.isin(slots, log.rankings[log.row][log.clicks])] = -1
    plain = plain_counts(log, slots, log.document_query[log.document], log.group(), logs.GROUPS)
    for found, expected in zip(log.parts(clicked_only=clicked_only), plain, strict=True):
        for name in ("documents", "shown", "clicked", "queries", "expected"):
            found_and_plain = getattr(found, name), getattr(expected, name)
            np.testing.assert_allclose(*found_and_plain, rtol=1e-14, err_msg=name)


@pytest.mark.parametrize("make", [shared, personal])
def test_clicks_are_listed_and_counted(make: Callable[[], Log]) -> None:
    log = make()
    impression, rank = np.nonzero(log.clicks)
    for found, expected in zip(log.clicked, (impression, rank, log.rankings[log.row[impression], rank]), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(log.clicks_each, log.clicks.sum(1))


@pytest.mark.parametrize("estimator", ["ips", "constant", "doubly-robust", "rank-aware", "direct", "adjusted"])
@pytest.mark.parametrize("make", [shared, personal])
def test_estimates(make: Callable[[], Log], estimator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make()
    options: dict[str, Any] = {"estimator": estimator, "uncovered": "leave out"}
    theta = None if estimator in ("direct", "adjusted") else "estimated"
    whole = [estimate(log, theta=theta, cross_fit=how, **options) for how in ("folds", "past")]
    monkeypatch.setattr(folding, "CHUNK", 64)
    assert len(folding.ranges_of(log)) == 15
    for found, how in zip(whole, ("folds", "past")):
        cut = estimate(log.take(slice(None)), theta=theta, cross_fit=how, **options)
        np.testing.assert_allclose(cut.x, found.x, rtol=1e-9, atol=1e-12)
        assert cut.standard_error == pytest.approx(found.standard_error, rel=1e-9)
        assert cut.uncovered.tolist() == found.uncovered.tolist()


def test_given_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    log = listless()
    found = estimate(log, theta=THETA, estimator="doubly-robust")
    monkeypatch.setattr(folding, "CHUNK", 64)
    np.testing.assert_allclose(estimate(listless(), theta=THETA, estimator="doubly-robust").x, found.x, rtol=1e-9)


@pytest.mark.parametrize("make", [shared, personal])
def test_a_whole_report(make: Callable[[], Log], monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrialConfig.model_validate({"method": LogOpt(), "k": 3})
    log = make()
    whole = settled(analyse(log, config, config.first_beliefs), {})
    monkeypatch.setattr(folding, "CHUNK", 64)
    cut = settled(analyse(log.take(slice(None)), config, config.first_beliefs), {})
    assert cut.decision.difference == pytest.approx(whole.decision.difference, rel=1e-9)
    assert list(cut.decision.interval) == pytest.approx(list(whole.decision.interval), rel=1e-9)
    for one, other in zip(cut.checks, whole.checks, strict=True):
        assert (one.name, one.status) == (other.name, other.status)
        assert one.value == pytest.approx(other.value, rel=1e-9, nan_ok=True), one.name


def test_pages_with_fewer_results_than_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stands at the last rank of any page: it must stay nothing when designs are numbered anew."""
    pair = Pair.from_lists([["x", "y"], ["p"]] * 9, [["y", "z"], ["q"]] * 9, k=4).knowing(theta=[1.0, 0.6, 0.4, 0.3])
    policies = [LogOpt(holdback=share).policy(pair) for share in (0.5, 0.4)]
    user = position_based([0.5, 0.3, 0.2, 0.6, 0.1] * 9, [1.0, 0.6, 0.4, 0.3])
    log = Log.simulated(pair, policies, user, [100, 100], seed=6)
    whole = estimate(log, estimator="ips").x
    again = log.take(np.arange(7, 200)).numbered_by_use()
    assert (again.rankings[again.row] < 0).sum(1).min() >= 1
    np.testing.assert_array_equal(again.rankings[again.row] < 0, (log.rankings[log.row] < 0)[7:])
    np.testing.assert_allclose(estimate(again, estimator="ips").x, whole[7:], rtol=1e-9, atol=1e-12)


def test_candidates_that_cannot_be_seen_are_found_in_the_whole_log(monkeypatch: pytest.MonkeyPatch) -> None:
    log = personal()
    hidden = np.isin(log.rankings, np.flatnonzero(log.document % 4 == 3))
    blind = numbered(log, np.arange(len(log)))
    blind.rankings[hidden] = -1
    whole = estimate(blind, theta=THETA, estimator="ips", uncovered="leave out")
    assert len(whole.uncovered) == len(log)  # document w of every design
    monkeypatch.setattr(folding, "CHUNK", 64)
    cut = estimate(blind.take(slice(None)), theta=THETA, estimator="ips", uncovered="leave out")
    assert cut.uncovered.tolist() == whole.uncovered.tolist()


def test_numbers_by_first_use() -> None:
    log = shared().take(np.random.default_rng(5).permutation(900)[:200])
    again = log.numbered_by_use()
    assert again.numbered_by_use() is again
    assert (np.diff(np.unique(again.design, return_index=True)[1]) > 0).all()
    assert again.n_designs == len(np.unique(log.design))
    for at in range(0, 200, 7):
        for of in (log, again):
            slots = of.rankings[of.row[at]]
            names = [of.documents[of.document[slot]] for slot in slots[slots >= 0]]
            if of is log:
                expected = names, log.queries[log.query[log.design[at]]]
            else:
                assert (names, of.queries[of.query[of.design[at]]]) == expected
    fit, fit_again = fit_position_bias(log), fit_position_bias(again)
    np.testing.assert_allclose(fit.bias.theta, fit_again.bias.theta, rtol=1e-9)
    assert position_scores(log, THETA).mean == pytest.approx(position_scores(again, THETA).mean, rel=1e-9)
    found, found_again = (ladder(of, theta=THETA).result("position-based").estimate for of in (log, again))
    assert found is not None
    assert found_again is not None
    assert found.delta == pytest.approx(found_again.delta, rel=1e-9)
    assert evidence(again).impressions == evidence(log).impressions
