"""A trial's log in every engine: a folder of Parquet, and the same rows in DuckDB, PostgreSQL and chDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pytest

from postgres_server import Server, binaries
from ranktrial.logs.layout import LogFolder, create_tables


@contextmanager
def postgres_server() -> Iterator[str]:
    """A server of its own; gives the address to connect to."""
    pytest.importorskip("psycopg", reason="needs psycopg")
    if binaries() is None:
        pytest.skip("no PostgreSQL server is installed (Debian: apt install postgresql)")
    server = Server()
    try:
        yield f"host={server.folder} user=ranktrial dbname=postgres"
    finally:
        server.remove()


def load_postgres(address: str, folder: LogFolder) -> Any:
    """A connection to a database that holds a folder's two tables."""
    import psycopg

    connection = psycopg.connect(address)
    source = duckdb.connect()
    for table, statement in create_tables("postgres").items():
        connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute(statement)
        rows = source.execute(f"SELECT * EXCLUDE (filename) FROM {folder.scan(table)}")
        names = ", ".join(column[0] for column in rows.description)
        with connection.cursor() as cursor, cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
            while some := rows.fetchmany(10_000):
                for row in some:
                    copy.write_row(row)
    connection.commit()
    connection.execute("ANALYZE")
    return connection


def chdb_tables(folder: LogFolder) -> tuple[str, str]:
    """The Parquet files as ClickHouse names them."""
    return tuple(f"file('{folder.files(table)}', Parquet)" for table in ("impressions", "designs"))  # type: ignore[return-value]
