"""Searches of a log, what all of the log says of their documents, and designs judged by searches they were not made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import NO_DOCUMENT, DocumentArray, FloatArray, IntArray, ragged
from ranktrial.position_bias import Examinations, RelevanceFit
from ranktrial.position_bias.relevance import linear_prediction
from ranktrial.rankings import Pair, exposure_of, rank_inputs
from ranktrial.users import User

# Of rank_inputs, before any click: what both rankers put first is taken to be three times as relevant as the rest, so that
# demoting it counts as dear. That errs on the visitors' side.
FIRST_LISTS = (0.1, 0.25, 0.25, 0.0, 0.0, 0.0, 0.0)
FOLDS = 10  # parts of a log, each of which judges designs made from the others; fewer of a short log
FOLD_CLICKS = 200  # the least in a fold
SEARCHES = 500  # enough to know a budget's price by
SHORT_LOG = 10_000  # impressions: what a longer log says of lists does not depend on a fold of it
MANY = 1e6  # impressions of a query that leave nothing to chance


def folds_of(clicks: float) -> int:
    """Number of folds of a log with so many clicks.

    >>> [folds_of(clicks) for clicks in (10, 500, 1_000, 100_000)]
    [2, 2, 5, 10]
    """
    return int(min(max(clicks // FOLD_CLICKS, 2), FOLDS))


def inputs_of_places(k: int) -> FloatArray:
    """``rank_inputs`` of all places in two lists of k, by rank in A's times k + 1 plus rank in B's; rank k is nowhere."""
    return rank_inputs(*np.divmod(np.arange((k + 1) ** 2), k + 1))


@dataclass(frozen=True, eq=False)
class FoldSums:
    """Clicks and examinations in each fold of a log, for some rows of ``Searches``.

    Attributes:
        rows: Rows in question, increasing: at least those of the queries of the searches.
        whole: Whether the log shows no others.
        folds: Sums of each fold.
    """

    rows: IntArray
    whole: bool
    folds: Sequence[Examinations]


@dataclass(frozen=True, eq=False)
class Searches:
    """Recent searches of a log, and what all of the log says of their documents.

    A document may stand at other ranks for other people: its *rows*, each with inputs of its own.

    Attributes:
        tables: Candidates of A's and of B's top k, ``(2, searches, k)``, numbered over all searches; -1 past the end.
        unit: Number of each search's unit, which says in which fold it is.
        row: Row of each candidate.
        seen: Clicks and examinations of every row, at a theta.
        folds: Sums over folds of the log, at a theta.
        rank_a: Rank of every row in A's list, from 0; k or more is nowhere.
        rank_b: Rank of every row in B's list.
        offsets: Rows of each query.
        document: Document of each row.
        document_offsets: Documents of each query.
    """

    tables: DocumentArray
    unit: NDArray[np.integer]
    row: IntArray
    seen: Callable[[FloatArray], Examinations]
    folds: Callable[[FloatArray], FoldSums]
    rank_a: IntArray
    rank_b: IntArray
    offsets: IntArray
    document: IntArray
    document_offsets: IntArray

    @cached_property
    def place(self) -> IntArray:
        """Row of ``inputs_of_places`` for every row."""
        k = self.tables.shape[2]
        return np.asarray(np.minimum(self.rank_a, k) * (k + 1) + np.minimum(self.rank_b, k))

    def fit(self, theta: FloatArray) -> RelevanceFit:
        """Relevance of every row, from all clicks."""
        return RelevanceFit.of(
            self.seen(theta),
            self.offsets,
            inputs_of_places(self.tables.shape[2]),
            place=self.place,
            document=self.document,
            document_offsets=self.document_offsets,
            prior=np.array(FIRST_LISTS),
        )

    def cross_fitted(
        self, theta: FloatArray, *, effects: bool
    ) -> Iterator[tuple[DocumentArray, FloatArray, FloatArray]]:
        """Searches of each fold, and the relevance of every candidate for their designs and for judging these.

        A design made from predicted relevance shows most of what is overrated by chance, and a search in the log has left its
        own clicks there. So the design of a search is made without its fold and judged by the fold: by a regression of the
        fold's clicks on what lists say and on what the others say of the document, not shrunken, so noisier than the
        prediction but right on average. Its equation has mean zero also while designs change with clicks. Without ``effects``
        designs are made from what lists say alone. What a long log says of lists is taken to be the same without a fold.
        """
        sums = self.folds(theta)
        rows = sums.rows
        fit = None if sums.whole else self.fit(theta)
        inputs = inputs_of_places(self.tables.shape[2])
        place = self.place[rows]
        documents, document = np.unique(self.document[rows], return_inverse=True)
        query = np.searchsorted(self.document_offsets, documents, side="right")
        offsets = np.flatnonzero(np.append(np.append(True, query[1:] != query[:-1]), True))
        row_offsets = np.searchsorted(document, offsets)
        candidate = np.searchsorted(rows, self.row)
        total = sum(sums.folds[1:], sums.folds[0])
        with_constant = np.column_stack([np.ones(len(inputs)), inputs])

        def features_of(some: IntArray, effects: FloatArray) -> FloatArray:
            return np.column_stack([with_constant[place[some]], effects[document[some]]])

        for number, fold in enumerate(sums.folds):
            own = self.unit % len(sums.folds) == number
            others = total - fold
            if not own.any():
                continue
            if fit is None:
                made = RelevanceFit.of(
                    others,
                    row_offsets,
                    inputs,
                    place=place,
                    document=document,
                    document_offsets=offsets,
                    prior=np.array(FIRST_LISTS),
                )
            else:
                made = fit.with_effects_from(others, inputs, document, offsets, place=place)
            prediction = made.prediction if effects else linear_prediction(made.constant, made.slopes, inputs)[place]
            some = np.flatnonzero(fold.examined)
            features = features_of(some, made.effects)
            missed = features.T @ (fold.clicks - prediction * fold.examined)[some]
            gram = (features * fold.examined[some, None]).T @ features
            correction = features_of(candidate, made.effects) @ np.linalg.lstsq(gram, missed, rcond=1e-9)[0]
            yield self.tables[:, own], prediction[candidate], prediction[candidate] + correction


def expected_searches(pair: Pair, user: User) -> Searches:
    """A log of very many impressions of an A/B test, as it is on average."""

    listed = pair.listed

    def seen(theta: FloatArray) -> Examinations:
        by_list = [
            [exposure_of(table, power, pair.n_documents)[listed] for table in (pair.top_a, pair.top_b)]
            for power in (theta, theta**2)
        ]
        examined, squared = MANY * np.mean(by_list, axis=1)
        return Examinations(user.zeta[listed] * examined, examined, squared)

    def folds(theta: FloatArray) -> FoldSums:
        rows = sampled_rows(pair, listed)
        of_all = seen(theta).of(rows)
        part = Examinations(of_all.clicks / FOLDS, of_all.examined / FOLDS, of_all.squared / FOLDS)
        return FoldSums(rows, False, [part] * FOLDS)

    return searches_of(pair, listed, seen, folds)


def sampled_queries(pair: Pair) -> IntArray:
    """The queries that a budget's price is worked out on, spread evenly over those of a pair."""
    return np.unique(np.linspace(0, pair.n_queries - 1, SEARCHES).astype(np.int64))


def sampled_rows(pair: Pair, listed: IntArray) -> IntArray:
    """Documents of the sampled queries, as places among those that a ranker lists."""
    some = sampled_queries(pair)
    offsets = np.searchsorted(listed, pair.offsets)
    return ragged(offsets[some], np.diff(offsets)[some])


def searches_of(
    pair: Pair,
    listed: IntArray,
    seen: Callable[[FloatArray], Examinations],
    folds: Callable[[FloatArray], FoldSums],
) -> Searches:
    """The queries of a pair as searches that come equally often, some of them if there are many."""
    some = sampled_queries(pair)
    rows = sampled_rows(pair, listed)
    tables = pair.tables[:, some]
    return Searches(
        np.where(tables == NO_DOCUMENT, -1, np.searchsorted(listed[rows], tables)).astype(np.int32),
        np.arange(len(some)),
        rows,
        seen,
        folds,
        pair.ranks[0][listed],
        pair.ranks[1][listed],
        np.searchsorted(listed, pair.offsets),
        listed,
        pair.offsets,
    )
