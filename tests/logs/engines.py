"""A trial's log in every engine: a folder of Parquet, and the same rows in DuckDB, PostgreSQL and chDB."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ranktrial.logs.layout import LogFolder, create_tables

BINARIES = Path(os.environ.get("RANKTRIAL_POSTGRES_BIN", "/usr/lib/postgresql/15/bin"))
OWNER = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root


@contextmanager
def postgres_server() -> Iterator[str]:
    """A server of its own on a socket in a folder of its own; gives the address to connect to."""
    if not (BINARIES / "initdb").exists():
        pytest.skip(f"needs PostgreSQL: no {BINARIES}/initdb (RANKTRIAL_POSTGRES_BIN names the folder)")
    pytest.importorskip("psycopg", reason="needs psycopg")
    home = Path(tempfile.mkdtemp(prefix="ranktrial-pg-"))  # not below tmp_path: pytest closes that to others
    if OWNER:
        shutil.chown(home, OWNER)
    data = home / "data"

    def run(name: str, *options: str) -> None:
        subprocess.run([BINARIES / name, *options], check=True, user=OWNER, cwd=home, stdout=subprocess.DEVNULL)

    try:
        run("initdb", "-D", str(data), "-U", "ranktrial", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = f"-c listen_addresses='' -k {home} -c fsync=off -c jit=off"
        run("pg_ctl", "-D", str(data), "-w", "-o", settings, "-l", str(home / "server.log"), "start")
        try:
            yield f"host={home} user=ranktrial dbname=postgres"
        finally:
            run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


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
