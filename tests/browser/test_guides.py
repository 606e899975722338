"""The guide on browsers, gone through in one: a click that leads away is counted, and what the page shows is as drawn."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from browser.tools import Watched
from documents import ROOT, Reader, blocks_of

GUIDE = ROOT / "docs/how-to/browsers.md"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_click_that_leaves_the_page_is_counted(browser: Browser, tmp_path: Path) -> None:
    with Reader(tmp_path, GUIDE.read_text(encoding="utf-8"), {}, {}) as reader:
        for block in blocks_of(GUIDE):
            reader.run(block)
        page = Watched.open(browser).page
        page.goto(reader.here("http://127.0.0.1:8080/"))
        page.locator("[data-document]").nth(1).click()
        page.wait_for_url("**/item")
        page.context.close()
        with httpx.Client(base_url=reader.here("http://127.0.0.1:8000"), timeout=60) as service:
            taken: dict[str, int] = {}
            for _ in range(5_000):  # the page has passed them on and gone; they are on their way
                lines = service.get("/metrics").text.splitlines()
                events = [line.split('"') for line in lines if line.startswith("ranktrial_events_total{")]
                taken = {outcome: int(float(count.split()[-1])) for _, outcome, count in events}
                if sum(taken.values()) == 2:
                    break
        assert taken == {"counted": 1, "as drawn": 1}
