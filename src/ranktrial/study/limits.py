"""Limits of methods after infinitely many impressions: E[x] without the noise of clicks, so the systematic error alone.

Exact wherever a method's displays can be listed. Probabilistic interleaving has too many; its displays are drawn, the clicks on
each are not, and the standard error that the drawing leaves is stated. Every draw of pair (A, B) comes with the draw of (B, A)
from the same random words: each coin falls the other way, which takes out 90 to 95 % of the variance.

Methods that learn on the way have no such limit (``Method.has_exact_limit``), and counterfactual estimates from Plackett-Luce
policies are left out: for the position-based user their limit is Delta by theory, and exact exposures of all documents cost
more than they would tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ranktrial.arrays import FloatArray
from ranktrial.methods import Displays, Majority, Method, TooManyDisplaysError
from ranktrial.rankings import Pair
from ranktrial.rankings._kernels import majority_moments
from ranktrial.rankings.lists import check_user, user_arrays
from ranktrial.seeds import Seed
from ranktrial.users import User

DRAWS = 50_000  # pairs of displays over all queries; the standard error is then about 3e-4
IMPRESSIONS = 4_000_000  # simulated where displays can be neither listed nor drawn


@dataclass(frozen=True)
class Limit:
    """What an estimate converges to.

    Attributes:
        mean: E[x].
        standard_error: Of ``mean``; 0 where it is exact.
        ctr: Expected clicks per impression on what is shown.
    """

    mean: float
    standard_error: float
    ctr: float

    def wrong_sign(self, delta: float) -> bool:
        """Whether the method ends up preferring the wrong ranker; a limit of exactly 0 prefers none, which is wrong too."""
        return delta != 0 and self.mean * delta <= 0


def limit_of(method: Method, pair: Pair, user: User, *, seed: Seed) -> Limit:
    """The limit of a method's estimate on a pair, queries drawn uniformly."""
    try:
        if method.draws_displays:
            return _drawn(method, pair, user, seed)
        exact = method.moments(pair, user)
        return Limit(exact.mean, 0.0, exact.ctr)
    except TooManyDisplaysError:
        run = method.simulate(pair, user, [IMPRESSIONS], seed=seed)
        mean, square, ctr = run.estimate[-1], run.mean_square[-1], run.ctr[-1]
        return Limit(float(mean), float(np.sqrt((square - mean**2) / IMPRESSIONS)), float(ctr))


def _drawn(method: Method, pair: Pair, user: User, seed: Seed) -> Limit:
    draws = max(2, -(-DRAWS // pair.n_queries))
    one, other = (method.sampled_displays(side, draws, seed=seed) for side in (pair, pair.swapped()))
    values = (_value_by_display(one, user) - _value_by_display(other, user)) / 2
    by_query = values.reshape(pair.n_queries, draws)
    error = np.sqrt(by_query.var(axis=1, ddof=1).sum() / draws) / pair.n_queries
    ctr = (one.mixture.ctr(user) + other.mixture.ctr(user)) / 2
    return Limit(float(values.mean()), float(error), ctr)


def _value_by_display(displays: Displays, user: User) -> FloatArray:
    """E[x | display] of a majority with credit per rank."""
    value, rankings = displays.value, displays.mixture.rankings
    assert isinstance(value, Majority)
    check_user(user, displays.mixture.k, displays.mixture.n_documents)
    return np.asarray(majority_moments(rankings, value.to_a, value.to_b, *user_arrays(user), False)[:, 0])
