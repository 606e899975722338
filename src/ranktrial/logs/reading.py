"""A folder of Parquet read into memory, as a ``Log``: for estimates that cannot be added up, and for logs that fit."""

from __future__ import annotations

from typing import Any, NamedTuple

import duckdb
import numpy as np

from ranktrial.arrays import FloatArray, IntArray
from ranktrial.inference import Log
from ranktrial.inference.log_sources import NOTHING, flatten
from ranktrial.logs.layout import LogFolder


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
    (found,) = duckdb.execute(f"SELECT max(version) FROM {folder.scan('impressions')}").fetchall()[0]
    if found is None:
        raise ValueError(f"{folder.path} has no impressions")
    return int(found)


def count_impressions(folder: LogFolder, version: int) -> int:
    """How many impressions a version has."""
    table = folder.scan("impressions")
    return int(duckdb.execute(f"SELECT count(*) FROM {table} WHERE version = {version}").fetchall()[0][0])


def read_folder(folder: LogFolder, version: int | None = None) -> Log:
    """The log of one version, the latest by default; that of ``Trial.log`` where the folder was exported from a trial."""
    number = latest_version(folder) if version is None else version
    connection = duckdb.connect()
    used = f"SELECT design FROM {folder.scan('impressions')} WHERE version = {number}"
    told = connection.execute(
        "SELECT design, query, documents, rank_a, rank_b, rankings, probabilities, plain "
        f"FROM {folder.scan('designs')} WHERE version = {number} AND design IN ({used}) ORDER BY design"
    ).fetchall()
    if not told:
        raise ValueError(f"{folder.path} has no impressions of version {number}")
    k = len(told[0][5]) // len(told[0][6])
    designs = [
        _Design(query, tuple(documents), _list(rank_a), _list(rank_b), _table(rankings, k), np.array(probabilities))
        for _, query, documents, rank_a, rank_b, rankings, probabilities, _ in told
    ]
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
        plain=all(row[7] for row in told),
    )


def _list(ranks: Any) -> IntArray:
    """Candidates in the order of their ranks, without those of rank 0."""
    given = np.array(ranks, np.int64)
    return np.argsort(np.where(given > 0, given, len(given) + 64), kind="stable")[: int((given > 0).sum())]


def _table(rankings: Any, k: int) -> IntArray:
    table = np.array(rankings, np.int64).reshape(-1, k)
    return np.where(table == 0, NOTHING, table - 1)
