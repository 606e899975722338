"""Events after searches, such as orders: rows of a file of their own, or lists in the rows of searches."""

from __future__ import annotations

from ranktrial.formats.layout import make_table, quoted
from ranktrial.formats.readers.common import IMPRESSION, MICROSECONDS, Columns
from ranktrial.formats.tables import RawTable
from ranktrial.metrics import ACTION, MILLIONTHS
from ranktrial.times import CLOCKS
from ranktrial.trec.files import FormatError

NEEDS = ("impression", "document", "action")


def read_events(columns: Columns, events: Columns | None, skip: bool) -> tuple[int, tuple[str, ...], bool]:
    """The table of events, given the draft of searches with ``line``, ``page``, ``time`` and ``shown``.

    Returns:
        Wrong rows that were left out; notes on events that belong to nothing; whether events have times.
    """
    db = columns.table.connection
    if events is None and "events" not in columns.table.types:
        make_table(db, "events")
        return 0, (), False
    table = _of_rows(columns) if events is None else _of_file(columns, events)
    db.execute("""CREATE TABLE placed AS SELECT h.*, d.time, d.shown,
        TRY_CAST(value AS DECIMAL(36, 6)) AS amount FROM happened h LEFT JOIN draft d ON d.line = h.search""")
    no_action = f"action IS NULL OR NOT regexp_full_match(action, {quoted(ACTION.pattern)})"
    wanted = "', must be 1 to 40 lower-case letters, digits, _ or -'"
    problems = {
        "document IS NULL": "'an event without a document'",
        no_action: f"'action is ' || coalesce(left(action, 60), 'missing') || {wanted}",
        "value IS NOT NULL AND amount IS NULL": "'value is ' || left(value, 60) || ', must be a number'",
        "told IS NOT NULL AND moment IS NULL":
            "'time is ' || left(told, 60) || ', must be seconds since 1970, or a date and time'",
    }  # fmt: skip
    if "time" in columns:
        early = "'an event ' || CAST(round(time - moment) AS BIGINT) || ' s before its search'"
        problems[f"moment < time - {CLOCKS:g}"] = early
    skipped = table.refuse(problems, within="placed", skip=skip)
    strange = "shown IS NOT NULL AND NOT list_contains(shown, document)"
    lost, off, timed = db.execute(
        f"SELECT count(*) FILTER (shown IS NULL), count(*) FILTER ({strange}), count(moment) FROM placed"
    ).fetchall()[0]
    known = "time" in columns and bool(timed)
    when = "greatest(coalesce(moment, time), time)" if known else "time"
    make_table(db, "events", f"""SELECT 1 AS version, {IMPRESSION.format("search")} AS impression,
        document, action, amount * {MILLIONTHS} AS amount, {MICROSECONDS} AS time
        FROM (SELECT DISTINCT ON (search, key) search, document, action, coalesce(amount, 0) AS amount, {when} AS time
            FROM (SELECT *, coalesce(id, CAST([document, action, value, told] AS VARCHAR)) AS key FROM placed
                WHERE list_contains(shown, document)) ORDER BY line, place)""")  # fmt: skip
    db.execute("DROP TABLE placed; DROP TABLE happened")
    left = ((lost, "of searches that are not in the log"), (off, "on results that were not shown"))
    out = ", ".join(f"{count:,} {why}" for count, why in left if count)
    return skipped, (f"events left out: {out}",) if out else (), known


def _of_file(columns: Columns, events: Columns) -> RawTable:
    table = events.table
    missing = [name for name in NEEDS if name not in events]
    if missing:
        told = f"there is no column {missing[0]!r}, which events need; columns: {table.columns}"
        raise FormatError(table.path, None, told)
    if "impression" not in columns:
        told = "there is no column 'impression', by which events name their search"
        raise FormatError(columns.table.path, None, told)
    moment = table.seconds(events["time"]) if "time" in events else "CAST(NULL AS DOUBLE)"
    table.connection.execute(f"""CREATE TABLE happened AS
        SELECT e.line, 1 AS place, d.line AS search, id, document, action, value, told, moment
        FROM (SELECT line, {events.text("impression")} AS page, {events.text("event_id")} AS id,
        {events.text("document")} AS document, {events.text("action")} AS action, {events.text("value")} AS value,
        {events.text("time")} AS told, {moment} AS moment FROM {table.name}) e LEFT JOIN draft d USING (page)""")
    return table


def _of_rows(columns: Columns) -> RawTable:
    table, db = columns.table, columns.table.connection
    listed = table.json("events")
    wrong = f"{table.text('events')} IS NOT NULL AND coalesce(json_type({listed}), '') NOT IN ('ARRAY', 'NULL')"
    wanted = 'events must be a list of objects such as {"document": "x", "action": "order", "value": 39.9}'
    table.refuse({wrong: quoted(wanted)})
    names = ", ".join(
        f"nullif(event ->> '$.{ours}', '') AS {ours}" for ours in ("event_id", "document", "action", "value", "time")
    )
    db.execute(f"""CREATE TABLE one AS SELECT line, place, {names} FROM (
        SELECT line, unnest(told) AS event, generate_subscripts(told, 1) AS place
        FROM (SELECT line, CAST({listed} AS JSON[]) AS told FROM {table.name}) WHERE line IN (SELECT line FROM draft))""")
    moment = RawTable(db, table.path, "one").seconds("time")
    db.execute(f"""CREATE TABLE happened AS SELECT line, place, line AS search, event_id AS id, document, action, value,
        time AS told, {moment} AS moment FROM one; DROP TABLE one""")
    return table
