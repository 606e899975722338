"""Checks of the estimate's basis: coverage, weights, and position bias."""

from __future__ import annotations

import numpy as np

from ranktrial.analysis.analyse import Analysis
from ranktrial.analysis.drift import position_scores
from ranktrial.analysis.e_processes import anytime_p, mean_evidence
from ranktrial.analysis.guardrails.status import (
    NO_NUMBER,
    WARN,
    Found,
    Status,
    above,
    advised,
    by_chance,
    harmful,
    needless,
    unknown,
)
from ranktrial.arrays import FloatArray, weighted_counts
from ranktrial.log import Log, UnitSums
from ranktrial.log.folding import Statistic, fold


@advised(
    "coverage",
    "assumptions",
    "Every result that matters could be shown",
    cause="Designs never show some results on which the rankers differ.",
    remedy="Start a version with a hold-back above 0: it shows both lists as they are.",
)
def coverage(analysis: Analysis) -> Found:
    """Documents on which the rankers differ and that could not be seen."""
    log = analysis.log
    if not len(log):
        return unknown("nothing has been shown")
    top = analysis.ladder.results[-1].estimate
    if top is None or not len(top.uncovered):
        return Found("pass", 0, "Every document that matters could be seen.")
    bad = len(top.uncovered)
    queries = len(np.unique(log.document_query[log.document[top.uncovered]]))
    text = f"{bad:,} documents that matter could not be seen, for {queries:,} queries: they are left out."
    return Found("fail", float(bad), text)


@advised(
    "effective clicks",
    "data",
    "Enough clicks carry the answer",
    cause="The trial is young, or a few clicks have most of the weight.",
    remedy="Wait for more clicks.",
)
def effective_clicks(analysis: Analysis) -> Found:
    """Equally weighted clicks that would say as much as those that the estimate rests on."""
    effective = analysis.estimate.effective_clicks
    status: Status = "pass" if effective >= 100 else "warn"
    text = f"The estimate rests on {effective:,.0f} effective clicks of {analysis.clicks:,}."
    return Found(status, effective, text)


@advised(
    "largest weight",
    "data",
    "No click counts for very many",
    cause="Some results are shown rarely, so that a click on them stands for many.",
    remedy="Start a version with a larger hold-back or floor: they are shown more often then.",
)
def largest_weight(analysis: Analysis) -> Found:
    """The largest weight of a click."""
    weights = analysis.estimate.weights
    if not weights.count:
        return unknown("it takes clicks")
    most, heavy = weights.largest, weights.heaviest(0.01)
    text = f"No click counts more than {most:.3g}; the heaviest hundredth makes {heavy:.0%} of the squares."
    return Found(above(most, 20, 200), most, text)


BIAS = "position bias"


@advised(
    BIAS,
    "assumptions",
    "How much each rank is looked at is known",
    cause="There are too few clicks yet to fit it, or the theta or eta that was given is not that of this page.",
    remedy='Wait for more clicks. Where it was given, start a version with bias="estimated".',
)
def bias(analysis: Analysis) -> Found:
    """Position bias: whether it is known from this trial's clicks, and how well; one that was given is held against them."""
    theta = analysis.theta
    if not analysis.config.comparison.traits.needs_position_bias:
        return needless("An A/B test needs none.")
    if analysis.config.k == 1:
        return needless("One rank has none.")
    if not analysis.config.comparison.traits.learns_position_bias:
        return _given_bias(analysis)
    if analysis.fit is None:
        how = "From fewer clicks" if theta.fitted else "Assumed, not fitted"
        text = f"{how}, so the interval does not hold its error: {theta.note}."
        return Found("warn", NO_NUMBER, text)
    worst = max(theta.standard_error)
    text = f"Fitted, standard error at most {worst:.3f}; it widens the interval by {theta.inflation - 1:.0%}."
    return Found("warn" if worst > 0.2 else "pass", worst, text)


def _given_bias(analysis: Analysis) -> Found:
    """Position bias that is taken as known, against where the same documents are clicked (``position_scores``)."""
    log, theta = analysis.log, np.array(analysis.theta.theta)
    moved = position_scores(log, theta)
    evidence = mean_evidence(moved, telling=log.clicks_by_cohort)
    if not evidence.any():
        return unknown("it is taken as known, as configured, and to hold it against clicks takes more of them")
    p = anytime_p(evidence)
    steeper = f"clicks fall with rank^{-moved.mean:+.2f} (+- {2 * moved.standard_error:.2f}) times what was given"
    effect = exponent_effect(analysis, theta, moved.mean) if p < WARN else 0.0  # that goes through all of the log
    text = f"Taken as known, as configured; {steeper}, p = {p:.3g}."
    if p < WARN:
        text += f" That moves B against A by {0.0 - effect:+.4f}."
    return Found(harmful(analysis, by_chance(p), effect), p, text)


def exponent_effect(analysis: Analysis, theta: FloatArray, moved: float, since: int = 0, before: float = 0.0) -> float:
    """Change of the estimate by using theta where theta rank^-moved holds since a cohort, and theta rank^-before before it."""
    log, ranks = analysis.log, np.arange(1, len(theta) + 1)
    away = clicks_worth(log, theta, 1.0, -1.0).totals.sum()
    for exponent, some in ((before, slice(0, since)), (moved, slice(since, None))):
        if exponent is moved or since:
            away -= clicks_worth(log, theta * ranks**-exponent, 1.0, -1.0).totals[some].sum()
    return float(away / len(log))


def clicks_worth(log: Log, theta: FloatArray, of_a: float, of_b: float) -> UnitSums:
    """Inverse-propensity sums over the clicks of each cohort: of A's clicks so many times, and of B's so many times."""

    def contribution(rows: slice, part: Log, before: object) -> FloatArray:
        (by_a, by_b), rho = part.list_exposures(theta), part.exposure(theta)
        each = np.divide(of_a * by_a + of_b * by_b, rho, out=np.zeros_like(rho), where=rho > 0)
        impression, _, slot = part.clicked
        return weighted_counts(impression, each[slot], len(part))

    name = f"clicks worth {of_a} of A and {of_b} of B"
    found: UnitSums = fold(
        log, Statistic(name, (theta.tobytes(),), contribution, lambda x: log.cohorts.sums(np.concatenate(x)))
    )[0]
    return found
