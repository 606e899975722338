"""One visitor who comes often: errors over units hold, errors over impressions do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ranktrial.analysis import estimate
from ranktrial.log import Log
from ranktrial.rankings import Mixture, Pair
from ranktrial.users import User, position_based

THETA = [1.0, 0.5]
QUERIES, IMPRESSIONS = 20, 4_000  # the last query is asked by one visitor only, who makes 5 % of all searches
PAIR = Pair.from_lists(
    [[(q, "x"), (q, "y")] for q in range(QUERIES)], [[(q, "y"), (q, "x")] for q in range(QUERIES)], k=2
).knowing(theta=THETA)
EVEN = Mixture.of_tables([PAIR.top_a, PAIR.top_b], (0.5, 0.5), PAIR.n_documents)


def users(likes: str) -> User:
    """Nobody prefers x to y but the one visitor, who likes one of them."""
    zeta = np.full(PAIR.n_documents, 0.2)
    zeta[PAIR.ids.index((QUERIES - 1, likes))] = 0.6
    return position_based(zeta, THETA)


@pytest.mark.slow
def test_one_visitor_with_a_twentieth_of_the_searches_decides_nothing() -> None:
    """The visitor may like either as well, so that there is no difference to be found. D6: 16 % by impression, 1 % by unit."""
    wrong = {"impressions": 0, "units": 0}
    runs = 200
    for run in range(runs):
        log = Log.simulated(PAIR, EVEN, users("xy"[run % 2]), IMPRESSIONS, seed=run)
        heavy = log.query[log.design] == QUERIES - 1
        log = replace(log, unit=np.where(heavy, -1, np.arange(len(log))))
        for independent in wrong:
            found = estimate(log, estimator="constant", cross_fit="past", independent=independent)
            low, high = found.anytime_interval(tightest_at=IMPRESSIONS)
            wrong[independent] += low > 0 or high < 0
    assert wrong["units"] <= 0.05 * runs
    assert wrong["impressions"] > 0.05 * runs + 4 * np.sqrt(0.05 * 0.95 * runs)


def test_impressions_of_units_of_their_own_cost_nothing() -> None:
    log = Log.simulated(PAIR, EVEN, users("x"), 1_000, seed=1)
    by_unit, by_impression = (
        estimate(log, estimator="constant", cross_fit="past", independent=which) for which in ("units", "impressions")
    )
    assert by_unit.delta == by_impression.delta
    assert by_unit.standard_error == by_impression.standard_error
    assert by_unit.anytime_interval() == by_impression.anytime_interval()
