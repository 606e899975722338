"""Rules: units that do more than people do are left out whole, whichever ranker gains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ranktrial.analysis import Estimate, estimate
from ranktrial.analysis.guardrails.visitors import heaviest_unit
from ranktrial.log import LeftOut, Log, Rules, apply_rules
from ranktrial.rankings import Mixture, Pair
from ranktrial.users import position_based

PAIR = Pair.from_lists([["x", "y", "z"]], [["z", "y", "x"]], k=3).knowing(theta=[1.0, 0.5, 0.25])
EVEN = Mixture.of_tables([PAIR.top_a, PAIR.top_b], (0.5, 0.5), PAIR.n_documents)
UNITS = [1, 2, 2, 3, 3, 3, 4, 4]
CLICKS = [[0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 1], [1, 0, 0]]


def a_log(rankings: list[int] | None = None) -> Log:
    tables = np.stack([PAIR.top_a[0], PAIR.top_b[0]])
    return Log.of(PAIR, EVEN, tables[rankings or [0, 1] * 4], np.array(CLICKS, bool), units=UNITS)


@pytest.mark.parametrize(
    ("rules", "excluded", "left", "reasons"),
    [
        (Rules(), [], set(), {}),
        (Rules(unit_impressions=3, unit_clicks=4, impression_clicks=3), [], set(), {}),
        (Rules(unit_impressions=2), [], {3}, {"unit_impressions": 1}),
        (Rules(unit_clicks=3), [], {4}, {"unit_clicks": 1}),
        (Rules(unit_clicks=0), [], {2, 3, 4}, {"unit_clicks": 3}),
        (Rules(impression_clicks=2), [], {4}, {"impression_clicks": 1}),
        (Rules(unit_impressions=2, impression_clicks=2), [], {3, 4}, {"unit_impressions": 1, "impression_clicks": 1}),
        (Rules(unit_impressions=2), [3, 2, 99], {2, 3}, {"excluded": 2}),
        (Rules(unit_impressions=0), [], {1, 2, 3, 4}, {"unit_impressions": 4}),
    ],
)
def test_units_are_left_out_whole(rules: Rules, excluded: list[int], left: set[int], reasons: dict[str, int]) -> None:
    log = a_log()
    names = dict(zip(UNITS, log.unit.tolist()))
    kept, out = apply_rules(log, rules, [names.get(unit, -5) for unit in excluded])
    inside = np.array([unit not in left for unit in UNITS])
    np.testing.assert_array_equal(kept.unit, log.unit[inside])
    np.testing.assert_array_equal(kept.clicks, log.clicks[inside])
    assert out == LeftOut(reasons, int((~inside).sum()), int(log.clicks[~inside].sum()))
    assert bool(out) == bool(left)
    assert left or kept is log


def test_rules_do_not_look_at_which_ranker_gains() -> None:
    """The same clicks with A's and B's pages swapped: the same units are left out."""
    rules = Rules(unit_impressions=2, unit_clicks=2, impression_clicks=2)
    one, other = (apply_rules(a_log(rankings), rules) for rankings in ([0, 1] * 4, [1, 0] * 4))
    np.testing.assert_array_equal(one[0].unit, other[0].unit)
    assert one[1] == other[1]


def test_an_estimate_without_a_unit_is_that_of_a_log_without_it() -> None:
    users = position_based(np.array([0.5, 0.3, 0.2]), [1.0, 0.5, 0.25])
    log = Log.simulated(PAIR, EVEN, users, 1_000, seed=1, units=np.where(np.arange(1_000) % 10, np.arange(1_000), 0))
    kept, _ = apply_rules(log, Rules(unit_impressions=50))
    assert len(kept) == 900
    expected = estimate(log.take(np.arange(1_000) % 10 > 0))
    assert (estimate(kept).delta, estimate(kept).standard_error) == (expected.delta, expected.standard_error)


def test_strange_clicks_leave_with_their_unit() -> None:
    log = replace(a_log(), marked={7: np.unique(a_log().unit)})
    kept, _ = apply_rules(log, Rules(unit_impressions=2))
    assert len(kept.marked[7]) == len(log.marked[7]) - 1
    assert set(kept.marked[7]) == set(kept.unit)


@pytest.mark.parametrize(
    ("name", "value"), [("unit_clicks", -1), ("unit_impressions", 2.5), ("impression_clicks", True)]
)
def test_rules_are_whole_numbers(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        Rules(**{name: value})


def test_the_heaviest_unit_and_its_share_of_the_variance() -> None:
    records = [{"query": "q", "a": ["x"], "b": ["y"], "shown": ["x"], "unit": unit} for unit in (7, 8, 9, 9, 10)]
    log = Log.from_records(records, k=1)
    found = Estimate.of(
        np.array([1.0, -1.0, 3.0, 3.0, -6.0]), np.empty(0), largest_weight=1.0, units=log.unit
    )  # mean 0
    assert tuple(heaviest_unit(log, found)) == pytest.approx((log.unit[2], 2 / 5, 36 / (1 + 1 + 36 + 36)))
    two = log.take(slice(0, 2))
    nothing = Estimate.of(np.zeros(2), np.empty(0), largest_weight=1.0, units=two.unit)
    assert heaviest_unit(two, nothing) == (log.unit[0], 0.5, 0.0)
