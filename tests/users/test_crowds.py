"""Users who compare a page, and crowds: expected clicks and draws against the law of all click patterns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations, product

import numpy as np
import pytest

from ranktrial.arrays import FloatArray
from ranktrial.log import Log
from ranktrial.methods import AB
from ranktrial.rankings import Mixture, Pair, draw_impressions, expected_clicks
from ranktrial.rankings.traffic import draw_clicks
from ranktrial.users import Users, cascade, comparing, crowd, mixed_devices, position_based, rank_decay

ZETA = np.array([0.5, 0.2, 0.9, 0.3, 0.5])
Pattern = tuple[int, ...]
Law = Callable[[Sequence[int]], dict[Pattern, float]]


def of_chances(chances: Sequence[float]) -> dict[Pattern, float]:
    """The law of independent clicks."""
    return {
        clicks: float(np.prod([p if c else 1 - p for c, p in zip(clicks, chances)]))
        for clicks in product((0, 1), repeat=len(chances))
    }


def compared(best: int) -> Law:
    def law(ranking: Sequence[int]) -> dict[Pattern, float]:
        liked = sorted(range(len(ranking)), key=lambda r: (-ZETA[ranking[r]], r))[:best]
        return of_chances([ZETA[d] if r in liked else 0.0 for r, d in enumerate(ranking)])

    return law


def read(theta: FloatArray, leave: float = 0.0) -> Law:
    """The law of those who read from the top and may leave after a click."""

    def law(ranking: Sequence[int]) -> dict[Pattern, float]:
        found = {}
        for clicks in product((0, 1), repeat=len(ranking)):
            reading, gone = 1.0, 0.0  # chance of this pattern so far among those who read on, and who left
            for r, (d, click) in enumerate(zip(ranking, clicks)):
                p = theta[r] * ZETA[d]
                gone = 0.0 if click else gone
                reading, left = (reading * p * (1 - leave), reading * p * leave) if click else (reading * (1 - p), 0.0)
                gone += left
            found[clicks] = reading + gone
        return found

    return law


def mixed(shares: Sequence[float], laws: Sequence[Law]) -> Law:
    def law(ranking: Sequence[int]) -> dict[Pattern, float]:
        parts = [(share, one(ranking)) for share, one in zip(shares, laws)]
        return {clicks: sum(share * part[clicks] for share, part in parts) for clicks in parts[0][1]}

    return law


def world(k: int) -> list[tuple[Users, Law]]:
    theta = rank_decay(k, 0.7)
    phone = np.where(np.arange(k) < 2, theta, 0.0)
    reader, leaver = (
        position_based(ZETA, theta),
        cascade(ZETA, k, leave_after_click=0.5, leave_after_skip=0, theta=theta),
    )
    return [
        (comparing(ZETA, k), compared(2)),
        (comparing(ZETA, k, best=1), compared(1)),
        (crowd([0.15, 0.85], [comparing(ZETA, k), reader]), mixed([0.15, 0.85], [compared(2), read(theta)])),
        (crowd([0.5, 0.5], [position_based(ZETA, phone), reader]), mixed([0.5, 0.5], [read(phone), read(theta)])),
        (crowd([0.3, 0.7], [leaver, reader]), mixed([0.3, 0.7], [read(theta, 0.5), read(theta)])),
        (mixed_devices(ZETA, k, phones=0.6, visible=2), mixed([0.6, 0.4], [read(phone), read(theta)])),
    ]


@pytest.mark.parametrize("k", [3, 5])
@pytest.mark.parametrize("number", range(6))
def test_expected_clicks_are_those_of_all_click_patterns(k: int, number: int) -> None:
    user, law = world(k)[number]
    table = np.array(list(permutations(range(5), k)), np.int32)
    expected = [
        np.sum([p * np.array(clicks) for clicks, p in law(ranking).items()], axis=0) for ranking in table.tolist()
    ]
    np.testing.assert_allclose(expected_clicks(table, user), expected, atol=1e-12)


@pytest.mark.parametrize("number", range(6))
def test_drawn_click_patterns_have_their_law(number: int) -> None:
    n, ranking = 40_000, [3, 2, 0]
    user, law = world(3)[number]
    drawn = draw_clicks(np.tile(np.array(ranking, np.int32), (n, 1)), user, seed=5).astype(int)
    seen = np.bincount(drawn @ [4, 2, 1], minlength=8) / n
    for clicks, p in law(ranking).items():
        away = abs(seen[np.dot(clicks, [4, 2, 1])] - p)
        assert away <= 4.5 * np.sqrt(p * (1 - p) / n) + 1e-12, clicks


def test_short_lists_are_compared_without_what_is_missing() -> None:
    table = np.array([[1, -1, -1], [4, 0, -1], [-1, -1, -1]], np.int32)
    np.testing.assert_allclose(
        expected_clicks(table, comparing(ZETA, 3)), [[0.2, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0] * 3]
    )
    np.testing.assert_allclose(
        expected_clicks(table[:2], comparing(ZETA, 3, best=1)), [[0.2, 0.0, 0.0], [0.5, 0.0, 0.0]]
    )
    assert not draw_clicks(table[2:], comparing(ZETA, 3), seed=1).any()


def test_a_crowd_has_a_true_difference_and_makes_logs() -> None:
    pair = Pair.from_lists([[0, 1, 2]], [[2, 3, 0]], k=3)
    user, law = world(3)[2]
    ctr = [
        sum(p * sum(clicks) for clicks, p in law(shown[0]).items())
        for shown in (pair.top_a.tolist(), pair.top_b.tolist())
    ]
    np.testing.assert_allclose(pair.ctr(user), ctr)
    np.testing.assert_allclose(pair.delta_by_query(user), [ctr[0] - ctr[1]])
    even = Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), pair.n_documents)
    np.testing.assert_allclose(even.ctr(user), np.mean(ctr))
    n = 20_000
    drawn = draw_impressions([even], user, [n], seed=3)
    assert abs(drawn.clicks.sum() / n - np.mean(ctr)) < 4.5 * drawn.clicks.sum(1).std() / np.sqrt(n)
    log = Log.simulated(pair, AB().policy(pair), user, 500, seed=3)
    again = Log.simulated(pair, AB().policy(pair), user, 500, seed=3)
    assert len(log) == 500
    np.testing.assert_array_equal(log.clicks, again.clicks)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: comparing([0.5, 1.5], 2), r"zeta\[1\] is 1.5"),
        (lambda: comparing([0.5], 0), "k is 0, must be at least 1"),
        (lambda: comparing([0.5], 2, best=0), "best is 0, must be at least 1"),
        (lambda: crowd([0.5, 0.6], [comparing([0.5], 1)] * 2), "shares sum to 1.1, must sum to 1"),
        (lambda: crowd([1.0], [comparing([0.5], 1)] * 2), "1 shares for 2 users"),
        (lambda: crowd([], []), "0 shares for 0 users"),
        (lambda: crowd([1.5, -0.5], [comparing([0.5], 1)] * 2), r"shares\[0\] is 1.5"),
        (lambda: expected_clicks(np.array([[0, 1]], np.int32), comparing([0.5, 0.5], 1)), "knows 1 ranks"),
        (
            lambda: expected_clicks(
                np.array([[0, 1]], np.int32), crowd([0.5, 0.5], [comparing([0.5] * n, 2) for n in (1, 2)])
            ),
            "zeta for 1 documents, must have it for all 2",
        ),
    ],
)
def test_impossible_crowds_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()
