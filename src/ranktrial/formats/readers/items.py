"""Results that were drawn one by one with known probabilities: Open Bandit's columns, and others like them."""

from __future__ import annotations

from ranktrial.formats.layout import quoted
from ranktrial.formats.readers.common import ITEMS, Columns, Format, common, depth, result_problems


def read_items(columns: Columns, k: int | None, skip: bool) -> tuple[str, int, int]:
    """Results that were drawn one by one, each with its probability."""
    table, db = columns.table, columns.table.connection
    query = table.text(columns["query"]) if columns.has("query") else "''"
    page = table.text(columns["impression"]) if columns.has("impression") else "CAST(NULL AS VARCHAR)"
    db.execute(f"""CREATE TABLE draft AS SELECT line, {page} AS impression, coalesce({query}, '') AS query,
        {table.text(columns["document"])} AS document, {table.whole(columns["position"])} AS rank,
        {table.flag(columns["clicked"])} AS clicked, {table.number(columns["propensity"])} AS propensity, {common(columns)}
        FROM raw""")
    name = columns["propensity"]
    skipped = table.refuse(
        [
            *result_problems(columns),
            (
                "propensity IS NULL OR NOT (propensity > 0 AND propensity <= 1)",
                quoted(f"{name} must be above 0 and at most 1"),
            ),
        ],
        within="draft",
        skip=skip,
    )
    deepest = depth(db, table, "rank", k)
    db.execute(f"DELETE FROM draft WHERE rank > {deepest}")
    period = "".join(f", {name}" for name in columns.kept)
    db.execute(f"""CREATE TABLE items AS SELECT coalesce(impression, 'l' || line) AS impression,
        coalesce(unit, impression, 'l' || line) AS unit, query, document, CAST(rank AS INTEGER) AS rank, clicked,
        propensity{period} FROM draft""")
    return ITEMS, deepest, skipped


DRAWN = Format("items", ("document", "position", "clicked", "propensity"), read_items)
