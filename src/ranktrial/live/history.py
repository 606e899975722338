"""The history of a trial: which units people excluded or included, and what they erased, when and why."""

from __future__ import annotations

from datetime import UTC, datetime

from ranktrial.live import tokens
from ranktrial.live.schemas import HistoryEntry
from ranktrial.live.stores.base import ErasureRow, HistoryRow, Store


def history_of(store: Store, trial: str) -> list[HistoryEntry]:
    """All entries of a trial, in order of time."""
    entries = [*map(entry_of, store.history(trial)), *map(_erased, store.erasures(trial))]
    return sorted(entries, key=lambda entry: entry.time)


def entry_of(row: HistoryRow) -> HistoryEntry:
    """An exclusion or inclusion, as people read it."""
    told = {"time": row.time / 1e6, "what": row.what, "unit": tokens.unit_name(row.unit), "reason": row.reason}
    return HistoryEntry.model_validate(told)


def _erased(row: ErasureRow) -> HistoryEntry:
    what = "a unit"
    if row.earlier_than is not None:
        day = datetime.fromtimestamp(row.earlier_than / 1e6, UTC).strftime("%Y-%m-%d %H:%M")
        what = f"everything before {day.removesuffix(' 00:00')}"
    much = f"{row.impressions:,} impressions and {row.clicks:,} clicks, in no number any more"
    return HistoryEntry(time=row.time / 1e6, what="erased", unit=f"{what} ({much})", reason=row.reason)


def excluded_units(store: Store, trial: str) -> frozenset[int]:
    """Numbers of the units that are excluded now."""
    last = {row.unit: row.what for row in store.history(trial)}
    return frozenset(unit for unit, what in last.items() if what == "excluded")
