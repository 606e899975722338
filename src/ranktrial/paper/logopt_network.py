"""LogOpt as published (Oosterhuis and de Rijke 2020, Algorithm 1): a logging policy trained by gradient steps on the way.

Before the first impression and at each point of a schedule: fit a click model to the log (position bias theta-hat, relevance
zeta-hat), work out lambda-hat and the current estimate, train a policy network to lower the variance of the estimate under that
model, and show what the new policy says from then on. Every impression keeps the exposure of the policy that showed it; when
theta-hat changes, exposures are worked out anew from each version's exact placement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial import checks
from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.methods.adaptive import Adaptive
from ranktrial.methods.base import Traits, simulated_average
from ranktrial.methods.counterfactual import PROPENSITIES, observed_estimate
from ranktrial.methods.expected import ExpectedRun
from ranktrial.paper.click_models import EM, RegressionEM
from ranktrial.paper.network.network import Adam, Network, NetworkRegression
from ranktrial.paper.network.network_policy import (
    GRADIENTS,
    INPUTS,
    NetworkPolicy,
    Objective,
    PolicyInputs,
    feature_inputs,
    optimise,
    policy_inputs,
)
from ranktrial.position_bias import Auto, Counts, Estimator, NotIdentifiable
from ranktrial.rankings import Moments, Pair, PlackettLuce
from ranktrial.rankings.drawn_moments import ips_moments, queries_chosen
from ranktrial.rankings.plackett_luce import CountArray, add_counts, examinations, queries_drawn, simulate
from ranktrial.rankings.propensity import require_seen
from ranktrial.seeds import Seed, children
from ranktrial.users import User

RELEVANCE = ("estimated", "true")
CLICK_MODELS = ("auto", "em", "regression-em")
STARTS = ("lists", "rank-2")
QUERY_SOURCES = ("log", "data")
PAPERS_STEPS, PAPERS_SAMPLES = 1000, 1000
LOW_NOISE_SAMPLES = (
    100  # more of them do not make the policy better: queries differ by more than their gradients are unsure
)
SHRINKING = 10.0  # examinations at the mean relevance that every document is taken to have had besides
DRAWN_ONCE = "the past of this method is drawn rankings, which cost too much to revalue"
SEEDS_A_VERSION = 5  # fit and its network, network, optimisation, impressions


@dataclass(frozen=True, repr=False)
class LogOptNetwork(Adaptive):
    """Counterfactual evaluation with the paper's logging policy: Plackett-Luce over the scores of a small trained network.

    Attributes:
        bias: Position bias "known" (the pair's theta) or "estimated" from the clicks on the way.
        relevance: Relevance that the policy is made for: "estimated" on the way, or "true": the paper's Oracle, for
            simulations only.
        schedule: After how many impressions the click model is fitted and the policy optimised anew.
        steps: Gradient steps of each optimisation.
        samples: Rankings sampled a step; None: 1,000 as the paper, or 100 with the low-noise gradient, which has less noise
            even so.
        gradient: "low-noise", "paper" (as published), or "authors" (as their code scales it).
        inputs: Inputs of the network: "lists" (lambda and ranks), document "features", or "both".
        click_model: "regression-em" is the paper's and needs features; "em" has a relevance per document; "auto" takes theta
            from the estimator that suits the log and shrinks relevance towards its mean.
        propensities: "policy" is the paper's and exact; "observed" the authors' code's (see ``Counterfactual``).
        start: Assumption of the first optimisation, before any click: "lists", equal relevance and the position bias at
            hand; "rank-2", as the authors' code, that only rank 2 is examined.
        queries: Steps draw queries from the "log", as the paper says, or from the "data" set, as the authors' code.
        warm_start: Keep the network and its optimiser between optimisations, as the authors' code, instead of starting
            each afresh.
        true_lambda: Take lambda from the true position bias even where it is estimated, as the authors' code.
        authors_rows: Fit regression-EM to the wrong rows of features, as the authors' code.

    >>> from ranktrial.users import position_based
    >>> pair = Pair.from_lists([["a", "b", "c"]], [["b", "c", "a"]], k=2).knowing(theta=[1.0, 0.6])
    >>> user = position_based(zeta=[0.5, 0.3, 0.2], theta=[1.0, 0.6])
    >>> run = LogOptNetwork(steps=50, samples=50).run(pair, user, [10_000], seed=1)
    >>> len(run.versions), run.trajectory.estimate.round(1), round(pair.delta(user), 1)  # trained twice: at 0 and at 1,000
    (2, array([0.3]), 0.3)
    """

    bias: str = "known"
    schedule: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    relevance: str = "estimated"
    steps: int = 1000
    samples: int | None = None
    gradient: str = "low-noise"
    inputs: str = "lists"
    click_model: str = "auto"
    propensities: str = "policy"
    start: str = "lists"
    queries: str = "log"
    warm_start: bool = False
    true_lambda: bool = False
    authors_rows: bool = False

    refits = False  # DRAWN_ONCE

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in (
            ("relevance", RELEVANCE),
            ("gradient", GRADIENTS),
            ("inputs", INPUTS),
            ("click_model", CLICK_MODELS),
            ("propensities", PROPENSITIES),
            ("start", STARTS),
            ("queries", QUERY_SOURCES),
        ):
            checks.one_of(name, getattr(self, name), allowed)
        checks.whole("steps", self.steps, 0, 10**9)
        if self.samples is not None:
            checks.whole("samples", self.samples, 2, 10**9)
        oracle = self.relevance == "true"
        for idle, why in (
            (self.true_lambda and self.bias == "known", 'true_lambda changes nothing with bias="known"'),
            (
                self.authors_rows and self.click_model != "regression-em",
                'authors_rows needs click_model="regression-em"',
            ),
            (oracle and self.bias == "estimated", 'relevance="true" is the Oracle, which knows the bias'),
            (oracle and self.start == "rank-2", 'relevance="true" is the Oracle, which assumes nothing'),
        ):
            if idle:
                raise ValueError(why)

    def stages(self, pair: Pair, user: User, theta: FloatArray, *, seed: Seed) -> _State:
        return _State(self, pair, user, theta, seed)

    def expected(self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, runs: int = 1) -> ExpectedRun:
        if self.propensities == "observed" or not user.reads_on:
            return simulated_average(self, pair, user, checkpoints, seed=seed, runs=runs)
        return super().expected(pair, user, checkpoints, seed=seed, runs=runs)

    @property
    def usual_samples(self) -> int:
        """Default of ``samples``."""
        return LOW_NOISE_SAMPLES if self.gradient == "low-noise" else PAPERS_SAMPLES

    @property
    def rankings_a_step(self) -> int:
        """``samples``, or what they are by default."""
        return self.usual_samples if self.samples is None else self.samples

    @property
    def traits(self) -> Traits:
        return replace(super().traits, shows_top_only=False, averages_impressions=self.propensities == "policy")


@dataclass(eq=False)
class PolicyVersion:
    """One version of the logging policy and what it was made from.

    Attributes:
        begin: Impressions before it.
        policy: Distribution of the rankings shown.
        theta: Position bias it was made with.
        zeta: Relevance it was made with.
        note: Note of the click model.
        clicks: On each document that either ranker lists, in order, while it was shown.
        drawn: Impressions of each query while it was shown.
        placement: Placement of the listed documents, once it was asked for; 0 for queries that did not come.
        weights: Weight of a click on each of them at the current position bias, once it was asked for.
    """

    begin: int
    policy: PlackettLuce
    theta: FloatArray
    zeta: FloatArray
    note: str
    clicks: FloatArray = field(repr=False)
    drawn: IntArray = field(repr=False)
    placement: FloatArray | None = field(default=None, repr=False)
    weights: FloatArray | None = field(default=None, repr=False)


class _State:
    """The log of a run so far, and the method's current idea of its users."""

    settled = False  # its past is valued at the theta of the last fit, as drawn

    def __init__(self, method: LogOptNetwork, pair: Pair, user: User, theta: FloatArray, seed: Seed) -> None:
        self.method, self.pair, self.user = method, pair, user.cut(pair.k)
        self.zeta = user.zeta if method.relevance == "true" else np.full(pair.n_documents, 0.5)
        self.note = ""
        self.seeds = iter(children(seed, SEEDS_A_VERSION * (len(method.schedule) + 1)))
        self.versions: list[PolicyVersion] = []
        # Lambda is 0 for all other documents: their exposure is never asked for.
        self.listed = pair.listed
        self.query = np.repeat(np.arange(pair.n_queries), np.diff(pair.offsets))[self.listed]
        # Displays and clicks by rank, of each document, or of each that is listed and of all others together.
        self.row = np.arange(pair.n_documents)
        if method.click_model == "auto" and method.propensities == "policy":
            self.row = np.full(pair.n_documents, len(self.listed))
            self.row[self.listed] = np.arange(len(self.listed))
        self.shown, self.clicked = np.zeros((2, int(self.row.max(initial=-1)) + 1, pair.k), np.uint32)
        self.features: NDArray[np.float32] | None = None  # as inputs of the network
        self.inputs: tuple[FloatArray, PolicyInputs] | None = None  # and the lambda they were made of
        self.mean_square_total = 0.0
        self.network: Network | None = None
        self.optimiser = Adam()
        self._believe(theta)

    def _believe(self, theta: FloatArray) -> None:
        """Take this position bias to be true."""
        true = self.method.true_lambda and self.pair.theta is not None
        self.theta = theta
        self.lam = self.pair.lam(self.pair.known_theta if true else theta)
        for version in self.versions:
            version.weights = None

    def next_version(self, ahead: Sequence[int] | None = None) -> None:
        """Lines 2 to 13 of Algorithm 1: fit, estimate, optimise, swap the policy in."""
        method = self.method
        pair = self.pair
        if self.versions:
            self._fit()
        theta = self.theta
        if not self.versions and method.start == "rank-2":
            theta = np.eye(1, pair.k, min(1, pair.k - 1))[0]
        lam = self.lam if self.versions or method.start == "lists" else pair.lam(theta)
        if method.inputs != "lists" and self.features is None:
            self.features = feature_inputs(pair, method.inputs)
        if self.inputs is None or not np.array_equal(lam, self.inputs[0]):
            self.inputs = lam, policy_inputs(pair, lam, method.inputs, features=self.features)
        inputs = self.inputs[1]
        if self.network is None or not method.warm_start:
            self.network = Network.initialise(inputs.shape[1], next(self.seeds))
            self.optimiser = Adam()
        impressions = self._came().astype(np.float64)
        needed = method.gradient != "low-noise"  # the other gradients have the estimate in them
        optimise(
            self.network,
            self.optimiser,
            inputs,
            Objective(pair, theta, self.zeta, lam, self._estimate(impressions.sum()) if needed else 0.0),
            steps=method.steps,
            samples=method.rankings_a_step,
            seed=next(self.seeds),
            gradient=method.gradient,
            query_weights=impressions if method.queries == "log" and self.versions else None,
        )
        self.policy = NetworkPolicy(self.network, inputs, pair)
        believed = self.theta, self.zeta, self.note
        nothing = np.zeros(len(self.listed)), np.zeros(pair.n_queries, np.int64)
        self.versions.append(PolicyVersion(int(impressions.sum()), self.policy.policy, *believed, *nothing))

    def refit(self) -> None:
        raise NotImplementedError(DRAWN_ONCE)

    def report(self) -> tuple[float, float, float]:
        raise NotImplementedError(DRAWN_ONCE)

    def _fit(self) -> None:
        method = self.method
        if method.relevance == "true":
            return
        known = self.theta if method.bias == "known" else None
        try:
            theta, self.zeta, self.note = self._click_model(known)
            if not np.array_equal(theta, self.theta):
                self._believe(theta)
        except NotIdentifiable as refusal:
            self.note = f"kept the position bias: {refusal}"

    def _click_model(self, known: FloatArray | None) -> tuple[FloatArray, FloatArray, str]:
        method = self.method
        estimator: Estimator
        if method.click_model == "auto":
            theta, note = known, ""
            if theta is None:
                fitted = Auto().fit(self._designed_counts())
                theta, note = np.clip(fitted.theta, 0, 1), fitted.note
            return theta, shrunken_relevance(self.shown, self.clicked, theta)[self.row], note
        if method.click_model == "em":
            estimator = EM(theta=None if known is None else known.tolist())
        else:
            if self.pair.features is None:
                raise ValueError('click_model is "regression-em", which needs features: pair.knowing(features=...)')
            model = NetworkRegression(Network.initialise(self.pair.features.shape[1], next(self.seeds)))
            estimator = RegressionEM(
                model,
                self.pair.features,
                theta=known,
                most=model.steps * model.batch,
                authors_rows=method.authors_rows,
                seed=next(self.seeds),
            )
        fitted = estimator.fit(self._counts(np.flatnonzero(self.shown.max(1)[self.row])))
        assert fitted.zeta is not None
        return np.clip(fitted.theta, 0, 1), fitted.zeta, fitted.note

    def _counts(self, documents: IntArray) -> Counts:
        """The log of some documents."""
        shown, clicked = (table[self.row[documents]].astype(np.float64) for table in (self.shown, self.clicked))
        queries = np.searchsorted(self.pair.offsets, documents, side="right") - 1
        return Counts(self.pair.n_documents, documents, shown, clicked, queries)

    def _designed_counts(self) -> Counts:
        """The log of the listed documents of queries that came. Any set chosen before the clicks gives an unbiased equation
        for position bias; the design is only known where it is needed anyway, for these."""
        expected = sum(version.drawn[self.query][:, None] * self._placement(version) for version in self.versions)
        came = np.flatnonzero(self._came()[self.query])
        return replace(self._counts(self.listed[came]), expected=np.asarray(expected)[came])

    def _came(self) -> IntArray:
        """Impressions of each query so far."""
        return sum((version.drawn for version in self.versions), np.zeros(self.pair.n_queries, np.int64))

    def _estimate(self, impressions: float) -> float:
        """The method's own estimate of Delta so far; 0 before the first impression."""
        if not impressions:
            return 0.0
        return self._observed() if self.method.propensities == "observed" else self._past() / impressions

    def _observed(self) -> float:
        return observed_estimate(self.pair, self.lam, self.theta, self.shown, self.clicked)

    def _past(self) -> float:
        """Sum of x over the impressions of all versions so far, at the current position bias."""
        return float(sum(version.clicks @ self._weights(version) for version in self.versions if version.clicks.any()))

    def _weights(self, version: PolicyVersion) -> FloatArray:
        """Weight of a click on each listed document, for queries that came with that version; 0 for the others."""
        if version.weights is None:
            lam = np.where(version.drawn[self.query] > 0, self.lam[self.listed], 0.0)
            if self.method.bias == "estimated":
                rho = np.asarray(self._placement(version) @ self.theta)
            else:
                rho = version.policy.exposure(self.theta, wanted=self._wanted(lam != 0))[self.listed]
            require_seen(lam, rho, self.pair.offsets, self.listed)
            version.weights = np.divide(lam, rho, out=np.zeros_like(lam), where=lam != 0)
        return version.weights

    def _placement(self, version: PolicyVersion) -> FloatArray:
        """Placement of the listed documents, computed once for every position bias to come; 0 for queries that did not come."""
        if version.placement is None:
            came = version.drawn[self.query] > 0
            version.placement = np.zeros((len(self.listed), self.pair.k))
            version.placement[came] = version.policy.placement(wanted=self._wanted(came))
        return version.placement

    def _wanted(self, listed: BoolArray) -> BoolArray:
        """Flags of all documents from those of the listed ones."""
        wanted = np.zeros(self.pair.n_documents, bool)
        wanted[self.listed[listed]] = True
        return wanted

    def show(self, begin: int, end: int, points: IntArray) -> list[tuple[float, float, float]]:
        """Show impressions begin..end with the current policy; estimate, mean square and CTR at each point."""
        version = self.versions[-1]
        self.policy.scored(np.ones(self.pair.n_queries, bool))
        observed = self.method.propensities == "observed"
        # The authors' estimate needs all counts at every checkpoint, the paper's only sums.
        parts = [*points, *([end] if not len(points) or points[-1] < end else [])] if observed else [end]
        seeds = children(next(self.seeds), len(parts))
        sizes = np.diff(parts, prepend=begin)
        for n, child in zip(sizes, seeds):
            version.drawn = version.drawn + queries_drawn(self.pair.n_queries, int(n), seed=child)
        # Sums of x, its square and clicks so far; the first two are not known where propensities are observed.
        past = np.array([np.nan if observed else self._past(), self.mean_square_total, self.clicked.sum()], np.float64)
        weights = np.zeros(self.pair.n_documents)
        if not observed:
            weights[self.listed] = self._weights(version)
        rows = []
        done = begin
        for part, child in zip(parts, seeds):
            inside = points[(points > done) & (points <= part)]
            marks = np.unique([*(inside - done), part - done])
            tables = self.shown, self.clicked
            sums = simulate(version.policy, self.user, weights, marks, seed=child, tables=tables, rows=self.row)
            for point in inside:
                value, square, clicks = ((past + sums[np.searchsorted(marks, point - done)]) / point).tolist()
                rows.append((self._observed(), np.nan, clicks) if observed else (value, square, clicks))
            past = past + sums[-1]
            done = part
        self.mean_square_total = past[1]
        self._remember_clicks()
        return rows

    def law(self, *, seed: Seed) -> Moments:
        """Moments of one impression of the current policy, valued at the current position bias."""
        chosen = np.zeros(self.pair.n_queries, bool)
        chosen[queries_chosen(self.pair.n_queries, seed=seed)] = True
        return ips_moments(self.pair, self.policy.scored(chosen), self.theta, self.user, seed=seed, lam=self.lam)

    def draw(self, begin: int, end: int) -> None:
        """Draw impressions begin..end for the next fit; what they are worth is asked for later, if at all."""
        queries, rankings = children(next(self.seeds), 2)
        version = self.versions[-1]
        version.drawn = queries_drawn(self.pair.n_queries, end - begin, seed=queries)
        policy = self.policy.scored(version.drawn > 0)
        add_counts(policy, self.user, version.drawn, (self.shown, self.clicked), seed=rankings, rows=self.row)
        self._remember_clicks()

    def _remember_clicks(self) -> None:
        """Store the clicks since the last version."""
        *before, last = self.versions
        so_far = self.clicked.sum(1)[self.row[self.listed]].astype(np.float64)
        last.clicks = so_far - sum(version.clicks for version in before)

    def past(self) -> FloatArray:
        return np.array([self._past(), 0.0, 0.0, 0.0])


def shrunken_relevance(shown: CountArray, clicked: CountArray, theta: FloatArray) -> FloatArray:
    """Clicks over examinations per document, shrunk towards the mean as if it had been examined ten times more.

    A raw rate per document makes the policy worse than equal relevance when documents were examined a few times only.
    """
    examined, clicks = examinations(shown, clicked, theta)
    mean = clicks.sum() / max(examined.sum(), 1e-300)
    return np.asarray(np.clip((clicks + SHRINKING * mean) / (examined + SHRINKING), 0.001, 0.999))
