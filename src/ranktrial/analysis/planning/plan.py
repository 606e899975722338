"""Plans: how many impressions a comparison will need, by which method, before any click has come.

Two ranked lists per query, the position bias and something about users give the exact variance of one impression's value x
under every method. For a method whose mean is Delta,

    impressions = (z_{1 - alpha/2} + z_power)^2 Var(x) / delta^2

decide a difference delta, if position bias is known. Where it is estimated from the same clicks, what that adds is in the
variance (``theta_error``) and t in the place of z (``power``). Whoever looks all the time stops when the confidence sequence
first leaves out 0: how many impressions that takes depends on where the sequence is tightest, which is a part of the plan.

Interleaving has another scale: there E[x] stands in the place of delta, and where its sign is not
that of Delta no number is enough. What can be known of users beforehand is one of two things:

* ``User``: who clicks what, for instance from labels. Delta and every E[x] follow.
* ``ClickRate``: clicks per page. Which of the lists is better is then unknown by construction, so interleaving is judged on
  many users under whom the difference is exactly delta (``plausible_users``).

How far the rankers disagree says how much there is to gain: with TV_q = sum_d |lambda_d| / (exposure A gives + exposure B
gives), the variance of the closed form is about E_q[TV_q^2] times that of an A/B test stratified by query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.analysis.decision import ALLOWANCE, PER_HOSTILE
from ranktrial.analysis.discoveries import RATE
from ranktrial.analysis.ladder import AB_TRAFFIC, POSITION_BASED, SHARES, VISIBLE
from ranktrial.analysis.planning.metrics import KnownMetric
from ranktrial.analysis.planning.results import (
    BudgetedPlan,
    LivePlan,
    Plan,
    PlannedMethod,
    PlannedMetric,
    SegmentPlan,
)
from ranktrial.analysis.planning.theta_error import (
    Stage,
    learning_stages,
    mean_bend,
    mean_squared_weights,
    mean_variance,
    squared_weights,
    squared_weights_by_rank,
    theta_error,
    theta_known_after,
)
from ranktrial.analysis.planning.users import ClickRate, plausible_users
from ranktrial.analysis.power import (
    CLICKS_TO_SAY,
    FIRST_LOOK,
    MOST,
    ROUNDING,
    anytime_impressions,
    fixed_impressions,
    jackknife_quantiles,
    normal_quantiles,
    t_widening,
    tightest_for,
)
from ranktrial.arrays import FloatArray, sum_by_group
from ranktrial.distributions import normal_quantile
from ranktrial.methods import (
    AB,
    LogOpt,
    Method,
    Optimized,
    Probabilistic,
    TeamDraft,
    TooManyDisplaysError,
    parse_method,
)
from ranktrial.methods.click_model import planned_displays, planned_moments
from ranktrial.metrics import Clicks
from ranktrial.rankings import Moments, Pair, exposure_of
from ranktrial.seeds import Seed, children
from ranktrial.users import User, position_based

LOSSES = (0.05, 0.02, 0.01, 0.0, -0.02, -0.05)
USERS_TO_PRICE = 10
USERS = 40
RUNS = 3  # simulated, of a method that learns
LONGER = 10  # length of these runs, over the impressions needed with position bias known
LONGEST_OF_METRICS = 100_000  # impressions of them for the sake of metrics
EARLY = 1_000  # impressions from which position bias is first estimated
ROUNDS, CLOSE = 10, 0.02  # of a fixed point: most iterations, and the relative change that ends them
DAY = 86_400
MOST_SAMPLED = 100_000  # displays, over all users, of a method that cannot list them all
Progress = Callable[[int, int], None]
Weights = Callable[
    ..., float
]  # sums of squared weights of the clicks of a search: of the first n, and of the direct estimate


def plan(
    pair: Pair,
    user: User | ClickRate | ArrayLike,
    *,
    methods: Sequence[Method] | None = None,
    delta: float | None = None,
    power: float = 0.8,
    level: float = 0.95,
    impressions: int | None = None,
    tightest_at: float | None = None,
    allowance: float | None = None,
    contamination: float | None = None,
    users: int = USERS,
    segments: Mapping[str, float] | None = None,
    metrics: Sequence[KnownMetric] = (),
    daily: float | None = None,
    seed: Seed = 0,
    progress: Progress | None = None,
) -> Plan:
    """Plan a comparison: the impressions that each method needs for a pair of rankers whose position bias is known.

    Args:
        user: A user; or zeta, one number per document; or a ``ClickRate`` (or one zeta for all documents, which is the
            same) where nothing is known of documents.
        methods: By default ``planned_methods()``.
        delta: The smallest difference that matters, in clicks per impression; by default the difference under the user.
        impressions: For the smallest detectable difference.
        tightest_at: Where the confidence sequence will be tightest; by default where a live trial that is told the difference
            as its ``smallest`` will make it so, which is best for finding it.
        allowance: Share of exposure disagreement x clicks per page that visitors who follow no click model may move estimates
            by; ``decision.ALLOWANCE`` by default, 0 for those who know their visitors.
        contamination: Share of hostile searches against which a winner must stand; by default a fifteenth of the allowance for
            methods that need position bias and none for A/B tests.
        users: How many users to judge interleaving on where only a ``ClickRate`` is known.
        segments: Share of the searches of each value of the attributes that will be declared, by its name.
        metrics: Metrics as far as they are known; what a live trial needs to find the same share of each as ``delta`` is of
            clicks, if the metric decides.
        daily: Searches a day, for the days that metrics take.
        seed: An integer or a SeedSequence; the same seed gives the same users.
        progress: Called with methods done and their number.

    >>> pair = Pair.from_lists([["x", "y", "z"]], [["y", "z", "x"]], k=3)
    >>> one = plan(pair.knowing(theta=[1, 0.9, 0.8]), [0.1, 0.0, 1.0], methods=[AB(), TeamDraft()])
    >>> [(row.method, round(row.outcome, 3), row.impressions) for row in one.rows]
    [('AB()', 0.08, 1015.0), ('TeamDraft()', -0.057, inf)]
    """
    normal_quantiles(power, level)
    if tightest_at is not None:
        checks.at_least("tightest_at", tightest_at, 1)
    if impressions is not None:
        checks.whole("impressions", impressions, 1, 10**15)
    known, one = _as_user(pair, user, seed)
    ctr_a, ctr_b = pair.ctr(known)
    truth = ctr_a - ctr_b if one else None
    delta = _checked_delta(delta, truth)
    chosen = planned_methods() if methods is None else list(methods)
    judges = [known] if one else []  # users who tell documents apart
    priced = next((one for one in chosen if isinstance(one, LogOpt) and one.with_loss(0) is not None), None)
    if not one and (priced is not None or any(not method.traits.tends_to_delta for method in chosen)):
        judges = plausible_users(pair, known, delta, users, seed=seed)
    disagreement = exposure_disagreement(pair)
    share = ALLOWANCE if allowance is None else float(checks.between("allowance", allowance, 0, 1))
    allowed = share * float(disagreement.mean()) * (ctr_a + ctr_b) / 2
    hostile = (
        share / PER_HOSTILE if contamination is None else float(checks.between("contamination", contamination, 0, 0.5))
    )
    by_model, by_ab = planned_worth(pair)
    guard = HostileClicks(hostile * by_model, 0.0 if contamination is None else hostile * by_ab)
    ab_variance = AB(estimate="adjusted").moments(pair, known).variance
    needs = _Needs(delta, power, level, impressions, tightest_at, allowed, guard, ab_variance)
    crowd = judges[:USERS_TO_PRICE] or [known]
    rows, left_out = [], []
    noise = max((one.noise for one in metrics if one.metric.of_results), default=0.0)
    studied: dict[str, tuple[Moments, list[list[Stage]]]] = {}
    for done, method in enumerate(chosen):
        if progress is not None:
            progress(done, len(chosen))
        try:
            if method.traits.tends_to_delta:
                moments = _moments(method, pair, known)
                if not one:  # who finds all documents alike does not mind what is shown
                    clicks = float(np.mean([_moments(method, pair, each).ctr for each in crowd]))
                    moments = Moments(moments.mean, moments.variance, clicks)
                studied[str(method)] = moments, needs.runs(method, moments, pair, known, seed, noise)
                rows.append(needs.of_estimate(method, *studied[str(method)]))
            elif judges:
                rows.append(needs.of_outcomes(method, _outcomes(method, pair, judges, seed)))
            else:
                left_out.append(f"{method}: no plausible users make a difference of {delta:g} between these lists")
        except TooManyDisplaysError as problem:
            if methods is not None:
                raise
            left_out.append(f"{method}: {problem}")
    running = [row for row in rows if row.tends_to_delta and parse_method(row.method).traits.runs_live]
    return Plan(
        tuple(rows),
        delta,
        None if truth is None else -truth,
        (ctr_a + ctr_b) / 2,
        float(disagreement.mean()),
        float(1 / (disagreement**2).mean()) if disagreement.any() else np.inf,
        power,
        level,
        impressions,
        1 if one else len(judges),
        () if priced is None else budgets(priced, pair, crowd, rows),
        tuple(left_out),
        _live(running, delta, power, hostile, given=tightest_at is not None),
        share,
        hostile,
        tuple(note for note in [user.note(pair, known) if isinstance(user, ClickRate) else ""] if note),
        tuple(_by_segment(running, segments or {}, delta, allowed, power)),
        _by_metric(metrics, needs, running, studied, pair, known, daily),
    )


def _live(
    running: Sequence[PlannedMethod], delta: float, power: float, hostile: float, *, given: bool
) -> LivePlan | None:
    if not running:
        return None
    row = _run_live(running)
    return LivePlan(
        row.method, delta, row.tightest_at, given, row.first_look, row.anytime, power, row.trusting, hostile, row.unguarded
    )  # fmt: skip


def _run_live(running: Sequence[PlannedMethod]) -> PlannedMethod:
    """Method of the live trial: ``LogOpt()`` if it is planned."""
    return next((row for row in running if row.method == str(LogOpt())), running[0])


def _by_segment(
    running: Sequence[PlannedMethod], shares: Mapping[str, float], delta: float, allowed: float, power: float
) -> Iterator[SegmentPlan]:
    """Searches until a difference in one segment alone is a discovery: by its e-value, at the rate over the number of all."""
    for value, share in shares.items():
        checks.between(f"share of {value}", share, 0, 1)
        if not running or not share > 0:
            continue
        row = _run_live(running)
        spread = row.variance + row.theta_variance
        own = anytime_impressions(
            lambda _, spread=spread: spread,  # type: ignore[misc]
            delta - (allowed if row.theta is not None else 0.0),
            tightest_at=max(row.tightest_at / (len(shares) + 1), FIRST_LOOK),
            first_look=max(FIRST_LOOK, CLICKS_TO_SAY / max(row.ctr, ROUNDING)),
            power=power,
            level=1 - RATE / len(shares),
        )
        yield SegmentPlan(value, share, own, max(own / share, row.first_look))


def _by_metric(
    metrics: Sequence[KnownMetric],
    needs: _Needs,
    running: Sequence[PlannedMethod],
    studied: Mapping[str, tuple[Moments, list[list[Stage]]]],
    pair: Pair,
    user: User,
    daily: float | None,
) -> tuple[PlannedMetric, ...]:
    """Needs of each metric in the live trial, and in an A/B test."""
    if not (metrics and running):
        return ()
    if daily is not None:
        checks.at_least("daily", daily, 1)
    method = parse_method(_run_live(running).method)
    moments, runs = studied[str(method)]
    test = AB(estimate="adjusted")
    of_test = test.moments(pair, user)
    ctr = float(np.mean(pair.ctr(user)))
    design = planned_displays(method, pair, user).mixture
    own = (
        4 * ctr if _is_ab(method) else squared_weights(design, pair, user),
        squared_weights_by_rank(design, pair, user),
    )

    def weights(n: float, by_rank: bool = False) -> float:
        return float(np.mean([mean_squared_weights(run, n, by_rank=by_rank) for run in runs])) if runs else own[by_rank]

    found = []
    for one in metrics:
        kind = one.metric
        if kind.of_results:
            value = one.mean * ctr
            by_metric = replace(needs, noise=one.noise, noise_of_ab=4 * ctr * one.noise, occasions=one.occasions)
            if not isinstance(kind, Clicks):
                by_metric = replace(by_metric, guard=HostileClicks(0.0, 0.0))
            row = by_metric.of_estimate(method, moments, runs, weights)
            once, often = row.impressions, row.anytime
            often_by_ab = by_metric.of_estimate(test, of_test, [], lambda *_: 4 * ctr).anytime
        else:
            value = one.mean
            share = sum(method.traits.ab_shares)
            if not share > 0:
                continue
            by_ab, often_by_ab = needs.of_page(one, ctr)
            begin = next((turn for turn in method.traits.learns_at if turn >= EARLY), np.inf)
            once, often = (_in_all(of, share, begin) for of in (by_ab, often_by_ab))
        last, delta = kind.settles_after, value * needs.delta / ctr
        days = None if daily is None else often / daily + last / DAY
        only = not kind.of_results
        found.append(PlannedMetric(str(kind), kind.title, value, delta, only, once, often, often_by_ab, last, days))
    return tuple(found)


def planned_methods() -> list[Method]:
    """Default methods of a plan."""
    ab = [AB(estimate=estimate) for estimate in ("adjusted", "paper", "means")]
    least = LogOpt(relevance="constant", estimate="ips", loss=None, keep=0, holdback=0)
    by_click_model = [AB(estimate="rank-aware"), LogOpt(), least]
    return [*ab, *by_click_model, TeamDraft(), Probabilistic(), Optimized()]


def exposure_disagreement(pair: Pair) -> FloatArray:
    """TV_q of every query: the share of the exposure on a page that A and B give to different documents.

    >>> pair = Pair.from_lists([["x", "y"], ["x", "y"]], [["x", "y"], ["y", "z"]], k=2)
    >>> exposure_disagreement(pair.knowing(theta=[1, 0.5]))
    array([0.        , 0.66666667])
    """
    theta, n = pair.known_theta, pair.n_documents
    given = [exposure_of(table, theta, n) for table in (pair.top_a, pair.top_b)]
    apart, total = (sum_by_group(each, pair.offsets) for each in (np.abs(given[0] - given[1]), given[0] + given[1]))
    return np.divide(apart, total, out=np.zeros(pair.n_queries), where=total > 0)


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


def budgets(
    method: LogOpt, pair: Pair, users: Sequence[User], rows: Sequence[PlannedMethod]
) -> tuple[BudgetedPlan, ...]:
    """Needs of a method and clicks of its visitors with other click budgets, as the mean over the users given."""
    planned = next(row for row in rows if row.method == str(method))
    clicks_of_ab = float(np.mean([pair.ctr(user) for user in users]))

    def mean(one: Method | None) -> tuple[float, float]:
        assert one is not None
        moments = [planned_moments(one, pair, user) for user in users]
        return float(np.mean([m.variance for m in moments])), float(np.mean([m.ctr for m in moments]))

    own, _ = mean(method)
    found = []
    for loss in LOSSES:
        variance, ctr = mean(method.with_loss(loss))
        more = variance / own if own > 0 else 1.0
        gain = ctr / clicks_of_ab - 1 if clicks_of_ab else 0.0
        found.append(BudgetedPlan(loss, planned.impressions * more, planned.anytime * more, ctr, gain))
    return tuple(found)


@dataclass(frozen=True)
class _Needs:
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

    def of_page(self, known: KnownMetric, ctr: float) -> tuple[float, float]:
        """Impressions of an A/B test, looked at once and looked at often, of a metric that nothing else tells."""
        variance, difference = 4 * known.sd**2, known.mean * self.delta / ctr
        often = anytime_impressions(
            lambda _: variance,
            difference,
            tightest_at=self._tightest(variance, difference),
            first_look=max(FIRST_LOOK, CLICKS_TO_SAY / known.occasions),
            power=self.power,
            level=self.level,
        )
        return fixed_impressions(variance, difference, power=self.power, level=self.level), often

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
        estimated = bool(runs) and method.traits.learns_position_bias
        away = (jackknife_quantiles if estimated else normal_quantiles)(self.power, self.level)

        def noise(n: float) -> float:
            return self.noise * weights(n) if weights is not None else 0.0

        def known(n: float) -> float:
            return noise(n) + (float(np.mean([mean_variance(run, n) for run in runs])) if runs else moments.variance)

        @cache
        def added(n: float) -> tuple[float, float]:
            """Variance added by estimating theta from n impressions, and the factor by which intervals are widened further."""
            if not estimated:
                return 0.0, 1.0
            error = theta_error(runs[0], n, bend).with_noise(noise(n))
            if not np.isfinite(error.variance):
                return np.inf, 1.0
            widen = t_widening(error.freedom, level) * error.mean_widening()
            return error.variance - mean_variance(runs[0], n) - noise(n), widen * np.sqrt(
                error.clicks_alone / error.variance
            )

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

        # Estimates by the click model share the error probability with those that test them.
        level = 1 - (1 - self.level) * (SHARES[POSITION_BASED] if method.traits.needs_position_bias else 1.0)
        first_look = max(FIRST_LOOK, CLICKS_TO_SAY / max(moments.ctr * self.occasions, ROUNDING))
        if estimated:
            first_look = max(first_look, theta_known_after(runs[0], EARLY))
        bend = mean_bend(runs[0], first_look) if estimated and np.isfinite(first_look) else 0.0
        trusting = _settled(partial(fixed, difference=self.delta), min(first_look, MOST))
        at = min(trusting, MOST)
        total = known(at) + added(at)[0]
        tightest_at = self._tightest(total, self.delta)
        detectable = None
        if self.traffic is not None:
            detectable = float(away * np.sqrt((known(self.traffic) + added(self.traffic)[0]) / self.traffic))
            detectable += (
                max(self.allowed, self.guard.by_model) if method.traits.needs_position_bias else self.guard.by_ab
            )

        def to_find(difference: float) -> tuple[float, float]:
            """Impressions looked at once and looked at often, if a winner needs an interval so far from the estimate."""
            if not (difference > ROUNDING and np.isfinite(total)):
                return np.inf, np.inf
            once, often = (_settled(partial(of, difference=difference), trusting) for of in (fixed, anytime))
            if self.noise and weights is not None and method.traits.needs_position_bias:
                return max(once, tested), max(often, tested)
            return once, often

        tested = (
            _settled(partial(self._tested, known, weights), trusting) if self.noise and weights is not None else 0.0
        )
        trusting_often = to_find(self.delta)[1]
        if method.traits.needs_position_bias:
            away_by = self.allowed, max(self.allowed, self.guard.by_model)
            (_, unguarded), (once, often) = (
                self._or_by_ab_traffic(method, *to_find(self.delta - by), moments.ctr, total) for by in away_by
            )
        else:
            unguarded = trusting_often
            once, often = to_find(self.delta - self.guard.by_ab)
        uses = None if not method.traits.needs_position_bias else "estimated" if estimated else "known"
        return PlannedMethod(
            method=str(method),
            is_ab=_is_ab(method),
            plain=sum(method.traits.ab_shares) == 1,
            tends_to_delta=True,
            theta=uses,
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
            wrong=0.0,
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
        often_by_ab = anytime_impressions(
            lambda _: spread,
            room,
            tightest_at=self._tightest(spread, self.delta),
            first_look=max(FIRST_LOOK, CLICKS_TO_SAY / max(ctr * self.occasions, ROUNDING)),
            power=self.power,
            level=level,
        )
        return min(once, _in_all(by_ab, share, begin)), min(often, _in_all(often_by_ab, share, begin))

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
        first_look = max(FIRST_LOOK, CLICKS_TO_SAY / max(ctr, ROUNDING))
        if np.isfinite(fixed):  # any variance and difference will do that need as many
            away = normal_quantiles(self.power, self.level)
            tightest_at = self._tightest(fixed, away)
            anytime = anytime_impressions(
                lambda n: fixed,
                away,
                tightest_at=tightest_at,
                first_look=first_look,
                power=self.power,
                level=self.level,
            )
        return PlannedMethod(
            method=str(method),
            is_ab=False,
            plain=False,
            tends_to_delta=False,
            theta=None,
            variance=float(np.median(variances)),
            theta_variance=0.0,
            outcome=float(np.median(towards)),
            impressions=fixed,
            anytime=anytime,
            trusting=anytime,
            unguarded=anytime,
            tightest_at=tightest_at,
            first_look=float(np.ceil(first_look)),
            detectable=None,
            ctr=ctr,
            wrong=float(np.mean(towards <= ROUNDING)),
        )

    def _tightest(self, variance: float, difference: float) -> float:
        if self.tightest_at is not None:
            return self.tightest_at
        return tightest_for(variance, difference, level=self.level)


def _in_all(ab: float, share: float, begin: float) -> float:
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


def _as_user(pair: Pair, user: User | ClickRate | ArrayLike, seed: Seed) -> tuple[User, bool]:
    """The user to reckon with, and whether it tells documents apart."""
    if isinstance(user, User):
        return user, True
    if isinstance(user, ClickRate):
        return user.user(pair, seed=seed), False
    zeta = np.asarray(user, np.float64)
    return position_based(np.broadcast_to(zeta, pair.n_documents), pair.known_theta), zeta.ndim > 0


def _checked_delta(delta: float | None, truth: float | None) -> float:
    if delta is not None:
        return float(checks.between("delta", delta, 0, np.inf, open_ends=True))
    if truth is None:
        raise ValueError("delta is None: without labels, say which difference in clicks per search matters")
    if abs(truth) <= ROUNDING:
        raise ValueError("delta is None and both rankers get the same clicks: say which difference matters")
    return abs(truth)


def _is_ab(method: Method) -> bool:
    return sum(method.traits.ab_shares) == 1 and not method.traits.needs_position_bias


def _moments(method: Method, pair: Pair, user: User) -> Moments:
    if not method.traits.averages_impressions and not _is_ab(method):
        raise ValueError(f"{method} gives single searches no value of their own, so it cannot be planned")
    try:
        return planned_moments(method, pair, user)
    except NotImplementedError:
        raise ValueError(f"{method} changes what it shows on the way, so it cannot be planned beforehand") from None


def _outcomes(method: Method, pair: Pair, users: Sequence[User], seed: Seed) -> list[tuple[float, Moments]]:
    """The true difference and the moments of x under each user."""
    if method.traits.needs_position_bias:
        raise ValueError(f"{method} does not tend to Delta, because it cuts off weights, so it cannot be planned")
    shift: Callable[[Moments], Moments] = lambda moments: moments  # noqa: E731
    try:
        displays = method.displays(pair)
    except TooManyDisplaysError:
        if not isinstance(method, Probabilistic):
            raise
        displays = method.sampled_displays(pair, max(MOST_SAMPLED // (pair.n_queries * len(users)), 4), seed=seed)
        # Clicks that do not depend on documents favour nobody: what they do favour is the luck of the displays drawn.
        alike = position_based(np.full(pair.n_documents, float(users[0].zeta.mean())), users[0].slope)
        shift = partial(_shifted, by=-displays.moments(alike).mean)
    return [(pair.delta(user), shift(displays.moments(user))) for user in users]


def _shifted(moments: Moments, by: float) -> Moments:
    return Moments(moments.mean + by, moments.variance, moments.ctr)
