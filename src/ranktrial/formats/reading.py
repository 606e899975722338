"""Reader of folders, files and data frames into a ``Log`` in memory: for what SQL cannot compute, and logs that fit."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from ranktrial.formats.layout import LogFolder, covariate, open_duckdb
from ranktrial.formats.readers import Declared, LogSource, read_source
from ranktrial.formats.readers.common import ALWAYS, TRIAL
from ranktrial.log import Log
from ranktrial.log.events import LoggedEvents
from ranktrial.log.log import NO_CODES, NO_COVARIATES
from ranktrial.log.sources import NOTHING, RecordedDesign, flatten
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
        SELECT s.design, query, a, b, documents, rankings, probabilities, plain FROM designs d
        JOIN (SELECT DISTINCT design, drawn_from FROM searches) s ON s.drawn_from = d.design
        WHERE d.version = {int(version)} ORDER BY s.design""").fetchall()
    if not told:
        raise ValueError(f"{source.name} has no impressions of version {version}")
    k, compared = len(told[0][5]) // len(told[0][6]), None
    if rankers is not None:
        refuse_strangers(rankers, {row[1] for row in told})
        compared = [dict(zip(run.query_ids, map(run.ranking, range(run.n_queries)))) for run in rankers]
        told = [row for row in told if any(row[1] in lists for lists in compared)]
    designs = [
        _design(row, k, row[2:4] if compared is None else [lists.get(row[1], ())[:k] for lists in compared])
        for row in told
    ]
    arrays = flatten(designs, k)
    connection.register(
        "numbered", {"design": np.array([row[0] for row in told], object), "number": np.arange(len(told))}
    )
    known = source.versions.get(version, Declared())
    texts = ["{}"]
    if known.attributes:
        found = connection.execute("SELECT DISTINCT segment FROM searches WHERE segment IS NOT NULL").fetchall()
        texts = [text for (text,) in found]
    codes = known.attributes.codes(map(json.loads, texts))
    connection.register("codes", {"segment": np.array(texts, object), "code": codes})
    clicks = [f"coalesce(clicked[{r}], 0) = 1 AS c{r}" for r in range(1, k + 1)]
    values = [f"coalesce({covariate(name)}, 'nan') AS z{at}" for at, name in enumerate(known.covariates)]
    columns = connection.execute(f"""
        SELECT {", ".join(["number", "place", "unit", "time", "coalesce(code, 0) AS code", *clicks, *values])}
        FROM searches JOIN numbered USING (design) LEFT JOIN codes USING (segment) ORDER BY time, impression""").fetchnumpy()
    numbers = {name: np.asarray(columns[name], np.int64) for name in ("number", "place", "unit", "time", "code")}
    events, actions = _events(connection, version)
    return Log(
        k=k,
        **arrays,
        design=numbers["number"],
        row=arrays["row_offsets"][numbers["number"]] + numbers["place"],
        unit=numbers["unit"],
        time=numbers["time"],
        clicks=np.stack([np.asarray(columns[f"c{r}"], bool) for r in range(1, k + 1)], axis=1),
        plain=rankers is None and all(row[7] for row in told),
        events=events,
        actions=actions,
        read_at=known.read_at,
        attributes=known.attributes,
        segment=numbers["code"] if known.attributes else NO_CODES,
        covariates=np.stack([columns[f"z{at}"] for at in range(len(values))], axis=1) if values else NO_COVARIATES,
        covariate_names=known.covariates,
    ).numbered_by_use()


def _design(row: tuple[Any, ...], k: int, lists: Iterable[Sequence[str]]) -> RecordedDesign:
    """The design of a row (design, query, a, b, documents, rankings, probabilities, plain), with two rankers' lists."""
    slot = {document: number for number, document in enumerate(row[4])}
    a, b = (np.array([slot.setdefault(one, len(slot)) for one in ranked], np.int64) for ranked in lists)
    table = np.array(row[5], np.int64).reshape(-1, k)
    return RecordedDesign(row[1], tuple(slot), a, b, np.where(table == 0, NOTHING, table - 1), np.array(row[6]))


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


@contextmanager
def read_aside(path: str | Path | IntoFrame, **options: Any) -> Iterator[LogSource]:
    """A log in a DuckDB file for as long as the context lasts; a folder of our own is read where it is, and nothing else.

    The options are those of ``read_source``.
    """
    if isinstance(path, str | Path) and LogFolder(path).exists:
        with open_duckdb(only=[path]) as connection:
            yield read_source(path, connection=connection, **options)
        return
    with (
        tempfile.TemporaryDirectory(prefix="ranktrial-") as aside,
        open_duckdb(f"{aside}/log.duckdb") as connection,
    ):
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
