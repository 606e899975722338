"""Traffic that a logging policy leaves behind: impression by impression, or as counts drawn at once.

Multinomials over (query, ranking) and binomials per rank have the same law as going impression by impression, at a cost that
does not grow with the traffic. (A Plackett-Luce policy cannot list its rankings: see ``plackett_luce.simulate``.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ranktrial.arrays import NO_DOCUMENT, BoolArray, DocumentArray, FloatArray, IntArray, weighted_counts
from ranktrial.rankings._kernels import click_one_by_one
from ranktrial.rankings.lists import UserArrays, check_user, expected_clicks
from ranktrial.rankings.mixture import Mixture
from ranktrial.rankings.plackett_luce import PlackettLuce
from ranktrial.seeds import Seed, children, generator
from ranktrial.users import Comparing, Crowd, User, Users

FEW = 30  # shows, up to which clicks are drawn one by one faster than their number


def show_counts(mixture: Mixture, user: User, impressions: int, *, seed: Seed) -> tuple[FloatArray, FloatArray]:
    """Draw shows and clicks per (document, rank) at once for that many impressions."""
    shows, clicks = display_counts(mixture, user, impressions, seed=seed)
    filled = mixture.rankings != NO_DOCUMENT
    cells = (mixture.rankings.astype(np.int64) * mixture.k + np.arange(mixture.k))[filled]
    size = mixture.n_documents * mixture.k
    shape = (mixture.n_documents, mixture.k)
    everywhere = np.broadcast_to(shows[:, None], filled.shape)[filled].astype(np.float64)
    shown = weighted_counts(cells, everywhere, size).reshape(shape)
    return shown, weighted_counts(cells, clicks[filled].astype(np.float64), size).reshape(shape)


def display_counts(
    mixture: Mixture, user: User, impressions: int | IntArray, *, seed: Seed
) -> tuple[IntArray, IntArray]:
    """Draw the shows of each ranking of a mixture, and its clicks at each rank, at once for that many impressions.

    ``impressions`` is the number over all queries, or an array with that of each.
    """
    check_user(user, mixture.k, mixture.n_documents)
    random = generator(seed)
    if isinstance(impressions, int):
        impressions = random.multinomial(impressions, np.full(mixture.n_queries, 1 / mixture.n_queries))
    left = impressions.copy()
    shows = np.zeros(len(mixture.rankings), np.int64)
    sizes = np.diff(mixture.offsets)
    weight_left = np.ones(mixture.n_queries)
    for j in range(int(sizes.max())):  # a multinomial is binomials one after the other; vectorised over queries
        has = np.flatnonzero((sizes > j) & (left > 0))
        cell = mixture.offsets[has] + j
        last = sizes[has] == j + 1
        chance = np.where(last, 1.0, mixture.weights[cell] / np.maximum(weight_left[has], 1e-300))
        shows[cell] = random.binomial(left[has], np.clip(chance, 0, 1))
        left[has] -= shows[cell]
        weight_left[has] -= mixture.weights[cell]
    clicks = np.zeros(mixture.rankings.shape, np.int64)
    came = np.flatnonzero(shows)
    if user.reads_on:
        often = came[shows[came] > FEW]
        clicks[often] = random.binomial(shows[often, None], expected_clicks(mixture.rankings[often], user))
        state = random.integers(2**63, size=4, dtype=np.uint64)
        click_one_by_one(mixture.rankings, shows, FEW, UserArrays.of(user), state, clicks)
        return shows, clicks
    reading = shows[came]
    for r in range(mixture.k):  # those who still read, rank by rank
        documents = mixture.rankings[came, r]
        chance = user.slope[r] * user.zeta[np.maximum(documents, 0)] + user.intercept[r]
        hits = random.binomial(reading, np.where(documents == NO_DOCUMENT, 0.0, chance))
        clicks[came, r] = hits
        stay = random.binomial(hits, user.stay_after_click[r])
        reading = stay + random.binomial(reading - hits, user.stay_after_skip[r])
    return shows, clicks


class Impressions(NamedTuple):
    """Single impressions; ``rows`` of the policies' rankings, one policy after the other, None where any is Plackett-Luce."""

    queries: IntArray
    rankings: DocumentArray
    clicks: BoolArray
    rows: IntArray | None


def draw_impressions(
    policies: Sequence[Mixture | PlackettLuce],
    user: Users,
    sizes: Sequence[int],
    *,
    seed: Seed,
    asked: Sequence[IntArray] | None = None,
) -> Impressions:
    """Draw impressions of each policy, as many as ``sizes`` says, and a user's clicks on them.

    Queries are drawn uniformly, unless ``asked`` has those of each policy's impressions.
    """
    queries = []
    rankings = []
    rows = []
    before = 0
    for number, (policy, size, child) in enumerate(zip(policies, sizes, children(seed, len(sizes)))):
        check_user(user, policy.k, policy.n_documents)
        random = generator(child)
        query = random.integers(0, policy.n_queries, size) if asked is None else asked[number]
        if isinstance(policy, Mixture):
            # Weights sum to 1 for each query, up to rounding: one running sum serves all.
            row = np.searchsorted(np.cumsum(policy.weights), query + random.random(size), side="right")
            row = np.clip(row, policy.offsets[query], policy.offsets[query + 1] - 1)
            rows.append(before + row)
            before += len(policy.rankings)
            rankings.append(policy.rankings[row])
        else:
            table = np.empty((size, policy.k), np.int32)
            for one, draws in zip(range(policy.n_queries), children(child, policy.n_queries)):
                mine = np.flatnonzero(query == one)
                if len(mine):
                    table[mine] = policy.sample(one, len(mine), seed=draws)
            rankings.append(table)
        queries.append(query)
    shown = np.concatenate(rankings)
    listed = len(rows) == len(policies)
    clicks = draw_clicks(shown, user, seed=children(seed, len(sizes) + 1)[-1])
    return Impressions(np.concatenate(queries), shown, clicks, np.concatenate(rows) if listed else None)


def draw_clicks(rankings: DocumentArray, user: Users, *, seed: Seed) -> BoolArray:
    """Draw the clicks of a user on each ranking; of a crowd, those of one member drawn for each."""
    random = generator(seed)
    if isinstance(user, Comparing):
        return np.asarray(random.random(rankings.shape) < user.click_chances(rankings))
    clicks = np.zeros(rankings.shape, bool)
    if isinstance(user, Crowd):
        member = random.choice(len(user.users), len(rankings), p=user.shares)
        for number, (one, child) in enumerate(zip(user.users, children(seed, len(user.users)))):
            clicks[member == number] = draw_clicks(rankings[member == number], one, seed=child)
        return clicks
    reading = np.ones(len(rankings), bool)
    for r in range(rankings.shape[1]):
        filled = rankings[:, r] != NO_DOCUMENT
        chance = (
            user.slope[r] * user.zeta[np.where(filled, rankings[:, r], 0)] + user.intercept[r] if filled.any() else 0.0
        )
        clicks[:, r] = reading & filled & (random.random(len(rankings)) < chance)
        stay = np.where(clicks[:, r], user.stay_after_click[r], user.stay_after_skip[r])
        reading &= random.random(len(rankings)) < stay
    return clicks
