"""Random numbers and alias tables for compiled loops.

A NumPy Generator cannot be called cheaply from a compiled loop, so loops carry their own xoshiro256++ state (Blackman and
Vigna 2019), four uint64 seeded by ``ranktrial.seeds.kernel_state``. Bernoulli draws compare 32 random bits with a
threshold, two draws to a word: probabilities are exact to 2^-32.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
from numba.core import event

U64 = np.uint64
_LOW_32_BITS = U64(0xFFFFFFFF)


@nb.njit(inline="always")
def _rotate_left(x: Any, bits: Any) -> Any:
    return (x << U64(bits)) | (x >> U64(64 - bits))


@nb.njit(inline="always")
def random_word(state: Any) -> Any:
    """The next 64 random bits."""
    result = _rotate_left(state[0] + state[3], 23) + state[0]
    t = state[1] << U64(17)
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= t
    state[3] = _rotate_left(state[3], 45)
    return result


@nb.njit(inline="always")
def uniform(state: Any) -> Any:
    """A float in [0, 1) with 53 random bits."""
    return (random_word(state) >> U64(11)) * (1.0 / 9007199254740992.0)


@nb.njit(inline="always")
def below(state: Any, n: Any) -> Any:
    """An integer in 0..n-1 by multiply-shift; each value's probability is exact to 2^-32."""
    return np.int64(((random_word(state) >> U64(32)) * U64(n)) >> U64(32))


@nb.njit(inline="always")
def high_half(word: Any) -> Any:
    return np.uint32(word >> U64(32))


@nb.njit(inline="always")
def low_half(word: Any) -> Any:
    return np.uint32(word & _LOW_32_BITS)


@nb.njit(inline="always")
def threshold(probability: Any) -> Any:
    """The number of 32-bit words out of 2^32 that count as a success."""
    return np.uint32(min(max(probability, 0.0) * 4294967296.0 + 0.5, 4294967295.0))


@nb.njit(inline="always")
def alias_draw(state: Any, start: Any, size: Any, stay: Any, other: Any) -> Any:
    """A cell of the group ``start:start+size`` with the probabilities its alias table was built from."""
    word = random_word(state)
    cell = start + np.int64(((word >> U64(32)) * U64(size)) >> U64(32))
    return cell if low_half(word) < stay[cell] else other[cell]


@nb.njit(cache=True)
def alias_tables(weights: Any, offsets: Any) -> Any:
    """Walker's alias tables of many groups at once: ``stay`` (32-bit threshold) and ``other`` (the cell taken otherwise)."""
    n = weights.shape[0]
    stay = np.empty(n, np.uint32)
    other = np.empty(n, np.int64)
    scaled = np.empty(n, np.float64)
    small = np.empty(n, np.int64)
    large = np.empty(n, np.int64)
    for group in range(offsets.shape[0] - 1):
        start = offsets[group]
        end = offsets[group + 1]
        total = 0.0
        for i in range(start, end):
            total += weights[i]
        n_small = 0
        n_large = 0
        for i in range(start, end):
            scaled[i] = weights[i] * (end - start) / total
            if scaled[i] < 1.0:
                small[n_small] = i
                n_small += 1
            else:
                large[n_large] = i
                n_large += 1
        while n_small > 0 and n_large > 0:
            n_small -= 1
            s = small[n_small]
            big = large[n_large - 1]
            stay[s] = threshold(scaled[s])
            other[s] = big
            scaled[big] -= 1.0 - scaled[s]
            if scaled[big] < 1.0:
                n_large -= 1
                small[n_small] = big
                n_small += 1
        for j in range(n_large):
            stay[large[j]] = np.uint32(4294967295)
            other[large[j]] = large[j]
        for j in range(n_small):
            stay[small[j]] = np.uint32(4294967295)
            other[small[j]] = small[j]
    return stay, other


def cache_folder() -> Path:
    """Folder of Numba's compilation cache: NUMBA_CACHE_DIR, or a ``__pycache__`` folder of the package."""
    return Path(nb.config.CACHE_DIR or alias_tables.stats.cache_path)


class _Compilations(event.Listener):  # type: ignore[misc]  # numba has no types
    def __init__(self, began: Callable[[str], None]) -> None:
        self.began = began

    def on_start(self, event: Any) -> None:
        loop = event.data["dispatcher"].py_func
        if loop.__module__.startswith("ranktrial."):  # not what Numba makes for itself
            self.began(loop.__name__)

    def on_end(self, event: Any) -> None:
        pass


def watching_compilations(began: Callable[[str], None]) -> AbstractContextManager[Any]:
    """A context in which ``began`` is called with the name of each loop that is about to be compiled."""
    listening: AbstractContextManager[Any] = event.install_listener("numba:compile", _Compilations(began))
    return listening
