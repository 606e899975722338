"""Ragged ranked lists, and the pair of rankers under comparison."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial import checks, frames, notebook
from ranktrial.arrays import NO_DOCUMENT, DocumentArray, FloatArray, IntArray, offsets_of, ragged, weighted_counts
from ranktrial.rankings._kernels import click_probabilities, sort_by_score
from ranktrial.seeds import Seed, kernel_state
from ranktrial.trec.runs import Run
from ranktrial.users import Comparing, Crowd, User, Users

MOST_RANKS = 64  # click patterns are 64-bit masks in the simulation kernels


@dataclass(frozen=True, eq=False)
class Rankings:
    """One ranked list of document ids per query: list q is ``documents[offsets[q]:offsets[q + 1]]``, best first."""

    offsets: IntArray
    documents: DocumentArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, query: int) -> DocumentArray:
        return self.documents[self.offsets[query] : self.offsets[query + 1]]

    def top(self, k: int) -> DocumentArray:
        """The first k documents of every list as a (queries, k) table, NO_DOCUMENT where a list is shorter."""
        ranks = np.arange(k)
        filled = ranks < np.diff(self.offsets)[:, None]
        table = np.full((len(self), k), NO_DOCUMENT, np.int32)
        table[filled] = self.documents[(self.offsets[:-1, None] + ranks)[filled]]
        return table


def rank_by_score(scores: ArrayLike, offsets: IntArray, *, seed: Seed = 0) -> Rankings:
    """Rank every query's documents by falling score; ties are broken at random with the seed.

    >>> rank_by_score([.1, .9, .5, .7], np.array([0, 3, 4]))[0]
    array([1, 2, 0], dtype=int32)
    """
    scores, offsets = np.ascontiguousarray(scores, np.float64), np.asarray(offsets, np.int64)
    if len(scores) != offsets[-1]:
        raise ValueError(f"{len(scores)} scores for {offsets[-1]} documents, there must be one each")
    if not np.all(np.isfinite(scores)):
        bad = int(np.argmin(np.isfinite(scores)))
        raise ValueError(f"score of document {bad} is {scores[bad]}, must be finite")
    documents = np.empty(len(scores), np.int32)
    sort_by_score(scores, offsets, kernel_state(seed), documents)
    return Rankings(offsets, documents)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two rankers over the same queries, shown k results at a time.

    The lists of A and B may be of unequal length, shorter than k, or hold different documents.

    Attributes:
        a: Ranker A's list for every query.
        b: Ranker B's.
        offsets: Query q owns document ids ``offsets[q]:offsets[q + 1]``.
        k: Results on a page.
        theta: Known or assumed position bias, P(rank is examined); counterfactual methods need it.
        features: A row per document, for methods that learn from features.
        ids: The caller's own id of each document; by default its number.
        queries: The caller's own name of each query; by default its number.

    >>> pair = Pair.from_lists([["x", "y"]], [["z", "x"]], k=2)
    >>> pair.ids, pair.top_b.tolist(), [pair.ids[d] for d in pair.top_b[0]]
    (('x', 'y', 'z'), [[2, 0]], ['z', 'x'])
    """

    a: Rankings
    b: Rankings
    offsets: IntArray
    k: int
    theta: FloatArray | None = None
    features: NDArray[np.float32] | None = None
    ids: Sequence[Any] = ()
    queries: Sequence[Any] = ()

    def __post_init__(self) -> None:
        checks.whole("k", self.k, 1, MOST_RANKS)
        checks.at_least("number of queries", len(self.offsets) - 1, 1)
        if not len(self.a) == len(self.b) == len(self.offsets) - 1:
            raise ValueError(
                f"A ranks {len(self.a)} queries, B {len(self.b)}, the data set has {len(self.offsets) - 1}"
            )

        for name, ranker in (("A", self.a), ("B", self.b)):
            _check_lists(name, ranker, self.offsets)
        for name, count in (("ids", self.n_documents), ("queries", self.n_queries)):
            given = getattr(self, name) or range(count)
            if len(given) != count:
                raise ValueError(f"{len(given)} {name}, must be {count}")
            object.__setattr__(self, name, given)
        if self.theta is not None:
            object.__setattr__(self, "theta", np.asarray(self.theta, np.float64))
        if self.theta is not None and len(checks.probabilities("theta", self.theta)) != self.k:
            raise ValueError(f"theta has {len(self.theta)} ranks, must have k = {self.k}")
        if self.features is not None and self.features.ndim != 2:
            raise ValueError(f"features have {self.features.ndim} dimensions, must be a table with a row per document")
        if self.features is not None and len(self.features) != self.n_documents:
            raise ValueError(
                f"{len(self.features)} rows of features for {self.n_documents} documents, must be one each"
            )

    def __repr__(self) -> str:
        return f"Pair({self.n_queries:,} queries, k={self.k}, {self.n_documents:,} documents)"

    to_frame = frames.to_frame

    def _repr_html_(self) -> str:
        """Render the size and the first lists for notebooks."""
        return notebook.of_pair(self)

    @classmethod
    def from_scores(cls, a: ArrayLike, b: ArrayLike, offsets: IntArray, k: int, *, seed: Seed = 0) -> Pair:
        """The pair of rankers given by two score columns over the documents of a data set; ties as in ``rank_by_score``."""
        return cls(rank_by_score(a, offsets, seed=seed), rank_by_score(b, offsets, seed=seed), offsets, k)

    @classmethod
    def from_lists(cls, a: Sequence[Sequence[Hashable]], b: Sequence[Sequence[Hashable]], k: int) -> Pair:
        """The pair given by two lists of ids per query; documents are numbered in A's order, then B's.

        >>> Pair.from_lists([["x", "y"]], [["z", "x"]], k=2).ids
        ('x', 'y', 'z')
        """
        if len(a) != len(b):
            raise ValueError(f"A ranks {len(a)} queries, B {len(b)}, must be the same queries")
        ids: list[Any] = []
        flat: tuple[list[int], list[int]] = ([], [])
        sizes = []
        for query, lists in enumerate(zip(a, b)):
            known: dict[Hashable, int] = {}
            for name, ranked, out in zip("AB", lists, flat):
                if len(set(ranked)) < len(ranked):
                    twice = next(d for i, d in enumerate(ranked) if d in ranked[:i])
                    raise ValueError(f"query {query}: ranker {name} lists document {twice!r} twice")
                out.extend(known.setdefault(d, len(ids) + len(known)) for d in ranked)
            ids.extend(known)
            sizes.append(len(known))
        rankers = [
            Rankings(offsets_of([len(ranked) for ranked in lists]), np.array(out, np.int32))
            for lists, out in zip((a, b), flat)
        ]
        return cls(rankers[0], rankers[1], offsets_of(sizes), k, ids=tuple(ids))

    @classmethod
    def from_frame(cls, frame: Any, k: int, **options: Any) -> Pair:
        """Read both rankers from a data frame of pandas, polars, Arrow or DuckDB; see ``ranktrial.pair_from_frame``."""
        found: Pair = frames.read_pair(frame, k, **options)
        return found

    @classmethod
    def from_runs(cls, a: Run, b: Run, k: int) -> Pair:
        """The pair given by two TREC runs, joined on their query ids, which are its ``queries``.

        Queries come in the order of A, then those that B alone has; a ranker without a list for a query shows nothing.
        """
        queries = tuple(dict.fromkeys([*a.query_ids, *b.query_ids]))
        at = [{query: i for i, query in enumerate(run.query_ids)} for run in (a, b)]
        lists = [
            [run.ranking(where[query]) if query in where else () for query in queries] for run, where in zip((a, b), at)
        ]
        return replace(cls.from_lists(lists[0], lists[1], k), queries=queries)

    @property
    def n_queries(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_documents(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def top_a(self) -> DocumentArray:
        """The table of what ranker A would show, (queries, k)."""
        return self.a.top(self.k)

    @cached_property
    def top_b(self) -> DocumentArray:
        return self.b.top(self.k)

    @property
    def tables(self) -> DocumentArray:
        """``top_a`` and ``top_b`` as one array."""
        return np.stack([self.top_a, self.top_b])

    @cached_property
    def ranks(self) -> IntArray:
        """Rank from 0 of every document in A's list and in B's, just past its end (and past k) where it is not listed."""
        ranks = np.empty((2, self.n_documents), np.int64)
        for row, ranker in zip(ranks, (self.a, self.b)):
            lengths = np.diff(ranker.offsets)
            row[:] = np.repeat(np.maximum(lengths, self.k), np.diff(self.offsets))
            row[ranker.documents] = np.arange(len(ranker.documents)) - np.repeat(ranker.offsets[:-1], lengths)
        return ranks

    @cached_property
    def listed(self) -> IntArray:
        """The documents of both top k, in order."""
        listed = np.zeros(self.n_documents + 1, bool)  # NO_DOCUMENT, -1, marks the one too many
        listed[self.top_a] = listed[self.top_b] = True
        return np.flatnonzero(listed[:-1])

    def of_listed(self) -> Pair:
        """Return the pair with only the documents of both top k, renumbered in the same order.

        Features are dropped: they may be mapped from a file too large to copy.

        >>> pair = Pair.from_lists([["x", "y", "z"]], [["z", "x", "y"]], k=1).of_listed()
        >>> pair.ids, pair.a[0], pair.b[0]
        (('x', 'z'), array([0], dtype=int32), array([1], dtype=int32))
        """
        number = np.zeros(self.n_documents, np.int32)
        number[self.listed] = np.arange(len(self.listed))
        tops = [(table != NO_DOCUMENT, table) for table in (self.top_a, self.top_b)]
        a, b = (Rankings(offsets_of(filled.sum(1)), number[table[filled]]) for filled, table in tops)
        return replace(
            self,
            a=a,
            b=b,
            offsets=np.searchsorted(self.listed, self.offsets),
            features=None,
            ids=tuple(self.ids[d] for d in self.listed) if isinstance(self.ids, tuple) else (),
        )

    def of_queries(self, queries: IntArray) -> tuple[Pair, IntArray]:
        """Return the pair on some queries, in that order and without features, and the old numbers of its documents.

        >>> some, documents = Pair.from_lists(["ab", "cd", "ef"], ["ba", "dc", "fe"], k=2).of_queries(np.array([2, 0]))
        >>> documents, some.a[0], some.b[0]
        (array([4, 5, 0, 1]), array([0, 1], dtype=int32), array([1, 0], dtype=int32))
        """
        documents = ragged(self.offsets[queries], np.diff(self.offsets)[queries])
        offsets = offsets_of(np.diff(self.offsets)[queries])
        shift = offsets[:-1] - self.offsets[queries]

        def of(ranker: Rankings) -> Rankings:
            lengths = np.diff(ranker.offsets)[queries]
            kept = ranker.documents[ragged(ranker.offsets[queries], lengths)]
            return Rankings(offsets_of(lengths), (kept + np.repeat(shift, lengths)).astype(np.int32))

        names = {
            name: tuple(given[i] for i in some.tolist())
            for name, given, some in (("ids", self.ids, documents), ("queries", self.queries, queries))
            if isinstance(given, tuple)
        }
        rest = {"ids": (), "queries": ()} | names
        return replace(self, a=of(self.a), b=of(self.b), offsets=offsets, features=None, **rest), documents

    def swapped(self) -> Pair:
        """Return the pair with A and B exchanged."""
        return replace(self, a=self.b, b=self.a)

    def knowing(self, *, theta: ArrayLike | None = None, features: NDArray[np.float32] | None = None) -> Pair:
        """Return the pair with position bias or features known."""
        bias = self.theta if theta is None else np.asarray(theta, np.float64)
        return replace(self, theta=bias, features=self.features if features is None else features)

    @property
    def known_theta(self) -> FloatArray:
        if self.theta is None:
            raise ValueError("this method needs the position bias: give it as pair.knowing(theta=...)")
        return self.theta

    def lam(self, theta: FloatArray) -> FloatArray:
        """lambda_d: examination probability of d under A minus under B (the paper's Eq. lambda), for every document."""
        return exposure_of(self.top_a, theta, self.n_documents) - exposure_of(self.top_b, theta, self.n_documents)

    def ctr(self, user: Users) -> tuple[float, float]:
        """Expected clicks per impression of A and of B, exactly."""
        a, b = (float(expected_clicks(table, user).sum(1).mean()) for table in (self.top_a, self.top_b))
        return a, b

    def delta(self, user: Users) -> float:
        """The true CTR(A) - CTR(B)."""
        a, b = self.ctr(user)
        return a - b

    def delta_by_query(self, user: Users) -> FloatArray:
        return np.asarray(expected_clicks(self.top_a, user).sum(1) - expected_clicks(self.top_b, user).sum(1))


def _check_lists(name: str, ranker: Rankings, offsets: IntArray) -> None:
    """Every listed document belongs to its query and is listed once."""
    query = np.repeat(np.arange(len(ranker)), np.diff(ranker.offsets))
    foreign = np.flatnonzero((ranker.documents < offsets[query]) | (ranker.documents >= offsets[query + 1]))
    if len(foreign):
        at = foreign[0]
        raise ValueError(
            f"query {query[at]}: ranker {name} lists document {ranker.documents[at]}, "
            f"but the query owns documents {offsets[query[at]]} to {offsets[query[at] + 1] - 1}"
        )
    twice = np.flatnonzero(np.bincount(ranker.documents, minlength=1) > 1)
    if len(twice):
        at = int(np.searchsorted(offsets, twice[0], side="right")) - 1
        raise ValueError(f"query {at}: ranker {name} lists document {twice[0]} twice")


def rank_inputs(rank_a: IntArray, rank_b: IntArray) -> FloatArray:
    """Inputs of the relevance model from ranks counted from 0: 1 / rank and -log rank, for each ranker and for the better.

    >>> rank_inputs(np.array([0]), np.array([3])).round(2)
    array([[ 1.  ,  0.25, -0.  , -1.39,  1.  , -0.  ]])
    """
    ranks = np.stack([rank_a, rank_b]) + 1.0
    best = ranks.min(0)
    return np.column_stack([*(1 / ranks), *(-np.log(ranks)), 1 / best, -np.log(best)])


def exposure_of(table: DocumentArray, theta: FloatArray, n_documents: int) -> FloatArray:
    """Examination probability of every document when each row of the table is shown."""
    shown = table != NO_DOCUMENT
    return weighted_counts(table[shown], np.broadcast_to(theta, table.shape)[shown], n_documents)


def expected_clicks(table: DocumentArray, user: Users) -> FloatArray:
    """P(click) at each rank of each ranking under a user, exactly."""
    check_user(user, table.shape[1], int(table.max(initial=NO_DOCUMENT)) + 1)
    if isinstance(user, Crowd):
        return np.asarray(sum(share * expected_clicks(table, one) for share, one in zip(user.shares, user.users)))
    if isinstance(user, Comparing):
        return user.click_chances(table)
    return np.asarray(click_probabilities(table, UserArrays.of(user)))


class UserArrays(NamedTuple):
    """A user in the form that compiled loops take; ``reads_on`` says that the last two are 1 at every rank."""

    zeta: FloatArray
    slope: FloatArray
    intercept: FloatArray
    stay_click: FloatArray
    stay_skip: FloatArray
    reads_on: bool

    @classmethod
    def of(cls, user: User) -> UserArrays:
        arrays = user.zeta, user.slope, user.intercept, user.stay_after_click, user.stay_after_skip
        return cls(*arrays, user.reads_on)


def check_user(user: Users, k: int, n_documents: int) -> None:
    if user.k < k:
        raise ValueError(f"the user knows {user.k} ranks, must know all k = {k}")
    if user.n_documents < n_documents:
        raise ValueError(f"the user has zeta for {user.n_documents} documents, must have it for all {n_documents}")
