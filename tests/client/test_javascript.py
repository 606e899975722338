"""The JavaScript client in Node: its own tests, and against the real service."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import ranktrial
from live_server import A, B, serving, start
from ranktrial.service.api_keys import KeyFile

FOLDER = Path(__file__).resolve().parents[2] / "clients" / "js"
NODE = shutil.which("node")
NEEDS_NODE = pytest.mark.skipif(NODE is None, reason="there is no node on this machine")
USE = """
import { createClient } from "ranktrial";
const [url, key, a, b] = process.argv.slice(1).map((text, at) => (at < 2 ? text : JSON.parse(text)));
const client = createClient(url, { key, timeout: 60_000 });
const shown = await client.rank("t", { query: "q", a, b, unit: "u" });
const page = await client.rank("t", { query: "q", a, b, unit: "u", offset: 3, size: 2 });
client.click(shown.id, shown.ranking[0], 1);
client.seen(shown.id, shown.ranking);
client.click(shown.id, "never-shown");
client.event(shown.id, shown.ranking[0], "order", 39.9, "4711");
client.event(shown.id, shown.ranking[0], "order", "39,90", "4712");
await client.flush();
console.log(JSON.stringify({ shown, page, counts: client.counts }));
"""


def node(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    assert NODE is not None
    return subprocess.run([NODE, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=300)


@NEEDS_NODE
def test_its_own_tests_pass() -> None:
    ran = node("--test", "test/", cwd=FOLDER)
    assert ran.returncode == 0, ran.stdout
    passed = re.search(r"^# pass (\d+)", ran.stdout, re.M) or re.search(r"pass (\d+)", ran.stdout)
    assert passed is not None
    assert int(passed[1]) >= 30


@NEEDS_NODE
def test_a_search_and_its_clicks_from_an_installed_package(tmp_path: Path) -> None:
    """Package as ``npm install`` lays it out: found by its name, with the files that it says it has."""
    home = tmp_path / "node_modules" / "ranktrial"
    home.mkdir(parents=True)
    package = json.loads((FOLDER / "package.json").read_text())
    for name in ("package.json", *package["files"]):
        shutil.copy(FOLDER / name, home)
    keys = KeyFile(tmp_path / "keys")
    key = keys.add("shop", ["serve", "ingest", "admin"])
    with serving(tmp_path / "t.db", keys=keys) as service:
        service.headers["Authorization"] = f"Bearer {key}"
        start(service, metrics=["Revenue()"])
        url = str(service.base_url).rstrip("/")
        ran = node("--input-type=module", "--eval", USE, url, key, json.dumps(A), json.dumps(B), cwd=tmp_path)
    told = json.loads(ran.stdout)
    assert told["shown"]["fallback"] is None
    assert told["page"]["ranking"] == told["shown"]["ranking"][3:5]
    assert told["counts"] == {"lost": 0, "counted": 2, "as drawn": 1, "not shown": 1, "invalid": 1}


def test_the_service_hands_out_its_files(tmp_path: Path) -> None:
    """For whoever installed a wheel and has no checkout; without a key, and the same as in the package for npm."""
    keys = KeyFile(tmp_path / "keys")
    keys.add("me", ["read"])
    with serving(tmp_path / "t.db", keys=keys) as service:
        for name in ("ranktrial.js", "ranktrial.d.ts"):
            answer = service.get(f"/{name}")
            assert (answer.status_code, answer.text) == (200, (FOLDER / name).read_text(encoding="utf-8"))
            again = service.get(f"/{name}", headers={"If-None-Match": answer.headers["etag"]})
            assert again.status_code == 304
        assert service.get("/ranktrial.js").headers["content-type"].startswith("text/javascript")


def test_the_package_is_of_this_version_and_needs_nothing() -> None:
    package = json.loads((FOLDER / "package.json").read_text())
    assert package["version"] == ranktrial.__version__
    assert not {"dependencies", "devDependencies", "peerDependencies"} & package.keys()
    assert all((FOLDER / name).exists() for name in package["files"])
