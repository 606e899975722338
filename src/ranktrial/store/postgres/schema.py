"""The tables of a store in PostgreSQL, and their partitions: one for the impressions of a month, one for the
clicks on them, one for their events.
"""

from __future__ import annotations

import calendar
import contextlib
import time
from collections.abc import Iterator
from typing import Any

from ranktrial.store.migrations import BEFORE_RELEASE
from ranktrial.store.postgres.connection import Address, Connection

Month = tuple[int, int]  # year and month
LAST_SECOND = 253402300800  # of the year 9999
# One call writes a batch: a round trip and a commit. Returns the keys of impressions that are new, nothing at all where the
# batch has been written before: its commit was not answered, and it was sent again. Rows come sorted by key, so that two who
# write the same ones do not wait for each other.
PUT_ROWS = """
    CREATE FUNCTION put_rows(
        p_writer bigint, p_batch bigint, p_locks bigint, p_slot bigint,
        p_keys bytea[], p_versions bigint[], p_digests bytea[], p_places bigint[], p_units bigint[], p_times bigint[],
        p_looked bigint[],
        p_click_versions bigint[], p_click_keys bytea[], p_documents text[], p_lates bigint[], p_seconds bigint[],
        p_agains bigint[], p_mark_versions bigint[], p_mark_keys bytea[], p_marks bigint[],
        p_tally_versions bigint[], p_tallies text[], p_counts bigint[]
    ) RETURNS bytea[] LANGUAGE plpgsql AS $$
    DECLARE fresh bytea[] := '{}'; last bigint;
    BEGIN
        INSERT INTO writers VALUES (p_writer, p_batch, now())
        ON CONFLICT (writer) DO UPDATE SET batch = excluded.batch, seen = excluded.seen WHERE writers.batch < excluded.batch;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO last FROM row_ids;
        PERFORM pg_advisory_xact_lock_shared(p_locks + last);
        IF cardinality(p_keys) > 0 THEN
            WITH given AS (
                SELECT * FROM unnest(p_keys, p_versions, p_digests, p_places, p_units, p_times)
                    AS g(key, version, digest, place, unit, time)
            ), new AS (
                INSERT INTO impression_keys (key, version, id, time)
                SELECT key, version, nextval('row_ids'), time FROM given ON CONFLICT DO NOTHING RETURNING key, id
            ), stored AS (
                INSERT INTO impressions (id, key, version, design, place, unit, time)
                SELECT new.id, key, version, d.id, place, unit, time
                FROM new JOIN given USING (key) LEFT JOIN designs d USING (digest)
            )
            SELECT coalesce(array_agg(key), '{}') INTO fresh FROM new;
            IF cardinality(fresh) < cardinality(p_keys) THEN
                INSERT INTO voids (id, version, key, reason)
                SELECT nextval('row_ids'), g.version, g.key, 'shown in two ways'
                FROM unnest(p_keys, p_versions, p_digests, p_places, p_looked) AS g(key, version, digest, place, looked)
                JOIN impression_keys k USING (key)
                JOIN impressions i ON (i.version, i.id, i.time) = (k.version, k.id, k.time) JOIN designs d ON d.id = i.design
                WHERE looked = 1 AND (d.digest, i.place) <> (g.digest, g.place)
                ON CONFLICT DO NOTHING;
            END IF;
        END IF;
        IF cardinality(p_documents) > 0 THEN
            WITH new AS (
                INSERT INTO clicks (id, version, key, document, late, second)
                SELECT nextval('row_ids'), * FROM unnest(p_click_versions, p_click_keys, p_documents, p_lates, p_seconds)
                ON CONFLICT DO NOTHING RETURNING version
            ), more AS (
                SELECT version, 1 AS count FROM unnest(p_click_versions) AS version UNION ALL SELECT version, -1 FROM new
            )
            INSERT INTO tallies (version, name, slot, count)
            SELECT version, 'duplicate clicks', p_slot, sum(count) FROM more GROUP BY version HAVING sum(count) > 0
            ORDER BY version
            ON CONFLICT (version, name, slot) DO UPDATE SET count = tallies.count + excluded.count;
            IF FOUND THEN  -- some were there before, in the store or among these
                INSERT INTO marks (id, version, key, kind)
                SELECT nextval('row_ids'), g.version, g.key, max(g.again)
                FROM unnest(p_click_versions, p_click_keys, p_documents, p_lates, p_seconds, p_agains)
                    AS g(version, key, document, late, second, again)
                JOIN clicks c USING (key, document, late, second)
                GROUP BY g.version, g.key, c.id HAVING count(*) > 1 OR c.id <= last
                ON CONFLICT DO NOTHING;
            END IF;
        END IF;
        IF cardinality(p_marks) > 0 THEN
            INSERT INTO marks (id, version, key, kind)
            SELECT nextval('row_ids'), * FROM unnest(p_mark_versions, p_mark_keys, p_marks)
            ON CONFLICT DO NOTHING;
        END IF;
        IF cardinality(p_tallies) > 0 THEN
            INSERT INTO tallies (version, name, count, slot)
            SELECT *, p_slot FROM unnest(p_tally_versions, p_tallies, p_counts)
            ON CONFLICT (version, name, slot) DO UPDATE SET count = tallies.count + excluded.count;
        END IF;
        RETURN fresh;
    END $$;
"""
# The same with the segment of each impression.
PUT_ROWS_OF_SEGMENTS = (
    PUT_ROWS.replace("p_looked bigint[],", "p_looked bigint[], p_segments bigint[],")
    .replace("p_units, p_times)", "p_units, p_times, p_segments)")
    .replace("AS g(key, version, digest, place, unit, time)", "AS g(key, version, digest, place, unit, time, segment)")
    .replace("(id, key, version, design, place, unit, time)", "(id, key, version, design, place, unit, time, segment)")
    .replace(
        "SELECT new.id, key, version, d.id, place, unit, time",
        "SELECT new.id, key, version, d.id, place, unit, time, segment",
    )
)
# The same with the time of each click, and with events.
PUT_EVENTS = """
        IF cardinality(p_event_keys) > 0 THEN
            WITH new AS (
                INSERT INTO events (id, version, key, second, document, action, event_id, amount, time)
                SELECT nextval('row_ids'), * FROM unnest(
                    p_event_versions, p_event_keys, p_event_seconds, p_event_documents, p_actions, p_event_ids, p_amounts,
                    p_event_times)
                ON CONFLICT DO NOTHING RETURNING version
            ), more AS (
                SELECT version, 1 AS count FROM unnest(p_event_versions) AS version UNION ALL SELECT version, -1 FROM new
            )
            INSERT INTO tallies (version, name, slot, count)
            SELECT version, 'duplicate events', p_slot, sum(count) FROM more GROUP BY version HAVING sum(count) > 0
            ORDER BY version
            ON CONFLICT (version, name, slot) DO UPDATE SET count = tallies.count + excluded.count;
        END IF;
"""
PUT_ROWS_OF_EVENTS = (
    PUT_ROWS_OF_SEGMENTS.replace(
        "p_agains bigint[],",
        """p_agains bigint[], p_click_times bigint[],
        p_event_versions bigint[], p_event_keys bytea[], p_event_seconds bigint[], p_event_documents text[], p_actions text[],
        p_event_ids text[], p_amounts bigint[], p_event_times bigint[],""",
    )
    .replace("(id, version, key, document, late, second)", "(id, version, key, document, late, second, time)")
    .replace("p_lates, p_seconds)\n                ON", "p_lates, p_seconds, p_click_times)\n                ON")
    .replace("        IF cardinality(p_marks) > 0 THEN", f"{PUT_EVENTS[1:]}        IF cardinality(p_marks) > 0 THEN")
)
# The same with the covariates of each impression.
PUT_ROWS_OF_COVARIATES = (
    PUT_ROWS_OF_EVENTS.replace("p_segments bigint[],", "p_segments bigint[], p_covariates bytea[],")
    .replace("p_times, p_segments)", "p_times, p_segments, p_covariates)")
    .replace("unit, time, segment)", "unit, time, segment, covariates)")
    .replace("d.id, place, unit, time, segment", "d.id, place, unit, time, segment, nullif(covariates, '')")
)
MIGRATIONS = (
    f"""
    CREATE SEQUENCE row_ids;
    CREATE TABLE trials (name text COLLATE "C" PRIMARY KEY, secret bytea NOT NULL, shows text);
    CREATE TABLE versions (
        id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, trial text NOT NULL, number integer NOT NULL,
        config text NOT NULL, turn integer NOT NULL, UNIQUE (trial, number)
    );
    CREATE TABLE biases (
        id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, version integer NOT NULL, follows integer NOT NULL,
        impressions bigint NOT NULL, theta text NOT NULL, fitted integer NOT NULL, note text NOT NULL,
        relevance double precision NOT NULL, more text NOT NULL, effects bytea NOT NULL,
        UNIQUE (version, follows)
    );
    CREATE TABLE designs (
        id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, digest bytea NOT NULL UNIQUE, query text, bias integer,
        documents text, a bytea, b bytea, rankings bytea, weights bytea, rest bytea
    );
    CREATE TABLE impression_keys (
        key bytea PRIMARY KEY, version integer NOT NULL, id bigint NOT NULL, time bigint NOT NULL
    );
    CREATE TABLE impressions (
        id bigint, time bigint, unit bigint NOT NULL, design bigint NOT NULL, version integer, place integer NOT NULL,
        key bytea NOT NULL, PRIMARY KEY (version, id, time)
    ) PARTITION BY RANGE (time);
    CREATE TABLE clicks (
        id bigint, second bigint, version integer, late integer NOT NULL, key bytea NOT NULL, document text NOT NULL,
        PRIMARY KEY (version, id, second)
    ) PARTITION BY RANGE (second);
    CREATE UNIQUE INDEX clicks_once ON clicks (key, hashtextextended(document, 0), late, second);
    CREATE TABLE voids (
        id bigint PRIMARY KEY, version integer NOT NULL, key bytea NOT NULL UNIQUE, reason text NOT NULL
    );
    CREATE TABLE tallies (
        version integer, name text, slot integer, count bigint NOT NULL, PRIMARY KEY (version, name, slot)
    );
    CREATE TABLE api_keys (content text NOT NULL);
    CREATE TABLE history (
        id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, trial text NOT NULL, time bigint NOT NULL,
        what text NOT NULL, unit bigint, reason text NOT NULL, who text NOT NULL, detail text NOT NULL
    );
    CREATE TABLE erasures (
        id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, trial text NOT NULL, time bigint NOT NULL, earlier_than bigint,
        impressions bigint NOT NULL, clicks bigint NOT NULL, designs bigint NOT NULL, reason text NOT NULL,
        who text NOT NULL
    );
    CREATE TABLE writers (writer bigint PRIMARY KEY, batch bigint NOT NULL, seen timestamptz NOT NULL);
    CREATE TABLE marks (
        id bigint PRIMARY KEY, version integer NOT NULL, key bytea NOT NULL, kind integer NOT NULL, UNIQUE (key, kind)
    );
    {PUT_ROWS}
    """,
    """
    CREATE TABLE outbox (
        number_of_row bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, trial text NOT NULL, subject text NOT NULL,
        number bigint NOT NULL, state text NOT NULL, hook text NOT NULL, time bigint NOT NULL, id text NOT NULL,
        body text NOT NULL, due bigint, attempts bigint NOT NULL, UNIQUE (trial, subject, number, hook)
    );
    CREATE TABLE leases (name text PRIMARY KEY, holder text NOT NULL, until bigint NOT NULL);
    """,
    f"""
    ALTER TABLE impressions ADD COLUMN segment integer NOT NULL DEFAULT 0;
    DROP FUNCTION put_rows;
    {PUT_ROWS_OF_SEGMENTS}
    """,
    f"""
    ALTER TABLE clicks ADD COLUMN time bigint NOT NULL DEFAULT 0;
    ALTER TABLE erasures ADD COLUMN events bigint NOT NULL DEFAULT 0;
    CREATE TABLE events (
        id bigint, second bigint, time bigint NOT NULL, amount bigint NOT NULL, version integer, key bytea NOT NULL,
        document text NOT NULL, action text NOT NULL, event_id text NOT NULL, PRIMARY KEY (version, id, second)
    ) PARTITION BY RANGE (second);
    CREATE UNIQUE INDEX events_once ON events (key, hashtextextended(event_id, 0), second);
    DROP FUNCTION put_rows;
    {PUT_ROWS_OF_EVENTS}
    """,
    f"""
    ALTER TABLE impressions ADD COLUMN covariates bytea;
    DROP FUNCTION put_rows;
    {PUT_ROWS_OF_COVARIATES}
    """,
)


class PostgresSchema:
    """The schema of a store in PostgreSQL: its version is in the table ``store_schema``."""

    def __init__(self, connection: Connection, address: Address) -> None:
        self._connection, self._name = connection, address.schema

    @contextlib.contextmanager
    def transaction(self) -> Iterator[PostgresSchema]:
        with self._connection.transaction():
            self._connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"ranktrial {self._name}",)
            )
            yield self

    def _one(self, statement: str, *values: object) -> Any:
        row = self._connection.execute(statement, values).fetchone()
        return None if row is None else row[0]

    def version(self) -> int:
        if self._one("SELECT to_regclass('store_schema') IS NOT NULL"):
            return int(self._one("SELECT version FROM store_schema"))
        early = self._one("SELECT coalesce(to_regclass('schema_version'), to_regclass('store_version')) IS NOT NULL")
        return BEFORE_RELEASE if early else 0

    def is_empty(self) -> bool:
        return bool(self._one("SELECT count(*) = 0 FROM pg_class WHERE relnamespace = to_regnamespace(%s)", self._name))

    def apply(self, step: str, version: int) -> None:
        if self._one("SELECT to_regnamespace(%s) IS NULL", self._name):
            self._connection.execute(f"CREATE SCHEMA {self._name}")
        self._connection.execute(step)
        self._connection.execute("CREATE TABLE IF NOT EXISTS store_schema (version integer NOT NULL)")
        self._connection.execute("DELETE FROM store_schema")
        self._connection.execute("INSERT INTO store_schema VALUES (%s)", (version,))


def month_of(second: int) -> Month:
    """Year and month of a second since 1970."""
    if not 0 <= second < LAST_SECOND:
        raise ValueError(f"time is {second} s since 1970, must be from 0 to {LAST_SECOND - 1}")
    year, month, *_ = time.gmtime(second)
    return year, month


def _next(month: Month) -> Month:
    year, number = month
    return (year, number + 1) if number < 12 else (year + 1, 1)


def make_partitions(connection: Connection, months: set[Month], lock: int) -> None:
    """Make the partitions of months, and of those after them. Attaching is what readers and writers do not wait for."""
    with connection.transaction():
        _make_partitions(connection, months, lock)


def _make_partitions(connection: Connection, months: set[Month], lock: int) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s::int4, 0)", (lock,))
    for month in sorted(months | {_next(month) for month in months}):
        for table, unit in (("impressions", 1_000_000), ("clicks", 1), ("events", 1)):
            name = f"{table}_{month[0]}_{month[1]:02}"
            if connection.execute("SELECT to_regclass(%s) IS NULL", (name,)).fetchone() == (True,):
                start, end = (calendar.timegm((*one, 1, 0, 0, 0)) * unit for one in (month, _next(month)))
                connection.execute(f"CREATE TABLE {name} (LIKE {table})")
                bounds = f"FOR VALUES FROM ({start}) TO ({end})"
                connection.execute(f"ALTER TABLE {table} ATTACH PARTITION {name} {bounds}")
