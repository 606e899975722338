"""Writes of one transaction: rows by type, each type by one statement, and checks against existing rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from ranktrial.store.base import Click, DesignRow, Event, Impression, Marked, Storable, Void
from ranktrial.store.postgres.connection import Byteas, Connection, Int8s, TextArray
from ranktrial.store.postgres.schema import ARRAY_TYPES, ARRAYS, Month, month_of
from ranktrial.store.sql import CLICKS, EVENTS, Reports, by_kind
from ranktrial.store.stored import Stored
from ranktrial.store.writer import Tallies

DESIGN_VALUES = DesignRow._fields[1:]
DESIGN_TYPES = {"query": "text", "documents": "text", "bias": "int8"}
ARRAY_OF: dict[str, Callable[[Iterable[Any]], list[Any]]] = {"bytea": Byteas, "text": TextArray}  # else Int8s
INSERT_DESIGNS = f"""
    INSERT INTO designs ({", ".join(DESIGN_VALUES)})
    SELECT * FROM unnest({", ".join(f"%b::{DESIGN_TYPES.get(name, 'bytea')}[]" for name in DESIGN_VALUES)})
    ON CONFLICT DO NOTHING
"""
PUT_ROWS = f"SELECT put_rows({', '.join(['%b'] * (4 + sum(map(len, ARRAYS.values()))))})"
INSERT_VOIDS = """
    INSERT INTO voids (id, version, key, reason) SELECT nextval('row_ids'), * FROM unnest(%b::int8[], %b::bytea[], %b::text[])
    ON CONFLICT DO NOTHING
"""
KNOWN_IMPRESSIONS = """impression_keys JOIN impressions i USING (key, version, id, time)
    JOIN designs d ON d.id = i.design"""
STORED_WAYS = f"SELECT key, digest, place FROM {KNOWN_IMPRESSIONS} WHERE key = ANY(%b)"
OF_IMPRESSION = attrgetter(*("design.digest" if name == "digest" else name for name in ARRAYS["impression"]))


class Sender(NamedTuple):
    """Identity of a writer: number of its store object, lowest advisory lock that names a last id, slot of its counters."""

    number: int
    locks: int
    slot: int


class Batch:
    """Rows of one transaction, by what they are.

    Attributes:
        drawn: Impressions, with the future of each.
        impressions: The first impression of each key, sorted by key.
        designs: What these show, by digest.
        marks: Key, kind and version of each.
        months: Those whose partitions are needed.
    """

    def __init__(self, rows: Iterable[Stored]) -> None:
        rows = list(rows)
        kinds = by_kind(rows)
        self.drawn = [(stored.row, stored) for stored in rows if isinstance(stored.row, Impression)]
        self.impressions: dict[bytes, Impression[Any]] = {}
        for row in sorted(kinds[Impression], key=attrgetter("key")):
            self.impressions.setdefault(row.key, row)
        self.designs: dict[bytes, Storable] = {row.design.digest: row.design for row in kinds[Impression]}
        self.clicks: list[Click] = kinds[Click]
        self.events: list[Event] = kinds[Event]
        self.voids: list[Void] = kinds[Void]
        self.marks: set[tuple[int, bytes, int]] = {(one.version, one.key, one.kind) for one in kinds[Marked]}
        self.marks.update((click.version, click.key, kind) for click in self.clicks for kind in click.marks)
        seconds = {row.time // 1_000_000 for row in kinds[Impression]}
        seconds.update(one.second for one in self.clicks)
        seconds.update(one.second for one in self.events)
        self.months: set[Month] = set(map(month_of, seconds))

    def known_before(self, new: frozenset[bytes]) -> list[tuple[Impression[Any], Stored]]:
        """Impressions whose key was there before, in the store or in this batch."""
        met, known = set(), []
        for row, done in self.drawn:
            if row.key in met or row.key not in new:
                known.append((row, done))
            met.add(row.key)
        return known


def write(
    connection: Connection, batch: Batch, tallied: Tallies, known: Collection[bytes], sender: Sender, number: int
) -> frozenset[bytes] | None:
    """Write and commit a batch, and return the keys of impressions that were new; None if it has been written before.

    That is one round trip where there is nothing but impressions of known designs, usual clicks and tallies.

    Args:
        connection: One that commits by itself.
        batch: The rows.
        tallied: What was counted meanwhile.
        known: Digests of designs that are there.
        sender: Who writes.
        number: Of the batch: higher than those before, the same when it must be sent again.
    """
    new_designs = [design for digest, design in sorted(batch.designs.items()) if digest not in known]
    repeated = len(batch.impressions) < len(batch.drawn)
    limited = any(one.limit is not None for some in (batch.clicks, batch.events) for one in some)
    if not (new_designs or repeated or limited or batch.voids):
        return _put(connection, batch, batch.clicks, batch.events, tallied, sender, number)
    counts, lock = Counter(tallied), sender.locks >> 48
    with connection.pipeline(), connection.transaction():
        events = _within_limits(connection, EVENTS, batch.events, counts, lock)
        clicks = _within_limits(connection, CLICKS, batch.clicks, counts, lock)
        if new_designs:
            columns = zip(DESIGN_VALUES, zip(*((design.digest, *design.parts) for design in new_designs)))
            kinds = {"text": TextArray, "int8": Int8s}
            values = [kinds.get(DESIGN_TYPES.get(name, "bytea"), Byteas)(column) for name, column in columns]
            connection.execute(INSERT_DESIGNS, values)
        new = _put(connection, batch, clicks, events, counts, sender, number)
        if new is not None and (voids := _voids(connection, batch, new)):
            versions, keys, reasons = zip(*voids)
            connection.execute(INSERT_VOIDS, (Int8s(versions), Byteas(keys), TextArray(reasons)))
    return new


def _put(
    connection: Connection,
    batch: Batch,
    clicks: Sequence[Click],
    events: Sequence[Event],
    counts: Tallies,
    sender: Sender,
    number: int,
) -> frozenset[bytes] | None:
    of_click, of_event = (attrgetter(*ARRAYS[kind]) for kind in ("click", "event"))
    rows = {
        "impression": map(OF_IMPRESSION, batch.impressions.values()),
        "click": map(of_click, sorted(clicks, key=attrgetter("key", "version", "document", "late", "second"))),
        "event": map(of_event, sorted(events, key=attrgetter("key", "event_id"))),  # of one id the first comes first
        "mark": sorted(batch.marks, key=lambda one: (one[1], one[2])),
        "tally": [(*one, counts[one]) for one in sorted(counts)],
    }
    arrays = []
    for kind, names in ARRAYS.items():
        columns = list(zip(*rows[kind])) or [()] * len(names)
        arrays += [ARRAY_OF.get(ARRAY_TYPES.get(name, ""), Int8s)(column) for name, column in zip(names, columns)]
    values = (sender.number, number, sender.locks, sender.slot, *arrays)
    row = connection.execute(PUT_ROWS, values, binary=True).fetchone()
    assert row is not None
    return None if row[0] is None else frozenset(row[0])


def _within_limits(connection: Connection, kind: Reports, rows: list[Any], counts: Tallies, lock: int) -> list[Any]:
    """Select clicks or events without a limit and those within it, and count the others. Instances take turns on an
    impression.
    """
    limited = [one for one in rows if one.limit is not None]
    if not limited:
        return rows
    turns = sorted({int.from_bytes(one.key[:4], "big", signed=True) for one in limited})
    turn = "SELECT pg_advisory_xact_lock(%b::int4, part::int4) FROM unnest(%b::int8[]) part"
    connection.execute(turn, (lock, Int8s(turns)))
    seconds, keys = [one.second for one in limited], sorted({one.key for one in limited})
    there = connection.execute(
        f"SELECT {', '.join(kind.identity)} FROM {kind.table} WHERE key = ANY(%b) AND second BETWEEN %b AND %b",
        (Byteas(keys), min(seconds), max(seconds)),
        binary=True,
    )
    known: dict[bytes, set[tuple[Any, ...]]] = {key: set() for key in keys}
    for found in there.fetchall():
        known[found[0]].add(found)
    kept, identity = [one for one in rows if one.limit is None], attrgetter(*kind.identity)
    for one in limited:
        of_impression, same = known[one.key], identity(one)
        if same in of_impression:
            counts[one.version, kind.duplicate] += 1
        elif len(of_impression) >= one.limit:
            counts[one.version, kind.refused] += 1
        else:
            of_impression.add(same)
            kept.append(one)
    return kept


def _voids(connection: Connection, batch: Batch, new: frozenset[bytes]) -> list[tuple[int, bytes, str]]:
    """Impressions to take out: those that another instance showed in another way, and those that are taken back."""
    voids = {}
    again = [row for row, _ in batch.known_before(new) if row.looked]
    if again:
        found = connection.execute(STORED_WAYS, (Byteas({row.key for row in again}),), binary=True).fetchall()
        ways = {key: (digest, place) for key, digest, place in found}
        for row in again:
            if ways.get(row.key) != (row.design.digest, row.place):
                voids[row.key] = row.version, row.key, "shown in two ways"
    if batch.voids:
        statement = "SELECT key, time FROM impression_keys WHERE key = ANY(%b)"
        keys = Byteas(void.key for void in batch.voids)
        times = dict(connection.execute(statement, (keys,), binary=True).fetchall())
        for void in batch.voids:
            if times.get(void.key, void.time) == void.time:
                voids.setdefault(void.key, (void.version, void.key, void.reason))
    return [voids[key] for key in sorted(voids)]
