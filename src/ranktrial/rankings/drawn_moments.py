"""Moments of the IPS value under a Plackett-Luce policy: exact but for pairs of documents, which come from drawn rankings.

A policy has too many rankings to list. With w_d what a click on d is worth and c_d its probability, E[x | q] = sum_d w_d c_d
and the diagonal of E[x^2 | q], sum_d w_d^2 c_d, follow from exact exposures; clicks on a drawn ranking are averaged over, never
drawn. Of a large data set some queries stand for all: what is known of every query, its true difference, is taken into account,
so only what differs from it is sampled.
"""

from __future__ import annotations

import numpy as np

from ranktrial.arrays import BoolArray, FloatArray, IntArray, sum_by_group
from ranktrial.rankings._kernels import linear_moments
from ranktrial.rankings.lists import Pair, UserArrays, expected_clicks
from ranktrial.rankings.mixture import Moments, higher_cumulants
from ranktrial.rankings.plackett_luce import PlackettLuce
from ranktrial.rankings.propensity import ips_weights
from ranktrial.seeds import Seed, children, generator
from ranktrial.users import User

QUERIES = 2_000  # that stand for all of a larger set
DRAWS = 60_000  # rankings of all these together


def ips_moments(
    pair: Pair,
    policy: PlackettLuce,
    theta: FloatArray,
    user: User,
    *,
    seed: Seed,
    lam: FloatArray | None = None,
    clip: float | None = None,
) -> Moments:
    """Moments of x = sum over clicks of lambda_d / rho_d, both at the position bias ``theta``, for users who read on.

    Users' own position bias may be another: then the mean is not Delta, and ``standard_error`` says how sure it is. ``lam``
    is given where it is not the one of ``theta``.
    """
    if not user.reads_on:
        raise ValueError(f"clicks of a {user.name} user on one ranking are not independent, so simulate instead")
    every = pair.n_queries
    drawing = children(seed, 2)[1]
    chosen = queries_chosen(every, seed=seed)
    some, documents = policy.of_queries(chosen)
    wanted_lam = (pair.lam(theta) if lam is None else lam)[documents]
    zeta = user.zeta[documents]
    wanted = wanted_lam != 0
    rho = some.exposure(theta, wanted=wanted)
    values = ips_weights(wanted_lam, rho, some.offsets, clip=clip)
    clicked = np.where(wanted, _click_chances(some, theta, rho, zeta, user, wanted), 0.0)

    mean = sum_by_group(values * clicked, some.offsets)
    truth = pair.delta_by_query(user)
    off = mean - truth[chosen]
    rankings = some.rankings(max(2, -(-DRAWS // some.n_queries)), seed=drawing)
    worth = np.where(rankings >= 0, values[rankings], 0.0)
    powers = linear_moments(rankings, worth, UserArrays.of(user.of(documents)))
    clicks = expected_clicks(rankings, user.of(documents))
    pairs = (powers[:, 1] - (clicks * worth**2).sum(1)).reshape(some.n_queries, -1).mean(1)
    within = sum_by_group(values**2 * clicked, some.offsets) + pairs - mean**2
    between = truth.var() + mean.var() - truth[chosen].var()
    cumulants = higher_cumulants(*powers.mean(0).tolist())
    share_left = 1 - len(chosen) / every
    return Moments(
        float(truth.mean() + off.mean()),
        float(max(within.mean() + between, 0.0)),
        float(clicks.sum(1).mean()),
        *cumulants,
        standard_error=float(off.std() * np.sqrt(share_left / len(chosen))),
    )


def queries_chosen(every: int, *, seed: Seed) -> IntArray:
    """The queries that stand for all in ``ips_moments`` with that seed."""
    if every <= QUERIES:
        return np.arange(every)
    return np.sort(generator(children(seed, 2)[0]).choice(every, QUERIES, replace=False))


def _click_chances(
    policy: PlackettLuce, theta: FloatArray, rho: FloatArray, zeta: FloatArray, user: User, wanted: BoolArray
) -> FloatArray:
    """P(click) of every wanted document, for users with another position bias or trust in ranks as well."""
    slope, intercept = user.slope[: policy.k], user.intercept[: policy.k]
    examined = rho if np.array_equal(slope, theta[: policy.k]) else policy.exposure(slope, wanted=wanted)
    anyway = policy.exposure(intercept, wanted=wanted) if intercept.any() else 0.0
    return np.asarray(zeta * examined + anyway)
