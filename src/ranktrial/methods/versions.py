"""Versions of the design of a simulated run: what each was made for, what came of it, and the law of its impressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ranktrial.arrays import FloatArray, IntArray
from ranktrial.methods._kernels.displays import clicked_documents
from ranktrial.methods.displays import Displays, valued
from ranktrial.methods.influence import ThetaInfluence
from ranktrial.position_bias import Counts
from ranktrial.rankings import Mixture, Moments, Pair
from ranktrial.rankings.values import DesignRows, Prediction, checked_prediction, expected_value, value_rows
from ranktrial.users import User

LAW_QUERIES = 4_000  # enough to know the law of an impression by, with its mean known
NEARLY_ALL = 0.8  # share of queries from which on a design of all of them costs no more


@dataclass(frozen=True, eq=False)
class Covered:
    """Queries that a version has designs of: all of a pair, or some that were chosen by chance alone.

    Attributes:
        pair: The two rankers on these queries.
        user: Who clicks on their documents.
        queries: Their numbers in the pair that they were chosen from.
        documents: Numbers of their documents there.
        delta: True difference over all queries of the run.
        came: How often each comes, in each stretch that is to be drawn.
    """

    pair: Pair
    user: User
    queries: IntArray
    documents: IntArray
    delta: float
    came: Sequence[IntArray] = ()

    @classmethod
    def all_of(cls, pair: Pair, user: User, delta: float) -> Covered:
        return cls(pair, user, np.arange(pair.n_queries), np.arange(pair.n_documents), delta)

    def of(self, queries: IntArray) -> Covered:
        """Some of these queries."""
        pair, documents = self.pair.of_queries(queries)
        came = [n[queries] for n in self.came]
        return Covered(pair, self.user.of(documents), self.queries[queries], documents, self.delta, came)

    def chosen(self, random: np.random.Generator) -> Covered:
        """Choose by chance as many of these queries as tell the law of an impression; all where they are no more."""
        n = self.pair.n_queries
        return self if n <= LAW_QUERIES else self.of(np.sort(random.permutation(n)[:LAW_QUERIES]))

    def coming(self, ahead: Sequence[int], n_queries: int, random: np.random.Generator) -> Covered:
        """The queries that come in stretches of so many impressions of ``n_queries``, and so many more by chance that there are
        ``LAW_QUERIES`` to tell the law of an impression."""
        n = self.pair.n_queries
        whole = replace(self, came=[random.multinomial(to, np.full(n_queries, 1 / n_queries))[:n] for to in ahead])
        wanted = np.sum(whole.came, axis=0) > 0
        others = np.flatnonzero(~wanted)
        wanted[random.permutation(others)[: max(LAW_QUERIES - (n - len(others)), 0)]] = True
        return whole if wanted.mean() > NEARLY_ALL else whole.of(np.flatnonzero(wanted))

    @cached_property
    def missed(self) -> float:
        """Share of the true difference that the other queries of the run have beyond these."""
        return self.delta - self.pair.delta(self.user)


@dataclass(frozen=True, eq=False)
class DesignVersion:
    """One version of the design, what it was made from, and what came of it.

    Attributes:
        begin: Impressions before it.
        covered: The queries that it is made for.
        policy: Distribution of the rankings shown for these.
        theta: Position bias it was made with.
        prediction: Relevance that its impressions are valued with; None for IPS.
        estimate: Estimate by which they are valued.
        note: Note of the estimate of position bias.
        shown: How often each ranking of the policy was shown.
        clicked: How often it was clicked at each rank.
    """

    begin: int
    covered: Covered
    policy: Mixture
    theta: FloatArray
    prediction: Prediction
    estimate: str
    note: str
    shown: IntArray
    clicked: IntArray

    def displays(self, theta: FloatArray) -> Displays:
        """Displays valued at a position bias."""
        return valued(self.covered.pair, self.policy, theta, self.prediction, estimate=self.estimate)

    def moments(self, theta: FloatArray) -> Moments:
        """Moments of one impression, valued at a position bias; queries that are not covered have their part in the mean."""
        found = self.displays(theta).moments(self.covered.user)
        return replace(found, mean=found.mean + self.covered.missed)

    def sum_of_x(self, theta: FloatArray) -> float:
        """Sum of x over the impressions, valued at a position bias; most versions showed few of their rankings."""
        rows = np.flatnonzero(self.shown)
        policy = self.policy
        pair = self.covered.pair
        lam = pair.lam(theta)
        query = np.searchsorted(policy.offsets, rows, side="right") - 1
        rank_aware = self.estimate == "rank-aware"
        prediction = checked_prediction(self.prediction, len(lam), rank_aware=rank_aware)
        table = DesignRows.of(pair.offsets, policy.offsets, policy.rankings, policy.weights)
        x = value_rows(rows, query, table, lam, prediction, theta, rank_aware=rank_aware).affine
        base = expected_value(lam, prediction, pair.offsets, known_queries=False)[query] + x.base
        return float(base @ self.shown[rows] + (x.values * self.clicked[rows]).sum())

    def counts(self, n_documents: int) -> Counts:
        """Counts of the documents that were clicked, for fitting position bias."""
        rows, queries, shown, clicked, expected = clicked_documents(
            self.policy.rankings, self.policy.weights, self.policy.offsets, self.shown, self.clicked, self.policy.n_documents
        )  # fmt: skip
        documents, queries = self.covered.documents[rows], self.covered.queries[queries]
        return Counts(n_documents, documents, shown, clicked, queries, expected)

    @cached_property
    def true_theta(self) -> FloatArray:
        """Position bias of users who follow it."""
        return np.asarray(self.covered.user.slope / self.covered.user.slope[0])

    @cached_property
    def true_moments(self) -> Moments:
        """Moments of one impression at the true position bias."""
        return self.moments(self.true_theta)

    @cached_property
    def influence(self) -> ThetaInfluence:
        """Influence of fitting theta, by the design, to the clicks on one impression."""
        return ThetaInfluence.of_displays(self.displays(self.true_theta), self.covered.pair, self.covered.user)

    def influence_of(self, impressions: int, given: str) -> ThetaInfluence:
        """Influence of fitting theta, given the "design" or what was "shown", to the clicks on so many impressions."""
        if given == "design":
            return self.influence * impressions
        displays = self.displays(self.true_theta)
        of_drawn = ThetaInfluence.of_displays(displays, self.covered.pair, self.covered.user, shown=self.shown)
        return of_drawn * (impressions / float(self.shown.sum()))
