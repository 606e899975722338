"""Simulated counts of shows and clicks under an explicit mixture, all impressions drawn at once.

Multinomials over (query, ranking) and binomials per rank have the same law as going impression by impression, at a cost that
does not grow with the traffic. (A Plackett-Luce policy cannot list its rankings: see ``plackett_luce.simulate_counts``.)
"""

from __future__ import annotations

import numpy as np

from ranktrial.arrays import NO_DOCUMENT, FloatArray, weighted_counts
from ranktrial.rankings.lists import check_user, expected_clicks
from ranktrial.rankings.mixture import Mixture
from ranktrial.seeds import Seed, generator
from ranktrial.users import User


def show_counts(mixture: Mixture, user: User, impressions: int, *, seed: Seed) -> tuple[FloatArray, FloatArray]:
    """Shown and clicked per (document, rank) after that many impressions, drawn at once."""
    check_user(user, mixture.k, mixture.n_documents)
    if not user.reads_on:
        raise ValueError(
            f"clicks of a {user.name} user on one ranking are not independent, so their counts are not binomial"
        )
    random = generator(seed)
    per_query = random.multinomial(impressions, np.full(mixture.n_queries, 1 / mixture.n_queries))
    shows = np.zeros(len(mixture.rankings), np.int64)
    sizes = np.diff(mixture.offsets)
    left, weight_left = per_query.copy(), np.ones(mixture.n_queries)
    for j in range(int(sizes.max())):  # a multinomial is binomials one after the other; vectorised over queries
        has = np.flatnonzero(sizes > j)
        cell = mixture.offsets[has] + j
        last = sizes[has] == j + 1
        chance = np.where(last, 1.0, mixture.weights[cell] / np.maximum(weight_left[has], 1e-300))
        shows[cell] = random.binomial(left[has], np.clip(chance, 0, 1))
        left[has] -= shows[cell]
        weight_left[has] -= mixture.weights[cell]
    clicks = random.binomial(shows[:, None], expected_clicks(mixture.rankings, user))
    filled = mixture.rankings != NO_DOCUMENT
    cells = (mixture.rankings.astype(np.int64) * mixture.k + np.arange(mixture.k))[filled]
    size = mixture.n_documents * mixture.k
    shape = (mixture.n_documents, mixture.k)
    everywhere = np.broadcast_to(shows[:, None], filled.shape)[filled].astype(np.float64)
    shown = weighted_counts(cells, everywhere, size).reshape(shape)
    return shown, weighted_counts(cells, clicks[filled].astype(np.float64), size).reshape(shape)
