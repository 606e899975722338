"""The value of an impression: one formula for every estimator that is unbiased given theta.

With a guess zh of the relevances, made without looking at this impression,

    u_d(r) = 1 / (1 - theta_r zh_d)  (rank-aware)   or   1  (plain)
    W_d(r) = lambda_d u_d(r) / sum_s P(d, s) theta_s u_d(s)
    x      = sum_d lambda_d zh_d + sum_r W_{R_r}(r) (c_{R_r} - theta_r zh_{R_r})

has mean Delta whatever the guess. zh = 0 is the paper's IPS; a constant already takes out most of the variance that a good
guess takes out; a good guess is doubly robust estimation. A click at rank r that was to be expected (theta_r zh_d near 1) says
more when it fails to come, which is what the rank-aware weights use.

x is affine in the clicks: a number per ranking plus numbers per clicked rank. So exact moments and simulation need no more than
for IPS. W does not change when u_d is scaled, and here u_d is at most 1: |W_d(r)| is at most |lambda_d| over the denominator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ranktrial import checks
from ranktrial.arrays import NO_DOCUMENT, FloatArray, IntArray, sum_by_group, weighted_counts
from ranktrial.rankings.mixture import Mixture
from ranktrial.rankings.propensity import ips_weights

RANK_AWARE_GUESSES = (0.01, 0.9)  # beyond, 1 / (1 - theta zh) would trust a guess too much

Guess = float | FloatArray | None


@dataclass(frozen=True, eq=False)
class Affine:
    """x = ``base[ranking]`` + sum over clicked ranks of ``values[ranking, rank]``, for the rankings of a mixture."""

    base: FloatArray
    values: FloatArray

    @property
    def bound(self) -> float:
        """The largest absolute value x can have, over all rankings and click patterns: what betting needs to know."""
        above = self.base + np.maximum(self.values, 0).sum(1)
        below = self.base + np.minimum(self.values, 0).sum(1)
        return float(np.maximum(np.abs(above), np.abs(below)).max())


def affine_values(
    mixture: Mixture,
    lam: FloatArray,
    theta: FloatArray,
    offsets: IntArray,
    *,
    zeta_hat: Guess = None,
    rank_aware: bool = False,
    known_queries: bool = False,
    clip: float | None = None,
) -> Affine:
    """The formula on every ranking of a mixture; refuses, naming query and document, where one that matters cannot be seen.

    ``offsets`` are the pair's. ``zeta_hat`` is None (IPS), one number, or one per document. ``known_queries`` replaces the
    first sum by its mean over all queries, uniformly: less variance where P(q) is known. ``clip`` caps W, for some bias.
    """
    guess = checked_guess(zeta_hat, len(lam), rank_aware=rank_aware)
    shown = mixture.rankings != NO_DOCUMENT
    guessed = np.append(guess, 0.0)[mixture.rankings]  # 0 for NO_DOCUMENT, which is -1
    useful = usefulness(theta, guessed, rank_aware=rank_aware)
    weighted = (mixture.weights[:, None] * theta * useful)[shown]
    examined = weighted_counts(mixture.rankings[shown], weighted, len(lam))
    weights = ips_weights(lam, examined, offsets, clip=clip).values
    values = np.append(weights, 0.0)[mixture.rankings] * useful
    first = expected_value(lam, guess, offsets, known_queries=known_queries)
    return Affine(np.repeat(first, np.diff(mixture.offsets)) - (values * theta * guessed).sum(1), values)


def rank_weights(
    lam: FloatArray,
    placement: FloatArray,
    theta: FloatArray,
    offsets: IntArray,
    zeta_hat: Guess = None,
    rank_aware: bool = False,
) -> FloatArray:
    """W as a (documents, k) matrix, for policies that are no mixtures: ``placement`` is all that is needed of them."""
    guess = checked_guess(zeta_hat, len(lam), rank_aware=rank_aware)
    useful = usefulness(theta, guess[:, None], rank_aware=rank_aware)
    weights = ips_weights(lam, (placement * (theta * useful)).sum(1), offsets)
    return np.asarray(weights.values[:, None] * useful)


def checked_guess(zeta_hat: Guess, n_documents: int, *, rank_aware: bool) -> FloatArray:
    """The guess as one number per document: 0 for None; moved inside (0, 1) where rank-aware weights divide by it."""
    if zeta_hat is None:
        if rank_aware:
            raise ValueError("zeta_hat is None, but rank-aware weights need a guess of the relevances")
        return np.zeros(n_documents)
    guess = checks.probabilities("zeta_hat", np.atleast_1d(np.asarray(zeta_hat, np.float64)))
    if np.ndim(zeta_hat) and len(guess) != n_documents:
        raise ValueError(f"zeta_hat has {len(guess)} numbers for {n_documents} documents, must have one each")
    if rank_aware:
        guess = np.clip(guess, *RANK_AWARE_GUESSES)
    return np.broadcast_to(guess, n_documents)


def usefulness(theta: FloatArray, guess: FloatArray, *, rank_aware: bool) -> NDArray[np.float64]:
    """u, scaled per document to at most 1, of guesses in any shape that broadcasts with the ranks (last axis)."""
    if not rank_aware:
        return np.ones(np.broadcast_shapes(theta.shape, guess.shape))
    return np.asarray((1 - theta.max() * guess) / (1 - theta * guess))


def expected_value(lam: FloatArray, guess: FloatArray, offsets: IntArray, *, known_queries: bool) -> FloatArray:
    """The first sum per query: what x would be on average if the guess were right."""
    per_query = sum_by_group(lam * guess, offsets)
    return np.full_like(per_query, per_query.mean()) if known_queries else per_query
