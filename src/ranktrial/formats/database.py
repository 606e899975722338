"""A log in a database: queries of ``sql`` through any DB-API connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial import checks
from ranktrial.formats.sql import DIALECTS, ONCE, Sums, translated

FETCHED = 50_000  # rows at a time
MOST_TOLD = 300  # characters of a database's complaint
MODULES = {  # of connections
    "duckdb": "duckdb", "_duckdb": "duckdb", "psycopg": "postgres", "psycopg2": "postgres", "pg8000": "postgres",
    "chdb": "clickhouse", "clickhouse_driver": "clickhouse", "clickhouse_connect": "clickhouse", "google": "bigquery",
    "snowflake": "snowflake",
}  # fmt: skip


class SQLLog:
    """A log in a database, by any DB-API connection.

    Args:
        connection: From ``duckdb.connect``, ``psycopg.connect``, ``chdb.dbapi.connect``, ...
        impressions: Name of the table with the columns of ``layout.IMPRESSIONS``, or a subquery in brackets.
        designs: Of the one with those of ``layout.DESIGNS``.
        version: Of the configuration; the latest by default.
        dialect: "duckdb", "postgres", "clickhouse", "bigquery" or "snowflake"; by default what the connection says.
    """

    def __init__(
        self,
        connection: Any,
        impressions: str = "impressions",
        designs: str = "designs",
        *,
        version: int | None = None,
        dialect: str | None = None,
    ) -> None:
        module = type(connection).__module__.partition(".")[0]
        told = MODULES.get(module) if dialect is None else dialect
        if told is None:
            raise ValueError(
                f"a connection of {module} does not say its dialect: dialect must be one of {', '.join(DIALECTS)}"
            )
        self.connection, self.dialect = connection, checks.one_of("dialect", told, DIALECTS)
        self.names, self._once = (impressions, designs), False
        if self.dialect == "clickhouse":
            known = self._rows(f"SELECT count(*) AS n FROM system.settings AS s WHERE name = '{ONCE}'")
            self._once = known[0][0] > 0
        if version is None:
            (found,) = self._rows("SELECT max(version) AS version FROM log_impressions AS l")[0]
            if found is None:
                raise ValueError(f"{impressions} has no rows: there is nothing to estimate from")
            version = int(found)
        sizes = self._rows(Sums(version).sizes)[0]
        if sizes[0] is None:
            raise ValueError(f"{designs} has no designs of version {version}, which {impressions} needs")
        self.queries = Sums(version, *(int(size) for size in sizes))

    @property
    def k(self) -> int:
        return self.queries.k

    def sums(self, query: str) -> dict[str, NDArray[Any]]:
        """The columns that a query gives."""
        with self._asked(query) as cursor:
            if hasattr(cursor, "fetchnumpy"):
                return {
                    name: np.ma.filled(column, np.nan) if column.dtype.kind == "f" else np.asarray(column)
                    for name, column in cursor.fetchnumpy().items()
                }
            names = [column[0] for column in cursor.description]
            parts = [_columns(rows) for rows in _batches(cursor)]
            if not parts:
                return {name: np.empty(0) for name in names}
            return {name: np.concatenate([part[at] for part in parts]) for at, name in enumerate(names)}

    def _text(self, query: str) -> str:
        return translated(query, self.dialect, *self.names, once=self._once)

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._asked(query) as cursor:
            return [tuple(row) for row in cursor.fetchall()]

    @contextmanager
    def _asked(self, query: str) -> Iterator[Any]:
        """A cursor with the answer; ValueError where the database has none."""
        cursor = self.connection.cursor()
        try:
            cursor.execute(self._text(query))
            yield cursor
        except Exception as problem:  # whatever the driver calls it
            told = " ".join(str(problem).split())
            raise ValueError(f"{self.dialect} refuses a query of the log: {told[:MOST_TOLD]}") from problem
        finally:
            cursor.close()


def _batches(cursor: Any) -> Iterator[list[Any]]:
    while rows := list(cursor.fetchmany(FETCHED)):
        yield rows


def _columns(rows: Sequence[Any]) -> list[NDArray[Any]]:
    columns = []
    for column in zip(*rows):
        plain = isinstance(column[0], str) or any(value is None for value in column)
        columns.append(np.array(column, object) if plain else np.array(column, np.float64))
    return columns
