"""Team-draft interleaving (Radlinski, Kurup and Joachims 2008).

The common prefix of both lists is shown first and credited to nobody. Then rounds of two: a fair coin decides who picks first,
each ranker picks its best document not shown yet, and clicks count for the ranker that picked. When a list is used up the other
fills the page. Only whole rounds within the length of the shorter list count, which both rankers are sure to complete: so a
random clicker favours neither ranker on any input. docs/reference/methods.md has the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, FloatArray, IntArray
from ranktrial.methods._kernels.team_draft import (
    simulate_team_draft,
    team_draft_displays,
    team_draft_distribution,
)
from ranktrial.methods.base import Method, Traits
from ranktrial.methods.displays import Displays, Linear, Majority, TooManyDisplaysError
from ranktrial.methods.list_tables import ListTables
from ranktrial.methods.trajectory import Trajectory, draw_counts
from ranktrial.rankings import Mixture, Moments, Pair
from ranktrial.rankings.lists import UserArrays, check_user
from ranktrial.rankings.mixture import higher_cumulants
from ranktrial.seeds import Seed, kernel_state
from ranktrial.users import User

MOST_COINS = 16  # drafts of a query that are listed: 2^16
MANY_IMPRESSIONS = 4_000_000  # of a run that moments are taken from
SHORTCUT_COINS = 10  # beyond, the exact law takes longer than going impression by impression


def _draft_tables(pair: Pair) -> tuple[ListTables, IntArray, IntArray]:
    """Both rankers' lists, the length of each query's page, and the most coins that a draft of it takes."""
    lists = ListTables.of(pair.top_a, pair.top_b)
    own_of_a = ((lists.top_a != NO_DOCUMENT) & (lists.a_in_b < 0)).sum(1)
    page = np.minimum(lists.length_b + own_of_a, pair.k)
    prefix = np.cumprod((lists.top_a == lists.top_b) & (lists.top_a != NO_DOCUMENT), axis=1).sum(1)
    shorter = np.minimum(lists.length_a, lists.length_b)
    return lists, page, np.minimum((page - prefix + 1) // 2, shorter - prefix)


def _listable_tables(pair: Pair) -> tuple[ListTables, IntArray, IntArray]:
    """Tables for going through all drafts; an error if a query has too many of them."""
    lists, page, coins = _draft_tables(pair)
    query = int(coins.argmax())
    if coins[query] > MOST_COINS:
        raise TooManyDisplaysError(
            f"query {query} has 2^{coins[query]} drafts at k = {pair.k}, too many to list (at most 2^{MOST_COINS}); "
            "simulate() has no such limit"
        )
    return lists, page, coins


@dataclass(frozen=True, repr=False)
class TeamDraft(Method):
    """Team-draft interleaving.

    Attributes:
        outcome: "sign" gives x = sign(clicks on A's picks - clicks on B's picks), "sum" the difference itself.

    >>> for shown in TeamDraft().displays(Pair.from_lists(["ab"], ["ba"], k=2)).of_query(0):
    ...     print(shown.documents, shown.probability, shown.credits)
    (1, 0) 0.5 (-1.0, 1.0)
    (0, 1) 0.5 (1.0, -1.0)
    """

    outcome: str = "sign"

    traits = Traits(lists_displays=False, step=1.0)

    def __post_init__(self) -> None:
        checks.one_of("outcome", self.outcome, ("sign", "sum"))

    def displays(self, pair: Pair) -> Displays:
        rankings, credits, offsets = team_draft_displays(*_listable_tables(pair))
        counts = np.diff(offsets)
        mixture = Mixture(rankings, np.repeat(1 / counts, counts), offsets, pair.n_documents)
        value = Majority.certain(credits) if self.outcome == "sign" else Linear(credits.astype(float))
        return Displays(mixture, value)

    def moments(self, pair: Pair, user: User) -> Moments:
        law = self.outcome_law(pair, user)
        x, clicks = np.arange(len(law)) - len(law) // 2, np.arange(law.shape[1])
        chance = law.sum(1)
        powers = [float(chance @ x**power) for power in (1, 2, 3, 4)]
        variance = float(chance @ (x - powers[0]) ** 2)
        return Moments(powers[0], variance, float(law.sum(0) @ clicks), *higher_cumulants(*powers))

    def simulate(
        self, pair: Pair, user: User, checkpoints: ArrayLike, *, seed: Seed, shortcut: bool = True
    ) -> Trajectory:
        lists, page, coins = _draft_tables(pair)
        if shortcut and coins.max() <= SHORTCUT_COINS:
            return self.draw(self.outcome_law(pair, user), checkpoints, seed=seed)
        check_user(user, pair.k, pair.n_documents)

        def sums(points: IntArray) -> FloatArray:
            totals = np.zeros((len(points), 3))
            signed = self.outcome == "sign"
            simulate_team_draft(lists, page, signed, UserArrays.of(user), kernel_state(seed), points, totals)
            return totals

        return Trajectory.of_sums(checkpoints, sums)

    def drawn_moments(self, pair: Pair, user: User, *, seed: Seed) -> Moments:
        """Moments from a long simulated run, where drafts are too many to go through."""
        if _draft_tables(pair)[2].max() <= SHORTCUT_COINS:
            return self.moments(pair, user)
        run = self.simulate(pair, user, [MANY_IMPRESSIONS], seed=seed)
        mean, square, ctr = float(run.estimate[0]), float(run.mean_square[0]), float(run.ctr[0])
        variance = square - mean**2
        return Moments(mean, variance, ctr, standard_error=float(np.sqrt(variance / MANY_IMPRESSIONS)))

    def outcome_law(self, pair: Pair, user: User) -> FloatArray:
        """P(value, number of clicks) of one impression, exactly: rows are values -1, 0, 1 (or -k to k for "sum")."""
        check_user(user, pair.k, pair.n_documents)
        law = np.asarray(team_draft_distribution(*_listable_tables(pair), UserArrays.of(user)))
        if self.outcome == "sum":
            return law
        return np.stack([law[: pair.k].sum(0), law[pair.k], law[pair.k + 1 :].sum(0)])

    def draw(self, law: FloatArray, checkpoints: ArrayLike, *, seed: Seed) -> Trajectory:
        """A whole run at once: how many impressions up to each checkpoint had which value and how many clicks."""
        x = np.arange(len(law)) - len(law) // 2

        def sums(points: IntArray) -> FloatArray:
            seen = draw_counts(law, points, seed)
            by_value = seen.sum(2)
            return np.column_stack([by_value @ x, by_value @ x**2, seen.sum(1) @ np.arange(law.shape[1])])

        return Trajectory.of_sums(checkpoints, sums)
