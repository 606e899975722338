"""Sentences of every state of a decision: those of ``verdicts.txt``, and none contradicts another.

``RANKTRIAL_VERDICTS=1 pytest tests/analysis/test_verdict.py`` writes the file anew: read it through.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from hand_made import agrees, decided, result, waiting
from ranktrial.analysis.decision import Decision
from ranktrial.analysis.guardrails.click_model import assumptions
from ranktrial.analysis.guardrails.status import Found, guardrail
from ranktrial.analysis.ladder import AB_TRAFFIC, DIRECT, POSITION_BASED, EstimatorResult
from ranktrial.analysis.verdict import Verdict, lift_text, segment_text, verdict
from ranktrial.interval import Interval
from ranktrial.log import LeftOut
from ranktrial.log.units import UnitSums
from ranktrial.metrics import Abandonment, FirstClickRank, Orders, Revenue
from ranktrial.report.making import everyone_text

GOLDEN = Path(__file__).with_name("verdicts.txt")
LABELS = ("A (current)", "B (with popularity)")
BOTH = UnitSums.of([1.0, 0.0, 0.0] * 20_000)
CHANGED = "These numbers are since a change. It changed on 2026-01-03. Over all of the trial it is -0.0100."
LEFT_OUT = LeftOut(units={"excluded": 1, "unit_clicks": 3}, impressions=140, clicks=30)
WITH_EVERYBODY = "undecided", "withheld from B: too soon", "not trusted"
HARM = ("at least 7.6% fewer clicks",)
NO_AB = waiting(AB_TRAFFIC, "50 A/B searches of A and of B (0 and 0 so far)")


class Case(NamedTuple):
    """A decision, and what else is known when it is put into words."""

    name: str
    decision: Decision
    known: dict[str, Any]


class Segment(NamedTuple):
    """A segment in which the difference is surely not 0."""

    attribute: str
    value: str
    difference: float
    interval: Interval = Interval(0.01, 0.17)


def of(*ends: float, ab: tuple[float, float] = (-0.2, 0.2), error: float = 0.001, **options: Any) -> Decision:
    """A decision by the click model whose interval of B against A has these ends, and this one of A/B traffic."""
    pair = result(AB_TRAFFIC, *ab), result(POSITION_BASED, -ends[1], -ends[0])
    tests = (agrees(POSITION_BASED, error=error),)
    return decided(
        *pair, tests=tests, **{"both": BOTH, "searches": 12_000, "visitors": 9_000, "clicks": 4_000, **options}
    )


def by_ab(*ends: float, **options: Any) -> Decision:
    """A decision by A/B traffic alone."""
    counts = {"both": BOTH, "searches": 12_000, "visitors": 9_000, "clicks": 4_000}
    return decided(result(AB_TRAFFIC, -ends[1], -ends[0]), **{**counts, **options})


def untested(*ends: float, **options: Any) -> Decision:
    """A decision without A/B traffic."""
    return decided(NO_AB, result(POSITION_BASED, -ends[1], -ends[0]), tests=(), **{"both": BOTH, **options})


def hostile(*ends: float, **options: Any) -> Decision:
    return of(*ends, worth=lambda *_: 1.0, contamination=0.05, **options)


def cases() -> Iterator[Case]:
    """Every state and reason, for A and for B."""
    nothing = NO_AB, waiting(POSITION_BASED, "position bias (no clicks yet)")
    none: dict[str, Any] = {"visitors": 0, "clicks": 0, "tests": ()}
    yield Case("no searches", decided(*nothing, searches=0, **none), {})
    yield Case("no clicks, few searches", decided(*nothing, searches=1, **none), {})
    yield Case("no clicks, many searches", decided(*nothing, searches=5_000, **none), {})
    yield Case("too early", decided(*nothing, searches=40, visitors=9, clicks=1, tests=()), {})
    yield Case("too early after many searches", decided(*nothing, searches=2_000, visitors=9, clicks=9, tests=()), {})
    yield Case("undecided", of(-0.01, 0.05), {"days": 2.5})
    yield Case("undecided, exactly no difference", of(-0.02, 0.02), {})
    yield Case("undecided, a smallest difference", of(-0.03, 0.04, smallest=0.03), {"days": 0.3})
    yield Case("undecided, too small a difference", of(-0.02, 0.03, smallest=0.01, allowance=0.04), {})
    yield Case("undecided, without A/B traffic", untested(-0.01, 0.05), {})
    yield Case("undecided by A/B traffic", by_ab(-0.01, 0.05), {})
    yield Case("undecided since a change", of(0.01, 0.05, since=Interval(-0.03, 0.02)), {"changed": CHANGED})
    since = of(0.01, 0.05, since=Interval(-0.03, 0.02), units_since=100)
    yield Case("undecided since a change, with a forecast", since, {"changed": CHANGED, "days": 2.0})
    yield Case("alike", of(-0.01, 0.03, smallest=0.05), {})
    yield Case("decided for A", of(-0.05, -0.01, allowance=0.005, worth=lambda *_: 1.0), {})
    yield Case("decided for B", of(0.01, 0.05, allowance=0.005, worth=lambda *_: 1.0), {})
    yield Case("decided for A by A/B traffic", by_ab(-0.05, -0.01, worth=lambda *_: 1.0), {})
    yield Case("decided for B by A/B traffic", by_ab(0.01, 0.05), {})
    yield Case("decided, the lift not known", of(0.01, 0.05, both=None), {})
    yield Case("decided, with a check that warns", of(0.01, 0.05), {"weakest": '"Clicks arrive". 3% came late.'})
    yield Case("decided since a change", of(-0.05, -0.01, since=Interval(-0.06, -0.02)), {"changed": CHANGED})
    for ahead, ends in (("A", (-0.05, -0.01)), ("B", (0.01, 0.05))):
        yield Case(f"withheld from {ahead}: untested", untested(*ends), {})
        yield Case(f"withheld from {ahead}: blind", of(*ends, error=0.04), {"days": 30.0})
        yield Case(f"withheld from {ahead}: hostile", hostile(*ends), {})
        yield Case(f"withheld from {ahead}: blind and hostile", hostile(*ends, error=0.04), {})
        both = untested(*ends, worth=lambda *_: 1.0, contamination=0.1)
        yield Case(f"withheld from {ahead}: untested and hostile", both, {})
    early = replace(of(0.01, 0.05), state="withheld", winner=None, reasons=("too soon",))
    yield Case("withheld from B: too soon", early, {})
    alike = of(-0.01, 0.03, smallest=0.05)
    yield Case("undecided, alike but too soon", replace(alike, state="undecided", reasons=("too soon",)), {})
    phone, tablet = Segment("device", "phone", -0.04, Interval(-0.06, -0.02)), Segment("device", "tablet", 0.09)
    more = [Segment("country", name, 0.05) for name in ("at", "de", "ch")]
    yield Case("decided for B, not on phones", of(0.01, 0.05), {"segments": (phone,)})
    yield Case("decided for A, not in four segments", of(-0.05, -0.01), {"segments": (tablet, *more)})
    yield Case("undecided, but in segments", of(-0.01, 0.05), {"segments": (phone, tablet)})
    yield Case("not trusted, with segments", of(0.01, 0.05, failed=["Clicks arrive"]), {"segments": (phone, tablet)})
    model = guardrail(assumptions, Found("fail", 9.0, agrees(POSITION_BASED, apart=0.2).text))
    known = {"weakest": f'"{model.title}". {model.text}'}
    yield Case("undecided by A/B traffic, as the click model is wrong", by_ab(-0.01, 0.05), known)
    yield Case("decided for B by A/B traffic, as the click model is wrong", by_ab(0.01, 0.05), known)
    blocked = decided(NO_AB, result(POSITION_BASED, 0.01, 0.05), tests=(), barred=(POSITION_BASED,))
    yield Case(
        "too early, as the click model is wrong",
        blocked,
        {**known, "remedy": "Only A/B traffic can tell: a version with a larger hold-back gets there sooner."},
    )
    yield from of_metrics(nothing, none)
    failed: dict[str, Any] = {"failed": ["Clicks arrive"], "allowance": 0.005}
    remedy = {"remedy": "Send click events with the id of their search."}
    yield Case("not trusted", of(0.01, 0.05, **failed), remedy)
    yield Case("not trusted, undecided", of(-0.01, 0.05, **failed), remedy)
    yield Case("not trusted, two checks", of(0.01, 0.05, failed=["Clicks arrive", "Draws are fair"]), remedy)


def of_metrics(nothing: tuple[EstimatorResult, ...], none: dict[str, Any]) -> Iterator[Case]:
    """Decisions by other metrics than clicks, and with guards that find harm."""
    orders, revenue, rank = Orders(role="primary"), Revenue(role="primary"), FirstClickRank(role="primary")
    yield Case("no events, few searches", decided(*nothing, searches=5, metric=orders, **none), {})
    yield Case("no events, many searches", decided(*nothing, searches=5_000, metric=orders, **none), {})
    young = replace(decided(*nothing, searches=0, metric=orders, **none), state="too early")
    yield Case("too early, as no search is old enough", young, {})
    early: dict[str, Any] = {"searches": 2_000, "visitors": 900, "clicks": 9, "tests": ()}
    yield Case("too early for orders", decided(*nothing, metric=orders, **early), {})
    yield Case("too early for a rank", decided(*nothing, metric=rank, **early), {})
    yield Case("undecided by orders", of(-0.01, 0.05, metric=orders), {"days": 2.5})
    yield Case("undecided, with a guard harmed", replace(of(-0.01, 0.05, metric=orders), harm=HARM), {})
    yield Case("alike in revenue", of(-0.01, 0.03, smallest=0.05, metric=revenue), {})
    yield Case("decided for A by revenue", of(-0.05, -0.01, allowance=0.005, metric=revenue), {})
    yield Case("decided for B by orders", of(0.01, 0.05, allowance=0.005, metric=orders), {})
    yield Case("decided for B by searches without a click", by_ab(-0.05, -0.01, metric=Abandonment()), {})
    phone = Segment("device", "phone", 0.04, Interval(0.02, 0.06))
    fewer = by_ab(-0.05, -0.01, metric=Abandonment())
    yield Case("decided for B by searches without a click, not on phones", fewer, {"segments": (phone,)})
    yield Case("decided for A by the first click", by_ab(0.01, 0.05, metric=rank), {})
    yield Case("withheld from B by orders: blind", of(0.01, 0.05, error=0.04, metric=orders), {"days": 30.0})
    guarded = replace(of(0.01, 0.05, metric=orders), state="withheld", winner=None, reasons=("guard",), harm=HARM)
    yield Case("withheld from B by orders: a guard", guarded, {})


CASES = list(cases())


class Told(NamedTuple):
    """A verdict, how it came to be, and the decision behind it."""

    name: str
    decision: Decision
    live: bool
    shows: str | None
    text: Verdict

    @property
    def parts(self) -> list[str]:
        lift = lift_text(self.decision, LABELS, 1_000.0)
        return [self.text.headline, self.text.details, self.text.next, self.text.trust, lift]

    @property
    def whole(self) -> str:
        return " ".join(filter(None, self.parts))


def told(decision: Decision, *, segments: tuple[Segment, ...] = (), **known: Any) -> Verdict:
    return verdict(decision, LABELS, segments=segment_text(decision, segments, LABELS), **known)


def every() -> Iterator[Told]:
    """Every case for a log, a trial that runs and one that is stopped, looked at once or often."""
    for name, decision, known in CASES:
        for anytime in (True, False):
            one = replace(decision, anytime=anytime)
            for live, shows in ((False, None), (True, None), (True, "A"), (True, "B")):
                yield Told(name, one, live, shows, told(one, live=live, shows=shows, **known))


def rendered() -> str:
    lines = []
    for name, decision, known in CASES:
        live, once = told(decision, live=True, **known), told(replace(decision, anytime=False), live=True, **known)
        ended = told(decision, live=True, shows="A", **known)
        lines += [f"== {name}", live.headline]
        lines += [f"[stopped] {ended.headline}"] if ended.headline != live.headline else []
        lines += [live.details]
        lines += [once.details] if once.details != live.details else []
        lines += [live.trust, lift_text(decision, LABELS, 1_000.0)]
        for where, options in (
            ("running", {"live": True}),
            ("stopped, shows A", {"live": True, "shows": "A"}),
            ("stopped, shows B", {"live": True, "shows": "B"}),
            ("log", {"live": False}),
        ):
            lines.append(f"[{where}] {told(decision, **{**known, **options}).next}".strip())
        if name in WITH_EVERYBODY:
            lines.append(f"[everybody in] {everyone_text(LEFT_OUT, str(live))}")
        lines.append("")
    return "\n".join([line for line, before in zip(lines, ["", *lines]) if line or before])


def test_every_state_reads_as_it_was_read_through() -> None:
    if os.environ.get("RANKTRIAL_VERDICTS"):
        GOLDEN.write_text(rendered())
    assert rendered() == GOLDEN.read_text()


def test_every_state_and_reason_is_there() -> None:
    assert {case.decision.state for case in CASES} == set(Decision.__annotations__ and _names("State"))
    assert {reason for case in CASES for reason in case.decision.reasons} == set(_names("Reason"))
    for name, decision, _ in CASES:
        told = re.split("[ ,:]", name.removeprefix("exactly "))[0]
        assert decision.state.startswith(told)


def _names(alias: str) -> tuple[str, ...]:
    from typing import get_args

    from ranktrial.analysis import decision

    return get_args(getattr(decision, alias))


@pytest.mark.parametrize("told", list(every()), ids=lambda t: f"{t.name}, {t.live}, {t.shows}, {t.decision.anytime}")
def test_no_sentence_contradicts_another(told: Told) -> None:
    decision, text, whole = told.decision, told.text, told.whole
    sign = np.sign(decision.difference)
    if re.search(rf"(more|larger) {decision.metric.title} than", text.headline):
        assert sign > 0
    if re.search(rf"(fewer|less|smaller) {decision.metric.title} than", text.headline):
        assert sign < 0
    if text.details.startswith("B against A: "):
        assert text.details.startswith(f"B against A: {decision.difference:+.4f} ")
        assert str(decision.interval) in text.details
    share = re.search(r"against A \(current\): ([+-])", told.parts[-1])
    assert share is None or share[1] == ("+" if decision.difference >= 0 else "-")
    verb = "has" if decision.metric.of_mean else "gets"
    if decision.reasons == ("guard",):
        assert text.headline.endswith(f", but {HARM[0]}.")
        assert told.shows is not None or text.next.startswith(f"Do not ship {LABELS[1]} as it is: ")
    elif decision.winner is None:
        for word in ("ship", "keep a", f"{LABELS[1].lower()} gets", "winner is named for", "decided"):
            assert word not in text.headline.lower()
            assert word not in text.next.lower()
    else:
        assert text.headline.startswith(f"{LABELS[1]} {verb} ")
        for word in ("keep running", "collect more", "neither", "too early", "no winner", "seems"):
            assert word not in whole.lower()
    if decision.state in ("undecided", "withheld") and told.shows is None:
        assert not re.search(r"\b0 more searches", text.next)
        assert text.next
    if told.live and told.shows is None and decision.winner is not None:
        assert text.next.endswith(f"show {decision.winner} from now on.")
    if told.shows is not None:
        other = decision.winner not in (None, told.shows)
        assert text.next.startswith(f"The trial is stopped and shows {LABELS[told.shows == 'B']}.")
        assert (f" {verb} {decision.metric.compared('', decision.metric.better == 'more')}" in text.next) == other
        assert "stop the trial" not in text.next
    assert ("assumes nothing" in text.trust) == (decision.used == (AB_TRAFFIC,) and not decision.failed)
    assert ("no A/B traffic tests that" in text.trust) == (
        decision.ab == (-np.inf, np.inf) and decision.estimator is not None and not decision.failed
    )
    has_interval = bool(np.isfinite(decision.interval.low))
    assert ("fixed beforehand" in whole) == (has_interval and not decision.anytime)
    assert ("however often you look" in whole) == (has_interval and decision.anytime)


@pytest.mark.parametrize("told", list(every()), ids=lambda t: f"{t.name}, {t.live}, {t.shows}, {t.decision.anytime}")
def test_sentences_are_plain(told: Told) -> None:
    for part in told.parts:
        assert not part or re.search(r"[.?]$", part)
        assert part == " ".join(part.split())
        assert ".." not in part
    for word in ("nan", "inf", "impression", "unit", "reading", "result", "plain traffic", "per cent", "None"):
        assert not re.search(rf"\b{word}s?\b", told.whole)
    assert not re.search(r"\d\s+%", told.whole)
    if not told.live:
        assert not re.search(r"\b(keep running|stop|the trial is)\b", told.text.next.lower())


def test_harm_that_a_guard_is_sure_of_is_the_headline_until_the_decision_knows_it() -> None:
    surely = "B gets at least 5.4% fewer clicks than A."
    undecided, decision = of(-0.3, 0.05), of(-0.3, -0.05)
    assert (undecided.state, decision.winner) == ("undecided", "A")
    assert verdict(undecided, harm=surely).headline == surely
    assert verdict(undecided).headline == "Neither is ahead yet."
    assert verdict(decision, harm=surely) == verdict(decision)


def test_the_decision_on_one_click_and_one_search_counts_them_as_one() -> None:
    found = decided(NO_AB, searches=1, visitors=1, clicks=1, tests=())
    assert verdict(found).headline == "Too early to say after 1 search and 1 click."


def test_direct_and_other_assumptions_are_said_in_words() -> None:
    found = decided(NO_AB, result(DIRECT, 0.01, 0.05), tests=())
    assert verdict(found).trust == (
        "This assumes that a click depends on the document and its rank alone, and no A/B traffic tests that."
    )
