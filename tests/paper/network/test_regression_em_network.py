"""The paper's regression-EM: the position-based model with relevance from the network, end to end."""

from __future__ import annotations

import numpy as np
import pytest

from ranktrial.arrays import offsets_of
from ranktrial.paper.click_models import RegressionEM
from ranktrial.paper.network.network import Adam, Network, NetworkRegression
from ranktrial.position_bias import Counts
from ranktrial.rankings import PlackettLuce
from ranktrial.rankings.plackett_luce import simulate
from ranktrial.users import position_based, rank_decay


@pytest.fixture(scope="module")
def log() -> tuple[
    Counts, np.ndarray[tuple[int, ...], np.dtype[np.float32]], np.ndarray[tuple[int], np.dtype[np.float64]]
]:
    """20,000 impressions of 150 queries; four of five documents are never shown, so row numbers matter."""
    rng = np.random.default_rng(0)
    offsets = offsets_of([40] * 150)
    features = rng.random((6000, 5)).astype(np.float32)
    zeta = 1 / (1 + np.exp(2.5 - 4 * features[:, 0]))
    scores = np.where(np.arange(6000) % 40 >= 32, 0.0, -60.0) + 0.5 * rng.normal(size=6000)
    policy = PlackettLuce(scores, offsets, 5)
    user = position_based(zeta, rank_decay(5))
    shown, clicked = np.zeros((2, 6000, 5), np.uint32)
    simulate(policy, user, np.zeros(6000), [20_000], seed=3, tables=(shown, clicked))
    return Counts.from_dense(shown, clicked, offsets=offsets), features, zeta


@pytest.mark.parametrize("authors_rows", [False, True])
def test_relevance_is_learnt_from_the_right_rows_only(
    log: tuple[Counts, np.ndarray, np.ndarray], authors_rows: bool
) -> None:
    """The authors' code trains on the first rows of the data set: what it learns has nothing to do with relevance."""
    counts, features, zeta = log
    model = NetworkRegression(Network.initialise(5, 1), Adam(rate=0.01), steps=30, batch=256)
    fitted = RegressionEM(model, features, limit=25, authors_rows=authors_rows, seed=2).fit(counts)
    assert fitted.zeta is not None
    correlation = np.corrcoef(fitted.zeta, zeta)[0, 1]
    if authors_rows:
        assert correlation < 0.4
    else:
        assert correlation > 0.8
        assert fitted.theta == pytest.approx(rank_decay(5), abs=0.06)
