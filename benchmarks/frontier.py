"""What each allowance costs and what it covers, by formula: the frontier from which the default was chosen.

Nothing is drawn. Pairs and visitors are those of ``benchmarks.discrepancy``: a ranker against itself moved a tenth, a quarter,
half or all of the way towards another one, on all data sets that there are, and shops. With l the true lift of a pair and a the
allowance, both in units of exposure disagreement x clicks per search, an estimate by the click model needs

    (l / (l - a))^2

times the searches that it needs without an allowance, and never decides where l is at most a. A/B traffic alone decides after
all: the number is no larger than its own, variance over variance times 1.46 for its smaller share of the error probability
(docs/research/budget.md). Under visitors who do not follow the click model the limit of the position-based estimate tells
whether the truth is inside in the end, and whether the wrong ranker would be named by it alone.

The study's own pairs, two of the paper's rankers as they are on mslr_sample, tell the cost alone.

``DISCREPANCY_PAIRS`` sets how many rankers of a data set are changed, ``FRONTIER_STUDY`` how many of the study's pairs there
are, ``RANKTRIAL_DATA`` is the folder of the real data sets.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import numpy as np

from benchmarks.discrepancy import (
    FAMILIES,
    FIRST,
    THETA,
    Case,
    Found,
    K,
    Row,
    data_sets,
    disagreement,
    listed,
    measured,
    natural,
    real_data,
    shops,
)
from ranktrial.arrays import FloatArray
from ranktrial.methods import AB, LogOpt
from ranktrial.paper.data import read_letor, read_rankers
from ranktrial.rankings import Pair
from ranktrial.users import position_based

ALLOWANCES = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06)
OTHERS = ("5 % compare", "15 % compare", "40 % compare", "leave after a click", "trust bias")
SMALLER_SHARE = 1.46  # squared width with a tenth of the error probability over that with eight tenths
STUDY = int(os.environ.get("FRONTIER_STUDY", "500"))
AB_TRAFFIC = 0.5  # share of a trial's searches, as it begins
LEAST, NEVER = 1e-9, 1e6


def cases() -> Iterator[Case]:
    yield from shops()
    for data in data_sets():
        yield from natural(*data)


def study() -> Iterator[Case]:
    """Pairs of the paper's rankers on mslr_sample, each as it is."""
    if "RANKTRIAL_DATA" not in os.environ:
        return
    dataset = read_letor(real_data() / "mslr_sample" / "mslr_sample_all.txt.gz")
    file = real_data() / "ictir2020_rankers" / "mslr_web30k_1000rankers.txt.gz"
    weights = read_rankers(file, dataset, allow_dropped=True).weights[: 2 * STUDY]
    for one, other in zip(weights[::2], weights[1::2]):
        a, b = (dataset.features @ of for of in (one, other))
        yield listed("the study's, mslr_sample", Pair.from_scores(a, b, dataset.offsets, K), dataset.zeta())


def cost(case: Case) -> tuple[float, float]:
    """The lift in units of exposure disagreement x clicks, and searches by A/B traffic over those by the click model."""
    user = position_based(case.zeta, THETA)
    a, b = case.pair.ctr(user)
    known = case.pair.knowing(theta=THETA)
    by_model = LogOpt().planned_moments(known, user).variance
    by_ab = AB(estimate="adjusted").moments(known, user).variance / AB_TRAFFIC
    unit = disagreement(case.pair, THETA) * (a + b) / 2
    return abs(a - b) / max(unit, LEAST), SMALLER_SHARE * by_ab / by_model


def run() -> list[Row]:
    found: list[tuple[str, float, float]] = []
    limits: dict[str, list[Found]] = {family: [] for family in OTHERS}
    for done, case in enumerate(cases()):
        found.append((case.kind, *cost(case)))
        for family, some in limits.items():
            some += measured(case.kind, family, case.pair, FAMILIES[family](case.zeta), [FIRST])
        if done % 25 == 0:
            print(f"{done} pairs, the last of {case.kind}", file=sys.stderr, flush=True)
    for case in study():
        found.append((case.kind, *cost(case)))
    kinds = [kind for kind, _, _ in found]
    lift, by_ab = np.array([(lift, by_ab) for _, lift, by_ab in found]).T
    rows: list[Row] = []
    moved = np.array([not kind.startswith("the study's") for kind in kinds])
    rows += [
        of_allowance(f"all {moved.sum()}", allowance, lift[moved], by_ab[moved], limits) for allowance in ALLOWANCES
    ]
    for kind in dict.fromkeys(kinds):
        own = np.array([one == kind for one in kinds])
        part = {family: [one for one in of if one.kind == kind] for family, of in limits.items()}
        rows += [
            of_allowance(f"{kind}, {own.sum()}", allowance, lift[own], by_ab[own], part) for allowance in ALLOWANCES
        ]
    return rows


def of_allowance(
    pairs: str, allowance: float, lift: FloatArray, by_ab: FloatArray, limits: dict[str, list[Found]]
) -> Row:
    """Cost under position-based visitors; and under the others the truth inside, and wrong winners, of infinite trials."""
    room = np.maximum(lift - allowance, LEAST)
    alone = (lift / room) ** 2
    both = np.minimum(alone, np.maximum(by_ab, 1.0))
    row: Row = {
        "pairs": pairs,
        "allowance": f"{allowance:.0%}",
        "median lift": f"{np.median(lift):.1%}",
        "click model alone": f"{np.median(alone):.2f}" if np.median(alone) < NEVER else "never",
        "never": f"{np.mean(lift <= allowance):.0%}",
        "with A/B traffic": f"{np.median(both):.2f} ({error_of_median(both):.2f})",
        "at most 1.5": f"{np.mean(both <= 1.5):.0%}",
    }
    for family, some in limits.items():
        if not some:
            continue
        tv, true, off = np.array([(one.tv, one.lift, one.off) for one in some]).T
        told = np.isfinite(off)
        inside = np.abs(off[told]) <= allowance * tv[told]
        limit = (true + off)[told]
        wrong = (limit * true[told] < 0) & (np.abs(limit) > allowance * tv[told])
        row[family] = f"{inside.mean():.0%} / {wrong.mean():.1%}"
    return row


def error_of_median(values: FloatArray, draws: int = 1000) -> float:
    """Standard error of a median over pairs, by drawing the pairs again."""
    random = np.random.default_rng(1)
    return float(np.median(values[random.integers(len(values), size=(draws, len(values)))], axis=1).std())
