"""The columns of an exported log, and the folder of Parquet files that holds them.

A log is two tables, in a folder or in a database. ``impressions`` has a row for each impression, ``designs`` a row for each
query, pair of lists and distribution over rankings that impressions were drawn from. Ranks and numbers of documents count
from 1. What a folder holds changes by whole commits: files are written aside, a journal says where they go, and a run that
was killed is rolled back before the journal and rolled forward after it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import sqlglot
from sqlglot import expressions as exp

IMPRESSIONS = {
    "version": ("INTEGER", "version of the trial's configuration; versions are never pooled"),
    "day": ("DATE", "of `time`, UTC; the name of the folder in a folder of Parquet"),
    "time": ("BIGINT", "microseconds since 1970, UTC"),
    "impression": ("VARCHAR", "id"),
    "unit": ("BIGINT", "whose impression it is: a number for each user or session, as the trial hashed it"),
    "query": ("VARCHAR", "what was searched for"),
    "design": ("VARCHAR", "what it was drawn from: a row of `designs` of the same version"),
    "place": ("INTEGER", "which of the design's rankings was shown, from 0"),
    "arm": ("VARCHAR", "`a` or `b` where it was drawn as plain A/B traffic, else null"),
    "shown": ("VARCHAR[]", "ids of the first k results, from the top"),
    "clicked": ("INTEGER[]", "1 or 0 for each of `shown`"),
}
DESIGNS = {
    "version": ("INTEGER", "as in `impressions`"),
    "design": ("VARCHAR", "id"),
    "query": ("VARCHAR", "what was searched for"),
    "lists": ("VARCHAR", "the same for all designs of one query and the same two lists"),
    "a": ("VARCHAR[]", "A's first k ids"),
    "b": ("VARCHAR[]", "B's first k ids"),
    "documents": ("VARCHAR[]", "ids of all candidates: what A, B or any ranking shows"),
    "rank_a": ("INTEGER[]", "rank of each candidate in A's list, 0 if it is not among A's first k"),
    "rank_b": ("INTEGER[]", "the same in B's list"),
    "rankings": ("INTEGER[]", "what could be shown: k numbers of candidates for each ranking, 0 past its end"),
    "probabilities": ("DOUBLE[]", "of each ranking"),
    "plain": ("BOOLEAN", "whether the last two rankings are A's own and B's own: plain A/B traffic"),
}
FORMAT = 1
STATE, JOURNAL, ASIDE = "log.json", "commit.json", ".next"


class LogFolder:
    """A folder of Parquet files: ``impressions/day=.../*.parquet``, ``designs/*.parquet`` and ``log.json``.

    ``log.json`` says what the log is of (a trial's name, k and method of each version), which units were excluded from the
    trial, and how far a store has been exported.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def state(self) -> dict[str, Any]:
        """What ``log.json`` says; of a new log where there is none."""
        try:
            told = json.loads((self.path / STATE).read_text())
        except FileNotFoundError:
            return {"format": FORMAT, "runs": 0, "versions": {}}
        if told.get("format") != FORMAT:
            raise ValueError(f"{self.path / STATE} has format {told.get('format')!r}, this release reads {FORMAT}")
        return dict(told)

    @property
    def exists(self) -> bool:
        return (self.path / STATE).exists()

    @property
    def aside(self) -> Path:
        """Where files of the next commit are written."""
        return self.path / ASIDE

    def files(self, table: str) -> str:
        """The glob of a table's files."""
        return f"{self.path}/{table}/{'*/' if table == 'impressions' else ''}*.parquet"

    def scan(self, table: str, *, everyone: bool = False) -> str:
        """SQL of DuckDB that reads a table, also where it has no file yet, without units that were excluded from the trial."""
        columns = IMPRESSIONS if table == "impressions" else DESIGNS
        if not any(self.path.glob(self.files(table).removeprefix(f"{self.path}/"))):
            empty = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, (kind, _) in columns.items())
            return f"(SELECT {empty}, '' AS filename WHERE false)"
        hive = ", hive_partitioning = true, hive_types = {'day': DATE}" if table == "impressions" else ""
        rows = f"read_parquet({quoted(self.files(table))}, filename = true{hive})"
        excluded = [] if everyone or table != "impressions" else self.state.get("excluded", [])
        if not excluded:
            return rows
        return f"(SELECT * FROM {rows} WHERE unit NOT IN ({', '.join(map(str, excluded))}))"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the folder for one writer, after finishing or forgetting what an earlier one left."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ValueError(f"{self.path} is being written by another process") from None
            self._recover()
            self.aside.mkdir()
            yield
        finally:
            os.close(lock)

    def commit(self, state: dict[str, Any], deletes: list[str] | None = None) -> None:
        """Move what was written aside into place, in one step as far as anybody can tell after a crash."""
        written = sorted(file.relative_to(self.aside).as_posix() for file in self.aside.rglob("*.parquet"))
        for name in written:
            _sync(self.aside / name)
        journal = self.aside / JOURNAL
        draft = journal.with_suffix(".draft")
        draft.write_text(json.dumps({"state": state, "moves": written, "deletes": deletes or []}))
        _sync(draft)
        os.replace(draft, journal)  # from here on the commit will be made
        _sync(self.aside)
        self._recover()

    def _recover(self) -> None:
        journal = self.aside / JOURNAL
        if journal.exists():
            told = json.loads(journal.read_text())
            for name in told["moves"]:
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                if (self.aside / name).exists():  # else it was moved before the crash
                    os.replace(self.aside / name, self.path / name)
            for name in told["deletes"]:
                (self.path / name).unlink(missing_ok=True)
            draft = self.path / f"{STATE}.draft"
            draft.write_text(json.dumps(told["state"], indent=1))
            _sync(draft)
            os.replace(draft, self.path / STATE)
            journal.unlink()
        shutil.rmtree(self.aside, ignore_errors=True)


def open_duckdb(file: str | Path = ":memory:", *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """A connection that prints nothing (results of commands go to where its bar of progress would) and lives in UTC."""
    connection = duckdb.connect(str(file), read_only=read_only)
    connection.execute("SET enable_progress_bar = false; SET TimeZone = 'UTC'")
    return connection


def quoted(text: str | Path) -> str:
    """A text as SQL writes it."""
    return "'" + str(text).replace("'", "''") + "'"


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def create_tables(dialect: str) -> dict[str, str]:
    """Statements that make the two tables in a database.

    >>> print(create_tables("postgres")["designs"])
    CREATE TABLE designs (version INT, design TEXT, query TEXT, lists TEXT, a TEXT[], b TEXT[], ..., plain BOOLEAN)
    """
    tables = {}
    for table, columns in (("impressions", IMPRESSIONS), ("designs", DESIGNS)):
        told = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
        tree = sqlglot.parse_one(f"CREATE TABLE {table} ({told})", read="duckdb")
        more = ""
        if dialect == "clickhouse":
            more = " ENGINE = MergeTree ORDER BY " + (
                "(version, day)" if table == "impressions" else "(version, design)"
            )
            for column in tree.find_all(exp.ColumnDef):
                for kind in column.find_all(exp.DataType):
                    kind.set("nullable", column.name == "arm")
        tables[table] = tree.sql(dialect=dialect) + more
    return tables
