"""Reader of folders, files and data frames into a ``Log`` in memory: for what SQL cannot compute, and logs that fit."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import numpy as np

from ranktrial.arrays import IntArray
from ranktrial.formats.layout import LogFolder, open_duckdb, quoted
from ranktrial.formats.memory import open_bounded
from ranktrial.formats.readers import TRIAL, LogSource, read_source, refuse_options
from ranktrial.formats.tables import covariate
from ranktrial.log import Log
from ranktrial.log.events import LoggedEvents
from ranktrial.log.log import NO_CODES, NO_COVARIATES
from ranktrial.log.sources import NOTHING, RecordedDesign, flatten
from ranktrial.segments import NO_SEGMENTS, Segments
from ranktrial.trec import Run

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

NO_LISTS = (
    "{} is a log of single results ({}): it does not say what two rankers would have shown. For each search log both lists "
    "(a, b), what was shown and what was clicked; ranktrial check says more, ranktrial bias works on it"
)


class LogTables(NamedTuple):
    """Tables of a log of two rankers in DuckDB (``layout``): those of a folder, or of a file that was read.

    Attributes:
        connection: Where they are.
        impressions: SQL of the table of impressions.
        designs: SQL of the table of designs.
        events: SQL of the table of events.
        name: Name of the log, for messages.
        attributes: Attributes of searches, by version.
        covariates: Names of numbers known of visitors before, by version.
        read_at: Until when events are known, by version, in microseconds; None if nothing more can come.
    """

    connection: duckdb.DuckDBPyConnection
    impressions: str
    designs: str
    events: str
    name: str
    attributes: Mapping[int, Segments]
    covariates: Mapping[int, tuple[str, ...]]
    read_at: Mapping[int, int | None]

    @classmethod
    def of_folder(cls, folder: LogFolder, connection: duckdb.DuckDBPyConnection | None = None) -> LogTables:
        """Tables of a folder of Parquet, read by a connection that can reach no other files by default."""
        reader = open_duckdb(only=[folder.path]) if connection is None else connection
        impressions, designs, events = (folder.scan(table) for table in ("impressions", "designs", "events"))
        known = {int(number): about for number, about in folder.state["versions"].items()}
        attributes = {number: Segments.of(about.get("segments", {})) for number, about in known.items()}
        covariates = {number: tuple(about.get("covariates", ())) for number, about in known.items()}
        read_at = {number: about.get("read_at") for number, about in known.items()}
        return cls(reader, impressions, designs, events, str(folder.path), attributes, covariates, read_at)

    @classmethod
    def of_source(cls, source: LogSource) -> LogTables:
        """Tables of a file that was read; ValueError if it is no log of two rankers."""
        if source.kind != TRIAL:
            raise ValueError(NO_LISTS.format(source.name, source.format))
        return cls(
            source.connection, "impressions", "designs", "events", source.name, {1: source.attributes},
            {1: source.covariates}, {1: source.read_at},
        )  # fmt: skip

    def latest_version(self) -> int:
        """The highest version that has impressions."""
        (found,) = self.connection.execute(f"SELECT max(version) FROM {self.impressions}").fetchall()[0]
        if found is None:
            raise ValueError(f"{self.name} has no impressions")
        return int(found)

    def count(self, version: int) -> int:
        """Number of impressions of a version."""
        query = f"SELECT count(*) FROM {self.impressions} WHERE version = {version}"
        return int(self.connection.execute(query).fetchall()[0][0])


def read_folder(folder: LogFolder, version: int | None = None, *, rankers: tuple[Run, Run] | None = None) -> Log:
    """``read_tables`` of a folder: the log of ``Trial.log`` where it was exported from a trial."""
    return read_tables(LogTables.of_folder(folder), version, rankers=rankers)


def read_tables(tables: LogTables, version: int | None = None, *, rankers: tuple[Run, Run] | None = None) -> Log:
    """The log of one version, the latest by default.

    With ``rankers`` it is a log of these two instead of A and B: what was shown and how likely that was stays the same.
    Impressions of queries that neither has are left out.
    """
    number = tables.latest_version() if version is None else version
    connection = tables.connection
    used = f"SELECT design FROM {tables.impressions} WHERE version = {number}"
    told = connection.execute(
        "SELECT design, query, documents, rank_a, rank_b, rankings, probabilities, plain "
        f"FROM {tables.designs} WHERE version = {number} AND design IN ({used}) ORDER BY design"
    ).fetchall()
    if not told:
        raise ValueError(f"{tables.name} has no impressions of version {number}")
    k = len(told[0][5]) // len(told[0][6])
    compared = (
        None
        if rankers is None
        else [dict(zip(run.query_ids, map(run.ranking, range(run.n_queries)))) for run in rankers]
    )
    if compared is not None and rankers is not None:
        refuse_strangers(rankers, {row[1] for row in told})
        told = [row for row in told if any(row[1] in lists for lists in compared)]
    designs = [
        RecordedDesign(
            query, tuple(documents), _list(rank_a), _list(rank_b), _table(rankings, k), np.array(probabilities)
        )
        for _, query, documents, rank_a, rank_b, rankings, probabilities, _ in told
    ]
    if compared is not None:
        designs = [_of_others(design, [lists.get(design.query, ())[:k] for lists in compared]) for design in designs]
    arrays = flatten(designs, k)
    connection.register(
        "numbered", {"design": np.array([row[0] for row in told], object), "number": np.arange(len(told))}
    )
    clicked = ", ".join(f"coalesce(clicked[{r}], 0) = 1 AS c{r}" for r in range(1, k + 1))
    attributes = tables.attributes.get(number, NO_SEGMENTS)
    rows = f"{tables.impressions} JOIN numbered USING (design) LEFT JOIN codes USING (segment) WHERE version = {number}"
    connection.register("codes", _codes(tables, number, attributes))
    names = tables.covariates.get(number, ())
    known = "".join(f", coalesce({covariate(name)}, 'nan') AS known{at}" for at, name in enumerate(names))
    columns = connection.execute(
        f"SELECT number, place, unit, time, coalesce(code, 0) AS code, {clicked}{known} FROM {rows} ORDER BY time, impression"
    ).fetchnumpy()
    events, actions = _events(tables, number)
    design = np.asarray(columns["number"], np.int64)
    return Log(
        k=k,
        **arrays,
        design=design,
        row=arrays["row_offsets"][design] + np.asarray(columns["place"], np.int64),
        unit=np.asarray(columns["unit"], np.int64),
        time=np.asarray(columns["time"], np.int64),
        clicks=np.stack([np.asarray(columns[f"c{r}"], bool) for r in range(1, k + 1)], axis=1),
        plain=rankers is None and all(row[7] for row in told),
        events=events,
        actions=actions,
        read_at=tables.read_at.get(number),
        attributes=attributes,
        segment=np.asarray(columns["code"], np.int64) if attributes else NO_CODES,
        covariates=np.stack([columns[f"known{at}"] for at in range(len(names))], axis=1) if names else NO_COVARIATES,
        covariate_names=names,
    ).numbered_by_use()


def _codes(tables: LogTables, version: int, attributes: Segments) -> dict[str, Any]:
    """Codes of the values that searches have, by their text."""
    query = f"SELECT DISTINCT segment FROM {tables.impressions} WHERE version = {version} AND segment IS NOT NULL"
    texts = [text for (text,) in tables.connection.execute(query).fetchall()] if attributes else ["{}"]
    return {"segment": np.array(texts, object), "code": attributes.codes(map(json.loads, texts))}


def _events(tables: LogTables, version: int) -> tuple[LoggedEvents, tuple[str, ...]]:
    """Events after the impressions of a version that have a design in the table ``numbered``, and names of their actions."""
    found = tables.connection.execute(f"""
        WITH counted AS (SELECT row_number() OVER (ORDER BY time, impression) - 1 AS search, impression, time, shown
            FROM {tables.impressions} WHERE version = {version} AND design IN (SELECT design FROM numbered))
        SELECT search, list_position(shown, document) - 1 AS rank, action, amount, greatest(e.time - counted.time, 0) AS delay
        FROM {tables.events} e JOIN counted USING (impression)
        WHERE e.version = {version} AND list_contains(shown, document) ORDER BY ALL""").fetchnumpy()
    if not len(found["search"]):
        return LoggedEvents.EMPTY, ()
    actions, action = np.unique(found["action"].astype(str), return_inverse=True)
    numbers = {name: np.asarray(found[name], np.int64) for name in ("rank", "amount", "delay")}
    return LoggedEvents.of(found["search"], action=action, **numbers), tuple(actions.tolist())


def refuse_strangers(rankers: tuple[Run, Run], queries: Collection[str]) -> None:
    """Raise ValueError for a run that has no query of a log: all its lists would count as empty."""
    for name, run in zip("AB", rankers):
        if not any(query in queries for query in run.query_ids):
            raise ValueError(
                f"run {name} has no query of the log: queries of a run must be named as in the log, such as {min(queries)!r}, "
                f"not {run.query_ids[0]!r}"
            )


def _of_others(design: RecordedDesign, lists: list[tuple[str, ...]]) -> RecordedDesign:
    """Return the design with the lists of two other rankers."""
    slot = {document: number for number, document in enumerate(design.documents)}
    slots = [np.array([slot.setdefault(document, len(slot)) for document in ranked], np.int64) for ranked in lists]
    return design._replace(documents=tuple(slot), a=slots[0], b=slots[1])


def _list(ranks: Any) -> IntArray:
    """Candidates in the order of their ranks, without those of rank 0."""
    given = np.array(ranks, np.int64)
    return np.argsort(np.where(given > 0, given, len(given) + 64), kind="stable")[: int((given > 0).sum())]


def _table(rankings: Any, k: int) -> IntArray:
    table = np.array(rankings, np.int64).reshape(-1, k)
    return np.where(table == 0, NOTHING, table - 1)


@contextmanager
def read_aside(path: str | Path | IntoFrame, *, memory: str | None = None, **options: Any) -> Iterator[LogSource]:
    """A log in a DuckDB file for as long as the context lasts.

    ``memory`` bounds what the process takes; the options are those of ``read_source``.
    """
    with tempfile.TemporaryDirectory(prefix="ranktrial-") as aside:
        file, spill = f"{aside}/log.duckdb", f"{aside}/spill"
        with open_duckdb(file) if memory is None else open_bounded(file, memory=memory, spill=spill) as connection:
            connection.execute(f"SET temp_directory = {quoted(spill)}")
            yield read_source(path, connection=connection, **options)


def read_log(path: str | Path | IntoFrame, k: int | None = None, *, version: int | None = None, **options: Any) -> Log:
    """Read a log from a folder that ``ranktrial export`` or ``import`` wrote, or from a file or data frame with both lists.

    ``k`` is by default as many ranks as were shown. Options are those of ``read_source``: other names of columns, the method
    that drew what was shown, wrong rows left out. Lists in CSV are JSON, or ids with | between them. Frames of pandas, polars,
    Arrow and DuckDB have the same columns as files.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> rows = "query,a,b,shown,clicked\\nshoes,x|y,y|z,x|y,y\\nshoes,x|y,y|z,y|z,\\n"
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "searches.csv")
    ...     _ = file.write_text(rows)
    ...     read_log(file)
    Log(impressions=2, clicks=1, queries=1, designs=1, k=2)
    """
    if isinstance(path, str | Path) and (folder := LogFolder(path)).exists:
        refuse_options(folder, k=k, **options)
        return read_folder(folder, version)
    with read_aside(path, k=k, **options) as source:
        return read_tables(LogTables.of_source(source), version)
