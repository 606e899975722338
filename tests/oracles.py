"""Plain, slow, obvious versions of what the kernels compute, for a few documents: enumerated truths."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from ranktrial.rankings import Pair
from ranktrial.testing import click_patterns as click_patterns
from ranktrial.testing import fixed_world as fixed_world
from ranktrial.users import User, cascade, position_based, trust_bias

Ranking = tuple[int, ...]
Credits = tuple[int, ...]
Clicks = tuple[bool, ...]


def sign(number: float) -> int:
    return (number > 0) - (number < 0)


def team_draft(a: Sequence[int], b: Sequence[int], k: int) -> dict[tuple[Ranking, Credits], float]:
    """Every draft with its probability, coded from docs/reference/methods.md; credit 1 for A, -1 for B, 0 for nobody."""
    a, b = a[:k], b[:k]
    m, n = min(len(a), len(b)), min(k, len({*a, *b}))
    prefix = list(itertools.takewhile(lambda both: both[0] == both[1], zip(a, b)))
    drafts: dict[tuple[Ranking, Credits], float] = defaultdict(float)

    def rounds(shown: Ranking, credits: Credits, probability: float) -> None:
        if len(shown) == n:
            drafts[shown, credits] += probability
            return
        counts = min(len(shown) + 2, n) <= m
        for order in (((a, 1), (b, -1)), ((b, -1), (a, 1))):
            page, points = shown, credits
            for ranked, ranker in order:
                left = [d for d in ranked if d not in page]
                if left and len(page) < n:
                    page, points = (*page, left[0]), (*points, ranker if counts else 0)
            rounds(page, points, probability / 2)

    rounds(tuple(d for d, _ in prefix), (0,) * len(prefix), 1.0)
    return drafts


def assigned_sign(clicks: Clicks, to_a: Sequence[float], to_b: Sequence[float]) -> float:
    """E[sign] by enumerating who every click is assigned to."""
    terms = [((1, a), (-1, b), (0, 1 - a - b)) for clicked, a, b in zip(clicks, to_a, to_b) if clicked]
    total = 0.0
    for assignment in itertools.product(*terms):
        total += sign(sum(v for v, _ in assignment)) * float(np.prod([p for _, p in assignment]))
    return total


def balanced(a: Sequence[int], b: Sequence[int], k: int, a_first: bool) -> Ranking:
    """Joachims' merge, as his paper prints it."""
    a, b = list(a[:k]), list(b[:k])
    merged: list[int] = []
    ka = kb = 0
    while len(merged) < k and (ka < len(a) or kb < len(b)):
        a_turn = ka < kb or (ka == kb and a_first)
        if (a_turn and ka < len(a)) or kb >= len(b):
            if a[ka] not in merged:
                merged.append(a[ka])
            ka += 1
        else:
            if b[kb] not in merged:
                merged.append(b[kb])
            kb += 1
    return tuple(merged)


def balanced_value(a: Sequence[int], b: Sequence[int], k: int, ranking: Ranking, clicks: Clicks) -> int:
    clicked = [d for d, c in zip(ranking, clicks) if c]
    if not clicked:
        return 0
    depth = min(ranked.index(clicked[-1]) for ranked in (list(a[:k]), list(b[:k])) if clicked[-1] in ranked) + 1
    return sign(sum(d in a[:k][:depth] for d in clicked) - sum(d in b[:k][:depth] for d in clicked))


def allowed_rankings(a: Sequence[int], b: Sequence[int], k: int) -> set[Ranking]:
    """Rankings whose every prefix is the union of a prefix of A and a prefix of B."""
    a, b = list(a[:k]), list(b[:k])
    unions = {frozenset(a[:i]) | frozenset(b[:j]) for i in range(len(a) + 1) for j in range(len(b) + 1)}
    documents = set(a) | set(b)
    length = min(k, len(documents))
    return {
        ranking
        for ranking in itertools.permutations(documents, length)
        if all(frozenset(ranking[:i]) in unions for i in range(length + 1))
    }


# --- small worlds ---------------------------------------------------------------------------------------------------------

N_DOCUMENTS = 5


@st.composite
def small_pairs(draw: st.DrawFn, queries: int = 1, max_k: int = 5) -> Pair:
    """Pairs of lists over up to five documents: any lengths, overlap and cutoff; empty lists too, but never both."""
    lists: tuple[list[list[int]], list[list[int]]] = ([], [])
    for _ in range(queries):
        lengths = draw(st.tuples(st.integers(0, N_DOCUMENTS), st.integers(0, N_DOCUMENTS)).filter(any))
        for out, length in zip(lists, lengths):
            out.append(draw(st.permutations(range(N_DOCUMENTS)))[:length])
    return Pair.from_lists(lists[0], lists[1], draw(st.integers(1, max_k)))


@st.composite
def small_users(draw: st.DrawFn, n_documents: int, k: int) -> User:
    def numbers(n: int) -> list[float]:
        return [x / 20 for x in draw(st.lists(st.integers(0, 20), min_size=n, max_size=n))]

    zeta, theta = numbers(n_documents), numbers(k)
    kind = draw(st.sampled_from(["position", "trust", "cascade"]))
    if kind == "position":
        return position_based(zeta, theta)
    if kind == "trust":
        high, low = np.array(numbers(k)), np.array(numbers(k))
        return trust_bias(zeta, theta, relevant=np.maximum(high, low), irrelevant=np.minimum(high, low))
    leave_click, leave_skip = numbers(2)
    return cascade(zeta, k, leave_after_click=leave_click, leave_after_skip=leave_skip, theta=theta)


@st.composite
def small_worlds(draw: st.DrawFn, queries: int = 1, max_k: int = 5) -> tuple[Pair, User]:
    """A pair and a user; the pair's position bias is known where the user has one (and assumed where not)."""
    pair = draw(small_pairs(queries, max_k))
    user = draw(small_users(pair.n_documents, pair.k))
    return pair.knowing(theta=user.slope), user
