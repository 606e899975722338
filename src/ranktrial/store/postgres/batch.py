"""Writes of one transaction: rows by type, each type by one statement, and checks against existing rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ranktrial.store.base import (
    MOST_PUBLIC,
    REFUSED,
    REFUSED_EVENTS,
    Click,
    DesignRow,
    Event,
    Impression,
    Marked,
    Storable,
    StoredClicks,
    Void,
)
from ranktrial.store.marks import Mark, mark
from ranktrial.store.postgres.connection import Byteas, Connection, Int8s, TextArray
from ranktrial.store.postgres.schema import Month, month_of
from ranktrial.store.sql import DUPLICATE, DUPLICATE_EVENT
from ranktrial.store.stored import Stored
from ranktrial.store.writer import Tallies

DESIGN_VALUES = DesignRow._fields[1:]
DESIGN_TYPES: dict[str, tuple[str, Callable[[Any], list[Any]]]] = {
    "query": ("text", TextArray), "documents": ("text", TextArray), "bias": ("int8", Int8s)
}  # fmt: skip
INSERT_DESIGNS = f"""
    INSERT INTO designs ({", ".join(DESIGN_VALUES)})
    SELECT * FROM unnest({", ".join(f"%b::{DESIGN_TYPES.get(name, ('bytea',))[0]}[]" for name in DESIGN_VALUES)})
    ON CONFLICT DO NOTHING
"""
PUT_ROWS = f"SELECT put_rows({', '.join(['%b'] * 34)})"
INSERT_VOIDS = """
    INSERT INTO voids (id, version, key, reason) SELECT nextval('row_ids'), * FROM unnest(%b::int8[], %b::bytea[], %b::text[])
    ON CONFLICT DO NOTHING
"""
KNOWN_IMPRESSIONS = """impression_keys JOIN impressions i USING (key, version, id, time)
    JOIN designs d ON d.id = i.design"""
STORED_WAYS = f"SELECT key, digest, place FROM {KNOWN_IMPRESSIONS} WHERE key = ANY(%b)"


class Sender(NamedTuple):
    """Identity of a writer: number of its store object, lowest advisory lock that names a last id, slot of its counters."""

    number: int
    locks: int
    slot: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one transaction, by what they are; ``impressions`` are columns of the first row of each key, sorted by key."""

    drawn: list[tuple[Impression[Any], Stored]] = field(default_factory=list)
    impressions: dict[bytes, tuple[Any, ...]] = field(default_factory=dict)
    designs: dict[bytes, Storable] = field(default_factory=dict)
    clicks: list[Click] = field(default_factory=list)
    limited: list[Click] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    public: list[Event] = field(default_factory=list)
    voids: list[Void] = field(default_factory=list)
    marks: list[tuple[bytes, int, int]] = field(default_factory=list)  # key, kind and version
    months: set[Month] = field(default_factory=set)

    @classmethod
    def of(cls, rows: Iterable[Stored]) -> Batch:
        batch = cls()
        for stored in rows:
            match stored.row:
                case Impression() as row:
                    batch.drawn.append((row, stored))
                case Click() | Event() as one:
                    batch._add(one)
                case StoredClicks(_, several):
                    for one in several:
                        batch._add(one)
                case Marked(key, version, kind):
                    batch.marks.append((key, kind, version))
                case Void() as void:
                    batch.voids.append(void)
        for row, _ in sorted(batch.drawn, key=lambda one: one[0].key):
            digest = row.design.digest
            batch.designs[digest] = row.design
            columns = (
                row.key,
                row.version,
                digest,
                row.place,
                row.unit,
                row.time,
                row.looked,
                row.segment,
                row.covariates,
            )
            batch.impressions.setdefault(row.key, columns)
        both = (*batch.clicks, *batch.limited)
        batch.marks.extend((click.key, kind, click.version) for click in both for kind in click.marks)
        seconds = {row.time // 1_000_000 for row, _ in batch.drawn}
        of_events = (event.second for event in (*batch.events, *batch.public))
        batch.months.update(map(month_of, seconds.union((click.second for click in both), of_events)))
        return batch

    def _add(self, one: Click | Event) -> None:
        if isinstance(one, Event):
            (self.public if one.public else self.events).append(one)
        else:
            (self.clicks if one.limit is None else self.limited).append(one)

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
    if not (new_designs or repeated or batch.limited or batch.public or batch.voids):
        return _put(connection, batch, batch.clicks, batch.events, tallied, sender, number)
    counts = Counter(tallied)
    with connection.pipeline(), connection.transaction():
        clicks, events = batch.clicks, batch.events
        if batch.public:
            events = events + _few_enough(connection, batch.public, counts, sender.locks >> 48)
        if batch.limited:
            clicks = clicks + _within_limits(connection, batch.limited, counts, sender.locks >> 48)
        if new_designs:
            columns = zip(DESIGN_VALUES, zip(*((design.digest, *design.parts) for design in new_designs)))
            values = [DESIGN_TYPES.get(name, ("", Byteas))[1](column) for name, column in columns]
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
    shown = zip(*batch.impressions.values()) if batch.impressions else ([],) * 9
    keys, versions, digests, places, units, times, looked, segments, covariates = shown
    rows = sorted(
        (one.key, one.version, one.document, one.late, one.second, mark(Mark.AGAIN, one.public), one.time)
        for one in clicks
    )
    click_keys, click_versions, documents, lates, seconds, agains, times_clicked = zip(*rows) if rows else ([],) * 7
    happened = [
        (one.key, one.event_id, one.version, one.second, one.document, one.action, one.amount, one.time)
        for one in sorted(events, key=lambda one: (one.key, one.event_id))  # of one id the first comes first
    ]
    event_keys, event_ids, event_versions, shown_at, things, actions, amounts, event_times = (
        zip(*happened) if happened else ([],) * 8
    )
    mark_keys, kinds, mark_versions = zip(*sorted(set(batch.marks))) if batch.marks else ([],) * 3
    names = sorted(counts)
    row = connection.execute(
        PUT_ROWS,
        (
            sender.number, number, sender.locks, sender.slot,
            Byteas(keys), Int8s(versions), Byteas(digests), Int8s(places), Int8s(units), Int8s(times), Int8s(looked),
            Int8s(segments), Byteas(covariates),
            Int8s(click_versions), Byteas(click_keys), TextArray(documents), Int8s(lates), Int8s(seconds), Int8s(agains),
            Int8s(times_clicked),
            Int8s(event_versions), Byteas(event_keys), Int8s(shown_at), TextArray(things), TextArray(actions),
            TextArray(event_ids), Int8s(amounts), Int8s(event_times),
            Int8s(mark_versions), Byteas(mark_keys), Int8s(kinds),
            Int8s(version for version, _ in names), TextArray(name for _, name in names), Int8s(counts[one] for one in names),
        ),
        binary=True,
    ).fetchone()  # fmt: skip
    assert row is not None
    return None if row[0] is None else frozenset(row[0])


def _within_limits(connection: Connection, clicks: Sequence[Click], counts: Tallies, lock: int) -> list[Click]:
    """Select the clicks that are within their limit and count the others. Instances take turns on an impression."""
    _take_turn(connection, clicks, lock)
    seconds, keys = [one.second for one in clicks], sorted({one.key for one in clicks})
    there = connection.execute(
        "SELECT key, document, late FROM clicks WHERE key = ANY(%b) AND second BETWEEN %b AND %b",
        (Byteas(keys), min(seconds), max(seconds)),
        binary=True,
    )
    known: dict[bytes, set[tuple[str, int]]] = {key: set() for key in keys}
    for key, document, late in there.fetchall():
        known[key].add((document, late))
    kept = []
    for one in clicks:
        of_impression = known[one.key]
        if (one.document, one.late) in of_impression:
            counts[one.version, DUPLICATE] += 1
        elif one.limit is not None and len(of_impression) >= one.limit:
            counts[one.version, REFUSED] += 1
        else:
            of_impression.add((one.document, one.late))
            kept.append(one)
    return kept


def _few_enough(connection: Connection, events: Sequence[Event], counts: Tallies, lock: int) -> list[Event]:
    """Select the events without a key that are new, or that their impression has room for, and count the others."""
    _take_turn(connection, events, lock)
    seconds, keys = [one.second for one in events], sorted({one.key for one in events})
    there = connection.execute(
        "SELECT key, event_id FROM events WHERE key = ANY(%b) AND second BETWEEN %b AND %b",
        (Byteas(keys), min(seconds), max(seconds)),
        binary=True,
    )
    known: dict[bytes, set[str]] = {key: set() for key in keys}
    for key, event_id in there.fetchall():
        known[key].add(event_id)
    kept = []
    for one in events:
        of_impression = known[one.key]
        if one.event_id in of_impression:
            counts[one.version, DUPLICATE_EVENT] += 1
        elif len(of_impression) >= MOST_PUBLIC:
            counts[one.version, REFUSED_EVENTS] += 1
        else:
            of_impression.add(one.event_id)
            kept.append(one)
    return kept


def _take_turn(connection: Connection, rows: Sequence[Click | Event], lock: int) -> None:
    """Wait for other instances that count the rows of these impressions."""
    some = sorted({int.from_bytes(one.key[:4], "big", signed=True) for one in rows})
    turn = "SELECT pg_advisory_xact_lock(%b::int4, part::int4) FROM unnest(%b::int8[]) part"
    connection.execute(turn, (lock, Int8s(some)))


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
