"""Checks over time: whether the difference, clicks per page and position bias stay the same (``analysis.drift``).

The difference may change, and then the report is of the time since. Clicks per page change with what people search for and
who they are, which makes the estimate a mean over these. Position bias that changes makes the one theta of the estimate
wrong for all of the time.
"""

from __future__ import annotations

import numpy as np

from ranktrial.analysis.analyse import Analysis, came
from ranktrial.analysis.drift import Drift, position_scores
from ranktrial.analysis.estimators.valuing import scaled
from ranktrial.analysis.guardrails.estimates import clicks_worth, exponent_effect
from ranktrial.analysis.guardrails.status import Found, Status, advised, harmful, needless, unknown
from ranktrial.log import UnitSums
from ranktrial.times import time_text

BIAS_OVER_TIME = "position bias over time"
MICROSECONDS_A_DAY = 86_400e6
DATED = 365 * MICROSECONDS_A_DAY  # since 1970: earlier times are places in a log without times
LEAST_CLICKS = 100  # before that the mean over few of them is no mean


def drift_text(drift: Drift) -> str:
    """Result of a test of change as a sentence, with the date."""
    if drift.between is None or drift.since_time is None or drift.since_time < DATED:
        return drift.text
    return f"{drift.text} That was on {time_text(drift.since_time / 1e6)}."


@advised(
    "the difference over time",
    "assumptions",
    "The difference stays the same",
    cause="A ranker, the catalogue or the visitors changed on the way.",
    remedy="Find out what changed at that time. If it was a ranker, start a new version; the report is of the time since.",
)
def difference_over_time(analysis: Analysis) -> Found:
    """Check whether the difference changed; the report is then of the time since, so this only warns."""
    drift = analysis.drift
    if drift.status == "unknown":
        return unknown(f"it takes more clicks, there are {analysis.clicks:,}")
    text = drift_text(drift) + (" The report is of the time since." if analysis.changed else "")
    return Found("warn" if drift.changed else "pass", drift.p, text)


@advised(
    "clicks per page over time",
    "assumptions",
    "Visitors click as much as before",
    cause="A campaign, a season, other searches; or clicks are recorded in another way than before.",
    remedy="Make sure that click events did not change then. Otherwise nothing needs mending.",
)
def clicks_over_time(analysis: Analysis) -> Found:
    """Clicks that a page of A or of B would get, at the same hours of the day.

    Designs are changed on the way, and clicks on what they show with them, so clicks are weighed as if half of the pages were
    A's and half B's. Other searches and other visitors change them too, and harm nothing: it only warns, and says what the
    difference was before and after.
    """
    log = analysis.log
    if analysis.clicks < LEAST_CLICKS:
        return unknown(f"it takes {LEAST_CLICKS} clicks, there are {analysis.clicks:,}")
    sums = log.cohorts.sums(log.clicks_each)
    if analysis.config.comparison.traits.needs_position_bias:
        if analysis.config.comparison.traits.learns_position_bias and analysis.fit is None and log.k > 1:
            return unknown(f"it takes position bias ({analysis.theta.note})")
        sums = clicks_worth(log, np.array(analysis.theta.theta), 0.5, 0.5)
    drift = _drift(analysis, sums, "clicks per page of A or B")
    if drift.status == "unknown":
        return unknown("it takes more visitors")
    text = drift_text(drift)
    if drift.since_time is not None:
        text += " Other searches or other visitors do that too; the estimate is a mean over all searches."
        if analysis.result is not None:
            found = analysis.estimate.sums
            early = int((came(log, found) < drift.since_time).sum())
            parts = [found.part(some) for some in (slice(0, early), slice(early, None))]
            parts = [part for part in parts if len(part) > 1]
            means = ", then ".join(f"{0.0 - part.mean:+.4f} (+- {2 * part.standard_error:.4f})" for part in parts)
            text += f" B against A was {means}."
    return Found("warn" if drift.changed else "pass", drift.p, text)


@advised(
    BIAS_OVER_TIME,
    "assumptions",
    "Visitors look at ranks as before",
    cause="The page was changed, or more visitors come with a phone than before.",
    remedy="Start a new version for the new page. Until then an estimate without position bias is used.",
)
def bias_over_time(analysis: Analysis) -> Found:
    """Position bias, by where documents are clicked: other searches and other designs do not move it.

    It fails only where the effect on the estimate is more than half of what its interval allows for.
    """
    log, method = analysis.log, analysis.config.comparison
    if not method.traits.needs_position_bias:
        return needless("An A/B test needs none.")
    if log.k == 1:
        return needless("One rank has none.")
    if analysis.clicks < LEAST_CLICKS or (method.traits.learns_position_bias and analysis.fit is None):
        return unknown(f"it takes {LEAST_CLICKS} clicks, and position bias ({analysis.theta.note})")
    theta = scaled(np.array(analysis.theta.theta))
    scores = position_scores(log, theta, analysis.differs)
    drift = _drift(analysis, scores, "the exponent of position bias, against that of all of the trial,")
    if drift.status == "unknown":
        return unknown("it takes more clicks on results that the draw puts now here, now there")
    text = drift_text(drift)
    status: Status = drift.status
    if drift.changed and drift.at is not None:
        since = int(scores.places(drift.at))
        effect = exponent_effect(analysis, theta, drift.after, since, drift.before)
        status = harmful(analysis, status, effect)
        text += f" That moves B against A by {0.0 - effect:+.4f}."
    return Found(status, drift.p, text)


def _drift(analysis: Analysis, sums: UnitSums, what: str) -> Drift:
    return Drift.of(sums, times=analysis.log.time[analysis.log.cohorts.first], period=MICROSECONDS_A_DAY, what=what)
