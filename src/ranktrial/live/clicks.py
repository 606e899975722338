"""Judging of events: what becomes of a click, and whether a page shows what was drawn, as far as can be told when they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from ranktrial.live import tokens
from ranktrial.live.designs import CorruptDesign
from ranktrial.live.drawing import Draws, Voided
from ranktrial.live.schemas import LONGEST_TEXT, TrialConfig
from ranktrial.live.stores.base import Click, Impression, Stored
from ranktrial.live.tallies import AT_RANK, ELSEWHERE, SEEN, SEEN_OTHERWISE
from ranktrial.times import Time, seconds

MOST_OTHERS = 10  # clicks of an impression beyond k that are kept though they are on nothing that stood on its page


class ClickOutcome(StrEnum):
    """What became of a click."""

    COUNTED = "counted"
    WAITING = "waiting"  # for its impression, which is not in the log (yet)
    LATER_PAGE = "later page"
    LATER_VIEW = "later view"
    LATE = "late"
    FALLBACK = "fallback"
    VOID = "void"
    NOT_SHOWN = "not shown"
    NOT_OURS = "not ours"

    @property
    def refused(self) -> bool:
        """Whether it is a click on nothing that this trial showed."""
        return self in (ClickOutcome.NOT_SHOWN, ClickOutcome.NOT_OURS)


class SeenOutcome(StrEnum):
    """What became of the news of a page that was seen; none of it changes the estimate."""

    AS_DRAWN = "as drawn"
    NOT_AS_DRAWN = "not as drawn"
    NOT_COMPARED = "not compared"  # its impression is not in the log (yet)
    FALLBACK = "fallback"
    VOID = "void"
    NOT_OURS = "not ours"


class Clicked(NamedTuple):
    """What became of a click, when it is on the disk, and the rank from 0 of its document if it stood in the top k."""

    outcome: ClickOutcome
    stored: Stored
    rank: int | None = None


class Judged(NamedTuple):
    """What becomes of a click, the row to store if any, and the rank that it is on."""

    outcome: ClickOutcome
    row: Click | None = None
    rank: int | None = None


class ClickJudge:
    """Judges the events of a trial.

    Args:
        draws: Know what was shown.
        configs: Of all versions of the trial, by id: clicks on what an earlier one showed still count for it.
        clock: Seconds since 1970.
    """

    def __init__(self, draws: Draws, configs: Mapping[int, TrialConfig], clock: Callable[[], float]) -> None:
        self._draws, self._configs, self._clock = draws, configs, clock

    def judge(self, id: str, document: str, time: Time | None, position: int | None = None) -> Judged:
        """What becomes of a click on a document of an impression; clicks that are not stored are tallied.

        So is whether the position, where one is given, is the drawn rank.
        """
        token = tokens.read_token(id, self._draws.secret)
        if token is None or token.version not in self._configs:
            self._draws.tally("clicks with an id that is not ours")
            return Judged(ClickOutcome.NOT_OURS)
        if token.key == tokens.FALLBACK:
            self._draws.tally("clicks on fallbacks")
            return Judged(ClickOutcome.FALLBACK)
        if token.second == tokens.LATER_VIEW:
            self._draws.tally("clicks on later views")
            return Judged(ClickOutcome.LATER_VIEW)
        name = document if type(document) is str else str(document)
        if len(name) > LONGEST_TEXT:
            self._draws.tally("clicks on what was not shown")
            return Judged(ClickOutcome.NOT_SHOWN)
        when = self._clock() if time is None else seconds("time", time)
        config = self._configs[token.version]
        late = when >= token.second + 1 + config.click_window
        outcome, rank = self._outcome(token.key, name, late)
        if position is not None and rank is not None and self._draws.first_time(token.key + name.encode()):
            self._draws.tally(AT_RANK if position == rank + 1 else ELSEWHERE, token.version, soon=False)
        # What stood on the page is always kept. Of the rest, which anybody can make up, no more than tells what is wrong.
        limit = None if rank is not None else config.k + MOST_OTHERS
        return Judged(outcome, Click(token.key, token.version, name, late, limit, token.second), rank)

    def seen(self, id: str, documents: Sequence[str]) -> SeenOutcome:
        """Whether a page displayed what was drawn, its documents given from the top; tallied once for an impression."""
        token = tokens.read_token(id, self._draws.secret)
        if token is None or token.version not in self._configs:
            return SeenOutcome.NOT_OURS
        if token.key == tokens.FALLBACK:
            return SeenOutcome.FALLBACK
        try:
            drawn = self._drawn(token.key)
        except Voided:
            return SeenOutcome.VOID
        if drawn is None:
            return SeenOutcome.NOT_COMPARED
        top, page = drawn.design.top(drawn.place), [str(document) for document in documents]
        same = page[: self._configs[token.version].k] == top[: len(page)] and bool(page) == bool(top)
        if self._draws.first_time(token.key + b"\xff"):  # no document's name begins so
            self._draws.tally(SEEN if same else SEEN_OTHERWISE, token.version)
        return SeenOutcome.AS_DRAWN if same else SeenOutcome.NOT_AS_DRAWN

    def _drawn(self, key: bytes) -> Impression | None:
        """The impression of a key, None if it is not in the log (yet). Raises Voided where it is left out."""
        try:
            found = self._draws.recorded(key)
        except CorruptDesign as damaged:
            raise Voided from damaged
        except Voided:
            raise
        except Exception:
            return None
        return None if found is None else found[0]

    def _outcome(self, key: bytes, document: str, late: bool) -> tuple[ClickOutcome, int | None]:
        """As far as can be told now; what counts is decided from the whole log."""
        try:
            drawn = self._drawn(key)
        except Voided:
            return ClickOutcome.VOID, None
        if drawn is None:
            return ClickOutcome.WAITING, None
        rank = drawn.design.rank_of(drawn.place, document)
        if rank is None:
            return ClickOutcome.NOT_SHOWN, None
        if rank < 0:
            return ClickOutcome.LATER_PAGE, None
        return (ClickOutcome.LATE if late else ClickOutcome.COUNTED), rank
