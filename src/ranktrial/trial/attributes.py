"""Declared attributes and covariates of searches, as they are stored; nothing is refused, what is wrong is counted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property

from ranktrial.config import TrialConfig
from ranktrial.covariates import packed
from ranktrial.segments import OTHER, Traffic
from ranktrial.store.base import ImpressionRow
from ranktrial.store.protocols import Store
from ranktrial.store.tallies import COVARIATES, SEGMENT

LATEST_SEARCHES = 100_000  # that head and tail are told by when a trial is opened: as many rows of the store, or fewer


class Attributes:
    """Attributes and covariates of a version's searches, in the form in which they are stored.

    Args:
        store: Where searches are kept.
        version: Id of the version.
        config: Its configuration.
        count: Counts what is wrong.
    """

    def __init__(self, store: Store, version: int, config: TrialConfig, count: Callable[..., None]) -> None:
        self._store, self._version, self._count = store, version, count
        self._segments, self._covariates = config.segmented, config.covariates
        self._lock = threading.Lock()

    @cached_property
    def traffic(self) -> Traffic | None:
        """Counts of queries, begun with what the store has of the version's latest searches; None if nothing asks for them."""
        if not self._segments.by_traffic:
            return None
        traffic, last = Traffic(), self._store.count(self._version, 0).last
        asked = Counter(
            row.design for row in self._store.rows(ImpressionRow, self._version, max(last - LATEST_SEARCHES, 0))
        )
        traffic.add((design.query, asked[design.id]) for design in self._store.designs(list(asked)))
        return traffic

    def code(self, query: str, given: Mapping[str, str | None] | None) -> int:
        """Code of a new search's segments; what is missing or unknown is "other"."""
        if not self._segments:
            if given is not None:
                self._count(f"{SEGMENT}what is given is not declared", soon=False)
            return 0
        part, traffic = OTHER, self.traffic
        if traffic is not None:
            with self._lock:
                part = traffic.part_of(query)
        code, problems = self._segments.code(given, part)
        for problem in problems:
            self._count(f"{SEGMENT}{problem}", soon=False)
        return code

    def covariates(self, given: Mapping[str, float | None]) -> bytes:
        """Covariates of a new search; what is wrong is missing."""
        stored, problems = packed(self._covariates, given)
        for problem in problems:
            self._count(f"{COVARIATES}{problem}", soon=False)
        return stored
