"""Values of impressions by a metric: how much each is worth, how much of that came by clicks, and what has not matured yet.

An impression counts once the metric's window after it is over at ``Log.read_at``: before that, a ranker whose visitors buy
quickly would look better than it is. What one result of an impression adds is capped, so that the capped value of a document is
its own, whatever else is on the page. An event on a result of the page counts with its value whether or not a click on it was
recorded, and no other event does: A/B estimates and those by the click model then mean the same difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.analysis.estimators.cross_fitting import CrossFit
from ranktrial.analysis.estimators.relevance import Predictions
from ranktrial.arrays import BoolArray, FloatArray, IntArray, weighted_counts
from ranktrial.log.log import Log
from ranktrial.metrics import (
    CLICK,
    MILLIONTHS,
    Abandonment,
    Clicks,
    EventMetric,
    FirstClickRank,
    Metric,
    Reformulation,
    SessionSuccess,
    TimeToFirstClick,
)
from ranktrial.position_bias.relevance import nested_effects


class ResultValues(NamedTuple):
    """Values of results of the page.

    Attributes:
        of_clicks: Value of each clicked result, in the order of ``Log.clicked``.
        impression: Impression of each result that has a value and no click, increasing.
        rank: Its rank from 0.
        value: Its value.
    """

    of_clicks: FloatArray
    impression: IntArray
    rank: IntArray
    value: FloatArray

    def chunk(self, rows: slice, log: Log) -> ResultValues:
        """Values of some impressions in a row."""
        first, last = np.searchsorted(log.clicked[0], [rows.start, rows.stop])
        begin, end = np.searchsorted(self.impression, [rows.start, rows.stop])
        there = slice(int(begin), int(end))
        impression = self.impression[there] - rows.start
        return ResultValues(self.of_clicks[first:last], impression, self.rank[there], self.value[there])

    def take(self, at: IntArray | slice, log: Log) -> ResultValues:
        """Values of some impressions, increasing."""
        inside = np.zeros(len(log), bool)
        inside[at] = True
        number, there = np.cumsum(inside) - 1, inside[self.impression]
        impression = number[self.impression[there]]
        clicks = self.of_clicks[inside[log.clicked[0]]]
        return ResultValues(clicks, impression, self.rank[there], self.value[there])


@dataclass(frozen=True, eq=False)
class MetricValues:
    """Impressions that count for a metric, with their values.

    Attributes:
        metric: The metric.
        log: The impressions.
        each: Value of each impression.
        of_results: Values of results; None for page metrics.
        waiting: Number of impressions whose window is not over yet.
        direct: Share of the value, without regard to signs, that came without a click on the result.
        capped: Share of the value that caps cut off.
    """

    metric: Metric
    log: Log
    each: FloatArray
    of_results: ResultValues | None
    waiting: int = 0
    direct: float = 0.0
    capped: float = 0.0

    @property
    def events(self) -> int:
        """Number of impressions with a value."""
        return int(np.count_nonzero(self.each))


def metric_values(log: Log, metric: Metric) -> MetricValues:
    """Value the impressions of a log that count for a metric.

    >>> from ranktrial.metrics import Abandonment
    >>> search = {"query": "q", "a": ["x", "y"], "b": ["y", "x"], "shown": ["x", "y"]}
    >>> log = Log.from_records([{**search, "clicked": ["y"]}, {**search, "clicked": []}], k=2)
    >>> metric_values(log, Abandonment()).each
    array([0., 1.])
    """
    counts, waiting = _counting(log, metric)
    part = _part(log, counts)
    none = np.empty(0, np.int64)
    if isinstance(metric, Clicks):
        clicks = ResultValues(np.ones(len(part.clicked[0])), none, none, np.empty(0))
        return MetricValues(metric, part, part.clicks_each.astype(np.float64), clicks, waiting)
    if not isinstance(metric, EventMetric):
        return MetricValues(metric, part, _of_page(log, metric)[counts], None, waiting)
    key, value, cut = _of_results(part, metric)
    impression, rank = np.divmod(key, part.k)
    clicked = part.clicks[impression, rank]
    of_clicks = np.zeros(len(part.clicked[0]))
    of_clicks[np.searchsorted(part.clicked[0] * part.k + part.clicked[1], key[clicked])] = value[clicked]
    others = ResultValues(of_clicks, impression[~clicked], rank[~clicked], value[~clicked])
    size = float(np.abs(value).sum())
    return MetricValues(
        metric, part, weighted_counts(impression, value, len(part)), others, waiting,
        direct=float(np.abs(others.value).sum()) / size if size else 0.0, capped=cut / (size + cut) if cut else 0.0,
    )  # fmt: skip


def _counting(log: Log, metric: Metric) -> tuple[BoolArray, int]:
    """Flags of impressions that count, and the number of those that will."""
    since = np.ones(len(log), bool) if metric.since is None else log.time >= metric.since * 1e6
    if log.read_at is None:
        return since, 0
    over = log.time + round(metric.settles_after * 1e6) <= log.read_at
    return since & over, int((since & ~over).sum())


def _part(log: Log, counts: BoolArray) -> Log:
    """The log of the impressions that count: the same object if all do, so that what was fitted to it need not be again."""
    if counts.all():
        return log
    at = np.flatnonzero(counts)
    in_a_row = len(at) and at[-1] - at[0] == len(at) - 1
    return log.take(slice(int(at[0]), int(at[-1]) + 1) if in_a_row else at)


def _of_results(log: Log, metric: EventMetric) -> tuple[IntArray, FloatArray, float]:
    """Key of each result with a value (impression * k + rank, increasing), its value, and the sum that caps cut off."""
    events, k = log.events, log.k
    numbers = [at for at, action in enumerate(log.actions) if action in metric.of_actions]
    shown = (events.rank >= 0) & (events.rank < k)
    shown[shown] = log.rankings[log.row[events.at[shown]], events.rank[shown]] >= 0
    within = shown & (events.delay >= 0) & (events.delay <= round(metric.settles_after * 1e6))
    least = 0 if metric.least_amount is None else round(metric.least_amount * MILLIONTHS)
    counted = within & np.isin(events.action, numbers)
    if not metric.sums_amounts:
        counted &= events.amount >= least  # a refund takes nothing away from a number
    some = events.where(counted)
    key, place = np.unique(some.at * k + some.rank, return_inverse=True)
    if metric.sums_amounts:
        sums = np.zeros(len(key), np.int64)
        np.add.at(sums, place, some.amount)  # whole millionths: no rounding
        value = sums / MILLIONTHS
    else:
        value = np.bincount(place, minlength=len(key)).astype(np.float64)
    most = np.inf if metric.cap is None else metric.cap
    return key, np.minimum(value, most), float(np.maximum(value - most, 0).sum())


def _of_page(log: Log, metric: Metric) -> FloatArray:
    clicked = log.clicks_each > 0
    match metric:
        case Abandonment():
            return np.where(clicked, 0.0, 1.0)
        case FirstClickRank():
            return np.where(clicked, np.argmax(log.clicks, axis=1) + 1.0, log.k + 1.0)
        case TimeToFirstClick():
            if CLICK not in log.actions:
                raise ValueError(f"{metric} needs the times of clicks, which this log does not have")
            events = log.events.where(log.events.action == log.actions.index(CLICK))
            first = np.full(len(log), metric.settles_after)
            np.minimum.at(first, events.at, events.delay / 1e6)
            return first
        case Reformulation() | SessionSuccess():
            return _of_units(log, metric)
    raise TypeError(f"{metric} is no page metric")


def _of_units(log: Log, metric: Reformulation | SessionSuccess) -> FloatArray:
    """1 for impressions whose unit soon asked something else next, or clicked on them or on one soon after; else 0."""
    n, order = len(log), np.lexsort((np.arange(len(log)), log.time, log.unit))
    unit, time, query = (of[order] for of in (log.unit, log.time, log.asked))
    if isinstance(metric, Reformulation):
        then = np.minimum(np.arange(1, n + 1), n - 1)
        good = query[then] != query
    else:
        clicked = log.clicks_each[order] > 0
        following = np.minimum.accumulate(np.where(clicked, np.arange(n), n)[::-1])[::-1]  # itself included
        then, good = np.minimum(following, n - 1), following < n
    found = np.empty(n)
    found[order] = good & (unit[then] == unit) & (time[then] - time <= round(metric.settles_after * 1e6))
    return found


def worth_from(values: MetricValues, group: IntArray, counted: IntArray, fitting: CrossFit) -> Predictions:
    """Fit the value of a click for each group, to impressions that may be used for it.

    Means of documents, shrunken as much as their spread tells, and the mean of all for documents that were not met.

    Args:
        group: Group of each impression, by which predictions it may use.
        counted: Group in which each of the first impressions counts; those after them are not used.
    """
    assert values.of_results is not None
    impression, _, slot = values.log.clicked
    used = impression < len(counted)
    worth, counts_in = values.of_results.of_clicks[used], counted[impression[used]]
    documents, place = np.unique(values.log.document[slot[used]], return_inverse=True)
    tables = []
    for number in range(int(group.max(initial=0)) + 1):
        may = fitting.usable(counts_in, number)
        n, total, squares = (
            weighted_counts(place[may], of[may], len(documents)) for of in (np.ones(len(worth)), worth, worth**2)
        )
        mean = float(total.sum() / max(n.sum(), 1.0))
        around = float((squares - np.divide(total**2, n, out=np.zeros_like(n), where=n > 0)).sum())
        repeated = float((n - (n > 0)).sum())
        noise = around / repeated if repeated else float(((worth[may] - mean) ** 2).mean()) if may.any() else 0.0
        effects, _ = nested_effects(total - n * mean, n, noise * n, np.array([0, len(documents)]))
        tables.append(np.append(mean + effects, mean))

    def predicted(number: int, log: Log, slots: IntArray) -> FloatArray:
        place = np.searchsorted(documents, log.document[slots])
        met = np.append(documents, -1)[place] == log.document[slots]
        return np.asarray(tables[number][np.where(met, place, -1)])

    return predicted


def known_worth(log: Log, worth: ArrayLike) -> Predictions:
    """A given value of a click: one number, or one for each document of a log."""
    of_document = np.broadcast_to(np.asarray(worth, np.float64), len(log.documents))
    return lambda number, part, slots: of_document[part.document[slots]]
