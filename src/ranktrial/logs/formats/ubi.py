"""OpenSearch's User Behavior Insights: a file of queries with the ids of their results, and one of events."""

from __future__ import annotations

from collections.abc import Sequence

from ranktrial.data.files import FormatError
from ranktrial.logs.formats.common import PAGES, Columns, common, common_problems, depth, make_pages, names_of
from ranktrial.logs.layout import quoted
from ranktrial.logs.tables import RawTable, identifier

CLICKS = ("click", "click_through")  # of ``action_name``


def read_ubi(
    columns: Columns, events: RawTable, k: int | None, actions: Sequence[str], skip: bool
) -> tuple[str, int, int]:
    """Queries with the ids of their results, and events that are clicks on these."""
    table, db = columns.table, columns.table.connection
    db.execute(f"""CREATE TABLE draft AS SELECT *, min(line) OVER (PARTITION BY page) AS first_line FROM (
        SELECT line, {table.text(columns["query_id"])} AS page, {table.text(columns["query"])} AS query,
        {table.ids(columns["hits"])} AS shown, {common(columns)} FROM raw)""")
    db.execute("DELETE FROM draft WHERE shown IS NULL OR len(shown) = 0")  # a query without results shows nothing
    skipped = table.refuse(
        [
            ("page IS NULL", "'query_id is missing'"),
            ("query IS NULL", "'user_query is missing'"),
            ("len(shown) <> len(list_distinct(shown))", quoted(f"{columns['hits']} has an id twice")),
            ("line <> first_line", "'query_id ' || page || ' is on line ' || first_line || ' already'"),
            *common_problems(columns),
        ],
        within="draft",
        skip=skip,
    )
    deepest = depth(db, table, "len(shown)", k)
    attributes = _nested(events, "event_attributes", "object", "object_id")
    if "action_name" not in events.types or "query_id" not in events.types or attributes is None:
        raise FormatError(
            events.path,
            None,
            f"events need action_name, query_id and event_attributes.object.object_id; columns: {', '.join(names_of(events))}",
        )
    kinds = ", ".join(quoted(action) for action in actions)
    db.execute(f"""CREATE TABLE hits AS SELECT line, page, document, shown FROM (
        SELECT line, {events.text("query_id")} AS page, {attributes} AS document FROM {events.name}
        WHERE {events.text("action_name")} IN ({kinds})) e
        LEFT JOIN (SELECT page, shown FROM draft) q USING (page)""")
    skipped += events.refuse(
        [
            ("page IS NULL", "'a click without query_id'"),
            ("document IS NULL", "'a click without event_attributes.object.object_id'"),
            ("shown IS NULL", "'query_id ' || page || ' is not among the queries'"),
            (
                "NOT list_contains(shown, document)",
                "'clicked ' || document || ' is not among the ' || len(shown) || ' results of query_id ' || page",
            ),
        ],
        within="hits",
        skip=skip,
    )
    db.execute(f"UPDATE draft SET shown = shown[1:{deepest}] WHERE len(shown) > {deepest}")
    db.execute("""CREATE TABLE hit AS SELECT page, list(DISTINCT document) AS documents FROM hits GROUP BY page;
        DROP TABLE hits;
        ALTER TABLE draft ADD COLUMN clicked INTEGER[];
        UPDATE draft SET clicked = list_transform(shown, lambda id: 0);
        UPDATE draft SET clicked = list_transform(shown, lambda id: CAST(list_contains(documents, id) AS INTEGER))
        FROM hit WHERE hit.page = draft.page; DROP TABLE hit""")
    make_pages(columns)
    return PAGES, deepest, skipped


def _nested(table: RawTable, *path: str) -> str | None:
    """SQL for a field within fields, whether they came as JSON, as a struct, or with dots in the name of a column."""
    dotted = ".".join(path)
    if dotted in table.types:
        return table.text(dotted)
    if path[0] not in table.types:
        return None
    if table.types[path[0]].startswith("STRUCT"):
        return f"CAST({'.'.join(identifier(name) for name in path)} AS VARCHAR)"
    return f"CAST({identifier(path[0])} AS JSON) ->> {quoted('$.' + '.'.join(path[1:]))}"
