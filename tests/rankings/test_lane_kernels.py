from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ranktrial.rankings._lane_kernels import LANES, every, load, store, total, where_above
from ranktrial.rankings._race_kernels import COUNTED, SMALL, arrived_early, falling_order

TABLES = np.random.default_rng(0).normal(size=(3, 2, LANES))


def combined(tables: Any, number: Any, out: Any) -> Any:
    """Every operation once; rows of an array of three axes are counted through the first two."""
    a, b, c = load(tables, 0), load(tables, 3), load(tables[2], 1)
    store(out, 0, a * b + c)
    store(out, 1, number * a - b * number)
    store(out, 2, (number - a) + (b - number))
    store(out, 3, where_above(a, number, b, every(number)))
    return total(a * b)


def test_lanes_do_what_rows_of_numbers_do() -> None:
    out = np.empty((4, LANES))
    summed = nb.njit(combined)(TABLES, 0.25, out)
    a, b, c = TABLES[0, 0], TABLES[1, 1], TABLES[2, 1]
    np.testing.assert_array_equal(
        out, [a * b + c, 0.25 * a - b * 0.25, (0.25 - a) + (b - 0.25), np.where(a > 0.25, b, 0.25)]
    )
    np.testing.assert_allclose(summed, a @ b, rtol=1e-13)


@given(st.lists(st.sampled_from([-2.0, 0.0, -0.0, 0.5, 3.0, 1e-300]), min_size=1, max_size=30), st.booleans())
def test_documents_are_sorted_by_falling_score_and_ties_as_they_come(scores: list[float], many: bool) -> None:
    values = np.array(scores * (1 + many * COUNTED))
    np.testing.assert_array_equal(falling_order(values), np.argsort(-values, kind="stable"))


@given(st.floats(0, 2 * SMALL))
def test_the_chance_to_have_arrived_early_is_exact(x: float) -> None:
    np.testing.assert_allclose(arrived_early(x), -np.expm1(-x), rtol=4e-16)
