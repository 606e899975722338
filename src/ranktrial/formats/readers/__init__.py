"""Formats of logs that other people keep, each made into the tables of this package, or refused with the row that is wrong.

Each has a file here: ``FORMATS`` are those of one file, ``impressions`` and ``ubi`` may have a second one for their events.

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
from ranktrial.formats.layout import FORMAT, LogFolder, open_duckdb, quoted
from ranktrial.formats.readers.common import (
    ALWAYS,
    COUNTS,
    ITEMS,
    LINES,
    PAGES,
    PERIODS,
    TRIAL,
    Columns,
    Use,
    declared,
    names_of,
    no_column,
    no_times,
)
from ranktrial.formats.readers.counts import COUNTED, WIDE
from ranktrial.formats.readers.events import no_events, read_events
from ranktrial.formats.readers.flat import FLAT
from ranktrial.formats.readers.impressions import NEEDED as SEARCHES
from ranktrial.formats.readers.impressions import read_impressions
from ranktrial.formats.readers.items import DRAWN
from ranktrial.formats.readers.ubi import CLICKS, is_ubi, read_ubi, ubi_tables
from ranktrial.formats.tables import RawTable, identifier, read_table
from ranktrial.methods import Method
from ranktrial.rankings.lists import MOST_RANKS
from ranktrial.segments import NO_SEGMENTS, Segments
from ranktrial.times import Time, seconds
from ranktrial.trec.files import FormatError

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

__all__ = [
    "ALWAYS",
    "CLICKS",
    "COUNTS",
    "ITEMS",
    "LINES",
    "PAGES",
    "PERIODS",
    "TRIAL",
    "Declared",
    "LogSource",
    "Use",
    "read_source",
    "refuse_options",
    "save",
]

FORMATS = (DRAWN, COUNTED, FLAT)  # a file is of the first whose columns it has
READERS = {one.name: one.read for one in FORMATS}
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


def detect(columns: Columns) -> str:
    """The format that a file's columns say, UBI apart."""
    table = columns.table
    if columns.has("a", "b", "shown"):
        return "impressions"
    for one in FORMATS:
        if columns.has(*one.needed):
            return one.name
    if columns.has("query", "document") and any(WIDE.fullmatch(column) for column in table.types):
        return "counts"
    if columns.has("query_id", "hits"):
        raise FormatError(table.path, None, NO_EVENTS)
    wanted = "; ".join(f"{name}: {', '.join(needed)}" for name, needed in NEEDED.items())
    raise FormatError(
        table.path,
        None,
        f"columns are {', '.join(names_of(table))}, which is none of the formats ({wanted}); --column query=theirs names one",
    )


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
        refuse_options(
            folder, format=format, events=events, k=k, columns=columns, actions=actions, method=method, segments=segments,
            covariates=covariates, read_at=read_at,
        )  # fmt: skip
        return _of_folder(db, folder, within)
    raw = _read(db, path, "raw", skip)
    second = None if events is None else _read(db, events, "raw_events", skip)
    read = [raw] if second is None else [raw, second]
    rows = sum(int(db.execute(f"SELECT count(*) FROM {one.name}").fetchall()[0][0]) + one.skipped for one in read)
    if not rows:
        raise FormatError(raw.path, None, "there is no row in it")
    if k is not None:
        checks.whole("k", k, 1, MOST_RANKS)
    kind = None if format is None else checks.one_of("format", format, tuple(NEEDED))
    uses: tuple[Use, ...] = ()
    searches: tuple[Use, ...] = ()
    notes: list[str] = []
    timed = False
    given, of_events = _divided(columns or {}, raw, second)
    if kind is None and second is not None and {"a", "b", "shown"} <= set(raw.types):
        kind = "impressions"
    if kind == "ubi" or (kind is None and (events is not None or is_ubi(raw))):
        kind = "ubi"
        if second is None and not is_ubi(raw):
            raise FormatError(raw.path, None, NO_EVENTS)
        tables = ubi_tables(raw, second, columns or {}, within, segments)
        made, deepest, skipped, uses, searches = read_ubi(tables, k, actions, skip)
        found, timed = tables.columns, tables.columns.has("time") and "timestamp" in tables.events.types
    else:
        found = Columns(raw, given, within, segments, covariates=covariates)
        kind = detect(found) if kind is None else kind
        wide = kind == "counts" and any(WIDE.fullmatch(column) for column in raw.types)
        missing = [name for name in NEEDED[kind] if not found.has(name)]
        if missing and not wide:
            raise FormatError(
                raw.path,
                None,
                f"there is no column {missing[0]!r}, which format {kind} needs; columns: {', '.join(names_of(raw))}; "
                f"--column {missing[0]}=theirs names it",
            )
        if covariates and kind != "impressions":
            raise FormatError(
                raw.path, None, f"covariates are of searches with both lists (format impressions), not {kind}"
            )
        if kind == "impressions":
            made, deepest, skipped = read_impressions(found, k, skip, method)
            happened = None if second is None else Columns(second, of_events)
            wrong, notes, timed = read_events(found, happened, skip)
            skipped += wrong
        else:
            made, deepest, skipped = READERS[kind](found, k, skip)
            if made == PAGES:
                no_events(db)
    skipped += sum(one.skipped for one in read)
    for table in ("raw", "raw_events", "draft"):
        db.execute(f"DROP TABLE IF EXISTS {table}")
    notes += [f"{skipped:,} wrong rows were left out"] if skipped else []
    if out := [one for one in searches if not one.used]:
        why = ", ".join(f"{one.use} ({one.count:,})" for one in out)
        notes.append(
            f"searches left out, {sum(one.count for one in out):,} of {sum(u.count for u in searches):,}: {why}"
        )
    period = ALWAYS if within is None else "period"
    known_until = None if read_at is None else round(seconds("read_at", read_at) * 1e6)
    if known_until is None and timed:
        last = "SELECT max(time) FROM (SELECT time FROM impressions UNION ALL SELECT time FROM events)"
        known_until = db.execute(last).fetchall()[0][0]
    known = Declared(
        declared(db, tuple(found.attributes)) if made in (TRIAL, PAGES) else NO_SEGMENTS,
        tuple(found.covariates) if made == TRIAL else (),
        known_until,
    )
    return LogSource(
        db, made, kind, str(raw.path), deepest, rows, skipped, tuple(notes), period, uses, searches, tuple(actions), {1: known}
    )  # fmt: skip


def _divided(
    columns: Mapping[str, str], raw: RawTable, events: RawTable | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Names of columns of the searches, and of those of events that have a file of their own."""
    if events is None:
        return dict(columns), {}
    own, other = (
        {ours: theirs for ours, theirs in columns.items() if theirs in table.types} for table in (raw, events)
    )
    return own | {ours: theirs for ours, theirs in columns.items() if ours not in own | other}, other


def _read(db: duckdb.DuckDBPyConnection, given: str | Path | IntoFrame, name: str, skip: bool) -> RawTable:
    """Put a file or a data frame into a table."""
    if isinstance(given, str | Path):
        return read_table(db, given, name, skip=skip)
    return read_frame(db, given, name)


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
        version = {
            "k": source.k,
            "method": None,
            "segments": dict(source.latest.attributes.attributes),
            "covariates": source.latest.covariates,
            "read_at": source.latest.read_at,
        }
        place.commit(
            {
                "format": FORMAT,
                "runs": 1,
                "kind": source.kind,
                "read_as": source.format,
                "from": source.name,
                "versions": {"1": version},
            }
        )


def refuse_options(
    folder: LogFolder, *, k: int | None = None, actions: Sequence[str] = CLICKS, skip: bool = False, **options: object
) -> None:
    """Raise ValueError for options of ``read_source`` that a folder of ``save`` or ``export`` cannot follow any more."""
    given = [name for name, value in options.items() if value]
    given += [] if tuple(actions) == CLICKS else ["actions"]
    known = {version["k"] for version in folder.state["versions"].values()}
    given += [] if k is None or known == {k} else [f"k = {k}"]
    if given:
        raise ValueError(
            f"{folder.path} was written by ranktrial and is read as it is, with {', '.join(map(str, known))} ranks: "
            f"{', '.join(given)} must be given where the log is imported"
        )


def _of_folder(db: duckdb.DuckDBPyConnection, folder: LogFolder, within: str | None) -> LogSource:
    state = folder.state
    kind = state.get("kind", TRIAL)
    for table in KEPT[kind]:
        scan = folder.scan(table) if kind in (TRIAL, PAGES) else f"read_parquet({quoted(folder.files(table))})"
        db.execute(f"CREATE VIEW {table} AS SELECT * FROM {scan}")
    rows = int(db.execute(f"SELECT count(*) FROM {KEPT[kind][0]}").fetchall()[0][0])
    k = max((version["k"] for version in state["versions"].values()), default=1)
    period = ALWAYS if within is None else _period(db, folder, KEPT[kind][0], within)
    versions = {
        int(number): Declared(
            Segments.of(known.get("segments", {})), tuple(known.get("covariates", ())), known.get("read_at")
        )
        for number, known in state["versions"].items()
    }
    kept = state.get("read_as", "export")
    return LogSource(db, kind, kept, str(folder.path), k, rows, period=period, versions=versions)


def _period(db: duckdb.DuckDBPyConnection, folder: LogFolder, table: str, within: str) -> str:
    """SQL of the period of a row of a folder: its day, its week, or one of the columns that a folder has."""
    names = [name for name, *_ in db.execute(f"DESCRIBE {table}").fetchall() if name != "filename"]
    if within not in PERIODS:
        if within not in names:
            raise FormatError(folder.path, None, f"{no_column(within, names)}; or give the file that was imported")
        (missing,) = db.execute(f"SELECT count(*) - count({identifier(within)}) FROM {table}").fetchall()[0]
        if missing:
            raise FormatError(
                folder.path, None, f"{within} is missing in {missing:,} rows, within which documents are compared"
            )
        return f"CAST({identifier(within)} AS VARCHAR)"
    (first,) = db.execute(f"SELECT min(day) FROM {table}").fetchall()[0] if "day" in names else (None,)
    if first is None or first.year <= LINES:
        raise FormatError(folder.path, None, f"{no_times(within)}: import a log that has them")
    return PERIODS[within].format("day")
