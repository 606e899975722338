"""A folder's tables in PostgreSQL, copied as text that DuckDB writes: rows never pass through Python."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ranktrial.formats.layout import TABLES, LogFolder, create_tables, open_duckdb, quoted

BLOCK = 1 << 20


def load_postgres(connection: Any, folder: LogFolder) -> None:
    """Make the tables ``impressions``, ``designs`` and ``events`` of a folder on a connection of psycopg, and commit.

    Units that were excluded from the trial are left out. The tables are analysed: without statistics the planner takes them
    for small, and estimates for hours.
    """
    statements = create_tables("postgres")
    with (
        tempfile.TemporaryDirectory(prefix="ranktrial-") as aside,
        open_duckdb(only=[folder.path, aside]) as source,
    ):
        for table, columns in TABLES.items():
            connection.execute(statements[table])
            told = ", ".join(f"{_as_text(name, kind)} AS {name}" for name, (kind, _) in columns.items())
            file = Path(aside, f"{table}.csv")
            source.execute(
                f"COPY (SELECT {told} FROM {folder.scan(table)}) TO {quoted(file)} (FORMAT csv, HEADER false)"
            )
            names = ", ".join(columns)
            with (
                file.open("rb") as text,
                connection.cursor() as cursor,
                cursor.copy(f"COPY {table} ({names}) FROM STDIN (FORMAT csv)") as copy,
            ):
                while block := text.read(BLOCK):
                    copy.write(block)
            file.unlink()
            connection.execute(f"ANALYZE {table}")
    connection.commit()


def _as_text(name: str, kind: str) -> str:
    """A column as PostgreSQL reads it: arrays in braces."""
    if not kind.endswith("[]"):
        return name
    one = "CAST(x AS VARCHAR)"
    if kind == "VARCHAR[]":
        one = r"""'"' || replace(replace(x, '\', '\\'), '"', '\"') || '"'"""
    return f"'{{' || array_to_string(list_transform({name}, lambda x: {one}), ',') || '}}'"
