"""What one transaction writes: rows by what they are, each kind by one statement, and what was there before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ranktrial.live.designs import Design
from ranktrial.live.stores.base import REFUSED, Click, Clicks, DesignRow, Impression, Stored, Void
from ranktrial.live.stores.postgres.connection import Connection
from ranktrial.live.stores.postgres.schema import Month, month_of
from ranktrial.live.stores.sql import DUPLICATE
from ranktrial.live.stores.writer import Item, Tallies

DESIGN_VALUES = DesignRow._fields[1:]
DESIGN_TYPES = {"query": "text", "documents": "text", "bias": "int8"}
BEGIN = """SELECT txid_current(), pg_advisory_xact_lock_shared(%s + CASE WHEN is_called THEN last_value ELSE 0 END)
           FROM row_ids"""
INSERT_IMPRESSIONS = """
    WITH given AS (
        SELECT * FROM unnest(%b::bytea[], %b::int8[], %b::bytea[], %b::int8[], %b::int8[], %b::int8[])
            AS g(key, version, digest, place, unit, time)
    ), new AS (
        INSERT INTO impression_keys (key, version, id, time) SELECT key, version, nextval('row_ids'), time FROM given
        ON CONFLICT DO NOTHING RETURNING key, id
    ), stored AS (
        INSERT INTO impressions (id, key, version, design, place, unit, time)
        SELECT new.id, key, version, d.id, place, unit, time FROM new JOIN given USING (key) LEFT JOIN designs d USING (digest)
    )
    SELECT key FROM new
"""
INSERT_CLICKS = """
    WITH new AS (
        INSERT INTO clicks (id, version, key, document, late, second)
        SELECT nextval('row_ids'), * FROM unnest(%b::int8[], %b::bytea[], %b::text[], %b::int8[], %b::int8[])
        ON CONFLICT DO NOTHING RETURNING version
    )
    SELECT version, count(*) FROM new GROUP BY version
"""
INSERT_VOIDS = """
    INSERT INTO voids (id, version, key, reason) SELECT nextval('row_ids'), * FROM unnest(%b::int8[], %b::bytea[], %b::text[])
    ON CONFLICT DO NOTHING
"""
ADD_TALLIES = """
    INSERT INTO tallies (version, name, count, slot) SELECT *, %b FROM unnest(%b::int8[], %b::text[], %b::int8[])
    ON CONFLICT (version, name, slot) DO UPDATE SET count = tallies.count + excluded.count
"""
KNOWN_IMPRESSIONS = """impression_keys JOIN impressions i USING (key, version, id, time)
    JOIN designs d ON d.id = i.design"""
STORED_WAYS = f"""
    SELECT key, digest, place FROM {KNOWN_IMPRESSIONS} WHERE key = ANY(%b)
"""
INSERT_DESIGNS = f"""
    INSERT INTO designs ({", ".join(DESIGN_VALUES)})
    SELECT * FROM unnest({", ".join(f"%b::{DESIGN_TYPES.get(name, 'bytea')}[]" for name in DESIGN_VALUES)})
    ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one transaction, by what they are; ``impressions`` are columns of the first row of each key, sorted by key."""

    drawn: list[tuple[Impression, Stored]] = field(default_factory=list)
    impressions: dict[bytes, tuple[Any, ...]] = field(default_factory=dict)
    designs: dict[bytes, Design] = field(default_factory=dict)
    clicks: list[Click] = field(default_factory=list)
    limited: list[Click] = field(default_factory=list)
    voids: list[Void] = field(default_factory=list)
    months: set[Month] = field(default_factory=set)

    @classmethod
    def of(cls, items: Iterable[Item]) -> Batch:
        batch = cls()
        for item in items:
            match item.row:
                case Impression() as row:
                    batch.drawn.append((row, item.done))
                case Click() as click:
                    (batch.clicks if click.limit is None else batch.limited).append(click)
                case Clicks(_, several):
                    for click in several:
                        (batch.clicks if click.limit is None else batch.limited).append(click)
                case Void() as void:
                    batch.voids.append(void)
        for row, _ in sorted(batch.drawn, key=lambda one: one[0].key):
            digest = row.design.digest
            batch.designs[digest] = row.design
            columns = row.key, row.version, digest, row.place, row.unit, row.time
            batch.impressions.setdefault(row.key, columns)
        seconds = {row.time // 1_000_000 for row, _ in batch.drawn}
        batch.months.update(map(month_of, seconds.union(click.second for click in (*batch.clicks, *batch.limited))))
        return batch

    def known_before(self, new: frozenset[bytes]) -> list[tuple[Impression, Stored]]:
        """Impressions whose key was there before, in the store or in this batch."""
        met, known = set(), []
        for row, done in self.drawn:
            if row.key in met or row.key not in new:
                known.append((row, done))
            met.add(row.key)
        return known


def write(
    connection: Connection, batch: Batch, tallied: Tallies, known: Collection[bytes], locks: int, slot: int
) -> tuple[int, frozenset[bytes]]:
    """Write a batch: first what is put in, then what follows from what was there before. To be committed by the caller.

    Args:
        connection: In a pipeline, so that this takes two round trips.
        batch: The rows.
        tallied: What was counted meanwhile.
        known: Digests of designs that are there.
        locks: The lowest of the advisory locks that name the last id before a transaction's own.
        slot: Which of its rows a tally is added to.

    Returns:
        The transaction's number, and the keys of the impressions that were new.
    """
    counts = Counter(tallied)
    begun = connection.execute(BEGIN, (locks,), binary=True)
    clicks = batch.clicks
    if batch.limited:
        clicks = clicks + _within_limits(connection, batch.limited, counts, locks >> 48)
    new_designs = [design for digest, design in sorted(batch.designs.items()) if digest not in known]
    if new_designs:
        connection.execute(INSERT_DESIGNS, _columns((design.digest, *design.parts) for design in new_designs))
    shown = taken = None
    if batch.impressions:
        shown = connection.execute(INSERT_IMPRESSIONS, _columns(batch.impressions.values()), binary=True)
    if clicks:
        rows = sorted((one.version, one.key, one.document, int(one.late), one.second) for one in clicks)
        taken = connection.execute(INSERT_CLICKS, _columns(rows), binary=True)
    number = begun.fetchall()[0][0]
    new = frozenset(key for (key,) in shown.fetchall()) if shown else frozenset()
    if taken:
        given = Counter(one.version for one in clicks)
        given.subtract(dict(taken.fetchall()))
        counts.update({(version, DUPLICATE): count for version, count in given.items() if count})
    voids = _voids(connection, batch, new)
    if voids:
        connection.execute(INSERT_VOIDS, _columns(voids))
    if counts:
        added = _columns((version, name, count) for (version, name), count in sorted(counts.items()))
        connection.execute(ADD_TALLIES, (slot, *added))
    return number, new


def _within_limits(connection: Connection, clicks: Sequence[Click], counts: Tallies, lock: int) -> list[Click]:
    """Those of the clicks with a limit that are kept; the others are counted. Instances take turns on an impression."""
    some = sorted({int.from_bytes(one.key[:4], "big", signed=True) for one in clicks})
    turn = "SELECT pg_advisory_xact_lock(%b::int4, part::int4) FROM unnest(%b::int8[]) part"
    connection.execute(turn, (lock, some))
    seconds, keys = [one.second for one in clicks], sorted({one.key for one in clicks})
    there = connection.execute(
        "SELECT key, document, late FROM clicks WHERE key = ANY(%b) AND second BETWEEN %b AND %b",
        (keys, min(seconds), max(seconds)),
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


def _voids(connection: Connection, batch: Batch, new: frozenset[bytes]) -> list[tuple[int, bytes, str]]:
    """Impressions to take out: those that another instance showed in another way, and those that are taken back."""
    voids = {}
    again = [row for row, _ in batch.known_before(new) if row.looked]
    if again:
        found = connection.execute(STORED_WAYS, (sorted({row.key for row in again}),), binary=True).fetchall()
        ways = {key: (digest, place) for key, digest, place in found}
        for row in again:
            if ways.get(row.key) != (row.design.digest, row.place):
                voids[row.key] = row.version, row.key, "shown in two ways"
    if batch.voids:
        statement = "SELECT key, time FROM impression_keys WHERE key = ANY(%b)"
        keys = [void.key for void in batch.voids]
        times = dict(connection.execute(statement, (keys,), binary=True).fetchall())
        for void in batch.voids:
            if times.get(void.key, void.time) == void.time:
                voids.setdefault(void.key, (void.version, void.key, void.reason))
    return [voids[key] for key in sorted(voids)]


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return list(map(list, zip(*rows)))
