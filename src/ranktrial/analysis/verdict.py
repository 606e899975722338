"""Sentences about a decision: everything that people read of it, on the page, in reports and on the command line.

Numbers are of B against A. Names of the rankers, and what is known of a trial beside its decision, come in as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ranktrial.analysis.decision import Decision
from ranktrial.analysis.ladder import ASSUMES, LEAST_CLICKS, LEAST_UNITS
from ranktrial.interval import Interval
from ranktrial.metrics import Clicks, EventMetric
from ranktrial.texts import counted

FIRST_INTERVAL = f"{LEAST_UNITS} visitors and {LEAST_CLICKS} {{}}, on lists that differ"
MANY_WITHOUT_CLICKS = 100  # searches after which something is probably wrong with events
MOST_NAMED = 3  # segments in a sentence
TOO_MANY, TOO_LONG = 1e8, 1000.0  # searches and days to a decision for which nobody waits


@dataclass(frozen=True)
class Verdict:
    """A decision in words; each part is whole sentences, or "" where there is nothing to say.

    Attributes:
        headline: The answer in one sentence.
        details: The numbers behind it.
        next: What to do next, and when that may change.
        trust: What the answer rests on, and its weakest point.
    """

    headline: str
    details: str
    next: str
    trust: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.headline, self.details)))


def verdict(
    decision: Decision,
    labels: tuple[str, str] = ("A", "B"),
    *,
    days: float = float("nan"),
    shows: str | None = None,
    ended: bool = False,
    live: bool = False,
    changed: str = "",
    segments: str = "",
    remedy: str = "",
    weakest: str = "",
    harm: str = "",
) -> Verdict:
    """Put a decision into words.

    Args:
        labels: A and B as people call them.
        days: Days that the searches still to come will take, at the pace so far.
        shows: The ranker that a stopped trial shows; None while it runs.
        ended: True if no more searches come, as after a later version began.
        live: True for a trial, which can be stopped; False for a log.
        changed: A sentence on a change of the difference over time.
        segments: A sentence on segments that differ (``segment_text``).
        remedy: What to do about the first check that fails.
        weakest: The worst check and what it found, in sentences.
        harm: Harm that a guard is sure of, in a sentence: the headline as long as the decision itself knows of none. A guard is
            watched more closely at the beginning of a trial than the difference is, so it may be sure first.
    """
    unknown = decision.state in ("undecided", "too early")
    return Verdict(
        harm if harm and unknown else headline(decision, labels, ended=ended or shows is not None),
        " ".join(filter(None, (details(decision, changed), segments))),
        next_step(
            decision, labels, days=days, shows=shows, live=live, remedy=remedy, losing=segments.startswith("But ")
        ),
        trust(decision, weakest),
    )


def headline(decision: Decision, labels: tuple[str, str] = ("A", "B"), *, ended: bool = False) -> str:
    """The answer in one sentence; nothing is "yet" once the trial has ended."""
    a, b = labels
    yet = "" if ended else " yet"
    searches, of_clicks = counted(decision.searches, "search", "searches"), isinstance(decision.metric, Clicks)
    match decision.state:
        case "no searches":
            return f"No searches{yet}."
        case "no clicks":
            return f"No clicks{yet} after {searches}."
        case "no events":
            return f"No {decision.metric.title}{yet} after {searches}."
        case "too early":
            if not decision.searches:
                return f"Too early to say: no search is old enough yet to count for {decision.metric.title}."
            if of_clicks:
                return f"Too early to say after {searches} and {counted(decision.clicks, 'click')}."
            of_results = decision.metric.of_results
            some = f", {decision.clicks:,} of them with {decision.metric.title}" if of_results else ""
            return f"Too early to say after {searches}{some}."
        case "undecided":
            return f"Neither is ahead{yet}."
        case "alike":
            return f"{a} and {b} differ by less than {decision.smallest:g} {decision.metric.unit}."
        case "not trusted":
            return f"Do not rely on these numbers: {_failing(decision.failed)}."
        case "withheld" if decision.reasons != ("guard",):
            seems = "have" if decision.metric.of_mean else "get"
            return f"{b} seems to {seems} {_compared(decision)} than {a}, but no winner is named{yet}."
    share = decision.lift.share
    much = percent(abs(share)) if np.isfinite(share) and share != 0 else ""
    but = f", but {' and '.join(decision.harm)}" if decision.harm and decision.ahead == "B" else ""
    return f"{b} {_gets(decision)} {_compared(decision, much)} than {a}{but}."


def details(decision: Decision, changed: str = "") -> str:
    """The numbers behind the answer."""
    if decision.state in ("no searches", "no clicks", "no events"):
        return ""
    if decision.state == "too early":
        return f"Waiting for {'; '.join(decision.waits)}." if decision.waits and decision.searches >= 1000 else ""
    often = "however often you look" if decision.anytime else "for one look at a number of searches fixed beforehand"
    if not np.isfinite(decision.interval.half_width):
        return " ".join(filter(None, ["There is no interval.", changed]))
    spec = f"+.{decimals(decision.interval)}f"
    ends = f"{decision.level:.0%} interval {decision.interval:{spec}}, {often}"
    told = [f"B against A: {decision.difference:{spec}} {decision.metric.unit} ({ends})."]
    for reason in decision.reasons:
        match reason:
            case "untested":
                told.append("Without A/B traffic nothing checks how visitors click.")
            case "blind":
                told.append("The A/B traffic so far could not have shown a bias as large as the difference.")
            case "too soon":
                told.append("The trial is to take longer before a winner counts.")
            case "hostile":
                share = f"{percent(decision.contamination)} that a winner must stand against"
                told.append(f"{_hostile_visitors(decision)}, no more than the {share}.")
    if decision.harm and decision.reasons != ("guard",):
        told.append(f"B has {' and '.join(decision.harm)}, more than the guard allows.")
    return " ".join(filter(None, [*told, changed]))


class SureSegment(Protocol):
    """A segment in which the difference is surely not 0."""

    @property
    def attribute(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def difference(self) -> float: ...
    @property
    def interval(self) -> Interval: ...


def segment_text(decision: Decision, sure: Sequence[SureSegment], labels: tuple[str, str] = ("A", "B")) -> str:
    """Segments that surely differ from the answer for all, or that differ where there is none for all; "" without any."""
    if decision.failed:
        return ""
    (a, b), metric, ahead = labels, decision.metric, decision.ahead
    sides = {True: [one for one in sure if one.difference > 0], False: [one for one in sure if one.difference < 0]}
    if ahead is not None:
        sides[decision.interval.low > 0] = []  # as for all
    told = []
    for more, some in sides.items():
        if not some:
            continue
        where = ", ".join(f"{one.attribute} is {one.value} ({_segment_numbers(one)})" for one in some[:MOST_NAMED])
        others = f" and in {counted(len(some) - MOST_NAMED, 'more segment')}" if len(some) > MOST_NAMED else ""
        told.append(f"{b} {_gets(decision)} {metric.compared('', more)} than {a} where {where}{others}.")
    return " ".join(f"But {one}" if ahead is not None else one for one in told)


def _segment_numbers(one: SureSegment) -> str:
    spec = f"+.{decimals(one.interval)}f"
    return f"{one.difference:{spec}}, {one.interval:{spec}}"


def next_step(
    decision: Decision,
    labels: tuple[str, str] = ("A", "B"),
    *,
    days: float = float("nan"),
    shows: str | None = None,
    live: bool = False,
    remedy: str = "",
    losing: bool = False,
) -> str:
    """Advice on what to do next, and when that may change; ``losing`` if the winner loses where ``details`` says."""
    if shows is not None:
        ended = f"The trial is stopped and shows {labels[shows == 'B']}."
        other = decision.winner is not None and decision.winner != shows
        better = decision.metric.compared("", decision.metric.sign > 0)
        return f"{ended} {labels[decision.winner == 'B']} {_gets(decision)} {better}." if other else ended
    go_on = "Keep running" if live else "Collect more"
    match decision.state:
        case "no searches":
            return "Send searches to the trial." if live else ""
        case "no clicks":
            ask = (
                "Check that click events arrive with the id of their search." if live else "Check the column of clicks."
            )
            return ask if decision.searches >= MANY_WITHOUT_CLICKS else "Keep running." if live else ""
        case "no events":
            if decision.searches < MANY_WITHOUT_CLICKS or not isinstance(decision.metric, EventMetric):
                return "Keep running." if live else ""
            return f"Check that events arrive with the action {' or '.join(decision.metric.of_actions)}."
        case "too early":
            first = FIRST_INTERVAL.format(decision.metric.occasions)
            return remedy or f"{go_on}: the first interval comes after {first}."
        case "alike":
            choose = "Stop the trial and choose by other reasons" if live else "Choose by other reasons"
            return f"{choose}: neither gains more than {decision.smallest:g} {decision.metric.unit}."
        case "not trusted":
            return remedy
        case "decided":
            ship = f"Ship {labels[1]}" if decision.winner == "B" else f"Keep {labels[0]}"
            if losing:
                ship = f"Unless what is lost in these segments weighs more, {ship[:1].lower()}{ship[1:]}"
            return f"{ship}: stop the trial and show {decision.winner} from now on." if live else f"{ship}."
    if "guard" in decision.reasons:
        return f"Do not ship {labels[1]} as it is: it has {' and '.join(decision.harm)}, more than the guard allows."
    if "untested" in decision.reasons:
        return "Add a share of A/B traffic: LogOpt's holdback, or AB()." if live else "Log some A/B traffic too."
    if decision.reasons == ("too soon",):
        return "Let it run for its time."
    if "hostile" in decision.reasons:
        return "See who clicks, and exclude robots: more searches hardly help."
    return _until(decision, days, live, go_on)


def trust(decision: Decision, weakest: str = "") -> str:
    """Assumption that the answer rests on, and its weakest point, in a sentence or two."""
    if decision.failed:
        return f"Weakest check: {weakest}" if weakest else f"Weakest check: {_failing(decision.failed)}."
    if decision.estimator is None or not np.isfinite(decision.interval.half_width):
        return ""
    unit = decision.metric.unit
    if decision.off_by == 0:
        rests = "This assumes nothing about how visitors click."
    elif not np.isfinite(decision.off_by):
        rests = f"This assumes that {ASSUMES[decision.estimator]}, and no A/B traffic tests that."
    else:
        rests = f"If visitors do not click as assumed, this could be off by up to {decision.off_by:.2g} {unit}"
        rests += "; the interval allows for " + f"{decision.allowance:.2g}." if decision.allowance > 0 else "."
    told = [rests]
    if decision.winner is not None and np.isfinite(decision.overturned_by):
        told.append(f"{_hostile_visitors(decision)}.")
    if weakest:
        told.append(f"Weakest check: {weakest}")
    return " ".join(told)


def percent(share: float) -> str:
    """A share in per cent, with as many digits as say something.

    >>> percent(0.0412), percent(0.00312), percent(1.234), percent(0.35), percent(0)
    ('4.1%', '0.31%', '123%', '35%', '0%')
    """
    size = abs(100 * share)
    return f"{100 * share:.{0 if size >= 9.95 or not size else 1 if size >= 0.995 else 2}f}%"


def lift_text(decision: Decision, labels: tuple[str, str] = ("A", "B"), searches_a_day: float = float("nan")) -> str:
    """The difference in per cent, and in clicks a day where the pace is known; "" where that cannot be told."""
    share, ends = decision.lift.share, decision.lift.interval
    if not np.isfinite(share):
        return ""
    a, b = labels
    spec = f"+.{decimals(Interval(100 * ends.low, 100 * ends.high), 1)}%"
    metric = decision.metric
    text = f"{b} against {a}: {share:{spec}} {metric.unit if metric.of_mean else metric.title}"
    text += f" ({ends:{spec}})" if np.isfinite(ends.half_width) else ""
    if np.isfinite(searches_a_day) and not metric.of_mean:
        daily = Interval(*(end * searches_a_day for end in decision.interval))
        more = f"{decision.difference * searches_a_day:+,.0f} {metric.title}"
        text += f"; on {searches_a_day:,.0f} searches a day {more} ({daily:+,.0f})"
    return f"{text}."


def _gets(decision: Decision) -> str:
    return "has" if decision.metric.of_mean else "gets"


def _compared(decision: Decision, much: str = "") -> str:
    return decision.metric.compared(much, decision.difference > 0)


def _hostile_visitors(decision: Decision) -> str:
    """Number of hostile visitors, who search as often as others, that could have made the winner up."""
    number = int(decision.overturned_by * decision.visitors) + 1
    hostile = counted(number, "hostile visitor", "hostile visitors")
    return f"{hostile} of {decision.visitors:,} ({percent(decision.overturned_by)}) could have made this up"


def _until(decision: Decision, days: float, live: bool, go_on: str) -> str:
    found = decision.forecast
    shows_by_now = found.remaining < 1 and decision.interval.half_width <= found.target
    if np.isnan(found.searches) and not np.isfinite(decision.off_by):
        return f"{go_on}, with a share of A/B traffic: nothing else checks how visitors click."
    if np.isnan(found.searches) or (found.remaining < 1 and not shows_by_now):
        return f"{go_on}: it is too early to say how many searches it takes."
    target = f"a difference of {found.target:.3g} {decision.metric.unit}"
    if not found.remaining < TOO_MANY or days >= TOO_LONG:
        if decision.smallest is None:
            return "The difference so far is too small to be told from none: name the smallest difference that matters."
        rest = (
            "for this trial to find: stop it, or let a larger difference matter" if live else "to be found in this log"
        )
        return f"{target[:1].upper()}{target[1:]} is too small {rest}."
    if shows_by_now:
        return f"{go_on}: {target} would show by now, a smaller one takes longer."
    takes = f" ({duration(days)} at the pace so far)" if days > 0 and live else ""
    return f"{go_on}: about {float(f'{found.remaining:.2g}'):,.0f} more searches{takes} would settle {target}."


def duration(days: float) -> str:
    """A length of time as people say it.

    >>> duration(3.14), duration(0.5), duration(1 / 24), duration(0.05), duration(1e-5)
    ('3.1 days', '12 hours', '1 hour', '1.2 hours', '1 second')
    """
    sizes = {"day": 1, "hour": 24, "minute": 1440, "second": 86_400}
    unit = next((unit for unit, size in sizes.items() if days * size >= 1), "second")
    number = days * sizes[unit]
    text = f"{number:,.0f}" if number >= 9.95 or unit == "second" else f"{number:.1f}".removesuffix(".0")
    return f"{text} {unit}{'' if text == '1' else 's'}"


def decimals(interval: Interval, least: int = 4) -> int:
    """Number of decimals of a difference: enough for two digits of the interval's half-width.

    >>> decimals(Interval(-0.1, 0.2)), decimals(Interval(-0.00012, 0.00020))
    (4, 5)
    """
    half = interval.half_width
    return min(max(int(np.ceil(-np.log10(half))) + 1, least), 8) if 0 < half < np.inf else least


def _failing(checks: Sequence[str]) -> str:
    """The statements that do not hold, in quotes, as they say what should be."""
    quoted = ", ".join(f'"{one}"' for one in checks)
    return f"{quoted} {'fails' if len(checks) == 1 else 'fail'}"
