"""Document effects of a trial: how much more or less relevant each document is for its query than its ranks predict.

Fitted when a trial learns, from the whole log; read when a design is made, for a dozen documents at a time. Names are not kept,
only hashes: any relevance leaves estimates unbiased, so that two names with one hash do no harm.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from ranktrial.arrays import FloatArray, IntArray

LEAST = 0.005  # of an effect, which a design would hardly notice
MOST = 100_000  # documents


@dataclass(frozen=True, eq=False)
class Known:
    """Effects of documents, by their hash.

    >>> known = Known.of(["shoes"], ["red", "blue"], np.array([0, 0]), np.array([0.25, -0.001]))
    >>> known.effects("shoes", ["red", "blue", "new"]), len(known)
    (array([0.25, 0.  , 0.  ]), 1)
    >>> Known.from_bytes(known.to_bytes()).effects("shoes", ["red"])
    array([0.25])
    """

    keys: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    values: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))

    @classmethod
    def of(
        cls, queries: Sequence[Hashable], documents: Sequence[Hashable], document_query: IntArray, effects: FloatArray
    ) -> Known:
        """Build from effects in the numbering of a log; only the strongest ones if there are very many."""
        worth = np.flatnonzero(np.abs(effects) >= LEAST)
        if len(worth) > MOST:
            worth = worth[np.argpartition(-np.abs(effects[worth]), MOST)[:MOST]]
        names: dict[int, bytes] = {}
        keys = np.empty(len(worth), np.uint64)
        for place, document in enumerate(worth.tolist()):
            query = int(document_query[document])
            if query not in names:
                names[query] = query_key(str(queries[query]))
            keys[place] = document_key(names[query], str(documents[document]))
        order = np.argsort(keys)
        return cls(keys[order], effects[worth[order]].astype(np.float32))

    def effects(self, query: str, documents: Sequence[str]) -> FloatArray | None:
        """Effect of each document; None if none of them is known."""
        if not len(self.keys):
            return None
        name = query_key(query)
        wanted = np.array([document_key(name, document) for document in documents], np.uint64)
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        found = self.keys[place] == wanted
        return np.where(found, self.values[place], 0.0).astype(np.float64) if found.any() else None

    def to_bytes(self) -> bytes:
        return self.keys.astype("<u8").tobytes() + self.values.astype("<f4").tobytes()

    @classmethod
    def from_bytes(cls, raw: bytes) -> Known:
        n = len(raw) // 12
        keys, values = np.frombuffer(raw, "<u8", n), np.frombuffer(raw, "<f4", n, offset=8 * n)
        return cls(keys.astype(np.uint64), values.astype(np.float32))

    def __len__(self) -> int:
        return len(self.keys)


def query_key(query: str) -> bytes:
    """Hash of a query, which keys of its documents are made with."""
    return blake2b(query.encode(errors="surrogatepass"), digest_size=32).digest()


def document_key(query: bytes, document: str) -> int:
    """Hash of a document of a query."""
    return int.from_bytes(blake2b(document.encode(errors="surrogatepass"), digest_size=8, key=query).digest(), "little")
