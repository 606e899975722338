"""Each middleware by itself, around a small application."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

import pytest
from fastapi import Depends
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ranktrial.service.log_lines import JsonFormatter, TextFormatter
from ranktrial.service.metrics import Metrics
from ranktrial.service.middleware import load_shedding
from ranktrial.service.middleware.answered import AnsweredMiddleware
from ranktrial.service.middleware.dispatch import DirectRoute, DispatchMiddleware
from ranktrial.service.middleware.load_shedding import LoadSheddingMiddleware
from ranktrial.service.middleware.routing import Purpose, RouteMatch, RoutingMiddleware
from ranktrial.service.middleware.same_origin import SameOriginMiddleware
from ranktrial.service.middleware.trusted_host import TrustedHostMiddleware
from ranktrial.service.problems import Refusal

HELLO = PlainTextResponse("hello")


def answered(
    app: ASGIApp, *, kind: str = "http", path: str = "/", purpose: Purpose = Purpose.OTHER, **headers: str
) -> list[Message]:
    """Messages sent in answer to one request, which has been routed."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "method": "GET", "path": path, "headers": raw, "asked": RouteMatch(purpose)}
    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    return sent


def status(app: ASGIApp, **request: Any) -> int:
    return int(answered(app, **request)[0]["status"])


def failing(fault: Exception, *, begun: bool = False) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise fault

    return app


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", 200), ("localhost:80", 200), ("[::1]:8000", 200), ("[::1]", 200), ("::1", 403), ("evil:80", 403)],
)
def test_trusted_host(host: str, expected: int) -> None:
    assert status(TrustedHostMiddleware(HELLO, ["localhost", "[::1]"]), host=host) == expected


def test_a_request_without_a_host_is_not_trusted() -> None:
    assert status(TrustedHostMiddleware(HELLO, ["localhost"])) == 403


@pytest.mark.parametrize(
    ("origin", "expected"),
    [("http://localhost:80", 200), ("http://localhost", 403), ("http://evil.example", 403), ("null", 403)],
)
def test_same_origin(origin: str, expected: int) -> None:
    assert status(SameOriginMiddleware(HELLO), host="localhost:80", origin=origin) == expected


def test_load_shedding_counts_what_is_under_way() -> None:
    async def nested(scope: Scope, receive: Receive, send: Send) -> None:
        """A second request while the first is worked on."""
        if scope["path"] == "/first":
            await app({**scope, "path": "/second"}, receive, send)
        await HELLO(scope, receive, send)

    app = LoadSheddingMiddleware(nested, in_flight=1)
    for _ in range(2):
        starts = [message for message in answered(app, path="/first") if message["type"] == "http.response.start"]
        assert [message["status"] for message in starts] == [429, 200]
    assert status(LoadSheddingMiddleware(HELLO, in_flight=0), purpose=Purpose.PROBE) == 429
    assert status(LoadSheddingMiddleware(HELLO, in_flight=0, probes=1), purpose=Purpose.PROBE) == 200


def by_application(app: ASGIApp) -> ASGIApp:
    """Dispatch of a request whose route is the application's."""
    return RoutingMiddleware(DispatchMiddleware(app), lambda: [Route("/", lambda _: HELLO)])


def test_a_fault_is_answered_once(caplog: pytest.LogCaptureFixture) -> None:
    assert status(by_application(failing(OSError("no disk")))) == 500
    assert caplog.messages == ["fault"]
    begun = answered(by_application(failing(OSError("no disk"), begun=True)))
    assert [message["type"] for message in begun] == ["http.response.start"]


def test_a_client_that_left_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    assert status(by_application(failing(ClientDisconnect()))) == 499
    assert caplog.messages == []


def test_metrics_also_of_what_fails() -> None:
    metrics = Metrics(lambda: 0)
    answered(AnsweredMiddleware(HELLO, metrics))
    with pytest.raises(OSError, match="no disk"):
        answered(AnsweredMiddleware(failing(OSError("no disk")), metrics))
    text = metrics.text().decode()
    assert 'ranktrial_requests_total{method="any",route="other",status="200"} 1.0' in text
    assert 'ranktrial_requests_total{method="any",route="other",status="0"} 1.0' in text
    assert "ranktrial_requests_in_flight 0.0" in text


@pytest.mark.parametrize(("log_all", "expected"), [(True, [200, 500]), (False, [500])])
def test_access_log(caplog: pytest.LogCaptureFixture, log_all: bool, expected: list[int]) -> None:
    with caplog.at_level(logging.INFO, "ranktrial.service"):
        for app in (HELLO, PlainTextResponse("broken", 500)):
            answered(AnsweredMiddleware(app, Metrics(lambda: 0), log_all=log_all), path="/x")
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    assert [line["status"] for line in lines] == expected
    assert lines[-1].keys() == {"time", "level", "logger", "event", "method", "path", "status", "milliseconds"}
    assert (lines[-1]["level"], lines[-1]["path"]) == ("error", "/x")


def test_json_lines_hold_the_traceback() -> None:
    try:
        raise OSError("no disk")
    except OSError:
        record = logging.LogRecord("name", logging.ERROR, "file", 1, "fault %s", ("here",), sys.exc_info())
    line = json.loads(JsonFormatter().format(record))
    assert (line["event"], line["level"]) == ("fault here", "error")
    assert line["traceback"].endswith("OSError: no disk")
    text = TextFormatter().format(record).splitlines()
    assert (text[0][8:], text[-1]) == ("  fault here", "OSError: no disk")


def test_lines_for_people_have_all_of_an_event() -> None:
    told = {"name": "n", "levelno": logging.INFO, "msg": "compiling", "until_then": "A's lists are shown", "port": 8000}
    record = logging.makeLogRecord(told)
    assert TextFormatter().format(record)[8:] == "  compiling; until then A's lists are shown; port 8000"


def test_what_is_no_request_passes_through_all() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "lifespan.startup.complete"})

    inner = SameOriginMiddleware(TrustedHostMiddleware(app, []))
    whole = LoadSheddingMiddleware(DispatchMiddleware(inner), in_flight=0)
    routed = RoutingMiddleware(whole, list)
    assert answered(AnsweredMiddleware(routed, Metrics(lambda: 0)), kind="lifespan") == [
        {"type": "lifespan.startup.complete"}
    ]


def directly(endpoint: Any, app: ASGIApp = HELLO) -> ASGIApp:
    async def need(request: Request) -> None:
        request.scope["needed"] = True

    routes = [
        DirectRoute("/{name}/x", endpoint, methods=["GET"], dependencies=[Depends(need)]),
        Route("/plain", lambda _: HELLO),
        object(),
    ]
    return RoutingMiddleware(DispatchMiddleware(app), lambda: routes)


def test_dispatch() -> None:
    async def endpoint(request: Request, name: str) -> Response:
        assert request.scope["needed"]
        assert request.scope["route"].path == "/{name}/x"
        return PlainTextResponse(name)

    assert answered(directly(endpoint), path="/a/x")[1]["body"] == b"a"
    assert answered(directly(endpoint), path="/plain")[1]["body"] == b"hello"
    for path in ("/a/y", "/a/b/x", "/a/x/", "/A/X"):
        assert status(directly(endpoint), path=path) == 404
    assert answered(directly(endpoint), kind="lifespan", path="/a/x")[1]["body"] == b"hello"


def test_dispatch_answers_problems() -> None:
    async def unknown(request: Request, name: str) -> Response:
        raise Refusal(404, f"no {name}")

    async def broken(request: Request, name: str) -> Response:
        raise OSError("disk")

    sent = answered(directly(unknown), path="/a/x")
    assert (sent[0]["status"], json.loads(sent[1]["body"])["detail"]) == (404, "no a")
    assert status(directly(broken), path="/a/x") == 500


def test_guards_are_only_where_they_are_for_and_the_outermost_comes_first() -> None:
    class Note:
        def __init__(self, app: ASGIApp, what: str) -> None:
            self._app, self._what = app, what

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            noted.append(self._what)
            await self._app(scope, receive, send)

    noted: list[str] = []
    guards = {Purpose.PROBE: [Middleware(Note, "outer"), Middleware(Note, what="inner")]}
    app = RoutingMiddleware(HELLO, lambda: [Route("/healthz", HELLO), Route("/x", HELLO)], guards)
    assert [status(app, path=path) for path in ("/healthz", "/x", "/nothing")] == [200] * 3
    assert noted == ["outer", "inner"]


@pytest.mark.parametrize("purpose", [Purpose.PROBE, Purpose.NOTHING])
def test_who_asks_all_the_time_how_the_service_is_or_for_what_is_not_there_waits_for_a_refusal(
    monkeypatch: pytest.MonkeyPatch, purpose: Purpose
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(load_shedding, "A_SECOND", 3)
    monkeypatch.setattr("asyncio.sleep", sleep)
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    app = LoadSheddingMiddleware(HELLO, in_flight=1, probes=1)
    assert [status(app, purpose=purpose) for _ in range(5)] == [200] * 3 + [429] * 2
    assert waits == [load_shedding.HELD_BACK] * 2
    others = {Purpose.PROBE, Purpose.NOTHING, Purpose.RANK, Purpose.OTHER} - {purpose}
    assert [status(app, purpose=other) for other in others] == [200] * 3
    now[0] += 1
    assert status(app, purpose=purpose) == 200
