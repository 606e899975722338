"""Judging of events on arrival: whether a click or an order counts, and whether a page shows the drawn ranking."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from ranktrial import tokens
from ranktrial.config import TrialConfig
from ranktrial.ids import text_id
from ranktrial.log.designs import CorruptDesign, Design
from ranktrial.metrics import checked_action, millionths
from ranktrial.schema import LONGEST_TEXT
from ranktrial.store.base import Click, Event, Impression, Marked, StoredClicks
from ranktrial.store.marks import Mark, mark
from ranktrial.store.protocols import Intake
from ranktrial.store.stored import DONE, Stored
from ranktrial.store.tallies import ERASED, OUTSIDE_SHARE_CLICKS, OUTSIDE_SHARE_EVENTS
from ranktrial.times import CLOCKS, Time, seconds
from ranktrial.trial.showing import Latest, TrialImpressions, Voided
from ranktrial.trial.state import TrialState

MOST_OTHERS = 10  # clicks of an impression beyond k that are kept though they are on nothing that stood on its page


class ClickOutcome(StrEnum):
    """Outcome of a click, or of an event with an action such as an order."""

    COUNTED = "counted"
    WAITING = "waiting"  # for its impression, which is not in the log (yet)
    LATER_PAGE = "later page"
    LATER_VIEW = "later view"
    LATE = "late"
    EARLY = "early"  # before its impression
    FALLBACK = "fallback"
    OUTSIDE = "outside the share"  # of a unit that takes no part
    VOID = "void"
    UNMEASURED = "not measured"  # its action is none that a metric of the trial counts
    NOT_SHOWN = "not shown"
    NOT_OURS = "not ours"

    @property
    def refused(self) -> bool:
        """True if it is on nothing that this trial showed."""
        return self in (ClickOutcome.NOT_SHOWN, ClickOutcome.NOT_OURS)


TALLIED = {
    ClickOutcome.NOT_SHOWN: "events on what was not shown",
    ClickOutcome.LATER_PAGE: "events off the drawn page",
    ClickOutcome.LATE: "events after their window",
}


class SeenOutcome(StrEnum):
    """Outcome of the event of a page that was seen; none changes the estimate."""

    AS_DRAWN = "as drawn"
    NOT_AS_DRAWN = "not as drawn"
    NOT_COMPARED = "not compared"  # its impression is not in the log (yet)
    FALLBACK = "fallback"
    OUTSIDE = "outside the share"  # of a unit that takes no part
    VOID = "void"
    NOT_OURS = "not ours"


class Clicked(NamedTuple):
    """Outcome of a click, or of an event with an action.

    Attributes:
        outcome: What became of it.
        stored: Done when it is on the disk.
        rank: Of its document, 1 for the first result, if it stood in the top k.
    """

    outcome: ClickOutcome
    stored: Stored
    rank: int | None = None


class Judged(NamedTuple):
    """Outcome of an event, the row to store if any, and the rank of its document, 1 for the first result."""

    outcome: ClickOutcome
    row: Click | Event | None = None
    rank: int | None = None


def check_event(action: object, value: object, event_id: object) -> int:
    """Amount of an event in millionths. Raises ValueError where action and value cannot be those of one."""
    checked_action(action)
    amount = 0 if value is None else millionths(value)
    if amount < 0 and event_id in (None, ""):
        raise ValueError(f"value is {value!r}: a refund needs an event_id, or it would be the event that it takes back")
    return amount


class ClickJudge:
    """Judge of the events of a trial.

    Args:
        store: Where events, and marks of impressions, are kept.
        state: The trial's versions, and what was erased from it.
        impressions: What was shown, and counters of events that count for nothing.
        clock: Seconds since 1970.
        size: Events that are remembered, so that they are marked once.
    """

    def __init__(
        self, store: Intake, state: TrialState, impressions: TrialImpressions, clock: Callable[[], float], size: int
    ) -> None:
        self._store, self._state, self._impressions, self._clock = store, state, impressions, clock
        self._marked = Latest[bool](size)  # what was seen or clicked, of which impression
        self._known_windows: tuple[TrialConfig, dict[str, float], float] | None = None

    def take(self, judged: Sequence[Judged]) -> list[Clicked]:
        """Put what was judged into the store, without waiting: the rows of a version are stored together, or none of them."""
        rows: dict[int, list[Click | Event]] = {}
        for _, row, _ in judged:
            if row is not None:
                rows.setdefault(row.version, []).append(row)
        stored = {version: self._store.put(StoredClicks(version, tuple(some))) for version, some in rows.items()}
        return [Clicked(outcome, DONE if row is None else stored[row.version], rank) for outcome, row, rank in judged]

    def click(
        self, id: str, document: str, time: Time | None = None, position: int | None = None, *, public: bool = False
    ) -> Judged:
        """Judge a click on a document of an impression; clicks that are not stored are counted.

        A position that is given is compared with the drawn rank, and the result becomes a mark of the impression. ``public``
        clicks are those that came without a key.
        """
        found = self._found("clicks", id, document, time)
        if isinstance(found, ClickOutcome):
            return Judged(found)
        token, name, when = found
        config = self._state.configs[token.version]
        late = when >= token.second + 1 + config.click_window
        outcome, rank = self._outcome(token.key, name, late)
        marks: tuple[int, ...] = ()
        if rank is None:
            marks = (mark(Mark.OTHER, public),) if public else ()
        elif position is not None and self._first_time(token.key + name.encode()):
            marks = (mark(Mark.AT_RANK if position == rank else Mark.ELSEWHERE, public),)
        # What stood on the page is always kept. Of the rest, which anybody can make up, no more than tells what is wrong.
        limit = None if rank is not None else config.k + MOST_OTHERS
        click = Click(token.key, token.version, name, late, limit, token.second, marks, public, int(when * 1e6))
        return Judged(outcome, click, rank)

    def event(
        self,
        id: str,
        document: str,
        action: str,
        value: Any = None,
        event_id: str | None = None,
        time: Time | None = None,
        *,
        public: bool = False,
    ) -> Judged:
        """Judge an event with an action and a value on a result of an impression; those that are not stored are counted.

        Raises ValueError for an action, a value or an id that cannot be one.
        """
        amount = check_event(action, value, event_id)
        named = "" if event_id is None else text_id("event_id", event_id)
        found = self._found("events", id, document, time)
        if isinstance(found, ClickOutcome):
            return Judged(found)
        token, name, when = found
        windows, kept = self._windows(self._state.configs[token.version])
        counts_for, after = windows.get(action), when - token.second - 1
        if after >= kept:
            self._impressions.count("events after the longest window")
            return Judged(ClickOutcome.LATE)
        outcome, rank = self._outcome(token.key, name, counts_for is not None and after >= counts_for)
        if outcome in TALLIED:
            self._impressions.count(TALLIED[outcome])
        if outcome in (ClickOutcome.NOT_SHOWN, ClickOutcome.LATER_PAGE, ClickOutcome.VOID):
            return Judged(outcome, None, rank)
        if counts_for is None:
            self._impressions.count("events of actions that no metric counts")
            outcome = ClickOutcome.UNMEASURED
        # An order's lines may have its number as their id: each result, and each action on it, has ids of its own.
        number = blake2b("\0".join((action, name, named)).encode(errors="surrogatepass"), digest_size=12).hexdigest()
        micro = int(when * 1e6)
        event = Event(token.key, token.version, name, action, number, amount, micro, token.second, public)
        return Judged(outcome, event, rank)

    def _windows(self, config: TrialConfig) -> tuple[dict[str, float], float]:
        """Seconds in which events count, by action, and are kept: the longest of them, or the click window without any."""
        known = self._known_windows
        if known is None or known[0] is not config:
            windows = config.event_windows
            self._known_windows = known = config, windows, max(windows.values(), default=config.click_window)
        return known[1:]

    def _found(
        self, what: str, id: str, document: str, time: Time | None
    ) -> tuple[tokens.Token, str, float] | ClickOutcome:
        """The impression that clicks or events name, the document as text, and the time; or why they count for nothing."""
        token = tokens.read_token(id, self._state.secret)
        if token is None or token.version not in self._state.configs:
            self._impressions.count(f"{what} with an id that is not ours")
            return ClickOutcome.NOT_OURS
        if token.key == tokens.FALLBACK:
            self._impressions.count(f"{what} on fallbacks")
            return ClickOutcome.FALLBACK
        if token.key == tokens.OUTSIDE:
            self._impressions.count(OUTSIDE_SHARE_CLICKS if what == "clicks" else OUTSIDE_SHARE_EVENTS, soon=False)
            return ClickOutcome.OUTSIDE
        if token.second == tokens.LATER_VIEW:
            self._impressions.count(f"{what} on later views")
            return ClickOutcome.LATER_VIEW
        name = document if type(document) is str else str(document)
        if len(name) > LONGEST_TEXT:
            self._impressions.count(f"{what} on what was not shown")
            return ClickOutcome.NOT_SHOWN
        # A number of NumPy's would make booleans of NumPy's, which a store takes for bytes.
        when = float(self._clock() if time is None else seconds("time", time))
        if time is not None and when < token.second - CLOCKS:
            self._impressions.count(f"{what} before their impression")
            return ClickOutcome.EARLY
        if self._state.cuts and self._is_erased(token):
            self._impressions.count(ERASED, token.version)
            return ClickOutcome.VOID
        return token, name, when

    def seen(self, id: str, documents: Sequence[str], *, public: bool = False) -> SeenOutcome:
        """Compare the documents that a page displayed, from the top, with the drawn ranking; mark the impression."""
        token = tokens.read_token(id, self._state.secret)
        if token is None or token.version not in self._state.configs:
            return SeenOutcome.NOT_OURS
        if token.key == tokens.FALLBACK:
            return SeenOutcome.FALLBACK
        if token.key == tokens.OUTSIDE:
            return SeenOutcome.OUTSIDE
        if self._is_erased(token):
            return SeenOutcome.VOID
        drawn = self._drawn(token.key)
        if isinstance(drawn, ClickOutcome):
            return SeenOutcome.VOID if drawn is ClickOutcome.VOID else SeenOutcome.NOT_COMPARED
        top, page = drawn.design.top(drawn.place), [str(document) for document in documents]
        same = page[: self._state.configs[token.version].k] == top[: len(page)] and bool(page) == bool(top)
        if self._first_time(token.key + b"\xff"):  # no document's name begins so
            kind = mark(Mark.SEEN if same else Mark.SEEN_OTHERWISE, public)
            with suppress(Exception):  # no page waits for it
                self._store.put(Marked(token.key, token.version, kind))
        return SeenOutcome.AS_DRAWN if same else SeenOutcome.NOT_AS_DRAWN

    def remembers(self, id: str) -> bool:
        """True if an event of the impression of this id can be judged without a read from the store."""
        token = tokens.read_token(id, self._state.secret)
        if token is None or token.key in (tokens.FALLBACK, tokens.OUTSIDE):
            return True
        return self._impressions.remembers(token.key)

    def forget(self) -> None:
        """Forget what was marked, as after a restart: some of it may have been erased."""
        self._marked.clear()

    def _first_time(self, what: bytes) -> bool:
        """True if this was not seen before, as far as this process remembers; repeated events must not be marked again."""
        known = what in self._marked
        if not known:
            self._marked.keep(what, True)
        return not known

    def _is_erased(self, token: tokens.Token) -> bool:
        """True if an id is that of an erased impression, also if the same visitor has made the same search since."""
        cuts = self._state.cuts
        next_cut = bisect_right(cuts, token.second * 1_000_000)
        if next_cut == len(cuts) or token.second == tokens.LATER_VIEW:
            return False
        try:
            found = self._impressions.recorded(token.key)
        except Exception:  # left out anyway, or it cannot be told now
            return False
        time = None if found is None else found.impression.time
        return time is None or (time >= cuts[next_cut] and time // 1_000_000 != token.second)

    def _drawn(self, key: bytes) -> Impression[Design] | Literal[ClickOutcome.VOID, ClickOutcome.WAITING]:
        """The impression of a key; or the outcome of events on it where it is left out, or not in the log (yet)."""
        try:
            found = self._impressions.recorded(key)
        except (CorruptDesign, Voided):
            return ClickOutcome.VOID
        except Exception:
            found = None
        return ClickOutcome.WAITING if found is None else found.impression

    def _outcome(self, key: bytes, document: str, late: bool) -> tuple[ClickOutcome, int | None]:
        """Outcome and rank of a click, as far as known now; reports decide from the whole log which clicks count."""
        drawn = self._drawn(key)
        if isinstance(drawn, ClickOutcome):
            return drawn, None
        rank = drawn.design.rank_of(drawn.place, document)
        if rank is None:
            return ClickOutcome.NOT_SHOWN, None
        if rank < 0:
            return ClickOutcome.LATER_PAGE, None
        return (ClickOutcome.LATE if late else ClickOutcome.COUNTED), rank + 1
