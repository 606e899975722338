"""The page in every state of a decision: what it says in one place, no other place contradicts."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from browser.states import GUARDS, NOW, STOPPED, State, segments, states
from browser.tools import Watched
from ranktrial.analysis.decision import Reason
from ranktrial.analysis.decision import State as DecisionState
from ranktrial.report.live_page import report_html
from ranktrial.report.schema import Report

LIFT = "{} of B (with popularity) against A (current)"
STATES = {state.name: state for state in states()}
# Everything that is on the page, and what it looks like.
READ = """() => {
    const all = (selector, of = document) => [...of.querySelectorAll(selector)];
    const texts = some => some.map(one => one.textContent);
    const text = id => document.getElementById(id).hidden ? "" : document.getElementById(id).textContent;
    const named = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const hex = text => "#" + text.match(/[0-9]+/g).slice(0, 3).map(n => Number(n).toString(16).padStart(2, "0")).join("");
    const colours = (selector, property) => all(selector).map(one => hex(getComputedStyle(one)[property]));
    const [, , now, low, high] = texts(all("#band-table tbody tr:last-child td"));
    return {
        headline: text("headline"), details: text("details"), next: text("next"), trust: text("trust"),
        warning: text("warning"), about: text("about"), band: text("band-text"),
        figures: all("#figures > div").map(one => ({
            name: one.querySelector("dt").textContent, value: one.querySelector("dd").firstChild.textContent,
            notes: texts(all("small", one)), bars: all("progress", one).length,
        })),
        last: now ? `${now}, ${low} to ${high}` : null,
        estimates: all("#estimates tbody tr").map(row => texts(all("td", row))),
        history: all("#history td:nth-child(2)").map(cell => cell.innerText),
        page: text("report"), shown: document.body.innerText, open: document.getElementById("checks").open,
        a: named("--a"), b: named("--b"),
        drawn: [...colours("#verdict", "borderLeftColor"), ...colours("#band path.line", "stroke")],
    };
}"""


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The report file, whose script draws any report."""
    report = STATES["no searches"].report
    file = tmp_path_factory.mktemp("states") / "report.html"
    made = report_html(report.to_dict(), str(report), datetime.fromtimestamp(NOW, UTC))
    file.write_text(made, encoding="utf-8")
    watched = Watched.open(browser, viewport={"width": 1200, "height": 900})
    watched.page.goto(file.as_uri())
    return watched.page


def drawn(page: Page, report: Report) -> dict[str, Any]:
    """Draw a report, and read the page."""
    page.evaluate(f"report => show(report, {NOW})", report.to_dict())
    return dict(page.evaluate(READ))


def variants(state: State) -> list[State]:
    """The state while the trial runs and once it is stopped, with searches that go on and that have stopped."""
    if state.decision.state == "no searches":
        return [replace(state, shows=shows) for shows in (None, "A", "B")]
    return [state, replace(state, warning=STOPPED), replace(state, shows="A"), replace(state, shows="B")]


def test_every_state_is_there() -> None:
    decisions = [state.decision for state in STATES.values()]
    assert {decision.state for decision in decisions} == set(get_args(DecisionState))
    assert {reason for decision in decisions for reason in decision.reasons} == set(get_args(Reason))
    assert {decision.winner for decision in decisions} == {None, "A", "B"}


@pytest.mark.parametrize("name", STATES)
def test_no_statement_contradicts_another(page: Page, name: str) -> None:
    for state in variants(STATES[name]):
        report = state.report
        read = drawn(page, report)
        check_sentences(read, report)
        check_numbers(read, report)
        check_way_to_a_decision(read, report)
        check_colours(read, report)
        check_words(read)


def check_sentences(read: dict[str, Any], report: Report) -> None:
    """The report's sentences are there, and go together."""
    text, decision, shows = report.text, report.decision, report.shows
    assert (read["headline"], read["details"]) == (text.headline, text.details)
    assert (read["next"], read["trust"]) == (text.next, text.trust)
    assert text.next
    assert read["warning"] == report.pace.warning
    told = " ".join([text.headline, text.details, text.next, text.trust])
    names_winner = re.search(rf" gets .*(more|fewer) {report.measure}", told) is not None
    assert names_winner == (decision.state == "decided" or bool(decision.harm))
    assert ("%" in text.headline and ", but " in text.headline) == bool(decision.harm)
    if decision.winner is not None:
        assert (f"more {report.measure} than A" in text.headline) == (decision.winner == "B")
        assert (decision.difference > 0) == (decision.winner == "B")
    if shows is None:
        assert ", running; " in read["about"]
        assert "stopped" not in told
        assert ("Ship B" in text.next) == (decision.winner == "B")
        assert ("Keep A" in text.next) == (decision.winner == "A")
        if decision.state in ("decided", "alike"):
            assert "Keep running" not in told
            assert not re.search(r"\byet\b", told)
    else:
        assert f", stopped, shows {shows}; " in read["about"]
        assert text.next.startswith(f"The trial is stopped and shows {shows} (")
        assert not re.search(r"\byet\b|keep running|ship|from now on|stop the trial", told, re.IGNORECASE)
    assert read["open"] == (bool(decision.failed) and decision.searches > 0)


def check_numbers(read: dict[str, Any], report: Report) -> None:
    """One interval: in the sentence, in the figure, at the end of the chart and of its table."""
    decision = report.decision
    per_search, lift = figures(read)[f"In {report.unit}"], figures(read)[LIFT.format(report.measure.capitalize())]
    intervals = re.findall(r"interval ([+-]?[\d.]+ to [+-]?[\d.]+)", read["details"])
    if not report.band:
        assert per_search["value"] == "–"
        assert intervals == []
        assert read["last"] is None
        assert "no interval" in lift["notes"]
        return
    (interval,) = intervals
    number = re.search(r"B against A: ([+-][\d.]+)", read["details"])
    assert number is not None
    assert plain(per_search["value"]) == number[1]
    assert plain(per_search["notes"][0]) == interval
    assert plain(read["last"]) == f"{number[1]}, {interval}"
    assert f": {number[1]}, {interval} (95% interval)" in plain(read["band"])
    low, high = (float(end) for end in interval.split(" to "))
    digits = len(interval.split(" ")[0].split(".")[1])
    assert (low, high) == tuple(round(end, digits) for end in decision.interval)
    assert plain(lift["value"])[0] in (number[1][0], "0")
    ends = [float(end) for end in re.findall(r"([+-]?[\d.]+)%", plain(lift["notes"][0]))[1:]]
    assert (ends[0] > 0, ends[1] < 0) == (low > 0, high < 0)
    for share in re.findall(r"gets ([\d.]+)%", read["headline"]):
        rounding = 10.0 ** -len(share.partition(".")[2])
        assert abs(float(share) - abs(float(plain(lift["value"]).rstrip("%")))) < rounding
    assert [row[0] for row in read["estimates"] if row[4] == "yes"] == list(decision.used)


def check_way_to_a_decision(read: dict[str, Any], report: Report) -> None:
    """ "Decided" only where it is, and the same searches and days as in what to do next."""
    decision, figure = report.decision, figures(read)["To a decision"]
    is_decided = decision.state in ("decided", "alike")
    assert (figure["value"] == "decided") == is_decided
    assert bool(re.search(r"\bdecided", read["shown"])) == is_decided
    told = f"{figure['value']} {' '.join(figure['notes'])}"
    assert re.findall(r"([\d,]+) more searches", told) == re.findall(r"([\d,]+) more searches", report.text.next)
    assert (figure["bars"] == 1) == ("more searches" in told)
    days = re.findall(r"\((.*) at the pace so far\)", report.text.next)
    assert re.findall(r"≈ (.* (?:day|hour|minute|second)s?)", figure["value"]) == days
    if report.pace.warning or report.shows is not None:
        assert days == []
    if decision.failed and report.shows is None:
        assert figure["notes"] == ["none while a check fails"]


def check_colours(read: dict[str, Any], report: Report) -> None:
    """The winner's colour, and none without a winner."""
    if report.winner is None:
        assert not {read["a"], read["b"]} & set(read["drawn"])
    else:
        assert set(read["drawn"]) == {read[report.winner.lower()]}
        assert len(read["drawn"]) == 2


def check_words(read: dict[str, Any]) -> None:
    """One sign, searches and visitors, and nothing that a programme forgot."""
    assert not re.search(
        r"A [-−] B|\bA against B|nan\b|NaN|undefined|null|Infinity|\binf\b|\[object|\d %", read["page"]
    )
    words = re.sub(r"heaviest unit|void impressions", "", read["page"])
    assert not re.search(r"\bimpressions?\b|\bunits?\b|\breadings?\b", words)


def plain(text: str) -> str:
    """Text with the minus sign of programmes."""
    return text.replace("−", "-")


def figures(read: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The figures below the verdict, by their names."""
    return {figure["name"]: figure for figure in read["figures"]}


def test_a_change_of_the_configuration_is_readable(page: Page) -> None:
    history = drawn(page, STATES["undecided"].report)["history"]
    assert history[::-1] == [
        "version 1: LogOpt(), k=3",
        "version 2\nk: 3 → 10\nseed: none → 5",
        "changed\nsmallest: 0.05 → 0.1\nnames: A and B → current and with popularity",
        "version 1 again\nk: 10 → 3",
    ]
    stopped = drawn(page, replace(STATES["undecided"], shows="B").report)["history"]
    assert stopped[0] == "stopped (B is shown from now on)"


def test_last_search_and_last_click_say_how_long_ago(page: Page) -> None:
    last = figures(drawn(page, STATES["undecided"].report))["Last search"]
    assert (last["value"], last["notes"][1]) == ("20 minutes ago", "last one clicked 30 minutes ago")
    assert last["notes"][0].endswith(" UTC")
    for name, value, notes in (("no searches", "–", []), ("no clicks", "20 minutes ago", ["none was clicked"])):
        last = figures(drawn(page, STATES[name].report))["Last search"]
        assert (last["value"], last["notes"][1:]) == (value, notes)
    page.evaluate(f"showAges({NOW + 7 * 86_400})")
    assert page.locator("#last-search dd").inner_text().startswith("7 days ago")
    page.evaluate("showAges(0)")  # by a clock that is late
    assert page.locator("#last-search dd").inner_text().startswith("just now")


def test_checks_stay_as_the_reader_left_them(page: Page) -> None:
    """They are folded, and open by themselves only when one begins to fail."""
    assert not drawn(page, STATES["undecided"].report)["open"]
    assert drawn(page, STATES["not trusted"].report)["open"]
    page.locator("#checks-count").click()
    assert not drawn(page, STATES["not trusted, and 0 inside"].report)["open"]
    assert page.locator("#checks-count").inner_text() == "2 checks: 1 fails, 1 passes"


def test_the_file_says_when_it_was_made(browser: Browser, tmp_path: Path) -> None:
    """Ages are those of that time, whenever it is read."""
    report = STATES["decided for B"].report
    file = tmp_path / "report.html"
    file.write_text(report_html(report.to_dict(), "", datetime.fromtimestamp(NOW, UTC)), encoding="utf-8")
    watched = Watched.open(browser)
    watched.page.goto(file.as_uri())
    assert watched.page.locator("#state").inner_text() == f"as of {datetime.fromtimestamp(NOW, UTC):%Y-%m-%d %H:%M} UTC"
    assert watched.page.locator("#last-search dd").inner_text().startswith("20 minutes ago")
    assert watched.complaints == []


# What overlaps in the chart of segments, and what is beyond its edges.
FOREST = """() => {
    const box = one => one.getBoundingClientRect(), svg = box(document.querySelector("#forest svg"));
    const [texts, lines] = ["svg text", ".segment"].map(what => [...document.querySelectorAll(`#forest ${what}`)]);
    const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    return {
        names: texts.filter(one => !one.classList.length).map(one => one.textContent),
        groups: [...document.querySelectorAll("#forest .group")].map(one => one.textContent),
        lines: lines.length, coloured: lines.filter(one => /\\b[ab]\\b/.test(one.getAttribute("class"))).length,
        cut: texts.filter(one => box(one).left < svg.left - 1 || box(one).right > svg.right + 1).map(one => one.textContent),
        covered: texts.filter((one, i) => texts.some((other, j) => i < j && over(box(one), box(other))))
            .map(one => one.textContent),
        crossed: texts.filter(one => lines.some(other => over(box(one), box(other)))).map(one => one.textContent),
        rows: document.querySelectorAll("#segments-table tbody tr").length, wide: document.documentElement.scrollWidth,
    };
}"""


@pytest.mark.parametrize("number", [2, 8, 20])
@pytest.mark.parametrize("width", [1200, 390])
def test_segments_stand_below_each_other_with_their_intervals(page: Page, number: int, width: int) -> None:
    """The interval of each that has one, nothing cut off or covered, coloured where chance does not explain it."""
    decided = STATES["decided for B"]
    found = segments(number, decided.decision)
    page.set_viewport_size({"width": width, "height": 900})
    try:
        drawn(page, replace(decided, more={"segments": found}).report)
        page.evaluate("drawCharts(latest, latest.parts.find(part => part.version === latest.version).config)")
        read = page.evaluate(FOREST)
    finally:
        page.set_viewport_size({"width": 1200, "height": 900})
    with_interval = [one for one in found.answers if np.isfinite(one.interval.low)]
    assert read["groups"] == list(dict.fromkeys(one.attribute for one in found.answers))
    assert read["lines"] == len(with_interval) + 1  # and that of all searches
    assert read["coloured"] == sum(one.discovery for one in with_interval)
    assert (read["cut"], read["covered"], read["crossed"]) == ([], [], [])
    assert sum(name.startswith("phone, ") for name in read["names"]) == sum(
        one.value == "phone" for one in found.answers
    )
    assert read["rows"] == number
    assert read["wide"] == width
    assert "In clicks per search, each with its own interval." in page.locator("#segments-text").inner_text()


def test_every_metric_has_a_row_with_its_role_and_finding(page: Page) -> None:
    report = STATES["withheld: guard"].report
    drawn(page, report)
    rows = page.locator("#metrics-table tbody tr")
    told = [" ".join(row.split()) for row in rows.all_inner_texts()]
    assert [text.split(" decides")[0].split(" guard")[0].split(" looked")[0] for text in told] == [
        "orders", "clicks", "searches without a click", "revenue", "carts", "revenue of four weeks",
    ]  # fmt: skip
    for row, words in zip(
        told, ("see above", "✕ harm", "✓ no harm shown", "may be chance", "told from chance", "too early")
    ):
        assert words in row
    assert "−5.0% −7.0% to −3.0%" in told[1]
    assert "B (with popularity) has at least 3.0% fewer clicks; 1.0% is allowed." in told[1]
    assert "less is better" in told[2]
    assert "400 more wait" in told[3]
    sides = [row.locator("circle").get_attribute("class") for row in rows.all()[:5]]
    assert sides == ["b", "a", "", "", "b"]  # less is better of what nobody is ahead by
    labels = [row.locator("svg.course").get_attribute("aria-label") or "" for row in rows.all()]
    assert labels[0].startswith("orders over time, B against A: +0.0060, +0.0035 to +0.0085; 400 searches do not count")
    assert labels[2].startswith("searches without a click over time, B against A: +0.0005, ")
    assert (
        labels[5] == "revenue of four weeks over time, B against A: nothing counts yet; 4,000 searches do not count yet"
    )
    shaded = [row.locator("svg.course rect.waiting") for row in rows.all()]
    assert [one.count() for one in shaded] == [1, 0, 0, 1, 0, 1]
    edges = [float(shaded[at].get_attribute("x") or "nan") for at in (0, 5)]
    assert edges == pytest.approx([100 * 3.2 / 4.2, 0], abs=0.01)
    assert [row.locator("svg.course path").count() for row in rows.all()] == [2, 2, 2, 2, 2, 0]
    assert figures(page.evaluate(READ))["To a decision"]["notes"] == ["none while a guard tells harm"]
    drawn(page, STATES["undecided"].report)
    assert page.locator("#metrics").is_hidden()


def test_guards_and_what_cannot_matter_are_told_before_anything_happens(page: Page) -> None:
    state = STATES["undecided, a smallest difference"]
    futile = "B (with popularity) is surely not better by 0.04 clicks per search."
    drawn(page, replace(state, more={"guards": GUARDS, "futile": futile, "course": "10% take part."}).report)
    told = page.locator("#guards-list li").all_inner_texts()
    assert [text.split("\n")[0] for text in told] == ["✓ no harm shown", "? not known"]
    assert all(guard.text in text for guard, text in zip(GUARDS, told))
    assert page.locator("#futile").inner_text() == futile
    assert page.locator("#course").inner_text() == "10% take part."
    drawn(page, state.report)
    for part in ("guards", "futile", "course", "segments"):
        assert page.locator(f"#{part}").is_hidden()
