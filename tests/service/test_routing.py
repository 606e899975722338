"""Every route in every odd spelling, against every guard: a guard and the application never differ on what a request is for."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pytest
from fastapi import FastAPI
from starlette.routing import Match, Route
from starlette.types import Message

from live_server import PATIENT, serving
from ranktrial.service import Limits, create_app
from ranktrial.service.api_keys import KeyFile
from ranktrial.service.middleware import load_shedding
from ranktrial.trial.drawing import warm_up

SHOP = "https://shop.example"
NOTHING_DONE = {400, 404, 405, 414}
ODD: dict[str, Callable[[str], str]] = {
    "as it is": lambda path: path,
    "newline after": lambda path: path + "%0A",
    "carriage return after": lambda path: path + "%0D",
    "both after": lambda path: path + "%0D%0A",
    "newline before": lambda path: "/%0A" + path[1:],
    "NUL after": lambda path: path + "%00",
    "tab after": lambda path: path + "%09",
    "delete after": lambda path: path + "%7F",
    "next line after": lambda path: path + "%C2%85",
    "line separator after": lambda path: path + "%E2%80%A8",
    "space after": lambda path: path + "%20",
    "slash after": lambda path: path + "/",
    "double slash before": lambda path: "/" + path,
    "double slashes": lambda path: path.replace("/", "//"),
    "dot segment": lambda path: "/." + path,
    "dot segments": lambda path: "/x/.." + path,
    "encoded dot segments": lambda path: "/x/%2e%2e" + path,
    "dot after": lambda path: path + "/.",
    "upper case": str.upper,
    "one letter encoded": lambda path: path[:-1] + f"%{ord(path[-1]):02X}" if path != "/" else "/%2F",
    "all encoded": lambda path: "/" + "".join(f"%{byte:02x}" for byte in path[1:].encode()),
    "encoded twice": lambda path: path[:-1] + f"%25{ord(path[-1]):02X}",
    "encoded slashes": lambda path: "/" + path[1:].replace("/", "%2F"),
    "backslashes": lambda path: path.replace("/", "%5C"),
    "parameter": lambda path: path + ";x=1",
    "query": lambda path: path + "?x=%0A",
    "encoded query": lambda path: path + "%3Fx=1",
    "overlong encoding": lambda path: path.replace("/", "/%C0%AF", 1),
}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spellings of nothing are not held back, however many there are."""
    monkeypatch.setattr(load_shedding, "A_SECOND", 10**9)


class Answer(NamedTuple):
    status: int
    body: bytes


async def ask(app: FastAPI, method: str, target: str, *, body: bytes | None = b"[]", **headers: str) -> Answer:
    """Ask as uvicorn does, which decodes the path. Without a body it never comes."""
    path, _, query = target.partition("?")
    fields = {"host": "here", "content-type": "application/json", **headers}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": unquote(path),
        "scheme": "http", "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "client": ("192.0.2.1", 1), "server": ("here", 80),
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()], "state": {},
    }  # fmt: skip
    sent: list[Message] = []

    async def receive() -> Message:
        if body is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": body or b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return Answer(sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]))


@contextlib.asynccontextmanager
async def running(path: Path, **options: Any) -> AsyncIterator[FastAPI]:
    warm_up()
    app = create_app(path, **{"limits": PATIENT, "origins": [SHOP], **options})
    async with app.router.lifespan_context(app):
        yield app


def routes(app: FastAPI) -> list[tuple[str, str]]:
    """Method and path of every route there is."""
    found = [route for route in app.routes if isinstance(route, Route)]
    return [(method, re.sub("{name}", "t", route.path)) for route in found for method in sorted(route.methods or ())]


def spelled(app: FastAPI) -> list[tuple[str, str, str, str]]:
    """Method and path of every route, how it is spelled, and that."""
    return [(method, path, how, odd(path)) for method, path in routes(app) for how, odd in ODD.items()]


async def refused(app: FastAPI, by: set[int], only: Callable[[str], bool] = lambda _: True, **request: Any) -> None:
    """No spelling gets further than a guard with these answers; the usual spelling of each route meets that guard."""
    for method, path, how, target in spelled(app):
        if only(path):
            answer = await ask(app, method, target, **request)
            allowed = by if how == "as it is" else by | NOTHING_DONE
            assert answer.status in allowed, (method, how, target, answer)


def test_without_an_origin_nothing_reaches_the_path_of_pages(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path / "t.db", origins=[]) as app:
            await refused(app, {403}, "/v1/beacon".__eq__)

    asyncio.run(run())


def test_an_address_at_its_limit_gets_no_further_by_another_spelling(tmp_path: Path) -> None:
    async def run() -> None:
        limits = Limits(**{**vars(PATIENT), "beacon_rate": 0.2})
        async with running(tmp_path / "t.db", limits=limits) as app:
            assert (await ask(app, "POST", "/v1/beacon", origin=SHOP)).status == 200
            await refused(app, {429}, "/v1/beacon".__eq__, origin=SHOP)

    asyncio.run(run())


def test_a_full_service_takes_nothing_by_another_spelling(tmp_path: Path) -> None:
    async def run() -> None:
        full = {name: 0 for name in vars(PATIENT) if name.endswith("in_flight") or name == "kept_for_rank"}
        async with running(tmp_path / "t.db", limits=Limits(**{**vars(PATIENT), **full})) as app:
            await refused(app, {429}, origin=SHOP)

    asyncio.run(run())


def test_pages_have_no_more_places_by_another_spelling(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path / "t.db", limits=Limits(**{**vars(PATIENT), "beacon_in_flight": 0})) as app:
            await refused(app, {429}, "/v1/beacon".__eq__, origin=SHOP)
            await refused(app, {404, 422}, "/v1/trials/t/rank".__eq__)  # rank has its places

    asyncio.run(run())


def test_another_host_or_another_site_is_refused_in_every_spelling(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path / "t.db", hosts=["here"]) as app:
            await refused(app, {403}, host="evil.example", origin=SHOP)
            await refused(app, {403}, origin="https://evil.example")

    asyncio.run(run())


def test_a_key_is_asked_for_in_every_spelling(tmp_path: Path) -> None:
    open_to_all = ("/", "/healthz", "/readyz", "/v1/beacon", "/openapi.json")
    keys = KeyFile(tmp_path / "keys")
    keys.add("somebody", ["read"])

    def keyed(path: str) -> bool:
        return path not in open_to_all and not path.startswith(("/page/", "/ranktrial."))

    async def run() -> None:
        async with running(tmp_path / "t.db", keys=keys) as app:
            await refused(app, {401}, keyed, origin="http://here")

    asyncio.run(run())


def test_a_body_that_does_not_come_is_not_waited_for_in_any_spelling(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path / "t.db", limits=Limits(**{**vars(PATIENT), "body_timeout": 0.001})) as app:
            await ask(app, "PUT", "/v1/trials/t", body=b'{"k": 3}')
            for path in ("/v1/beacon", "/v1/events", "/v1/trials/t/rank"):
                await refused(app, {408, 405}, path.__eq__, body=None, origin=SHOP)

    asyncio.run(run())


def test_metrics_count_what_was_answered(tmp_path: Path) -> None:
    """A label of a route means that this route was asked for: what is no route is 'other'."""

    async def run() -> None:
        async with running(tmp_path / "t.db", origins=[]) as app:
            for how, odd in ODD.items():
                before = app.state.metrics.text().decode()
                answer = await ask(app, "POST", odd("/v1/beacon"))
                after = app.state.metrics.text().decode()
                counted = {line for line in after.splitlines() if line.startswith("ranktrial_requests_total")}
                new = counted - set(before.splitlines())
                route = "/v1/beacon" if answer.status == 403 else "other"
                assert [line for line in new if f'route="{route}"' in line], (how, answer, new)

    asyncio.run(run())


def test_guards_and_the_application_find_the_same_route(tmp_path: Path) -> None:
    app = create_app(tmp_path / "t.db")
    from ranktrial.service.middleware.routing import Routes

    known = Routes(app.routes)
    for method, _, how, target in spelled(app):
        path = unquote(target.partition("?")[0])
        scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
        by_application = [
            route for route in app.routes if isinstance(route, Route) and route.matches(scope)[0] is Match.FULL
        ]
        if not re.search("[\x00-\x1f]", path):
            assert known.asked(method, path).route is (by_application[0] if by_application else None), (how, target)


@pytest.mark.parametrize("path", ["/v1/beacon%0A", "/%00", "/v1/trials/a%0Db", "/x%7F", "/v1/trials/%C2%85/rank"])
def test_control_characters_are_refused_first(tmp_path: Path, path: str) -> None:
    async def run() -> None:
        async with running(tmp_path / "t.db", hosts=["elsewhere"]) as app:
            assert (await ask(app, "POST", path)).status == 400

    asyncio.run(run())


def test_long_paths_are_refused_and_none_is_sent_back_whole(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path / "t.db") as app:
            answer = await ask(app, "GET", "/" + "x" * 100_000)
            assert (answer.status, len(answer.body) < 500) == (414, True)
            for length in (300, 900):
                missing = await ask(app, "GET", "/" + "y" * length)
                assert missing.status == 404
                assert b"y" * 200 not in missing.body

    asyncio.run(run())


def raw_answer(client: Any, request: bytes) -> http.client.HTTPResponse:
    """The answer to bytes that are sent as they are."""
    connection = http.client.HTTPConnection(client.base_url.host, client.base_url.port, timeout=60)
    connection.connect()
    connection.sock.sendall(request)
    answer = http.client.HTTPResponse(connection.sock)
    answer.begin()
    return answer


def test_a_body_with_two_lengths_is_refused(tmp_path: Path) -> None:
    """Content-Length and Transfer-Encoding: a proxy in front may go by the other one, and take the rest for a request."""
    with serving(tmp_path / "t.db") as client:
        head = b"POST /v1/events HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        both = head + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n"
        answer = raw_answer(client, both)
        assert (answer.status, answer.getheader("connection")) == (400, "close")
        one = head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n"
        assert raw_answer(client, one).status == 200


@pytest.mark.parametrize("size", [2 * 2**20, 10_000_000])
def test_a_body_that_is_far_too_large_is_answered(tmp_path: Path, size: int) -> None:
    """Answer as a client sees it that reads after it has sent everything."""
    with serving(tmp_path / "t.db") as client:
        for chunked in (False, True):
            connection = http.client.HTTPConnection(client.base_url.host, client.base_url.port or 80, timeout=60)
            body = iter([b" " * 65_536] * (size // 65_536)) if chunked else b" " * size
            connection.request("POST", "/v1/events", body, {"content-type": "application/json"}, encode_chunked=chunked)
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["status"]) == (413, 413)
            connection.close()
