"""What a method believes of its users and shows for it, learnt from a log in simulations and live alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ranktrial.arrays import DocumentArray, FloatArray, IntArray
from ranktrial.methods._kernels.guesses import list_guess, rank_guess
from ranktrial.position_bias import Counts, Examinations, NotIdentifiable, RelevanceFit, fit_groups
from ranktrial.rankings import rank_inputs

BIAS = ("known", "estimated")
FIRST_RELEVANCE = 0.3  # P(click) of an examined document, before any click
# Of list_inputs, before any click: what both rankers put first is taken to be three times as relevant as the rest, so that
# demoting it counts as dear. That errs on the visitors' side.
FIRST_LISTS = (0.1, 0.25, 0.25, 0.0, 0.0, 0.0, 0.0)
FIRST_PRICE = 10.0  # of a click, before any search has told what a budget asks for
RELEVANCES = (0.01, 0.9)
LEAST_BIAS = 0.001  # over the rank: the least examination an estimate may come to
NOTHING = np.empty(0)
MOST_ERROR = 0.5  # of a theta, in units of theta_1: what is less sure than that is not used


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What a method takes its users to be, which decides what it shows.

    Attributes:
        theta: Position bias.
        relevance: P(click) of an examined document, on average.
        fitted: Whether theta comes from clicks; else it was assumed, or known.
        note: How it was fitted, or why not.
        plain: The share of impressions that show A's own list or B's own now; None as long as it is the method's first.
        price: Of a click, in the design.
        lists: What a document's places in both lists say of its relevance: the constant of a regression, and its slopes.
        effects: How each document deviates from that, in the numbering of what it was learnt from; None if nothing is known.
    """

    theta: FloatArray
    relevance: float = FIRST_RELEVANCE
    fitted: bool = False
    note: str = ""
    plain: float | None = None
    price: float = FIRST_PRICE
    lists: tuple[float, ...] = FIRST_LISTS
    effects: FloatArray | None = None

    @property
    def more(self) -> dict[str, Any]:
        """What is kept of it beside theta, relevance, fitted and note, as JSON can hold it."""
        return {"plain": self.plain, "price": self.price, "lists": self.lists}

    def guess(self, rank_a: IntArray, rank_b: IntArray) -> FloatArray:
        """Relevance of all documents that ``effects`` are known of, at these ranks (from 0; k or more is nowhere)."""
        return self.guess_at(rank_a, rank_b, self.effects)

    def guess_at(self, rank_a: IntArray, rank_b: IntArray, effects: FloatArray | None) -> FloatArray:
        """The same with the effect of each, where that is known."""
        known = NOTHING if effects is None else effects
        found: FloatArray = rank_guess(rank_a, rank_b, len(self.theta), self.coefficients, known)
        return found

    def guess_for(self, a: DocumentArray, b: DocumentArray, effects: FloatArray | None) -> FloatArray:
        """Relevance of the candidates of one query, given two lists of their numbers."""
        known = NOTHING if effects is None else effects
        found: FloatArray = list_guess(a, b, len(self.theta), self.coefficients, known)
        return found

    @cached_property
    def coefficients(self) -> FloatArray:
        """``lists``, as compiled functions take them."""
        return np.array(self.lists)


def inputs_of(rank_a: IntArray, rank_b: IntArray, k: int) -> FloatArray:
    """What ranks say of relevance (``rank_inputs``) where it is not known how far below the top k a document stands."""
    return rank_inputs(np.minimum(rank_a, k), np.minimum(rank_b, k))


@dataclass(frozen=True, eq=False)
class Searches:
    """Searches of a log, and what it says of their documents.

    A document may stand at other ranks for other people: its *rows*, each with inputs of its own.

    Attributes:
        tables: Candidates of A's and of B's top k, ``(2, searches, k)``, numbered over all searches; -1 past the end.
        weights: How often each search came.
        row: Of each candidate.
        seen: Clicks and examinations of every row, at a theta: of all of the log (None), or of one half of it (0 or 1).
        rank_a: Of every row in A's list, from 0; k or more is nowhere.
        rank_b: And in B's.
        offsets: Rows of each query.
        document: Of each row.
        document_offsets: Documents of each query.
    """

    tables: DocumentArray
    weights: FloatArray
    row: IntArray
    seen: Callable[[FloatArray, int | None], Examinations]
    rank_a: IntArray
    rank_b: IntArray
    offsets: IntArray
    document: IntArray
    document_offsets: IntArray

    def fit(self, theta: FloatArray, half: int | None = None, *, shrunken: bool = True) -> RelevanceFit:
        """What all clicks say of relevance, or those of one half of the log."""
        return RelevanceFit.of(
            self.seen(theta, half),
            self.offsets,
            inputs_of(self.rank_a, self.rank_b, self.tables.shape[2]),
            document=self.document,
            document_offsets=self.document_offsets,
            prior=np.array(FIRST_LISTS),
            shrunken=shrunken,
        )

    def guess(self, beliefs: Beliefs) -> FloatArray:
        """Relevance of every candidate."""
        effects = None if beliefs.effects is None else beliefs.effects[self.document]
        return beliefs.guess_at(self.rank_a, self.rank_b, effects)[self.row]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a method learns from.

    Attributes:
        parts: Counts of groups of units, whose differences tell how sure theta is; or of the whole log, as one part. Documents
            never clicked may be left out.
        shows: Results shown at each rank, in all.
        agree: Whether readings of the log with more and fewer assumptions agree; None if that cannot be told (yet).
        searches: For relevance and clicks; None where a method needs neither.
        gained: Clicks gained against an A/B test, as a share of its clicks, and the error of that; None if it was not measured.
    """

    parts: Sequence[Counts]
    shows: FloatArray
    agree: bool | None = None
    searches: Searches | None = None
    gained: tuple[float, float] | None = None


def first_theta(k: int) -> FloatArray:
    """Position bias assumed before any click: the discount of DCG, 1 / log2(1 + rank)."""
    return np.asarray(1 / np.log2(np.arange(2, k + 2)))


def learnt(evidence: Evidence, beliefs: Beliefs, *, bias: str) -> Beliefs:
    """Beliefs of theta and relevance after a log; what it cannot tell stays as it was, and ``note`` says so.

    ``bias`` "estimated" fits theta; a "known" one stays.
    """
    if bias == "estimated":
        beliefs = _with_bias(evidence.parts, beliefs)
    else:
        beliefs = replace(beliefs, note="position bias is taken as known")
    clicks = sum(float(part.clicked.sum()) for part in evidence.parts)
    examined = float(evidence.shows @ beliefs.theta)
    mean = clicks / examined if examined > 0 else beliefs.relevance
    beliefs = replace(beliefs, relevance=float(np.clip(mean, *RELEVANCES)))
    return beliefs if evidence.searches is None else _with_relevance(beliefs, evidence.searches)


def _with_relevance(beliefs: Beliefs, searches: Searches, half: int | None = None) -> Beliefs:
    fit = searches.fit(beliefs.theta, half)
    return replace(beliefs, lists=(float(fit.constant), *fit.slopes.tolist()), effects=fit.effects)


@dataclass(frozen=True, eq=False)
class Half:
    """What one half of a log says.

    Attributes:
        theta: Position bias.
        guess: Relevance of every candidate of the searches, for a design.
        judged: The same to judge the other half's design by: not shrunken, so noisier, but right on average.
    """

    theta: FloatArray
    guess: FloatArray
    judged: FloatArray


def halves(searches: Searches, beliefs: Beliefs, parts: Sequence[Counts] = ()) -> list[Half]:
    """Both halves of a log; theta of each where it comes from clicks and ``parts`` tell, else as believed; what is known of
    single documents where beliefs have that."""
    found = []
    for half in (0, 1):
        told = beliefs
        if beliefs.fitted and len(parts) > 1:
            told = _with_bias([Counts.merged(parts[half::2])], beliefs)
        told, fit = _with_relevance(told, searches, half), searches.fit(told.theta, half, shrunken=False)
        if beliefs.effects is None:
            told = replace(told, effects=None)
        found.append(Half(told.theta, searches.guess(told), fit.guess[searches.row]))
    return found


def _with_bias(parts: Sequence[Counts], beliefs: Beliefs) -> Beliefs:
    if len(beliefs.theta) == 1:
        return replace(beliefs, note="one rank has no position bias")
    if not any(part.clicked.any() for part in parts):
        return replace(beliefs, note="no clicks yet")
    try:
        fitted, _ = fit_groups(parts, most_error=MOST_ERROR)
    except NotIdentifiable as refusal:
        return replace(beliefs, note=f"position bias cannot be told yet: {refusal}")
    return replace(beliefs, theta=sound_theta(fitted.theta), fitted=True, note=fitted.note)


def sound_theta(theta: FloatArray) -> FloatArray:
    """An estimate of theta (or several) as designs can use it.

    Only ratios of theta matter. No two ranks may come out equal or a rank unseen, or a design would leave out documents that a
    later, better theta needs.
    """
    scaled = theta / np.maximum(theta.max(axis=-1, keepdims=True), 1.0)
    return np.asarray(np.maximum(scaled, LEAST_BIAS / np.arange(1, theta.shape[-1] + 1)))
