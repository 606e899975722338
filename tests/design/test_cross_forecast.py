"""Forecasts of clicks on a design: by its own prediction, and by somebody else's."""

from __future__ import annotations

import numpy as np
import pytest

from ranktrial.design.budget import ClickForecast, CrossForecast, price_for
from ranktrial.design.closed_form import closed_form
from ranktrial.rankings import Pair
from ranktrial.users import position_based, rank_decay


@pytest.mark.parametrize("zeta0", [None, 0.3])
def test_clicks_on_a_design_are_those_of_its_rankings_whoever_judges(zeta0: float | None) -> None:
    rng = np.random.default_rng(1)
    lists = [[rng.permutation(7)[:5].tolist() for _ in range(4)] for _ in "AB"]
    pair = Pair.from_lists(lists[0], lists[1], k=4)
    own, other = rank_decay(4), rank_decay(4, 0.4)
    prediction, judged = rng.uniform(0.1, 0.5, (2, pair.n_documents))
    tables = pair.tables
    plain = (0.1, 0.2)
    forecast = ClickForecast.of(tables, own, prediction, zeta0=zeta0, plain=plain, judged_by=(other, judged))
    user = position_based(judged, other)
    for price in (0.0, 1.0, 20.0):
        shown = closed_form(pair, own, zeta=prediction, zeta0=zeta0, plain=plain, price=price)
        assert forecast.shown(price) == pytest.approx(shown.ctr(user), rel=1e-12)
    assert forecast.ab == pytest.approx(np.mean(pair.ctr(user)), rel=1e-12)


def test_a_forecast_by_other_folds_asks_for_more_than_one_by_itself() -> None:
    """Two predictions that are the truth and noise: each flatters its own design."""
    rng = np.random.default_rng(2)
    lists = [[rng.permutation(8).tolist() for _ in range(60)] for _ in "AB"]
    pair = Pair.from_lists(lists[0], lists[1], k=4)
    theta = rank_decay(4)
    predictions = np.clip(0.3 + rng.normal(0, 0.1, (2, pair.n_documents)), 0.05, 0.9)
    tables = pair.tables
    flattered = [ClickForecast.of(tables, theta, prediction) for prediction in predictions]
    crossed = CrossForecast(
        [
            ClickForecast.of(tables, theta, one, judged_by=(theta, other))
            for one, other in (predictions, predictions[::-1])
        ]
    )
    assert crossed.ab == pytest.approx(np.mean([one.ab for one in flattered]))
    assert crossed.shown(5.0) < min(one.shown(5.0) for one in flattered)
    assert crossed.shown(5.0) / crossed.ab - 1 == pytest.approx(0, abs=0.02)  # there is nothing to gain from noise
    assert price_for(flattered[0], loss=-0.02).kept
    assert not price_for(crossed, loss=-0.05).kept


def test_a_prediction_that_is_worse_than_the_rankers_is_not_followed_at_the_highest_price() -> None:
    """On the first query the prediction is right; on the second it ranks last what is best, and differs less."""
    pair = Pair.from_lists(["xyz", "pqr"], ["xzy", "qrp"], k=3)
    ids = list(pair.ids)
    right = {"x": 0.8, "y": 0.1, "z": 0.1, "p": 0.6, "q": 0.2, "r": 0.2}
    wrong = right | {"p": 0.2, "q": 0.23, "r": 0.23}
    theta = rank_decay(3)
    judged, prediction = ([relevance[one] for one in ids] for relevance in (right, wrong))
    forecast = ClickForecast.of(pair.tables, theta, prediction, judged_by=(theta, judged))
    prices = np.geomspace(1e-6, 100, 200)
    clicks = np.array([forecast.shown(price) for price in prices])
    assert clicks.max() > 1.02 * max(clicks[0], clicks[-1])  # neither end is best
    unkept = price_for(forecast, loss=1 - 1.01 * clicks.max() / forecast.ab)
    assert not unkept.kept
    assert unkept.clicks == forecast.shown(unkept.price) > 1.02 * max(clicks[0], clicks[-1])
    loss = 1 - (clicks.max() + clicks[-1]) / 2 / forecast.ab  # a price in between keeps this, the highest does not
    kept = price_for(forecast, loss)
    assert kept.kept
    assert kept.clicks == forecast.shown(kept.price) >= (1 - loss) * forecast.ab > forecast.shown(kept.price / 1.011)
