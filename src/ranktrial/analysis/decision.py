"""The decision: which ranker gets more clicks (or is better by another metric), in one answer from all estimates of a log.

Every estimate has an interval that holds under its own assumption (``ladder``). Visitors who compare results, or leave after a
click, follow no click model, so intervals that rest on one are widened on either side by an allowance:

    allowance x exposure disagreement x clicks per search

and by the measured effect of clicks further up, where clicks depend on these; by another metric its value stands for clicks in
all of this. The A/B estimate assumes nothing and stays as it
is. The answer is the intersection of all: right whenever visitors move the click model's estimates by no more than the
allowance, and hardly wider than the A/B test's own. An estimate whose interval has nothing in common with those that assume
less is contradicted and not used.

Numbers of a decision are of B against A: positive where B gets more clicks. (Delta of the paper, ``Estimate.delta``, is A - B.)
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from ranktrial.analysis.ladder import AB_TRAFFIC, NO_INTERVAL, EstimatorResult, Ladder
from ranktrial.config import WrittenMetric
from ranktrial.distributions import normal_quantile
from ranktrial.interval import Interval
from ranktrial.log.units import UnitSums
from ranktrial.metrics import Clicks, Metric
from ranktrial.texts import json_values

Ranker = Literal["A", "B"]
State = Literal[
    "no searches", "no clicks", "no events", "too early", "undecided", "alike", "decided", "withheld", "not trusted"
]
Reason = Literal["untested", "blind", "hostile", "too soon", "guard"]
ALLOWANCE = 0.06  # share of exposure disagreement x clicks per search (docs/research/discrepancy.md)
# The allowance over the share of hostile searches that a winner by the click model must stand against: the allowance covers as
# many, so it costs next to nothing (docs/research/contamination.md). A/B traffic has no allowance, and stands against what is
# asked for.
PER_HOSTILE = 15
FARTHEST = 1e12  # searches: later than that is never
NOTHING = Interval(0.0, 0.0)
CLICKS = Clicks()


@dataclass(frozen=True)
class Lift:
    """More clicks of B as a share of A's, and its interval; nan and infinite where A may have none.

    Attributes:
        share: B's clicks over A's, minus 1.
        interval: As sure as that of the difference.
    """

    share: float = float("nan")
    interval: Interval = NO_INTERVAL


@dataclass(frozen=True)
class Forecast:
    """Searches to a decision, if the difference and the spread of values stay as they are.

    Attributes:
        target: The difference to find, in clicks per search.
        searches: Searches from the start; infinite if never, nan if that cannot be told.
        remaining: Searches still to come.
    """

    target: float = float("nan")
    searches: float = float("nan")
    remaining: float = float("nan")


@dataclass(frozen=True)
class Decision:
    """One answer to which of two rankers gets more clicks, by how much and how surely.

    Attributes:
        state: "no searches", "no clicks", "no events" (the same by another metric), "too early" (no interval yet), "undecided"
            (0 is inside), "alike" (they differ by less than the smallest difference that matters), "decided", "withheld" (0 is
            outside, but see ``reasons``), or "not trusted" (a check fails that the numbers rest on).
        winner: "A" or "B" where the state is "decided".
        reasons: Why no winner is named though 0 is outside: "untested" (nothing could have contradicted the estimate), "blind"
            (a bias as large as the difference could not have been seen), "hostile" (too few hostile searches could have
            made it up), "too soon" (the trial is to take longer; also of what seems alike), "guard" (B does harm by another
            metric).
        estimator: The estimator with most assumptions among those used; None if there is none yet.
        used: Names of all estimators used.
        difference: Clicks per search of B minus those of A.
        interval: The interval of the difference.
        level: Its level.
        anytime: True if it holds however often one looks; False if for one look after a number of searches fixed beforehand.
        lift: The difference as a share of A's clicks.
        allowance: Clicks per search by which intervals that rest on the click model are widened on either side.
        ab: The interval of the A/B estimate alone, which assumes nothing; infinite where there is none.
        overturned_by: Share of all searches that, hostile, could have made up the winner; nan where that is not known.
        contamination: Share that a winner must stand against.
        failed: Checks that fail and that the numbers rest on.
        forecast: Searches to a decision.
        smallest: The smallest difference that matters, where one was given.
        searches: Number of searches.
        visitors: Number of independent units that made them.
        clicks: Number of clicks that count; by another metric, of searches with a value.
        waits: What estimators wait for.
        metric: The metric that decides; all numbers are of it, and the winner is better by it.
        harm: What B has by metrics that guard, where that is surely worse than allowed: "4.2% fewer clicks".
    """

    state: State
    winner: Ranker | None = None
    reasons: tuple[Reason, ...] = ()
    estimator: str | None = None
    used: tuple[str, ...] = ()
    difference: float = float("nan")
    interval: Interval = NO_INTERVAL
    level: float = 0.95
    anytime: bool = True
    lift: Lift = Lift()
    allowance: float = 0.0
    ab: Interval = NO_INTERVAL
    overturned_by: float = float("nan")
    contamination: float = 0.0
    failed: tuple[str, ...] = ()
    forecast: Forecast = Forecast()
    smallest: float | None = None
    searches: int = 0
    visitors: int = 0
    clicks: int = 0
    waits: tuple[str, ...] = ()
    metric: WrittenMetric = CLICKS
    harm: tuple[str, ...] = ()

    @property
    def ahead(self) -> Ranker | None:
        """The ranker that is better over the whole interval, named a winner or not."""
        ends = self.interval if self.metric.sign > 0 else turned(self.interval)
        return "B" if ends.low > 0 else "A" if ends.high < 0 else None

    @property
    def off_by(self) -> float:
        """Largest error that A/B traffic alone cannot rule out; 0 where nothing is assumed, infinite where nothing tests it."""
        if self.used == (AB_TRAFFIC,):
            return 0.0
        return max(self.ab.high - self.difference, self.difference - self.ab.low)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite is None."""
        found: dict[str, Any] = json_values(asdict(self) | {"metric": str(self.metric)})
        return found


class Combined(NamedTuple):
    """Intersection of the intervals of several estimates, of A - B.

    Attributes:
        used: The estimates it is from, each with its widened interval.
        interval: What all of them allow.
        contradicted: Names of estimates that had nothing in common with those before them.
    """

    used: tuple[tuple[EstimatorResult, Interval], ...]
    interval: Interval
    contradicted: tuple[str, ...] = ()


def combine(ladder: Ladder, widen: Interval = NOTHING, barred: Container[str] = ()) -> Combined:
    """Intersect the intervals of all estimates that may be used.

    Args:
        widen: By how much intervals that rest on the click model are widened, downwards and upwards.
        barred: Names of estimates whose assumption a check has found wrong.
    """
    used: list[tuple[EstimatorResult, Interval]] = []
    interval, contradicted = NO_INTERVAL, []
    for result in ladder.results:
        if not result.has_interval or result.name in barred or ladder.contradictions(result):
            continue
        own = widened(result, widen)
        both = Interval(max(interval.low, own.low), min(interval.high, own.high))
        if both.low > both.high:
            contradicted.append(result.name)
        else:
            used.append((result, own))
            interval = both
    return Combined(tuple(used), interval, tuple(contradicted))


def widened(result: EstimatorResult, widen: Interval, interval: Interval | None = None) -> Interval:
    """The interval of an estimate, or another one of it, with what visitors who do not follow the click model may do."""
    low, high = result.interval if interval is None else interval
    return Interval(low, high) if result.name == AB_TRAFFIC else Interval(low - widen.low, high + widen.high)


def widening(allowance: float, above: Interval | None = None) -> Interval:
    """Amounts to widen intervals of A - B by: the allowance, or the effect of clicks further up where that is larger.

    >>> widening(0.01, above=Interval(-0.02, 0.05))  # the estimate may have been moved up by .05: it is widened downwards
    Interval(low=0.05, high=0.02)
    """
    effect = NOTHING if above is None else above
    return Interval(max(allowance, effect.high), max(allowance, -effect.low))


def decide(
    ladder: Ladder,
    *,
    searches: int,
    visitors: int,
    clicks: int,
    level: float = 0.95,
    smallest: float | None = None,
    allowance: float | None = None,
    contamination: float | None = None,
    above: Interval | None = None,
    barred: Container[str] = (),
    failed: Sequence[str] = (),
    since: Interval | None = None,
    units_since: int = 0,
    both: UnitSums | None = None,
    worth: Callable[[EstimatorResult, int], float] | None = None,
    metric: Metric = CLICKS,
) -> Decision:
    """Make one answer of all estimates.

    Args:
        ladder: The estimates and the tests between them.
        searches: Number of searches; ``visitors`` and ``clicks`` likewise.
        level: The level of the answer, which ``ladder`` has divided up.
        smallest: The smallest difference that matters.
        allowance: Share of exposure disagreement x clicks per search to widen by; ``ALLOWANCE`` by default.
        contamination: Share of hostile searches against which a winner must stand; by default a fifteenth of the
            allowance where the click model decides, and none where A/B traffic does.
        above: How far clicks further up may have moved the click model's estimates of A - B.
        barred: Names of estimates whose assumption a check has found wrong.
        failed: Checks that fail and that all numbers rest on.
        since: The interval of A - B since it changed, where it was seen to change: then that is the answer.
        units_since: Number of units since then, for the forecast.
        both: Clicks per search of pages that are half A's and half B's, by unit, for the lift.
        worth: What a hostile search can add to an estimate in favour of a ranker (1 for A, -1 for B), in clicks per search.
        metric: The metric that the estimates are of.
    """
    share = ALLOWANCE if allowance is None else allowance
    granted = share * ladder.disagreement * ladder.ctr
    stands_against = share / PER_HOSTILE if contamination is None else contamination
    at_one_look = any(result.has_interval and np.isnan(result.tightest_at) for result in ladder.results)
    known = Decision(
        "no searches", level=level, anytime=not at_one_look, allowance=granted, contamination=stands_against,
        failed=tuple(failed), smallest=smallest, searches=searches, visitors=visitors, clicks=clicks,
        waits=tuple(result.missing for result in ladder.results if result.missing), metric=metric,
    )  # fmt: skip
    if not searches:
        return known
    if not clicks:
        return replace(known, state="no clicks" if isinstance(metric, Clicks) else "no events")
    widen = widening(granted, above)
    found = combine(ladder, widen, barred)
    if not found.used:
        return replace(known, state="too early")
    top = found.used[-1][0]
    assert top.estimate is not None
    interval, delta = found.interval, top.estimate.delta
    if since is not None:
        interval = widened(top, widen, since)
        delta = since.middle
    delta = float(np.clip(delta, *interval))
    side = int(interval.low > 0) - int(interval.high < 0)
    deciding = [result for result, own in found.used if 0 not in own] if since is None else [top]
    overturned_by, stands = float("nan"), True
    if side and worth is not None:
        shares = [made_up_by(since or result.interval, worth(result, side)) for result in deciding]
        overturned_by = max(shares)
        stands = any(share > must_stand(result, contamination, allowance) for result, share in zip(deciding, shares))
    first = ladder.results[0]
    told = replace(
        known,
        estimator=top.name,
        used=tuple(result.name for result, _ in found.used),
        difference=0.0 - delta,
        interval=turned(interval),
        lift=lift(turned(interval), 0.0 - delta, both, level),
        ab=turned(first.interval) if first.name == AB_TRAFFIC else NO_INTERVAL,
        overturned_by=overturned_by,
    )
    reasons = _reasons(ladder, deciding, stands) if side else ()
    alike = smallest is not None and -smallest < interval.low and interval.high < smallest
    state: State = "alike" if alike else "undecided"
    if side:
        state = "withheld" if reasons else "decided"
    if failed:
        state = "not trusted"
    winner: Ranker | None = None if state != "decided" else "A" if side * metric.sign > 0 else "B"
    told = replace(told, state=state, winner=winner, reasons=reasons)

    def hostile(result: EstimatorResult) -> float:
        assert result.estimate is not None
        least = must_stand(result, contamination, allowance)
        return least * worth(result, 1 if result.estimate.delta > 0 else -1) if least and worth is not None else 0.0

    return replace(told, forecast=_forecast(ladder, found, widen, told, hostile, since, units_since))


def must_stand(result: EstimatorResult, contamination: float | None, allowance: float | None) -> float:
    """Share of hostile searches that an estimate must stand against, where ``contamination`` and ``allowance`` were given.

    By default a fifteenth of the allowance, and none for A/B traffic.
    """
    if contamination is not None:
        return contamination
    return 0.0 if result.name == AB_TRAFFIC else (ALLOWANCE if allowance is None else allowance) / PER_HOSTILE


def made_up_by(interval: Interval, worth: float) -> float:
    """Share of hostile searches, each worth so much, without which 0 would be inside.

    The interval is not widened by the allowance: a winner must stand against either, not against both at their worst.
    """
    away = max(interval.low, -interval.high, 0.0)
    return min(away / worth, 1.0) if worth > 0 else 1.0


def lift(difference: Interval, middle: float, both: UnitSums | None, level: float = 0.95) -> Lift:
    """The difference of B against A as a share of A's clicks.

    With e the difference and m the mean of both, B has m + e/2 and A m - e/2 clicks per search: the lift is e / (m - e/2). It
    grows with e, so the ends of e give its ends, each with the end of m's own interval that makes it wider: 0 is inside if and
    only if it is in the interval of e.

    >>> lift(Interval(0.02, 0.06), 0.04, UnitSums.of([1.0, 0.0] * 5_000))
    Lift(share=0.0833..., interval=Interval(low=0.040..., high=0.130...))
    """
    if both is None or not len(both) or not np.isfinite(difference.low):
        return Lift()
    m, reach = both.mean, normal_quantile(0.5 + level / 2) * both.standard_error

    def share(e: float, outwards: int) -> float:
        """The lift at an end of e, with the end of m that moves it outwards."""
        at = m + reach * (-1 if (e > 0) == (outwards > 0) else 1)
        return e / (at - e / 2) if at - e / 2 > 0 else outwards * np.inf

    if not m - reach - max(difference.high, -difference.low, 0) / 2 > 0:
        return Lift(middle / (m - middle / 2) if m > middle / 2 else float("nan"), NO_INTERVAL)
    return Lift(middle / (m - middle / 2), Interval(share(difference.low, -1), share(difference.high, 1)))


def turned(interval: Interval) -> Interval:
    """The interval of the difference the other way round."""
    return Interval(0.0 - interval.high, 0.0 - interval.low)


def _reasons(ladder: Ladder, deciding: Sequence[EstimatorResult], stands: bool) -> tuple[Reason, ...]:
    """Reasons to name no winner though 0 is outside, by the estimates that leave it out."""
    reasons: list[Reason] = []
    tested = [result for result in deciding if ladder.tested(result)]
    if not tested:
        reasons.append("untested")
    elif all(ladder.blind(result) > 1 for result in tested):
        reasons.append("blind")
    if not stands:
        reasons.append("hostile")
    return tuple(reasons)


def _forecast(
    ladder: Ladder,
    found: Combined,
    widen: Interval,
    told: Decision,
    hostile: Callable[[EstimatorResult], float],
    since: Interval | None,
    units_since: int,
) -> Forecast:
    """Forecast of when the interval will leave out 0, or what lies beyond the smallest difference that matters.

    An estimate that differs from the answer by chance may do so sooner or later: the later time of both counts, so that it has
    not come yet while nothing is decided. After a change only the answer's own estimate counts.
    """
    target = max(abs(told.difference), told.smallest or 0.0)
    if told.failed or not any(ladder.tested(result) for result, _ in found.used):
        return Forecast(target)
    if told.state in ("decided", "alike"):
        return Forecast(target, told.searches, 0.0)
    if since is not None and not (units_since and np.isfinite(since.half_width)):
        return Forecast(target)
    needed = np.inf
    for result, _ in found.used if since is None else found.used[-1:]:
        assert result.estimate is not None
        if not ladder.tested(result):
            continue
        units_for = partial(_units_for, result, since=since, units_since=units_since)
        sizes = abs(told.difference), abs(result.estimate.delta if since is None else told.difference)
        allowed = max(0.0 if result.name == AB_TRAFFIC else max(widen), hostile(result))
        each = told.searches / result.estimate.units
        seen = told.searches * ladder.blind(result, min(sizes))
        needed = min(needed, max(units_for(min(sizes) - allowed) * each, seen))
        if told.smallest is not None and told.ahead is None:
            needed = min(needed, units_for(told.smallest - max(sizes) - allowed) * each)
    needed = max(needed, float(told.searches))
    return Forecast(target, needed if needed < FARTHEST else np.inf, needed - told.searches)


def decides_by_ab_first(ladder: Ladder, widen: Interval = NOTHING) -> bool:
    """True if A/B traffic, with all searches from now on, is likely to decide before the position-based estimate does.

    For a difference one standard error larger than that estimate: a smaller one takes the click model even longer, as its
    interval is widened by the same amount.
    """
    by_ab, by_model = ladder.results[0], ladder.results[-1]
    if by_ab.name != AB_TRAFFIC or by_ab is by_model or not (by_ab.has_interval and by_model.has_interval):
        return False
    assert by_model.estimate is not None
    size = abs(by_model.estimate.delta) + by_model.estimate.standard_error

    def more(result: EstimatorResult, room: float) -> float:
        """Searches that the estimate still needs to be so far from 0."""
        assert result.estimate is not None
        return (_units_for(result, room) / result.estimate.units - 1) * result.estimate.impressions

    seen = (ladder.blind(by_model, size) - 1) * by_model.estimate.impressions
    return more(by_ab, size) < max(more(by_model, size - max(widen)), seen)


def _units_for(result: EstimatorResult, room: float, *, since: Interval | None = None, units_since: int = 0) -> float:
    """The least number of units whose interval is no wider than so much on either side.

    The interval ``since`` a change is taken to narrow with the square root of the units since then.
    """
    if since is not None:
        assert result.estimate is not None
        if room <= 0:
            return FARTHEST * 2
        return result.estimate.units + units_since * max((since.half_width / room) ** 2 - 1, 0.0)
    low, high = 1.0, FARTHEST * 2
    for _ in range(2):  # the second time within one step of the first
        grid = np.geomspace(low, high, 4_096)
        at = int(np.count_nonzero(result.radius(grid) > room))
        low, high = float(grid[max(at - 1, 0)]), float(grid[min(at, len(grid) - 1)])
    return high
