"""Trials between rankers that differ by little more than the allowance: searches to a winner, and the share of A/B traffic.

Whole trials in memory (``benchmarks.verdicts``) on pairs of the paper's rankers on mslr_sample, visitors by position bias: an
adjusted A/B test, ``LogOpt()`` with the share of A/B traffic that it would have if nothing but agreement changed it, and
``LogOpt()`` as it is, which shows A/B traffic alone where that is likely to decide first.

``AB_FIRST_TRIALS`` sets how many trials a row has; ``RANKTRIAL_DATA`` is the folder of the real data sets.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from benchmarks.discrepancy import FAMILIES, Row
from benchmarks.discrepancy_trials import natural_cases
from benchmarks.verdicts import K, Trial, World
from ranktrial.analysis.answers import settled
from ranktrial.analysis.ladder import POSITION_BASED
from ranktrial.config import TrialConfig
from ranktrial.methods import AB, LogOpt, Method
from ranktrial.report import making

TRIALS = int(os.environ.get("AB_FIRST_TRIALS", "8"))
LOOKS = (1_000, 2_000, 4_000, 7_000, 10_000, 14_000, 20_000, 28_000, 40_000, 56_000, 80_000)
CASES = (5, 6)
NAME = "decides_by_ab_first"  # a function that ``making`` calls
AS_IT_IS = getattr(making, NAME)


def one_trial(world: World, method: Method, seed: int, *, turns: bool) -> tuple[str, float, float]:
    """The first winner, after how many searches it was named, and the share of A/B traffic then."""
    setattr(making, NAME, AS_IT_IS if turns else lambda *_: False)
    config = TrialConfig.model_validate({"method": method, "k": K})
    share = np.nan
    for searches, analysis in zip(LOOKS, Trial(world, config, seed).looks(LOOKS)):
        share = float(analysis.log.ab_shares.sum(1)[-1])
        if winner := settled(analysis, {}).decision.winner:
            return winner, searches, share
    return "", np.inf, share


def run() -> list[Row]:
    rows: list[Row] = []
    methods: tuple[tuple[str, Method, bool], ...] = (
        ("A/B, adjusted", AB(estimate="adjusted"), False),
        ("LogOpt(), by agreement only", LogOpt(), False),
        ("LogOpt()", LogOpt(), True),
    )
    with ProcessPoolExecutor(2) as pool:
        for number, case in enumerate(natural_cases()):
            if number not in CASES:
                continue
            user = FAMILIES[POSITION_BASED](case.zeta)
            world = World(f"mslr_sample {number}", case.pair, user, looks=LOOKS)
            right = "A" if case.pair.delta(user) > 0 else "B"
            for name, method, turns in methods:
                found = list(pool.map(partial(one_trial, world, method, turns=turns), range(TRIALS)))
                searches = [one[1] for one in found]
                rows.append(
                    {
                        "pair": world.name,
                        "difference": f"{abs(case.pair.delta(user)):.4f}",
                        "method": name,
                        "searches, median": float(np.median(searches)),
                        "never": int(np.isinf(searches).sum()),
                        "wrong": sum(one[0] not in ("", right) for one in found),
                        "A/B traffic": float(np.mean([one[2] for one in found])),
                    }
                )
    return rows
