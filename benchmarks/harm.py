"""Guards against harm, futility and whole weeks: how often a trial stops, or names a winner, that should not, and how soon.

One pair of rankers with ten results each and no document in common: B's are less relevant by some per cent, so that it gets so
many fewer clicks. Visitors click by the position-based model, a click a search, and every one comes once. The trial is an
``AB()``; guards and futility are looked at after every search, up to 40,000, at their level of 99 %: all looks of a trial are
worked out from its sums at once. In the first trials of each kind, what a live trial does is done too, on the searches until a
look, at some looks: the benchmark ends where that says another share.

``HARM_RUNS`` sets how many trials of each kind there are, ``HARM_WORKERS`` on how many processes, and ``HARM_PARTS`` (all by
default, with commas between them) what is measured:

* ``stops``: guards and futility.
* ``logopt``: guards with ``LogOpt()``, 60 queries, looked at after every 1,000 of 10,000 searches (``HARM_RUNS / 10`` trials).
* ``ramp``: the interval where the visitors of a small share differ from those of the larger one after it.
* ``weeks``: winners where the difference depends on the day, looked at once a day for four weeks (``HARM_RUNS / 10`` trials).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.verdicts import Trial, World
from ranktrial.analysis.analyse import analyse
from ranktrial.analysis.answers import settled
from ranktrial.analysis.intervals import asymptotic_radius, asymptotic_sequence
from ranktrial.analysis.metrics import GUARDS_TIGHTEST
from ranktrial.analysis.power import tightest_for
from ranktrial.arrays import BoolArray, FloatArray
from ranktrial.config import TrialConfig
from ranktrial.interval import Interval
from ranktrial.log import Log
from ranktrial.log.sources import of_pair
from ranktrial.methods import AB
from ranktrial.rankings import Pair
from ranktrial.report.harm import futility, guards
from ranktrial.report.making import in_time
from ranktrial.users import position_based, rank_decay

RUNS = int(os.environ.get("HARM_RUNS", "1000"))
WORKERS = int(os.environ.get("HARM_WORKERS", "2"))
PARTS = os.environ.get("HARM_PARTS", "stops,logopt,ramp,weeks").split(",")
SEARCHES, K, CLICKS = 40_000, 10, 1.0
FIRST_LOOK, TIGHTEST = 100, 10_000  # of the sequences of a trial
CHECKED = 3  # trials of each kind that are held against what a live trial does
PLAN = 20_000  # searches of a trial whose length was fixed beforehand
THETA = rank_decay(K, 1.0)
POINTS = np.arange(1, SEARCHES + 1)
SMALLEST = 0.05  # clicks per search, for futility
CONFIG = TrialConfig.model_validate({"method": "AB()", "k": K, "guards": {"clicks": 0.0, "shown": 0.0}})
FUTILITY = TrialConfig.model_validate({"method": "AB()", "k": K, "smallest": SMALLEST})
ASKED = {  # by how much B is worse: guards with what they allow
    -0.05: [("futility", SMALLEST)],
    0.0: [("clicks of B", 0.0), ("clicks of B", 0.02), ("clicks shown", 0.0), ("futility", SMALLEST)],
    0.02: [("clicks of B", 0.02), ("clicks shown", 0.01)],
    0.05: [("clicks of B", 0.0), ("clicks of B", 0.02), ("clicks of B", 0.05), ("futility", SMALLEST)],
    0.1: [("clicks of B", 0.0), ("clicks of B", 0.02), ("clicks shown", 0.01)],
    0.2: [("clicks of B", 0.0), ("clicks of B", 0.02), ("clicks shown", 0.01)],
}
Row = dict[str, object]


class Searches(NamedTuple):
    """Searches of an A/B test: which showed B's list, and which of the results were clicked."""

    of_b: BoolArray
    clicked: BoolArray

    @classmethod
    def drawn(cls, chances: FloatArray, seed: int) -> Searches:
        """Draw as many as there are shares of A's clicks that B gets in each."""
        random = np.random.default_rng(seed)
        of_b = random.integers(0, 2, len(chances)) == 1
        share = np.where(of_b, chances, 1.0)[:, None]
        return cls(of_b, random.random((len(chances), K)) < THETA * CLICKS / THETA.sum() * share)

    def log(self, times: FloatArray | None = None) -> Log:
        """Log that a trial would have of them."""
        names = [f"{ranker}{rank}" for ranker in "ab" for rank in range(K)]
        pair = Pair.from_lists([names[:K]], [names[K:]], k=K)
        size, policy, rows = len(self.of_b), AB().policy(pair), self.of_b.astype(np.int64)
        nothing = np.zeros(size, np.int64)
        page = policy.rankings[rows]
        return Log(**of_pair(pair, [policy], nothing, nothing, page, self.clicked, np.arange(size), times, rows))

    @property
    def difference(self) -> Difference:
        """Clicks of A minus those of B after each search, as ``difference_values`` of all until then would have them."""
        y, count = self.clicked.sum(1).astype(np.float64), np.arange(1, len(self.of_b) + 1)
        number, summed, squared = (
            np.cumsum(np.where([~self.of_b, self.of_b], of, 0.0), axis=1) for of in (np.ones(len(y)), y, y**2)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = summed / number
            squares = ((squared - number * mean**2) / (number / count) ** 2).sum(0)
            return Difference(mean[0] - mean[1], np.sqrt(squares / (count - 1)))


class Difference(NamedTuple):
    """Estimate after each search, and the spread of the values that it is the mean of."""

    mean: FloatArray
    spread: FloatArray

    def interval(self, level: float, tightest_at: float) -> Interval:
        """Both ends after each search, as ``asymptotic_sequence`` has them."""
        count = np.arange(1, len(self.mean) + 1)
        reach = asymptotic_radius(count, self.spread, level=level, tightest_at=tightest_at)
        reach[: FIRST_LOOK - 1] = np.inf
        return Interval(self.mean - reach, self.mean + reach)  # type: ignore[arg-type]  # arrays

    def least(self, searches: int) -> float:
        """Lower end of the decision's interval, which is tightest where it finds ``SMALLEST`` soonest."""
        mean, spread = float(self.mean[searches - 1]), float(self.spread[searches - 1])
        tightest_at = tightest_for(spread**2, SMALLEST, level=FUTILITY.level)
        return mean - float(asymptotic_radius([searches], [spread], level=FUTILITY.level, tightest_at=tightest_at)[0])


# --- stops --------------------------------------------------------------------------------------------------------------------


def stops(worse: float, seed: int) -> list[float]:
    """Searches until each of the guards asked for stops a trial; infinite if none does."""
    searches = Searches.drawn(np.full(SEARCHES, 1.0 - worse), seed)
    difference, clicks = searches.difference, searches.clicked.sum(1).astype(np.float64)
    level = 1 - 2 * (1 - CONFIG.guards.level) / 2  # A - B and the mean of both share what the level leaves
    low, high = difference.interval(level, GUARDS_TIGHTEST)
    m = asymptotic_sequence(clicks, POINTS, level=level, tightest_at=GUARDS_TIGHTEST).high
    with np.errstate(invalid="ignore", divide="ignore"):
        paths = {
            "clicks of B": np.where(low > 0, low / (m + low / 2), -np.inf),
            "clicks shown": np.where(low > 0, low / 2 / (m + high / 2), -np.inf),
        }
    # B is better by less than what matters, by the guards' level and by the decision's
    maybe = POINTS[difference.interval(1 - 2 * (1 - FUTILITY.guards.level), GUARDS_TIGHTEST).low > -SMALLEST]
    futile = next((float(at) for at in maybe.tolist() if difference.least(at) > -SMALLEST), np.inf)
    found = [futile if what == "futility" else stop_at(paths[what], bound) for what, bound in ASKED[worse]]
    if seed < CHECKED:
        log = searches.log()
        for look in {
            500,
            5_000,
            SEARCHES,
            *(int(stop) - before for stop in found if stop < np.inf for before in (0, 1)),
        }:
            told = {what: float(path[look - 1]) for what, path in paths.items()}
            hold_against_a_trial(log.first(look), told, None if look > futile else look == futile)
    return found


def hold_against_a_trial(log: Log, told: Mapping[str, float], futile: bool | None) -> None:
    """Compare shares with those that the guards of a trial find with these searches, and futility where that is known."""
    found = settled(analyse(log, CONFIG, CONFIG.first_beliefs), {})
    for guard in guards(found.of_clicks, {}):
        np.testing.assert_allclose(
            guard.at_least, told[guard.name], rtol=0, atol=1e-10, err_msg=f"{guard.name}, {len(log)}"
        )
    found = settled(analyse(log, FUTILITY, FUTILITY.first_beliefs), {})
    said = futility(found.analysis, found.decision, found.widen) != ""
    assert futile in (None, said) or found.decision.failed, f"futility, {len(log)}"


def stop_at(path: FloatArray, tolerance: float) -> float:
    """Searches until the stop; infinite if there was none."""
    sure = np.flatnonzero(path > tolerance)
    return float(POINTS[sure[0]]) if len(sure) else float("inf")


def all_stops(pool: ProcessPoolExecutor) -> Iterator[Row]:
    for worse, asked in ASKED.items():
        found = np.array(list(pool.map(partial(stops, worse), range(RUNS), chunksize=10)))
        for (what, bound), of in zip(asked, found.T):
            yield row(what, worse, bound, of, SEARCHES)


def row(what: str, worse: float, tolerance: float, stops: FloatArray, searches: int) -> Row:
    lost = worse * CLICKS / 2  # of every search: half of them are B's
    stopped = np.isfinite(stops)
    return {
        "guard": what,
        "B worse by": f"{worse:.0%}",
        "allowed": f"{tolerance:.0%}",
        "trials": len(stops),
        "stopped": f"{stopped.mean():.1%}",
        "searches to the stop (median)": float(np.median(stops)),
        "clicks lost": float(np.mean(np.minimum(stops, searches)) * lost),
        "lost by a plan of 20,000": PLAN * lost,
        "lost without a stop": searches * lost,
    }


# --- LogOpt -------------------------------------------------------------------------------------------------------------------

QUERIES, LOOKS = 60, tuple(range(1_000, 10_001, 1_000))


def logopt_stops(worse: float, seed: int) -> list[float]:
    """Searches until the guards on clicks, and on what is shown, stop a trial with ``LogOpt()``."""
    a = [[f"{query}-{rank}" for rank in range(K)] for query in range(QUERIES)]
    b = [[f"{one}{'b' * (rank % 2)}" for rank, one in enumerate(ids)] for ids in a]  # every second document is another
    pair = Pair.from_lists(a, b, k=K)
    of_b = np.array([str(one).endswith("b") for one in pair.ids])
    relevance = np.where(of_b, 1 - worse * THETA.sum() / THETA[1::2].sum(), 1.0) * CLICKS / THETA.sum()
    world = World("", pair, position_based(relevance, THETA), looks=LOOKS)
    config = TrialConfig.model_validate({"method": "LogOpt()", "k": K, "guards": {"clicks": 0.02, "shown": 0.01}})
    stop = {"clicks of B": np.inf, "clicks shown": np.inf}
    for looked, analysis in zip(LOOKS, Trial(world, config, seed).looks(LOOKS)):
        found = settled(analysis, {})
        for guard in guards(found.of_clicks, {}):
            if guard.status == "harm":
                stop[guard.name] = min(stop[guard.name], looked)
    return list(stop.values())


def logopt(pool: ProcessPoolExecutor) -> Iterator[Row]:
    for worse in (0.0, 0.1, 0.2):
        found = np.array(list(pool.map(partial(logopt_stops, worse), range(max(RUNS // 10, 1)))))
        for what, tolerance, of in zip(("clicks of B", "clicks shown"), (0.02, 0.01), found.T):
            known = row(f"{what}, LogOpt()", worse, tolerance, of, LOOKS[-1])
            yield {name: known[name] for name in list(known)[:6]}


# --- another mix of visitors after a stage of a ramp --------------------------------------------------------------------------


def missed(before: float, after: float, first: int, seed: int) -> bool:
    """True if an interval ever left out the mean difference of those who had come.

    B gets 10 % more clicks from some visitors, a share ``before`` in the first stage and ``after`` it, and 10 % fewer from all
    others.
    """
    at, random = np.arange(SEARCHES), np.random.default_rng([seed, 1])
    better = random.random(SEARCHES) < np.where(at < first, before, after)
    band = Searches.drawn(np.where(better, 1.1, 0.9), seed).difference.interval(CONFIG.level, TIGHTEST)
    truth = -np.cumsum(np.where(at < first, before, after) * 0.2 - 0.1)[POINTS - 1] / POINTS * CLICKS
    return bool(((band.low > truth) | (band.high < truth)).any())


def ramp(pool: ProcessPoolExecutor) -> Iterator[Row]:
    for before, after, first in ((0.5, 0.5, 4_000), (0.9, 0.1, 4_000), (0.1, 0.9, 4_000), (0.9, 0.1, 20_000)):
        found = list(pool.map(partial(missed, before, after, first), range(RUNS), chunksize=10))
        yield {
            "like B, first stage": f"{before:.0%}",
            "like B, later": f"{after:.0%}",
            "first stage": first,
            "trials": RUNS,
            "the truth was ever left out": f"{np.mean(found):.1%}",
        }


# --- weeks --------------------------------------------------------------------------------------------------------------------

A_DAY, DAYS, DAY = 2_000, 28, 86_400.0
WEEKS = {
    "alike every day": [0.0] * 7,
    "B better on two days, alike over the week": [0.25, 0.25, *[-0.1] * 5],
    "B better on two days, A over the week": [0.2, 0.2, *[-0.2] * 5],
    "A better every day": [-0.1] * 7,
}


def winners(of_day: list[float], seed: int) -> list[tuple[str, int]]:
    """The first winner and its day, if it counts at once and if it counts after whole weeks."""
    at = np.arange(A_DAY * DAYS)
    log = Searches.drawn(1 + np.array(of_day)[at // A_DAY % 7], seed).log(at / A_DAY * DAY * 1e6)
    config = TrialConfig.model_validate({"method": "AB()", "k": K, "then": "stop"})
    found: dict[bool, tuple[str, int]] = {}
    for day in range(1, DAYS + 1):
        at_once = settled(analyse(log.first(day * A_DAY), config, config.first_beliefs), {})
        for weeks, told in ((False, at_once), (True, in_time(at_once, 0.0, day * DAY))):
            if told.decision.winner is not None:
                found.setdefault(weeks, (told.decision.winner, day))
        if len(found) == 2:
            break
    return [found.get(weeks, ("", DAYS)) for weeks in (False, True)]


def weeks(pool: ProcessPoolExecutor) -> Iterator[Row]:
    for name, of_day in WEEKS.items():
        better = "" if abs(sum(of_day)) < 1e-9 else "B" if sum(of_day) > 0 else "A"
        found = list(pool.map(partial(winners, of_day), range(max(RUNS // 10, 1))))
        known: Row = {"rankers": name, "trials": len(found)}
        for column, of in zip(("at once", "after whole weeks"), zip(*found)):
            wrong = np.mean([winner not in ("", better) for winner, _ in of])
            right = [day for winner, day in of if winner and winner == better]
            known[f"{column}: wrong"] = f"{wrong:.0%}"
            known[f"{column}: right"] = f"{len(right) / len(of):.0%}"
            known[f"{column}: days (median)"] = float(np.median(right)) if right else float("nan")
        yield known


def run() -> list[Row]:
    parts: dict[str, Callable[[ProcessPoolExecutor], Iterator[Row]]] = {
        "stops": all_stops, "logopt": logopt, "ramp": ramp, "weeks": weeks,
    }  # fmt: skip
    rows: list[Row] = []
    with ProcessPoolExecutor(WORKERS) as pool:
        for part in PARTS:
            for one in parts[part](pool):
                print(one, flush=True)
                rows.append(one)
    return rows
