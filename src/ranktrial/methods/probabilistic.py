"""Probabilistic interleaving (Hofmann, Whiteson and de Rijke 2011).

Each ranker is a softmax over ranks, P(d) proportional to rank(d)^-tau. At each rank a fair coin picks the ranker and a document
is drawn from it without replacement. Given the list, A placed the document at a rank with probability p_A / (p_A + p_B),
independently of the other ranks; x is the expected sign of the clicks so assigned. When a list is used up the other fills
the page; clicks count only within the length of the shorter list, so a random clicker favours neither ranker on any input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, DocumentArray, FloatArray, IntArray, offsets_of
from ranktrial.methods._kernels.probabilistic import draw_probabilistic, simulate_probabilistic
from ranktrial.methods.base import Method, Traits, spelled
from ranktrial.methods.displays import Displays, Majority, TooManyDisplaysError
from ranktrial.methods.trajectory import Trajectory
from ranktrial.rankings import Mixture, Moments, Pair
from ranktrial.rankings._kernels import majority_moments
from ranktrial.rankings.lists import UserArrays, check_user
from ranktrial.seeds import Seed, kernel_state
from ranktrial.users import User

MOST_DISPLAYS = 200_000
DRAWS = 50_000  # pairs of displays over all queries; the standard error of the mean is then about 3e-4
SQUARES = 10_000  # of these, for the mean of x^2, which takes longer to work out and varies less

Step = tuple[int, float, float, float]  # document, probability, P(A placed it), P(B placed it)


class _WeightedLists(NamedTuple):
    """Both rankers' lists, places of their documents in the other list (-1: nowhere), weights by place and their tail sums."""

    documents_a: DocumentArray
    offsets_a: IntArray
    documents_b: DocumentArray
    offsets_b: IntArray
    a_in_b: NDArray[np.int32]
    b_in_a: NDArray[np.int32]
    weight: FloatArray
    tail: FloatArray


@dataclass(frozen=True, repr=False)
class Probabilistic(Method):
    """Probabilistic interleaving.

    Attributes:
        tau: How fast a ranker's distribution falls with rank; the paper uses 4, Hofmann et al. 3.

    >>> for shown in Probabilistic(tau=1).displays(Pair.from_lists(["ab"], ["bc"], k=1)).of_query(0):
    ...     print(shown.documents, round(shown.probability, 3), [round(float(credit), 3) for credit in shown.credits])
    (0,) 0.333 [1.0]
    (1,) 0.5 [-0.333]
    (2,) 0.167 [-1.0]
    """

    tau: float = spelled(4)

    traits = Traits(zero_on_identical=False, shows_top_only=False, lists_displays=False)

    def __post_init__(self) -> None:
        checks.between("tau", self.tau, 0, 30)

    def displays(self, pair: Pair) -> Displays:
        """All displays, where there are few enough to list; otherwise see ``sampled_displays``."""
        rows: list[list[Step]] = []
        sizes = []
        for query in range(pair.n_queries):
            before = len(rows)
            for row in self._displays_of(tuple(pair.a[query].tolist()), tuple(pair.b[query].tolist()), pair.k):
                rows.append(row)
                if len(rows) > MOST_DISPLAYS:
                    raise TooManyDisplaysError(
                        f"probabilistic interleaving has more than {MOST_DISPLAYS:,} displays on these queries "
                        f"(reached query {query}); use sampled_displays(pair, draws, seed=...) instead"
                    )
            sizes.append(len(rows) - before)
        rankings = np.full((len(rows), pair.k), NO_DOCUMENT, np.int32)
        to_a, to_b = np.zeros(rankings.shape), np.zeros(rankings.shape)
        weights = np.ones(len(rows))
        for i, row in enumerate(rows):
            for r, (document, probability, by_a, by_b) in enumerate(row):
                rankings[i, r], to_a[i, r], to_b[i, r] = document, by_a, by_b
                weights[i] *= probability
        mixture = Mixture(rankings, weights, offsets_of(sizes), pair.n_documents)
        return Displays(mixture, Majority(to_a[:, None, :], to_b[:, None, :]))

    def _displays_of(self, a: tuple[int, ...], b: tuple[int, ...], k: int) -> Iterator[list[Step]]:
        """Every display of one query, grown rank by rank."""
        softmax = [{d: (r + 1.0) ** -self.tau for r, d in enumerate(ranked)} for ranked in (a, b)]

        def grow(row: list[Step]) -> Iterator[list[Step]]:
            placed = {step[0] for step in row}
            left = [{d: w for d, w in ranker.items() if d not in placed} for ranker in softmax]
            if len(row) == k or not (left[0] or left[1]):
                yield row
                return
            credited = len(row) < min(len(a), len(b))
            share = 0.5 if left[0] and left[1] else 1.0
            totals = [sum(sorted(ranker.values())) for ranker in left]
            for d in {**left[0], **left[1]}:
                p_a, p_b = (ranker.get(d, 0.0) / total if total else 0.0 for ranker, total in zip(left, totals))
                by_a, by_b = (p_a / (p_a + p_b), p_b / (p_a + p_b)) if credited else (0.0, 0.0)
                yield from grow([*row, (d, share * (p_a + p_b), by_a, by_b)])

        return grow([])

    def sampled_displays(self, pair: Pair, draws: int, *, seed: Seed) -> Displays:
        """``draws`` displays of every query, drawn by the method: its moments and placement with sampling error only in
        what is shown, none in clicks."""
        checks.at_least("draws", draws, 1)
        rankings, to_a, to_b = draw_probabilistic(draws, pair.k, self._lists(pair), kernel_state(seed))
        weights = np.full(len(rankings), 1 / draws)
        mixture = Mixture(rankings, weights, offsets_of([draws] * pair.n_queries), pair.n_documents)
        return Displays(mixture, Majority(to_a[:, None, :], to_b[:, None, :]), note=f"{draws} draws a query")

    def drawn_moments(self, pair: Pair, user: User, *, seed: Seed) -> Moments:
        """Moments from drawn displays, clicks on which are averaged over, not drawn.

        Every draw of pair (A, B) comes with the draw of (B, A) from the same random words: each coin falls the other way, which
        takes out 90 to 95 % of the variance of the mean.
        """
        check_user(user, pair.k, pair.n_documents)
        draws = max(2, -(-DRAWS // pair.n_queries))
        one, other = (self.sampled_displays(side, draws, seed=seed) for side in (pair, pair.swapped()))
        mean, opposite = (_expected_signs(displays, user)[:, 0] for displays in (one, other))
        values = (mean - opposite) / 2
        by_query = values.reshape(pair.n_queries, draws)
        error = np.sqrt(by_query.var(axis=1, ddof=1).sum() / draws) / pair.n_queries
        square = float(_expected_signs(one, user, every=-(-len(values) // SQUARES))[:, 1].mean())
        ctr = (one.mixture.ctr(user) + other.mixture.ctr(user)) / 2
        mean_of_all = float(values.mean())
        return Moments(mean_of_all, square - mean_of_all**2, ctr, standard_error=float(error))

    def simulate(
        self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, shortcut: bool = True
    ) -> Trajectory:
        check_user(user, pair.k, pair.n_documents)

        def sums(points: IntArray) -> FloatArray:
            totals = np.zeros((len(points), 3))
            lists, state = self._lists(pair), kernel_state(seed)
            simulate_probabilistic(pair.k, lists, UserArrays.of(user), state, points, totals)
            return totals

        return Trajectory.of_sums(checkpoints, sums)

    def _lists(self, pair: Pair) -> _WeightedLists:
        a, b = pair.a, pair.b
        longest = int(max(np.diff(a.offsets).max(initial=1), np.diff(b.offsets).max(initial=1)))
        weight = np.arange(1, longest + 1, dtype=float) ** -self.tau
        tail = np.concatenate([weight[::-1].cumsum()[::-1], [0.0]])
        places = np.full((2, pair.n_documents), -1, np.int32)
        for place, ranker in zip(places, (a, b)):
            place[ranker.documents] = np.arange(len(ranker.documents)) - np.repeat(
                ranker.offsets[:-1], np.diff(ranker.offsets)
            )
        a_in_b, b_in_a = places[1, a.documents], places[0, b.documents]
        return _WeightedLists(a.documents, a.offsets, b.documents, b.offsets, a_in_b, b_in_a, weight, tail)


def _expected_signs(displays: Displays, user: User, *, every: int | None = None) -> FloatArray:
    """E[x | display]; of every so many displays with E[x^2 | display] beside it."""
    value = displays.value
    rows = slice(None, None, every)
    assert isinstance(value, Majority)
    table = np.ascontiguousarray(displays.mixture.rankings[rows])
    credits = (np.ascontiguousarray(to[rows]) for to in (value.to_a, value.to_b))
    return np.asarray(majority_moments(table, *credits, UserArrays.of(user), every is not None))
