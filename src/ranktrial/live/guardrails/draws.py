"""Checks of chance: whether rankings were drawn as often as designed."""

from __future__ import annotations

import numpy as np

from ranktrial.arrays import weighted_counts
from ranktrial.inference.e_processes import anytime_p, draws_evidence
from ranktrial.live.analysis import Analysis
from ranktrial.live.guardrails.status import WARN, by_chance, unknown
from ranktrial.live.schemas import Guardrail

BINS = 10
LEAST_IMPRESSIONS = 100
LEAST_CHANCE = 5.0  # variance of the counts, before they can say anything


def sample_ratio(analysis: Analysis) -> Guardrail:
    """Draws by design, of plain A and of plain B, against the shares that the designs give them."""
    log, name = analysis.log, "sample ratio"
    if len(log) < LEAST_IMPRESSIONS:
        return unknown(name, f"it takes {LEAST_IMPRESSIONS} impressions")
    of_design = np.column_stack([1 - log.plain_shares.sum(1), log.plain_shares])
    of_design = np.where(of_design > 1e-12, of_design, 0.0)
    of_design /= of_design.sum(1, keepdims=True)
    arm, design = log.arm[log.drawn], log.design[log.drawn]
    draws = np.bincount(design, minlength=log.n_designs)
    expected = draws @ of_design
    if draws @ (of_design * (1 - of_design)).max(1) < LEAST_CHANCE:
        return unknown(name, "it takes shares of plain A and plain B, such as a hold-back, and more impressions")
    kind = np.where(arm == 0, 0, np.where(arm > 0, 1, 2))
    p = anytime_p(draws_evidence(kind, of_design, design))
    seen = np.bincount(kind, minlength=3)
    told = f"{seen[0]:,} by design, {seen[1]:,} plain A, {seen[2]:,} plain B"
    wanted = " / ".join(f"{count:,.0f}" for count in expected)
    return Guardrail(name=name, status=by_chance(p), value=p, text=f"{told}; expected {wanted} (p = {p:.3g}).")


def calibration(analysis: Analysis) -> Guardrail:
    """Rankings shown against their weights in the mixtures that they were drawn from.

    Rankings go into ten bins by where they stand in their mixture, so that designs of all kinds can be put together: each
    draw has a known chance of every bin.
    """
    log, name = analysis.log, "placement calibration"
    if len(log) < LEAST_IMPRESSIONS:
        return unknown(name, f"it takes {LEAST_IMPRESSIONS} impressions")
    design_of_row = np.repeat(np.arange(log.n_designs), np.diff(log.row_offsets))
    before = np.cumsum(log.weights) - log.weights
    middle = before - before[log.row_offsets[:-1]][design_of_row] + log.weights / 2
    bin_of_row = np.clip((middle * BINS).astype(np.int64), 0, BINS - 1)
    chance = weighted_counts(design_of_row * BINS + bin_of_row, log.weights, log.n_designs * BINS).reshape(-1, BINS)
    chance /= chance.sum(1, keepdims=True)
    design = log.design[log.drawn]
    draws = np.bincount(design, minlength=log.n_designs)
    if (draws @ (chance * (1 - chance))).max() < LEAST_CHANCE:
        return unknown(name, "it takes designs that leave something to chance, and more impressions")
    p = anytime_p(draws_evidence(bin_of_row[log.row[log.drawn]], chance, design))
    told = "What was shown is not what was designed" if p < WARN else "Rankings were shown as often as designed"
    return Guardrail(name=name, status=by_chance(p), value=p, text=f"{told} (p = {p:.3g}).")
