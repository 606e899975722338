"""A store with trials, the service that shows them on a loopback port, and Debian's Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from browser.tools import WORLD
from live_server import serving
from ranktrial.live import Trial

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--ignore-certificate-errors",  # of a service on the loopback, whose certificate is made for the test
]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trial with 1,500 impressions, and one with none."""
    path = tmp_path_factory.mktemp("browser") / "t.db"
    with Trial.create(path, name="shoes-v2", k=8, seed=1, smallest=0.05, background=False) as trial:
        WORLD.run(trial, 1_500, seed=1)
        trial.update()
    Trial.create(path, name="empty", k=3, seed=1, background=False).close()
    return path


@pytest.fixture(scope="package")
def address(store: Path) -> Iterator[str]:
    with serving(store, query_units=1) as client:
        yield str(client.base_url)
