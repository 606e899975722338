"""Clicks that arrive though their page is left at once: real Chromium, a site of another origin, 0.25 s to connect.

Each click opens an item in place of the results. ``CLICKS`` sets how many; a tenth as many are made in a browser without
keepalive, and by a plain ``fetch`` for comparison.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from browser.conftest import ARGUMENTS
from browser.site import LATENCY, OLD_BROWSER, PLAIN_FETCH, world_of_clicks

CLICKS = int(os.environ.get("CLICKS", "1000"))
WAYS = (
    ("fetch with keepalive", "", CLICKS),
    ("sendBeacon, in a browser without it", OLD_BROWSER, max(CLICKS // 10, 1)),
    ("a plain fetch, for comparison", PLAIN_FETCH, max(CLICKS // 10, 1)),
)


def run() -> list[dict[str, Any]]:
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        world_of_clicks(Path(folder), LATENCY) as world,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        for name, script, clicks in WAYS:
            page = browser.new_page()
            page.add_init_script(script)
            before, began = world.events(), time.perf_counter()
            world.click_and_leave(page, clicks)
            seconds = time.perf_counter() - began
            page.wait_for_timeout(20_000 * LATENCY)  # for the last ones
            arrived = world.new(before).get("counted", 0)
            rows.append(
                {"sent by": name, "clicks": clicks, "arrived": arrived, "lost": clicks - arrived, "seconds": seconds}
            )
            page.close()
        browser.close()
    return rows
