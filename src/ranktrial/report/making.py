"""Reports of a trial: its decision, the estimates behind it, and the guardrails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ranktrial.analysis.analyse import Analysis, BandPoint
from ranktrial.analysis.answers import (
    Beside,
    Settled,
    beside,
    estimate_rows,
    settled,
    sure_segments,
    words,
)
from ranktrial.analysis.calibration import discrepancy
from ranktrial.analysis.decision import Decision, Ranker, State, decides_by_ab_first, widening
from ranktrial.analysis.discoveries import RATE
from ranktrial.analysis.guardrails.click_model import COMPANY
from ranktrial.analysis.guardrails.estimates import BIAS
from ranktrial.analysis.guardrails.over_time import BIAS_OVER_TIME
from ranktrial.analysis.ladder import POSITION_BASED
from ranktrial.analysis.metrics import guarded
from ranktrial.analysis.segments import AttributeTest
from ranktrial.analysis.verdict import duration, lift_text, percent
from ranktrial.arrays import weighted_counts
from ranktrial.log import LeftOut
from ranktrial.log.rules import EXCLUDED
from ranktrial.metrics import Clicks
from ranktrial.report.course import WEEK, counts_from, course, is_over, week_end
from ranktrial.report.harm import futility, guards
from ranktrial.report.schema import (
    Contributor,
    Everyone,
    HistoryEntry,
    Pace,
    Part,
    Report,
    Segmentation,
    Visitors,
)
from ranktrial.store.base import ConfigVersion
from ranktrial.store.tallies import AS_IT_SHOULD_BE
from ranktrial.texts import counted, shown
from ranktrial.times import time_text

CONTRIBUTORS = 10
MOST_POINTS = 16  # of the interval by one metric over time: the page draws it small
SURELY = 0.05  # p of a test between segments, at one look
QUERY_UNITS = 10  # by which a query must have been asked to be named: what few have asked may tell who they are
LONG_PAUSE, LEAST_PAUSE = 3.0, 60.0  # times the longest pause so far, and seconds: searches have stopped
CLICKS_LATE = 300.0  # seconds that a search is given to be clicked, before its missing click says anything
NO_CLICKS = 1e-5  # probability of so many searches without a click: clicks have stopped


def make_report(
    name: str,
    analyses: Mapping[ConfigVersion, Analysis],
    tallies: Counter[str],
    shows: Ranker | None,
    nanoseconds: Sequence[int] = (),
    whole: tuple[LeftOut, Analysis] | None = None,
    history: Sequence[HistoryEntry] = (),
    query_units: int = QUERY_UNITS,
    now: float = float("nan"),
) -> Report:
    """Make the report on the last of the versions; the others are there for comparison, never pooled.

    Args:
        tallies: Counters of the last version.
        shows: The ranker that a stopped trial shows; None while it runs.
        nanoseconds: Times that recent calls of ``rank`` took.
        whole: What rules and exclusions left out, and the analysis with it.
        query_units: Number of units that must have asked a query before it is named.
        now: The time, in seconds since 1970.
    """
    version, analysis = list(analyses.items())[-1]
    for what, count in analysis.log.left_out.items():
        tallies[what] += count
    sorted_tallies = dict(sorted((what, count) for what, count in tallies.items() if count))
    seen = pace(analysis, now, running=shows is None)
    found = settled(analysis, sorted_tallies, nanoseconds)
    if shows is None:
        found = in_time(found, seen.began, now)
    decision, analysis, clicks = found.decision, found.analysis, found.of_clicks
    stored = len((clicks.analysis if whole is None else whole[1]).log)
    others = beside(found)
    segments, answers = segmentation(found, others), others.metrics
    harm = guards(clicks, sorted_tallies, stored, answers)
    decision = guarded(decision, answers)
    found = found._replace(decision=decision)
    for what in AS_IT_SHOULD_BE:
        sorted_tallies.pop(what, None)
    harmful = any(guard.status == "harm" for guard in harm)
    sure = sure_segments(others.segments, decision, harm=harmful)
    if shows is None and now < counts_from(analysis.config, seen.began):
        sure = ()  # too soon
    everyone = None
    if whole is not None:
        left_out, unfiltered = whole
        both = settled(unfiltered, tallies, nanoseconds, distrusted=decision.failed)
        both = in_time(both, pace(unfiltered).began, now) if shows is None else both
        said = everyone_text(left_out, str(words(both, ended=shows is not None)))
        everyone = Everyone(units=left_out.units, without=left_out.impressions, decision=both.decision, text=said)
    goes_on = seen.days > 0 and shows is None and not seen.warning
    days = decision.forecast.remaining / len(clicks.analysis.log) * seen.days if goes_on else float("nan")
    return Report(
        trial=name,
        version=version.number,
        decision=decision,
        text=words(
            found, days=days, shows=shows, sure=sure, harm=next(filter(None, (one.headline for one in harm)), "")
        ),
        lift=lift_text(decision, analysis.config.labels, seen.searches_a_day),
        pace=seen,
        days_left=days,
        estimates=estimate_rows(analysis.ladder, decision),
        impressions=len(clicks.analysis.log),
        units=clicks.analysis.log.cohorts.count,
        clicks=clicks.analysis.clicks,
        ctr=clicks.analysis.ladder.ctr,
        theta=analysis.theta,
        band=_band(analysis, found),
        contributors=contributors(analysis, query_units),
        guardrails=found.checks,
        tallies=sorted_tallies,
        course=course(
            analysis.config, seen.began, now, named=decision.winner is not None, too_soon="too soon" in decision.reasons
        )
        if shows is None
        else "",
        over=is_over(analysis.config, seen.began, now),
        futile="" if now < counts_from(analysis.config, seen.began) else futility(analysis, decision, found.widen),
        guards=harm,
        parts=(
            *(_part(one, settled(result, {}), ended=True) for one, result in analyses.items() if one is not version),
            _part(version, found, ended=shows is not None),
        ),
        segments=segments,
        shows=shows,
        metrics=tuple(
            replace(answer, band=at_some(one.analysis.points(one.decision.used, one.widen)))
            for answer, one in zip(answers, others.decisions, strict=True)
        ),
        visitors=visitors(clicks.analysis, clicks.decision),
        discrepancy=discrepancy(clicks.analysis.ladder),
        everyone=everyone,
        history=tuple(history),
    )


def at_some(points: Sequence[BandPoint]) -> tuple[BandPoint, ...]:
    """A few of the points of an interval over time, the first and the last among them."""
    places = np.unique(np.linspace(0, len(points) - 1, MOST_POINTS).round().astype(int)) if points else ()
    return tuple(points[at] for at in places)


def _band(analysis: Analysis, found: Settled) -> tuple[BandPoint, ...]:
    """The interval over time; the last is the decision's, also where that is only of the time since a change."""
    points, decision = analysis.points(found.decision.used, found.widen), found.decision
    if not points:
        return ()
    now = {"difference": decision.difference, "low": decision.interval.low, "high": decision.interval.high}
    return (*points[:-1], points[-1].model_copy(update=now))


def in_time(found: Settled, began: float, now: float) -> Settled:
    """Withhold before its time that there is a winner, or that both are alike."""
    decision = found.decision
    if decision.winner is None and decision.state != "alike":
        return found
    if not now < counts_from(found.analysis.config, began) and _was_so(found, began, now):
        return found
    state: State = "undecided" if decision.winner is None else "withheld"
    return found._replace(decision=replace(decision, state=state, winner=None, reasons=("too soon",)))


def _was_so(found: Settled, began: float, now: float) -> bool:
    """True if the interval at the end of the last whole week had said so too, or need not have.

    A difference that was seen to change needs a week since then as well: a rhythm of days looks like a change.
    """
    decision, analysis = found.decision, found.analysis
    week = week_end(analysis.config, began, now)
    if week is None:
        return True
    changed = analysis.drift.since_time if analysis.changed else None
    if changed is not None and now < changed / 1e6 + WEEK:
        return False
    points = analysis.points(decision.used, found.widen, until=week)
    if not points:
        return False
    low, high = points[-1].low, points[-1].high
    if decision.winner is None:
        return decision.smallest is not None and -decision.smallest < low and high < decision.smallest
    return low > 0 if (decision.winner == "B") == (decision.metric.sign > 0) else high < 0


def segmentation(found: Settled, others: Beside) -> Segmentation | None:
    """Answers by segment, with what they say in sentences; None where there are none."""
    answers, tests, differs = others.segments, others.tests, found.analysis.differs
    if not answers:
        return None
    sentences = [_test_text(test) for test in tests if test.metric == answers[0].metric]
    if differs is not None:
        sentences.append(f"Position bias differs by {differs.attribute}, and each value of it has its own.")
    return Segmentation(
        answers=answers,
        tests=tests,
        rate=RATE,
        theta_by="" if differs is None else differs.attribute,
        thetas={}
        if differs is None
        else {name: tuple(one) for name, one in zip(differs.values, differs.thetas.tolist())},
        text=" ".join(filter(None, sentences)),
    )


def _test_text(test: AttributeTest) -> str:
    """Sentence on whether the difference is the same for all values of an attribute."""
    if not np.isfinite(test.p):
        return ""
    if test.p < SURELY:
        return f"The difference is not the same for every {test.attribute} (p = {test.p:.2g})."
    return f"Values of {test.attribute} differ no more than chance explains (p = {test.p:.2g})."


def readings_agree(analysis: Analysis) -> bool | None:
    """Tell whether A/B traffic may be halved (``Ladder.settled``), by the metric that decides.

    False, for A/B traffic alone, also where a check of the click model fails, and where A/B traffic would decide first, as it
    does by a metric that nothing else tells.
    """
    if len(analysis.ladder.results) == 1 or not any(test.upper == POSITION_BASED for test in analysis.ladder.tests):
        return None
    found = settled(analysis, {})
    if any(check.status == "fail" and check.name in (COMPANY, BIAS, BIAS_OVER_TIME) for check in found.checks):
        return False
    first, estimates, widen = analysis.config.measured[0], analysis.ladder, analysis.widen
    if not isinstance(first, Clicks):
        estimates, widen = found.analysis.ladder, widening(found.decision.allowance)
    if not first.of_results or decides_by_ab_first(estimates, widen):
        return False
    return estimates.settled


def visitors(analysis: Analysis, decision: Decision) -> Visitors | None:
    """Clicks that the trial cost its visitors, or gave them; None where pages are only A's and B's own lists."""
    gain = analysis.gain
    if gain is None or not gain.ab > 0:
        return None
    found = gain.interval(analysis.config.level)
    if not np.isfinite(found.low):
        return None
    how = "" if gain.by_model else ", by clicks on A/B traffic alone"
    text = f"Visitors clicked {_more(gain.share)} than in an A/B test ({found.low:+.1%} to {found.high:+.1%}{how})"
    better = float("nan")
    if decision.winner is not None:
        better = (gain.ab + gain.estimate.delta) / (gain.ab + abs(decision.difference) / 2) - 1
        text += f", and {_more(better)} than if all had seen {analysis.config.labels[decision.winner == 'B']}"
    return Visitors(gain=gain.share, interval=found, better=better, text=f"{text}.")


def _more(share: float) -> str:
    return f"{percent(abs(share))} {'less' if share < 0 else 'more'}"


def everyone_text(left_out: LeftOut, said: str) -> str:
    """Sentence on what was left out, and what is said with it."""
    why = ", ".join(
        f"{count:,} {'by name' if reason == EXCLUDED else f'by the rule {reason}'}"
        for reason, count in left_out.units.items()
    )
    units = counted(sum(left_out.units.values()), "visitor")
    return f"Left out: {units} ({why}) with {counted(left_out.impressions, 'search', 'searches')}. With everybody in: {said}"


def _part(version: ConfigVersion, found: Settled, *, ended: bool) -> Part:
    analysis = found.analysis
    return Part(
        version=version.number,
        config=analysis.config,
        impressions=len(analysis.log),
        clicks=analysis.clicks,
        difference=found.decision.difference,
        interval=found.decision.interval,
        verdict=str(words(found, ended=ended)),
    )


def pace(analysis: Analysis, now: float = float("nan"), *, running: bool = True) -> Pace:
    """Tell when searches and clicks came, and whether they have stopped."""
    log, nan = analysis.log, float("nan")
    if not len(log):
        return Pace(began=nan, latest=nan, latest_click=nan, days=nan, searches_a_day=nan, longest_pause=nan, text="")
    began, latest = (int(time) / 1e6 for time in log.time[[0, -1]])
    days = (latest - began) / 86_400
    a_day = len(log) / days if days >= 1 else nan
    much = f"{counted(len(log), 'search', 'searches')} of {counted(log.cohorts.count, 'visitor')}"
    text = f"Began {time_text(began)}: {much} in {duration(days)}"
    text += f", {a_day:,.0f} a day." if days >= 1 else "."
    longest = float(np.diff(log.time).max(initial=0)) / 1e6
    latest_click, often, quiet, warning = nan, 0.0, 0, ""
    clicked = np.flatnonzero(log.clicks_each)
    if len(clicked):
        last, often = int(clicked[-1]), len(clicked) / len(log)
        latest_click = float(log.time[last]) / 1e6
        quiet = int((log.time[last + 1 :] < (now - CLICKS_LATE) * 1e6).sum())  # which have had time for a click
    if running and now - latest > max(LONG_PAUSE * longest, LEAST_PAUSE):
        before = f"the longest pause before was {duration(longest / 86_400)}"
        warning = f"No search for {duration((now - latest) / 86_400)}; {before}. Does the site still call the trial?"
    elif running and quiet * np.log1p(-min(often, 1 - 1e-9)) < np.log(NO_CLICKS):
        warning = f"No click on the last {quiet:,} searches, where about {quiet * often:,.0f} were to be expected. "
        warning += "Do click events still arrive?"
    return Pace(
        began=began, latest=latest, latest_click=latest_click, days=days, searches_a_day=a_day, longest_pause=longest,
        text=text, warning=warning,
    )  # fmt: skip


def contributors(analysis: Analysis, query_units: int = QUERY_UNITS) -> tuple[Contributor, ...]:
    """Queries by how far they moved B against A; those that fewer units have asked are one row, without their names."""
    if analysis.result is None or not analysis.clicks:
        return ()
    log, found = analysis.log, analysis.estimate
    names, query = log.queries, log.asked[found.picked]
    size = len(names)
    impressions, units, clicks, moved = (
        weighted_counts(query, of, size)
        for of in (
            np.ones(len(query)),
            log.drawn[found.picked].astype(float),
            log.clicks_each[found.picked].astype(float),
            found.x,
        )
    )
    rare, met = units < query_units, impressions > 0
    # One more for all that are rare; sorted, because queries have numbers in the order in which they were read.
    impressions, clicks, moved = (
        np.append(np.where(rare, 0.0, of), np.sort(of[rare]).sum()) for of in (impressions, clicks, moved)
    )
    moved /= -analysis.estimate.impressions
    unnamed = int((rare & met).sum())
    first = np.flatnonzero(impressions > 0)
    if len(first) > CONTRIBUTORS:
        first = first[np.abs(moved[first]) >= np.partition(np.abs(moved[first]), -CONTRIBUTORS)[-CONTRIBUTORS]]
    others = f"{unnamed:,} queries, each of fewer than {query_units:,} visitors"
    named = [(others if q == size else str(names[q]), q) for q in first.tolist()]
    named.sort(key=lambda one: (-abs(moved[one[1]]), one[1] == size, one[0]))
    return tuple(
        Contributor(
            query=name,
            label=shown(name),
            impressions=int(impressions[q]),
            clicks=int(clicks[q]),
            contribution=moved[q],
            rare=unnamed if q == size else 0,
        )
        for name, q in named[:CONTRIBUTORS]
    )
