"""The law of an estimate whose theta is fitted to the same clicks, to first order.

The estimate from N impressions at a theta near the true one is the mean of x at the true theta, plus G' (log theta - true),
where G is what x gains on average per unit of log theta. Under the position-based model E[x] of a query is
sum_d lambda_d zeta_d B_d / E_d, with B and E the same weighted exposure at the true and at the assumed theta, so that

    G_r = E[clicks of A's list at rank r] - E[clicks of B's there] - E[value times click at rank r].

Theta solves the conditional equation (``position_bias.conditional``): log theta - true is H^-1 times the sum of scores, with H
the equation's information. A click on document d at rank r has the score e_r - w_d, w_d its share of examinations by rank.
So the estimate is the mean of x + a' score with a = H^-1 G, and its variance that of x plus 2 a' C + a' V a, with C the
covariance of x and score and V the variance of scores. The equation given what was shown takes its shares from the shows, and
what displays differ in is no part of its score; given the design, from placement, and it is. Scores are compared within
versions of a design, and each has mean 0 given the past: variances of versions add up while the method learns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ranktrial.arrays import FloatArray, IntArray
from ranktrial.methods._kernels.influence import score_moments
from ranktrial.methods.displays import Displays, Linear
from ranktrial.rankings import Pair
from ranktrial.rankings.lists import expected_clicks
from ranktrial.users import User


@dataclass(frozen=True, eq=False)
class ThetaInfluence:
    """Sums over impressions that say what fitting theta to their clicks does to an estimate; those of parts of a log add up.

    Attributes:
        gain: G, of each rank.
        information: H.
        variance: V, of the scores.
        covariance: C, of x and scores.
    """

    gain: FloatArray
    information: FloatArray
    variance: FloatArray
    covariance: FloatArray

    @classmethod
    def of_displays(
        cls, displays: Displays, pair: Pair, user: User, *, shown: IntArray | None = None
    ) -> ThetaInfluence:
        """Influence of one impression, by the design; or of all impressions, given how often each display was ``shown``."""
        mixture, value = displays.mixture, displays.value
        assert isinstance(value, Linear)
        base = np.zeros(len(mixture.weights)) if value.base is None else value.base
        times = mixture.weights / mixture.n_queries if shown is None else shown
        earned, information, variance, covariance = score_moments(
            pair.offsets, mixture.offsets, mixture.rankings, mixture.weights, times, value.values, base,
            user.zeta, user.slope, shown is None,
        )  # fmt: skip
        of_a, of_b = (expected_clicks(table, user).mean(0) for table in (pair.top_a, pair.top_b))
        impressions = 1.0 if shown is None else float(shown.sum())
        return cls(impressions * (of_a - of_b - earned), information, variance, covariance)

    @classmethod
    def total(cls, parts: Sequence[ThetaInfluence]) -> ThetaInfluence:
        """Add up the influence of several parts of a log."""
        names = ("gain", "information", "variance", "covariance")
        return cls(*(np.sum([getattr(part, name) for part in parts], axis=0) for name in names))

    def __mul__(self, times: float) -> ThetaInfluence:
        return ThetaInfluence(
            times * self.gain, times * self.information, times * self.variance, times * self.covariance
        )

    @property
    def coefficients(self) -> FloatArray:
        """a, what the sum of x gains by a unit of the score at each rank; theta_1 is 1."""
        found = np.zeros_like(self.gain)
        found[1:] = np.linalg.lstsq(self.information[1:, 1:], self.gain[1:], rcond=None)[0]
        return found

    @property
    def added_variance(self) -> float:
        """Variance that fitting theta adds to the sum of x; negative where theta's errors make up for those of x."""
        a = self.coefficients
        return float(2 * a @ self.covariance + a @ self.variance @ a)
