"""A log as analyses see it: columns of all impressions in order of time, and their designs a block of impressions at a time.

Two kinds of things are worked out of a log. What is *fitted* to it (position bias, guesses of relevance) rests on its first
impressions, all of them by default. What impressions are *worth*, given that, is a matter of each block alone. A log that
grows keeps both, so that the next analysis costs what is new; one in memory is a single block, and keeps nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import BoolArray, FloatArray, IntArray, weighted_counts
from ranktrial.inference._kernels import first_places
from ranktrial.inference.units import Cohorts, Units, UnitSums
from ranktrial.position_bias import Counts

if TYPE_CHECKING:
    from ranktrial.inference.log import Log

T = TypeVar("T")
InCohorts = tuple[NDArray[np.int32], FloatArray]  # cohorts that a block has impressions of, and the sum over each
OfBlocks = Sequence[FloatArray] | Callable[[slice], FloatArray]  # numbers of impressions, block by block
GROUPS = 20  # of units, for jackknives


@dataclass
class Kept:
    """What was worked out, by what it is and what it rests on: in this analysis, and in the one before."""

    now: dict[Hashable, Any] = field(default_factory=dict)
    before: dict[Hashable, Any] = field(default_factory=dict)

    def get(self, key: Hashable, work: Callable[[], T]) -> T:
        """What is kept under a key, or found by ``work`` and kept."""
        if key not in self.now:
            self.now[key] = self.before.pop(key) if key in self.before else work()
        found: T = self.now[key]
        return found

    def later(self) -> Kept:
        """For the next analysis, which lets go of what it does not ask for."""
        return Kept(before=self.now)


@dataclass(frozen=True, eq=False)
class Block:
    """Impressions in a row of a log.

    Attributes:
        rows: Which.
        load: Gives them with their designs, numbered by themselves.
        kept: What was worked out of them; None where that is not kept.
    """

    rows: slice
    load: Callable[[], Log]
    kept: Kept | None = None

    def found(self, what: Hashable, work: Callable[[], T]) -> T:
        """What ``work`` finds, or what is kept of that."""
        return work() if self.kept is None else self.kept.get(what, work)


class DocumentOrder(NamedTuple):
    """An order of a log's documents by query, which depends on what they are and not on their numbers.

    Attributes:
        position: In it, of every document by its number.
        document: At each position.
        query: And its query.
    """

    position: IntArray
    document: IntArray
    query: IntArray


class Impressions(ABC):
    """What every log has, whether its designs are all in memory (``Log``) or not.

    Attributes:
        k: Ranks that count.
        unit: Number of each impression's unit.
        time: In microseconds.
        clicks: Which ranks were clicked, ``(impressions, k)``.
        theta: Position bias, where it is known.
        left_out: What was logged but is not in here, and how often.
        strange_units: Units that clicked on what was on none of their pages.
    """

    k: int
    unit: IntArray
    time: IntArray
    clicks: BoolArray
    theta: FloatArray | None
    left_out: Mapping[str, int]
    strange_units: IntArray

    @property
    @abstractmethod
    def arm(self) -> NDArray[np.int8]:
        """Which plain list each impression was drawn as: 1 is A's own, -1 B's own, 0 neither."""

    @property
    @abstractmethod
    def shares(self) -> FloatArray:
        """Probabilities of A's own list and of B's own under each impression's design: ``(impressions, 2)``."""

    @property
    @abstractmethod
    def apart(self) -> BoolArray:
        """Whether the two lists of each impression differ."""

    @property
    @abstractmethod
    def asked(self) -> tuple[Sequence[Hashable], IntArray]:
        """Names of queries, and which of them each impression is of."""

    @property
    @abstractmethod
    def designs(self) -> IntArray:
        """Number of each impression's design."""

    @property
    @abstractmethod
    def blocks(self) -> Sequence[Block]:
        """The impressions, block by block."""

    @property
    @abstractmethod
    def document_order(self) -> DocumentOrder: ...

    @property
    @abstractmethod
    def rank_width(self) -> int:
        """More than any rank of a candidate."""

    @property
    @abstractmethod
    def listed(self) -> int:
        """Number of candidates of all designs that showed an impression."""

    @abstractmethod
    def shown(self, impressions: IntArray) -> NDArray[np.int32]:
        """Slots at each rank of some impressions, -1 for nothing; a slot is a document of one design."""

    @abstractmethod
    def parts(self, groups: int = GROUPS, *, clicked_only: bool = True) -> list[Counts]:
        """Counts of each group of units; without documents that are never clicked, which tell estimators that eliminate
        relevance nothing."""

    @abstractmethod
    def whole(self) -> Log:
        """The log with all of its designs in memory."""

    @abstractmethod
    def first(self, impressions: int) -> Impressions:
        """The first impressions."""

    @abstractmethod
    def take(self, impressions: BoolArray | IntArray | slice) -> Self:
        """The same log of some impressions only."""

    def last(self, impressions: int) -> Self:
        """The last impressions."""
        n = len(self)
        return self if impressions == n else self.take(slice(n - impressions, n))

    def __len__(self) -> int:
        return len(self.unit)

    def release(self) -> None:  # noqa: B027 (a log in memory has nothing else)
        """Let go of what can be made again."""

    # --- units, and columns of some impressions, which a long log has when they are asked for -------------------------

    @cached_property
    def units(self) -> Units:
        return Units.of(self.unit)

    def units_of(self, rows: IntArray) -> Units:
        """Those of some impressions, in order."""
        return self.units if len(rows) == len(self) else Units.of(self.unit[rows])

    def arrivals(self, rows: slice) -> IntArray:
        """The unit of each impression, by its number in the order in which units first came."""
        return self.units.place[rows]

    @property
    def arrived(self) -> IntArray:
        """The impression with which each unit came."""
        return self.units.first

    @cached_property
    def cohorts(self) -> Cohorts:
        return Cohorts.of(self.arrived)

    @cached_property
    def came(self) -> IntArray:
        """When the first unit of each cohort did, in microseconds."""
        return self.times(self.cohorts.first)

    def times(self, at: IntArray) -> IntArray:
        """Of some impressions, in microseconds."""
        return np.asarray(self.time[at])

    def span(self) -> tuple[int, int]:
        """Times of the first impression and of the last one."""
        first, last = self.times(np.array([0, len(self) - 1])).tolist()
        return first, last

    def clicks_on(self, rows: IntArray | slice) -> NDArray[np.int32]:
        """Number of clicks on each of some impressions."""
        return self.clicks_each[rows]

    def plain_in(self, rows: slice) -> tuple[NDArray[np.int8], FloatArray, BoolArray]:
        """``arm``, ``shares`` and ``apart`` of some impressions."""
        return self.arm[rows], self.shares[rows], self.apart[rows]

    @property
    def has_plain(self) -> bool:
        """Whether any impression showed A's own list or B's own."""
        return any(self.by_rows("plain", lambda rows: bool(self.plain_in(rows)[0].any())))

    @property
    @abstractmethod
    def most_designs(self) -> int:
        """There are no more of them."""

    def designs_of(self, rows: slice) -> IntArray:
        """``designs`` of some impressions."""
        return self.designs[rows]

    @property
    def query_names(self) -> Sequence[Hashable]:
        return self.asked[0]

    def query_of(self, rows: IntArray | slice) -> IntArray:
        """The query of each of some impressions, by its number among ``query_names``."""
        return self.asked[1][rows]

    @cached_property
    def clicks_each(self) -> NDArray[np.int32]:
        """Number of clicks on each impression."""
        return np.asarray(self.clicks.sum(1, dtype=np.int32))

    def draws(self, rows: slice) -> BoolArray:
        """Which impressions are draws of their own: a unit that asks the same again, with other lists, has the same luck."""
        return self._draws[rows]

    @cached_property
    def _draws(self) -> BoolArray:
        units, (names, query) = self.units, self.asked
        drawn = units.impressions[units.place] == 1
        back = np.flatnonzero(~drawn)
        once, _ = first_places(units.place[back] * max(len(names), 1) + query[back])
        drawn[back[once]] = True
        return np.asarray(drawn)

    def unit_of(self, rows: slice | IntArray) -> IntArray:
        """``unit`` of some impressions."""
        return self.unit[rows]

    def group(self, groups: int = GROUPS, rows: slice = slice(None)) -> IntArray:
        """The group of units that each impression belongs to, for jackknives."""
        return np.asarray(self.unit_numbers(rows) % np.uint64(groups), np.int64)

    def unit_numbers(self, rows: slice | IntArray) -> NDArray[np.uint64]:
        """Units of some impressions as numbers that are not negative."""
        return np.asarray(self.unit_of(rows).astype(np.int64).view(np.uint64))

    @cached_property
    def fits(self) -> Kept:
        """What was fitted to first impressions."""
        return Kept()

    def fitted(self, first: int, what: Hashable, work: Callable[[Impressions], T]) -> T:
        """What ``work`` fits to the first impressions; ``what`` says what that is and what else it rests on."""
        return self.fits.get((first, what), lambda: work(self.first(first)))

    def by_block(self, what: Hashable, work: Callable[..., T], *known: Sequence[Any]) -> list[T]:
        """What ``work`` finds in each block, given its impressions, which they are, and what is known of each block already.

        It may rest on these, on impressions before them, and on what ``what`` names.
        """
        return self.by_rows(what, lambda load, *of: work(load(), *of), [block.load for block in self.blocks], *known)

    def running(self, what: Hashable, start: T, work: Callable[[Log, slice, T], T]) -> list[T]:
        """What ``work`` finds in each block, given what it found in the block before, and at first ``start``."""
        found = [start]
        for block in self.blocks:
            before = found[-1]
            found.append(block.found(what, lambda block=block, before=before: work(block.load(), block.rows, before)))  # type: ignore[misc]
        return found[1:]

    def by_rows(self, what: Hashable, work: Callable[..., T], *known: Iterable[Any]) -> list[T]:
        """``by_block`` of what needs no designs; nothing is kept of what has no name."""
        if what is None:
            return [work(*of, block.rows) for block, *of in zip(self.blocks, *known)]
        return [
            block.found(what, lambda rows=block.rows, of=of: work(*of, rows)) for block, *of in zip(self.blocks, *known)
        ]

    @cached_property
    def _starts(self) -> dict[int, Block]:
        """Blocks by where they begin."""
        return {block.rows.start: block for block in self.blocks}

    def in_cohorts(self, values: FloatArray, rows: slice) -> InCohorts:
        """The sums of numbers of a block's impressions over the cohorts that these are of."""
        bits = self.cohorts.bits
        cohort = self.arrivals(rows) >> bits
        first, where = first_places(cohort.astype(np.int64, copy=False))
        which = self._starts[rows.start].found(("cohorts", bits), lambda: cohort[first].astype(np.int32))
        return which, weighted_counts(where, values, len(first))

    def added_up(self, blocks: Sequence[InCohorts]) -> FloatArray:
        """The sum over each cohort, given those of all blocks."""
        where, sums = (np.concatenate(of) for of in zip(*blocks))
        return weighted_counts(where, sums, len(self.cohorts))

    def so_far(self, values: FloatArray, rows: slice) -> tuple[FloatArray, float]:
        """What numbers of some impressions add up to before each cohort that comes with these, and in all."""
        first = self.cohorts.first
        come = first[slice(*np.searchsorted(first, (rows.start, rows.stop)))]
        sums = np.append(0.0, np.cumsum(values))
        return sums[come - rows.start], float(sums[-1])

    def before(self, blocks: Sequence[tuple[FloatArray, float]]) -> FloatArray:
        """What numbers of all impressions add up to before each cohort came, given ``so_far`` of all blocks."""
        sums, all_before = [np.empty(0)], 0.0
        for of_block, total in blocks:
            sums.append(all_before + of_block)
            all_before += total
        return np.concatenate(sums)

    def summed(self, what: Hashable, values: OfBlocks) -> FloatArray:
        """The sum over each cohort of numbers of impressions: an array for each block, or what gives that of some impressions;
        ``what`` says what these are.
        """

        def sums(own: Any, rows: slice) -> InCohorts:
            return self.in_cohorts(own(rows) if callable(own) else own, rows)

        of_blocks = [values] * len(self.blocks) if callable(values) else values
        return self.added_up(
            self.by_rows(None if what is None else ("summed", self.cohorts.bits, what), sums, of_blocks)
        )

    def sums_of(self, what: Hashable, values: OfBlocks) -> UnitSums:
        """``summed``, of all impressions."""
        return self.sums_from(self.cohort_sizes, self.summed(what, values))

    def by_cohort(self, what: Hashable, work: Callable[[Log], tuple[FloatArray, T]]) -> tuple[UnitSums, list[T]]:
        """Sums over cohorts of one number per impression, found block by block with something else."""

        def sums(part: Log, rows: slice) -> tuple[InCohorts, T]:
            values, more = work(part)
            return self.in_cohorts(values, rows), more

        found = self.by_block(("by cohort", self.cohorts.bits, what), sums)
        return self.sums_from(self.cohort_sizes, self.added_up([one for one, _ in found])), [more for _, more in found]

    def sums_from(self, impressions: FloatArray, totals: FloatArray) -> UnitSums:
        """Sums over cohorts, without those that have no impressions."""
        there, n = np.flatnonzero(impressions), len(impressions)
        units = min(round(float(impressions.sum())), round(len(there) / max(n, 1) * self.cohorts.count))
        return UnitSums(there, impressions[there], totals[there], units)

    @cached_property
    def cohort_sizes(self) -> FloatArray:
        """Number of impressions of each cohort."""
        return self.summed("impressions", lambda rows: np.ones(rows.stop - rows.start))

    @cached_property
    def clicks_by_cohort(self) -> FloatArray:
        """Number of clicks on the impressions of each cohort."""
        return self.summed("clicks", lambda rows: self.clicks_on(rows).astype(np.float64))
