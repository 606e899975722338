"""Alarms of every guardrail: false ones in trials that are in order, and how many trials with a known fault are noticed.

Queries of ten to twenty documents, some easier than others, A ranks them better than B; pages of 10, theta = rank^-0.7, fitted
to the clicks; designs are made anew on the method's schedule. "Repeated" trials have 100 queries; in a "long tail" few come
again. Trials run in memory. Those in order are looked at 50 times, those with a fault or a long tail four times, and an alarm
at any look counts: what a report would have shown at that look, with everything computed anew.

``GUARDRAIL_RUNS`` sets how many trials in order there are (a third of that with users who differ, a tenth in a long tail),
``GUARDRAIL_FAULTY`` how many with each fault, ``GUARDRAIL_WORKERS`` on how many processes. The last rows have what
"position-based clicking" says of its effect on the estimate beside the estimate's real error, with 60,000 impressions; how much
bias such users leave unseen; and how wide the intervals of all readings are.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.verdicts import Behaviour, Trial, behaviours, top_tail, used_designs
from ranktrial.analysis import asymptotic_radius, evidence
from ranktrial.analysis.analyse import Analysis, analyse
from ranktrial.analysis.answers import settled
from ranktrial.analysis.guardrails.click_model import clicks_above, interference
from ranktrial.arrays import BoolArray, DocumentArray, FloatArray, IntArray
from ranktrial.config import TrialConfig
from ranktrial.log import Log
from ranktrial.log.sources import of_pair
from ranktrial.methods import LogOpt
from ranktrial.rankings import Mixture, Pair
from ranktrial.store import tallies as names
from ranktrial.store.marks import Mark
from ranktrial.users import User, cascade, position_based, rank_decay

RUNS = int(os.environ.get("GUARDRAIL_RUNS", "300"))
FAULTY = int(os.environ.get("GUARDRAIL_FAULTY", "100"))
WORKERS = int(os.environ.get("GUARDRAIL_WORKERS", "2"))
IMPRESSIONS, K = 8_000, 10
OFTEN = tuple(range(IMPRESSIONS // 50, IMPRESSIONS + 1, IMPRESSIONS // 50))
SELDOM = (1_000, 2_000, 4_000, 8_000)
QUERIES = {"repeated": 100, "long tail": IMPRESSIONS}
THETA, RANKS = rank_decay(K, 0.7), np.arange(K)
CONFIG = TrialConfig.model_validate({"method": LogOpt(), "k": K})
TRUSTING = behaviours()["trust bias"]
Row = dict[str, object]


# --- a trial in memory -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class World:
    """Two rankers, and how relevant each of their documents is."""

    pair: Pair
    zeta: FloatArray
    parts: int = 1

    @classmethod
    def make(cls, queries: int, seed: int, noises: tuple[float, ...] = (0.6,)) -> World:
        """Queries once for each noise of B's ranker, with the same documents and the same list of A."""
        random = np.random.default_rng(seed)
        shape = (queries, 20)
        zeta = random.choice([0.05, 0.2, 0.6], shape, p=[0.6, 0.25, 0.15]) * random.uniform(0.3, 1.3, (queries, 1))
        a = np.argsort(-(zeta + random.normal(0, 0.3, shape)), 1)
        of_b = [np.argsort(-(zeta + random.normal(0, noise, shape)), 1) for noise in noises]
        pair = Pair.from_lists(np.tile(a, (len(noises), 1)).tolist(), np.concatenate(of_b).tolist(), k=K)
        assert pair.ids is not None
        query = np.repeat(np.arange(len(noises) * queries) % queries, np.diff(pair.offsets))
        return cls(pair, zeta[query, np.array(pair.ids, np.int64)], len(noises))

    @classmethod
    def equal(cls, behaviour: Behaviour, queries: int, seed: int) -> World:
        """The world of ``verdicts``, without chance: different rankers of equal clicks, so that any winner is a false one."""
        world = top_tail(behaviour, 0.8)
        return cls(world.pair, world.reader.zeta)

    def relevance(self, documents: DocumentArray) -> FloatArray:
        return np.append(self.zeta, 0.0)[documents]

    def chance(self, documents: DocumentArray, theta: FloatArray = THETA) -> FloatArray:
        return np.asarray(theta * self.relevance(documents))


class Drawn(NamedTuple):
    """Impressions before they are clicked: their numbers, queries, pages, and which are plain A (1) or plain B (-1)."""

    number: IntArray
    query: IntArray
    page: DocumentArray
    arm: IntArray

    @property
    def late(self) -> BoolArray:
        return np.asarray(self.number >= IMPRESSIONS // 2)


Told = Counter[str | tuple[Mark, int]]  # tallies by their name, marks by what they say and the impression's number
Clicks = Callable[[World, Drawn, np.random.Generator], tuple[BoolArray, Told]]


@dataclass(frozen=True)
class Fault:
    """Differences from a trial in order.

    Attributes:
        clicks: Clicks on the drawn pages, and what is tallied besides.
        config: Of the trial.
        world: Given the number of queries and a seed.
        kept: Which impressions arrive.
        robot: The share of impressions that one unit has.
    """

    clicks: Clicks
    config: TrialConfig = CONFIG
    world: Callable[[int, int], World] = World.make
    kept: Callable[[Drawn, np.random.Generator], BoolArray] | None = None
    robot: float = 0.0


def simulated(fault: Fault, queries: int, seed: int, impressions: int = IMPRESSIONS) -> tuple[World, Log, Counter[str]]:
    """A whole trial: drawn, clicked, learnt from on the method's schedule."""
    world, random = fault.world(queries, seed), np.random.default_rng(seed)
    queries = world.pair.n_queries // world.parts
    method, beliefs = fault.config.comparison, fault.config.first_beliefs
    assert isinstance(method, LogOpt)
    stops = sorted({*(n for n in method.traits.learns_at if n < impressions), impressions})
    policies: list[Mixture] = []
    parts: list[tuple[NDArray[Any], ...]] = []
    tallies: Told = Counter()
    for start, stop in zip([0, *stops], stops):
        policy = method.policy(world.pair, beliefs)
        number = np.arange(start, stop)
        part = number * world.parts // impressions
        query = random.integers(0, queries, len(number)) + part * queries
        before = np.append(0.0, np.cumsum(policy.weights))
        first, last = before[policy.offsets[query]], before[policy.offsets[query + 1]]
        row = np.searchsorted(before, first + random.random(len(number)) * (last - first), side="right") - 1
        row = np.clip(row, policy.offsets[query], policy.offsets[query + 1] - 1)
        from_end = policy.offsets[query + 1] - row
        drawn = Drawn(number, query, policy.rankings[row], np.choose(np.minimum(from_end, 3) - 1, [-1, 1, 0]))
        clicks, besides = fault.clicks(world, drawn, random)
        kept = np.ones(len(number), bool) if fault.kept is None else fault.kept(drawn, random)
        tallies.update(besides)
        offset = sum(len(one.rankings) for one in policies)
        parts.append((np.full(len(number), len(policies)), query, drawn.page, clicks, row + offset, number, kept))
        policies.append(policy)
        version, query, page, clicked, rows, number, kept = (np.concatenate(column) for column in zip(*parts))
        unit = np.where(chosen(number, fault.robot), -1, number)
        log = Log(**of_pair(world.pair, policies, version, query, page, clicked, unit, None, rows)).take(kept)
        if stop < impressions:
            beliefs = method.learn(evidence(log), beliefs)
    marks: dict[int, list[int]] = {}
    for what in tallies:
        if isinstance(what, tuple):
            marks.setdefault(what[0], []).append(what[1])
    marked = {kind: np.sort(np.array(units)) for kind, units in marks.items()}
    told = Counter({what: count for what, count in tallies.items() if isinstance(what, str)})
    return world, used_designs(replace(log, theta=None, marked=marked)), told


def chosen(number: IntArray, share: float) -> BoolArray:
    """A share of the impressions, the same whenever they are asked for."""
    return np.asarray(number * 7_919 % 10_007 < share * 10_007)


# --- what may be wrong --------------------------------------------------------------------------------------------------------


def _drawn(chance: FloatArray, random: np.random.Generator) -> tuple[BoolArray, Told]:
    return np.asarray(random.random(chance.shape) < chance), Counter()


def in_order(world: World, drawn: Drawn, random: np.random.Generator) -> tuple[BoolArray, Told]:
    return _drawn(world.chance(drawn.page), random)


def users_differ(world: World, drawn: Drawn, random: np.random.Generator) -> tuple[BoolArray, Told]:
    """Some click five times as readily as others."""
    ready = random.choice([0.2, 1.0], len(drawn.number))
    return _drawn(world.chance(drawn.page) * ready[:, None], random)


def differ_in_taste(world: World, drawn: Drawn, random: np.random.Generator) -> tuple[BoolArray, Told]:
    """Half of the users like even documents much better than odd ones, the others the contrary."""
    likes = (drawn.page + random.integers(0, 2, len(drawn.number))[:, None]) % 2
    return _drawn(world.chance(drawn.page) * np.where(likes, 1.25, 0.75), random)


def trust_bias(world: World, drawn: Drawn, random: np.random.Generator) -> tuple[BoolArray, Told]:
    """High ranks are clicked whatever stands there."""
    user = TRUSTING(world.zeta)
    shown = drawn.page >= 0
    return _drawn(np.where(shown, user.slope * world.relevance(drawn.page) + user.intercept, 0.0), random)


def steep(eta: float, world: World, drawn: Drawn, random: np.random.Generator) -> tuple[BoolArray, Told]:
    return _drawn(world.chance(drawn.page, rank_decay(K, eta)), random)


def tiring(left: float, world: World, drawn: Drawn, random: np.random.Generator) -> tuple[BoolArray, Told]:
    """A click leaves so much of the chance of those below; 0 is a cascade."""
    chance, clicks = world.chance(drawn.page), np.zeros(drawn.page.shape, bool)
    still = np.ones(len(chance))
    for rank in range(K):
        clicks[:, rank] = random.random(len(chance)) < chance[:, rank] * still
        still[clicks[:, rank]] *= left
    return clicks, Counter()


def wrong_pages(
    share: float, positions: bool, world: World, drawn: Drawn, random: np.random.Generator
) -> tuple[BoolArray, Told]:
    """A share of pages shows A's list whatever was drawn; click events have positions or not."""
    wrong = random.random(len(drawn.number)) < share
    shown = np.where(wrong[:, None], world.pair.top_a[drawn.query], drawn.page)
    hits, _ = _drawn(world.chance(shown), random)
    same = (shown[:, :, None] == drawn.page[:, None, :]) & (shown >= 0)[:, :, None]
    clicks = np.asarray((hits[:, :, None] & same).any(1))
    off = hits & ~same.any(2)
    tallies: Told = Counter({names.OFF_PAGE: int(off.sum())})
    tallies.update(_marks(Mark.OFF_PAGE, drawn, off))
    if positions:
        in_place = hits & same[:, RANKS, RANKS]
        tallies.update(_marks(Mark.AT_RANK, drawn, in_place))
        tallies.update(_marks(Mark.ELSEWHERE, drawn, hits & same.any(2) & ~in_place))
    return clicks, tallies


def half_on_phones(visible: int, world: World, drawn: Drawn, random: np.random.Generator) -> tuple[BoolArray, Told]:
    """Every other visitor sees the first results alone, on a device that nobody declared."""
    seen = (visible > RANKS) | (random.random(len(drawn.number)) < 0.5)[:, None]
    return _drawn(np.where(seen, world.chance(drawn.page), 0.0), random)


def _marks(kind: Mark, drawn: Drawn, found: BoolArray) -> Told:
    """A mark for each page with any of these."""
    return Counter((kind, number) for number in drawn.number[found.any(1)].tolist())


def cached_pages(world: World, drawn: Drawn, random: np.random.Generator) -> tuple[BoolArray, Told]:
    """Thirty visitors share a page and its id."""
    chance = np.broadcast_to(world.chance(drawn.page)[:, None], (len(drawn.number), 30, K))
    hits, _ = _drawn(chance, random)
    clicks = np.asarray(hits.any(1))
    tallies: Told = Counter({names.DUPLICATES: int(hits.sum() - clicks.sum())})
    tallies.update(_marks(Mark.AGAIN, drawn, hits.sum(1) > 1))
    return clicks, tallies


def lost_clicks(of_pages: bool, world: World, drawn: Drawn, random: np.random.Generator) -> tuple[BoolArray, Told]:
    """5 % of clicks are lost: those on A's own pages, or those on results that A ranks higher than B does."""
    clicks, _ = in_order(world, drawn, random)
    favoured = np.broadcast_to(drawn.arm[:, None] > 0, clicks.shape) if of_pages else favours(world, drawn.page, 1)
    clicks[favoured & (random.random(clicks.shape) < 0.05)] = False
    return clicks, Counter()


def favours(world: World, page: DocumentArray, ranker: int) -> BoolArray:
    """Signs of results that A (1) or B (-1) ranks higher than the other."""
    rank_a, rank_b = (np.append(np.minimum(rank, K), K)[page] for rank in world.pair.ranks)
    return np.asarray(ranker * (rank_b - rank_a) > 0)


def some_act(
    share: float,
    act: Callable[[World, Drawn, np.random.Generator], BoolArray],
    world: World,
    drawn: Drawn,
    random: np.random.Generator,
) -> tuple[BoolArray, Told]:
    """A share of impressions is clicked by others than people."""
    clicks, _ = in_order(world, drawn, random)
    acted = np.asarray(act(world, drawn, random) & (drawn.page >= 0))
    return np.asarray(np.where(chosen(drawn.number, share)[:, None], acted, clicks)), Counter()


def robots(world: World, drawn: Drawn, random: np.random.Generator) -> BoolArray:
    return np.asarray(random.random(drawn.page.shape) < 0.3)


def hostile(world: World, drawn: Drawn, random: np.random.Generator) -> BoolArray:
    return favours(world, drawn.page, -1)


def steeper(world: World, drawn: Drawn, random: np.random.Generator) -> tuple[BoolArray, Told]:
    """Position bias changes halfway, from rank^-0.7 to rank^-1.1."""
    theta = np.where(drawn.late[:, None], rank_decay(K, 1.1), THETA)
    return _drawn(world.chance(drawn.page, theta), random)


def busier(world: World, drawn: Drawn, random: np.random.Generator) -> tuple[BoolArray, Told]:
    """A quarter more clicks from halfway on: other visitors."""
    return _drawn(world.chance(drawn.page) * np.where(drawn.late, 1.0, 0.8)[:, None], random)


def plain_a_lost(drawn: Drawn, random: np.random.Generator) -> BoolArray:
    return np.asarray((drawn.arm <= 0) | (random.random(len(drawn.number)) > 0.2))


def leaving(leave: float, zeta: FloatArray) -> User:
    """The users of ``tiring``, as far as clicks on a page go: what a click takes away is the chance of those who leave."""
    return cascade(zeta, K, theta=THETA, leave_after_click=leave, leave_after_skip=0.0)


def _given(eta: float) -> TrialConfig:
    return TrialConfig.model_validate({"method": LogOpt(bias="known"), "k": K, "eta": eta})


def _equal(behaviour: Behaviour) -> Callable[[int, int], World]:
    return partial(World.equal, behaviour)


RIGHT = {
    "in order": Fault(in_order),
    "users differ": Fault(users_differ),
    "users differ in taste": Fault(differ_in_taste),
}
FAULTS = {
    "D1 rank^-0.5, 1/rank given": Fault(
        partial(steep, 0.5), _given(1.0), _equal(behaviours()["position-based, rank^-0.5"])
    ),
    "D2 trust bias": Fault(trust_bias, world=_equal(TRUSTING)),
    "D13 cascade": Fault(partial(tiring, 0.0), world=_equal(partial(leaving, 1.0))),
    "D13 damped after clicks": Fault(partial(tiring, 0.5), world=_equal(partial(leaving, 0.5))),
    "trust bias": Fault(trust_bias),
    "cascade": Fault(partial(tiring, 0.0)),
    "damped after clicks": Fault(partial(tiring, 0.5)),
    "D3 100 % wrong pages": Fault(partial(wrong_pages, 1.0, False)),
    "D3 20 % wrong pages": Fault(partial(wrong_pages, 0.2, False)),
    "D3 2 % wrong pages": Fault(partial(wrong_pages, 0.02, False)),
    "D3 2 % wrong pages, positions": Fault(partial(wrong_pages, 0.02, True)),
    "D3 cached pages": Fault(cached_pages),
    "20 % of plain A lost": Fault(in_order, kept=plain_a_lost),
    "5 % of clicks on A's pages lost": Fault(partial(lost_clicks, True)),
    "5 % of clicks on A's results lost": Fault(partial(lost_clicks, False)),
    "10 % robots": Fault(partial(some_act, 0.1, robots)),
    "one robot, 10 %": Fault(partial(some_act, 0.1, robots), robot=0.1),
    "1 % hostile": Fault(partial(some_act, 0.01, hostile)),
    "D12 1 % hostile": Fault(partial(some_act, 0.01, hostile), world=_equal(partial(position_based, theta=THETA))),
    "half on phones that show 2": Fault(partial(half_on_phones, 2)),
    "half on phones that show 4": Fault(partial(half_on_phones, 4)),
    "rankers change halfway": Fault(in_order, world=partial(World.make, noises=(0.6, 0.05))),
    "position bias changes halfway": Fault(steeper),
    "more clicks from halfway on": Fault(busier),
}
VERDICT = "(a winner is named, no guardrail fails)"


# --- what is seen of it -------------------------------------------------------------------------------------------------------


def run() -> list[Row]:
    rows: list[Row] = []
    with ProcessPoolExecutor(WORKERS) as pool:
        for name in RIGHT:
            runs = RUNS if name == "in order" else RUNS // 3
            rows += table(pool, name, "repeated", OFTEN, runs)
            rows += table(pool, name, "long tail", SELDOM, runs // 10)
        for name in FAULTS:
            rows += table(pool, name, "repeated", SELDOM, FAULTY)
        for name in ("cascade", "damped after clicks", "1 % hostile"):
            rows += table(pool, name, "long tail", SELDOM, FAULTY // 5)
        rows += list(pool.map(effect, range(3)))
        rows += list(pool.map(hides, [*(["cascade"] * 2), *(["damped after clicks"] * 2)], [0.2, 0.8] * 2))
        for name in ("in order", "trust bias"):
            rows.append(widths(name, list(pool.map(partial(readings, name), range(max(FAULTY // 5, 1))))))
    return rows


def table(pool: ProcessPoolExecutor, name: str, traffic: str, looks: tuple[int, ...], runs: int) -> Iterator[Row]:
    """Shares of trials in which a guardrail warned (or failed), failed, and could not be made at the end.

    Of trials with a fault only those guardrails that noticed anything.
    """
    told: dict[str, Counter[str]] = {}
    for found in pool.map(partial(one_trial, name, traffic, looks), range(runs)):
        for guardrail, seen in found.items():
            told.setdefault(guardrail, Counter()).update(seen)
    for guardrail, counts in told.items():
        if name in RIGHT or counts["warn"] or guardrail == VERDICT:
            shares: Row = {status: counts[status] / runs for status in ("warn", "fail", "unknown")}
            yield {
                "trials": name,
                "traffic": traffic,
                "guardrail": guardrail,
                **shares,
                "looks": len(looks),
                "runs": runs,
            }


def one_trial(name: str, traffic: str, looks: tuple[int, ...], seed: int) -> dict[str, Counter[str]]:
    """Flags of each guardrail: warned (or failed) at any look, failed at any, unknown at the last."""
    fault = (RIGHT | FAULTS)[name]
    _, log, tallies = simulated(fault, QUERIES[traffic], seed)
    found: dict[str, Counter[str]] = {}
    for n in looks:
        part = log.take(np.arange(min(n, len(log))))
        so_far = {what: round(count * n / IMPRESSIONS) for what, count in tallies.items()}
        last = settled(analyse(part, fault.config, fault.config.first_beliefs), so_far)
        for one in last.checks:
            seen = found.setdefault(one.name, Counter())
            seen["warn"] |= one.status in ("warn", "fail")
            seen["fail"] |= one.status == "fail"
            seen["unknown"] = int(one.status == "unknown")
        found.setdefault(VERDICT, Counter())["warn"] |= last.decision.winner is not None
    return found


def effect(seed: int) -> Row:
    """Users who leave after a click: how far that moves the estimate, in truth and as the guardrail says."""
    fault = FAULTS["cascade"]
    world, log, _ = simulated(fault, 100, seed, impressions=60_000)
    analysis: Analysis = analyse(log, fault.config, fault.config.first_beliefs)
    ctr_a, ctr_b = (np.mean(1 - np.prod(1 - world.chance(top), 1)) for top in (world.pair.top_a, world.pair.top_b))
    top, found = analysis.ladder.results[-1].estimate, interference(analysis)
    assert top is not None
    return {
        "trials": "cascade, 60,000 impressions",
        "traffic": "repeated",
        "off by": float(top.delta - (ctr_a - ctr_b)),
        "off by +-": top.standard_error,
        "effect": found.effect,
        "effect +-": found.effect_error,
    }


def hides(name: str, ctr: float) -> Row:
    """Limit of the estimate where the truth is 0, and its distance from 0 for each test after 10,000 impressions."""
    behaviour = behaviours()[name] if name == "cascade" else partial(leaving, 0.5)
    impressions = 100_000
    (analysis,) = Trial(top_tail(behaviour, ctr), CONFIG, 1).looks((impressions,))
    top, found = analysis.ladder.results[-1].estimate, clicks_above(analysis)
    assert top is not None
    assert found is not None
    per_look = np.sqrt(10_000 / impressions)
    reach = asymptotic_radius([10_000], [top.standard_error * np.sqrt(impressions)])[0]
    return {
        "trials": f"{name}, equal rankers, {ctr:g} clicks a page",
        "tends to": top.delta,
        "tends to +-": top.standard_error,
        "reach at 10,000": float(reach),
        "z of the draw": found.drawn.slope / found.drawn.error * per_look,
        "z of clicks above": found.clicked.slope / found.clicked.error * per_look,
    }


def readings(name: str, seed: int) -> dict[str, float]:
    """The width of each estimate's interval at the end of a trial; nan where it has none."""
    fault = (RIGHT | FAULTS)[name]
    _, log, _ = simulated(fault, QUERIES["repeated"], seed)
    results = analyse(log, fault.config, fault.config.first_beliefs).ladder.results
    return {
        result.name: result.interval.high - result.interval.low if result.has_interval else np.nan for result in results
    }


def widths(name: str, found: list[dict[str, float]]) -> Row:
    means = {f"width, {result}": float(np.nanmean([one[result] for one in found])) for result in found[0]}
    known = float(np.mean([np.isfinite(one["affine"]) for one in found]))
    return {"trials": name, "traffic": "repeated", **means, "affine has an interval": known, "runs": len(found)}
