"""The distribution over rankings of least IPS variance for comparing two rankers, in closed form.

The IPS estimate's variance is governed by sum_d zeta_d lambda_d^2 / rho_d. With need a_d = |lambda_d| sqrt(zeta_d), its least
value over all distributions over rankings is found without iteration: with documents by falling need and ranks by falling
theta, the exposures rho of the best one are need times the slopes of the greatest convex minorant of the points (sum of
the j largest needs, sum of the j largest theta). At most as many rankings as documents, each with its weight, give exactly
that exposure. With zeta the same for all documents |lambda / rho| is at most 2, the weight of a click in an A/B test.

A *price of clicks* mu makes it the exposure of least sum_d zeta_d lambda_d^2 / rho_d - mu sum_d zeta_d rho_d, as exactly: what
visitors would click is then not given away for a little less variance. ``budget.price_for`` finds mu for a budget of clicks.

No training, features or clicks are needed: two ranked lists and the position bias are enough. What was shown, how often,
is recomputed from the rankings and weights that come out (``Mixture.placement``, ``Mixture.exposure``), never assumed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import DocumentArray, FloatArray, IntArray
from ranktrial.design import _closed_form_kernels as kernels
from ranktrial.design._candidate_kernels import keep_first, unite
from ranktrial.rankings import Mixture, Pair

Shares = tuple[float, float]
NONE: Shares = (0.0, 0.0)
NONE_EACH = np.empty(0)  # no floors, or no gains
NOT_KEPT = np.empty(0, np.int32)
HIGHEST_PRICE = 1e12  # far beyond where anything changes


def closed_form(
    pair: Pair,
    theta: ArrayLike,
    *,
    zeta: ArrayLike | None = None,
    floor: float = 0.0,
    keep: int = 0,
    zeta0: float | None = None,
    price: float = 0.0,
    plain: Shares = NONE,
) -> Mixture:
    """The mixture of rankings of least sum_d zeta_d lambda_d^2 / rho_d - price * zeta_d rho_d, for every query of a pair.

    Documents that either ranker shows are candidates. Those on which the rankers agree (lambda = 0) fill the ranks that are
    left, in the order of their mean exposure and mean rank; where the rankers agree on all of them, every document has
    the exposure it has in A's list (which is what is shown if B's is the same). A price puts them where clicks are worth
    more than variance, the most relevant first.

    Args:
        theta: Position bias.
        zeta: P(click) once examined, per document, where something is known of it; by default the same for all. A document
            of zeta = 0 is taken to be of no consequence and may never be shown: give it a little unless that is certain.
        floor: Agreement floor from 0 to 1: rho_d is at least floor * min(theta at A's rank, theta at B's rank), so that what
            both rankers show is not demoted too far.
        keep: A document that both rankers put first is on every page within the first ``keep`` ranks (the best ones, by
            theta); 1 keeps it first, 0 lets it be anywhere, or nowhere.
        zeta0: Click rate for which the design is made when the estimate will be rank-aware: exposure then counts as
            theta / (1 - zeta0 theta), and so does the floor.
        price: Price of a click, in the units of a squared weight (lambda / rho)^2: 0 looks at variance alone, 1 is moderate,
            from 100 on little but relevance counts. Only differences in ``zeta`` within a query matter.
        plain: Shares of plain A/B traffic, A's own list and B's own, which are then the last two rankings of every query.

    >>> pair = Pair.from_lists([["x", "y", "z"]], [["x", "z", "y"]], k=3)
    >>> ids = pair.ids
    >>> mixture = closed_form(pair, [1, 0.5, 0.25])
    >>> ["".join(ids[d] for d in ranking) for ranking in mixture.rankings], mixture.weights.round(9)
    (['yzx', 'zyx'], array([0.5, 0.5]))
    >>> mixture.exposure(np.array([1, 0.5, 0.25]))
    array([0.25, 0.75, 0.75])
    """
    checks.between("price", price, 0, HIGHEST_PRICE)
    problem = checked_problem(pair.tables, pair.n_documents, theta, zeta=zeta, floor=floor, keep=keep, zeta0=zeta0)
    found = problem.solved(price)
    if any(plain):
        found = _with_plain(*found, pair.tables, plain)
    return Mixture(*found, pair.n_documents, plain=any(plain))


def closed_form_query(
    a: DocumentArray,
    b: DocumentArray,
    theta: FloatArray,
    *,
    zeta: FloatArray | None = None,
    floor: float = 0.0,
    keep: int = 0,
    zeta0: float | None = None,
    price: float = 0.0,
    plain: Shares = NONE,
) -> tuple[DocumentArray, FloatArray]:
    """``closed_form`` of one query from two lists of small document numbers, as rankings and weights; quick, checks little.

    >>> closed_form_query(np.array([0, 1]), np.array([1, 0]), np.array([1.0, 0.5]))
    (array([[0, 1],
           [1, 0]], dtype=int32), array([0.5, 0.5]))
    """
    tables = np.full((2, 1, len(theta)), -1, np.int32)
    highest = -1
    for table, ranked in zip(tables, (a, b)):
        top = ranked[: len(theta)]
        table[0, : len(top)] = top
        highest = max(highest, int(top.max(initial=-1)))
    rankings, weights, _ = design_problem(tables, highest + 1, theta, zeta, floor, keep, zeta0).solved(price)
    if not any(plain):
        return rankings, weights
    return np.concatenate([rankings, tables[:, 0]]), np.concatenate([weights * (1 - sum(plain)), plain])


class DesignProblem(NamedTuple):
    """Input of the closed form for many queries.

    Attributes:
        offsets: Start of each query's candidates in the arrays below.
        documents: The candidates.
        need: Need |lambda| sqrt(zeta) of each candidate.
        least: Exposure that each candidate must have; empty for none.
        zeta: Relevance of each candidate; empty if it is the same for all.
        bias: Position bias of each rank that the design is made for.
        first: For each query the document that all rankers put first, if it is to be kept; empty if none is.
    """

    offsets: IntArray
    documents: DocumentArray
    need: FloatArray
    least: FloatArray
    zeta: FloatArray
    bias: FloatArray
    first: DocumentArray

    def solved(self, price: float) -> tuple[DocumentArray, FloatArray, IntArray]:
        """Rankings at a price of clicks, their weights, and the offsets of each query's."""
        gain = price * self.zeta if price else NONE_EACH
        found: tuple[DocumentArray, FloatArray, IntArray] = kernels.least_variance(
            self.offsets, self.documents, self.need, self.least, gain, self.bias, self.first
        )
        return found


def checked_problem(
    tables: DocumentArray,
    n_documents: int,
    theta: ArrayLike,
    *,
    zeta: ArrayLike | None,
    floor: float,
    keep: int,
    zeta0: float | None,
) -> DesignProblem:
    """``design_problem`` of whatever people give."""
    bias = checks.probabilities("theta", theta)
    k = tables.shape[2]
    if len(bias) != k:
        raise ValueError(f"theta has {len(bias)} ranks, must have k = {k}")
    checks.between("floor", floor, 0, 1)
    checks.whole("keep", keep, 0, k)
    if zeta0 is not None:
        checks.between("zeta0", zeta0, 0, 0.99)
    relevance = None if zeta is None else checks.probabilities("zeta", zeta)
    if relevance is not None and len(relevance) != n_documents:
        raise ValueError(f"{len(relevance)} zeta for {n_documents} documents, there must be one each")
    return design_problem(tables, n_documents, bias, relevance, floor, keep, zeta0)


def design_problem(
    tables: DocumentArray,
    n_documents: int,
    theta: FloatArray,
    zeta: FloatArray | None,
    floor: float,
    keep: int,
    zeta0: float | None,
) -> DesignProblem:
    """The problem that ``closed_form`` solves, from the tables of what the rankers show; no checks, as it is on the way of
    every live request."""
    offsets, documents, need, least = unite(tables, theta, n_documents)
    relevance = NONE_EACH if zeta is None else zeta[documents]
    if zeta is not None:
        need *= np.sqrt(relevance)
    click_rate = zeta0 or 0.0
    bias = theta / (1 - click_rate * theta)
    floors = NONE_EACH
    first = NOT_KEPT
    if floor or keep:
        lesser = least / (1 - click_rate * least)
        floors = floor * lesser
        if keep:
            first = keep_first(tables, offsets, documents, lesser, np.sort(bias)[-keep], floors)
    return DesignProblem(offsets, documents, need, floors, relevance, bias, first)


def _with_plain(
    rankings: DocumentArray, weights: FloatArray, offsets: IntArray, tables: DocumentArray, shares: Shares
) -> tuple[DocumentArray, FloatArray, IntArray]:
    """Every query's rankings with their share, then the row of each table with its own."""
    n = len(offsets) - 1
    more = len(shares)
    grown = offsets + more * np.arange(n + 1)
    old = np.arange(len(rankings)) + more * np.repeat(np.arange(n), np.diff(offsets))
    table = np.empty((grown[-1], rankings.shape[1]), rankings.dtype)
    chances = np.empty(grown[-1])
    table[old], chances[old] = rankings, weights * (1 - sum(shares))
    for place, (own, share) in enumerate(zip(tables, shares), -more):
        table[grown[1:] + place], chances[grown[1:] + place] = own, share
    return table, chances, grown
