"""Files of a study: written whole or not at all, and Parquet files queried with SQL through DuckDB."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np


@contextlib.contextmanager
def written_whole(file: Path) -> Iterator[Path]:
    """A path to write to, put in place of ``file`` when all of it is on disk: nobody ever sees half a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".writing-", suffix=file.suffix, dir=file.parent)
    os.close(handle)
    try:
        yield Path(name)
        with open(name, "rb") as written:
            os.fsync(written.fileno())
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@cache
def _tables() -> duckdb.DuckDBPyConnection:
    # One thread and rows in the order they are given: the same rows are the same bytes.
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("set enable_progress_bar = false")  # DuckDB's own, in the midst of ours
    return connection


def _run(query: str, files: Sequence[Path], values: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
    given = {"files": [str(file) for file in files]} if files else {}
    return _tables().execute(query, {**given, **values})


def read_rows(query: str, files: Sequence[Path] = (), **values: Any) -> list[dict[str, Any]]:
    """Rows of a query in which ``$files`` stands for Parquet files."""
    found = _run(query, files, values)
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row)) for row in found.fetchall()]


def read_columns(query: str, files: Sequence[Path] = (), **values: Any) -> dict[str, Any]:
    """Columns of a query as arrays, masked where NULL."""
    return dict(_run(query, files, values).fetchnumpy())


def write_query(
    path: Path, query: str, files: Sequence[Path] = (), metadata: Mapping[str, str] | None = None, **values: Any
) -> None:
    """Write the rows of a query into a Parquet file, with key-value metadata."""
    pairs = ", ".join(f"{key}: {_literal(text)}" for key, text in (metadata or {}).items())
    options = "format parquet, compression zstd" + (f", kv_metadata {{{pairs}}}" if pairs else "")
    with written_whole(path) as whole:
        _run(f"copy ({query}) to {_literal(str(whole))} ({options})", files, values)


def write_columns(path: Path, columns: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays of the same length into a Parquet file; NaN as NULL, which SQL leaves out of a mean."""
    kept = {name: np.ma.masked_invalid(c) if c.dtype.kind == "f" else c for name, c in columns.items()}
    with as_table("written", kept):
        write_query(path, "select * from written", metadata=metadata)


@contextlib.contextmanager
def as_table(name: str, columns: Mapping[str, Any]) -> Iterator[None]:
    """Context in which queries know arrays as a table of this name."""
    _tables().register(name, dict(columns))
    try:
        yield
    finally:
        _tables().unregister(name)


def read_metadata(file: Path) -> dict[str, str]:
    """Key-value metadata of a Parquet file."""
    try:
        rows = read_rows("select key, value from parquet_kv_metadata($files)", [file])
    except duckdb.Error:
        raise ValueError(f"{file}: not a Parquet file") from None
    return {row["key"].decode(): row["value"].decode() for row in rows}


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
