"""What was shown and clicked? A log of impressions, and whether it fits the pair and the policies said to have shown it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import NO_DOCUMENT, BoolArray, DocumentArray, FloatArray, IntArray, weighted_counts
from ranktrial.inference.cross_fitting import contributions, groups_of
from ranktrial.rankings import LoggingPolicy, Pair, PlackettLuce

GROUPS = 20  # of units, for jackknives
PLAIN = 2  # the last two rankings of every design are A's own and B's own


@dataclass(frozen=True, eq=False)
class Log:
    """One version's impressions, in order of time, and the designs that showed them.

    Designs are flattened: candidates of design j are *slots* ``slot_offsets[j]:slot_offsets[j + 1]``, its rankings rows
    ``row_offsets[j]:row_offsets[j + 1]``.

    Attributes:
        queries: Text of each query.
        query: Query of each design.
        slot_offsets: See above.
        document: Number of each slot's (query, document), the same in all designs.
        document_query: Query of each (query, document).
        rank_a: Rank of each slot in A's list, k if A does not show it; rank_b in B's.
        row_offsets: See above.
        rankings: Slot at each rank of each row, -1 where nothing stands.
        weights: Probability of each row within its design.
        design: Of each impression.
        row: That was shown.
        unit: Number of its unit.
        time: In microseconds.
        clicks: Which ranks of it were clicked, ``(impressions, k)``.
        left_out: What is in the store but not in these arrays, and how often.
        position: Last rows of the store that were read.
    """

    k: int
    queries: tuple[str, ...]
    query: IntArray
    slot_offsets: IntArray
    document: IntArray
    document_query: IntArray
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
    left_out: dict[str, int]
    position: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.design)

    @property
    def n_designs(self) -> int:
        return len(self.query)

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
        """The rankings that were shown at least once, and which of them each impression showed."""
        rows, display = np.unique(self.row, return_inverse=True)
        return self.rankings[rows], display

    @cached_property
    def design_of_slot(self) -> IntArray:
        return np.repeat(np.arange(self.n_designs), np.diff(self.slot_offsets))

    @cached_property
    def past(self) -> tuple[IntArray, IntArray]:
        """The stretch of the log before which each impression's guess must be made, and the one that it is counted in."""
        before = groups_of(len(self), "past", folds=2, refits=None, units=self.unit)
        return before, contributions(before, "past", refits=None)

    @cached_property
    def drawn(self) -> IntArray:
        """Impressions that are draws of their own: a unit that asks the same again, with other lists, has the same luck."""
        query = self.query[self.design]
        order = np.lexsort((self.unit, query))
        again = (np.diff(self.unit[order]) == 0) & (np.diff(query[order]) == 0)
        return np.sort(order[np.append(True, ~again)[: len(order)]])

    @cached_property
    def placement(self) -> FloatArray:
        """P(slot at rank) under its design, exactly: ``(slots, k)``."""
        filled = self.rankings >= 0
        cells = (self.rankings * self.k + np.arange(self.k))[filled]
        weights = np.broadcast_to(self.weights[:, None], filled.shape)[filled]
        return weighted_counts(cells, weights, self.n_slots * self.k).reshape(self.n_slots, self.k)

    @cached_property
    def arm(self) -> IntArray:
        """Which plain list each impression was drawn as: 1 is A's own, -1 B's own, 0 neither."""
        from_end = self.row_offsets[self.design + 1] - self.row
        return np.where(from_end > PLAIN, 0, np.where(from_end == 2, 1, -1))

    @cached_property
    def group(self) -> IntArray:
        """The part of the log that each unit belongs to, for jackknives and cross-fitting."""
        return np.asarray(self.unit.view(np.uint64) % np.uint64(GROUPS), np.int64)


@dataclass(frozen=True, eq=False)
class ClickLog:
    """Impressions in the order they came.

    Attributes:
        rankings: Documents shown, ``(impressions, k)``, NO_DOCUMENT past the end of a short page.
        clicks: Which of them were clicked.
        versions: Which policy showed each impression, counted from 0.
    """

    rankings: DocumentArray
    clicks: BoolArray
    versions: IntArray

    @classmethod
    def of(cls, rankings: ArrayLike, clicks: ArrayLike, versions: ArrayLike | None = None) -> ClickLog:
        """Checked: shapes agree, nothing is clicked where nothing is shown."""
        given = np.asarray(rankings)
        if given.size and not np.issubdtype(given.dtype, np.integer):
            raise ValueError(f"rankings hold {given.dtype}, must hold document ids (whole numbers)")
        table, flags = given.astype(np.int32), np.asarray(clicks, bool)
        if table.ndim != 2 or table.shape != flags.shape:
            raise ValueError(f"rankings are {table.shape}, clicks {flags.shape}: must be the same (impressions, k)")
        hollow = np.argwhere(flags & (table == NO_DOCUMENT))
        if len(hollow):
            raise ValueError(f"impression {hollow[0][0]}: a click at rank {hollow[0][1] + 1}, where nothing was shown")
        strange = np.argwhere(table < NO_DOCUMENT)
        if len(strange):
            raise ValueError(f"impression {strange[0][0]}: document {table[tuple(strange[0])]}, must be at least -1")
        ordered = np.sort(table, axis=1)
        twice = np.argwhere((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NO_DOCUMENT))
        if len(twice):
            raise ValueError(f"impression {twice[0][0]}: document {ordered[twice[0][0], twice[0][1]]} is shown twice")
        which = np.zeros(len(table), np.int64) if versions is None else np.asarray(versions, np.int64)
        if which.shape != (len(table),):
            raise ValueError(f"{len(which)} versions for {len(table)} impressions, must be one each")
        return cls(table, flags, which)

    def __len__(self) -> int:
        return len(self.rankings)


def checked_queries(log: ClickLog, pair: Pair, policies: Sequence[LoggingPolicy]) -> IntArray:
    """The query of each impression; refuses logs that do not fit the pair or the policies."""
    if len(log) == 0:
        raise ValueError("the log is empty")
    if log.rankings.shape[1] != pair.k:
        raise ValueError(f"the log shows {log.rankings.shape[1]} ranks, the pair k = {pair.k}")
    if log.versions.min() < 0 or log.versions.max() >= len(policies):
        raise ValueError(
            f"the log has versions {log.versions.min()} to {log.versions.max()}, but {len(policies)} policies"
        )
    if log.rankings.max() >= pair.n_documents:
        raise ValueError(f"the log shows document {log.rankings.max()}, the pair has {pair.n_documents}")
    for version, policy in enumerate(policies):
        if (policy.n_documents, policy.k) != (pair.n_documents, pair.k):
            raise ValueError(
                f"policy {version} shows {policy.k} of {policy.n_documents} documents, the pair {pair.k} of {pair.n_documents}"
            )
        if isinstance(policy, PlackettLuce) and not np.array_equal(policy.offsets, pair.offsets):
            raise ValueError(f"policy {version} divides the documents among queries otherwise than the pair")
    return _queries_of(log, pair)


def _queries_of(log: ClickLog, pair: Pair) -> IntArray:
    """The query of each impression, from its documents, which must all belong to it."""
    first = log.rankings[:, 0]
    if np.any(first == NO_DOCUMENT):
        raise ValueError(f"impression {int(np.argmax(first == NO_DOCUMENT))} shows nothing")
    queries = np.searchsorted(pair.offsets, first, side="right") - 1
    inside = (log.rankings >= pair.offsets[queries][:, None]) & (log.rankings < pair.offsets[queries + 1][:, None])
    foreign = np.argwhere(~inside & (log.rankings != NO_DOCUMENT))
    if len(foreign):
        at, rank = foreign[0]
        raise ValueError(
            f"impression {at} of query {queries[at]} shows document {log.rankings[at, rank]} of another query"
        )
    return np.asarray(queries, np.int64)
