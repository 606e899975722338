"""Checks for clicks that are not meant: pages with unusually many of them, and how many would undo a verdict.

Pages are chosen by how often they are clicked, without a look at which ranker gains.
"""

from __future__ import annotations

import numpy as np

from ranktrial.arrays import FloatArray, IntArray, weighted_counts
from ranktrial.inference import Log
from ranktrial.inference.ladder import AB_RUNG, DIRECT
from ranktrial.live.analysis import Analysis
from ranktrial.live.guardrails.status import unknown
from ranktrial.live.schemas import Guardrail, Status

CROWDED = "pages with many clicks"
MOST_CROWDED = 0.02  # share of the pages, at most, that are left out to see what they do
LEAST_CLICKS = 100
BY_CHANCE = 5.0  # standard errors


def crowded_pages(analysis: Analysis) -> Guardrail:
    """The estimate without the few pages that have most clicks, in proportion to the clicks that are left.

    People who click more than others do so on what either ranker favours. It warns where these pages move the estimate by more
    than chance explains (five standard errors) and by more than half of what the interval allows for, and fails where the
    verdict would be another without them.
    """
    if analysis.rung is None or analysis.clicks < LEAST_CLICKS:
        return unknown(CROWDED, f"it takes {LEAST_CLICKS} clicks, there are {analysis.clicks:,}")
    low, high = analysis.interval
    if not np.isfinite(low):
        return unknown(CROWDED, "it takes an interval first")
    pages, x, squares = _by_clicks(analysis)
    number = np.arange(len(pages))
    n, all_clicks = pages.sum(), pages @ number
    at = np.ceil((n - 1) * (1 - MOST_CROWDED))  # of all pages by their clicks, the first of the fiftieth that has most
    limit = max(int(np.searchsorted(np.cumsum(pages), at, side="right")), 1)
    many, few = slice(limit + 1, None), slice(0, limit + 1)
    share, left = float(pages[many] @ number[many] / all_clicks), pages[few] @ number[few]
    without, delta = float(x[few].sum() * all_clicks / n / left) if left else 0.0, float(x.sum() / n)
    around = squares[many].sum() - 2 * without * x[many].sum() + without**2 * pages[many].sum()
    moved, chance = delta - without, float(np.sqrt(max(around, 0.0)) / n)
    status: Status = "pass"
    if abs(moved) > max(BY_CHANCE * chance, (high - low) / 4):
        status = "warn" if _sign(low, high) == _sign(low - moved, high - moved) else "fail"
    text = f"{pages[many].sum():,.0f} of {n:,.0f} pages have more than {limit} clicks, {share:.1%} of all clicks"
    text += f"; without them A - B is {without:+.4f} instead of {delta:+.4f}."
    if undone := undone_text(analysis):
        text += f" {undone[0].upper()}{undone[1:]}."
    return Guardrail(name=CROWDED, status=status, value=share, text=text)


def _by_clicks(analysis: Analysis) -> FloatArray:
    """Pages that the estimate rests on, the sum of their values and that of the squares, by how many clicks they have."""
    log, found = analysis.log, analysis.estimate

    def sums(x: FloatArray, some: IntArray | slice, rows: slice) -> FloatArray:
        clicks = log.clicks_on(rows)[some]
        return np.stack([weighted_counts(clicks, of, log.k + 1) for of in (np.ones(len(x)), x, x**2)])

    return np.asarray(np.sum(log.by_rows(found.named("by clicks"), sums, found.values, found.picked), axis=0))


def _sign(low: float, high: float) -> int:
    return int(low > 0) - int(high < 0)


def undone_text(analysis: Analysis) -> str:
    """How many hostile impressions would undo what the interval says; "" where it says nothing."""
    share = undone_by(analysis)
    return f"{share:.2g} % of impressions clicking against it would undo this" if share > 0 else ""


def undone_by(analysis: Analysis) -> float:
    """Per cent of impressions that would bring 0 into the interval, were they to click on all that speaks against it.

    0 where 0 is inside already.
    """
    low, high = analysis.interval
    if analysis.rung is None or not np.isfinite(low) or low <= 0 <= high:
        return 0.0
    winner = 1 if low > 0 else -1
    against = _against(analysis, winner) / analysis.estimate.impressions
    away, delta = (low, high)[winner < 0] * winner, abs(analysis.estimate.delta)
    return 100 * min(away / (against + delta), 1.0)


def _against(analysis: Analysis, winner: int) -> float:
    """What clicks on all results that speak against the winner add up to, of all pages."""
    log, rung = analysis.log, analysis.rung
    assert rung is not None
    assert rung.estimate is not None
    theta, direct, plain = rung.estimate.theta, rung.name == DIRECT, rung.name == AB_RUNG

    def against(part: Log, _: slice) -> float:
        if plain:  # all of the pages of the other
            other = np.flatnonzero(part.arm == -winner)
            shares = part.shares[other]
            share = (shares[:, 1] if winner > 0 else shares[:, 0]) / shares.sum(1)
            return float(((part.rankings[part.row[other]] >= 0).sum(1) / share).sum())
        assert theta is not None
        of_page = _worth_at_ranks(part) if direct else _worth_by_exposure(part, theta)
        return float(np.maximum(-winner * of_page, 0.0).sum())

    of = None if theta is None else theta.tobytes()
    return sum(log.by_block(("against", winner, rung.name, of), against))


def _worth_at_ranks(log: Log) -> FloatArray:
    """What a click at each rank of each page adds to A - B by the direct reading."""
    slots = log.rankings[log.row]
    of_page = np.zeros(slots.shape)
    for sign, rank in ((1.0, log.rank_a), (-1.0, log.rank_b)):
        chance = log.placement_at(rank)
        worth = np.divide(sign, chance, out=np.zeros_like(chance), where=chance > 0)
        of_page += np.where((slots >= 0) & (rank[slots] == np.arange(log.k)), worth[slots], 0.0)
    return of_page


def _worth_by_exposure(log: Log, theta: FloatArray) -> FloatArray:
    """The same by the click model."""
    (by_a, by_b), rho = log.list_exposures(theta), log.exposure(theta)
    return np.append(np.divide(by_a - by_b, rho, out=np.zeros_like(rho), where=rho > 0), 0.0)[log.rankings[log.row]]
