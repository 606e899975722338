"""Summary of a log for a method that learns from it, and the clicks that a trial gained or lost its visitors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ranktrial.analysis.estimators.click_weights import ClickWeights
from ranktrial.analysis.estimators.estimation import estimate
from ranktrial.analysis.estimators.metric_values import MetricValues
from ranktrial.analysis.estimators.relevance import examinations
from ranktrial.analysis.estimators.results import BiasFit, Estimate
from ranktrial.arrays import FloatArray, ragged
from ranktrial.interval import Interval
from ranktrial.log.log import Log
from ranktrial.methods.beliefs import Evidence
from ranktrial.methods.searches import SEARCHES, SHORT_LOG, FoldSums, Searches, folds_of
from ranktrial.position_bias import Examinations

RECENT = 5 * SEARCHES  # impressions that stand for the traffic to come


@dataclass(frozen=True, eq=False)
class Gain:
    """Clicks that visitors had more (or fewer) than an A/B test of the same lists would have got.

    Attributes:
        estimate: Clicks gained per impression.
        ab: Clicks per impression of an A/B test.
        by_model: True if the estimate rests on the click model, False if on clicks on A/B traffic alone.
    """

    estimate: Estimate
    ab: float
    by_model: bool

    @property
    def share(self) -> float:
        """Gain as a share of an A/B test's clicks."""
        return self.estimate.delta / self.ab if self.ab > 0 else float("nan")

    @property
    def error(self) -> float:
        """Standard error of the share."""
        return self.estimate.standard_error / self.ab if self.ab > 0 else float("nan")

    def interval(self, level: float = 0.95) -> Interval:
        """Confidence sequence for the share, valid at any time."""
        low, high = self.estimate.anytime_interval(level)
        return Interval(low / self.ab, high / self.ab)


def click_gain(
    log: Log,
    theta: FloatArray | BiasFit | None,
    *,
    refits: Sequence[int] | None = None,
    fitted: int | None = None,
    metric: MetricValues | None = None,
) -> Gain | None:
    """Estimate the clicks that visitors gained or lost; None without clicks, or with neither theta nor A/B traffic.

    ``refits`` and ``fitted`` are those of ``estimate``; so is ``metric``, by whose values the gain is if theta is given.
    """
    clicks = log.clicks_each.sum() if metric is None else metric.each.sum()
    if not clicks:
        return None
    if theta is None:
        if metric is not None:
            return None
        share, each = log.shares.sum(1), log.clicks_each
        if not (share > 0).all():
            return None
        weights = np.where(log.arm != 0, 1 - 1 / np.maximum(share, 1e-300), 1.0)
        sums = log.cohorts.sums(weights * each)
        per_click = ClickWeights.of(np.repeat(weights, each))
        found = Estimate.of(sums, per_click, largest_weight=float(np.abs(weights).max()))
    else:
        found = estimate(
            log, theta=theta, of="gain", cross_fit="past", refits=refits, fitted=fitted, uncovered="leave out",
            independent="cohorts", metric=metric,
        )  # fmt: skip
        if len(found.uncovered):  # results that an A/B test would show, and this log never
            return None
    return Gain(found, float(clicks / len(log)) - found.delta, theta is not None)


def evidence(
    log: Log, *, agree: bool | None = None, gain: Gain | None = None, impressions: int | None = None
) -> Evidence:
    """Input of ``Method.learn``; ``impressions`` are those of the whole trial, where the log is a part of it."""
    rows, display = log.displays
    shows = np.asarray(np.bincount(display, minlength=len(rows)) @ (log.rankings[rows] >= 0), np.float64)
    gained = None if gain is None or not gain.ab > 0 or not np.isfinite(gain.error) else (gain.share, gain.error)
    return Evidence(log.parts(), shows, agree, searches(log), gained, len(log) if impressions is None else impressions)


def searches(log: Log) -> Searches:
    """A sample of the latest searches of a log, as they came, and what all of it says of their documents."""
    if (np.diff(log.document_query) < 0).any():
        raise ValueError("the documents of a query are not side by side: take log.grouped_by_query()")
    first = max(len(log) - RECENT, 0)
    sample = np.linspace(first, len(log) - 1, min(SEARCHES, len(log))).astype(np.int64)
    design = log.design[sample]
    sizes = np.diff(log.slot_offsets)[design]
    slots, which = ragged(log.slot_offsets[design], sizes), np.repeat(np.arange(len(design)), sizes)
    tables = np.full((2, len(design), log.k), -1, np.int32)
    for table, rank in zip(tables, (log.rank_a[slots], log.rank_b[slots])):
        listed = rank < log.k
        table[which[listed], rank[listed]] = np.flatnonzero(listed)
    width, by_query = log.rank_width, np.arange(len(log.queries) + 1)
    keys, row = np.unique((log.document * width + log.rank_a) * width + log.rank_b, return_inverse=True)
    document, ranks = np.divmod(keys, width * width)
    asked = np.zeros(len(log.queries), bool)
    asked[log.query[design]] = True
    short = len(log) <= SHORT_LOG
    some = np.flatnonzero(short | asked[log.document_query[document]])

    def seen(theta: FloatArray) -> Examinations:
        return examinations(log, np.ones(len(log), bool), theta, row, len(document))

    def folds(theta: FloatArray) -> FoldSums:
        count, number = folds_of(log.clicks.sum()), np.full(len(document), len(some))
        number[some] = np.arange(len(some))  # all others are one, which is left out
        member, fold = number[row], log.group(count)
        sums = (examinations(log, fold == one, theta, member, len(some) + 1) for one in range(count))
        return FoldSums(some, short, [one.of(np.arange(len(some))) for one in sums])

    return Searches(
        tables,
        log.unit[sample].astype(np.int64).view(np.uint64),
        row[slots],
        seen,
        folds,
        *np.divmod(ranks, width),
        np.searchsorted(log.document_query[document], by_query),
        document,
        np.searchsorted(log.document_query, by_query),
    )
