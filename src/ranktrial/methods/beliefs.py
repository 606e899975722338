"""Beliefs of a method about its users, on which its displays depend, learnt from a log in simulations and live alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ranktrial.arrays import NO_DOCUMENT, FloatArray, IntArray
from ranktrial.methods._kernels.predictions import rank_prediction
from ranktrial.methods.searches import FIRST_LISTS, Searches, expected_searches
from ranktrial.position_bias import Conditional, Counts, NotIdentifiable, fit_groups
from ranktrial.rankings import Pair
from ranktrial.users import User

BIAS = ("known", "estimated")
FIRST_RELEVANCE = 0.3  # P(click) of an examined document, before any click
FIRST_PRICE = 10.0  # of a click, before any search tells what a budget asks for
RELEVANCES = (0.01, 0.9)
LEAST_BIAS = 0.001  # over the rank: the least examination an estimate may come to
NOTHING = np.empty(0)
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
        segments = {"attribute": self.attribute, "thetas": self.thetas} if self.attribute else {}
        return {"plain": self.plain, "price": self.price, "lists": self.lists, **segments}

    @cached_property
    def by_segment(self) -> list[Beliefs]:
        """Beliefs about searches with each value of ``attribute``."""
        return [replace(self, theta=np.array(theta), attribute="", thetas=()) for theta in self.thetas]

    def prediction(self, rank_a: IntArray, rank_b: IntArray) -> FloatArray:
        """Predicted relevance of the documents at these ranks (from 0; k or more is nowhere), with their own effects."""
        known = NOTHING if self.effects is None else self.effects
        found: FloatArray = rank_prediction(rank_a, rank_b, len(self.theta), self.coefficients, known)
        return found

    @cached_property
    def coefficients(self) -> FloatArray:
        """``lists``, as compiled functions take them."""
        return np.array(self.lists)


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
    if evidence.searches is None:
        return beliefs
    fit = evidence.searches.fit(beliefs.theta)
    return replace(beliefs, lists=(float(fit.constant), *fit.slopes.tolist()), effects=fit.effects)


def expected_beliefs(pair: Pair, user: User) -> Beliefs:
    """Beliefs that clicks lead to in the long run: the pair's position bias, mean relevance, and its regression on ranks."""
    theta = pair.known_theta
    examined = (pair.tables != NO_DOCUMENT) @ theta
    fit = expected_searches(pair, user).fit(theta)
    return Beliefs(
        theta,
        float(np.clip(np.mean(pair.ctr(user)) / examined.mean(), *RELEVANCES)),
        lists=(float(fit.constant), *fit.slopes.tolist()),
    )


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
