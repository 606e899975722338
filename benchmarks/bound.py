"""Lower bound on the variance of every unbiased estimate of Delta, whatever is shown (Cramer-Rao).

Where clicks follow the position-based model, an impression of a query that puts document d at rank r with probability
P(d, r) holds the information I_d = sum_r P(d, r) theta_r / (zeta_d (1 - theta_r zeta_d)) about zeta_d, and nothing about two
documents together. By the Cramer-Rao inequality no estimate of Delta that is right for every zeta has less variance than
sum_d lambda_d^2 / I_d. The bound here is the least of that over all distributions over rankings, made with the true zeta: what
is left for better designs and better estimates to gain. It takes theta and the frequencies of queries as known; an estimate
that must learn the frequencies from its own impressions has the variance of Delta_q over queries on top.

With cost_d = lambda_d^2 zeta_d and gain_dr = theta_r / (1 - theta_r zeta_d), in each query

    least f(P) = sum_d cost_d / sum_r P_dr gain_dr    over P >= 0 whose rows and columns sum to at most 1,

found by a primal-dual interior-point method for many queries at once. f is convex, so whatever the prices v of the ranks, with
G = -grad f and u_d = max_r (G_dr - v_r) or 0, f is nowhere below 2 f(P) - sum_d u_d - sum_r v_r. That certificate is what is
returned; it does not depend on how P and v were found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.rankings import Pair

SMALLEST_GAP = 1e-5  # rounding decides not far below
NEGLIGIBLE = 1e-18  # of the largest cost in a query: documents that cheap change its bound by less than 1e-7
AT_ONCE = 4_000_000  # numbers in the largest array
CENTRING = 0.1
KEPT_INSIDE = 0.99  # of the way to the border at most
LEAST_PROGRESS = 0.01
SHORTEST_STEP = 1e-6
MOST_STEPS = 80


@dataclass(frozen=True, eq=False)
class Bound:
    """The least variance of one impression, certified.

    Attributes:
        value: No unbiased estimate has less, queries drawn uniformly: the mean of ``per_query``.
        gap: The best placement found is that much above it, as a share of it.
        per_query: The bound of each query.
        placement: P(document at rank) of that placement, over the documents that matter; others may fill the page.
    """

    value: float
    gap: float
    per_query: FloatArray
    placement: FloatArray

    def __repr__(self) -> str:
        return f"Bound(value={self.value:.6g}, gap={self.gap:.1g}, queries={len(self.per_query)})"


def efficiency_bound(pair: Pair, zeta: ArrayLike, theta: ArrayLike, *, gap: float = 1e-3) -> Bound:
    """The least variance with which the pair can be compared, of every query and on average.

    A document that is clicked whenever it is shown at the best rank costs nothing, however rarely it is shown there.

    Args:
        zeta: The true P(click) once examined of every document.
        theta: Position bias.
        gap: How far the best placement found may be above the bound, as a share of it. The bound holds all the same.

    Two documents and one place: each is shown half of the time, and each click is the toss of a coin.

    >>> pair = Pair.from_lists([["x"]], [["y"]], k=1)
    >>> round(efficiency_bound(pair, [0.5, 0.5], [1.0], gap=1e-5).value, 4)
    1.0
    """
    bias, relevance = checks.probabilities("theta", theta), checks.probabilities("zeta", zeta)
    checks.between("gap", gap, SMALLEST_GAP, 1)
    if len(bias) != pair.k:
        raise ValueError(f"theta has {len(bias)} ranks, must have k = {pair.k}")
    if len(relevance) != pair.n_documents:
        raise ValueError(f"{len(relevance)} zeta for {pair.n_documents} documents, there must be one each")
    lam = pair.lam(bias)
    matters = np.flatnonzero((lam != 0) & (relevance != 0))
    query_of = np.searchsorted(pair.offsets, matters, side="right") - 1
    counts = np.bincount(query_of, minlength=pair.n_queries)
    starts, sizes = np.cumsum(counts) - counts, np.diff(pair.offsets)
    least, reached = np.zeros((2, pair.n_queries))
    placement = np.zeros((pair.n_documents, pair.k))
    for queries in _batches(counts, pair.k):
        # Queries of fewer documents get some that cost nothing, shorter pages ranks that tell nothing.
        places = np.arange(counts[queries].max())
        filled = places < counts[queries, None]
        documents = matters[starts[queries, None] + np.where(filled, places, 0)]
        page = np.where(np.arange(pair.k) < sizes[queries, None], bias, 0.0)
        found = _solve(*_cost_and_gain(lam[documents] * filled, relevance[documents], page), gap)
        least[queries], reached[queries] = found.least, found.reached
        placement[documents[filled]] = (found.placement * (page > 0)[:, None])[filled]
    value = float(least.mean())
    return Bound(value, float(reached.mean()) / value - 1 if value else 0.0, least, placement)


def _batches(counts: IntArray, k: int) -> list[IntArray]:
    """Queries with something to learn, those with about as many documents together."""
    order = np.argsort(counts, kind="stable")
    order = order[counts[order] > 0]
    size = max(AT_ONCE // (int(counts.max(initial=1)) * k * k), 1)
    return [order[start : start + size] for start in range(0, len(order), size)]


def _cost_and_gain(lam: FloatArray, zeta: FloatArray, page: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Cost and gain, in units of what the best rank of the page tells about each document; (queries, documents) and one axis
    more."""
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = page[:, None, :] / (1 - page[:, None, :] * zeta[:, :, None])
        best = gain.max(2)
        gain /= best[:, :, None]
    cost = lam**2 * zeta / best
    cost[cost < NEGLIGIBLE * cost.max(1, keepdims=True)] = 0
    return cost, np.where(np.isfinite(gain), gain, 1.0)


class _Found(NamedTuple):
    placement: FloatArray
    least: FloatArray
    reached: FloatArray


class _Point(NamedTuple):
    """A placement p strictly inside, what its rows and columns leave of 1 (s, t), and the price of each of these limits."""

    p: FloatArray
    s: FloatArray
    t: FloatArray
    z: FloatArray
    u: FloatArray
    v: FloatArray

    def moved(self, step: FloatArray, direction: _Point) -> _Point:
        return _Point(*(x + _like(step, x) * dx for x, dx in zip(self, direction)))

    def of(self, some: BoolArray) -> _Point:
        return _Point(*(x[some] for x in self))


def _like(per_query: FloatArray, array: FloatArray) -> FloatArray:
    return per_query.reshape(-1, *[1] * (array.ndim - 1))


def _solve(cost: FloatArray, gain: FloatArray, gap: float) -> _Found:
    """The best placement of each query; those that are good enough leave the batch."""
    found = _Found(np.zeros(gain.shape), np.zeros(len(cost)), np.zeros(len(cost)))
    unit = cost.max(1)
    left = np.flatnonzero(unit > 0)
    cost, gain, low = cost[left] / unit[left, None], gain[left], np.zeros(len(left))
    at = _start(cost, gain)
    for step_number in range(MOST_STEPS + 1):
        value, slope, _ = _objective(at.p, cost, gain)
        low = np.maximum(low, 2 * value - np.maximum((slope - at.v[:, None]).max(2), 0).sum(1) - at.v.sum(1))
        done = (value - low <= gap * low) | (step_number == MOST_STEPS)
        out = left[done]
        found.placement[out], found.least[out], found.reached[out] = at.p[done], low[done], value[done]
        left, low, cost, gain, at = left[~done], low[~done], cost[~done], gain[~done], at.of(~done)
        if not len(left):
            break
        at = _step(at, cost, gain)
    return _Found(found.placement, found.least * unit, found.reached * unit)


def _start(cost: FloatArray, gain: FloatArray) -> _Point:
    size, n, m = gain.shape
    p = np.full((size, n, m), 1 / (max(n, m) + 1))
    z = np.ones((n, m)) * _objective(p, cost, gain)[0][:, None, None] / (n * m)
    return _Point(p, 1 - p.sum(2), 1 - p.sum(1), z, z.sum(2), z.sum(1))


def _objective(p: FloatArray, cost: FloatArray, gain: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """f of each query, minus its gradient, and how fast that falls along the gain of a document."""
    information = (p * gain).sum(2)
    slope = cost / information**2
    return (cost / information).sum(1), slope[:, :, None] * gain, 2 * slope / information


def _step(at: _Point, cost: FloatArray, gain: FloatArray) -> _Point:
    """One Newton step towards the central path, as long as it gets nearer."""
    _, slope, curve = _objective(at.p, cost, gain)
    limits = at.p.shape[1] * at.p.shape[2] + at.p.shape[1] + at.p.shape[2]
    mu = CENTRING * ((at.z * at.p).sum((1, 2)) + (at.u * at.s).sum(1) + (at.v * at.t).sum(1)) / limits
    direction = _newton(at, gain, slope, curve, mu)
    step = np.full(len(mu), 1 / KEPT_INSIDE)
    for x, dx in zip(at, direction):
        border = np.divide(-x, dx, out=np.full(x.shape, np.inf), where=dx < 0)
        step = np.minimum(step, border.reshape(len(step), -1).min(1))
    step *= KEPT_INSIDE
    before = _distance(at, slope, mu)
    while True:
        ahead = at.moved(step, direction)
        too_far = _distance(ahead, _objective(ahead.p, cost, gain)[1], mu) > (1 - LEAST_PROGRESS * step) * before
        too_far &= step > SHORTEST_STEP
        if not np.any(too_far):
            return ahead
        step[too_far] /= 2


def _distance(at: _Point, slope: FloatArray, mu: FloatArray) -> FloatArray:
    """Distance from the central path at mu."""
    stationary = at.u[:, :, None] + at.v[:, None, :] - at.z - slope
    centred = (at.z * at.p - _like(mu, at.p), at.u * at.s - _like(mu, at.s), at.v * at.t - _like(mu, at.t))
    parts = [(part.reshape(len(mu), -1) ** 2).sum(1) for part in (stationary, *centred)]
    return np.asarray(np.sqrt(np.sum(parts, axis=0)))


def _newton(at: _Point, gain: FloatArray, slope: FloatArray, curve: FloatArray, mu: FloatArray) -> _Point:
    """The Newton direction. A document's block is M = diag(z / p) + curve gain gain' + (u / s) 1 1'. Documents meet only in the
    ranks: the change w = (v / t) sum_d dp_d in their prices follows from (diag(t / v) + sum_d M^-1) w = sum_d M^-1 rhs_d."""
    p, s, t, z, u, v = at
    m = p.shape[2]
    block = curve[:, :, None, None] * gain[:, :, :, None] * gain[:, :, None, :] + (u / s)[:, :, None, None]
    block[:, :, range(m), range(m)] += z / p
    inverse = np.linalg.inv(block)
    mu_p, mu_s, mu_t = _like(mu, p) / p, _like(mu, s) / s, _like(mu, t) / t
    direct = np.einsum("qdrc,qdc->qdr", inverse, slope + mu_p - mu_s[:, :, None] - mu_t[:, None, :])
    system = inverse.sum(1)
    system[:, range(m), range(m)] += t / v
    w = np.linalg.solve(system, direct.sum(1)[:, :, None])[:, :, 0]
    dp = direct - np.einsum("qdrc,qc->qdr", inverse, w)
    ds = -dp.sum(2)
    return _Point(dp, ds, -dp.sum(1), mu_p - z - z / p * dp, mu_s - u - u / s * ds, mu_t - v + w)
