"""Evidence for a method, and the cost of its impressions to visitors: against truths that are known exactly."""

from __future__ import annotations

import numpy as np
import pytest

from ranktrial.analysis import click_gain, estimate, evidence, fit_position_bias
from ranktrial.analysis.evidence import searches
from ranktrial.config import TrialConfig
from ranktrial.log import Log
from ranktrial.methods import AB, LogOpt
from ranktrial.methods.beliefs import FIRST_PRICE, expected_beliefs
from ranktrial.rankings import Mixture, Pair, draw_impressions
from ranktrial.users import User, position_based, rank_decay

THETA = rank_decay(4, 0.7)


def world(queries: int = 30) -> tuple[Pair, User]:
    random = np.random.default_rng(3)
    relevance = random.uniform(0.05, 0.8, (queries, 7))
    lists = [np.argsort(-(relevance + random.normal(0, 0.3, relevance.shape)))[:, :5] for _ in range(2)]
    pair = Pair.from_lists(lists[0].tolist(), lists[1].tolist(), k=4).knowing(theta=THETA)
    query = np.repeat(np.arange(queries), np.diff(pair.offsets))
    return pair, position_based(relevance[query, np.array(pair.ids)], THETA)


def gained(pair: Pair, user: User, shown: Mixture) -> float:
    return float(shown.ctr(user) - np.mean(pair.ctr(user)))


@pytest.mark.parametrize(
    "method",
    [LogOpt(holdback=0.3), LogOpt(relevance="constant", keep=0, floor=0.5, holdback=0.2), AB(split=0.3)],
    ids=str,
)
def test_the_gain_is_the_clicks_on_what_is_shown_less_those_of_an_ab_test(method: LogOpt | AB) -> None:
    pair, user = world()
    shown = method.policy(pair)
    log = Log.simulated(pair, shown, user, 20_000, seed=1)
    truth = gained(pair, user, shown)
    for theta in (THETA, fit_position_bias(log)) if isinstance(method, LogOpt) else (THETA,):
        found = click_gain(log, theta)
        assert found is not None
        assert found.by_model
        assert abs(found.estimate.delta - truth) < 4.5 * found.estimate.standard_error
        assert found.ab == pytest.approx(np.mean(pair.ctr(user)), abs=0.05)
        assert found.interval().low < truth / np.mean(pair.ctr(user)) < found.interval().high


def test_without_position_bias_clicks_on_plain_traffic_tell() -> None:
    pair, user = world()
    shown = LogOpt(holdback=0.4).policy(pair)
    log = Log.simulated(pair, shown, user, 20_000, seed=2)
    found = click_gain(log, None)
    assert found is not None
    assert not found.by_model
    assert abs(found.estimate.delta - gained(pair, user, shown)) < 4.5 * found.estimate.standard_error
    by_model = click_gain(log, THETA)
    assert by_model is not None
    assert by_model.error < found.error / 2
    free = LogOpt(relevance="constant", loss=None, keep=0, holdback=0).policy(pair)
    assert click_gain(Log.simulated(pair, free, user, 2000, seed=1), None) is None


def test_an_ab_test_costs_nothing_exactly() -> None:
    pair, user = world()
    log = Log.simulated(pair, AB().policy(pair), user, 1000, seed=1)
    assert estimate(log, theta=THETA, of="gain").x == pytest.approx(np.zeros(1000), abs=1e-12)


def test_searches_of_a_log_tell_what_those_of_its_pair_do() -> None:
    """Tables, predictions and clicks to be expected: from a log of many impressions, near what they are on average."""
    pair, user = world()
    log = Log.simulated(pair, AB().policy(pair), user, 200_000, seed=4)
    found = searches(log)
    assert found.tables.shape == (2, 500, pair.k)
    method = LogOpt(bias="known", holdback=0.1)
    beliefs = method.learn(evidence(log), expected_beliefs(pair, user))
    truth, sizes, clicks = user.zeta[found.document[found.row]], [], []
    for tables, prediction, judged in found.cross_fitted(beliefs.theta, effects=True):
        assert np.abs(prediction - truth).mean() < 0.03
        assert judged.mean() == pytest.approx(truth.mean(), rel=0.05)
        sizes.append(tables.shape[1])
        clicks.append(float(np.mean(np.append(judged, 0)[tables] @ THETA)))
    assert sum(sizes) == 500  # every search is in one fold, which judges it
    assert np.average(clicks, weights=sizes) == pytest.approx(np.mean(pair.ctr(user)), rel=0.03)
    assert beliefs.price >= 0.1


def test_searches_are_the_latest_as_they_came() -> None:
    """Queries that come first in a log are the frequent ones, by Zipf's law: their share stays what it is in the traffic."""
    n, rng = 400, np.random.default_rng(2)
    pair = Pair.from_lists([[f"{q}a", f"{q}b"] for q in range(n)], [[f"{q}b", f"{q}a"] for q in range(n)], k=2)
    chances = 1 / np.arange(1, n + 1)
    asked = rng.choice(n, 8_000, p=chances / chances.sum())
    user = position_based(np.full(pair.n_documents, 0.3), [1.0, 0.5])
    policy = AB().policy(pair)
    drawn = draw_impressions([policy], user, [8_000], seed=3, asked=[asked])
    log = Log.of(pair, policy, drawn.rankings, drawn.clicks)
    found = searches(log)
    query = log.document_query[found.document[found.row[found.tables[0, :, 0]]]]
    assert np.mean(query < 20) == pytest.approx(np.mean(asked[-2_500:] < 20), abs=4.5 * 0.5 / np.sqrt(500))
    assert len(query) == 500


def test_what_is_learnt_does_not_depend_on_the_order_in_which_documents_came() -> None:
    """Visitors have lists of their own, so documents of a query come between those of others."""
    random = np.random.default_rng(5)
    relevance = {(q, d): random.uniform(0.05, 0.9) * (q + 1) / 3 for q in range(3) for d in range(9)}
    records = []
    for _ in range(3_000):
        query = int(random.integers(3))
        a, b = (random.permutation(9)[:4].tolist() for _ in range(2))
        shown, arm = (a, "a") if random.random() < 0.5 else (b, "b")
        clicked = [d for r, d in enumerate(shown) if random.random() < THETA[r] * relevance[query, d]]
        names = {"a": a, "b": b, "shown": shown, "clicked": clicked}
        records.append(
            {"query": f"q{query}", "arm": arm, **{what: [f"d{d}" for d in ids] for what, ids in names.items()}}
        )
    by_name = Log.from_records(records, k=4)
    as_they_came = by_name.numbered_by_use()
    assert (np.diff(as_they_came.document_query) < 0).any()
    with pytest.raises(ValueError, match="side by side"):
        evidence(as_they_came)
    effects = []
    for log in (by_name, as_they_came.grouped_by_query()):
        learnt = LogOpt().learn(evidence(log), TrialConfig.model_validate({"method": "LogOpt()", "k": 4}).first_beliefs)
        assert learnt.effects is not None
        names_of = [(log.queries[q], d) for q, d in zip(log.document_query.tolist(), log.documents)]
        effects.append(dict(zip(names_of, learnt.effects.tolist())))
    assert effects[0] == pytest.approx(effects[1], abs=1e-9)


def test_the_price_of_a_click_is_that_of_the_traffic_as_it_comes() -> None:
    """Queries by Zipf's law: a forecast from the rarest, of which nothing is known, asked for 4.1 to 5.5 after 4,000."""
    rng, theta, queries, n = np.random.default_rng(1), rank_decay(10, 0.7), 2_000, 4_000
    relevance = 0.5 * rng.choice([0.1, 0.3, 0.8], (queries, 20), p=[0.6, 0.25, 0.15])
    lists = [np.argsort(-(relevance + rng.normal(0, noise, relevance.shape))) for noise in (0.3, 0.35)]
    pair = Pair.from_lists(lists[0].tolist(), lists[1].tolist(), k=10).knowing(theta=theta)
    query = np.repeat(np.arange(queries), np.diff(pair.offsets))
    user = position_based(relevance[query, np.array(pair.ids)], theta)
    chances = 1 / np.arange(1, queries + 1)
    asked = np.random.default_rng(2).choice(queries, n, p=chances / chances.sum())
    method = LogOpt(bias="known")
    first = TrialConfig.model_validate({"method": method, "k": 10}).first_beliefs
    policy = method.policy(pair, first)
    drawn = draw_impressions([policy], user, [n], seed=3, asked=[asked])
    learnt = method.learn(evidence(Log.of(pair, policy, drawn.rankings, drawn.clicks)), first)
    assert first.price == FIRST_PRICE == 10
    assert learnt.price < 1


def test_of_gain_needs_a_click_model() -> None:
    pair, user = world()
    log = Log.simulated(pair, AB().policy(pair), user, 100, seed=1)
    with pytest.raises(ValueError, match="of is 'gain'"):
        estimate(log, estimator="direct", of="gain")
