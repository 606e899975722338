"""The JavaScript client in a real browser, on a site of another origin than the service: all clicks arrive, nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from browser.site import LATENCY, OLD_BROWSER, PLAIN_FETCH, World, running_site, world_of_clicks
from browser.tools import Watched

CLICKS = 8  # `python -m benchmarks clicks` makes 1,000


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl on this machine, which makes the certificate")
    with world_of_clicks(tmp_path_factory.mktemp("clicks"), LATENCY) as made:
        yield made


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    opened = Watched.open(browser)
    yield opened
    opened.page.context.close()


def test_no_click_is_lost_to_navigation(world: World, watched: Watched) -> None:
    page, before = watched.page, world.events()
    world.click_and_leave(page, CLICKS)
    world.wait_for(page, before, counted=CLICKS, as_drawn=CLICKS)
    assert world.misplaced() == 0
    assert watched.complaints == []


def test_without_keepalive_beacons_are_sent(world: World, watched: Watched) -> None:
    page, before = watched.page, world.events()
    page.add_init_script(OLD_BROWSER)
    world.click_and_leave(page, CLICKS)
    world.wait_for(page, before, counted=CLICKS, as_drawn=CLICKS)


def test_a_plain_fetch_would_lose_clicks(world: World, watched: Watched) -> None:
    """Counterpart of the two tests above: the client does nothing about it."""
    page, before = watched.page, world.events()
    page.add_init_script(PLAIN_FETCH)
    world.click_and_leave(page, CLICKS)
    page.wait_for_timeout(3_000 * LATENCY)
    assert world.new(before).get("counted", 0) < CLICKS


def test_a_click_survives_the_end_of_its_tab(world: World, watched: Watched) -> None:
    """The tab closes itself: Chromium sometimes forgets to close one from outside that is about to show another page."""
    page, before = watched.page, world.events()
    with page.expect_popup() as opened:
        page.evaluate("() => void window.open('about:blank')")
    tab = opened.value
    world.visit(tab)
    with tab.expect_event("close"):
        tab.evaluate("setTimeout(() => { document.querySelector('#results a').click(); window.close() })")
    world.wait_until(page, before, counted=1)  # perhaps twice, which counts once


@pytest.mark.parametrize(
    "how",
    [
        {"button": "middle"},
        {"modifiers": ["ControlOrMeta"]},
        "keyboard",
        {"click_count": 3},
        {"position": {"x": 1, "y": 1}},
    ],
)
def test_every_way_to_click_counts_once(world: World, watched: Watched, how: Any) -> None:
    page, before = watched.page, world.events()
    world.visit(page)
    result = page.locator("#results a").nth(1)
    if how == "keyboard":
        result.focus()
        page.keyboard.press("Enter")
    else:
        result.click(**how)
    world.wait_for(page, before, counted=1, as_drawn=1)


def test_nothing_else_is_a_click(world: World, watched: Watched) -> None:
    page, before = watched.page, world.events()
    world.visit(page)
    page.locator("#elsewhere").click()
    page.locator("#results a").first.click(button="right")
    page.locator("#results a").first.hover()
    world.wait_for(page, before, as_drawn=1)


def test_results_that_a_script_makes(world: World, watched: Watched) -> None:
    """A page that changes its results without being loaded again, and its second page."""
    page, before = watched.page, world.events()
    world.visit(page)
    asked = {"query": "q", "a": ["x", "y", "z", "w"], "b": ["z", "y", "x", "v"], "unit": "script"}
    shown = world.service.post("/v1/trials/t/rank", json=asked).json()
    show = """([shown, offset, size]) => {
        const list = document.querySelector("#results"), page = shown.ranking.slice(offset, offset + size);
        list.replaceChildren(...page.map((name) => Object.assign(document.createElement("li"), { textContent: name })));
        ranktrial.mark(list, { ...shown, ranking: page }, offset);
    }"""
    page.evaluate(show, [shown, 0, 2])
    page.locator("#results li").nth(1).click()
    page.evaluate(show, [shown, 2, 2])
    page.locator("#results li").first.click()
    page.locator("#results li").first.click()  # the same again
    world.wait_for(page, before, counted=2, as_drawn=2)
    assert world.misplaced() == 0


def test_a_list_that_was_not_drawn_sends_nothing(world: World, watched: Watched) -> None:
    page, before = watched.page, world.events()
    world.visit(page)
    world.wait_for(page, before, as_drawn=1)
    page.evaluate("ranktrial.mark(document.querySelector('#results'), { id: '', ranking: ['a0', 'a1', 'a2'] })")
    page.evaluate("document.querySelector('#results a').addEventListener('click', (event) => event.preventDefault())")
    page.locator("#results a").first.click()
    world.wait_for(page, before, as_drawn=1)


def test_clicks_wait_while_the_service_is_away(world: World, watched: Watched) -> None:
    page, before = watched.page, world.events()
    world.visit(page)
    world.wait_for(page, before, as_drawn=1)
    page.evaluate("document.querySelector('#results').addEventListener('click', (event) => event.preventDefault())")
    page.context.set_offline(True)
    page.locator("#results a").first.click()
    page.locator("#results a").nth(1).click()
    page.wait_for_timeout(700)
    page.context.set_offline(False)
    world.wait_for(page, before, as_drawn=1, counted=2)


def test_what_still_waits_goes_when_the_page_is_left(world: World, watched: Watched) -> None:
    page, before = watched.page, world.events()
    world.visit(page)
    world.wait_for(page, before, as_drawn=1)
    page.evaluate("""() => {
        const real = fetch;
        window.fetch = () => Promise.reject(new TypeError("away"));
        document.querySelector("#results").addEventListener("click", (event) => event.preventDefault());
    }""")
    page.locator("#results a").first.click()
    page.goto(f"{world.site.origin}/item/other")
    world.wait_for(page, before, as_drawn=1, counted=1)


def test_pages_of_other_sites_send_nothing(world: World, watched: Watched) -> None:
    before = world.events()
    with running_site() as other:
        other.service, other.beacons = world.service, world.site.beacons
        page = watched.page
        page.goto(f"{other.origin}/search?unit=stranger")
        page.wait_for_function("window.client")
        page.locator("#results a").first.click()
        page.wait_for_url("**/item/*")
        world.wait_for(page, before)
    assert (
        'ranktrial_requests_total{method="POST",route="/v1/beacon",status="403"}' in world.service.get("/metrics").text
    )


def test_the_page_holds_no_secret(world: World, watched: Watched) -> None:
    """Neither a key nor a cookie goes with a click, and no preflight before it."""
    page = watched.page
    page.context.add_cookies([{"name": "session", "value": "secret", "url": world.site.beacons}])
    world.visit(page)
    with page.expect_response(lambda response: "not-an-id" in (response.request.post_data or "")) as told:
        page.evaluate("client.click('not-an-id', 'x', 1)")
    sent = told.value.request
    headers = sent.all_headers()
    assert (sent.method, headers["origin"], headers["content-type"]) == (
        "POST",
        world.site.origin,
        "text/plain;charset=UTF-8",
    )
    assert not {"authorization", "cookie"} & headers.keys()
    assert told.value.json()["counts"] == {"not ours": 1}
