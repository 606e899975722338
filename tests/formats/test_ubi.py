"""Logs of User Behavior Insights as sites have them: bulk files, exports, impressions as lists, and the use of every row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from ranktrial.cli import app
from ranktrial.formats import examine, read_source
from ranktrial.formats.readers import LogSource
from ranktrial.trec.files import FormatError
from realdata import real_data

runner = CliRunner()
DAY = "2026-01-05T10:0"
Row = dict[str, Any]


def query(page: str, text: str = "shoes", hits: Sequence[str] = (), minute: int = 0, **more: Any) -> Row:
    """A document of ``ubi_queries``; the query that the engine ran is no text of people."""
    row = {"application": "shop", "query_id": page, "client_id": f"browser {page}", "user_query": text}
    return (
        row
        | {"query": '{"match_all": {}}', "query_response_hit_ids": list(hits), "timestamp": f"{DAY}{minute}:00Z"}
        | more
    )


def event(action: str, page: str | None, document: str | None, position: int | None = None, **more: Any) -> Row:
    """A document of ``ubi_events``, ten seconds after a query."""
    attributes: Row = {"object": {"object_id": document, "object_id_field": "sku"}}
    if position is not None:
        attributes["position"] = {"ordinal": position}
    row = {"application": "shop", "action_name": action, "query_id": page, "client_id": f"browser {page}"}
    return row | {"session_id": "s", "timestamp": f"{DAY}0:10.5+0000", "event_attributes": attributes} | more


def shown(page: str, documents: str, first: int = 1, **more: Any) -> list[Row]:
    return [event("impression", page, one, at, **more) for at, one in enumerate(documents, first)]


def write(file: Path, rows: Sequence[Row], wrapped: str = "plain") -> Path:
    """Documents as JSON lines: as they are, as a bulk file, as an export, or as Parquet."""
    if wrapped == "parquet":
        plain = write(file.with_suffix(".draft.jsonl"), rows)
        duckdb.execute(f"COPY (SELECT * FROM read_json('{plain}')) TO '{file}' (FORMAT parquet)")
        return file
    lines: list[Row] = []
    for number, row in enumerate(rows):
        index = "ubi_events" if "action_name" in row else "ubi_queries"
        if wrapped == "bulk":
            lines += [{"index": {"_index": index, "_id": f"{number}"}}, row]
        else:
            lines.append({"_index": index, "_id": f"{number}", "_source": row} if wrapped == "export" else row)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def pages(source: LogSource) -> list[tuple[str, list[str], list[int]]]:
    return source.connection.execute(
        "SELECT query, shown, clicked FROM impressions ORDER BY time, impression"
    ).fetchall()


def uses(source: LogSource) -> dict[tuple[str, str], int]:
    return {(one.kind, one.use): one.count for one in source.uses}


QUERIES = [query("1", hits="xyz"), query("2", "boots", minute=1)]
EVENTS = [
    *shown("2", "uv"),
    event("click", "1", "y", 2),
    event("click", "2", "u", 1),
    event("add_to_cart", "2", "u", 1),
]
WHOLE = [("shoes", ["x", "y", "z"], [0, 1, 0]), ("boots", ["u", "v"], [1, 0])]


@pytest.mark.parametrize("wrapped", ["plain", "bulk", "export", "parquet"])
@pytest.mark.parametrize("files", [1, 2])
def test_the_same_log_however_it_was_written(wrapped: str, files: int, tmp_path: Path) -> None:
    suffix = "parquet" if wrapped == "parquet" else "ndjson"
    if files == 1:
        source = read_source(write(tmp_path / f"ubi.{suffix}", [*EVENTS, *QUERIES], wrapped))
    else:
        queries = write(tmp_path / f"queries.{suffix}", QUERIES, wrapped)
        source = read_source(queries, events=write(tmp_path / f"events.{suffix}", EVENTS, wrapped))
    assert (source.format, source.kind, source.k, source.rows, source.skipped) == ("ubi", "pages", 3, 7, 0)
    assert pages(source) == WHOLE
    assert uses(source) == {
        ("query", "list shown"): 1,
        ("query", "text of a query whose impressions are the list"): 1,
        ("impression", "list shown"): 2,
        ("click", "click"): 2,
        ("add_to_cart", "cart"): 1,
    }


def test_positions_count_from_0_where_an_application_does(tmp_path: Path) -> None:
    rows = [query("1"), *shown("1", "xy", 0), query("2", minute=1), *shown("2", "uv", 1)]
    other = [query("3", minute=2, application="app"), *shown("3", "wz", 1, application="app")]
    source = read_source(write(tmp_path / "ubi.ndjson", rows + other))
    assert [one[1] for one in pages(source)] == [["x", "y"], ["w", "z"]]
    # A position that one of them begins with is missing in another that counts in the same way.
    assert source.searches[-1].use == "a position is missing in its impressions"


@pytest.mark.parametrize(
    ("rows", "use"),
    [
        ([query("1"), *shown("1", "xyz")[::2]], "a position is missing in its impressions"),
        ([query("1"), *shown("1", "xy"), *shown("1", "z")], "its impressions have two results at one position"),
        ([query("1"), *shown("1", "xx")], "its impressions have one result at two positions"),
        ([query("1"), *shown("1", "xy", user_query="boots")], "several queries for one query_id"),
        ([query("1", hits="xy"), query("1", hits="yx")], "several lists of hit ids for one query_id"),
        ([query("1", hits="xy"), *shown("1", "xw")], "its impressions show results that are not among its hit ids"),
        ([query("1")], "neither hit ids nor impressions with positions"),
        (shown("1", "xy"), "no user_query"),
    ],
)
def test_a_search_whose_list_is_not_known_is_left_out_with_its_clicks(
    rows: list[Row], use: str, tmp_path: Path
) -> None:
    log = [*rows, event("click", "1", "x"), query("2", hits="uv"), event("click", "2", "v")]
    source = read_source(write(tmp_path / "ubi.ndjson", log))
    assert pages(source) == [("shoes", ["u", "v"], [0, 1])]
    assert [(one.count, one.use) for one in source.searches if not one.used] == [(1, use)]
    assert uses(source)["click", f"search left out: {use}"] == 1
    assert sum(one.count for one in source.uses) == source.rows == len(log)
    assert source.notes == (f"searches left out, 1 of 2: {use} (1)",)


def test_requests_of_one_search_are_one_search(tmp_path: Path) -> None:
    """Engines run several requests for a search, such as for facets: those without hits say nothing of their own."""
    rows = [query("1"), query("1", hits="xy"), query("1", hits="xy"), *shown("1", "yx"), *shown("1", "x")]
    source = read_source(write(tmp_path / "ubi.ndjson", rows))
    assert pages(source) == [("shoes", ["x", "y"], [0, 0])]
    assert uses(source) == {
        ("query", "list shown"): 1,
        ("query", "again for the same search"): 2,
        ("impression", "not needed: its query has hit ids"): 1,
        ("impression", "not needed: its query has hit ids, in which it has another position"): 2,
    }


@pytest.mark.parametrize(
    ("click", "use"),
    [
        (event("click", "1", "w"), "on a result that is not in the list"),
        (event("click", "7", "x"), "its search is not in the log"),
        (event("click", None, "x"), "without query_id or object_id"),
        (event("click", "1", None), "without query_id or object_id"),
        (event("click", "1", "y"), "again on the same result"),
        (event("click", "1", "z"), "on a result below rank 2"),
    ],
)
def test_clicks_that_belong_to_nothing_are_counted(click: Row, use: str, tmp_path: Path) -> None:
    rows = [query("1", hits="xyz"), event("click", "1", "y", timestamp=f"{DAY}0:05Z"), event("click", "1", "x"), click]
    source = read_source(write(tmp_path / "ubi.ndjson", rows), k=2)
    assert pages(source) == [("shoes", ["x", "y"], [1, 1])]
    assert uses(source) == {("query", "list shown"): 1, ("click", "click"): 2, ("click", use): 1}


def happened(source: LogSource) -> list[tuple[str, str, int, int]]:
    """Events with their delay in microseconds."""
    return source.connection.execute(
        "SELECT e.document, e.action, e.amount, e.time - i.time FROM events e "
        "JOIN impressions i USING (impression) ORDER BY ALL"
    ).fetchall()


def test_carts_and_purchases_are_values(tmp_path: Path) -> None:
    """Each counts once for a result; a price is an amount where a column says so, as UBI does not say what it is in."""
    bought = event("purchase", "1", "y")
    bought["event_attributes"]["object"]["object_detail"] = {"price": 39.9}
    rows = [query("1", hits="xyz"), bought, bought, event("add_to_cart", "1", "y"), event("add_to_cart", "1", "x")]
    rows += [event("purchase", "1", "w"), event("purchase", "7", "x"), event("purchase", None, "x")]
    file = write(tmp_path / "ubi.ndjson", rows)
    source = read_source(file)
    later = 10_500_000
    assert happened(source) == [("x", "cart", 0, later), ("y", "cart", 0, later), ("y", "order", 0, later)]
    assert uses(source) == {
        ("query", "list shown"): 1,
        ("add_to_cart", "cart"): 2,
        ("purchase", "order"): 1,
        ("purchase", "again on the same result"): 1,
        ("purchase", "on a result that is not in the list"): 1,
        ("purchase", "its search is not in the log"): 1,
        ("purchase", "without query_id or object_id"): 1,
    }
    price = {"value": "event_attributes.object.object_detail.price"}
    assert happened(read_source(file, columns=price))[-1] == ("y", "order", 39_900_000, later)
    with pytest.raises(FormatError, match="there is no column 'price'"):
        read_source(file, columns={"value": "price"})
    clicks = read_source(file, actions=("purchase",))
    assert pages(clicks) == [("shoes", ["x", "y", "z"], [0, 1, 0])]
    assert [row[1] for row in happened(clicks)] == ["cart", "cart"]
    assert happened(read_source(file, actions=("purchase", "add_to_cart"))) == []


def test_attributes_of_queries_are_segments(tmp_path: Path) -> None:
    given: list[Any] = [{"device": "phone", "app": 2}, {"device": "desktop"}, {}, {"device": "phone"}]
    rows = [query(f"{at}", hits="xy", minute=at, query_attributes=one) for at, one in enumerate(given)]
    file = write(tmp_path / "ubi.ndjson", [*rows, event("click", "1", "x")])
    source = read_source(file)
    assert source.latest.attributes.attributes == (("app", ("2",)), ("device", ("phone", "desktop")))
    told = source.connection.execute("SELECT segment FROM impressions ORDER BY time").fetchall()
    codes = source.latest.attributes.codes(json.loads(text) for (text,) in told)
    assert source.latest.attributes.levels("device", codes).tolist() == [1, 2, 0, 1]
    found = {one.name: one.text for one in examine(file).findings}
    assert found["attribute device"] == "values phone, desktop; all others count as other"


def test_ids_of_two_kinds_are_refused(tmp_path: Path) -> None:
    """Hits by the engine's ids and clicks by the shop's: nearly no click would count, and nobody would know."""
    rows = [
        query("1", hits="xyz"),
        event("click", "1", "sku-1"),
        event("click", "1", "sku-2"),
        event("click", "1", "x"),
    ]
    file = write(tmp_path / "ubi.ndjson", rows)
    with pytest.raises(
        FormatError, match=r"clicked sku-1 is not among the 3 results of query_id 1: 2 of 3 clicks"
    ) as refusal:
        read_source(file)
    assert refusal.value.line == 2
    assert read_source(file, skip=True).skipped == 2


def test_units_are_clients_or_sessions(tmp_path: Path) -> None:
    rows = [
        query("1", hits="xy", client_id=None),
        query("2", hits="xy", client_id="c"),
        query("3", hits="xy", client_id="c"),
    ]
    rows += [event("click", page, "x", session_id=session) for page, session in (("1", "s"), ("2", "s"), ("3", "t"))]
    rows[3]["client_id"] = None
    file = write(tmp_path / "ubi.ndjson", rows)

    def units(**options: Any) -> list[int]:
        found = read_source(file, **options).connection.execute("SELECT unit FROM impressions ORDER BY impression")
        return [unit for (unit,) in found.fetchall()]

    assert units() == [0, 1, 1]  # the first search has no client, but a session
    assert units(columns={"unit": "session_id"}) == [0, 0, 1]
    with pytest.raises(FormatError, match="there is no column 'nobody'"):
        units(columns={"unit": "nobody"})


@pytest.mark.parametrize(
    ("lines", "at", "message"),
    [
        (['{"index": {}}', '{"index": {}}', '{"query_id": "1"}'], 1, "no document follows this action"),
        (['{"create": {}}', '{"query_id": "1"}', '{"query_id": "2"}'], 3, "a document without an action before it"),
        (['{"index": {}}', '{"query_id": "1"}', '{"index": {}}'], 3, "no document follows this action"),
        (['{"delete": {"_id": "1"}}', '{"update": {"_id": "2"}}', '{"doc": {}}'], 2, "must have whole documents"),
        (['{"_source": {"query_id": "1"}}', '{"query_id": "2"}'], 2, "there is no _source, as in the first line"),
    ],
)
def test_wrong_lines_of_a_bulk_file_are_named(lines: list[str], at: int, message: str, tmp_path: Path) -> None:
    file = tmp_path / "ubi.ndjson"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(FormatError, match=message) as refusal:
        read_source(file)
    assert (refusal.value.path, refusal.value.line) == (file, at)


def test_an_export_of_any_format_is_its_documents(tmp_path: Path) -> None:
    rows = [{"query": "q", "document": d, "position": r, "clicked": 0} for r, d in enumerate("xy", 1)]
    source = read_source(write(tmp_path / "flat.ndjson", rows, "export"))
    assert (source.format, source.rows) == ("flat", 2)


def test_queries_alone_lack_their_events(tmp_path: Path) -> None:
    with pytest.raises(
        FormatError, match="UBI queries need their events, in the same file or in another: --events FILE"
    ):
        read_source(write(tmp_path / "queries.ndjson", [query("1", hits="xy")]))


def test_the_doctor_says_what_each_row_was_used_for(tmp_path: Path) -> None:
    log = [*QUERIES, *EVENTS, query("3"), event("purchase", "2", "u"), event("add_to_cart", "1", "x")]
    log.append(event("item_hover", "1", "x"))
    file = write(tmp_path / "ubi.ndjson", log, "bulk")
    found = examine(file)
    told = {one.name: (one.status, one.text) for one in found.findings}
    assert told["rows"] == ("pass", "11 rows, read as ubi; none is wrong")
    assert told["searches"] == (
        "warn",
        "2 of 3 searches are used: list from hit ids (1), list from impressions (1); "
        "not used: neither hit ids nor impressions with positions (1)",
    )
    assert told["clicks"] == ("pass", "2 of 2 clicks are used")
    assert told["carts and orders"] == ("pass", "3 of 3 carts and orders are used: cart (2), order (1)")
    assert told["events"] == ("note", "2 cart, 1 order: for metrics (estimate --metric)")
    assert told["other events"][1].startswith("1 item_hover: no clicks and no values")
    assert "as deep as somebody scrolled" in told["lists"][1]
    assert sum(one["count"] for one in found.to_dict()["rows"]) == 11
    printed = runner.invoke(app, ["check", str(file)])
    assert "add_to_cart" in printed.stdout
    assert "no click and no value" in printed.stdout


def test_a_log_without_clicks_says_which_events_it_has(tmp_path: Path) -> None:
    file = write(tmp_path / "ubi.ndjson", [query("1", hits="xy"), event("item_click", "1", "x")])
    told = {one.name: one for one in examine(file).findings}
    assert told["clicks"].status == "fail"
    assert told["clicks"].text == "there is no event click or click_through: --action names others"
    assert pages(read_source(file, actions=("item_click",))) == [("shoes", ["x", "y"], [1, 0])]


def test_the_sample_of_the_shop_demo() -> None:
    """The untouched bulk file: every document has a use, and most searches are read."""
    file = real_data("ubi_chorus") / "ubi_queries_events.ndjson.gz"
    source = read_source(file)
    assert (source.rows, source.skipped) == (3921, 0)
    assert {one.use: one.count for one in source.searches if one.used} == {
        "list from impressions": 200,
        "list from hit ids": 71,
    }
    assert sum(one.count for one in source.searches) == 290
    assert sum(one.count for one in source.uses) == 3921
    by_kind: dict[str, int] = {}
    for one in source.uses:
        by_kind[one.kind] = by_kind.get(one.kind, 0) + one.count
    assert [by_kind[kind] for kind in ("query", "impression", "click", "add_to_cart", "purchase")] == [
        473,
        1999,
        287,
        234,
        6,
    ]
    assert uses(source)["click", "click"] == 167
    told = source.connection.execute("SELECT action, count(*) FROM events GROUP BY action ORDER BY action").fetchall()
    assert told == [(use, uses(source)[kind, use]) for kind, use in (("add_to_cart", "cart"),)]
    assert source.connection.execute("SELECT count(*) FROM impressions").fetchall() == [(271,)]
