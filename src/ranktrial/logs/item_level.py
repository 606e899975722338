"""Two rankers valued on results that were drawn one by one with known probabilities.

With P(d, r) the probability with which the log put d at rank r, a click on what stands at rank r counts

    w = (1[A puts it there] - 1[B puts it there]) / P(d, r),

whose sum over ranks has mean Delta for clicks that depend on document and rank in any way: the "direct" estimate, with
propensities as logged. No position bias is needed, and nothing but these propensities is believed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranktrial.data import Run
from ranktrial.logs.estimating import SummedEstimate, UnitMoments
from ranktrial.logs.formats import ITEMS, LogSource
from ranktrial.logs.reading import refuse_strangers


@dataclass(frozen=True)
class Places:
    """Places of the two rankers' lists, and how many of them the log never drew.

    Attributes:
        differ: (query, rank, document) that one ranker shows there and the other does not.
        never: Of these, those that the log never shows there.
        example: One of the latter, in words.
    """

    differ: int
    never: int
    example: str


def estimate_items(source: LogSource, a: Run, b: Run) -> tuple[SummedEstimate, Places]:
    """Delta of two rankers on a log of items, and what of their lists it covers.

    Where the log has no queries the two runs must have one each. Errors are over units: users or pages where the log names
    them, else single results.
    """
    if source.kind != ITEMS:
        raise ValueError(f"{source.name} has no propensities of single results")
    db, k = source.connection, source.k
    queries = {query for (query,) in db.execute("SELECT DISTINCT query FROM items").fetchall()}
    if queries != {""}:
        refuse_strangers((a, b), queries)
    rows: list[tuple[str, str, int, int]] = []
    for sign, run in ((1, a), (-1, b)):
        if queries == {""} and run.n_queries != 1:
            raise ValueError(f"the log has no queries, so each run must have one list; {run.tag} has {run.n_queries}")
        for at, query in enumerate(run.query_ids):
            named = "" if queries == {""} else query
            rows += [(named, document, rank, sign) for rank, document in enumerate(run.ranking(at)[:k], 1)]
    columns = list(zip(*rows))
    kinds = (object, object, np.int64, np.int64)
    db.register(
        "lists",
        {
            name: np.array(column, kind)
            for name, column, kind in zip(("query", "document", "rank", "sign"), columns, kinds)
        },
    )
    db.execute("CREATE OR REPLACE TEMP TABLE place AS SELECT query, document, rank, sum(sign) AS sign FROM lists "
               "WHERE query IN (SELECT query FROM items) GROUP BY ALL HAVING sum(sign) <> 0")  # fmt: skip
    db.unregister("lists")
    if not db.execute("SELECT count(*) FROM place").fetchall()[0][0]:
        raise ValueError("the two rankers show the same at every rank of every query of the log")
    places = _coverage(source)
    value = "coalesce(p.sign, 0) / i.propensity * i.clicked"
    joined = "items i LEFT JOIN place p USING (query, document, rank) WHERE i.query IN (SELECT query FROM place)"
    found = db.execute(f"""SELECT i.rank, count(*) AS n, sum({value}) AS x, sum(abs({value})) AS heavy,
        sum(({value})^2) AS squares,
        max(abs(coalesce(p.sign, 0)) / i.propensity) AS largest, count(DISTINCT i.impression) AS pages
        FROM {joined} GROUP BY i.rank ORDER BY i.rank""").fetchnumpy()
    n, x = (np.asarray(found[name], np.float64) for name in ("n", "x"))
    delta = float((x / n).sum())
    terms = " ".join(
        f"WHEN {rank} THEN ({value} - ({float(mean)!r})) / {float(count)!r}"
        for rank, mean, count in zip(found["rank"], x / n, n)
    )
    units, away, clickers = db.execute(
        f"""SELECT count(*), sum(moved * moved), sum(hit) FROM (
        SELECT i.unit, sum(CASE i.rank {terms} END) AS moved, max(i.clicked) AS hit FROM {joined} GROUP BY i.unit)"""
    ).fetchall()[0]
    pages = int(np.max(found["pages"]))
    moments = UnitMoments(
        None, np.array([float(pages)]), np.array([delta * pages]), count=int(units), squares=float(away) * pages**2,
        clickers=int(clickers),
    )  # fmt: skip
    heavy, squares = (float(np.sum(found[name])) for name in ("heavy", "squares"))
    estimate = SummedEstimate(
        delta=delta,
        standard_error=moments.standard_error,
        clicks_alone=moments.standard_error,
        impressions=pages,
        units=int(units),
        effective_clicks=heavy**2 / max(squares, 1e-300),
        largest_weight=float(np.max(found["largest"])),
        sums=moments,
        estimator="direct",
    )
    return estimate, places


def _coverage(source: LogSource) -> Places:
    db = source.connection
    never = "FROM place ANTI JOIN items USING (query, document, rank)"
    differ = int(db.execute("SELECT count(*) FROM place").fetchall()[0][0])
    missing = int(db.execute(f"SELECT count(*) {never}").fetchall()[0][0])
    example = ""
    if missing:
        query, document, rank, sign = db.execute(
            f"SELECT query, document, rank, sign {never} ORDER BY rank, query, document LIMIT 1"
        ).fetchall()[0]
        of_query = f" for {query!r}" if query else ""
        example = f"{'A' if sign > 0 else 'B'} shows {document} at rank {rank}{of_query}"
    return Places(differ, missing, example)
