"""Users who stop are told from users who differ, on queries that come again and on queries that never do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ranktrial.arrays import BoolArray, FloatArray, weighted_counts
from ranktrial.inference import Log
from ranktrial.inference.e_processes import anytime_p, mean_evidence
from ranktrial.live import guardrails as checks
from ranktrial.live.analysis import Analysis, analyse
from ranktrial.live.guardrails.click_model import _expected_above, _mean_above
from ranktrial.live.schemas import TrialConfig
from ranktrial.methods import LogOpt
from ranktrial.rankings import Pair
from ranktrial.users import position_based, rank_decay

K, THETA = 6, rank_decay(6, 0.7)
METHOD = LogOpt(bias="known", holdback=0.1)
CONFIG = TrialConfig.model_validate({"method": METHOD, "k": K, "eta": 0.7})
Users = Callable[[FloatArray, np.random.Generator], BoolArray]


def right(chance: FloatArray, random: np.random.Generator) -> BoolArray:
    return np.asarray(random.random(chance.shape) < chance)


def who_differ(chance: FloatArray, random: np.random.Generator) -> BoolArray:
    """Some click on almost nothing, others on almost anything: the mean over users is position-based."""
    ready = random.choice([0.2, 1.0], len(chance))
    return right(chance * ready[:, None], random)


def who_leave(chance: FloatArray, random: np.random.Generator) -> BoolArray:
    """Nobody clicks twice."""
    clicks = right(chance, random)
    return np.asarray(clicks & (np.cumsum(clicks, 1) == 1))


def world(queries: int, seed: int) -> tuple[FloatArray, Pair]:
    """Relevances of ten documents for each query, some queries with more of it than others; A sees them better than B."""
    random = np.random.default_rng(seed)
    zeta = random.choice([0.05, 0.2, 0.6], (queries, 10), p=[0.5, 0.3, 0.2]) * random.uniform(0.5, 1.5, (queries, 1))
    a, b = (np.argsort(-(zeta + random.normal(0, noise, zeta.shape)), 1) for noise in (0.2, 0.4))
    return zeta, Pair.from_lists(a.tolist(), b.tolist(), k=K).knowing(theta=THETA)


def clicked(queries: int, impressions: int, users: Users, seed: int) -> Analysis:
    zeta, pair = world(queries, seed)
    assert pair.ids is not None
    flat = zeta[np.repeat(np.arange(queries), np.diff(pair.offsets)), np.array(pair.ids, np.int64)]
    log = Log.simulated(pair, METHOD.policy(pair), position_based(flat, THETA), impressions, seed=seed)
    slots = log.rankings[log.row]
    chance = THETA * np.where(slots >= 0, flat[log.document][slots], 0.0)
    log = replace(log, clicks=users(chance, np.random.default_rng(seed)), theta=None)
    return analyse(log, CONFIG, CONFIG.first_beliefs)


def test_what_is_above_has_its_mean_given_document_and_rank() -> None:
    """Over all rankings of every design, weighted: exactly."""
    log, random = clicked(20, 200, right, 1).log, np.random.default_rng(1)
    rows = np.flatnonzero(log.weights > 0)
    _, over = _expected_above(log, rows, THETA, random.random(log.n_slots))
    away = (over - _mean_above(log, rows, over)) * log.weights[rows][:, None]
    filled = log.rankings[rows] >= 0
    cells = (log.rankings[rows] * K + np.arange(K))[filled]
    np.testing.assert_allclose(weighted_counts(cells, away[filled], log.n_slots * K), 0, atol=1e-12)
    assert np.abs(away).max() > 0.01


@pytest.mark.parametrize("queries", [60, 10_000])
def test_users_who_leave_are_seen_with_what_that_does_to_the_estimate(queries: int) -> None:
    analysis = clicked(queries, 10_000, who_leave, 2)
    found = checks.interference(analysis)
    told = checks.company(analysis, found)
    assert told.status == "fail"
    assert "moves the estimate" in told.text
    zeta, pair = world(queries, 2)
    truth = analysis.delta - found.effect
    assert pair.ids is not None
    ids = np.array(pair.ids, np.int64)
    ctr = [
        np.mean(1 - np.prod(1 - THETA * np.take_along_axis(zeta, ids[top], 1), 1)) for top in (pair.top_a, pair.top_b)
    ]
    off = abs(truth - (ctr[0] - ctr[1]))
    assert off < 4 * np.hypot(found.effect_error, analysis.estimate.standard_error)
    assert abs(analysis.delta - (ctr[0] - ctr[1])) > 3 * analysis.estimate.standard_error


@pytest.mark.parametrize("queries", [60, 10_000])
def test_users_who_differ_are_no_fault(queries: int) -> None:
    analysis = clicked(queries, 10_000, who_differ, 3)
    found = checks.interference(analysis)
    assert checks.company(analysis, found).status == "pass"
    if queries == 60:
        told = checks.independence(analysis, found)
        assert (told.status, told.value > 1.2) == ("warn", True)


def test_queries_that_never_come_again_leave_independence_unknown() -> None:
    log = clicked(8_000, 8_000, right, 4).log
    once = np.unique(log.query[log.design], return_index=True)[1]
    analysis = analyse(log.take(np.sort(once)), CONFIG, CONFIG.first_beliefs)
    assert checks.independence(analysis).status == "unknown"
    assert checks.company(analysis, checks.interference(analysis)).status == "pass"


@pytest.mark.parametrize("users", [right, who_differ])
def test_no_more_alarms_than_promised(users: Users) -> None:
    """100 trials of 1,000 impressions, half of them of 40 queries and half of a long tail, looked at after each impression."""
    runs, away, dependent = 100, 0, 0
    for seed in range(runs):
        analysis = clicked(40 if seed % 2 else 1_000, 1_000, users, seed)
        values = checks.interference(analysis).values
        away += anytime_p(mean_evidence(values, analysis.log.unit, telling=analysis.log.clicks.any(1))) < 0.05
        dependent += checks.independence(analysis).status == "warn"
    assert away / runs < 0.05 + 4 * np.sqrt(0.05 / runs)
    if users is right:
        assert dependent / runs < 0.01 + 4 * np.sqrt(0.01 / runs)
