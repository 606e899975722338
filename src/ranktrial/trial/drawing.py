"""Drawing of rankings: the same one again on a retry, A's list whenever something goes wrong.

A draw depends on nothing but its key: ``rank`` queues the impression and returns, and waits for no commit and no lock that a
writer holds. Whoever wants it on the disk first takes the ``steps``, in a thread (``wait_in_thread``) or on an event loop
(``service.asynchronous.wait_on_loop``).
"""

from __future__ import annotations

import contextlib
import operator
import threading
import time
import uuid
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeVar

from ranktrial import tokens
from ranktrial.config import TrialConfig
from ranktrial.covariates import packed
from ranktrial.ids import BadId, text_id, text_ids
from ranktrial.log.designs import CorruptDesign, Design
from ranktrial.log.known import Known
from ranktrial.segments import OTHER, Traffic
from ranktrial.store.base import Bias, Impression, Marked, Store, Stored, StoreError, Void
from ranktrial.store.tallies import COVARIATES, LATER_PAGES, OUTSIDE_SHARE, SEGMENT, SHOWN_AGAIN, SLOW
from ranktrial.trial.designing import is_warm, make_design, page_of

T = TypeVar("T")
Ids = Iterable[Any]  # text or whole numbers: lists, tuples, arrays of NumPy, series of pandas
DONE = Stored.already()
BEHIND = 60.0  # seconds for which a clock may be behind the times that were given before one goes by it again
LATER_VIEWS = "views after the first"  # a tally
LATEST_SEARCHES = 100_000  # that head and tail are told by when a trial is opened: as many rows of the store, or fewer
NOT_IN_SHARE = "not in the share, A is shown"


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


Steps = Generator[Stored, None, Shown]


class Voided(Exception):  # noqa: N818 (reads as what it says)
    """Error for an impression that was shown as A's list before."""


class Search(NamedTuple):
    """Search that a ranking is drawn for; ``Trial.rank`` describes its parameters."""

    query: str
    a: Ids
    b: Ids
    unit: str | None = None
    offset: int = 0
    size: int | None = None
    look: bool = True
    segment: Mapping[str, str | None] | None = None
    covariates: Mapping[str, float | None] | None = None


class Draws:
    """The draws of one version of a trial: made, found again, and taken back when they are not shown.

    Args:
        store: Where impressions are kept.
        version: Id of the version, unique in the store.
        config: Its configuration.
        secret: The trial's, which draws and ids are made with.
        bias: What is believed of users, which designs are made with,
        known: and of single documents; ``believe`` sets both anew, at any time.
        shows: Ranker whose list is shown instead of a draw, None while the trial runs; may be set at any time.
        clock: Seconds since 1970.
        cache_size: Designs, and impressions, kept in memory.

    Attributes:
        nanoseconds: What the last calls of ``rank`` took.
    """

    def __init__(
        self,
        store: Store,
        version: int,
        config: TrialConfig,
        *,
        secret: bytes,
        bias: Bias,
        known: Known,
        shows: Literal["A", "B"] | None,
        clock: Callable[[], float],
        cache_size: int,
    ) -> None:
        self.secret, self.shows = secret, shows
        self._believed = bias, known
        self.nanoseconds: deque[int] = deque(maxlen=10_000)
        self._store, self._version, self.config = store, version, config
        self._method, self._segments = config.comparison, config.segmented
        self._covariates = config.covariates
        self._clock, self._cache_size = clock, cache_size
        self._outside = self._token(0, tokens.OUTSIDE)
        self._latest = 0
        self._behind_since: float | None = None  # when the clock was first seen to be behind that
        self._lock = threading.Lock()
        self._recent: OrderedDict[bytes, tuple[Impression[Design], Stored]] = OrderedDict()
        self._voided: OrderedDict[bytes, str] = OrderedDict()
        self._designs: OrderedDict[bytes, Design] = OrderedDict()
        self._later_views: OrderedDict[bytes, int] = OrderedDict()  # when an impression was last shown once more
        self._told: OrderedDict[bytes, None] = OrderedDict()

    def rank(self, asked: Search) -> Shown:
        """Draw a ranking without waiting for the disk; never raises."""
        start = time.perf_counter_ns()
        try:
            shown = self._rank(asked)
        except Exception as fault:
            told = str(fault) if isinstance(fault, BadId) else ""
            shown = self._fallback(asked.a, asked.offset, asked.size, reason_of(fault), told)
        took = time.perf_counter_ns() - start
        self.nanoseconds.append(took)
        if took > 5_000_000:
            self.tally(SLOW)
        return shown

    def steps(self, asked: Search) -> Steps:
        """The steps of a draw that waits for the disk: yields what to wait for, returns what to show.

        Whoever takes them waits until what is yielded is on the disk, however one waits there, and throws in what went wrong.
        """
        shown = self.rank(asked)
        if shown.fallback is not None:
            return shown
        try:
            yield shown.stored
        except Exception as fault:
            return self.fall_back(shown, asked.a, asked.offset, asked.size, reason_of(fault))
        if not shown.stored.again:
            return shown
        again = yield from self.steps(asked._replace(look=True))
        if again.fallback is not None:
            self.take_back(shown, again.fallback)
        return again

    def _rank(self, asked: Search) -> Shown:
        query, a, b, unit, offset, size, look, segment, covariates = asked
        if self.shows is not None:
            chosen = a if self.shows == "A" else text_ids("B", b)
            return self._fallback(chosen, offset, size, f"the trial is stopped, {self.shows} is shown")
        unit = None if unit is None else text_id("unit", unit)
        who, share = unit or uuid.uuid4().hex, self.config.share
        if share < 1 and tokens.place_of(self.secret, who) >= share:
            self.tally(OUTSIDE_SHARE, soon=False)
            return Shown(_page_of_one(a, offset, size), self._outside, NOT_IN_SHARE, DONE)
        if not is_warm():
            return self._fallback(a, offset, size, "not compiled yet")
        if not isinstance(query, str):
            raise BadId(f"query is {query!r}, must be text")
        query = text_id("query", query)
        offset, size = _count("offset", offset), None if size is None else _count("size", size)
        ranked_a, ranked_b = text_ids("A", a), text_ids("B", b)
        if not ranked_a and not ranked_b:
            return Shown([], self._token(0, tokens.FALLBACK), None, DONE)
        k = self.config.k
        lists = tokens.lists_digest(ranked_a[:k], ranked_b[:k])
        key = tokens.impression_key(self.secret, self._version, who, query, lists)
        # Without a unit it cannot have been there before.
        recorded = self.recorded(key, look and bool(unit))
        impression, stored = recorded or self._draw(
            key, query, ranked_a, ranked_b, who, look or not unit, segment, covariates
        )
        page = page_of(impression.design.top(impression.place), ranked_a, ranked_b, k, offset, size)
        if page and offset + len(page) > k:
            self.tally(LATER_PAGES, soon=False)
        if recorded is not None:
            self.tally(SHOWN_AGAIN, soon=False)
        later = recorded is not None and self._is_later_view(impression, offset)
        second = tokens.LATER_VIEW if later else impression.time // 1_000_000
        return Shown(page, self._token(second, key), None, stored, impression)

    def _is_later_view(self, impression: Impression[Design], offset: int) -> bool:
        """True if an impression is shown once more, and not on a retry.

        Of several views a document is clicked more often than position and relevance say, so only clicks on the first count.
        Pages after the first belong to the view that this process has shown last.
        """
        with self._lock:
            last = self._later_views.get(impression.key)
        if offset:
            return last is not None
        now, window = self._now(), self.config.view_window * 1e6
        if now - impression.time <= window:
            return False
        if last is None or now - last > window:
            self._keep(self._later_views, impression.key, now)
            self.tally(LATER_VIEWS)
        return True

    def recorded(self, key: bytes, look: bool = True) -> tuple[Impression[Design], Stored] | None:
        """The impression as it was shown before, in this process or, if one may look, in any other.

        Raises Voided when it was taken back.
        """
        with self._lock:
            known, void = self._recent.get(key), self._voided.get(key)
        if void is not None:
            raise Voided(void)
        if known is not None and not known[1].again:
            impression, stored = known
            if stored.failed:
                return self._remember(impression, self._store.put(impression))
            return known
        found = self._store.impression(key) if look else None
        if found is None:
            return None
        if (reason := self._store.void(key)) is not None:
            raise Voided(reason)
        shown = Impression(key, found.version, Design.from_row(found.design), found.place, found.unit, found.time)
        return self._remember(shown, DONE)

    def remembers(self, id: str) -> bool:
        """True if a click on the impression of this id can be judged without a read from the store."""
        token = tokens.read_token(id, self.secret)
        if token is None or token.key in (tokens.FALLBACK, tokens.OUTSIDE):
            return True
        known = self._recent.get(token.key)
        return known is not None and not known[1].again

    def _draw(
        self,
        key: bytes,
        query: str,
        a: list[str],
        b: list[str],
        unit: str,
        looked: bool,
        segment: Mapping[str, str | None] | None,
        covariates: Mapping[str, float | None] | None,
    ) -> tuple[Impression[Design], Stored]:
        code, known = self._code(query, segment), self._packed(covariates)
        design = self._design(query, a, b, code)
        place = design.row(tokens.draw(self.secret, self._version, unit, query))
        number = tokens.unit_number(self.secret, unit)
        impression = Impression(key, self._version, design, place, number, self._now(), looked, code, known)
        return self._remember(impression, self._store.put(impression))

    def _code(self, query: str, given: Mapping[str, str | None] | None) -> int:
        """Code of a new search's segments; what is missing or unknown is "other", and counted."""
        if not self._segments:
            if given is not None:
                self.tally(f"{SEGMENT}what is given is not declared", soon=False)
            return 0
        part, traffic = OTHER, self.traffic
        if traffic is not None:
            with self._lock:
                part = traffic.part_of(query)
        code, problems = self._segments.code(given, part)
        for problem in problems:
            self.tally(f"{SEGMENT}{problem}", soon=False)
        return code

    def _packed(self, given: Mapping[str, float | None] | None) -> bytes:
        """Covariates of a new search as they are stored; what is wrong is missing, and counted."""
        if given is None:
            return b""
        stored, problems = packed(self._covariates, given)
        for problem in problems:
            self.tally(f"{COVARIATES}{problem}", soon=False)
        return stored

    @cached_property
    def traffic(self) -> Traffic | None:
        """Counts of queries, begun with what the store has of the version's latest searches; None if nothing asks for them."""
        if not self._segments.by_traffic:
            return None
        traffic, last = Traffic(), self._store.count(self._version, 0).last
        asked = Counter(row.design for row in self._store.impressions(self._version, max(last - LATEST_SEARCHES, 0)))
        traffic.add((design.query, asked[design.id]) for design in self._store.designs(list(asked)))
        return traffic

    @property
    def bias(self) -> Bias:
        """Current beliefs about users, as stored."""
        return self._believed[0]

    def believe(self, bias: Bias, known: Known) -> None:
        """Make designs with this from now on."""
        self._believed = bias, known

    def _design(self, query: str, a: list[str], b: list[str], code: int = 0) -> Design:
        bias, known = self._believed
        beliefs, made_from = bias.beliefs, (bias.id, query, a, b)
        if beliefs.attribute:
            value = self._segments.level(beliefs.attribute, code)
            beliefs, made_from = beliefs.of_segment(value), (*made_from, value)  # type: ignore[assignment]
        key = blake2b(repr(made_from).encode(), digest_size=16).digest()
        with self._lock:
            design = self._designs.get(key)
        if design is None:
            design = make_design(query, a, b, self._method, beliefs, bias=bias.id, known=known)
            self._keep(self._designs, key, design)
        return design

    def _remember(self, impression: Impression[Design], stored: Stored) -> tuple[Impression[Design], Stored]:
        self._keep(self._recent, impression.key, (impression, stored))
        return impression, stored

    def forget(self) -> None:
        """Forget what was shown, as after a restart: some of it may have been erased."""
        with self._lock:
            for known in (self._recent, self._designs, self._later_views, self._told):
                known.clear()

    def first_time(self, what: bytes) -> bool:
        """True if this was not seen before, as far as this process remembers; repeated events must not be counted again."""
        with self._lock:
            known = what in self._told
        if not known:
            self._keep(self._told, what, None)
        return not known

    def _keep(self, where: OrderedDict[bytes, T], key: bytes, value: T) -> None:
        with self._lock:
            where[key] = value
            if len(where) > self._cache_size:
                where.popitem(last=False)

    def _now(self) -> int:
        """Microseconds that do not go back with the clock, unless it stays there: then it had been ahead."""
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
            self.tally("clock went backwards")
        return now

    def _token(self, second: int, key: bytes) -> str:
        return tokens.Token(self._version, second, key).sign(self.secret)

    def fall_back(self, shown: Shown, a: Ids, offset: int, size: int | None, reason: str) -> Shown:
        """Show A's list instead of the drawn ranking, which leaves the log."""
        self.take_back(shown, reason)
        return self._fallback(a, offset, size, reason)

    def take_back(self, shown: Shown, reason: str) -> None:
        """Remove a drawn ranking that is not shown from the log."""
        drawn = shown._impression
        if drawn is None:
            return
        with self._lock:
            self._recent.pop(drawn.key, None)
        if not shown.stored.cancel() and not shown.stored.failed:
            self._keep(self._voided, drawn.key, reason)  # until the store knows
            try:
                void = self._store.put(Void(drawn.key, self._version, reason, drawn.time))
                void.add_done_callback(lambda done: None if done.failed else self._voided.pop(drawn.key, None))
            except Exception:
                self.tally("not taken back")

    def _fallback(self, a: Ids, offset: int, size: int | None, reason: str, detail: str = "") -> Shown:
        """A's list; must not fail, whatever is wrong. Fallbacks are counted by their reason, without the detail."""
        self.tally(f"fallback: {reason}")
        told = f"{reason}: {detail}" if detail else reason
        return Shown(_page_of_one(a, offset, size), self._token(0, tokens.FALLBACK), told, DONE)

    def mark(self, row: Marked) -> None:
        """Put down a mark of an impression; never raises: no page waits for it."""
        with contextlib.suppress(Exception):
            self._store.put(row)

    def tally(self, name: str, version: int | None = None, *, soon: bool = True) -> None:
        """Count something that is no row, for this version unless another is given; never raises."""
        try:
            self._store.tally(self._version if version is None else version, name, soon=soon)
        except Exception:
            return  # counting what went wrong must not be what breaks the page


def _page_of_one(ranked: Ids, offset: int, size: int | None) -> list[str]:
    """Page of one ranker's list; must not fail, whatever is wrong."""
    try:
        ranking = [] if isinstance(ranked, str | bytes) else [d if type(d) is str else str(d) for d in ranked]
        begin = offset if isinstance(offset, int) and offset > 0 else 0
        end = begin + size if isinstance(size, int) and size >= 0 else None
        return list(dict.fromkeys(ranking))[begin:end]
    except Exception:
        return []


def wait_in_thread(steps: Steps, timeout: float) -> Shown:
    """Take the steps of a draw, waiting in this thread for at most so many seconds at each."""
    try:
        stored = next(steps)
        while True:
            try:
                stored.result(timeout)
            except Exception as fault:
                stored = steps.throw(fault)
            else:
                stored = next(steps)
    except StopIteration as end:
        shown: Shown = end.value
        return shown


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
