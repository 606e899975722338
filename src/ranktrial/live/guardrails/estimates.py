"""Checks of what the estimate rests on: coverage, weights, position bias, and what the trial costs."""

from __future__ import annotations

import numpy as np

from ranktrial.arrays import FloatArray, weighted_counts
from ranktrial.inference import Log, heaviest_unit
from ranktrial.live.analysis import Analysis
from ranktrial.live.guardrails.status import NO_NUMBER, above, needless, unknown
from ranktrial.live.schemas import Guardrail, Status
from ranktrial.live.tokens import unit_name


def coverage(analysis: Analysis) -> Guardrail:
    """Documents on which the rankers differ and that could not be seen."""
    log = analysis.log
    if not len(log):
        return unknown("coverage", "nothing has been shown")
    top = analysis.ladder.rungs[-1].estimate
    bad = np.flatnonzero(np.empty(0) if top is None else top.uncovered)
    if not len(bad):
        return Guardrail(name="coverage", status="pass", value=0, text="Every document that matters could be seen.")
    queries = len(np.unique(log.query[log.design_of_slot[bad]]))
    text = f"{len(bad):,} documents that matter could not be seen, for {queries:,} queries: they are left out."
    return Guardrail(name="coverage", status="fail", value=float(len(bad)), text=text)


def effective_clicks(analysis: Analysis) -> Guardrail:
    """Equally weighted clicks that would say as much as those that the estimate rests on."""
    effective = analysis.estimate.effective_clicks
    status: Status = "pass" if effective >= 100 else "warn"
    text = f"The estimate rests on {effective:,.0f} effective clicks of {analysis.clicks:,}."
    return Guardrail(name="effective clicks", status=status, value=effective, text=text)


def largest_weight(analysis: Analysis) -> Guardrail:
    """The largest weight of a click."""
    weights = np.abs(analysis.estimate.click_weights)
    if not len(weights):
        return unknown("largest weight", "it takes clicks")
    most = float(weights.max(initial=0.0))
    heavy = float(np.sort(weights**2)[::-1][: max(len(weights) // 100, 1)].sum() / max((weights**2).sum(), 1e-300))
    text = f"No click counts more than {most:.3g}; the heaviest hundredth makes {heavy:.0%} of the squares."
    return Guardrail(name="largest weight", status=above(most, 20, 200), value=most, text=text)


def bias(analysis: Analysis) -> Guardrail:
    """Position bias: whether it is known from this trial's clicks, and how well."""
    theta, name = analysis.theta, "position bias"
    if not analysis.config.comparison.needs_position_bias:
        return needless(name, "An A/B test needs none.")
    if not analysis.config.comparison.learns_position_bias:
        return needless(name, "Taken as known, as configured.")
    if analysis.config.k == 1:
        return needless(name, "One rank has none.")
    if analysis.fit is None:
        how = "From fewer clicks" if theta.fitted else "Assumed, not fitted"
        text = f"{how}, so the interval does not hold its error: {theta.note}."
        return Guardrail(name=name, status="warn", value=NO_NUMBER, text=text)
    worst = max(theta.standard_error)
    text = f"Fitted, standard error at most {worst:.3f}; it widens the interval by {theta.inflation - 1:.0%}."
    return Guardrail(name=name, status="warn" if worst > 0.2 else "pass", value=worst, text=text)


def page(analysis: Analysis) -> Guardrail:
    """Clicks that the trial costs, against showing the better ranker to everybody.

    No matter of trust, so it never fails; it warns where the cost is 5 % more than that of an A/B test.
    """
    log, name = analysis.log, "clicks on what is shown"
    if analysis.clicks < 100:
        return unknown(name, f"it takes 100 clicks, there are {analysis.clicks}")
    shown, is_ab = log.clicks.sum(1).astype(np.float64), not analysis.config.comparison.needs_position_bias
    by_a, by_b, rho = analysis.exposures
    if not is_ab and np.any((rho == 0) & (by_a + by_b > 0)):
        text = f"{shown.mean():.4g} clicks per impression; what A or B would get cannot be told: "
        text += "some of their results never show. A floor or a hold-back above 0 shows them."
        return Guardrail(name=name, status="warn", value=NO_NUMBER, text=text)
    if is_ab:
        rates = [float(shown[log.arm == arm].mean()) if (log.arm == arm).any() else 0.0 for arm in (1, -1)]
    else:
        rates = [float(clicks_worth(log, by, rho).mean()) for by in (by_a, by_b)]
    ctr, better = float(shown.mean()), max(rates)
    loss = 1 - ctr / better if better > 0 else 0.0
    against = f"{loss:.1%} lost to the better" if loss >= 0 else f"{-loss:.1%} more than the better"
    plain, error = sum(rates) / 2, float(shown.std() / np.sqrt(len(log)))
    status: Status = "warn" if ctr + 2 * error < 0.95 * plain else "pass"  # an A/B test would get the mean of both
    text = f"{ctr:.4g} clicks per impression; A would get {rates[0]:.4g}, B {rates[1]:.4g}: {against}."
    if status != "pass":
        text += " A higher agreement floor gives some back."
    return Guardrail(name=name, status=status, value=loss, text=text)


def clicks_worth(log: Log, wanted: FloatArray, rho: FloatArray) -> FloatArray:
    """What each impression's clicks are worth, by inverse propensity: wanted over actual exposure of each slot."""
    worth = np.divide(wanted, rho, out=np.zeros_like(rho), where=rho > 0)
    impression, _, slot = log.clicked
    return weighted_counts(impression, worth[slot], len(log))


def heaviest(analysis: Analysis) -> Guardrail:
    """The share of the log that one unit makes: an estimate should not be about a single visitor."""
    name = "heaviest unit"
    if len(analysis.log) < 1_000:
        return unknown(name, "it takes 1,000 impressions")
    unit, share, variance = heaviest_unit(analysis.estimate.sums)
    text = f"Unit {unit_name(unit)} makes {share:.2%} of the impressions and {variance:.1%} of the variance."
    status = above(share, 0.02, 0.2)
    if status != "pass":
        text += " If that is a robot, exclude it; a trial can have rules for the most that a unit may do."
    return Guardrail(name=name, status=status, value=share, text=text)
