"""Drawing of what to show: the same again on a retry, A's list whenever something is wrong.

A draw depends on nothing but its key: ``rank`` queues the impression and returns, and waits for no commit and no lock that a
writer holds. Whoever wants it on the disk first takes the ``steps``, in a thread (``wait_in_thread``) or on an event loop
(``service.asynchronous.wait_on_loop``).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeVar

from ranktrial.live import tokens
from ranktrial.live.designs import CorruptDesign, Design, is_warm, make_design, page_of
from ranktrial.live.known import Known
from ranktrial.live.schemas import TrialConfig
from ranktrial.live.stores.base import Bias, Impression, Store, Stored, StoreError, Void
from ranktrial.live.tallies import LATER_PAGES, SLOW

T = TypeVar("T")
Ids = Sequence[str | int]
DONE = Stored.already()
LATER_VIEWS = "views after the first"  # a tally


@dataclass(frozen=True, slots=True)
class Shown:
    """What to show for one search, and the id that its clicks are sent with.

    Attributes:
        ranking: Document ids, from the top (of the page asked for).
        id: To be sent back with clicks.
        fallback: Why this is A's list instead of a draw, or None.
        stored: Done when the impression is on the disk; fails when it could not be stored.
    """

    ranking: list[str]
    id: str
    fallback: str | None
    stored: Stored = field(repr=False)
    _impression: Impression | None = field(repr=False, default=None)


Steps = Generator[Stored, None, Shown]


class Voided(Exception):  # noqa: N818 (reads as what it says)
    """This impression was shown as A's list before."""


class Draws:
    """The draws of one version of a trial: made, found again, and taken back when they are not shown.

    Args:
        store: Where impressions are kept.
        version: Id of the version, unique in the store.
        config: Its configuration.
        secret: The trial's, which draws and ids are made with.
        bias: What is believed of users, which designs are made with,
        known: and of single documents; ``believe`` sets both anew, at any time.
        stopped: Whether A's list is shown instead of a draw; may be set at any time.
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
        stopped: bool,
        clock: Callable[[], float],
        cache_size: int,
    ) -> None:
        self.secret, self.stopped = secret, stopped
        self._believed = bias, known
        self.nanoseconds: deque[int] = deque(maxlen=10_000)
        self._store, self._version, self.config = store, version, config
        self._method = config.comparison
        self._clock, self._cache_size = clock, cache_size
        self._latest = 0
        self._lock = threading.Lock()
        self._recent: OrderedDict[bytes, tuple[Impression, Stored]] = OrderedDict()
        self._voided: OrderedDict[bytes, str] = OrderedDict()
        self._designs: OrderedDict[bytes, Design] = OrderedDict()
        self._later_views: OrderedDict[bytes, int] = OrderedDict()  # when an impression was last shown once more
        self._told: OrderedDict[bytes, None] = OrderedDict()

    def rank(self, query: str, a: Ids, b: Ids, unit: str | None, offset: int, size: int | None, look: bool) -> Shown:
        """What to show, without waiting for the disk; never raises. ``Trial.rank`` describes the parameters."""
        start = time.perf_counter_ns()
        try:
            shown = self._rank(query, a, b, unit, offset, size, look)
        except Exception as fault:
            shown = self._fallback(a, offset, size, reason_of(fault))
        took = time.perf_counter_ns() - start
        self.nanoseconds.append(took)
        if took > 5_000_000:
            self.tally(SLOW)
        return shown

    def steps(self, query: str, a: Ids, b: Ids, unit: str | None, offset: int, size: int | None, look: bool) -> Steps:
        """The steps of a draw that waits for the disk: yields what to wait for, returns what to show.

        Whoever takes them waits until what is yielded is on the disk, however one waits there, and throws in what went wrong.
        """
        shown = self.rank(query, a, b, unit, offset, size, look)
        if shown.fallback is not None:
            return shown
        try:
            yield shown.stored
        except Exception as fault:
            return self.fall_back(shown, a, offset, size, reason_of(fault))
        if not shown.stored.again:
            return shown
        again = yield from self.steps(query, a, b, unit, offset, size, look=True)
        if again.fallback is not None:
            self.take_back(shown, again.fallback)
        return again

    def _rank(self, query: str, a: Ids, b: Ids, unit: str | None, offset: int, size: int | None, look: bool) -> Shown:
        if self.stopped:
            return self._fallback(a, offset, size, "the trial is stopped")
        if not is_warm():
            return self._fallback(a, offset, size, "not compiled yet")
        if type(query) is not str or not (unit is None or type(unit) is str):
            raise TypeError(f"query {query!r} and unit {unit!r} must be text")
        if not all(type(number) is int and number >= 0 for number in (offset, 0 if size is None else size)):
            raise TypeError(f"offset {offset!r} and size {size!r} must be whole numbers, at least 0")
        ranked_a, ranked_b = _ids("a", a), _ids("b", b)
        if not ranked_a and not ranked_b:
            return Shown([], self._token(0, tokens.FALLBACK), None, DONE)
        who, k = unit or uuid.uuid4().hex, self.config.k
        lists = tokens.lists_digest(ranked_a[:k], ranked_b[:k])
        key = tokens.impression_key(self.secret, self._version, who, query, lists)
        # Without a unit it cannot have been there before.
        recorded = self.recorded(key, look and bool(unit))
        impression, stored = recorded or self._draw(key, query, ranked_a, ranked_b, who, look or not unit)
        page = page_of(impression.design.top(impression.place), ranked_a, ranked_b, k, offset, size)
        if page and offset + len(page) > k:
            self.tally(LATER_PAGES, soon=False)
        later = recorded is not None and self._is_later_view(impression, offset)
        second = tokens.LATER_VIEW if later else impression.time // 1_000_000
        return Shown(page, self._token(second, key), None, stored, impression)

    def _is_later_view(self, impression: Impression, offset: int) -> bool:
        """Whether an impression is shown once more, and not on a retry. Of several views a document is clicked more often than
        position and relevance say, so only clicks on the first count.

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

    def recorded(self, key: bytes, look: bool = True) -> tuple[Impression, Stored] | None:
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
        return self._remember(found, DONE)

    def remembers(self, id: str) -> bool:
        """Whether a click on the impression of this id can be judged without a look into the store."""
        token = tokens.read_token(id, self.secret)
        if token is None or token.key == tokens.FALLBACK:
            return True
        known = self._recent.get(token.key)
        return known is not None and not known[1].again

    def _draw(
        self, key: bytes, query: str, a: list[str], b: list[str], unit: str, looked: bool
    ) -> tuple[Impression, Stored]:
        design = self._design(query, a, b)
        place = design.row(tokens.draw(self.secret, self._version, unit, query))
        number = tokens.unit_number(self.secret, unit)
        impression = Impression(key, self._version, design, place, number, self._now(), looked)
        return self._remember(impression, self._store.put(impression))

    @property
    def bias(self) -> Bias:
        """What is believed of users now."""
        return self._believed[0]

    def believe(self, bias: Bias, known: Known) -> None:
        """Make designs with this from now on."""
        self._believed = bias, known

    def _design(self, query: str, a: list[str], b: list[str]) -> Design:
        bias, known = self._believed
        key = blake2b(repr((bias.id, query, a, b)).encode(), digest_size=16).digest()
        with self._lock:
            design = self._designs.get(key)
        if design is None:
            design = self._new_design(query, a, b, bias, known)
            self._keep(self._designs, key, design)
        return design

    def _new_design(self, query: str, a: list[str], b: list[str], bias: Bias, known: Known) -> Design:
        return make_design(query, a, b, self._method, bias.beliefs, bias=bias.id, known=known)

    def _remember(self, impression: Impression, stored: Stored) -> tuple[Impression, Stored]:
        self._keep(self._recent, impression.key, (impression, stored))
        return impression, stored

    def forget(self) -> None:
        """Forget what was shown, as after a restart: some of it may have been erased."""
        with self._lock:
            for known in (self._recent, self._designs, self._later_views, self._told):
                known.clear()

    def first_time(self, what: bytes) -> bool:
        """Whether this is new, as far as is remembered here: what is told again must not be counted again."""
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
        """Microseconds that never go back, whatever the clock does."""
        now = int(self._clock() * 1e6)
        with self._lock:
            backwards, self._latest = now < self._latest, max(now, self._latest)
            now = self._latest
        if backwards:
            self.tally("clock went backwards")
        return now

    def _token(self, second: int, key: bytes) -> str:
        return tokens.Token(self._version, second, key).sign(self.secret)

    def fall_back(self, shown: Shown, a: Ids, offset: int, size: int | None, reason: str) -> Shown:
        """A's list instead of what was drawn, which leaves the log."""
        self.take_back(shown, reason)
        return self._fallback(a, offset, size, reason)

    def take_back(self, shown: Shown, reason: str) -> None:
        """Take what was drawn out of the log: it is not shown."""
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

    def _fallback(self, a: Ids, offset: int, size: int | None, reason: str) -> Shown:
        """A's list; must not fail, whatever is wrong."""
        self.tally(f"fallback: {reason}")
        try:
            ranking = [] if isinstance(a, str | bytes) else [d if type(d) is str else str(d) for d in a]
            begin = offset if isinstance(offset, int) and offset > 0 else 0
            end = begin + size if isinstance(size, int) and size >= 0 else None
            page = list(dict.fromkeys(ranking))[begin:end]
        except Exception:
            page = []
        return Shown(page, self._token(0, tokens.FALLBACK), reason, DONE)

    def tally(self, name: str, version: int | None = None, *, soon: bool = True) -> None:
        """Count something that is no row, for this version unless another is given; never raises."""
        try:
            self._store.tally(self._version if version is None else version, name, soon=soon)
        except Exception:
            return  # counting what went wrong must not be what breaks the page


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


def _ids(name: str, ranked: Ids) -> list[str]:
    """Ids as text, each at its first place."""
    if isinstance(ranked, str | bytes):
        raise TypeError(f"{name} is {ranked!r}, must be a list of ids")
    unique = list(dict.fromkeys(ranked))
    kinds = set(map(type, unique))
    if kinds - {str, int}:
        raise TypeError(f"{name} holds {', '.join(kind.__name__ for kind in kinds)}, must hold text ids")
    ids: list[str] = unique if kinds <= {str} else list(dict.fromkeys(map(str, unique)))  # type: ignore[assignment]
    "".join(ids).encode()  # raises where text is not valid Unicode, which could not be stored
    return ids


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
