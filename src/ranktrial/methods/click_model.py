"""Estimates by the click model: values of impressions at a position bias and a predicted relevance.

Shared by the methods that value clicks so, whatever they show: ``LogOpt``, and ``AB`` with such an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ranktrial.arrays import NO_DOCUMENT, FloatArray, IntArray, ragged
from ranktrial.methods._kernels.displays import add_display_counts, clicked_documents
from ranktrial.methods.adaptive import SETTLED, Adaptive
from ranktrial.methods.base import LiveMethod, Method
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
from ranktrial.methods.influence import ThetaInfluence
from ranktrial.position_bias import Counts, Examinations
from ranktrial.position_bias._kernels import conditional_equation
from ranktrial.position_bias.identifiability import exposure
from ranktrial.rankings import Mixture, Moments, Pair, affine_values, exposure_of
from ranktrial.rankings.traffic import display_counts
from ranktrial.rankings.values import DesignRows, Prediction, checked_prediction, expected_value, value_rows
from ranktrial.seeds import Seed, children, generator
from ranktrial.users import User

ESTIMATES = ("ips", "constant", "doubly-robust", "rank-aware")
ROBUST = ("doubly-robust", "rank-aware")
LEAST_RELEVANCE = 1e-4  # in a design: a document of none would never be shown, and values need every one that differs
SEARCHES = 500  # enough to know a budget's price by
SHORT_LOG = 10_000  # impressions: what a longer log says of lists does not depend on a fold of it
LAW_QUERIES = 4_000  # enough to know the law of an impression by, with its mean known
NEARLY_ALL = 0.8  # share of queries from which on a design of all of them costs no more
MANY = 1e6  # impressions of a query that leave nothing to chance
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


def valued(pair: Pair, policy: Mixture, theta: FloatArray, prediction: Prediction, *, estimate: str) -> Displays:
    """Displays of a design with their values at a position bias and, except for "ips", a predicted relevance."""
    affine = affine_values(
        policy,
        pair.lam(theta),
        theta,
        pair.offsets,
        zeta_hat=None if estimate == "ips" else prediction,
        rank_aware=estimate == "rank-aware",
    )
    return Displays(policy, Linear(affine.values, affine.base))


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
    some = sampled_queries(pair)
    offsets = np.searchsorted(listed, pair.offsets)
    return ragged(offsets[some], np.diff(offsets)[some])


def searches_of(
    pair: Pair,
    listed: IntArray,
    seen: Callable[[FloatArray], Examinations],
    folds: Callable[[FloatArray], FoldSums],
) -> Searches:
    """The queries of a pair as searches that come equally often, some of them if there are many."""
    some = sampled_queries(pair)
    rows = sampled_rows(pair, listed)
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
class Covered:
    """Queries that a version has designs of: all of a pair, or some that were chosen by chance alone.

    Attributes:
        pair: The two rankers on these queries.
        user: Who clicks on their documents.
        queries: Their numbers in the pair that they were chosen from.
        documents: Numbers of their documents there.
        came: How often each comes, in each stretch that is to be drawn.
    """

    pair: Pair
    user: User
    queries: IntArray
    documents: IntArray
    came: Sequence[IntArray] = ()

    @classmethod
    def all_of(cls, pair: Pair, user: User) -> Covered:
        return cls(pair, user, np.arange(pair.n_queries), np.arange(pair.n_documents))

    def of(self, queries: IntArray) -> Covered:
        """Some of these queries."""
        pair, documents = self.pair.of_queries(queries)
        return Covered(pair, self.user.of(documents), self.queries[queries], documents, [n[queries] for n in self.came])

    def coming(self, ahead: Sequence[int], n_queries: int, random: np.random.Generator) -> Covered:
        """The queries that come in stretches of so many impressions of ``n_queries``, and so many more by chance that there are
        ``LAW_QUERIES`` to tell the law of an impression."""
        n = self.pair.n_queries
        whole = replace(self, came=[random.multinomial(to, np.full(n_queries, 1 / n_queries))[:n] for to in ahead])
        wanted = np.sum(whole.came, axis=0) > 0
        others = np.flatnonzero(~wanted)
        wanted[random.permutation(others)[: max(LAW_QUERIES - (n - len(others)), 0)]] = True
        return whole if wanted.mean() > NEARLY_ALL else whole.of(np.flatnonzero(wanted))


@dataclass(frozen=True, eq=False)
class DesignVersion:
    """One version of the design, what it was made from, and what came of it.

    Attributes:
        begin: Impressions before it.
        covered: The queries that it is made for.
        policy: Distribution of the rankings shown for these.
        theta: Position bias it was made with.
        prediction: Relevance that its impressions are valued with; None for IPS.
        note: Note of the estimate of position bias.
        shown: How often each ranking of the policy was shown.
        clicked: How often it was clicked at each rank.
    """

    begin: int
    covered: Covered
    policy: Mixture
    theta: FloatArray
    prediction: Prediction
    note: str
    shown: IntArray
    clicked: IntArray


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
        self.whole = pair
        self.beliefs = Beliefs(theta)
        self._number(pair, user.cut(pair.k))
        self.delta = pair.delta(self.user)
        self.zeta = np.maximum(user.zeta, LEAST_RELEVANCE) if method.relevance == "true" else None  # for the design
        self.prediction: Prediction = None if method.estimate == "ips" else self.beliefs.relevance  # for the estimate
        drawing, self.folding = children(seed, 2)
        self.drawing = generator(drawing)
        self.versions: list[DesignVersion] = []
        self._parts: list[Counts] = []  # of each version
        self._laws: dict[int, Moments] = {}  # by number of version, at the true position bias
        self._influences: dict[int, ThetaInfluence] = {}  # likewise, of one impression
        self.early: DrawnBefore | None = None
        self.agree: bool | None = True  # a simulation has no other estimates of its log: they are taken to agree
        self.sum_x: float | None = 0.0  # None: not worked out at the current position bias
        self.sum_squares, self.clicks = 0.0, 0.0
        self.shown, self.clicked = np.zeros((2, len(self.documents), pair.k))  # of all versions
        self.impressions = 0
        self.refitted = 0  # impressions that theta was last fitted to

    def next_version(self, ahead: Sequence[int] | None = None) -> None:
        """Fit, revalue what was shown before, make the next design.

        With the lengths of the stretches that will be drawn of it, it is made for the queries alone that are needed: those that
        come, and in a long log some that are followed from then on.
        """
        if self.versions:
            self._learn()
        covered = self.all
        if ahead is not None:
            if self.impressions >= SETTLED and (self.method.bias == "known" or self.settled):
                self._follow(LAW_QUERIES)
            covered = self.all.coming(ahead, self.whole.n_queries, self.drawing)
        self.ahead = iter(covered.came)
        known, zeta, prediction = self._known_of(covered)
        policy = self.method.policy(covered.pair, known, zeta=zeta)
        shown, clicked = np.zeros(len(policy.rankings), np.int64), np.zeros(policy.rankings.shape, np.int64)
        version = DesignVersion(self.impressions, covered, policy, known.theta, prediction, known.note, shown, clicked)
        self.versions.append(version)

    def _known_of(self, covered: Covered) -> tuple[Beliefs, FloatArray | None, Prediction]:
        """Beliefs, true relevance (if known) and predicted relevance of the documents of some queries."""
        known = self.beliefs
        zeta = self.zeta
        prediction = self.prediction
        some = covered.documents
        if covered.pair is self.pair:
            return known, zeta, prediction
        return (
            replace(known, effects=None if known.effects is None else known.effects[some]),
            None if zeta is None else zeta[some],
            prediction[some] if isinstance(prediction, np.ndarray) else prediction,
        )

    def _follow(self, most: int) -> None:
        """Go on with so many queries, chosen by chance: what a run learns of a query it learns from that query's own searches
        and, of lists and theta, from far more than it needs."""
        n = self.pair.n_queries
        if n <= most:
            return
        some = self.all.of(np.sort(self.drawing.permutation(n)[:most]))
        rows = self.row[some.documents[some.pair.listed]]
        self.beliefs, self.zeta, self.prediction = self._known_of(some)
        self.shown, self.clicked = self.shown[rows], self.clicked[rows]
        self._number(some.pair, some.user)

    def _number(self, pair: Pair, user: User) -> None:
        """Number the documents of a pair in the tables of shows and clicks."""
        self.pair, self.user, self.all = pair, user, Covered.all_of(pair, user)
        self.documents = pair.listed  # a design shows no others
        self.row = np.zeros(pair.n_documents, np.int64)  # of a document in the tables
        self.row[self.documents] = np.arange(len(self.documents))
        self.searches = searches_of(pair, self.documents, self._seen, self._folds)

    def refit(self) -> None:
        """Fit position bias to all clicks so far, and revalue them; what is shown stays."""
        if self.refitted < self.impressions:
            self.beliefs = with_bias_refitted(self.parts, self.beliefs)
            self.sum_x = None
            self.refitted = self.impressions

    @property
    def parts(self) -> list[Counts]:
        """Counts of each version, of the documents that were clicked: designs are never compared."""
        for version in self.versions[len(self._parts) :]:
            policy, covered = version.policy, version.covered
            rows, queries, *tables = clicked_documents(
                policy.rankings, policy.weights, policy.offsets, version.shown, version.clicked, policy.n_documents
            )
            documents = covered.documents[rows]
            queries = covered.queries[queries]
            self._parts.append(Counts(self.pair.n_documents, documents, tables[0], tables[1], queries, tables[2]))
        return self._parts

    @property
    def settled(self) -> bool:
        """True once theta is known so well that its error is linear in the clicks, and users click as assumed."""
        fitted = self.impressions >= SETTLED and self.beliefs.equation is not None
        return fitted and self.user.follows_position_bias

    def _learn(self) -> None:
        method = self.method
        pair = self.pair
        before = self.beliefs.theta
        counts = Counts(pair.n_documents, self.documents, self.shown, self.clicked)
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
            self.prediction = self.beliefs.prediction(*pair.ranks)
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

    def _displays(self, version: DesignVersion, theta: FloatArray | None = None) -> Displays:
        """A version's displays, valued at a position bias, by default the current one."""
        known = self.beliefs.theta if theta is None else theta
        return valued(version.covered.pair, version.policy, known, version.prediction, estimate=self.method.estimate)

    def show(self, begin: int, end: int, points: IntArray) -> list[tuple[float, float, float]]:
        """Show impressions begin..end with the current design; estimate, mean square and CTR at each point."""
        marks = np.unique([*(points - begin), end - begin])
        displays = self._displays(self.versions[-1])
        sums, shown, clicked = displays.simulate_counts(self.user, marks, seed=self._next_seed())
        before = np.array([self._drawn_sum(), self.sum_squares, self.clicks])
        rows = (before + sums[np.searchsorted(marks, points - begin)]) / points[:, None]
        self.sum_x, self.sum_squares, self.clicks = (before + sums[-1]).tolist()
        self._remember(end - begin, shown, clicked)
        return [(x, square, ctr) for x, square, ctr in rows.tolist()]

    def report(self) -> tuple[float, float, float]:
        """Estimate, mean square and CTR so far, with position bias from all clicks."""
        self.refit()
        n = self.impressions
        return self._drawn_sum() / n, self.sum_squares / n, self.clicks / n

    def law(self, *, seed: Seed) -> Moments:
        """Moments of one impression of the current design, valued at the current position bias."""
        return self._moments(self.versions[-1], self.beliefs.theta)

    def _moments(self, version: DesignVersion, theta: FloatArray) -> Moments:
        """Moments of one impression of a version, valued at a position bias; the queries that it does not cover have their part
        in the mean."""
        found = self._displays(version, theta).moments(version.covered.user)
        covered = version.covered
        if covered.pair is self.whole:
            return found
        return replace(found, mean=found.mean + self.delta - covered.pair.delta(covered.user))

    def draw(self, begin: int, end: int) -> None:
        """Draw the counts of impressions begin..end at once: what a fit needs of them."""
        version = self.versions[-1]
        came = next(self.ahead, end - begin)
        counts = display_counts(version.policy, version.covered.user, came, seed=self._next_seed())
        self.sum_x = None
        self._remember(end - begin, *counts)

    def _next_seed(self) -> Seed:
        return int(self.drawing.integers(2**63))

    def past(self) -> FloatArray:
        """Cumulants of the sum of x so far: of what was drawn, valued at the current position bias; what came after that was
        settled has a law, with position bias from all clicks."""
        if not self.settled:
            return np.array([self._drawn_sum(), 0.0, 0.0, 0.0])
        early = self._before_settled()
        ends = [*(version.begin for version in self.versions[1:]), self.impressions]
        cumulants = np.array([early.sum_x, 0.0, 0.0, 0.0])
        influences = [early.influence]
        for number, (version, end) in enumerate(zip(self.versions, ends)):
            n = end - max(version.begin, early.impressions)
            if n > 0:
                law = self._law_of(number)
                cumulants += n * np.array([law.mean, law.variance, law.third, law.fourth])
                influences.append(self._influence_of(number, n))
        influence = ThetaInfluence.total(influences)
        cumulants[:2] += influence.coefficients @ early.score, influence.added_variance
        return cumulants

    def _before_settled(self) -> DrawnBefore:
        """The impressions from before theta was settled, as they were drawn."""
        if self.early is None:
            assert self.beliefs.equation is not None
            theta = self.true_theta
            given = self.beliefs.equation.given
            found = [conditional_equation(exposure(part, given), part.clicked, theta) for part in self.parts]
            score, information = (np.sum([one[i] for one in found], axis=0) for i in (1, 2))
            lam = self.whole.lam(theta)
            nothing = np.zeros_like(information)
            gain = np.sum([v.shown.sum() * self._by_design(i).gain for i, v in enumerate(self.versions)], axis=0)
            self.early = DrawnBefore(
                self.impressions,
                sum(self._sum_of(version, lam, theta) for version in self.versions),
                score,
                ThetaInfluence(gain, information, nothing, nothing[0]),
            )
        return self.early

    @property
    def true_theta(self) -> FloatArray:
        """Position bias of users who follow it."""
        return np.asarray(self.user.slope / self.user.slope[0])

    def _law_of(self, number: int) -> Moments:
        """Moments of one impression of a version at the true position bias."""
        if number not in self._laws:
            self._laws[number] = self._moments(self.versions[number], self.true_theta)
        return self._laws[number]

    def _by_design(self, number: int) -> ThetaInfluence:
        """Influence of fitting theta to the clicks on one impression of a version."""
        if number not in self._influences:
            self._influences[number] = self._influence(number, None)
        return self._influences[number]

    def _influence_of(self, number: int, impressions: int) -> ThetaInfluence:
        """Influence of fitting theta to the clicks on a version, by the equation that was chosen last."""
        assert self.beliefs.equation is not None
        if self.beliefs.equation.given == "design":
            return self._by_design(number) * impressions
        shown = self.versions[number].shown
        return self._influence(number, shown) * (impressions / float(shown.sum()))

    def _influence(self, number: int, shown: IntArray | None) -> ThetaInfluence:
        version = self.versions[number]
        displays = self._displays(version, self.true_theta)
        covered = version.covered
        return ThetaInfluence.of_displays(displays, covered.pair, covered.user, shown=shown)

    def _drawn_sum(self) -> float:
        if self.sum_x is None:
            lam = self.pair.lam(self.beliefs.theta)
            self.sum_x = sum(self._sum_of(version, lam, self.beliefs.theta) for version in self.versions)
        return self.sum_x

    def _sum_of(self, version: DesignVersion, lam: FloatArray, theta: FloatArray) -> float:
        """Sum of x over the impressions of a version, at a position bias; most versions showed few of their rankings."""
        rows = np.flatnonzero(version.shown)
        policy = version.policy
        pair = version.covered.pair
        lam = lam[version.covered.documents]
        query = np.searchsorted(policy.offsets, rows, side="right") - 1
        rank_aware = self.method.estimate == "rank-aware"
        prediction = checked_prediction(version.prediction, len(lam), rank_aware=rank_aware)
        table = DesignRows.of(pair.offsets, policy.offsets, policy.rankings, policy.weights)
        x = value_rows(rows, query, table, lam, prediction, theta, rank_aware=rank_aware).affine
        base = expected_value(lam, prediction, pair.offsets, known_queries=False)[query] + x.base
        return float(base @ version.shown[rows] + (x.values * version.clicked[rows]).sum())

    def _remember(self, impressions: int, shown: IntArray, clicked: IntArray) -> None:
        """Add counts of displays of the current version to those that fits are made from."""
        version = self.versions[-1]
        row = self.row[version.covered.documents]
        add_display_counts(version.policy.rankings, row, shown, clicked, self.shown, self.clicked)
        version.shown[:] += shown
        version.clicked[:] += clicked
        self.impressions += impressions
        del self._parts[len(self.versions) - 1 :]


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
