"""Rows of a store: those that are put in, each kept once, those that are read, in order, and what goes wrong with them."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from ranktrial.methods import Beliefs
from ranktrial.store.marks import Mark, mark

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

    @property
    def again(self) -> int:
        """The mark of its impression where it was there before."""
        return mark(Mark.AGAIN, self.public)


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

    @property
    def limit(self) -> int | None:
        """The number of events of its impression up to which it is kept."""
        return MOST_PUBLIC if self.public else None


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
