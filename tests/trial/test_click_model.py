"""Users who stop are told from users who differ, on queries that come again and on queries that never do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ranktrial.analysis.analyse import Analysis, analyse
from ranktrial.analysis.guardrails import click_model as checks
from ranktrial.analysis.guardrails._kernels import clicks_by_draw
from ranktrial.analysis.guardrails.click_model import _added_above, _shift
from ranktrial.arrays import BoolArray, FloatArray, weighted_counts
from ranktrial.config import TrialConfig
from ranktrial.log import Log
from ranktrial.methods import LogOpt
from ranktrial.position_bias import Conditional, Counts
from ranktrial.rankings import Pair
from ranktrial.seeds import generator
from ranktrial.users import position_based, rank_decay

K, THETA = 6, rank_decay(6, 0.7)
METHOD = LogOpt(bias="known", relevance="constant", loss=None, keep=0, floor=0.5, holdback=0.1)
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


def who_tire(chance: FloatArray, random: np.random.Generator) -> BoolArray:
    """A click halves the chance of those below."""
    clicks, left = np.zeros(chance.shape, bool), np.ones(len(chance))
    for rank in range(chance.shape[1]):
        clicks[:, rank] = random.random(len(chance)) < chance[:, rank] * left
        left[clicks[:, rank]] /= 2
    return clicks


def world(queries: int, seed: int) -> tuple[FloatArray, Pair]:
    """Relevances of ten documents for each query, some queries with more of it than others; A sees them better than B."""
    random = np.random.default_rng(seed)
    zeta = random.choice([0.05, 0.2, 0.6], (queries, 10), p=[0.5, 0.3, 0.2]) * random.uniform(0.5, 1.5, (queries, 1))
    a, b = (np.argsort(-(zeta + random.normal(0, noise, zeta.shape)), 1) for noise in (0.2, 0.4))
    return zeta, Pair.from_lists(a.tolist(), b.tolist(), k=K).knowing(theta=THETA)


def clicked(queries: int, impressions: int, users: Users, seed: int, config: TrialConfig = CONFIG) -> Analysis:
    zeta, pair = world(queries, seed)
    assert pair.ids is not None
    flat = zeta[np.repeat(np.arange(queries), np.diff(pair.offsets)), np.array(pair.ids, np.int64)]
    log = Log.simulated(pair, METHOD.policy(pair), position_based(flat, THETA), impressions, seed=seed)
    slots = log.rankings[log.row]
    chance = THETA * np.where(slots >= 0, flat[log.document][slots], 0.0)
    log = replace(log, clicks=users(chance, np.random.default_rng(seed)), theta=None)
    return analyse(log, config, config.first_beliefs)


def above_of(analysis: Analysis) -> checks.Above:
    found = checks.clicks_above(analysis)
    assert found is not None
    return found


def test_clicks_against_the_draw_have_mean_zero_and_their_bound_over_all_pages_and_clicks() -> None:
    """Every ranking of every design with every pattern of clicks, relevance other than predicted: exactly."""
    log, random = clicked(6, 60, right, 1).log, np.random.default_rng(1)
    prediction, zeta = random.random((2, log.n_slots))
    patterns = (np.arange(2**K)[:, None] >> np.arange(K)) % 2 == 1
    design_of_row = np.repeat(np.arange(log.n_designs), np.diff(log.row_offsets))
    rows = np.flatnonzero(log.weights > 0)
    shown, clicks = np.repeat(rows, len(patterns)), np.tile(patterns, (len(rows), 1))
    designs, starts = np.unique(design_of_row[shown], return_index=True)
    values, bound = np.zeros((2, len(shown)))
    told = clicks_by_draw(
        designs, np.append(starts, len(shown)), np.arange(len(shown)), shown, clicks, log.slot_offsets, log.row_offsets,
        log.rankings, log.weights, THETA, prediction, values, bound,
    )  # fmt: skip
    assert told > 0
    slots = log.rankings[shown]
    assert (slots >= 0).all()
    each = np.where(clicks, THETA * zeta[slots], 1 - THETA * zeta[slots])
    mean = weighted_counts(design_of_row[shown], values * log.weights[shown] * each.prod(1), log.n_designs)
    np.testing.assert_allclose(mean, 0, atol=1e-12)
    most = np.zeros(log.n_designs)
    np.maximum.at(most, design_of_row[shown], np.abs(values))
    np.testing.assert_allclose(bound, most[design_of_row[shown]], atol=1e-12)
    assert most.min() > 0.01
    # One of the values by hand.
    at, away = int(np.argmax(np.abs(values))), 0.0
    of_design = [row for row in rows.tolist() if design_of_row[row] == design_of_row[shown[at]]]

    def above(row: int, rank: int) -> float:
        return float((THETA * prediction[log.rankings[row]])[:rank].sum())

    for rank, slot in enumerate(slots[at]):
        same = [(log.weights[row], above(row, rank)) for row in of_design if log.rankings[row, rank] == slot]
        mean_above = sum(w * x for w, x in same) / sum(w for w, _ in same)
        away += (clicks[at, rank] - THETA[rank] * prediction[slot]) * (above(int(shown[at]), rank) - mean_above)
    assert values[at] == pytest.approx(away, abs=1e-12)


@pytest.mark.parametrize("pooled", [False, True])
def test_clicks_are_compared_with_earlier_ones_of_the_same_stratum(
    pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against lists of what came before, stratum by stratum."""
    log = clicked(6, 300, who_differ, 3).log
    before: dict[tuple[object, ...], list[tuple[bool, bool]]] = {}
    values, told = np.zeros((2, len(log)))
    for i, slots in enumerate(log.rankings[log.row]):
        for rank, slot in enumerate(slots):
            place = (log.rank_a[slot].clip(max=K), log.rank_b[slot].clip(max=K)) if pooled else (log.document[slot],)
            after, click = bool(log.clicks[i, :rank].any()), bool(log.clicks[i, rank])
            stratum = before.setdefault((*place, rank), [])
            if stratum:
                mean_after, mean_click = np.mean(stratum, axis=0)
                values[i] += (after - mean_after) * (click - mean_click)
                told[i] += (after - mean_after) ** 2 * mean_click
            stratum.append((after, click))
    tables = [np.array(stratum) for stratum in before.values()]
    follows = sum((t[:, 0] & t[:, 1]).sum() * (~t[:, 0]).sum() / len(t) for t in tables)
    otherwise = sum((~t[:, 0] & t[:, 1]).sum() * t[:, 0].sum() / len(t) for t in tables)
    monkeypatch.setattr("ranktrial.analysis.guardrails.click_model.AT_ONCE", 37)
    found = checks.dependence(log, pooled=pooled)
    np.testing.assert_allclose(found.values.totals, values, atol=1e-12)
    assert (found.told, found.squares) == pytest.approx((told.sum(), values @ values))
    if pooled:
        value, enough = np.cumsum(values) - values, np.cumsum(told) - told > 2
        slope = np.where(enough, value / np.maximum(np.cumsum(told) - told, 1e-9), 0)
        np.testing.assert_allclose(found.slope_before, slope, atol=1e-9)
    assert found.ratio == pytest.approx(follows / otherwise)
    assert np.abs(values).max() > 0.1


@pytest.mark.parametrize("queries", [60, 10_000])
def test_users_who_leave_are_seen_with_what_that_does_to_the_estimate(queries: int) -> None:
    analysis = clicked(queries, 10_000, who_leave, 2)
    above = above_of(analysis)
    found, told = above.drawn, checks.company(analysis, above)
    assert told.status == "fail"
    assert "That moves B against A by" in told.text
    zeta, pair = world(queries, 2)
    by_model = analysis.ladder.results[-1].estimate
    assert by_model is not None
    truth = by_model.delta - found.effect
    assert pair.ids is not None
    ids = np.array(pair.ids, np.int64)
    ctr = [
        np.mean(1 - np.prod(1 - THETA * np.take_along_axis(zeta, ids[top], 1), 1)) for top in (pair.top_a, pair.top_b)
    ]
    off = abs(truth - (ctr[0] - ctr[1]))
    assert off < 4 * np.hypot(found.effect_error, by_model.standard_error)
    assert abs(by_model.delta - (ctr[0] - ctr[1])) > 3 * by_model.standard_error


@pytest.mark.parametrize("learns", [False, True])
def test_the_effect_on_the_estimate_is_what_expected_clicks_say(learns: bool) -> None:
    """Exactly: clicks as they are to be expected, theta from the conditional equation on them, against both lists' clicks."""
    config = TrialConfig.model_validate({"method": LogOpt(), "k": K}) if learns else CONFIG
    analysis = clicked(12, 20_000, right, 5, config)
    log = analysis.log
    prediction = np.random.default_rng(5).uniform(0.1, 0.5, 12 * 10)[: log.n_slots]
    assert (analysis.fit is not None) == learns
    theta = np.array(analysis.theta.theta)
    times = np.bincount(log.design, minlength=log.n_designs)
    design = np.repeat(np.arange(log.n_designs), np.diff(log.row_offsets))
    rows = np.arange(len(design))
    by_rank = times[design] * log.weights

    def off(slope: float) -> float:
        shown, hits = np.zeros((2, log.n_slots, K))
        for row in rows:
            above = 0.0
            for rank, slot in enumerate(log.rankings[row]):
                if slot >= 0:
                    chance = theta[rank] * prediction[slot]
                    shown[slot, rank] += by_rank[row]
                    hits[slot, rank] += by_rank[row] * chance * (1 + slope * above)
                    above += chance
        bias = Conditional().fit(Counts.from_dense(shown, hits)).theta if learns else theta
        of_a, of_b = log.list_exposures(bias)
        found = ((of_a - of_b) / log.exposure(bias)) @ hits.sum(1)
        for sign, place in ((1, log.rank_a), (-1, log.rank_b)):
            for d in range(log.n_designs):
                slots = np.flatnonzero((log.design_of_slot == d) & (place < K))
                above = 0.0
                for slot in slots[np.argsort(place[slots])]:
                    chance = theta[place[slot]] * prediction[slot]
                    found -= sign * times[d] * chance * (1 + slope * above)
                    above += chance
        return float(found / len(log))

    numeric = (off(1e-4) - off(-1e-4)) / 2e-4
    assert abs(off(0.0)) < 1e-9
    assert _shift(analysis, [_added_above(log, theta, prediction)]) == pytest.approx(numeric, rel=1e-4)
    assert abs(numeric) > 0.005


@pytest.mark.parametrize("queries", [60, 10_000])
def test_users_who_tire_are_seen_by_clicks_above_also_where_queries_are_new(queries: int) -> None:
    """The estimate is off by as much as the guardrail says it may be, theta fitted to the same clicks."""
    config = TrialConfig.model_validate({"method": LogOpt(), "k": K})
    analysis = clicked(queries, 10_000, who_tire, 6, config)
    above = above_of(analysis)
    told = checks.independence(analysis, above)
    assert (told.status, told.value < 0.8) == ("warn", True)
    assert "look for different things" in told.text
    zeta, pair = world(queries, 6)
    ids = np.array(pair.ids, np.int64)
    truth = []
    for top in (pair.top_a, pair.top_b):
        chance = THETA * np.take_along_axis(zeta, ids[top], 1)
        left = np.cumprod(np.column_stack([np.ones(len(chance)), 1 - chance / 2]), axis=1)[:, :K]
        truth.append(np.mean((chance * left).sum(1)))
    off, error = analysis.estimate.delta - (truth[0] - truth[1]), 3 * analysis.estimate.standard_error
    assert off > error
    assert above.effect.low - error < off < above.effect.high + error
    assert above.effect.low >= 0


def test_bets_are_on_what_was_seen_before_and_within_bounds() -> None:
    """Later clicks change no earlier stake."""
    analysis = clicked(20, 400, who_tire, 7)
    log, found = analysis.log, above_of(analysis)
    assert (np.abs(found.drawn.values.totals) <= found.drawn.bound + 1e-12).all()
    stakes = np.minimum(found.pooled.slope_before, 0)
    first_half = replace(log, clicks=np.where(np.arange(len(log))[:, None] < 200, log.clicks, False))
    again = checks.dependence(first_half, pooled=True)
    np.testing.assert_array_equal(stakes[:200], np.minimum(again.slope_before, 0)[:200])


def test_documents_of_a_long_log_are_compared_on_its_first_impressions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later clicks change nothing of it, and add no evidence."""
    analysis = clicked(60, 6_000, who_tire, 2)
    log = analysis.log
    early = np.arange(len(log)) < 2_000
    of_all = checks.independence(analysis, above_of(analysis))
    monkeypatch.setattr("ranktrial.analysis.guardrails.click_model.MOST_COMPARED", 2_000)
    other = replace(
        log, clicks=np.where(early[:, None], log.clicks, right(np.full(log.clicks.shape, 0.2), generator(1)))
    )
    first, later, short = (checks.dependence(one) for one in (log, other, log.take(early)))
    for found in (first, later):
        np.testing.assert_array_equal(found.values.totals, short.values.totals)
        assert (found.ratio, found.slope, found.error) == (short.ratio, short.slope, short.error)
    told = checks.independence(analysis, above_of(analysis))
    assert (told.status, told.value) == ("warn", short.ratio)
    assert told.text != of_all.text


@pytest.mark.parametrize("queries", [60, 10_000])
def test_users_who_differ_are_no_fault(queries: int) -> None:
    analysis = clicked(queries, 10_000, who_differ, 3)
    above = above_of(analysis)
    assert checks.company(analysis, above).status == "pass"
    assert 0 in above.effect
    if queries == 60:
        told = checks.independence(analysis, above)
        assert (told.status, told.value > 1.2) == ("warn", True)


def test_queries_that_never_come_again_leave_independence_unknown() -> None:
    log = clicked(8_000, 8_000, right, 4).log
    once = np.unique(log.query[log.design], return_index=True)[1]
    analysis = analyse(log.take(np.sort(once)), CONFIG, CONFIG.first_beliefs)
    assert checks.independence(analysis, above_of(analysis)).status == "unknown"
    assert checks.company(analysis, above_of(analysis)).status == "pass"


@pytest.mark.parametrize("users", [right, who_differ])
def test_no_more_alarms_than_promised(users: Users) -> None:
    """100 trials of 1,000 impressions, half of them of 40 queries and half of a long tail, looked at after each impression."""
    runs, away, dependent = 100, 0, 0
    for seed in range(runs):
        analysis = clicked(40 if seed % 2 else 1_000, 1_000, users, seed)
        away += checks.company(analysis, above_of(analysis)).value < 0.05
        dependent += checks.independence(analysis, above_of(analysis)).status == "warn"
    assert away / runs < 0.05 + 4 * np.sqrt(0.05 / runs)
    if users is right:
        assert dependent / runs < 0.01 + 4 * np.sqrt(0.01 / runs)
