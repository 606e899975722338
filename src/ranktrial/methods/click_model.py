"""Estimates by the click model: values of impressions at a position bias and a predicted relevance.

Shared by the methods that value clicks so, whatever they show: ``LogOpt``, and ``AB`` with such an estimate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ranktrial.arrays import FloatArray, IntArray
from ranktrial.methods._kernels.displays import add_display_counts
from ranktrial.methods.adaptive import SETTLED, Adaptive
from ranktrial.methods.base import LiveMethod, Method
from ranktrial.methods.beliefs import Beliefs, Evidence, expected_beliefs, learnt, with_bias_refitted
from ranktrial.methods.displays import Displays, valued
from ranktrial.methods.influence import ThetaInfluence
from ranktrial.methods.searches import SHORT_LOG, FoldSums, folds_of, sampled_rows, searches_of
from ranktrial.methods.versions import Covered, DesignVersion
from ranktrial.position_bias import Counts, Examinations
from ranktrial.position_bias._kernels import conditional_equation
from ranktrial.position_bias.identifiability import exposure
from ranktrial.rankings import Mixture, Moments, Pair
from ranktrial.rankings.traffic import display_counts
from ranktrial.rankings.values import Prediction
from ranktrial.seeds import Seed, children, generator
from ranktrial.users import User

ESTIMATES = ("ips", "constant", "doubly-robust", "rank-aware")
ROBUST = ("doubly-robust", "rank-aware")
LEAST_RELEVANCE = 1e-4  # in a design: a document of none would never be shown, and values need every one that differs
SCHEDULE = (100, 1_000, 10_000, 100_000, 1_000_000)


class ClickModelMethod(Adaptive, LiveMethod, abstract=True):
    """A method that values clicks by the click model."""

    relevance: str
    estimate: str

    def policy(self, pair: Pair, beliefs: Beliefs | None = None, *, zeta: FloatArray | None = None) -> Mixture:
        raise NotImplementedError

    def displays(self, pair: Pair, beliefs: Beliefs | None = None) -> Displays:
        """Displays with the pair's theta, as before any click, unless beliefs are given."""
        known = Beliefs(pair.known_theta) if beliefs is None else beliefs
        return valued(pair, self.policy(pair, known), known.theta, known.relevance, estimate=self.estimate)

    def stages(self, pair: Pair, user: User, theta: FloatArray, *, seed: Seed) -> SimulatedTrial:
        return SimulatedTrial(self, pair, user, theta, seed)

    def learn(self, evidence: Evidence, beliefs: Beliefs) -> Beliefs:
        return learnt(evidence, beliefs, bias=self.bias)

    def planned_beliefs(self, pair: Pair, user: User) -> Beliefs:
        """Forecast of the beliefs that clicks lead to, without document effects and with the least share of A/B traffic."""
        return expected_beliefs(pair, user)


def planned_displays(method: Method, pair: Pair, user: User) -> Displays:
    """Displays to plan with, as far as they are known before any click: with the beliefs that clicks lead to."""
    if isinstance(method, ClickModelMethod) and method.traits.needs_position_bias:
        return method.displays(pair, method.planned_beliefs(pair, user))
    return method.displays(pair)


def planned_moments(method: Method, pair: Pair, user: User) -> Moments:
    """Moments to plan with, those of ``planned_displays``; displays that are too many to list are drawn."""
    if isinstance(method, ClickModelMethod) and method.traits.needs_position_bias:
        return planned_displays(method, pair, user).moments(user)
    return method.drawn_moments(pair, user, seed=0)


@dataclass(frozen=True, eq=False)
class DrawnBefore:
    """Impressions that stay as they were drawn: those from before theta was settled, whose designs may be far off.

    Attributes:
        impressions: How many.
        sum_x: Sum of x over them, at the true position bias.
        score: Score of the equation for theta, there.
        influence: Its information, and what x gains by theta; what was drawn has no variance.
    """

    impressions: int
    sum_x: float
    score: FloatArray
    influence: ThetaInfluence


class SimulatedTrial:
    """The log of a simulated run so far, as counts, and the method's current idea of its users."""

    def __init__(self, method: ClickModelMethod, pair: Pair, user: User, theta: FloatArray, seed: Seed) -> None:
        self.method = method
        self.n_queries = pair.n_queries
        self.beliefs = Beliefs(theta)
        user = user.cut(pair.k)
        self._follow(Covered.all_of(pair, user, pair.delta(user)))
        self.zeta = np.maximum(user.zeta, LEAST_RELEVANCE) if method.relevance == "true" else None  # for the design
        self.prediction: Prediction = None if method.estimate == "ips" else self.beliefs.relevance  # for the estimate
        drawing, self.folding = children(seed, 2)
        self.drawing = generator(drawing)
        self.versions: list[DesignVersion] = []
        self._parts: list[Counts] = []  # of each version
        self._early: DrawnBefore | None = None
        self.agree: bool | None = True  # a simulation has no other estimates of its log: they are taken to agree
        self.sum_x: float | None = 0.0  # None: not worked out at the current position bias
        self.sum_squares, self.clicks = 0.0, 0.0
        self.shown, self.clicked = np.zeros((2, len(self.documents), pair.k))  # of all versions
        self.impressions = 0
        self.refitted = 0  # impressions that theta was last fitted to

    def _follow(self, queries: Covered) -> None:
        """Go on with these queries, whose documents are numbered anew in the tables of shows and clicks."""
        pair = queries.pair
        self.pair, self.user = pair, queries.user
        self.all = Covered.all_of(pair, queries.user, queries.delta)
        self.documents = pair.listed  # a design shows no others
        self.row = np.zeros(pair.n_documents, np.int64)  # of a document in the tables
        self.row[self.documents] = np.arange(len(self.documents))
        self.searches = searches_of(pair, self.documents, self._seen, self._folds)

    def next_version(self, ahead: Sequence[int] | None = None) -> None:
        """Fit, revalue what was shown before, make the next design.

        With the lengths of the stretches that will be drawn of it, it is made for the queries alone that are needed: those that
        come, and in a long log some that are followed from then on. What a run learns of a query it learns from that query's
        own searches and, of lists and theta, from far more than it needs.
        """
        if self.versions:
            self._learn()
        covered = self.all
        if ahead is not None:
            long = self.impressions >= SETTLED and (self.method.bias == "known" or self.settled)
            if long and (some := self.all.chosen(self.drawing)) is not self.all:
                rows = self.row[some.documents[some.pair.listed]]
                self.beliefs, self.zeta, self.prediction = self._known_of(some)
                self.shown, self.clicked = self.shown[rows], self.clicked[rows]
                self._follow(some)
            covered = self.all.coming(ahead, self.n_queries, self.drawing)
        self.ahead = iter(covered.came)
        known, zeta, prediction = self._known_of(covered)
        policy = self.method.policy(covered.pair, known, zeta=zeta)
        shown, clicked = np.zeros(len(policy.rankings), np.int64), np.zeros(policy.rankings.shape, np.int64)
        begin, estimate = self.impressions, self.method.estimate
        self.versions.append(
            DesignVersion(begin, covered, policy, known.theta, prediction, estimate, known.note, shown, clicked)
        )

    def _known_of(self, covered: Covered) -> tuple[Beliefs, FloatArray | None, Prediction]:
        """Beliefs, true relevance (if known) and predicted relevance of the documents of some queries."""
        known, zeta, prediction = self.beliefs, self.zeta, self.prediction
        if covered.pair is self.pair:
            return known, zeta, prediction
        some = covered.documents
        return (
            replace(known, effects=None if known.effects is None else known.effects[some]),
            None if zeta is None else zeta[some],
            prediction[some] if isinstance(prediction, np.ndarray) else prediction,
        )

    def refit(self) -> None:
        """Fit position bias to all clicks so far, and revalue them; what is shown stays."""
        if self.refitted < self.impressions:
            self.beliefs = with_bias_refitted(self.parts, self.beliefs)
            self.sum_x = None
            self.refitted = self.impressions

    @property
    def parts(self) -> list[Counts]:
        """Counts of each version, of the documents that were clicked: designs are never compared."""
        new = self.versions[len(self._parts) :]
        self._parts += [version.counts(self.pair.n_documents) for version in new]
        return self._parts

    @property
    def settled(self) -> bool:
        """True once theta is known so well that its error is linear in the clicks, and users click as assumed."""
        fitted = self.impressions >= SETTLED and self.beliefs.equation is not None
        return fitted and self.user.follows_position_bias

    def _learn(self) -> None:
        method = self.method
        before = self.beliefs.theta
        counts = Counts(self.pair.n_documents, self.documents, self.shown, self.clicked)
        settled = self.settled
        if settled:
            self.refit()
        elif method.bias == "estimated":
            counts = Counts.stacked(self.parts)
            self.refitted = self.impressions
        evidence = Evidence([counts], self.shown.sum(0), self.agree, self.searches, theta_fitted=settled)
        self.beliefs = method.learn(evidence, self.beliefs)
        if not np.array_equal(self.beliefs.theta, before):
            self.sum_x = None
        if method.estimate in ROBUST:
            self.prediction = self.beliefs.prediction(*self.pair.ranks)
        if method.estimate == "constant":
            self.prediction = self.beliefs.relevance

    def _seen(self, theta: FloatArray) -> Examinations:
        return Examinations.from_counts(self.shown, self.clicked, theta)

    def _folds(self, theta: FloatArray) -> FoldSums:
        """Every show falls into one of the folds by chance."""
        whole = self.impressions <= SHORT_LOG
        rows = np.flatnonzero(self.shown.any(1)) if whole else np.empty(0, np.int64)
        rows = np.union1d(rows, sampled_rows(self.pair, self.documents))
        shown, clicked = self.shown[rows], self.clicked[rows]
        n = folds_of(self.clicked.sum())
        random = generator(self.folding)  # the same counts fall into the same folds
        parts = zip(*(_in_folds(table, n, random) for table in (clicked, shown - clicked)))
        return FoldSums(rows, whole, [Examinations.from_counts(hit + missed, hit, theta) for hit, missed in parts])

    def show(self, begin: int, end: int, points: IntArray) -> list[tuple[float, float, float]]:
        """Show impressions begin..end with the current design; estimate, mean square and CTR at each point."""
        marks = np.unique([*(points - begin), end - begin])
        displays = self.versions[-1].displays(self.beliefs.theta)
        sums, shown, clicked = displays.simulate_counts(self.user, marks, seed=self._next_seed())
        before = np.array([self._drawn_sum(), self.sum_squares, self.clicks])
        rows = (before + sums[np.searchsorted(marks, points - begin)]) / points[:, None]
        self.sum_x, self.sum_squares, self.clicks = (before + sums[-1]).tolist()
        self._remember(end - begin, shown, clicked)
        return [(x, square, ctr) for x, square, ctr in rows.tolist()]

    def draw(self, begin: int, end: int) -> None:
        """Draw the counts of impressions begin..end at once: what a fit needs of them."""
        version = self.versions[-1]
        came = next(self.ahead, end - begin)
        counts = display_counts(version.policy, version.covered.user, came, seed=self._next_seed())
        self.sum_x = None
        self._remember(end - begin, *counts)

    def _remember(self, impressions: int, shown: IntArray, clicked: IntArray) -> None:
        """Add counts of displays of the current version to those that fits are made from."""
        version = self.versions[-1]
        row = self.row[version.covered.documents]
        add_display_counts(version.policy.rankings, row, shown, clicked, self.shown, self.clicked)
        version.shown[:] += shown
        version.clicked[:] += clicked
        self.impressions += impressions
        del self._parts[len(self.versions) - 1 :]

    def _next_seed(self) -> Seed:
        return int(self.drawing.integers(2**63))

    def _drawn_sum(self) -> float:
        """Sum of x over what was drawn, at the current position bias."""
        if self.sum_x is None:
            self.sum_x = sum(version.sum_of_x(self.beliefs.theta) for version in self.versions)
        return self.sum_x

    def report(self) -> tuple[float, float, float]:
        """Estimate, mean square and CTR so far, with position bias from all clicks."""
        self.refit()
        n = self.impressions
        return self._drawn_sum() / n, self.sum_squares / n, self.clicks / n

    def law(self, *, seed: Seed) -> Moments:
        """Moments of one impression of the current design, valued at the current position bias."""
        return self.versions[-1].moments(self.beliefs.theta)

    def past(self) -> FloatArray:
        """Cumulants of the sum of x so far: of what was drawn, valued at the current position bias; what came after that was
        settled has a law, with position bias from all clicks."""
        equation = self.beliefs.equation
        if equation is None or not self.settled:
            return np.array([self._drawn_sum(), 0.0, 0.0, 0.0])
        early = self._before_settled(equation.given)
        ends = [*(version.begin for version in self.versions[1:]), self.impressions]
        cumulants = np.array([early.sum_x, 0.0, 0.0, 0.0])
        influences = [early.influence]
        for version, end in zip(self.versions, ends):
            n = end - max(version.begin, early.impressions)
            if n > 0:
                law = version.true_moments
                cumulants += n * np.array([law.mean, law.variance, law.third, law.fourth])
                influences.append(version.influence_of(n, equation.given))
        influence = ThetaInfluence.total(influences)
        cumulants[:2] += influence.coefficients @ early.score, influence.added_variance
        return cumulants

    def _before_settled(self, given: str) -> DrawnBefore:
        """The impressions from before theta was settled, as they were drawn."""
        if self._early is None:
            theta = self.versions[0].true_theta
            found = [conditional_equation(exposure(part, given), part.clicked, theta) for part in self.parts]
            score, information = (np.sum([one[i] for one in found], axis=0) for i in (1, 2))
            nothing = np.zeros_like(information)
            gain = np.sum([version.shown.sum() * version.influence.gain for version in self.versions], axis=0)
            sum_x = sum(version.sum_of_x(theta) for version in self.versions)
            influence = ThetaInfluence(gain, information, nothing, nothing[0])
            self._early = DrawnBefore(self.impressions, sum_x, score, influence)
        return self._early


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
