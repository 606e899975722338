from __future__ import annotations

import numpy as np
import pytest

from ranktrial.rankings import expected_clicks
from ranktrial.users import cascade, position_based, rank_decay, trust_bias

TABLE = np.array([[0, 1, 2]], np.int32)
ZETA = [0.5, 0.2, 1.0]


def test_position_based_clicks() -> None:
    user = position_based(ZETA, rank_decay(3))
    np.testing.assert_allclose(expected_clicks(TABLE, user), [[0.5, 0.1, 1 / 3]])
    assert user.reads_on


def test_trust_bias_is_affine_in_relevance() -> None:
    user = trust_bias(ZETA, [1, 0.5, 0.5], relevant=[0.9, 0.8, 0.8], irrelevant=[0.4, 0.2, 0.1])
    expected = [0.5 * 0.9 + 0.5 * 0.4, 0.5 * (0.2 * 0.8 + 0.8 * 0.2), 0.5 * 0.8]
    np.testing.assert_allclose(expected_clicks(TABLE, user), [expected])
    assert user.reads_on


def test_cascade_readers_leave() -> None:
    user = cascade(ZETA, 3, leave_after_click=0.5, leave_after_skip=0.1)
    second = 0.5 * 0.5 + 0.5 * 0.9
    third = second * (0.2 * 0.5 + 0.8 * 0.9)
    np.testing.assert_allclose(expected_clicks(TABLE, user), [[0.5, second * 0.2, third]])
    assert not user.reads_on


def test_cascade_readers_may_also_overlook() -> None:
    user = cascade(ZETA, 3, leave_after_click=0.5, leave_after_skip=0.1, theta=[0.8, 0.5, 0.5])
    second = 0.4 * 0.5 + 0.6 * 0.9
    third = second * (0.1 * 0.5 + 0.9 * 0.9)
    np.testing.assert_allclose(expected_clicks(TABLE, user), [[0.4, second * 0.1, third * 0.5]])


def test_position_bias_exponent() -> None:
    np.testing.assert_allclose(rank_decay(3, 2), [1, 1 / 4, 1 / 9])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: position_based([0.5, 1.2], [1.0]), r"zeta\[1\] is 1.2, must be between 0 and 1"),
        (lambda: position_based([0.5], [1.0, float("nan")]), r"theta\[1\] is nan"),
        (lambda: trust_bias([0.5], [1, 1], relevant=[1], irrelevant=[0, 0]), "must agree"),
        (lambda: trust_bias([0.5], [1], relevant=[0.2], irrelevant=[0.5]), r"irrelevant\[0\] is 0.5, must be at most"),
        (lambda: cascade([0.5], 2, leave_after_click=2), "leave_after_click is 2"),
        (lambda: cascade([0.5], 2, theta=[1]), "theta has 1 ranks, must have k = 2"),
        (lambda: rank_decay(0), "k is 0, must be at least 1"),
        (lambda: rank_decay(3, float("nan")), "eta is nan"),
    ],
)
def test_impossible_users_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()
