"""Guards of a trial: whether B, what is shown, faults or slow calls cost more than was allowed, told as soon as that is sure.

Each is one-sided and may be watched for ever: the chance that any of them ever stops a trial in which all that they guard is
within its tolerance is at most 1 - level. The clicks lost are from the estimates of the decision, by the same confidence
sequences; all ends of intervals that the guards rest on share what the level leaves (``ends``). Like a winner, a loss must
stand against a share of hostile searches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from ranktrial.analysis.analyse import Analysis
from ranktrial.analysis.decision import Decision
from ranktrial.analysis.intervals import asymptotic_radius
from ranktrial.analysis.metrics import (
    GUARDS_TIGHTEST,
    Compared,
    MetricAnswer,
    MetricDecision,
    apart,
    compared,
    ends,
    level_of_each,
    loss_of_b,
    share,
)
from ranktrial.analysis.verdict import percent
from ranktrial.interval import Interval
from ranktrial.methods import AB
from ranktrial.schema import Frozen
from ranktrial.store.tallies import OUTSIDE_SHARE, SHOWN_AGAIN, SLOW

LEAST_SEARCHES, LEAST_BAD = 100, 20  # before a share is believed
FALLBACK = "fallback: "


class Guard(Frozen):
    """Finding of a guard.

    Attributes:
        name: "clicks of B", "clicks shown", "fallbacks" or "latency"; or that of a metric.
        tolerance: Share that is allowed: of A's clicks that may be lost, of searches that may be left out because of faults, or
            of calls that may be slow.
        value: Share that was found; nan where that is not known yet.
        at_least: Share that is surely exceeded, however often one looks; negative infinity where nothing is sure.
        status: "harm" if that is more than the tolerance; otherwise "pass", or "unknown" where nothing is known yet.
        text: The same in a sentence.
        headline: The harm that B surely does, in a short sentence; "" where there is none, or it is not B's.
    """

    name: str
    tolerance: float
    value: float
    at_least: float
    status: Literal["pass", "harm", "unknown"]
    text: str
    headline: str = ""


def guards(
    clicks: MetricDecision,
    tallies: Mapping[str, int],
    searches: int | None = None,
    answers: Iterable[MetricAnswer] = (),
) -> tuple[Guard, ...]:
    """Run the guards that the configuration asks for.

    Args:
        clicks: The decision by clicks, which says what estimates may be used, and the analysis behind it.
        tallies: Counters, of which those of fallbacks and of calls are looked at.
        searches: Searches that are stored, left out of the analysis or not; those of the analysis by default.
        answers: Answers by metric: those that guard with a tolerance stop the trial like the others.
    """
    _, analysis, decision, widen = clicks
    wanted, (a, b) = analysis.config.guards, analysis.config.labels
    watched: list[
        tuple[str, float, tuple[float, float], str, str]
    ] = []  # name, tolerance, loss and sure loss, sentence
    if wanted.clicks is not None or wanted.shown is not None:
        known = compared(analysis, decision, widen, level_of_each(analysis))
        if wanted.clicks is not None:
            watched.append(("clicks of B", wanted.clicks, loss_of_b(known), f"{b} gets", f"fewer clicks than {a}"))
        if wanted.shown is not None:
            lost, what = _loss_of_shown(analysis, known, widen), f"fewer clicks than with {a} for everybody"
            watched.append(("clicks shown", wanted.shown, lost, "Visitors give", what))
    for one in answers:
        metric, less = one.metric, one.metric.sign < 0
        if metric.tolerance is not None:
            who = f"{b} has a {metric.title}" if metric.of_mean else f"{b} gets"
            worse = ("larger" if less else "smaller") if metric.of_mean else metric.compared("", less)
            watched.append((metric.title, metric.tolerance, (one.loss, one.at_least), who, f"{worse} than {a}"))
    stored = len(analysis.log) if searches is None else searches
    fallbacks = {name: count for name, count in tallies.items() if name.startswith(FALLBACK)}
    faults = sum(count for name, count in fallbacks.items() if "stopped" not in name)
    if wanted.fallbacks is not None:
        left_out = _share_of(faults, stored + faults, level_of_each(analysis))
        what = "of the searches left out because of faults"
        watched.append(("fallbacks", wanted.fallbacks, left_out, "There are", what))
    if wanted.latency is not None:
        calls = stored + sum(fallbacks.values()) + sum(tallies.get(name, 0) for name in (OUTSIDE_SHARE, SHOWN_AGAIN))
        slow = _share_of(tallies.get(SLOW, 0), calls, level_of_each(analysis))
        what = "of the calls of rank that take more than 5 ms"
        watched.append(("latency", wanted.latency, slow, "There are", what))
    return tuple(
        _guard(name, tolerance, *loss, who, what, wanted.level, of_b=who.startswith(f"{b} "))
        for name, tolerance, loss, who, what in watched
    )


def _guard(
    name: str, tolerance: float, value: float, at_least: float, who: str, what: str, level: float, *, of_b: bool
) -> Guard:
    allowed = f"{percent(tolerance)} is allowed"
    sure = f"{allowed}, by a test that is right in {level:.4g} of all trials however often one looks"
    surely = f"{who} at least {percent(at_least)} {what}"
    status: Literal["pass", "harm", "unknown"]
    if not np.isfinite(value):
        status, text = "unknown", f"The guard on {name} knows nothing yet; {allowed}."
    elif at_least > tolerance:
        status, text = "harm", f"{surely}, about {percent(value)}; {sure}."
    else:
        status, text = "pass", f"{who} about {percent(max(value, 0.0))} {what}; {sure}."
    return Guard(
        name=name, tolerance=tolerance, value=value, at_least=at_least, status=status, text=text,
        headline=f"{surely}." if status == "harm" and of_b else "",
    )  # fmt: skip


def futility(analysis: Analysis, decision: Decision, widen: Interval) -> str:
    """A sentence if B is surely not better by the smallest difference that matters, as sure as a guard is; "" otherwise.

    It says nothing that the decision's own interval does not, and nothing where a check fails.
    """
    smallest, (_, b), metric = decision.smallest, analysis.config.labels, decision.metric

    def most(interval: Interval) -> float:
        """The most by which B may be better."""
        return interval.high if metric.sign > 0 else -interval.low

    if smallest is None or decision.failed or not most(decision.interval) < smallest:
        return ""
    level = level_of_each(analysis, max(ends(analysis), len(analysis.ladder.results)))
    if not most(apart(analysis, decision, widen, level)) < smallest:
        return ""
    return f"{b} is surely not better by {smallest:g} {metric.unit}."


def _loss_of_shown(analysis: Analysis, known: Compared | None, widen: Interval) -> tuple[float, float]:
    """Share of A's clicks that visitors lose by what they are shown, and what they surely lose.

    Of an A/B test they lose a share of the difference; of other methods half of it, as of an even A/B test, less what was
    gained over that.
    """
    if known is None:
        return float("nan"), float("-inf")
    method, gain = analysis.config.comparison, analysis.gain
    if isinstance(method, AB):
        of_b, gained, most = 1 - method.split, 0.0, 0.0
    elif gain is None:
        return float("nan"), float("-inf")
    else:
        of_b, gained = 0.5, gain.estimate.delta
        most = gain.estimate.anytime_interval(level_of_each(analysis), tightest_at=GUARDS_TIGHTEST).high
        most += max(widen) if gain.by_model else 0.0
    value = share(-of_b * known.difference - gained, known.mean - known.difference / 2)
    lost = -of_b * known.apart.high - most
    a = known.both.high - known.apart.low / 2
    return value, share(lost, a) if lost > 0 and np.isfinite(a) else float("-inf")


def _share_of(bad: int, whole: int, level: float) -> tuple[float, float]:
    """Share of what is bad, and the share that is surely exceeded, by an interval of this level."""
    found = bad / whole if whole else float("nan")
    if whole < LEAST_SEARCHES or bad < LEAST_BAD:
        return found, float("-inf")
    spread = np.sqrt(found * (1 - found))
    return found, found - float(asymptotic_radius([whole], [spread], level=level, tightest_at=GUARDS_TIGHTEST)[0])
