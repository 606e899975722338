"""Designs: what may be shown for one query and its two lists, and with what probability, as one mixture of rankings.

The hold-back is nothing but two more rankings of the mixture, A's and B's own, so every impression has one exact
probability and all of them count in the estimate. An A/B test is the mixture of these two alone.

What is stored of a design is what it was made from: both lists, and the number of the beliefs, which the store has. It is made
anew when it is read, and checked by its digest: where lists are personal there are as many designs as impressions.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, chain, islice, zip_longest
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import FloatArray
from ranktrial.inference.log_sources import NOTHING
from ranktrial.live.known import Known
from ranktrial.methods import Beliefs, LogOpt, Method

ENDED = "\0 the end of a list"
FINENESS = 2.0**40  # weights are compared in steps of its inverse: another processor may round otherwise
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
        whole: Whether it is stored with rankings and weights: the store does not know the beliefs, or is of an earlier version.
    """

    query: str
    bias: int
    documents: tuple[str, ...]
    a: Slots
    b: Slots
    rankings: Slots
    weights: FloatArray
    below: tuple[str, ...] | NDArray[np.uint32]
    whole: bool = True

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
    def parts(self) -> tuple[str, int, str, bytes, bytes, bytes, bytes, bytes, bytes]:
        """Its columns in the store."""
        documents = _text(self.documents, self.whole)
        rest, a, b = self.rest.astype("<u4").tobytes(), self.a.tobytes(), self.b.tobytes()
        if not self.whole:  # slots are given out to A's list first
            return self.query, self.bias, documents, b"", b"", b"", b"", rest, bytes([len(a)]) + b
        weights = self.weights.astype("<f8").tobytes()
        return self.query, self.bias, documents, a, b, self.rankings.tobytes(), weights, rest, b""

    @cached_property
    def digest(self) -> bytes:
        """Hash of all it holds: equal designs are stored once, and a damaged one is noticed."""
        query, bias, documents, *_, rest, _ = self.parts
        return self._digest(query, bias, documents, rest)

    def _digest(self, query: str, bias: int, documents: str, rest: bytes) -> bytes:
        weights = self.weights.astype("<f8") if self.whole else np.rint(self.weights * FINENESS).astype("<i8")
        hashed = []
        for part in (query, bias, documents, self.a, self.b, self.rankings, weights, rest):
            raw = str(part).encode() if isinstance(part, str | int) else bytes(part)
            hashed += [len(raw).to_bytes(4, "big"), raw]
        return blake2b(b"".join(hashed), digest_size=16).digest()

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
    def many(cls, rows: Sequence[tuple[bytes, Sequence[Any]]], maker: Maker) -> list[Design | None]:
        """``from_parts`` of many designs with the same beliefs that are stored as what they were made from; None for those that
        it has to say something about.
        """
        names = [_names(documents) for _, (_, _, documents, *_) in rows]
        # Slots are given out to A's list first.
        slots = [(np.arange(lists[0], dtype=np.uint8), np.frombuffer(lists[1:], np.uint8)) for _, (*_, lists) in rows]
        effects = [maker.known.effects(parts[0], known) for (_, parts), known in zip(rows, names)]
        lists = [(a.astype(np.int32), b.astype(np.int32)) for a, b in slots]
        policies = maker.method.query_policies(lists, maker.beliefs, effects)
        designs: list[Design | None] = []
        for (digest, parts), known, (a, b), (rankings, weights) in zip(rows, names, slots, policies):
            query, bias, documents, *_, rest, _ = parts
            sums = np.frombuffer(rest, "<u4").astype(np.uint32)
            design = cls(query, bias, known, a, b, rankings.astype(np.uint8), weights, sums, whole=False)
            sound = design._digest(query, bias, documents, rest) == digest
            design.__dict__["digest"] = digest
            designs.append(design if sound else None)
        return designs

    @classmethod
    def from_parts(cls, digest: bytes, parts: Sequence[object], maker: Maker | None = None) -> Design:
        """A design from its columns in the store and what it was made by, checked by its digest. Raises CorruptDesign."""
        try:
            query, bias, documents, a, b, rankings, weights, rest, lists = parts
            assert isinstance(query, str)
            assert isinstance(bias, int)
            blobs = [part for part in (a, b, rankings, weights, rest, lists) if isinstance(part, bytes)]
            names = _names(str(documents))
            checksums = np.frombuffer(blobs[4], "<u4").astype(np.uint32)
            if blobs[5]:
                if maker is None:
                    raise CorruptDesign(
                        f"design {digest.hex()} was made with beliefs {bias}, which are not in the store"
                    )
                made = maker.make(query, names[: blobs[5][0]], [names[slot] for slot in blobs[5][1:]], bias)
                design = replace(made, below=checksums)
            else:
                probabilities = np.frombuffer(blobs[3], "<f8").astype(np.float64)
                slots = [np.frombuffer(blob, np.uint8) for blob in blobs[:3]]
                table = slots[2].reshape(len(probabilities), -1)
                design = cls(query, bias, names, slots[0], slots[1], table, probabilities, checksums)
            if design._digest(query, bias, str(documents), blobs[4]) == digest:
                design.__dict__["digest"] = digest
                return design
        except (ValueError, TypeError, AssertionError, IndexError) as problem:
            raise CorruptDesign(f"design {digest.hex()} cannot be read: {problem}") from problem
        raise CorruptDesign(f"design {digest.hex()} does not match its digest")


@dataclass(frozen=True, eq=False)
class Maker:
    """What designs are made by: a method, and what it believes of users and of single documents."""

    method: Method
    beliefs: Beliefs
    known: Known

    def make(self, query: str, a: Sequence[str], b: Sequence[str], bias: int) -> Design:
        """The design for two lists; ``bias`` is the number that the store has the beliefs by."""
        return make_design(query, a, b, self.method, self.beliefs, bias=bias, known=self.known)


def _text(documents: Sequence[str], as_json: bool) -> str:
    """Ids as one text: on lines, or as JSON where that could not be told apart."""
    if as_json or documents[0].startswith("[") or not "".join(documents).isprintable():
        return json.dumps(documents, ensure_ascii=True, separators=(",", ":"))
    return "\n".join(documents)


def _names(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text) if text.startswith("[") else text.split("\n"))


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
    """The design for two lists without repetition; ``bias`` is the number by which the store has the beliefs, 0 if it has not.

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
    table = rankings.astype(np.uint8)
    return Design(query, bias, tuple(slot_of), own[0], own[1], table, weights, below, whole=bias == 0)


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
