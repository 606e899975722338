"""Position bias while the method learns: documents are compared within one version of a design, never across versions.

Version 2 of a design depends on the clicks of version 1. The world is small enough to go through everything that can happen.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from pooling import pooled_counts
from ranktrial.analysis.drift import position_scores
from ranktrial.analysis.guardrails.click_model import dependence
from ranktrial.analysis.guardrails.draws import _bins as bins_of
from ranktrial.analysis.guardrails.draws import draws_against_chances
from ranktrial.arrays import FloatArray
from ranktrial.log import Log
from ranktrial.log.folding import fold
from ranktrial.methods import LogOpt
from ranktrial.methods.click_model import SimulatedTrial
from ranktrial.position_bias import Conditional, Counts
from ranktrial.position_bias._kernels import affine_equations, conditional_equation
from ranktrial.rankings import Mixture, Pair
from ranktrial.users import position_based, rank_decay

THETA, ZETA = np.array([1.0, 0.4]), np.array([0.7, 0.5])
RANKINGS = np.array([[0, 1], [1, 0]])
PAIR = Pair.from_lists([["x", "y"]], [["y", "x"]], k=2)
FIRST = (0.5, 0.5)  # probabilities of the two rankings in version 1
OUTCOMES = list(product(range(2), (False, True), (False, True)))  # ranking, click at rank 1, click at rank 2


def mixture(weights: tuple[float, float]) -> Mixture:
    return Mixture.of_tables([PAIR.top_a, PAIR.top_b], weights, 2)


def learnt(clicks: FloatArray) -> tuple[float, float]:
    """Version 2: what was clicked more in version 1 is mostly first."""
    return (0.5, 0.5) if clicks[0] == clicks[1] else (0.9, 0.1) if clicks[0] > clicks[1] else (0.1, 0.9)


def probability(outcome: tuple[int, bool, bool], weights: tuple[float, float]) -> float:
    row, *clicks = outcome
    seen = THETA * ZETA[RANKINGS[row]]
    return float(weights[row] * np.prod(np.where(clicks, seen, 1 - seen)))


def everything_that_can_happen(of_first: int, of_second: int) -> Iterator[tuple[float, Log, Log]]:
    """Probability and log of so many impressions of version 1 and of version 2; and the log with both as one design."""
    versions = [0] * of_first + [1] * of_second
    for first in product(OUTCOMES, repeat=of_first):
        clicks = np.zeros(2)
        for row, *clicked in first:
            clicks[RANKINGS[row]] += clicked
        second = learnt(clicks)
        for last in product(OUTCOMES, repeat=of_second):
            chances = [probability(one, FIRST) for one in first] + [probability(one, second) for one in last]
            rows, flags = [one[0] for one in (*first, *last)], [one[1:] for one in (*first, *last)]
            log = Log.of(PAIR, [mixture(FIRST), mixture(second)], RANKINGS[rows], flags, versions=versions)
            yield float(np.prod(chances)), log, Log.of(PAIR, mixture(FIRST), RANKINGS[rows], flags)


@pytest.fixture(scope="module")
def everything() -> list[tuple[float, Log]]:
    return [(chance, log) for chance, log, _ in everything_that_can_happen(2, 1)]


def exposed(counts: Counts, given: str) -> FloatArray:
    found = counts.shown if given == "shown" else counts.expected
    assert found is not None
    return found


@pytest.mark.parametrize("given", ["shown", "design"])
def test_the_equation_for_position_bias_has_mean_zero_by_design_and_not_pooled(
    everything: list[tuple[float, Log]], given: str
) -> None:
    by_design, pooled, chances = np.zeros(2), np.zeros(2), 0.0
    for chance, log in everything:
        chances += chance
        for total, counts in (
            (by_design, log.parts(1, clicked_only=False)[0]),
            (pooled, Counts.merged(pooled_counts(log, 1))),
        ):
            total += chance * conditional_equation(exposed(counts, given), counts.clicked, THETA)[1]
    assert chances == pytest.approx(1, abs=1e-12)
    assert np.abs(by_design).max() < 1e-12
    assert pooled[1] > 0.002  # rank 2 seems to be looked at more than it is


def test_the_lines_of_trust_bias_have_mean_zero_by_design_and_not_pooled(everything: list[tuple[float, Log]]) -> None:
    by_design, pooled = np.zeros((2, 2)), np.zeros((2, 2))
    for chance, log in everything:
        for total, counts in (
            (by_design, log.parts(1, clicked_only=False)[0]),
            (pooled, Counts.merged(pooled_counts(log, 1))),
        ):
            # Any instrument that does not come from these clicks: here the document's number.
            instrument = np.where(np.isin(counts.documents % 2, 0), 1.0, -0.5)
            left, _ = affine_equations(counts.shown, counts.clicked, instrument, THETA, np.zeros(2))
            total += chance * left
    assert np.abs(by_design).max() < 1e-12
    assert np.abs(pooled).max() > 0.002


@pytest.mark.parametrize("pooled", [False, True], ids=["by documents", "by places"])
def test_dependence_of_clicks_has_mean_zero_by_design_and_not_pooled(pooled: bool) -> None:
    by_design, across = 0.0, 0.0
    for chance, log, as_one in everything_that_can_happen(1, 2):
        by_design += chance * dependence(log, pooled=pooled).values.totals.sum()
        across += chance * dependence(as_one, pooled=pooled).values.totals.sum()
    assert abs(by_design) < 1e-12
    assert across > 0.005  # clicks seem to bring clicks below them


def test_scores_of_position_bias_over_time_have_mean_zero_by_design_and_not_pooled() -> None:
    by_design, across = 0.0, 0.0
    for chance, log, as_one in everything_that_can_happen(2, 1):
        by_design += chance * score(log)
        across += chance * score(as_one)
    assert abs(by_design) < 1e-12
    assert abs(across) > 0.002


def score(log: Log) -> float:
    """Sum of the scores as they are before they are scaled by what the log's clicks tell, which depends on the clicks."""
    seen, away = log.exposure(THETA), log.exposure(THETA * np.log([1, 2]) ** 2)
    mean = log.exposure(THETA * np.log([1, 2])) / seen
    slots = log.rankings[log.row][log.clicks]
    information = (away / seen - mean**2)[slots].sum()
    return float(position_scores(log, THETA).totals.sum() * information / len(log))


def draws_of(log: Log) -> Any:
    return fold(log, draws_against_chances(log, "draws", 10, bins_of))[0]


def test_draws_are_held_against_the_chances_of_their_own_version() -> None:
    seen, expected, first = np.zeros(10), np.zeros(10), np.zeros(10)
    for chance, log, as_one in everything_that_can_happen(1, 2):
        found = draws_of(log)
        seen, expected = seen + chance * found.seen, expected + chance * found.expected
        first += chance * draws_of(as_one).expected
    np.testing.assert_allclose(seen, expected, atol=1e-12)
    assert np.abs(seen - first).max() > 0.01


def test_a_simulated_trial_counts_every_version_by_itself() -> None:
    rng = np.random.default_rng(3)
    lists = [[rng.permutation(8)[:5].tolist() for _ in range(30)] for _ in "AB"]
    pair = Pair.from_lists(lists[0], lists[1], k=4).knowing(theta=rank_decay(4))
    user = position_based(rng.uniform(0.1, 0.8, pair.n_documents), rank_decay(4))
    trial = SimulatedTrial(LogOpt(), pair, user, rank_decay(4), 1)
    ends = (200, 900, 3_000)
    for begin, end in zip((0, *ends), ends):
        trial.next_version()
        trial.draw(begin, end)
    total = Counts.stacked(trial.parts)
    assert [part.shown[:, 0].sum() > 0 for part in trial.parts] == [True] * 3
    assert total.clicked.sum() == trial.clicked.sum()
    assert total.n_documents == 3 * pair.n_documents
    version, document = np.divmod(total.documents, pair.n_documents)
    for number, (part, shown) in enumerate(zip(trial.parts, trial.versions)):
        own = total.of(total.documents[version == number])
        np.testing.assert_array_equal(own.shown, part.shown)
        placement = shown.policy.placement()[document[version == number]]
        assert own.expected is not None
        assert own.expected[:, 0].sum() <= np.diff((0, *ends))[number] + 1e-9
        ratio = own.expected / np.maximum(own.expected.sum(1, keepdims=True), 1e-300)
        np.testing.assert_allclose(ratio, placement / placement.sum(1, keepdims=True), atol=1e-12)


@pytest.mark.slow
def test_position_bias_is_right_with_many_queries_and_a_method_that_learns() -> None:
    """Pooled over the versions of a design theta at low ranks is a fifth too large here, and its error does not show it."""
    rng, k = np.random.default_rng(1), 10
    theta = rank_decay(k)
    relevance = 0.5 * rng.choice([0.1, 0.3, 0.8], (800, 20), p=[0.6, 0.25, 0.15])
    lists = [np.argsort(-(relevance + rng.normal(0, noise, relevance.shape))) for noise in (0.25, 0.3)]
    pair = Pair.from_lists(lists[0].tolist(), lists[1].tolist(), k=k).knowing(theta=theta)
    query = np.repeat(np.arange(800), np.diff(pair.offsets))
    user = position_based(relevance[query, np.array(pair.ids)], theta)
    ratios = []
    for seed in range(8):
        trial = SimulatedTrial(LogOpt(holdback=0), pair, user, theta, seed)
        for begin, end in ((0, 1_000), (1_000, 10_000), (10_000, 30_000)):
            trial.next_version()
            trial.draw(begin, end)
        by_design = Conditional().fit(Counts.stacked(trial.parts)).theta
        pooled = Conditional().fit(Counts.merged(trial.parts)).theta
        ratios.append([by_design[5:] / theta[5:], pooled[5:] / theta[5:]])
    mean, error = np.mean(ratios, axis=0), np.std(ratios, axis=0, ddof=1) / np.sqrt(len(ratios))
    assert (np.abs(mean[0] - 1) < 5 * error[0]).all()
    assert (mean[1] > 1.08).all()
