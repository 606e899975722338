"""Segments of searches: attributes that are declared with a trial, each a closed list of values, given with every search.

A search has one value of each attribute, "other" where it was given none that is known. All its values together are one small
number, its *code*: the numbers of its values in a mixed radix, where 0 is "other" everywhere.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ranktrial.arrays import IntArray
from ranktrial.texts import label

OTHER, HEAD, TAIL = "other", "head", "tail"
HEAD_TAIL = "head/tail"  # instead of a list: by how often a query was asked so far
MOST_ATTRIBUTES, MOST_VALUES, LONGEST = 5, 60, 40
Codes = TypeVar("Codes", int, IntArray)
Declared = tuple[str, ...] | str


class Code(NamedTuple):
    """Number of a search's values, and why some of them are "other"."""

    code: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Segments:
    """Declared attributes and their values.

    Attributes:
        attributes: Name and values of each, without "other".
        by_traffic: Names of those that are head or tail of the trial's own traffic, and are not given with a search.

    >>> segments = Segments.of({"device": ["phone", "desktop"], "query": "head/tail"})
    >>> segments.code({"device": "desktop"}, HEAD), segments.code({"device": "fridge"})
    (Code(code=5, problems=()), Code(code=0, problems=('device is not a declared value',)))
    >>> segments.decoded(5)
    {'device': 'desktop', 'query': 'head'}
    """

    attributes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    by_traffic: frozenset[str] = frozenset()

    @classmethod
    def of(cls, declared: Mapping[str, Sequence[str] | str]) -> Segments:
        """Build from attributes as they are declared, checked; the order of attributes is that of their names."""
        known = checked(declared)
        both = {name: (HEAD, TAIL) if isinstance(values, str) else values for name, values in known.items()}
        return cls(tuple(both.items()), frozenset(name for name, values in known.items() if isinstance(values, str)))

    def __bool__(self) -> bool:
        return bool(self.attributes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.attributes)

    @cached_property
    def _declared(self) -> frozenset[str]:
        return frozenset(self.names)

    def values(self, name: str) -> tuple[str, ...]:
        """Values of an attribute, "other" first."""
        found = dict(self.attributes).get(name)
        if found is None:
            raise ValueError(f"there is no attribute {name!r}; attributes are {', '.join(self.names) or 'none'}")
        return OTHER, *found

    @cached_property
    def _numbers(self) -> tuple[tuple[str, int, dict[str, int]], ...]:
        """Name, factor and number of each value, of every attribute."""
        found, factor = [], 1
        for name, values in self.attributes:
            found.append((name, factor, {value: number for number, value in enumerate(values, 1)}))
            factor *= len(values) + 1
        return tuple(found)

    def code(self, given: object = None, traffic: str = OTHER) -> Code:
        """The code of a search, given its values and whether its query is of the head or the tail; never raises."""
        code, problems = 0, []
        values = given if isinstance(given, Mapping) else {}
        for name, factor, numbers in self._numbers:
            value = traffic if name in self.by_traffic else values.get(name)
            number = numbers.get(value) if isinstance(value, str) else None
            if number is not None:
                code += factor * number
            elif value is None:
                problems.append(f"{name} is not given")
            elif value != OTHER:
                problems.append(f"{name} is not a declared value")
        if given is not None and (not isinstance(given, Mapping) or not self._declared.issuperset(values)):
            problems.append("what is given is not declared")
        return Code(code, tuple(problems))

    def levels(self, name: str, codes: Codes) -> Codes:
        """Number of the value of an attribute, 0 for "other", of one code or of many."""
        many = len(self.values(name))  # refuses what is no attribute
        return codes // next(factor for one, factor, _ in self._numbers if one == name) % many

    def decoded(self, code: int) -> dict[str, str]:
        """Value of each attribute."""
        return {name: (OTHER, *numbers)[code // factor % (len(numbers) + 1)] for name, factor, numbers in self._numbers}

    def codes(self, given: Iterable[Mapping[str, Any] | None]) -> IntArray:
        """Codes of many searches, whose values of all attributes are given."""
        every = Segments(self.attributes)
        return np.array([every.code(one).code for one in given], np.int64)

    @property
    def size(self) -> int:
        """More than any code."""
        return int(np.prod([len(values) + 1 for _, values in self.attributes], dtype=np.int64))


NO_SEGMENTS = Segments()


def checked(declared: Mapping[str, Sequence[str] | str]) -> dict[str, Declared]:
    """Declared attributes in the order of their names; an error says what is wrong with one."""
    found: dict[str, Declared] = {}
    for name, values in sorted(declared.items()):
        label("segments: an attribute's name is", name, LONGEST)
        if isinstance(values, str):
            if values != HEAD_TAIL:
                raise ValueError(f"segments: {name} is {values!r}, must be a list of values, or {HEAD_TAIL!r}")
            found[name] = values
            continue
        for value in values:
            label(f"segments: a value of {name} is", value, LONGEST)
        if OTHER in values:
            raise ValueError(f"segments: {name} has the value {OTHER!r}, which every attribute has by itself")
        if not values or len(set(values)) < len(values):
            raise ValueError(f"segments: {name} has the values {list(values)}, must be at least one, each once")
        found[name] = tuple(values)
    many = sum(2 if isinstance(values, str) else len(values) for values in found.values())
    if len(found) > MOST_ATTRIBUTES or many > MOST_VALUES:
        raise ValueError(
            f"segments: {len(found)} attributes with {many} values in all, must be at most {MOST_ATTRIBUTES} with "
            f"{MOST_VALUES}: leave rare values out, they count as other"
        )
    return found


class Traffic:
    """Counts of queries so far, by which a search is of the head or the tail before it is shown.

    The head are the queries asked at least so often that they made half of the searches together. That threshold moves by at
    most one with every search, so that a search takes the same time whatever came before it, and begins after 1,000 searches.
    Counts are by a hash of 20 bits in four megabytes: queries that share one are counted together.

    >>> traffic = Traffic()
    >>> [traffic.part_of("shoes") for _ in range(1_001)][-2:], traffic.part_of("socks")
    (['other', 'head'], 'tail')
    """

    FIRST, CELLS = 1_000, 2**20

    def __init__(self) -> None:
        self._counts = array("I", bytes(4 * self.CELLS))
        self._queries = dict[int, int]()  # number of them, by how often they were asked
        self._searches = self._of_head = 0
        self._threshold = 1

    def part_of(self, query: str) -> str:
        """Part of the traffic so far that a query belongs to; counts the search."""
        cell = self._cell(query)
        part = OTHER if self._searches < self.FIRST else HEAD if self._counts[cell] >= self._threshold else TAIL
        self._count(cell, 1)
        at_threshold = self._threshold * self._queries.get(self._threshold, 0)
        if 2 * (self._of_head - at_threshold) >= self._searches:
            self._of_head -= at_threshold
            self._threshold += 1
        elif 2 * self._of_head < self._searches:
            self._threshold -= 1
            self._of_head += self._threshold * self._queries.get(self._threshold, 0)
        return part

    def add(self, searches: Iterable[tuple[str, int]]) -> None:
        """Count queries that were asked before, each so many times."""
        for query, times in searches:
            self._count(self._cell(query), times)
        self._of_head = 0
        for threshold in sorted(self._queries, reverse=True):
            self._threshold = threshold
            self._of_head += threshold * self._queries[threshold]
            if 2 * self._of_head >= self._searches:
                break

    def _cell(self, query: str) -> int:
        hashed = blake2b(query.encode(errors="surrogatepass"), digest_size=8).digest()
        return int.from_bytes(hashed, "little") % self.CELLS

    def _count(self, cell: int, times: int) -> None:
        before, queries = self._counts[cell], self._queries
        after = self._counts[cell] = before + times
        queries[after] = queries.get(after, 0) + 1
        if before and (left := queries.pop(before) - 1):
            queries[before] = left
        self._searches += times
        self._of_head += (after if after >= self._threshold else 0) - (before if before >= self._threshold else 0)
