"""The Python client: what it asks and sends, against the real service, and against servers that fail in every way."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client.servers import answer, read_request, tcp_server
from live_server import A, B, serving, start
from ranktrial.client import Client, Shown
from ranktrial.client import outbox as outboxes
from ranktrial.service.api_keys import KeyFile
from ranktrial.store.base import EventRow
from ranktrial.trial import Trial

PATIENT = 60.0  # seconds: tests must not depend on how busy the machine is
NOBODY = "http://127.0.0.1:9"


def url_of(service: Any) -> str:
    return str(service.base_url).rstrip("/")


@pytest.mark.slow
def test_a_search_and_its_clicks(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db") as service, Client(url_of(service), timeout=PATIENT, every=0) as client:
        start(service)
        shown = client.rank("t", "q", A, iter(B), unit="u")
        assert (shown.fallback, set(shown.ranking)) == (None, {*A, *B})
        assert client.rank("t", "q", A, B, unit="u") == shown
        assert client.rank("t", "q", A, B, unit="u", offset=3, size=2).ranking == shown.ranking[3:5]
        for _ in range(2):
            client.click(shown.id, shown.ranking[0], position=1)
        client.seen(shown.id, shown.ranking)
        ubi = {"action_name": "hover", "query_id": shown.id, "timestamp": "2026-11-16T12:00:00Z"}
        client.send(ubi)
        assert client.flush(PATIENT)
        assert client.outcomes == {"counted": 2, "as drawn": 1, "ignored": 1}
        assert (client.waiting, client.lost, client.fallbacks) == (0, 0, {})
        report = service.get("/v1/trials/t/report").json()
        assert (report["impressions"], report["clicks"]) == (1, 1)


def test_orders_arrive_with_their_values(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(tmp_path / "t.db") as service, Client(url_of(service), timeout=PATIENT, every=0) as client:
        start(service, metrics=["Carts()", "Revenue()"])
        shown = client.rank("t", "q", A, B, unit="u")
        first, second = shown.ranking[:2]
        client.event(shown.id, first, "cart")
        for _ in range(2):
            client.event(shown.id, first, "order", 39.90, event_id="4711")
        client.event(shown.id, first, "order", Decimal("-39.90"), event_id="4711 back")
        client.event(shown.id, second, "order", np.int64(3))  # type: ignore[arg-type]
        client.event("", second, "order", 5)  # of A's list
        assert client.flush(PATIENT)
        assert client.outcomes == {"counted": 5}
        for wrong in ("39,90", float("nan"), object(), True):
            client.event(shown.id, second, "order", wrong)  # type: ignore[arg-type]
        assert client.flush(PATIENT)
        assert (client.outcomes["invalid"], client.lost) == (4, 0)
        assert "invalid: value is '39,90', must be a number such as 39.90" in caplog.text
    with Trial.open(tmp_path / "t.db", background=False) as trial:
        rows = sorted(
            (row.document, row.action, row.amount) for row in trial.store.rows(EventRow, trial.state.version.id, 0)
        )
    assert rows == sorted(
        [(first, "cart", 0), (first, "order", 39_900_000), (first, "order", -39_900_000), (second, "order", 3_000_000)]
    )


def test_searches_without_a_unit_are_draws_of_their_own(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db") as service, Client(url_of(service), timeout=PATIENT) as client:
        start(service)
        assert len({client.rank("t", "q", A, B).id for _ in range(5)}) == 5


def test_whole_numbers_are_ids(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db") as service, Client(url_of(service), timeout=PATIENT, every=0) as client:
        start(service)
        shown = client.rank("t", "q", [1, 2], ["2", "3"], unit=17)
        client.click(shown.id, int(shown.ranking[0]))
        assert client.flush(PATIENT)
        assert client.outcomes == {"counted": 1}


@pytest.mark.slow
def test_a_wrong_segment_is_no_reason_for_a_fallback(tmp_path: Path) -> None:
    class Broken(dict[str, str]):
        def items(self) -> Any:
            raise OSError("no items")

    wrong: list[Any] = [
        "phone", 7, ["phone"], {"device": 7}, {"device": b"phone"}, {"device": object()}, {1: "phone"}, {"device": "\ud800"},
        {f"x{at}": "y" for at in range(1_000)}, {"device": "x" * 10**6}, {"device": float("nan")}, Broken(device="phone"),
    ]  # fmt: skip
    with serving(tmp_path / "t.db") as service, Client(url_of(service), timeout=PATIENT) as client:
        start(service, segments={"device": ["phone", "desktop"]})
        for at, segment in enumerate([*wrong, {"device": "phone"}, {}, {"device": None}, None]):
            assert client.rank("t", "q", A, B, unit=f"u{at}", segment=segment).fallback is None, segment
        tallies = service.get("/v1/trials/t/report").json()["tallies"]
        kinds = {what.partition(": ")[2]: n for what, n in tallies.items() if what.startswith("searches of another")}
        not_declared = 5  # a number, bytes, an object, half a character, too long; not a number
        assert kinds == {
            "device is not a declared value": not_declared + 1,
            "device is not given": len(wrong) - not_declared - 1 + 3,
            "what is given is not declared": 6,
        }


@pytest.mark.slow
def test_covariates_are_passed_on_and_wrong_ones_are_missing(tmp_path: Path) -> None:
    wrong: list[Any] = ["old", [3], {"age": "3"}, {"age": float("nan")}, {"age": object()}, {1: 3}]
    with serving(tmp_path / "t.db") as service, Client(url_of(service), timeout=PATIENT) as client:
        start(service, covariates=["age"])
        for at, covariates in enumerate([*wrong, {"age": 30}, {"age": np.int64(40)}, {"age": None}, {}, None]):
            assert client.rank("t", "q", A, B, unit=f"u{at}", covariates=covariates).fallback is None, covariates
        tallies = service.get("/v1/trials/t/report").json()["tallies"]
        kinds = {what.partition(": ")[2]: n for what, n in tallies.items() if what.startswith("searches without")}
        assert kinds == {"age is not a number": 2, "what is given is not declared": 4}
    with Trial.open(tmp_path / "t.db", background=False) as trial:
        known = trial.log().covariates[:, 0]
        assert known[~np.isnan(known)].tolist() == [30, 40]


def test_many_threads_share_a_client(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db") as service, Client(url_of(service), timeout=PATIENT) as client:
        start(service)

        def search(visitor: int) -> None:
            for query in range(10):
                shown = client.rank("t", str(query), A, B, unit=f"u{visitor}")
                client.click(shown.id, shown.ranking[0])

        threads = [threading.Thread(target=search, args=(visitor,)) for visitor in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.flush(PATIENT)
        assert (client.outcomes, client.fallbacks) == ({"counted": 80}, {})


def test_a_key_is_sent_and_never_shown(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys")
    key = keys.add("shop", ["serve", "ingest", "admin"])
    with serving(tmp_path / "t.db", keys=keys) as service:
        service.headers["Authorization"] = f"Bearer {key}"
        start(service)
        with Client(url_of(service), key=key, timeout=PATIENT) as client:
            assert client.rank("t", "q", A, B).fallback is None
            assert key not in repr(client)
        with Client(url_of(service), timeout=PATIENT) as stranger:
            assert stranger.rank("t", "q", A, B) == Shown("", A, "answered 401")


# --- rank never raises, and never waits for long ---------------------------------------------------------------------------


def test_without_a_service_a_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(NOBODY)
    for _ in range(3):
        assert client.rank("t", "q", ["x", "y", "x", "z"], ["z"], offset=1, size=2) == Shown(
            "", ["y", "z"], "no answer"
        )
    assert client.fallbacks == {"no answer": 3}
    assert len(caplog.records) == 1  # not a line for every search
    client.click("", "x")  # of a list that was not drawn: there is nothing to count
    assert client.waiting == 0


def silent(connection: socket.socket) -> None:
    read_request(connection)
    connection.recv(1)


def trickling(connection: socket.socket) -> None:
    """A byte of an endless header again and again: no single wait is long."""
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        connection.sendall(b"x")
        threading.Event().wait(0.01)


@pytest.mark.parametrize("handle", [silent, trickling])
def test_the_time_out_is_for_the_whole_answer(handle: Any) -> None:
    with tcp_server(handle) as url:
        client = Client(url, timeout=0.1)
        assert client.rank("t", "q", A, B) == Shown("", A, "time-out")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (answer(500, {}), "answered 500"),
        (answer(404, {"detail": "there is no trial"}), "answered 404"),
        (answer(200, {"id": "x"}), "fault"),
        (answer(200, [1]), "fault"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{{{", "fault"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n{", "fault"),
        (b"what?\r\n\r\n", "fault"),
        (b"", "no answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"{}", mtime=0), "fault"),
    ],
)
def test_whatever_the_answer_a_is_shown(said: bytes, reason: str) -> None:
    def handle(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(said)

    with tcp_server(handle) as url:
        assert Client(url, timeout=PATIENT).rank("t", "q", A, B) == Shown("", A, reason)


@pytest.mark.parametrize(
    ("more", "ranking"),
    [
        ({"a": None}, []),
        ({"a": [1.5]}, ["1.5"]),
        ({"b": [None]}, A),
        ({"query": object()}, A),
        ({"query": "\ud800"}, A),
        ({"trial": None}, A),
        ({"unit": 1.5}, A),
        ({"offset": "x"}, A),
        ({"size": object()}, A),
        ({"offset": -3, "size": -1}, []),
        ({"trial": "a/b\r\nX: y"}, A),
    ],
)
def test_whatever_is_asked_it_does_not_raise(tmp_path: Path, more: dict[str, Any], ranking: list[str]) -> None:
    client = Client(NOBODY)
    asked: dict[str, Any] = {"trial": "t", "query": "q", "a": A, "b": B, **more}
    shown = client.rank(**asked)
    assert (shown.id, shown.ranking) == ("", ranking)
    assert shown.fallback is not None
    assert shown.fallback in ("fault", "no answer") or shown.fallback.startswith("bad input: ")


def test_a_connection_is_kept_and_replaced_when_the_server_closed_it() -> None:
    connections: list[int] = []

    def handle(connection: socket.socket) -> None:
        """Two answers to a connection, which then closes without a word."""
        connections.append(0)
        for _ in range(2):
            if read_request(connection)[0]:
                connections[-1] += 1
                connection.sendall(answer(200, {"id": "i", "ranking": ["x"], "fallback": None}))

    with tcp_server(handle) as url:
        client = Client(url, timeout=PATIENT)
        assert [client.rank("t", "q", A, B).id for _ in range(5)] == ["i"] * 5
    assert connections == [2, 2, 1]


def test_names_and_keys_are_checked_when_a_client_is_made() -> None:
    for url in ("127.0.0.1:8000", "ftp://x", "http://", "http://x?y", ""):
        with pytest.raises(ValueError, match=r"must be the service's, such as http://127\.0\.0\.1:8000"):
            Client(url)
    with pytest.raises(ValueError, match="ASCII text of one line"):
        Client(NOBODY, key="rt_\r\nHost: evil")
    for option in ({"timeout": 0}, {"timeout": float("nan")}, {"capacity": 0}, {"every": -1}, {"drain": float("inf")}):
        (name,) = option
        with pytest.raises(ValueError, match=f"{name} is .*, must be a positive number"):
            Client(NOBODY, **option)


def test_a_path_in_front_and_the_trial_are_part_of_the_address() -> None:
    heads: list[str] = []

    def handle(connection: socket.socket) -> None:
        heads.append(read_request(connection)[0])
        connection.sendall(answer(404, {}))

    with tcp_server(handle) as url:
        Client(f"{url}/trials/", timeout=PATIENT).rank("röd/1", "q", A, B)
    assert heads[0].startswith("POST /trials/v1/trials/r%C3%B6d%2F1/rank HTTP/1.1\r\nHost: 127.0.0.1:")


# --- events are sent until they are stored ----------------------------------------------------------------------------------


class Scripted:
    """A service that gives these answers in turn to batches of events, then takes them; None hangs up."""

    def __init__(self, *script: bytes | None) -> None:
        self.script, self.batches = list(script), list[list[Any]]()
        self.asked = 0

    def __call__(self, connection: socket.socket) -> None:
        while True:
            head, body = read_request(connection)
            if not head:
                return
            self.asked += 1
            events = json.loads(body)
            if self.script:
                said = self.script.pop(0)
                if said is None:
                    return
                connection.sendall(said)
                continue
            self.batches.append(events)
            connection.sendall(answer(200, {"results": [], "counts": {"counted": len(events)}}))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardly any pause between two tries."""
    monkeypatch.setattr(outboxes, "LONGEST_PAUSE", 0.01)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "fault",
    [
        None,
        answer(500, {}),
        answer(503, {"detail": "disk"}, "Retry-After: 1"),
        answer(429, {}),
        answer(401, {}),
        b"x\r\n\r\n",
    ],
)
def test_events_are_sent_again_until_they_are_stored(fault: bytes | None) -> None:
    service = Scripted(fault, fault, fault)
    with tcp_server(service) as url, Client(url, every=0) as client:
        client.click("i", "x", position=2)
        assert client.flush(PATIENT)
        assert (client.outcomes, client.lost, service.asked) == ({"counted": 1}, 0, 4)
    ((event,),) = service.batches
    assert event.items() >= {"id": "i", "document": "x", "position": 2}.items()
    assert abs(event["time"] - time.time()) < 3600  # when it was clicked, not when it arrives


@pytest.mark.usefixtures("quick")
def test_what_is_refused_as_it_is_does_not_hold_up_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    service = Scripted(answer(422, {"detail": "nonsense"}))
    with tcp_server(service) as url, Client(url, every=0) as client:
        client.send({"x": 1})
        assert client.flush(PATIENT)
        client.click("i", "x")
        assert client.flush(PATIENT)
        assert (client.lost, client.outcomes) == (1, {"counted": 1})
    assert "1 event(s) lost: 422 nonsense" in caplog.text


def test_one_bad_event_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db") as service, Client(url_of(service), timeout=PATIENT, every=PATIENT) as client:
        start(service)
        shown = client.rank("t", "q", A, B, unit="u")
        client.click(shown.id, shown.ranking[0])
        client.click(shown.id, "\ud800")  # no text: the service takes the whole body for what it is not
        client.click(shown.id, shown.ranking[1])
        assert client.flush(PATIENT)
        assert (client.outcomes, client.lost) == ({"counted": 2}, 1)


def test_a_process_without_threads_does_not_break_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Scripted()

    def start_nothing(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with tcp_server(service) as url, Client(url, every=0) as client:
        with monkeypatch.context() as broken:
            broken.setattr(threading.Thread, "start", start_nothing)
            client.click("i", "x")
        assert client.waiting == 1
        client.click("i", "y")
        assert client.flush(PATIENT)
        assert client.outcomes == {"counted": 2}


def test_events_go_in_batches_of_bounded_size() -> None:
    service = Scripted()
    with tcp_server(service) as url, Client(url, every=PATIENT) as client:
        for event in range(1_200):
            client.click("i", str(event))
        for event in range(30):
            client.click("i", str(event) + "x" * 49_000)
        assert client.flush(PATIENT)
    assert [len(batch) for batch in service.batches[:2]] == [500, 500]
    assert sum(map(len, service.batches)) == 1_230
    assert all(len(json.dumps(batch)) <= 2**20 for batch in service.batches)
    documents = [event["document"] for batch in service.batches for event in batch]
    assert documents[:1_200] == [str(event) for event in range(1_200)]  # in their order


def test_what_cannot_be_sent_is_lost_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with tcp_server(silent) as url:
        client = Client(url, capacity=2, drain=0)
        client.click("i", object())  # type: ignore[arg-type]
        client.click("i", "x" * 50_000)
        client.send({"time": float("nan")})
        assert (client.lost, client.waiting) == (3, 0)
        for document in ("x", "y", "z"):
            client.click("i", document)
        assert (client.lost, client.waiting) == (4, 2)
        assert not client.flush(0.01)
        client.close()
        assert (client.lost, client.waiting) == (6, 0)
    assert caplog.text.count("lost:") == 5


def test_a_closed_client_can_be_used_again() -> None:
    service = Scripted()
    with tcp_server(service) as url:
        client = Client(url, every=PATIENT)
        for _ in range(2):
            client.click("i", "x")
            client.close()
            client.close()
    assert [len(batch) for batch in service.batches] == [1, 1]


EXITING = """
import sys
from ranktrial.client import Client
client = Client(sys.argv[1], every=60, timeout=60)
for document in range(5):
    client.click("i", str(document))
if sys.argv[2] == "raises":
    raise SystemExit(3)
"""


@pytest.mark.parametrize(("how", "status"), [("ends", 0), ("raises", 3)])
def test_clicks_are_sent_when_a_process_ends(how: str, status: int) -> None:
    service = Scripted()
    with tcp_server(service) as url:
        assert subprocess.run([sys.executable, "-c", EXITING, url, how], check=False).returncode == status
    assert [len(batch) for batch in service.batches] == [5]


def test_a_forked_process_sends_its_own_clicks_and_no_others() -> None:
    service = Scripted()
    with tcp_server(service) as url:
        client = Client(url, every=PATIENT)
        client.click("i", "before")
        child = os.fork()
        if child == 0:  # as a server does that loads the application before it forks
            client.click("i", "child")
            client.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        client.close()
    assert sorted(event["document"] for batch in service.batches for event in batch) == ["before", "child"]


@pytest.mark.slow
def test_a_service_that_comes_back_gets_every_click(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outboxes, "LONGEST_PAUSE", 0.01)
    with serving(tmp_path / "t.db") as service:
        start(service)
        with Client(url_of(service), timeout=PATIENT) as asking:
            shown = asking.rank("t", "q", A, B, unit="u")
    client = Client(NOBODY, every=0)
    for document in shown.ranking[:3]:
        client.click(shown.id, document)
    assert not client.flush(0.05)  # it is down
    with serving(tmp_path / "t.db") as service:
        client._endpoint._address = ("127.0.0.1", service.base_url.port or 0)  # back, at another port
        assert client.flush(PATIENT)
        assert client.outcomes == {"counted": 3}
        assert service.get("/v1/trials/t/report").json()["clicks"] == 3
    client.close()


def test_the_client_loads_nothing_heavy() -> None:
    code = "import sys, ranktrial.client; print(*sorted({'numpy', 'numba', 'pydantic', 'scipy'} & sys.modules.keys()))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded == "\n"
