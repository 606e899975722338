"""DuckDB within a bound on the memory of the whole process.

DuckDB keeps to a limit of its own, which counts neither what Python has nor all that DuckDB allocates (``python -m
benchmarks.logs`` measures both). What it may have is therefore less than what was asked for, and so is the number of its
threads, each of which needs room for what it is reading and adding up.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import duckdb

from ranktrial.formats.layout import open_duckdb, quoted

UNITS = {"K": 1, "M": 2, "G": 3, "T": 4}
SHARE = 0.7  # of what Python leaves, for DuckDB's limit
THREAD = 125_000_000  # bytes of that limit for each thread
LEAST = 100_000_000
PYTHON = 300_000_000  # bytes of a process with all that estimates import, where the system does not say


def open_bounded(file: str | Path = ":memory:", *, memory: str, spill: str | Path) -> duckdb.DuckDBPyConnection:
    """A connection that keeps the process below so much memory ("2GB", "1500MB"), and puts what is more into a folder."""
    limit = left_for_duckdb(memory)
    threads = max(1, min(os.cpu_count() or 1, limit // THREAD))
    connection = open_duckdb(file)
    connection.execute(f"SET memory_limit = '{limit}B'; SET threads = {threads}; SET temp_directory = {quoted(spill)}")
    return connection


def left_for_duckdb(memory: str) -> int:
    """The limit of DuckDB, in bytes, with which the process stays below so much memory."""
    asked = size_of(memory)
    taken = resident()
    limit = int(SHARE * (asked - taken))
    if limit < LEAST:
        least = taken + LEAST / SHARE
        raise ValueError(
            f"memory is {memory!r}, of which Python has {taken / 1e6:.0f} MB: must be {least / 1e6:.0f}MB or more"
        )
    return limit


def size_of(memory: str) -> int:
    """Bytes of a size in words.

    >>> size_of("1.5GB"), size_of("512 MiB")
    (1500000000, 536870912)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])(i?)B", memory.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError(f"memory is {memory!r}, must be a size such as 2GB, 1500MB or 1.5GiB")
    return int(float(found[1]) * (1024 if found[3] else 1000) ** UNITS[found[2].upper()])


def resident() -> int:
    """Bytes that this process has now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return PYTHON
    return pages * os.sysconf("SC_PAGE_SIZE")
