"""A log: what was shown, by which design, and what was clicked. The one input of every estimate, wherever it comes from.

A *design* is what decided about an impression: a query, two ranked lists, and the rankings that could be shown with their
probabilities. Its candidates are *slots*, numbered through over all designs; its rankings are *rows* of one table of slots. A
simulated run, a live trial and a file differ in who fills these arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial.arrays import BoolArray, FloatArray, IntArray, ragged, weighted_counts
from ranktrial.inference import log_sources
from ranktrial.inference.impressions import GROUPS, Block, DocumentOrder, Impressions
from ranktrial.position_bias import Counts
from ranktrial.position_bias._kernels import add_rows
from ranktrial.rankings import Mixture, Pair, PlackettLuce, draw_impressions
from ranktrial.rankings._kernels import exposures, placed, placements
from ranktrial.seeds import Seed
from ranktrial.users import User

Policy = Mixture | PlackettLuce
T = TypeVar("T")
PLAIN = 2  # where designs hold plain traffic, their last two rankings are A's own and B's own


class Members(NamedTuple):
    """Places of a document in two lists: a row for each (document, rank in A, rank in B) that occurs, by document.

    Attributes:
        of_slot: Which of them each slot is.
        document: Of each.
        place: Number of its pair of ranks, of which there are few.
        rank_a: In A's list, of each such pair; rank_b in B's.
    """

    of_slot: IntArray
    document: IntArray
    place: IntArray
    rank_a: IntArray
    rank_b: IntArray


@dataclass(frozen=True, eq=False)
class Log(Impressions):
    """Impressions in order of time, and the designs that showed them.

    Made by ``Log.of`` from arrays, ``Log.simulated`` from users, ``Log.from_records`` and ``Log.read`` from what a site has
    logged, ``Trial.log`` from the store of a live trial.

    Attributes:
        k: Ranks that count.
        queries: Name of each query.
        documents: Id of each (query, document), by query.
        document_query: Query of each.
        query: Query of each design.
        beliefs: Number of the beliefs that it was made from, increasing over time; 0 where nothing is learnt or known of it.
        slot_offsets: Candidates of design j are slots ``slot_offsets[j]:slot_offsets[j + 1]``.
        document: Number of each slot's (query, document), the same in all designs.
        rank_a: Rank from 0 of each slot in A's list, k or more if A does not show it; rank_b in B's.
        row_offsets: Rankings of design j are rows ``row_offsets[j]:row_offsets[j + 1]``.
        rankings: Slot at each rank of each row, -1 where nothing stands.
        weights: Probability of each row within its design; nan where they cannot be listed (see ``given_placement``).
        design: Of each impression.
        row: That was shown.
        unit: Number of its unit: whoever the draw belongs to.
        time: In microseconds.
        clicks: Which ranks of it were clicked, ``(impressions, k)``.
        plain: Whether the last two rows of every design are A's own list and B's own: plain A/B traffic.
        theta: Position bias, where it is known.
        given_placement: P(slot at rank), where a policy has too many rankings to list them.
        left_out: What was logged but is not in these arrays, and how often.
        strange_units: Units that clicked on what was on none of their pages.

    >>> search = {"query": "shoes", "a": ["x", "y"], "b": ["y", "z"]}
    >>> log = Log.from_records([{**search, "shown": ["x", "y"], "clicked": ["y"]}, {**search, "shown": ["y", "z"]}], k=2)
    >>> log
    Log(impressions=2, clicks=1, queries=1, designs=1, k=2)
    >>> log.documents, log.placement.tolist()  # y stood at rank 1 or at rank 2
    (['x', 'y', 'z'], [[0.5, 0.0], [0.5, 0.5], [0.0, 0.5]])
    """

    k: int
    queries: Sequence[Hashable]
    documents: Sequence[Hashable]
    document_query: IntArray
    query: IntArray
    beliefs: IntArray
    slot_offsets: IntArray
    document: IntArray
    rank_a: IntArray
    rank_b: IntArray
    row_offsets: IntArray
    rankings: IntArray
    weights: FloatArray
    design: IntArray
    row: IntArray
    unit: IntArray
    time: IntArray
    clicks: BoolArray
    plain: bool = False
    theta: FloatArray | None = None
    given_placement: FloatArray | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    strange_units: IntArray = field(default_factory=lambda: np.empty(0, np.int64))

    # --- where logs come from -----------------------------------------------------------------------------------------

    @classmethod
    def of(
        cls,
        pair: Pair,
        policies: Policy | Sequence[Policy],
        rankings: ArrayLike,
        clicks: ArrayLike,
        *,
        versions: ArrayLike | None = None,
        units: ArrayLike | None = None,
        times: ArrayLike | None = None,
    ) -> Log:
        """From arrays: impressions of a pair's queries, shown by one policy or several, one after the other.

        Args:
            pair: The two rankers; if it knows the position bias, so does the log.
            policies: What decided about impressions: a ``Mixture`` or ``PlackettLuce``, or one for each version.
            rankings: Documents shown (the pair's numbers), ``(impressions, k)``, -1 past the end of a short page.
            clicks: Which of them were clicked.
            versions: Which of the policies showed each impression, counted from 0.
            units: Whose impression each is (users, sessions; any names); by default each is its own.
            times: In microseconds; by default their order.

        >>> pair = Pair.from_lists([["x", "y"]], [["y", "x"]], k=2).knowing(theta=[1.0, 0.5])
        >>> even = Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), pair.n_documents)
        >>> Log.of(pair, even, [[0, 1], [1, 0]], [[True, False], [False, False]])
        Log(impressions=2, clicks=1, queries=1, designs=1, k=2)
        """
        table, flags = log_sources.checked_impressions(rankings, clicks)
        known = log_sources.checked_policies(policies, pair)
        n = len(table)
        if n == 0:
            raise ValueError("the log is empty")
        if table.shape[1] != pair.k:
            raise ValueError(f"the log shows {table.shape[1]} ranks, the pair k = {pair.k}")
        which = np.zeros(n, np.int64) if versions is None else np.asarray(versions, np.int64)
        if which.shape != (n,):
            raise ValueError(f"{len(which)} versions for {n} impressions, must be one each")
        if which.min() < 0 or which.max() >= len(known):
            raise ValueError(f"the log has versions {which.min()} to {which.max()}, but {len(known)} policies")
        queries = log_sources.queries_of(table, pair)
        return cls(**log_sources.of_pair(pair, known, which, queries, table, flags, units, times))

    @classmethod
    def simulated(
        cls,
        pair: Pair,
        policies: Policy | Sequence[Policy],
        user: User,
        impressions: int | Sequence[int],
        *,
        seed: Seed,
        units: ArrayLike | None = None,
    ) -> Log:
        """Users who come to a pair's queries, uniformly, and click on what the policies show, so many impressions each.

        Args:
            pair: The two rankers; if it knows the position bias, so does the log.
            policies: What decides about impressions, one policy or several, one after the other.
            user: Who clicks.
            impressions: How many of each policy.
            seed: An integer or a SeedSequence; the same seed gives the same log.
            units: Whose impression each is; by default each is its own.

        >>> from ranktrial.users import position_based
        >>> pair = Pair.from_lists([["x", "y"]], [["y", "x"]], k=2).knowing(theta=[1.0, 0.5])
        >>> even = Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), pair.n_documents)
        >>> len(Log.simulated(pair, even, position_based([0.5, 0.1], [1.0, 0.5]), 1000, seed=1))
        1000
        """
        known = log_sources.checked_policies(policies, pair)
        sizes = [impressions] if isinstance(impressions, int) else list(impressions)
        if len(sizes) != len(known):
            raise ValueError(f"{len(sizes)} numbers of impressions for {len(known)} policies, must be one each")
        drawn = draw_impressions(known, user, sizes, seed=seed)
        versions = np.repeat(np.arange(len(known)), sizes)
        arrays = log_sources.of_pair(
            pair, known, versions, drawn.queries, drawn.rankings, drawn.clicks, units, None, drawn.rows
        )
        return cls(**arrays)

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Any]], k: int) -> Log:
        """From what a site has logged, a mapping for each impression:

        * ``query``, and ``a`` and ``b``: the ids that both rankers returned for it, from the top;
        * ``shown``: the ids on the page; ``clicked``: those of them that were clicked;
        * ``rankings``: what could have been shown, as pairs (ids, probability). Without it the log is that of an A/B test:
          A's list or B's, with probability ``split`` (0.5) of A's; ``arm`` ("a" or "b") says which, where both are the same;
        * ``unit`` and ``time`` (seconds), if known.

        >>> search = {"query": "shoes", "a": ["x", "y"], "b": ["y", "z"]}
        >>> log = Log.from_records([{**search, "shown": ["x", "y"], "clicked": ["y"]}, {**search, "shown": ["y", "z"]}], k=2)
        >>> log, log.arm.tolist()
        (Log(impressions=2, clicks=1, queries=1, designs=1, k=2), [1, -1])
        """
        return cls(**log_sources.of_records(records, k))

    @classmethod
    def read(cls, file: str | Path, k: int | None = None, **options: Any) -> Log:
        """``from_records`` of a file (JSON lines, CSV or Parquet), or a folder that ``ranktrial export`` or ``import`` wrote.

        ``k`` is by default as many ranks as were shown. Options are those of ``ranktrial.logs.read_source``: other names of
        columns, the method that drew what was shown, wrong rows left out. Lists in CSV are JSON, or ids with | between them.
        """
        found: Log = import_module("ranktrial.logs").read_log(
            file, k, **options
        )  # it is above: looked up when asked for
        return found

    def take(self, impressions: BoolArray | IntArray | slice) -> Log:
        """The same log of some impressions only."""
        columns = {name: getattr(self, name)[impressions] for name in ("design", "row", "unit", "time", "clicks")}
        strange = self.strange_units[np.isin(self.strange_units, columns["unit"])]
        return replace(self, strange_units=strange, **columns)

    def first(self, impressions: int) -> Log:
        """The first impressions."""
        return self if impressions == len(self) else self.take(slice(0, impressions))

    def whole(self) -> Log:
        return self

    @cached_property
    def document_order(self) -> DocumentOrder:
        everything = np.arange(len(self.document_query))
        return DocumentOrder(everything, everything, self.document_query)

    @cached_property
    def rank_width(self) -> int:
        return int(max(self.rank_a.max(initial=0), self.rank_b.max(initial=0))) + 1

    @cached_property
    def listed(self) -> int:
        return int(np.diff(self.slot_offsets)[np.unique(self.design)].sum())

    @property
    def designs(self) -> IntArray:
        """Number of each impression's design."""
        return self.design

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All of it is one block: whoever has the designs in memory needs no other."""
        return (Block(slice(0, len(self)), lambda: self),)

    def fitted(self, first: int, what: Hashable, work: Callable[[Impressions], T]) -> T:
        """What ``work`` fits to the first impressions; the last such thing is kept, as most estimates ask for the same."""
        if (first, what) not in self.fits.now:
            self.fits.now.clear()
        return super().fitted(first, what, work)

    # --- what it says -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.design)

    def __repr__(self) -> str:
        counts = f"impressions={len(self):,}, clicks={int(self.clicks.sum()):,}, queries={len(self.queries):,}"
        return f"Log({counts}, designs={self.n_designs:,}, k={self.k})"

    @property
    def n_designs(self) -> int:
        return len(self.query)

    @property
    def most_designs(self) -> int:
        return self.n_designs

    @property
    def n_slots(self) -> int:
        return len(self.document)

    @cached_property
    def clicked(self) -> tuple[IntArray, IntArray, IntArray]:
        """Impression, rank from 0 and slot of every click."""
        impression, rank = np.nonzero(self.clicks)
        return impression, rank, self.rankings[self.row[impression], rank]

    @cached_property
    def displays(self) -> tuple[IntArray, IntArray]:
        """The rows that were shown at least once, and which of them each impression showed."""
        return np.unique(self.row, return_inverse=True)

    @cached_property
    def design_of_slot(self) -> IntArray:
        return np.repeat(np.arange(self.n_designs), np.diff(self.slot_offsets))

    @cached_property
    def asked(self) -> tuple[Sequence[Hashable], IntArray]:
        """Names of queries, and which of them each impression is of."""
        return self.queries, self.query[self.design]

    @cached_property
    def placement(self) -> FloatArray:
        """P(slot at rank) under its design, exactly: ``(slots, k)``."""
        return self.placement_of(np.arange(self.n_slots))

    def placement_of(self, slots: IntArray) -> FloatArray:
        """``placement`` of some slots only: of all of them it is the largest table of a log with many designs."""
        if self.given_placement is not None:
            return self.given_placement[slots]
        number, found = np.full(self.n_slots, -1), np.zeros((len(slots), self.k))
        number[slots] = np.arange(len(slots))
        placements(self.rankings, self.weights, number, found)
        return found

    def placement_at(self, rank: IntArray) -> FloatArray:
        """P(slot at its rank of these) under its design; 0 for ranks past the last."""
        if self.given_placement is not None:
            at_rank = self.given_placement[np.arange(self.n_slots), np.minimum(rank, self.k - 1)]
            return np.where(rank < self.k, at_rank, 0.0)
        found = np.zeros(self.n_slots)
        placed(self.rankings, self.weights, rank, found)
        return found

    def exposure(self, theta: FloatArray) -> FloatArray:
        """rho of each slot: the probability that it is examined under its design."""
        if self.given_placement is not None:
            return np.asarray(self.given_placement @ theta)
        rho = np.zeros(self.n_slots)
        exposures(self.rankings, self.weights, theta, rho)
        return rho

    def list_exposures(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """P(examined) of each slot in A's list and in B's."""
        padded = np.append(theta, 0.0)
        return padded[np.minimum(self.rank_a, self.k)], padded[np.minimum(self.rank_b, self.k)]

    @cached_property
    def arm(self) -> NDArray[np.int8]:
        """Which plain list each impression was drawn as: 1 is A's own, -1 B's own, 0 neither."""
        if not self.plain:
            return np.zeros(len(self), np.int8)
        from_end = self.row_offsets[self.design + 1] - self.row
        return np.where(from_end > PLAIN, 0, np.where(from_end == PLAIN, 1, -1)).astype(np.int8)

    @cached_property
    def plain_shares(self) -> FloatArray:
        """Probabilities of A's own list and of B's own, for each design: ``(designs, 2)``."""
        if not self.plain:
            return np.zeros((self.n_designs, 2))
        last = self.row_offsets[1:] - 1
        return np.stack([self.weights[last - 1], self.weights[last]], axis=1)

    @cached_property
    def shares(self) -> FloatArray:
        """``plain_shares`` of each impression's design."""
        return self.plain_shares[self.design]

    @cached_property
    def apart(self) -> BoolArray:
        """Whether the two lists of each impression differ."""
        return self.differ[self.design]

    def shown(self, impressions: IntArray) -> NDArray[np.int32]:
        return np.asarray(self.rankings[self.row[impressions]], np.int32)

    @cached_property
    def shows(self) -> FloatArray:
        """Results shown at each rank, over all impressions."""
        rows, display = self.displays
        return np.asarray(np.bincount(display, minlength=len(rows)) @ (self.rankings[rows] >= 0), np.float64)

    def parts(self, groups: int = GROUPS, *, clicked_only: bool = True) -> list[Counts]:
        """Counts of each group of units."""
        return self._counts(self.group(groups), groups, clicked_only)

    @cached_property
    def differ(self) -> BoolArray:
        """Whether the two lists of each design differ."""
        apart = np.minimum(self.rank_a, self.k) != np.minimum(self.rank_b, self.k)
        return np.asarray(np.bincount(self.design_of_slot[apart], minlength=self.n_designs) > 0)

    @cached_property
    def members(self) -> Members:
        """The places in both lists that documents have: what a guess of relevance can tell apart."""
        width = self.rank_width
        keys, of_slot = np.unique((self.document * width + self.rank_a) * width + self.rank_b, return_inverse=True)
        document, pair = np.divmod(keys, width * width)
        pairs = np.unique(pair)
        return Members(of_slot, document, np.asarray(np.searchsorted(pairs, pair)), *np.divmod(pairs, width))

    def counts(self, impressions: BoolArray | None = None, *, clicked_only: bool = False) -> Counts:
        """Shows and clicks per slot and rank, with the shows that the design expected; of some impressions or all.

        Position bias is fitted to these. A document is compared with itself within one design only: the same query, the same
        lists, the same beliefs. Across lists, a document stands high for those who like it. Across versions of a design,
        documents that were lucky early stand high later, and regression to the mean would look like examination (see
        docs/learning.md). ``clicked_only`` leaves out slots that the log never clicks: they tell estimators that eliminate
        relevance nothing.
        """
        inside = np.ones(len(self), bool) if impressions is None else impressions
        return self._counts(np.where(inside, 0, -1), 1, clicked_only)[0]

    def _counts(self, group: IntArray, groups: int, clicked_only: bool) -> list[Counts]:
        """Counts of the impressions of each group, which are numbered from 0; of those below 0 there are none."""
        slot, query = np.arange(self.n_slots), self.document_query[self.document]
        if clicked_only:
            ever = np.zeros(self.n_slots, bool)
            ever[self.clicked[2]] = True
            slot[~ever] = -1
        return counts_of_groups(*self.tables(slot, self.n_slots, group, groups), query, groups)

    def tables(self, candidate: IntArray, n: int, group: IntArray, groups: int) -> tuple[IntArray, FloatArray]:
        """Tables of shows, clicks and expected shows by rank, and what each row is of: group * n + candidate.

        ``candidate`` is a number of n for each slot, negative where it is not counted; ``group`` one of groups for each
        impression, or negative.
        """
        k, wanted, inside = self.k, candidate >= 0, group >= 0
        impression, rank, slot = self.clicked
        pairs, times = np.unique(self.design[inside] * groups + group[inside], return_counts=True)
        design, of_group = np.divmod(pairs, groups)  # what each group had of each design
        sizes = np.diff(self.slot_offsets)[design]
        slots, which = ragged(self.slot_offsets[design], sizes), np.repeat(np.arange(len(pairs)), sizes)
        use = wanted[slots]
        slots, which = slots[use], which[use]
        keys, row = np.unique(of_group[which] * n + candidate[slots], return_inverse=True)  # of a row of the tables
        every, place = np.unique(slots, return_inverse=True)
        tables = np.zeros((3, len(keys), k))
        add_rows(self.placement_of(every), place, times[which], row, tables[2])
        displays, shown = np.unique(self.row[inside] * groups + group[inside], return_counts=True)
        rankings, of_group = self.rankings[displays // groups], displays % groups
        standing = (rankings >= 0) & wanted[rankings]
        number, at = np.nonzero(standing)
        row = np.searchsorted(keys, of_group[number] * n + candidate[rankings[standing]])
        tables[0] = weighted_counts(row * k + at, shown[number].astype(np.float64), tables[0].size).reshape(-1, k)
        hit = inside[impression] & wanted[slot]
        row = np.searchsorted(keys, group[impression[hit]] * n + candidate[slot[hit]])
        tables[1] = np.bincount(row * k + rank[hit], minlength=tables[1].size).reshape(-1, k)
        return keys, tables


def counts_of_groups(keys: IntArray, tables: FloatArray, query: IntArray, groups: int) -> list[Counts]:
    """Counts from ``Log.tables``, given the query of each candidate."""
    n = len(query)
    ends = np.searchsorted(keys, np.arange(groups + 1) * n).tolist()
    return [
        Counts(n, keys[a:b] - g * n, tables[0, a:b], tables[1, a:b], query[keys[a:b] - g * n], tables[2, a:b])
        for g, (a, b) in enumerate(pairwise(ends))
    ]
