"""Two rankers valued on results that were drawn one by one with known probabilities.

With P(d, r) the probability with which the log put d at rank r, a click on what stands at rank r counts

    w = (1[A puts it there] - 1[B puts it there]) / P(d, r),

whose sum over ranks has mean Delta for clicks that depend on document and rank in any way: the "direct" estimate, with
propensities as logged. No position bias is needed, and nothing but these propensities is believed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranktrial.analysis.estimators.click_weights import ClickWeights
from ranktrial.formats.estimating import SummedEstimate, UnitMoments
from ranktrial.formats.readers import LogSource
from ranktrial.formats.readers.common import ITEMS
from ranktrial.formats.reading import refuse_strangers
from ranktrial.log.units import UnitSums
from ranktrial.trec import Run

DIFFERENT = "(FROM place WHERE sign <> 0)"  # SQL of places that one ranker gives to another result than the other


@dataclass(frozen=True)
class Places:
    """Places of the two rankers' lists, how many of them the log never drew, and what clicks on the others are worth.

    Attributes:
        differ: (query, rank, document) that one ranker shows there and the other does not.
        never: Of these, those that the log never shows there.
        example: One of the latter, in words.
        both: Clicks per search of pages that are half A's and half B's.
        worth: Mean over searches of what clicks on all results that count for A, and for B, would add in its favour.
    """

    differ: int
    never: int
    example: str
    both: UnitSums
    worth: tuple[float, float]

    @property
    def missing(self) -> str:
        """Sentence on places that were never drawn; "" if there are none."""
        if not self.never:
            return ""
        return (
            f"{self.never:,} of {self.differ:,} places on which the rankers differ were never drawn, and count as never "
            f"clicked: {self.example}."
        )


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
    db.execute("CREATE OR REPLACE TEMP TABLE place AS SELECT query, document, rank, sum(sign) AS sign, count(*) / 2 AS half "
               "FROM lists WHERE query IN (SELECT query FROM items) GROUP BY ALL")  # fmt: skip
    db.unregister("lists")
    if not db.execute(f"SELECT count(*) FROM {DIFFERENT}").fetchall()[0][0]:
        raise ValueError("the two rankers show the same at every rank of every query of the log")
    value, half = (f"coalesce(p.{of}, 0) / i.propensity * i.clicked" for of in ("sign", "half"))
    for_a, for_b = (f"sum(greatest({side} coalesce(p.sign, 0), 0) / i.propensity)" for side in ("", "-"))
    joined = f"items i LEFT JOIN place p USING (query, document, rank) WHERE i.query IN (SELECT query FROM {DIFFERENT})"
    found = db.execute(f"""SELECT i.rank, count(*) AS n, sum(i.clicked) AS clicks, sum({value}) AS x,
        sum(abs({value})) AS heavy, sum(({value})^2) AS squares, sum({half}) AS both, {for_a} AS for_a, {for_b} AS for_b,
        max(abs(coalesce(p.sign, 0)) / i.propensity) AS largest, count(DISTINCT i.impression) AS pages
        FROM {joined} GROUP BY i.rank ORDER BY i.rank""").fetchnumpy()
    n = np.asarray(found["n"], np.float64)
    mean = {name: np.asarray(found[name], np.float64) / n for name in ("x", "both", "for_a", "for_b")}
    delta, pages = float(mean["x"].sum()), int(np.max(found["pages"]))
    moved, moved_both = (
        " ".join(
            f"WHEN {rank} THEN ({of} - ({float(middle)!r})) / {float(count)!r}"
            for rank, middle, count in zip(found["rank"], means, n)
        )
        for of, means in ((value, mean["x"]), (half, mean["both"]))
    )
    units, away, away_both, clickers = db.execute(
        f"""SELECT count(*), sum(moved * moved), sum(moved_both * moved_both), sum(hit) FROM (
        SELECT i.unit, sum(CASE i.rank {moved} END) AS moved, sum(CASE i.rank {moved_both} END) AS moved_both,
        max(i.clicked) AS hit FROM {joined} GROUP BY i.unit)"""
    ).fetchall()[0]

    def over_units(total: float, squares: float) -> UnitMoments:
        return UnitMoments(
            None, np.array([float(pages)]), np.array([total * pages]), count=int(units), squares=float(squares) * pages**2,
            clickers=int(clickers),
        )  # fmt: skip

    moments = over_units(delta, away)
    worth = float(mean["for_a"].sum()), float(mean["for_b"].sum())
    places = _coverage(source, over_units(float(mean["both"].sum()), away_both), worth)
    clicks, squares, heavy = (float(np.sum(found[name])) for name in ("clicks", "squares", "heavy"))
    largest = float(np.max(found["largest"]))
    weights = ClickWeights(np.array([[clicks], [squares]]), heavy, largest)
    return SummedEstimate.of(moments, weights, largest_weight=largest), places


def _coverage(source: LogSource, both: UnitSums, worth: tuple[float, float]) -> Places:
    db = source.connection
    never = f"FROM {DIFFERENT} ANTI JOIN items USING (query, document, rank)"
    differ = int(db.execute(f"SELECT count(*) FROM {DIFFERENT}").fetchall()[0][0])
    missing = int(db.execute(f"SELECT count(*) {never}").fetchall()[0][0])
    example = ""
    if missing:
        query, document, rank, sign = db.execute(
            f"SELECT query, document, rank, sign {never} ORDER BY rank, query, document LIMIT 1"
        ).fetchall()[0]
        of_query = f" for {query!r}" if query else ""
        example = f"{'A' if sign > 0 else 'B'} shows {document} at rank {rank}{of_query}"
    return Places(differ, missing, example, both, worth)
