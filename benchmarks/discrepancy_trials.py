"""Whole trials with visitors who do not follow the click model, recorded so that any rule of decision can be tried on them.

Trials run in memory as live ones do (``benchmarks.verdicts``), of the pairs and visitors of ``benchmarks.discrepancy``: pairs
of data sets as they are, and structured ones of exactly equal clicks, with overlapping and disjoint lists. At each look every
estimate is recorded with its error and its half-width at several shares of the error probability, the tests between
estimates, TV, clicks per page, the effect of clicks above, and guardrails that fail or warn: one simulation serves every
allowance.

``DISCREPANCY_FOLDER`` is where records go, a file a row; what is there is not made again. ``DISCREPANCY_TRIALS`` sets how
many trials a row has, ``DISCREPANCY_ROWS`` (texts separated by ";", one of which a row must hold) which are made.
``RANKTRIAL_DATA`` is the folder of the real data sets.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.discrepancy import (
    FAMILIES,
    Case,
    mailru_longtail,
    mslr_sample,
    natural,
    shops,
    top_heavy,
    without_overlap,
)
from benchmarks.verdicts import K, Row, Trial, World, top_tail
from ranktrial.analysis import Decision, Estimate, EstimatorResult, Hausman, Ladder
from ranktrial.analysis.analyse import Analysis
from ranktrial.analysis.answers import MODEL, barred_by, settled
from ranktrial.analysis.decision import decide
from ranktrial.analysis.guardrails.click_model import INDEPENDENCE, clicks_above
from ranktrial.analysis.ladder import ASSUMES, POSITION_BASED
from ranktrial.arrays import FloatArray
from ranktrial.config import TrialConfig
from ranktrial.interval import Interval
from ranktrial.log import UnitSums
from ranktrial.methods import LogOpt

TRIALS = int(os.environ.get("DISCREPANCY_TRIALS", "100"))
ONLY = os.environ.get("DISCREPANCY_ROWS", "").split(";")
LOOKS = (500, 1_000, 2_000, 3_500, 5_000, 6_500, 8_000, 10_000)
SHARES = (1.0, 0.8, 0.5, 0.25, 0.1, 0.05)  # of the error probability, for half-widths
DISJOINT = "natural, mslr_sample, disjoint"
FIRST = ("15 % compare", "leave after a click", "40 % compare")
THEN = ("trust bias", "half on phones", "5 % compare")
Records = dict[str, NDArray[Any]]


def recorded(analysis: Analysis) -> dict[str, float | str]:
    """Basis of a decision at one look; differences are A - B, in clicks per search."""
    ladder, nan = analysis.ladder, float("nan")
    found: dict[str, float | str] = {}
    for result in ladder.results:
        known = result.estimate if result.has_interval else None
        found[f"{result.name}.delta"] = nan if known is None else known.delta
        found[f"{result.name}.standard_error"] = nan if known is None else known.standard_error
        found[f"{result.name}.low"], found[f"{result.name}.high"] = result.interval
        for share in SHARES:
            level = 1 - (1 - analysis.config.level) * share
            width = nan if known is None else known.anytime_interval(level).half_width
            found[f"{result.name}.half_width.{share:g}"] = width
    names = list(ASSUMES)
    for at, upper in enumerate(names):
        for lower in names[:at]:
            tests = [test for test in ladder.tests if (test.upper, test.lower) == (upper, lower)]
            for what in ("difference", "standard_error", "reach"):
                found[f"{upper} - {lower}.{what}"] = getattr(tests[0], what) if tests else nan
    above = clicks_above(analysis)
    found["above.low"], found["above.high"] = (nan, nan) if above is None else above.effect
    log = analysis.log
    found["tv"] = ladder.disagreement
    both = analysis.clicks_of_both
    found["clicks_per_page"] = analysis.clicks / len(log)
    found["clicks_of_both"] = nan if both is None else both.mean
    found["searches"] = len(log)
    found["ab_searches"] = float((log.arm != 0).sum())
    checks = settled(analysis, {}).checks
    found["failed"], found["warned"] = (
        ";".join(check.name for check in checks if check.status == status) for status in ("fail", "warn")
    )
    return found


def records_of(world: World, trials: int, file: Path) -> Records:
    """Record trials of a world, a table of (trials, looks) for each name; the file grows by ten trials at a time."""
    config = TrialConfig.model_validate({"method": LogOpt(), "k": K})
    a, b = world.pair.ctr(world.user)
    truth: dict[str, Any] = {"truth": a - b, "ctr_a": a, "ctr_b": b, "name": world.name, "looks": np.array(world.looks)}
    known = read_records(file) if file.exists() else {}
    done = len(known.get("tv", ()))
    while done < trials:
        seeds = range(done, min(done + 10, trials))
        found = [[recorded(look) for look in Trial(world, config, seed).looks(world.looks)] for seed in seeds]
        tables = {name: np.array([[look[name] for look in trial] for trial in found]) for name in found[0][0]}
        known = {name: np.concatenate([known[name], of]) if done else of for name, of in tables.items()}
        part, done = file.with_name(f".{file.name}"), seeds.stop
        np.savez_compressed(part, **(known | truth))
        part.replace(file)
    return read_records(file)


def read_records(file: Path) -> Records:
    """Tables of (trials, looks) by name, and of the whole row "truth" (A - B), "ctr_a", "ctr_b", "name" and "looks"."""
    with np.load(file) as found:
        return {name: found[name] for name in found.files}


def natural_cases() -> list[Case]:
    """Ten pairs of the paper's rankers, over the range of their lifts."""
    cases = list(natural(*mslr_sample()))
    user = FAMILIES[POSITION_BASED]
    cases.sort(key=lambda case: abs(case.pair.delta(user(case.zeta))) / sum(case.pair.ctr(user(case.zeta))))
    return [cases[round(at)] for at in np.linspace(len(cases) / 20, len(cases) * 19 / 20 - 1, 10)]


def worlds() -> Iterator[World]:
    """The most important first."""
    ten = natural_cases()
    natural_ones = {
        "natural, mslr_sample 5": ten[5],
        "natural, shop": list(shops())[2],
        DISJOINT: next(without_overlap(*mslr_sample())),
        "natural, mslr_sample 2": ten[2],
        "natural, mslr_sample 8": ten[8],
        "natural, mailru_longtail": list(natural(*mailru_longtail()))[3],
    }

    def equal(family: str) -> Iterator[World]:
        behaviour = FAMILIES[family]
        world = top_tail(behaviour, 0.8)
        yield World(f"{family}, equal clicks, top/tail", world.pair, world.user, looks=LOOKS)
        for kind, disjoint in (("overlapping", False), ("disjoint", True)):
            pair, user = top_heavy(behaviour, disjoint=disjoint)
            yield World(f"{family}, equal clicks, top-heavy/even, {kind}", pair, user, looks=LOOKS)

    def of(family: str, kinds: Iterable[str]) -> Iterator[World]:
        for kind in kinds:
            case = natural_ones[kind]
            yield World(f"{family}, {kind}", case.pair, FAMILIES[family](case.zeta), looks=LOOKS)

    first, later = ["natural, mslr_sample 5", "natural, shop"], list(natural_ones)[3:]
    for family in FIRST:
        yield next(equal(family))
        yield from of(family, first)
    for at, case in enumerate(ten):
        user = FAMILIES[POSITION_BASED](case.zeta)
        yield World(f"{POSITION_BASED}, natural, mslr_sample {at}", case.pair, user, looks=LOOKS)
    for family in FIRST:
        yield from list(equal(family))[1:]
        yield from of(family, [DISJOINT])
    for family in THEN:
        yield from equal(family)
        yield from of(family, [*first, DISJOINT])
    for family in (*FIRST, *THEN):
        yield from of(family, later)
    yield from equal(POSITION_BASED)
    yield from of(POSITION_BASED, [kind for kind in natural_ones if "mslr_sample " not in kind])
    for family in FIRST:
        for world in (*equal(family), *of(family, first)):
            yield replace(world, name=f"{world.name}, 20,000 searches", looks=tuple(2 * n for n in LOOKS))


def run() -> list[Row]:
    folder = Path(os.environ.get("DISCREPANCY_FOLDER", "discrepancy-trials"))
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for world in worlds():
        if not any(text in world.name for text in ONLY):
            continue
        file = folder / (re.sub(r"[^a-z0-9]+", "-", world.name.lower()) + ".npz")
        begun = time.process_time()
        # Where the click model holds, searches to a decision are asked for, which fewer trials tell.
        trials = TRIALS if not world.name.startswith(POSITION_BASED) else max(2 * TRIALS // 5, 1)
        rows.append(summary(records_of(world, trials, file)))
        rows[-1] |= {"trials": trials, "seconds": round(time.process_time() - begun)}
        print(rows[-1], flush=True)
    return rows


ALLOWANCES = (0.0, 0.01, 0.02, 0.03, 0.05, 0.06, 0.08)


def decisions(found: Records, allowance: float) -> list[list[Decision]]:
    """Decisions of each trial at each look, with an allowance; winners of "not trusted" ones are left out as in a trial."""
    return [
        [decision_at(found, (trial, look), allowance) for look in range(found["tv"].shape[1])]
        for trial in range(len(found["tv"]))
    ]


def decision_at(found: Records, at: tuple[int, int], allowance: float) -> Decision:
    """The decision at one look, from what was recorded."""

    def number(name: str) -> float:
        return float(found[name][at])

    results, names = [], list(ASSUMES)
    for name in names:
        delta, error = number(f"{name}.delta"), number(f"{name}.standard_error")
        known = Estimate(delta, error, 2, 2, 0.0, 0.0, sums=UnitSums.of([delta, delta])) if np.isfinite(delta) else None
        results.append(
            EstimatorResult(name, known, Interval(number(f"{name}.low"), number(f"{name}.high")), "", tightest_at=1e4)
        )
    tests = [
        Hausman(
            upper, lower, *(number(f"{upper} - {lower}.{what}") for what in ("difference", "standard_error", "reach"))
        )
        for i, upper in enumerate(names)
        for lower in names[:i]
        if np.isfinite(number(f"{upper} - {lower}.difference"))
    ]
    failed, warned = (str(found[of][at]).split(";") for of in ("failed", "warned"))
    effect = Interval(number("above.low"), number("above.high"))
    n, clicks = number("searches"), number("clicks_per_page")
    return decide(
        Ladder(tuple(results), tuple(tests), number("tv"), clicks),
        searches=round(n), visitors=round(n), clicks=round(n * clicks), allowance=allowance, barred=barred_by(failed),
        above=effect if INDEPENDENCE in warned and np.isfinite(effect.low) else None,
        failed=[name for name in failed if name and name not in MODEL],
    )  # fmt: skip


def summary(found: Records) -> Row:
    """One row of a table: how far the position-based estimate is off, and verdicts by allowance.

    For each allowance: trials that name a wrong ranker at any look, trials that name the right one, the truth inside the last
    interval, and the median number of searches to a right winner.
    """
    truth = float(found["truth"])
    ctr = (found["ctr_a"] + found["ctr_b"]) / 2
    unit = (found["tv"] * found["clicks_per_page"])[:, -1]
    away: FloatArray = (found["position-based.delta"][:, -1] - truth) / unit
    row: Row = {
        "world": str(found["name"]),
        "trials": len(found["tv"]),
        "lift": f"{-truth / ctr:+.1%}",
        "TV": f"{found['tv'][:, -1].mean():.2f}",
        "lift / TV": f"{-truth / unit.mean():+.1%}",
        "off by / TV": f"{-np.nanmean(away):+.1%}",
    }
    better = None if abs(truth) < 1e-9 else "A" if truth > 0 else "B"
    for allowance in ALLOWANCES:
        some = decisions(found, allowance)
        first = [next(((one.winner, n) for one, n in zip(trial, found["looks"]) if one.winner), None) for trial in some]
        wrong = [one is not None and one[0] != better for one in first]
        right = [one is not None and one[0] == better for one in first]
        inside = [-truth in trial[-1].interval for trial in some]
        when = np.median([one[1] if one is not None and one[0] == better else np.inf for one in first])
        shares = " / ".join(f"{np.mean(of):.0%}" for of in (wrong, right, inside))
        row[f"allowance {allowance:g}"] = shares + ("" if better is None else f" / {when:,.0f}")
    return row
