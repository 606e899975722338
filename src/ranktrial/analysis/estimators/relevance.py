"""Relevance of a log's candidates as models predict it that were fitted to other impressions (``cross_fitting``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial import checks
from ranktrial.analysis.estimators.cross_fitting import CrossFit
from ranktrial.analysis.estimators.kinds import BY_RANK, ONE_RELEVANCE
from ranktrial.arrays import BoolArray, FloatArray, IntArray, sum_by_group, weighted_counts
from ranktrial.log.folding import Statistic, fold
from ranktrial.log.log import Log
from ranktrial.position_bias import Examinations, RelevanceFit
from ranktrial.position_bias.relevance import PREDICTIONS, linear_prediction
from ranktrial.rankings import rank_inputs
from ranktrial.rankings.values import checked_prediction

# Predicted relevance of some slots by the model of a group of impressions; the log may be a part of the one it is fitted to.
Predictions = Callable[[int, Log, IntArray], FloatArray]


def predicted_from(
    log: Log, fitted: int | None, theta: FloatArray, fitting: CrossFit, model: str = BY_RANK
) -> tuple[IntArray, Predictions]:
    """Predictions of relevance from the first impressions of a log, and which of them each impression may use."""
    first = len(log) if fitted is None else checks.whole("fitted", fitted, 0, len(log))
    counted = fitting.counted(np.arange(first), log.units)
    found = log.kept.fitted(
        log, first, model, (theta.tobytes(), fitting), lambda part: fit_relevance(part, theta, counted, fitting, model)
    )
    return np.minimum(fitting.groups(log.units), counted.max(initial=0)), found


def given_prediction(log: Log, prediction: ArrayLike | float | None, *, rank_aware: bool) -> Predictions:
    """Relevance that is given: one number, or one for each document of a log; 0 for None."""
    given = None if prediction is None else np.asarray(prediction, np.float64)
    single = given is not None and given.ndim == 0
    known = float(given) if single else given  # type: ignore[arg-type]
    of_document = checked_prediction(known, len(log.documents), rank_aware=rank_aware)
    return lambda group, part, slots: of_document[part.document[slots]]


class Fit(NamedTuple):
    """``RelevanceFit`` by numbers of documents and queries; the last of a table is for all numbers that are beyond it.

    Attributes:
        constant: Intercept of the regression on the inputs.
        slopes: Slope of each input.
        effects: Effect of each document; nan for those that were not met.
        shared: Effect, by query, on documents that were not met.
    """

    constant: float
    slopes: FloatArray
    effects: FloatArray
    shared: FloatArray


@dataclass(frozen=True, eq=False)
class FittedRelevance:
    """Relevance fitted to clicks: a regression on the ranks in both lists, query and document effects; one fit a group."""

    fits: Sequence[Fit]

    def __call__(self, group: int, log: Log, slots: IntArray) -> FloatArray:
        fit, document = self.fits[group], log.document[slots]
        inputs, place = _rank_inputs(log.rank_a[slots] * log.rank_width + log.rank_b[slots], log.rank_width)
        effects = fit.effects[np.minimum(document, len(fit.effects) - 1)]
        new = np.flatnonzero(np.isnan(effects))
        query = log.document_query[document[new]]
        effects[new] = fit.shared[np.minimum(query, len(fit.shared) - 1)]
        return np.asarray(np.clip(linear_prediction(fit.constant, fit.slopes, inputs)[place] + effects, *PREDICTIONS))


def _rank_inputs(ranks: IntArray, width: int) -> tuple[FloatArray, IntArray]:
    """``rank_inputs`` of the pairs of ranks that occur, rank in A's list * width + rank in B's, and the row of each pair."""
    pairs = np.flatnonzero(np.bincount(ranks, minlength=width * width))
    row = np.zeros(width * width, np.int64)
    row[pairs] = np.arange(len(pairs))
    return rank_inputs(*np.divmod(pairs, width)), row[ranks]


def fit_relevance(log: Log, theta: FloatArray, counted: IntArray, fitting: CrossFit, model: str) -> Predictions:
    """Fit a relevance model for each group, to the impressions that may be used for it; ``counted`` is where each counts."""
    key, group, sums = _seen(log, theta, counted)
    usable = [fitting.usable(group, number) for number in range(int(counted.max(initial=-1)) + 1)]
    if model == ONE_RELEVANCE:
        means = [sums.of(use).mean for use in usable]
        return lambda number, part, slots: np.full(len(slots), means[number])
    inputs, place = _rank_inputs(key % log.rank_width**2, log.rank_width)
    return FittedRelevance([_fit(log, key[use], sums.of(use), inputs, place[use]) for use in usable])


def _fit(log: Log, key: IntArray, sums: Examinations, inputs: FloatArray, place: IntArray) -> Fit:
    """Fit to sums by key (``_seen``), several of which may have the same."""
    members = _firsts(key)
    added = (sum_by_group(of, np.append(members, len(key))) for of in (sums.clicks, sums.examined, sums.squared))
    document = key[members] // log.rank_width**2
    firsts, query = _firsts(document), log.document_query[document]
    number = np.repeat(np.arange(len(firsts)), np.diff(np.append(firsts, len(document))))
    found = RelevanceFit.of(
        Examinations(*added),
        np.append(_firsts(query), len(document)),
        inputs,
        place=place[members],
        document=number,
        document_offsets=np.append(_firsts(query[firsts]), len(firsts)),
    )
    effects = _table(document[firsts], found.effects, np.nan)
    return Fit(found.constant, found.slopes, effects, _table(query[_firsts(query)], found.shared, 0.0))


def _seen(log: Log, theta: FloatArray, counted: IntArray) -> tuple[IntArray, IntArray, Examinations]:
    """Clicks and examinations of documents by their ranks in both lists, for each group of the first impressions.

    The key is the number of the document, then its rank in A's list and in B's; documents of a query stand together.
    """
    width = log.rank_width

    def contribution(rows: slice, part: Log, before: object) -> list[tuple[NDArray[Any], ...]]:
        group = counted[rows]
        of_slot = (part.document * width + part.rank_a) * width + part.rank_b
        key, member = np.unique(of_slot, return_inverse=True)
        found: list[tuple[NDArray[Any], ...]] = [(key[:0], np.empty(0, np.int16), *np.empty((3, 0)))]
        for number in np.unique(group).tolist():
            sums = examinations(part, group == number, theta, member, len(key))
            some = np.flatnonzero(sums.examined > 0)
            of_some, of_group = sums.of(some), np.full(len(some), number, np.int16)
            found.append((key[some], of_group, of_some.clicks, of_some.examined, of_some.squared))
        return found

    chunks = fold(log, Statistic("examinations", None, contribution, list))[0]
    key, group, *sums = (np.concatenate(column) for column in zip(*(one for chunk in chunks for one in chunk)))
    order = np.argsort(key, kind="stable")
    query = log.document_query[key[order] // width**2]
    if (np.diff(query) < 0).any():
        order = order[np.argsort(query, kind="stable")]
    return key[order], group[order], Examinations(*sums).of(order)


def _table(number: IntArray, values: FloatArray, otherwise: float) -> FloatArray:
    """A table of values by number, and the last for all other numbers; nothing else where all values are 0."""
    some = number if values.any() else number[:0]
    table = np.full(int(some.max(initial=-1)) + 2, otherwise)
    table[some] = values[: len(some)]
    return table


def _firsts(sorted_values: IntArray) -> IntArray:
    """Start of each run of equal values."""
    return np.flatnonzero(np.append(True, sorted_values[1:] != sorted_values[:-1])[: len(sorted_values)])


def examinations(log: Log, inside: BoolArray, theta: FloatArray, member: IntArray, size: int) -> Examinations:
    """Clicks and examinations in the given impressions, added up over the members that slots belong to."""
    rows, times = np.unique(log.row[inside], return_counts=True)
    slots = log.rankings[rows]
    filled = slots >= 0
    members = member[slots[filled]]
    per_rank = (times[:, None] * theta)[filled], (times[:, None] * theta**2)[filled]
    impression, _, slot = log.clicked
    hits = member[slot[inside[impression]]]
    clicked = np.bincount(hits, minlength=size).astype(np.float64)
    return Examinations(clicked, *(weighted_counts(members, part, size) for part in per_rank))
