"""Erasure from a store in SQL: the rows of a unit, rows before a time, or a trial, and rows that nothing else needs then.

Rows go some hundreds at a time, each lot in a transaction of its own that also notes it, so that writers get their turn, and
whoever has read the log before sees that it must be read anew. What is stopped half-way is finished by asking again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from operator import add
from typing import Any, NamedTuple

from ranktrial.store.base import Erased, ErasureRow
from ranktrial.store.database import COUNTING, Database, Execute

TOGETHER = 200  # rows of one transaction
LONGEST_PAUSE = 0.1  # seconds
RECENT = 10_000  # ids of impressions: below these, nobody gets one any more


class _Found(NamedTuple):
    id: int
    key: bytes
    design: int


class Eraser:
    """Deletion of what was stored, and the entries that tell of it.

    Args:
        database: Where the rows are.
        by_key: Tables besides those of impressions, clicks and events that have a row for an impression's key.
    """

    def __init__(self, database: Database, by_key: Sequence[str]) -> None:
        self._database, self._by_key = database, by_key

    def erasures(self, trial: str) -> list[ErasureRow]:
        """Erasures from a trial, in the order of their requests. Changes whenever rows have been deleted."""
        statement = f"SELECT {', '.join(ErasureRow._fields)} FROM erasures WHERE trial = ? ORDER BY id"
        return list(map(ErasureRow._make, self._database.select(statement, (trial,))))

    def erase(
        self, trial: str, time: int, reason: str, *, unit: int | None = None, before: int | None = None, who: str = ""
    ) -> Erased:
        """Delete a unit's impressions, or all from before a time (microseconds), in all versions of a trial.

        With them go their clicks and events, and designs that nothing else shows; gone from the disk when this returns. What
        there was is in ``erasures``.
        """
        condition, value = ("unit = ?", unit) if before is None else ("time < ?", before)
        entry, erased, designs = None, Erased(0, 0), set[int]()
        if before is not None:  # what is erased day by day is one entry
            entry = max((row.id for row in self.erasures(trial) if row.earlier_than is not None), default=None)
        for version in self._versions(trial):
            for rows in self._found(version, condition, (value,)):
                with self._lot() as execute:
                    gone = self._delete(execute, version, rows)
                    entry = _note(execute, entry, (trial, time, before, *gone, reason, who))
                    if unit is not None:
                        execute("DELETE FROM history WHERE trial = ? AND unit = ?", (trial, unit))
                erased = _sum(erased, gone)
                designs.update(row.design for row in rows)
        self._drop_designs(designs, entry)
        self._database.leave_no_trace()
        return erased

    def erase_trial(self, trial: str) -> Erased:
        """Delete a trial and all that is stored of it. The ids of its versions are never given to others."""
        erased, versions, designs = Erased(0, 0), self._versions(trial), set[int]()
        for version in versions:
            for rows in self._found(version, "1 = 1", ()):
                with self._lot() as execute:
                    erased = _sum(erased, self._delete(execute, version, rows))
                designs.update(row.design for row in rows)
            waiting = (self._delete_all(version, table) for table in ("clicks", "events"))  # for their impression
            erased = _sum(erased, Erased(0, *waiting))
            for table in ("voids", "marks"):
                self._delete_all(version, table)
        self._drop_designs(designs, None)
        with self._lot() as execute:
            for version in versions:
                for table in ("tallies", "biases"):
                    execute(f"DELETE FROM {table} WHERE version = ?", (version,))
            for table, column in (("history", "trial"), ("erasures", "trial"), ("outbox", "trial"), ("trials", "name")):
                execute(f"DELETE FROM {table} WHERE {column} = ?", (trial,))
            # the ids of its versions are never given to others
            execute("UPDATE versions SET trial = '', number = -id, config = '' WHERE trial = ?", (trial,))
        self._database.leave_no_trace()
        return erased

    @contextmanager
    def _lot(self) -> Iterator[Execute]:
        """A transaction, and then as long a pause: whoever wants to write has had to wait."""
        start = time.perf_counter()
        with self._database.changing() as execute:
            yield execute
        time.sleep(min(time.perf_counter() - start, LONGEST_PAUSE))

    def _versions(self, trial: str) -> list[int]:
        return self._read("SELECT id FROM versions WHERE trial = ? AND number > 0", trial)

    def _found(self, version: int, condition: str, values: tuple[Any, ...]) -> Iterator[list[_Found]]:
        after = 0
        statement = f"""SELECT id, key, design FROM impressions WHERE version = ? AND id > ? AND {condition}
                        ORDER BY id LIMIT {TOGETHER}"""
        while rows := list(map(_Found._make, self._database.select(statement, (version, after, *values), COUNTING))):
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
        return Erased(len(rows), clicks, events)

    def _delete_all(self, version: int, table: str) -> int:
        count = 0
        statement = f"SELECT id FROM {table} WHERE version = ? ORDER BY id LIMIT {TOGETHER}"
        while ids := self._read(statement, version):
            with self._lot() as execute:
                execute(f"DELETE FROM {table} WHERE version = ? AND id IN ({_marks(ids)})", (version, *ids))
            count += len(ids)
        return count

    def _drop_designs(self, designs: set[int], entry: int | None) -> None:
        """Delete designs, which hold queries and documents, that no impression shows any more.

        All impressions are looked through while others write; only those that are new then are looked at while nobody can.
        """
        if not designs:
            return
        last = self._read("SELECT coalesce(max(id), 0) FROM impressions")[0]
        unused = sorted(designs.difference(self._read("SELECT DISTINCT design FROM impressions")))
        versions = self._read("SELECT id FROM versions")
        for start in range(0, len(unused), TOGETHER):
            some = set(unused[start : start + TOGETHER])
            with self._lot() as execute:
                recent = "SELECT DISTINCT design FROM impressions WHERE version = ? AND id > ?"
                for version in versions:
                    some.difference_update(row[0] for row in execute(recent, (version, last - RECENT)).fetchall())
                if some:
                    execute(f"DELETE FROM designs WHERE id IN ({_marks(some)})", sorted(some))
                    execute("UPDATE erasures SET designs = designs + ? WHERE id = ?", (len(some), entry))

    def _read(self, statement: str, *values: Any) -> list[int]:
        """Numbers of the first column."""
        return [row[0] for row in self._database.select(statement, values, COUNTING)]


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


def _marks(values: Collection[Any]) -> str:
    return ",".join("?" * len(values))
