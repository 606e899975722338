"""Statistics of a log: what each chunk of it contributes, and what comes out of the contributions of all.

A contribution depends on its chunk, on what stands before it, and on the beliefs that the statistic is made with, such as
theta; nothing that comes later changes it. So a log that grows keeps contributions (``Kept``), and what was fitted to its first
impressions, until an earlier impression changes, as by a late click, or the beliefs do.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from ranktrial.log.log import Log

Part = TypeVar("Part")
Found = TypeVar("Found")
CHUNK = 65_536  # impressions that are worked on at a time: what is made of them on the way is then small
SHARED = 4  # times as many where they share a few designs, each of which is worked on once in every chunk
MOST_KEPT = 2_000_000  # impressions of a log whose contributions are kept: all of them take about 150 bytes of each
MOST_FITS = 32  # that are kept


@dataclass(frozen=True)
class Statistic(Generic[Part, Found]):
    """A question to a log, answered by going through its chunks in order.

    Attributes:
        name: Name of the statistic; of those with one name the last is kept.
        beliefs: Everything but the log that contributions depend on; None for a statistic that is not kept.
        contribution: Contribution of a chunk, given its range among the impressions and the contribution of the chunk before
            it, which only sequences look at; None for the first.
        result: Result from the contributions of all chunks, in order.

    >>> from ranktrial.log import Log
    >>> search = {"query": "q", "a": ["x"], "b": ["y"], "shown": ["x"], "clicked": ["x"]}
    >>> clicks = Statistic("clicks", (), lambda rows, part, before: int(part.clicks.sum()), sum)
    >>> fold(Log.from_records([search] * 3, k=1), clicks)
    [3]
    """

    name: str
    beliefs: tuple[Hashable, ...] | None
    contribution: Callable[[slice, Log, Part | None], Part]
    result: Callable[[Sequence[Part]], Found]


class Kept:
    """Contributions of the chunks of a log, and fits to its first impressions, each with what it rests on.

    Attributes:
        grows: True if contributions are kept for the log that comes after it, which has more impressions.
    """

    def __init__(self, *, grows: bool = False) -> None:
        self.grows = grows
        self._contributions: dict[str, tuple[tuple[Hashable, ...], list[bytes], list[Any]]] = {}
        self._fits: dict[Hashable, tuple[int, bytes, Any]] = {}
        self._hashes: WeakKeyDictionary[Log, dict[tuple[int, int], bytes]] = WeakKeyDictionary()  # of its blocks

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        """Pickle as empty: a log elsewhere is another log."""
        return Kept, ()

    @cached_property
    def of_some(self) -> Kept:
        """Contributions and fits of the log without the units that rules leave out."""
        return Kept(grows=self.grows)

    def contributions(self, statistic: Statistic[Part, Any], digests: Sequence[bytes]) -> list[Part]:
        """Contributions of the first chunks, as far as these are the same as when they were kept."""
        beliefs, before, parts = self._contributions.get(statistic.name, (None, [], []))
        if statistic.beliefs is None or beliefs != statistic.beliefs:
            return []
        same = [one == other for one, other in zip(before, digests)]
        return parts[: same.index(False) if False in same else len(same)]

    def keep(
        self, statistic: Statistic[Part, Any], beliefs: tuple[Hashable, ...], digests: list[bytes], parts: list[Part]
    ) -> None:
        """Keep the contributions of all chunks, instead of those under the same name before."""
        self._contributions[statistic.name] = beliefs, digests, parts

    def digest(self, log: Log, first: int) -> bytes:
        """Hash of the first impressions and their clicks; designs of a log that grows stay what they are."""
        found, hashes = blake2b(digest_size=16), self._hashes.setdefault(log, {})
        for start in range(0, first, CHUNK):
            rows = start, min(start + CHUNK, first)
            if rows not in hashes:
                block = blake2b(digest_size=16)
                for column in log.columns(slice(*rows)).values():
                    block.update(column.tobytes())
                hashes[rows] = block.digest()
            found.update(hashes[rows])
        return found.digest()

    def fitted(
        self, log: Log, first: int, name: str, beliefs: tuple[Hashable, ...], fit: Callable[[Log], Found]
    ) -> Found:
        """Fit to the first impressions of a log, unless that has been done; ``beliefs`` are its other inputs."""
        digest = self.digest(log, first) if self.grows else b""
        known = self._fits.pop((name, beliefs), None)
        found: Found = known[2] if known is not None and known[:2] == (first, digest) else fit(log.first(first))
        while len(self._fits) >= MOST_FITS:
            del self._fits[next(iter(self._fits))]
        self._fits[name, beliefs] = first, digest, found
        return found


def fold(log: Log, *statistics: Statistic[Any, Any]) -> list[Any]:
    """Work out statistics in one pass through a log: the result of each."""
    ranges, kept = ranges_of(log), log.kept
    digests = [kept.digest(log, rows.stop) for rows in ranges] if kept.grows else []
    parts = [kept.contributions(one, digests) for one in statistics]
    for number, rows in enumerate(ranges):
        waiting = [(one, so_far) for one, so_far in zip(statistics, parts) if len(so_far) == number]
        chunk = _chunk(log, rows) if waiting else log
        for one, so_far in waiting:
            so_far.append(one.contribution(rows, chunk, so_far[-1] if so_far else None))
    for one, so_far in zip(statistics, parts):
        if kept.grows and one.beliefs is not None and ranges[-1].stop <= MOST_KEPT:
            kept.keep(one, one.beliefs, digests, so_far)
    return [one.result(so_far) for one, so_far in zip(statistics, parts)]


def ranges_of(log: Log) -> list[slice]:
    """Ranges of the impressions of each chunk."""
    n, size = len(log.design), CHUNK if len(log.query) > CHUNK // 4 else SHARED * CHUNK
    return [slice(start, min(start + size, n)) for start in range(0, max(n, 1), size)]


def _chunk(log: Log, rows: slice) -> Log:
    """The log of some impressions in a row, with the designs that it needs."""
    n = len(log.design)
    if rows == slice(0, n):
        return log
    part = replace(log, marked={}, events=log.events.take(rows, n), **log.columns(rows))
    return part if len(log.query) <= CHUNK // 4 else part.compact()
