"""Searches to the same decision by every method, on real queries, beside the share of wrong directions.

The decision is that of one test at 5 % error and 80 % power, for the true difference of each pair, with a number of searches
fixed beforehand: (z_{1-alpha/2} + z_power)^2 Var(x) / E[x]^2, all moments exact (``plan``). Pairs are those of ``discrepancy``:
a ranker against itself moved towards another one. Held-back pairs are of queries, or of rankers, that nothing in this project
was chosen on. Directions are those of the limit of each estimate, for visitors who follow the click model and who do not.
The drill damages one ranker and asks for the searches after which each method has noticed, looked at all the time.

``RANKTRIAL_DATA`` is the folder of the real data sets. ``FASTER_PAIRS`` sets how many rankers of a data set are changed.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from benchmarks import discrepancy
from benchmarks.discrepancy import FAMILIES, FIRST, THETA, Case, Data, K, Row, listed, natural, real_data
from ranktrial import plan
from ranktrial.analysis.decision import ALLOWANCE
from ranktrial.analysis.ladder import POSITION_BASED, SHARES
from ranktrial.analysis.planning.results import Plan, PlannedMethod
from ranktrial.analysis.power import fixed_impressions
from ranktrial.arrays import FloatArray
from ranktrial.methods import AB, DebiasedBalanced, LogOpt, Method, Optimized, TeamDraft
from ranktrial.methods.displays import Linear
from ranktrial.paper.data import Dataset, read_letor, read_rankers, read_splits, train_rankers
from ranktrial.position_bias import NotIdentifiable
from ranktrial.rankings import Pair, expected_clicks
from ranktrial.users import User, Users

PAIRS = int(os.environ.get("FASTER_PAIRS", "5"))
DAMAGED = 5  # rankers of each data set
BASE = AB()
BY_MODEL: tuple[AB | LogOpt, ...] = (AB(estimate="rank-aware"), LogOpt())
INTERLEAVING = (TeamDraft(), DebiasedBalanced(), Optimized())
METHODS: tuple[Method, ...] = (BASE, *BY_MODEL, *(replace(method, bias="known") for method in BY_MODEL), *INTERLEAVING)
BANDS = (0.0, 0.03, 0.1, 0.3, 1.01)  # of exposure disagreement
VISITORS = {name: FAMILIES[name] for name in (POSITION_BASED, "15 % compare", "leave after a click", "trust bias")}
Damage = Callable[[Dataset, FloatArray, np.random.Generator], tuple[FloatArray, np.ndarray | None]]


def run() -> list[Row]:
    discrepancy.PAIRS = PAIRS
    found: list[Compared] = []
    for held, data in [(False, seen()), (True, held_back())]:
        for one in data:
            found += [compared(case, held=held) for case in natural(*one)]
            print(f"{one[0].name}: {len(found)} pairs", file=sys.stderr, flush=True)
    return [*ratios(found), *by_disagreement(found), *directions(found), *drill()]


# --- data -----------------------------------------------------------------------------------------------------------------


def seen() -> Iterator[Data]:
    """The real data sets on which the allowance was chosen."""
    yield from (make() for make in (discrepancy.mailru_longtail, discrepancy.mq2008, discrepancy.mslr_sample))


def held_back() -> Iterator[Data]:
    """Test queries of Mail.ru, another fifth of MQ2008, and others of the paper's rankers."""
    splits = read_splits(real_data() / "mailru_longtail")
    yield replace(splits["test"], name="mailru_longtail"), train_rankers(splits["train"], 2 * PAIRS, seed=12).weights
    train, test = (read_letor(real_data() / "mq2008" / f"S{i}.txt.gz") for i in (2, 5))
    if not np.array_equal(train.feature_ids, test.feature_ids):
        test = read_letor(real_data() / "mq2008" / "S5.txt.gz", feature_ids=train.feature_ids)
    yield replace(test, name="mq2008"), train_rankers(train, 2 * PAIRS, seed=12).weights
    dataset, _ = discrepancy.mslr_sample()
    file = real_data() / "ictir2020_rankers" / "mslr_web30k_1000rankers.txt.gz"
    rankers = read_rankers(file, dataset, allow_dropped=True)
    yield dataset, rankers.weights[-2 * PAIRS :]


# --- searches -------------------------------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """One pair: searches by method, and by visitors whether the limit of each estimate points the wrong way.

    Attributes:
        searches: To the decision, without an allowance.
        allowed: The same with the default allowance and room for hostile searches.
        unguarded: The same with the default allowance alone, of methods by the click model.
        wrong: (method, visitors) -> the limit names the other ranker, or nobody.
        beyond: The same with a limit further from 0 than the allowance, so that the other ranker would be named.
    """

    kind: str
    held: bool
    tv: float
    lift: float
    searches: dict[Method, float]
    allowed: dict[Method, float]
    unguarded: dict[Method, float]
    wrong: dict[tuple[Method, str], float]
    beyond: dict[tuple[Method, str], float]


def planned(case: Case) -> tuple[Plan, dict[Method, PlannedMethod]]:
    found = plan(case.pair.knowing(theta=THETA), case.zeta, methods=METHODS)
    assert not found.left_out, found.left_out
    return found, dict(zip(METHODS, found.rows))


def trusting(row: PlannedMethod) -> float:
    """Searches without an allowance, as the plan counts them: its own ``impressions`` are those with one."""
    if row.theta is None:
        return row.impressions
    level = 1 - 0.05 * SHARES[POSITION_BASED]
    total = row.variance + row.theta_variance
    return float(fixed_impressions(total, row.outcome, level=level, jackknife=row.theta == "estimated"))


def compared(case: Case, *, held: bool) -> Compared:
    found, rows = planned(case)
    searches = {method: trusting(row) for method, row in rows.items()}
    allowed = {method: row.impressions for method, row in rows.items()}
    alone = plan(case.pair.knowing(theta=THETA), case.zeta, methods=BY_MODEL, contamination=0).rows
    unguarded: dict[Method, float] = {method: row.impressions for method, row in zip(BY_MODEL, alone)}
    wrong, beyond = {}, {}
    for name, behaviour in VISITORS.items():
        user = behaviour(case.zeta)
        for method, (limit, room) in limits(case.pair, user).items():
            side = np.sign(case.pair.delta(user))
            wrong[method, name] = np.nan if np.isnan(limit) else float(side * limit <= 0)
            beyond[method, name] = np.nan if np.isnan(limit) else float(side * limit < -room)
    kind = case.kind.split("/")[0]
    return Compared(
        kind, held, found.disagreement, found.delta / found.ctr, searches, allowed, unguarded, wrong, beyond
    )


def limits(pair: Pair, user: Users) -> dict[Method, tuple[float, float]]:
    """Limit of each estimate under these visitors, and the room that its interval leaves."""
    found: dict[Method, tuple[float, float]] = {}
    for method, traffic in zip(BY_MODEL, (discrepancy.AB_TRAFFIC, FIRST)):
        try:
            one = discrepancy.traffic_of(traffic, pair, user)[1]
        except NotIdentifiable:
            found[method] = np.nan, 0.0
            continue
        room = ALLOWANCE * discrepancy.disagreement(pair, one.theta) * sum(pair.ctr(user)) / 2
        found[method] = one.position_based, room
    return found | {method: (_outcome(method, pair, user), 0.0) for method in INTERLEAVING}


def _outcome(method: Method, pair: Pair, user: Users) -> float:
    """Limit of an interleaving's outcome; for visitors who compare, team-draft's is that of the sum of its credits."""
    if isinstance(user, User):
        return method.moments(pair, user).mean
    displays = (TeamDraft(outcome="sum") if isinstance(method, TeamDraft) else method).displays(pair)
    assert isinstance(displays.value, Linear)
    clicks = expected_clicks(displays.mixture.rankings, user)
    return float(displays.mixture.mean((displays.value.values * clicks).sum(1)).mean())


# --- tables ---------------------------------------------------------------------------------------------------------------


def ratios(found: list[Compared]) -> list[Row]:
    """Times fewer searches than the difference in means takes, by data set and method."""
    rows: list[Row] = []
    for held in (False, True):
        for kind in dict.fromkeys(one.kind for one in found):
            some = [one for one in found if (one.kind, one.held) == (kind, held)]
            for method in METHODS:
                rows.append(
                    {
                        "table": "held back" if held else "natural pairs",
                        "data": kind,
                        "pairs": len(some),
                        "method": str(method),
                        "searches, median": f"{np.median([one.searches[method] for one in some]):,.0f}",
                        "times fewer": _spread([one.searches[BASE] / one.searches[method] for one in some]),
                        "with the allowance": _spread(
                            [one.searches[BASE] / one.unguarded.get(method, np.nan) for one in some]
                        ),
                        "and hostile searches": _spread([one.searches[BASE] / one.allowed[method] for one in some]),
                        "wrong way": _share([one.wrong.get((method, POSITION_BASED), 0.0) for one in some]),
                    }
                )
    return rows


def by_disagreement(found: list[Compared]) -> list[Row]:
    """Gain over all data, by the rankers' disagreement, which decides how much there is to gain."""
    rows: list[Row] = []
    for low, high in pairwise(BANDS):
        some = [one for one in found if low <= one.tv < high]
        row: Row = {"table": "by disagreement", "data": f"{low:g} to {min(high, 1):g}", "pairs": len(some)}
        row["lift, median"] = f"{np.median([one.lift for one in some]):.1%}"
        row["less than the allowance"] = _share([one.lift < ALLOWANCE * one.tv for one in some])
        for method in METHODS:
            row[str(method)] = _spread([one.searches[BASE] / one.searches[method] for one in some])
            if method in BY_MODEL:
                row[f"{method}, allowance"] = _spread([one.searches[BASE] / one.unguarded[method] for one in some])
                row[f"{method}, and hostile"] = _spread([one.searches[BASE] / one.allowed[method] for one in some])
        rows.append(row)
    return rows


def directions(found: list[Compared]) -> list[Row]:
    """Share of pairs for which the limit names the wrong ranker, by visitors."""
    rows: list[Row] = []
    for name in VISITORS:
        row: Row = {"table": "wrong way", "visitors": name, "pairs": len(found)}
        for method in (*BY_MODEL, *INTERLEAVING):
            row[str(method)] = _share([one.wrong[method, name] for one in found])
            if method in BY_MODEL:
                row[f"{method}, beyond the allowance"] = _share([one.beyond[method, name] for one in found])
        rows.append(row)
    return rows


def _spread(of: list[float]) -> str:
    """Median, and 10 and 90 % quantiles."""
    low, middle, high = np.quantile(of, (0.1, 0.5, 0.9))
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"


def _share(of: list[float]) -> str:
    return f"{np.nanmean(of):.1%}"


# --- drill ----------------------------------------------------------------------------------------------------------------


def shuffled(count: int) -> Damage:
    """The first results of each query in random order."""

    def damage(dataset: Dataset, scores: FloatArray, random: np.random.Generator) -> tuple[FloatArray, None]:
        found = scores.copy()
        for begin, end in pairwise(dataset.offsets):
            top = begin + np.argsort(-scores[begin:end], kind="stable")[:count]
            found[top] = scores[random.permutation(top)]
        return found, None

    return damage


def missing(share: float) -> Damage:
    """A share of all documents is not in the index."""

    def damage(dataset: Dataset, scores: FloatArray, random: np.random.Generator) -> tuple[FloatArray, np.ndarray]:
        return scores, random.random(len(scores)) >= share

    return damage


def stale(share: float) -> Damage:
    """A share of documents are scored as they were: by what another document of the query scores now."""

    def damage(dataset: Dataset, scores: FloatArray, random: np.random.Generator) -> tuple[FloatArray, None]:
        found = scores.copy()
        for begin, end in pairwise(dataset.offsets):
            old = begin + np.flatnonzero(random.random(end - begin) < share)
            found[old] = scores[random.integers(begin, end, len(old))]
        return found, None

    return damage


DAMAGES: dict[str, Damage] = {
    "first three shuffled": shuffled(3),
    "first ten shuffled": shuffled(10),
    "a tenth of the index missing": missing(0.1),
    "a tenth of the documents stale": stale(0.1),
    "half of the documents stale": stale(0.5),
}


def drill() -> list[Row]:
    """Searches after which a damaged ranker is noticed, looked at all the time: median over rankers and data sets."""
    noticed: dict[str, list[dict[Method, PlannedMethod]]] = defaultdict(list)
    lost: dict[str, list[float]] = defaultdict(list)
    for dataset, weights in seen():
        for number, weight in enumerate(weights[:DAMAGED]):
            scores = dataset.features @ weight
            for name, damage in DAMAGES.items():
                case = damaged(dataset, scores, *damage(dataset, scores, np.random.default_rng(number)))
                found, rows = planned(case)
                assert found.truth is not None
                lost[name].append(-found.truth / found.ctr)
                noticed[name].append(rows)
        print(f"{dataset.name}: damaged", file=sys.stderr, flush=True)
    table: list[Row] = []
    for name, many in noticed.items():
        row: Row = {"table": "drill", "damage": name, "pairs": len(many), "clicks lost": f"{np.median(lost[name]):.1%}"}
        row["nothing lost"] = int(np.sum(np.array(lost[name]) <= 0))
        for method in METHODS:
            row[str(method)] = f"{np.median([rows[method].anytime for rows in many]):,.0f}"
            row[f"{method}, never"] = int(np.sum([np.isinf(rows[method].anytime) for rows in many]))
            if method in BY_MODEL:
                row[f"{method}, no allowance"] = f"{np.median([rows[method].trusting for rows in many]):,.0f}"
        table.append(row)
    return table


def damaged(dataset: Dataset, scores: FloatArray, worse: FloatArray, kept: np.ndarray | None) -> Case:
    """The pair of a ranker and itself with other scores, from an index that may lack documents."""
    pair = Pair.from_scores(scores, worse, dataset.offsets, K)
    if kept is not None:
        pair = Pair(pair.a, discrepancy.only(pair.b, kept), dataset.offsets, K)
    return listed(dataset.name, pair, dataset.zeta())
