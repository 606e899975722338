"""LogOpt without training: the closed form as logging policy, kept up to date as clicks come in.

The same loop as the paper's Algorithm 1. Before the first impression and at each point of a schedule: estimate position bias
from the log where it is not known, and relevance where the estimate or the design uses it; work out the design of least
variance; show what it says from then on. Each impression is valued with the placement of the design that showed it and with
the guess of relevance made before it, so estimates stay unbiased given position bias however the guesses turn out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ranktrial.arrays import NO_DOCUMENT, FloatArray, IntArray, weighted_counts
from ranktrial.design.closed_form import closed_form
from ranktrial.methods.displays import Displays, Linear
from ranktrial.position_bias import Auto, Counts, NotIdentifiable, relevance_guess
from ranktrial.rankings import Mixture, Pair, affine_values, list_inputs
from ranktrial.rankings.values import Guess
from ranktrial.seeds import Seed, children
from ranktrial.users import User

ESTIMATES = ("ips", "constant", "doubly-robust", "rank-aware")
FIRST_GUESS = 0.3  # of relevance, before any click
LEAST_RELEVANCE = 1e-4  # in a design: a document of none would never be shown, and values need every one that differs
LEAST_BIAS = 0.001  # over the rank: the least examination an estimate may come to
IMPRESSIONS_TO_KNOW_RELEVANCE = 50  # a query; a design from fewer is worse than one for equal relevance


class ClosedFormOptions(Protocol):
    """What this part of LogOpt reads of it."""

    @property
    def bias(self) -> str: ...
    @property
    def relevance(self) -> str: ...
    @property
    def estimate(self) -> str: ...
    @property
    def floor(self) -> float: ...
    @property
    def schedule(self) -> tuple[int, ...]: ...


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


def first_guess(method: ClosedFormOptions) -> float | None:
    return None if method.estimate == "ips" else FIRST_GUESS


def design(
    method: ClosedFormOptions,
    pair: Pair,
    theta: FloatArray,
    zeta: FloatArray | None = None,
    mean_relevance: float = FIRST_GUESS,
) -> Mixture:
    """What the method shows, given what it knows; ``zeta`` is None for the same relevance everywhere."""
    zeta0 = mean_relevance if method.estimate == "rank-aware" else None
    return closed_form(pair, theta, zeta=zeta, floor=method.floor, zeta0=zeta0)


def valued(method: ClosedFormOptions, pair: Pair, policy: Mixture, theta: FloatArray, guess: Guess) -> Displays:
    """What impressions of a design are worth at a position bias."""
    rank_aware = method.estimate == "rank-aware"
    affine = affine_values(policy, pair.lam(theta), theta, pair.offsets, zeta_hat=guess, rank_aware=rank_aware)
    return Displays(policy, Linear(affine.values, affine.base))


class ClosedFormState:
    """The log of a run so far, and the method's current idea of its users."""

    def __init__(self, method: ClosedFormOptions, pair: Pair, user: User, theta: FloatArray, seed: Seed) -> None:
        self.method, self.pair, self.user, self.theta = method, pair, user.cut(pair.k), theta
        self.note = ""
        self.zeta = np.maximum(user.zeta, LEAST_RELEVANCE) if method.relevance == "true" else None  # for the design
        self.mean_relevance = FIRST_GUESS
        self.guess: Guess = first_guess(method)  # for the estimate
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
            self._fit(begin)
        policy = design(self.method, self.pair, self.theta, self.zeta, self.mean_relevance)
        shown, clicked = np.zeros(len(policy.rankings), np.int64), np.zeros(policy.rankings.shape, np.int64)
        self.versions.append(DesignVersion(begin, policy, self.theta, self.guess, self.note, shown, clicked))

    def _fit(self, impressions: int) -> None:
        method, pair = self.method, self.pair
        if method.bias == "estimated":
            self._fit_bias()
        # A share of all clicks, so that it is right for what the guess is used for: the clicks of the next impressions.
        examined = (self.shown @ self.theta).sum()
        self.mean_relevance = float(np.clip(self.clicked.sum() / max(examined, 1e-300), 0.01, 0.9))
        known_enough = impressions >= IMPRESSIONS_TO_KNOW_RELEVANCE * pair.n_queries
        by_document = method.estimate in ("doubly-robust", "rank-aware")
        if by_document or (method.relevance == "estimated" and known_enough):
            guess = np.full(pair.n_documents, self.mean_relevance)
            inputs = list_inputs(pair)[self.documents]
            guess[self.documents] = relevance_guess(self.shown, self.clicked, self.theta, self.offsets, inputs)
            self.guess = guess if by_document else self.guess
            if method.relevance == "estimated" and known_enough:
                self.zeta = guess
        if method.estimate == "constant":
            self.guess = self.mean_relevance

    def _fit_bias(self) -> None:
        queries = np.repeat(np.arange(self.pair.n_queries), np.diff(self.offsets))
        counts = Counts(
            self.pair.n_documents, self.documents, self.shown, self.clicked, queries=queries, expected=self.expected
        )
        try:
            fitted = Auto().fit(counts)
        except NotIdentifiable as refusal:
            self.note = f"kept the position bias: {refusal}"
            return
        # Only ratios of theta matter. No two ranks may come out equal or a rank unseen, or a design would leave out documents
        # that a later, better theta needs.
        theta = fitted.theta / max(1.0, float(fitted.theta.max()))
        self.theta = np.maximum(theta, LEAST_BIAS / np.arange(1, self.pair.k + 1))
        self.note = fitted.note
        self.sum_x = sum(self._displays(version).total(version.shown, version.clicked) for version in self.versions)

    def _displays(self, version: DesignVersion) -> Displays:
        """A version's displays, valued at the current position bias."""
        return valued(self.method, self.pair, version.policy, self.theta, version.guess)

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
