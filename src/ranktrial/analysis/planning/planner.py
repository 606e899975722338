"""Planner of single methods: impressions that they need, from the exact variance of one impression's value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from ranktrial.analysis.intervals import FIRST_LOOK, t_widening
from ranktrial.analysis.ladder import AB_TRAFFIC, POSITION_BASED, SHARES, VISIBLE
from ranktrial.analysis.planning.metrics import KnownMetric
from ranktrial.analysis.planning.results import PlannedMethod
from ranktrial.analysis.planning.theta_error import (
    Stage,
    learning_stages,
    mean_bend,
    mean_variance,
    squared_weights,
    theta_error,
    theta_known_after,
)
from ranktrial.analysis.power import (
    CLICKS_TO_SAY,
    MOST,
    ROUNDING,
    anytime_impressions,
    fixed_impressions,
    jackknife_quantiles,
    normal_quantiles,
    tightest_for,
)
from ranktrial.distributions import normal_quantile
from ranktrial.methods import LogOpt, Method
from ranktrial.methods.click_model import planned_displays
from ranktrial.rankings import Moments, Pair, exposure_of
from ranktrial.seeds import Seed, children
from ranktrial.users import User

RUNS = 3  # simulated, of a method that learns
LONGER = 10  # length of these runs, over the impressions needed with position bias known
LONGEST_OF_METRICS = 100_000  # impressions of them for the sake of metrics
EARLY = 1_000  # impressions from which position bias is first estimated
ROUNDS, CLOSE = 10, 0.02  # of a fixed point: most iterations, and the relative change that ends them
# Sums of squared weights of the clicks of a search: of the first n, and of the direct estimate.
Weights = Callable[..., float]


class HostileClicks(NamedTuple):
    """Clicks per search that hostile searches may add to an estimate by the click model, and to one by A/B traffic."""

    by_model: float
    by_ab: float


def planned_worth(pair: Pair) -> HostileClicks:
    """Most that clicks of one search add to each estimate in favour of a ranker, for A/B traffic and known position bias.

    >>> pair = Pair.from_lists([["x", "y"]], [["x", "z"]], k=2)
    >>> planned_worth(pair.knowing(theta=[1, 0.5]))  # a click on y or z, on half of the pages, is worth 2; or two on each
    HostileClicks(by_model=1.0, by_ab=2.0)
    """
    theta, n = pair.known_theta, pair.n_documents
    by_a, by_b = (exposure_of(table, theta, n) for table in (pair.top_a, pair.top_b))
    in_a, in_b = (exposure_of(table, np.ones(pair.k), n) for table in (pair.top_a, pair.top_b))
    shown = (in_a + in_b) / 2
    worth = np.divide(by_a - by_b, (by_a + by_b) / 2, out=np.zeros(n), where=by_a + by_b > 0) * shown
    sides = [float(np.maximum(side * worth, 0).sum()) for side in (1, -1)]
    return HostileClicks(max(sides) / pair.n_queries, float(shown.sum()) / pair.n_queries)


def is_ab(method: Method) -> bool:
    """True for an A/B test that needs no click model."""
    return sum(method.traits.ab_shares) == 1 and not method.traits.needs_position_bias


@dataclass(frozen=True)
class Planner:
    """Conversion of variances into numbers of impressions."""

    delta: float
    power: float
    level: float
    traffic: int | None
    tightest_at: float | None
    allowed: float  # clicks per page that visitors who follow no click model may move an estimate by
    guard: HostileClicks
    ab_variance: float
    noise: float = 0.0  # of the value of a click, in units of its squared mean,
    noise_of_ab: float = 0.0  # and what that adds to the variance of an A/B test
    occasions: float = 1.0  # share of clicks with a value

    def runs(
        self, method: Method, moments: Moments, pair: Pair, user: User, seed: Seed, noise: float
    ) -> list[list[Stage]]:
        """Simulated runs of a method by the click model, long enough for values of clicks with a noise of their own; none where
        every impression has the same variance."""
        if not (method.traits.learns_at or method.traits.learns_position_bias) or moments.variance <= 0:
            return []
        longest = max(LONGER * fixed_impressions(moments.variance, self.delta), self.traffic or 0)
        if noise:
            weights = squared_weights(planned_displays(method, pair, user).mixture, pair, user)
            of_metrics = fixed_impressions(moments.variance + noise * weights, self.delta)
            longest = max(longest, min(2 * of_metrics, LONGEST_OF_METRICS))
        return [learning_stages(method, pair, user, longest, seed=child) for child in children(seed, RUNS)]

    def _first_look(self, clicks: float) -> float:
        """Impressions until there are clicks enough for an interval, with so many of a page."""
        return max(FIRST_LOOK, CLICKS_TO_SAY / max(clicks, ROUNDING))

    def _often(
        self,
        variance: float,
        difference: float,
        clicks: float,
        *,
        smallest: float | None = None,
        level: float | None = None,
    ) -> float:
        """Impressions that it takes to find a difference if one looks all the time, each with the same variance.

        The sequence is tightest where it finds ``smallest`` soonest, the difference by default.
        """
        return anytime_impressions(
            lambda _: variance,
            difference,
            tightest_at=self._tightest(variance, difference if smallest is None else smallest),
            first_look=self._first_look(clicks),
            power=self.power,
            level=self.level if level is None else level,
        )

    def of_page(self, known: KnownMetric, ctr: float) -> tuple[float, float]:
        """Impressions of an A/B test, looked at once and looked at often, of a metric that nothing else tells."""
        variance, difference = 4 * known.sd**2, known.mean * self.delta / ctr
        once = fixed_impressions(variance, difference, power=self.power, level=self.level)
        return once, self._often(variance, difference, known.occasions)

    def _variances(
        self,
        moments: Moments,
        runs: list[list[Stage]],
        weights: Weights | None,
        level: float,
        first_look: float,
        estimated: bool,
    ) -> tuple[Callable[[float], float], Callable[[float], tuple[float, float]]]:
        """The variance of x by the number of impressions, theta known; and the one added by estimating theta from so many.

        With the latter comes the factor by which intervals at this level are widened further.
        """
        bend = mean_bend(runs[0], first_look) if estimated and np.isfinite(first_look) else 0.0

        def noise(n: float) -> float:
            return self.noise * weights(n) if weights is not None else 0.0

        def known(n: float) -> float:
            return noise(n) + (float(np.mean([mean_variance(run, n) for run in runs])) if runs else moments.variance)

        @cache
        def added(n: float) -> tuple[float, float]:
            if not estimated:
                return 0.0, 1.0
            error = theta_error(runs[0], n, bend).with_noise(noise(n))
            if not np.isfinite(error.variance):
                return np.inf, 1.0
            widen = t_widening(error.freedom, level) * error.mean_widening()
            more = error.variance - mean_variance(runs[0], n) - noise(n)
            return more, widen * np.sqrt(error.clicks_alone / error.variance)

        return known, added

    def of_estimate(
        self,
        method: Method,
        moments: Moments,
        runs: list[list[Stage]],
        weights: Weights | None = None,
    ) -> PlannedMethod:
        """Plan a method whose mean is Delta from the moments of x, and from the designs of simulated runs if there are any.

        Where clicks have a noise of their own, ``weights`` are the sums of squared weights of clicks, on average.
        """
        by_model = method.traits.needs_position_bias
        estimated = bool(runs) and method.traits.learns_position_bias
        # Estimates by the click model share the error probability with those that test them.
        level = 1 - (1 - self.level) * (SHARES[POSITION_BASED] if by_model else 1.0)
        first_look = self._first_look(moments.ctr * self.occasions)
        if estimated:
            first_look = max(first_look, theta_known_after(runs[0], EARLY))
        known, added = self._variances(moments, runs, weights, level, first_look, estimated)

        def fixed(n: float, difference: float) -> float:
            variance = known(n) + added(n)[0]
            return fixed_impressions(variance, difference, power=self.power, level=self.level, jackknife=estimated)

        def anytime(n: float, difference: float) -> float:
            more, widen = added(n)
            return anytime_impressions(
                lambda m: known(m) + more,
                difference,
                tightest_at=tightest_at,
                first_look=first_look,
                widen=widen,
                power=self.power,
                level=level,
            )

        trusting = _settled(partial(fixed, difference=self.delta), min(first_look, MOST))
        at = min(trusting, MOST)
        total = known(at) + added(at)[0]
        tightest_at = self._tightest(total, self.delta)
        detectable = None
        if self.traffic is not None:
            away = (jackknife_quantiles if estimated else normal_quantiles)(self.power, self.level)
            detectable = float(away * np.sqrt((known(self.traffic) + added(self.traffic)[0]) / self.traffic))
            detectable += max(self.allowed, self.guard.by_model) if by_model else self.guard.by_ab

        tested = 0.0
        if self.noise and weights is not None and by_model:
            tested = _settled(partial(self._tested, known, weights), trusting)

        def to_find(difference: float) -> tuple[float, float]:
            """Impressions looked at once and looked at often, if a winner needs an interval so far from the estimate."""
            if not (difference > ROUNDING and np.isfinite(total)):
                return np.inf, np.inf
            once, often = (_settled(partial(of, difference=difference), trusting) for of in (fixed, anytime))
            return max(once, tested), max(often, tested)

        trusting_often = to_find(self.delta)[1]
        if by_model:
            away_by = self.allowed, max(self.allowed, self.guard.by_model)
            (_, unguarded), (once, often) = (
                self._or_by_ab_traffic(method, *to_find(self.delta - by), moments.ctr, total) for by in away_by
            )
        else:
            unguarded = trusting_often
            once, often = to_find(self.delta - self.guard.by_ab)
        return PlannedMethod(
            method=str(method),
            is_ab=is_ab(method),
            plain=sum(method.traits.ab_shares) == 1,
            tends_to_delta=True,
            theta=None if not by_model else "estimated" if estimated else "known",
            variance=known(at),
            theta_variance=added(at)[0],
            outcome=self.delta,
            impressions=once,
            anytime=often,
            trusting=trusting_often,
            unguarded=unguarded,
            tightest_at=tightest_at,
            first_look=float(np.ceil(first_look)),
            detectable=detectable,
            ctr=moments.ctr,
        )

    def _tested(self, own: Callable[[float], float], weights: Weights, n: float) -> float:
        """Impressions by which a bias as large as the estimate would show in the direct one (``Ladder.blind``)."""
        variance = own(n)
        apart = max((1 + self.noise) * weights(n, True) - variance, 0.0)
        needed = VISIBLE * np.sqrt(apart) + normal_quantile(self.power) * np.sqrt(variance)
        return float(np.ceil((needed / self.delta) ** 2))

    def _or_by_ab_traffic(
        self, method: Method, once: float, often: float, ctr: float, variance: float
    ) -> tuple[float, float]:
        """Impressions by which the click model has decided, or the A/B traffic inside a method by itself."""
        share = sum(method.traits.ab_shares)
        room = self.delta - self.guard.by_ab
        if not (share > 0 and room > ROUNDING):
            return once, often
        level = 1 - (1 - self.level) * SHARES[AB_TRAFFIC]
        begin = self._all_ab_from(method, share, variance)
        spread = self.ab_variance + self.noise_of_ab
        by_ab = fixed_impressions(spread, room, power=self.power, level=level)
        often_by_ab = self._often(spread, room, ctr * self.occasions, smallest=self.delta, level=level)
        return min(once, in_all(by_ab, share, begin)), min(often, in_all(often_by_ab, share, begin))

    def _all_ab_from(self, method: Method, share: float, variance: float) -> float:
        """Point of the schedule from which on all traffic is A/B, as A/B decides first (``decides_by_ab_first``)."""
        if not (isinstance(method, LogOpt) and len(set(method.first_and_least)) > 1 and np.isfinite(variance)):
            return np.inf
        for turn in method.traits.learns_at:
            size = self.delta + np.sqrt(variance / turn)
            by_ab = fixed_impressions(
                self.ab_variance + self.noise_of_ab, size, level=1 - (1 - self.level) * SHARES[AB_TRAFFIC]
            )
            by_model = fixed_impressions(
                variance, size - self.allowed, level=1 - (1 - self.level) * SHARES[POSITION_BASED]
            )
            if by_ab - share * turn < by_model - turn:
                return float(turn)
        return np.inf

    def of_outcomes(self, method: Method, outcomes: Sequence[tuple[float, Moments]]) -> PlannedMethod:
        """Plan an interleaving method from the difference and the moments of x under each user; numbers are medians."""
        towards = np.array([_scaled(moments.mean, truth, self.delta) for truth, moments in outcomes])
        variances = [moments.variance for _, moments in outcomes]
        both = list(zip(variances, towards))
        fixed = float(np.median([fixed_impressions(*one, power=self.power, level=self.level) for one in both]))
        tightest_at, anytime = np.inf, np.inf
        ctr = float(np.mean([moments.ctr for _, moments in outcomes]))
        if np.isfinite(fixed):  # any variance and difference will do that need as many
            away = normal_quantiles(self.power, self.level)
            tightest_at, anytime = self._tightest(fixed, away), self._often(fixed, away, ctr)
        return PlannedMethod(
            method=str(method),
            tends_to_delta=False,
            variance=float(np.median(variances)),
            outcome=float(np.median(towards)),
            impressions=fixed,
            anytime=anytime,
            trusting=anytime,
            unguarded=anytime,
            tightest_at=tightest_at,
            first_look=float(np.ceil(self._first_look(ctr))),
            ctr=ctr,
            wrong=float(np.mean(towards <= ROUNDING)),
        )

    def _tightest(self, variance: float, difference: float) -> float:
        if self.tightest_at is not None:
            return self.tightest_at
        return tightest_for(variance, difference, level=self.level)


def in_all(ab: float, share: float, begin: float) -> float:
    """Impressions that hold so many A/B ones, if that share of them is A/B before a point, and all from then on."""
    return min(ab / share, ab + (1 - share) * begin)


def _settled(needed: Callable[[float], float], start: float) -> float:
    """Fixed point of a number of impressions that depends, a little, on the length of the trial."""
    n = start
    for _ in range(ROUNDS):
        before, n = n, needed(max(n, 1.0))
        if not np.isfinite(n) or abs(n - before) <= CLOSE * n:
            break
    return n


def _scaled(outcome: float, truth: float, delta: float) -> float:
    """The outcome towards the better ranker, if the difference between them were delta and the outcome in proportion."""
    return outcome * delta / truth if abs(truth) > ROUNDING else 0.0
