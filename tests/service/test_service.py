"""Each endpoint, and each error as a problem document."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from live_server import ASKED, A, B, click, command, is_problem, rank, send, serving, start
from ranktrial.service import Limits
from ranktrial.service.api_keys import SCOPES
from ranktrial.store import SQLiteStore
from ranktrial.trial import Trial


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("service") / "t.db", limits=Limits(timeout=60, batch=20)) as made:
        start(made)
        yield made


@pytest.mark.slow
def test_a_trial_from_start_to_end(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db") as client:
        made = client.put("/v1/trials/shoes", json={"k": 3, "seed": 5})
        assert (made.status_code, made.json()["version"], made.json()["stopped"]) == (201, 1, False)
        assert client.put("/v1/trials/shoes", json={"k": 3, "seed": 5}).status_code == 200
        shown = rank(client, "u", "shoes")
        assert shown["fallback"] is None
        assert set(shown["ranking"]) == {*A, *B}
        assert rank(client, "u", "shoes") == shown  # a retry
        assert rank(client, "u", "shoes", offset=3, size=2)["ranking"] == shown["ranking"][3:5]
        assert [r["outcome"] for r in send(client, click(shown["id"], shown["ranking"][0]))] == ["counted"]
        report = client.get("/v1/trials/shoes/report")
        assert (report.json()["impressions"], report.json()["clicks"]) == (1, 1)
        assert report.json()["decision"]["interval"] == [None, None]
        again = client.get("/v1/trials/shoes/report", headers={"If-None-Match": report.headers["etag"]})
        assert again.status_code in (200, 304)  # the latency guardrail may have moved
        fitted = client.post("/v1/trials/shoes/update").json()
        assert (fitted["fitted"], len(fitted["theta"]), fitted["impressions"]) == (False, 3, 1)
        changed = client.put("/v1/trials/shoes?new-version=true", json={"k": 4, "seed": 5})
        assert (changed.status_code, changed.json()["version"]) == (201, 2)
        late = send(client, click(shown["id"], shown["ranking"][1]))  # of the old version, which goes on counting
        assert late[0]["outcome"] == "counted"
        assert [part["clicks"] for part in client.get("/v1/trials/shoes/report").json()["parts"]] == [2, 0]
        assert client.get("/v1/trials/shoes").json() == changed.json()
        assert client.get("/v1/trials").json() == {"trials": [changed.json()], "scopes": list(SCOPES)}
        assert client.post("/v1/trials/shoes/stop").json() == {**changed.json(), "stopped": True, "shows": "A"}
        assert rank(client, "v", "shoes") == {
            **rank(client, "v", "shoes"), "ranking": A, "fallback": "the trial is stopped, A is shown",
        }  # fmt: skip
        is_problem(client.put("/v1/trials/shoes", json={"k": 5}), 409, says="stopped")
        assert client.put("/v1/trials/shoes", json={"k": 4, "seed": 5}).status_code == 200
    with Trial.open(tmp_path / "t.db", background=False) as trial:
        assert trial.stopped
        assert trial.report().parts[0].clicks == 2


def test_it_shows_what_the_library_shows(client: httpx.Client, tmp_path: Path) -> None:
    with Trial.create(tmp_path / "same.db", "t", k=3, seed=5, method='LogOpt(bias="known")', background=False) as trial:
        for unit in ("u1", "u2", "u3", "u4"):
            assert rank(client, unit)["ranking"] == trial.rank("q", A, B, unit=unit, wait=True).ranking


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nothing", None, 404),
        ("DELETE", "/v1/trials", None, 405),
        ("GET", "/v1/trials/none", None, 404),
        ("GET", "/v1/trials/none/report", None, 404),
        ("POST", "/v1/trials/none/rank", b'{"query": "q", "a": [], "b": []}', 404),
        ("POST", "/v1/trials/none/update", None, 404),
        ("POST", "/v1/trials/none/stop", None, 404),
        ("PUT", "/v1/trials/no%20spaces", b"{}", 422),
        ("PUT", "/v1/trials/new", b'{"k": 0}', 422),
        ("PUT", "/v1/trials/new", b'{"method": "TeamDraft()"}', 422),
        ("PUT", "/v1/trials/new", b'{"method": "AB(split={[]: 1})"}', 422),
        ("PUT", "/v1/trials/new", b'{"k": 3, "unknown": 1}', 422),
        ("PUT", "/v1/trials/new", b"[", 400),
        ("POST", "/v1/trials/t/rank", b"{", 400),
        ("POST", "/v1/trials/t/rank", b'{"query": "q"}', 422),
        ("POST", "/v1/trials/t/rank", b'{"query": "q", "a": [1.5], "b": []}', 422),
        ("POST", "/v1/trials/t/rank", b'{"query": "\\ud800", "a": [], "b": []}', 400),
        ("POST", "/v1/trials/t/rank", b'{"query": "q", "b": [], "a": ["' + b"x" * 1001 + b'"]}', 422),
        ("POST", "/v1/trials/t/rank", b'{"query": "q", "b": [], "a": [' + b'"x",' * 1000 + b'"x"]}', 422),
        ("POST", "/v1/trials/t/rank", b'{"query": "q", "a": [], "b": [], "offset": -1}', 422),
        ("POST", "/v1/events", b"nonsense", 400),
        ("POST", "/v1/events", b'"text"', 422),
        ("POST", "/v1/events", b"[" * 100_000, 400),
        ("POST", "/v1/events", b"[" + b"{}," * 20 + b"{}]", 413),
    ],
)
def test_errors_are_problem_documents(
    client: httpx.Client, method: str, path: str, body: bytes | None, status: int
) -> None:
    answer = client.request(method, path, content=body, headers={"content-type": "application/json"})
    is_problem(answer, status)
    if status == 405:
        assert "GET" in answer.headers["allow"]
    if status == 422 and method != "PUT" and "rank" in path:
        assert answer.json()["errors"][0]["where"]


def test_bodies_are_bounded_and_json(client: httpx.Client) -> None:
    for content in (b" " * (2**20 + 1), (b" " * 2**18 for _ in range(5))):  # told in advance, and in chunks
        is_problem(client.post("/v1/events", content=content, headers={"content-type": "application/json"}), 413)
    is_problem(client.post("/v1/events", content=b"[]", headers={"content-type": "text/plain"}), 415)
    assert send(client) == []


def test_health_and_metrics(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}
    shown = rank(client, "metrics")
    send(client, click(shown["id"], shown["ranking"][0]), click("forged", "x"))
    client.get("/nothing-of-this-name")
    text = client.get("/metrics").text
    for line in (
        'ranktrial_requests_total{method="POST",route="/v1/trials/{name}/rank",status="200"}',
        'ranktrial_requests_total{method="any",route="other",status="404"}',
        'ranktrial_impressions_total{trial="t"}',
        'ranktrial_events_total{outcome="not ours"}',
        "ranktrial_requests_in_flight 1.0",
        "ranktrial_rows_waiting 0.0",
    ):
        assert line in text
    assert "nothing-of-this-name" not in text  # what is not a route makes no new series


def test_a_wrong_segment_is_other_and_counted(client: httpx.Client) -> None:
    start(client, "by-device", segments={"device": ["phone", "desktop"]})
    given: list[Any] = [
        "phone",
        7,
        True,
        ["phone"],
        {"device": 7},
        {"device": ["phone"]},
        {f"x{at}": "y" for at in range(99)},
    ]
    for at, segment in enumerate([*given, {"device": "x" * 5_000}, {"device": "phone"}, {"device": None}, {}, None]):
        assert rank(client, f"u{at}", "by-device", segment=segment)["fallback"] is None, segment
    tallies = client.get("/v1/trials/by-device/report").json()["tallies"]
    assert {what.partition(": ")[2]: n for what, n in tallies.items() if what.startswith("searches of another")} == {
        "device is not a declared value": 3,
        "device is not given": 8,
        "what is given is not declared": 5,
    }


def test_a_wrong_covariate_is_missing_and_counted(client: httpx.Client) -> None:
    start(client, "adjusted", covariates=["age"])
    for at, covariates in enumerate(
        [7, [7], {"age": "7"}, {"age": True}, {"age": 10**400}, {"age": 7}, {"age": None}, {}, None]
    ):
        assert rank(client, f"u{at}", "adjusted", covariates=covariates)["fallback"] is None, covariates
    tallies = client.get("/v1/trials/adjusted/report").json()["tallies"]
    assert {what.partition(": ")[2]: n for what, n in tallies.items() if what.startswith("searches without a")} == {
        "age is not a number": 3,
        "what is given is not declared": 2,
    }


def test_a_fault_inside_is_a_problem_document_and_is_logged(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("what only the log may say")

    monkeypatch.setattr(client.app.state.trials, "info", broken)  # type: ignore[attr-defined]
    answer = client.get("/v1/trials/t")
    is_problem(answer, 500)
    assert "only the log" not in answer.text
    assert "what only the log may say" in caplog.text


@pytest.mark.slow
def test_a_slow_disk_shows_a_and_counts_as_fallback(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db", limits=Limits(timeout=60, write_timeout=60)) as client:
        start(client)
        before = rank(client, "before")["id"]
    with serving(tmp_path / "t.db", limits=Limits(timeout=0.02, write_timeout=0.02)) as client:
        other = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        shown = rank(client, "slow")
        assert (shown["ranking"], shown["fallback"]) == (A, "the store did not answer in time")
        is_problem(client.post("/v1/events", json=click(before, "a1")), 503, says="not stored")
        is_problem(client.get("/readyz"), 503)
        assert client.get("/healthz").status_code == 200
        other.execute("ROLLBACK")
        other.close()
        assert client.get("/v1/trials/t/report").json()["impressions"] == 1


def test_overload_is_429_for_events_and_a_for_rank(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db", limits=Limits(timeout=60, write_timeout=60, rows=4)) as client:
        start(client)
        shown = rank(client, "u")
        store = client.app.state.store  # type: ignore[attr-defined]
        assert isinstance(store, SQLiteStore)
        store.waiting += 4
        refused = client.post("/v1/events", json=click(shown["id"], "a0"))
        is_problem(refused, 429, says="rows wait")
        assert refused.headers["retry-after"] == "1"
        fallback = rank(client, "v")
        assert (fallback["ranking"], fallback["fallback"]) == (A, "the store is overloaded")
        counted = 'ranktrial_fallbacks_total{reason="the store is overloaded",trial="t"} 1.0'
        assert counted in client.get("/metrics").text
        store.waiting -= 4
        assert send(client, click(shown["id"], shown["ranking"][0]))[0]["outcome"] == "counted"
        assert rank(client, "v")["fallback"] is None
        # A batch larger than the queue is taken when nothing else waits.
        assert len(send(client, *(click(shown["id"], document) for document in shown["ranking"]))) > 4


def test_too_many_at_once_is_429_but_probes_are_answered(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db", limits=Limits(in_flight=0)) as client:
        answer = client.get("/v1/trials")
        is_problem(answer, 429, says="more than 0 requests")
        assert answer.headers["retry-after"] == "1"
        assert client.get("/healthz").status_code == 200
        assert 'status="429"' in client.get("/metrics").text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", "x"),
        ("write_timeout", None),
        ("timeout", float("inf")),
        ("in_flight", 1.5),
        ("rows", -1),
        ("beacon_rate", 0),
    ],
)
def test_limits_are_numbers(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value!r}, must be"):
        Limits(**{name: value})  # type: ignore[arg-type]


def test_without_keys_only_this_machine_is_served(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db", hosts=("127.0.0.1", "localhost")) as client:
        assert client.get("/v1/trials").status_code == 200
        is_problem(client.get("/v1/trials", headers={"host": "evil.example"}), 403)
        is_problem(client.post("/v1/trials/t/stop", headers={"origin": "http://evil.example"}), 403)
        own = str(client.base_url).rstrip("/")
        assert client.get("/v1/trials", headers={"origin": own}).status_code == 200


@pytest.mark.slow
def test_two_services_on_one_store(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db") as one, serving(tmp_path / "t.db") as two:
        start(one)
        shown = [rank(client, f"u{i}") for i, client in enumerate((one, two, one, two))]
        assert [rank(client, f"u{i}") for i, client in enumerate((two, one, two, one))] == shown
        for client in (one, two):  # the same clicks to both
            assert {r["outcome"] for r in send(client, *(click(s["id"], s["ranking"][0]) for s in shown))} == {
                "counted"
            }
        reports = [client.get("/v1/trials/t/report").json() for client in (one, two)]
        assert [(r["impressions"], r["clicks"], r["decision"]) for r in reports] == [(4, 4, reports[0]["decision"])] * 2
        start(
            one, k=4, new_version=True
        )  # a new version, made at one, clicked at the other before that has noticed by itself
        new = one.post("/v1/trials/t/rank", json={**ASKED, "unit": "n"}).json()
        assert send(two, click(new["id"], new["ranking"][0]))[0]["outcome"] == "counted"
        assert two.get("/v1/trials/t/report").json()["version"] == 2
        start(two, "other")
        assert rank(one, "u", "other")["fallback"] is None


def test_what_a_client_makes_up_leaves_nothing_behind(client: httpx.Client) -> None:
    for number in range(3):
        assert client.request(f"MADEUP{number}", "/v1/events").status_code == 405
        assert client.get(f"/v1/trials/none-{number}/report").status_code == 404
    assert "MADEUP" not in client.get("/metrics").text
    reports = client.app.state.trials._reports  # type: ignore[attr-defined]
    assert not [name for name, _ in reports if name.startswith("none-")]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
def test_the_curl_examples_work_as_printed(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "http.md").read_text()
    (example,) = (block for block in re.findall(r"```sh\n(.*?)```", page, re.S) if "service=" in block)
    with command(str(tmp_path / "t.db")) as (_, address):
        script = example.replace("http://127.0.0.1:8000", address).replace("curl ", "curl -sS --fail-with-body ")
        done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=120, check=True)
    made, shown, events, report = json.JSONDecoder().decode("[" + done.stdout.replace("}{", "},{") + "]")
    assert (made["name"], made["version"]) == ("shoes", 1)
    assert {"sku-1", "sku-3"} <= {*shown["ranking"]} <= {"sku-1", "sku-2", "sku-3", "sku-4"}  # a plain list has three
    assert events["counts"] == {"not ours": 1}  # the id is cut short in print
    assert report["impressions"] == 1


def test_a_client_that_hangs_up_is_no_fault_of_the_service(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    port = client.base_url.port
    assert port is not None
    head = (
        "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n[{"
    )
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(head.encode())
        threading.Event().wait(0.1)
    while 'route="/v1/events",status="499"' not in (told := client.get("/metrics").text):
        threading.Event().wait(0.01)
    assert 'route="/v1/events",status="500"' not in told
    assert "fault" not in caplog.messages


@pytest.mark.slow
def test_it_answers_at_the_loopback_address_it_was_given(tmp_path: Path) -> None:
    with command(str(tmp_path / "t.db"), "--host", "127.0.0.2") as (_, address):
        assert httpx.get(address.replace("127.0.0.1", "127.0.0.2") + "/v1/trials", timeout=60).json()["trials"] == []
