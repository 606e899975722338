"""Limits of the position-based estimate under visitors who do not follow the click model, and how far they are from the truth.

Nothing is drawn: expected clicks of every ranking that a design can show are exact, position bias is what the conditional
estimating equation finds in them, and the limit is the mean of the estimate at that position bias. (Long trials that learn are
drawn, of structured pairs, beside the limits.) Distances are told in the unit in which an allowance is given: exposure
disagreement (TV) times clicks per page. ``RANKTRIAL_DATA`` is the folder of the
real data sets; without it their pairs are left out. ``DISCREPANCY_PAIRS`` sets how many rankers of a data set are changed,
``DISCREPANCY_FILE`` is where the distances of single pairs go (an .npz), if anywhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from benchmarks.verdicts import Trial, World, behaviours, top_tail
from ranktrial.analysis.estimators.valuing import scaled
from ranktrial.analysis.ladder import DIRECT, POSITION_BASED
from ranktrial.arrays import NO_DOCUMENT, FloatArray, weighted_counts
from ranktrial.config import TrialConfig
from ranktrial.methods import LogOpt
from ranktrial.methods.beliefs import Beliefs
from ranktrial.methods.displays import Linear, valued
from ranktrial.methods.logopt import LEAST_PRICE
from ranktrial.paper.data import Dataset, mslr_like, read_letor, read_rankers, read_splits, train_rankers, yahoo_like
from ranktrial.position_bias import Conditional, Counts, NotIdentifiable
from ranktrial.rankings import Mixture, Pair, Rankings, expected_clicks
from ranktrial.rankings.values import RANK_AWARE_PREDICTIONS
from ranktrial.users import Crowd, Users, cascade, comparing, crowd, position_based, rank_decay

K, THETA = 10, rank_decay(10, 0.7)
PHONE = np.where(np.arange(K) < 4, THETA, 0.0)  # four results fit on its screen
Behaviour = Callable[[FloatArray], Users]
Row = dict[str, object]
PAIRS, QUERIES = int(os.environ.get("DISCREPANCY_PAIRS", "10")), 400
TRIALS, SEARCHES = 2, 200_000  # of structured pairs, whose designs change with what is learnt
ROUNDS = 2  # of design and position bias, each made from the other
ALLOWANCES = (0.01, 0.02, 0.03, 0.05, 0.08)
BANDS = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.01)  # of TV
STEPS = (0.1, 0.25, 0.5, 1.0)  # of the way from one ranker to another


def some_compare(zeta: FloatArray, *, share: float) -> Crowd:
    """A share of the visitors compares all results and clicks among the best two; the others are position-based."""
    return crowd([share, 1 - share], [comparing(zeta, K), position_based(zeta, THETA)])


def half_on_phones(zeta: FloatArray) -> Crowd:
    """Half of the visitors see four results; all are position-based."""
    return crowd([0.5, 0.5], [position_based(zeta, theta) for theta in (PHONE, THETA)])


FAMILIES: dict[str, Behaviour] = {
    POSITION_BASED: partial(position_based, theta=THETA),
    "5 % compare": partial(some_compare, share=0.05),
    "15 % compare": partial(some_compare, share=0.15),
    "40 % compare": partial(some_compare, share=0.4),
    "leave after a click": partial(cascade, k=K, theta=THETA, leave_after_click=0.5, leave_after_skip=0.0),
    "trust bias": behaviours()["trust bias"],
    "half on phones": half_on_phones,
}


@dataclass(frozen=True, eq=False)
class Limit:
    """Limits of estimates from one kind of traffic.

    Attributes:
        theta: Position bias by the conditional estimating equation.
        zeta: Relevance that it goes with, per document.
        position_based: Limit of the rank-aware estimate at that position bias.
        direct: Limit of the direct estimate; NaN where the traffic does not allow for one.
    """

    theta: FloatArray
    zeta: FloatArray
    position_based: float
    direct: float


def limit(pair: Pair, user: Users, traffic: Mixture) -> Limit:
    """Read the expected clicks on a design's traffic as the estimates do."""
    chances = expected_clicks(traffic.rankings, user)
    filled = traffic.rankings != NO_DOCUMENT
    cells = (traffic.rankings.astype(np.int64) * pair.k + np.arange(pair.k))[filled]
    shape = pair.n_documents, pair.k
    shown, clicked = (
        weighted_counts(cells, (traffic.weights[:, None] * of)[filled], pair.n_documents * pair.k).reshape(shape)
        for of in (np.ones_like(chances), chances)
    )
    theta = scaled(Conditional().fit(Counts.from_dense(shown, np.minimum(clicked, shown))).theta)
    zeta = np.clip(clicked.sum(1) / np.maximum(shown @ theta, 1e-300), *RANK_AWARE_PREDICTIONS)
    found = valued(pair, traffic, theta, zeta, estimate="rank-aware").value
    assert isinstance(found, Linear)
    mean = traffic.mean(found.base + (found.values * chances).sum(1)).mean()
    return Limit(theta, zeta, float(mean), _direct(pair, shown, clicked))


def _direct(pair: Pair, shown: FloatArray, clicked: FloatArray) -> float:
    """Mean clicks of each document at A's rank less those at B's, where these differ."""
    a, b = np.minimum(pair.ranks, pair.k)
    shown, clicked = (np.pad(table, ((0, 0), (0, 1))) for table in (shown, clicked))
    rows = np.flatnonzero(a != b)
    sides = []
    for ranks in (a[rows], b[rows]):
        often = shown[rows, ranks]
        if np.any((often <= 0) & (ranks < pair.k)):
            return float("nan")
        sides.append(clicked[rows, ranks] / np.where(often > 0, often, 1.0))
    return float((sides[0] - sides[1]).sum() / pair.n_queries)


AB_TRAFFIC, FIRST, LEARNT = "A/B", "LogOpt, half A/B", "LogOpt, learnt, 10 % A/B"
TRAFFIC = (AB_TRAFFIC, FIRST, LEARNT)
LONG_TRIALS = f"LogOpt, {TRIALS} trials of {SEARCHES:,}"


def traffic_of(kind: str, pair: Pair, user: Users) -> tuple[Mixture, Limit]:
    """Traffic of one kind, and the limits of estimates from it; a design is made with the position bias that it leads to.

    Raises NotIdentifiable where the traffic cannot tell position bias.
    """
    if kind == AB_TRAFFIC:
        mixture = Mixture.of_tables([pair.top_a, pair.top_b], (0.5, 0.5), pair.n_documents)
        return mixture, limit(pair, user, mixture)
    method, learnt = LogOpt(), kind == LEARNT
    # Any design that can tell position bias will do to begin with: a low price moves documents about.
    mixture = method.policy(pair, Beliefs(THETA, price=LEAST_PRICE) if learnt else Beliefs(THETA))
    found = limit(pair, user, mixture)
    for _ in range(ROUNDS):
        known = pair.knowing(theta=found.theta)
        if learnt:
            beliefs = method.planned_beliefs(known, position_based(found.zeta, found.theta))
            mixture = method.policy(known, beliefs, zeta=found.zeta)
        else:
            mixture = method.policy(known, Beliefs(found.theta))
        found = limit(pair, user, mixture)
    return mixture, found


def of_long_trials(pair: Pair, user: Users) -> Limit:
    """Estimates of long trials that learn as they do by default: means over trials, with an error of chance."""
    config = TrialConfig.model_validate({"method": LogOpt(), "k": K})
    thetas, deltas = [], []
    for seed in range(TRIALS):
        (last,) = Trial(World("long", pair, user), config, seed).looks((SEARCHES,))
        estimates = (last.ladder.result(name).estimate for name in (POSITION_BASED, DIRECT))
        thetas.append(last.theta.theta)
        deltas.append([np.nan if one is None else one.delta for one in estimates])
    return Limit(np.mean(thetas, axis=0), np.empty(0), *np.mean(deltas, axis=0).tolist())


def disagreement(pair: Pair, theta: FloatArray) -> float:
    """TV, the exposure disagreement: mean over searches of sum_d |lambda_d| / (2 sum theta)."""
    return float(np.abs(pair.lam(theta)).sum() / (2 * theta.sum() * pair.n_queries))


class Case(NamedTuple):
    """Two rankers and the relevances of their documents."""

    kind: str
    pair: Pair
    zeta: FloatArray


Data = tuple[Dataset, FloatArray]  # and the weights of two rankers for each pair


def real_data() -> Path:
    """The folder of the real data sets; refuses to prediction it."""
    if "RANKTRIAL_DATA" not in os.environ:
        raise ValueError("RANKTRIAL_DATA is not set, must be the folder of the real data sets")
    return Path(os.environ["RANKTRIAL_DATA"])


def _trained(dataset: Dataset, name: str) -> Data:
    weights = train_rankers(dataset, 2 * PAIRS, seed=11, rankers="paper").weights
    return replace(dataset.take(np.arange(min(QUERIES, dataset.n_queries))), name=name), weights


def mailru_longtail() -> Data:
    """Queries of Mail.ru, and rankers trained as the paper's text says."""
    return _trained(read_splits(real_data() / "mailru_longtail")["train"], "mailru_longtail")


def mq2008() -> Data:
    """A fifth of MQ2008, and rankers trained as the paper's text says."""
    return _trained(read_letor(real_data() / "mq2008" / "S1.txt.gz"), "mq2008")


def mslr_sample() -> Data:
    """Some queries of MSLR, and the paper's own rankers."""
    dataset = read_letor(real_data() / "mslr_sample" / "mslr_sample_all.txt.gz")
    file = real_data() / "ictir2020_rankers" / "mslr_web30k_1000rankers.txt.gz"
    rankers = read_rankers(file, dataset, allow_dropped=True)
    return replace(dataset, name="mslr_sample"), rankers.weights[: 2 * PAIRS]


def data_sets() -> Iterator[Data]:
    """All data sets that there are."""
    yield _trained(yahoo_like(QUERIES, seed=3), "Yahoo-like")
    yield _trained(mslr_like(QUERIES, seed=3), "MSLR-like")
    if "RANKTRIAL_DATA" in os.environ:
        yield from (make() for make in (mailru_longtail, mq2008, mslr_sample))


def natural(dataset: Dataset, weights: FloatArray) -> Iterator[Case]:
    """A ranker against itself moved towards another one, a little or all the way: TV from .1 to .8."""
    weights = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    for now, other in zip(weights[::2], weights[1::2]):
        for step in STEPS:
            a, b = (dataset.features @ of for of in (now, now + step * (other - now)))
            yield listed(dataset.name, Pair.from_scores(a, b, dataset.offsets, K), dataset.zeta())


def without_overlap(dataset: Dataset, weights: FloatArray) -> Iterator[Case]:
    """Two rankers of which each has half of the documents, as two indexes would."""
    half = np.random.default_rng(1).random(dataset.n_documents) < 0.5
    for now, other in zip(weights[::2], weights[1::2]):
        lists = []
        for weight, own in ((now, half), (other, ~half)):
            whole = Pair.from_scores(dataset.features @ weight, dataset.features @ weight, dataset.offsets, K).a
            lists.append(only(whole, own))
        yield listed(f"{dataset.name}, disjoint", Pair(lists[0], lists[1], dataset.offsets, K), dataset.zeta())


def only(rankings: Rankings, own: np.ndarray) -> Rankings:
    """Rankings of an index that has only some of the documents."""
    kept = own[rankings.documents]
    sizes = np.add.reduceat(kept, rankings.offsets[:-1])
    return Rankings(np.append(0, np.cumsum(sizes)), rankings.documents[kept])


def listed(kind: str, pair: Pair, zeta: FloatArray) -> Case:
    """The case without documents that neither ranker shows."""
    return Case(kind, pair.of_listed(), zeta[pair.listed])


def shops() -> Iterator[Case]:
    """Rankers that sort by relevance and noise, of which B has twice as much; some of it is the same."""
    for seed in range(PAIRS):
        for noise in (0.02, 0.05, 0.1, 0.25, 0.5):
            random = np.random.default_rng(seed)
            zeta = 0.5 * random.choice([0.1, 0.3, 0.8], (QUERIES, 20), p=[0.6, 0.25, 0.15])
            common = zeta + random.normal(0, 0.2, zeta.shape)
            a, b = ((common + random.normal(0, of, zeta.shape)).ravel() for of in (noise, 2 * noise))
            yield listed("shop", Pair.from_scores(a, b, np.arange(0, zeta.size + 1, 20), K), zeta.ravel())


def top_heavy(behaviour: Behaviour, *, disjoint: bool, queries: int = 60) -> tuple[Pair, Users]:
    """A has one good result first and poor ones below it, B has even ones, of a relevance with which both get equal clicks.

    Lists share half of their documents, or none.
    """
    good, poor, same, even = 0, range(1, 10), range(10, 15), range(15, 25)
    if disjoint:
        lists = [good, *poor], [*even]
    else:
        lists = [good, *poor[:4], *same], [10, 11, 15, 16, 12, 17, 13, 18, 14, 19]
    numbers = [[[q * 25 + d for d in ids] for q in range(queries)] for ids in lists]
    pair = Pair.from_lists(numbers[0], numbers[1], K)
    place = np.array(pair.ids) % 25

    def user(level: float) -> Users:
        return behaviour(np.select([place == good, place < 10, place < 15], [0.6, 0.1, 0.2], level))

    level = optimize.brentq(lambda x: pair.delta(user(float(x))), 0.0, 1.0, xtol=1e-15, rtol=1e-14)
    return pair, user(float(level))


def structured(behaviour: Behaviour) -> Iterator[tuple[str, Pair, Users]]:
    """Different rankers of exactly equal clicks under these visitors."""
    for ctr in (0.4, 0.8, 1.6):
        world = top_tail(behaviour, ctr)
        yield "equal clicks, top/tail", world.pair, world.user
    yield "equal clicks, top-heavy/even", *top_heavy(behaviour, disjoint=False)
    yield "equal clicks, top-heavy/even, disjoint", *top_heavy(behaviour, disjoint=True)


class Found(NamedTuple):
    """One pair under one kind of visitors and traffic; differences are shares of the clicks per page.

    Attributes:
        kind: Class of the pair.
        family: Visitors.
        traffic: What the estimate was made from.
        tv: Exposure disagreement.
        lift: The true difference.
        off: Limit of the position-based estimate less the truth; NaN where there is none.
        direct: Limit of the direct estimate less the truth.
    """

    kind: str
    family: str
    traffic: str
    tv: float
    lift: float
    off: float
    direct: float


def measured(
    kind: str, family: str, pair: Pair, user: Users, traffic_kinds: Sequence[str] = TRAFFIC
) -> Iterator[Found]:
    """Distances of the limits from the truth, from each kind of traffic."""
    a, b = pair.ctr(user)
    clicks, nan = (a + b) / 2, float("nan")
    for traffic in traffic_kinds:
        try:
            found = of_long_trials(pair, user) if traffic == LONG_TRIALS else traffic_of(traffic, pair, user)[1]
        except NotIdentifiable:
            yield Found(kind, family, traffic, nan, (a - b) / clicks, nan, nan)
            continue
        off, direct = ((of - (a - b)) / clicks for of in (found.position_based, found.direct))
        yield Found(kind, family, traffic, disagreement(pair, found.theta), (a - b) / clicks, off, direct)


def everything() -> Iterator[Found]:
    """All pairs, with all visitors; what takes longest comes last."""
    equal = [(family, *one) for family, behaviour in FAMILIES.items() for one in structured(behaviour)]
    for family, kind, pair, user in equal:
        yield from measured(kind, family, pair, user)
    cases = [*shops()]
    for data in data_sets():
        cases += [*natural(*data), *without_overlap(*data)]
    for case in cases:
        for family, behaviour in FAMILIES.items():
            yield from measured(case.kind, family, case.pair, behaviour(case.zeta))
    for family, kind, pair, user in equal:
        yield from measured(kind, family, pair, user, [LONG_TRIALS])


def run() -> list[Row]:
    found: list[Found] = []
    for one in everything():
        found.append(one)
        if len(found) % 100 == 0:
            print(f"{len(found)} distances, the last of {one.kind}", file=sys.stderr, flush=True)
            _save(found)
    _save(found)
    return tables(found)


def _save(found: list[Found]) -> None:
    if "DISCREPANCY_FILE" in os.environ:
        columns: dict[str, Any] = {name: np.array(of) for name, of in zip(Found._fields, zip(*found))}
        np.savez(os.environ["DISCREPANCY_FILE"], **columns)


def tables(found: list[Found]) -> list[Row]:
    """Distances by visitors and traffic, by class of pairs, and by TV."""
    usual = [one for one in found if not one.kind.startswith("equal") and "disjoint" not in one.kind]
    rows = [
        summary("natural pairs", "all", [one for one in usual if (one.family, one.traffic) == key])
        for key in dict.fromkeys((one.family, one.traffic) for one in usual)
    ]
    for key in dict.fromkeys((one.kind, one.family, one.traffic) for one in found):
        rows.append(summary("by class", key[0], [one for one in found if (one.kind, one.family, one.traffic) == key]))
    for low, high in pairwise(BANDS):
        for family in FAMILIES:
            some = [one for one in usual if (one.family, one.traffic) == (family, FIRST) and low <= one.tv < high]
            if some:
                rows.append(summary("by TV", f"TV {low:g} to {high:g}", some))
    return rows


def summary(table: str, pairs: str, some: list[Found]) -> Row:
    """Median, 90 % quantile and largest of distances, beside the lift in the same unit."""
    tv, lift, off, direct = np.array([(one.tv, one.lift, one.off, one.direct) for one in some]).T
    known = np.isfinite(off)
    row: Row = {"table": table, "pairs": pairs, "visitors": some[0].family, "traffic": some[0].traffic}
    row |= {"count": len(some), "told": int(known.sum())}
    if not known.any():
        return row
    tv, lift, off, direct = (of[known] for of in (tv, lift, off, direct))
    within = " / ".join(f"{np.mean(np.abs(off) <= allowance * tv):.0%}" for allowance in ALLOWANCES)
    return row | {
        "TV": f"{np.median(tv):.2f}",
        "lift": f"{np.median(np.abs(lift)):.1%}",
        "lift / TV": f"{np.median(np.abs(lift) / tv):.1%}",
        "off": _quantiles(off),
        "off / TV": _quantiles(off / tv),
        "direct off / TV": _quantiles(direct / tv),
        "exaggerated": f"{np.mean(off * lift > 0):.0%}",
        "wrong sign": f"{np.mean((lift + off) * lift < 0):.0%}",
        f"within {' / '.join(f'{allowance:.0%}' for allowance in ALLOWANCES)}": within,
    }


def _quantiles(of: FloatArray) -> str:
    """Median, 90 % quantile and largest of absolute values."""
    sizes = np.abs(of[np.isfinite(of)])
    return " / ".join(f"{x:.1%}" for x in np.quantile(sizes, (0.5, 0.9, 1.0))) if len(sizes) else ""
