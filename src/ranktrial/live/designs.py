"""Designs: what may be shown for one query and its two lists, and with what probability, as one mixture of rankings.

The hold-back is nothing but two more rankings of the mixture, A's and B's own, so every impression has one exact
probability and all of them count in the estimate. An A/B test is the mixture of these two alone. The whole mixture is
kept, weights to the last bit: exposures can be worked out anew for another theta, whatever becomes of this code.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, chain, islice, zip_longest
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import FloatArray
from ranktrial.inference.log_sources import NOTHING
from ranktrial.live.known import Known
from ranktrial.methods import Beliefs, LogOpt, Method

ENDED = "\0 the end of a list"
_warm = threading.Event()
Slots = NDArray[np.uint8]


class CorruptDesign(ValueError):  # noqa: N818 (reads as what it says)
    """A stored design is not what was stored."""


@dataclass(frozen=True, eq=False)
class Design:
    """The mixture of rankings of one query. Candidates, the union of both top k, are numbered: a *slot* is such a number.

    Attributes:
        query: What was asked.
        bias: Number of the theta it was made with.
        documents: Id of each candidate.
        a: Slots of A's top k; b: of B's.
        rankings: What may be shown, ``(rankings, k)`` slots, NOTHING past the end; where there is plain traffic the last two
            are A's own and B's own.
        weights: Probability of each.
        below: Documents that can only stand below the top k; where a design was stored, their check sums.
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
    def parts(self) -> tuple[str, int, str, bytes, bytes, bytes, bytes, bytes]:
        """Its columns in the store."""
        documents = json.dumps(self.documents, ensure_ascii=True, separators=(",", ":"))
        weights, rest = self.weights.astype("<f8").tobytes(), self.rest.astype("<u4").tobytes()
        return (
            self.query, self.bias, documents, self.a.tobytes(), self.b.tobytes(), self.rankings.tobytes(), weights, rest,
        )  # fmt: skip

    @cached_property
    def digest(self) -> bytes:
        """Hash of all it holds: equal designs are stored once, and a damaged one is noticed."""
        whole = blake2b(digest_size=16)
        for part in self.parts:
            raw = part if isinstance(part, bytes) else str(part).encode()
            whole.update(len(raw).to_bytes(4, "big") + raw)
        return whole.digest()

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
    def from_parts(cls, digest: bytes, parts: Sequence[object]) -> Design:
        """A design from its columns in the store, checked against its digest. Raises CorruptDesign."""
        try:
            query, bias, documents, a, b, rankings, weights, rest = parts
            assert isinstance(query, str)
            assert isinstance(bias, int)
            blobs = [part for part in (a, b, rankings, weights, rest) if isinstance(part, bytes)]
            names = tuple(json.loads(str(documents)))
            probabilities = np.frombuffer(blobs[3], "<f8").astype(np.float64)
            slots = [np.frombuffer(blob, np.uint8) for blob in blobs[:3]]
            table = slots[2].reshape(len(probabilities), -1)
            checksums = np.frombuffer(blobs[4], "<u4").astype(np.uint32)
            design = cls(query, bias, names, slots[0], slots[1], table, probabilities, checksums)
            if design.digest == digest:
                return design
        except (ValueError, TypeError, AssertionError, IndexError) as problem:
            raise CorruptDesign(f"design {digest.hex()} cannot be read: {problem}") from problem
        raise CorruptDesign(f"design {digest.hex()} does not match its digest")


def checksum(document: str) -> int:
    """CRC-32 of a document's id."""
    return crc32(document.encode())


def make_design(
    query: str,
    a: Sequence[str],
    b: Sequence[str],
    method: Method,
    beliefs: Beliefs,
    *,
    bias: int = 0,
    known: Known | None = None,
) -> Design:
    """The design for two lists without repetition; ``bias`` is the number under which the store has the beliefs.

    >>> from ranktrial.methods import LogOpt
    >>> method = LogOpt(relevance="constant", holdback=0.5, estimate="ips")
    >>> design = make_design("q", ["x", "y"], ["y", "x"], method, Beliefs(np.array([1, 0.5])))
    >>> [("".join(design.top(row)), round(float(weight), 9)) for row, weight in enumerate(design.weights)]
    [('xy', 0.25), ('yx', 0.25), ('xy', 0.25), ('yx', 0.25)]
    """
    k = len(beliefs.theta)
    slot_of: dict[str, int] = {}
    slots = [np.array([slot_of.setdefault(d, len(slot_of)) for d in ranked[:k]], np.int32) for ranked in (a, b)]
    effects = None if known is None else known.effects(query, tuple(slot_of))
    rankings, weights = method.query_policy(slots[0], slots[1], beliefs, effects)
    below = tuple(
        {*a[k:], *b[k:]}.difference(slot_of)
    )  # a tuple of texts is nothing to the garbage collector, a set is
    own = [some.astype(np.uint8) for some in slots]
    # -1 becomes NOTHING
    return Design(query, bias, tuple(slot_of), own[0], own[1], rankings.astype(np.uint8), weights, below)


def warm_up() -> None:
    """Load or compile, once in a process, what a design needs, so that the first request does not wait for it."""
    if not _warm.is_set():
        make_design("q", ["a", "b"], ["b", "a"], LogOpt(), Beliefs(np.array([1.0, 0.5])))
        _warm.set()


def is_warm() -> bool:
    """Whether designs can be made without compiling first."""
    return _warm.is_set()


def page_of(top: Sequence[str], a: Sequence[str], b: Sequence[str], k: int, offset: int, size: int | None) -> list[str]:
    """Part of the top k and what follows from rank k on: what is left of both lists, A's next, B's next, in turn, each once.

    Where the top is shorter than k nothing takes the place of what is missing: a page that begins there ends there.
    """
    end = None if size is None else offset + size
    page = list(top[offset:end])
    if (end is None or end > k) and (len(top) == k or offset >= k):
        order = dict.fromkeys(chain(top, chain.from_iterable(zip_longest(a, b, fillvalue=ENDED))))
        order.pop(ENDED, None)
        page += islice(order, len(top) + max(offset - k, 0), None if end is None else len(top) + end - k)
    return page
