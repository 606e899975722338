"""Answers to searches: the drawn ranking, the same one again on a retry, A's list whenever something goes wrong.

A draw is queued for the store and returned: nobody waits for a commit or for a lock that a writer holds, unless he wants to
have it on the disk before he shows it (``on_disk``).
"""

from __future__ import annotations

import asyncio
import operator
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain, islice, zip_longest
from typing import Any, NamedTuple, TypeVar

from ranktrial import spans, tokens
from ranktrial.ids import BadId, text_id, text_ids
from ranktrial.log.designs import CorruptDesign, Design
from ranktrial.log.known import Known
from ranktrial.methods import Beliefs, LiveMethod
from ranktrial.store.base import Impression, StoreError, Void
from ranktrial.store.protocols import Intake, Store
from ranktrial.store.stored import DONE, Stored
from ranktrial.store.tallies import LATER_PAGES, OUTSIDE_SHARE, SHOWN_AGAIN, SLOW
from ranktrial.trial import drawing
from ranktrial.trial.attributes import Attributes
from ranktrial.trial.drawing import Search, draw, make_design
from ranktrial.trial.state import TrialState

Ids = Iterable[Any]  # text or whole numbers: lists, tuples, arrays of NumPy, series of pandas
NOT_IN_SHARE = "not in the share, A is shown"
ENDED = "\0 the end of a list"
LONG = 5_000_000  # nanoseconds
LATER_VIEWS = "views after the first"  # a counter
BEHIND = 60.0  # seconds for which a clock may be behind the times that were given before one goes by it again
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shown:
    """Ranking to show for one search, and the id that its clicks are sent with.

    Attributes:
        ranking: Document ids, from the top (of the page asked for).
        id: Id of the impression, to be sent back with clicks.
        fallback: None for a drawn ranking; otherwise the reason why this is the list of one ranker: the chosen one's
            after the trial was stopped, A's in any other case. "not in the share, A is shown" is no fault: this unit takes no
            part in the trial.
        stored: Future that is done when the impression is on the disk, and fails when it could not be stored.
    """

    ranking: list[str]
    id: str
    fallback: str | None
    stored: Stored = field(repr=False)
    _impression: Impression[Design] | None = field(repr=False, default=None)


class Asked(NamedTuple):
    """Search that a ranking is asked for; ``Trial.rank`` describes its parameters."""

    query: str
    a: Ids
    b: Ids
    unit: str | None = None
    offset: int = 0
    size: int | None = None
    look: bool = True
    segment: Mapping[str, str | None] | None = None
    covariates: Mapping[str, float | None] | None = None


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
    """The impressions of one version, as far as this process remembers them, and else as the store has them; and counters of
    what is no row.

    Args:
        store: Where they are kept.
        version: Id of the version.
        size: Impressions that are remembered.
    """

    def __init__(self, store: Intake, version: int, size: int) -> None:
        self._store, self._version = store, version
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
        if void is not None:
            why, storing = void
            if storing is None or storing.failed or not storing.done():  # the store does not know yet
                raise Voided(why)
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
            self.count("not taken back")

    def forget(self) -> None:
        """Forget what was shown, as after a restart: some of it may have been erased."""
        self._recent.clear()

    def count(self, name: str, version: int | None = None, *, soon: bool = True) -> None:
        """Count something, for another version if one is given; never raises: counting a fault must not break the page."""
        with suppress(Exception):
            self._store.tally(self._version if version is None else version, name, soon=soon)


class SteadyClock:
    """Microseconds that do not go back with the clock, unless it stays there: then it had been ahead.

    Args:
        clock: Seconds since 1970.
        count: Counts the times when it went back.
    """

    def __init__(self, clock: Callable[[], float], count: Callable[[str], None]) -> None:
        self._clock, self._count = clock, count
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
            self._count("clock went backwards")
        return now


class Showing:
    """The answers of one version of a trial.

    Args:
        store: Where impressions are kept.
        state: The trial's configuration, beliefs and end; whoever looks at the store renews it.
        clock: Seconds since 1970.
        cache_size: Designs, and impressions, kept in memory.

    Attributes:
        impressions: Those that are shown.
        attributes: What searches are declared to have.
        nanoseconds: What the last searches took.
    """

    def __init__(self, store: Store, state: TrialState, clock: Callable[[], float], cache_size: int) -> None:
        self._state, version = state, state.version.id
        self.impressions = TrialImpressions(store, version, cache_size)
        self.attributes = Attributes(store, version, state.config, self.impressions.count)
        self.nanoseconds: deque[int] = deque(maxlen=10_000)
        self._has_attributes = bool(state.config.segments)
        self._later_views = Latest[int](cache_size)  # when an impression was last shown once more
        self._clock = SteadyClock(clock, self.impressions.count)
        self._designs = Latest[Design](cache_size)
        self._id_outside = tokens.Token(version, 0, tokens.OUTSIDE).sign(state.secret)
        self._id_of_fallbacks = tokens.Token(version, 0, tokens.FALLBACK).sign(state.secret)

    def show(self, asked: Asked) -> Shown:
        """Draw a ranking without waiting for the disk; never raises."""
        start = time.perf_counter_ns()
        try:
            with spans.note("draw"):
                shown = self._show(asked)
        except Exception as fault:
            shown = self._fallback(asked, reason_of(fault), fault)
        took = time.perf_counter_ns() - start
        self.nanoseconds.append(took)
        if took > LONG:
            self.impressions.count(SLOW)
        return shown

    async def show_on_loop(self, asked: Asked, timeout: float) -> Shown:
        """Draw a ranking, and leave the event loop to others until it is on the disk: A's list where that takes too long.

        One need not ``look``: nothing is shown before it is on the disk, and the store tells then whether it was there before.
        """
        shown = self.show(asked)
        try:
            await shown.stored.on_disk(timeout)
        except Exception:
            return self.on_disk(asked, shown, 0)
        if shown.stored.again:  # to look into the store may take a while
            return await asyncio.to_thread(self.on_disk, asked, shown, timeout)
        return shown

    def on_disk(self, asked: Asked, shown: Shown, timeout: float) -> Shown:
        """Wait in this thread until an answer is on the disk: A's list where that takes too long, or fails.

        Where the impression was there before, that one is shown.
        """
        try:
            shown.stored.result(timeout)
        except Exception as fault:
            return self.fall_back(shown, asked, reason_of(fault))
        if not shown.stored.again:
            return shown
        looked = asked._replace(look=True)
        before = self.on_disk(looked, self.show(looked), timeout)
        if before.fallback is not None:
            self.take_back(shown, before.fallback)
        return before

    def _show(self, asked: Asked) -> Shown:
        query, a, b, unit, offset, size, look, segment, covariates = asked
        config, policy, shows = self._state.config, self._state.policy, self._state.shows
        if shows is not None:
            chosen = asked if shows == "A" else asked._replace(a=text_ids("B", b))
            return self._fallback(chosen, f"the trial is stopped, {shows} is shown")
        if unit is not None and type(unit) is not str:
            unit = text_id("unit", unit)
        who = unit or uuid.uuid4().hex
        if config.share < 1 and tokens.place_of(policy.secret, who) >= config.share:
            self.impressions.count(OUTSIDE_SHARE, soon=False)
            return Shown(_page_of_a(asked), self._id_outside, NOT_IN_SHARE, DONE)
        if not drawing.warm.is_set():
            return self._fallback(asked, "not compiled yet")
        if not isinstance(query, str):
            raise BadId(f"query is {query!r}, must be text")
        if type(query) is not str:
            query = text_id("query", query)
        if type(offset) is not int or offset < 0:
            offset = _count("offset", offset)
        if size is not None:
            size = _count("size", size)
        ranked_a, ranked_b = text_ids("A", a), text_ids("B", b)
        if not ranked_a and not ranked_b:
            return Shown([], self._id_of_fallbacks, None, DONE)
        key = tokens.impression_key(
            policy.secret, policy.version, who, query, ranked_a[: config.k], ranked_b[: config.k]
        )
        # Without a unit it cannot have been there before.
        recorded = self.impressions.recorded(key, look and bool(unit))
        later = False
        if recorded is not None:
            later = self._is_later_view(recorded.impression, offset)
        else:
            code = self.attributes.code(query, segment) if self._has_attributes or segment is not None else 0
            search = Search(query, ranked_a, ranked_b, who, code)
            recorded = self._draw(key, search, look or not unit, covariates)
        impression, stored = recorded
        page = page_of(impression.design.top(impression.place), ranked_a, ranked_b, config.k, offset, size)
        if page and offset + len(page) > config.k:
            self.impressions.count(LATER_PAGES, soon=False)
        second = tokens.LATER_VIEW if later else impression.time // 1_000_000
        return Shown(page, tokens.Token(policy.version, second, key).sign(policy.secret), None, stored, impression)

    def _draw(
        self, key: bytes, search: Search, looked: bool, covariates: Mapping[str, float | None] | None
    ) -> Recorded:
        """Draw an impression that was not there before, and put it into the store."""
        policy = self._state.policy
        known = b"" if covariates is None else self.attributes.covariates(covariates)
        design, place = draw(search, policy, self._design)
        unit = tokens.unit_number(policy.secret, search.unit)
        time = self._clock.now()
        drawn = Impression(key, policy.version, design, place, unit, time, looked, search.segment, known)
        return self.impressions.put(drawn)

    def _is_later_view(self, impression: Impression[Design], offset: int) -> bool:
        """True if an impression is shown once more, and not on a retry; counts it as shown again.

        Of several views a document is clicked more often than position and relevance say, so only clicks on the first count.
        Pages after the first belong to the view that this process has shown last.
        """
        self.impressions.count(SHOWN_AGAIN, soon=False)
        last, now, window = (
            self._later_views.get(impression.key),
            self._clock.now(),
            self._state.config.view_window * 1e6,
        )
        if offset:
            return last is not None
        if now - impression.time <= window:
            return False
        if last is None or now - last > window:
            self._later_views.keep(impression.key, now)
            self.impressions.count(LATER_VIEWS)
        return True

    def _design(
        self,
        query: str,
        a: Sequence[str],
        b: Sequence[str],
        method: LiveMethod,
        beliefs: Beliefs,
        bias: int,
        known: Known,
    ) -> Design:
        """``make_design``, or the one that was made from the same before."""
        made_from = repr((bias, query, a, b)).encode() + beliefs.theta.tobytes()  # of the segment, if it has its own
        key = blake2b(made_from, digest_size=16).digest()
        design = self._designs.get(key)
        if design is None:
            design = self._designs.keep(key, make_design(query, a, b, method, beliefs, bias, known))
        return design

    def forget(self) -> None:
        """Forget what was shown, as after a restart: some of it may have been erased."""
        self.impressions.forget()
        self._designs.clear()
        self._later_views.clear()

    def fall_back(self, shown: Shown, asked: Asked, reason: str) -> Shown:
        """Show A's list instead of the drawn ranking, which leaves the log."""
        self.take_back(shown, reason)
        return self._fallback(asked, reason)

    def take_back(self, shown: Shown, reason: str) -> None:
        """Remove a drawn ranking that is not shown from the log."""
        if shown._impression is not None:
            self.impressions.take_back(shown._impression, shown.stored, reason)

    def _fallback(self, asked: Asked, reason: str, fault: Exception | None = None) -> Shown:
        """A's list; must not fail, whatever is wrong. Fallbacks are counted by their reason, without the text of a fault."""
        self.impressions.count(f"fallback: {reason}")
        told = f"{reason}: {fault}" if isinstance(fault, BadId) else reason
        return Shown(_page_of_a(asked), self._id_of_fallbacks, told, DONE)


def page_of(top: Sequence[str], a: Sequence[str], b: Sequence[str], k: int, offset: int, size: int | None) -> list[str]:
    """Part of the top k and what follows from rank k on: what is left of both lists, A's next, B's next, in turn, each once.

    Where the top is shorter than k nothing takes the place of what is missing: a page that begins there ends there.
    """
    end = None if size is None else offset + size
    page = list(top[offset:end])
    if (end is None or end > k) and (len(top) == k or offset >= k):
        order = dict.fromkeys(chain(top, chain.from_iterable(zip_longest(a, b, fillvalue=ENDED))))
        order.pop(ENDED, None)
        page += islice(order, len(top) + max(offset - k, 0), None if end is None else len(top) + end - k)
    return page


def _page_of_a(asked: Asked) -> list[str]:
    """Page of A's list; must not fail, whatever is wrong."""
    ranked, offset, size = asked.a, asked.offset, asked.size
    try:
        ranking = [] if isinstance(ranked, str | bytes) else [d if type(d) is str else str(d) for d in ranked]
        begin = offset if isinstance(offset, int) and offset > 0 else 0
        end = begin + size if isinstance(size, int) and size >= 0 else None
        return list(dict.fromkeys(ranking))[begin:end]
    except Exception:
        return []


def _count(name: str, number: Any) -> int:
    """A whole number that is not negative."""
    try:
        whole = operator.index(number)
    except TypeError:
        whole = -1
    if whole < 0 or isinstance(number, bool):
        raise BadId(f"{name} is {number!r}, must be a whole number, at least 0")
    return whole


def reason_of(fault: BaseException) -> str:
    """A fault in a few words, the same for faults of one kind."""
    match fault:
        case TimeoutError() | CancelledError():  # cancelled: a call for the same impression gave up
            return "the store did not answer in time"
        case StoreError():
            return fault.reason
        case CorruptDesign():
            return "a stored design is damaged"
        case Voided():
            return "shown as A before"
        case TypeError() | ValueError():
            return "bad input"
    return f"{type(fault).__name__}"
