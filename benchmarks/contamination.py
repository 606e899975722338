"""Hostile searches: how often a few well-chosen clicks decide a trial, and what asking winners to stand against them costs.

Whole trials in memory (``benchmarks.verdicts``), A better by some lift or equal, people who click by position bias. A share of
the searches is hostile: one visitor each, who clicks on the result, the two results or all results of the page that speak most
for B. At each look the winner is recorded with the share of hostile searches that could have made it up, so one simulation
serves every ``contamination``. What that costs honest trials comes from pairs of data sets as they are:

    ((l - a) / (l - max(a, c w)))^2

times the searches, where l is the difference, a the allowance, c the contamination and w the most that a search can add.

``CONTAMINATION_TRIALS`` sets how many trials a row has; ``RANKTRIAL_DATA`` is the folder of the real data sets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.discrepancy import FAMILIES, shops
from benchmarks.discrepancy_trials import natural_cases
from benchmarks.verdicts import K, Row, Trial, World, top_tail
from ranktrial.analysis.answers import settled
from ranktrial.analysis.decision import ALLOWANCE, PER_HOSTILE
from ranktrial.analysis.hostile import most_worth
from ranktrial.analysis.ladder import POSITION_BASED
from ranktrial.arrays import BoolArray, DocumentArray
from ranktrial.config import TrialConfig
from ranktrial.methods import LogOpt
from ranktrial.rankings import Pair

TRIALS = int(os.environ.get("CONTAMINATION_TRIALS", "100"))
LOOKS = (1_000, 2_000, 4_000, 7_000, 10_000)
CTR = 0.8
LIFTS = (0.0, 0.025, 0.05)
SHARES = (0.0, 0.005, 0.01, 0.02)
KINDS = {"one click": 1, "two clicks": 2, "all that count": K}
CONTAMINATIONS = (0.0, 0.002, ALLOWANCE / PER_HOSTILE, 0.005, 0.01, 0.02)  # with the default
CONFIG = TrialConfig.model_validate({"method": LogOpt(), "k": K, "contamination": 0.0})
TRUSTING = CONFIG.model_copy(update={"allowance": 0.0})


def hostile(
    pair: Pair,
    share: float,
    most: int,
    rankings: DocumentArray,
    clicks: BoolArray,
    random: np.random.Generator,
) -> BoolArray:
    """Clicks on a page where a share of the searches clicks on what speaks most for B, and on nothing else."""
    by_a, by_b = (np.where(rank < K, 1 / (1.0 + rank), 0.0) for rank in pair.ranks)
    gain = np.where(rankings >= 0, (by_b - by_a)[rankings], -np.inf)
    place = np.argsort(np.argsort(-gain, axis=1, kind="stable"), axis=1)
    chosen = (place < most) & (gain > 0)
    return np.where((random.random(len(clicks)) < share)[:, None], chosen, clicks)


class Look(NamedTuple):
    """Winner that a look names.

    Attributes:
        before: The winner without an allowance, "" for none.
        winner: The winner with the default allowance.
        made_up_by: Share of hostile searches that could have made it up.
        by_ab: Whether A/B traffic alone names it, which is asked to stand against none by default.
    """

    before: str
    winner: str
    made_up_by: float
    by_ab: bool


def one_trial(world: World, seed: int) -> list[Look]:
    """The looks at one trial, whose winners must stand against nothing."""
    found = []
    for analysis in Trial(world, CONFIG, seed).looks(LOOKS):
        before, now = (settled(replace(analysis, config=config), {}).decision for config in (TRUSTING, CONFIG))
        found.append(Look(before.winner or "", now.winner or "", now.overturned_by, 0 not in now.ab))
    return found


def worlds() -> Iterator[tuple[float, float, str, World]]:
    """Lift of A, share of hostile searches, their clicks, and the world."""
    for lift in LIFTS:
        world = replace(top_tail(FAMILIES[POSITION_BASED], CTR, lift * CTR), looks=LOOKS)
        yield lift, 0.0, "", world
        for share in SHARES[1:]:
            for kind, most in KINDS.items():
                yield lift, share, kind, replace(world, bent=partial(hostile, world.pair, share, most))


def named(trials: list[list[Look]], rankers: str, least: float | None) -> str:
    """Share of trials that name one of these rankers at any look.

    Where winners by the click model must stand against a share of hostile searches; None is before there was an allowance.
    """

    def names(look: Look) -> bool:
        if least is None:
            return look.before != "" and look.before in rankers
        return look.winner != "" and look.winner in rankers and (look.by_ab or look.made_up_by > least)

    return f"{np.mean([any(map(names, trial)) for trial in trials]):.0%}"


def costs() -> Iterator[Row]:
    """Times the searches of an honest trial that each contamination takes, by pair."""
    for name, case in [
        *((f"mslr_sample {at}", case) for at, case in enumerate(natural_cases())),
        ("shop", list(shops())[2]),
    ]:
        user = FAMILIES[POSITION_BASED](case.zeta)
        world = World(name, case.pair, user, looks=(5_000,))
        (analysis,) = Trial(world, CONFIG, 1).looks(world.looks)
        result, size = analysis.ladder.results[-1], abs(case.pair.delta(user))
        allowance = settled(analysis, {}).decision.allowance
        worth = most_worth(analysis.log, result, 1 if case.pair.delta(user) > 0 else -1)
        row: Row = {
            "pair": name,
            "difference": f"{size:.4f}",
            "allowance": f"{allowance:.4f}",
            "a search can add": f"{worth:.2f}",
        }
        for least in CONTAMINATIONS[1:]:
            room = size - max(allowance, least * worth)
            row[f"{least:.2g}"] = (
                "never" if size <= allowance else f"{((size - allowance) / room) ** 2:.2f}" if room > 0 else "inf"
            )
        yield row


def run() -> list[Row]:
    rows: list[Row] = list(costs())
    for row in rows:
        print(row, flush=True)
    with ProcessPoolExecutor(2) as pool:
        for lift, share, kind, world in worlds():
            trials = list(pool.map(partial(one_trial, world), range(TRIALS), chunksize=5))
            wrong = "AB" if lift == 0 else "B"
            row = {"A better by": f"{lift:.1%}", "hostile": f"{share:.1%}", "clicks": kind, "trials": TRIALS}
            for least in (None, *CONTAMINATIONS):
                cells = [named(trials, wrong, least), *([named(trials, "A", least)] if lift else [])]
                row["before" if least is None else f"{least:.2g}"] = " / ".join(cells)
            rows.append(row)
            print(row, flush=True)
    return rows
