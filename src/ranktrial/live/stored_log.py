"""The log of a trial as analyses see it: numbers of impressions in memory, designs made flat a block at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.inference.impressions import GROUPS, Block, DocumentOrder, Impressions, Kept
from ranktrial.inference.log import PLAIN, Log, counts_of_groups
from ranktrial.inference.units import Units, first_seen
from ranktrial.live.arrivals import Arrivals
from ranktrial.live.design_columns import DesignColumns
from ranktrial.position_bias import Counts

BLOCK = 8_192  # impressions
PARTS = 8  # blocks with their designs in memory
MOST_AT_ONCE = 32  # blocks that are one where they share designs
CHUNK = 65_536  # impressions, in the order in which they were read, whose clicks are in one array
ALL = slice(None)
ARRIVALS = "arrivals"  # of units, as kept with a block


class Rows(NamedTuple):
    """Impressions as they were read.

    Attributes:
        table: Their columns.
        clicked: Which ranks were clicked, some thousand impressions in each array.
    """

    table: NDArray[Any]
    clicked: Sequence[BoolArray]

    def clicks(self, at: NDArray[np.int32]) -> BoolArray:
        """Of some impressions."""
        if not len(at):
            return np.zeros((0, 0), bool)
        if len(at) > 2 * CHUNK:
            return np.asarray(np.concatenate(self.clicked)[at])
        chunk, inside = np.divmod(at, CHUNK)
        found = np.empty((len(at), self.clicked[0].shape[1]), bool)
        for number in np.flatnonzero(np.bincount(chunk)).tolist():
            some = chunk == number
            found[some] = self.clicked[number][inside[some]]
        return found


class History:
    """What logs know of each other that were read one after the other.

    Attributes:
        changes: The first impression of each that is not as in the one before.
        units: Units by their arrival, in the latest of them.
        pairs: And what they asked after their first question.
    """

    def __init__(self) -> None:
        self.changes: list[int] = []
        self.units, self.pairs = Arrivals(), Arrivals()


class _Arrived(NamedTuple):
    """Which units the impressions of a block are of, which are draws of their own, and what ``History`` knows after it."""

    place: NDArray[np.int32]
    drawn: BoolArray
    units: int
    pairs: int


@dataclass(frozen=True, eq=False)
class StoredLog(Impressions):
    """Impressions of a trial in order of time, by what ``LogReader`` has read.

    Attributes:
        columns: The designs.
        rows: The impressions, as they were read.
        order: By time: which of them each is.
        plain: Whether the last two rankings of every design are A's own list and B's own.
        history: Of the log; none of one of some impressions.
        serial: Number of the log in its history.
        known: What was worked out of the first blocks of an earlier log, where they are the same.
        blocks_at_once: As many are one: what is not kept can be worked out of more impressions at a time.
    """

    columns: DesignColumns
    k: int
    rows: Rows
    order: NDArray[np.int32]
    plain: bool
    left_out: Mapping[str, int] = field(default_factory=dict)
    strange_units: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    history: History = field(default_factory=History)
    serial: int = 0
    known: tuple[Kept, ...] = ()
    theta: FloatArray | None = None
    blocks_at_once: int = 1

    def following(self, before: Impressions) -> StoredLog:
        """The same log with what was worked out of an earlier one and still holds."""
        if not isinstance(before, StoredLog) or before.columns is not self.columns:
            return self
        n, goes_on = min(len(self), len(before)), self.goes_on(before)
        if goes_on:
            first = min([n, *self.history.changes[before.serial + 1 : self.serial + 1]])
        else:  # of some impressions
            same = np.True_
            for name in ("number", "place", "unit", "time", "clicks"):
                now, then = getattr(self, name)[:n], getattr(before, name)[:n]
                same = same & (now == then if now.ndim == 1 else (now == then).all(1))
            first = n if same.all() else int(np.argmin(same))
        kept = tuple(block.kept.later() for block in before.blocks if block.kept and block.rows.stop <= first)
        for one in () if goes_on else kept:  # numbers of units, which its own history does not know
            one.before.pop(ARRIVALS, None)
        log = replace(self, known=kept[: first // BLOCK])
        fits = {key: value for key, value in before.fits.now.items() if key[0] <= first}  # type: ignore[index]
        log.__dict__["fits"] = Kept(before=fits)
        return log

    def goes_on(self, before: Impressions) -> bool:
        """Whether it was read after another log, of the same impressions and more."""
        return isinstance(before, StoredLog) and self.history is before.history and self.serial >= before.serial

    # --- columns ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.order)

    def _column(self, name: str, rows: IntArray | slice) -> NDArray[Any]:
        return np.asarray(self.rows.table[name][self.order[rows]])

    @cached_property
    def unit(self) -> IntArray:  # type: ignore[override]
        return self._column("unit", ALL)

    @cached_property
    def time(self) -> IntArray:  # type: ignore[override]
        return self._column("time", ALL)

    @cached_property
    def number(self) -> IntArray:
        return self._column("design", ALL)

    @cached_property
    def place(self) -> IntArray:
        return self._column("place", ALL)

    @cached_property
    def clicks(self) -> BoolArray:  # type: ignore[override]
        return self.rows.clicks(self.order).reshape(len(self), self.k)

    def unit_of(self, rows: slice | IntArray) -> IntArray:
        return self._column("unit", rows)

    def times(self, at: IntArray) -> IntArray:
        return self._column("time", at)

    def designs_of(self, rows: slice) -> IntArray:
        return self._column("design", rows)

    def clicks_on(self, rows: IntArray | slice) -> NDArray[np.int32]:
        return np.asarray(self.rows.clicks(self.order[rows]).sum(1, dtype=np.int32))

    def plain_in(self, rows: slice) -> tuple[NDArray[np.int8], FloatArray, BoolArray]:
        number = self._column("design", rows)
        if not self.plain:
            return np.zeros(len(number), np.int8), np.zeros((len(number), 2)), self.columns.differ(number)
        from_end = self.columns.from_end(number, self._column("place", rows))
        arm = np.where(from_end > PLAIN, 0, np.where(from_end == PLAIN, 1, -1)).astype(np.int8)
        return arm, self.columns.last_weights(number), self.columns.differ(number)

    @property
    def query_names(self) -> Sequence[str]:
        return self.columns.query_names

    def query_of(self, rows: IntArray | slice) -> IntArray:
        return self.columns.queries(self._column("design", rows))

    # --- units --------------------------------------------------------------------------------------------------------

    @cached_property
    def _arrivals(self) -> list[_Arrived]:
        before, found = _Arrived(np.empty(0, np.int32), np.empty(0, bool), 0, 0), list[_Arrived]()
        for block in self.blocks:
            before = block.found(ARRIVALS, lambda block=block, before=before: self._arrive(block.rows, before))  # type: ignore[misc]
            found.append(before)
        return found

    def _arrive(self, rows: slice, before: _Arrived) -> _Arrived:
        units, pairs, row = self.history.units, self.history.pairs, np.arange(rows.start, rows.stop)
        units.back_to(before.units)
        pairs.back_to(before.pairs)
        place = units.come(self.unit_of(rows), row)
        first, drawn = units.first[place], np.ones(len(place), bool)
        back = np.flatnonzero(first != row)
        query, at_first = self.query_of(row[back]), self.query_of(first[back])
        other = np.flatnonzero(query != at_first)
        number = pairs.come((place[back[other]] << 32) + query[other], row[back[other]])
        drawn[back] = False
        drawn[back[other]] = pairs.first[number] == row[back[other]]
        return _Arrived(place.astype(np.int32), drawn, units.count, pairs.count)

    def _of_blocks(self, name: str, rows: slice) -> NDArray[Any]:
        size, (start, stop, _) = self.blocks_at_once * BLOCK, rows.indices(len(self))
        some = [getattr(one, name) for one in self._arrivals[start // size : max(-(-stop // size), start // size + 1)]]
        return np.asarray(some[0] if len(some) == 1 else np.concatenate(some))[start % size :][: stop - start]

    def arrivals(self, rows: slice) -> IntArray:
        return self._of_blocks("place", rows)

    def draws(self, rows: slice) -> BoolArray:
        return self._of_blocks("drawn", rows)

    @property
    def arrived(self) -> IntArray:
        units = self._arrivals[-1].units
        return self.history.units.first[:units]

    @cached_property
    def units(self) -> Units:
        place = self.arrivals(ALL).astype(np.int64)
        return Units(self._column("unit", self.arrived), place, self.arrived)

    @property
    def designs(self) -> IntArray:
        return self.number

    @property
    def most_designs(self) -> int:
        return len(self.columns)

    @cached_property
    def _kept(self) -> list[Kept]:
        """What was worked out of each block."""
        blocks = max(-(-len(self) // (self.blocks_at_once * BLOCK)), 1)
        return [*self.known, *(Kept() for _ in range(blocks - len(self.known)))]

    @cached_property
    def blocks(self) -> Sequence[Block]:
        size = self.blocks_at_once * BLOCK
        rows = [slice(start, min(start + size, len(self))) for start in range(0, max(len(self), 1), size)]
        return [Block(one, partial(self._part, one), kept) for one, kept in zip(rows, self._kept)]

    @cached_property
    def _parts(self) -> dict[int, Log]:
        """The latest blocks with their designs."""
        return {}

    def _part(self, rows: slice) -> Log:
        if rows.start not in self._parts:
            while self._parts and (len(self._parts) + 1) * self.blocks_at_once > PARTS:
                del self._parts[next(iter(self._parts))]
            numbers, place = self._designs_of(rows)
            self._parts[rows.start] = self._log(rows, place, self.columns.part(numbers))
        return self._parts[rows.start]

    def _designs_of(self, rows: slice) -> tuple[IntArray, IntArray]:
        """Designs of some impressions in the order in which these had them first, and which of them each impression has."""
        return first_seen(self.designs_of(rows))

    def _log(self, rows: slice, design: IntArray, flat: Mapping[str, Any]) -> Log:
        return Log(
            k=self.k,
            design=design,
            row=flat["row_offsets"][design] + self._column("place", rows),
            unit=self.unit_of(rows),
            time=self._column("time", rows),
            clicks=self.rows.clicks(self.order[rows]).reshape(len(design), self.k),
            plain=self.plain,
            **flat,
        )

    def first(self, impressions: int) -> StoredLog:
        if impressions == len(self):
            return self
        log = self.take(slice(0, impressions))
        designs = len(np.unique(log.number))  # a block has no more of them than are in memory anyhow
        return replace(log, blocks_at_once=min(PARTS * impressions // max(designs, 1), MOST_AT_ONCE))

    def whole(self) -> Log:
        if self.__dict__.get("_whole") is None:
            number, flat = self.columns.flat(self.number)
            log = self._log(slice(0, len(self)), number[self.number], flat)
            self.__dict__["_whole"] = replace(log, left_out=self.left_out, strange_units=self.strange_units)
        found: Log = self.__dict__["_whole"]
        return found

    def parts(self, groups: int = GROUPS, *, clicked_only: bool = True) -> list[Counts]:
        if not clicked_only:
            return self.whole().parts(groups, clicked_only=False)
        group, clicked = self.group(groups), []
        for block in self.blocks:
            part = block.load()
            clicked.append(self._slots(block)[part.clicked[2]])
        slots, _ = first_seen(np.concatenate(clicked))  # in the order of time: slots are numbered as they were read
        order, query = np.argsort(slots), np.zeros(len(slots), np.int64)
        found = [(np.empty(0, np.int64), np.empty((3, 0, self.k)))]
        for block in self.blocks:
            part = block.load()
            own = self._slots(block)
            place = order[np.minimum(np.searchsorted(slots, own, sorter=order), len(slots) - 1)]
            number = np.where(slots[place] == own, place, -1)
            query[number[number >= 0]] = part.document_query[part.document[number >= 0]]
            found.append(part.tables(number, len(slots), group[block.rows], groups))
            if sum(len(keys) for keys, _ in found[1:]) > len(found[0][0]):  # what is there is seldom moved
                found = [_merged(found)]
        return counts_of_groups(*_merged(found), first_seen(query)[1], groups)

    def _slots(self, block: Block) -> IntArray:
        """Number among all designs of each slot of a block."""
        return self.columns.slots(self._designs_of(block.rows)[0])

    @property
    def document_order(self) -> DocumentOrder:
        return self.columns.document_order(self.number)

    @property
    def rank_width(self) -> int:
        return 256  # they are bytes

    @cached_property
    def listed(self) -> int:
        return self.columns.listed(self.number)

    def shown(self, impressions: IntArray) -> NDArray[np.int32]:
        return self.columns.slots_shown(*(self._column(name, impressions) for name in ("design", "place")))

    def release(self) -> None:
        """Let go of designs, which can be made flat again, and of columns."""
        for name in ("_whole", "unit", "time", "number", "place", "clicks", "clicks_each", "units", "asked"):
            self.__dict__.pop(name, None)
        self._parts.clear()

    def take(self, impressions: BoolArray | IntArray | slice) -> StoredLog:
        order, strange = self.order[impressions], self.strange_units
        if len(strange):
            strange = strange[np.isin(strange, self.rows.table["unit"][order])]
        return replace(self, order=order, strange_units=strange, known=(), history=History(), serial=0)

    @property
    def arm(self) -> NDArray[np.int8]:
        return self.plain_in(ALL)[0]

    @property
    def shares(self) -> FloatArray:
        return self.plain_in(ALL)[1]

    @property
    def apart(self) -> BoolArray:
        return self.columns.differ(self.number)

    @cached_property
    def asked(self) -> tuple[Sequence[str], IntArray]:
        numbers, query = first_seen(self.columns.queries(self.number))
        return self.columns.query_names.chosen(numbers), query


def _merged(tables: Sequence[tuple[IntArray, FloatArray]]) -> tuple[IntArray, FloatArray]:
    """Rows with the same key added up."""
    keys = np.unique(np.concatenate([keys for keys, _ in tables]))
    summed = np.zeros((3, len(keys), tables[0][1].shape[2]))
    for some, table in tables:
        summed[:, np.searchsorted(keys, some)] += table
    return keys, summed
