"""Mapping of a file's columns to those of a log, and checks that all formats share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import duckdb

from ranktrial.covariates import LARGEST, checked_names
from ranktrial.formats.layout import json_path, make_table, quoted
from ranktrial.formats.tables import RawTable
from ranktrial.rankings.lists import MOST_RANKS
from ranktrial.trec.files import FormatError

TRIAL, PAGES, COUNTS, ITEMS = "trial", "pages", "counts", "items"
OTHER_NAMES = {
    "query": ("query", "user_query", "qid", "query_id", "search"),
    "document": (
        "document", "doc", "docid", "doc_id", "document_id", "item", "item_id", "sku", "product_id", "object_id",
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
}  # fmt: skip
MICROSECONDS = "CAST(time * 1000000 AS BIGINT)"
DATE = "CAST(make_timestamp(CAST({} * 1000000 AS BIGINT)) AS DATE)"  # SQL, of seconds
IMPRESSION = "printf('%015d', {})"  # SQL of the id of an impression, by its line
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


class Made(NamedTuple):
    """Tables that a format's reader has made.

    Attributes:
        kind: Which: ``TRIAL`` or ``PAGES`` (impressions, and events if there are any), ``COUNTS`` or ``ITEMS``.
        k: Ranks that count.
        skipped: Rows that were left out because they are wrong.
        notes: What else was left out.
        timed: Searches and events have times.
        uses: Of the rows, where a format has rows of several kinds.
        searches: Uses of the searches, likewise.
    """

    kind: str
    k: int
    skipped: int
    notes: tuple[str, ...] = ()
    timed: bool = False
    uses: tuple[Use, ...] = ()
    searches: tuple[Use, ...] = ()


@dataclass(frozen=True)
class Format:
    """A format of logs that are read from one file.

    Attributes:
        name: By which it is asked for.
        needed: Columns that it must have, by our names.
        read: Makes the tables, given the columns of a file, k (None for as many ranks as there are) and whether to leave wrong
            rows out instead of refusing them.
    """

    name: str
    needed: tuple[str, ...]
    read: Callable[[Columns, int | None, bool], Made]


class Columns(dict[str, str]):
    """Columns of a file by our names for them: as they are given, or one of those in ``OTHER_NAMES``, or the same as ours.

    ``within`` says what a row's period is: its day, its week, or a column. ``attributes`` are names of attributes of searches:
    columns of their own, or keys of the column ``segment``; by default all of these keys. ``covariates`` are names of numbers
    known before, likewise: columns, or keys of the column ``covariates``.
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
        self.table, self.within = table, within
        for theirs in given.values():
            if theirs not in table.types:
                raise FormatError(table.path, None, f"there is no column {theirs!r}; columns: {table.columns}")
        spelt = {column.lower(): column for column in reversed(table.types)}
        known = {ours: [spelt[name] for name in names if name in spelt] for ours, names in OTHER_NAMES.items()}
        found = {ours: columns[0] for ours, columns in known.items() if columns}
        super().__init__(
            {ours: theirs for ours, theirs in spelt.items() if ours not in OTHER_NAMES} | found | dict(given)
        )
        if within in PERIODS and "time" not in self:
            raise FormatError(table.path, None, f"{no_times(within)}: a column time, or --column time=theirs")
        if within is not None and within not in PERIODS and (within == "line" or within not in table.types):
            raise FormatError(table.path, None, no_column(within, table.columns))
        self.attributes = self._values(attributes, segment, given, "answer by")
        self.covariates = self._values(checked_names(covariates), COVARIATES, given, "adjust by")
        checked_names(list(self.covariates))

    def _values(self, asked: Sequence[str], objects: str, given: Mapping[str, str], purpose: str) -> dict[str, str]:
        """SQL of the text of each value: keys of a column of objects, or columns that are asked for by name."""
        table, keys, json = self.table, [], ""
        if objects in table.types:
            json = table.json(objects)
            listed = f"CASE WHEN json_type({json}) = 'OBJECT' THEN json_keys({json}) END"
            found = table.connection.execute(f"SELECT DISTINCT unnest({listed}) AS key FROM {table.name} ORDER BY key")
            keys = [key for (key,) in found.fetchall()]
        told = {}
        for name in asked or keys:
            column = name if name in OTHER_NAMES else given.get(name, name)
            if name not in keys and column not in table.types:
                missing = f"there is no column {name!r} to {purpose}; columns: {table.columns}"
                raise FormatError(table.path, None, missing)
            told[name] = f"nullif({json} ->> {json_path(name)}, '')" if name in keys else table.text(column)
        return told

    def text(self, ours: str) -> str:
        """SQL of a column as text; null where the file has none."""
        return self.table.text(self[ours]) if ours in self else NO_TEXT

    def common(self, *names: str) -> str:
        """SQL of unit, time, period and segment (attributes as JSON), which every format has; or of some of these."""
        time = self.table.seconds(self["time"]) if "time" in self else "CAST(line AS DOUBLE)"
        pairs = ", ".join(f"{quoted(name)}, {value}" for name, value in self.attributes.items())
        segment = f"CAST(json_object({pairs}) AS VARCHAR)" if pairs else NO_TEXT
        period = NO_TEXT
        if self.within in PERIODS:
            period = PERIODS[self.within].format(DATE.format(f"({time})"))
        elif self.within is not None:
            period = self.table.text(self.within)
        found = {"unit": self.text("unit"), "time": time, "period": period, "segment": segment}
        return ", ".join(f"{found[name]} AS {name}" for name in names or found)

    @property
    def problems(self) -> dict[str, str]:
        """Rows with a unit that is no number, and rows without a time or a period, where the file has such a column."""
        problems = {}
        if "time" in self:
            problems["time IS NULL"] = quoted(f"{self['time']} must be seconds since 1970, or a date and time")
        if "unit" in self:
            problems["lower(unit) = 'nan'"] = quoted(f"{self['unit']} is NaN, must be text or a whole number")
        return problems | self.period_problems

    @property
    def period_problems(self) -> dict[str, str]:
        """Rows without a period, where one was asked for."""
        if self.within is None:
            return {}
        return {"period IS NULL": quoted(f"{self.within} is missing, within which documents are compared")}

    @property
    def kept(self) -> dict[str, str]:
        """The column of periods with its type, where one was asked for."""
        return {} if self.within is None else {"period": "VARCHAR"}


def covariate_values(columns: Columns) -> tuple[str, dict[str, str]]:
    """SQL of the covariates of a row as JSON, null where there are none; and of what is wrong with them."""
    problems, pairs, some = {}, [], []
    if COVARIATES in columns.table.types:
        text, json = columns.table.text(COVARIATES), columns.table.json(COVARIATES)
        wanted = quoted(', must be an object of numbers such as {"clicks_last_month": 3}')
        wrong = f"{text} IS NOT NULL AND coalesce(json_type({json}), '') NOT IN ('OBJECT', 'NULL')"
        problems[wrong] = f"'covariates are ' || left({text}, 60) || {wanted}"
    for name, value in columns.covariates.items():
        number = f"CASE WHEN lower({value}) <> 'nan' THEN TRY_CAST({value} AS DOUBLE) END"
        wrong = f"lower({value}) <> 'nan' AND coalesce(abs({number}) > {LARGEST:g}, true)"
        problems[wrong] = f"{quoted(f'{name} is ')} || left({value}, 60) || ', must be a number'"
        pairs.append(f"{quoted(name)}, {number}")
        some.append(f"{number} IS NOT NULL")
    known = f"CASE WHEN {' OR '.join(some)} THEN CAST(json_object({', '.join(pairs)}) AS VARCHAR) END"
    return known if pairs else NO_TEXT, problems


def no_times(within: str) -> str:
    """Refusal of days and weeks of a log without times."""
    return f"there are no times, which --within {within} needs"


def no_column(within: str, names: str) -> str:
    """Refusal of periods by a column that there is not."""
    return f"there is no column {within!r} to compare within; columns: {names}; or --within {' or '.join(PERIODS)}"


def list_problems(*lists: str) -> dict[str, str]:
    """Rows whose lists of ids are missing, or have an id twice."""
    problems = {}
    for name in lists:
        problems[f"{name} IS NULL"] = quoted(f'{name} must be a list of ids, such as ["x", "y"] or x|y')
        problems[f"len({name}) <> len(list_distinct({name}))"] = quoted(f"{name} has an id twice, or an empty one")
    return problems


def depth(db: duckdb.DuckDBPyConnection, expression: str, k: int | None) -> int:
    """k, or as many ranks as there are in the draft."""
    (found,) = db.execute(f"SELECT max({expression}) FROM draft").fetchall()[0]
    return max(min(int(found or 1), MOST_RANKS), 1) if k is None else k


def make_impressions(columns: Columns, rest: str) -> None:
    """The table of impressions, from a draft d with line, unit, time, period and segment, and SQL of the other columns.

    Units are numbered in the order in which they first came; a row without one is of a unit of its own.
    """
    make_table(columns.table.connection, "impressions", f"""
        WITH named AS (SELECT line, coalesce('u' || unit, 'l' || line) AS name FROM draft),
        first AS (SELECT name, min((time, line)) AS began FROM draft JOIN named USING (line) GROUP BY name),
        numbered AS (SELECT name, row_number() OVER (ORDER BY began) - 1 AS number FROM first)
        SELECT 1 AS version, {DATE.format("time")} AS day, {MICROSECONDS} AS time, {IMPRESSION.format("line")} AS impression,
            number AS unit, {", ".join(["segment", *columns.kept])}, {rest}
        FROM draft d JOIN named USING (line) JOIN numbered USING (name)""", **columns.kept)  # fmt: skip


def make_pages(columns: Columns) -> None:
    """Impressions of pages, from a draft that has query, shown and clicked, too."""
    make_impressions(columns, "query, '' AS design, 0 AS place, shown, clicked")


def add_up(columns: Columns, shown: str = "shown") -> None:
    """Counts from a draft with query, document, rank, clicked and period."""
    period = "".join(f", {name}" for name in columns.kept)
    columns.table.connection.execute(
        f"CREATE TABLE counts AS SELECT query, document, CAST(rank AS INTEGER) AS rank, sum({shown}) AS shown, "
        f"sum(CAST(clicked AS DOUBLE)) AS clicked{period} FROM draft GROUP BY query, document, draft.rank{period}"
    )
