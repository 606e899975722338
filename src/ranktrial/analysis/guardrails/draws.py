"""Checks of chance: whether rankings were drawn as often as designed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ranktrial.analysis.analyse import Analysis
from ranktrial.analysis.e_processes import DrawsSoFar
from ranktrial.analysis.guardrails.status import WARN, Found, advised, by_chance, unknown
from ranktrial.arrays import FloatArray, IntArray, weighted_counts
from ranktrial.log import Log
from ranktrial.log.folding import Statistic, fold

BINS = 10
LEAST_IMPRESSIONS = 100
LEAST_CHANCE = 5.0  # variance of the counts, before they can say anything

Draws = tuple[IntArray, FloatArray]  # outcome of each, and the chances of the outcomes for each design


@advised(
    "sample ratio",
    "data",
    "A, B and mixed pages are drawn as often as designed",
    cause="Searches of one kind get lost: a filter for robots, a cache, an error after the draw.",
    remedy="Show what rank returned whenever it was called, and filter before rank, not after it.",
)
def sample_ratio(analysis: Analysis) -> Found:
    """Check of the numbers of draws by design and of A/B traffic with A and with B against their designed shares."""
    log = analysis.log
    if len(log) < LEAST_IMPRESSIONS:
        return unknown(f"it takes {LEAST_IMPRESSIONS} searches")
    found: DrawsSoFar = fold(log, draws_against_chances(log, "sample ratio", 3, _arms))[0]
    if found.spread.max() < LEAST_CHANCE:
        return unknown("it takes A/B traffic, such as a hold-back, and more searches")
    told = "{:,.0f} by design, {:,.0f} A/B with A, {:,.0f} A/B with B".format(*found.seen)
    wanted = " / ".join(f"{count:,.0f}" for count in found.expected)
    text = f"{told}; expected {wanted} (p = {found.p:.3g})."
    return Found(by_chance(found.p), found.p, text)


@advised(
    "placement calibration",
    "data",
    "Rankings are drawn as often as designed",
    cause="Searches of some rankings get lost, as for the sample ratio.",
    remedy="Show what rank returned whenever it was called, and filter before rank, not after it.",
)
def calibration(analysis: Analysis) -> Found:
    """Rankings shown against their weights in the mixtures that they were drawn from.

    Rankings go into ten bins by where they stand in their mixture, so that designs of all kinds can be put together: each
    draw has a known chance of every bin.
    """
    log = analysis.log
    if len(log) < LEAST_IMPRESSIONS:
        return unknown(f"it takes {LEAST_IMPRESSIONS} searches")
    found: DrawsSoFar = fold(log, draws_against_chances(log, "placement calibration", BINS, _bins))[0]
    if found.spread.max() < LEAST_CHANCE:
        return unknown("it takes designs that leave something to chance, and more searches")
    told = "What was shown is not what was designed" if found.p < WARN else "Rankings were shown as often as designed"
    return Found(by_chance(found.p), found.p, f"{told} (p = {found.p:.3g}).")


def draws_against_chances(log: Log, name: str, cells: int, outcomes: Callable[[Log], Draws]) -> Statistic[Any, Any]:
    """The evidence of all draws of a log: a sequence, as what is expected next depends on what was drawn before."""

    def contribution(rows: slice, part: Log, before: DrawsSoFar | None) -> DrawsSoFar:
        outcome, chances = outcomes(part)
        drawn = log.drawn[rows]
        return (before or DrawsSoFar.none(cells)).after(outcome[drawn], chances, part.design[drawn])[0]

    return Statistic(name, (cells,), contribution, lambda parts: parts[-1])


def _arms(log: Log) -> Draws:
    """Outcomes of the draws (the design's rankings, A's own list or B's own) and their probabilities."""
    shares = log.ab_shares
    chances = np.column_stack([1 - shares.sum(1), shares])
    chances = np.where(chances > 1e-12, chances, 0.0)
    return np.where(log.arm == 0, 0, np.where(log.arm > 0, 1, 2)), chances / chances.sum(1, keepdims=True)


def _bins(log: Log) -> Draws:
    """The tenth of its mixture that the ranking is in."""
    design_of_row = np.repeat(np.arange(log.n_designs), np.diff(log.row_offsets))
    before = np.cumsum(log.weights) - log.weights
    middle = before - before[log.row_offsets[:-1]][design_of_row] + log.weights / 2
    bin_of_row = np.clip((middle * BINS).astype(np.int64), 0, BINS - 1)
    chance = weighted_counts(design_of_row * BINS + bin_of_row, log.weights, log.n_designs * BINS).reshape(-1, BINS)
    chance /= chance.sum(1, keepdims=True)
    return bin_of_row[log.row], chance
