"""Log of rankings shown, their designs and clicks: the one input of every estimate, wherever it comes from.

A simulated run, a live trial and a file differ in who fills these arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial import frames, notebook
from ranktrial.arrays import BoolArray, FloatArray, IntArray, offsets_of, ragged
from ranktrial.log import sources as log_sources
from ranktrial.log._kernels import (
    add_placements,
    add_shows,
    by_first_use,
    count_clicks,
    first_places,
    list_clicks,
    mark_clicked,
    moved_slots,
    sort_by_number,
)
from ranktrial.log.events import LoggedEvents
from ranktrial.log.folding import Kept
from ranktrial.log.growing import Chosen
from ranktrial.log.shown_designs import Designs
from ranktrial.log.units import Cohorts, Units, first_seen
from ranktrial.position_bias import Counts
from ranktrial.rankings import Mixture, Pair, PlackettLuce, draw_impressions
from ranktrial.seeds import Seed
from ranktrial.segments import NO_SEGMENTS, Segments
from ranktrial.times import Time
from ranktrial.users import Users

Policy = Mixture | PlackettLuce
PLAIN = 2  # where designs hold A/B traffic, their last two rankings are A's own and B's own
GROUPS = 20  # of units, for jackknives
NO_CODES: IntArray = np.empty(0, np.int64)  # of a log whose searches have no attributes
NO_COVARIATES: FloatArray = np.empty((0, 0))  # of a log of whose units nothing was known before


@dataclass(frozen=True, eq=False, kw_only=True)
class Log(Designs):
    """Impressions in order of time, and the designs that showed them: arrays, whoever made them.

    Analyses go through it chunk by chunk (``folding.fold``). Its designs have attributes of their own (``Designs``).

    Made by ``Log.of`` from arrays, ``Log.simulated`` from users, ``Log.from_records`` from what a site has logged
    (``ranktrial.read_log`` from its files), ``Trial.log`` from the store of a live trial.

    Attributes:
        design: Of each impression.
        row: That was shown.
        unit: Number of its unit: whoever the draw belongs to.
        time: In microseconds.
        clicks: Which ranks of it were clicked, ``(impressions, k)``.
        theta: Position bias, where it is known.
        left_out: What was logged but is not in these arrays, and how often.
        marked: Units of impressions that have a mark (``store.marks``), by its number; once for every such impression.
        events: What happened after impressions, such as orders.
        actions: Names of their actions.
        read_at: Until when events are known, in microseconds; None if nothing more can come.
        attributes: Attributes of searches, with the values that each may have; none by default.
        segment: Code of each impression's values (``ranktrial.segments``); empty where there are no attributes.
        covariates: Numbers known of each impression's unit before the trial, ``(impressions, m)``, nan where one is missing.
        covariate_names: Name of each of them; none by default.
        kept: What was worked out of it.

    >>> search = {"query": "shoes", "a": ["x", "y"], "b": ["y", "z"]}
    >>> log = Log.from_records([{**search, "shown": ["x", "y"], "clicked": ["y"]}, {**search, "shown": ["y", "z"]}], k=2)
    >>> log
    Log(impressions=2, clicks=1, queries=1, designs=1, k=2)
    >>> log.documents, log.placement_of(np.arange(3)).tolist()  # y stood at rank 1 or at rank 2
    (['x', 'y', 'z'], [[0.5, 0.0], [0.5, 0.5], [0.0, 0.5]])
    """

    design: IntArray
    row: IntArray
    unit: IntArray
    time: IntArray
    clicks: BoolArray
    theta: FloatArray | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    marked: Mapping[int, IntArray] = field(default_factory=dict)
    events: LoggedEvents = LoggedEvents.EMPTY
    actions: tuple[str, ...] = ()
    read_at: int | None = None
    attributes: Segments = NO_SEGMENTS
    segment: IntArray = field(default_factory=lambda: NO_CODES)
    covariates: FloatArray = field(default_factory=lambda: NO_COVARIATES)
    covariate_names: tuple[str, ...] = ()
    kept: Kept = field(init=False, repr=False, default_factory=Kept)

    def __post_init__(self) -> None:
        for name in ("design", "row"):  # a log may have many millions
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.int32))

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
        """Build a log from arrays: impressions of a pair's queries, shown by one policy or several in turn.

        Args:
            pair: The two rankers; if it knows the position bias, so does the log.
            policies: Logging policy, a ``Mixture`` or ``PlackettLuce``, or a sequence with one for each version.
            rankings: Documents shown (the pair's numbers), ``(impressions, k)``, -1 past the end of a short page.
            clicks: Flags of the clicked ones, of the same shape.
            versions: Index of the policy that showed each impression, counted from 0.
            units: Unit of each impression (users, sessions; any names); by default each is its own.
            times: Time of each impression in microseconds; by default their order.

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
        user: Users,
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
    def from_records(cls, records: Iterable[Mapping[str, Any]], k: int, *, read_at: Time | None = None) -> Log:
        """Build a log from records of a site, a mapping for each impression:

        * ``query``, and ``a`` and ``b``: the ids that both rankers returned for it, from the top;
        * ``shown``: the ids on the page; ``clicked``: those of them that were clicked;
        * ``rankings``: the rankings that could have been shown, as pairs (ids, probability). Without it the log is that of an
          A/B test: A's list or B's, the former with probability ``split`` (0.5); ``arm`` ("a" or "b") says which, if equal;
        * ``unit`` and ``time`` (seconds), if known;
        * ``events`` after it: mappings with a ``document`` of the page and an ``action``, and if known ``value``, ``time``, and
          ``event_id``, by which each counts once;
        * ``segment``: its attributes and their values, of which the most frequent count;
        * ``covariates``: numbers known of its unit before the trial, by their names, such as ``{"clicks_last_month": 3}``.

        Args:
            records: The records, in any order.
            k: Ranks that count.
            read_at: Until when events are known; by default until the last time in the log, if events have times.

        >>> search = {"query": "shoes", "a": ["x", "y"], "b": ["y", "z"]}
        >>> log = Log.from_records([{**search, "shown": ["x", "y"], "clicked": ["y"]}, {**search, "shown": ["y", "z"]}], k=2)
        >>> log, log.arm.tolist()
        (Log(impressions=2, clicks=1, queries=1, designs=1, k=2), [1, -1])
        >>> order = {"document": "y", "action": "order", "value": "39.90"}
        >>> log = Log.from_records([{**search, "shown": ["x", "y"], "clicked": ["y"], "events": [order]}], k=2)
        >>> log.actions, log.events.rank.tolist(), log.events.amount.tolist()
        (('order',), [1], [39900000])
        """
        return cls(**log_sources.of_records(records, k, read_at))

    @classmethod
    def from_frame(cls, frame: Any, k: int | None = None, **options: Any) -> Log:
        """Read a log from a data frame of pandas, polars, Arrow or DuckDB; options are those of ``ranktrial.read_log``.

        >>> import pandas as pd
        >>> frame = pd.DataFrame({"term": ["shoes"], "a": [["x", "y"]], "b": [["y", "z"]], "shown": [["x", "y"]]})
        >>> Log.from_frame(frame.assign(clicked=[["y"]]), columns={"query": "term"})
        Log(impressions=1, clicks=1, queries=1, designs=1, k=2)
        """
        found: Log = frames.read_log(frame, k, **options)
        return found

    def take(self, impressions: BoolArray | IntArray | slice) -> Log:
        """Return the log of the given impressions only."""
        columns = self.columns(impressions)
        marked = {kind: units[np.isin(units, columns["unit"])] for kind, units in self.marked.items()}
        return replace(self, marked=marked, events=self.events.take(impressions, len(self)), **columns)

    def columns(self, impressions: BoolArray | IntArray | slice) -> dict[str, Any]:
        """Arrays with a row for each impression, of some."""
        names = ["design", "row", "unit", "time", "clicks"]
        names += ["segment"] * bool(self.attributes) + ["covariates"] * bool(self.covariate_names)
        return {name: getattr(self, name)[impressions] for name in names}

    def levels(self, attribute: str) -> IntArray:
        """Number of each impression's value of an attribute, in ``attributes.values``: 0 is "other"."""
        return self.attributes.levels(attribute, self.segment)

    @cached_property
    def codes(self) -> tuple[IntArray, IntArray | None]:
        """Distinct codes of segments, and which of them each impression has; None for a single code."""
        if not self.attributes:
            return np.zeros(1, np.int64), None
        codes, place = np.unique(self.segment, return_inverse=True)
        return codes, place if len(codes) > 1 else None

    def first(self, impressions: int) -> Log:
        """The first impressions."""
        return self if impressions == len(self) else self.take(slice(0, impressions))

    def last(self, impressions: int) -> Log:
        """The last impressions."""
        return self if impressions == len(self) else self.take(slice(len(self) - impressions, None))

    def compact(self) -> Log:
        """Return the log with the designs in use only, in the order of their first use; documents and queries stay."""
        order, design = first_seen(self.design)
        slot_sizes, row_sizes = np.diff(self.slot_offsets)[order], np.diff(self.row_offsets)[order]
        slot_offsets, row_offsets = offsets_of(slot_sizes), offsets_of(row_sizes)
        slots: IntArray | slice
        rows: IntArray | slice
        if len(order) and (np.diff(order) == 1).all():  # neighbours: no need to gather
            first, last = int(order[0]), int(order[-1]) + 1
            slots = slice(int(self.slot_offsets[first]), int(self.slot_offsets[last]))
            rows = slice(int(self.row_offsets[first]), int(self.row_offsets[last]))
        else:
            slots, rows = ragged(self.slot_offsets[order], slot_sizes), ragged(self.row_offsets[order], row_sizes)
        moved = np.repeat(slot_offsets[:-1] - self.slot_offsets[order], row_sizes)
        placement = self.given_placement
        return replace(
            self,
            query=self.query[order],
            beliefs=self.beliefs[order],
            slot_offsets=slot_offsets,
            document=self.document[slots],
            rank_a=self.rank_a[slots],
            rank_b=self.rank_b[slots],
            row_offsets=row_offsets,
            rankings=moved_slots(self.rankings[rows], moved),
            weights=self.weights[rows],
            design=design,
            row=self.row - self.row_offsets[self.design] + row_offsets[design],
            given_placement=None if placement is None else placement[slots],
        )

    def numbered_by_use(self) -> Log:
        """Return the log with designs, queries and documents numbered as they were first used, and no others.

        Sums then add up in the same order, and to the same digits, in whatever order a log was read.
        """
        log = self
        if not by_first_use(log.design, log.n_designs):
            log = log.compact()
        if not by_first_use(log.document, len(log.documents)) or not by_first_use(log.query, len(log.queries)):
            queries, query = first_seen(log.query)
            documents, document = first_seen(log.document)
            number = np.empty(len(log.queries), np.int64)
            number[queries] = np.arange(len(queries))
            log = replace(
                log,
                queries=Chosen(log.queries, queries),
                documents=Chosen(log.documents, documents),
                document_query=number[log.document_query[documents]],
                query=query,
                document=document,
            )
        return log

    def grouped_by_query(self) -> Log:
        """Return the log with the documents of each query side by side, as fits of relevance need them."""
        if (np.diff(self.document_query) >= 0).all():
            return self
        order = np.argsort(self.document_query, kind="stable")
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        return replace(
            self,
            documents=Chosen(self.documents, order),
            document_query=self.document_query[order],
            document=number[self.document],
        )

    # --- what it says -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.design)

    def __repr__(self) -> str:
        counts = f"impressions={len(self):,}, clicks={int(self.clicks.sum()):,}, queries={len(self.queries):,}"
        return f"Log({counts}, designs={self.n_designs:,}, k={self.k})"

    to_frame = frames.to_frame

    def _repr_html_(self) -> str:
        """Render the size and the first searches for notebooks."""
        return notebook.of_log(self)

    @cached_property
    def clicked(self) -> tuple[IntArray, IntArray, IntArray]:
        """Impression, rank from 0 and slot of every click."""
        impression, rank, slot = list_clicks(self.clicks, self.row, self.rankings, np.count_nonzero(self.clicks))
        return impression, rank, slot

    @cached_property
    def displays(self) -> tuple[IntArray, IntArray]:
        """The rows that were shown at least once, and which of them each impression showed."""
        return np.unique(self.row, return_inverse=True)

    @property
    def asked(self) -> IntArray:
        """The query of each impression, by its number."""
        return self.query[self.design]

    # --- units ------------------------------------------------------------------------------------------------------------

    @cached_property
    def units(self) -> Units:
        return Units.of(self.unit)

    @cached_property
    def cohorts(self) -> Cohorts:
        return Cohorts.of(self.units)

    @cached_property
    def clicks_each(self) -> NDArray[np.int32]:
        """Number of clicks on each impression."""
        return np.asarray(count_clicks(self.clicks))

    @cached_property
    def clicks_by_cohort(self) -> FloatArray:
        """Number of clicks on the impressions of each cohort."""
        return self.cohorts.by(self.clicks_each)

    @cached_property
    def drawn(self) -> BoolArray:
        """Flags of independent draws: the first impression of each unit and query, as later ones reuse its random number."""
        place = self.units.place
        drawn = (np.bincount(place) == 1)[place]
        back = np.flatnonzero(~drawn)
        once, _ = first_places(place[back].astype(np.int64) * max(len(self.queries), 1) + self.query[self.design[back]])
        drawn[back[once]] = True
        return np.asarray(drawn)

    def group(self, groups: int = GROUPS) -> IntArray:
        """The group of units that each impression belongs to, for jackknives."""
        return (np.asarray(self.unit, np.int64).view(np.uint64) % np.uint64(groups)).view(np.int64)

    # --- A/B traffic, counts ----------------------------------------------------------------------------------------------

    @cached_property
    def arm(self) -> NDArray[np.int8]:
        """Arm of each impression of the A/B traffic: 1 for A's own list, -1 for B's own, 0 for the other impressions."""
        if not self.plain:
            return np.zeros(len(self), np.int8)
        from_end = self.row_offsets[self.design + 1] - self.row
        return np.where(from_end > PLAIN, 0, np.where(from_end == PLAIN, 1, -1)).astype(np.int8)

    @property
    def shares(self) -> FloatArray:
        """``ab_shares`` of each impression's design."""
        return self.ab_shares[self.design]

    def parts(self, groups: int = GROUPS, *, clicked_only: bool = True) -> list[Counts]:
        """Shows and clicks per slot and rank in each group of units, with the shows that the design expected.

        Position bias is fitted to these. A document is compared with itself within one design only: the same query, the same
        lists, the same beliefs. Across lists, a document stands high for those who like it. Across versions of a design,
        documents that were lucky early stand high later, and regression to the mean would look like examination (see
        docs/research/learning.md). ``clicked_only`` leaves out slots that were never clicked, which do not matter to estimators
        that eliminate relevance.
        """
        slots_in_all, designs_in_all, group = self.n_slots, self.n_designs, self.group(groups)
        wanted = np.full(slots_in_all, not clicked_only)
        if clicked_only:
            mark_clicked(self.clicks, self.row, self.rankings, wanted)
        query, number = self.document_query[self.document], np.full(slots_in_all, -1, np.int32)
        sizes, starts = np.diff(self.slot_offsets), offsets_of(np.bincount(group, minlength=groups))
        members, counts = sort_by_number(group, starts), []
        for first, last in pairwise(starts.tolist()):
            of_group = members[first:last]
            times = np.bincount(self.design[of_group], minlength=designs_in_all)
            designs = np.flatnonzero(times)
            slots = ragged(self.slot_offsets[designs], sizes[designs])
            times = np.repeat(times[designs], sizes[designs])[wanted[slots]]
            slots = slots[wanted[slots]]
            number[slots] = np.arange(len(slots))
            shown, clicked, expected = np.zeros((3, len(slots), self.k))
            add_shows(of_group, self.row, self.rankings, self.clicks, number, shown, clicked)
            if self.given_placement is None:
                add_placements(designs, self.row_offsets, self.rankings, self.weights, number, expected)
            else:
                expected = self.given_placement[slots]
            number[slots] = -1
            counts.append(Counts(slots_in_all, slots, shown, clicked, query[slots], times[:, None] * expected))
        return counts
