"""Position bias where the answer is known exactly: by hand, in the limit of infinite logs, and under symmetries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ranktrial.arrays import FloatArray
from ranktrial.paper.click_models.em import EM
from ranktrial.position_bias import NotIdentifiable, model
from ranktrial.position_bias.affine import affine_bias
from ranktrial.position_bias.auto import Auto
from ranktrial.position_bias.conditional import Conditional
from ranktrial.position_bias.counts import Counts
from ranktrial.position_bias.jackknife import fit_groups, jackknife_variance
from ranktrial.position_bias.model import Estimator

ESTIMATORS: list[Estimator] = [Conditional(), EM(), Auto()]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_one_document_at_two_ranks_is_a_ratio_of_click_rates(estimator: Estimator) -> None:
    estimate = estimator.fit(Counts.from_dense([[10, 20]], [[4, 2]]))
    np.testing.assert_allclose(estimate.theta, [1, (2 / 20) / (4 / 10)], rtol=1e-9)


def test_two_documents_by_hand() -> None:
    counts = Counts.from_dense([[1, 3], [2, 2]], [[1, 1], [1, 1]])
    # 2 = 2 * 3t / (1 + 3t) + 2 * 2t / (2 + 2t), that is 3 t^2 = 1.
    assert Conditional().fit(counts).theta[1] == pytest.approx(3**-0.5, rel=1e-12)


def test_standard_errors_by_hand() -> None:
    # One document per unit, 2 ranks: score_d = C_d2 - T_d t / (1 + t) with equal shows, information = T t / (1 + t)^2.
    counts = Counts.from_dense([[9, 9], [9, 9], [9, 9]], [[4, 3], [6, 2], [2, 1]])
    t = 6 / 12
    scores = np.array([3 - 7 / 3, 2 - 8 / 3, 1 - 3 / 3])
    # Information is shared out as clicks are; were the shares equal, 1 / kept would be G / (G - 1) = 3 / 2.
    share = np.array([7, 8, 3]) / 18
    kept = 1 - np.sum(share**2)
    expected = t * np.sqrt(np.sum(scores**2) / kept) / (18 * t / (1 + t) ** 2)
    # Omega = diag(share) - share share': trace^2 over trace of the square.
    freedom = kept**2 / (np.sum(share**2) - 2 * np.sum(share**3) + np.sum(share**2) ** 2)
    estimate = Conditional().fit(counts)
    assert estimate.theta[1] == pytest.approx(t)
    assert estimate.standard_error[1] == pytest.approx(expected)
    np.testing.assert_allclose(estimate.degrees_of_freedom, [np.inf, freedom])
    # Documents of one query vary together.
    joint = Counts.from_dense([[9, 9], [9, 9], [9, 9]], [[4, 3], [6, 2], [2, 1]], offsets=[0, 2, 3])
    assert Conditional().fit(joint).standard_error[1] == pytest.approx(0, abs=1e-9)


def test_few_units_correct_the_error_as_the_whole_matrix_says() -> None:
    """Omega of ``sandwich`` written out, unit by unit, with scores and informations by numerical derivatives."""
    shown, clicked = random_counts(3).shown, random_counts(3).clicked
    units = [slice(0, 3), slice(3, 11), slice(11, 12), slice(12, 25)]
    estimate = Conditional().fit(Counts.from_dense(shown, clicked, offsets=[0, 3, 11, 12, 25]))

    def score(rows: slice, log_theta: FloatArray) -> FloatArray:
        """Left sides of the conditional equation, ranks 2 to 4."""
        theta, n, c = np.append(1.0, np.exp(log_theta)), shown[rows], clicked[rows]
        terms = c - c.sum(1, keepdims=True) * n * theta / (n @ theta)[:, None]
        return np.asarray(terms.sum(0)[1:])

    at, step = np.log(estimate.theta[1:]), 1e-5
    scores = np.array([score(rows, at) for rows in units])
    np.testing.assert_allclose(scores.sum(0), 0, atol=1e-8)
    nudges = step * np.eye(3)
    H = np.array([[(score(u, at - e) - score(u, at + e)) / (2 * step) for e in nudges] for u in units])
    B = np.linalg.inv(H.sum(0))
    for r in range(3):
        b = B[r]
        omega = np.array([[b @ ((g == h) * H[g] - H[g] @ B @ H[h]) @ b for h in range(4)] for g in range(4)])
        variance = np.sum((scores @ b) ** 2) * B[r, r] / np.trace(omega)
        assert estimate.standard_error[r + 1] / estimate.theta[r + 1] == pytest.approx(np.sqrt(variance), rel=1e-6)
        freedom = np.trace(omega) ** 2 / np.trace(omega @ omega)
        assert np.asarray(estimate.degrees_of_freedom)[r + 1] == pytest.approx(freedom, rel=1e-6)


@pytest.mark.parametrize("blocks", [1, 3])
def test_equal_units_have_one_degree_of_freedom_less_than_units(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "UNITS_AT_ONCE", -(-7 // blocks))
    one = random_counts(4)
    clicked = np.concatenate([one.clicked] * 7)
    clicked[::25, 0] += np.arange(7) % 2  # else no unit differs, and the error is 0
    same = Counts.from_dense(np.concatenate([one.shown + 1] * 7), clicked, offsets=np.arange(8) * 25)
    estimate = Conditional().fit(same)
    np.testing.assert_allclose(estimate.degrees_of_freedom, [np.inf, 6, 6, 6], rtol=0.01)
    assert "few independent units: intervals are 1.2 times as wide" in estimate.note


def test_what_single_units_tell_has_no_error_and_no_interval() -> None:
    # Rank 2 is compared by both queries, rank 3 by the second only.
    counts = Counts.from_dense([[9, 9, 0], [9, 9, 9]], [[4, 3, 0], [5, 3, 1]], offsets=[0, 1, 2])
    alone = Counts.from_dense([[9, 9, 9], [5, 5, 5]], [[4, 3, 1], [2, 2, 1]], offsets=[0, 2])
    estimate = Conditional().fit(alone)
    assert np.isnan(estimate.standard_error[1:]).all()
    assert estimate.confidence_interval() == ((1, 1), (0, np.inf), (0, np.inf))
    assert "no standard error at rank 2 and 3: every comparison it rests on comes from one unit" in estimate.note
    assert np.isfinite(Conditional().fit(counts).standard_error[1])


def test_known_bias_leaves_only_relevance() -> None:
    # With theta = (1, 1/2) and shows at one rank only, zeta is click rate over theta, at most 1.
    counts = Counts.from_dense([[10, 0], [0, 10], [0, 10], [0, 0]], [[3, 0], [0, 2], [0, 8], [0, 0]])
    estimate = EM(theta=(1.0, 0.5)).fit(counts)
    assert estimate.zeta is not None
    assert estimate.predicted is not None
    np.testing.assert_allclose(estimate.zeta[:3], [0.3, 0.4, 1.0])
    # The document never shown gets the mean over shows, and is marked.
    assert estimate.zeta[3] == pytest.approx((0.3 + 0.4 + 1.0) / 3)
    assert estimate.predicted.tolist() == [False, False, False, True]
    np.testing.assert_array_equal(estimate.standard_error, 0)


def test_log_likelihood_by_hand() -> None:
    estimate = EM().fit(Counts.from_dense([[10, 20]], [[4, 2]]))
    by_hand = 4 * np.log(0.4) + 6 * np.log(0.6) + 2 * np.log(0.1) + 18 * np.log(0.9)
    assert estimate.log_likelihood == pytest.approx(by_hand)


def expected_counts(seed: int, *, documents: int = 30, k: int = 5) -> tuple[Counts, FloatArray]:
    """A log so long that every count is its mean, whatever the relevances and the placement."""
    rng = np.random.default_rng(seed)
    theta = np.append(1.0, rng.uniform(0.05, 1.0, k - 1))
    shown = rng.exponential(100.0, (documents, k)) * (rng.random((documents, k)) < 0.7)
    shown[:2] = 50.0  # so that every pair of ranks is linked
    zeta = rng.uniform(0, 1, documents)
    return Counts.from_dense(shown, shown * theta * zeta[:, None], expected=shown), theta


@pytest.mark.parametrize("estimator", [*ESTIMATORS, Conditional(given="design")], ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_infinite_logs_give_theta_exactly(estimator: Estimator, seed: int) -> None:
    counts, theta = expected_counts(seed)
    estimate = estimator.fit(counts)
    assert estimate.converged
    np.testing.assert_allclose(estimate.theta, theta, rtol=0, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_the_design_needs_no_balance_in_what_was_shown(seed: int) -> None:
    # Shows differ from what the design meant, clicks follow the design's mean: only the design's equation is exact.
    counts, theta = expected_counts(seed)
    rng = np.random.default_rng(seed)
    shown = counts.shown * rng.uniform(1.0, 3.0, counts.shown.shape)
    skewed = Counts.from_dense(shown, counts.clicked, expected=counts.shown)
    np.testing.assert_allclose(Conditional(given="design").fit(skewed).theta, theta, atol=1e-8)
    assert np.abs(Conditional().fit(skewed).theta - theta).max() > 1e-3


def random_counts(seed: int) -> Counts:
    rng = np.random.default_rng(seed)
    shown = rng.poisson(8.0, (25, 4)).astype(float)
    clicked = rng.binomial(shown.astype(int), np.array([1, 0.6, 0.4, 0.2]) * rng.uniform(0.1, 0.9, (25, 1)))
    return Counts.from_dense(shown, clicked)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.5, 20))
def test_repeating_a_log_changes_errors_not_theta(seed: int, times: float) -> None:
    counts = random_counts(seed)
    more = Counts.from_dense(times * counts.shown, times * counts.clicked)
    for estimator in ESTIMATORS:
        np.testing.assert_allclose(estimator.fit(more).theta, estimator.fit(counts).theta, rtol=1e-6, atol=1e-8)
    once, often = EM().fit(counts), EM().fit(more)
    np.testing.assert_allclose(often.standard_error * np.sqrt(times), once.standard_error, rtol=1e-5, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_the_order_of_documents_is_irrelevant(seed: int) -> None:
    counts = random_counts(seed)
    order = np.random.default_rng(seed + 1).permutation(len(counts.shown))
    other = Counts.from_dense(counts.shown[order], counts.clicked[order])
    for estimator in ESTIMATORS:
        one, two = estimator.fit(counts), estimator.fit(other)
        np.testing.assert_allclose(two.theta, one.theta, rtol=1e-8)
        np.testing.assert_allclose(two.standard_error, one.standard_error, rtol=1e-6)


def test_jackknife_of_a_ratio_by_hand() -> None:
    groups = [Counts.from_dense([[10, 10]], [[c, d]]) for c, d in ((4, 2), (6, 2), (5, 3), (5, 1))]
    estimate, thetas = fit_groups(groups, Conditional())
    without = np.array([6 / 16, 6 / 14, 5 / 15, 7 / 15])
    assert estimate.theta[1] == pytest.approx(8 / 20)
    assert estimate.standard_error[1] == pytest.approx(np.sqrt(3 / 4 * np.sum((without - without.mean()) ** 2)))
    assert estimate.degrees_of_freedom == 3
    np.testing.assert_allclose(thetas[:, 1], without)
    np.testing.assert_allclose(jackknife_variance(thetas), estimate.covariance)
    np.testing.assert_array_equal(Conditional().fit(Counts.merged(groups)).theta, estimate.theta)


def test_intervals_hold_theta_and_stay_positive() -> None:
    estimate = Conditional().fit(random_counts(0))
    ends = np.array(estimate.confidence_interval(0.95))
    assert np.all(ends[1:, 0] > 0)
    assert np.all((ends[:, 0] <= estimate.theta) & (estimate.theta <= ends[:, 1]))
    np.testing.assert_allclose(ends[:, 0] * ends[:, 1], estimate.theta**2)
    reach = stats.t.ppf(0.975, estimate.degrees_of_freedom) * estimate.standard_error / estimate.theta
    np.testing.assert_allclose(ends[:, 1], estimate.theta * np.exp(reach))
    assert all(theta in interval for theta, interval in zip(estimate.theta, estimate.confidence_interval()))
    with pytest.raises(ValueError, match=r"level is 1\.5"):
        estimate.confidence_interval(1.5)


def test_results_print_and_become_plain_numbers() -> None:
    estimate = Auto().fit(Counts.from_dense([[10, 20]], [[4, 2]]))
    assert repr(estimate).splitlines()[:4:3] == [
        "PositionBias by Conditional()",
        "   2  0.2500  nan",
    ]  # one unit has no spread
    assert "the design is not known" in estimate.note
    assert estimate.to_dict()["theta"] == [1.0, 0.25]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Conditional(given="luck"), "given is 'luck'"),
        (lambda: EM(theta=(1.0, 1.5)), r"theta\[1\] is 1.5"),
        (lambda: EM(theta=(1.0, 0.5)).fit(random_counts(0)), "theta has 2 ranks, the counts have 4"),
    ],
)
def test_arguments_out_of_range_are_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_affine_lines_from_expected_clicks_are_exact_though_few_documents_stand_at_the_first_rank() -> None:
    """Rank 3 is linked to rank 1 only through documents that stand at ranks 1 and 2, and at 2 and 3."""
    random = np.random.default_rng(1)
    relevance = random.uniform(0.05, 0.9, 60)
    shown = random.uniform(5, 50, (60, 3)) * np.repeat([[1, 1, 0], [0, 1, 1]], 30, axis=0)
    slope, intercept = np.array([1.0, 0.6, 0.3]), np.array([0.0, 0.05, -0.01])
    clicked = shown * (relevance[:, None] * slope + intercept)
    days = [Counts.from_dense(shown * share, clicked * share) for share in (0.2, 0.3, 0.1, 0.4)]
    found = affine_bias(days, np.stack([relevance**2, relevance]), np.array([1.0, 0.5, 0.4]))
    np.testing.assert_allclose(found.slope, slope, atol=1e-6)
    np.testing.assert_allclose(found.intercept, intercept, atol=1e-6)
    np.testing.assert_allclose(found.slope_error, 0, atol=1e-5)


def test_affine_lines_are_refused_where_documents_are_alike_or_errors_too_large() -> None:
    random = np.random.default_rng(2)
    shown = np.full((40, 2), 50.0)
    days = [Counts.from_dense(shown, random.binomial(50, np.tile([0.3, 0.2], (40, 1)))) for _ in range(6)]
    with pytest.raises(NotIdentifiable):
        affine_bias(days, random.random((1, 40)), np.array([1.0, 0.7]), most_error=0.5)
    varied = random.uniform(0.1, 0.9, (40, 1))
    days = [Counts.from_dense(shown, random.binomial(50, varied * [1.0, 0.5])) for _ in range(6)]
    assert affine_bias(days, varied.T, np.array([1.0, 0.7]), most_error=0.5).slope_error[1] < 0.1
    with pytest.raises(NotIdentifiable, match=r"at rank 2 is .* \+- "):
        affine_bias(days, varied.T, np.array([1.0, 0.7]), most_error=1e-4)
