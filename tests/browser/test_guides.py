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
from ranktrial.store.base import EventRow
from ranktrial.trial import Trial

GUIDE = ROOT / "docs/how-to/browsers.md"
SHOP = ROOT / "docs/how-to/carts-and-orders.md"


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


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_product_is_found_clicked_put_into_the_cart_and_ordered(browser: Browser, tmp_path: Path) -> None:
    with Reader(tmp_path, SHOP.read_text(encoding="utf-8"), REPLACED, {}) as reader:
        for block in BLOCKS[SHOP][:4]:  # with its server in Node, before anything is bought without a browser
            reader.run(block)
        page = Watched.open(browser).page
        page.goto(reader.here("http://127.0.0.1:8080/"))
        result = page.locator("[data-document]").nth(1)
        bought = result.get_attribute("data-document")
        result.locator("a").click()
        page.wait_for_url("**/item?*")
        for button, after in (("Add to cart", "**/cart?*"), ("Order", "**/order")):
            page.get_by_role("button", name=button).click()
            page.wait_for_url(after)
        assert page.get_by_text("Thank you").is_visible()
        page.context.close()
        with httpx.Client(base_url=reader.here("http://127.0.0.1:8000"), timeout=60) as service:
            for _ in range(5_000):
                lines = service.get("/metrics").text.splitlines()
                if any(line == 'ranktrial_events_total{outcome="counted"} 3.0' for line in lines):
                    break
            report = service.get("/v1/trials/shop/report").json()
        assert (report["impressions"], report["clicks"]) == (1, 1)
        with Trial.open(tmp_path / "shop.db", background=False) as trial:
            rows = [
                (row.document, row.action, row.amount) for row in trial.store.rows(EventRow, trial.state.version.id, 0)
            ]
        prices = {"sku-1": 39_900_000, "sku-2": 12_500_000, "sku-3": 99_000_000, "sku-4": 5_000_000}
        assert sorted(rows) == [(bought, "cart", 0), (bought, "order", prices[str(bought)])]
