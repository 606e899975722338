"""Units (visitors, sessions) and sums over the impressions of each, which is all that intervals need.

Different units are independent, and so are *cohorts*, units that first came one after the other. A log with millions of units
is read by cohorts: no more than 131,072 sums, whatever its length, and errors that are hardly less sure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ranktrial import checks
from ranktrial.arrays import FloatArray, IntArray, weighted_counts
from ranktrial.log._kernels import first_places

MOST_COHORTS = 2**17


@dataclass(frozen=True, eq=False)
class Units:
    """Units of a log's impressions, in order of arrival.

    Attributes:
        name: Name of each impression's unit.
        place: Index of each impression's unit, in the order in which they first came.
        first: First impression of each unit.

    >>> units = Units.of(["bob", "ann", "bob"])
    >>> units.names.tolist(), units.place.tolist(), units.first.tolist()
    (['bob', 'ann'], [0, 1, 0], [0, 1])
    """

    name: NDArray[Any]
    place: IntArray
    first: IntArray

    @classmethod
    def of(cls, units: ArrayLike | Units) -> Units:
        """Build the units from one name or number per impression; ``Units`` are returned as they are."""
        if isinstance(units, Units):
            return units
        names = np.asarray(units)
        if names.dtype.kind in "iu" and names.ndim == 1:
            first, place = first_places(names.astype(np.int64, copy=False))
            return cls(names, place, first)
        _, first, place = np.unique(names, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order))
        return cls(names, rank[place], first[order].astype(np.int32))

    def __len__(self) -> int:
        """Number of units."""
        return len(self.first)

    @property
    def names(self) -> NDArray[Any]:
        """Names of the units."""
        return self.name[self.first]

    @cached_property
    def impressions(self) -> FloatArray:
        """Number of impressions of each unit."""
        return np.bincount(self.place, minlength=len(self)).astype(np.float64)

    def sums(self, values: FloatArray) -> FloatArray:
        """The sum of values over each unit; the values themselves where each impression is a unit of its own."""
        return values if len(self) == len(values) else weighted_counts(self.place, values, len(self))


@dataclass(frozen=True, eq=False)
class UnitSums:
    """Number of impressions and sum of values per unit: all that intervals need, and what parts of a log add up to.

    ``UnitSums.of(...) + UnitSums.of(...)`` is the same as one of both parts together; in SQL it is
    ``SELECT unit, count(*), sum(x) FROM log GROUP BY unit ORDER BY min(position)``.

    Attributes:
        units: Names of the units in the order in which they first came; None when every impression is its own unit.
        impressions: Number of impressions of each unit.
        totals: Sum of the values of each unit.
        count: Number of units: more than the number of sums if these are of cohorts.

    >>> sums = UnitSums.of([1.0, 0.0], ["ann", "bob"]) + UnitSums.of([2.0], ["ann"])
    >>> sums.units.tolist(), sums.impressions, sums.totals
    (['ann', 'bob'], array([2., 1.]), array([3., 0.]))
    >>> sums.mean, round(sums.standard_error, 4)
    (1.0, 0.6667)
    """

    units: NDArray[Any] | None
    impressions: FloatArray
    totals: FloatArray
    count: int = -1

    def __post_init__(self) -> None:
        if self.count < 0:
            object.__setattr__(self, "count", len(self.totals))

    @classmethod
    def of(cls, values: ArrayLike | UnitSums, units: ArrayLike | Units | None = None) -> UnitSums:
        """Sum one value per impression over the unit (any name or number) that each impression belongs to.

        ``UnitSums`` are returned as they are.
        """
        if isinstance(values, UnitSums):
            if units is not None:
                raise ValueError("units are given twice: the sums have their own")
            return values
        x = checks.finite("values", values)
        if units is None:
            return cls(None, np.ones(len(x)), x)
        known = Units.of(units)
        if known.place.shape != x.shape:
            raise ValueError(f"units have shape {known.place.shape}, values {x.shape}: must be one each")
        return cls(known.names, known.impressions, known.sums(x))

    @classmethod
    def merged(cls, parts: Iterable[UnitSums]) -> UnitSums:
        """The sums of many parts of one log; the same unit may occur in several."""
        parts = list(parts)
        if not parts:
            raise ValueError("there is nothing to merge: no sums given")
        impressions = np.concatenate([part.impressions for part in parts])
        totals = np.concatenate([part.totals for part in parts])
        named = [part.units for part in parts if part.units is not None]
        if not named:
            return cls(None, impressions, totals)
        if len(named) < len(parts):
            raise ValueError("sums by unit cannot be merged with sums that know no units")
        names, unit = first_seen(np.concatenate(named))
        return cls(names, weighted_counts(unit, impressions, len(names)), weighted_counts(unit, totals, len(names)))

    def __add__(self, other: UnitSums) -> UnitSums:
        return UnitSums.merged([self, other])

    def __len__(self) -> int:
        """Number of units, or of cohorts."""
        return len(self.totals)

    @cached_property
    def together(self) -> float:
        """Units in a cohort."""
        return self.count / max(len(self.totals), 1)

    def places(self, units: ArrayLike) -> IntArray:
        """Number of sums that cover the first n units.

        >>> UnitSums(None, np.ones(3), np.ones(3), count=6).places([1, 2, 3, 6])
        array([1, 1, 2, 3])
        """
        wanted = np.asarray(units, np.int64)
        return wanted if self.together == 1 else np.ceil((wanted - 0.5) / self.together - 1e-9).astype(np.int64)

    def come(self, places: IntArray) -> IntArray:
        """Number of units that the first n sums cover."""
        return places if self.together == 1 else np.rint(places * self.together).astype(np.int64)

    def part(self, some: slice) -> UnitSums:
        """Some of the sums, in a row.

        >>> UnitSums(None, np.ones(3), np.ones(3), count=6).part(slice(1, None)).count
        4
        """
        names, own = None if self.units is None else self.units[some], self.totals[some]
        return UnitSums(names, self.impressions[some], own, round(len(own) * self.together))

    @cached_property
    def mean(self) -> float:
        """Per impression."""
        if len(self.totals) == 0:
            raise ValueError("there are no values, so they have no mean")
        return float(self.totals.sum() / self.impressions.sum())

    @cached_property
    def standard_error(self) -> float:
        """Standard error of the mean, with units independent and impressions of one unit not; nan for a single unit.

        sqrt(G / (G - 1) * sum over units of (sum of (x - mean))^2) / N for G units and N impressions.
        """
        n = len(self.totals)
        if n < 2:
            return float("nan")
        away = self.totals - self.mean * self.impressions
        return float(np.sqrt(n / (n - 1) * (away @ away)) / self.impressions.sum())


@dataclass(frozen=True, eq=False)
class Cohorts:
    """Cohorts of units that arrived one after the other.

    A cohort has as many units, a power of 2, as keeps the number of cohorts at 131,072 or less. With no more units than that,
    each is a cohort of its own.

    Attributes:
        count: Number of units.
        place: Cohort of each impression.
        first: First impression of each cohort.

    >>> cohorts = Cohorts.of(Units.of([7, 8, 9, 7, 6, 5]), most=4)
    >>> cohorts.place.tolist(), cohorts.first.tolist(), cohorts.by([1, 1, 1, 1, 1, 1])
    ([0, 0, 1, 0, 1, 2], [0, 2, 5], array([3., 2., 1.]))
    """

    count: int
    place: IntArray
    first: IntArray

    @classmethod
    def of(cls, units: Units, most: int | None = None) -> Cohorts:
        """Put units together."""
        n = len(units.first)
        bits = max((n - 1).bit_length() - ((most or MOST_COHORTS) - 1).bit_length(), 0)
        return cls(n, units.place >> bits if bits else units.place, units.first[:: 1 << bits].copy())

    def by(self, values: ArrayLike, at: IntArray | None = None) -> FloatArray:
        """The sum over each cohort of one number per impression, or per impression ``at`` some places."""
        place = self.place if at is None else self.place[at]
        return np.bincount(place, values, len(self.first)).astype(np.float64, copy=False)

    def sums(self, values: ArrayLike, at: IntArray | None = None) -> UnitSums:
        """Sums of them with the number of impressions, without cohorts that have none."""
        impressions = self.sizes if at is None else self.by(np.ones(len(at)), at)
        there, totals = np.flatnonzero(impressions), self.by(values, at)
        units = min(round(float(impressions.sum())), round(len(there) / max(len(self.first), 1) * self.count))
        return UnitSums(there, impressions[there], totals[there], units)

    @cached_property
    def sizes(self) -> FloatArray:
        """Number of impressions of each cohort."""
        return self.by(np.ones(len(self.place)))

    def __len__(self) -> int:
        return len(self.first)


def first_seen(names: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """Distinct names in the order in which they first came, and the place of each given name among them.

    >>> names, place = first_seen(np.array([7, 3, 7]))
    >>> names.tolist(), place.tolist()
    ([7, 3], [0, 1, 0])
    """
    units = Units.of(names)
    return units.names, units.place
