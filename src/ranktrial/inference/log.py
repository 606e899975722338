"""What was shown and clicked? A log of impressions, and whether it fits the pair and the policies said to have shown it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ranktrial.arrays import NO_DOCUMENT, BoolArray, DocumentArray, IntArray
from ranktrial.rankings import LoggingPolicy, Pair, PlackettLuce


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
