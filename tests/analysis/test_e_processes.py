"""Tests on chance hold their promise though they are looked at after every impression, and find what is wrong."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ranktrial.analysis.e_processes import CONCENTRATIONS, DrawsSoFar, anytime_p, bet_evidence, mean_evidence
from ranktrial.arrays import FloatArray, IntArray
from ranktrial.log import UnitSums

LEVELS = (0.01, 0.001)


def draws_evidence(
    outcomes: IntArray, chances: FloatArray, kinds: IntArray | None = None, *, at_once: int = 1 << 16
) -> FloatArray:
    """Evidence after each draw: ``chances`` has a row for each draw, or for each kind of draw."""
    so_far, evidence = DrawsSoFar.none(chances.shape[1]), np.empty(len(outcomes))
    for start in range(0, len(outcomes), at_once):
        some = slice(start, start + at_once)
        kind = None if kinds is None else kinds[some]
        so_far, evidence[some] = so_far.after(outcomes[some], chances[some] if kinds is None else chances, kind)
    return evidence


def plain_evidence(outcomes: IntArray, chances: FloatArray) -> FloatArray:
    """``draws_evidence`` by the formula, with sums over all draws before each."""
    evidence = np.empty((len(CONCENTRATIONS), len(outcomes)))
    for row, c in zip(evidence, CONCENTRATIONS):
        log_e = 0.0
        for i, (outcome, p) in enumerate(zip(outcomes, chances)):
            seen, expected = np.bincount(outcomes[:i], minlength=len(p)), chances[:i].sum(0)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(p > 0, (c * p + seen) / (c * p + expected), 0.0)
                log_e += np.log(ratio[outcome] / (p @ ratio)) if p[outcome] > 0 else np.inf
            row[i] = log_e
    return np.asarray(np.logaddexp.reduce(evidence, axis=0) - np.log(len(CONCENTRATIONS)))


def test_the_compiled_evidence_is_that_of_the_formula() -> None:
    random = np.random.default_rng(3)
    kinds = np.array([[0.2, 0.3, 0.5], [0.1, 0.9, 0.0], [0.6, 0.2, 0.2], [1.0, 0.0, 0.0]])
    kind = random.integers(0, 4, 300)
    outcomes = np.array([random.choice(3, p=kinds[of]) for of in kind])
    expected = plain_evidence(outcomes, kinds[kind])
    np.testing.assert_allclose(draws_evidence(outcomes, kinds, kind, at_once=70), expected, rtol=0, atol=1e-12)
    outcomes[250], kind[250] = 1, 3
    assert (draws_evidence(outcomes, kinds, kind)[250:] == np.inf).all()
    assert (plain_evidence(outcomes, kinds[kind])[250:] == np.inf).all()


@pytest.mark.parametrize("length", [1, 2, 4])
def test_evidence_of_draws_is_one_on_average(length: int) -> None:
    """Every sequence of outcomes, with probabilities that change on the way."""
    chances = np.array([[0.2, 0.3, 0.5], [0.1, 0.9, 0.0], [0.6, 0.2, 0.2], [1.0, 0.0, 0.0]])[:length]
    mean = 0.0
    for outcomes in product(range(3), repeat=length):
        chance = np.prod(chances[np.arange(length), list(outcomes)])
        if chance > 0:
            mean += chance * np.exp(draws_evidence(np.array(outcomes), chances)[-1])
    assert mean == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("units", [None, [0, 1, 2, 1]])
def test_a_bet_is_worth_one_on_average(units: list[int] | None) -> None:
    """Every sequence of four values with mean zero, stakes by what came before and beyond what may be staked."""
    outcomes, chances = np.array([-1.0, 0.5, 3.0]), np.array([0.5, 0.4, 0.1])
    mean = 0.0
    for values in product(range(3), repeat=4):
        x = outcomes[list(values)]
        stakes, bounds = np.array([0.2, 5 * x[0], -x[0], 0.3]), np.full(4, 3.0)
        if units is not None:
            x, bounds = (UnitSums.of(of, units).totals for of in (x, bounds))
        evidence = bet_evidence(x, stakes[: len(x)], bounds)  # a unit keeps its first stake
        assert np.isfinite(evidence).all()
        mean += np.prod(chances[list(values)]) * np.exp(evidence[-1])
    assert mean == pytest.approx(1, abs=1e-12)


def test_constant_chances_give_the_dirichlet_multinomial() -> None:
    from scipy.stats import dirichlet_multinomial, multinomial

    p, outcomes = np.array([0.7, 0.2, 0.1]), np.random.default_rng(1).integers(0, 3, 40)
    counts = np.bincount(outcomes, minlength=3)
    ratios = [dirichlet_multinomial.pmf(counts, c * p, 40) / multinomial.pmf(counts, 40, p) for c in CONCENTRATIONS]
    told = draws_evidence(outcomes, p[None], np.zeros(40, int))
    assert told[-1] == pytest.approx(np.log(np.mean(ratios)), abs=1e-9)


def test_blocks_change_nothing() -> None:
    random = np.random.default_rng(2)
    chances, outcomes = random.dirichlet([1, 1, 1], 100), random.integers(0, 3, 100)
    whole = draws_evidence(outcomes, chances)
    np.testing.assert_allclose(draws_evidence(outcomes, chances, at_once=7), whole, atol=1e-12)


def test_an_impossible_draw_refutes() -> None:
    assert anytime_p(draws_evidence(np.array([0, 1]), np.array([[0.5, 0.5], [1.0, 0.0]]))) == 0


def test_draws_looked_at_after_each_alarm_no_more_often_than_promised() -> None:
    """4,000 trials of 1,000 draws with three kinds of chances."""
    random, runs = np.random.default_rng(3), 4000
    chances = np.array([[0.9, 0.05, 0.05], [0.5, 0.3, 0.2], [0.0, 0.5, 0.5]])
    p = np.empty(runs)
    for run in range(runs):
        kinds = random.integers(0, 3, 1000)
        outcomes = (random.random(1000)[:, None] > np.cumsum(chances, 1)[kinds]).sum(1)
        p[run] = anytime_p(draws_evidence(outcomes, chances, kinds))
    for level in LEVELS:
        assert np.mean(p < level) < level + 4 * np.sqrt(level / runs)


@pytest.mark.parametrize("rare", [0.5, 0.02])
def test_means_looked_at_after_each_alarm_no_more_often_than_promised(rare: float) -> None:
    """4,000 trials of 3,000 values, also where rare large ones balance many small ones, as clicks do."""
    random, runs = np.random.default_rng(4), 4000
    p = np.empty(runs)
    for run in range(runs):
        large = random.random(3000) < rare
        p[run] = anytime_p(mean_evidence(large - rare, telling=large))
    for level in LEVELS:
        assert np.mean(p < level) < level + 4 * np.sqrt(level / runs)


def test_what_is_wrong_is_found() -> None:
    random = np.random.default_rng(5)
    lost = np.where(random.random(10_000) < 0.47, 0, 1)
    assert anytime_p(draws_evidence(lost, np.array([[0.5, 0.5]]), np.zeros(10_000, int))) < 0.001
    assert anytime_p(mean_evidence(random.normal(0.06, 1, 10_000))) < 0.001


def test_values_of_one_unit_are_one() -> None:
    """The same value ten times over says no more than once."""
    values = np.random.default_rng(6).normal(size=300)
    ten = mean_evidence(np.repeat(values, 10), np.repeat(np.arange(300), 10))
    np.testing.assert_allclose(ten, mean_evidence(values), atol=1e-9)
    assert (mean_evidence(values, widen=2.0) <= np.maximum(mean_evidence(values), 0) + 1e-12).all()
