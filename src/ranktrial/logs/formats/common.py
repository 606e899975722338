"""Columns of other people's files by what they are to us, and what formats share."""

from __future__ import annotations

import re
from collections.abc import Mapping

import duckdb

from ranktrial.data.files import FormatError
from ranktrial.logs.layout import IMPRESSIONS, quoted
from ranktrial.logs.tables import RawTable
from ranktrial.rankings.lists import MOST_RANKS

TRIAL, PAGES, COUNTS, ITEMS = "trial", "pages", "counts", "items"
OTHER_NAMES = {
    "query": ("query", "user_query", "qid", "query_id", "search"),
    "document": (
        "document",
        "doc",
        "docid",
        "doc_id",
        "document_id",
        "item",
        "item_id",
        "sku",
        "product_id",
        "object_id",
    ),
    "position": ("position", "rank", "pos"),
    "clicked": ("clicked", "click", "is_click"),
    "impression": ("impression", "impression_id", "search_id", "serp_id", "session", "session_id"),
    "unit": ("unit", "user", "user_id", "client_id", "visitor"),
    "time": ("time", "timestamp"),
    "propensity": ("propensity", "propensity_score", "pscore"),
    "shows": ("shows", "shown", "views", "impressions"),
    "clicks": ("clicks",),
    "hits": ("query_response_hit_ids", "query_response_object_ids", "query_response_objects_ids"),
}
NEEDED = {
    "impressions": ("query", "a", "b", "shown", "clicked"),
    "items": ("document", "position", "clicked", "propensity"),
    "ubi": ("query_id", "hits"),
    "counts": ("query", "document", "position", "shows", "clicks"),
    "flat": ("query", "document", "position", "clicked"),
}
WIDE = re.compile(r"(shows|clicks)_(?:pos|position|rank)_?(\d+)")  # counts with columns for each position
DAY = "CAST(make_timestamp(CAST(time * 1000000 AS BIGINT)) AS DATE)"
MICROSECONDS = "CAST(time * 1000000 AS BIGINT)"
IMPRESSION = "printf('%015d', line)"


class Columns:
    """Columns of a file by what they are to us."""

    def __init__(self, table: RawTable, given: Mapping[str, str]) -> None:
        self.table = table
        self.of = {}
        for theirs in given.values():
            if theirs not in table.types:
                raise FormatError(
                    table.path, None, f"there is no column {theirs!r}; columns: {', '.join(names_of(table))}"
                )
        for ours in {*OTHER_NAMES, *(name for names in NEEDED.values() for name in names), "arm", "split", "rankings"}:
            names = (given[ours],) if ours in given else OTHER_NAMES.get(ours, (ours,))
            found = [column for column in table.types if column.lower() in names or column in names]
            if found:
                self.of[ours] = min(
                    found, key=lambda column: names.index(column if column in names else column.lower())
                )

    def has(self, *names: str) -> bool:
        return all(name in self.of for name in names)

    def __getitem__(self, name: str) -> str:
        return self.of[name]


def names_of(table: RawTable) -> list[str]:
    return [column for column in table.types if column != "line"]


def common(columns: Columns) -> str:
    """Unit, time and query as every format has them."""
    table = columns.table
    unit = table.text(columns["unit"]) if columns.has("unit") else "CAST(NULL AS VARCHAR)"
    time = table.seconds(columns["time"]) if columns.has("time") else "CAST(line AS DOUBLE)"
    return f"{unit} AS unit, {time} AS time"


def time_problems(columns: Columns) -> list[tuple[str, str]]:
    if not columns.has("time"):
        return []
    name = columns["time"]
    return [("time IS NULL", quoted(f"{name} must be seconds since 1970, or a date and time"))]


def result_problems(columns: Columns) -> list[tuple[str, str]]:
    """What can be wrong with a result's position and click."""
    position, clicked = columns["position"], columns["clicked"]
    return [
        ("query IS NULL", "'query is missing'"),
        ("document IS NULL", "'document is missing'"),
        ("rank IS NULL", quoted(f"{position} must be a whole number from 1")),
        ("rank < 1", f"{quoted(position + ' is ')} || rank || ', must count from 1'"),
        ("clicked IS NULL", quoted(f"{clicked} must be 1 or 0")),
        *time_problems(columns),
    ]


def depth(db: duckdb.DuckDBPyConnection, table: RawTable, expression: str, k: int | None) -> int:
    """k, or as many ranks as there are."""
    (found,) = db.execute(f"SELECT max({expression}) FROM draft").fetchall()[0]
    deepest = min(int(found or 1), MOST_RANKS)
    return max(deepest, 1) if k is None else k


def number_units(db: duckdb.DuckDBPyConnection) -> None:
    """Units by number, in the order in which they first came; each row its own where they have no name."""
    db.execute("""CREATE TABLE units AS
        WITH named AS (SELECT line, time, coalesce('u' || unit, 'l' || line) AS name FROM draft),
        first AS (SELECT name, min((time, line)) AS began FROM named GROUP BY name),
        numbered AS (SELECT name, row_number() OVER (ORDER BY began) - 1 AS number FROM first)
        SELECT line, number FROM named JOIN numbered USING (name)""")


def ordered(db: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, tuple[str, str]]) -> None:
    """The table with its columns, in their order and of their types."""
    told = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, (kind, _) in columns.items())
    db.execute(
        f"CREATE TABLE ordered AS SELECT {told} FROM {table}; DROP TABLE {table}; ALTER TABLE ordered RENAME TO {table}"
    )


def make_pages(db: duckdb.DuckDBPyConnection) -> None:
    """Impressions of pages, from a draft with line, query, unit, time, shown and clicked."""
    number_units(db)
    db.execute(f"""CREATE TABLE impressions AS SELECT 1 AS version, {DAY} AS day, {MICROSECONDS} AS time,
        {IMPRESSION} AS impression, u.number AS unit, query, '' AS design, 0 AS place, NULL AS arm,
        shown, clicked FROM draft JOIN units u USING (line)""")
    ordered(db, "impressions", IMPRESSIONS)


def add_up(db: duckdb.DuckDBPyConnection, rows: str) -> None:
    db.execute(
        "CREATE TABLE counts AS SELECT query, document, CAST(rank AS INTEGER) AS rank, sum(shown) AS shown, "
        f"sum(clicked) AS clicked FROM ({rows}) GROUP BY query, document, rank"
    )
