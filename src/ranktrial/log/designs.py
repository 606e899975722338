"""Designs: the distribution over rankings for one query and its two lists.

A design is stored as it was drawn from, rankings and weights, so that a log never depends on the code that made it.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from struct import Struct
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import FloatArray
from ranktrial.log.sources import NOTHING
from ranktrial.store.base import DesignRow

Slots = NDArray[np.uint8]
Parts = tuple[str, int, str, bytes, bytes, bytes, bytes, bytes]


_length = Struct(">I").pack


class CorruptDesign(ValueError):  # noqa: N818 (reads as what it says)
    """Error for a stored design that cannot be read or does not match its digest."""


@dataclass(frozen=True, eq=False)
class Design:
    """The mixture of rankings of one query. Candidates, the union of both top k, are numbered: a *slot* is such a number.

    Attributes:
        query: The search text.
        bias: Number of the beliefs that it was made from.
        documents: Id of each candidate.
        a: Slots of A's top k.
        b: Slots of B's top k.
        rankings: Rankings that may be shown, ``(rankings, k)`` slots, NOTHING past the end; with A/B traffic the last two are
            A's own list and B's own.
        weights: Probability of each ranking.
        below: Documents that can only stand below the top k; in a stored design, their check sums.
    """

    query: str
    bias: int
    documents: tuple[str, ...]
    a: Slots
    b: Slots
    rankings: Slots
    weights: FloatArray
    below: tuple[str, ...] | NDArray[np.uint32]

    @cached_property
    def rest(self) -> NDArray[np.uint32]:
        """Check sums of the documents below the top k. Not made before the design is stored: that is not in ``rank``."""
        below = self.below
        if isinstance(below, np.ndarray):
            return below
        sums = np.array(sorted(map(checksum, below)), np.uint32)
        object.__setattr__(self, "below", sums)  # lets go of the names, which may be many
        return sums

    @cached_property
    def parts(self) -> Parts:
        """Columns of the design in the store, after its digest."""
        weights, rest = self.weights.astype("<f8").tobytes(), self.rest.astype("<u4").tobytes()
        a, b, rankings = self.a.tobytes(), self.b.tobytes(), self.rankings.tobytes()
        return self.query, self.bias, _text(self.documents), a, b, rankings, weights, rest

    @cached_property
    def digest(self) -> bytes:
        """Hash of all parts: equal designs are stored once, and a damaged one is noticed."""
        return _digest(self.parts)

    @cached_property
    def cumulative(self) -> tuple[float, ...]:
        """Sums of the weights up to each ranking."""
        return tuple(accumulate(self.weights.tolist()))

    @cached_property
    def slot_of(self) -> dict[str, int]:
        """The slot of each candidate."""
        return {document: slot for slot, document in enumerate(self.documents)}

    def row(self, chance: float) -> int:
        """The ranking that a number from 0 to 1 draws."""
        at = bisect_right(self.cumulative, chance * self.cumulative[-1])
        last = len(self.weights) - 1
        while at > last or self.weights[min(at, last)] == 0:  # rounding at the very end must not draw the impossible
            at -= 1
        return at

    def top(self, row: int) -> list[str]:
        """Documents of one ranking, from the top."""
        return [self.documents[slot] for slot in self.rankings[row].tolist() if slot != NOTHING]

    def rank_of(self, row: int, document: str) -> int | None:
        """The rank from 0 of a document on the page, -1 for one on a later page, None for one that is on none."""
        slot = self.slot_of.get(document)
        if slot is None:
            return -1 if checksum(document) in self.rest_sums else None
        return int(self.rankings[row].tobytes().find(slot))

    @cached_property
    def rest_sums(self) -> frozenset[int]:
        """``rest``, to look up in."""
        return frozenset(self.rest.tolist())

    @classmethod
    def from_row(cls, row: DesignRow) -> Design:
        """Build a stored design, checked by its digest. Raises CorruptDesign."""
        _, digest, *parts = row
        try:
            if _digest(parts) != digest:
                raise CorruptDesign(f"design {digest.hex()} does not match its digest")
            weights = np.frombuffer(row.weights, "<f8").astype(np.float64)
            a, b, table = (np.frombuffer(blob, np.uint8) for blob in (row.a, row.b, row.rankings))
            rest = np.frombuffer(row.rest, "<u4").astype(np.uint32)
            design = cls(
                row.query, row.bias, _names(row.documents), a, b, table.reshape(len(weights), -1), weights, rest
            )
        except CorruptDesign:
            raise
        except (ValueError, TypeError, AttributeError) as problem:
            raise CorruptDesign(f"design {digest.hex()} cannot be read: {problem}") from problem
        design.__dict__["digest"] = digest
        return design


def is_sound(row: DesignRow) -> bool:
    """True if a stored design matches its digest."""
    try:
        return _digest(row[2:]) == row.digest
    except (ValueError, TypeError):
        return False


def sound_designs(rows: Iterable[DesignRow]) -> dict[int, Design]:
    """Designs of those rows that match their digest, by id."""
    found: dict[int, Design] = {}
    for row in rows:
        with suppress(CorruptDesign):
            found[row.id] = Design.from_row(row)
    return found


def _digest(parts: Iterable[object]) -> bytes:
    hashed: list[bytes] = []
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        hashed += (_length(len(raw)), raw)
    return blake2b(b"".join(hashed), digest_size=16).digest()


def _text(documents: Sequence[str]) -> str:
    """Ids as one text: on lines, or as JSON where that would be ambiguous."""
    if documents[0].startswith("[") or not "".join(documents).isprintable():
        return json.dumps(documents, ensure_ascii=True, separators=(",", ":"))
    return "\n".join(documents)


def _names(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text) if text.startswith("[") else text.split("\n"))


def checksum(document: str) -> int:
    """CRC-32 of a document's id."""
    return crc32(document.encode())
