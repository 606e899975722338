"""Random seeds: an integer or a SeedSequence, given by keyword; the same seed gives the same bytes on any number of workers.

Functions whose result is chance (simulations, training, synthetic sets) require one. Where it decides little, ties between
equal scores or which plausible users are asked, it is 0 by default. Plans of studies and configurations of trials, which are
stored as text, take integers only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Seed = int | np.random.SeedSequence


def sequence(seed: Seed) -> np.random.SeedSequence:
    return seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)


def children(seed: Seed, count: int) -> list[np.random.SeedSequence]:
    """Seeds of parts of a task, the same however often they are asked for (``SeedSequence.spawn`` counts its calls)."""
    parent = sequence(seed)
    return [
        np.random.SeedSequence(parent.entropy, spawn_key=(*parent.spawn_key, i), pool_size=parent.pool_size)
        for i in range(count)
    ]


def kernel_state(seed: Seed) -> NDArray[np.uint64]:
    """State of the generator that compiled loops use (xoshiro256++, see ``ranktrial._kernels``)."""
    return sequence(seed).generate_state(4, np.uint64).astype(np.uint64, copy=False)


def generator(seed: Seed) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(sequence(seed)))
