"""DB-API connections by an address, for the command line."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from ranktrial.formats.layout import open_duckdb

SORTING = "256MB"  # of PostgreSQL's memory: with its own 4 MB every sum goes through the disk


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
