"""A folder of Parquet read into memory, as a ``Log``: for estimates that cannot be added up, and for logs that fit."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ranktrial.arrays import FloatArray, IntArray
from ranktrial.data import Run
from ranktrial.inference import Log
from ranktrial.inference.log_sources import NOTHING, flatten
from ranktrial.logs.formats import TRIAL, LogSource, read_source, refuse_options, save
from ranktrial.logs.layout import LogFolder, open_duckdb, quoted
from ranktrial.logs.memory import open_bounded

NO_LISTS = (
    "{} is a log of single results ({}): it does not say what two rankers would have shown. For each search log both lists "
    "(a, b), what was shown and what was clicked; ranktrial check says more, ranktrial bias works on it"
)


class _Design(NamedTuple):
    """A row of ``designs``, as ``flatten`` wants it."""

    query: str
    documents: tuple[str, ...]
    a: IntArray
    b: IntArray
    rankings: IntArray
    weights: FloatArray


def latest_version(folder: LogFolder) -> int:
    """The highest version that has impressions."""
    (found,) = open_duckdb().execute(f"SELECT max(version) FROM {folder.scan('impressions')}").fetchall()[0]
    if found is None:
        raise ValueError(f"{folder.path} has no impressions")
    return int(found)


def count_impressions(folder: LogFolder, version: int) -> int:
    """How many impressions a version has."""
    table = folder.scan("impressions")
    return int(open_duckdb().execute(f"SELECT count(*) FROM {table} WHERE version = {version}").fetchall()[0][0])


def read_folder(folder: LogFolder, version: int | None = None, *, rankers: tuple[Run, Run] | None = None) -> Log:
    """The log of one version, the latest by default; that of ``Trial.log`` where the folder was exported from a trial.

    With ``rankers`` it is a log of these two instead of A and B: what was shown and how likely that was stays the same.
    Impressions of queries that neither has are left out.
    """
    number = latest_version(folder) if version is None else version
    connection = open_duckdb()
    used = f"SELECT design FROM {folder.scan('impressions')} WHERE version = {number}"
    told = connection.execute(
        "SELECT design, query, documents, rank_a, rank_b, rankings, probabilities, plain "
        f"FROM {folder.scan('designs')} WHERE version = {number} AND design IN ({used}) ORDER BY design"
    ).fetchall()
    if not told:
        raise ValueError(f"{folder.path} has no impressions of version {number}")
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
        _Design(query, tuple(documents), _list(rank_a), _list(rank_b), _table(rankings, k), np.array(probabilities))
        for _, query, documents, rank_a, rank_b, rankings, probabilities, _ in told
    ]
    if compared is not None:
        designs = [_of_others(design, [lists.get(design.query, ())[:k] for lists in compared]) for design in designs]
    arrays = flatten(designs, k)
    connection.register(
        "numbered", {"design": np.array([row[0] for row in told], object), "number": np.arange(len(told))}
    )
    clicked = ", ".join(f"coalesce(clicked[{r}], 0) = 1 AS c{r}" for r in range(1, k + 1))
    columns = connection.execute(
        f"SELECT number, place, unit, time, {clicked} FROM {folder.scan('impressions')} JOIN numbered USING (design) "
        f"WHERE version = {number} ORDER BY time, impression"
    ).fetchnumpy()
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
    )


def refuse_strangers(rankers: tuple[Run, Run], queries: Collection[str]) -> None:
    """Raise ValueError for a run that has no query of a log: all its lists would count as empty."""
    for name, run in zip("AB", rankers):
        if not any(query in queries for query in run.query_ids):
            raise ValueError(
                f"run {name} has no query of the log: queries of a run must be named as in the log, such as {min(queries)!r}, "
                f"not {run.query_ids[0]!r}"
            )


def _of_others(design: _Design, lists: list[tuple[str, ...]]) -> _Design:
    """The same design for two other rankers."""
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
def read_aside(path: str | Path, *, memory: str | None = None, **options: Any) -> Iterator[tuple[LogSource, Path]]:
    """A log in a DuckDB file for as long as the context lasts, and the folder that the file is in.

    ``memory`` bounds what the process takes; the options are those of ``read_source``.
    """
    with tempfile.TemporaryDirectory(prefix="ranktrial-") as aside:
        file, spill = f"{aside}/log.duckdb", f"{aside}/spill"
        with open_duckdb(file) if memory is None else open_bounded(file, memory=memory, spill=spill) as connection:
            connection.execute(f"SET temp_directory = {quoted(spill)}")
            yield read_source(path, connection=connection, **options), Path(aside)


def saved_aside(source: LogSource, aside: Path) -> LogFolder:
    """A log of two rankers that was read aside, as a folder of Parquet there."""
    if source.kind != TRIAL:
        raise ValueError(NO_LISTS.format(source.name, source.format))
    save(source, aside / "log")
    return LogFolder(aside / "log")


@contextmanager
def as_folder(path: str | Path, **options: Any) -> Iterator[LogFolder]:
    """A log as a folder of Parquet: as it is, or imported for as long as the context lasts (options of ``read_source``)."""
    folder = LogFolder(path)
    if folder.exists:
        refuse_options(folder, **options)
        yield folder
        return
    with read_aside(path, **options) as (source, aside):
        yield saved_aside(source, aside)


def read_log(path: str | Path, k: int | None = None, *, version: int | None = None, **options: Any) -> Log:
    """A log in memory, from a folder or from a file of any format that holds both lists; see ``Log.read``."""
    with as_folder(path, k=k, **options) as folder:
        return read_folder(folder, version)
