"""Verdicts of whole trials: false ones between different rankers of equal CTR, and how soon right ones come where they differ.

Trials run in memory, as a live one would: the method draws, learns on its schedule, and the report is looked at again and
again; a run counts once any look has named a winner. World
"top/tail": on half of the queries A puts the best document first and B second, on the other half B has better documents from
rank 5 on, relevances scaled so that the difference under the users' own behaviour is exactly what is asked for (0 for false
verdicts). ``VERDICT_RUNS`` sets how many runs a row has, ``VERDICT_FIRST`` the seed of the first (to go on from runs that were
made before), ``VERDICT_ROWS`` (a text that rows must hold) which are made, ``VERDICT_WORKERS`` on how many processes.
``VERDICT_LADDER="3,inf,0"`` has other rules for stepping down, for A/B traffic and for winners: ``CONTRADICTED``, ``SMALL`` and
``VISIBLE`` of ``analysis.ladder``. ``VERDICT_ALLOWANCE`` is another allowance for visitors who do not follow the click model.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import optimize

from benchmarks.purchases import Purchases
from ranktrial.analysis import evidence
from ranktrial.analysis.analyse import Analysis, analyse
from ranktrial.analysis.answers import settled
from ranktrial.arrays import BoolArray, DocumentArray, FloatArray, IntArray
from ranktrial.config import TrialConfig
from ranktrial.log import Log
from ranktrial.log.sources import of_pair
from ranktrial.methods import AB, LogOpt, Method
from ranktrial.rankings import Mixture, Pair, draw_impressions
from ranktrial.rankings.traffic import draw_clicks
from ranktrial.report.making import readings_agree
from ranktrial.seeds import Seed, children, generator
from ranktrial.users import User, Users, cascade, position_based, rank_decay, trust_bias

RUNS = int(os.environ.get("VERDICT_RUNS", "40"))
FIRST = int(os.environ.get("VERDICT_FIRST", "0"))
WORKERS = int(os.environ.get("VERDICT_WORKERS", "2"))
ONLY = os.environ.get("VERDICT_ROWS", "")
ALLOWANCE = float(os.environ["VERDICT_ALLOWANCE"]) if "VERDICT_ALLOWANCE" in os.environ else None
if "VERDICT_LADDER" in os.environ:
    rules = sys.modules["ranktrial.analysis.ladder"]
    for name, text in zip(("CONTRADICTED", "SMALL", "VISIBLE"), os.environ["VERDICT_LADDER"].split(",")):
        setattr(rules, name, float(text))
LOOKS = (200, 500, 1_000, 2_000, 3_500, 5_000, 7_000, 10_000)
SHORT = LOOKS[:5]  # where every search has lists of its own, which takes ten times as long
LONG = (1_000, 2_000, 3_500, 5_000, 7_000, 10_000, 20_000, 30_000)  # with many queries
K, QUERIES, POOL = 10, 60, 20
HEAVY = 0.05  # share of the searches that one unit makes
Behaviour = Callable[[FloatArray], Users]
Row = dict[str, object]


def behaviours() -> dict[str, Callable[[FloatArray], User]]:
    """Users by name, given relevances."""
    found: dict[str, Callable[[FloatArray], User]] = {
        f"position-based, rank^-{eta:g}": partial(position_based, theta=rank_decay(K, eta))
        for eta in (0.5, 0.75, 1, 1.5)
    }
    trust = 1 / np.arange(1, K + 1) ** 0.5
    found["trust bias"] = partial(
        trust_bias, theta=rank_decay(K, 0.7), relevant=0.6 + 0.4 * trust, irrelevant=0.5 * trust**2
    )
    leaving = partial(cascade, k=K, theta=rank_decay(K, 0.5))
    found["cascade"] = partial(leaving, leave_after_click=0.5, leave_after_skip=0.05)
    found["damped after clicks"] = partial(leaving, leave_after_click=0.3, leave_after_skip=0.0)
    found["users who differ"] = partial(position_based, theta=rank_decay(K, 0.75))
    return found


@dataclass(frozen=True)
class World:
    """Two rankers, their users, and what searches come.

    Attributes:
        name: Of the row.
        pair: The rankers.
        user: How people click, on average.
        traffic: "repeated" queries; "Zipf", the first ones more often; a long "tail" in which every query is new;
            "personalised": few query texts, and everybody has lists and a taste of their own.
        crowd: "alike"; or who "differ" in how readily they click; or one "heavy" unit of a taste of its own.
        looks: Impressions after which the report is looked at.
        bent: Clicks after others than people have clicked as well, from rankings and clicks of people.
        ordered: Share of the clicks that lead to an order.
    """

    name: str
    pair: Pair
    user: Users
    traffic: str = "repeated"
    crowd: str = "alike"
    looks: tuple[int, ...] = LOOKS
    bent: Callable[[DocumentArray, BoolArray, np.random.Generator], BoolArray] | None = None
    ordered: float = 0.0

    @property
    def reader(self) -> User:
        """The user, where all of them read from the top in one way."""
        assert isinstance(self.user, User)
        return self.user


def top_tail(
    users: str | Behaviour,
    ctr: float,
    delta: float = 0.0,
    *,
    traffic: str = "repeated",
    crowd: str = "alike",
    impressions: int = SHORT[-1],
    queries: int = QUERIES,
) -> World:
    """The module's world, with these users, this CTR and this difference."""
    behaviour, name = (behaviours()[users], users) if isinstance(users, str) else (users, "")
    n = impressions if traffic in ("tail", "personalised") else queries
    a, b = [], []
    for q in range(n):
        ids = list(range(q * POOL, (q + 1) * POOL))
        a.append(ids[:K])
        # A swap of the two best, in A's favour; or better documents of B in the tail.
        b.append([ids[1], ids[0], *ids[2:K]] if q % 2 else [*ids[:4], *ids[K : K + 6]])
    pair, few = (Pair.from_lists(a[:size], b[:size], K) for size in (n, 2))

    def user(of: Pair, balance: float, scale: float) -> Users:
        query, place = np.divmod(np.array(of.ids), POOL)
        zeta = np.full(len(of.ids), 0.25)
        zeta[(query % 2 == 1) & (place == 0)] = 0.25 + 0.6 * balance
        zeta[(query % 2 == 0) & (place >= K)] = 0.25 + 0.5 * (1 - balance)
        return behaviour(np.clip(scale * zeta, 0, 1))

    def mean_ctr(balance: float, scale: float) -> float:
        return float(np.mean(few.ctr(user(few, balance, scale))))

    def scale_of(balance: float) -> float:
        low, high = 1e-4, 1.15
        reachable = float(np.clip(ctr, mean_ctr(balance, low), mean_ctr(balance, high)))
        return float(optimize.brentq(lambda s: mean_ctr(balance, s) - reachable, low, high))

    balance = float(optimize.brentq(lambda x: few.delta(user(few, x, scale_of(x))) - delta, 0.0, 1.0))
    people = user(pair, balance, scale_of(balance))
    share = f", CTR {np.mean(few.ctr(user(few, balance, scale_of(balance)))):.2g}"
    kinds = "".join(f", {kind}" for kind in (traffic, crowd) if kind not in ("repeated", "alike", "differ"))
    kinds += f", {queries:,} queries" if queries != QUERIES else ""
    looks = SHORT if traffic in ("tail", "personalised") else LOOKS if queries == QUERIES else LONG
    return World(f"{name}{share}{kinds}", pair, people, traffic, crowd, looks)


@dataclass
class Trial:
    """A trial in memory: what a live one does, without a store."""

    world: World
    config: TrialConfig
    seed: Seed
    document: IntArray = field(
        default_factory=lambda: np.empty(0, np.int64)
    )  # of each slot of the last log, in the pair

    def looks(self, at: tuple[int, ...]) -> Iterator[Analysis]:
        """The analysis at each look."""
        world, method, beliefs = self.world, self.config.comparison, self.config.first_beliefs
        policies: list[Mixture] = []
        parts = []
        stops = sorted({*at, *(n for n in method.traits.learns_at if n < at[-1])})
        done, policy, fresh = 0, _policy(method, world.pair, beliefs), True
        seeds = children(self.seed, len(stops) + 1)
        for stop, child in zip(stops, seeds):
            if fresh:
                policies.append(policy)
            drawing, clicking, others = children(child, 3)
            asked = _asked(world, done, stop, drawing)
            drawn = draw_impressions([policy], world.user, [stop - done], seed=drawing, asked=[asked])
            heavy = generator(others).random(stop - done) < (HEAVY if world.crowd == "heavy" else 0.5)
            clicks = drawn.clicks
            if world.crowd != "alike":
                user = world.reader
                taste = _taste(user, seeds[-1])
                one, other = (user, taste) if world.crowd == "heavy" else _more_and_less(user)
                clicks = np.where(
                    heavy[:, None], *(draw_clicks(drawn.rankings, user, seed=clicking) for user in (other, one))
                )
            if world.bent is not None:
                clicks = world.bent(drawn.rankings, clicks, generator(others))
            unit = np.arange(done, stop)
            unit[heavy & (world.crowd == "heavy")] = at[-1]
            assert drawn.rows is not None
            rows = drawn.rows + sum(len(one.rankings) for one in policies[:-1])
            version = np.full(stop - done, len(policies) - 1)
            parts.append((version, asked, drawn.rankings, clicks, unit, rows))
            done, fresh = stop, False
            versions, queries, rankings, flags, units, rows = (np.concatenate(column) for column in zip(*parts))
            log = used_designs(
                Log(**of_pair(world.pair, policies, versions, queries, rankings, flags, units, None, rows))
            )
            self.document = log.document
            log, of_pair_document = _with_few_texts(log) if world.traffic == "personalised" else (log, slice(None))
            if world.ordered:  # after the same clicks at every look
                log = Purchases(rate=world.ordered).after(log, seed=seeds[-1])
            analysis = analyse(replace(log, theta=None), self.config, beliefs)
            if stop in at:
                yield analysis
            if stop in method.traits.learns_at:
                told = evidence(log, agree=readings_agree(analysis), gain=analysis.gain)
                beliefs = method.learn(told, beliefs)
                assert beliefs.effects is not None
                known = replace(beliefs, effects=beliefs.effects[of_pair_document])
                policy, fresh = _policy(method, world.pair, known), True


def used_designs(log: Log) -> Log:
    """The log without designs that showed nothing: a live trial has none."""
    used = np.unique(log.design)
    if len(used) == log.n_designs:
        return log
    slots, rows = (_members(offsets, used) for offsets in (log.slot_offsets, log.row_offsets))
    new_slot = np.full(log.n_slots + 1, -1)
    new_slot[slots] = np.arange(len(slots))
    return replace(
        log,
        query=log.query[used],
        beliefs=log.beliefs[used],
        slot_offsets=np.append(0, np.cumsum(np.diff(log.slot_offsets)[used])),
        document=log.document[slots],
        rank_a=log.rank_a[slots],
        rank_b=log.rank_b[slots],
        row_offsets=np.append(0, np.cumsum(np.diff(log.row_offsets)[used])),
        rankings=new_slot[log.rankings[rows]],
        weights=log.weights[rows],
        design=np.searchsorted(used, log.design),
        row=np.searchsorted(rows, log.row),
    )


def _members(offsets: IntArray, groups: IntArray) -> IntArray:
    """Numbers of the members of some groups."""
    sizes = np.diff(offsets)[groups]
    return np.asarray(np.arange(sizes.sum()) + np.repeat(offsets[groups] - np.cumsum(sizes) + sizes, sizes))


def _asked(world: World, begin: int, end: int, seed: Seed) -> IntArray:
    random, n = generator(seed), world.pair.n_queries
    if world.traffic in ("tail", "personalised"):
        return np.arange(begin, end)
    chances = 1 / (np.arange(n) // 2 + 1) if world.traffic == "Zipf" else np.ones(n)  # of both kinds of queries alike
    return random.choice(n, end - begin, p=chances / chances.sum())


def _more_and_less(user: User) -> tuple[User, User]:
    """Two halves of the users, who find everything more and less to their liking; on average as the one."""
    spread = np.minimum(0.7 * user.zeta, 1 - user.zeta)
    return replace(user, zeta=user.zeta + spread), replace(user, zeta=user.zeta - spread)


def _taste(user: User, seed: Seed) -> User:
    """Somebody who likes some documents twice as much as others do, and the rest not at all; on average as others."""
    high = np.minimum(2 * user.zeta, 1.0)
    likes = generator(seed).random(len(high)) < 0.5
    return replace(user, zeta=np.where(likes, high, 2 * user.zeta - high))


def _with_few_texts(log: Log) -> tuple[Log, IntArray]:
    """Log with few query texts, under which everybody has the same documents in another order; and the number that
    each document has there."""
    place = np.array(log.documents, np.int64)
    query, order = place // POOL, np.argsort(generator(0).random((int(place.max()) // POOL + 1, POOL)), axis=1)
    text = (query // 2) % QUERIES
    key = text * POOL + order[query, place % POOL]
    merged = replace(
        log,
        queries=list(range(QUERIES)),
        documents=list(range(QUERIES * POOL)),
        document_query=np.repeat(np.arange(QUERIES), POOL),
        query=(np.array(log.queries, np.int64)[log.query] // 2) % QUERIES,
        document=key[log.document],
    )
    return merged, key


def _policy(method: Method, pair: Pair, beliefs: object) -> Mixture:
    assert isinstance(method, LogOpt | AB)
    return method.policy(pair, beliefs)  # type: ignore[arg-type]


class Verdicts(NamedTuple):
    """Verdicts of one trial.

    Attributes:
        first: The first winner named, "" if there was none.
        when: After how many impressions.
        reading: The estimate that was reported at the end.
        held: Whether a failing guardrail kept a winner from being named.
        covers: Whether the position-based estimate's 95 % interval for a fixed number of searches holds the truth at the end.
        ab_share: Share of A/B traffic at the end.
        last: The analysis at the end.
    """

    first: str
    when: int
    reading: str
    held: bool
    covers: bool
    ab_share: float
    last: Analysis


def one_run(world: World, method: Method, seed: int) -> Verdicts:
    """One trial, without the analysis at its end."""
    return verdicts(world, method, seed)._replace(last=None)  # type: ignore[arg-type]


def verdicts(world: World, method: Method, seed: int) -> Verdicts:
    """One trial."""
    config = TrialConfig.model_validate({"method": method, "k": K, "allowance": ALLOWANCE})
    first, when, reading, held = "", 0, "", False
    for n, analysis in zip(world.looks, Trial(world, config, seed).looks(world.looks)):
        decision = settled(analysis, {}).decision
        reading, name = decision.estimator or "", decision.winner or ""
        held |= bool(decision.failed) and 0 not in decision.interval
        if not first and name:
            first, when = name, n
    top, delta = analysis.ladder.results[-1].estimate, world.pair.delta(world.user)
    covers = top is not None and delta in top.confidence_interval()
    ab_share = float(analysis.log.ab_shares.sum(1)[-1])
    return Verdicts(first, when, reading, held, covers, ab_share, analysis)


def row(world: World, method: Method) -> Row:
    with ProcessPoolExecutor(WORKERS) as pool:
        found = list(pool.map(partial(one_run, world, method), range(FIRST, FIRST + RUNS), chunksize=5))
    named, readings = [one.first for one in found if one.first], [one.reading for one in found]
    return {
        "world": world.name,
        "method": str(method),
        "delta": f"{world.pair.delta(world.user):+.4f}",
        "impressions": world.looks[-1],
        "runs": RUNS,
        "A": f"{named.count('A') / RUNS:.1%}",
        "B": f"{named.count('B') / RUNS:.1%}",
        "guardrail first": f"{np.mean([one.held for one in found]):.1%}",
        "median impressions": int(np.median([one.when for one in found if one.first])) if named else "",
        "95 % interval holds": f"{np.mean([one.covers for one in found]):.1%}",
        "A/B traffic at the end": f"{np.mean([one.ab_share for one in found]):.0%}",
        **{name: f"{readings.count(name) / RUNS:.0%}" for name in ("A/B", "direct", "position-based")},
    }


def worlds() -> Iterator[Callable[[], World]]:
    """All of equal CTR."""
    for eta in (0.5, 0.75, 1, 1.5):
        for ctr in (0.02, 0.05, 0.8):
            yield partial(top_tail, f"position-based, rank^-{eta:g}", ctr)
    usual = partial(top_tail, "position-based, rank^-0.75")
    for ctr in (0.8, 0.05):
        yield partial(usual, ctr, traffic="Zipf")
        yield partial(usual, ctr, crowd="heavy")
        yield from (partial(one, ctr) for one in other_users())
    yield from (partial(usual, 0.8, traffic=traffic) for traffic in ("tail", "personalised"))
    yield from (partial(one, 0.8, traffic="tail") for one in other_users())


def other_users() -> Iterator[Callable[..., World]]:
    for name in ("trust bias", "cascade", "damped after clicks", "users who differ"):
        yield partial(top_tail, name, crowd="differ" if name == "users who differ" else "alike")


def run() -> list[Row]:
    rows: list[Row] = []
    for world, method in _cases():
        rows.append(row(world, method))
        print(rows[-1], flush=True)
    return rows


def _cases() -> Iterator[tuple[World, Method]]:
    for make in worlds():
        world = make()
        if ONLY in f"{world.name} of equal CTR":
            yield world, LogOpt()
    for ctr, delta, queries in ((1.2, -0.024, QUERIES), (1.2, -0.024, 600), (1.6, -0.026, QUERIES)):
        world = top_tail("trust bias", ctr, delta=delta, queries=queries)
        if ONLY in f"{world.name} where B is better":
            yield world, LogOpt()
    world = top_tail("position-based, rank^-0.75", 0.8, delta=0.03)
    for method in (LogOpt(), AB(estimate="rank-aware"), AB(estimate="adjusted")):
        if ONLY in f"{world.name} where A is better, {method}":
            yield world, method
