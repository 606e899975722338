"""A/B testing: show A's ranking or B's, and compare the clicks.

``AB()`` is the difference of the two arms' mean clicks. The paper's value, x = (1[A]/P(A) - 1[B]/P(B)) * clicks, is unbiased
for Delta too but has two to three times the variance: it pays for the clicks both rankers get anyway. Adjusted for
the query (``analysis.estimators.ab``) it does not pay for what queries differ in either, where they come often enough.

Where both lists of every search are logged, the same impressions can also be valued by the click model, as ``LogOpt`` values
its own: a click on a document that both rankers show tells little, one on a document that they place apart tells much. That
takes several times fewer impressions than the difference in means, with nothing on the page but the two lists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, DocumentArray, FloatArray
from ranktrial.methods.base import Traits
from ranktrial.methods.beliefs import Beliefs
from ranktrial.methods.click_model import ESTIMATES, SCHEDULE, ClickModelMethod
from ranktrial.methods.displays import Displays, Linear
from ranktrial.methods.expected import ExpectedRun
from ranktrial.methods.trajectory import Trajectory, draw_counts
from ranktrial.rankings import Mixture, Moments, Pair
from ranktrial.rankings._kernels import credit_distribution, linear_moments
from ranktrial.rankings.lists import UserArrays, check_user
from ranktrial.rankings.mixture import higher_cumulants
from ranktrial.seeds import Seed
from ranktrial.users import User

BY_CLICKS = ("means", "paper", "adjusted")  # estimates that need no click model


@dataclass(frozen=True, repr=False)
class AB(ClickModelMethod):
    """A/B test.

    Attributes:
        split: P(A), the share of impressions shown ranker A.
        estimate: "means" is the difference of the two arms' mean clicks; "paper" the paper's x; "adjusted" the difference query
            by query. Adjusting needs the query of every impression: it works on logs and in live trials, and is not simulated.
            "rank-aware" (and "doubly-robust", "constant", "ips") values clicks by the click model, as ``LogOpt`` does.
        bias: For estimates by the click model: position bias "estimated" from the clicks on the way, or "known".
        schedule: For these: after how many impressions bias and relevance are fitted anew; what is shown stays the same.

    >>> from ranktrial.users import position_based
    >>> pair, user = Pair.from_lists(["ab"], ["ba"], k=2), position_based([0.5, 0.25], [1.0, 0.5])
    >>> AB().moments(pair, user).mean, pair.delta(user)
    (0.125, 0.125)
    >>> pair = pair.knowing(theta=[1.0, 0.5])
    >>> [round(AB(estimate=name).moments(pair, user).variance, 2) for name in ("paper", "means", "rank-aware")]
    [2.73, 1.47, 0.16]
    """

    split: float = 0.5
    estimate: str = "means"
    bias: str = "estimated"
    schedule: tuple[int, ...] = SCHEDULE

    relevance = "constant"  # what is shown assumes nothing of it

    def __post_init__(self) -> None:
        checks.between("split", self.split, 0, 1, open_ends=True)
        checks.one_of("estimate", self.estimate, (*BY_CLICKS, *ESTIMATES))
        super().__post_init__()
        for name, value in (("bias", "estimated"), ("schedule", SCHEDULE)):
            if self.estimate not in ESTIMATES and getattr(self, name) != value:
                raise ValueError(f'{name} belongs to {", ".join(ESTIMATES)}, not to estimate="{self.estimate}"')

    def policy(self, pair: Pair, beliefs: Beliefs | None = None, *, zeta: FloatArray | None = None) -> Mixture:
        """Distribution over the two lists, the same whatever the beliefs are."""
        return Mixture.of_tables([pair.top_a, pair.top_b], self.traits.ab_shares, pair.n_documents, plain=True)

    def displays(self, pair: Pair, beliefs: Beliefs | None = None) -> Displays:
        """Both lists with the value of clicks on them; by the click model with the pair's theta unless beliefs are given."""
        if self.traits.needs_position_bias:
            return super().displays(pair, beliefs)
        per_click = np.tile([1 / self.split, -1 / (1 - self.split)], pair.n_queries)
        return Displays(self.policy(pair), Linear(np.repeat(per_click[:, None], pair.k, axis=1)))

    def query_policy(
        self, a: DocumentArray, b: DocumentArray, beliefs: Beliefs, effects: FloatArray | None = None
    ) -> tuple[DocumentArray, FloatArray]:
        table = np.full((2, len(beliefs.theta)), NO_DOCUMENT, np.int32)
        for row, ranked in zip(table, (a, b)):
            top = ranked[: len(row)]
            row[: len(top)] = top
        return table, np.array(self.traits.ab_shares)

    def moments(self, pair: Pair, user: User) -> Moments:
        """Moments of one impression; for "means" and "adjusted", N times the large-sample variance of the difference.

        "adjusted" is A/B at its best, where every query comes many times: differences between queries add no variance.
        """
        single = super().moments(pair, user)
        if self.traits.averages_impressions:
            return single
        cumulants = np.zeros(3)
        clicks = []
        for table, share, sign in zip((pair.top_a, pair.top_b), self.traits.ab_shares, (1, -1)):
            powers = linear_moments(table, np.ones(table.shape), UserArrays.of(user))
            first, second = powers.T[:2]
            within, between = float((second - first**2).mean()), float(first.var())
            variance = within if self.estimate == "adjusted" else within + between
            third, fourth = higher_cumulants(*powers.mean(0).tolist())
            cumulants += variance / share, sign * third / share**2, fourth / share**3
            clicks.append(first)
        if self.estimate == "adjusted":
            return Moments(single.mean, cumulants[0] + float((clicks[0] - clicks[1]).var()), single.ctr)
        return Moments(single.mean, float(cumulants[0]), single.ctr, *cumulants[1:].tolist())

    def simulate(
        self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, shortcut: bool = True
    ) -> Trajectory:
        if self.traits.needs_position_bias:
            return super().simulate(pair, user, checkpoints, seed=seed)
        if self.estimate == "adjusted":
            raise NotImplementedError(f"{self} needs the query of every impression: estimate a Log.simulated instead")
        if shortcut or self.estimate == "means":
            return self.draw(self.outcome_law(pair, user), checkpoints, seed=seed)
        return self.displays(pair).simulate(user, checkpoints, seed=seed)

    def expected(self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, runs: int = 1) -> ExpectedRun:
        if self.traits.needs_position_bias:
            return super().expected(pair, user, checkpoints, seed=seed, runs=runs)
        return ExpectedRun.of_moments(checkpoints, self.moments(pair, user), step=self.traits.step)

    def outcome_law(self, pair: Pair, user: User) -> FloatArray:
        """P(arm, number of clicks) of one impression, exactly: the (2, k + 1) law that any number of runs draw from."""
        check_user(user, pair.k, pair.n_documents)
        return np.stack([self.split * _clicks_law(pair.top_a, user), (1 - self.split) * _clicks_law(pair.top_b, user)])

    def draw(self, law: FloatArray, checkpoints: ArrayLike, *, seed: Seed) -> Trajectory:
        """A whole run at once: how many impressions up to each checkpoint had which arm and how many clicks."""
        points = checks.checkpoints(checkpoints)
        seen = draw_counts(law, points, seed)
        clicks = np.arange(seen.shape[2])
        shown, total, squares = seen.sum(2), seen @ clicks, seen @ clicks**2
        shares = np.array([self.split, 1 - self.split])
        signs = np.array([1.0, -1.0])
        ctr = total.sum(1) / points
        if self.estimate == "paper":
            estimate = total @ (signs / shares) / points
            return Trajectory(points, estimate, squares @ (1 / shares**2) / points, ctr)
        # An arm without impressions yet says nothing: its mean counts as 0.
        means = total / np.maximum(shown, 1)
        estimate = means @ signs
        # The value of one impression to first order is estimate +- (clicks - mean of its arm) / share of its arm.
        spread = (squares - shown * means**2) @ (1 / shares**2) / points
        return Trajectory(points, estimate, estimate**2 + spread, ctr)

    def swapped(self) -> AB:
        return replace(self, split=1 - self.split)

    @cached_property
    def traits(self) -> Traits:
        by_model = self.estimate in ESTIMATES
        learns_at = self.schedule if by_model else ()
        return Traits(
            tends_to_delta=True,
            needs_position_bias=by_model,
            zero_on_identical=by_model,
            step=2.0 if self.estimate == "paper" and self.split == 0.5 else 0.0,
            ab_shares=(self.split, 1 - self.split),
            lists_displays=not learns_at,
            averages_impressions=self.estimate not in ("means", "adjusted"),
            has_exact_limit=not learns_at,
            learns_position_bias=by_model and self.bias == "estimated",
            learns_at=learns_at,
            estimator=self.estimate,
        )


def _clicks_law(table: DocumentArray, user: User) -> FloatArray:
    """P(number of clicks) on a ranker's lists, queries drawn uniformly."""
    n, k = table.shape
    joint = credit_distribution(table, np.ones((n, k), np.int8), np.full(n, 1 / n), UserArrays.of(user))
    return np.asarray(joint.sum(axis=0))
