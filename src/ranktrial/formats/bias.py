"""Position bias estimated from any log, and click rates predicted from it for documents at other ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial.analysis import fit_position_bias
from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.distributions import normal_quantile, t_quantile
from ranktrial.formats.estimating import grouped_counts
from ranktrial.formats.readers import LogSource
from ranktrial.formats.readers.common import COUNTS, ITEMS, PAGES, PERIODS, TRIAL
from ranktrial.formats.reading import log_of
from ranktrial.interval import Interval
from ranktrial.log.log import GROUPS
from ranktrial.position_bias import Conditional, Counts, NotIdentifiable, PositionBias, fit_groups
from ranktrial.position_bias.jackknife import jackknife_variance

JUMPS = ((1, 2), (1, 3), (3, 1), (3, 6), (5, 2))  # ranks between which predictions are checked
ENOUGH = 20  # shows of a document at both ranks, for that
LEAST_QUERIES = 10
BY_CHANCE = 1e-3  # share of long logs in which thetas are said to differ although they do not
ENOUGH_CLICKS = 300  # on documents that stood at several ranks of one day: with so few the share is 0.7 %


def results_of(source: LogSource) -> str:
    """SQL of the results of a log: query, period, document, rank, unit, shown, clicked; a row each, or added up in counts."""
    period = f"{source.period} AS period"
    if source.kind == COUNTS:
        return f"(SELECT query, {period}, document, rank, 0 AS unit, shown, clicked FROM counts)"
    if source.kind == ITEMS:
        unit = "dense_rank() OVER (ORDER BY unit) AS unit"
        return f"(SELECT query, {period}, document, rank, {unit}, 1 AS shown, clicked FROM items)"
    return f"""(SELECT * FROM (SELECT query, {period}, unnest(shown[1:{source.k}]) AS document,
        unnest(range(1, least(len(shown), {source.k}) + 1)) AS rank, unit, 1 AS shown,
        unnest(clicked[1:{source.k}]) AS clicked FROM impressions) WHERE document <> '')"""


def _cells(source: LogSource, group: str = "0", *, clicked: bool = False) -> dict[str, NDArray[Any]]:
    """Shows and clicks by document, rank and an SQL expression of the group; with ``clicked`` of documents that ever were.

    Documents are numbered within their query and period.
    """
    cells = f"""WITH result AS (SELECT query, period, document, rank, {group} AS grp, sum(shown) AS shown,
        sum(clicked) AS clicked FROM {results_of(source)} GROUP BY ALL)
        SELECT dense_rank() OVER (ORDER BY query) - 1 AS query, rank, grp AS group, shown, clicked,
        dense_rank() OVER (ORDER BY query, period, document) - 1 AS document FROM result"""
    if clicked:
        which = "(query, period, document)"
        cells += f" WHERE {which} IN (SELECT {which} FROM result WHERE clicked > 0)"
    found = source.connection.execute(cells).fetchnumpy()
    tables = ("shown", "clicked")
    return {name: np.asarray(found[name], np.float64 if name in tables else np.int64) for name in found}


@dataclass(frozen=True, eq=False)
class DocumentCounts:
    """Shows and clicks of all documents of a log by rank, a row for each document and period.

    Attributes:
        query: Of each row, its number.
        shown: By rank, ``(rows, k)``; clicked the same.
        names: Query and document of each row.
    """

    query: IntArray
    shown: FloatArray
    clicked: FloatArray
    names: list[tuple[str, str]]

    @classmethod
    def of(cls, source: LogSource) -> DocumentCounts:
        """Count the shows and clicks of a log of any kind."""
        (counts,) = grouped_counts(_cells(source), k=source.k, groups=1)
        names = source.connection.execute(
            f"SELECT DISTINCT query, document, period FROM {results_of(source)} ORDER BY query, period, document"
        ).fetchall()
        assert counts.queries is not None
        return cls(counts.queries, counts.shown, counts.clicked, [(query, document) for query, document, _ in names])

    def counts(self, rows: BoolArray | None = None) -> Counts:
        """Counts of some rows, or all."""
        used = np.ones(len(self.query), bool) if rows is None else rows
        first = np.unique(self.query[used], return_index=True)[1]
        return Counts.from_dense(self.shown[used], self.clicked[used], offsets=np.append(first, used.sum()))

    def rows(self, query: str, document: str) -> list[int]:
        """The numbers of a document's rows, one for each period."""
        found = [at for at, name in enumerate(self.names) if name == (query, document)]
        if found:
            return found
        known = query in {one for one, _ in self.names}
        what = f"document {document!r} of query {query!r}" if known else f"query {query!r}"
        raise ValueError(f"the log never showed {what}")


def position_bias(source: LogSource) -> PositionBias:
    """Theta of a log with its errors: over units where the log knows them, over queries where it has counts only.

    A document is compared with itself within one query and period, and one design where the log has them. Raises
    NotIdentifiable.
    """
    if source.kind == TRIAL:
        return fit_position_bias(log_of(source)).bias
    if source.kind in (PAGES, ITEMS):
        parts = _groups(source, "unit")
        if parts:
            return fit_groups(parts)[0]
    return fit_groups([DocumentCounts.of(source).counts()])[0]


def _groups(source: LogSource, by: str) -> list[Counts]:
    """Counts of 20 groups of units or queries, of documents that were clicked; nothing where there are fewer of them."""
    (found,) = source.connection.execute(f"SELECT count(DISTINCT {by}) FROM {results_of(source)}").fetchall()[0]
    if found < GROUPS:
        return []
    cells = _cells(source, f"unit % {GROUPS}" if by == "unit" else "0", clicked=True)
    if by == "query":
        cells["group"] = cells["query"] % GROUPS
    return grouped_counts(cells, k=source.k, groups=GROUPS)


@dataclass(frozen=True, eq=False)
class DayEffect:
    """Theta of all days together against theta within days, both from the same clicks.

    Attributes:
        pooled: Theta, a document compared with itself on all days.
        within: Theta, a document compared with itself on the same day only.
        difference: Mean of pooled - within over the ranks below the first.
        standard_error: Of the difference, by a jackknife over 20 groups of queries.
    """

    pooled: FloatArray
    within: FloatArray
    difference: float
    standard_error: float

    @property
    def significant(self) -> bool:
        """True if the difference, of either sign, is more than chance."""
        return abs(self.difference) > t_quantile(1 - BY_CHANCE / 2, GROUPS - 1) * self.standard_error


def day_effect(source: LogSource) -> DayEffect | None:
    """Theta pooled and within days of a log of pages; None where clicks on documents that moved within a day are too few.

    Days only: within the weeks of a ranker that learns every day, theta can be further off than over all times.
    """
    by_day = _groups(replace(source, period=PERIODS["day"].format("day")), "query")
    if not by_day:
        return None
    counts = Counts.merged(by_day)
    if counts.clicked[(counts.shown > 0).sum(1) > 1].sum() < ENOUGH_CLICKS:
        return None
    try:
        (pooled, pooled_without), (within, within_without) = fit_groups(_groups(source, "query")), fit_groups(by_day)
    except NotIdentifiable:
        return None
    error = np.sqrt(jackknife_variance((pooled_without - within_without)[:, 1:].mean(1, keepdims=True))[0, 0])
    return DayEffect(pooled.theta, within.theta, float((pooled.theta - within.theta)[1:].mean()), float(error))


@dataclass(frozen=True)
class Prediction:
    """The click rate of a document at a rank.

    Attributes:
        rate: Clicks per show, from the document's clicks at all ranks and theta.
        interval: 95 %, from the chance of these clicks and the error of theta.
        shows: Of the document, at any rank.
        clicks: The same.
        seen: Clicks per show at that very rank, if it stood there; else nan.
    """

    rate: float
    interval: Interval
    shows: float
    clicks: float
    seen: float


def predict(documents: DocumentCounts, bias: PositionBias, rows: Sequence[int], rank: int) -> Prediction:
    """Predict a document's click rate at another rank from its clicks where it stood: T theta_rank / sum_s n_s theta_s."""
    if not 1 <= rank <= bias.k:
        raise ValueError(f"rank is {rank}, must be from 1 to {bias.k}")
    shown, clicked = documents.shown[rows].sum(0), documents.clicked[rows].sum(0)
    clicks, exposed = clicked.sum(), shown @ bias.theta
    if not exposed > 0:
        raise ValueError(f"document {documents.names[rows[0]][1]!r} stood only at ranks where nothing was ever clicked")
    rate = clicks * bias.theta[rank - 1] / exposed
    # Relative errors: of the clicks, and of theta_rank over the mean theta where it stood.
    slope = -shown / exposed
    slope[rank - 1] += 1 / bias.theta[rank - 1] if bias.theta[rank - 1] > 0 else 0.0
    spread = np.sqrt(1 / max(clicks, 1) + max(float(slope @ np.nan_to_num(bias.covariance) @ slope), 0.0))
    reach = float(np.exp(normal_quantile(0.975) * spread))
    seen = clicked[rank - 1] / shown[rank - 1] if shown[rank - 1] > 0 else np.nan
    highest = max(rate, bias.theta[rank - 1] / exposed) * reach  # as if clicked once, where it never was
    interval = Interval(float(rate / reach) if clicks else 0.0, float(min(highest, 1.0)))
    return Prediction(float(rate), interval, float(shown.sum()), float(clicks), float(seen))


@dataclass(frozen=True)
class Jump:
    """Test of theta from one half of the queries on the click rates of the other, from rank ``origin`` to rank ``target``.

    Attributes:
        documents: Number of documents with enough shows at both ranks.
        actual: Their click rate at the target.
        naive: Their click rate at the origin, the prediction without theta.
        predicted: The rate at the origin times theta_target / theta_origin.
    """

    origin: int
    target: int
    documents: int
    actual: float
    naive: float
    predicted: float


def held_out(documents: DocumentCounts, halves: int = 8) -> list[Jump]:
    """Predictions on queries that theta was not fitted to, means over random halves; none where queries are few."""
    queries, rng = np.unique(documents.query), np.random.default_rng(0)
    k = documents.shown.shape[1]
    jumps = [jump for jump in JUMPS if max(jump) <= k]
    if len(queries) < LEAST_QUERIES:
        return []
    found: dict[tuple[int, int], list[tuple[float, ...]]] = {jump: [] for jump in jumps}
    for _ in range(halves):
        fitted = np.isin(documents.query, rng.permutation(queries)[: len(queries) // 2])
        theta = Conditional().fit(documents.counts(fitted)).theta
        for i, j in jumps:
            shown, clicked = documents.shown[~fitted], documents.clicked[~fitted]
            both = (shown[:, i - 1] >= ENOUGH) & (shown[:, j - 1] >= ENOUGH)
            if not both.any() or not theta[i - 1] > 0:
                continue
            n, m = shown[both, i - 1], shown[both, j - 1]
            weight = np.minimum(n, m)
            naive, actual = (
                float(weight @ rate / weight.sum()) for rate in (clicked[both, i - 1] / n, clicked[both, j - 1] / m)
            )
            found[i, j].append((float(both.sum()), actual, naive, naive * theta[j - 1] / theta[i - 1]))
    means = {jump: np.mean(rows, axis=0) for jump, rows in found.items() if rows}
    return [Jump(i, j, int(row[0]), *(float(value) for value in row[1:])) for (i, j), row in means.items()]
