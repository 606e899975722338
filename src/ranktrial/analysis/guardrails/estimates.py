"""Checks of the estimate's basis: coverage, weights, position bias, and the clicks that the trial costs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ranktrial.analysis.analyse import Analysis
from ranktrial.analysis.drift import position_scores
from ranktrial.analysis.e_processes import anytime_p, mean_evidence
from ranktrial.analysis.estimators.results import Estimate
from ranktrial.analysis.guardrails.advice import advised
from ranktrial.analysis.guardrails.status import (
    NO_NUMBER,
    WARN,
    Guardrail,
    Status,
    above,
    by_chance,
    harmful,
    needless,
    unknown,
)
from ranktrial.arrays import FloatArray, weighted_counts
from ranktrial.log import Log, UnitSums
from ranktrial.log.folding import Statistic, fold
from ranktrial.tokens import unit_name


@advised(
    "coverage",
    "assumptions",
    "Every result that matters could be shown",
    cause="Designs never show some results on which the rankers differ.",
    remedy="Start a version with a hold-back above 0: it shows both lists as they are.",
)
def coverage(analysis: Analysis) -> Guardrail:
    """Documents on which the rankers differ and that could not be seen."""
    log = analysis.log
    if not len(log):
        return unknown("coverage", "nothing has been shown")
    top = analysis.ladder.results[-1].estimate
    if top is None or not len(top.uncovered):
        return Guardrail(name="coverage", status="pass", value=0, text="Every document that matters could be seen.")
    bad = len(top.uncovered)
    queries = len(np.unique(log.document_query[log.document[top.uncovered]]))
    text = f"{bad:,} documents that matter could not be seen, for {queries:,} queries: they are left out."
    return Guardrail(name="coverage", status="fail", value=float(bad), text=text)


@advised(
    "effective clicks",
    "data",
    "Enough clicks carry the answer",
    cause="The trial is young, or a few clicks have most of the weight.",
    remedy="Wait for more clicks.",
)
def effective_clicks(analysis: Analysis) -> Guardrail:
    """Equally weighted clicks that would say as much as those that the estimate rests on."""
    effective = analysis.estimate.effective_clicks
    status: Status = "pass" if effective >= 100 else "warn"
    text = f"The estimate rests on {effective:,.0f} effective clicks of {analysis.clicks:,}."
    return Guardrail(name="effective clicks", status=status, value=effective, text=text)


@advised(
    "largest weight",
    "data",
    "No click counts for very many",
    cause="Some results are shown rarely, so that a click on them stands for many.",
    remedy="Start a version with a larger hold-back or floor: they are shown more often then.",
)
def largest_weight(analysis: Analysis) -> Guardrail:
    """The largest weight of a click."""
    weights = analysis.estimate.weights
    if not weights.count:
        return unknown("largest weight", "it takes clicks")
    most, heavy = weights.largest, weights.heaviest(0.01)
    text = f"No click counts more than {most:.3g}; the heaviest hundredth makes {heavy:.0%} of the squares."
    return Guardrail(name="largest weight", status=above(most, 20, 200), value=most, text=text)


BIAS = "position bias"


@advised(
    BIAS,
    "assumptions",
    "How much each rank is looked at is known",
    cause="There are too few clicks yet to fit it, or the theta or eta that was given is not that of this page.",
    remedy='Wait for more clicks. Where it was given, start a version with bias="estimated".',
)
def bias(analysis: Analysis) -> Guardrail:
    """Position bias: whether it is known from this trial's clicks, and how well; one that was given is held against them."""
    theta, name = analysis.theta, BIAS
    if not analysis.config.comparison.traits.needs_position_bias:
        return needless(name, "An A/B test needs none.")
    if analysis.config.k == 1:
        return needless(name, "One rank has none.")
    if not analysis.config.comparison.traits.learns_position_bias:
        return _given_bias(analysis)
    if analysis.fit is None:
        how = "From fewer clicks" if theta.fitted else "Assumed, not fitted"
        text = f"{how}, so the interval does not hold its error: {theta.note}."
        return Guardrail(name=name, status="warn", value=NO_NUMBER, text=text)
    worst = max(theta.standard_error)
    text = f"Fitted, standard error at most {worst:.3f}; it widens the interval by {theta.inflation - 1:.0%}."
    return Guardrail(name=name, status="warn" if worst > 0.2 else "pass", value=worst, text=text)


def _given_bias(analysis: Analysis) -> Guardrail:
    """Position bias that is taken as known, against where the same documents are clicked (``position_scores``)."""
    log, theta = analysis.log, np.array(analysis.theta.theta)
    moved = position_scores(log, theta)
    evidence = mean_evidence(moved, telling=log.clicks_by_cohort)
    if not evidence.any():
        return unknown(BIAS, "it is taken as known, as configured, and to hold it against clicks takes more of them")
    p = anytime_p(evidence)
    steeper = f"clicks fall with rank^{-moved.mean:+.2f} (+- {2 * moved.standard_error:.2f}) times what was given"
    effect = exponent_effect(analysis, theta, moved.mean) if p < WARN else 0.0  # that goes through all of the log
    text = f"Taken as known, as configured; {steeper}, p = {p:.3g}."
    if p < WARN:
        text += f" That moves B against A by {0.0 - effect:+.4f}."
    return Guardrail(name=BIAS, status=harmful(analysis, by_chance(p), effect), value=p, text=text)


def exponent_effect(analysis: Analysis, theta: FloatArray, moved: float, since: int = 0, before: float = 0.0) -> float:
    """Change of the estimate by using theta where theta rank^-moved holds since a cohort, and theta rank^-before before it."""
    log, ranks = analysis.log, np.arange(1, len(theta) + 1)
    away = difference_worth(log, theta).totals.sum()
    for exponent, some in ((before, slice(0, since)), (moved, slice(since, None))):
        if exponent is moved or since:
            away -= difference_worth(log, theta * ranks**-exponent).totals[some].sum()
    return float(away / len(log))


@advised(
    "clicks on what is shown",
    "visitors",
    "The trial costs visitors no clicks",
    cause="Mixed pages are worse than A's and B's own, and the click budget has not caught up with that yet.",
    remedy="The budget corrects itself at the next refit. A lower loss, or a floor, gives more back.",
)
def page(analysis: Analysis) -> Guardrail:
    """Clicks that the trial costs, against an A/B test.

    No matter of trust, so it never fails; it warns where it surely costs more than its budget, or than 5 % without one.
    """
    name, gain = "clicks on what is shown", analysis.gain
    if sum(analysis.config.comparison.traits.ab_shares) == 1 or (len(analysis.log) and analysis.log.arm.all()):
        return needless(name, "Visitors see A's list or B's own, as in any A/B test.")
    if analysis.clicks < 100:
        return unknown(name, f"it takes 100 clicks, there are {analysis.clicks}")
    if gain is None or not gain.ab > 0:
        return unknown(name, "what A or B would get cannot be told: a hold-back above 0 shows their results")
    budget = getattr(analysis.config.comparison, "loss", None)
    allowed = 0.05 if budget is None else budget
    low, high = gain.interval(analysis.config.level)
    if not np.isfinite(low):
        return unknown(name, "it takes more visitors")
    status: Status = "warn" if high < -allowed else "pass"
    text = f"{gain.share:+.1%} against an A/B test ({low:+.1%} to {high:+.1%})"
    text += (
        "." if budget is None else f", which may lose {budget:.1%}." if budget >= 0 else f", asked for {-budget:+.1%}."
    )
    if status != "pass":
        text += " The price of a click goes up by itself; a lower loss, or an agreement floor, gives more back."
    return Guardrail(name=name, status=status, value=-gain.share, text=text)


def difference_worth(log: Log, theta: FloatArray) -> UnitSums:
    """Inverse-propensity sums of A's clicks minus B's over the clicks of each cohort."""
    return _clicks_worth(log, theta, 1.0, -1.0)


def mean_worth(log: Log, theta: FloatArray) -> UnitSums:
    """Inverse-propensity sums of the mean of A's and B's clicks over the clicks of each cohort."""
    return _clicks_worth(log, theta, 0.5, 0.5)


def _clicks_worth(log: Log, theta: FloatArray, of_a: float, of_b: float) -> UnitSums:
    """Exposure by A's list and by B's, so many times each, over the actual one, of what was clicked."""

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


class Heaviest(NamedTuple):
    """The unit with most impressions: its number, and its share of the impressions and of the estimate's variance."""

    unit: int
    impressions: float
    variance: float


def heaviest_unit(log: Log, found: Estimate) -> Heaviest:
    """The unit with most impressions of all: where its share of the variance is large, the estimate is about one visitor."""
    unit = log.units.place[found.picked]
    impressions = np.bincount(unit, minlength=len(log.units.names))
    heavy = int(impressions.argmax())
    sums, most = found.sums, int(impressions[heavy])
    away = (sums.totals - sums.mean * sums.impressions) ** 2
    variance = (found.x[unit == heavy].sum() - sums.mean * most) ** 2 / max(away.sum(), 1e-300)
    return Heaviest(int(log.units.names[heavy]), most / found.impressions, float(variance))


@advised(
    "heaviest unit",
    "visitors",
    "No single visitor makes the answer",
    cause="A robot, a test script, or an account that many people share.",
    remedy="If it is a robot, exclude it; rules in the configuration leave such visitors out from the start.",
)
def heaviest(analysis: Analysis) -> Guardrail:
    """The share of the log that one unit makes: an estimate should not be about a single visitor."""
    name = "heaviest unit"
    if len(analysis.log) < 1_000:
        return unknown(name, "it takes 1,000 searches")
    if analysis.result is None:
        return unknown(name, "it takes an estimate")
    unit, share, variance = heaviest_unit(analysis.log, analysis.estimate)
    text = f"Visitor {unit_name(unit)} makes {share:.2%} of the searches and {variance:.1%} of the variance."
    status = above(share, 0.02, 0.2)
    if status != "pass":
        text += " If that is a robot, exclude it; a trial can have rules for the most that a visitor may do."
    return Guardrail(name=name, status=status, value=share, text=text)
