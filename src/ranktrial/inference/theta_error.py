"""What an estimated position bias adds to the variance of an estimate, before any click: exactly, in large logs.

The conditional equation (``position_bias.conditional``) has, in every impression, the score s_r = sum over clicked ranks of
1[rank = r] - p_d(r), with p_d(r) = P(d, r) theta_r / rho_d the share of d's clicks that come at rank r. Its estimate of log
theta is off by H^-1 s, H = sum_d P(click on d) (diag p_d - p_d p_d'), and the estimate of Delta then by g' H^-1 s, g the
derivative of E[x] in log theta. That is a number per clicked rank of each ranking, as x is: what is estimated with both behaves
as if impressions were worth x + g' H^-1 s, whose moments are exact.

Shows are taken as the design expects them, as for queries that do not come again. With the shows that happened, the other
choice of ``Auto``, results differ by a hundredth or so.

Two things follow from the error of theta besides. A live interval is widened by a ratio of two jackknife errors. That is never
taken below 1, and a jackknife overstates the error of a ratio in small logs: on average it widens by more than the true ratio.
And a design made from an estimated theta, or from one that was assumed, is not the best one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.inference.impressions import GROUPS
from ranktrial.inference.ladder import LEAST_ARM
from ranktrial.methods import Beliefs, Linear, Method
from ranktrial.methods.beliefs import sound_theta
from ranktrial.methods.click_model import expected_beliefs, valued
from ranktrial.rankings import Mixture, Pair
from ranktrial.seeds import Seed, generator
from ranktrial.users import User, rank_decay

STEP = 1e-4  # of log theta, for derivatives
SURE_ERROR = 0.2  # of a theta: expected, where a log's own estimate of it is surely below ``adaptive.MOST_ERROR``,
SURE_CLICKS = (
    0.3  # and variance of a log theta, where clicks at its rank surely lead to the first without any one group
)
OVERSTATED = 2.0  # theta's part in a jackknife variance over its true one, where trials decide; see docs/planning.md
SINGULAR = 1e12  # condition number of H from which theta is not identified
JACKKNIVES = 4_000  # drawn for the mean widening, which is then right to 0.003
USED_ERROR = 0.3  # where mostly it is
DESIGNS = 6  # drawn for the variance under a design from an estimated theta


@dataclass(frozen=True, eq=False)
class ThetaError:
    """Consequences of estimating theta from the same clicks.

    Attributes:
        clicks_alone: Variance of x, theta known.
        variance: N times that of the estimate from N impressions; infinite where theta cannot be told from relevance.
        part: N times the variance of theta's part in it alone.
        covariance: N times that of log theta.
        worst: N times the largest variance of a theta_r, in units of theta_1.
    """

    clicks_alone: float
    variance: float
    part: float
    covariance: FloatArray
    worst: float

    @property
    def first_fit(self) -> float:
        """After about how many impressions theta is surely known well enough to be used."""
        return max(self.worst / SURE_ERROR**2, float(self.covariance.diagonal().max()) / SURE_CLICKS)

    def mean_widening(self) -> float:
        """The mean ratio of jackknife errors with theta fitted anew and with theta fixed, each ratio at least 1."""
        joint = (self.variance - self.clicks_alone - self.part) / 2
        both = np.array([[self.clicks_alone, joint], [joint, OVERSTATED * self.part]])
        factor = np.linalg.cholesky(both + 1e-12 * np.trace(both) * np.eye(2))
        normal = generator(0).normal(size=(JACKKNIVES, GROUPS - 1, 2)) @ factor.T
        alone, whole = (normal[..., 0] ** 2).sum(1), (normal.sum(2) ** 2).sum(1)
        return float(np.maximum(np.sqrt(whole / alone), 1).mean())


def theta_error(method: Method, pair: Pair, user: User) -> ThetaError:
    """For a method that learns position bias and values clicks by the click model, at the pair's theta."""
    displays, theta, k = method.planned_displays(pair, user), pair.known_theta, pair.k
    mixture, value = displays.mixture, displays.value
    assert isinstance(value, Linear)
    alone = displays.moments(user).variance
    if k == 1:
        return ThetaError(alone, alone, 0.0, np.zeros((1, 1)), 0.0)
    shares, information = _clicks_by_rank(mixture, pair, user)
    within = information[1:, 1:]
    if not (np.diag(within) > 0).all() or np.linalg.cond(within) > SINGULAR:
        return ThetaError(alone, np.inf, np.inf, np.full((k, k), np.inf), np.inf)
    inverse = np.zeros((k, k))
    inverse[1:, 1:] = np.linalg.inv(within)

    def per_click(of_log_theta: FloatArray) -> FloatArray:
        """The error of a linear function of log theta, as a number per clicked rank of each ranking."""
        coefficient = inverse @ of_log_theta
        expected = np.append(shares @ coefficient, 0.0)[mixture.rankings]
        return np.where(mixture.rankings >= 0, coefficient - expected, 0.0)

    guess = expected_beliefs(pair, user).relevance

    def mean_of_x(bias: FloatArray) -> float:
        return valued(pair, mixture, bias, guess, estimate=method.estimator).moments(user).mean

    nudges = np.exp(STEP * np.eye(k))
    slope = np.array([(mean_of_x(theta * up) - mean_of_x(theta / up)) / (2 * STEP) for up in nudges])
    from_theta = per_click(slope)
    total = mixture.moments(value.values + from_theta, user, value.base).variance
    of_ranks = np.array([mixture.moments(per_click(row), user).variance for row in np.eye(k)])
    # H^-1 has the right correlations, as if shows were what happened; variances are exact.
    scale = np.sqrt(np.divide(of_ranks, np.diag(inverse), out=np.zeros(k), where=np.diag(inverse) > 0))
    covariance = inverse * np.outer(scale, scale)
    part = mixture.moments(from_theta, user).variance
    return ThetaError(alone, total, part, covariance, float((of_ranks * theta**2).max()))


def learning_variance(
    method: Method, pair: Pair, user: User, error: ThetaError | None, *, seed: Seed = 0
) -> list[tuple[int, float]]:
    """The variance of x from each point of a method's schedule on, with what it will have learnt by then; (begin, variance).

    Before the first point it knows nothing of relevance. As long as theta cannot be told, designs are made from 1 / rank, as
    a live trial's are by default; then from an estimate, of which some are drawn. Readings of the log are taken to agree once
    theta and enough plain traffic allow for a comparison.
    """
    if not method.learns_at or not method.needs_position_bias:
        return [(0, method.planned_moments(pair, user).variance)]
    theta, random = pair.known_theta, generator(seed)
    plain: float | None = None

    def variance(beliefs: Beliefs) -> float:
        policy = method.policy(pair, beliefs)  # type: ignore[call-arg]
        assert isinstance(policy, Mixture)
        return valued(pair, policy, theta, beliefs.relevance, estimate=method.estimator).moments(user).variance

    first = theta if error is None else rank_decay(pair.k)
    stages, held_back, learnt = [(0, variance(Beliefs(first)))], 0.0, None
    for before, begin in pairwise([0, *method.learns_at]):
        share = sum(method.plain_shares) if plain is None else plain
        held_back += share * (begin - before)
        fitted = error is None or error.worst / begin <= USED_ERROR**2
        agree = True if fitted and held_back >= 2 * LEAST_ARM else None
        plain = method.next_share(Beliefs(theta, fitted=fitted, plain=plain), agree)
        if learnt is None or learnt.plain != plain:
            learnt = method.planned_beliefs(pair, user, plain)
        if error is None or not fitted:
            found = [variance(replace(learnt, theta=first))]
        else:
            logs = random.multivariate_normal(np.zeros(pair.k), error.covariance / begin, size=DESIGNS, method="eigh")
            found = [variance(replace(learnt, theta=bias)) for bias in sound_theta(theta * np.maximum(1 + logs, 0))]
        stages.append((begin, float(np.mean(found))))
    return stages


def mean_variance(stages: list[tuple[int, float]], impressions: float) -> float:
    """The mean over the first impressions of a variance that changes on the way.

    >>> mean_variance([(0, 2.0), (100, 1.0)], 400)
    1.25
    """
    begins, variances = (np.array(column, np.float64) for column in zip(*stages))
    sizes = np.clip(impressions, begins, np.append(begins[1:], np.inf)) - begins
    return float(sizes @ variances / impressions)


def _clicks_by_rank(mixture: Mixture, pair: Pair, user: User) -> tuple[FloatArray, FloatArray]:
    """p_d(r) of every document, and H."""
    at_rank = mixture.placement() * pair.known_theta
    exposure = at_rank.sum(1)
    shares = np.divide(at_rank, exposure[:, None], out=np.zeros_like(at_rank), where=exposure[:, None] > 0)
    clicks = exposure * user.zeta / pair.n_queries
    return shares, np.diag(clicks @ shares) - (shares * clicks[:, None]).T @ shares
