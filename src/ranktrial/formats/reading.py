"""Reader of folders, files and data frames into a ``Log`` in memory: for what SQL cannot compute, and logs that fit."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from ranktrial.arrays import IntArray
from ranktrial.formats.layout import LogFolder, open_duckdb, quoted
from ranktrial.formats.memory import open_bounded
from ranktrial.formats.readers import ALWAYS, TRIAL, Declared, LogSource, read_source
from ranktrial.formats.tables import covariate
from ranktrial.log import Log
from ranktrial.log.events import LoggedEvents
from ranktrial.log.log import NO_CODES, NO_COVARIATES
from ranktrial.log.sources import NOTHING, RecordedDesign, flatten
from ranktrial.segments import Segments
from ranktrial.trec import Run

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

NO_LISTS = (
    "{} is a log of single results ({}): it does not say what two rankers would have shown. For each search log both lists "
    "(a, b), what was shown and what was clicked; ranktrial check says more, ranktrial bias works on it"
)


def log_of(source: LogSource, version: int | None = None, *, rankers: tuple[Run, Run] | None = None) -> Log:
    """The log of one version, the latest by default; ValueError if it is no log of two rankers.

    With ``rankers`` it is a log of these two instead of A and B: what was shown and how likely that was stays the same.
    Impressions of queries that neither has are left out. A design is another one in another period, where there are periods.
    """
    if source.kind != TRIAL:
        raise ValueError(NO_LISTS.format(source.name, source.format))
    connection = source.connection
    if version is None:
        (version,) = connection.execute("SELECT max(version) FROM impressions").fetchall()[0]
    if version is None:
        raise ValueError(f"{source.name} has no impressions")
    name = "design" if source.period == ALWAYS else f"design || ' ' || {source.period}"
    connection.execute(f"""CREATE OR REPLACE TEMP VIEW searches AS
        SELECT * EXCLUDE (design), design AS drawn_from, {name} AS design FROM impressions WHERE version = {int(version)}""")
    told = connection.execute(f"""
        SELECT s.design, query, documents, rank_a, rank_b, rankings, probabilities, plain FROM designs d
        JOIN (SELECT DISTINCT design, drawn_from FROM searches) s ON s.drawn_from = d.design
        WHERE d.version = {int(version)} ORDER BY s.design""").fetchall()
    if not told:
        raise ValueError(f"{source.name} has no impressions of version {version}")
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
    known = source.versions.get(version, Declared())
    connection.register("codes", _codes(connection, known.attributes))
    columns = connection.execute(f"""
        SELECT {", ".join(["number", "place", "unit", "time", "coalesce(code, 0) AS code", *_clicks(k), *_covariates(known)])}
        FROM searches JOIN numbered USING (design) LEFT JOIN codes USING (segment) ORDER BY time, impression""").fetchnumpy()
    events, actions = _events(connection, version)
    design, names = np.asarray(columns["number"], np.int64), known.covariates
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
        read_at=known.read_at,
        attributes=known.attributes,
        segment=np.asarray(columns["code"], np.int64) if known.attributes else NO_CODES,
        covariates=np.stack([columns[f"z{at}"] for at in range(len(names))], axis=1) if names else NO_COVARIATES,
        covariate_names=names,
    ).numbered_by_use()


def _clicks(k: int) -> list[str]:
    """SQL columns of the clicks at each rank."""
    return [f"coalesce(clicked[{r}], 0) = 1 AS c{r}" for r in range(1, k + 1)]


def _covariates(known: Declared) -> list[str]:
    """SQL columns of what was known of visitors."""
    return [f"coalesce({covariate(name)}, 'nan') AS z{at}" for at, name in enumerate(known.covariates)]


def _codes(connection: duckdb.DuckDBPyConnection, attributes: Segments) -> dict[str, Any]:
    """Codes of the values that searches have, by their text."""
    query = "SELECT DISTINCT segment FROM searches WHERE segment IS NOT NULL"
    texts = [text for (text,) in connection.execute(query).fetchall()] if attributes else ["{}"]
    return {"segment": np.array(texts, object), "code": attributes.codes(map(json.loads, texts))}


def _events(connection: duckdb.DuckDBPyConnection, version: int) -> tuple[LoggedEvents, tuple[str, ...]]:
    """Events after the searches that have a design in the table ``numbered``, and names of their actions."""
    found = connection.execute(f"""
        WITH counted AS (SELECT row_number() OVER (ORDER BY time, impression) - 1 AS search, impression, time, shown
            FROM searches WHERE design IN (SELECT design FROM numbered))
        SELECT search, list_position(shown, document) - 1 AS rank, action, amount, greatest(e.time - counted.time, 0) AS delay
        FROM events e JOIN counted USING (impression)
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
    """A log in a DuckDB file for as long as the context lasts; a folder of our own is read where it is, and nothing else.

    ``memory`` bounds what the process takes; the options are those of ``read_source``.
    """
    if isinstance(path, str | Path) and LogFolder(path).exists:
        with open_duckdb(only=[path]) as connection:
            yield read_source(path, connection=connection, **options)
        return
    with tempfile.TemporaryDirectory(prefix="ranktrial-") as aside:
        file, spill = f"{aside}/log.duckdb", f"{aside}/spill"
        with open_duckdb(file) if memory is None else open_bounded(file, memory=memory, spill=spill) as connection:
            connection.execute(f"SET temp_directory = {quoted(spill)}")
            yield read_source(path, connection=connection, **options)


def read_log(
    path: str | Path | IntoFrame,
    k: int | None = None,
    *,
    version: int | None = None,
    rankers: tuple[Run, Run] | None = None,
    **options: Any,
) -> Log:
    """Read a log from a folder that ``ranktrial export`` or ``import`` wrote, or from a file or data frame with both lists.

    ``k`` is by default as many ranks as were shown, and ``version`` of a trial's configuration the latest. With ``rankers``,
    two TREC runs, it is a log of these instead of A and B. Options are those of ``read_source``: other names of columns, the
    method that drew what was shown, wrong rows left out. Lists in CSV are JSON, or ids with | between them. Frames of pandas,
    polars, Arrow and DuckDB have the same columns as files.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> rows = "query,a,b,shown,clicked\\nshoes,x|y,y|z,x|y,y\\nshoes,x|y,y|z,y|z,\\n"
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "searches.csv")
    ...     _ = file.write_text(rows)
    ...     read_log(file)
    Log(impressions=2, clicks=1, queries=1, designs=1, k=2)
    """
    with read_aside(path, k=k, **options) as source:
        return log_of(source, version, rankers=rankers)
