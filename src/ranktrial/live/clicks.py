"""Judging of clicks: what becomes of one, as far as can be told when it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from ranktrial import checks
from ranktrial.live import tokens
from ranktrial.live.designs import CorruptDesign
from ranktrial.live.drawing import Draws, Voided
from ranktrial.live.schemas import LATEST_TIME, LONGEST_TEXT, TrialConfig
from ranktrial.live.stores.base import Click, Stored


class ClickOutcome(StrEnum):
    """What became of a click."""

    COUNTED = "counted"
    WAITING = "waiting"  # for its impression, which is not in the log (yet)
    LATER_PAGE = "later page"
    LATE = "late"
    FALLBACK = "fallback"
    VOID = "void"
    NOT_SHOWN = "not shown"
    NOT_OURS = "not ours"

    @property
    def refused(self) -> bool:
        """Whether it is a click on nothing that this trial showed."""
        return self in (ClickOutcome.NOT_SHOWN, ClickOutcome.NOT_OURS)


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
    """Judges the clicks of a trial.

    Args:
        draws: Know what was shown.
        configs: Of all versions of the trial, by id: clicks on what an earlier one showed still count for it.
        clock: Seconds since 1970.
    """

    def __init__(self, draws: Draws, configs: Mapping[int, TrialConfig], clock: Callable[[], float]) -> None:
        self._draws, self._configs, self._clock = draws, configs, clock

    def judge(self, id: str, document: str, time: float | None) -> Judged:
        """What becomes of a click on a document of an impression; clicks that are not stored are tallied."""
        token = tokens.read_token(id, self._draws.secret)
        if token is None or token.version not in self._configs:
            self._draws.tally("clicks with an id that is not ours")
            return Judged(ClickOutcome.NOT_OURS)
        if token.key == tokens.FALLBACK:
            self._draws.tally("clicks on fallbacks")
            return Judged(ClickOutcome.FALLBACK)
        name = document if type(document) is str else str(document)
        if len(name) > LONGEST_TEXT:
            self._draws.tally("clicks on what was not shown")
            return Judged(ClickOutcome.NOT_SHOWN)
        when = self._clock() if time is None else checks.number("time", time)
        if when > LATEST_TIME:
            raise ValueError(f"time is {when!r}, must be in seconds since 1970, not in milliseconds")
        late = when >= token.second + 1 + self._configs[token.version].click_window
        outcome, rank = self._outcome(token.key, name, late)
        return Judged(outcome, Click(token.key, token.version, name, late), rank)

    def _outcome(self, key: bytes, document: str, late: bool) -> tuple[ClickOutcome, int | None]:
        """As far as can be told now; what counts is decided from the whole log."""
        try:
            found = self._draws.recorded(key)
        except (CorruptDesign, Voided):
            return ClickOutcome.VOID, None
        except Exception:
            return ClickOutcome.WAITING, None
        if found is None:
            return ClickOutcome.WAITING, None
        rank = found[0].design.rank_of(found[0].place, document)
        if rank is None:
            return ClickOutcome.NOT_SHOWN, None
        if rank < 0:
            return ClickOutcome.LATER_PAGE, None
        return (ClickOutcome.LATE if late else ClickOutcome.COUNTED), rank
