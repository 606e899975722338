"""A result in each row: query, document, position, clicked."""

from __future__ import annotations

from ranktrial.formats.layout import quoted
from ranktrial.formats.readers.common import (
    COUNTS,
    PAGES,
    PERIODS,
    Columns,
    Format,
    add_up,
    common,
    depth,
    make_pages,
    result_problems,
)


def read_flat(columns: Columns, k: int | None, skip: bool) -> tuple[str, int, int]:
    """A result in each row."""
    table, db = columns.table, columns.table.connection
    page = table.text(columns["impression"]) if columns.has("impression") else "CAST(NULL AS VARCHAR)"
    db.execute(f"""CREATE TABLE draft AS SELECT line, {page} AS page, {table.text(columns["query"])} AS query,
        {table.text(columns["document"])} AS document, {table.whole(columns["position"])} AS rank,
        {table.flag(columns["clicked"])} AS clicked, {common(columns)} FROM raw""")
    problems = result_problems(columns)
    if columns.has("impression"):
        problems.append(("page IS NULL", quoted(f"{columns['impression']} is missing")))
    skipped = table.refuse(problems, within="draft", skip=skip)
    deepest = depth(db, table, "rank", k)
    db.execute(f"DELETE FROM draft WHERE rank > {deepest}")
    if not columns.has("impression"):
        add_up(columns, shown="CAST(1 AS DOUBLE)")
        return COUNTS, deepest, skipped
    db.execute(f"""CREATE TABLE twice AS SELECT line, rank, document, page,
        min(query) OVER (PARTITION BY page) <> query AS strange,
        {str(columns.within not in PERIODS).lower()} AND min(period) OVER (PARTITION BY page) <> period AS two_periods,
        count(*) OVER (PARTITION BY page, rank) > 1 AS rank_twice,
        count(*) OVER (PARTITION BY page, document) > 1 AS document_twice FROM draft""")
    name = columns["impression"]
    found = table.refuse(
        [
            ("rank_twice", f"{quoted(name + ' ')} || page || ' has two results at rank ' || rank"),
            ("document_twice", f"{quoted(name + ' ')} || page || ' shows ' || document || ' twice'"),
            ("strange", f"{quoted(name + ' ')} || page || ' has results of two queries'"),
            ("two_periods", f"{quoted(name + ' ')} || page || {quoted(f' has two values of {columns.within}')}"),
        ],
        within="twice",
        skip=skip,
    )
    if found:
        db.execute("DELETE FROM draft WHERE line NOT IN (SELECT line FROM twice)")
    db.execute("DROP TABLE twice")
    # A page without a result at some rank keeps the ranks of the others.
    db.execute("""CREATE TABLE pages AS SELECT min(line) AS line, min(query) AS query, min(unit) AS unit, min(time) AS time,
        min(period) AS period, arg_min(segment, line) AS segment, map_from_entries(list((rank, document))) AS stood,
        map_from_entries(list((rank, clicked))) AS hit, max(rank) AS depth
        FROM draft GROUP BY page; DROP TABLE draft""")
    db.execute("""CREATE TABLE draft AS SELECT line, query, unit, time, period, segment,
        list_transform(range(1, depth + 1), lambda r: coalesce(stood[r], '')) AS shown,
        list_transform(range(1, depth + 1), lambda r: coalesce(hit[r], 0)) AS clicked FROM pages; DROP TABLE pages""")
    make_pages(columns)
    return PAGES, deepest, skipped + found


FLAT = Format("flat", ("query", "document", "position", "clicked"), read_flat)
