from __future__ import annotations

import numpy as np
import pytest

from ranktrial.analysis.discoveries import discoveries, least_rates, log_evidence
from ranktrial.analysis.estimators.results import Estimate
from ranktrial.analysis.intervals import asymptotic_radius, mixture_scale


def found_in(x: np.ndarray) -> Estimate:
    return Estimate.of(x, np.empty(0), largest_weight=1.0)


def test_the_e_value_is_the_formula() -> None:
    x = np.tile([1.0, -0.5, 2.0, 0.3, 0.7], 20)
    n, r2, s2 = len(x), mixture_scale(0.95, 3), x.var(ddof=1)
    by_hand = (1 + n * r2) ** -0.5 * np.exp(r2 * x.sum() ** 2 / (2 * s2 * (1 + n * r2)))
    assert np.exp(log_evidence(found_in(x), tightest_at=3)) == pytest.approx(by_hand)
    assert log_evidence(found_in(x[:99]), tightest_at=3) == 0.0  # no interval yet
    rare = np.append(np.zeros(200), np.ones(19))  # nor with fewer than 20 that differ
    assert log_evidence(found_in(rare)) == 0.0


def test_evidence_reaches_one_over_alpha_where_the_interval_leaves_out_zero() -> None:
    x = np.random.default_rng(1).normal(0, 1, 500)
    radius = asymptotic_radius([500], [x.std(ddof=1)], level=0.95, tightest_at=200)[0]
    at_the_edge = x - x.mean() + radius
    assert np.exp(log_evidence(found_in(at_the_edge), tightest_at=200)) == pytest.approx(20)
    assert np.exp(log_evidence(found_in(at_the_edge + 0.1), tightest_at=200, allowed=0.1)) == pytest.approx(20)


@pytest.mark.parametrize(
    ("e", "found"),
    [
        ([20.0], [True]),
        ([19.0], [False]),
        ([40.0, 1.0], [True, False]),
        ([39.0, 20.0], [True, True]),  # 39 alone is not enough, 39 and 20 together are
        ([1.0, 80.0, 40.0, np.nan], [False, True, True, False]),
        ([], []),
    ],
)
def test_e_bh_by_hand(e: list[float], found: list[bool]) -> None:
    with np.errstate(invalid="ignore"):
        assert discoveries(np.log(np.array(e)), 0.05).tolist() == found
        assert (least_rates(np.log(np.array(e))) <= 0.05 * (1 + 1e-12)).tolist() == found


@pytest.mark.slow
def test_false_discoveries_among_nulls_and_differences() -> None:
    """20 metrics of the same visitors, half of them without a difference, at 20 looks: the share of false ones."""
    rng, looks, shares = np.random.default_rng(5), np.unique(np.geomspace(100, 4_000, 20).astype(int)), []
    for _ in range(200):
        common = rng.normal(0, 1, (4_000, 1))
        x = 0.6 * common + rng.normal(0, 1, (4_000, 20))
        x[:, :10] += 0.1
        worst = 0.0
        for n in looks:
            flags = discoveries([log_evidence(found_in(x[:n, m]), tightest_at=1_000) for m in range(20)])
            worst = max(worst, flags[10:].sum() / max(flags.sum(), 1))
        shares.append(worst)  # the worst look of each trial: more than what is promised for any one look
    assert np.mean(shares) < 0.05 + 4 * 0.22 / np.sqrt(200)
    assert flags[:10].all()
