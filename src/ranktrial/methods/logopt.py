"""LogOpt in closed form: counterfactual evaluation with the logging policy of least variance, kept up to date on the way.

The loop is the paper's Algorithm 1 (Oosterhuis and de Rijke 2020), without its training. Before the first impression and at
each point of a schedule: estimate position bias from the log where it is not known, and relevance where the estimate or the
design uses it; work out the design of least variance; show what it says from then on, with some plain A/B traffic among it.
Each impression is valued with the placement of the design that showed it and with the guess of relevance made before it, so
estimates stay unbiased given position bias however the guesses turn out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, DocumentArray, FloatArray, IntArray, weighted_counts
from ranktrial.design.closed_form import closed_form, closed_form_query
from ranktrial.methods.adaptive import Adaptive
from ranktrial.methods.beliefs import RELEVANCES, Beliefs, learnt
from ranktrial.methods.displays import Displays, Linear
from ranktrial.position_bias import Counts, relevance_guess
from ranktrial.rankings import Mixture, Moments, Pair, affine_values, list_inputs
from ranktrial.rankings.values import Guess
from ranktrial.seeds import Seed, children
from ranktrial.users import User

ESTIMATES = ("ips", "constant", "doubly-robust", "rank-aware")
ROBUST = ("doubly-robust", "rank-aware")
RELEVANCE = ("constant", "estimated", "true")
LEAST_RELEVANCE = 1e-4  # in a design: a document of none would never be shown, and values need every one that differs
IMPRESSIONS_TO_KNOW_RELEVANCE = 50  # a query; a design from fewer is worse than one for equal relevance


@dataclass(frozen=True, repr=False)
class LogOpt(Adaptive):
    """Counterfactual evaluation with the logging policy of least variance, in closed form: no training, no features.

    Attributes:
        bias: Position bias "estimated" from the clicks on the way, or "known" (the pair's theta, or the trial's).
        relevance: What the design assumes of relevance: "constant", the same for all documents; "estimated" on the way, once
            queries have 50 impressions on average; or "true", for simulations only.
        estimate: What an impression is worth: "ips" as the paper has it; "constant" subtracts the clicks to be expected if
            all documents were equally relevant; "doubly-robust" those expected from earlier clicks; "rank-aware" also weighs
            clicks by what their rank tells. All unbiased, each with less variance than the last.
        floor: The share of its lesser exposure under A and B that every document keeps, from 0 to 1.
        holdback: The share of impressions that show A's own list or B's own, half each: what a click model can be checked with.
        schedule: After how many impressions beliefs are fitted anew, and the design with them.

    >>> from ranktrial.methods import AB
    >>> from ranktrial.users import position_based
    >>> pair = Pair.from_lists([["a", "b", "c"]], [["b", "c", "a"]], k=2).knowing(theta=[1.0, 0.6])
    >>> user = position_based(zeta=[0.5, 0.3, 0.2], theta=[1.0, 0.6])
    >>> for method in (AB(estimate="means"), LogOpt(), LogOpt(floor=0, holdback=0)):
    ...     moments = method.moments(pair, user)  # half the variance is half the impressions
    ...     print(method, round(moments.mean, 3), round(moments.variance, 3))
    AB(estimate="means") 0.26 1.426
    LogOpt() 0.26 0.582
    LogOpt(floor=0, holdback=0) 0.26 0.578
    """

    bias: str = "estimated"
    relevance: str = "constant"
    estimate: str = "rank-aware"
    floor: float = 0.5
    holdback: float = 0.1
    schedule: tuple[int, ...] = (100, 1_000, 10_000, 100_000, 1_000_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("relevance", self.relevance, RELEVANCE)
        checks.one_of("estimate", self.estimate, ESTIMATES)
        checks.between("floor", self.floor, 0, 1)
        checks.between("holdback", self.holdback, 0, 1)
        if self.relevance == "true" and self.bias == "estimated":
            raise ValueError('relevance="true" is the Oracle, which knows the bias: bias="known"')

    # --- what it shows, and what that is worth ------------------------------------------------------------------------

    def query_policy(self, a: DocumentArray, b: DocumentArray, beliefs: Beliefs) -> tuple[DocumentArray, FloatArray]:
        return closed_form_query(
            a, b, beliefs.theta, floor=self.floor, zeta0=self._zeta0(beliefs), plain=self.plain_shares
        )

    def policy(self, pair: Pair, beliefs: Beliefs | None = None, *, zeta: FloatArray | None = None) -> Mixture:
        """What it shows, given what it believes (by default that the pair's theta is right); ``zeta`` is per document."""
        known = Beliefs(pair.known_theta) if beliefs is None else beliefs
        return closed_form(
            pair, known.theta, zeta=zeta, floor=self.floor, zeta0=self._zeta0(known), plain=self.plain_shares
        )

    def _zeta0(self, beliefs: Beliefs) -> float | None:
        return beliefs.relevance if self.estimate == "rank-aware" else None

    def displays(self, pair: Pair, beliefs: Beliefs | None = None) -> Displays:
        """Before any click, as if position bias were known."""
        if self.relevance == "true":
            raise ValueError('relevance="true" needs a user to know it from: use simulate')
        known = Beliefs(pair.known_theta) if beliefs is None else beliefs
        guess = None if self.estimate == "ips" else known.relevance
        return self.valued(pair, self.policy(pair, known), known.theta, guess)

    def valued(self, pair: Pair, policy: Mixture, theta: FloatArray, guess: Guess) -> Displays:
        """What impressions of a design are worth at a position bias."""
        rank_aware = self.estimate == "rank-aware"
        affine = affine_values(policy, pair.lam(theta), theta, pair.offsets, zeta_hat=guess, rank_aware=rank_aware)
        return Displays(policy, Linear(affine.values, affine.base))

    def planned_moments(self, pair: Pair, user: User) -> Moments:
        return self.planned_displays(pair, user).moments(user)

    def planned_displays(self, pair: Pair, user: User) -> Displays:
        """With position bias known and relevance guessed as one number from the clicks per impression: what it fits to clicks
        later can only do better."""
        theta = pair.known_theta
        examined = (np.stack([pair.top_a, pair.top_b]) != NO_DOCUMENT) @ theta
        guess = float(np.clip(np.mean(pair.ctr(user)) / examined.mean(), *RELEVANCES))
        return self.displays(pair, Beliefs(theta, guess))

    def with_floor(self, floor: float) -> LogOpt:
        return replace(self, floor=floor)

    def learn(self, parts: list[Counts], shows: FloatArray, beliefs: Beliefs) -> Beliefs:
        return learnt(parts, shows, beliefs, bias=self.bias)

    def stages(self, pair: Pair, user: User, theta: FloatArray, *, seed: Seed) -> SimulatedTrial:
        return SimulatedTrial(self, pair, user, theta, seed)

    # --- what is known of it ------------------------------------------------------------------------------------------

    @property
    def plain_shares(self) -> tuple[float, float]:
        return self.holdback / 2, self.holdback / 2

    @property
    def estimator(self) -> str:
        return self.estimate

    @property
    def runs_live(self) -> bool:
        return self.relevance == "constant"

    @property
    def role(self) -> str:
        return f"{self.estimate if self.estimate in ROBUST else 'adaptive'}-{self.bias}"

    @property
    def options_of_role(self) -> tuple[str, ...]:
        free = (self.relevance, self.floor, self.holdback) == ("estimated", 0, 0)  # least variance, whatever it costs
        return ("bias", "estimate", *(("relevance", "floor", "holdback") if free else ()))


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

    def __init__(self, method: LogOpt, pair: Pair, user: User, theta: FloatArray, seed: Seed) -> None:
        self.method, self.pair, self.user, self.beliefs = method, pair, user.cut(pair.k), Beliefs(theta)
        self.zeta = np.maximum(user.zeta, LEAST_RELEVANCE) if method.relevance == "true" else None  # for the design
        self.guess: Guess = None if method.estimate == "ips" else self.beliefs.relevance  # for the estimate
        self.seeds = iter(children(seed, len(method.schedule) + 1))
        self.versions: list[DesignVersion] = []
        self.sum_x, self.sum_squares, self.clicks = 0.0, 0.0, 0.0
        # A design shows documents of both top lists only: tables of counts need rows for no others.
        listed = np.concatenate([pair.top_a.ravel(), pair.top_b.ravel()])
        self.documents = np.unique(listed[listed != NO_DOCUMENT]).astype(np.int64)
        self.offsets = np.searchsorted(self.documents, pair.offsets)
        self.shown, self.clicked, self.expected = np.zeros((3, len(self.documents), pair.k))

    def next_version(self) -> None:
        """Fit, revalue what was shown before, make the next design."""
        begin = int(sum(version.shown.sum() for version in self.versions))
        if self.versions:
            self._learn(begin)
        policy = self.method.policy(self.pair, self.beliefs, zeta=self.zeta)
        shown, clicked = np.zeros(len(policy.rankings), np.int64), np.zeros(policy.rankings.shape, np.int64)
        known = self.beliefs
        self.versions.append(DesignVersion(begin, policy, known.theta, self.guess, known.note, shown, clicked))

    def _learn(self, impressions: int) -> None:
        method, pair, before = self.method, self.pair, self.beliefs.theta
        queries = np.repeat(np.arange(pair.n_queries), np.diff(self.offsets))
        counts = Counts(pair.n_documents, self.documents, self.shown, self.clicked, queries, self.expected)
        self.beliefs = method.learn([counts], self.shown.sum(0), self.beliefs)
        if not np.array_equal(self.beliefs.theta, before):
            self.sum_x = sum(self._displays(version).total(version.shown, version.clicked) for version in self.versions)
        known_enough = impressions >= IMPRESSIONS_TO_KNOW_RELEVANCE * pair.n_queries
        design_for_it = method.relevance == "estimated" and known_enough
        if method.estimate in ROBUST or design_for_it:
            guess = np.full(pair.n_documents, self.beliefs.relevance)
            inputs = list_inputs(pair)[self.documents]
            guess[self.documents] = relevance_guess(self.shown, self.clicked, self.beliefs.theta, self.offsets, inputs)
            self.guess = guess if method.estimate in ROBUST else self.guess
            self.zeta = guess if design_for_it else self.zeta
        if method.estimate == "constant":
            self.guess = self.beliefs.relevance

    def _displays(self, version: DesignVersion) -> Displays:
        """A version's displays, valued at the current position bias."""
        return self.method.valued(self.pair, version.policy, self.beliefs.theta, version.guess)

    def show(self, begin: int, end: int, points: IntArray) -> list[tuple[float, float, float]]:
        """Show impressions begin..end with the current design; estimate, mean square and CTR at each point."""
        version = self.versions[-1]
        marks = np.unique([*(points - begin), end - begin])
        sums, shown, clicked = self._displays(version).simulate_counts(self.user, marks, seed=next(self.seeds))
        before = np.array([self.sum_x, self.sum_squares, self.clicks])
        rows = (before + sums[np.searchsorted(marks, points - begin)]) / points[:, None]
        self.sum_x, self.sum_squares, self.clicks = (before + sums[-1]).tolist()
        version.shown[:] = shown
        version.clicked[:] = clicked
        self._remember(version)
        return [(x, square, ctr) for x, square, ctr in rows.tolist()]

    def _remember(self, version: DesignVersion) -> None:
        """Add a version's counts to the tables that fits are made from."""
        mixture, k = version.policy, self.pair.k
        sizes = np.diff(mixture.offsets)
        per_query = np.repeat(np.add.reduceat(version.shown, mixture.offsets[:-1]), sizes)
        filled = mixture.rankings != NO_DOCUMENT
        cells = (np.searchsorted(self.documents, mixture.rankings) * k + np.arange(k))[filled]
        for table, per_cell in (
            (self.shown, np.broadcast_to(version.shown[:, None], filled.shape)),
            (self.clicked, version.clicked),
            (self.expected, np.broadcast_to((per_query * mixture.weights)[:, None], filled.shape)),
        ):
            table += weighted_counts(cells, per_cell[filled].astype(np.float64), table.size).reshape(table.shape)
