"""What people see in a browser: the live page and the report file, on a desktop and on a phone, asking nobody outside."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from browser.tools import EVIL, Watched
from live_server import serving
from ranktrial.charts.live_page import report_html
from ranktrial.live import Trial
from ranktrial.live.api_keys import KeyFile
from ranktrial.live.service.page import KINDS

# RANKTRIAL_PICTURES=docs/images takes the pictures of docs/page.md anew.
PICTURES = os.environ.get("RANKTRIAL_PICTURES")
PHONE = {"viewport": {"width": 390, "height": 844}}
DESKTOP = {"viewport": {"width": 1100, "height": 1250}}


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
    """The verdict, the band, position bias, guardrails and queries of this report are on the page."""
    expect(page.locator("#verdict")).to_have_text(report["verdict"])
    expect(page.locator("#visitors")).to_have_text(report["visitors"]["text"])
    expect(page.locator("#name")).to_have_text("shoes-v2")
    expect(page.locator("#band path.band")).to_have_count(1)
    points = page.locator("#band path.line").get_attribute("d")
    assert points is not None
    known = [point for point in report["band"] if point["low"] is not None]
    assert len(re.findall(r"[ML]", points)) == len(known) > 10
    expect(page.locator("#band-table tbody tr")).to_have_count(len(known))
    expect(page.locator("#theta circle")).to_have_count(8)
    shown = page.locator("#guardrails li")
    expect(shown).to_have_count(len(report["guardrails"]))
    texts = shown.all_inner_texts()
    for guardrail in report["guardrails"]:
        (row,) = [text for text in texts if guardrail["text"] in text]
        assert guardrail["name"] in row
        assert guardrail["status"] in row
    queries = page.locator("#contributors tbody td:first-child").all_inner_texts()
    assert queries == [one["query"] for one in report["contributors"]]


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
    assert watched.page.locator("nav a").all_inner_texts() == ["empty", "shoes-v2"]
    expect(watched.page.locator("nav a[aria-current]")).to_have_text("shoes-v2")
    take_picture(watched.page, "page-desktop.png")
    assert watched.complaints == []
    assert watched.outside == []
    paths = {urlsplit(url).path for url in watched.requests if not url.startswith("data:")}
    assert paths == {"/", *(f"/page/{name}" for name in KINDS), "/v1/trials", "/v1/trials/shoes-v2/report"}


def test_new_clicks_appear_by_themselves(browser: Browser, address: str) -> None:
    watched = Watched.open(browser, **DESKTOP)
    watched.page.goto(f"{address}/#empty")
    expect(watched.page.locator("#verdict")).to_have_text("No impressions yet.")
    expect(watched.page.locator("#band")).to_contain_text("The first interval comes after 100 units")
    search_and_click(address, "empty", range(3))
    expect(watched.page.locator("#verdict")).to_have_text("Too early to say after 3 impressions and 3 clicks.")
    expect(figures(watched.page).nth(2)).to_contain_text("3")
    grey = watched.page.evaluate("getComputedStyle(document.querySelector('#about')).color")
    unknown = watched.page.locator("#guardrails .unknown").first
    assert unknown.evaluate("one => getComputedStyle(one).color") == grey
    expect(watched.page.locator("#contributors tbody td:first-child")).to_have_text(EVIL)
    assert watched.page.title() == "empty – ranktrial"
    watched.page.get_by_role("link", name="shoes-v2").click()
    expect(watched.page.locator("#name")).to_have_text("shoes-v2")
    assert watched.complaints == []


def test_a_phone_shows_it_without_scrolling_sideways(browser: Browser, address: str) -> None:
    watched = Watched.open(browser, **PHONE, color_scheme="dark")
    watched.page.goto(f"{address}/#shoes-v2")
    watched.page.wait_for_selector("#band svg")
    assert watched.page.evaluate("document.documentElement.scrollWidth") == 390
    assert watched.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 25, 28)"
    take_picture(watched.page, "page-phone.png")
    watched.page.set_viewport_size({"width": 800, "height": 600})
    expect(watched.page.locator("#band svg")).to_have_attribute(
        "width", re.compile("^7")
    )  # drawn anew to the new width
    assert watched.complaints == []


def test_the_report_file_shows_the_same_without_any_request(browser: Browser, store: Path, tmp_path: Path) -> None:
    with Trial.open(store, "shoes-v2", background=False) as trial:
        report = trial.report()
    file = report.to_html(tmp_path / "report.html")
    watched = Watched.open(browser, **DESKTOP)
    watched.page.goto(file.as_uri())
    check_content(watched.page, report.to_dict())
    assert watched.complaints == []
    assert [url for url in watched.requests if not url.startswith("data:")] == [file.as_uri()]


def test_a_query_with_a_tag_in_it_stays_text(browser: Browser, tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", k=3, background=False) as trial:
        trial.rank(EVIL, ["x", "y", "z"], ["z", "y", "x"], wait=True)
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
        for key, said in (("nonsense", "no key that is known"), (writer, "may ingest")):
            page.get_by_label("API key").fill(key)
            page.get_by_role("button", name="Show trials").click()
            expect(page.locator("#notice")).to_contain_text(said)
            expect(page.locator("#report")).to_be_hidden()
        page.get_by_label("API key").fill(reader)
        page.get_by_role("button", name="Show trials").click()
        expect(page.locator("#verdict")).to_contain_text("clicks per impression")
        expect(page.locator("#key")).to_be_hidden()
        assert page.evaluate("localStorage.length + document.cookie.length") == 0
        page.reload()
        expect(page.locator("#verdict")).to_contain_text("clicks per impression")
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
    """Of two colours, by WCAG 2."""

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
