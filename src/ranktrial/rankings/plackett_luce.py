"""Plackett-Luce logging policies: sampling, exact placement and exposure.

A policy scores the documents of a query; a ranking is drawn from the top, each time one of the documents left with
probability proportional to exp(score). Functions here take one query's scores (local document numbers 0..n-1) or, in
the plural, the flat scores of many queries and their offsets. Only ``sample`` and the simulations are random:
placement and exposure (the paper's rho) come from a quadrature over the arrival times of exponential clocks.

Accuracy of the quadrature: placement probabilities, and so exposures, have an absolute error of at most about 1e-9
for k up to 300 (1e-11 with few documents), whatever the scores. Where theta does not increase with the rank, the error
of exposure is relative as well, however unlikely the document. Adding a constant to all scores changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from math import perm

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, BoolArray, DocumentArray, FloatArray, IntArray, offsets_of, ragged
from ranktrial.rankings import _plackett_luce_kernels as kernels
from ranktrial.rankings import _race_kernels as race
from ranktrial.rankings.lists import UserArrays
from ranktrial.rankings.mixture import Mixture
from ranktrial.seeds import Seed, children, kernel_state
from ranktrial.users import User

CountArray = NDArray[np.uint32]


def log_probability(scores: ArrayLike, ranking: ArrayLike) -> float:
    """Logarithm of the probability that the top of the ranking is ``ranking``, which may stop anywhere.

    >>> round(log_probability([0.0, 0.0, 0.0], [2, 0]), 6) == round(float(np.log(1 / 6)), 6)
    True
    """
    scores = checks.finite("scores", scores)
    places = np.asarray(ranking, np.int64)
    if len(np.unique(places)) < len(places) or np.any((places < 0) | (places >= len(scores))):
        raise ValueError(f"ranking is {places.tolist()}, must hold different documents from 0 to {len(scores) - 1}")
    # log sum exp(score) of the documents left before each rank, added from the end: no subtraction, no overflow
    unplaced = np.delete(scores, places)
    left = float(np.logaddexp.reduce(unplaced)) if len(unplaced) else -np.inf
    remaining = np.logaddexp.accumulate(np.append(left, scores[places[::-1]]))[:0:-1]
    return float(np.sum(scores[places] - remaining))


@dataclass(frozen=True, eq=False)
class PlackettLuce:
    """A logging policy over many queries: flat scores, document offsets, and how many documents are shown.

    >>> policy = PlackettLuce(np.array([0.0, 0.0]), np.array([0, 2]), k=3)
    >>> policy.placement().round(9), policy.exposure([1.0, 0.5, 0.2]).round(9)
    (array([[0.5, 0.5, 0. ],
           [0.5, 0.5, 0. ]]), array([0.75, 0.75]))
    """

    scores: FloatArray
    offsets: IntArray
    k: int

    def __post_init__(self) -> None:
        checks.at_least("k", self.k, 1)
        scores, offsets = checks.finite("scores", self.scores), np.ascontiguousarray(self.offsets, np.int64)
        if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] != 0 or np.any(np.diff(offsets) < 0):
            raise ValueError("offsets must be a flat list that starts at 0 and never falls")
        if len(scores) != offsets[-1]:
            raise ValueError(f"{len(scores)} scores for {offsets[-1]} documents, there must be one each")
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "offsets", offsets)

    @property
    def n_queries(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_documents(self) -> int:
        return len(self.scores)

    def placement(self, *, wanted: BoolArray | None = None) -> FloatArray:
        """P(document at rank) as a (documents, k) matrix, exactly, or the rows of ``wanted`` documents only."""
        mask = self._mask(wanted)
        result = np.empty((np.count_nonzero(mask), self.k))
        race.placements_into(self.scores, self.offsets, self.k, mask, result)
        return result

    def exposure(self, theta: ArrayLike, *, wanted: BoolArray | None = None) -> FloatArray:
        """rho_d: the probability that each document is examined, exactly; ranks of theta beyond k are not shown.

        Others than ``wanted`` get nan.
        """
        theta = checks.probabilities("theta", theta)
        if len(theta) < self.k:
            raise ValueError(f"theta has {len(theta)} ranks, must have k = {self.k}")
        rho = np.empty(self.n_documents)
        race.exposures_into(self.scores, self.offsets, theta[: self.k], self._mask(wanted), rho)
        return rho

    def _mask(self, wanted: BoolArray | None) -> BoolArray:
        mask = np.ones(self.n_documents, bool) if wanted is None else np.ascontiguousarray(wanted, bool)
        if len(mask) != self.n_documents:
            raise ValueError(f"{len(mask)} documents are wanted or not, there are {self.n_documents}")
        return mask

    def sample(self, query: int, count: int, *, seed: Seed) -> DocumentArray:
        """Draw rankings of one query: a (count, k) table of document ids, NO_DOCUMENT where it has fewer than k."""
        checks.between("query", query, 0, self.n_queries - 1)
        alone, documents = self.of_queries(np.array([query]))
        return np.append(documents, NO_DOCUMENT).astype(np.int32)[alone.rankings(count, seed=seed)]

    def rankings(self, draws: int, *, seed: Seed) -> DocumentArray:
        """Draw as many rankings of every query, one query after the other: a (queries * draws, k) table."""
        checks.at_least("draws", draws, 1)
        places = np.empty(self.n_documents, kernels.PLACE)
        zeta = np.zeros(self.n_documents)
        s, tail, share, document = kernels.fill_places(self.scores, self.offsets, zeta, places)
        table = np.empty((self.n_queries * draws, self.k), np.int32)
        kernels.draw_rankings(self.offsets, s, tail, share, places, document, kernel_state(seed), table)
        return table

    def of_queries(self, queries: IntArray) -> tuple[PlackettLuce, IntArray]:
        """Return the policy on some of its queries, and the numbers of their documents in this one."""
        sizes = np.diff(self.offsets)[queries]
        documents = ragged(self.offsets[queries], sizes)
        return PlackettLuce(self.scores[documents], offsets_of(sizes), self.k), documents

    def listed(self, most: int = 200_000) -> Mixture:
        """Return the policy as an explicit mixture of all its rankings, if they are few enough to list."""
        tables, weights, sizes = [], [], []
        total = 0
        for query in range(self.n_queries):
            start, end = self.offsets[query], self.offsets[query + 1]
            depth = min(self.k, int(end - start))
            total += perm(int(end - start), depth)
            if total > most:
                raise ValueError(
                    f"the policy has more than {most:,} rankings (reached query {query}), too many to list"
                )
            rankings = np.array(list(permutations(range(end - start), depth)), np.int64).reshape(-1, depth)
            table = np.full((len(rankings), self.k), NO_DOCUMENT, np.int32)
            table[:, :depth] = start + rankings
            tables.append(table)
            chance = np.exp([log_probability(self.scores[start:end], ranking) for ranking in rankings])
            weights.append(chance / chance.sum())
            sizes.append(len(rankings))
        return Mixture(np.concatenate(tables), np.concatenate(weights), offsets_of(sizes), self.n_documents)

    def __repr__(self) -> str:
        return f"PlackettLuce(queries={self.n_queries}, documents={self.n_documents}, k={self.k})"


def simulate(
    policy: PlackettLuce,
    user: User,
    values: ArrayLike,
    checkpoints: ArrayLike,
    *,
    seed: Seed,
    tables: tuple[CountArray, CountArray] | None = None,
    rows: IntArray | None = None,
) -> FloatArray:
    """Show uniformly drawn queries to a user; x = sum over clicks of ``values[document]``, lambda / rho for IPS.

    Args:
        tables: How often each document was shown and clicked at each rank, for click models: these counts are added.
        rows: Rows of the documents in the tables, where several documents share one; by default each has its own.

    Returns:
        An (m, 3) array: sum of x, sum of x^2 and number of clicks up to each checkpoint.
    """
    values = checks.finite("values", values)
    counts = checks.checkpoints(checkpoints)
    if not policy.n_queries:
        raise ValueError("there is no query to show")
    if not policy.n_documents == len(user.zeta) == len(values):
        raise ValueError(
            f"{policy.n_documents} scores, {len(user.zeta)} zeta and {len(values)} values, there must be one each"
        )
    user = user.cut(policy.k)
    row = _rows(rows, policy)
    shape = (int(row.max(initial=-1)) + 1, user.k)
    for table in tables or ():
        if table.shape != shape or table.dtype != np.uint32:
            raise ValueError(f"a table of counts is {table.shape} of {table.dtype}, must be {shape} of uint32")
    shown, clicked = tables or np.empty((2, 0, user.k), np.uint32)
    places = np.empty(policy.n_documents, kernels.PLACE)
    sorted_scores, tail, share, documents = kernels.fill_places(policy.scores, policy.offsets, user.zeta, places)
    sums = np.empty((len(counts), 3))
    states = (kernel_state(child) for child in children(seed, 2))
    kernels.simulate(
        policy.offsets, sorted_scores, tail, share, places, documents, values, UserArrays.of(user), counts, *states, sums,
        row, shown, clicked,
    )  # fmt: skip
    return sums


def _rows(rows: IntArray | None, policy: PlackettLuce) -> IntArray:
    return np.arange(policy.n_documents) if rows is None else rows


def queries_drawn(n_queries: int, impressions: int, *, seed: Seed) -> IntArray:
    """Numbers of times the simulations with that seed draw each query, before anything else has to be known."""
    drawn = np.zeros(n_queries, np.int64)
    kernels.count_queries(impressions, kernel_state(children(seed, 2)[0]), drawn)
    return drawn


def add_counts(
    policy: PlackettLuce,
    user: User,
    times: IntArray,
    tables: tuple[CountArray, CountArray],
    *,
    seed: Seed,
    rows: IntArray | None = None,
) -> None:
    """Show each query so many times to a user who reads on, and add displays and clicks to the tables; ``rows`` as there.

    The law of ``simulate`` given how often it draws each query, at less cost: nothing is kept but the counts.
    """
    if not user.reads_on:
        raise ValueError(f"a {user.name} user may stop reading, so simulate single impressions instead")
    places = np.empty(int(np.diff(policy.offsets).max(initial=0)), kernels.PLACE)
    arrays, row = UserArrays.of(user.cut(policy.k)), _rows(rows, policy)
    kernels.simulate_queries(policy.scores, policy.offsets, arrays, times, places, kernel_state(seed), row, *tables)


def examinations(shown: CountArray, clicked: CountArray, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Expected examinations, at that position bias, and clicks of each document, from tables of shows and clicks."""
    examined, clicks = np.empty((2, len(shown)))
    kernels.examinations(shown, clicked, np.ascontiguousarray(theta, np.float64), examined, clicks)
    return examined, clicks
