"""Estimates by the click model: what impressions are worth at a position bias and a guess of relevance.

Shared by the methods that value clicks so, whatever they show: ``LogOpt``, and ``AB`` with such an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ranktrial.arrays import NO_DOCUMENT, FloatArray, IntArray, ragged
from ranktrial.methods._kernels.displays import add_display_counts, clicked_documents
from ranktrial.methods.beliefs import (
    FOLDS,
    RELEVANCES,
    Beliefs,
    Evidence,
    FoldSums,
    Searches,
    folds_of,
    with_bias_refitted,
)
from ranktrial.methods.displays import Displays, Linear
from ranktrial.position_bias import Counts, Examinations
from ranktrial.rankings import Mixture, Moments, Pair, affine_values, exposure_of
from ranktrial.rankings.traffic import display_counts
from ranktrial.rankings.values import Guess, checked_guess, expected_value, value_rows
from ranktrial.seeds import Seed, children, generator
from ranktrial.users import User

ESTIMATES = ("ips", "constant", "doubly-robust", "rank-aware")
ROBUST = ("doubly-robust", "rank-aware")
LEAST_RELEVANCE = 1e-4  # in a design: a document of none would never be shown, and values need every one that differs
SEARCHES = 500  # enough to know a budget's price by
SHORT_LOG = 10_000  # impressions: what a longer log says of lists does not depend on a fold of it
MANY = 1e6  # impressions of a query that leave nothing to chance
SCHEDULE = (100, 1_000, 10_000, 100_000, 1_000_000)


class LearningMethod(Protocol):
    """What a simulated run asks of a method that values clicks by the click model and learns on the way."""

    @property
    def bias(self) -> str: ...
    @property
    def relevance(self) -> str: ...
    @property
    def estimate(self) -> str: ...
    @property
    def schedule(self) -> Sequence[int]: ...
    def policy(self, pair: Pair, beliefs: Beliefs | None = None, *, zeta: FloatArray | None = None) -> Mixture: ...
    def learn(self, evidence: Evidence, beliefs: Beliefs) -> Beliefs: ...


def valued(pair: Pair, policy: Mixture, theta: FloatArray, guess: Guess, *, estimate: str) -> Displays:
    """What impressions of a design are worth at a position bias and, but for "ips", a guess of relevance."""
    affine = affine_values(
        policy,
        pair.lam(theta),
        theta,
        pair.offsets,
        zeta_hat=None if estimate == "ips" else guess,
        rank_aware=estimate == "rank-aware",
    )
    return Displays(policy, Linear(affine.values, affine.base))


def expected_beliefs(pair: Pair, user: User) -> Beliefs:
    """What clicks will come to tell: the pair's position bias, relevance as one number from the clicks per impression, and what
    places in the lists say of it."""
    theta = pair.known_theta
    examined = (pair.tables != NO_DOCUMENT) @ theta
    fit = expected_searches(pair, user).fit(theta)
    return Beliefs(
        theta,
        float(np.clip(np.mean(pair.ctr(user)) / examined.mean(), *RELEVANCES)),
        lists=(float(fit.constant), *fit.slopes.tolist()),
    )


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
    some, offsets = sampled_queries(pair), np.searchsorted(listed, pair.offsets)
    return ragged(offsets[some], np.diff(offsets)[some])


def searches_of(
    pair: Pair,
    listed: IntArray,
    seen: Callable[[FloatArray], Examinations],
    folds: Callable[[FloatArray], FoldSums],
) -> Searches:
    """The queries of a pair as searches that come equally often, some of them if there are many."""
    some, rows = sampled_queries(pair), sampled_rows(pair, listed)
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


@dataclass(frozen=True, eq=False)
class DesignVersion:
    """One version of the design, what it was made from, and what came of it.

    Attributes:
        begin: Impressions before it.
        policy: What it shows.
        theta: Position bias it was made with.
        guess: Relevance that its impressions are valued with; None for IPS.
        note: What the estimate of position bias had to say.
        shown: How often each ranking of the policy was shown.
        clicked: How often it was clicked at each rank.
    """

    begin: int
    policy: Mixture
    theta: FloatArray
    guess: Guess
    note: str
    shown: IntArray
    clicked: IntArray


class SimulatedTrial:
    """The log of a simulated run so far, as counts, and the method's current idea of its users."""

    def __init__(self, method: LearningMethod, pair: Pair, user: User, theta: FloatArray, seed: Seed) -> None:
        self.method, self.pair, self.user, self.beliefs = method, pair, user.cut(pair.k), Beliefs(theta)
        self.zeta = np.maximum(user.zeta, LEAST_RELEVANCE) if method.relevance == "true" else None  # for the design
        self.guess: Guess = None if method.estimate == "ips" else self.beliefs.relevance  # for the estimate
        drawing, self.folding = children(seed, 2)
        self.drawing = generator(drawing)
        self.versions: list[DesignVersion] = []
        self.agree: bool | None = True  # a simulation has no other estimates of its log: they are taken to agree
        self.sum_x: float | None = 0.0  # None: not worked out at the current position bias
        self.sum_squares, self.clicks = 0.0, 0.0
        self.documents = pair.listed  # a design shows no others
        self.row = np.zeros(pair.n_documents, np.int64)  # of a document in the tables
        self.row[self.documents] = np.arange(len(self.documents))
        self.shown, self.clicked = np.zeros((2, len(self.documents), pair.k))  # of all versions
        self.parts: list[Counts] = []  # of each version, documents that were clicked: designs are never compared
        self.searches = searches_of(pair, self.documents, self._seen, self._folds)

    def next_version(self) -> None:
        """Fit, revalue what was shown before, make the next design."""
        begin = self.impressions
        if self.versions:
            self._learn()
        policy = self.method.policy(self.pair, self.beliefs, zeta=self.zeta)
        shown, clicked = np.zeros(len(policy.rankings), np.int64), np.zeros(policy.rankings.shape, np.int64)
        known = self.beliefs
        self.versions.append(DesignVersion(begin, policy, known.theta, self.guess, known.note, shown, clicked))

    def refit(self) -> None:
        """Fit position bias to all clicks so far, and revalue them; what is shown stays."""
        self.beliefs = with_bias_refitted(self.parts, self.beliefs)
        self.sum_x = None

    @property
    def impressions(self) -> int:
        """Number of impressions so far."""
        return int(sum(version.shown.sum() for version in self.versions))

    def _learn(self) -> None:
        method, pair, before = self.method, self.pair, self.beliefs.theta
        told = Evidence([Counts.stacked(self.parts)], self.shown.sum(0), self.agree, self.searches)
        self.beliefs = method.learn(told, self.beliefs)
        if not np.array_equal(self.beliefs.theta, before):
            self.sum_x = None
        if method.estimate in ROBUST:
            self.guess = self.beliefs.guess(*pair.ranks)
        if method.estimate == "constant":
            self.guess = self.beliefs.relevance

    def _seen(self, theta: FloatArray) -> Examinations:
        return Examinations.from_counts(self.shown, self.clicked, theta)

    def _folds(self, theta: FloatArray) -> FoldSums:
        """Every show falls into one of the folds by chance."""
        whole = self.impressions <= SHORT_LOG
        rows = np.flatnonzero(self.shown.any(1)) if whole else np.empty(0, np.int64)
        rows = np.union1d(rows, sampled_rows(self.pair, self.documents))
        shown, clicked = self.shown[rows], self.clicked[rows]
        n, random = folds_of(self.clicked.sum()), generator(self.folding)  # the same counts fall into the same folds
        parts = zip(*(_in_folds(table, n, random) for table in (clicked, shown - clicked)))
        return FoldSums(rows, whole, [Examinations.from_counts(hit + missed, hit, theta) for hit, missed in parts])

    def _displays(self, version: DesignVersion) -> Displays:
        """A version's displays, valued at the current position bias."""
        return valued(self.pair, version.policy, self.beliefs.theta, version.guess, estimate=self.method.estimate)

    def show(self, begin: int, end: int, points: IntArray) -> list[tuple[float, float, float]]:
        """Show impressions begin..end with the current design; estimate, mean square and CTR at each point."""
        marks = np.unique([*(points - begin), end - begin])
        displays = self._displays(self.versions[-1])
        sums, shown, clicked = displays.simulate_counts(self.user, marks, seed=self._next_seed())
        before = np.array([self.past(), self.sum_squares, self.clicks])
        rows = (before + sums[np.searchsorted(marks, points - begin)]) / points[:, None]
        self.sum_x, self.sum_squares, self.clicks = (before + sums[-1]).tolist()
        self._remember(shown, clicked)
        return [(x, square, ctr) for x, square, ctr in rows.tolist()]

    def law(self, *, seed: Seed) -> Moments:
        """Moments of one impression of the current design, valued at the current position bias."""
        return self._displays(self.versions[-1]).moments(self.user)

    def draw(self, begin: int, end: int) -> None:
        """Draw the counts of impressions begin..end at once: what a fit needs of them."""
        counts = display_counts(self.versions[-1].policy, self.user, end - begin, seed=self._next_seed())
        self.sum_x = None
        self._remember(*counts)

    def _next_seed(self) -> Seed:
        return int(self.drawing.integers(2**63))

    def past(self) -> float:
        if self.sum_x is None:
            lam = self.pair.lam(self.beliefs.theta)
            self.sum_x = sum(self._sum_of(version, lam) for version in self.versions)
        return self.sum_x

    def _sum_of(self, version: DesignVersion, lam: FloatArray) -> float:
        """Sum of x over the impressions of a version, at the current position bias; most versions showed few of their
        rankings."""
        rows, policy = np.flatnonzero(version.shown), version.policy
        query = np.searchsorted(policy.offsets, rows, side="right") - 1
        rank_aware = self.method.estimate == "rank-aware"
        guess = checked_guess(version.guess, len(lam), rank_aware=rank_aware)
        design = self.pair.offsets, policy.offsets, policy.rankings, policy.weights
        x = value_rows(rows, query, *design, lam, guess, self.beliefs.theta, rank_aware=rank_aware).affine
        base = expected_value(lam, guess, self.pair.offsets, known_queries=False)[query] + x.base
        return float(base @ version.shown[rows] + (x.values * version.clicked[rows]).sum())

    def _remember(self, shown: IntArray, clicked: IntArray) -> None:
        """Add counts of displays of the current version to those that fits are made from."""
        version, n = self.versions[-1], self.pair.n_documents
        policy = version.policy
        add_display_counts(policy.rankings, self.row, shown, clicked, self.shown, self.clicked)
        version.shown[:] += shown
        version.clicked[:] += clicked
        documents, queries, *tables = clicked_documents(
            policy.rankings, policy.weights, policy.offsets, version.shown, version.clicked, n
        )
        of_version = Counts(n, documents, tables[0], tables[1], queries, tables[2])
        self.parts[len(self.versions) - 1 :] = [of_version]


def _in_folds(table: FloatArray, folds: int, random: np.random.Generator) -> Iterator[FloatArray]:
    """Counts of a table in each fold, into which every one falls by chance."""
    some = np.flatnonzero(table)
    left = table.ravel()[some].astype(np.int64)
    for fold in range(folds):
        here = random.binomial(left, 1 / (folds - fold))
        left -= here
        found = np.zeros(table.size)
        found[some] = here
        yield found.reshape(table.shape)
