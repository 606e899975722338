"""The log of a trial as analyses see it: numbers of impressions in memory, designs made flat a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar, overload

import numpy as np

from ranktrial.arrays import BoolArray, FloatArray, IntArray
from ranktrial.inference.impressions import Block, Impressions, Kept, Numbers
from ranktrial.inference.intervals import first_seen
from ranktrial.inference.log import PLAIN, Log
from ranktrial.live.design_columns import DesignColumns

T = TypeVar("T")
BLOCK = 8_192  # impressions
PARTS = 4  # blocks with their designs in memory


@dataclass(frozen=True, eq=False)
class StoredLog(Impressions):
    """Impressions of a trial in order of time, by what ``LogReader`` has read.

    Attributes:
        columns: The designs.
        number: Of each impression's design among them.
        place: Of the ranking that was shown, in its design.
        plain: Whether the last two rankings of every design are A's own list and B's own.
        known: What was worked out of the first blocks of an earlier log, where they are the same.
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
        blocks = max(-(-len(self) // BLOCK), 1)
        return [*self.known, *(Kept() for _ in range(blocks - len(self.known)))]

    @property
    def blocks(self) -> Sequence[Block]:
        rows = [slice(start, min(start + BLOCK, len(self))) for start in range(0, max(len(self), 1), BLOCK)]
        return [Block(one, partial(self._part, one), kept) for one, kept in zip(rows, self._kept)]

    @cached_property
    def _parts(self) -> dict[int, Log]:
        """The latest blocks with their designs."""
        return {}

    def _part(self, rows: slice) -> Log:
        if rows.start not in self._parts:
            while len(self._parts) >= PARTS:
                del self._parts[next(iter(self._parts))]
            numbers, design = np.unique(self.number[rows], return_inverse=True)
            order = self.columns.by_digest(numbers)
            self._parts[rows.start] = self._log(rows, np.argsort(order)[design], self.columns.part(numbers[order]))
        return self._parts[rows.start]

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

    def first(self, impressions: int) -> Log:
        """The first impressions with all of their designs, documents and queries by name."""
        return self._named(impressions)[0]

    def fitted(self, first: int, what: Hashable, work: Callable[[Log], T]) -> T:
        """As of every log; what ``work`` has found out on the way about all designs is let go of."""
        found = super().fitted(first, what, work)
        if "_first" in self.__dict__:
            log, numbers = self.__dict__["_first"]
            self.__dict__["_first"] = replace(log), numbers
        return found

    def numbers_of_first(self, impressions: int) -> Numbers:
        return self._named(impressions)[1]

    def _named(self, impressions: int) -> tuple[Log, Numbers]:
        known: tuple[Log, Numbers] | None = self.__dict__.get("_first")
        if known is None or len(known[0]) != impressions:
            rows = slice(0, impressions)
            number, flat, numbers = self.columns.flat(self.number[rows])
            log = self._log(rows, number[self.number[rows]], flat)
            if impressions == len(self):
                log = replace(log, left_out=self.left_out, strange_units=self.strange_units)
            self.__dict__["_first"] = known = log, numbers
        return known

    def release(self) -> None:
        """Let go of designs, which can be made flat again."""
        self.__dict__.pop("_first", None)
        self._parts.clear()

    def take(self, impressions: BoolArray | IntArray) -> StoredLog:
        names = ("number", "place", "unit", "time", "clicks")
        columns = {name: getattr(self, name)[impressions] for name in names}
        strange = self.strange_units[np.isin(self.strange_units, columns["unit"])]
        return replace(self, strange_units=strange, known=(), **columns)

    @cached_property
    def arm(self) -> IntArray:
        if not self.plain:
            return np.zeros(len(self), np.int64)
        from_end = self.columns.from_end(self.number, self.place)
        return np.where(from_end > PLAIN, 0, np.where(from_end == PLAIN, 1, -1))

    @cached_property
    def shares(self) -> FloatArray:
        return self.columns.last_weights(self.number) if self.plain else np.zeros((len(self), 2))

    @cached_property
    def apart(self) -> BoolArray:
        return self.columns.differ(self.number)

    @cached_property
    def asked(self) -> tuple[Sequence[str], IntArray]:
        numbers, query = first_seen(self.columns.queries(self.number))
        return _Chosen(self.columns.query_names, numbers), query


class _Chosen(Sequence[str]):
    """Some of many names."""

    def __init__(self, names: Sequence[str], numbers: IntArray) -> None:
        self._names, self._numbers = names, numbers

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return _Chosen(self._names, self._numbers[at])
        return self._names[int(self._numbers[at])]

    def __len__(self) -> int:
        return len(self._numbers)
