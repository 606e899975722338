"""Expected runs against exact laws, and against simulation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from scipy.special import gammainc, gammaln

from ranktrial.arrays import FloatArray, IntArray
from ranktrial.methods import (
    AB,
    Counterfactual,
    ExpectedRun,
    Linear,
    LogOpt,
    Method,
    Probabilistic,
    TeamDraft,
    versions,
)
from ranktrial.methods._kernels.displays import clicked_documents
from ranktrial.methods.base import parse_method
from ranktrial.methods.displays import valued
from ranktrial.methods.influence import ThetaInfluence
from ranktrial.paper.logopt_network import LogOptNetwork, _State
from ranktrial.position_bias import Conditional, Counts
from ranktrial.position_bias._kernels import conditional_equation
from ranktrial.position_bias.identifiability import exposure
from ranktrial.rankings import Moments, Pair, PlackettLuce, drawn_moments
from ranktrial.rankings.drawn_moments import ips_moments
from ranktrial.rankings.traffic import display_counts
from ranktrial.users import User, cascade, position_based, rank_decay, trust_bias

K = 4
POINTS = [100, 1_000, 1_500, 10_000, 30_000]


def world(queries: int = 40, documents: int = 12, seed: int = 5) -> tuple[Pair, User]:
    random = np.random.default_rng(seed)
    quality, zeta = random.normal(size=queries * documents), random.uniform(0.05, 0.95, queries * documents)
    a, b = (quality + random.normal(size=len(quality)) for _ in range(2))
    offsets = np.arange(0, queries * documents + 1, documents)
    return Pair.from_scores(a, b, offsets, K).knowing(theta=rank_decay(K)), position_based(zeta, rank_decay(K))


def law_of_sum(values: FloatArray, chances: FloatArray, n: int) -> tuple[FloatArray, FloatArray]:
    """The exact law of a sum of n independent whole numbers from -m to m."""
    size = 2 * n * int(values.max()) + 1
    one = np.zeros(size)
    np.add.at(one, values.astype(int) % size, chances)
    law = np.fft.irfft(np.fft.rfft(one) ** n, size)
    return ((np.arange(size) + size // 2) % size - size // 2).astype(float), law


@pytest.mark.parametrize("n", [100, 1_000, 10_000])
@pytest.mark.parametrize("method", [TeamDraft(), TeamDraft("sum"), AB(estimate="paper")], ids=str)
def test_errors_are_those_of_the_exact_law(method: TeamDraft | AB, n: int) -> None:
    pair, user = world()
    delta, law = pair.delta(user), method.outcome_law(pair, user)
    if isinstance(method, AB):
        clicks = np.arange(law.shape[1])
        values, chances = np.concatenate([clicks, -clicks]).astype(float), law.ravel()
    else:
        values, chances = np.arange(len(law)) - len(law) // 2.0, law.sum(1)
    total, chance = law_of_sum(values, chances, n)
    estimate = total * method.traits.step / n
    run = method.expected(pair, user, [n], seed=1)
    wrong = chance[estimate * np.sign(delta) <= 0].sum()
    assert run.binary_error(delta)[0] == pytest.approx(wrong, abs=3e-4)
    assert run.absolute_error(delta)[0] == pytest.approx(chance @ np.abs(estimate - delta), rel=2e-3)
    assert run.squared_error(delta)[0] == pytest.approx(chances @ (values * method.traits.step - delta) ** 2, rel=1e-9)
    assert run.standard_error == 0


def test_skewed_laws_are_corrected() -> None:
    """x = an exponential variable - 0.9: the sum has a gamma law, whose tails the normal law alone misses."""
    n = 25
    run = ExpectedRun.of_moments([n], Moments(0.1, 1.0, 0.0, 2.0, 6.0))
    plain = ExpectedRun.of_moments([n], Moments(0.1, 1.0, 0.0))
    wrong = float(gammainc(n, 0.9 * n))
    assert run.binary_error(0.1)[0] == pytest.approx(wrong, abs=1e-3)
    assert abs(plain.binary_error(0.1)[0] - wrong) > 0.01
    assert run.binary_error(-0.1)[0] == pytest.approx(1 - run.binary_error(0.1)[0], abs=1e-12)
    # E|S / n - 1| of a gamma variable S of shape n is 2 n^n exp(-n) / n!.
    error = 2 * np.exp(n * np.log(n) - n - gammaln(n + 1))
    assert run.absolute_error(0.1)[0] == pytest.approx(error, rel=2e-4)
    assert abs(plain.absolute_error(0.1)[0] / error - 1) > 2e-3


@pytest.mark.parametrize("rare", [0.1, 0.01, 1e-4])
def test_rare_impressions_with_most_of_the_variance(rare: float) -> None:
    """A normal law whose standard deviation is 1, rarely 100 times that: E|z| is within a factor of 3, and never below 0."""
    variance = 1 - rare + rare * 1e4
    fourth = 3 * (1 - rare + rare * 1e8) - 3 * variance**2
    run = ExpectedRun.of_moments([1], Moments(0.0, variance, 0.0, 0.0, fourth))
    exact = np.sqrt(2 / np.pi) * (1 - rare + rare * 100)
    assert exact / 3 < run.absolute_error(0.0)[0] < 3 * exact
    for skewness, away in product((-1.0, 0.0, 1.0), np.linspace(-3, 3, 61) * np.sqrt(variance)):
        third = skewness * np.sqrt(fourth / variance**2 + 2) * variance**1.5  # the most there is
        skewed = ExpectedRun.of_moments([1], Moments(0.0, variance, 0.0, third, fourth))
        assert skewed.absolute_error(away)[0] >= 0


def test_without_noise_nothing_is_left_to_chance() -> None:
    run = ExpectedRun.of_moments([10], Moments(0.1, 0.0, 1.0))
    assert (run.absolute_error(0.3)[0], run.binary_error(0.3)[0]) == pytest.approx((0.2, 0.0))
    assert (run.binary_error(-0.3)[0], run.binary_error(0.0)[0]) == (1.0, 1.0)


@pytest.mark.parametrize("behaviour", ["position-based", "told otherwise", "trust bias"])
def test_moments_of_plackett_luce_policies(behaviour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    pair, user = world(queries=30, documents=5)
    theta = rank_decay(K)
    if behaviour == "trust bias":
        user = trust_bias(user.zeta, theta, relevant=np.ones(K), irrelevant=0.3 / np.arange(1, K + 1))
    if behaviour == "told otherwise":
        theta = rank_decay(K, 0.6)
    policy = PlackettLuce(random.normal(size=pair.n_documents), pair.offsets, K)
    mixture = policy.listed()
    weights = np.divide(pair.lam(theta), mixture.exposure(theta))
    exact = mixture.moments(np.append(weights, 0.0)[mixture.rankings], user)
    found = ips_moments(pair, policy, theta, user, seed=3)
    assert found.mean == pytest.approx(exact.mean, abs=1e-8)
    assert found.standard_error == 0
    assert found.variance == pytest.approx(exact.variance, rel=0.01)
    assert (found.third, found.fourth) == pytest.approx((exact.third, exact.fourth), rel=0.1, abs=0.05)
    assert found.ctr == pytest.approx(exact.ctr, rel=0.01)

    # Of many queries some stand for all: over 100 draws the standard error is what it says.
    monkeypatch.setattr(drawn_moments, "QUERIES", 10)
    monkeypatch.setattr(drawn_moments, "DRAWS", 100)
    some = [ips_moments(pair, policy, theta, user, seed=seed) for seed in range(100)]
    mean, error = np.array([(one.mean, one.standard_error) for one in some]).T
    assert abs(mean.mean() - exact.mean) <= 4.5 * mean.std() / 10 + 1e-8
    assert mean.std() == pytest.approx(np.sqrt((error**2).mean()), rel=0.35, abs=1e-8)
    spread = np.array([one.variance for one in some])
    assert abs(spread.mean() - exact.variance) < 4.5 * spread.std() / 10


def test_users_who_leave_are_simulated_where_rankings_cannot_be_listed() -> None:
    pair, _ = world()
    user = cascade(world()[1].zeta, K)
    with pytest.raises(ValueError, match="simulate instead"):
        ips_moments(pair, PlackettLuce(np.zeros(pair.n_documents), pair.offsets, K), rank_decay(K), user, seed=1)
    method = Counterfactual(logging="uniform")
    run = method.expected(pair, user, [500], seed=3, runs=2)
    assert run.sums.shape == (2, 1, 6)
    assert run.absolute_error(0.1)[0] == pytest.approx(np.abs(run.sums[:, 0, 0] / 500 - 0.1).mean())


METHODS = (
    "AB()",
    "Probabilistic(tau=4)",
    'Optimized(credit="inverse")',
    'Counterfactual(logging="uniform")',
    'Counterfactual(logging="lambda")',
    'Counterfactual(logging="optimal")',
    'LogOpt(bias="known", relevance="estimated", floor=0, holdback=0)',
    "LogOpt()",
    'AB(estimate="rank-aware")',
    'LogOptNetwork(bias="known", steps=10, samples=20)',
    'LogOptNetwork(bias="estimated", steps=10, samples=20)',
    'Counterfactual(logging="ab", propensities="observed")',
)


@pytest.mark.slow
@pytest.mark.parametrize("text", METHODS)
def test_simulated_runs_come_to_the_expectation(text: str) -> None:
    """Errors of 60 simulated runs at five checkpoints, with a bound of 4.5 standard errors of both sides."""
    method, (pair, user) = parse_method(text), world()
    delta, runs = pair.delta(user), 60
    simulated = [method.simulate(pair, user, POINTS, seed=seed) for seed in range(runs)]
    # One expected run at a time, so that what drawing leaves of noise can be seen.
    drawn = method.traits.learns_at or not method.traits.averages_impressions
    expected = [method.expected(pair, user, POINTS, seed=1000 + seed) for seed in range(runs if drawn else 4)]
    for error in ("binary_error", "absolute_error", "squared_error"):
        ours, theirs = (
            np.array([getattr(run, error)(delta) for run in every], float) for every in (expected, simulated)
        )
        spread = theirs.var(0, ddof=1)
        if error == "binary_error":  # rare errors may be in none of the runs
            spread = np.maximum(spread, ours.mean(0) * (1 - ours.mean(0)) + 1 / runs)
        noise = np.sqrt(spread / runs + ours.var(0, ddof=1) / len(ours))
        off = np.abs(ours.mean(0) - theirs.mean(0))
        assert np.all((off <= 4.5 * noise + 1e-9) | np.isnan(off)), (error, ours.mean(0), theirs.mean(0))


class FixedDesign:
    """Runs of one design, of which theta is fitted to the clicks."""

    def __init__(self, given: str, estimate: str) -> None:
        self.pair, self.user = world(queries=15, documents=6)
        self.estimate, self.fit = estimate, Conditional(given)
        self.policy = AB(split=0.9).policy(self.pair)
        self.displays = valued(self.pair, self.policy, rank_decay(K), 0.4, estimate=estimate)

    def run(self, impressions: int, seed: int) -> tuple[IntArray, IntArray, Counts]:
        policy = self.policy
        shown, clicked = display_counts(policy, self.user, impressions, seed=seed)
        rows, queries, *tables = clicked_documents(
            policy.rankings, policy.weights, policy.offsets, shown, clicked, policy.n_documents
        )
        return shown, clicked, Counts(policy.n_documents, rows, tables[0], tables[1], queries, tables[2])

    def total(self, shown: IntArray, clicked: IntArray, theta: FloatArray) -> float:
        value = valued(self.pair, self.policy, theta, 0.4, estimate=self.estimate).value
        assert isinstance(value, Linear)
        assert value.base is not None
        return float(value.base @ shown + (value.values * clicked).sum())

    def score(self, counts: Counts) -> FloatArray:
        exposed = exposure(counts, self.fit.given)
        return np.asarray(conditional_equation(exposed, counts.clicked, rank_decay(K))[1])

    def influence(self, shown: IntArray) -> ThetaInfluence:
        by_design = self.fit.given == "design"
        found = ThetaInfluence.of_displays(self.displays, self.pair, self.user, shown=None if by_design else shown)
        return found * (int(shown.sum()) if by_design else 1)


TURNS = (100, 1_000, 10_000, 50_000)
EQUATIONS = [(given, estimate) for given in ("design", "shown") for estimate in ("ips", "rank-aware")]


@pytest.mark.parametrize(("given", "estimate"), EQUATIONS)
def test_fitting_theta_moves_an_estimate_by_its_influence(given: str, estimate: str) -> None:
    """In a long log the sum at the fitted theta is that at the true one plus a' score, run by run."""
    design = FixedDesign(given, estimate)
    moved, expected = [], []
    for seed in range(20):
        shown, clicked, counts = design.run(1_000_000, seed)
        theta = design.fit.refit([counts], rank_decay(K))
        moved.append(design.total(shown, clicked, theta) - design.total(shown, clicked, rank_decay(K)))
        expected.append(design.influence(shown).coefficients @ design.score(counts))
    assert np.abs(np.subtract(moved, expected)).max() < 0.05 * np.std(moved)


@pytest.mark.parametrize(("given", "estimate"), EQUATIONS)
def test_influence_is_that_of_every_display_and_click_pattern(given: str, estimate: str) -> None:
    """Gain, information, variance and covariance from all displays of two queries and all clicks on them."""
    pair, user = world(queries=2, documents=6)
    method, theta = LogOpt(relevance="constant", estimate=estimate), rank_decay(K)
    policy = method.policy(pair)
    displays = valued(pair, policy, theta, 0.4, estimate=estimate)
    times = np.random.default_rng(1).integers(1, 9, len(policy.weights)) if given == "shown" else policy.weights / 2
    placed = np.zeros((pair.n_documents, K))
    for ranking, n in zip(policy.rankings, times):
        placed[ranking, np.arange(K)] += n
    share = placed * theta / np.maximum((placed * theta).sum(1, keepdims=True), 1e-300)
    information = sum(
        user.zeta[d] * (placed[d] @ theta) * (np.diag(share[d]) - np.outer(share[d], share[d]))
        for d in range(pair.n_documents)
    )
    variance, covariance, mean_score = np.zeros((K, K)), np.zeros(K), np.zeros(K)
    for row, (ranking, n) in enumerate(zip(policy.rankings, times)):
        p, scores = theta * user.zeta[ranking], np.eye(K) - share[ranking]
        foreseen = displays.value_of(row, [False] * K)  # what no click changes
        for clicks in product([0, 1], repeat=K):
            c = np.array(clicks)
            chance = n * np.prod(np.where(c, p, 1 - p))
            score = (c if given == "design" else c - p) @ scores
            x = displays.value_of(row, [bool(one) for one in clicks]) - (foreseen if given == "shown" else 0.0)
            variance += chance * np.outer(score, score)
            covariance += chance * x * score
            mean_score += chance * score
    shown = None if given == "design" else np.asarray(times, np.int64)
    found = ThetaInfluence.of_displays(displays, pair, user, shown=shown)
    assert np.abs(mean_score).max() < 1e-12
    np.testing.assert_allclose(found.information, information, atol=1e-12)
    np.testing.assert_allclose(found.variance, variance, atol=1e-12)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-12)
    step = 1e-5
    for rank in range(K):
        means = []
        for sign in (1, -1):
            nudged = theta * np.exp(sign * step * np.eye(K)[rank])
            means.append(valued(pair, policy, nudged, 0.4, estimate=estimate).moments(user).mean)
        slope = (means[0] - means[1]) / (2 * step)
        assert found.gain[rank] == pytest.approx(slope * (1 if shown is None else shown.sum()), abs=1e-6)
    assert np.abs(found.gain).max() > 0.01
    assert np.abs(covariance).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [LogOpt(bias="known", loss=None, schedule=TURNS), LogOpt(schedule=TURNS)], ids=["known", "estimated"]
)
def test_designs_of_some_queries_have_the_law_of_all(method: LogOpt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Designs for the queries that come, and from 10,000 searches on for some: means over 30 runs are those with designs for
    all, within 4.5 standard errors."""
    pair, user = world(queries=1_500, documents=6)
    delta, points = pair.delta(user), [100, 1_000, 1_200, 20_000, 100_000]

    def errors() -> FloatArray:
        runs = [method.expected(pair, user, points, seed=seed) for seed in range(30)]
        return np.array([[getattr(run, name)(delta) for name in ("absolute_error", "squared_error")] for run in runs])

    whole = errors()
    monkeypatch.setattr(versions, "LAW_QUERIES", 100)
    some = errors()
    assert not np.array_equal(whole, some)
    noise = np.sqrt((whole.var(0, ddof=1) + some.var(0, ddof=1)) / 30)
    assert np.all(np.abs(whole.mean(0) - some.mean(0)) < 4.5 * noise)


def test_expected_runs_say_what_their_estimates_converge_to() -> None:
    pair, user = world()
    for method, standard in ((TeamDraft(), 0.0), (Probabilistic(), None), (Counterfactual(logging="lambda"), 0.0)):
        run = method.expected(pair, user, [10], seed=1)
        assert run.standard_error is not None
        assert (run.standard_error == standard) == (standard is not None)
    assert LogOpt().expected(pair, user, [10], seed=1).standard_error is None


def test_nothing_is_drawn_after_the_last_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, int]] = []

    def watched(original: Callable[..., None]) -> Callable[..., None]:
        def draw(self: object, begin: int, end: int) -> None:
            drawn.append((begin, end))
            original(self, begin, end)

        return draw

    monkeypatch.setattr(_State, "draw", watched(_State.draw))
    method: Method = LogOptNetwork(steps=2, samples=5, schedule=(100, 1_000))
    method.expected(*world(), [50, 5_000], seed=1)
    assert drawn == [(0, 100), (100, 1_000)]
    drawn.clear()
    method.expected(*world(), [50], seed=1)
    assert drawn == []
