"""Data frames of every library that narwhals knows (pandas, polars, Arrow, DuckDB relations), as tables and from columns.

A frame goes through an Arrow table into the tables that files go through, with the same columns and checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from ranktrial import checks, extras
from ranktrial.formats.tables import RawTable
from ranktrial.trec.files import FormatError

if TYPE_CHECKING:
    import pyarrow

BACKENDS = ("pandas", "polars", "pyarrow")  # what frames can be made of
NAME = Path("data frame")  # where a file would have its path
INDEX = "__index_level_"  # begins the column of a pandas index that has no name


def read_frame(connection: duckdb.DuckDBPyConnection, frame: Any, name: str = "raw") -> RawTable:
    """Put a data frame into a table of a connection, its rows numbered from 1."""
    table = _arrow(frame)
    dropped = [column for column in table.column_names if column.startswith(INDEX) or column == "line"]
    connection.register("frame", table.drop_columns(dropped))
    connection.execute(f"CREATE TABLE {name} AS SELECT row_number() OVER () AS line, * FROM frame")
    connection.unregister("frame")
    return RawTable(connection, NAME, name, "row")


def _arrow(frame: Any) -> pyarrow.Table:
    """A frame as an Arrow table; lazy ones are computed."""
    if refusal := extras.missing("frames", "a data frame"):
        raise refusal
    import narwhals
    import pyarrow

    try:
        known = narwhals.from_native(frame)
    except TypeError:
        raise TypeError(f"a log is a path or a data frame, not {type(frame).__name__}") from None
    except narwhals.exceptions.NarwhalsError as problem:  # a name that two columns have
        raise FormatError(NAME, None, " ".join(str(problem).split())) from None
    eager = known.collect("pyarrow") if isinstance(known, narwhals.LazyFrame) else known
    try:
        return eager.to_arrow()
    except pyarrow.ArrowException as problem:
        for column in eager.columns:
            _refuse_mixed(column, eager[column])
        raise FormatError(NAME, None, f"no Arrow table can be made of it: {problem}") from None


def _refuse_mixed(column: str, values: Iterable[Any]) -> None:
    """Raise FormatError for the first value of a column that is of another type than those before it."""
    first = None
    for row, value in enumerate(values, 1):
        if value is None or value != value:
            continue
        first = type(value) if first is None else first
        if type(value) is not first:
            told = f"{column} is {value!r}, {type(value).__name__}, and {first.__name__} in the rows before"
            raise FormatError(NAME, row, f"{told}: must be of one type")


def make_frame(columns: Mapping[str, Sequence[Any]], backend: str) -> Any:
    """Make a data frame of columns."""
    checks.one_of("backend", backend, BACKENDS)
    if refusal := extras.missing("frames", "a data frame"):
        raise refusal
    import narwhals

    try:
        return narwhals.from_dict(columns, backend=backend).to_native()  # type: ignore[arg-type]
    except ImportError as problem:
        raise ImportError(f"a frame of {backend} needs it: pip install {backend}") from problem
