"""Impressions of a version: put into the store, found again on a retry, and taken back where they are not shown."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ranktrial.log.designs import Design
from ranktrial.store.base import Impression, Void
from ranktrial.store.protocols import Intake
from ranktrial.store.stored import DONE, Stored
from ranktrial.trial.counters import Counters

T = TypeVar("T")
LATER_VIEWS = "views after the first"  # a counter
BEHIND = 60.0  # seconds for which a clock may be behind the times that were given before one goes by it again


class Voided(Exception):  # noqa: N818 (reads as what it says)
    """Error for an impression that was shown as A's list before."""


class Recorded(NamedTuple):
    """An impression, and the future of its storing."""

    impression: Impression[Design]
    stored: Stored


class Latest(OrderedDict[bytes, T]):
    """The latest of many things, by key; usable from any thread."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size, self._lock = size, threading.Lock()

    def keep(self, key: bytes, value: T) -> T:
        """Add one, and forget the one that was added first if there are too many."""
        with self._lock:
            self[key] = value
            if len(self) > self._size:
                self.popitem(last=False)
        return value


class TrialImpressions:
    """The impressions of one version, as far as this process remembers them, and else as the store has them.

    Args:
        store: Where they are kept.
        version: Id of the version.
        counters: Counters of what goes wrong.
        size: Impressions that are remembered.
    """

    def __init__(self, store: Intake, version: int, counters: Counters, size: int) -> None:
        self._store, self._version, self._counters = store, version, counters
        self._recent = Latest[Recorded](size)
        self._voided = Latest[tuple[str, Stored | None]](size)  # why, and the storing of that

    def put(self, impression: Impression[Design]) -> Recorded:
        """Queue an impression for the store, and remember it."""
        return self._recent.keep(impression.key, Recorded(impression, self._store.put(impression)))

    def recorded(self, key: bytes, look: bool = True) -> Recorded | None:
        """The impression as it was shown before, in this process or, if one may look, in any other.

        Raises Voided when it was taken back.
        """
        void, known = self._voided.get(key), self._recent.get(key)
        if void is not None and (
            void[1] is None or void[1].failed or not void[1].done()
        ):  # the store does not know yet
            raise Voided(void[0])
        if known is not None and not known.stored.again:
            return self.put(known.impression) if known.stored.failed else known
        found = self._store.impression(key) if look else None
        if found is None:
            return None
        if (reason := self._store.void(key)) is not None:
            raise Voided(reason)
        shown = Impression(key, found.version, Design.from_row(found.design), found.place, found.unit, found.time)
        return self._recent.keep(key, Recorded(shown, DONE))

    def remembers(self, key: bytes) -> bool:
        """True if this process need not ask the store for an impression."""
        known = self._recent.get(key)
        return known is not None and not known.stored.again

    def take_back(self, impression: Impression[Design], stored: Stored, reason: str) -> None:
        """Remove an impression that is not shown from the log."""
        key = impression.key
        self._recent.pop(key, None)
        if stored.cancel() or stored.failed:
            return
        self._voided.keep(key, (reason, None))
        try:
            void = self._store.put(Void(key, self._version, reason, impression.time))
            self._voided.keep(key, (reason, void))
        except Exception:
            self._counters.count("not taken back")

    def forget(self) -> None:
        """Forget what was shown, as after a restart: some of it may have been erased."""
        self._recent.clear()


class Views:
    """Views of impressions that are shown again.

    Of several views a document is clicked more often than position and relevance say, so only clicks on the first count.

    Args:
        counters: Counters of views after the first.
        size: Impressions that are remembered.
    """

    def __init__(self, counters: Counters, size: int) -> None:
        self._counters = counters
        self._last = Latest[int](size)  # when an impression was last shown once more

    def is_later(self, impression: Impression[Design], now: int, window: float, offset: int) -> bool:
        """True if an impression is shown once more, and not on a retry, at ``now`` and after ``window`` (microseconds).

        Pages after the first belong to the view that this process has shown last.
        """
        last = self._last.get(impression.key)
        if offset:
            return last is not None
        if now - impression.time <= window:
            return False
        if last is None or now - last > window:
            self._last.keep(impression.key, now)
            self._counters.count(LATER_VIEWS)
        return True

    def forget(self) -> None:
        """Forget all views."""
        self._last.clear()


class SteadyClock:
    """Microseconds that do not go back with the clock, unless it stays there: then it had been ahead.

    Args:
        clock: Seconds since 1970.
        counters: Counters of times when it went back.
    """

    def __init__(self, clock: Callable[[], float], counters: Counters) -> None:
        self._clock, self._counters = clock, counters
        self._latest = 0
        self._behind_since: float | None = None  # when the clock was first seen to be behind that
        self._lock = threading.Lock()

    def now(self) -> int:
        """The time."""
        now = int(self._clock() * 1e6)
        with self._lock:
            backwards = now < self._latest
            if not backwards:
                self._behind_since = None
            else:
                if self._behind_since is None:
                    self._behind_since = time.monotonic()
                if time.monotonic() - self._behind_since < BEHIND:
                    now = self._latest
            self._latest = now
        if backwards:
            self._counters.count("clock went backwards")
        return now
