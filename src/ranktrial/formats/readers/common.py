"""Mapping of a file's columns to those of a log, and checks that all formats share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from ranktrial.covariates import LARGEST, checked_names
from ranktrial.formats.layout import IMPRESSIONS, quoted
from ranktrial.formats.tables import RawTable, json_path
from ranktrial.rankings.lists import MOST_RANKS
from ranktrial.segments import LONGEST, MOST_VALUES, NO_SEGMENTS, OTHER, Segments
from ranktrial.texts import shown
from ranktrial.trec.files import FormatError

TRIAL, PAGES, COUNTS, ITEMS = "trial", "pages", "counts", "items"
OTHER_NAMES = {
    "query": ("query", "user_query", "qid", "query_id", "search"),
    "document": (
        "document",
        "doc",
        "docid",
        "doc_id",
        "document_id",
        "item",
        "item_id",
        "sku",
        "product_id",
        "object_id",
    ),
    "position": ("position", "rank", "pos"),
    "clicked": ("clicked", "click", "is_click"),
    "impression": ("impression", "impression_id", "search_id", "serp_id", "session", "session_id"),
    "unit": ("unit", "user", "user_id", "client_id", "visitor"),
    "time": ("time", "timestamp"),
    "propensity": ("propensity", "propensity_score", "pscore"),
    "shows": ("shows", "shown", "views", "impressions"),
    "clicks": ("clicks",),
    "action": ("action", "action_name"),
    "value": ("value", "amount"),
    "event_id": ("event_id",),
    "hits": ("query_response_hit_ids", "query_response_object_ids", "query_response_objects_ids"),
}
MICROSECONDS = "CAST(time * 1000000 AS BIGINT)"
DATE = "CAST(make_timestamp(CAST({} * 1000000 AS BIGINT)) AS DATE)"  # SQL, of seconds
DAY = DATE.format("time")
IMPRESSION = "printf('%015d', line)"
COVARIATES = "covariates"  # a column of objects with numbers
NO_TEXT = "CAST(NULL AS VARCHAR)"
LINES = 1970  # the year of times that are numbers of lines
ALWAYS = "''"  # SQL of the period of all rows, where they are not divided
PERIODS = {"day": "CAST({} AS VARCHAR)", "week": "strftime({}, '%G-W%V')"}  # SQL of the UTC day and ISO week of a date


@dataclass(frozen=True)
class Use:
    """Number of rows of one kind that were put to one use.

    Attributes:
        count: Of rows, or of searches.
        kind: "query", the action of an event, or "search".
        use: What they were used for, or why they were not.
        used: True if they were used.
    """

    count: int
    kind: str
    use: str
    used: bool


class Columns:
    """Columns of a file by what they are to us, and what a row's period is (``within``): its day, its week, or a column.

    ``attributes`` are names of attributes of searches: columns of their own, or keys of the column ``segment``; by default all
    of these keys. ``covariates`` are names of numbers known before, likewise: columns, or keys of the column ``covariates``.
    """

    def __init__(
        self,
        table: RawTable,
        given: Mapping[str, str],
        within: str | None = None,
        attributes: Sequence[str] = (),
        segment: str = "segment",
        covariates: Sequence[str] = (),
    ) -> None:
        self.table, self.within, self.given = table, within, given
        for theirs in given.values():
            if theirs not in table.types:
                raise FormatError(
                    table.path, None, f"there is no column {theirs!r}; columns: {', '.join(names_of(table))}"
                )
        if within in PERIODS and not self.has("time"):
            raise FormatError(table.path, None, f"{no_times(within)}: a column time, or --column time=theirs")
        if within is not None and within not in PERIODS and within not in names_of(table):
            raise FormatError(table.path, None, no_column(within, names_of(table)))
        self.attributes = self._values(attributes, segment, "answer by")
        self.covariates = self._values(checked_names(covariates), COVARIATES, "adjust by")
        checked_names(list(self.covariates))

    def _values(self, asked: Sequence[str], objects: str, purpose: str) -> dict[str, str]:
        """SQL of the text of each value: keys of a column of objects, or columns that are asked for by name."""
        table, keys = self.table, []
        if objects in table.types:
            json = table.json(objects)
            listed = f"CASE WHEN json_type({json}) = 'OBJECT' THEN json_keys({json}) END"
            found = table.connection.execute(f"SELECT DISTINCT unnest({listed}) AS key FROM {table.name} ORDER BY key")
            keys = [key for (key,) in found.fetchall()]
        told = {}
        for name in asked or keys:
            column = self.given.get(name, name) if name not in OTHER_NAMES else name
            if name in keys:
                told[name] = f"nullif({json} ->> {quoted(json_path(name))}, '')"
            elif column in table.types:
                told[name] = table.text(column)
            else:
                raise FormatError(
                    table.path, None, f"there is no column {name!r} to {purpose}; columns: {', '.join(names_of(table))}"
                )
        return told

    @property
    def segment(self) -> str:
        """SQL of the attributes of a row as JSON; null where there are none."""
        pairs = ", ".join(f"{quoted(name)}, {value}" for name, value in self.attributes.items())
        return f"CAST(json_object({pairs}) AS VARCHAR)" if pairs else NO_TEXT

    @property
    def known(self) -> str:
        """SQL of the covariates of a row as JSON; null where there are none."""
        pairs = ", ".join(f"{quoted(name)}, {_real(value)}" for name, value in self.covariates.items())
        some = " OR ".join(f"{_real(value)} IS NOT NULL" for value in self.covariates.values())
        return f"CASE WHEN {some} THEN CAST(json_object({pairs}) AS VARCHAR) END" if pairs else NO_TEXT

    @property
    def covariate_problems(self) -> list[tuple[str, str]]:
        """SQL conditions of a covariate that is no number, each with its message."""
        problems = []
        if COVARIATES in self.table.types:
            text, json = self.table.text(COVARIATES), self.table.json(COVARIATES)
            wanted = quoted(', must be an object of numbers such as {"clicks_last_month": 3}')
            wrong = f"{text} IS NOT NULL AND coalesce(json_type({json}), '') NOT IN ('OBJECT', 'NULL')"
            problems.append((wrong, f"'covariates are ' || left({text}, 60) || {wanted}"))
        for name, value in self.covariates.items():
            wrong = f"lower({value}) <> 'nan' AND coalesce(abs({_real(value)}) > {LARGEST:g}, true)"
            problems.append((wrong, f"{quoted(f'{name} is ')} || left({value}, 60) || ', must be a number'"))
        return problems

    @property
    def kept(self) -> dict[str, tuple[str, str]]:
        """The column of periods, where one was asked for: name, type and meaning as in ``layout``."""
        return {} if self.within is None else {"period": ("VARCHAR", "within which documents are compared")}

    @property
    def period(self) -> str:
        """SQL of a row's period; null where none was asked for."""
        if self.within is None:
            return NO_TEXT
        if self.within not in PERIODS:
            return self.table.text(self.within)
        return PERIODS[self.within].format(DATE.format(f"({self.table.seconds(self['time'])})"))

    def has(self, *names: str) -> bool:
        return all(self.get(name) is not None for name in names)

    def get(self, ours: str) -> str | None:
        """Name of their column for one of ours: as it was given, or one of those in ``OTHER_NAMES``, or the same as ours."""
        names = (self.given[ours],) if ours in self.given else OTHER_NAMES.get(ours, (ours,))
        found = [column for column in self.table.types if column.lower() in names or column in names]
        return min(found, key=lambda column: names.index(column if column in names else column.lower()), default=None)

    def __getitem__(self, ours: str) -> str:
        if (theirs := self.get(ours)) is None:
            raise KeyError(ours)
        return theirs


def _real(text: str) -> str:
    """SQL of a number, null where the text is none."""
    return f"CASE WHEN lower({text}) <> 'nan' THEN TRY_CAST({text} AS DOUBLE) END"


@dataclass(frozen=True)
class Format:
    """A format of logs that are read from one file.

    Attributes:
        name: By which it is asked for.
        needed: Columns that it must have, by our names.
        read: Makes the tables, given the columns of a file, k (None for as many ranks as there are) and whether to leave wrong
            rows out instead of refusing them; gives back which tables these are (``PAGES``, ``COUNTS`` or ``ITEMS``), k, and
            how many rows were left out.
    """

    name: str
    needed: tuple[str, ...]
    read: Callable[[Columns, int | None, bool], tuple[str, int, int]]


def names_of(table: RawTable) -> list[str]:
    return [column for column in table.types if column != "line"]


def no_times(within: str) -> str:
    """Refusal of days and weeks of a log without times."""
    return f"there are no times, which --within {within} needs"


def no_column(within: str, names: Sequence[str]) -> str:
    """Refusal of periods by a column that there is not."""
    return f"there is no column {within!r} to compare within; columns: {', '.join(names)}; or --within {' or '.join(PERIODS)}"


def common(columns: Columns) -> str:
    """Unit, time, period and attributes as every format has them."""
    table = columns.table
    unit = table.text(columns["unit"]) if columns.has("unit") else NO_TEXT
    time = table.seconds(columns["time"]) if columns.has("time") else "CAST(line AS DOUBLE)"
    return f"{unit} AS unit, {time} AS time, {columns.period} AS period, {columns.segment} AS segment"


def period_problems(columns: Columns) -> list[tuple[str, str]]:
    """Rows without a period, where one was asked for."""
    if columns.within is None:
        return []
    return [("period IS NULL", quoted(f"{columns.within} is missing, within which documents are compared"))]


def common_problems(columns: Columns) -> list[tuple[str, str]]:
    """Rows with a unit that is no number, and rows without a time or a period, where the file has such a column."""
    problems = []
    if columns.has("time"):
        text = quoted(f"{columns['time']} must be seconds since 1970, or a date and time")
        problems.append(("time IS NULL", text))
    if columns.has("unit"):
        text = quoted(f"{columns['unit']} is NaN, must be text or a whole number")
        problems.append(("lower(unit) = 'nan'", text))
    return problems + period_problems(columns)


def result_problems(columns: Columns) -> list[tuple[str, str]]:
    """SQL conditions of an invalid position or click of a result, each with its message."""
    position, clicked = columns["position"], columns["clicked"]
    return [
        ("query IS NULL", "'query is missing'"),
        ("document IS NULL", "'document is missing'"),
        ("rank IS NULL", quoted(f"{position} must be a whole number from 1")),
        ("rank < 1", f"{quoted(position + ' is ')} || rank || ', must count from 1'"),
        ("clicked IS NULL", quoted(f"{clicked} must be 1 or 0")),
        *common_problems(columns),
    ]


def depth(db: duckdb.DuckDBPyConnection, table: RawTable, expression: str, k: int | None) -> int:
    """k, or as many ranks as there are."""
    (found,) = db.execute(f"SELECT max({expression}) FROM draft").fetchall()[0]
    deepest = min(int(found or 1), MOST_RANKS)
    return max(deepest, 1) if k is None else k


def number_units(db: duckdb.DuckDBPyConnection) -> None:
    """Units by number, in the order in which they first came; each row its own where they have no name."""
    db.execute("""CREATE TABLE units AS
        WITH named AS (SELECT line, time, coalesce('u' || unit, 'l' || line) AS name FROM draft),
        first AS (SELECT name, min((time, line)) AS began FROM named GROUP BY name),
        numbered AS (SELECT name, row_number() OVER (ORDER BY began) - 1 AS number FROM first)
        SELECT line, number FROM named JOIN numbered USING (name)""")


def ordered(db: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, tuple[str, str]]) -> None:
    """The table with its columns, in their order and of their types."""
    told = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, (kind, _) in columns.items())
    db.execute(
        f"CREATE TABLE ordered AS SELECT {told} FROM {table}; DROP TABLE {table}; ALTER TABLE ordered RENAME TO {table}"
    )


def make_pages(columns: Columns) -> None:
    """Impressions of pages, from a draft with line, query, unit, time, period, segment, shown and clicked."""
    db = columns.table.connection
    number_units(db)
    db.execute(f"""CREATE TABLE impressions AS SELECT 1 AS version, {DAY} AS day, {MICROSECONDS} AS time,
        {IMPRESSION} AS impression, u.number AS unit, query, '' AS design, 0 AS place, NULL AS arm,
        shown, clicked, segment, {NO_TEXT} AS covariates, period FROM draft JOIN units u USING (line)""")
    ordered(db, "impressions", IMPRESSIONS | columns.kept)


def declared(db: duckdb.DuckDBPyConnection, names: Sequence[str]) -> Segments:
    """Attributes of impressions with their most frequent values: all others, and what no attribute may have, are "other"."""
    most, known = MOST_VALUES // max(len(names), 1), {}
    for name in names:
        values = db.execute(
            f"SELECT value FROM (SELECT segment ->> {quoted(json_path(name))} AS value FROM impressions) "
            "WHERE value IS NOT NULL GROUP BY value ORDER BY count(*) DESC, value"
        ).fetchall()
        usable = [value for (value,) in values if value == shown(value, LONGEST) and value not in ("", OTHER)]
        if usable:
            known[name] = usable[:most]
    return Segments.of(known) if known else NO_SEGMENTS


def add_up(columns: Columns, shown: str = "shown") -> None:
    """Counts from a draft with query, document, rank, clicked and period."""
    period = "".join(f", {name}" for name in columns.kept)
    columns.table.connection.execute(
        f"CREATE TABLE counts AS SELECT query, document, CAST(rank AS INTEGER) AS rank, sum({shown}) AS shown, "
        f"sum(CAST(clicked AS DOUBLE)) AS clicked{period} FROM draft GROUP BY query, document, draft.rank{period}"
    )
