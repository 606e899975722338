"""Events: ours and UBI's, mixed, repeated, in any order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import httpx
import pytest

from live_server import click, rank, send, serving, start
from ranktrial.store.base import ClickRow, EventRow
from ranktrial.trial import Trial


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with serving(tmp_path / "t.db") as made:
        start(made)
        yield made


def ubi(id: str | None, document: Any, action: str = "click", **more: Any) -> dict[str, Any]:
    """Events as OpenSearch's collector sends them."""
    return {
        "application": "shop",
        "action_name": action,
        "query_id": id,
        "session_id": "84266fdb",
        "client_id": "BugsBunny::Firefox@0967084",
        "timestamp": datetime.now(UTC).isoformat(),
        "message_type": "CLICK",
        "message": "a user clicked",
        "event_attributes": {
            "object": {"object_id": document, "object_id_type": "product", "object_id_field": "sku"},
            "position": {"ordinal": 1, "xy": {"x": 1, "y": 2}},
            "anything": {"else": [1, 2]},
        },
        **more,
    }


@pytest.mark.slow
def test_ubi_events_are_taken_as_they_are(client: httpx.Client) -> None:
    shown = rank(client, "u")
    first, second = shown["ranking"][:2]
    event = ubi(shown["id"], first)
    results = send(
        client,
        event,
        ubi(shown["id"], second, "click_through"),
        ubi(shown["id"], first, "add_to_cart"),
        ubi(None, first, "page_exit", event_attributes={"position": {}, "object": {"idleTimeoutMs": 5000}}),
        {"action_name": "login", "timestamp": "2018-11-13T20:20:39"},
        ubi(None, first),
        ubi("00112233-4455-6677-8899-aabbccddeeff", first),
        ubi(shown["id"], "never shown", event_id="own-id"),
        ubi(shown["id"], 7),
    )
    assert [r["outcome"] for r in results] == [
        "counted", "counted", "not measured", "ignored", "ignored", "not ours", "not ours", "not shown", "not shown",
    ]  # fmt: skip
    assert [r["detail"] for r in results[:2]] == [None, "stood at rank 2, the event says 1"]
    assert results[7]["event_id"] == "own-id"
    made = [r["event_id"] for r in results if r["event_id"] != "own-id"]
    assert len({*made}) == len(made)
    assert send(client, event)[0]["event_id"] == results[0]["event_id"]  # made from the event alone
    report = client.get("/v1/trials/t/report").json()
    assert (report["impressions"], report["clicks"]) == (1, 2)  # where a click claims to have been changes nothing


SHOP: dict[str, Any] = {"metrics": ["Carts()", "Orders(window='7d')", "Revenue(window='7d')"]}


def events_of(path: Path, name: str = "t") -> list[tuple[str, str, int]]:
    with Trial.open(path, name, background=False) as trial:
        return sorted(
            (row.document, row.action, row.amount) for row in trial.store.rows(EventRow, trial.state.version.id, 0)
        )


def test_carts_and_orders_are_taken_with_their_values(client: httpx.Client, tmp_path: Path) -> None:
    start(client, **SHOP)
    shown = rank(client, "u")
    first, second = shown["ranking"][:2]
    bought = {"id": shown["id"], "document": first, "action": "order"}
    results = send(
        client,
        {"id": shown["id"], "document": first, "action": "cart"},
        {**bought, "value": "39.90", "event_id": "4711"},
        {**bought, "value": 39.9, "event_id": "4711"},  # sent again
        {**bought, "value": -39.9, "event_id": "4711-back", "time": None},
        {**bought, "document": second, "value": 12},
        click(shown["id"], second),
        {**bought, "document": "sku-99", "value": 12},
        {**bought, "action": "signup"},
        {**bought, "id": "nonsense"},
    )
    assert [one["outcome"] for one in results] == [
        "counted", "counted", "counted", "counted", "counted", "counted", "not shown", "not measured", "not ours",
    ]  # fmt: skip
    assert [results[at]["event_id"] for at in (1, 2, 3)] == ["4711", "4711", "4711-back"]
    assert events_of(tmp_path / "t.db") == sorted(
        [
            (first, "cart", 0),
            (first, "order", 39_900_000),
            (first, "order", -39_900_000),
            (second, "order", 12_000_000),
            (first, "signup", 0),
        ]
    )


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"value": "39,90"}, "value is '39,90', must be a number such as 39.90"),
        ({"value": True}, "value is True"),
        ({"value": {"EUR": 3}}, "value is {'EUR': 3}"),
        ({"value": -3}, "a refund needs an event_id"),
        ({"value": -3, "event_id": ""}, "a refund needs an event_id"),
        ({"value": 1e300}, "from -10,000,000,000 to 10,000,000,000"),
        ({"action": "Order"}, "action: String should match pattern"),
        ({"action": "click"}, "clicks are not events with a value"),
        ({"position": 1}, "position: Extra inputs are not permitted"),
        ({"event_id": 7}, "event_id: Input should be a valid string"),
    ],
)
def test_a_wrong_event_is_named_and_takes_no_other_with_it(
    client: httpx.Client, tmp_path: Path, wrong: dict[str, Any], says: str
) -> None:
    start(client, **SHOP)
    shown = rank(client, "u")
    good = {"id": shown["id"], "document": shown["ranking"][0], "action": "order", "value": 3}
    told = send(client, {**good, **wrong}, good)
    assert [one["outcome"] for one in told] == ["invalid", "counted"]
    assert says in told[0]["detail"]
    assert events_of(tmp_path / "t.db") == [(shown["ranking"][0], "order", 3_000_000)]


def test_carts_and_purchases_of_ubi_are_taken_as_they_are(client: httpx.Client, tmp_path: Path) -> None:
    start(client, **SHOP)
    shown = rank(client, "u")
    document = shown["ranking"][1]
    priced = ubi(shown["id"], document, "purchase", event_id="4711")
    priced["event_attributes"]["value"] = "39.90"
    told = send(
        client,
        ubi(shown["id"], document, "add_to_cart"),
        ubi(shown["id"], document, "add_to_cart"),  # a moment later: once
        priced,
        ubi(shown["id"], document, "purchase"),
        ubi(shown["id"], None, "purchase"),
        {**priced, "event_attributes": {**priced["event_attributes"], "value": "much"}},
    )
    assert [one["outcome"] for one in told] == ["counted", "counted", "counted", "counted", "invalid", "invalid"]
    assert told[4]["detail"] == "event_attributes.object.object_id: purchase needs it"
    assert "value is 'much'" in told[5]["detail"]
    assert events_of(tmp_path / "t.db") == [
        (document, "cart", 0),
        (document, "order", 0),
        (document, "order", 39_900_000),
    ]


@pytest.mark.slow
def test_positions_are_compared_and_reported(client: httpx.Client) -> None:
    """In our own events and in UBI's; 120 visitors click on the first result, which half of the events say was the second."""
    for visitor in range(120):
        shown = rank(client, f"u{visitor}")
        own = {**click(shown["id"], shown["ranking"][0]), "position": 1 + visitor % 2}
        send(client, own if visitor % 4 < 2 else ubi(shown["id"], shown["ranking"][0]))
    assert send(client, own)[0]["detail"] == "stood at rank 1, the event says 2"
    report = client.get("/v1/trials/t/report").json()
    (told,) = [one for one in report["guardrails"] if one["name"] == "the page shows what was drawn"]
    assert (told["status"], told["value"]) == ("fail", 0.25)
    assert report["tallies"]["pages with a click at another rank than drawn"] == 30
    assert send(client, {**own, "position": 0})[0]["outcome"] == "invalid"


@pytest.mark.parametrize("ordinal", [0, -3, 10**12])
def test_an_ordinal_that_is_no_rank_takes_no_click_with_it(client: httpx.Client, ordinal: int) -> None:
    """Some pages count from 0; a click counts wherever it claims to have been."""
    shown = rank(client, "u")
    event = ubi(shown["id"], shown["ranking"][0])
    event["event_attributes"]["position"] = {"ordinal": ordinal}
    told = send(client, event)[0]
    assert (told["outcome"], told["detail"]) == ("counted", f"stood at rank 1, the event says {ordinal}")


@pytest.mark.slow
def test_pages_that_were_seen_are_compared(client: httpx.Client) -> None:
    shown = rank(client, "u")
    top = shown["ranking"][:3]
    results = send(
        client,
        {"id": shown["id"], "seen": top},
        click(shown["id"], top[0]),
        {"id": shown["id"], "seen": [*top[1:], top[0]], "event_id": "own-id"},
        {"id": shown["id"], "seen": top[0]},
        {"id": shown["id"], "seen": top, "document": top[0]},
        {"id": "nonsense", "seen": top},
    )
    assert [r["outcome"] for r in results] == ["as drawn", "counted", "not as drawn", "invalid", "invalid", "not ours"]
    assert results[2]["event_id"] == "own-id"
    report = client.get("/v1/trials/t/report").json()
    assert (report["impressions"], report["clicks"]) == (1, 1)


def test_whole_numbers_are_their_text(client: httpx.Client) -> None:
    shown = client.post("/v1/trials/t/rank", json={"query": "q", "a": ["7", "8"], "b": ["8", "7"], "unit": "u"}).json()
    assert send(client, ubi(shown["id"], 7))[0]["outcome"] == "counted"


def test_other_actions_can_be_clicks(tmp_path: Path) -> None:
    with serving(tmp_path / "t.db", click_actions={"purchase"}) as client:
        start(client)
        shown = rank(client, "u")
        results = send(client, *(ubi(shown["id"], shown["ranking"][0], action) for action in ("click", "purchase")))
        assert [r["outcome"] for r in results] == ["ignored", "counted"]


@pytest.mark.slow
def test_a_bad_event_does_not_take_others_with_it(client: httpx.Client) -> None:
    shown = rank(client, "u")
    good = click(shown["id"], shown["ranking"][0])
    bad: list[Any] = [
        None, [], "text", {}, {"id": "x"}, {"id": 1, "document": "x"}, {**good, "time": "soon"}, {**good, "more": 1},
        {"action_name": "click"}, ubi(shown["id"], None), ubi(shown["id"], "x", timestamp="yesterday"),
        ubi(shown["id"], "x", event_attributes=3), {**good, "document": "x" * 1001},
    ]  # fmt: skip
    results = send(client, *itertools.chain.from_iterable((one, good) for one in bad))
    assert [r["outcome"] for r in results] == ["invalid", "counted"] * len(bad)
    assert all(r["detail"] for r in results[::2])
    assert client.get("/v1/trials/t/report").json()["clicks"] == 1


@pytest.mark.slow
def test_one_event_needs_no_list_and_large_batches_are_taken_too(client: httpx.Client) -> None:
    shown = rank(client, "u")
    answer = client.post("/v1/events", json=ubi(shown["id"], shown["ranking"][0])).json()
    assert answer["counts"] == {"counted": 1}
    many = client.post("/v1/events", json=[ubi(shown["id"], d) for d in shown["ranking"]] * 100).json()
    assert many["counts"] == {"counted": 300, "later page": 100 * (len(shown["ranking"]) - 3)}
    assert client.get("/v1/trials/t/report").json()["clicks"] == 3


@pytest.mark.slow
def test_a_late_click_does_not_count(client: httpx.Client) -> None:
    shown = rank(client, "u")
    assert send(client, ubi(shown["id"], shown["ranking"][0], timestamp="2100-01-01T00:00:00Z"))[0]["outcome"] == "late"
    assert client.get("/v1/trials/t/report").json()["clicks"] == 0


@pytest.mark.slow
def test_any_order_and_any_number_of_times_gives_the_same_report(client: httpx.Client, tmp_path: Path) -> None:
    shown = [rank(client, f"u{i}") for i in range(6)]
    events = [click(s["id"], s["ranking"][i % 4]) for i, s in enumerate(shown)]
    send(client, *events[::-1], *events)
    send(client, *events[2:4])
    before = client.get("/v1/trials/t/report").json()
    for event in events:
        send(client, event)
    after = client.get("/v1/trials/t/report").json()
    assert (after["clicks"], after["decision"], after["impressions"]) == (before["clicks"], before["decision"], 6)
    assert before["clicks"] == 5  # u3 clicked rank 4 of 3 that count
    assert [one["tallies"]["duplicate clicks"] for one in (before, after)] == [8, 14]
    with Trial.open(tmp_path / "t.db", background=False) as trial:
        assert len(list(trial.store.rows(ClickRow, 1, 0))) == 6


@pytest.mark.slow
def test_clicks_before_their_impression_wait_for_it(client: httpx.Client, tmp_path: Path) -> None:
    with Trial.create(
        tmp_path / "elsewhere.db", "t", k=3, seed=5, method='LogOpt(bias="known")', background=False
    ) as elsewhere:
        shown = elsewhere.rank("q", ["x", "y"], ["y", "z"], unit="u", wait=True)  # the same secret and version
    assert send(client, click(shown.id, shown.ranking[0]))[0]["outcome"] == "waiting"
    client.post("/v1/trials/t/rank", json={"query": "q", "a": ["x", "y"], "b": ["y", "z"], "unit": "u"})
    assert client.get("/v1/trials/t/report").json()["clicks"] == 1


def test_whole_numbers_are_ids_too(client: httpx.Client) -> None:
    asked = {"query": "q", "a": [7, 8, "x"], "b": ["8", 9], "unit": 17}
    shown = client.post("/v1/trials/t/rank", json=asked).json()
    assert sorted(shown["ranking"]) == ["7", "8", "9", "x"]
    assert rank(client, "17", a=["7", "8", "x"], b=["8", "9"])["id"] == shown["id"]
    assert send(client, {"id": shown["id"], "document": int(next(d for d in shown["ranking"][:3] if d != "x"))}) == [
        {"event_id": ANY, "outcome": "counted", "detail": None}
    ]


def test_milliseconds_are_not_taken_for_seconds(client: httpx.Client) -> None:
    shown = rank(client, "u")
    (result,) = send(client, {**click(shown["id"], shown["ranking"][0]), "time": 1_794_830_400_000})
    assert result["outcome"] == "invalid"
    assert "time" in result["detail"]


@pytest.mark.slow
def test_ids_of_no_trial_are_in_every_report(client: httpx.Client) -> None:
    start(client, "another")
    send(client, ubi("00112233-4455-6677-8899-aabbccddeeff", "x"), click("!", "x"))
    for name in ("t", "another"):
        assert client.get(f"/v1/trials/{name}/report").json()["tallies"] == {"events with an id of no trial": 2}


def test_a_version_that_another_process_made_is_found(client: httpx.Client, tmp_path: Path) -> None:
    with Trial.create(tmp_path / "t.db", "elsewhere", k=3, background=False) as trial:
        shown = trial.rank("q", ["x", "y"], ["y", "z"], unit="u", wait=True)
    assert send(client, click(shown.id, shown.ranking[0]))[0]["outcome"] == "counted"


def test_a_timestamp_that_is_far_off_takes_no_other_event_with_it(client: httpx.Client) -> None:
    shown = rank(client, "u")
    good = ubi(shown["id"], shown["ranking"][0])
    far = [ubi(shown["id"], "x", timestamp=when) for when in ("9999-12-31T23:59:59Z", 150_000_000_000_000)]
    assert [one["outcome"] for one in send(client, good, *far)] == ["counted", "invalid", "invalid"]
