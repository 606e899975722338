"""The log of a trial as analyses see it: numbers of impressions in memory, designs made flat a block at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.inference.impressions import GROUPS, Block, DocumentOrder, Impressions, Kept
from ranktrial.inference.intervals import first_seen
from ranktrial.inference.log import PLAIN, Log, counts_of_groups
from ranktrial.live.design_columns import DesignColumns
from ranktrial.position_bias import Counts

BLOCK = 8_192  # impressions
PARTS = 8  # blocks with their designs in memory
MOST_AT_ONCE = 32  # blocks that are one where they share designs


@dataclass(frozen=True, eq=False)
class StoredLog(Impressions):
    """Impressions of a trial in order of time, by what ``LogReader`` has read.

    Attributes:
        columns: The designs.
        number: Of each impression's design among them.
        place: Of the ranking that was shown, in its design.
        plain: Whether the last two rankings of every design are A's own list and B's own.
        known: What was worked out of the first blocks of an earlier log, where they are the same.
        blocks_at_once: As many are one: what is not kept can be worked out of more impressions at a time.
    """

    columns: DesignColumns
    k: int
    number: IntArray
    place: IntArray
    unit: IntArray
    time: IntArray
    clicks: BoolArray
    plain: bool
    left_out: Mapping[str, int] = field(default_factory=dict)
    strange_units: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    known: tuple[Kept, ...] = ()
    theta: FloatArray | None = None
    blocks_at_once: int = 1

    def following(self, before: Impressions) -> StoredLog:
        """The same log with what was worked out of an earlier one and still holds."""
        if not isinstance(before, StoredLog) or before.columns is not self.columns:
            return self
        n, same = min(len(self), len(before)), np.True_
        for name in ("number", "place", "unit", "time", "clicks"):
            now, then = getattr(self, name)[:n], getattr(before, name)[:n]
            same = same & (now == then if now.ndim == 1 else (now == then).all(1))
        first = n if same.all() else int(np.argmin(same))
        kept = tuple(block.kept.later() for block in before.blocks if block.kept and block.rows.stop <= first)
        log = replace(self, known=kept[: first // BLOCK])
        log.__dict__.update({name: of for name, of in self.__dict__.items() if name in ("units", "clicks_each")})
        fits = {key: value for key, value in before.fits.now.items() if key[0] <= first}  # type: ignore[index]
        log.__dict__["fits"] = Kept(before=fits)
        return log

    @property
    def designs(self) -> IntArray:
        return self.number

    @cached_property
    def _kept(self) -> list[Kept]:
        """What was worked out of each block."""
        blocks = max(-(-len(self) // (self.blocks_at_once * BLOCK)), 1)
        return [*self.known, *(Kept() for _ in range(blocks - len(self.known)))]

    @property
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
        return first_seen(self.number[rows])

    def _log(self, rows: slice, design: IntArray, flat: Mapping[str, Any]) -> Log:
        return Log(
            k=self.k,
            design=design,
            row=flat["row_offsets"][design] + self.place[rows],
            unit=self.unit[rows],
            time=self.time[rows],
            clicks=self.clicks[rows],
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
            clicked.append(self._candidates(block, part)[part.clicked[2]])
        candidates, _ = first_seen(np.concatenate(clicked))
        order, query = np.argsort(candidates), np.zeros(len(candidates), np.int64)
        found = [(np.empty(0, np.int64), np.empty((3, 0, self.k)))]
        for block in self.blocks:
            part = block.load()
            of_slot = self._candidates(block, part)
            place = np.minimum(np.searchsorted(candidates, of_slot, sorter=order), len(order) - 1)
            number = np.where(candidates[order[place]] == of_slot, order[place], -1)
            query[number[number >= 0]] = part.document_query[part.document[number >= 0]]
            found.append(part.tables(number, len(candidates), group[block.rows], groups))
            if sum(len(keys) for keys, _ in found[1:]) > len(found[0][0]):  # what is there is seldom moved
                found = [_merged(found)]
        return counts_of_groups(*_merged(found), first_seen(query)[1], groups)

    def _candidates(self, block: Block, part: Log) -> NDArray[np.uint64]:
        return self.columns.candidates(self._designs_of(block.rows)[0], part)

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
        return self.columns.documents(self.number[impressions], self.place[impressions])

    def release(self) -> None:
        """Let go of designs, which can be made flat again."""
        self.__dict__.pop("_whole", None)
        self._parts.clear()

    def take(self, impressions: BoolArray | IntArray | slice) -> StoredLog:
        names = ("number", "place", "unit", "time", "clicks")
        columns = {name: getattr(self, name)[impressions] for name in names}
        strange = self.strange_units
        if len(strange):
            strange = strange[np.isin(strange, columns["unit"])]
        return replace(self, strange_units=strange, known=(), **columns)

    @cached_property
    def arm(self) -> NDArray[np.int8]:
        if not self.plain:
            return np.zeros(len(self), np.int8)
        from_end = self.columns.from_end(self.number, self.place)
        return np.where(from_end > PLAIN, 0, np.where(from_end == PLAIN, 1, -1)).astype(np.int8)

    @property
    def shares(self) -> FloatArray:
        return self.columns.last_weights(self.number) if self.plain else np.zeros((len(self), 2))

    @cached_property
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
