"""Expected runs against exact laws, and against simulation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import gammainc, gammaln

from ranktrial.arrays import FloatArray
from ranktrial.methods import AB, Counterfactual, ExpectedRun, LogOpt, LogOptNetwork, Method, Probabilistic, TeamDraft
from ranktrial.methods.base import parse_method
from ranktrial.methods.logopt_network import _State
from ranktrial.rankings import Moments, Pair, PlackettLuce, drawn_moments
from ranktrial.rankings.drawn_moments import ips_moments
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
@pytest.mark.parametrize("method", [TeamDraft(), TeamDraft("sum"), AB()], ids=str)
def test_errors_are_those_of_the_exact_law(method: TeamDraft | AB, n: int) -> None:
    pair, user = world()
    delta, law = pair.delta(user), method.outcome_law(pair, user)
    if isinstance(method, AB):
        clicks = np.arange(law.shape[1])
        values, chances = np.concatenate([clicks, -clicks]).astype(float), law.ravel()
    else:
        values, chances = np.arange(len(law)) - len(law) // 2.0, law.sum(1)
    total, chance = law_of_sum(values, chances, n)
    estimate = total * method.step / n
    run = method.expected(pair, user, [n], seed=1)
    wrong = chance[estimate * np.sign(delta) <= 0].sum()
    assert run.binary_error(delta)[0] == pytest.approx(wrong, abs=3e-4)
    assert run.absolute_error(delta)[0] == pytest.approx(chance @ np.abs(estimate - delta), rel=2e-3)
    assert run.squared_error(delta)[0] == pytest.approx(chances @ (values * method.step - delta) ** 2, rel=1e-9)
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
    'AB(estimate="means")',
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


@pytest.mark.parametrize("text", METHODS)
def test_simulated_runs_come_to_the_expectation(text: str) -> None:
    """Errors of 60 simulated runs at five checkpoints, with a bound of 4.5 standard errors of both sides."""
    method, (pair, user) = parse_method(text), world()
    delta, runs = pair.delta(user), 60
    simulated = [method.simulate(pair, user, POINTS, seed=seed) for seed in range(runs)]
    # One expected run at a time, so that what drawing leaves of noise can be seen.
    drawn = method.adapts or not method.averages_impressions
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
