"""Limits of methods after infinitely many impressions: E[x] without the noise of clicks, so the systematic error alone.

Exact wherever a method's displays can be listed. Probabilistic interleaving has too many; its displays are drawn, the clicks on
each are not, and the standard error that the drawing leaves is stated.

Methods that learn on the way have no such limit (``Traits.has_exact_limit``), and counterfactual estimates from Plackett-Luce
policies are left out: for the position-based user their limit is Delta by theory.
"""

from __future__ import annotations

from dataclasses import dataclass

from ranktrial.methods import Method
from ranktrial.rankings import Pair
from ranktrial.seeds import Seed
from ranktrial.users import User


@dataclass(frozen=True)
class Limit:
    """Limit of an estimate after infinitely many impressions.

    Attributes:
        mean: E[x].
        standard_error: Standard error of ``mean``; 0 if it is exact.
        ctr: Expected clicks per impression on the rankings shown.
    """

    mean: float
    standard_error: float
    ctr: float

    def wrong_sign(self, delta: float) -> bool:
        """True if the method ends up preferring the wrong ranker; a limit of exactly 0 prefers none, which is wrong too."""
        return delta != 0 and self.mean * delta <= 0


def limit_of(method: Method, pair: Pair, user: User, *, seed: Seed) -> Limit:
    """The limit of a method's estimate on a pair, queries drawn uniformly."""
    run = method.expected(pair, user, [1], seed=seed)
    if run.standard_error is None:
        raise ValueError(f"{method} has no limit that is known beforehand")
    return Limit(float(run.estimate[0]), run.standard_error, float(run.ctr[0]))
