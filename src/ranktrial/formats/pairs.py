"""Pairs of rankers from data frames: a row for each query, or for each result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ranktrial.formats.frames import NAME, read_frame
from ranktrial.formats.layout import open_duckdb, quoted
from ranktrial.formats.readers.common import Columns, list_problems
from ranktrial.rankings import Pair
from ranktrial.trec.files import FormatError

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

LISTS, RESULTS = ("query", "a", "b"), ("query", "document", "position", "ranker")


def pair_from_frame(frame: IntoFrame, k: int, *, columns: Mapping[str, str] | None = None) -> Pair:
    """Build a pair of rankers from a data frame.

    A row is a query with both lists (``query``, ``a``, ``b``), or one result of one ranker (``query``, ``ranker``, which is "a"
    or "b", ``document``, ``position`` from 1). Queries come in the order of their first rows.

    Args:
        frame: Of pandas, polars, Arrow, or DuckDB.
        k: Ranks that count.
        columns: Names of its columns by ours, where they are others: ``{"document": "sku"}``.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"query": ["shoes"], "a": [["x", "y"]], "b": [["y", "z"]]})
    >>> pair = pair_from_frame(frame, k=2)
    >>> pair.queries, pair.ids
    (('shoes',), ('x', 'y', 'z'))
    """
    found = Columns(read_frame(open_duckdb(), frame), columns or {})
    if found.keys() >= set(LISTS):
        lists = _of_lists(found)
    elif found.keys() >= set(RESULTS):
        lists = _of_results(found)
    else:
        wanted = f"{', '.join(LISTS)}; or {', '.join(RESULTS)}"
        raise FormatError(NAME, None, f"columns are {found.table.columns}, must be {wanted}")
    rows = found.table.connection.execute(lists).fetchall()
    pair = Pair.from_lists([a for _, a, _ in rows], [b for *_, b in rows], k)
    return replace(pair, queries=tuple(query for query, *_ in rows))


def _of_lists(columns: Columns) -> str:
    """SQL of query, a and b in order, from a row for each query."""
    table = columns.table
    lists = ", ".join(f"{table.ids(columns[name])} AS {name}" for name in "ab")
    table.connection.execute(f"""CREATE TABLE draft AS SELECT *, min(line) OVER (PARTITION BY query) AS first_line FROM
        (SELECT line, {columns.text("query")} AS query, {lists} FROM {table.name})""")
    problems = {
        "query IS NULL": "'query is missing'",
        "line <> first_line": "'query ' || query || ' is in row ' || first_line || ' already'",
    }
    table.refuse(problems | list_problems("a", "b"), within="draft")
    return "SELECT query, a, b FROM draft ORDER BY line"


def _of_results(columns: Columns) -> str:
    """SQL of query, a and b in order, from a row for each result."""
    table = columns.table
    table.connection.execute(f"""CREATE TABLE draft AS SELECT *, count(*) OVER (PARTITION BY query, ranker, rank) AS at_rank,
        count(*) OVER (PARTITION BY query, ranker, document) AS shown FROM (SELECT line,
        {columns.text("query")} AS query, lower({columns.text("ranker")}) AS ranker,
        {columns.text("document")} AS document, {table.whole(columns["position"])} AS rank FROM {table.name})""")
    problems = {
        "query IS NULL": "'query is missing'",
        "document IS NULL": "'document is missing'",
        "ranker IS NULL OR ranker NOT IN ('a', 'b')": quoted(f"{columns['ranker']} must be a or b"),
        "rank IS NULL OR rank < 1": quoted(f"{columns['position']} must be a whole number from 1"),
        "at_rank > 1": "'query ' || query || ' has two results of ' || ranker || ' at rank ' || rank",
        "shown > 1": "'query ' || query || ' has ' || document || ' twice of ' || ranker",
    }
    table.refuse(problems, within="draft")
    lists = ", ".join(
        f"coalesce(list(document ORDER BY rank) FILTER (ranker = '{name}'), CAST([] AS VARCHAR[])) AS {name}"
        for name in "ab"
    )
    return f"SELECT query, {lists} FROM draft GROUP BY query ORDER BY min(line)"
