"""What an estimated position bias adds to the variance of an estimate, before any click: exactly, in large logs.

The conditional equation (``position_bias.conditional``) has, in every impression, the score s_r = sum over clicked ranks of
1[rank = r] - p_d(r), with p_d(r) = P(d, r) theta_r / rho_d the share of d's clicks that come at rank r. Its estimate of log
theta is off by H^-1 s, H = sum_d P(click on d) (diag p_d - p_d p_d'), and the estimate of Delta then by g' H^-1 s, g the
derivative of E[x] in log theta. That is a number per clicked rank of each ranking, as x is: what is estimated with both behaves
as if impressions were worth x + g' H^-1 s, whose moments are exact.

Shows are taken as the design expects them, as for queries that do not come again. With the shows that happened, the other
choice of ``Auto``, results differ by a hundredth or so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.methods import Linear, Method
from ranktrial.methods.click_model import expected_beliefs, valued
from ranktrial.rankings import Mixture, Pair
from ranktrial.users import User

STEP = 1e-4  # of log theta, for derivatives
SURE_ERROR = 0.2  # of a theta: expected, where a log's own estimate of it is surely below ``adaptive.MOST_ERROR``
SINGULAR = 1e12  # condition number of H from which theta is not identified


@dataclass(frozen=True)
class ThetaError:
    """Consequences of estimating theta from the same clicks.

    Attributes:
        variance: N times that of the estimate from N impressions; infinite where theta cannot be told from relevance.
        worst: N times the largest variance of a theta_r, in units of theta_1.
    """

    variance: float
    worst: float


def theta_error(method: Method, pair: Pair, user: User) -> ThetaError:
    """For a method that learns position bias and values clicks by the click model, at the pair's theta."""
    displays, theta, k = method.planned_displays(pair, user), pair.known_theta, pair.k
    mixture, value = displays.mixture, displays.value
    assert isinstance(value, Linear)
    if k == 1:
        return ThetaError(displays.moments(user).variance, 0.0)
    shares, information = _clicks_by_rank(mixture, pair, user)
    free = np.flatnonzero(np.diag(information) > 0)
    free = free[free > 0]
    within = information[np.ix_(free, free)]
    if len(free) < k - 1 or np.linalg.cond(within) > SINGULAR:
        return ThetaError(np.inf, np.inf)
    inverse = np.linalg.inv(within)

    def per_click(of_log_theta: FloatArray) -> FloatArray:
        """The error of a linear function of log theta, as a number per clicked rank of each ranking."""
        coefficient = np.zeros(k)
        coefficient[free] = inverse @ of_log_theta[free]
        expected = np.append(shares @ coefficient, 0.0)[mixture.rankings]
        return np.where(mixture.rankings >= 0, coefficient - expected, 0.0)

    guess = expected_beliefs(pair, user).relevance

    def mean_of_x(bias: FloatArray) -> float:
        return valued(pair, mixture, bias, guess, estimate=method.estimator).moments(user).mean

    nudges = np.exp(STEP * np.eye(k))
    slope = np.array([(mean_of_x(theta * up) - mean_of_x(theta / up)) / (2 * STEP) for up in nudges])
    total = mixture.moments(value.values + per_click(slope), user, value.base)
    ranks = [mixture.moments(per_click(row), user).variance for row in np.diag(theta)[free]]
    return ThetaError(total.variance, max(ranks))


def _clicks_by_rank(mixture: Mixture, pair: Pair, user: User) -> tuple[FloatArray, FloatArray]:
    """p_d(r) of every document, and H."""
    at_rank = mixture.placement() * pair.known_theta
    exposure = at_rank.sum(1)
    shares = np.divide(at_rank, exposure[:, None], out=np.zeros_like(at_rank), where=exposure[:, None] > 0)
    clicks = exposure * user.zeta / pair.n_queries
    return shares, np.diag(clicks @ shares) - (shares * clicks[:, None]).T @ shares
