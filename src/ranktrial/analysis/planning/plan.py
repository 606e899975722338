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
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.analysis.decision import ALLOWANCE, PER_HOSTILE
from ranktrial.analysis.discoveries import RATE
from ranktrial.analysis.intervals import FIRST_LOOK
from ranktrial.analysis.planning.metrics import KnownMetric
from ranktrial.analysis.planning.planner import EARLY, HostileClicks, Planner, in_all, is_ab, planned_worth
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
    mean_squared_weights,
    squared_weights,
    squared_weights_by_rank,
)
from ranktrial.analysis.planning.users import ClickRate, plausible_users
from ranktrial.analysis.power import (
    CLICKS_TO_SAY,
    ROUNDING,
    anytime_impressions,
    normal_quantiles,
)
from ranktrial.arrays import FloatArray, sum_by_group
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
from ranktrial.seeds import Seed
from ranktrial.users import User, position_based

LOSSES = (0.05, 0.02, 0.01, 0.0, -0.02, -0.05)
USERS_TO_PRICE = 10
USERS = 40
DAY = 86_400
MOST_SAMPLED = 100_000  # displays, over all users, of a method that cannot list them all
Progress = Callable[[int, int], None]


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
    needs = Planner(delta, power, level, impressions, tightest_at, allowed, guard, ab_variance)
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
    # The method of the live trial: ``LogOpt()`` if it is planned.
    live = next((row for row in running if row.method == str(LogOpt())), running[0] if running else None)
    forecast = None
    if live is not None:
        forecast = LivePlan(
            live.method, delta, live.tightest_at, tightest_at is not None, live.first_look, live.anytime, power,
            live.trusting, hostile, live.unguarded,
        )  # fmt: skip
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
        forecast,
        share,
        hostile,
        tuple(note for note in [user.note(pair, known) if isinstance(user, ClickRate) else ""] if note),
        tuple(_by_segment(live, segments or {}, delta, allowed, power)),
        () if live is None else _by_metric(metrics, needs, live, studied, pair, known, daily),
    )


def _by_segment(
    live: PlannedMethod | None, shares: Mapping[str, float], delta: float, allowed: float, power: float
) -> Iterator[SegmentPlan]:
    """Searches until a difference in one segment alone is a discovery: by its e-value, at the rate over the number of all."""
    for value, share in shares.items():
        checks.between(f"share of {value}", share, 0, 1)
        if live is None or not share > 0:
            continue
        spread = live.variance + live.theta_variance
        own = anytime_impressions(
            lambda _, spread=spread: spread,  # type: ignore[misc]
            delta - (allowed if live.theta is not None else 0.0),
            tightest_at=max(live.tightest_at / (len(shares) + 1), FIRST_LOOK),
            first_look=max(FIRST_LOOK, CLICKS_TO_SAY / max(live.ctr, ROUNDING)),
            power=power,
            level=1 - RATE / len(shares),
        )
        yield SegmentPlan(value, share, own, max(own / share, live.first_look))


def _by_metric(
    metrics: Sequence[KnownMetric],
    needs: Planner,
    live: PlannedMethod,
    studied: Mapping[str, tuple[Moments, list[list[Stage]]]],
    pair: Pair,
    user: User,
    daily: float | None,
) -> tuple[PlannedMetric, ...]:
    """Needs of each metric in the live trial, and in an A/B test."""
    if not metrics:
        return ()
    if daily is not None:
        checks.at_least("daily", daily, 1)
    method = parse_method(live.method)
    moments, runs = studied[str(method)]
    test = AB(estimate="adjusted")
    of_test = test.moments(pair, user)
    ctr = float(np.mean(pair.ctr(user)))
    design = planned_displays(method, pair, user).mixture
    own = (
        4 * ctr if is_ab(method) else squared_weights(design, pair, user),
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
            once, often = (in_all(of, share, begin) for of in (by_ab, often_by_ab))
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


def _moments(method: Method, pair: Pair, user: User) -> Moments:
    if not method.traits.averages_impressions and not is_ab(method):
        raise ValueError(f"{method} gives single searches no value of their own, so it cannot be planned")
    try:
        return planned_moments(method, pair, user)
    except NotImplementedError:
        raise ValueError(f"{method} changes what it shows on the way, so it cannot be planned beforehand") from None


def _outcomes(method: Method, pair: Pair, users: Sequence[User], seed: Seed) -> list[tuple[float, Moments]]:
    """The true difference and the moments of x under each user."""
    if method.traits.needs_position_bias:
        raise ValueError(f"{method} does not tend to Delta, because it cuts off weights, so it cannot be planned")
    luck = 0.0
    try:
        displays = method.displays(pair)
    except TooManyDisplaysError:
        if not isinstance(method, Probabilistic):
            raise
        displays = method.sampled_displays(pair, max(MOST_SAMPLED // (pair.n_queries * len(users)), 4), seed=seed)
        # Clicks that do not depend on documents favour nobody: what they do favour is the luck of the displays drawn.
        alike = position_based(np.full(pair.n_documents, float(users[0].zeta.mean())), users[0].slope)
        luck = displays.moments(alike).mean
    found = [(pair.delta(user), displays.moments(user)) for user in users]
    return [(truth, Moments(moments.mean - luck, moments.variance, moments.ctr)) for truth, moments in found]
