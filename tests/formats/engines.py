"""A trial's log in every engine: a folder of Parquet, and the same rows in DuckDB, PostgreSQL and chDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from postgres_server import Server, binaries
from ranktrial.formats.layout import LogFolder


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


def chdb_tables(folder: LogFolder) -> tuple[str, str]:
    """The Parquet files as ClickHouse names them."""
    return tuple(f"file('{folder.files(table)}', Parquet)" for table in ("impressions", "designs"))  # type: ignore[return-value]
