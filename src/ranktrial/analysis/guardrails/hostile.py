"""Checks for clicks that are not meant: pages with unusually many of them.

Pages are chosen by how often they are clicked, without a look at which ranker gains.
"""

from __future__ import annotations

import numpy as np

from ranktrial.analysis.analyse import Analysis
from ranktrial.analysis.guardrails.advice import advised
from ranktrial.analysis.guardrails.status import Guardrail, Status, unknown
from ranktrial.arrays import FloatArray, weighted_counts

CROWDED = "pages with many clicks"
MOST_CROWDED = 0.02  # share of the pages, at most, that are left out to see what they do
LEAST_CLICKS = 100
BY_CHANCE = 5.0  # standard errors


@advised(
    CROWDED,
    "visitors",
    "No few pages make the answer",
    cause="Somebody clicks on everything that one ranker favours.",
    remedy="Look at who does, and exclude them; rules in the configuration bound the clicks on one search.",
)
def crowded_pages(analysis: Analysis) -> Guardrail:
    """The estimate without the few pages that have most clicks, in proportion to the clicks that are left.

    People who click more than others do so on what either ranker favours. It warns where these pages move the estimate by more
    than chance explains (five standard errors) and by more than half of what the interval allows for, and fails where the
    verdict would be another without them.
    """
    if analysis.result is None or analysis.clicks < LEAST_CLICKS:
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
    text += f"; without them B against A is {0.0 - without:+.4f} instead of {0.0 - delta:+.4f}."
    return Guardrail(name=CROWDED, status=status, value=share, text=text)


def _by_clicks(analysis: Analysis) -> FloatArray:
    """Pages that the estimate rests on, the sum of their values and that of the squares, by how many clicks they have."""
    log, found = analysis.log, analysis.estimate

    clicks, x = log.clicks_each[found.picked], found.x
    return np.stack([weighted_counts(clicks, of, log.k + 1) for of in (np.ones(len(x)), x, x**2)])


def _sign(low: float, high: float) -> int:
    return int(low > 0) - int(high < 0)
