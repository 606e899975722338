"""Beliefs of a method about its users, on which its displays depend, learnt from a log in simulations and live alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import DocumentArray, FloatArray, IntArray
from ranktrial.methods._kernels.predictions import list_prediction, rank_prediction
from ranktrial.position_bias import Conditional, Counts, Examinations, NotIdentifiable, RelevanceFit, fit_groups
from ranktrial.position_bias.relevance import linear_prediction
from ranktrial.rankings import rank_inputs

BIAS = ("known", "estimated")
FIRST_RELEVANCE = 0.3  # P(click) of an examined document, before any click
# Of list_inputs, before any click: what both rankers put first is taken to be three times as relevant as the rest, so that
# demoting it counts as dear. That errs on the visitors' side.
FIRST_LISTS = (0.1, 0.25, 0.25, 0.0, 0.0, 0.0, 0.0)
FIRST_PRICE = 10.0  # of a click, before any search tells what a budget asks for
RELEVANCES = (0.01, 0.9)
LEAST_BIAS = 0.001  # over the rank: the least examination an estimate may come to
NOTHING = np.empty(0)
FOLDS = 10  # parts of a log, each of which judges designs made from the others; fewer of a short log
FOLD_CLICKS = 200  # the least in a fold
MOST_ERROR = 0.5  # of a theta, in units of theta_1: what is less sure than that is not used


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Beliefs of a method about its users, on which its displays depend.

    Attributes:
        theta: Position bias.
        relevance: P(click) of an examined document, on average.
        fitted: True if theta was fitted to clicks; False if it was assumed, or known.
        note: Note on how theta was fitted, or why not.
        plain: Current share of A/B traffic; None as long as it is the method's first.
        price: Price of a click, in the design.
        lists: Regression of relevance on a document's ranks in both lists: intercept and slopes.
        effects: Deviation of each document from that regression, in the numbering of the log; None if unknown.
        equation: Estimating equation that theta was fitted by; None if it was not fitted here.
        attribute: Attribute of searches by whose values theta differs; "" if it is one for all.
        thetas: Position bias by value of that attribute, that of "other" first.
    """

    theta: FloatArray
    relevance: float = FIRST_RELEVANCE
    fitted: bool = False
    note: str = ""
    plain: float | None = None
    price: float = FIRST_PRICE
    lists: tuple[float, ...] = FIRST_LISTS
    effects: FloatArray | None = None
    equation: Conditional | None = None
    attribute: str = ""
    thetas: tuple[tuple[float, ...], ...] = ()

    @property
    def more(self) -> dict[str, Any]:
        """Beliefs beside theta, relevance, fitted and note, as values for JSON."""
        by_segment = {"attribute": self.attribute, "thetas": self.thetas} if self.attribute else {}
        return {"plain": self.plain, "price": self.price, "lists": self.lists, **by_segment}

    def of_segment(self, value: int) -> Beliefs:
        """Beliefs about searches with a value of ``attribute``, by its number."""
        return self._of_segments[value]

    @cached_property
    def _of_segments(self) -> list[Beliefs]:
        return [replace(self, theta=np.array(theta), attribute="", thetas=()) for theta in self.thetas]

    def prediction(self, rank_a: IntArray, rank_b: IntArray) -> FloatArray:
        """Predicted relevance of the documents at these ranks (from 0; k or more is nowhere), with their own effects."""
        return self.prediction_at(rank_a, rank_b, self.effects)

    def prediction_at(self, rank_a: IntArray, rank_b: IntArray, effects: FloatArray | None) -> FloatArray:
        """Predicted relevance of documents at these ranks (from 0; k or more is nowhere), with the effects given."""
        known = NOTHING if effects is None else effects
        found: FloatArray = rank_prediction(rank_a, rank_b, len(self.theta), self.coefficients, known)
        return found

    def prediction_for(self, a: DocumentArray, b: DocumentArray, effects: FloatArray | None) -> FloatArray:
        """Relevance of the candidates of one query, given two lists of their numbers."""
        known = NOTHING if effects is None else effects
        found: FloatArray = list_prediction(a, b, len(self.theta), self.coefficients, known)
        return found

    @cached_property
    def coefficients(self) -> FloatArray:
        """``lists``, as compiled functions take them."""
        return np.array(self.lists)


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


@dataclass(frozen=True, eq=False)
class Evidence:
    """Data that a method learns from.

    Attributes:
        parts: Counts of groups of units, whose differences tell how sure theta is; or of the whole log, as one part. Documents
            never clicked may be left out.
        shows: Results shown at each rank, in all.
        agree: True if little bias can hide in the estimate, False if A/B traffic alone should decide, None if neither is known.
        searches: For relevance and clicks; None where a method needs neither.
        gained: Clicks gained over an A/B test, as a share of its clicks, and its standard error; None if it was not measured.
        impressions: Number of impressions.
        theta_fitted: True if the theta of the earlier beliefs is fitted to this log already.
    """

    parts: Sequence[Counts]
    shows: FloatArray
    agree: bool | None = None
    searches: Searches | None = None
    gained: tuple[float, float] | None = None
    impressions: int = 0
    theta_fitted: bool = False


def first_theta(k: int) -> FloatArray:
    """Position bias assumed before any click: the discount of DCG, 1 / log2(1 + rank)."""
    return np.asarray(1 / np.log2(np.arange(2, k + 2)))


def learnt(evidence: Evidence, beliefs: Beliefs, *, bias: str) -> Beliefs:
    """Beliefs of theta and relevance after a log; what it cannot tell stays as it was, and ``note`` says so.

    ``bias`` "estimated" fits theta; a "known" one stays.
    """
    if bias == "estimated":
        beliefs = beliefs if evidence.theta_fitted else _with_bias(evidence.parts, beliefs)
    else:
        beliefs = replace(beliefs, note="position bias is taken as known")
    clicks = sum(float(part.clicked.sum()) for part in evidence.parts)
    examined = float(evidence.shows @ beliefs.theta)
    mean = clicks / examined if examined > 0 else beliefs.relevance
    beliefs = replace(beliefs, relevance=float(np.clip(mean, *RELEVANCES)))
    return beliefs if evidence.searches is None else _with_relevance(beliefs, evidence.searches)


def _with_relevance(beliefs: Beliefs, searches: Searches) -> Beliefs:
    fit = searches.fit(beliefs.theta)
    return replace(beliefs, lists=(float(fit.constant), *fit.slopes.tolist()), effects=fit.effects)


def _with_bias(parts: Sequence[Counts], beliefs: Beliefs) -> Beliefs:
    if len(beliefs.theta) == 1:
        return replace(beliefs, note="one rank has no position bias")
    if not any(part.clicked.any() for part in parts):
        return replace(beliefs, note="no clicks yet")
    try:
        fitted, _ = fit_groups(parts, most_error=MOST_ERROR)
    except NotIdentifiable as refusal:
        return replace(beliefs, note=f"position bias cannot be told yet: {refusal}")
    equation = Conditional(given="design" if "design" in fitted.method else "shown")
    return replace(beliefs, theta=sound_theta(fitted.theta), fitted=True, note=fitted.note, equation=equation)


def with_bias_refitted(parts: Sequence[Counts], beliefs: Beliefs) -> Beliefs:
    """Beliefs with theta from the counts of each design so far, by the equation that the last fit chose, if there was one."""
    if beliefs.equation is None:
        return _with_bias([Counts.stacked(parts)], beliefs)
    return replace(beliefs, theta=sound_theta(beliefs.equation.refit(parts, beliefs.theta)))


def sound_theta(theta: FloatArray) -> FloatArray:
    """An estimate of theta (or several) as designs can use it.

    Only ratios of theta matter. No two ranks may come out equal or a rank unseen, or a design would leave out documents that a
    later, better theta needs.
    """
    scaled = theta / np.maximum(theta.max(axis=-1, keepdims=True), 1.0)
    return np.asarray(np.maximum(scaled, LEAST_BIAS / np.arange(1, theta.shape[-1] + 1)))
