"""Checks of visitors: what the trial costs them, and whether a few of them, or of their pages, make the answer.

Pages with many clicks are chosen by how often they are clicked, without a look at which ranker gains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ranktrial.analysis.analyse import Analysis
from ranktrial.analysis.estimators.results import Estimate
from ranktrial.analysis.guardrails.status import Found, Status, above, advised, needless, unknown
from ranktrial.arrays import weighted_counts
from ranktrial.log import Log
from ranktrial.store import tallies as names
from ranktrial.tokens import unit_name

MOST_CROWDED = 0.02  # share of the pages, at most, that are left out to see what they do
LEAST_CLICKS = 100
BY_CHANCE = 5.0  # standard errors


@advised(
    "clicks on what is shown",
    "visitors",
    "The trial costs visitors no clicks",
    cause="Mixed pages are worse than A's and B's own, and the click budget has not caught up with that yet.",
    remedy="The budget corrects itself at the next refit. A lower loss, or a floor, gives more back.",
)
def page(analysis: Analysis) -> Found:
    """Clicks that the trial costs, against an A/B test.

    No matter of trust, so it never fails; it warns where it surely costs more than its budget, or than 5 % without one.
    """
    gain = analysis.gain
    if sum(analysis.config.comparison.traits.ab_shares) == 1 or (len(analysis.log) and analysis.log.arm.all()):
        return needless("Visitors see A's list or B's own, as in any A/B test.")
    if analysis.clicks < 100:
        return unknown(f"it takes 100 clicks, there are {analysis.clicks}")
    if gain is None or not gain.ab > 0:
        return unknown("what A or B would get cannot be told: a hold-back above 0 shows their results")
    budget = getattr(analysis.config.comparison, "loss", None)
    allowed = 0.05 if budget is None else budget
    low, high = gain.interval(analysis.config.level)
    if not np.isfinite(low):
        return unknown("it takes more visitors")
    status: Status = "warn" if high < -allowed else "pass"
    text = f"{gain.share:+.1%} against an A/B test ({low:+.1%} to {high:+.1%})"
    text += (
        "." if budget is None else f", which may lose {budget:.1%}." if budget >= 0 else f", asked for {-budget:+.1%}."
    )
    if status != "pass":
        text += " The price of a click goes up by itself; a lower loss, or an agreement floor, gives more back."
    return Found(status, -gain.share, text)


def heaviest_unit(log: Log, found: Estimate) -> tuple[int, float, float]:
    """The unit with most impressions, its share of these, and of the variance: if large, the estimate is about one visitor."""
    unit = log.units.place[found.picked]
    impressions = np.bincount(unit, minlength=len(log.units.names))
    heavy = int(impressions.argmax())
    sums, most = found.sums, int(impressions[heavy])
    away = (sums.totals - sums.mean * sums.impressions) ** 2
    variance = (found.x[unit == heavy].sum() - sums.mean * most) ** 2 / max(away.sum(), 1e-300)
    return int(log.units.names[heavy]), most / found.impressions, float(variance)


@advised(
    "heaviest unit",
    "visitors",
    "No single visitor makes the answer",
    cause="A robot, a test script, or an account that many people share.",
    remedy="If it is a robot, exclude it; rules in the configuration leave such visitors out from the start.",
)
def heaviest(analysis: Analysis) -> Found:
    """The share of the log that one unit makes: an estimate should not be about a single visitor."""
    if len(analysis.log) < 1_000:
        return unknown("it takes 1,000 searches")
    if analysis.result is None:
        return unknown("it takes an estimate")
    unit, share, variance = heaviest_unit(analysis.log, analysis.estimate)
    text = f"Visitor {unit_name(unit)} makes {share:.2%} of the searches and {variance:.1%} of the variance."
    status = above(share, 0.02, 0.2)
    if status != "pass":
        text += " If that is a robot, exclude it; a trial can have rules for the most that a visitor may do."
    return Found(status, share, text)


@advised(
    "pages with many clicks",
    "visitors",
    "No few pages make the answer",
    cause="Somebody clicks on everything that one ranker favours.",
    remedy="Look at who does, and exclude them; rules in the configuration bound the clicks on one search.",
)
def crowded_pages(analysis: Analysis) -> Found:
    """The estimate without the few pages that have most clicks, in proportion to the clicks that are left.

    People who click more than others do so on what either ranker favours. It warns where these pages move the estimate by more
    than chance explains (five standard errors) and by more than half of what the interval allows for, and fails where the
    verdict would be another without them.
    """
    if analysis.result is None or analysis.clicks < LEAST_CLICKS:
        return unknown(f"it takes {LEAST_CLICKS} clicks, there are {analysis.clicks:,}")
    (low, high), log, found = analysis.interval, analysis.log, analysis.estimate
    if not np.isfinite(low):
        return unknown("it takes an interval first")
    # Pages that the estimate rests on, the sums of their values and of the squares, by how many clicks they have.
    clicks, values = log.clicks_each[found.picked], found.x
    pages, x, squares = (weighted_counts(clicks, of, log.k + 1) for of in (np.ones(len(values)), values, values**2))
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
        stays = (low > 0) == (low > moved) and (high < 0) == (high < moved)
        status = "warn" if stays else "fail"
    text = f"{pages[many].sum():,.0f} of {n:,.0f} pages have more than {limit} clicks, {share:.1%} of all clicks"
    text += f"; without them B against A is {0.0 - without:+.4f} instead of {0.0 - delta:+.4f}."
    return Found(status, share, text)


@advised(
    "latency",
    "visitors",
    "Visitors do not wait for rank",
    cause="The machine is busy, or lists are long and all queries are new.",
    remedy="Give the service a processor of its own, or send shorter lists.",
)
def latency(analysis: Analysis, tallies: Mapping[str, int], nanoseconds: Sequence[int]) -> Found:
    """Calls of ``rank`` that took long, in all processes; no matter of trust, so it never fails."""
    calls = max(len(analysis.log), len(nanoseconds))
    if not calls:
        return unknown("nothing has been shown")
    slow = tallies.get(names.SLOW, 0) / calls
    text = f"{100 * slow:.2g} calls of rank in 100 searches took more than 5 ms."
    if nanoseconds:
        text += f" In this process 99 of 100 took less than {np.percentile(np.array(nanoseconds), 99) / 1e6:.2f} ms."
    status: Status = "warn" if slow > 0.01 and calls >= 100 else "pass"
    return Found(status, slow, text)
