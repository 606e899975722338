"""Forecast of a learning method before any click: the designs it will show, and the variance from estimating position bias.

Designs come from simulated runs of the method itself (``learning_stages``): a design made from few clicks is not the best one.
The variance of x under each is exact.

The error of theta is that of the conditional equation, by its influence on the estimate (``methods.influence``): exactly in
large logs. In a log of several designs its parts are means over the log's impressions.

Shows are taken as the design expects them, as for queries that do not come again. With the shows that happened, the other
choice of ``Auto``, results differ by a hundredth or so.

That is the first order. To the second one, values at an estimated theta vary more than at the true one: by half the sum of the
second derivatives of their variance times the covariance of log theta. A jackknife counts variance of the second order twice
(Efron and Stein 1981), so live intervals are wider than the estimate's true error asks for. They are also widened by a ratio of
two jackknife errors that is never taken below 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ranktrial.analysis.intervals import asymptotic_radius
from ranktrial.analysis.ladder import LEAST_ARM, SMALL, VISIBLE
from ranktrial.arrays import NO_DOCUMENT, FloatArray
from ranktrial.log.log import GROUPS
from ranktrial.methods import AB, Method
from ranktrial.methods.beliefs import expected_beliefs
from ranktrial.methods.click_model import ClickModelMethod, planned_displays
from ranktrial.methods.displays import Displays, Linear, valued
from ranktrial.methods.influence import ThetaInfluence
from ranktrial.rankings import Mixture, Moments, Pair, expected_clicks
from ranktrial.rankings.values import Prediction
from ranktrial.seeds import Seed, generator
from ranktrial.users import User, rank_decay

BEND = 0.5  # standard errors of log theta, for second derivatives
SURE_ERROR = 0.2  # of a theta: expected, where a log's own estimate of it is surely below ``beliefs.MOST_ERROR``,
SURE_CLICKS = 0.3  # and variance of a log theta: there are clicks enough at its rank without any one group
SINGULAR = 1e12  # condition number of H from which theta is not identified
JACKKNIVES = 4_000  # drawn for the mean widening, which is then right to 0.003
MEDIAN = 0.67  # standard errors: of the size of a difference that is chance alone


@dataclass(frozen=True, eq=False)
class ThetaError:
    """Consequences of estimating theta from the same clicks.

    Attributes:
        clicks_alone: Variance of x, valued with a theta that was estimated.
        variance: N times that of the estimate from N impressions; infinite where theta cannot be told from relevance.
        jackknife: The same as a jackknife finds it, on average.
        joint: N times the covariance of the error of x and of theta's error in the estimate.
    """

    clicks_alone: float
    variance: float
    jackknife: float
    joint: float

    def with_noise(self, more: float) -> ThetaError:
        """Errors of values with a noise of their own that has nothing to do with theta."""
        return replace(
            self, clicks_alone=self.clicks_alone + more, variance=self.variance + more, jackknife=self.jackknife + more
        )

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the ratio of both jackknife errors (``ratio_freedom``)."""
        together = (self.clicks_alone + self.joint) ** 2 / max(self.clicks_alone * self.jackknife, 1e-300)
        return (GROUPS - 1) / (2 * max(1 - together, 1e-6))

    def mean_widening(self) -> float:
        """The mean ratio of jackknife errors with theta fitted anew and with theta fixed, each ratio at least 1."""
        part = self.jackknife - self.clicks_alone - 2 * self.joint
        both = np.array([[self.clicks_alone, self.joint], [self.joint, part]])
        factor = np.linalg.cholesky(both + 1e-12 * np.trace(both) * np.eye(2))
        normal = generator(0).normal(size=(JACKKNIVES, GROUPS - 1, 2)) @ factor.T
        alone, whole = (normal[..., 0] ** 2).sum(1), (normal.sum(2) ** 2).sum(1)
        return float(np.maximum(np.sqrt(whole / alone), 1).mean())


@dataclass(frozen=True, eq=False)
class Stage:
    """One design of a trial, and its exact consequences.

    Attributes:
        begin: Impressions before it.
        displays: The design, its impressions valued at the pair's theta.
        prediction: Relevance that these are valued with.
        pair: The rankers.
        user: Their users.
        estimator: Name of the estimate.
    """

    begin: int
    displays: Displays
    prediction: Prediction
    pair: Pair
    user: User
    estimator: str

    @cached_property
    def variance(self) -> float:
        """Variance of x with theta known."""
        return self.displays.moments(self.user).variance

    @cached_property
    def squared_weights(self) -> float:
        """E[sum of (lambda_d / rho_d)^2 over the clicks of an impression]."""
        return squared_weights(self.displays.mixture, self.pair, self.user)

    @cached_property
    def squared_weights_by_rank(self) -> float:
        """Mean square of the weights of the direct estimate, over the clicks of an impression."""
        return squared_weights_by_rank(self.displays.mixture, self.pair, self.user)

    @cached_property
    def influence(self) -> ThetaInfluence:
        """Influence of one impression on theta, by the design."""
        return ThetaInfluence.of_displays(self.displays, self.pair, self.user)

    def bend(self, direction: FloatArray) -> float:
        """The second derivative of the variance of x, as valued at another theta, along a direction of log theta."""
        ends = [self._at(sign * BEND * direction).variance for sign in (1, -1)]
        return (sum(ends) - 2 * self.variance) / BEND**2

    def _at(self, error: FloatArray) -> Moments:
        """Moments of x, valued with a log theta that is off by this error."""
        theta = self.pair.known_theta * np.exp(error)
        found = valued(self.pair, self.displays.mixture, theta, self.prediction, estimate=self.estimator)
        return found.moments(self.user)

    def with_theta(self, coefficient: FloatArray, *, x: bool) -> float:
        """The variance of coefficient' s, with x added to it or alone."""
        alone = float(coefficient @ self.influence.variance @ coefficient)
        return alone + self.variance + 2 * float(coefficient @ self.influence.covariance) if x else alone


def learning_stages(method: Method, pair: Pair, user: User, impressions: float, *, seed: Seed = 0) -> list[Stage]:
    """The designs that a run of so many impressions goes through.

    A method that learns is simulated: it fits position bias and relevance to the clicks so far at each point of its schedule,
    and begins with 1 / rank as a live trial does by default. Its share of A/B traffic changes by ``agreement``.
    """

    assert isinstance(method, ClickModelMethod)

    def stage(begin: int, displays: Displays, prediction: Prediction) -> Stage:
        return Stage(begin, displays, prediction, pair, user, method.estimate)

    if not method.traits.learns_at:
        return [stage(0, planned_displays(method, pair, user), expected_beliefs(pair, user).relevance)]
    run = method.stages(
        pair, user, rank_decay(pair.k) if method.traits.learns_position_bias else pair.known_theta, seed=seed
    )
    turns = [0, *(turn for turn in method.traits.learns_at if turn < impressions)]
    found: list[Stage] = []
    plain = 0.0
    for begin, end in zip(turns, [*turns[1:], 0]):
        run.agree = agreement(found, begin, plain)
        run.next_version()
        version = run.versions[-1]
        displays = valued(pair, version.policy, pair.known_theta, version.prediction, estimate=method.estimate)
        found.append(stage(begin, displays, version.prediction))
        if end:
            run.draw(begin, end)
            share = sum(method.traits.ab_shares) if run.beliefs.plain is None else run.beliefs.plain
            plain += share * (end - begin)
    return found


def agreement(stages: Sequence[Stage], impressions: float, plain: float) -> bool | None:
    """Decision on A/B traffic after so many impressions, ``plain`` of them A/B: True to halve it, None if it stays.

    It is halved if the bias that could hide is small against the interval, at the median difference of an estimate that is
    right from that of the A/B traffic, and if a bias as large as the difference of the rankers would show. With
    ``LogOpt.next_share`` this is all that a plan assumes of the share of A/B traffic.
    """
    if plain < 2 * LEAST_ARM:
        return None
    pair, user = stages[0].pair, stages[0].user
    own = mean_variance(stages, impressions) / impressions
    apart = np.sqrt(max(AB(estimate="adjusted").moments(pair, user).variance / plain - own, 0.0))
    reach = asymptotic_radius([impressions], [np.sqrt(impressions)])[0]  # of a standard error of 1
    small, shows = (MEDIAN + reach) * apart <= SMALL * reach * np.sqrt(own), VISIBLE * apart <= abs(pair.delta(user))
    return True if small and shows else None


def shares(stages: Sequence[Stage], impressions: float) -> FloatArray:
    """The share of the first impressions that each stage has."""
    begins = np.array([stage.begin for stage in stages], np.float64)
    return np.asarray((np.clip(impressions, begins, np.append(begins[1:], np.inf)) - begins) / impressions)


def squared_weights(design: Mixture, pair: Pair, user: User) -> float:
    """E[sum of (lambda_d / rho_d)^2 over the clicks of an impression].

    >>> from ranktrial.users import position_based
    >>> pair = Pair.from_lists([["x"]], [["y"]], k=1).knowing(theta=[1.0])
    >>> round(squared_weights(AB().policy(pair), pair, position_based([0.3, 0.1], [1.0])), 9)  # a click is worth 2 or -2
    0.8
    """
    weights = valued(pair, design, pair.known_theta, 0.0, estimate="ips").value
    assert isinstance(weights, Linear)
    of_clicks = weights.values**2 * expected_clicks(design.rankings, user)
    return float(design.mean(of_clicks.sum(1)).mean())


def squared_weights_by_rank(design: Mixture, pair: Pair, user: User) -> float:
    """E[sum of squared weights over the clicks of an impression] of the direct estimate: of a click on a document at a rank,
    A has it there less B has it there, over P(it stands there).
    """
    moved = np.zeros((pair.n_documents, pair.k))
    for table, sign in ((pair.top_a, 1), (pair.top_b, -1)):
        query, rank = np.nonzero(table != NO_DOCUMENT)
        moved[table[query, rank], rank] += sign
    document, rank = np.nonzero(moved)
    clicked = user.zeta[document] * pair.known_theta[rank]
    return float((clicked / design.placement()[document, rank]).sum()) / pair.n_queries


def mean_squared_weights(stages: Sequence[Stage], impressions: float, *, by_rank: bool = False) -> float:
    """Squared weights of the clicks of an impression, on average over the first ones."""
    each = [stage.squared_weights_by_rank if by_rank else stage.squared_weights for stage in stages]
    return float(shares(stages, impressions) @ each)


def mean_variance(stages: Sequence[Stage], impressions: float) -> float:
    """The variance of x over the first impressions, theta known."""
    return float(shares(stages, impressions) @ [stage.variance for stage in stages])


def theta_error(stages: Sequence[Stage], impressions: float, bend: float = 0.0) -> ThetaError:
    """Error that a theta from these first impressions adds to an estimate of Delta; ``bend`` is that of ``mean_bend``."""
    known, parts = mean_variance(stages, impressions), _parts(stages, impressions)
    slope = np.sum([share * stage.influence.gain for share, stage in parts], axis=0)
    both, alone = (_variance_of(parts, slope, x=x) for x in (True, False))
    if not np.isfinite(both):
        return ThetaError(known, np.inf, np.inf, 0.0)
    more = bend / impressions
    return ThetaError(known + more, both + more, both + 2 * more, (both - known - alone) / 2)


def mean_bend(stages: Sequence[Stage], impressions: float) -> float:
    """N times what values at an estimated theta vary more than at the true one, with the designs of the first impressions."""
    parts = _parts(stages, impressions)
    within = _information(parts)
    if not _tells_theta(within):
        return 0.0
    sizes, directions = np.linalg.eigh(np.linalg.inv(within))
    errors = np.vstack([np.zeros(len(sizes)), directions * np.sqrt(sizes / impressions)])
    found = sum(share * stage.bend(error) for share, stage in parts for error in errors.T)
    return max(float(found) / 2 * impressions, 0.0)


def log_theta_variances(stages: Sequence[Stage], impressions: float) -> FloatArray:
    """N times the variance of each log theta, estimated from these first impressions."""
    parts = _parts(stages, impressions)
    return np.array([_variance_of(parts, row, x=False) for row in np.eye(stages[0].pair.k)])


def theta_known_after(stages: Sequence[Stage], impressions: float) -> float:
    """Approximate number of impressions after which theta is known well enough to be used.

    ``impressions`` says how many of the first impressions the designs are taken from.
    """
    logs, theta = log_theta_variances(stages, impressions), stages[0].pair.known_theta
    return max(float((logs * theta**2).max()) / SURE_ERROR**2, float(logs.max()) / SURE_CLICKS)


def _parts(stages: Sequence[Stage], impressions: float) -> list[tuple[float, Stage]]:
    return [(share, stage) for share, stage in zip(shares(stages, impressions), stages) if share > 0]


def _information(parts: list[tuple[float, Stage]]) -> FloatArray:
    """H of all ranks but the first, whose theta is 1."""
    return np.asarray(np.sum([share * stage.influence.information for share, stage in parts], axis=0)[1:, 1:])


def _tells_theta(information: FloatArray) -> bool:
    return bool((np.diag(information) > 0).all()) and (
        not len(information) or bool(np.linalg.cond(information) <= SINGULAR)
    )


def _variance_of(parts: list[tuple[float, Stage]], of_log_theta: FloatArray, *, x: bool) -> float:
    """N times the variance of a linear function of the estimated log theta, with the mean of x added to it or alone."""
    within = _information(parts)
    if not _tells_theta(within):
        return np.inf
    coefficient = np.append(0.0, np.linalg.solve(within, of_log_theta[1:]))
    return float(sum(share * stage.with_theta(coefficient, x=x) for share, stage in parts))
