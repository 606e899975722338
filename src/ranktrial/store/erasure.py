"""Erasure from a store in SQL: the rows of a unit, rows before a time, or a trial, and rows that nothing else needs then.

Rows go some hundreds at a time, each lot in a transaction of its own that also notes it, so that writers get their turn, and
whoever has read the log before sees that it must be read anew. What is stopped half-way is finished by asking again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import add
from typing import Any, NamedTuple

from ranktrial.store.base import Erased

TOGETHER = 200  # rows of one transaction
LONGEST_PAUSE = 0.1  # seconds
RECENT = 10_000  # ids of impressions: below these, nobody gets one any more
Select = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
Execute = Callable[[str, Sequence[Any]], Any]  # returns a cursor


class _Found(NamedTuple):
    id: int
    key: bytes
    design: int


class Eraser:
    """Eraser of rows of one store.

    Args:
        select: Reads rows.
        changing: A transaction: commits at the end, rolls back on an error. Nobody can add
            impressions meanwhile.
        by_key: Tables besides those of impressions, clicks and events that have a row for an impression's key.
    """

    def __init__(
        self, select: Select, changing: Callable[[], AbstractContextManager[Execute]], by_key: Sequence[str]
    ) -> None:
        self._select, self._changing, self._by_key = select, changing, by_key
        self._designs: set[int] = set()  # that erased impressions showed

    def some(self, trial: str, now: int, reason: str, unit: int | None, before: int | None, who: str) -> Erased:
        """Erase a unit's impressions, or all from before a time, with their clicks and events, and make an entry of it."""
        condition, value = ("unit = ?", unit) if before is None else ("time < ?", before)
        entry, erased = self._entry(trial, before), Erased(0, 0)
        for version in self._versions(trial):
            for rows in self._found(version, condition, (value,)):
                with self._lot() as execute:
                    gone = self._delete(execute, version, rows)
                    entry = _note(execute, entry, (trial, now, before, *gone, reason, who))
                    if unit is not None:
                        execute("DELETE FROM history WHERE trial = ? AND unit = ?", (trial, unit))
                erased = _sum(erased, gone)
        self._drop_designs(entry)
        return erased

    def trial(self, trial: str) -> Erased:
        """Erase a trial with all that is stored of it. The ids of its versions are never given to others."""
        erased, versions = Erased(0, 0), self._versions(trial)
        for version in versions:
            for rows in self._found(version, "1 = 1", ()):
                with self._lot() as execute:
                    erased = _sum(erased, self._delete(execute, version, rows))
            waiting = (self._delete_all(version, table) for table in ("clicks", "events"))  # for their impression
            erased = _sum(erased, Erased(0, *waiting))
            for table in ("voids", "marks"):
                self._delete_all(version, table)
        self._drop_designs(None)
        with self._lot() as execute:
            for version in versions:
                for table in ("tallies", "biases"):
                    execute(f"DELETE FROM {table} WHERE version = ?", (version,))
            for table, column in (("history", "trial"), ("erasures", "trial"), ("outbox", "trial"), ("trials", "name")):
                execute(f"DELETE FROM {table} WHERE {column} = ?", (trial,))
            execute("UPDATE versions SET trial = '', number = -id, config = '' WHERE trial = ?", (trial,))
        return erased

    @contextmanager
    def _lot(self) -> Iterator[Execute]:
        """A transaction, and then as long a pause: whoever wants to write has had to wait."""
        start = time.perf_counter()
        with self._changing() as execute:
            yield execute
        time.sleep(min(time.perf_counter() - start, LONGEST_PAUSE))

    def _versions(self, trial: str) -> list[int]:
        return [row[0] for row in self._select("SELECT id FROM versions WHERE trial = ? AND number > 0", (trial,))]

    def _found(self, version: int, condition: str, values: tuple[Any, ...]) -> Iterator[list[_Found]]:
        after = 0
        statement = f"""SELECT id, key, design FROM impressions WHERE version = ? AND id > ? AND {condition}
                        ORDER BY id LIMIT {TOGETHER}"""
        while rows := list(map(_Found._make, self._select(statement, (version, after, *values)))):
            after = rows[-1].id
            yield rows

    def _delete(self, execute: Execute, version: int, rows: Sequence[_Found]) -> Erased:
        """Delete impressions with all that belongs to them."""
        marks, keys = _marks(rows), [row.key for row in rows]
        for table in self._by_key:
            execute(f"DELETE FROM {table} WHERE key IN ({marks})", keys)
        clicks, events = (
            int(execute(f"DELETE FROM {table} WHERE key IN ({marks})", keys).rowcount) for table in ("clicks", "events")
        )
        ids = [row.id for row in rows]
        execute(f"DELETE FROM impressions WHERE version = ? AND id IN ({marks})", (version, *ids))
        self._designs.update(row.design for row in rows)
        return Erased(len(rows), clicks, events)

    def _delete_all(self, version: int, table: str) -> int:
        count = 0
        statement = f"SELECT id FROM {table} WHERE version = ? ORDER BY id LIMIT {TOGETHER}"
        while ids := [row[0] for row in self._select(statement, (version,))]:
            with self._lot() as execute:
                execute(f"DELETE FROM {table} WHERE version = ? AND id IN ({_marks(ids)})", (version, *ids))
            count += len(ids)
        return count

    def _entry(self, trial: str, before: int | None) -> int | None:
        """The entry to add to: what is erased day by day is one."""
        if before is None:
            return None
        found = self._select("SELECT max(id) FROM erasures WHERE trial = ? AND earlier_than IS NOT NULL", (trial,))
        return None if found[0][0] is None else int(found[0][0])

    def _drop_designs(self, entry: int | None) -> None:
        """Delete designs, which hold queries and documents, that no impression shows any more.

        All impressions are looked through while others write; only those that are new then are looked at while nobody can.
        """
        if not self._designs:
            return
        last = self._select("SELECT coalesce(max(id), 0) FROM impressions", ())[0][0]
        self._designs.difference_update(row[0] for row in self._select("SELECT DISTINCT design FROM impressions", ()))
        versions = [row[0] for row in self._select("SELECT id FROM versions", ())]
        while some := sorted(self._designs)[:TOGETHER]:
            with self._lot() as execute:
                used = {
                    row[0]
                    for version in versions
                    for row in execute(
                        "SELECT DISTINCT design FROM impressions WHERE version = ? AND id > ?", (version, last - RECENT)
                    ).fetchall()
                }
                unused = [design for design in some if design not in used]
                if unused:
                    execute(f"DELETE FROM designs WHERE id IN ({_marks(unused)})", unused)
                    execute("UPDATE erasures SET designs = designs + ? WHERE id = ?", (len(unused), entry))
            self._designs.difference_update(some)


def _note(execute: Execute, entry: int | None, values: tuple[Any, ...]) -> int:
    """Note what was erased, as an entry of its own or in one that there is; returns the entry."""
    trial, now, before, impressions, clicks, events, reason, who = values
    if entry is None:
        columns = "trial, time, earlier_than, impressions, clicks, events, designs, reason, who"
        execute(f"INSERT INTO erasures ({columns}) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?)", values)
        return int(execute("SELECT max(id) FROM erasures WHERE trial = ?", (trial,)).fetchone()[0])
    statement = """UPDATE erasures SET time = ?, earlier_than = ?, reason = ?, who = ?,
                   impressions = impressions + ?, clicks = clicks + ?, events = events + ? WHERE id = ?"""
    execute(statement, (now, before, reason, who, impressions, clicks, events, entry))
    return entry


def _sum(one: Erased, other: Erased) -> Erased:
    return Erased(*map(add, one, other))


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))
