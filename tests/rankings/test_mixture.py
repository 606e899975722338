from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import click_patterns, small_users
from ranktrial.arrays import NO_DOCUMENT
from ranktrial.rankings import Mixture


def two_queries() -> Mixture:
    rankings = np.array([[0, 1, 2], [2, 0, NO_DOCUMENT], [4, 3, NO_DOCUMENT]], np.int32)
    return Mixture(rankings, np.array([0.25, 0.75, 1.0]), np.array([0, 2, 3]), 5)


def test_placement_and_exposure_by_hand() -> None:
    mixture = two_queries()
    expected = np.array([[0.25, 0.75, 0], [0, 0.25, 0], [0.75, 0, 0.25], [0, 1, 0], [1, 0, 0]])
    np.testing.assert_allclose(mixture.placement(), expected)
    theta = np.array([1, 0.5, 0.2])
    np.testing.assert_allclose(mixture.exposure(theta), expected @ theta)


@given(st.data())
def test_moments_agree_with_enumeration(data: st.DataObject) -> None:
    mixture = two_queries()
    user = data.draw(small_users(5, 3))
    values = np.array(data.draw(st.lists(st.integers(-5, 5), min_size=9, max_size=9)), float).reshape(3, 3)
    first = second = clicks = 0.0
    for query in range(2):
        for i in range(mixture.offsets[query], mixture.offsets[query + 1]):
            shown = [d for d in mixture.rankings[i] if d != NO_DOCUMENT]
            for pattern, probability in click_patterns(user, shown):
                x = sum(v for v, c in zip(values[i], pattern) if c)
                first += mixture.weights[i] * probability * x / 2
                second += mixture.weights[i] * probability * x**2 / 2
                clicks += mixture.weights[i] * probability * sum(pattern) / 2
    moments = mixture.moments(values, user)
    assert moments.mean == pytest.approx(first, abs=1e-12)
    assert moments.variance == pytest.approx(second - first**2, abs=1e-10)
    assert moments.ctr == pytest.approx(clicks, abs=1e-12)
    assert mixture.ctr(user) == pytest.approx(clicks, abs=1e-12)


@pytest.mark.parametrize(
    ("weights", "offsets", "message"),
    [
        ([0.5, 0.4, 1.0], [0, 2, 3], "query 0 sum to 0.9"),
        ([1.5, -0.5, 1.0], [0, 2, 3], "weight 1 is -0.5, must not be negative"),
        ([0.5, float("nan"), 1.0], [0, 2, 3], "weight 1 is nan"),
        ([0.5, 0.5001, 1.0], [0, 2, 3], "query 0 sum to 1.0001"),
        ([0.5, 0.5, 1.0], [0, 3, 3], "query 1 has no ranking"),
        ([0.5, 0.5], [0, 2, 3], "3 rankings and 2 weights"),
    ],
)
def test_malformed_mixtures_are_refused(weights: list[float], offsets: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mixture(two_queries().rankings, np.array(weights), np.array(offsets), 5)


def test_documents_out_of_range_are_refused() -> None:
    for document in (7, -2):
        with pytest.raises(ValueError, match=r"must be -1 \(nothing\) to 1"):
            Mixture.of_tables([np.array([[0, document]], np.int32)], [1.0], 2)


def test_a_mixture_needs_a_query() -> None:
    with pytest.raises(ValueError, match="at least 1 query"):
        Mixture.of_tables([np.empty((0, 3), np.int32)], [1.0], 2)


def test_values_of_another_shape_are_refused() -> None:
    from ranktrial.users import position_based

    with pytest.raises(ValueError, match="values have shape"):
        two_queries().moments(np.ones((3, 2)), position_based([0.5] * 5, [1, 0.5, 0.2]))
