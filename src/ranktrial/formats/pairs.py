"""Pairs of rankers from data frames: a row for each query, or for each result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ranktrial.formats.frames import NAME, read_frame
from ranktrial.formats.layout import open_duckdb, quoted
from ranktrial.formats.readers.common import Columns, names_of
from ranktrial.rankings import Pair
from ranktrial.trec.files import FormatError

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

LISTS, RESULTS = ("query", "a", "b"), ("query", "document", "position")


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
    raw = read_frame(open_duckdb(), frame)
    given = {ours: theirs for ours, theirs in (columns or {}).items() if ours != "ranker"}
    found = Columns(raw, given)
    ranker = (columns or {}).get("ranker", "ranker")
    if found.has(*LISTS):
        return _pair_of_lists(found, k)
    if ranker in raw.types and found.has(*RESULTS):
        return _pair_of_results(found, ranker, k)
    wanted = f"{', '.join(LISTS)}; or {', '.join(RESULTS)} and ranker"
    raise FormatError(NAME, None, f"columns are {', '.join(names_of(raw))}, must be {wanted}")


def _pair_of_lists(columns: Columns, k: int) -> Pair:
    table, db = columns.table, columns.table.connection
    lists = ", ".join(f"{table.ids(columns[name])} AS {name}" for name in "ab")
    db.execute(f"""CREATE TABLE draft AS SELECT *, min(line) OVER (PARTITION BY query) AS first_line FROM
        (SELECT line, {table.text(columns["query"])} AS query, {lists} FROM {table.name})""")
    problems = [("query IS NULL", "'query is missing'")]
    problems.append(("line <> first_line", "'query ' || query || ' is in row ' || first_line || ' already'"))
    for name in "ab":
        problems.append((f"{name} IS NULL", quoted(f'{name} must be a list of ids, such as ["x", "y"] or x|y')))
        problems.append(
            (f"len({name}) <> len(list_distinct({name}))", quoted(f"{name} has an id twice, or an empty one"))
        )
    table.refuse(problems, within="draft")
    return _pair(db.execute("SELECT query, a, b FROM draft ORDER BY line").fetchall(), k)


def _pair_of_results(columns: Columns, ranker: str, k: int) -> Pair:
    table, db = columns.table, columns.table.connection
    db.execute(f"""CREATE TABLE draft AS SELECT *, count(*) OVER (PARTITION BY query, ranker, rank) AS at_rank,
        count(*) OVER (PARTITION BY query, ranker, document) AS shown FROM (SELECT line,
        {table.text(columns["query"])} AS query, lower({table.text(ranker)}) AS ranker,
        {table.text(columns["document"])} AS document, {table.whole(columns["position"])} AS rank FROM {table.name})""")
    position = columns["position"]
    table.refuse(
        [
            ("query IS NULL", "'query is missing'"),
            ("document IS NULL", "'document is missing'"),
            ("ranker IS NULL OR ranker NOT IN ('a', 'b')", quoted(f"{ranker} must be a or b")),
            ("rank IS NULL OR rank < 1", quoted(f"{position} must be a whole number from 1")),
            ("at_rank > 1", "'query ' || query || ' has two results of ' || ranker || ' at rank ' || rank"),
            ("shown > 1", "'query ' || query || ' has ' || document || ' twice of ' || ranker"),
        ],
        within="draft",
    )
    lists = ", ".join(
        f"coalesce(list(document ORDER BY rank) FILTER (ranker = '{name}'), CAST([] AS VARCHAR[])) AS {name}"
        for name in "ab"
    )
    return _pair(db.execute(f"SELECT query, {lists} FROM draft GROUP BY query ORDER BY min(line)").fetchall(), k)


def _pair(rows: list[tuple[str, list[str], list[str]]], k: int) -> Pair:
    pair = Pair.from_lists([a for _, a, _ in rows], [b for *_, b in rows], k)
    return replace(pair, queries=tuple(query for query, *_ in rows))
