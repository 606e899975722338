"""A world to search in, and a page that is watched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page

from simulated_trial import World

WORLD = World.make(queries=30, k=8)
BETTER_B = World(WORLD.zeta, WORLD.b, WORLD.a, WORLD.theta)
LONG = "trail running shoes, waterproof, for wide feet, " * 10
TURNED = "photo \u202egnp.exe\u2067"
# A query that a browser must not take for HTML.
EVIL = '<img src=x onerror="document.title=1"> & </script>'


@dataclass
class Watched:
    """A page, with every request it made and everything it complained about."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, browser: Browser, **options: Any) -> Watched:
        page = browser.new_context(**options).new_page()
        page.set_default_timeout(60_000)
        watched = cls(page)
        page.on("request", lambda request: watched.requests.append(request.url))
        page.on("console", lambda said: watched.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: watched.complaints.append(str(error)))
        return watched

    @property
    def outside(self) -> list[str]:
        """Requests that left this machine."""
        return [
            url
            for url in self.requests
            if urlsplit(url).scheme in ("http", "https") and not url.startswith("http://127.")
        ]
