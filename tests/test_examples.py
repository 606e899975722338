"""Each example starts by its one command, with the real service, and counts what is clicked; the shop goes on without it."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from example_runs import EXAMPLES, FREE_PORTS, clicks_of, drawn, started
from ranktrial.store.base import EventRow
from ranktrial.trial import Trial

NEEDS_NODE = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")


def test_the_page_in_python(tmp_path: Path) -> None:
    with started("python", tmp_path / "shop.db") as (page, service):
        text = drawn(page, r"\?shown=[\w-]+&")
        links = re.findall(r"href='(/item/[\w-]+\?shown=[\w-]+&position=\d)'", text)
        assert [link[-1] for link in links] == ["1", "2", "3", "4", "5"]
        for _ in range(2):  # the same click again counts once
            assert page.get(links[2]).status_code == 200
        assert page.get("/", params={"q": "red shoes"}).text == text  # the same visitor, the same list
        report = clicks_of(service, 1)
        assert report["clicks"] == 1
        assert page.get("/item/none").status_code == 404


@NEEDS_NODE
def test_the_page_in_node(tmp_path: Path) -> None:
    """Page that the browser gets, and its click by hand; tests/browser has what Chromium does with it."""
    with started("node", tmp_path / "shop.db") as (page, service):
        text = drawn(page, 'data-impression="[^"]')
        impression = re.findall(r'data-impression="([^"]+)"', text)[0]
        documents = re.findall(r'<li data-document="([^"]+)"><a href="/item/\1">', text)
        assert len(documents) == 5
        assert f'track("{service.base_url}"'.replace('/"', '"') in text
        assert "export function track" in page.get("/ranktrial.js").text
        click = json.dumps([{"id": impression, "document": documents[0], "position": 1}])
        origin = {"Origin": str(page.base_url).rstrip("/"), "Content-Type": "text/plain"}
        answer = service.post("/v1/beacon", content=click, headers=origin)
        assert answer.json()["counts"] == {"counted": 1}
        assert page.get(f"/item/{documents[0]}").status_code == 200
        assert page.get("/item/none").status_code == 404
        evil = page.get("/", params={"q": "<script>alert(1)</script>"}).text
        assert "<script>alert" not in evil


def test_the_stream_of_ubi_events(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "run.py"), "ubi", "--store", str(tmp_path / "shop.db"), *FREE_PORTS]
    ran = subprocess.run([*command, "--searches", "40"], capture_output=True, text=True, check=True, timeout=600)
    outcomes, verdict = ran.stdout.splitlines()
    told = json.loads(outcomes)
    assert told["lost"] == 0
    assert told.keys() <= {"lost", "counted", "ignored", "fallback"}  # nothing is "not ours", "invalid" or "not shown"
    clicks = re.match(r"(\d+) impressions, (\d+) clicks", verdict)
    assert clicks is not None
    with Trial.open(tmp_path / "shop.db", background=False) as trial:
        carts = [row.action for row in trial.store.rows(EventRow, trial.state.version.id, 0)]
    assert set(carts) == {"cart"}
    assert int(clicks[2]) + len(carts) == told["counted"] > len(carts)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page in Python, with nobody at the service's address."""
    monkeypatch.setenv("RANKTRIAL_URL", "http://127.0.0.1:9")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "search_page", raising=False)
    return importlib.import_module("search_page")


def test_without_the_service_visitors_see_the_first_ranker(shop: ModuleType) -> None:
    found = re.findall(r"/item/([\w-]+)", shop.page("warm winter").body.decode())
    assert found == shop.by_match("warm winter")[:5]
    assert "<h1>" in shop.item(found[0])
    assert shop.client.waiting == 0


def test_what_is_forwarded_of_a_stream(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    forward = importlib.import_module("ubi_forward")
    event = {"action_name": "click", "query_id": "x"}
    lines = [json.dumps(event), '{"index": {"_index": "ubi_events"}}', json.dumps({"_source": event}), "", "{", "[1]"]
    assert list(forward.events(lines)) == [event, event]
    assert re.findall(r"^line (\d)", capsys.readouterr().err, re.M) == ["5", "6"]
