"""Formats of logs that other people keep, each made into the tables of this package, or refused with the row that is wrong.

``FORMATS`` are those of one file; ``impressions`` and ``ubi`` may have a second one for their events.

A log of two rankers is the two tables of ``layout``. Pages are its impressions without designs: enough for position bias. Items
have propensities of their own: enough for any two rankers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import duckdb

from ranktrial import checks
from ranktrial.formats.frames import read_frame
from ranktrial.formats.layout import FORMAT, LogFolder, identifier, json_path, make_table, open_duckdb, quoted
from ranktrial.formats.readers.common import (
    ALWAYS,
    COUNTS,
    ITEMS,
    LINES,
    PAGES,
    PERIODS,
    TRIAL,
    Columns,
    Made,
    Use,
    no_column,
    no_times,
)
from ranktrial.formats.readers.events import read_events
from ranktrial.formats.readers.impressions import NEEDED as SEARCHES
from ranktrial.formats.readers.impressions import read_impressions
from ranktrial.formats.readers.rows import COUNTED, DRAWN, FLAT, WIDE
from ranktrial.formats.readers.ubi import CLICKS, read_ubi, ubi_tables
from ranktrial.formats.tables import RawTable, read_table
from ranktrial.methods import Method
from ranktrial.rankings.lists import MOST_RANKS
from ranktrial.segments import LONGEST, MOST_VALUES, NO_SEGMENTS, OTHER, Segments
from ranktrial.texts import shown
from ranktrial.times import Time, seconds
from ranktrial.trec.files import FormatError

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

FORMATS = (DRAWN, COUNTED, FLAT)  # a file is of the first whose columns it has
NEEDED = {"impressions": SEARCHES, "ubi": ("query_id",)} | {one.name: one.needed for one in FORMATS}
NO_EVENTS = "UBI queries need their events, in the same file or in another: --events FILE"
KEPT = {
    TRIAL: ("impressions", "designs", "events"),
    PAGES: ("impressions", "events"),
    COUNTS: ("counts",),
    ITEMS: ("items",),
}


class Declared(NamedTuple):
    """Declarations of one version of a log.

    Attributes:
        attributes: Attributes of searches and their values.
        covariates: Names of numbers known of visitors before.
        read_at: Until when events are known, in microseconds; None if nothing more can come.
    """

    attributes: Segments = NO_SEGMENTS
    covariates: tuple[str, ...] = ()
    read_at: int | None = None


@dataclass(frozen=True)
class LogSource:
    """A log that was read and checked, in tables of a DuckDB connection.

    Attributes:
        kind: "trial" (a log of two rankers), "pages", "counts" or "items".
        format: It was read as.
        name: Of the file or folder.
        k: Ranks that count.
        rows: Rows that were read.
        skipped: Rows that were left out because they are wrong.
        notes: What was done to it.
        uses: Of its rows, where a format has rows of several kinds: UBI.
        searches: Uses of its searches, likewise.
        actions: Of events, those that are clicks.
        versions: Declarations of each version; a file has one, 1.
        period: SQL of the period of a row, within which a document is compared with itself; all rows are of one by default.
    """

    connection: duckdb.DuckDBPyConnection
    kind: str
    format: str
    name: str
    k: int
    rows: int
    skipped: int = 0
    notes: tuple[str, ...] = field(default=())
    period: str = ALWAYS
    uses: tuple[Use, ...] = ()
    searches: tuple[Use, ...] = ()
    actions: tuple[str, ...] = ()
    versions: Mapping[int, Declared] = field(default_factory=dict)

    @property
    def latest(self) -> Declared:
        """Declarations of the latest version."""
        return self.versions[max(self.versions)] if self.versions else Declared()

    @property
    def periods(self) -> int:
        """Number of periods."""
        query = f"SELECT count(DISTINCT {self.period}) FROM {KEPT[self.kind][0]}"
        return int(self.connection.execute(query).fetchall()[0][0])


def read_source(
    path: str | Path | IntoFrame,
    *,
    format: str | None = None,
    events: str | Path | IntoFrame | None = None,
    k: int | None = None,
    columns: Mapping[str, str] | None = None,
    actions: Sequence[str] = CLICKS,
    method: Method | None = None,
    skip: bool = False,
    within: str | None = None,
    segments: Sequence[str] = (),
    covariates: Sequence[str] = (),
    read_at: Time | None = None,
    connection: duckdb.DuckDBPyConnection | None = None,
) -> LogSource:
    """Read and check a log, or a folder that ``save`` or ``export`` wrote.

    Args:
        path: CSV, JSON lines (also a bulk file or an export of OpenSearch) or Parquet (also a folder of it); .gz is
            welcome. Or a data frame of pandas, polars, Arrow or DuckDB.
        format: One of ``NEEDED``, such as "impressions" or "ubi"; by default what the columns say.
        events: A second file: events of "ubi", or events such as orders after searches of "impressions".
        k: Ranks that count; by default as many as were shown at most.
        columns: Names of their columns by ours, where they are others: ``{"document": "sku"}``.
        actions: Of UBI's ``action_name``, those that are clicks.
        method: That drew what was shown, for "impressions" that do not say: the rankings it could show follow from both lists.
        skip: Leave out rows that are wrong, instead of refusing the file.
        within: Compare a document with itself only within a "day" (UTC), a "week" (ISO), or a value of this column.
        segments: Attributes of searches: names of columns, or of keys of the column ``segment``; all of these by default.
        covariates: Numbers known of visitors before: names of columns, or of keys of the column ``covariates``, likewise.
        read_at: Until when events are known, in seconds or as a date and time; by default the last time in a log whose searches
            and events have times, so that a metric counts the searches whose window is over by then.
        connection: Where the tables are made; in memory by default.
    """
    db = open_duckdb() if connection is None else connection
    if isinstance(path, str | Path) and (folder := LogFolder(path)).exists:
        given = {
            "format": format, "events": events, "columns": columns, "method": method, "segments": segments,
            "covariates": covariates, "read_at": read_at, "actions": tuple(actions) != CLICKS,
        }  # fmt: skip
        return _of_folder(db, folder, within, k, [name for name, value in given.items() if value])
    tables = [
        read_table(db, one, name, skip=skip) if isinstance(one, str | Path) else read_frame(db, one, name)
        for one, name in ((path, "raw"), (events, "raw_events"))
        if one is not None
    ]
    raw, second = tables[0], tables[1] if len(tables) > 1 else None
    rows = sum(int(db.execute(f"SELECT count(*) FROM {one.name}").fetchall()[0][0]) + one.skipped for one in tables)
    if not rows:
        raise FormatError(raw.path, None, "there is no row in it")
    if k is not None:
        checks.whole("k", k, 1, MOST_RANKS)
    if format is not None:
        checks.one_of("format", format, tuple(NEEDED))
    both_lists = second is not None and {"a", "b", "shown"} <= set(raw.types)
    of_ubi = {"action_name", "query_id"} <= set(raw.types)  # events, alone or among queries
    kind = format or ("impressions" if both_lists else "ubi" if of_ubi or second is not None else None)
    if kind == "ubi":
        if second is None and not of_ubi:
            raise FormatError(raw.path, None, NO_EVENTS)
        parts = ubi_tables(raw, second, columns or {}, within, segments)
        found, made = parts.columns, read_ubi(parts, k, actions, skip)
    else:
        own = dict(columns or {})
        other = {} if second is None else {ours: theirs for ours, theirs in own.items() if theirs in second.types}
        only_other = [ours for ours in other if own[ours] not in raw.types]
        found = Columns(
            raw, {ours: own[ours] for ours in own if ours not in only_other}, within, segments, covariates=covariates
        )
        kind = kind or _detected(found)
        _refuse_lacking(found, kind, covariates)
        if kind == "impressions":
            made = read_impressions(found, k, skip, method)
            wrong, notes, timed = read_events(found, None if second is None else Columns(second, other), skip)
            made = made._replace(skipped=made.skipped + wrong, notes=notes, timed=timed)
        else:
            made = next(one for one in FORMATS if one.name == kind).read(found, k, skip)
            if made.kind == PAGES:
                make_table(db, "events")
    for table in ("raw", "raw_events", "draft"):
        db.execute(f"DROP TABLE IF EXISTS {table}")
    skipped = made.skipped + sum(one.skipped for one in tables)
    return LogSource(
        db, made.kind, kind, str(raw.path), made.k, rows, skipped, tuple(_notes(made, skipped)),
        ALWAYS if within is None else "period", made.uses, made.searches, tuple(actions),
        {1: _declared(db, made, found, read_at)},
    )  # fmt: skip


def _detected(columns: Columns) -> str:
    """The format that a file's columns say, UBI apart."""
    if columns.keys() >= {"a", "b", "shown"}:
        return "impressions"
    for one in FORMATS:
        if columns.keys() >= set(one.needed):
            return one.name
    if columns.keys() >= {"query", "document"} and any(WIDE.fullmatch(column) for column in columns.table.types):
        return "counts"
    path, wanted = columns.table.path, "; ".join(f"{name}: {', '.join(needed)}" for name, needed in NEEDED.items())
    if columns.keys() >= {"query_id", "hits"}:
        raise FormatError(path, None, NO_EVENTS)
    none = f"columns are {columns.table.columns}, which is none of the formats ({wanted})"
    raise FormatError(path, None, f"{none}; --column query=theirs names one")


def _refuse_lacking(columns: Columns, kind: str, covariates: Sequence[str]) -> None:
    """Raise FormatError for a file without a column that its format needs, or with covariates that it cannot have."""
    table = columns.table
    missing = [name for name in NEEDED[kind] if name not in columns]
    if missing and not (kind == "counts" and any(WIDE.fullmatch(column) for column in table.types)):
        told = f"there is no column {missing[0]!r}, which format {kind} needs; columns: {table.columns}"
        raise FormatError(table.path, None, f"{told}; --column {missing[0]}=theirs names it")
    if covariates and kind != "impressions":
        told = f"covariates are of searches with both lists (format impressions), not {kind}"
        raise FormatError(table.path, None, told)


def _notes(made: Made, skipped: int) -> list[str]:
    """Sentences on what was left out."""
    notes = [*made.notes, *([f"{skipped:,} wrong rows were left out"] if skipped else [])]
    if out := [one for one in made.searches if not one.used]:
        why = ", ".join(f"{one.use} ({one.count:,})" for one in out)
        whole = sum(one.count for one in made.searches)
        notes.append(f"searches left out, {sum(one.count for one in out):,} of {whole:,}: {why}")
    return notes


def _declared(db: duckdb.DuckDBPyConnection, made: Made, columns: Columns, read_at: Time | None) -> Declared:
    """Declarations of a file; attributes with their most frequent values: all others, and what none may have, are "other"."""
    known = {}
    for name in columns.attributes if made.kind in (TRIAL, PAGES) else ():
        values = db.execute(
            f"SELECT value FROM (SELECT segment ->> {json_path(name)} AS value FROM impressions) "
            "WHERE value IS NOT NULL GROUP BY value ORDER BY count(*) DESC, value"
        ).fetchall()
        usable = [value for (value,) in values if value == shown(value, LONGEST) and value not in ("", OTHER)]
        if usable:
            known[name] = usable[: MOST_VALUES // len(columns.attributes)]
    until = None if read_at is None else round(seconds("read_at", read_at) * 1e6)
    if until is None and made.timed:
        last = "SELECT max(time) FROM (SELECT time FROM impressions UNION ALL SELECT time FROM events)"
        until = db.execute(last).fetchall()[0][0]
    return Declared(
        Segments.of(known) if known else NO_SEGMENTS, tuple(columns.covariates) if made.kind == TRIAL else (), until
    )


def save(source: LogSource, folder: str | Path) -> None:
    """Write a log's tables as a folder of Parquet, all or nothing."""
    place = LogFolder(folder)
    with place.writing():
        if place.exists:
            raise ValueError(f"{folder} holds a log already: import into a folder of its own")
        for table in KEPT[source.kind]:
            if table == "events" and not source.connection.execute("SELECT 1 FROM events LIMIT 1").fetchall():
                continue
            target = place.aside / table
            options = "FORMAT parquet, COMPRESSION zstd"
            if table == "impressions":
                options += ", PARTITION_BY (day), FILENAME_PATTERN 'part-{i}', OVERWRITE_OR_IGNORE"
            else:
                target.mkdir()
                target /= "part.parquet"
            source.connection.execute(f"COPY {table} TO {quoted(target)} ({options})")
        known = source.latest
        version = {
            "k": source.k, "method": None, "segments": dict(known.attributes.attributes), "covariates": known.covariates,
            "read_at": known.read_at,
        }  # fmt: skip
        about = {"kind": source.kind, "read_as": source.format, "from": source.name, "versions": {"1": version}}
        place.commit({"format": FORMAT, "runs": 1, **about})


def _of_folder(
    db: duckdb.DuckDBPyConnection, folder: LogFolder, within: str | None, k: int | None, given: Sequence[str]
) -> LogSource:
    """A log in a folder of our own, which cannot follow options that were ``given`` any more."""
    state = folder.state
    depths = {version["k"] for version in state["versions"].values()}
    if given or (k is not None and depths != {k}):
        options = [*given, *([] if k is None or depths == {k} else [f"k = {k}"])]
        raise ValueError(
            f"{folder.path} was written by ranktrial and is read as it is, with {', '.join(map(str, depths))} ranks: "
            f"{', '.join(options)} must be given where the log is imported"
        )
    kind = state.get("kind", TRIAL)
    for table in KEPT[kind]:
        scan = folder.scan(table) if kind in (TRIAL, PAGES) else f"read_parquet({quoted(folder.files(table))})"
        db.execute(f"CREATE VIEW {table} AS SELECT * FROM {scan}")
    rows = int(db.execute(f"SELECT count(*) FROM {KEPT[kind][0]}").fetchall()[0][0])
    period = ALWAYS if within is None else _period(db, folder, KEPT[kind][0], within)
    versions = {
        int(number): Declared(
            Segments.of(known.get("segments", {})), tuple(known.get("covariates", ())), known.get("read_at")
        )
        for number, known in state["versions"].items()
    }
    kept = state.get("read_as", "export")
    return LogSource(db, kind, kept, str(folder.path), max(depths, default=1), rows, period=period, versions=versions)


def _period(db: duckdb.DuckDBPyConnection, folder: LogFolder, table: str, within: str) -> str:
    """SQL of the period of a row of a folder: its day, its week, or one of the columns that a folder has."""
    names = [name for name in RawTable(db, folder.path, table).types if name != "filename"]
    if within not in PERIODS:
        if within not in names:
            told = f"{no_column(within, ', '.join(names))}; or give the file that was imported"
            raise FormatError(folder.path, None, told)
        (missing,) = db.execute(f"SELECT count(*) - count({identifier(within)}) FROM {table}").fetchall()[0]
        if missing:
            told = f"{within} is missing in {missing:,} rows, within which documents are compared"
            raise FormatError(folder.path, None, told)
        return f"CAST({identifier(within)} AS VARCHAR)"
    (first,) = db.execute(f"SELECT min(day) FROM {table}").fetchall()[0] if "day" in names else (None,)
    if first is None or first.year <= LINES:
        raise FormatError(folder.path, None, f"{no_times(within)}: import a log that has them")
    return PERIODS[within].format("day")
