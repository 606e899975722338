"""Live page and report file in a browser, on a desktop and on a phone, asking nobody outside."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from browser.tools import EVIL, Watched
from live_server import serving
from ranktrial.report.live_page import report_html
from ranktrial.service.api_keys import KeyFile
from ranktrial.service.page import KINDS
from ranktrial.trial import Trial
from simulated_trial import Ticks

# RANKTRIAL_PICTURES=docs/images takes the pictures of docs/how-to/read-the-report.md anew.
PICTURES = os.environ.get("RANKTRIAL_PICTURES")
PHONE = {"viewport": {"width": 390, "height": 844}}
DESKTOP = {"viewport": {"width": 1200, "height": 1250}}
GROUPS = ("assumptions", "data", "visitors")


def search_and_click(address: str, name: str, visitors: range) -> None:
    """All search for the same and click on the first result."""
    with httpx.Client(base_url=address, timeout=60) as client:
        for visitor in visitors:
            body = {"query": EVIL, "a": ["x", "y", "z"], "b": ["z", "y", "x"], "unit": f"new-{visitor}"}
            shown = client.post(f"/v1/trials/{name}/rank", json=body).raise_for_status().json()
            event = {"id": shown["id"], "document": shown["ranking"][0]}
            client.post("/v1/events", json=[event]).raise_for_status()


def take_picture(page: Page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / name)


def figures(page: Page) -> Locator:
    return page.locator("#figures dd")


def check_content(page: Page, report: dict[str, Any]) -> None:
    """Headline, lift, dates, the band, position bias, guardrails, queries and history of this report are on the page."""
    for part, text in report["text"].items():
        expect(page.locator(f"#{part}")).to_have_text(text)
    expect(page.locator("#warning")).to_have_text(report["pace"]["warning"])
    expect(page.locator("#visitors")).to_have_text(report["visitors"]["text"])
    expect(page.locator("#name")).to_have_text("shoes-v2")
    expect(page.locator("#about")).to_contain_text("B (with popularity) against A (current), running")
    decision, pace = report["decision"], report["pace"]
    (low, high), daily = decision["interval"], pace["searches_a_day"]
    lift, ends = decision["lift"]["share"], decision["lift"]["interval"]
    for number, text in enumerate(
        (
            f"{lift:+.1%}95% interval {ends[0]:+.1%} to {ends[1]:+.1%}",
            f"{decision['difference']:+.4f}{low:+.4f} to {high:+.4f}"
            f"{decision['difference'] * daily:+,.0f} clicks a day ({low * daily:+,.0f} to {high * daily:+,.0f})",
            "decided",
            f"{report['impressions']:,}of {report['units']:,} visitors{report['clicks']:,} clicks, ",
            "18 Nov 2026, 16:42 UTC",
            f"{pace['days']:.1f} dayssince 16 Nov 2026, 12:02 UTC{daily:,.0f} searches a day",
        )
    ):
        expect(figures(page).nth(number)).to_contain_text(text.replace("-", "−"))
    expect(page.locator("#band path.band")).to_have_count(1)
    points = page.locator("#band path.line").get_attribute("d")
    assert points is not None
    known = [point for point in report["band"] if point["low"] is not None]
    assert len(re.findall(r"[ML]", points)) == len(known) > 10
    dates = page.locator("#band svg text").all_text_contents()
    assert {"16 Nov", "17 Nov"} & set(dates)
    expect(page.locator("#band-table tbody tr")).to_have_count(len(known))
    expect(page.locator("#theta circle")).to_have_count(8)
    for group in GROUPS:
        of_group = [one for one in report["guardrails"] if one["group"] == group]
        for place, some in (
            ("open", [one for one in of_group if one["status"] != "pass"]),
            ("pass", [one for one in of_group if one["status"] == "pass"]),
        ):
            shown = page.locator(f"#{group}-{place} li")
            expect(shown).to_have_count(len(some))
            texts = shown.all_text_contents()
            for guardrail in some:
                (row,) = [text for text in texts if guardrail["text"] in text and guardrail["name"] in text]
                assert guardrail["title"] in row
                assert guardrail["cause"] in row
                assert guardrail["remedy"] in row
        if any(one["status"] == "pass" for one in of_group):
            expect(page.locator(f"#{group}-count")).to_be_hidden()  # folded
            expect(page.locator(f"#{group}-pass")).to_be_hidden()
    expect(page.locator("#checks-count")).to_be_visible()
    queries = page.locator("#contributors tbody td:first-child").all_inner_texts()
    assert queries == [one["label"] for one in report["contributors"]]
    done = page.locator("#history tbody tr").all_text_contents()
    assert len(done) == len(report["history"])
    assert all(entry["who"] in row for entry, row in zip(reversed(report["history"]), done))


def test_the_page_shows_the_report_and_asks_nobody_else(browser: Browser, address: str) -> None:
    watched = Watched.open(browser, **DESKTOP)
    answer = watched.page.goto(f"{address}/#shoes-v2")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    watched.page.wait_for_selector("#band svg")
    report = httpx.get(f"{address}/v1/trials/shoes-v2/report", timeout=60).json()
    check_content(watched.page, report)
    assert watched.page.locator("nav a").all_inner_texts() == ["All trials"]
    take_picture(watched.page, "page-desktop.png")
    assert watched.complaints == []
    assert watched.outside == []
    paths = {urlsplit(url).path for url in watched.requests if not url.startswith("data:")}
    assert paths == {"/", *(f"/page/{name}" for name in KINDS), "/v1/trials", "/v1/trials/shoes-v2/report"}


def test_new_clicks_appear_by_themselves(browser: Browser, address: str) -> None:
    watched = Watched.open(browser, **DESKTOP)
    watched.page.goto(f"{address}/#empty")
    expect(watched.page.locator("#headline")).to_have_text("No searches yet.")
    expect(watched.page.locator("#next")).to_have_text("Send searches to the trial.")
    expect(watched.page.locator("#band")).to_have_text("There is no interval yet.")
    expect(watched.page.locator("#guardrails-text")).to_have_text("There is nothing to check before the first search.")
    expect(watched.page.locator("#checks")).to_be_hidden()
    search_and_click(address, "empty", range(3))
    expect(watched.page.locator("#headline")).to_have_text("Too early to say after 3 searches and 3 clicks.")
    expect(figures(watched.page).nth(3)).to_contain_text("3of 3 visitors")
    expect(figures(watched.page).nth(4)).to_have_text(re.compile(r"^(just now|\d+ seconds? ago).* UTCit was clicked$"))
    expect(figures(watched.page).nth(5)).to_have_text(re.compile(r"^(\d+ seconds?|[1-9][\d.]* minutes?)since"))
    watched.page.locator("#checks-count").click()
    grey = watched.page.evaluate("getComputedStyle(document.querySelector('#about')).color")
    unknown = watched.page.locator("#guardrails .unknown").first
    assert unknown.evaluate("one => getComputedStyle(one).color") == grey
    expect(watched.page.locator("#contributors tbody td:first-child")).to_have_text(EVIL)
    assert watched.page.title() == "empty – ranktrial"
    assert watched.complaints == []


def test_the_overview_names_every_trial_with_its_answer(browser: Browser, store: Path, tmp_path: Path) -> None:
    """Where there are several; those that run come first, and what has stopped says so."""
    path = tmp_path / "t.db"
    for suffix in ("", "-wal", "-shm"):
        if (file := Path(f"{store}{suffix}")).exists():
            (tmp_path / f"t.db{suffix}").write_bytes(file.read_bytes())
    Trial.create(path, name="a trial & <b>", k=3, background=False).close()
    with serving(path) as client:
        client.post("/v1/trials/worse/stop", json={"show": "B"}).raise_for_status()
        watched = Watched.open(browser, **DESKTOP)
        page = watched.page
        page.goto(f"{client.base_url}/")
        rows = page.locator("#list tbody tr")
        expect(rows).to_have_count(4)
        assert rows.locator("a").all_inner_texts() == ["a trial & <b>", "empty", "shoes-v2", "worse"]
        for number, name in enumerate(["a trial & <b>", "empty", "shoes-v2", "worse"]):
            report = client.get(f"/v1/trials/{quote(name)}/report").json()
            expect(rows.nth(number)).to_contain_text(report["text"]["headline"])
            expect(rows.nth(number)).to_contain_text(f"{report['impressions']:,}")
            expect(rows.nth(number)).to_contain_text("stopped, shows B" if name == "worse" else "running")
        expect(page.locator("#report")).to_be_hidden()
        expect(page.locator("nav")).to_be_hidden()
        assert page.title() == "Trials – ranktrial"
        for name in ("shoes-v2", "a trial & <b>"):
            page.get_by_role("link", name=name, exact=True).click()
            expect(page.locator("#name")).to_have_text(name)
            expect(page.locator("#overview")).to_be_hidden()
            page.get_by_role("link", name="All trials").click()
            expect(rows).to_have_count(4)
            expect(page.locator("#report")).to_be_hidden()
        page.goto(f"{client.base_url}/#gone")
        expect(page.locator("#notice")).to_have_text("There is no trial gone.")
        expect(rows).to_have_count(4)
        assert watched.complaints == []
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate(BEYOND) == []


def test_the_overview_warns_of_searches_that_have_stopped(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    for name in ("hats", "shoes"):
        with Trial.create(path, name=name, k=3, background=False, clock=Ticks(start=1_700_000_000.0)) as trial:
            for number in range(3 if name == "shoes" else 0):
                trial.rank("q", ["x", "y"], ["y", "x"], unit=f"u{number}", wait=True)
    with serving(path) as client:
        page = Watched.open(browser, **DESKTOP).page
        page.goto(f"{client.base_url}/")
        expect(page.locator("#list .warn")).to_have_count(1)
        expect(page.locator("#list tr", has_text="shoes")).to_contain_text("Does the site still call the trial?")
        expect(page.locator("#list tr", has_text="shoes")).to_contain_text(re.compile(r"\d+ days ago"))
        page.get_by_role("link", name="shoes").click()
        expect(page.locator("#warning")).to_contain_text("No search for")
        assert "pace so far" not in page.locator("body").inner_text()


def test_one_trial_is_shown_at_once(browser: Browser, tmp_path: Path) -> None:
    Trial.create(tmp_path / "t.db", name="hats", k=3, background=False).close()
    with serving(tmp_path / "t.db") as client:
        page = Watched.open(browser, **DESKTOP).page
        page.goto(f"{client.base_url}/")
        expect(page.locator("#name")).to_have_text("hats")
        expect(page.locator("nav")).to_be_hidden()
        expect(page.locator("#overview")).to_be_hidden()
        expect(page.locator("#notice")).to_be_hidden()


BEYOND = """() => [...document.querySelectorAll("main *, header *")].filter(one => {
    const { left, right, width } = one.getBoundingClientRect();
    const scrolls = one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== "visible";
    return width > 0 && (left < -0.5 || right > innerWidth + 0.5 || scrolls) && !one.closest("clipPath, [clip-path]");
}).map(one => `${one.tagName} ${one.className.baseVal ?? one.className} ${one.textContent.slice(0, 40)}`)"""


@pytest.mark.parametrize("name", ["shoes-v2", "worse", "empty"])
def test_on_a_phone_nothing_is_cut_off(browser: Browser, address: str, name: str) -> None:
    watched = Watched.open(browser, **PHONE, color_scheme="dark")
    watched.page.goto(f"{address}/#{name}")
    expect(watched.page.locator("#name")).to_have_text(name)
    if name == "shoes-v2":
        watched.page.wait_for_selector("#band svg")
        take_picture(watched.page, "page-phone.png")
    assert watched.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 25, 28)"
    watched.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert watched.page.evaluate("document.documentElement.scrollWidth") == 390
    assert watched.page.evaluate(BEYOND) == []
    if name == "shoes-v2":
        watched.page.set_viewport_size({"width": 800, "height": 600})
        expect(watched.page.locator("#band svg")).to_have_attribute("width", re.compile("^7"))  # drawn anew
    assert watched.complaints == []


def test_everything_is_of_b_against_a(browser: Browser, address: str) -> None:
    watched = Watched.open(browser, **DESKTOP)
    page = watched.page
    page.goto(f"{address}/#shoes-v2")
    report = httpx.get(f"{address}/v1/trials/shoes-v2/report", timeout=60).json()
    assert (report["decision"]["winner"], report["decision"]["interval"][0] > 0) == ("B", True)
    expect(page.locator("#headline")).to_have_text(
        re.compile(r"B \(with popularity\) gets \d+% more clicks than A \(current\)\.")
    )
    expect(page.locator("#next")).to_have_text(re.compile(r"^Ship B \(with popularity\)"))
    expect(page.locator("#verdict")).to_have_class("of-b")
    assert "↑ B gets more" in (page.locator("#band svg").text_content() or "")
    expect(page.locator("#band-text")).to_have_text(re.compile(r"after 1,500 visitors: \+0\.\d+, \+0\.\d+ to \+0"))
    last = page.locator("#band-table tbody tr").last.locator("td.number").all_text_contents()
    assert all(text.startswith("+") for text in last[1:])


def test_a_check_that_fails_is_in_front(browser: Browser, address: str) -> None:
    watched = Watched.open(browser, **DESKTOP)
    page = watched.page
    page.goto(f"{address}/#worse")
    expect(page.locator("#headline")).to_have_text('Do not rely on these numbers: "Every click is sent once" fails.')
    expect(page.locator("#next")).to_contain_text("Do not cache")
    expect(page.locator("#verdict")).to_have_class("fail")
    failed = page.locator("#data-open li").first
    expect(failed).to_be_visible()
    expect(failed).to_contain_text("✕ fails")
    expect(failed).to_contain_text("Likely cause: A cached page shares its id")
    expect(failed).to_contain_text("What to do: Do not cache")


def test_strangers_queries_are_cut_and_turn_nothing(browser: Browser, address: str) -> None:
    watched = Watched.open(browser, **PHONE)
    page = watched.page
    page.goto(f"{address}/#worse")
    long = page.locator("#contributors bdi", has_text="trail running")
    expect(long).to_have_text(re.compile(r"^.{60,80}…$"))
    expect(page.locator("#contributors bdi", has_text="gnp.exe")).to_have_text("photo gnp.exe")
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", page.locator("body").text_content() or "")


@pytest.mark.parametrize(
    ("button", "file", "begins"),
    [
        ("Report", "shoes-v2-report.html", "<!doctype html>"),
        ("CSV", "shoes-v2-report.csv", "part,name,time,units,"),
        ("JSON", "shoes-v2-report.json", '{"trial":"shoes-v2"'),
    ],
)
def test_report_and_numbers_are_downloaded(
    browser: Browser, address: str, tmp_path: Path, button: str, file: str, begins: str
) -> None:
    watched = Watched.open(browser, **DESKTOP)
    watched.page.goto(f"{address}/#shoes-v2")
    with watched.page.expect_download() as waiting:
        watched.page.get_by_role("button", name=button, exact=True).click()
    waiting.value.save_as(tmp_path / file)
    assert waiting.value.suggested_filename == file
    assert (tmp_path / file).read_text(encoding="utf-8").startswith(begins)
    assert watched.complaints == []
    if button == "Report":  # it shows the same, and has nothing to press
        watched.page.goto((tmp_path / file).as_uri())
        expect(watched.page.locator("#headline")).to_contain_text("more clicks than")
        expect(watched.page.locator("#actions")).to_be_hidden()


def test_who_may_can_stop_a_trial(browser: Browser, tmp_path: Path) -> None:
    """With a key for that, after a question, and once; the history names the key and the reason."""
    Trial.create(tmp_path / "t.db", name="hats", k=3, names=("old", "new"), background=False).close()
    keys = KeyFile(tmp_path / "keys")
    reader, admin = keys.add("dashboard", ["read"]), keys.add("ann", ["read", "admin"])
    with serving(tmp_path / "t.db", keys=keys) as client:
        for key, may in ((reader, False), (admin, True)):
            page = Watched.open(browser, **PHONE).page
            page.goto(f"{client.base_url}/#hats")
            page.get_by_label("API key").fill(key)
            page.get_by_role("button", name="Show trials").click()
            expect(page.locator("#about")).to_contain_text("B (new) against A (old), running")
            expect(page.get_by_role("button", name="CSV")).to_be_visible()
            expect(page.locator("#stop")).to_be_visible() if may else expect(page.locator("#stop")).to_be_hidden()
        page.locator("#stop").click()
        expect(page.locator("#stop-title")).to_have_text("Stop hats?")
        expect(page.get_by_label("A (old)")).to_be_checked()  # nobody has won
        expect(page.locator("#stop-text")).to_contain_text("No winner is named. Everybody gets the list of A (old)")
        page.get_by_role("button", name="Let it run").click()
        expect(page.locator("#stop-dialog")).to_be_hidden()
        authorized = {"Authorization": f"Bearer {admin}"}
        assert not client.get("/v1/trials/hats", headers=authorized).json()["stopped"]
        page.locator("#stop").click()
        page.get_by_label("B (new)").check()
        expect(page.locator("#stop-text")).to_contain_text("Everybody gets the list of B (new)")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.locator("#stop-reason").fill("B is better")
        page.get_by_role("button", name="Stop and show B").click()
        expect(page.locator("#about")).to_contain_text("stopped, shows B")
        expect(page.locator("#next")).to_have_text("The trial is stopped and shows B (new).")
        expect(page.locator("#stop")).to_be_hidden()
        expect(page.locator("#history tbody tr").first).to_contain_text(f"key {admin.split('_')[1]} (ann)")
        expect(page.locator("#history tbody tr").first).to_contain_text("B is better")
        expect(page.locator("#history tbody tr").first).to_contain_text("B is shown from now on")
        now = client.get("/v1/trials/hats", headers=authorized).json()
        assert (now["stopped"], now["shows"]) == (True, "B")


def test_who_may_can_change_the_share(browser: Browser, tmp_path: Path) -> None:
    """The page says who takes part, and what another share does to those who do; the history says who asked for it and why."""
    with Trial.create(tmp_path / "t.db", name="hats", k=3, share=0.1, names=("old", "new"), background=False):
        pass
    with serving(tmp_path / "t.db") as client:
        watched = Watched.open(browser, **PHONE)
        page = watched.page
        page.goto(f"{client.base_url}/#hats")
        expect(page.locator("#course")).to_have_text("10% of the visitors take part.")
        page.locator("#share").click()
        number, confirm = page.get_by_label("Share of the visitors"), page.locator("#share-confirm")
        expect(number).to_have_value("10")
        expect(confirm).to_be_disabled()
        for value, told in (
            ("5", "Some who take part now leave"),
            ("101", ""),
            ("", ""),
            ("50", "All who take part now stay in"),
        ):
            number.fill(value)
            expect(page.locator("#share-text")).to_contain_text(told)
            expect(page.locator("#share-text")).to_contain_text("Everybody else sees the list of A (old)")
            expect(confirm).to_be_enabled() if told else expect(confirm).to_be_disabled()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.get_by_role("button", name="Leave it").click()
        expect(page.locator("#share-dialog")).to_be_hidden()
        assert client.get("/v1/trials/hats").json()["config"]["share"] == 0.1
        page.locator("#share").click()
        number.fill("50")
        page.locator("#share-reason").fill("a day without complaints")
        number.press("Enter")
        expect(page.locator("#course")).to_have_text("50% of the visitors take part.")
        expect(page.locator("#history tbody tr").first).to_contain_text("share: 0.1 → 0.5")
        expect(page.locator("#history tbody tr").first).to_contain_text("a day without complaints")
        assert client.get("/v1/trials/hats").json()["config"]["share"] == 0.5
        assert watched.complaints == []


def test_the_winner_is_what_stopping_shows_unless_one_says_otherwise(browser: Browser, address: str) -> None:
    watched = Watched.open(browser, **DESKTOP)
    page = watched.page
    asked: list[Any] = []

    def answer(route: Route) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(body="{}")

    page.route("**/stop", answer)
    page.goto(f"{address}/#shoes-v2")
    for choice in ("B (with popularity)", "A (current)"):
        page.locator("#stop").click()
        expect(page.get_by_label("B (with popularity)")).to_be_checked()
        expect(page.locator("#stop-text")).to_contain_text("B (with popularity) gets more clicks.")
        page.get_by_label(choice).check()
        page.get_by_role("button", name=f"Stop and show {choice[0]}").click()
        expect(page.locator("#stop-dialog")).to_be_hidden()
    assert asked == [{"reason": "", "show": "B"}, {"reason": "", "show": "A"}]


def test_no_other_site_can_stop_a_trial(browser: Browser, tmp_path: Path) -> None:
    """A form of another page, in a browser that may ask this service without a key."""
    Trial.create(tmp_path / "t.db", name="hats", k=3, background=False).close()
    with serving(tmp_path / "t.db") as client, serving(tmp_path / "other.db") as other:
        page = Watched.open(browser, **DESKTOP).page
        page.route(
            "**/evil.html",
            lambda route: route.fulfill(
                content_type="text/html",
                body=f"<form method=post action={client.base_url}/v1/trials/hats/stop><button>Win",
            ),
        )
        page.goto(f"{other.base_url}/evil.html")
        with page.expect_response("**/stop") as answered:
            page.get_by_role("button").click()
        assert answered.value.status == 403
        assert not client.get("/v1/trials/hats").json()["stopped"]
        assert client.post("/v1/trials/hats/stop").status_code == 200  # a programme, which no page tells what to do


def test_the_report_file_shows_the_same_without_any_request(browser: Browser, store: Path, tmp_path: Path) -> None:
    with Trial.open(store, "shoes-v2", background=False) as trial:
        report = trial.report(query_units=1)
    file = report.to_html(tmp_path / "report.html")
    watched = Watched.open(browser, **DESKTOP)
    watched.page.goto(file.as_uri())
    check_content(watched.page, report.to_dict())
    assert watched.complaints == []
    assert [url for url in watched.requests if not url.startswith("data:")] == [file.as_uri()]


def test_a_query_with_a_tag_in_it_stays_text(browser: Browser, tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", k=3, background=False) as trial:
        shown = trial.rank(EVIL, ["x", "y", "z"], ["z", "y", "x"], wait=True)
        trial.click(shown.id, "x")
        file = trial.report(query_units=1).to_html(tmp_path / "report.html")
    watched = Watched.open(browser, **DESKTOP)
    watched.page.goto(file.as_uri())
    expect(watched.page.locator("#contributors tbody td:first-child")).to_have_text(EVIL)
    assert watched.page.title() == "trial – ranktrial"
    assert watched.complaints == []


def test_a_key_is_asked_for_and_stays_in_the_tab(browser: Browser, store: Path, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys")
    reader, writer = keys.add("dashboard", ["read"]), keys.add("page", ["ingest"])
    with serving(store, keys=keys) as client:
        watched = Watched.open(browser, **DESKTOP)
        page = watched.page
        page.goto(f"{client.base_url}/#shoes-v2")
        for key, said in (("nonsense", "no valid API key"), (writer, "may ingest")):
            page.get_by_label("API key").fill(key)
            page.get_by_role("button", name="Show trials").click()
            expect(page.locator("#notice")).to_contain_text(said)
            expect(page.locator("#report")).to_be_hidden()
        page.get_by_label("API key").fill(reader)
        page.get_by_role("button", name="Show trials").click()
        expect(page.locator("#details")).to_contain_text("clicks per search")
        expect(page.locator("#key")).to_be_hidden()
        assert page.evaluate("localStorage.length + document.cookie.length") == 0
        page.reload()
        expect(page.locator("#details")).to_contain_text("clicks per search")
        keys.revoke(reader.split("_")[1])
        expect(page.locator("#key")).to_be_visible(timeout=30_000)
        expect(page.locator("#report")).to_be_hidden()
        other = keys.add("another", ["read"])
        while client.get("/v1/trials", headers={"Authorization": f"Bearer {other}"}).status_code == 401:
            page.wait_for_timeout(50)  # a running service knows it within a second
        page.get_by_label("API key").fill(other)
        page.get_by_role("button", name="Show trials").click()
        expect(page.locator("#report")).to_be_visible(timeout=30_000)  # also where it is the same as before
        page.context.close()


def test_a_lost_service_is_said_and_found_again(browser: Browser, address: str) -> None:
    watched = Watched.open(browser, **DESKTOP)
    page = watched.page
    page.goto(f"{address}/#shoes-v2")
    page.wait_for_selector("#band svg")
    page.route("**/v1/**", lambda route: route.abort())
    expect(page.locator("#notice")).to_contain_text("Trying again")
    expect(page.locator("#report")).to_be_visible()  # what was known stays
    page.unroute("**/v1/**")
    expect(page.locator("#notice")).to_be_hidden()


def contrast(one: list[float], other: list[float]) -> float:
    """Contrast of two colours, by WCAG 2."""

    def light(colour: list[float]) -> float:
        parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser: Browser, address: str, scheme: str) -> None:
    watched = Watched.open(browser, **DESKTOP, color_scheme=scheme)
    watched.page.goto(f"{address}/#shoes-v2")
    names = ["--ink", "--faint", "--link", "--pass", "--warn", "--fail", "--a", "--b", "--paper", "--card"]
    script = "names => names.map(name => getComputedStyle(document.documentElement).getPropertyValue(name).trim())"
    colours = {
        name: [float(int(text[i : i + 2], 16)) for i in (1, 3, 5)]
        for name, text in zip(names, watched.page.evaluate(script, names))
    }
    for name in names[:-2]:
        for ground in ("--paper", "--card"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)


@pytest.mark.slow
def test_the_report_file_has_its_text_without_script(store: Path) -> None:
    with Trial.open(store, "shoes-v2", background=False) as trial:
        report = trial.report()
    html = report_html(report.to_dict(), str(report))
    assert report.verdict in html
    data = re.search(r'id="data"[^>]*>(.*?)</script>', html)
    assert data is not None
    assert json.loads(data[1]) == json.loads(json.dumps(report.to_dict()))
    assert html.count("<script") == 2
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
