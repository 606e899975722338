"""The store of a trial's log: rows that are put in, each kept once, and typed rows that are read, in order.

Another store is a class with the methods of ``Store``; ``tests/store`` says what must hold for each.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from ranktrial.methods import Beliefs

log = logging.getLogger("ranktrial.trial")
ALL_TRIALS = 0  # instead of a version: what cannot be told apart
REFUSED = "clicks beyond what an impression may have"  # a tally
REFUSED_EVENTS = "events beyond what an impression may have"  # a tally
MOST_PUBLIC = 50  # events of an impression, beyond which it gets no more that came without a key


class StoreError(RuntimeError):
    """Error for a store that cannot be used; ``reason`` is a few words that are the same for errors of one kind."""

    reason = "the store cannot be used"


class StoreUnavailable(StoreError):  # noqa: N818 (reads as what it says)
    """The store takes and gives nothing now: locked, unreachable, full, damaged. It may be well again a moment later."""

    reason = "the store is not available"


class StoreFull(StoreUnavailable):
    """Error for a full disk."""

    reason = "the disk is full"


class StoreLost(StoreUnavailable):
    """Error for a store whose name now leads to something else; nothing is written any more."""

    reason = "the store was replaced or removed"


class StoreGone(StoreLost):
    """Error for a store that is missing at its name; it may come back, and is then used again."""


class StoreDamaged(StoreUnavailable):
    """Error for a damaged store, which cannot be read as it was written; nothing is written any more."""

    reason = "the store is damaged"


class Overloaded(StoreError):  # noqa: N818 (reads as what it says)
    """Error for a full queue of writes; try again later."""

    reason = "the store is overloaded"


# --- rows that are put in ---------------------------------------------------------------------------------------------------


class Storable(Protocol):
    """A design, for the store: a digest that no other design has, and the columns of ``DesignRow`` after it."""

    @property
    def digest(self) -> bytes: ...
    @property
    def parts(self) -> tuple[str, int, str, bytes, bytes, bytes, bytes, bytes]: ...


D = TypeVar("D", bound=Storable)


@dataclass(frozen=True, slots=True)
class Impression(Generic[D]):
    """An impression: which ranking (``place``) of which design was shown to which unit, when (microseconds).

    ``looked`` says that the store had none of this key when it was drawn; otherwise ``Stored.again`` tells. ``segment`` is the
    code of what the search was declared to be (``ranktrial.segments``), ``covariates`` what ``ranktrial.covariates`` packs.
    """

    key: bytes
    version: int
    design: D
    place: int
    unit: int
    time: int
    looked: bool = True
    segment: int = 0
    covariates: bytes = b""


class Click(NamedTuple):
    """A click on a document of the impression with this key; ``late`` if it came after the click window.

    With a ``limit`` it is kept only while its impression has fewer clicks than that, and else tallied as ``REFUSED``.
    ``second`` is when its impression was shown, as the impression's id says: the same for all clicks on it. ``marks`` are put
    down for the impression with it, ``public`` says that it came without a key. ``time`` is when it happened (microseconds),
    0 if nobody knows: that of the first report is kept.
    """

    key: bytes
    version: int
    document: str
    late: bool
    limit: int | None = None
    second: int = 0
    marks: tuple[int, ...] = ()
    public: bool = False
    time: int = 0


class Event(NamedTuple):
    """An event with a value, such as an order, on a document of the impression with this key.

    ``event_id`` tells events of an impression apart: one that is there already replaces nothing. ``amount`` is in millionths
    of the currency unit, 0 if there is none, negative for refunds. ``time`` is when it happened (microseconds), ``second`` when
    its impression was shown, as the impression's id says. ``public`` says that it came without a key: it is kept only while its
    impression has fewer than ``MOST_PUBLIC`` events, and else tallied as ``REFUSED_EVENTS``.
    """

    key: bytes
    version: int
    document: str
    action: str
    event_id: str
    amount: int
    time: int
    second: int
    public: bool = False


@dataclass(frozen=True, slots=True)
class Marked:
    """A mark of the impression with this key (``store.marks``); each is kept once."""

    key: bytes
    version: int
    kind: int


@dataclass(frozen=True, slots=True)
class StoredClicks:
    """Several clicks and events of one version that are stored together, or not at all."""

    version: int
    clicks: tuple[Click | Event, ...]


@dataclass(frozen=True, slots=True)
class Void:
    """Row that removes an impression from the estimate: the page did not show the logged ranking.

    Only the one of this ``time``: another of the same key was shown to somebody.
    """

    key: bytes
    version: int
    reason: str
    time: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """No row: to write what has been tallied, or to wait for what was queued before."""


@dataclass(frozen=True, slots=True)
class Probe(Nothing):
    """No row, but a commit that really writes: whether the store takes rows."""


Row = Impression[Any] | Click | Event | StoredClicks | Marked | Void | Nothing


# --- rows that are read -----------------------------------------------------------------------------------------------------


class ImpressionRow(NamedTuple):
    """An impression as it is stored: ``id`` grows with every row, ``design`` is the id of a ``DesignRow``."""

    id: int
    key: bytes
    design: int
    place: int
    unit: int
    time: int
    segment: int = 0
    covariates: bytes | None = None


class ClickRow(NamedTuple):
    """A click as it is stored: ``id`` grows with every row, ``late`` is 0 or 1, ``time`` 0 if it is not known."""

    id: int
    key: bytes
    document: str
    late: int
    time: int = 0


class EventRow(NamedTuple):
    """An event as it is stored: ``id`` grows with every row."""

    id: int
    key: bytes
    document: str
    action: str
    amount: int
    time: int


class MarkRow(NamedTuple):
    """A mark as it is stored: ``id`` grows with every row."""

    id: int
    key: bytes
    kind: int


class VoidRow(NamedTuple):
    """The key of an impression that was taken out, and why: ``id`` grows with every row."""

    id: int
    key: bytes
    reason: str


LogRow = TypeVar("LogRow", ImpressionRow, ClickRow, EventRow, VoidRow, MarkRow)


class DesignRow(NamedTuple):
    """A design as it is stored, unchecked: its digest, and what was put in with it."""

    id: int
    digest: bytes
    query: str
    bias: int
    documents: str
    a: bytes
    b: bytes
    rankings: bytes
    weights: bytes
    rest: bytes


class ShownRow(NamedTuple):
    """An impression as it is stored, with its design."""

    key: bytes
    version: int
    place: int
    unit: int
    time: int
    design: DesignRow


class ImpressionCount(NamedTuple):
    """Number of impressions, the highest id among them, and the times of the first and the last (0 if there are none)."""

    impressions: int
    last: int
    began: int = 0
    latest: int = 0


class Entry(NamedTuple):
    """Row of a trial's history: time (microseconds), action, unit, reason, author, and details."""

    time: int
    what: str
    unit: int | None = None
    reason: str = ""
    who: str = ""
    detail: str = ""


class HistoryRow(NamedTuple):
    """An ``Entry`` as it is stored: ``id`` grows with every row."""

    id: int
    time: int
    what: str
    unit: int | None
    reason: str
    who: str
    detail: str


class ErasureRow(NamedTuple):
    """Row of an erasure from a trial: numbers of erased rows, reason and author.

    It was of a unit, or of all rows earlier than a time (microseconds).
    """

    id: int
    time: int
    earlier_than: int | None
    impressions: int
    clicks: int
    designs: int
    reason: str
    who: str
    events: int = 0


class Message(NamedTuple):
    """A message of a trial for a receiver.

    Attributes:
        trial: Name of the trial.
        subject: What it is about; messages about one subject are numbered from 1.
        number: Its number among them.
        state: State of the subject that it tells.
        hook: Receiver's id.
        time: When it was written, in microseconds.
        id: By which a receiver knows it again.
        body: What is sent.
        due: When it is to be sent, in microseconds; None when it has been, or when that has been given up.
        attempts: How often that was tried in vain.
    """

    trial: str
    subject: str
    number: int
    state: str
    hook: str
    time: int
    id: str
    body: str
    due: int | None
    attempts: int = 0


class MessageRow(NamedTuple):
    """A ``Message`` as it is stored: ``row`` grows with every one."""

    row: int
    message: Message


class Erased(NamedTuple):
    """Numbers of erased rows."""

    impressions: int
    clicks: int
    events: int = 0


def rows_text(rows: Erased | ErasureRow) -> str:
    """Numbers of erased rows as text.

    >>> rows_text(Erased(1200, 7)), rows_text(Erased(3, 2, 1))
    ('1,200 searches and 7 clicks', '3 searches, 2 clicks and 1 events')
    """
    if not rows.events:
        return f"{rows.impressions:,} searches and {rows.clicks:,} clicks"
    return f"{rows.impressions:,} searches, {rows.clicks:,} clicks and {rows.events:,} events"


class TrialRow(NamedTuple):
    """A trial: its name, the secret that its ids are signed with, and the ranker whose list everybody gets since it was
    stopped, None while it runs.
    """

    name: str
    secret: bytes
    shows: Literal["A", "B"] | None

    @property
    def stopped(self) -> bool:
        return self.shows is not None


@dataclass(frozen=True)
class ConfigVersion:
    """A version of a trial's configuration; ``id`` is unique in the store, ``number`` within the trial.

    The version with the highest ``turn`` is the current one.
    """

    id: int
    number: int
    config: str
    turn: int = 1


@dataclass(frozen=True)
class Bias:
    """Beliefs about users from some number of impressions on; ``more`` holds beliefs beyond the first four, as JSON."""

    id: int
    impressions: int
    theta: tuple[float, ...]
    fitted: bool
    note: str
    relevance: float
    more: str

    @cached_property
    def beliefs(self) -> Beliefs:
        return Beliefs(np.array(self.theta), self.relevance, self.fitted, self.note, **json.loads(self.more))


# --- the answer to a row that is put in ---------------------------------------------------------------------------------------


class _Progress(IntEnum):
    WAITING, RUNNING, DONE = range(3)


class Stored:
    """A future of a row that was put in: done when it is on the disk, or could not be stored. There is one for every row, so
    it is lighter than ``concurrent.futures.Future``.

    ``again`` is set for an impression that may have been there before, perhaps another one: look before showing it.
    ``unwanted`` is set for a row that was to be taken back when it was being written: if that must be tried again, leave it.
    """

    __slots__ = ("_callbacks", "_problem", "_stage", "again", "unwanted")
    _lock = threading.Lock()  # one for all: held for a few instructions

    def __init__(self) -> None:
        self._stage = _Progress.WAITING
        self._problem: BaseException | None = None
        self.again = self.unwanted = False
        self._callbacks: tuple[Callable[[Stored], object], ...] = ()

    def done(self) -> bool:
        """True if the row is on the disk, could not be stored, or was taken back."""
        return self._stage is _Progress.DONE

    def running(self) -> bool:
        """True if the row is being written, so that it cannot be taken back."""
        return self._stage is _Progress.RUNNING

    @property
    def failed(self) -> bool:
        """True if the row could not be stored, or was taken back."""
        return self._problem is not None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait until done and return the error, None if there is none; raise TimeoutError if that takes too long."""
        if self._stage is not _Progress.DONE:
            done = threading.Event()
            self.add_done_callback(lambda _: done.set())
            if not done.wait(timeout):
                raise TimeoutError
        return self._problem

    def result(self, timeout: float | None = None) -> None:
        """Wait until done and raise the error if there is one; CancelledError if the row was taken back."""
        problem = self.exception(timeout)
        if problem is not None:
            raise problem

    def cancel(self) -> bool:
        """Take the row back; False if it is too late for that."""
        self.unwanted = not self._move(_Progress.WAITING, _Progress.DONE, CancelledError())
        if not self.unwanted:
            for call in dict.fromkeys(self._called()):
                _without_fail(call)
        return not self.unwanted

    def start(self) -> bool:
        """Note that the row is being written; False if it was taken back."""
        return self._move(_Progress.WAITING, _Progress.RUNNING, None)

    def finish(self, problem: BaseException | None = None) -> None:
        """Note that the row is on the disk, or why it could not be stored."""
        self.finish_all((self,), problem)

    @classmethod
    def finish_all(cls, rows: Iterable[Stored], problem: BaseException | None = None) -> None:
        """Note that rows are on the disk, or why they could not be stored; then call what their callbacks have returned."""
        last = dict[Any, None]()
        for row in rows:
            if row._move(_Progress.RUNNING, _Progress.DONE, problem):
                last.update(dict.fromkeys(row._called()))
        for call in last:
            _without_fail(call)

    def _move(self, old: _Progress, new: _Progress, problem: BaseException | None) -> bool:
        with self._lock:
            if self._stage is not old:
                return False
            self._problem = problem
            self._stage = new
        return True

    def _called(self) -> list[Callable[[], object]]:
        """Call all callbacks, and return the functions that they have returned."""
        answers = [_without_fail(callback, self) for callback in self._callbacks]
        return [answer for answer in answers if callable(answer)]

    def add_done_callback(self, callback: Callable[[Stored], object]) -> None:
        """Call this once when it is done, in whichever thread that happens; at once if it is done.

        If it returns a function, that is called after the callbacks of all rows that are done at the same time, and only once
        if several return the same: to wake somebody who waits for many of them.
        """
        with self._lock:
            if self._stage is not _Progress.DONE:
                self._callbacks += (callback,)
                return
        if callable(last := _without_fail(callback, self)):
            _without_fail(last)

    @classmethod
    def already(cls) -> Stored:
        """Return a future that is done from the start."""
        stored = cls()
        stored._stage = _Progress.DONE
        return stored


def _without_fail(call: Callable[..., object], *arguments: object) -> object:
    """Call a function and return its result; log what it raises, which must not reach the thread that writes."""
    try:
        return call(*arguments)
    except BaseException:
        log.exception("a callback failed")
        return None


class Store(Protocol):
    """The log of several trials, and what little else they keep.

    What reads raises StoreUnavailable where the store does not answer, whatever its driver calls that.

    Attributes:
        quick: Whether looking up an impression takes microseconds, so that an event loop may do it.
        place: Where it is, without a password.
    """

    quick: bool
    place: str

    # --- the log ---

    def put(self, row: Row) -> Stored:
        """Queue a row; the future is done when it is on the disk, or fails with StoreUnavailable. Raises Overloaded.

        Cancelling the future before the row's turn takes it back.
        """
        ...

    @property
    def waiting(self) -> int:
        """Rows that wait to be written."""
        ...

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything queued so far is on the disk."""
        ...

    def impression(self, key: bytes) -> ShownRow | None:
        """The impression of this key, if there is one."""
        ...

    def void(self, key: bytes) -> str | None:
        """Reason why an impression was made void; None if it was not."""
        ...

    def impressions(self, version: int, after: int) -> Iterable[ImpressionRow]:
        """Impressions of a version with an id above ``after``, in order of id."""
        ...

    def clicks(self, version: int, after: int) -> Iterable[ClickRow]:
        """Clicks of a version with an id above ``after``, in order of id."""
        ...

    def events(self, version: int, after: int) -> Iterable[EventRow]:
        """Events of a version with an id above ``after``, in order of id."""
        ...

    def voids(self, version: int, after: int) -> Iterable[VoidRow]:
        """Voids of a version with an id above ``after``, in order of id."""
        ...

    def marks(self, version: int, after: int) -> Iterable[MarkRow]:
        """Marks of a version's impressions with an id above ``after``, in order of id."""
        ...

    def blocks(self, kind: type[LogRow], version: int, after: int) -> Iterable[Sequence[tuple[Any, ...]]]:
        """Rows of this kind as above, some thousand at a time and as plain tuples: for whoever reads all of them."""
        ...

    def designs(self, ids: Sequence[int]) -> Iterable[DesignRow]:
        """The requested designs that exist, in any order."""
        ...

    def count(self, version: int, after: int) -> ImpressionCount:
        """Impressions of a version with an id above ``after``; the highest id is ``after`` where there are none."""
        ...

    # --- counters ---

    def tally(self, version: int, name: str, count: int = 1, *, soon: bool = True) -> None:
        """Count something that is no row; written with the next rows, kept in memory while the store is down.

        ``soon=False`` makes no commit of its own: for what comes with a row, or may wait for one.
        """
        ...

    def tallies(self, version: int) -> Counter[str]:
        """Counters of a version, written or not."""
        ...

    # --- trials ---

    def trial(self, name: str | None) -> TrialRow:
        """The trial of this name, the only one of the store if no name is given. Raises StoreError."""
        ...

    def trial_names(self) -> list[str]:
        """Names of all trials, sorted."""
        ...

    def trial_of_version(self, version: int) -> str | None:
        """The trial that a version's id belongs to."""
        ...

    def add_trial(self, name: str, secret: bytes) -> None:
        """Add a trial, unless there is one of that name."""
        ...

    def stop(
        self,
        name: str,
        shows: Literal["A", "B"] | None = None,
        entry: Entry | None = None,
        *,
        running: bool = False,
    ) -> None:
        """Mark a trial as stopped, with the ranker whose list is shown from now on; the entry goes into its history, in the
        same transaction, if that is new. Without a ranker it is A, unless the trial is stopped already. With ``running``
        nothing is done to a trial that is stopped.
        """
        ...

    def history(self, trial: str) -> list[HistoryRow]:
        """All entries of a trial's history, in the order in which they were made."""
        ...

    def add_history(
        self, trial: str, time: int, what: str, unit: int | None, reason: str, who: str = "", detail: str = ""
    ) -> None:
        """Add an entry; on the disk when this returns."""
        ...

    def erase(
        self, trial: str, time: int, reason: str, *, unit: int | None = None, before: int | None = None, who: str = ""
    ) -> Erased:
        """Delete a unit's impressions, or all from before a time (microseconds), in all versions of a trial.

        With them go their clicks and events, and designs that nothing else shows; gone from the disk when this returns. What
        there was is in ``erasures``.
        """
        ...

    def erase_trial(self, trial: str) -> Erased:
        """Delete a trial and all that is stored of it."""
        ...

    def erasures(self, trial: str) -> list[ErasureRow]:
        """Erasures from a trial, in the order of their requests. Changes whenever rows have been deleted."""
        ...

    def versions(self, trial: str) -> list[ConfigVersion]:
        """All versions of a trial, in order of their number."""
        ...

    def add_version(self, trial: str, number: int, config: str, entry: Entry | None = None) -> None:
        """Add a version, which is then the current one, and the entry with it, unless the trial has one of that number."""
        ...

    def make_current(self, trial: str, number: int, entry: Entry | None = None) -> None:
        """Make a version the current one, and add the entry, unless it is."""
        ...

    def reconfigure(self, version: ConfigVersion, trial: str, config: str, entry: Entry | None = None) -> None:
        """Put another configuration in place of a version's, and add the entry, unless somebody else has meanwhile."""
        ...

    def biases(self, version: int) -> list[Bias]:
        """Position bias of a version, the latest last."""
        ...

    def effects(self, bias: int) -> bytes:
        """The ``effects`` that came with a bias: what is known of single documents (``log.known``)."""
        ...

    def add_bias(
        self,
        version: int,
        impressions: int,
        beliefs: Beliefs,
        follows: int,
        effects: bytes = b"",
        entry: tuple[str, Entry] | None = None,
    ) -> None:
        """Add position bias, to the last bit, unless the same theta is known from the same number of impressions; with it goes
        an entry of the history of the trial of that name.

        ``follows`` is the id of the one before it, 0 for the first: where another has followed that one meanwhile, from
        another instance, nothing is added, so that all instances have the same.
        """
        ...

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Add messages, all or none; one with the trial, subject, number and hook of one that is there is left out."""
        ...

    def messages(self, trial: str, *, due: int | None = None) -> list[MessageRow]:
        """Messages of a trial in the order in which they were added: all, or those that are due at a time (microseconds)."""
        ...

    def retry_message(self, row: int, due: int | None, attempts: int) -> None:
        """Note when a message is due next, None for never, and how often it was tried in vain."""
        ...

    def lead(self, name: str, holder: str, length: int, now: int | None = None) -> bool:
        """Take or keep a lease for so long, unless somebody else has it (microseconds); True if ``holder`` has it now.

        Args:
            now: The time, for trials that have one of their own; by default that of the database where it has a clock, so that
                clocks of instances may differ.
        """
        ...

    def check(self) -> None:
        """Look for damage, however long that takes; raises StoreDamaged."""
        ...

    def close(self) -> None:
        """Write the queued rows and close all connections."""
        ...
