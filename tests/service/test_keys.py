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

from live_server import ASKED, click, is_problem, rank, send, serving, start
from ranktrial import extras
from ranktrial.cli import app
from ranktrial.cli import serve as commands
from ranktrial.service import api_keys, create_app
from ranktrial.service.api_keys import SCOPES, KeyFile
from ranktrial.service.middleware.routing import BEACON

RUN = CliRunner()
OPEN = {"/healthz", "/readyz"}
NEEDS: list[tuple[str, str, str, Any]] = [
    ("PUT", "/v1/trials/t", "admin", {"k": 3}),
    ("GET", "/v1/trials", "read", None),
    ("GET", "/v1/trials/t", "read", None),
    ("POST", "/v1/trials/t/rank", "serve", ASKED),
    ("POST", "/v1/events", "ingest", []),
    ("GET", "/v1/trials/t/report", "read", None),
    ("GET", "/v1/trials/t/report.csv", "read", None),
    ("GET", "/v1/trials/t/report.html", "read", None),
    ("POST", "/v1/trials/t/update", "admin", None),
    ("POST", "/v1/trials/t/share", "admin", {"share": 1}),
    ("POST", "/v1/trials/t/exclude", "admin", {"unit": "u", "reason": "why"}),
    ("POST", "/v1/trials/t/include", "admin", {"unit": "u", "reason": "why"}),
    ("POST", "/v1/trials/t/erase", "admin", {"unit": "u", "reason": "why"}),
    ("POST", "/v1/trials/t/stop", "admin", None),
    ("DELETE", "/v1/trials/t", "admin", None),
    ("GET", "/metrics", "read", None),
]


@pytest.mark.slow
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
    assert found == listed | {("GET", path) for path in OPEN} | {("POST", BEACON)}


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


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.slow
def test_a_key_for_one_trial_does_nothing_to_another(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    hats, every = file.add("hats", SCOPES, trials=["hats"]), file.add("every", SCOPES)
    (limited, _) = file.all()
    assert (limited.trials, limited.may_use("hats"), limited.may_use("shoes")) == (("hats",), True, False)
    with serving(tmp_path / "t.db", keys=file) as client:
        client.headers.update(bearer(every))
        for name in ("hats", "shoes"):
            start(client, name)
        clicks = [click(rank(client, "u", name)["id"], "a0") for name in ("hats", "shoes")]
        client.headers.update(bearer(hats))
        for method, path, _, body in NEEDS:
            if "/t" in path.removeprefix("/v1/trials"):
                answer = client.request(method, path.replace("/t/", "/shoes/", 1), json=body)
                is_problem(answer, 403, says=f"key {limited.id} is for hats only")
        is_problem(client.get("/metrics"), 403, says="of all trials")
        assert [one["name"] for one in client.get("/v1/trials").json()["trials"]] == ["hats"]
        rank(client, "v", "hats")
        own, others = send(client, *clicks)
        assert own["outcome"] in ("counted", "later page")
        assert (others["outcome"], others["detail"]) == ("not ours", "the key is not one for trial 'shoes'")
        client.headers.update(bearer(every))
        report = client.get("/v1/trials/shoes/report").json()
        assert (report["impressions"], report["clicks"], report["tallies"]) == (1, 0, {})


def test_a_key_is_replaced_by_another_while_both_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "LOOK_EVERY", 0.0)
    now = 1_700_000_000.0
    monkeypatch.setattr("time.time", lambda: now)
    file = KeyFile(tmp_path / "keys")
    first = file.add("shop", ["serve", "ingest"], trials=["hats"])
    second = file.rotate(file.all()[0].id, keep=60)
    old, new = file.all()
    assert (new.name, new.scopes, new.trials, new.expires) == (old.name, old.scopes, old.trials, None)
    assert [file.recognise(key) for key in (first, second)] == [old, new]
    now += 60
    assert [file.recognise(key) for key in (first, second)] == [None, new]
    assert old.expired
    short = file.add("short", ["read"], lifetime=10)
    assert [key.name for key in file.all()] == ["shop", "short"]  # what has expired is not kept
    longer = file.rotate(file.all()[1].id, keep=1000)
    assert [key.expires for key in file.all()] == [None, "2023-11-14T22:14:30Z", "2023-11-14T22:14:30Z"]
    now += 10
    assert (file.recognise(short), file.recognise(longer)) == (None, None)
    with pytest.raises(ValueError, match="no key 'zz'"):
        file.rotate("zz", 1)
    with pytest.raises(ValueError, match="keep is -1, must be"):
        file.rotate(new.id, -1)


def test_a_file_from_before_keys_had_trials(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    key = file.add("old", ["read"])
    (kept,) = json.loads(file.path.read_text())
    file.path.write_text(json.dumps([{name: kept[name] for name in ("id", "name", "scopes", "digest", "created")}]))
    found = KeyFile(file.path).recognise(key)
    assert found is not None
    assert (found.trials, found.expires) == ((), None)


def test_the_access_log_names_the_key_and_never_tells_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = KeyFile(tmp_path / "keys")
    keys = [file.add("mine", SCOPES), file.add("reader", ["read"])]
    mine, reader = (key.id for key in file.all())
    with (
        caplog.at_level("INFO", "ranktrial.service"),
        serving(tmp_path / "t.db", keys=file, log_all=True) as client,
    ):
        client.headers.update(bearer(keys[0]))
        start(client)
        rank(client, "u")
        assert client.post("/v1/trials/t/stop", headers=bearer(keys[1])).status_code == 403
        assert client.get("/v1/trials", headers=bearer("rt_x_y")).status_code == 401
    lines = [(r.method, r.status, getattr(r, "key", None)) for r in caplog.records if r.message == "answered"]  # type: ignore[attr-defined]
    assert lines == [("PUT", 201, mine), ("POST", 200, mine), ("POST", 403, reader), ("GET", 401, None)]
    assert not any(key.split("_", 2)[2] in str(vars(record)) for key in keys for record in caplog.records)


@pytest.mark.slow
def test_what_changes_a_trial_is_always_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "ranktrial.service"), serving(tmp_path / "t.db") as client:
        start(client)
        rank(client, "u")
        client.get("/v1/trials/t/report")
        client.post("/v1/trials/t/stop")
    paths = [record.path for record in caplog.records if record.message == "answered"]  # type: ignore[attr-defined]
    assert paths == ["/v1/trials/t", "/v1/trials/t/stop"]


def test_the_file_keeps_hashes_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    key = file.add("mine", ["read", "read"])
    assert key.split("_", 2)[2] not in file.path.read_text()
    assert {stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()} == {0o600}
    file.path.chmod(0o644)
    assert KeyFile(tmp_path / "keys").recognise(key) is not None
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
    rotated = RUN.invoke(app, ["keys", "rotate", store, listed[0]["id"], "--keep", "2"]).stdout.strip()
    assert RUN.invoke(app, ["keys", "revoke", store, listed[0]["id"]]).exit_code == 0
    assert KeyFile.beside(store).recognise(key) is None
    assert KeyFile.beside(store).recognise(rotated) is not None
    RUN.invoke(app, ["keys", "add", store, "--scope", "read", "--trial", "hats", "--trial", "caps", "--days", "30"])
    newest = json.loads(RUN.invoke(app, ["keys", "list", store, "--json"]).stdout)[-1]
    assert newest["trials"] == ["hats", "caps"]
    assert newest["expires"] > newest["created"]
    assert "hats, caps" in RUN.invoke(app, ["keys", "list", store], env={"COLUMNS": "200"}).stdout
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
    for wrong in ("*", "https://*.shop.example", "shop.example", "null"):
        assert f"origin '{wrong}' must be a scheme" in RUN.invoke(app, ["serve", store, "--origin", wrong]).stderr
    assert "action is 'Cart', must be" in RUN.invoke(app, ["serve", store, "--beacon-action", "Cart"]).stderr
    assert "proxy '10.0.0.1/8' must be an address" in RUN.invoke(app, ["serve", store, "--proxy", "10.0.0.1/8"]).stderr
    monkeypatch.setitem(extras.MODULES, "serve", ("fastapi", "no_such_package"))
    refused = RUN.invoke(app, ["serve", store])
    assert "serve needs no_such_package: pip install 'ranktrial[serve]'" in refused.stderr
