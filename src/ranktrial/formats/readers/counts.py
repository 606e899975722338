"""Shows and clicks of documents by position, a row for each position or a column."""

from __future__ import annotations

import re

from ranktrial.formats.readers.common import COUNTS, Columns, Format, add_up, depth, period_problems
from ranktrial.trec.files import FormatError

NEEDED = ("query", "document", "position", "shows", "clicks")
WIDE = re.compile(r"(shows|clicks)_(?:pos|position|rank)_?(\d+)")  # columns for each position


def read_counts(columns: Columns, k: int | None, skip: bool) -> tuple[str, int, int]:
    """Shows and clicks of documents by position, a row for each position or a column."""
    table, db = columns.table, columns.table.connection
    query, document = table.text(columns["query"]), table.text(columns["document"])
    named = f"SELECT line, {query} AS query, {document} AS document, {columns.period} AS period"
    if columns.has(*NEEDED):
        position = table.whole(columns["position"])
        shows, clicks = table.number(columns["shows"]), table.number(columns["clicks"])
        parts = [f"{named}, {position} AS rank, {shows} AS shown, {clicks} AS clicked FROM raw"]
    else:
        ranks = sorted({int(found[2]) for column in table.types if (found := WIDE.fullmatch(column))})
        by_rank = {(found[1], int(found[2])): column for column in table.types if (found := WIDE.fullmatch(column))}
        parts = []
        for rank in ranks:
            for what in ("shows", "clicks"):
                if (what, rank) not in by_rank:
                    raise FormatError(table.path, None, f"there is no column for {what} at position {rank}")
            shows, clicks = (table.number(by_rank[what, rank]) for what in ("shows", "clicks"))
            parts.append(f"{named}, {rank} AS rank, {shows} AS shown, {clicks} AS clicked FROM raw")
    db.execute("CREATE TABLE draft AS " + " UNION ALL ".join(parts))
    skipped = table.refuse(
        [
            ("query IS NULL", "'query is missing'"),
            ("document IS NULL", "'document is missing'"),
            *period_problems(columns),
            ("rank IS NULL OR rank < 1", "'position must be a whole number from 1'"),
            (
                "shown IS NULL OR NOT isfinite(shown) OR shown < 0",
                "'shows at position ' || rank || ' must be a number, not negative'",
            ),
            (
                "clicked IS NULL OR NOT isfinite(clicked) OR clicked < 0",
                "'clicks at position ' || rank || ' must be a number, not negative'",
            ),
            (
                "clicked > shown",
                "'clicked more often than shown at position ' || rank || ' (' || clicked || ' against ' || shown || ')'",
            ),
        ],
        within="draft",
        skip=skip,
    )
    deepest = depth(db, table, "CASE WHEN shown > 0 THEN rank END", k)
    db.execute(f"DELETE FROM draft WHERE rank > {deepest} OR shown = 0")
    add_up(columns)
    return COUNTS, deepest, skipped


COUNTED = Format("counts", NEEDED, read_counts)
