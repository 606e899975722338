"""Guards of a trial: whether B, what is shown, faults or slow calls cost more than was allowed, told as soon as that is sure.

Each is one-sided and may be watched for ever: the chance that any of them ever stops a trial in which all that they guard is
within its tolerance is at most 1 - level. The clicks lost are from the estimates of the decision, by the same confidence
sequences; all ends of intervals that the guards rest on share what the level leaves (``ends``). Like a winner, a loss must
stand against a share of hostile searches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from ranktrial.analysis.analyse import Analysis
from ranktrial.analysis.decision import Decision, must_stand, widened
from ranktrial.analysis.hostile import most_worth
from ranktrial.analysis.intervals import asymptotic_radius, asymptotic_sequence
from ranktrial.analysis.verdict import percent
from ranktrial.interval import Interval
from ranktrial.methods import AB
from ranktrial.schema import Frozen
from ranktrial.store.tallies import OUTSIDE_SHARE, SHOWN_AGAIN, SLOW

TIGHTEST = 1_000  # visitors after which guards are quickest: harm is to be found early
LEAST_SEARCHES, LEAST_BAD = 100, 20  # before a share is believed
FALLBACK = "fallback: "
NO_LOSS = Interval(float("-inf"), float("inf"))


class Guard(Frozen):
    """Finding of a guard.

    Attributes:
        name: "clicks of B", "clicks shown", "fallbacks" or "latency".
        tolerance: Share that is allowed: of A's clicks that may be lost, of searches that may be left out because of faults, or
            of calls that may be slow.
        value: Share that was found; nan where that is not known yet.
        at_least: Share that is surely exceeded, however often one looks; negative infinity where nothing is sure.
        status: "harm" if that is more than the tolerance; otherwise "pass", or "unknown" where nothing is known yet.
        text: The same in a sentence.
    """

    name: Literal["clicks of B", "clicks shown", "fallbacks", "latency"]
    tolerance: float
    value: float
    at_least: float
    status: Literal["pass", "harm", "unknown"]
    text: str


class _Clicks(NamedTuple):
    """Clicks per search of B less those of A, and of both on average, each with an interval."""

    difference: float
    apart: Interval
    mean: float
    both: Interval


def guards(
    analysis: Analysis, decision: Decision, widen: Interval, tallies: Mapping[str, int], searches: int | None = None
) -> tuple[Guard, ...]:
    """Run the guards that the configuration asks for.

    Args:
        analysis: The analysis behind the decision.
        decision: The decision, which says what estimates may be used.
        widen: By how much intervals that rest on the click model are widened.
        tallies: Counters, of which those of fallbacks and of calls are looked at.
        searches: Searches that are stored, left out of the analysis or not; those of the analysis by default.
    """
    wanted, found = analysis.config.guards, []
    stored, level = len(analysis.log) if searches is None else searches, wanted.level
    if wanted.clicks is not None or wanted.shown is not None:
        known = _clicks(analysis, decision, widen, level_of_each(analysis))
        a, b = analysis.config.labels
        if wanted.clicks is not None:
            loss, at_least = _loss_of_b(known)
            found.append(
                _guard("clicks of B", wanted.clicks, loss, at_least, f"{b} gets", f"fewer clicks than {a}", level)
            )
        if wanted.shown is not None:
            loss, at_least = _loss_of_shown(analysis, known, widen)
            what = f"fewer clicks than with {a} for everybody"
            found.append(_guard("clicks shown", wanted.shown, loss, at_least, "Visitors give", what, level))
    faults = sum(count for name, count in tallies.items() if name.startswith(FALLBACK) and "stopped" not in name)
    if wanted.fallbacks is not None:
        share, at_least = _share_of(faults, stored + faults, level_of_each(analysis))
        what = "of the searches left out because of faults"
        found.append(_guard("fallbacks", wanted.fallbacks, share, at_least, "There are", what, level))
    if wanted.latency is not None:
        others = sum(count for name, count in tallies.items() if name.startswith(FALLBACK) and "stopped" in name)
        calls = stored + faults + others + sum(tallies.get(name, 0) for name in (OUTSIDE_SHARE, SHOWN_AGAIN))
        share, at_least = _share_of(tallies.get(SLOW, 0), calls, level_of_each(analysis))
        what = "of the calls of rank that take more than 5 ms"
        found.append(_guard("latency", wanted.latency, share, at_least, "There are", what, level))
    return tuple(found)


def _guard(name: str, tolerance: float, value: float, at_least: float, who: str, what: str, level: float) -> Guard:
    status = "unknown" if not np.isfinite(value) else "harm" if at_least > tolerance else "pass"
    sure = (
        f"{percent(tolerance)} is allowed, by a test that is right in {level:.4g} of all trials however often one looks"
    )
    if status == "unknown":
        text = f"The guard on {name} knows nothing yet; {percent(tolerance)} is allowed."
    elif status == "harm":
        text = f"{who} at least {percent(at_least)} {what}, about {percent(value)}; {sure}."
    else:
        text = f"{who} about {percent(max(value, 0.0))} {what}; {sure}."
    return Guard.model_validate(
        {"name": name, "tolerance": tolerance, "value": value, "at_least": at_least, "status": status, "text": text}
    )


def ends(analysis: Analysis) -> int:
    """Number of one-sided ends of intervals that all guards rest on together.

    Those of clicks need one of each estimate, one of the clicks of both, and what is shown one of the gain over an A/B test;
    futility has those of the estimates.
    """
    wanted = analysis.config.guards
    clicks = wanted.clicks is not None or wanted.shown is not None
    gain = wanted.shown is not None and not isinstance(analysis.config.comparison, AB)
    shares = (wanted.fallbacks, wanted.latency)
    futile = wanted.futility == "stop" and analysis.config.smallest is not None
    of_clicks = max(clicks * (len(analysis.ladder.rungs) + 1), futile * len(analysis.ladder.rungs))
    return of_clicks + gain + sum(one is not None for one in shares)


def level_of_each(analysis: Analysis) -> float:
    """Level of each of several two-sided intervals whose ends on one side hold together at the level of the guards."""
    return _level(analysis, max(ends(analysis), 1))


def _level(analysis: Analysis, number: int) -> float:
    """Level of each of so many two-sided intervals whose ends on one side hold together at the level of the guards."""
    return 1 - 2 * (1 - analysis.config.guards.level) / number


def _clicks(analysis: Analysis, decision: Decision, widen: Interval, level: float) -> _Clicks | None:
    """Clicks of A and B by the estimates of the decision, at the level of the guards; None where there are none yet."""
    both = analysis.clicks_of_both
    if both is None or not len(both) or not decision.used:
        return None
    mean = asymptotic_sequence(both, [both.count], level=level, tightest_at=TIGHTEST).last
    return _Clicks(decision.difference, _apart(analysis, decision, widen, level), both.mean, mean)


def _apart(analysis: Analysis, decision: Decision, widen: Interval, level: float) -> Interval:
    """Interval of B against A by the estimates of the decision, each at a level."""
    config, (low, high) = analysis.config, NO_LOSS
    for rung in analysis.ladder.rungs:
        if rung.name in decision.used and rung.estimate is not None:
            own = rung.estimate.anytime_interval(level, tightest_at=TIGHTEST)
            lower, upper = widened(rung, widen, own)
            hostile = must_stand(rung, config.contamination, config.allowance)
            if lower > 0 and hostile:  # either, not both: like a winner
                lower = min(lower, own.low - hostile * most_worth(analysis.log, rung, 1))
            low, high = max(low, lower), min(high, upper)
    return Interval(0.0 - high, 0.0 - low)


def futility(analysis: Analysis, decision: Decision, widen: Interval) -> str:
    """A sentence if B is surely not better by the smallest difference that matters, as sure as a guard is; "" otherwise.

    It says nothing that the decision's own interval does not, and nothing where a check fails.
    """
    smallest, (_, b) = decision.smallest, analysis.config.labels
    if smallest is None or decision.failed or not decision.interval.high < smallest:
        return ""
    level = _level(analysis, max(ends(analysis), len(analysis.ladder.rungs)))
    if not _apart(analysis, decision, widen, level).high < smallest:
        return ""
    return f"{b} is surely not better by {smallest:g} clicks per search."


def _loss_of_b(known: _Clicks | None) -> tuple[float, float]:
    """Share of A's clicks that B loses, and what it surely loses.

    With e the difference and m the mean of both, A has m - e/2: the loss is -e / (m - e/2), which falls with e and, where B
    loses, with m.
    """
    if known is None:
        return float("nan"), float("-inf")
    value, e, m = _share(-known.difference, known.mean - known.difference / 2), known.apart.high, known.both.high
    return value, _share(-e, m - e / 2) if e < 0 and np.isfinite(m) else float("-inf")


def _loss_of_shown(analysis: Analysis, known: _Clicks | None, widen: Interval) -> tuple[float, float]:
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
        most = gain.estimate.anytime_interval(level_of_each(analysis), tightest_at=TIGHTEST).high
        most += max(widen) if gain.by_model else 0.0
    value = _share(-of_b * known.difference - gained, known.mean - known.difference / 2)
    lost = -of_b * known.apart.high - most
    a = known.both.high - known.apart.low / 2
    return value, _share(lost, a) if lost > 0 and np.isfinite(a) else float("-inf")


def _share(lost: float, of: float) -> float:
    return lost / of if of > 0 else float("nan")


def _share_of(bad: int, whole: int, level: float) -> tuple[float, float]:
    """Share of what is bad, and the share that is surely exceeded, by an interval of this level."""
    share = bad / whole if whole else float("nan")
    if whole < LEAST_SEARCHES or bad < LEAST_BAD:
        return share, float("-inf")
    spread = np.sqrt(share * (1 - share))
    return share, share - float(asymptotic_radius([whole], [spread], level=level, tightest_at=TIGHTEST)[0])
