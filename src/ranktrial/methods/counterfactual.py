"""Counterfactual evaluation (policy-aware IPS; Oosterhuis and de Rijke 2020) with a fixed logging policy.

Rankings are drawn from a logging policy; a click on d counts lambda_d / rho_d. Unbiased for Delta whatever the policy, as long
as position bias is known and every document on which the rankers differ can be seen; how fast it converges depends on the
policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import FloatArray, sum_by_group
from ranktrial.design.closed_form import closed_form
from ranktrial.methods.base import Method, Traits, simulated_average, spelled
from ranktrial.methods.displays import Displays, Linear
from ranktrial.methods.expected import ExpectedRun
from ranktrial.methods.trajectory import Trajectory
from ranktrial.rankings import Mixture, Moments, Pair, PlackettLuce, ips_weights, show_counts
from ranktrial.rankings.drawn_moments import ips_moments
from ranktrial.rankings.lists import check_user
from ranktrial.rankings.plackett_luce import CountArray, simulate
from ranktrial.seeds import Seed, children
from ranktrial.users import User

LOGGING = ("uniform", "ab", "lambda", "optimal")
PROPENSITIES = ("policy", "observed")
LAMBDA_SHARPNESS = 16.0


@dataclass(frozen=True, repr=False)
class Counterfactual(Method):
    """IPS with a logging policy that does not change.

    Attributes:
        logging: "uniform" shows any ranking of all documents alike, "ab" A's or B's with equal chance, "lambda" draws
            documents by ``exp(16 |lambda|)``: no learning. "optimal" is the closed form: of all distributions over rankings
            the one of least variance when documents are equally relevant; no learning either.
        floor: For "optimal", the share of its lesser exposure under A and B that every document keeps: 0.5 and more take
            back clicks that the optimum costs users, for some variance.
        propensities: "policy" takes rho from the policy, exactly. "observed" takes it from how often each document was
            shown so far, as the authors' code does: less variance with many impressions of a query, biased with few.
        clip: Largest weight of a click; None for no limit. Clipping costs bias (see ``ips_weights``).

    >>> from ranktrial.users import position_based
    >>> pair = Pair.from_lists([["a", "b", "c"]], [["b", "c", "a"]], k=2).knowing(theta=[1.0, 0.6])
    >>> user = position_based(zeta=[0.5, 0.3, 0.2], theta=[1.0, 0.6])
    >>> round(pair.delta(user), 3)
    0.26
    >>> for logging in ("uniform", "ab", "optimal"):  # unbiased with any of them, with more or less variance
    ...     moments = Counterfactual(logging=logging).moments(pair, user)
    ...     print(logging, round(moments.mean, 3), round(moments.variance, 3))
    uniform 0.26 0.946
    ab 0.26 1.178
    optimal 0.26 0.687
    """

    logging: str = spelled("uniform")
    propensities: str = "policy"
    clip: float | None = None
    floor: float = 0.0

    def __post_init__(self) -> None:
        checks.between("floor", self.floor, 0, 1)
        if self.floor and self.logging != "optimal":
            raise ValueError(f'floor belongs to logging="optimal", not to "{self.logging}"')
        checks.one_of("logging", self.logging, LOGGING)
        checks.one_of("propensities", self.propensities, PROPENSITIES)
        if self.clip is not None:
            checks.between("clip", self.clip, 0, np.inf, open_ends=True)
        if self.clip is not None and self.propensities == "observed":
            raise ValueError("clip applies to weights from the policy, not to observed propensities")

    def policy(self, pair: Pair) -> Mixture | PlackettLuce:
        """Logging policy."""
        if self.logging == "ab":
            return Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), pair.n_documents, plain=True)
        if self.logging == "optimal":
            return closed_form(pair, pair.known_theta, floor=self.floor)
        sharpness = LAMBDA_SHARPNESS if self.logging == "lambda" else 0.0
        return PlackettLuce(sharpness * np.abs(pair.lam(pair.known_theta)), pair.offsets, pair.k)

    def displays(self, pair: Pair) -> Displays:
        """All displays, where few enough to list (always for "ab" and "optimal"), valued with policy propensities."""
        policy = self.policy(pair)
        mixture = policy if isinstance(policy, Mixture) else policy.listed()
        values = self._weights(pair, mixture.exposure(pair.known_theta))
        return Displays(mixture, Linear(np.append(values, 0.0)[mixture.rankings]))

    def drawn_moments(self, pair: Pair, user: User, *, seed: Seed) -> Moments:
        policy = self.policy(pair)
        if isinstance(policy, Mixture) or not user.reads_on:
            return self.moments(pair, user)
        return ips_moments(pair, policy, pair.known_theta, user, seed=seed, clip=self.clip)

    def expected(self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, runs: int = 1) -> ExpectedRun:
        if self.propensities == "observed" or not (self.logging in ("ab", "optimal") or user.reads_on):
            return simulated_average(self, pair, user, checkpoints, seed=seed, runs=runs)
        return super().expected(pair, user, checkpoints, seed=seed)

    def _weights(self, pair: Pair, rho: FloatArray) -> FloatArray:
        return ips_weights(pair.lam(pair.known_theta), rho, pair.offsets, clip=self.clip)

    def simulate(
        self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, shortcut: bool = True
    ) -> Trajectory:
        check_user(user, pair.k, pair.n_documents)
        policy = self.policy(pair)
        user = user.cut(pair.k)
        if self.propensities == "observed":
            return self._simulate_observed(policy, pair, user, checkpoints, seed)
        if isinstance(policy, Mixture):
            return self.displays(pair).simulate(user, checkpoints, seed=seed)
        wanted = pair.lam(pair.known_theta) != 0
        weights = self._weights(pair, policy.exposure(pair.known_theta, wanted=wanted))
        return Trajectory.of_sums(checkpoints, lambda points: simulate(policy, user, weights, points, seed=seed))

    def _simulate_observed(
        self, policy: Mixture | PlackettLuce, pair: Pair, user: User, checkpoints: ArrayLike, seed: Seed
    ) -> Trajectory:
        """Simulate by counts alone; single impressions have no value of their own then, so the mean square is not known."""
        points = checks.checkpoints(checkpoints)
        shown, clicked = (np.zeros((pair.n_documents, pair.k), np.uint32) for _ in range(2))
        estimate, ctr = np.empty((2, len(points)))
        nothing = np.zeros(pair.n_documents)
        lam = pair.lam(pair.known_theta)
        for i, (more, child) in enumerate(zip(np.diff(points, prepend=0), children(seed, len(points)))):
            if isinstance(policy, Mixture):
                more_shown, more_clicked = show_counts(policy, user, int(more), seed=child)
                shown += more_shown.astype(np.uint32)
                clicked += more_clicked.astype(np.uint32)
            else:
                simulate(policy, user, nothing, [more], seed=child, tables=(shown, clicked))
            estimate[i] = observed_estimate(pair, lam, pair.known_theta, shown, clicked)
            ctr[i] = clicked.sum() / points[i]
        return Trajectory(points, estimate, np.full(len(points), np.nan), ctr)

    @property
    def traits(self) -> Traits:
        top_only = self.logging in ("ab", "optimal")
        listed = top_only and self.propensities == "policy"
        return Traits(
            tends_to_delta=self.clip is None,
            needs_position_bias=True,
            fair_to_random_clicks=self.clip is None,
            shows_top_only=top_only,
            ab_shares=(0.5, 0.5) if self.logging == "ab" else (0.0, 0.0),
            averages_impressions=self.propensities == "policy",
            lists_displays=listed,
            has_exact_limit=listed,  # by theory it is Delta elsewhere too; exact exposures of all documents cost too much
        )


def observed_estimate(
    pair: Pair, lam: FloatArray, theta: FloatArray, shown: FloatArray | CountArray, clicked: FloatArray | CountArray
) -> float:
    """The authors' estimate, (1/N) sum_q n_q sum_d lambda_d clicks_d / sum_r shown_dr theta_r: a ratio, so biased where a
    query is seen a few times only. Documents never examined count as never clicked."""
    examined = shown @ theta
    per_document = np.divide(clicked.sum(1) * lam, examined, out=np.zeros(len(examined)), where=examined > 0)
    impressions = sum_by_group(np.asarray(shown[:, 0], np.float64), pair.offsets)
    return float(impressions @ sum_by_group(per_document, pair.offsets) / impressions.sum())
