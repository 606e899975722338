"""How many impressions will a comparison need, by which method, before any click has come?

Two ranked lists per query, the position bias and something about users give the exact variance of one impression's value x
under every method. For a method whose mean is Delta,

    impressions = (z_{1 - alpha/2} + z_power)^2 Var(x) / delta^2

decide a difference delta. Interleaving has another scale: there E[x] stands in the place of delta, and where its sign is not
that of Delta no number is enough. What can be known of users beforehand is one of two things:

* ``User``: who clicks what, for instance from labels. Delta and every E[x] follow.
* ``ClickRate``: clicks per page. Which of the lists is better is then unknown by construction, so interleaving is judged on
  many users under whom the difference is exactly delta (``plausible_users``).

How far the rankers disagree says how much there is to gain: with TV_q = sum_d |lambda_d| / (exposure A gives + exposure B
gives), the variance of the closed form is about E_q[TV_q^2] times that of an A/B test stratified by query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, DocumentArray, FloatArray, sum_by_group
from ranktrial.design.closed_form import Price, price
from ranktrial.inference.intervals import asymptotic_radius
from ranktrial.methods import (
    AB,
    Counterfactual,
    LogOpt,
    Method,
    Optimized,
    Probabilistic,
    TeamDraft,
    TooManyDisplaysError,
)
from ranktrial.rankings import Moments, Pair, exposure_of
from ranktrial.seeds import Seed, children, generator
from ranktrial.users import User, position_based, rank_decay

FLOORS = (0.0, 0.5, 1.0)
USERS_TO_PRICE = 10
WORTH_IT = 1.1  # a smaller gain over A/B is called none
ROUNDING = 1e-12
USERS = 40
CHANCE = 0.5  # spread of the part of relevance that no ranker knows, relative to its mean
UNLIKE = 0.1  # how much rankers differ in how fast relevance falls with rank; see docs/planning.md
BEYOND = 0.25  # how much users differ in how relevant that is which a list lacks because it ends early; see there
MOST_SAMPLED = 100_000  # displays, over all users, of a method that cannot list them all
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ClickRate:
    """What is known of users where nothing is known of documents.

    Attributes:
        ctr: Clicks per impression.
        sd: Standard deviation of clicks per impression, if known: queries then differ in how much is clicked, which an A/B
            test pays for. Without it every query has the same rate.
    """

    ctr: float
    sd: float | None = None

    def __post_init__(self) -> None:
        checks.between("ctr", self.ctr, 0, np.inf, open_ends=True)
        if self.sd is not None:
            checks.between("sd", self.sd, 0, np.inf, open_ends=True)

    def user(self, pair: Pair, *, seed: Seed = 0) -> User:
        """Position-based users to whom all documents of a query are alike, with these clicks on the two lists."""
        theta = pair.known_theta
        shown = np.stack([pair.top_a, pair.top_b]) != NO_DOCUMENT
        examined, squares = shown @ theta, (shown @ theta**2).mean()
        most = float(examined.mean())
        if self.ctr > most:
            raise ValueError(f"ctr is {self.ctr:g}, but only {most:.4g} results of a page are looked at on average")
        rate = self.ctr / most
        if self.sd is None:
            return position_based(np.full(pair.n_documents, rate), theta)
        # E[clicks^2] = rate E[examined] + E[rate_q^2] (E[examined^2] - E[sum theta^2])
        by_two = float((examined**2).mean() - squares)
        spread = (self.sd**2 + self.ctr**2 - self.ctr) / by_two - rate**2 if by_two > ROUNDING else -1.0
        if not 0 < spread < rate * (1 - rate):
            least = np.sqrt(self.ctr - rate**2 * squares)
            raise ValueError(
                f"sd is {self.sd:g}, which {self.ctr:g} clicks a page cannot have: with the same rate for every query it "
                f"is about {least:.4g}, and more where queries differ"
            )
        size = rate * (1 - rate) / spread - 1
        at = (generator(seed).permutation(pair.n_queries) + 0.5) / pair.n_queries
        rates = stats.beta.ppf(at, rate * size, (1 - rate) * size)
        return position_based(np.repeat(rates, np.diff(pair.offsets)), theta)


@dataclass(frozen=True)
class PlannedMethod:
    """What one method will need.

    Attributes:
        method: As it is written.
        is_ab: An A/B test, however it is evaluated: what other methods are measured against.
        tends_to_delta: The estimate tends to Delta; False for interleaving.
        variance: Of the value x of one impression.
        outcome: What the estimate tends to where the better ranker is better by delta; of many users the median. Negative
            points the wrong way.
        impressions: To a right decision with the power asked for, their number fixed beforehand; infinite where there is
            none.
        anytime: The same where one looks at every impression and stops as soon as the confidence sequence leaves out 0.
        detectable: The smallest difference found with the impressions at hand; None for interleaving, and where no number
            of impressions was given.
        ctr: Clicks per impression on what is shown meanwhile; where only the click rate is known, the mean over plausible
            users, the same as for ``Plan.floors``.
        wrong: The share of users under whom it points the wrong way, or nowhere.
    """

    method: str
    is_ab: bool
    tends_to_delta: bool
    variance: float
    outcome: float
    impressions: float
    anytime: float
    detectable: float | None
    ctr: float
    wrong: float


@dataclass(frozen=True)
class Plan:
    """What each method will need to tell two rankers apart.

    Attributes:
        rows: A row per method.
        delta: The difference to find, in clicks per impression.
        truth: CTR(A) - CTR(B) under the users given; None where only their click rate is known.
        ctr: Clicks per impression, the mean of A's and B's.
        disagreement: Mean over queries of TV_q: 0 for the same lists, 1 for nothing in common.
        rule: 1 / E_q[TV_q^2], roughly the gain of the closed form over an A/B test stratified by query.
        power: Probability of a right decision.
        level: Confidence level.
        traffic: Impressions at hand, for the smallest detectable difference.
        users: How many users interleaving was judged on.
        floors: What the first planned method that has an agreement floor would cost users, and a floor in variance, for some
            floors; where only the click rate is known, the mean over plausible users. Empty if there is no such method.
        left_out: Methods that could not be planned, and why.
    """

    rows: tuple[PlannedMethod, ...]
    delta: float
    truth: float | None
    ctr: float
    disagreement: float
    rule: float
    power: float
    level: float
    traffic: int | None
    users: int
    floors: tuple[tuple[float, Price], ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def gain(self) -> float | None:
        """How many times fewer impressions the best other method that tends to Delta needs than the best A/B test."""
        ab, other = self._best(is_ab=True), self._best(is_ab=False)
        if ab is None or other is None:
            return None
        return ab.variance / other.variance if other.variance else np.inf

    @property
    def verdict(self) -> tuple[str, ...]:
        """What to do, in plain sentences."""
        return (*self._worth(), *self._wrong_ways())

    def _best(self, *, is_ab: bool) -> PlannedMethod | None:
        rows = [row for row in self.rows if row.tends_to_delta and row.is_ab == is_ab]
        return min(rows, key=lambda row: row.variance, default=None)

    def _worth(self) -> list[str]:
        ab, other, gain = self._best(is_ab=True), self._best(is_ab=False), self.gain
        if self.disagreement == 0:
            return ["Nothing to find: both rankers show the same lists."]
        if ab is None or other is None or gain is None:
            return []
        if gain < WORTH_IT:
            return [
                f"Nothing to gain over A/B here: the rankers show such different lists (exposure disagreement "
                f"{self.disagreement:.2f}) that {ab.method} needs {people_count(ab.impressions)} impressions and "
                f"{other.method} {people_count(other.impressions)}."
            ]
        return [
            f"{other.method} needs {people_count(other.impressions)} impressions to find a difference of {self.delta:.3g}, "
            f"{gain:.1f} times fewer than {ab.method} ({people_count(ab.impressions)})."
        ]

    def _wrong_ways(self) -> list[str]:
        rows = [row for row in self.rows if not row.tends_to_delta]
        wrong = [row for row in rows if row.wrong > 0]
        if not rows or self.disagreement == 0:
            return []
        if self.users == 1:
            names = " and ".join(row.method for row in wrong)
            one = f"Under these users {names} would point the wrong way or nowhere, however many impressions there are."
            return [one] if wrong else []
        if not wrong:
            return [f"Interleaving points the right way for all {self.users} plausible users."]
        shares = ", ".join(f"{row.method} {row.wrong:.0%}" for row in wrong)
        return [f"Share of {self.users} plausible users for whom interleaving would point the wrong way: {shares}."]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: infinite numbers become None."""
        rows = [{name: _finite(value) for name, value in asdict(row).items()} for row in self.rows]
        plain = {name: _finite(value) for name, value in asdict(self).items() if name not in ("rows", "floors")}
        floors = [{"floor": floor, **cost.to_dict()} for floor, cost in self.floors]
        plain["floors"] = [{name: _finite(value) for name, value in row.items()} for row in floors]
        return {**plain, "gain": _finite(self.gain), "verdict": list(self.verdict), "methods": rows}

    def __str__(self) -> str:
        width = max((len(row.method) for row in self.rows), default=6)
        lines = [
            f"delta {self.delta:.4g}  ctr {self.ctr:.4g}  disagreement {self.disagreement:.3f}  power {self.power:g}",
            f"{'method':<{width}}  {'variance':>9}  {'impressions':>12}  {'looking often':>13}  {'wrong way':>9}",
        ]
        lines += [
            f"{row.method:<{width}}  {row.variance:>9.4g}  {people_count(row.impressions):>12}  "
            f"{people_count(row.anytime):>13}  {row.wrong:>9.0%}"
            for row in self.rows
        ]
        return "\n".join([*lines, *self.verdict])

    __repr__ = __str__


def plan(
    pair: Pair,
    user: User | ClickRate | ArrayLike,
    *,
    methods: Sequence[Method] | None = None,
    delta: float | None = None,
    power: float = 0.8,
    level: float = 0.95,
    impressions: int | None = None,
    users: int = USERS,
    seed: Seed = 0,
    progress: Progress | None = None,
) -> Plan:
    """What each method will need for a pair of rankers whose position bias is known.

    Args:
        user: A user; or zeta, one number per document; or a ``ClickRate`` (or one zeta for all documents, which is the
            same) where nothing is known of documents.
        methods: By default ``planned_methods()``.
        delta: The smallest difference that matters, in clicks per impression; by default the difference under the user.
        impressions: For the smallest detectable difference.
        users: How many users to judge interleaving on where only a ``ClickRate`` is known.
        seed: An integer or a SeedSequence; the same seed gives the same users.
        progress: Called with methods done and their number.

    >>> pair = Pair.from_lists([["x", "y", "z"]], [["y", "z", "x"]], k=3)
    >>> one = plan(pair.knowing(theta=[1, 0.9, 0.8]), [0.1, 0.0, 1.0], methods=[AB(), TeamDraft()])
    >>> [(row.method, round(row.outcome, 3), row.impressions) for row in one.rows]
    [('AB()', 0.08, 5350.0), ('TeamDraft()', -0.057, inf)]
    """
    _z(power, level)
    if impressions is not None:
        checks.whole("impressions", impressions, 1, 10**15)
    known, one = _as_user(pair, user, seed)
    ctr_a, ctr_b = pair.ctr(known)
    truth = ctr_a - ctr_b if one else None
    delta = _checked_delta(delta, truth)
    chosen = planned_methods() if methods is None else list(methods)
    judges = [known] if one else []  # users who tell documents apart
    priced = next((method for method in chosen if method.with_floor(0) is not None), None)
    if not one and (priced is not None or any(not method.tends_to_delta for method in chosen)):
        judges = plausible_users(pair, known, delta, users, seed=seed)
    needs = _Needs(delta, power, level, impressions)
    crowd = judges[:USERS_TO_PRICE] or [known]
    disagreement = exposure_disagreement(pair)
    rows, left_out = [], []
    for done, method in enumerate(chosen):
        if progress is not None:
            progress(done, len(chosen))
        try:
            if method.tends_to_delta:
                moments = _moments(method, pair, known)
                if not one:  # who finds all documents alike does not mind what is shown
                    clicks = float(np.mean([_moments(method, pair, each).ctr for each in crowd]))
                    moments = Moments(moments.mean, moments.variance, clicks)
                rows.append(needs.of_estimate(method, moments))
            elif judges:
                rows.append(needs.of_outcomes(method, _outcomes(method, pair, judges, seed)))
            else:
                left_out.append(f"{method}: no plausible users make a difference of {delta:g} between these lists")
        except TooManyDisplaysError as problem:
            if methods is not None:
                raise
            left_out.append(f"{method}: {problem}")
    return Plan(
        tuple(rows),
        delta,
        truth,
        (ctr_a + ctr_b) / 2,
        float(disagreement.mean()),
        float(1 / (disagreement**2).mean()) if disagreement.any() else np.inf,
        power,
        level,
        impressions,
        1 if one else len(judges),
        () if priced is None else floor_prices(priced, pair, known, crowd),
        tuple(left_out),
    )


def planned_methods() -> list[Method]:
    """What is planned unless methods are named."""
    ab = [AB(estimate=estimate) for estimate in ("adjusted", "weighted", "means")]
    counterfactual = [Counterfactual(logging="ab"), LogOpt(), LogOpt(estimate="ips", floor=0, holdback=0)]
    return [*ab, *counterfactual, TeamDraft(), Probabilistic(), Optimized()]


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


def fixed_impressions(variance: float, difference: float, *, power: float = 0.8, level: float = 0.95) -> float:
    """Impressions, fixed beforehand, after which a difference is told from 0 with this power; infinite if it is not positive.

    >>> fixed_impressions(1.0, 0.1)
    785.0
    """
    if not difference > ROUNDING:
        return np.inf
    return float(np.ceil(_z(power, level) ** 2 * variance / difference**2))


def anytime_factor(*, power: float = 0.8, level: float = 0.95) -> float:
    """How many times more impressions are needed where one may look at any time and stop.

    The asymptotic confidence sequence, tightest at the fixed number, must be so narrow that an estimate below the
    difference by its ``power`` quantile still leaves out 0. Both scale alike, so the factor depends on nothing else. It is on
    the safe side: that is the power of the last look alone, and earlier ones add to it.

    >>> round(anytime_factor(), 2)
    1.94
    """
    fixed = 1e6  # any number will do
    spread, quantile = np.sqrt(fixed) / _z(power, level), stats.norm.ppf(power)  # so that the difference is 1

    def short(factor: float) -> float:
        n = factor * fixed
        radius = asymptotic_radius([n], [spread], level=level, tightest_at=fixed)[0]
        return float(radius + quantile * spread / np.sqrt(n) - 1)

    return float(optimize.brentq(short, 0.1, 1e4))


def floor_prices(method: Method, pair: Pair, known: User, users: Sequence[User]) -> tuple[tuple[float, Price], ...]:
    """What a method costs users, on the mean of those given, with other agreement floors; its hold-back included."""
    theta, found = pair.known_theta, []
    variants = [method.with_floor(floor) for floor in FLOORS]
    policies = [one.planned_displays(pair, known).mixture for one in variants if one is not None]
    free = policies[0]
    for floor, shown in zip(FLOORS, policies):
        prices = [astuple(price(pair, theta, shown, zeta=user, without_floor=free)) for user in users]
        found.append((floor, Price(*np.mean(prices, axis=0).tolist())))
    return tuple(found)


def plausible_users(pair: Pair, user: User, delta: float, count: int, *, seed: Seed = 0) -> list[User]:
    """Users under whom one of the rankers, drawn at random, is better by exactly delta, and who click as often as ``user``.

    Relevance is partly chance and partly what the rankers believe: it falls with the rank in A and with the rank in B, at
    rates drawn for each user. A document that a list lacks because it ends before the page is full stands somewhere past its
    end, and how relevant such documents are differs from user to user: the longer list gets clicks on them that interleaving
    does not count, so that they decide whether it errs. How much more one ranker is right than the other is chosen such that
    Delta is +-delta. Users for whom neither ranker could be that much better are not drawn; fewer than ``count`` come back if
    most are such.
    """
    checks.whole("users", count, 1, 10_000)
    found: list[User] = []
    for child in children(seed, 3 * count):
        drawn = _plausible_user(pair, user, delta, child)
        if drawn is not None:
            found.append(drawn)
        if len(found) == count:
            break
    return found


def _plausible_user(pair: Pair, user: User, delta: float, seed: Seed) -> User | None:
    random = generator(seed)
    ctr = float(np.mean(pair.ctr(user)))
    weight, decay = random.uniform(0.2, 2, size=2)
    tables = (pair.top_a, pair.top_b)
    decays = [decay * random.lognormal(0, UNLIKE) for _ in tables]
    chance = random.gamma(1 / CHANCE**2, CHANCE**2, size=pair.n_documents)
    target = delta * random.choice([-1, 1])
    past, factor = random.uniform(), random.lognormal(0, BEYOND)
    ends = [_end_before(pair, table) for table in tables]
    beliefs = [
        weight * (exposure_of(table, rank_decay(pair.k, each), pair.n_documents) + past * end**-each)
        for table, each, end in zip(tables, decays, ends)
    ]
    base = user.zeta * np.where(np.isfinite(ends).any(0), factor, 1.0)

    def leaning(lean: float) -> User:
        relevance = base * (chance + (1 + lean) * beliefs[0] + (1 - lean) * beliefs[1])
        # Twice, because what is cut off at 1 changes the clicks a little.
        for _ in range(2):
            zeta = np.minimum(relevance, 1.0)
            relevance = zeta * ctr / np.mean(pair.ctr(position_based(zeta, user.slope)))
        return position_based(np.minimum(relevance, 1.0), user.slope)

    def missing(lean: float) -> float:
        return float(pair.delta(leaning(lean)) - target)

    if not missing(-1.0) < 0 < missing(1.0):
        return None
    return leaning(float(optimize.brentq(missing, -1.0, 1.0, rtol=1e-9)))


def _end_before(pair: Pair, table: DocumentArray) -> FloatArray:
    """For each document that a list lacks though it ends before the page is full, the rank past its end; else infinity."""
    shown = table != NO_DOCUMENT
    lengths = shown.sum(1)
    ends = np.repeat(np.where(lengths < pair.k, lengths + 1.0, np.inf), np.diff(pair.offsets))
    ends[table[shown]] = np.inf
    return ends


@dataclass(frozen=True)
class _Needs:
    """From variances to numbers of impressions."""

    delta: float
    power: float
    level: float
    traffic: int | None

    def of_estimate(self, method: Method, moments: Moments) -> PlannedMethod:
        detectable = None
        if self.traffic is not None:
            detectable = float(_z(self.power, self.level) * np.sqrt(moments.variance / self.traffic))
        fixed = self._fixed(moments.variance, self.delta)
        return PlannedMethod(
            str(method), _is_ab(method), True, moments.variance, self.delta, fixed, self._anytime(fixed), detectable,
            moments.ctr, 0.0,
        )  # fmt: skip

    def of_outcomes(self, method: Method, outcomes: Sequence[tuple[float, Moments]]) -> PlannedMethod:
        """From the true difference and the moments of x under each of many users; numbers are medians."""
        towards = np.array([_scaled(moments.mean, truth, self.delta) for truth, moments in outcomes])
        variances = [moments.variance for _, moments in outcomes]
        fixed = float(np.median([self._fixed(variance, mean) for variance, mean in zip(variances, towards)]))
        return PlannedMethod(
            str(method),
            False,
            False,
            float(np.median(variances)),
            float(np.median(towards)),
            fixed,
            self._anytime(fixed),
            None,
            float(np.mean([moments.ctr for _, moments in outcomes])),
            float(np.mean(towards <= ROUNDING)),
        )

    def _fixed(self, variance: float, difference: float) -> float:
        return fixed_impressions(variance, difference, power=self.power, level=self.level)

    def _anytime(self, fixed: float) -> float:
        return float(np.ceil(fixed * anytime_factor(power=self.power, level=self.level)))


def _scaled(outcome: float, truth: float, delta: float) -> float:
    """The outcome towards the better ranker, if the difference between them were delta and the outcome in proportion."""
    return outcome * delta / truth if abs(truth) > ROUNDING else 0.0


def _z(power: float, level: float) -> float:
    checks.between("power", power, 0.5, 1, open_ends=True)
    checks.between("level", level, 0, 1, open_ends=True)
    return float(stats.norm.ppf(0.5 + level / 2) + stats.norm.ppf(power))


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
        raise ValueError("delta is None: without labels, say which difference in clicks per impression matters")
    if abs(truth) <= ROUNDING:
        raise ValueError("delta is None and both rankers get the same clicks: say which difference matters")
    return abs(truth)


def _is_ab(method: Method) -> bool:
    return sum(method.plain_shares) == 1 and not method.needs_position_bias


def _moments(method: Method, pair: Pair, user: User) -> Moments:
    if not method.averages_impressions and not _is_ab(method):
        raise ValueError(f"{method} gives single impressions no value of their own, so it cannot be planned")
    try:
        return method.planned_moments(pair, user)
    except NotImplementedError:
        raise ValueError(f"{method} changes what it shows on the way, so it cannot be planned beforehand") from None


def _outcomes(method: Method, pair: Pair, users: Sequence[User], seed: Seed) -> list[tuple[float, Moments]]:
    """The true difference and the moments of x under each user."""
    if method.needs_position_bias:
        raise ValueError(f"{method} does not tend to Delta, because it cuts off weights, so it cannot be planned")
    shift: Callable[[Moments], Moments] = lambda moments: moments  # noqa: E731
    try:
        displays = method.displays(pair)
    except TooManyDisplaysError:
        if not method.draws_displays:
            raise
        displays = method.sampled_displays(pair, max(MOST_SAMPLED // (pair.n_queries * len(users)), 4), seed=seed)
        # Clicks that do not depend on documents favour nobody: what they do favour is the luck of the displays drawn.
        alike = position_based(np.full(pair.n_documents, float(users[0].zeta.mean())), users[0].slope)
        shift = partial(_shifted, by=-displays.moments(alike).mean)
    return [(pair.delta(user), shift(displays.moments(user))) for user in users]


def _shifted(moments: Moments, by: float) -> Moments:
    return Moments(moments.mean + by, moments.variance, moments.ctr)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def people_count(number: float) -> str:
    """A number of impressions as people say it: two or three digits are all it is worth.

    >>> people_count(123456.0), people_count(float("inf"))
    ('123,000', 'never')
    """
    if not np.isfinite(number):
        return "never"
    return f"{int(float(f'{number:.3g}')):,}"
