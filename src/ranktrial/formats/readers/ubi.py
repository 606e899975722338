"""OpenSearch's User Behavior Insights: queries and events, in one file or in two.

The list of a search is the hit ids of its query; where it has none, the results that its impression events name with their
positions, if no position is missing. Such a list is as deep as somebody scrolled. Searches whose list is not certain are left
out with their clicks, carts and orders, and every row is counted under its use. Attributes of searches are those of
``query_attributes``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ranktrial.formats.layout import identifier, make_table, quoted
from ranktrial.formats.readers.common import (
    DATE,
    IMPRESSION,
    MICROSECONDS,
    NO_TEXT,
    OTHER_NAMES,
    PAGES,
    PERIODS,
    Columns,
    Made,
    Use,
    depth,
    make_pages,
    no_column,
)
from ranktrial.formats.tables import RawTable
from ranktrial.metrics import MILLIONTHS
from ranktrial.times import CLOCKS
from ranktrial.trec.files import FormatError

CLICKS = ("click", "click_through")  # of ``action_name``
VALUES = {"add_to_cart": "cart", "purchase": "order"}  # actions of results that have a value, by ``action_name``
ATTRIBUTES = "event_attributes"
SHOWN = "impression"  # the action of an event that says which result was at which position
# By the browser if there is an id of it, else by the session.
UNITS = tuple(dict.fromkeys(("client_id", "session_id", *OTHER_NAMES["unit"])))
LOST = 0.5  # share of clicks on results that were not shown, above which their ids are of another kind than those of the lists
FROM_HITS, FROM_IMPRESSIONS = "list from hit ids", "list from impressions"
AGAIN, NO_USE = "again on the same result", "no click and no value"
USED = ("list shown", "text of a query whose impressions are the list", "click", *VALUES.values())


@dataclass(frozen=True)
class Tables:
    """Queries and events of a log, and which columns name units.

    Attributes:
        columns: Of the queries.
        events: Also where both came from one file.
        units: Names of columns; the first that a row has a value of is its unit.
        value: SQL of what an event is worth, as text.
    """

    columns: Columns
    events: RawTable
    units: tuple[str, ...]
    value: str

    @property
    def queries(self) -> RawTable:
        return self.columns.table


def ubi_tables(
    raw: RawTable,
    events: RawTable | None,
    given: Mapping[str, str],
    within: str | None,
    attributes: Sequence[str] = (),
) -> Tables:
    """Find the columns of UBI and, where there is only one file, divide its rows into queries and events."""
    db, parts = raw.connection, (raw,) if events is None else (raw, events)
    units = (given["unit"],) if "unit" in given else UNITS
    if "unit" in given and not any(given["unit"] in part.types for part in parts):
        raise FormatError(raw.path, None, no_column(given["unit"], raw.columns))
    named = {"query": "user_query", "time": "timestamp"}
    own = {ours: theirs for ours, theirs in named.items() if theirs in raw.types}
    own |= {ours: theirs for ours, theirs in given.items() if ours not in ("unit", "value")}
    columns = Columns(raw, own, within, attributes, "query_attributes")
    last = parts[-1]
    value = _field(last, given["value"]) if "value" in given else NO_TEXT
    if value is None:
        raise FormatError(last.path, None, no_column(given["value"], last.columns))
    if not {"action_name", "query_id"} <= last.types.keys() or _nested(last, "object", "object_id") is None:
        needed = "events need action_name, query_id and event_attributes.object.object_id"
        raise FormatError(last.path, None, f"{needed}; columns: {last.columns}")
    if events is None:
        action = raw.text("action_name")
        db.execute(f"CREATE TABLE raw_events AS SELECT * FROM {raw.name} WHERE {action} IS NOT NULL")
        db.execute(f"DELETE FROM {raw.name} WHERE {action} IS NOT NULL")
        events = replace(raw, name="raw_events", skipped=0)
    return Tables(columns, events, units, value)


def read_ubi(tables: Tables, k: int | None, actions: Sequence[str], skip: bool) -> Made:
    """Read queries and events into the table of impressions."""
    db = tables.queries.connection
    skipped = _queries(tables, skip) + _events(tables, skip)
    _searches(tables)
    deepest = depth(db, "len(shown)", k)
    skipped += _clicks(tables, actions, deepest, skip)
    rows, searches = _uses(tables, actions)
    db.execute(f"""UPDATE draft SET shown = shown[1:{deepest}] WHERE len(shown) > {deepest};
        CREATE TABLE hit AS SELECT page, list(DISTINCT document) AS documents FROM clicks WHERE what = 'click' GROUP BY page;
        ALTER TABLE draft ADD COLUMN clicked INTEGER[];
        UPDATE draft SET clicked = list_transform(shown, lambda id: 0);
        UPDATE draft SET clicked = list_transform(shown, lambda id: CAST(list_contains(documents, id) AS INTEGER))
        FROM hit WHERE hit.page = draft.page""")
    make_table(db, "events", f"""SELECT 1 AS version, {IMPRESSION.format("search")} AS impression, document,
        what AS action, coalesce(amount, 0) * {MILLIONTHS} AS amount, {MICROSECONDS} AS time
        FROM (SELECT * EXCLUDE (time), greatest(coalesce(moment, time), time) AS time
        FROM (SELECT d.line AS search, c.* FROM clicks c JOIN draft d USING (page) WHERE use = what AND what <> 'click'))
        """)  # fmt: skip
    for table in ("asked", "happened", "seen", "searches", "clicks", "hit"):
        db.execute(f"DROP TABLE {table}")
    make_pages(tables.columns)
    timed = "time" in tables.columns and "timestamp" in tables.events.types
    return Made(PAGES, deepest, skipped, timed=timed, uses=rows, searches=searches)


def _queries(tables: Tables, skip: bool) -> int:
    """The table ``asked``: a row for each query."""
    columns, table = tables.columns, tables.queries
    shown = table.ids(columns["hits"]) if "hits" in columns else "CAST(NULL AS VARCHAR[])"
    table.connection.execute(f"""CREATE TABLE asked AS SELECT line, {table.text(columns["query_id"])} AS page,
        trim({columns.text("query")}) AS query, CASE WHEN len(shown) > 0 THEN shown END AS shown, unit, time, period, segment
        FROM (SELECT *, {shown} AS shown, {_unit(table, tables.units)} AS unit,
        {columns.common("time", "period", "segment")} FROM {table.name})""")
    hits, moment = (quoted(columns.get(name, name)) for name in ("hits", "time"))
    problems = {
        "page IS NULL": "'query_id is missing'",
        "shown IS NOT NULL AND query IS NULL": "'user_query is missing'",
        "len(shown) <> len(list_distinct(shown))": f"{hits} || ' has an id twice'",
        "time IS NULL": f"{moment} || ' must be seconds since 1970, or a date and time'",
        "lower(unit) = 'nan'": "'the id of its client or session is NaN, must be text or a whole number'",
    }
    return table.refuse(problems | columns.period_problems, within="asked", skip=skip)


def _events(tables: Tables, skip: bool) -> int:
    """The table ``happened``: a row for each event, the positions of its results counted from 1."""
    events, columns = tables.events, tables.columns
    db = events.connection
    position = _nested(events, "position", "ordinal") or NO_TEXT
    text = {name: events.text(name) if name in events.types else NO_TEXT for name in ("application", "user_query")}
    time = columns.get("time", "timestamp")
    moment = events.seconds(time) if time in events.types else "CAST(NULL AS DOUBLE)"
    period = NO_TEXT
    if columns.within in PERIODS:
        period = PERIODS[columns.within].format(DATE.format("moment"))
    elif columns.within is not None and columns.within in events.types:
        period = events.text(columns.within)
    db.execute(f"""CREATE TABLE happened AS SELECT *, {period} AS period FROM (SELECT *,
        {events.text("action_name")} AS action, {events.text("query_id")} AS page,
        {_nested(events, "object", "object_id")} AS document, TRY_CAST({position} AS INTEGER) AS position,
        coalesce({text["application"]}, '') AS counting, trim({text["user_query"]}) AS text,
        {_unit(events, tables.units)} AS unit, {moment} AS moment, {tables.value} AS told FROM {events.name})""")
    skipped = 0
    if time in events.types:
        wrong = quoted(f"{time} must be seconds since 1970, or a date and time")
        untimed = f"moment IS NULL AND action = {quoted(SHOWN)}"
        skipped = events.refuse({untimed: wrong}, within="happened", skip=skip)
    # An application that ever names a position 0 counts from 0.
    db.execute(f"""UPDATE happened SET position = position + 1 WHERE counting IN (
        SELECT counting FROM happened WHERE action = {quoted(SHOWN)} AND position = 0)""")
    return skipped


def _searches(tables: Tables) -> None:
    """The tables ``searches``, with the list of each search or why it has none, and ``draft``, of those that have."""
    db, timed = tables.queries.connection, "time" in tables.columns
    one_file = tables.queries.path == tables.events.path
    offset = "0" if one_file else "(SELECT coalesce(max(line), 0) FROM asked)"
    db.execute(f"""CREATE TABLE seen AS SELECT DISTINCT page, position, document FROM happened
        WHERE action = {quoted(SHOWN)} AND page IS NOT NULL AND document IS NOT NULL AND position IS NOT NULL""")
    db.execute(f"""CREATE TABLE searches AS
        WITH hits AS (SELECT page, any_value(shown) AS shown, count(DISTINCT shown) AS lists, min(line) AS line FROM asked
            WHERE shown IS NOT NULL GROUP BY page),
        found AS (SELECT page, list(document ORDER BY position) AS shown, CASE
            WHEN count(*) > count(DISTINCT position) THEN 'its impressions have two results at one position'
            WHEN count(*) > count(DISTINCT document) THEN 'its impressions have one result at two positions'
            WHEN min(position) <> 1 OR max(position) <> count(*) THEN 'a position is missing in its impressions'
            END AS problem FROM seen GROUP BY page),
        strange AS (SELECT DISTINCT page FROM seen JOIN hits USING (page) WHERE NOT list_contains(shown, document)),
        told AS (SELECT page, query FROM asked WHERE shown IS NOT NULL OR page NOT IN (SELECT page FROM hits)
            UNION ALL SELECT page, text FROM happened WHERE action = {quoted(SHOWN)}),
        texts AS (SELECT page, count(DISTINCT lower(query)) AS n, min(query) AS query FROM told GROUP BY page),
        pages AS (SELECT page FROM asked UNION SELECT page FROM seen),
        rows AS (SELECT page, min(line) AS line FROM asked GROUP BY page),
        events AS (SELECT page, min(line) + {offset} AS line, min(moment) AS time, arg_min(unit, line) AS unit,
            arg_min(period, line) AS period FROM happened GROUP BY page)
        SELECT page, coalesce(hits.line, rows.line, events.line) AS line, hits.line IS NOT NULL AS by_hits,
            coalesce(hits.shown, found.shown) AS shown, texts.query, events.time, events.unit, events.period, CASE
            WHEN lists > 1 THEN 'several lists of hit ids for one query_id'
            WHEN n > 1 THEN 'several queries for one query_id'
            WHEN strange.page IS NOT NULL THEN 'its impressions show results that are not among its hit ids'
            WHEN hits.line IS NOT NULL THEN NULL
            WHEN found.page IS NULL THEN 'neither hit ids nor impressions with positions'
            WHEN problem IS NOT NULL THEN problem
            WHEN texts.query IS NULL THEN 'no user_query' END AS problem
        FROM pages LEFT JOIN hits USING (page) LEFT JOIN found USING (page) LEFT JOIN strange USING (page)
        LEFT JOIN texts USING (page) LEFT JOIN rows USING (page) LEFT JOIN events USING (page)""")
    time = "s.time" if timed else "CAST(NULL AS DOUBLE)"
    db.execute(f"""CREATE TABLE draft AS SELECT s.line, s.page, coalesce(a.query, s.query) AS query, s.shown,
        coalesce(a.unit, s.unit) AS unit, coalesce(a.time, {time}, CAST(s.line AS DOUBLE)) AS time,
        coalesce(a.period, s.period) AS period, a.segment
        FROM searches s LEFT JOIN asked a ON a.page = s.page AND a.line = s.line WHERE s.problem IS NULL""")


def _clicks(tables: Tables, actions: Sequence[str], k: int, skip: bool) -> int:
    """The table ``clicks``: each click, cart and order with the search it belongs to and its use."""
    events, db = tables.events, tables.events.connection
    timed = "time" in tables.columns
    values = {action: value for action, value in VALUES.items() if action not in actions}
    of_clicks = f"WHEN action IN ({', '.join(map(quoted, actions))}) THEN 'click'"
    of_values = (f"WHEN action = {quoted(action)} THEN {quoted(value)}" for action, value in values.items())
    db.execute(f"""CREATE TABLE clicks AS SELECT *, CASE
        WHEN page IS NULL OR document IS NULL THEN 'without query_id or object_id'
        WHEN problem IS NOT NULL THEN 'search left out: ' || problem
        WHEN shown IS NULL THEN 'its search is not in the log'
        WHEN place IS NULL THEN 'on a result that is not in the list'
        WHEN place > {k} THEN 'on a result below rank {k}'
        WHEN again > 1 THEN {quoted(AGAIN)}
        ELSE what END AS use
        FROM (SELECT e.line, e.page, e.document, e.what, e.moment, e.told, d.time, d.shown, s.problem,
            TRY_CAST(e.told AS DECIMAL(36, 6)) AS amount, list_position(d.shown, e.document) AS place,
            row_number() OVER (PARTITION BY e.page, e.document, e.what ORDER BY e.moment, e.line) AS again
            FROM (SELECT *, CASE {of_clicks} {" ".join(of_values)} END AS what FROM happened
                WHERE action IN ({", ".join(map(quoted, (*actions, *values)))})) e
            LEFT JOIN draft d USING (page) LEFT JOIN searches s USING (page))""")
    problems = {
        "what <> 'click' AND told IS NOT NULL AND amount IS NULL":
            "'the value of this ' || what || ' is ' || left(told, 60) || ', must be a number'",
    }  # fmt: skip
    if timed:
        problems[f"moment < time - {CLOCKS:g}"] = (
            "CASE what WHEN 'order' THEN 'an ' ELSE 'a ' END || what || ' ' || CAST(round(time - moment) AS BIGINT) "
            "|| ' s before query_id ' || page || ' was asked'"
        )
    lost, all_of = db.execute(
        "SELECT count(*) FILTER (place IS NULL), count(*) FROM "
        "(SELECT list_position(shown, document) AS place FROM clicks "
        "WHERE what = 'click' AND shown IS NOT NULL AND document IS NOT NULL)"
    ).fetchall()[0]
    if lost > LOST * all_of:
        many = quoted(f": {lost:,} of {all_of:,} clicks are on no result of their search. Are both ids of one kind?")
        problems["what = 'click' AND use = 'on a result that is not in the list'"] = (
            f"'clicked ' || document || ' is not among the ' || len(shown) || ' results of query_id ' || page || {many}"
        )
    return events.refuse(problems, within="clicks", skip=skip)


def _uses(tables: Tables, actions: Sequence[str]) -> tuple[tuple[Use, ...], tuple[Use, ...]]:
    """Uses of all rows, and of all searches, the most frequent first."""
    db, used = tables.queries.connection, ", ".join(map(quoted, USED))
    rows = db.execute(f"""WITH uses AS (
        SELECT 'query' AS kind, CASE
            WHEN problem IS NOT NULL THEN 'search left out: ' || problem
            WHEN a.line <> s.line THEN 'again for the same search'
            WHEN by_hits THEN 'list shown' ELSE {quoted(USED[1])} END AS use
        FROM asked a LEFT JOIN searches s USING (page)
        UNION ALL SELECT action, CASE
            WHEN e.page IS NULL OR document IS NULL OR position IS NULL THEN 'without query_id, object_id or position'
            WHEN problem IS NOT NULL THEN 'search left out: ' || problem
            WHEN by_hits AND coalesce(shown[position] <> document, true)
                THEN 'not needed: its query has hit ids, in which it has another position'
            WHEN by_hits THEN 'not needed: its query has hit ids' ELSE 'list shown' END
        FROM happened e LEFT JOIN searches s USING (page) WHERE action = {quoted(SHOWN)}
        UNION ALL SELECT action, c.use FROM clicks c JOIN happened USING (line)
        UNION ALL SELECT coalesce(action, 'without action_name'), {quoted(NO_USE)} FROM happened
        WHERE action IS NULL OR action NOT IN ({", ".join(map(quoted, (SHOWN, *actions, *VALUES)))}))
        SELECT count(*), kind, use, use IN ({used}) AS used FROM uses GROUP BY kind, use
        ORDER BY kind <> 'query', sum(count(*)) OVER (PARTITION BY kind) DESC, kind, used DESC, count(*) DESC,
        use""").fetchall()
    searches = db.execute(f"""WITH uses AS (SELECT problem IS NULL AS used,
        coalesce(problem, CASE WHEN by_hits THEN {quoted(FROM_HITS)} ELSE {quoted(FROM_IMPRESSIONS)} END) AS use FROM searches)
        SELECT count(*), 'search', use, used FROM uses GROUP BY use, used ORDER BY used DESC, count(*) DESC, use""").fetchall()
    return tuple(Use(*row) for row in rows), tuple(Use(*row) for row in searches)


def _unit(table: RawTable, names: Sequence[str]) -> str:
    """SQL for the first of these ids that a row has a value of; also within the attributes of an event."""
    found = [table.text(name) for name in names if name in table.types]
    found += [sql for name in names if (sql := _nested(table, name)) is not None]
    return f"coalesce({', '.join(found)}, NULL)" if found else NO_TEXT


def _field(table: RawTable, name: str) -> str | None:
    """SQL for a column, or for a field of ``event_attributes`` with dots in its name."""
    first, _, rest = name.partition(".")
    return (
        table.text(name) if name in table.types else _nested(table, *rest.split(".")) if first == ATTRIBUTES else None
    )


def _nested(table: RawTable, *path: str) -> str | None:
    """SQL for a field of ``event_attributes``, whether they came as JSON, as a struct, or with dots in the name of a column."""
    path = (ATTRIBUTES, *path)
    dotted = ".".join(path)
    if dotted in table.types:
        return table.text(dotted)
    kind = table.types.get(path[0])
    if kind is None:
        return None
    name = identifier(path[0])
    whole = f"to_json({name})" if kind.startswith("STRUCT") else f"CAST({name} AS JSON)"
    return f"nullif({whole} ->> {quoted('$.' + '.'.join(path[1:]))}, '')"
