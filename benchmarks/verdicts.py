"""Verdicts of whole trials: false ones between different rankers of equal CTR, and how soon right ones come where they differ.

Trials run in memory, as a live one would: the method draws, learns on its schedule, and the report is looked at again and
again; a run counts once any look has named a winner. World "top/tail": on half of the queries A puts the best document first
and B second, on the other half B has better documents from rank 5 on, relevances scaled so that the difference under the users'
own behaviour is exactly what is asked for (0 for false verdicts). ``VERDICT_RUNS`` sets how many runs a row has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy import optimize

from ranktrial.arrays import FloatArray
from ranktrial.inference import Log
from ranktrial.inference.log_sources import of_pair
from ranktrial.live.analysis import Analysis, analyse
from ranktrial.live.reports import settled
from ranktrial.live.schemas import TrialConfig
from ranktrial.methods import AB, LogOpt, Method
from ranktrial.rankings import Mixture, Pair, draw_impressions
from ranktrial.seeds import Seed, children
from ranktrial.users import User, cascade, position_based, rank_decay, trust_bias

RUNS = int(os.environ.get("VERDICT_RUNS", "40"))
LOOKS = (200, 500, 1_000, 2_000, 3_500, 5_000, 7_000, 10_000)
K = 10
Behaviour = Callable[[FloatArray], User]
Row = dict[str, object]


def behaviours() -> dict[str, Behaviour]:
    """Users by name, given relevances."""
    found: dict[str, Behaviour] = {
        f"position-based, rank^-{eta:g}": partial(position_based, theta=rank_decay(K, eta))
        for eta in (0.5, 0.75, 1, 1.5)
    }
    trust = 1 / np.arange(1, K + 1) ** 0.5
    found["trust bias"] = partial(
        trust_bias, theta=rank_decay(K, 0.7), relevant=0.6 + 0.4 * trust, irrelevant=0.5 * trust**2
    )
    found["cascade"] = partial(cascade, k=K, theta=rank_decay(K, 0.5), leave_after_click=0.5, leave_after_skip=0.05)
    return found


def top_tail(behaviour: Behaviour, ctr: float, delta: float = 0.0, queries: int = 60) -> tuple[Pair, User]:
    """The pair and users of the module's world, with this CTR and difference."""
    a, b, top, tail = [], [], [], []
    for q in range(queries):
        ids = list(range(q * 20, q * 20 + 20))
        if q % 2:  # a swap of the two best, in A's favour
            a.append(ids[:K])
            b.append([ids[1], ids[0], *ids[2:K]])
            top += ids[:1]
        else:  # better documents of B in the tail
            a.append(ids[:K])
            b.append([*ids[:4], *ids[K : K + 6]])
            tail += ids[K : K + 6]
    pair = Pair.from_lists(a, b, K)
    numbers = np.array(pair.ids)

    def user(balance: float, scale: float) -> User:
        zeta = np.full(len(numbers), 0.25)
        zeta[np.isin(numbers, top)] = 0.25 + 0.6 * balance
        zeta[np.isin(numbers, tail)] = 0.25 + 0.5 * (1 - balance)
        return behaviour(np.clip(scale * zeta, 0, 1))

    def mean_ctr(balance: float, scale: float) -> float:
        return float(np.mean(pair.ctr(user(balance, scale))))

    def scaled(balance: float) -> User:
        low, high = 1e-4, 1.15
        reachable = float(np.clip(ctr, mean_ctr(balance, low), mean_ctr(balance, high)))
        scale = optimize.brentq(lambda s: mean_ctr(balance, s) - reachable, low, high)
        return user(balance, float(scale))

    balance = optimize.brentq(lambda x: pair.delta(scaled(x)) - delta, 0.0, 1.0)
    return pair, scaled(float(balance))


@dataclass
class Trial:
    """A trial in memory: what a live one does, without a store."""

    pair: Pair
    user: User
    config: TrialConfig
    seed: Seed

    def looks(self, at: tuple[int, ...]) -> Iterator[Analysis]:
        """The analysis at each look."""
        method, beliefs = self.config.comparison, self.config.first_beliefs
        policies: list[Mixture] = []
        parts = []
        stops = sorted({*at, *(n for n in method.learns_at if n < at[-1])})
        policy, done = _policy(method, self.pair, beliefs), 0
        for stop, child in zip(stops, children(self.seed, len(stops))):
            drawn = draw_impressions([policy], self.user, [stop - done], seed=child)
            before = sum(len(one.rankings) for one in policies)
            policies.append(policy)
            assert drawn.rows is not None
            version = np.full(stop - done, len(policies) - 1)
            parts.append((version, drawn.queries, drawn.rankings, drawn.clicks, drawn.rows + before))
            done = stop
            versions, queries, rankings, clicks, rows = (np.concatenate(column) for column in zip(*parts))
            log = Log(**of_pair(self.pair, policies, versions, queries, rankings, clicks, None, None, rows))
            if stop in at:
                yield settled(analyse(replace(log, theta=None), self.config, beliefs), {})[0]
            if stop in method.learns_at:
                beliefs = method.learn(log.parts()[0], log.shows, beliefs)
                policy = _policy(method, self.pair, beliefs)


def _policy(method: Method, pair: Pair, beliefs: object) -> Mixture:
    assert isinstance(method, LogOpt | AB)
    return method.policy(pair, beliefs)  # type: ignore[arg-type]


def one_run(world: tuple[Pair, User], method: Method, seed: int) -> tuple[str, int, str]:
    """The first winner named, after how many impressions, and the reading at the end."""
    config = TrialConfig.model_validate({"method": method, "k": K})
    first, when, reading = "", 0, ""
    for n, analysis in zip(LOOKS, Trial(*world, config, seed).looks(LOOKS)):
        reading = "" if analysis.rung is None else analysis.rung.name
        if not first and (first := ("", "A", "B")[analysis.winner]):
            when = n
    return first, when, reading


def row(world: tuple[Pair, User], method: Method, what: str, workers: int = 2) -> Row:
    with ProcessPoolExecutor(workers) as pool:
        found = list(pool.map(partial(one_run, world, method), range(RUNS)))
    named = [first for first, _, _ in found if first]
    readings = [reading for _, _, reading in found]
    delta = world[0].delta(world[1])
    return {
        "world": what,
        "method": str(method),
        "delta": f"{delta:+.4f}",
        "runs": RUNS,
        "A": f"{named.count('A') / RUNS:.0%}",
        "B": f"{named.count('B') / RUNS:.0%}",
        "median impressions": int(np.median([when for first, when, _ in found if first])) if named else "",
        **{name: f"{readings.count(name) / RUNS:.0%}" for name in ("A/B", "direct", "position-based")},
    }


def run() -> list[Row]:
    rows: list[Row] = []
    for name, behaviour in behaviours().items():
        for ctr in (0.05, 0.8):
            world = top_tail(behaviour, ctr)
            rows.append(row(world, LogOpt(), f"top/tail, {name}, CTR {np.mean(world[0].ctr(world[1])):.2g}"))
    for method in (LogOpt(), AB()):
        world = top_tail(behaviours()["position-based, rank^-0.75"], 0.8, delta=0.03)
        rows.append(row(world, method, "top/tail, A better"))
    return rows
