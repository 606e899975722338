"""The search page in Node, started by its one command, in a real browser: a click that leads away is counted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from browser.tools import Watched
from example_runs import clicks_of, started


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")
def test_the_page_in_node(browser: Browser, tmp_path: Path) -> None:
    with started("node", tmp_path / "shop.db") as (shop, service):
        shop.get("/")  # it listens
        watched = Watched.open(browser)
        page = watched.page
        for _ in range(30):
            page.context.clear_cookies()
            page.goto(f"{shop.base_url}/?q=red+shoes")
            if page.locator("ol").get_attribute("data-impression"):  # else A's list, on a busy machine
                break
        expect(page.locator("ol a")).to_have_count(5)
        page.locator("ol a").nth(2).click()
        expect(page.locator("h1")).to_be_visible()
        report = clicks_of(service, 1)
        assert report["clicks"] == 1
        shows = next(one for one in report["guardrails"] if one["name"] == "the page shows what was drawn")
        assert shows["status"] != "fail"
        assert watched.complaints == []
        page.context.close()
