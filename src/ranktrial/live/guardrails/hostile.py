"""Checks for clicks that are not meant: pages with unusually many of them, and how many would undo a verdict.

Pages are chosen by how often they are clicked, without a look at which ranker gains.
"""

from __future__ import annotations

import numpy as np

from ranktrial.arrays import FloatArray
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
    x, clicks = analysis.estimate.x, analysis.log.clicks_each[analysis.rung.rows]
    limit = max(int(np.quantile(clicks, 1 - MOST_CROWDED, method="higher")), 1)
    many = clicks > limit
    share = float(clicks[many].sum() / clicks.sum())
    left = clicks[~many].sum()
    without, delta = float(x[~many].sum() * clicks.mean() / left) if left else 0.0, float(x.mean())
    moved, chance = delta - without, float(np.sqrt(np.square(x[many] - without).sum()) / len(x))
    status: Status = "pass"
    if abs(moved) > max(BY_CHANCE * chance, (high - low) / 4):
        status = "warn" if _sign(low, high) == _sign(low - moved, high - moved) else "fail"
    text = f"{many.sum():,} of {len(x):,} pages have more than {limit} clicks, {share:.1%} of all clicks"
    text += f"; without them A - B is {without:+.4f} instead of {delta:+.4f}."
    if undone := undone_text(analysis):
        text += f" {undone[0].upper()}{undone[1:]}."
    return Guardrail(name=CROWDED, status=status, value=share, text=text)


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
    against = float(_against(analysis, winner).mean())
    away, delta = (low, high)[winner < 0] * winner, abs(float(analysis.estimate.x.mean()))
    return 100 * min(away / (against + delta), 1.0)


def _against(analysis: Analysis, winner: int) -> FloatArray:
    """What clicks on all results of each page that speak against the winner add up to."""
    log, rung = analysis.log, analysis.rung
    assert rung is not None
    assert rung.estimate is not None
    if rung.name == AB_RUNG:  # all of the pages of the other
        shares = log.shares[rung.rows]
        other = log.arm[rung.rows] == -winner
        share = (shares[:, 1] if winner > 0 else shares[:, 0]) / shares.sum(1)
        filled = log.each("results shown", lambda part, _: (part.rankings[part.row] >= 0).sum(1).astype(np.float64))
        return np.asarray(np.where(other, filled[rung.rows] / share, 0.0))
    theta, direct = rung.estimate.theta, rung.name == DIRECT
    assert theta is not None

    def against(part: Log, _: slice) -> FloatArray:
        of_page = _worth_at_ranks(part) if direct else _worth_by_exposure(part, theta)
        return np.asarray(np.maximum(-winner * of_page, 0.0).sum(1))

    return log.each(("against", winner, direct, theta.tobytes()), against)


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
