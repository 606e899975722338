"""What it costs to fit position bias and predictions to the first impressions of a long log instead of to all of it.

Trials of 40,000 impressions between different rankers of equal CTR (``verdicts``), looked at five times from 13,000 on. Every
log is read as trials do (``analysis.analyse.fitted_impressions``) with everything fitted to all of it, and with everything
fitted to its first tenth, as for a log with ten times as many designs as a fit takes (``analysis.analyse.MOST_DESIGNS``).
``FITTED_RUNS`` (20) sets how many trials.
"""

from __future__ import annotations

import os

import numpy as np

from benchmarks._timing import row
from benchmarks.verdicts import K, Trial, top_tail
from ranktrial.analysis import analyse as analysis
from ranktrial.config import TrialConfig
from ranktrial.distributions import t_quantile
from ranktrial.log.log import GROUPS
from ranktrial.methods import LogOpt

RUNS = int(os.environ.get("FITTED_RUNS", "20"))
LOOKS = (2_000, 10_000, 13_000, 17_000, 22_000, 30_000, 40_000)
TRIED = ("as trials do", "to all of the log", "to a tenth of it")


def run() -> list[dict[str, object]]:
    world = top_tail("position-based, rank^-0.75", 0.8)
    config = TrialConfig.model_validate({"method": LogOpt(), "k": K})
    delta, reach = world.pair.delta(world.user), t_quantile(0.975, GROUPS - 1)
    found = []
    for seed in range(RUNS):
        for look in Trial(world, config, seed).looks(LOOKS):
            if len(look.log) > analysis.ALL_FITTED:
                readings = (look, _to(len(look.log), look, config), _to(len(look.log) // 10, look, config))
                found.append([_numbers(one, delta, reach) for one in readings])
    table = np.array(found)  # look, which of both, number
    rows = []
    for tried, (share, error, missed, told, wide) in zip(TRIED, np.moveaxis(table, 1, 0).transpose(0, 2, 1)):
        rows += [
            row(f"fitted {tried}: share of the log", share.mean(), "-", ""),
            row(f"fitted {tried}: root mean squared error of A - B", np.sqrt((error**2).mean()), "-", ""),
            row(f"fitted {tried}: standard error as told", told.mean(), "-", ""),
            row(f"fitted {tried}: 95 % intervals that miss", 100 * missed.mean(), "5", "%"),
            row(f"fitted {tried}: half an interval at any time", wide.mean(), "-", ""),
        ]
    return rows


def _to(impressions: int, look: analysis.Analysis, config: TrialConfig) -> analysis.Analysis:
    """The same log with everything fitted to its first impressions."""
    usual, analysis.fitted_impressions = analysis.fitted_impressions, lambda *_: impressions
    try:
        return analysis.analyse(look.log, config, config.first_beliefs)
    finally:
        analysis.fitted_impressions = usual


def _numbers(one: analysis.Analysis, delta: float, reach: float) -> tuple[float, ...]:
    top = one.ladder.results[-1].estimate
    assert top is not None
    error = top.delta - delta
    missed = abs(error) > reach * top.standard_error
    return one.fitted / len(one.log), error, missed, top.standard_error, one.interval.half_width
