"""The guide on browsers, gone through in one: a click that leads away is counted, and what the page shows is as drawn."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from browser.tools import Watched
from documents import ROOT, Reader
from page_blocks import BLOCKS, REPLACED

GUIDE = ROOT / "docs/how-to/browsers.md"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_click_that_leaves_the_page_is_counted(browser: Browser, tmp_path: Path) -> None:
    with Reader(tmp_path, GUIDE.read_text(encoding="utf-8"), REPLACED, {}) as reader:
        for block in BLOCKS[GUIDE]:
            reader.run(block)
        page = Watched.open(browser).page
        page.goto(reader.here("http://127.0.0.1:8080/"))
        page.locator("[data-document] a").nth(1).click()
        page.wait_for_url("**/item")
        page.context.close()
        with httpx.Client(base_url=reader.here("http://127.0.0.1:8000"), timeout=60) as service:
            taken: dict[str, int] = {}
            for _ in range(5_000):  # the page has sent them and is gone; they are on their way
                lines = service.get("/metrics").text.splitlines()
                events = [line.split('"') for line in lines if line.startswith("ranktrial_events_total{")]
                taken = {outcome: int(float(count.split()[-1])) for _, outcome, count in events}
                if sum(taken.values()) == 4:
                    break
        assert taken == {"counted": 2, "not shown": 1, "as drawn": 1}  # two of them are the guide's own
