"""A store with trials, the service that shows them on a loopback port, and Debian's Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from browser.tools import BETTER_B, LONG, TURNED
from live_server import serving
from ranktrial.store.base import Click, ClickRow
from ranktrial.trial import Trial
from simulated_trial import minutes

expect.set_options(timeout=60_000)  # milliseconds: a busy machine must not fail a test
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
    """A trial that B wins, one that would be decided if visitors did not send clicks twice, and one without impressions."""
    path = tmp_path_factory.mktemp("browser") / "t.db"
    names = ("current", "with popularity")
    with Trial.create(
        path, "shoes-v2", k=8, seed=1, smallest=0.05, names=names, background=False, clock=minutes()
    ) as trial:
        BETTER_B.run(trial, 1_500, seed=1)
        trial.update(who="key 5f0c2a91 (ann)")
    with Trial.create(path, "worse", k=8, seed=1, names=names, background=False, clock=minutes()) as trial:
        BETTER_B.run(trial, 1_500, seed=1)
        for number in range(100):
            for query in (LONG, TURNED):
                shown = trial.rank(query, ["x", "y", "z"], ["z", "y", "x"], unit=f"v{number}", wait=True)
                for _ in range(40 if shown.ranking[0] == "z" else 0):  # which is what B puts first
                    trial.click(shown.id, "z", wait=False)
        trial.store.flush()
        for _ in range(2):  # as where pages are cached, and visitors share their ids
            for row in list(trial.store.rows(ClickRow, trial.state.version.id, 0)):
                trial.store.put(Click(row.key, trial.state.version.id, row.document, bool(row.late)))
            trial.store.flush()
    Trial.create(path, name="empty", k=3, seed=1, background=False).close()
    return path


@pytest.fixture(scope="package")
def address(store: Path) -> Iterator[str]:
    with serving(store, query_units=1) as client:
        yield str(client.base_url)
