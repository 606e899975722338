"""What a method learns from a log, and what its impressions cost or gave visitors in clicks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ranktrial.arrays import FloatArray, IntArray
from ranktrial.inference.click_weights import ClickWeights
from ranktrial.inference.estimation import estimate
from ranktrial.inference.impressions import Impressions
from ranktrial.inference.log import Log
from ranktrial.inference.results import BiasFit, Estimate
from ranktrial.inference.valuing import examinations
from ranktrial.interval import Interval
from ranktrial.methods.beliefs import Evidence, FoldSums, Searches, folds_of
from ranktrial.methods.click_model import SEARCHES, SHORT_LOG

RECENT = 5 * SEARCHES  # impressions that stand for the traffic to come


@dataclass(frozen=True, eq=False)
class Gain:
    """Clicks that visitors had more (or fewer) than an A/B test of the same lists would have got.

    Attributes:
        estimate: Clicks gained per impression.
        ab: Clicks per impression of an A/B test.
        by_model: Whether it rests on the click model; else on clicks on plain traffic alone.
    """

    estimate: Estimate
    ab: float
    by_model: bool

    @property
    def share(self) -> float:
        """Of an A/B test's clicks."""
        return self.estimate.delta / self.ab if self.ab > 0 else float("nan")

    @property
    def error(self) -> float:
        """Standard error of the share."""
        return self.estimate.standard_error / self.ab if self.ab > 0 else float("nan")

    def interval(self, level: float = 0.95) -> Interval:
        """Of the share, at any time."""
        low, high = self.estimate.anytime_interval(level)
        return Interval(low / self.ab, high / self.ab)


def click_gain(
    log: Impressions,
    theta: FloatArray | BiasFit | None,
    *,
    refits: Sequence[int] | None = None,
    fitted: int | None = None,
) -> Gain | None:
    """What a log cost its visitors; None where that cannot be told: no clicks, or neither theta nor plain traffic.

    ``refits`` and ``fitted`` as of ``estimate``.
    """
    clicks = log.clicks_by_cohort.sum()
    if not clicks:
        return None
    if theta is None:
        share, each = log.shares.sum(1), log.clicks_each
        if not (share > 0).all():
            return None
        weights = np.where(log.arm != 0, 1 - 1 / np.maximum(share, 1e-300), 1.0)
        sums = log.sums_of(None, lambda rows: weights[rows] * each[rows])
        per_click = ClickWeights.of(np.repeat(weights, each))
        found = Estimate.summed(sums, per_click, largest_weight=float(np.abs(weights).max()))
    else:
        found = estimate(
            log, theta=theta, of="gain", cross_fit="past", refits=refits, fitted=fitted, uncovered="leave out",
            independent="cohorts",
        )  # fmt: skip
        if any(map(len, found.uncovered)):  # results that an A/B test would show, and this log never
            return None
    return Gain(found, float(clicks / len(log)) - found.delta, theta is not None)


def evidence(
    log: Log, *, agree: bool | None = None, gain: Gain | None = None, impressions: int | None = None
) -> Evidence:
    """Input of ``Method.learn``; ``impressions`` are those of the whole trial, where the log is a part of it."""
    gained = None if gain is None or not gain.ab > 0 or not np.isfinite(gain.error) else (gain.share, gain.error)
    return Evidence(
        log.parts(), log.shows, agree, searches(log), gained, len(log) if impressions is None else impressions
    )


def searches(log: Log) -> Searches:
    """A sample of the latest searches of a log, as they came, and what all of it says of their documents."""
    first = max(len(log) - RECENT, 0)
    sample = np.linspace(first, len(log) - 1, min(SEARCHES, len(log))).astype(np.int64)
    design = log.design[sample]
    starts, sizes = log.slot_offsets[design], np.diff(log.slot_offsets)[design]
    which = np.repeat(np.arange(len(design)), sizes)
    slots = np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
    tables = np.full((2, len(design), log.k), -1, np.int32)
    for table, rank in zip(tables, (log.rank_a[slots], log.rank_b[slots])):
        listed = rank < log.k
        table[which[listed], rank[listed]] = np.flatnonzero(listed)
    members, by_query = log.members, np.arange(len(log.queries) + 1)
    asked = np.zeros(len(log.queries), bool)
    asked[log.query[design]] = True
    short = len(log) <= SHORT_LOG
    rows = np.flatnonzero(short | asked[log.document_query[members.document]])
    everything = np.ones(len(log), bool)
    return Searches(
        tables,
        log.unit_numbers(sample),
        members.of_slot[slots],
        lambda theta: examinations(log, everything, theta, members.of_slot, len(members.document)),
        lambda theta: _folds(log, theta, rows, short),
        members.rank_a[members.place],
        members.rank_b[members.place],
        np.searchsorted(log.document_query[members.document], by_query),
        members.document,
        np.searchsorted(log.document_query, by_query),
    )


def _folds(log: Log, theta: FloatArray, rows: IntArray, whole: bool) -> FoldSums:
    """Clicks and examinations in folds of units, for some of the log's members (``Log.members``)."""
    count, number = folds_of(log.clicks.sum()), np.full(len(log.members.document), len(rows))
    number[rows] = np.arange(len(rows))  # all others are one, which is left out
    of_slot, fold, first = number[log.members.of_slot], log.group(count), np.arange(len(rows))
    sums = [examinations(log, fold == one, theta, of_slot, len(rows) + 1).of(first) for one in range(count)]
    return FoldSums(rows, whole, sums)
