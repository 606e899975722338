"""The history of a trial: who made or changed what, when and why."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from ranktrial import tokens
from ranktrial.report.schema import HistoryEntry
from ranktrial.schema import LONGEST_TEXT
from ranktrial.store.base import Entry, ErasureRow, HistoryRow, rows_text
from ranktrial.store.protocols import Store
from ranktrial.texts import shown
from ranktrial.times import LATEST, time_text

SCHEDULE = "the schedule"  # who refits position bias without being asked


@cache
def this_user() -> str:
    """User of this process, recorded for actions without an API key."""
    try:
        return f"user {getpass.getuser()}"
    except (KeyError, OSError):  # a number without a name, as in a container
        return f"user {os.getuid()}"


def new_entry(clock: Callable[[], float], what: str, *, who: str | None = None, **more: Any) -> Entry:
    """Entry of what is done now, by the user of this process unless somebody is named; by the system's time where a clock makes
    no sense.
    """
    now = clock()
    moment = now if 0 <= now < LATEST else time.time()
    return Entry(int(moment * 1e6), what, who=this_user() if who is None else who, **more)


def history_of(store: Store, trial: str) -> list[HistoryEntry]:
    """All entries of a trial, in order of time."""
    entries = [*map(entry_of, store.trials.history(trial)), *map(_erased, store.eraser.erasures(trial))]
    return sorted(entries, key=lambda entry: entry.time)


def entry_of(row: HistoryRow) -> HistoryEntry:
    """Entry of the history as people read it."""
    unit = None if row.unit is None else tokens.unit_name(row.unit)
    told = {"time": row.time / 1e6, "what": row.what, "unit": unit, "detail": row.detail, "who": row.who}
    return HistoryEntry.model_validate({**told, "reason": shown(row.reason, LONGEST_TEXT)})


def _erased(row: ErasureRow) -> HistoryEntry:
    what = "a visitor"
    if row.earlier_than is not None:
        what = f"everything before {time_text(row.earlier_than / 1e6).removesuffix(' 00:00 UTC')}"
    much = f"{rows_text(row)}, no longer in any number"
    reason = shown(row.reason, LONGEST_TEXT)
    return HistoryEntry(time=row.time / 1e6, what="erased", detail=f"{what} ({much})", reason=reason, who=row.who)


def excluded_units(store: Store, trial: str) -> frozenset[int]:
    """Numbers of the units that are excluded now."""
    last = {row.unit: row.what for row in store.trials.history(trial) if row.unit is not None}
    return frozenset(unit for unit, what in last.items() if what == "excluded")
