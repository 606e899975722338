"""Events from pages: of the sites that are named and no others, without a key, bounded in rate, size and number."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clocks import Clock
from live_server import PATIENT, click, is_problem, rank, send, serving, start
from ranktrial.service import Limits
from ranktrial.service.api_keys import KeyFile
from ranktrial.service.client_address import checked_networks, client_address
from ranktrial.service.middleware.cors import checked_origin
from ranktrial.service.middleware.load_shedding import LoadSheddingMiddleware
from ranktrial.service.middleware.rate_limit import SLOTS, RateLimiter, RateLimitMiddleware
from ranktrial.service.middleware.routing import Purpose, RouteMatch
from ranktrial.store.base import MOST_PUBLIC, EventRow
from ranktrial.trial import Trial
from service.test_middleware import answered, status

SHOP, EVIL = "https://shop.example", "https://evil.example"
HELLO = PlainTextResponse("hello")


def beacon(client: httpx.Client, events: Any, origin: str | None = SHOP, kind: str = "text/plain") -> httpx.Response:
    """Request as a browser sends it for a page of an origin."""
    headers = {"content-type": f"{kind};charset=UTF-8"} | ({} if origin is None else {"origin": origin})
    return client.post("/v1/beacon", content=json.dumps(events), headers=headers)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, dict[str, str]]]:
    """A service with keys, and the headers of one who has a key."""
    folder = tmp_path_factory.mktemp("beacon")
    keys = KeyFile(folder / "keys")
    known = {"Authorization": f"Bearer {keys.add('shop', ['serve', 'ingest', 'read', 'admin'])}"}
    with serving(folder / "t.db", keys=keys, origins=[SHOP], hosts=None) as client:
        client.headers.update(known)
        start(client)
        del client.headers["authorization"]
        yield client, known


def shown_to(service: tuple[httpx.Client, dict[str, str]], unit: str) -> dict[str, Any]:
    client, known = service
    body = {"query": "q", "a": ["x", "y", "z", "w"], "b": ["z", "y", "x", "w"], "unit": unit}
    return dict(client.post("/v1/trials/t/rank", json=body, headers=known).raise_for_status().json())


@pytest.mark.slow
def test_a_page_sends_only_the_actions_that_are_allowed(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db", origins=[SHOP], beacon_actions=["cart"]) as client:
        start(client, metrics=["Carts()", "Orders()"])
        shown = rank(client, "u")
        document = shown["ranking"][0]
        cart, order = (
            {"id": shown["id"], "document": document, "action": what, "value": 9} for what in ("cart", "order")
        )
        answer = beacon(client, [{**cart, "time": 5}, order, click(shown["id"], document)]).json()
        assert [one["outcome"] for one in answer["results"]] == ["counted", "ignored", "counted"]
        assert answer["results"][1]["detail"] == "the service takes no 'order' from pages"
        assert [one["outcome"] for one in send(client, order)] == ["counted"]  # with a key, or from this machine
        many = [{**cart, "event_id": str(at)} for at in range(50)]
        assert {beacon(client, many).status_code for _ in range(2)} == {200}
        with Trial.open(tmp_path / "t.db", background=False) as trial:
            rows = list(trial.store.rows(EventRow, trial.state.version.id, 0))
        assert Counter(row.action for row in rows) == {"cart": MOST_PUBLIC - 1, "order": 1}  # what is stored is bounded
        assert client.get("/v1/trials/t/report").json()["tallies"]["events beyond what an impression may have"] > 0
    with serving(tmp_path / "none.db", origins=[SHOP]) as client:
        start(client, metrics=["Carts()"])
        shown = rank(client, "u")
        told = beacon(client, {"id": shown["id"], "document": shown["ranking"][0], "action": "cart"}).json()
        assert told["counts"] == {"ignored": 1}


def test_a_page_sends_clicks_without_a_key(service: tuple[httpx.Client, dict[str, str]]) -> None:
    client, known = service
    shown = shown_to(service, "u1")
    events = [{"id": shown["id"], "seen": shown["ranking"]}, {**click(shown["id"], shown["ranking"][0]), "position": 1}]
    answer = beacon(client, events)
    assert answer.json()["counts"] == {"as drawn": 1, "counted": 1}
    assert answer.headers["access-control-allow-origin"] == SHOP
    assert "Origin" in answer.headers["vary"]
    assert "access-control-allow-credentials" not in answer.headers
    assert beacon(client, events[1], kind="application/json").json()["counts"] == {"counted": 1}
    assert client.get("/v1/trials/t/report", headers=known).json()["clicks"] == 1


def test_nothing_else_is_open_to_pages(service: tuple[httpx.Client, dict[str, str]]) -> None:
    client, _ = service
    shown = shown_to(service, "u2")
    for path in ("/v1/events", "/v1/trials/t/rank", "/v1/trials/t/report", "/v1/trials"):
        preflight = client.options(path, headers={"origin": SHOP, "access-control-request-method": "POST"})
        assert "access-control-allow-origin" not in preflight.headers
    is_problem(client.post("/v1/events", json=[], headers={"origin": SHOP}), 401)
    is_problem(client.get("/v1/beacon", headers={"origin": SHOP}), 405)
    for origin in (EVIL, "null", None, "http://shop.example", "https://shop.example:8443", f"{SHOP}.evil.example"):
        answer = beacon(client, click(shown["id"], shown["ranking"][0]), origin)
        is_problem(answer, 403, says="--origin")
        assert "access-control-allow-origin" not in answer.headers


def test_preflights(service: tuple[httpx.Client, dict[str, str]]) -> None:
    client, _ = service
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    answer = client.options("/v1/beacon", headers={"origin": SHOP, **asked})
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == SHOP
    assert answer.headers["access-control-allow-methods"] == "POST"
    assert answer.headers["access-control-allow-headers"] == "Content-Type"
    refused = client.options("/v1/beacon", headers={"origin": EVIL, **asked})
    is_problem(refused, 403)
    assert not [name for name in refused.headers if name.startswith("access-control")]


def test_what_a_page_makes_up_counts_for_nothing(service: tuple[httpx.Client, dict[str, str]]) -> None:
    client, known = service
    shown = shown_to(service, "u3")
    before = client.get("/v1/trials/t/report", headers=known).json()
    forged = shown["id"][:-4] + ("AAAA" if shown["id"][-4:] != "AAAA" else "BBBB")
    made_up = [click(forged, shown["ranking"][0]), click(shown["id"], "never-shown"), {"id": 7}, "x"]
    answer = beacon(client, made_up)
    assert [one["outcome"] for one in answer.json()["results"]] == ["not ours", "not shown", "invalid", "invalid"]
    after = client.get("/v1/trials/t/report", headers=known).json()
    assert (after["clicks"], after["impressions"]) == (before["clicks"], before["impressions"])


def test_events_of_pages_happen_when_they_arrive(tmp_path: Path) -> None:
    """A key is trusted with the time of a click; a visitor's clock, or what it says, is not."""
    with serving(tmp_path / "t.db", origins=[SHOP]) as client:
        start(client, click_window=3600)
        shown = rank(client, "u")
        long_after = {**click(shown["id"], shown["ranking"][0]), "time": 9e10}
        ubi = {
            "action_name": "click", "query_id": shown["id"], "timestamp": "2999-01-01T00:00:00Z",
            "event_attributes": {"object": {"object_id": shown["ranking"][1]}},
        }  # fmt: skip
        assert [one["outcome"] for one in send(client, long_after, ubi)] == ["late", "late"]
        assert beacon(client, [long_after, ubi]).json()["counts"] == {"counted": 2}


@pytest.mark.parametrize(
    ("content", "kind", "expected"),
    [
        ("[" + "{}," * 50 + "{}]", "text/plain", 413),
        (" " * (2**16 + 1), "text/plain", 413),
        ("{", "text/plain", 400),
        ("[]", "multipart/form-data", 415),
        ("[]", "application/x-www-form-urlencoded", 415),
        ("7", "text/plain", 422),
    ],
)
def test_bodies_are_bounded(
    service: tuple[httpx.Client, dict[str, str]], content: str, kind: str, expected: int
) -> None:
    answer = service[0].post("/v1/beacon", content=content, headers={"origin": SHOP, "content-type": kind})
    is_problem(answer, expected)
    assert answer.headers["access-control-allow-origin"] == SHOP  # so that the page can tell why
    assert (expected == 415) == answer.json()["detail"].endswith("must be application/json or text/plain")


def test_an_address_that_sends_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    limits = Limits(**{**vars(PATIENT), "beacon_rate": 0.2})  # one at once, and the next after five seconds
    with serving(tmp_path / "t.db", origins=[SHOP], proxies=["127.0.0.0/8"], limits=limits) as client:
        assert beacon(client, []).status_code == 200
        refused = beacon(client, [])
        is_problem(refused, 429, says="from one address")
        assert refused.headers["retry-after"] in ("4", "5")
        assert refused.headers["access-control-expose-headers"] == "Retry-After"
        assert client.post("/v1/events", json=[]).status_code == 200  # only pages are limited
        client.headers["x-forwarded-for"] = "198.51.100.7"
        assert beacon(client, []).status_code == 200  # another visitor behind the same proxy
        assert beacon(client, []).status_code == 429


def test_without_origins_the_path_is_closed_to_all(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db", hosts=("127.0.0.1",)) as client:
        for origin in (SHOP, str(client.base_url).rstrip("/"), None):
            is_problem(beacon(client, [], origin), 403)


def test_without_keys_pages_of_named_sites_reach_that_path_only(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db", hosts=("127.0.0.1",), origins=[SHOP]) as client:
        assert beacon(client, []).status_code == 200
        is_problem(client.post("/v1/events", json=[], headers={"origin": SHOP}), 403)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://shop.example", "https://shop.example"),
        ("https://SHOP.example:443/", "https://shop.example"),
        ("http://shop.example:80", "http://shop.example"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
    ],
)
def test_origins_are_as_browsers_send_them(text: str, expected: str) -> None:
    assert checked_origin(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "*", "null", "", "shop.example", "https://", "https://*.example", "https://a.example/path", "https://a.example?x",
        "https://a.example#x", "https://user@a.example", "ftp://a.example", "https://a.example:99999", "https://bücher.example",
        "https://a.example,https://b.example", "https://a b.example", "file:///x", "javascript:alert(1)",
    ],
)  # fmt: skip
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a scheme, a host and at most a port"):
        checked_origin(text)


def test_the_limiter_admits_a_burst_and_then_its_rate() -> None:
    clock = Clock(1000.0)
    limiter = RateLimiter(rate=4, burst=10, clock=clock)
    assert [limiter.wait("a") == 0 for _ in range(12)] == [True] * 10 + [False] * 2
    assert limiter.wait("a") == pytest.approx(0.25)
    admitted = 0
    for _ in range(1_000):  # ten seconds of one who tries all the time
        clock.now += 0.01
        admitted += limiter.wait("a") == 0
    assert admitted == 40
    clock.now += 100
    assert [limiter.wait("a") == 0 for _ in range(12)] == [True] * 10 + [False] * 2


def test_addresses_do_not_take_each_others_rate_nor_memory() -> None:
    limiter = RateLimiter(rate=1, burst=1, clock=Clock())
    before = len(limiter._empty_at)
    refused = sum(limiter.wait(f"10.{one >> 8}.{one & 255}.1") > 0 for one in range(2_000))
    # Each shares a slot with one of those before it with probability below 2,000 / SLOTS: 30 on average, 5 standard errors.
    assert refused <= 2_000**2 / 2 / SLOTS + 5 * (2_000**2 / 2 / SLOTS) ** 0.5
    assert len(limiter._empty_at) == before == SLOTS


def test_an_address_has_so_many_requests_at_once() -> None:
    inner: list[int] = []

    async def nested(scope: Scope, receive: Receive, send: Send) -> None:
        """Another request of this address while the first is worked on, and one of another."""
        if scope["client"][0] == "192.0.2.1" and not inner:
            for address in ("192.0.2.1", "192.0.2.2"):
                sent: list[Message] = []

                async def note(message: Message, sent: list[Message] = sent) -> None:
                    sent.append(message)

                inner.append(0)
                await app({**scope, "client": (address, 1)}, receive, note)
                inner[-1] = sent[0]["status"]
        await HELLO(scope, receive, send)

    def from_address(app: ASGIApp) -> ASGIApp:
        async def addressed(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "client": ("192.0.2.1", 1)}, receive, send)

        return addressed

    app = RateLimitMiddleware(nested, RateLimiter(rate=1e6, burst=100), at_once=1)
    assert status(from_address(app), purpose=Purpose.BEACON) == 200
    assert inner == [429, 200]
    assert not app._under_way  # nothing is left behind


def test_beacons_leave_places_for_others() -> None:
    outcomes: dict[Purpose, int] = {}

    async def nested(scope: Scope, receive: Receive, send: Send) -> None:
        """One of each kind while a beacon is worked on."""
        if scope["asked"].purpose is Purpose.BEACON and not outcomes:
            outcomes[Purpose.BEACON] = 0
            for purpose in (Purpose.BEACON, Purpose.OTHER, Purpose.RANK):
                sent: list[Message] = []

                async def note(message: Message, sent: list[Message] = sent) -> None:
                    sent.append(message)

                await app({**scope, "asked": RouteMatch(purpose)}, receive, note)
                outcomes[purpose] = sent[0]["status"]
        await HELLO(scope, receive, send)

    app = LoadSheddingMiddleware(nested, in_flight=9, kept_for_rank=3, beacons=1)
    answered(app, purpose=Purpose.BEACON)
    assert outcomes == {Purpose.BEACON: 429, Purpose.OTHER: 200, Purpose.RANK: 200}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),  # no proxy of ours: its word counts for nothing
        ("10.0.0.2", "", "10.0.0.2"),
        ("10.0.0.2", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.2", "6.6.6.6, 198.51.100.1", "198.51.100.1"),  # what the visitor wrote there itself
        ("10.0.0.2", "198.51.100.1, 10.0.0.3", "198.51.100.1"),  # two proxies
        ("10.0.0.2", "10.0.0.4, 10.0.0.3", "10.0.0.4"),
        ("10.0.0.2", "198.51.100.1, nonsense", "10.0.0.2"),
        ("10.0.0.2", "198.51.100.1:4711", "198.51.100.1"),
        ("10.0.0.2", "[2001:db8:1:2:3:4:5:6]:443", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "", "2001:db8:1:2::/64"),
        ("::ffff:198.51.100.1", "", "198.51.100.1"),
        ("testclient", "198.51.100.1", ""),
    ],
)
def test_whom_a_request_comes_from(peer: str, forwarded: str, expected: str) -> None:
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    scope = {"type": "http", "client": (peer, 1), "headers": headers}
    assert client_address(scope, checked_networks(["10.0.0.0/29", "::1"])) == expected
