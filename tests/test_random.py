"""The generator that compiled loops use, and what is built on it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranktrial import seeds
from ranktrial._kernels import alias_tables, below, random_word, threshold, uniform


def plain_xoshiro(state: list[int]) -> int:
    """xoshiro256++ with Python integers, as its authors define it."""
    mask = (1 << 64) - 1

    def rotate(x: int, bits: int) -> int:
        return ((x << bits) | (x >> (64 - bits))) & mask

    result = (rotate((state[0] + state[3]) & mask, 23) + state[0]) & mask
    t = (state[1] << 17) & mask
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= t
    state[3] = rotate(state[3], 45)
    return result


def test_words_are_those_of_xoshiro() -> None:
    state = seeds.kernel_state(42)
    plain = [int(x) for x in state]
    assert [int(random_word(state)) for _ in range(100)] == [plain_xoshiro(plain) for _ in range(100)]
    known = np.array([1, 2, 3, 4], np.uint64)
    assert [int(random_word(known)) for _ in range(3)] == [41943041, 58720359, 3588806011781223]


def test_uniform_and_below_stay_in_range() -> None:
    state = seeds.kernel_state(1)
    draws = np.array([uniform(state) for _ in range(4000)])
    assert draws.min() >= 0
    assert draws.max() < 1
    assert abs(draws.mean() - 0.5) < 4.5 * np.sqrt(1 / 12 / 4000)
    counts = np.bincount([below(state, 7) for _ in range(7000)], minlength=7)
    assert len(counts) == 7
    assert np.all(np.abs(counts - 1000) < 4.5 * np.sqrt(7000 * 6 / 49))


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any), min_size=1, max_size=4))
def test_alias_tables_hold_the_weights(groups: list[list[int]]) -> None:
    """Adding up what every cell keeps and passes on gives back the weights, to 2^-32 a cell."""
    offsets = np.cumsum([0, *map(len, groups)])
    weights = np.array([w for group in groups for w in group], float)
    stay, other = alias_tables(weights, offsets)
    for start, end in itertools.pairwise(offsets):
        n = end - start
        keep = np.where(other[start:end] == np.arange(start, end), 1.0, stay[start:end] / 2**32)
        found = np.bincount(np.arange(n), keep / n) + np.bincount(other[start:end] - start, (1 - keep) / n, n)
        np.testing.assert_allclose(found, weights[start:end] / weights[start:end].sum(), atol=1e-9)


@pytest.mark.parametrize(("p", "expected"), [(0, 0), (0.5, 1 << 31), (1, (1 << 32) - 1), (1.5, (1 << 32) - 1), (-1, 0)])
def test_thresholds(p: float, expected: int) -> None:
    assert int(threshold(p)) == expected


def test_children_of_a_seed_do_not_depend_on_how_many_are_asked_for() -> None:
    few, many = seeds.children(5, 2), seeds.children(5, 4)
    again = seeds.children(seeds.sequence(5), 2)
    for a, b, c in zip(few, many, again):
        assert np.array_equal(seeds.kernel_state(a), seeds.kernel_state(b))
        assert np.array_equal(seeds.kernel_state(a), seeds.kernel_state(c))
    assert len({tuple(seeds.kernel_state(s)) for s in many}) == 4
