"""Files with a result in each row: clicked or not, drawn with a known probability, or counts of its shows and clicks."""

from __future__ import annotations

import re

from ranktrial.formats.layout import quoted
from ranktrial.formats.readers.common import (
    COUNTS,
    ITEMS,
    PAGES,
    PERIODS,
    Columns,
    Format,
    Made,
    add_up,
    depth,
    make_pages,
)
from ranktrial.trec.files import FormatError

MISSING = {"query IS NULL": "'query is missing'", "document IS NULL": "'document is missing'"}
COUNTS_NEED = ("query", "document", "position", "shows", "clicks")
WIDE = re.compile(r"(shows|clicks)_(?:pos|position|rank)_?(\d+)")  # columns for each position


def _draft(columns: Columns, query: str, more: str = "") -> dict[str, str]:
    """Make the draft of results, and tell what can be wrong with each."""
    table, position, clicked = columns.table, columns["position"], columns["clicked"]
    table.connection.execute(f"""CREATE TABLE draft AS SELECT line, {columns.text("impression")} AS page, {query} AS query,
        {table.text(columns["document"])} AS document, {table.whole(position)} AS rank,
        {table.flag(clicked)} AS clicked, {more} {columns.common()} FROM raw""")
    return MISSING | {
        "rank IS NULL": quoted(f"{position} must be a whole number from 1"),
        "rank < 1": f"{quoted(position + ' is ')} || rank || ', must count from 1'",
        "clicked IS NULL": quoted(f"{clicked} must be 1 or 0"),
        **columns.problems,
    }


def read_flat(columns: Columns, k: int | None, skip: bool) -> Made:
    """A result in each row: query, document, position, clicked."""
    table, db = columns.table, columns.table.connection
    problems = _draft(columns, columns.text("query"))
    name = columns.get("impression")
    if name is not None:
        problems["page IS NULL"] = quoted(f"{name} is missing")
    skipped = table.refuse(problems, within="draft", skip=skip)
    deepest = depth(db, "rank", k)
    db.execute(f"DELETE FROM draft WHERE rank > {deepest}")
    if name is None:
        add_up(columns, shown="CAST(1 AS DOUBLE)")
        return Made(COUNTS, deepest, skipped)
    db.execute(f"""CREATE TABLE twice AS SELECT line, rank, document, page,
        min(query) OVER (PARTITION BY page) <> query AS strange,
        {str(columns.within not in PERIODS).lower()} AND min(period) OVER (PARTITION BY page) <> period AS two_periods,
        count(*) OVER (PARTITION BY page, rank) > 1 AS rank_twice,
        count(*) OVER (PARTITION BY page, document) > 1 AS document_twice FROM draft""")
    page = f"{quoted(name + ' ')} || page"
    found = table.refuse(
        {
            "rank_twice": f"{page} || ' has two results at rank ' || rank",
            "document_twice": f"{page} || ' shows ' || document || ' twice'",
            "strange": f"{page} || ' has results of two queries'",
            "two_periods": f"{page} || {quoted(f' has two values of {columns.within}')}",
        },
        within="twice",
        skip=skip,
    )
    # A page without a result at some rank keeps the ranks of the others.
    db.execute("""CREATE TABLE pages AS SELECT min(line) AS line, min(query) AS query, min(unit) AS unit, min(time) AS time,
        min(period) AS period, arg_min(segment, line) AS segment, map_from_entries(list((rank, document))) AS stood,
        map_from_entries(list((rank, clicked))) AS hit, max(rank) AS depth
        FROM draft WHERE line IN (SELECT line FROM twice) GROUP BY page; DROP TABLE draft; DROP TABLE twice;
        CREATE TABLE draft AS SELECT line, query, unit, time, period, segment,
        list_transform(range(1, depth + 1), lambda r: coalesce(stood[r], '')) AS shown,
        list_transform(range(1, depth + 1), lambda r: coalesce(hit[r], 0)) AS clicked FROM pages; DROP TABLE pages""")
    make_pages(columns)
    return Made(PAGES, deepest, skipped + found)


def read_items(columns: Columns, k: int | None, skip: bool) -> Made:
    """Results that were drawn one by one, each with its probability: Open Bandit's columns, and others like them."""
    table, db = columns.table, columns.table.connection
    name = columns["propensity"]
    problems = _draft(columns, f"coalesce({columns.text('query')}, '')", f"{table.number(name)} AS propensity,")
    unlikely = "propensity IS NULL OR NOT (propensity > 0 AND propensity <= 1)"
    problems[unlikely] = quoted(f"{name} must be above 0 and at most 1")
    skipped = table.refuse(problems, within="draft", skip=skip)
    deepest = depth(db, "rank", k)
    period = "".join(f", {name}" for name in columns.kept)
    db.execute(f"""CREATE TABLE items AS SELECT coalesce(page, 'l' || line) AS impression,
        coalesce(unit, page, 'l' || line) AS unit, query, document, CAST(rank AS INTEGER) AS rank, clicked,
        propensity{period} FROM draft WHERE draft.rank <= {deepest}""")
    return Made(ITEMS, deepest, skipped)


def read_counts(columns: Columns, k: int | None, skip: bool) -> Made:
    """Shows and clicks of documents by position, a row for each position or a column."""
    table, db = columns.table, columns.table.connection
    wide = {(found[1], int(found[2])): column for column in table.types if (found := WIDE.fullmatch(column))}
    if columns.keys() >= set(COUNTS_NEED):
        parts = [(table.whole(columns["position"]), columns["shows"], columns["clicks"])]
    else:
        parts = []
        for rank in sorted({rank for _, rank in wide}):
            for what in ("shows", "clicks"):
                if (what, rank) not in wide:
                    raise FormatError(table.path, None, f"there is no column for {what} at position {rank}")
            parts.append((str(rank), wide["shows", rank], wide["clicks", rank]))
    db.execute("CREATE TABLE draft AS " + " UNION ALL ".join(
        f"""SELECT line, {columns.text("query")} AS query, {columns.text("document")} AS document, {rank} AS rank,
        {table.number(shows)} AS shown, {table.number(clicks)} AS clicked, {columns.common()} FROM raw"""
        for rank, shows, clicks in parts
    ))  # fmt: skip
    problems = (
        MISSING | columns.period_problems | {"rank IS NULL OR rank < 1": "'position must be a whole number from 1'"}
    )
    for name, what in (("shown", "shows"), ("clicked", "clicks")):
        wrong = f"{name} IS NULL OR NOT isfinite({name}) OR {name} < 0"
        problems[wrong] = f"'{what} at position ' || rank || ' must be a number, not negative'"
    more = "'clicked more often than shown at position ' || rank || ' (' || clicked || ' against ' || shown || ')'"
    skipped = table.refuse(problems | {"clicked > shown": more}, within="draft", skip=skip)
    deepest = depth(db, "CASE WHEN shown > 0 THEN rank END", k)
    db.execute(f"DELETE FROM draft WHERE rank > {deepest} OR shown = 0")
    add_up(columns)
    return Made(COUNTS, deepest, skipped)


DRAWN = Format("items", ("document", "position", "clicked", "propensity"), read_items)
COUNTED = Format("counts", COUNTS_NEED, read_counts)
FLAT = Format("flat", ("query", "document", "position", "clicked"), read_flat)
