"""Files as tables of DuckDB, row by row as they stand: CSV, JSON lines and Parquet, with complaints that name rows."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import duckdb

from ranktrial.formats.layout import identifier, json_path, literal, quoted
from ranktrial.trec.files import FormatError, blocks, existing_file, lines

JSON_LINES = (".jsonl", ".ndjson", ".json")
UPDATE = "update"
BULK_ACTIONS = ("index", "create", "delete", UPDATE)  # of OpenSearch, a line each before the line of a document
TEXT_TABLES = (".csv", ".tsv", ".txt")
LONGEST_LINE = 16 << 20
DELIMITERS = "\t,;"
NO_TEXT = ("INVALID ENCODING", "INVALID UNICODE")  # as versions of DuckDB call it
# Seconds from 1e11 on would be beyond the year 5000: they are milliseconds, ...
TIMES = {1e17: 1e9, 1e14: 1e6, 1e11: 1e3}
FIRST_TIME, LAST_TIME = 0.0, 1e11  # seconds that can be the time of a search: 1970 to 5138


@dataclass(frozen=True)
class RawTable:
    """A file as a table ``name`` of a connection, with its rows numbered in ``line`` as people count the lines of the file.

    Attributes:
        path: The file, or the folder of Parquet files.
        name: Of the table.
        row: What ``line`` counts: "line" or "row".
        skipped: Lines that were left out because they are no rows at all.
        place_of: File and line that a row starts on, where rows are of several files, or have no line or several.
    """

    connection: duckdb.DuckDBPyConnection
    path: Path
    name: str
    row: str = "line"
    skipped: int = 0
    place_of: Callable[[int], tuple[Path, int]] | None = None

    @cached_property
    def types(self) -> dict[str, str]:
        """Types of the columns, as DuckDB has them."""
        return {name: kind for name, kind, *_ in self.connection.execute(f"DESCRIBE {self.name}").fetchall()}

    @property
    def columns(self) -> str:
        """Names of the columns, for messages."""
        return ", ".join(column for column in self.types if column != "line")

    def text(self, column: str) -> str:
        """SQL for a column as text, null where it is empty."""
        name, kind = identifier(column), self.types[column]
        if kind == "JSON":
            return f"nullif({name} ->> '$', '')"
        if kind in ("FLOAT", "DOUBLE"):  # such as ids that a data frame holds as numbers because one is missing
            whole = f"{name} = floor({name}) AND abs({name}) < 1e15"
            return f"CASE WHEN {whole} THEN CAST(CAST({name} AS BIGINT) AS VARCHAR) ELSE CAST({name} AS VARCHAR) END"
        return f"nullif(trim({name}), '')" if kind == "VARCHAR" else f"CAST({name} AS VARCHAR)"

    def number(self, column: str) -> str:
        return f"TRY_CAST({self.text(column)} AS DOUBLE)"

    def whole(self, column: str) -> str:
        """Null where it is no whole number."""
        number = self.number(column)
        return f"CASE WHEN {number} = floor({number}) AND abs({number}) < 1e15 THEN CAST({number} AS BIGINT) END"

    def flag(self, column: str) -> str:
        """1 or 0; null where it is neither."""
        text = f"lower({self.text(column)})"
        return (
            f"CASE WHEN {text} IN ('1', 'true', 't', '1.0') THEN 1 WHEN {text} IN ('0', 'false', 'f', '0.0') THEN 0 END"
        )

    def ids(self, column: str) -> str:
        """A list of ids: an array, JSON as text, or ids with | between them."""
        if self.types[column].endswith("[]"):
            return f"CAST({identifier(column)} AS VARCHAR[])"
        text = self.text(column)
        json = f"TRY_CAST(TRY_CAST({text} AS JSON) AS VARCHAR[])"
        if self.types[column] == "JSON":
            return f"CASE WHEN json_type({identifier(column)}) = 'ARRAY' THEN {json} END"
        return f"CASE WHEN {text} LIKE '[%' THEN {json} ELSE string_split({text}, '|') END"

    def json(self, column: str) -> str:
        """SQL for a column as JSON: a value with parts, or JSON as text; null where it is no JSON."""
        if self.types[column] in ("JSON", "VARCHAR"):
            return f"TRY_CAST({self.text(column)} AS JSON)"
        return f"to_json({identifier(column)})"

    def seconds(self, column: str) -> str:
        """Seconds since 1970 UTC, from a number (of seconds, milli-, micro- or nanoseconds) or a date and time; else null.

        A date and time without a zone is UTC's.
        """
        number = self.number(column)
        units = " ".join(f"WHEN {number} >= {least:.0f} THEN {number} / {parts:.0f}" for least, parts in TIMES.items())
        told = (
            f"CASE {units} WHEN {number} IS NOT NULL THEN {number} "
            f"ELSE epoch(TRY_CAST({self.text(column)} AS TIMESTAMPTZ)) END"
        )
        return f"CASE WHEN ({told}) BETWEEN {FIRST_TIME:.0f} AND {LAST_TIME:.0f} THEN {told} END"

    def refuse(self, problems: Mapping[str, str], *, within: str | None = None, skip: bool = False) -> int:
        """Raise FormatError for the first row that has a problem: in SQL, what to say by the condition.

        ``within`` is the table that conditions speak of, which must have ``line``; by default this one. With ``skip`` such rows
        are deleted instead, and counted.
        """
        table = within or self.name
        told = " ".join(f"WHEN {condition} THEN {text}" for condition, text in problems.items())
        bad = f"(SELECT line, CASE {told} END AS problem FROM {table}) WHERE problem IS NOT NULL"
        count, line, problem = self.connection.execute(
            f"SELECT count(DISTINCT line), min(line), arg_min(problem, line) FROM {bad}"
        ).fetchall()[0]
        if count and not skip:
            more = f" (and {count - 1:,} more {self.row}s are wrong)" if count > 1 else ""
            file, at = (self.path, line) if self.place_of is None else self.place_of(line)
            raise FormatError(file, at, f"{problem}{more}")
        if count:
            self.connection.execute(f"DELETE FROM {table} WHERE line IN (SELECT line FROM {bad})")
        return int(count)


def read_table(
    connection: duckdb.DuckDBPyConnection, path: str | Path, name: str = "raw", *, skip: bool = False
) -> RawTable:
    """A file as it stands, in a table of a connection.

    Columns of CSV are text; those of JSON lines are JSON; those of Parquet what they are. A line that is no CSV or no JSON is
    refused, or left out with ``skip``.
    """
    place = Path(path)
    suffix = next((one.lower() for one in reversed(place.suffixes) if one != ".gz"), "")
    if place.is_dir() or suffix == ".parquet":
        return _parquet(connection, place, name)
    file = existing_file(place)
    if suffix in JSON_LINES:
        return _json_lines(connection, file, name, skip)
    if suffix in TEXT_TABLES:
        return _text_table(connection, file, name, skip)
    raise FormatError(file, None, f"a log must be {', '.join((*TEXT_TABLES, *JSON_LINES))} (or with .gz) or .parquet")


def _parquet(connection: duckdb.DuckDBPyConnection, path: Path, name: str) -> RawTable:
    found = sorted(path.glob("**/*.parquet")) if path.is_dir() else [existing_file(path)]
    if not found:
        raise FormatError(path, None, "there is no .parquet file in it")
    paths = ", ".join(quoted(literal(file)) for file in found)
    try:
        connection.execute(
            f"CREATE TABLE {name} AS SELECT row_number() OVER () AS line, * "
            f"FROM read_parquet([{paths}], union_by_name = true)"
        )
    except duckdb.Error as problem:
        raise FormatError(path, None, f"no Parquet that can be read: {_first_line(problem)}") from None
    return RawTable(connection, path, name, "row", place_of=partial(_row_of_file, connection, found))


def _row_of_file(connection: duckdb.DuckDBPyConnection, files: Sequence[Path], row: int) -> tuple[Path, int]:
    """The file of a row that was counted through all files, and its number there."""
    for file in files:
        count = f"SELECT num_rows FROM parquet_file_metadata({quoted(literal(file))})"
        (rows,) = connection.execute(count).fetchall()[0]
        if row <= rows:
            break
        row -= rows
    return file, row


def _json_lines(connection: duckdb.DuckDBPyConnection, path: Path, name: str, skip: bool) -> RawTable:
    wanted = "must be a JSON object on a line of its own"
    words = "delim = '', quote = '', escape = '', header = false"
    broken = _read_lines(connection, path, f"{name}_text", ["text"], words, wanted, first=1, skip=skip)
    draft = RawTable(connection, path, f"{name}_text")
    connection.execute(f"DELETE FROM {draft.name} WHERE text IS NULL OR trim(text) = ''")
    problems = {
        "NOT json_valid(text)": f"'no JSON: ' || left(text, 60) || '; {wanted}'",
        "json_type(text) <> 'OBJECT'": f"'{wanted}, not ' || lower(json_type(text))",
    }
    skipped = broken + draft.refuse(problems, skip=skip) + _unwrap(draft, skip)
    keys = connection.execute(f"SELECT DISTINCT unnest(json_keys(text)) AS key FROM {draft.name} ORDER BY key")
    columns = "".join(f", text -> {json_path(key)} AS {identifier(key)}" for (key,) in keys.fetchall() if key != "line")
    connection.execute(f"CREATE TABLE {name} AS SELECT line{columns} FROM {draft.name}; DROP TABLE {draft.name}")
    return RawTable(connection, path, name, skipped=skipped)


def _unwrap(table: RawTable, skip: bool) -> int:
    """Documents in place of the lines of an OpenSearch bulk file (an action, then its document) or export (``_source``).

    The first line says which of them the file is, if any. Wrong lines are refused, or with ``skip`` left out and counted.
    """
    db, name = table.connection, table.name
    action = " OR ".join(
        f"(json_keys(text) = ['{key}'] AND json_type(text -> '$.{key}') = 'OBJECT')" for key in BULK_ACTIONS
    )
    first = db.execute(f"SELECT {action}, json_type(text -> '$._source') FROM {name} ORDER BY line LIMIT 1").fetchall()
    bulk, source = first[0] if first else (False, None)
    if bulk:
        db.execute(f"""CREATE OR REPLACE TABLE {name} AS SELECT *, lag(action) OVER (ORDER BY line) AS before,
            lead(coalesce(action, '')) OVER (ORDER BY line) AS next FROM (
            SELECT line, text, CASE WHEN {action} THEN json_keys(text)[1] END AS action FROM {name})""")
        problems = {
            f"coalesce(action, before) = '{UPDATE}'": "'an update: a bulk file must have whole documents'",
            "action <> 'delete' AND coalesce(next, action) <> ''": "'no document follows this action'",
            "action IS NULL AND coalesce(before, 'delete') = 'delete'": "'a document without an action before it'",
        }
        skipped = table.refuse(problems, skip=skip)
        db.execute(f"DELETE FROM {name} WHERE action IS NOT NULL")
        return skipped
    if source != "OBJECT":
        return 0
    wrong = "coalesce(json_type(text -> '$._source') <> 'OBJECT', true)"
    skipped = table.refuse({wrong: "'there is no _source, as in the first line'"}, skip=skip)
    db.execute(f"UPDATE {name} SET text = text -> '$._source'")
    return skipped


def _text_table(connection: duckdb.DuckDBPyConnection, path: Path, name: str, skip: bool) -> RawTable:
    first = next((text for _, text in lines(path)), "")
    delimiter = max(DELIMITERS, key=first.count)
    named = next(csv.reader([first], delimiter=delimiter), [])
    header = [column.strip() or f"column{at}" for at, column in enumerate(named)]
    if len(header) < 2:
        wanted = "must be the names of at least two columns, with commas, semicolons or tabs between them"
        raise FormatError(path, 1, wanted)
    twice = [column for at, column in enumerate(header) if column in header[:at]]
    if twice:
        raise FormatError(path, 1, f"column {twice[0]!r} is there twice")
    wanted = f"must be {len(header)} columns: {delimiter.join(header)}"
    words = f"delim = {quoted(delimiter)}, quote = '\"', escape = '\"', header = true"
    skipped = _read_lines(connection, path, name, header, words, wanted, first=2, skip=skip)
    return RawTable(connection, path, name, skipped=skipped, place_of=partial(_line_of_row, path, delimiter))


def _read_lines(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    name: str,
    columns: Sequence[str],
    words: str,
    wanted: str,
    *,
    first: int,
    skip: bool,
) -> int:
    """A text file as a table of text columns. A line that is no row of it is refused, or with ``skip`` left out and counted.

    ``words`` say to DuckDB how the file is written, ``wanted`` to people what a line must be; rows count from ``first``.
    """
    told = ", ".join(f"{quoted(column)}: 'VARCHAR'" for column in columns)
    try:
        connection.execute(
            f"CREATE TABLE {name} AS SELECT row_number() OVER () + {first - 1} AS line, * "
            f"FROM read_csv({quoted(literal(path))}, {words}, auto_detect = false, columns = {{{told}}}, "
            f"max_line_size = {LONGEST_LINE}, store_rejects = true, rejects_limit = 0)"
        )
    except duckdb.Error as problem:
        for _ in lines(path):  # a file that is cut off, or no gzip at all, is refused here with the line reached
            pass
        if (odd := _odd_end(path)) is not None:
            uneven = "the line ends in another way than those before: must be LF, or CR LF, in all"
            raise FormatError(path, odd, uneven) from None
        raise FormatError(path, None, f"cannot be read: {_first_line(problem)}") from None
    at, kind, found, count = connection.execute(
        "SELECT min(line_byte_position), arg_min(error_type, line_byte_position), "
        "arg_min(error_message, line_byte_position), count(DISTINCT line) FROM reject_errors"
    ).fetchall()[0]
    connection.execute("DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans")
    if count and not skip:
        more = f" (and {count - 1:,} more lines are wrong)" if count > 1 else ""
        what = "not UTF-8 text" if kind in NO_TEXT else _first_line(found).rstrip(".")
        raise FormatError(path, _line_at(path, at), f"{what}; {wanted}{more}")
    return int(count)


def _line_at(path: Path, position: int) -> int:
    """The line of a byte of the text, or of what comes next after empty lines, which DuckDB's own number may leave out."""
    line, passed = 1, 0
    for block in blocks(path):
        rest = block[max(position - passed, 0) :]
        line += block.count(b"\n", 0, len(block) - len(rest))
        passed += len(block)
        text = rest.lstrip(b"\r\n")
        line += rest.count(b"\n", 0, len(rest) - len(text))
        if text:
            break
    return line


def _line_of_row(path: Path, delimiter: str, row: int) -> tuple[Path, int]:
    """The file, and the line on which a row of CSV starts, the header being row 1: lines may be empty, texts have several."""
    reader, before, found = csv.reader((text + "\n" for _, text in lines(path)), delimiter=delimiter), 0, 0
    try:
        for fields in reader:
            found += bool(fields)
            if found == row:
                break
            before = reader.line_num
    except csv.Error:  # a field too long for Python
        return path, row
    return path, before + 1


def _odd_end(path: Path) -> int | None:
    """The first line that ends in another way than the one before, with CR LF or with LF; DuckDB does not say where."""
    number, rest, before = 0, b"", None
    for block in blocks(path):
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            number += 1
            if before not in (None, line.endswith(b"\r")):
                return number
            before = line.endswith(b"\r")
    return None


def _first_line(problem: object) -> str:
    return str(problem).strip().splitlines()[0]
