"""LogOpt (Oosterhuis and de Rijke 2020): counterfactual evaluation whose logging policy is optimised on the way.

The paper's Algorithm 1. Before the first impression and at each point of a schedule: fit a click model to the log (position
bias theta-hat, relevance zeta-hat), work out lambda-hat and the current estimate, train a policy network to lower the variance
of the estimate under that model, and show what the new policy says from then on. Every impression keeps the exposure of the
policy that showed it; when theta-hat changes, exposures are worked out anew from each version's exact placement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import FloatArray, IntArray, sum_by_group
from ranktrial.design.network import Adam, Network, NetworkRegression
from ranktrial.design.network_policy import GRADIENTS, INPUTS, Objective, network_policy, optimise, policy_inputs
from ranktrial.methods.base import Method, spelled
from ranktrial.methods.counterfactual import PROPENSITIES, observed_estimate
from ranktrial.methods.trajectory import Trajectory
from ranktrial.rankings import Pair, PlackettLuce, ips_weights
from ranktrial.rankings.lists import check_user
from ranktrial.rankings.plackett_luce import simulate_counts
from ranktrial.seeds import Seed, children
from ranktrial.users import EM, Auto, Counts, Estimator, NotIdentifiable, RegressionEM, User

BIAS = ("known", "estimated")
RELEVANCE = ("estimated", "true")
CLICK_MODELS = ("auto", "em", "regression-em")
STARTS = ("lists", "rank-2")
QUERY_SOURCES = ("log", "data")
SEEDS_A_VERSION = 5  # fit and its network, network, optimisation, impressions


@dataclass(frozen=True, repr=False)
class LogOpt(Method):
    """Counterfactual evaluation with an optimised logging policy.

    Attributes:
        policy: "network", the paper's: a Plackett-Luce policy over the scores of a small network.
        bias: Position bias "known" (the pair's theta) or "estimated" from the clicks on the way.
        relevance: "estimated" on the way, or "true": the paper's Oracle, for simulations only.
        schedule: After how many impressions the click model is fitted and the policy optimised anew.
        steps: Gradient steps of each optimisation.
        samples: Rankings sampled a step.
        gradient: "low-noise", "paper" (as published), or "authors" (as their code scales it).
        inputs: What the network sees: "lists" (lambda and ranks), document "features", or "both".
        click_model: "regression-em" is the paper's and needs features; "em" has a relevance per document; "auto" takes theta
            from the estimator that suits the log and shrinks relevance towards its mean.
        propensities: "policy" is the paper's and exact; "observed" the authors' code's (see ``Counterfactual``).
        start: What the first optimisation assumes with no click seen: "lists", equal relevance and the position bias at
            hand; "rank-2", as the authors' code, that only rank 2 is examined.
        queries: Steps draw queries from the "log", as the paper says, or from the "data" set, as the authors' code.
        warm_start: Keep the network and its optimiser between optimisations, as the authors' code, instead of starting
            each afresh.
        true_lambda: Take lambda from the true position bias even where it is estimated, as the authors' code.
        authors_rows: Fit regression-EM to the wrong rows of features, as the authors' code.
    """

    policy: str = spelled("network")
    bias: str = spelled("known")
    relevance: str = "estimated"
    schedule: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    steps: int = 1000
    samples: int = 1000
    gradient: str = "low-noise"
    inputs: str = "lists"
    click_model: str = "auto"
    propensities: str = "policy"
    start: str = "lists"
    queries: str = "log"
    warm_start: bool = False
    true_lambda: bool = False
    authors_rows: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (
            ("policy", ("network",)),
            ("bias", BIAS),
            ("relevance", RELEVANCE),
            ("gradient", GRADIENTS),
            ("inputs", INPUTS),
            ("click_model", CLICK_MODELS),
            ("propensities", PROPENSITIES),
            ("start", STARTS),
            ("queries", QUERY_SOURCES),
        ):
            checks.one_of(name, getattr(self, name), allowed)
        if self.schedule:
            checks.checkpoints(self.schedule)
        object.__setattr__(self, "schedule", tuple(int(n) for n in self.schedule))
        checks.whole("steps", self.steps, 0, 10**9)
        checks.whole("samples", self.samples, 2, 10**9)
        for idle, why in (
            (self.true_lambda and self.bias == "known", 'true_lambda changes nothing with bias="known"'),
            (
                self.authors_rows and self.click_model != "regression-em",
                'authors_rows needs click_model="regression-em"',
            ),
            (
                self.relevance == "true" and self.bias == "estimated",
                'relevance="true" is the Oracle, which knows the bias',
            ),
            (
                self.relevance == "true" and self.start == "rank-2",
                'relevance="true" is the Oracle, which assumes nothing',
            ),
        ):
            if idle:
                raise ValueError(why)

    def simulate(
        self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, shortcut: bool = True
    ) -> Trajectory:
        return self.run(pair, user, checkpoints, seed=seed).trajectory

    def run(
        self,
        pair: Pair,
        user: User,
        checkpoints: ArrayLike,
        *,
        seed: Seed,
        progress: Callable[[int, int], None] | None = None,
    ) -> LogOptRun:
        """Simulate, keeping what was fitted and shown at each version of the policy."""
        points = checks.checkpoints(checkpoints)
        check_user(user, pair.k, pair.n_documents)
        state = _State(self, pair, user, seed)
        turns = [n for n in self.schedule if n < points[-1]]
        rows: list[tuple[float, float, float]] = []
        for begin, end in zip([0, *turns], [*turns, int(points[-1])]):
            state.next_version()
            rows += state.show(begin, end, points[(points > begin) & (points <= end)])
            if progress is not None:
                progress(end, int(points[-1]))
        estimate, mean_square, ctr = np.array(rows).T
        return LogOptRun(Trajectory(points, estimate, mean_square, ctr), tuple(state.versions))


@dataclass(frozen=True, eq=False)
class Version:
    """One version of the logging policy and what it was made from.

    Attributes:
        begin: Impressions before it.
        policy: What it shows.
        theta: Position bias it was made with.
        zeta: Relevance it was made with.
        note: What the click model had to say.
        clicks: Clicks per document while it was shown.
    """

    begin: int
    policy: PlackettLuce
    theta: FloatArray
    zeta: FloatArray
    note: str
    clicks: FloatArray = field(repr=False)


@dataclass(frozen=True, eq=False)
class LogOptRun:
    """A simulated run and the versions of its policy."""

    trajectory: Trajectory
    versions: tuple[Version, ...]


def first_theta(k: int) -> FloatArray:
    """Position bias assumed before any click: the discount of DCG, 1 / log2(1 + rank)."""
    return np.asarray(1 / np.log2(np.arange(2, k + 2)))


class _State:
    """The log of a run so far, and the method's current idea of its users."""

    def __init__(self, method: LogOpt, pair: Pair, user: User, seed: Seed) -> None:
        self.method, self.pair, self.user = method, pair, user.cut(pair.k)
        known = method.bias == "known" or method.relevance == "true"
        self.theta = pair.known_theta if known else first_theta(pair.k)
        self.zeta = user.zeta if method.relevance == "true" else np.full(pair.n_documents, 0.5)
        self.note = ""
        self.seeds = iter(children(seed, SEEDS_A_VERSION * (len(method.schedule) + 1)))
        self.versions: list[Version] = []
        self.placements: list[FloatArray] = []
        self.shown, self.clicked = np.zeros((2, pair.n_documents, pair.k))
        self.expected = np.zeros((pair.n_documents, pair.k))
        self.weights: dict[int, FloatArray] = {}  # of each version at the current position bias
        self.mean_square_total = 0.0
        self.network: Network | None = None
        self.optimiser = Adam()

    @property
    def lam(self) -> FloatArray:
        true = self.method.true_lambda and self.pair.theta is not None
        return self.pair.lam(self.pair.known_theta if true else self.theta)

    def next_version(self) -> None:
        """Lines 2 to 13 of Algorithm 1: fit, estimate, optimise, swap the policy in."""
        method, pair = self.method, self.pair
        if self.versions:
            self._fit()
        theta = self.theta
        if not self.versions and method.start == "rank-2":
            theta = np.eye(1, pair.k, min(1, pair.k - 1))[0]
        lam = self.lam if self.versions or method.start == "lists" else pair.lam(theta)
        inputs = policy_inputs(pair, lam, method.inputs)
        if self.network is None or not method.warm_start:
            self.network, self.optimiser = Network.initialise(inputs.shape[1], next(self.seeds)), Adam()
        impressions = sum_by_group(self.shown[:, 0], pair.offsets)
        optimise(
            self.network,
            self.optimiser,
            inputs,
            Objective(pair, theta, self.zeta, lam, self._estimate(impressions.sum())),
            steps=method.steps,
            samples=method.samples,
            seed=next(self.seeds),
            gradient=method.gradient,
            query_weights=impressions if method.queries == "log" and self.versions else None,
        )
        policy = network_policy(self.network, inputs, pair)
        begin = int(impressions.sum())
        self.versions.append(Version(begin, policy, self.theta, self.zeta, self.note, np.zeros(pair.n_documents)))
        # Exact placement is only worth its time where exposure will have to be worked out for another theta.
        self.placements.append(policy.placement() if method.bias == "estimated" else np.empty((0, 0)))

    def _fit(self) -> None:
        method, pair = self.method, self.pair
        if method.relevance == "true":
            return
        expected = self.expected if method.bias == "estimated" else None
        counts = Counts.from_dense(self.shown, self.clicked, offsets=pair.offsets, expected=expected)
        known = self.theta if method.bias == "known" else None
        try:
            self.theta, self.zeta, self.note = self._click_model(counts, known)
            if known is None:
                self.weights.clear()
        except NotIdentifiable as refusal:
            self.note = f"kept the position bias: {refusal}"

    def _click_model(self, counts: Counts, known: FloatArray | None) -> tuple[FloatArray, FloatArray, str]:
        method = self.method
        estimator: Estimator
        if method.click_model == "auto":
            theta, note = known, ""
            if theta is None:
                fitted = Auto().fit(counts)
                theta, note = np.clip(fitted.theta, 0, 1), fitted.note
            return theta, shrunken_relevance(self.shown, self.clicked, theta), note
        if method.click_model == "em":
            estimator = EM(theta=None if known is None else known.tolist())
        else:
            if self.pair.features is None:
                raise ValueError('click_model is "regression-em", which needs features: pair.knowing(features=...)')
            network = Network.initialise(self.pair.features.shape[1], next(self.seeds))
            rows = method.authors_rows
            estimator = RegressionEM(
                NetworkRegression(network), self.pair.features, theta=known, authors_rows=rows, seed=next(self.seeds)
            )
        fitted = estimator.fit(counts)
        assert fitted.zeta is not None
        return np.clip(fitted.theta, 0, 1), fitted.zeta, fitted.note

    def _estimate(self, impressions: float) -> float:
        """The method's own estimate of Delta so far; 0 before the first impression."""
        if not impressions:
            return 0.0
        return self._observed() if self.method.propensities == "observed" else self._past() / impressions

    def _observed(self) -> float:
        return observed_estimate(self.pair, self.lam, self.theta, self.shown, self.clicked)

    def _past(self) -> float:
        """Sum of x over the impressions of all versions so far, at the current position bias."""
        return float(sum(v.clicks @ self._weights(i) for i, v in enumerate(self.versions) if v.clicks.any()))

    def _weights(self, version: int) -> FloatArray:
        if version not in self.weights:
            placement, policy = self.placements[version], self.versions[version].policy
            rho = placement @ self.theta if len(placement) else policy.exposure(self.theta)
            self.weights[version] = ips_weights(self.lam, rho, self.pair.offsets).values
        return self.weights[version]

    def show(self, begin: int, end: int, points: IntArray) -> list[tuple[float, float, float]]:
        """Show impressions begin..end with the current policy; estimate, mean square and CTR at each point."""
        version = self.versions[-1]
        before = self._past()
        clicks_before = self.clicked.sum()
        weights = self._weights(len(self.versions) - 1)
        observed = self.method.propensities == "observed"
        rows = []
        squares = 0.0
        done, past_x, past_clicks = begin, before, float(clicks_before)
        # The authors' estimate needs all counts at every checkpoint, the paper's only sums.
        parts = [*points, *([end] if not len(points) or points[-1] < end else [])] if observed else [end]
        for part, child in zip(parts, children(next(self.seeds), len(parts))):
            inside = points[(points > done) & (points <= part)]
            marks = np.unique([*(inside - done), part - done])
            sums, shown, clicked = simulate_counts(
                version.policy.scores, version.policy.offsets, self.user, weights, marks, child
            )
            self._remember(shown, clicked)
            for point in inside:
                row = sums[np.searchsorted(marks, point - done)]
                value = (past_x + row[0]) / point
                if observed:
                    value = self._observed()
                square = (self.mean_square_total + squares + row[1]) / point
                rows.append((value, np.nan if observed else square, (past_clicks + row[2]) / point))
            past_x += sums[-1, 0]
            squares += sums[-1, 1]
            past_clicks += sums[-1, 2]
            done = part
        self.mean_square_total += squares
        return rows

    def _remember(self, shown: FloatArray, clicked: FloatArray) -> None:
        self.shown += shown
        self.clicked += clicked
        self.versions[-1].clicks[:] += clicked.sum(1)
        if len(self.placements[-1]):
            impressions = sum_by_group(shown[:, 0], self.pair.offsets)
            self.expected += self.placements[-1] * np.repeat(impressions, np.diff(self.pair.offsets))[:, None]


def shrunken_relevance(shown: FloatArray, clicked: FloatArray, theta: FloatArray, strength: float = 10.0) -> FloatArray:
    """Clicks over examinations per document, shrunk towards the mean as if it had been examined ``strength`` times more.

    A raw rate per document makes the policy worse than equal relevance when documents were examined a few times only.
    """
    examined, clicks = shown @ theta, clicked.sum(1)
    mean = clicks.sum() / max(examined.sum(), 1e-300)
    return np.asarray(np.clip((clicks + strength * mean) / (examined + strength), 0.001, 0.999))
