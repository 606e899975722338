"""Reports in every state of a decision, made by ``decide`` from small ladders of known values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ranktrial.analysis.analyse import BandPoint, Theta
from ranktrial.analysis.answers import estimate_rows
from ranktrial.analysis.decision import Decision, Lift, Ranker, decide
from ranktrial.analysis.estimators.results import Estimate
from ranktrial.analysis.guardrails.status import Guardrail
from ranktrial.analysis.ladder import AB_TRAFFIC, POSITION_BASED, SHARES, EstimatorResult, Hausman, Ladder, made_result
from ranktrial.analysis.metrics import MetricAnswer
from ranktrial.analysis.segments import AttributeTest, SegmentAnswer
from ranktrial.analysis.verdict import lift_text, verdict
from ranktrial.config import TrialConfig
from ranktrial.interval import Interval
from ranktrial.log.units import UnitSums
from ranktrial.metrics import Abandonment, Carts, Clicks, Metric, Orders, Revenue
from ranktrial.report.harm import Guard
from ranktrial.report.making import at_some
from ranktrial.report.schema import Contributor, HistoryEntry, Pace, Part, Report, Segmentation

VALUES = ("phone", "desktop", "tablet", "television", "a device with a rather long name of its own", "other")
DAY, NOW = 86_400.0, 1_795_000_000.0
STOPPED = "No search for 5 hours; the longest pause before was 20 minutes. Does the site still call the trial?"
ONCE = Guardrail(
    name="duplicate clicks",
    status="fail",
    value=0.4,
    text="40.0% of clicks came more than once.",
    group="data",
    title="Every click is sent once",
    cause="A cached page shares its id among visitors, or the page sends each click twice.",
    remedy="Do not cache what rank returned; look for two listeners on the same link.",
)
WAITS = Guardrail(
    name="effective clicks",
    status="warn",
    value=31.0,
    text="31 effective clicks.",
    group="data",
    title="Enough clicks carry the answer",
    cause="The trial is young, or a few clicks have most of the weight.",
    remedy="Wait for more clicks.",
)
DRAWN = Guardrail(
    name="sample ratio",
    status="pass",
    value=0.41,
    text="A, B and mixed pages come as often as designed (p = 0.41).",
    group="data",
    title="A, B and mixed pages are drawn as often as designed",
)


def result(name: str, b_minus_a: float, spread: float, searches: int) -> EstimatorResult:
    """An estimate from values of this mean and spread, one a visitor, with the interval that the ladder gives it."""
    values = -b_minus_a + spread * np.where(np.arange(searches) % 2, 1.0, -1.0)
    found = Estimate.of(values, np.ones(searches), largest_weight=1.0)
    return made_result(name, found, "", clicks=searches, level=0.95, share=SHARES[name])


def ladder(b_minus_a: float, searches: int, *, error: float = 0.01) -> Ladder:
    """A/B traffic, and the click model's estimate with a tenth of its spread; the test between them has this error."""
    size = max(searches // 2, 100)
    results = result(AB_TRAFFIC, b_minus_a, 1.5, size), result(POSITION_BASED, b_minus_a, 0.6, searches)
    test = Hausman(POSITION_BASED, AB_TRAFFIC, error / 2, error, 4 * error)
    return Ladder(results, (test,), disagreement=0.3, ctr=1.1)


@dataclass(frozen=True)
class State:
    """A report's state.

    Attributes:
        name: Of the state.
        decision: The decision.
        ladder: What it was made from.
        shows: The ranker that is shown since the trial was stopped.
        warning: Of searches that have stopped.
        checks: All guardrails.
        more: Further parts of the report.
    """

    name: str
    decision: Decision
    ladder: Ladder
    shows: Ranker | None = None
    warning: str = ""
    checks: tuple[Guardrail, ...] = field(default=(DRAWN,))
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def report(self) -> Report:
        """The report in this state."""
        decision = self.decision
        options = {"k": 3, "names": ("current", "with popularity"), "smallest": decision.smallest}
        config = TrialConfig.model_validate(options)
        days = 4.2 if decision.searches else float("nan")
        goes_on = self.shows is None and not self.warning and decision.searches > 0
        left = decision.forecast.remaining / max(decision.searches, 1) * days if goes_on else float("nan")
        worst = next((check for check in self.checks if check.status in ("fail", "warn")), None)
        text = verdict(
            decision, config.labels, days=left, shows=self.shows, live=True,
            remedy=worst.remedy if worst is not None and worst.status == "fail" else "",
            weakest="" if worst is None else f'"{worst.title}". {worst.text}',
        )  # fmt: skip
        a_day = decision.searches / days
        return Report(
            trial="shoes",
            version=2,
            decision=decision,
            text=text,
            lift=lift_text(decision, config.labels, a_day),
            pace=pace(decision, days, self.warning),
            days_left=left,
            estimates=estimate_rows(self.ladder, decision),
            impressions=decision.searches,
            units=decision.visitors,
            clicks=decision.clicks,
            ctr=decision.clicks / max(decision.searches, 1),
            theta=THETA if decision.clicks else THETA.model_copy(update=ASSUMED),
            band=band(decision, days),
            contributors=contributors(decision),
            guardrails=self.checks if decision.searches else (),
            tallies={},
            parts=tuple(part(number, config, decision if number == 2 else EMPTY.decision) for number in (1, 2)),
            shows=self.shows,
            history=HISTORY if self.shows is None else (*HISTORY, stopped(self.shows)),
            **self.more,
        )


def pace(decision: Decision, days: float, warning: str) -> Pace:
    """Searches until 20 minutes ago, or until five hours ago where they have stopped."""
    last = NOW - (5 * 3600 if warning else 1200)
    latest = last if decision.searches else float("nan")
    return Pace(
        began=latest - days * DAY, latest=latest, latest_click=latest - 600 if decision.clicks else float("nan"), days=days,
        searches_a_day=decision.searches / days, longest_pause=1200.0, text="", warning=warning,
    )  # fmt: skip


def band(decision: Decision, days: float) -> tuple[BandPoint, ...]:
    """Ever narrower intervals; the last is the decision's."""
    return narrowing(decision.difference, decision.interval, decision.visitors, days, NOW - 1200)


def narrowing(middle: float, interval: Interval, units: int, days: float, last: float) -> tuple[BandPoint, ...]:
    """Ever narrower intervals until some time, the last as given."""
    if not np.isfinite(interval.half_width):
        return ()
    return tuple(
        BandPoint(
            units=units // shrunk, time=last - days * DAY * (1 - 1 / shrunk), difference=middle,
            low=middle - (middle - interval.low) * np.sqrt(shrunk),
            high=middle + (interval.high - middle) * np.sqrt(shrunk),
        )
        for shrunk in (8, 4, 2, 1)
    )  # fmt: skip


def contributors(decision: Decision) -> tuple[Contributor, ...]:
    if not np.isfinite(decision.difference):
        return ()
    return tuple(
        Contributor(
            query=query, label=query, impressions=decision.searches // 3, clicks=decision.clicks // 3,
            contribution=share * decision.difference,
        )
        for query, share in (("red shoes", 0.8), ("boots", 0.4), ("sandals", -0.2))
    )  # fmt: skip


def part(number: int, config: TrialConfig, decision: Decision) -> Part:
    return Part(
        version=number, config=config, impressions=decision.searches, clicks=decision.clicks, difference=decision.difference,
        interval=decision.interval, verdict=str(verdict(decision, config.labels, live=True)),
    )  # fmt: skip


def segments(number: int, decision: Decision) -> Segmentation:
    """Answers by so many segments of devices, countries and more, that lie about the decision's."""
    names = [(f"{what}", value) for what in ("device", "country", "customer", "query") for value in VALUES][:number]
    random, half = np.random.default_rng(3), decision.interval.half_width * np.sqrt(number)
    answers = []
    for at, (attribute, value) in enumerate(names):
        middle = decision.difference + half * random.normal()
        wide = Interval(middle - half, middle + half) if at != 4 else Interval(-np.inf, np.inf)
        sure, searches = 0 not in wide, decision.searches // number if at != 4 else 3
        answers.append(
            SegmentAnswer(
                attribute, value, searches, searches, searches, searches / decision.searches, middle if at != 4 else np.nan,
                wide, Lift(middle / 1.1, Interval(wide.low / 1.1, wide.high / 1.1)), middle / 2, discovery=sure,
                rate=0.01 if sure else 0.6,
            )
        )  # fmt: skip
    tests = tuple(AttributeTest(name, 0.003, 2) for name in dict.fromkeys(name for name, _ in names))
    text = "The difference is not the same for every device (p = 0.003)."
    return Segmentation(answers=tuple(answers), tests=tests, rate=0.05, theta_by="", thetas={}, text=text)


def metric_row(metric: Metric, share: float, half: float, *, searches: int = 3_600, **more: Any) -> MetricAnswer:
    """The answer by a metric: a lift and half of its interval's width, of a value of a twentieth of a search."""
    value, known = 0.05, np.isfinite(half)
    answer = MetricAnswer(
        metric, metric.title, metric.role, metric.better, "position-based" if known else None, searches=searches, value=value,
        difference=share * value, interval=Interval((share - half) * value, (share + half) * value),
        lift=Lift(share, Interval(share - half, share + half)), **more,
    )  # fmt: skip
    days = 3.2 if answer.waiting else 4.2  # the searches of a day wait
    band = narrowing(answer.difference, answer.interval, searches, days, NOW - 1200 - (4.2 - days) * DAY)
    return replace(answer, band=at_some(band))


def metric_rows() -> tuple[MetricAnswer, ...]:
    """Orders decide and are more; clicks guard and are fewer; the rest is looked at beside."""
    nothing = float("nan"), float("inf")
    late = "No search has had 28 days yet: the first counts on 2026-12-12."
    fewer = "B (with popularity) has at least 3.0% fewer clicks; 1.0% is allowed."
    clicks, left = Clicks(role="guard", tolerance=0.01), Abandonment(role="guard", better="less")
    return (
        metric_row(ORDERS, 0.12, 0.05, waiting=400),
        metric_row(clicks, -0.05, 0.02, guard="harm", note=fewer),
        metric_row(left, 0.01, 0.03, guard="ok"),
        metric_row(Revenue(window="7d", cap=500), 0.09, 0.30, waiting=400),
        metric_row(Carts(window="1d"), 0.08, 0.03, discovery=True, rate=0.01),
        metric_row(Revenue(window="28d", name="revenue of four weeks"), *nothing, searches=0, waiting=4_000, note=late),
    )


def guard(name: str, status: Literal["pass", "harm", "unknown"], text: str) -> Guard:
    found = {"name": name, "tolerance": 0.05, "value": 0.01, "at_least": 0.0, "status": status, "text": text}
    return Guard.model_validate(found)


ORDERS = Orders(window="7d", role="primary")
GUARDS = (
    guard("clicks of B", "pass", "B (with popularity) gets about 1.2% fewer clicks than A (current); 5.0% is allowed."),
    guard("fallbacks", "unknown", "The guard on fallbacks knows nothing yet; 1.0% is allowed."),
)
THETA = Theta(theta=(1.0, 0.6, 0.4), standard_error=(0.0, 0.05, 0.04), fitted=True, note="", inflation=1.02)
ASSUMED = {"standard_error": (0.0, 0.0, 0.0), "fitted": False, "note": "no clicks yet"}
HISTORY = (
    HistoryEntry(time=NOW - 5 * DAY, what="version", detail="1: LogOpt(), k=3", who="user ann"),
    HistoryEntry(time=NOW - 4.5 * DAY, what="version", detail="2 (k: 3 -> 10; seed: none -> 5)", who="user ann"),
    HistoryEntry(
        time=NOW - 4 * DAY, what="changed", who="key 5f0c2a91 (bob)",
        detail="smallest: 0.05 -> 0.1; names: A and B -> current and with popularity",
    ),
    HistoryEntry(time=NOW - 3 * DAY, what="version", detail="1 again (k: 10 -> 3)", who="user ann"),
)  # fmt: skip


def stopped(shows: Ranker) -> HistoryEntry:
    return HistoryEntry(
        time=NOW - 600, what="stopped", detail=f"({shows} is shown from now on)", reason="enough", who="user ann"
    )


def made(name: str, of: Ladder, searches: int, *, checks: tuple[Guardrail, ...] = (DRAWN,), **options: Any) -> State:
    """A state of searches with 1.1 clicks each."""
    known = {"clicks": searches * 11 // 10, "both": UnitSums.of(np.tile([2.2, 0.0], 500)), **options}
    failed = [check.title for check in checks if check.status == "fail"]
    return State(name, decide(of, searches=searches, visitors=searches, failed=failed, **known), of, checks=checks)


def waiting(searches: int) -> Ladder:
    """Estimates that wait."""
    none = Interval(-np.inf, np.inf)
    missing = ("50 A/B searches of A and of B (3 and 5 so far)", "position bias")
    return Ladder(
        tuple(EstimatorResult(name, None, none, why) for name, why in zip((AB_TRAFFIC, POSITION_BASED), missing)), ()
    )


EMPTY = made("no searches", Ladder((), ()), 0)


def states() -> Iterator[State]:
    """Every state while the trial runs and searches come."""
    yield EMPTY
    yield made("no clicks", waiting(20), 20, clicks=0)
    yield made("no clicks though many searches", waiting(400), 400, clicks=0)
    yield made("too early", waiting(60), 60, checks=(WAITS, DRAWN))
    yield made("too early, and a check fails", waiting(60), 60, checks=(ONCE, DRAWN))
    yield made("undecided", ladder(0.01, 4_000), 4_000, checks=(WAITS, DRAWN))
    yield made("undecided, a smallest difference", ladder(-0.01, 4_000), 4_000, smallest=0.04)
    yield made("undecided for ever", ladder(0.001, 4_000), 4_000, smallest=0.002)
    yield made("undecided, and the size to find is not said", ladder(0.0001, 4_000), 4_000)
    yield made("undecided since a change", ladder(0.2, 4_000), 4_000, since=Interval(-0.1, 0.2))
    yield made("no interval since a change", ladder(0.2, 4_000), 4_000, since=Interval(-np.inf, np.inf))
    yield made("alike", ladder(0.002, 400_000), 400_000, smallest=0.1)
    yield made("decided for A", ladder(-0.13, 4_000), 4_000, worth=lambda *_: 5.0)
    yield made("decided for B", ladder(0.13, 4_000), 4_000, smallest=0.05, checks=(WAITS, DRAWN))
    little = result(AB_TRAFFIC, 0.0013, 0.1, 100_000), result(POSITION_BASED, 0.00131, 0.05, 200_000)
    test = Hausman(POSITION_BASED, AB_TRAFFIC, 0.0, 0.0004, 0.002)
    yield made("decided by little", Ladder(little, (test,), 0.3, 0.01), 200_000, clicks=2_000)
    yield made("withheld: untested", Ladder((result(POSITION_BASED, 0.13, 0.6, 4_000),), (), 0.3, 1.1), 4_000)
    yield made("withheld: blind", ladder(-0.13, 4_000, error=0.2), 4_000)
    hostile: dict[str, Any] = {"contamination": 0.05, "worth": lambda *_: 5.0}
    yield made("withheld: hostile", ladder(0.13, 4_000), 4_000, **hostile)
    yield made("withheld: blind and hostile", ladder(0.13, 4_000, error=0.2), 4_000, **hostile)
    early = made("withheld: too soon", ladder(0.13, 4_000), 4_000)
    soon: dict[str, Any] = {"state": "withheld", "winner": None, "reasons": ("too soon",)}
    yield replace(early, decision=replace(early.decision, **soon))
    orders = made("withheld: guard", ladder(0.13, 4_000), 4_000, metric=ORDERS)
    harm: dict[str, Any] = {"state": "withheld", "winner": None, "reasons": ("guard",), "harm": ("5.0% fewer clicks",)}
    yield replace(orders, decision=replace(orders.decision, **harm), more={"metrics": metric_rows()})
    yield made("decided for B by orders", ladder(0.13, 4_000), 4_000, metric=ORDERS)
    yield made("no events", waiting(400), 400, clicks=0, metric=ORDERS)
    yield made("not trusted", ladder(0.13, 4_000), 4_000, checks=(ONCE, WAITS, DRAWN))
    yield made("not trusted, and 0 inside", ladder(0.01, 4_000), 4_000, checks=(ONCE, DRAWN))
