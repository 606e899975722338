"""A log in a database: connections by an address, and queries of ``sql`` through any DB-API connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial import checks
from ranktrial.formats.layout import open_duckdb
from ranktrial.formats.sql import DIALECTS, ONCE, Sums, translated

SORTING = "256MB"  # of PostgreSQL's memory: with its own 4 MB every sum goes through the disk
FETCHED = 50_000  # rows at a time
MOST_TOLD = 300  # characters of a database's complaint
MODULES = {  # of connections
    "duckdb": "duckdb", "_duckdb": "duckdb", "psycopg": "postgres", "psycopg2": "postgres", "pg8000": "postgres",
    "chdb": "clickhouse", "clickhouse_driver": "clickhouse", "clickhouse_connect": "clickhouse", "google": "bigquery",
    "snowflake": "snowflake",
}  # fmt: skip


def connect(address: str) -> Any:
    """A connection: ``postgresql://...`` by psycopg, ``chdb://`` by chdb, ``FILE.duckdb``, or what ``module:function`` returns.

    >>> type(connect("duckdb:connect")).__name__
    'DuckDBPyConnection'
    """
    if address.startswith(("postgresql://", "postgres://")):
        driver = _driver("psycopg", address)
        own = {} if "options=" in address else {"options": f"-c work_mem={SORTING}"}
        try:
            return driver.connect(address, **own)
        except driver.Error as problem:  # the address may hold a password
            raise ValueError(f"--connect: PostgreSQL cannot be reached: {problem}") from problem
    if address.startswith("chdb://"):
        path = address.removeprefix("chdb://")
        return _driver("chdb.dbapi", address).connect(*([path] if path else []))
    if address.endswith((".duckdb", ".ddb")):
        if not Path(address).exists():
            raise ValueError(f"no file {address!r}")
        return open_duckdb(address, read_only=True, only=())
    module, colon, function = address.partition(":")
    if colon and function.isidentifier():
        return getattr(_driver(module, address), function)()
    raise ValueError(
        f"--connect is {address!r}, must be postgresql://..., chdb://, a file ending in .duckdb, or module:function, where the "
        "function returns a DB-API connection"
    )


def _driver(module: str, address: str) -> Any:
    try:
        return import_module(module)
    except ImportError as problem:
        raise ValueError(f"--connect {address}: {module} is not installed ({problem})") from None


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
            names, parts = [column[0] for column in cursor.description], []
            while rows := list(cursor.fetchmany(FETCHED)):
                parts.append([_column(values) for values in zip(*rows)])
            return {name: np.concatenate([np.empty(0), *(part[at] for part in parts)]) for at, name in enumerate(names)}

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with self._asked(query) as cursor:
            return [tuple(row) for row in cursor.fetchall()]

    @contextmanager
    def _asked(self, query: str) -> Iterator[Any]:
        """A cursor with the answer; ValueError where the database has none."""
        cursor = self.connection.cursor()
        try:
            cursor.execute(translated(query, self.dialect, *self.names, once=self._once))
            yield cursor
        except Exception as problem:  # whatever the driver calls it
            told = " ".join(str(problem).split())
            raise ValueError(f"{self.dialect} refuses a query of the log: {told[:MOST_TOLD]}") from problem
        finally:
            cursor.close()


def _column(values: Sequence[Any]) -> NDArray[Any]:
    other = isinstance(values[0], str) or any(value is None for value in values)
    return np.array(values, object if other else np.float64)
