"""The search page in examples/ runs its trial through the real service, and goes on without it."""

from __future__ import annotations

import importlib.util
import re
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import uvicorn

from live_server import serving

FILE = Path(__file__).resolve().parents[1] / "examples" / "search_page.py"


class Served(uvicorn.Server):
    """An app on a free loopback port, in a thread."""

    def __init__(self, app: Any) -> None:
        super().__init__(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))

    def __enter__(self) -> str:
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()
        while not self.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self.should_exit = True
        self._thread.join()


@pytest.fixture
def shop() -> ModuleType:
    spec = importlib.util.spec_from_file_location("search_page", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_searches_and_clicks_reach_the_trial(shop: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path / "shop.db", query_units=1) as service:
        monkeypatch.setattr(shop, "SERVICE", str(service.base_url).rstrip("/"))
        monkeypatch.setattr(shop, "TIMEOUT", 60)
        with Served(shop.app) as page, httpx.Client(base_url=page, timeout=60) as visitor:
            found = visitor.get("/", params={"q": "red shoes"}).text
            links = re.findall(r"href='(/item/[^']+)'", found)
            assert len(links) == 5
            assert visitor.get(links[2]).status_code == 200
            assert visitor.get(links[2]).status_code == 200  # the same click again
            assert visitor.get("/", params={"q": "red shoes"}).text == found  # the same visitor, the same list
        report = service.get("/v1/trials/shop-search/report").json()
    assert (report["impressions"], report["clicks"]) == (1, 1)
    assert report["contributors"][0]["query"] == "red shoes"


def test_without_the_service_visitors_see_the_first_ranker(shop: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop, "SERVICE", "http://127.0.0.1:9")  # nobody listens there
    with Served(shop.app) as page, httpx.Client(base_url=page, timeout=60) as visitor:
        found = re.findall(r"/item/([\w-]+)", visitor.get("/", params={"q": "warm winter"}).text)
        assert found == shop.by_match("warm winter")[:5]
        assert visitor.get(f"/item/{found[0]}").status_code == 200
        assert visitor.get("/item/none").status_code == 404
