"""Alarms of the guardrails on chance, in trials that are in order and in trials that are not, looked at all along.

Queries of ten to twenty documents, some easier than others, A ranks them better than B; pages of 10, theta = rank^-0.7, which
is fitted to the clicks. Each trial is looked at after 1,000, 2,000, ... impressions; an alarm at any look counts. "Repeated"
trials have 100 queries, in a "long tail" few come again. Wrong pages need events: ``tests/live/test_what_was_shown.py``.

The last rows have what "position-based clicking" says of its effect on the estimate beside the estimate's real error, with
theta known and 60,000 impressions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from ranktrial.arrays import BoolArray, FloatArray
from ranktrial.inference import Log
from ranktrial.live import guardrails as checks
from ranktrial.live.analysis import Analysis, analyse
from ranktrial.live.schemas import TrialConfig
from ranktrial.methods import LogOpt
from ranktrial.rankings import Pair
from ranktrial.users import position_based, rank_decay

RUNS, IMPRESSIONS, LOOKS = 300, 8_000, (1_000, 2_000, 4_000, 8_000)
K, METHOD = 10, LogOpt()
THETA = rank_decay(K, 0.7)
CONFIG = TrialConfig.model_validate({"method": METHOD, "k": K})
QUERIES = {"repeated": 100, "long tail": IMPRESSIONS}
Fault = Callable[[Log, FloatArray, np.random.Generator], Log]
Row = dict[str, object]


def in_order(log: Log, chance: FloatArray, random: np.random.Generator) -> Log:
    return _clicked(log, random.random(chance.shape) < chance)


def users_differ(log: Log, chance: FloatArray, random: np.random.Generator) -> Log:
    ready = random.choice([0.2, 1.0], len(log))
    return _clicked(log, random.random(chance.shape) < chance * ready[:, None])


def cascade(log: Log, chance: FloatArray, random: np.random.Generator) -> Log:
    clicks = random.random(chance.shape) < chance
    return _clicked(log, clicks & (np.cumsum(clicks, 1) == 1))


def damped(log: Log, chance: FloatArray, random: np.random.Generator) -> Log:
    """A click halves the chance of those below."""
    clicks, left = np.zeros(chance.shape, bool), np.ones(len(log))
    for rank in range(log.k):
        clicks[:, rank] = random.random(len(log)) < chance[:, rank] * left
        left[clicks[:, rank]] /= 2
    return _clicked(log, clicks)


def lost(log: Log, chance: FloatArray, random: np.random.Generator) -> Log:
    """A fifth of the impressions of plain A never arrive."""
    return in_order(log, chance, random).take((log.arm <= 0) | (random.random(len(log)) > 0.2))


FAULTS: dict[str, Fault] = {
    "in order": in_order,
    "users differ": users_differ,
    "cascade": cascade,
    "damped after clicks": damped,
    "plain A lost in 20 %": lost,
}


def run(runs: int = RUNS) -> list[Row]:
    rows = [row for traffic in QUERIES for fault in FAULTS for row in alarms(traffic, fault, runs)]
    return rows + [effect(seed) for seed in range(3)]


def alarms(traffic: str, fault: str, runs: int) -> Iterator[Row]:
    """Shares of trials in which a guardrail on chance warned, failed, and could not be made at the end."""
    told: dict[str, Counter[str]] = {}
    for seed in range(runs):
        at_any_look: dict[str, set[str]] = {}
        for analysis in looks(traffic, FAULTS[fault], seed):
            found = checks.interference(analysis)
            for one in (
                *(check(analysis) for check in (checks.sample_ratio, checks.calibration, checks.assumptions)),
                checks.company(analysis, found),
                checks.independence(analysis, found),
            ):
                at_any_look.setdefault(one.name, set()).add(one.status)
        for name, seen in at_any_look.items():
            told.setdefault(name, Counter()).update(
                {"warn": bool(seen & {"warn", "fail"}), "fail": "fail" in seen, "unknown": seen == {"unknown"}}
            )
    for name, counts in told.items():
        shares: Row = {status: counts[status] / runs for status in ("warn", "fail", "unknown")}
        yield {"traffic": traffic, "trials": fault, "guardrail": name, **shares, "runs": runs}


def looks(traffic: str, fault: Fault, seed: int) -> Iterator[Analysis]:
    """A trial as it is after each number of impressions."""
    log, chance, _ = world(QUERIES[traffic], METHOD, IMPRESSIONS, seed)
    log = fault(log, chance, np.random.default_rng(seed + 1))
    for n in LOOKS:
        yield analyse(log.take(np.arange(min(n, len(log)))), CONFIG, CONFIG.first_beliefs)


def effect(seed: int) -> Row:
    """Users who leave after a click: how far that moves the estimate, in truth and as the guardrail says."""
    method = LogOpt(bias="known")
    log, chance, of_lists = world(100, method, 60_000, seed)
    config = TrialConfig.model_validate({"method": method, "k": K, "eta": 0.7})
    analysis = analyse(cascade(log, chance, np.random.default_rng(seed + 1)), config, config.first_beliefs)
    ctr_a, ctr_b = (np.mean(1 - np.prod(1 - each, 1)) for each in of_lists)
    found = checks.interference(analysis)
    return {
        "traffic": "repeated",
        "trials": "cascade",
        "off by": float(analysis.delta - (ctr_a - ctr_b)),
        "off by +-": analysis.estimate.standard_error,
        "effect": found.effect,
        "effect +-": found.effect_error,
    }


def world(queries: int, method: LogOpt, impressions: int, seed: int) -> tuple[Log, FloatArray, list[FloatArray]]:
    """A log without its clicks, chances of clicks on each rank of its impressions, and on each query's lists of A and B."""
    random = np.random.default_rng(seed)
    shape = (queries, 20)
    zeta = random.choice([0.05, 0.2, 0.6], shape, p=[0.6, 0.25, 0.15]) * random.uniform(0.3, 1.3, (shape[0], 1))
    a, b = (np.argsort(-(zeta + random.normal(0, noise, shape)), 1) for noise in (0.3, 0.6))
    pair = Pair.from_lists(a.tolist(), b.tolist(), k=K).knowing(theta=THETA)
    assert pair.ids is not None
    flat = zeta[np.repeat(np.arange(shape[0]), np.diff(pair.offsets)), np.array(pair.ids, np.int64)]
    log = Log.simulated(pair, method.policy(pair), position_based(flat, THETA), impressions, seed=seed)
    slots = log.rankings[log.row]
    chance = THETA * np.where(slots >= 0, flat[log.document][slots], 0.0)
    return log, chance, [THETA * flat[top] for top in (pair.top_a, pair.top_b)]


def _clicked(log: Log, clicks: BoolArray) -> Log:
    return replace(log, clicks=clicks, theta=None)
