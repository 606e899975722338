"""The columns of an exported log, and the folder of Parquet files that holds them.

A log is three tables, in a folder or in a database. ``impressions`` has a row for each impression, ``designs`` a row for each
query, pair of lists and distribution over rankings that impressions were drawn from, ``events`` a row for each order or other
event after an impression. Ranks and numbers of documents count from 1. What a folder holds changes by whole commits: files are
written aside, a journal says where they go, and a run that was killed is rolled back before the journal and rolled forward
after it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import sqlglot
from sqlglot import expressions as exp

from ranktrial.store.sqlite_file import synced

OWNER_ONLY = 0o600  # of files that hold what visitors searched for
NO_EXTENSIONS: dict[str, Any] = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
IMPRESSIONS = {
    "version": ("INTEGER", "version of the trial's configuration; versions are never pooled"),
    "day": ("DATE", "of `time`, UTC; the name of the folder in a folder of Parquet"),
    "time": ("BIGINT", "microseconds since 1970, UTC"),
    "impression": ("VARCHAR", "id"),
    "unit": ("BIGINT", "whose impression it is: a number for each user or session, as the trial hashed it"),
    "query": ("VARCHAR", "what was searched for"),
    "design": ("VARCHAR", "what it was drawn from: a row of `designs` of the same version"),
    "place": ("INTEGER", "which of the design's rankings was shown, from 0"),
    "arm": ("VARCHAR", "`a` or `b` where it was drawn as A/B traffic, else null"),
    "shown": ("VARCHAR[]", "ids of the first k results, from the top"),
    "clicked": ("INTEGER[]", "1 or 0 for each of `shown`"),
    "segment": ("VARCHAR", "attributes of the search and their values, a JSON object; null where none were declared"),
    "covariates": ("VARCHAR", "numbers known of its unit before the trial, a JSON object; null where none are known"),
}
DESIGNS = {
    "version": ("INTEGER", "as in `impressions`"),
    "design": ("VARCHAR", "id"),
    "query": ("VARCHAR", "what was searched for"),
    "a": ("VARCHAR[]", "A's first k ids"),
    "b": ("VARCHAR[]", "B's first k ids"),
    "documents": ("VARCHAR[]", "ids of all candidates: what A, B or any ranking shows"),
    "rank_a": ("INTEGER[]", "rank of each candidate in A's list, 0 if it is not among A's first k"),
    "rank_b": ("INTEGER[]", "the same in B's list"),
    "rankings": ("INTEGER[]", "what could be shown: k numbers of candidates for each ranking, 0 past its end"),
    "probabilities": ("DOUBLE[]", "of each ranking"),
    "plain": ("BOOLEAN", "whether the last two rankings are A's own and B's own: A/B traffic"),
}
EVENTS = {
    "version": ("INTEGER", "as in `impressions`"),
    "impression": ("VARCHAR", "after which it happened; it may be in no row of `impressions` (yet)"),
    "document": ("VARCHAR", "id of the result"),
    "action": ("VARCHAR", "such as `order`; `click` for the time of a click"),
    "amount": ("BIGINT", "in millionths of the currency unit, refunds negative; 0 where there is none"),
    "time": ("BIGINT", "when it happened, in microseconds since 1970, UTC"),
}
TABLES = {"impressions": IMPRESSIONS, "designs": DESIGNS, "events": EVENTS}
FORMAT = 4
ORDERED = {"impressions": "day", "designs": "design", "events": "impression"}  # columns that ClickHouse sorts by
STATE, JOURNAL, ASIDE = "log.json", "commit.json", ".next"


class LogFolder:
    """A folder of Parquet files: ``impressions/day=.../*.parquet``, ``designs/*.parquet``, ``events/*.parquet``, ``log.json``.

    ``log.json`` says what the log is of (a trial's name; k, method, attributes of searches, names of covariates and the time
    until which events are known, of each version), which units were excluded, and how far a store has been exported.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def state(self) -> dict[str, Any]:
        """Contents of ``log.json``; those of a new log if there is none."""
        try:
            told = json.loads((self.path / STATE).read_text())
        except FileNotFoundError:
            return {"format": FORMAT, "runs": 0, "versions": {}}
        if told.get("format") != FORMAT:
            raise ValueError(
                f"{self.path / STATE} has format {told.get('format')!r}, this release reads {FORMAT}: export or import the "
                "log again, into a new folder"
            )
        return dict(told)

    @property
    def exists(self) -> bool:
        return (self.path / STATE).exists()

    @property
    def aside(self) -> Path:
        """Folder in which the files of the next commit are written."""
        return self.path / ASIDE

    def files(self, table: str) -> str:
        """The glob of a table's files, as DuckDB reads it."""
        return f"{literal(self.path)}/{table}/{'*/' if table == 'impressions' else ''}*.parquet"

    def scan(self, table: str, *, everyone: bool = False) -> str:
        """SQL of DuckDB that reads a table, also where it has no file yet, without units that were excluded from the trial."""
        if not any((self.path / table).glob("**/*.parquet")):
            empty = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, (kind, _) in TABLES[table].items())
            return f"(SELECT {empty}, '' AS filename WHERE false)"
        hive = ", hive_partitioning = true, hive_types = {'day': DATE}" if table == "impressions" else ""
        rows = f"read_parquet({quoted(self.files(table))}, filename = true{hive})"
        excluded = [] if everyone or table != "impressions" else self.state.get("excluded", [])
        if not excluded:
            return rows
        return f"(SELECT * FROM {rows} WHERE unit NOT IN ({', '.join(str(int(unit)) for unit in excluded)}))"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the folder for one writer, after finishing or forgetting what an earlier one left."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR, OWNER_ONLY)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ValueError(f"{self.path} is being written by another process") from None
            self._recover()
            self.aside.mkdir(mode=0o700)
            yield
        finally:
            os.close(lock)

    def commit(self, state: dict[str, Any]) -> None:
        """Move what was written aside into place, in one step as far as anybody can tell after a crash."""
        written = sorted(file.relative_to(self.aside).as_posix() for file in self.aside.rglob("*.parquet"))
        for name in written:
            (self.aside / name).chmod(OWNER_ONLY)
            synced(self.aside / name)
        journal = self.aside / JOURNAL
        draft = journal.with_suffix(".draft")
        draft.write_text(json.dumps({"state": state, "moves": written}))
        synced(draft)
        os.replace(draft, journal)  # from here on the commit will be made
        synced(self.aside)
        self._recover()

    def _recover(self) -> None:
        journal = self.aside / JOURNAL
        if journal.exists():
            told = json.loads(journal.read_text())
            for name in told["moves"]:
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                if (self.aside / name).exists():  # else it was moved before the crash
                    os.replace(self.aside / name, self.path / name)
            draft = self.path / f"{STATE}.draft"
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY), "w") as file:
                file.write(json.dumps(told["state"], indent=1))
            synced(draft)
            os.replace(draft, self.path / STATE)
            journal.unlink()
        shutil.rmtree(self.aside, ignore_errors=True)


def open_duckdb(
    file: str | Path = ":memory:", *, read_only: bool = False, only: Iterable[str | Path] | None = None
) -> duckdb.DuckDBPyConnection:
    """A connection that prints nothing (results of commands go to where its bar of progress would) and lives in UTC.

    It neither installs nor loads extensions by itself. With ``only`` it is confined to these files and folders.
    """
    connection = duckdb.connect(str(file), read_only=read_only, config=NO_EXTENSIONS)
    connection.execute("SET TimeZone = 'UTC'")
    # In a notebook without ipywidgets there is no bar, and DuckDB refuses to set anything of it.
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()[0][0]:
        connection.execute("SET enable_progress_bar = false")
    if only is not None:
        confine(connection, *only)
    return connection


def confine(connection: duckdb.DuckDBPyConnection, *places: str | Path) -> None:
    """Let a connection reach no other files than these, and those in these folders, from now on."""
    spelled = [str(one) for place in places for one in (Path(place), Path(place).absolute())]
    paths = sorted({text for one in spelled for text in (one, literal(one))})
    files, folders = (", ".join(quoted(f"{path}{end}") for path in paths) for end in ("", "/"))
    connection.execute(f"SET allowed_paths = [{files}]; SET allowed_directories = [{folders}]")
    connection.execute("SET enable_external_access = false")


def literal(path: str | Path) -> str:
    """A path as DuckDB reads it where it would take a pattern: none of its characters stands for others.

    >>> literal("what*/a[1]?.csv")
    'what[*]/a[[]1][?].csv'
    """
    return re.sub(r"[*?\[]", r"[\g<0>]", str(path))


def quoted(text: str | Path) -> str:
    """A text as SQL writes it."""
    return "'" + str(text).replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def json_path(key: str) -> str:
    """Path of a key of a JSON object, as SQL writes it."""
    escaped = key.replace('"', '\\"')
    return quoted(f'$."{escaped}"')


def covariate(name: str) -> str:
    """SQL of a covariate of the table of impressions; null where it is missing."""
    return f"CAST(covariates ->> {json_path(name)} AS DOUBLE)"


def make_table(connection: duckdb.DuckDBPyConnection, table: str, query: str = "", **more: str) -> None:
    """Make one of the three tables in DuckDB, and fill in what a query says by name; ``more`` are types of other columns."""
    types = {name: kind for name, (kind, _) in TABLES[table].items()} | more
    connection.execute(f"CREATE TABLE {table} ({', '.join(f'{name} {kind}' for name, kind in types.items())})")
    if query:
        connection.execute(f"INSERT INTO {table} BY NAME {query}")


def create_tables(dialect: str) -> dict[str, str]:
    """Statements that make the three tables in a database.

    >>> print(create_tables("postgres")["designs"])
    CREATE TABLE designs (version INT, design TEXT, query TEXT, a TEXT[], b TEXT[], ..., plain BOOLEAN)
    """
    tables = {}
    for table, columns in TABLES.items():
        told = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
        tree = sqlglot.parse_one(f"CREATE TABLE {table} ({told})", read="duckdb")
        more = ""
        if dialect == "clickhouse":
            more = f" ENGINE = MergeTree ORDER BY (version, {ORDERED[table]})"
            for column in tree.find_all(exp.ColumnDef):
                for kind in column.find_all(exp.DataType):
                    kind.set("nullable", column.name in ("arm", "segment", "covariates"))
        tables[table] = tree.sql(dialect=dialect) + more
    return tables
