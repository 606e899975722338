"""Keys and scopes; where the service may listen."""

from __future__ import annotations

import itertools
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from typer.testing import CliRunner

from live_server import ASKED, is_problem, serving
from ranktrial.cli import app
from ranktrial.cli import serve as commands
from ranktrial.live import api_keys
from ranktrial.live.api_keys import SCOPES, KeyFile
from ranktrial.live.service import create_app

RUN = CliRunner()
OPEN = {"/healthz", "/readyz"}
NEEDS: list[tuple[str, str, str, Any]] = [
    ("PUT", "/v1/trials/t", "admin", {"k": 3}),
    ("GET", "/v1/trials", "read", None),
    ("GET", "/v1/trials/t", "read", None),
    ("POST", "/v1/trials/t/rank", "serve", ASKED),
    ("POST", "/v1/events", "ingest", []),
    ("GET", "/v1/trials/t/report", "read", None),
    ("POST", "/v1/trials/t/update", "admin", None),
    ("POST", "/v1/trials/t/exclude", "admin", {"unit": "u", "reason": "why"}),
    ("POST", "/v1/trials/t/include", "admin", {"unit": "u", "reason": "why"}),
    ("POST", "/v1/trials/t/stop", "admin", None),
    ("GET", "/metrics", "read", None),
]


def test_every_endpoint_needs_its_scope_and_no_other(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    keys = {scope: file.add(scope, [scope]) for scope in SCOPES}
    with serving(tmp_path / "t.db", keys=file) as client:
        for method, path, needed, body in NEEDS:
            is_problem(client.request(method, path, json=body), 401)
            for scope in sorted(SCOPES, key=lambda scope: scope == needed):
                answer = client.request(method, path, json=body, headers={"Authorization": f"Bearer {keys[scope]}"})
                if scope == needed:
                    assert answer.status_code in (200, 201), answer.text
                else:
                    is_problem(answer, 403, says=f"needs {needed}")
        for path in OPEN:
            assert client.get(path).status_code == 200


def test_the_table_above_has_every_endpoint(tmp_path: Path) -> None:
    routes = [route for route in create_app(tmp_path / "t.db").routes if isinstance(route, APIRoute)]
    found = {(method, route.path) for route in routes if route.include_in_schema for method in route.methods or ()}
    listed = {(method, re.sub("/t(/|$)", r"/{name}\1", path)) for method, path, *_ in NEEDS}
    assert found == listed | {("GET", path) for path in OPEN}


def test_wrong_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "LOOK_EVERY", 0.0)
    file = KeyFile(tmp_path / "keys")
    good = file.add("mine", SCOPES)
    id = file.all()[0].id
    wrong = [
        "x",
        "rt_",
        f"rt_{id}_",
        f"rt_{id}_wrong",
        f"rt_00000000_{good.split('_', 2)[2]}",
        good[:-1],
        good + "x",
    ]
    with serving(tmp_path / "t.db", keys=tmp_path / "keys") as client:
        for key, scheme in (*itertools.product(wrong, ["Bearer"]), (good, "Basic")):
            answer = client.get("/v1/trials", headers={"Authorization": f"{scheme} {key}"})
            is_problem(answer, 401)
            assert answer.headers["www-authenticate"] == "Bearer"
        known = {"Authorization": f"Bearer {good}"}
        assert client.get("/v1/trials", headers=known).status_code == 200
        second = file.add("second", ["read"])
        assert client.get("/v1/trials", headers={"Authorization": f"bearer {second}"}).status_code == 200
        file.revoke(id)
        is_problem(client.get("/v1/trials", headers=known), 401)
        (tmp_path / "keys").write_text("damaged")
        is_problem(client.get("/v1/trials", headers={"Authorization": f"Bearer {second}"}), 401)


def test_the_file_keeps_hashes_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    key = file.add("mine", ["read", "read"])
    assert key.split("_", 2)[2] not in file.path.read_text()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert [(k.name, k.scopes) for k in file.all()] == [("mine", ("read",))]
    found = KeyFile(tmp_path / "keys").recognise(key)
    assert found == file.all()[0]
    with pytest.raises(ValueError, match="scope is 'root'"):
        file.add("x", ["root"])
    with pytest.raises(ValueError, match="at least one scope"):
        file.add("x", [])
    with pytest.raises(ValueError, match="no key 'zz'"):
        file.revoke("zz")


def test_commands(tmp_path: Path) -> None:
    store = str(tmp_path / "t.db")
    made = RUN.invoke(app, ["keys", "add", store, "--scope", "read", "--scope", "serve", "--name", "shop"])
    key = made.stdout.strip()
    assert key.startswith("rt_")
    listed = json.loads(RUN.invoke(app, ["keys", "list", store, "--json"]).stdout)
    assert [(one["name"], one["scopes"]) for one in listed] == [("shop", ["read", "serve"])]
    assert "shop" in RUN.invoke(app, ["keys", "list", store]).stdout
    assert RUN.invoke(app, ["keys", "revoke", store, listed[0]["id"]]).exit_code == 0
    assert KeyFile.beside(store).recognise(key) is None
    assert RUN.invoke(app, ["keys", "revoke", store, "none"]).exit_code == 2
    assert RUN.invoke(app, ["keys", "add", store, "--scope", "root"]).exit_code == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_without_keys_it_does_not_listen_elsewhere(tmp_path: Path, host: str) -> None:
    refused = RUN.invoke(app, ["serve", str(tmp_path / "t.db"), "--host", host])
    assert refused.exit_code == 2
    assert f"--host {host} can be reached from other machines and there are no API keys" in refused.stderr
    assert not (tmp_path / "t.db").exists()
    file = KeyFile.beside(tmp_path / "t.db")
    file.add("mine", ["serve"])
    commands.check_host(host, commands.find_keys(tmp_path / "t.db", None), tmp_path / "t.db")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_the_loopback_needs_no_keys(tmp_path: Path, host: str) -> None:
    commands.check_host(host, commands.find_keys(tmp_path / "t.db", None), tmp_path / "t.db")


def test_what_else_serve_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = str(tmp_path / "t.db")
    with commands.listen("127.0.0.1", 0) as taken:
        refused = RUN.invoke(app, ["serve", store, "--port", str(taken.getsockname()[1])])
    assert (refused.exit_code, "cannot listen at 127.0.0.1" in refused.stderr) == (2, True)
    assert "does not exist" in RUN.invoke(app, ["serve", store, "--keys", str(tmp_path / "none")]).stderr
    (tmp_path / "bad.keys").write_text("{")
    assert "not a file of keys" in RUN.invoke(app, ["serve", store, "--keys", str(tmp_path / "bad.keys")]).stderr
    (tmp_path / "text.db").write_text("not a database " * 100)
    assert "cannot be opened" in RUN.invoke(app, ["serve", str(tmp_path / "text.db")]).stderr
    monkeypatch.setattr(commands, "NEEDED", ("fastapi", "no_such_package"))
    refused = RUN.invoke(app, ["serve", store])
    assert "serve needs no_such_package: pip install 'ranktrial[serve]'" in refused.stderr
