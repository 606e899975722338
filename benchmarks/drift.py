"""Right and wrong alarms of the test of change, and intervals and verdicts meanwhile.

Values like those of a trial: mostly 0, skewed, bounded by 4. p is that of the whole run: the test is looked at from 100 units
on, whenever 3 % more have come. A change is counted in standard errors of the mean of 8,000 units, the units before it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ranktrial.analysis import Drift, asymptotic_sequence
from ranktrial.arrays import FloatArray
from ranktrial.seeds import children, generator

RUNS, LONGEST = 2_000, 20_000
POWER_RUNS, CHANGED_AT = 200, 8_000
CHANGES, UNTIL = (0.5, 1, 2, 4, 6, 8, 12, 16), (10_000, 12_000, 16_000)
VERDICT_RUNS, VERDICT_N, DELTA, DAYS = 400, 10_000, 0.04, 10
WORTH, CHANCE = (2.0, 1.0, 0.5, -1.0, -2.0, 4.0), (0.1, 0.25, 0.2, 0.3, 0.1, 0.05)  # of a click
MEAN = 0.3 * float(np.dot(WORTH, CHANCE))
Row = dict[str, object]


def run() -> list[Row]:
    return false_alarms() + power() + verdicts()


def values(random: np.random.Generator, n: int, rate: FloatArray | float = 0.3) -> FloatArray:
    return np.where(random.random(n) < rate, random.choice(WORTH, n, p=CHANCE), 0.0)


def rhythm(n: int) -> FloatArray:
    """Three times as many clicks at noon as at midnight."""
    return 1 - 0.5 * np.cos(2 * np.pi * DAYS * np.arange(n) / n)


def _row(what: str, share: float, runs: int, **more: object) -> Row:
    error = np.sqrt(max(share * (1 - share), 1 / runs) / runs)
    return {"what": what, "share": f"{share:.2%}", "+-": f"{error:.2%}", "runs": runs, **more}


def false_alarms() -> list[Row]:
    """Runs in which nothing changes that should matter."""
    n = LONGEST
    later = np.arange(n) >= 1_000
    worlds: dict[str, tuple[Callable[[np.random.Generator], FloatArray], bool]] = {
        "x, 30 % not 0": (lambda random: values(random, n), False),
        "x, 3 % not 0": (lambda random: values(random, n, 0.03), False),
        "x with a daily rhythm of clicks, mean 0": (
            lambda random: values(random, n, 0.3 * rhythm(n)) * _sign(random, n),
            False,
        ),
        "x, a third of the variance from 1,000 on": (
            lambda random: random.normal(size=n) / np.where(later, 3**0.5, 1),
            False,
        ),
        "clicks, 2 %": (lambda random: (random.random(n) < 0.02).astype(float), False),
        "clicks, 1 a page, daily rhythm, period known": (lambda random: random.poisson(rhythm(n)).astype(float), True),
    }
    rows = []
    for number, (name, (draw, periodic)) in enumerate(worlds.items()):
        more = {"times": np.arange(n), "period": n / DAYS} if periodic else {}
        p = np.array([Drift.of(draw(generator(child)), **more).p for child in children(number, RUNS)])  # type: ignore[arg-type]
        for limit in (0.01, 0.001):
            rows.append(
                _row(f"{name}: p < {limit:.1%} by {n:,}", float(np.mean(p < limit)), RUNS, target=f"<= {limit:.1%}")
            )
    return rows


def _sign(random: np.random.Generator, n: int) -> FloatArray:
    return random.choice([-1.0, 1.0], n)


def power() -> list[Row]:
    """A change after 8,000 units, noticed with a warning / a failure by so many units."""
    rows: list[Row] = []
    spread = float(np.sqrt(0.3 * np.square(WORTH) @ CHANCE - MEAN**2))
    for number, change in enumerate(CHANGES):
        moved = change * spread / np.sqrt(CHANGED_AT)
        found = []
        for child in children(100 + number, POWER_RUNS):
            x = values(generator(child), UNTIL[-1])
            x[CHANGED_AT:] += moved
            found.append([Drift.of(x[:n]) for n in UNTIL])
        row: Row = {"what": f"change of {change:g} standard errors at {CHANGED_AT:,}", "runs": POWER_RUNS}
        for column, n in enumerate(UNTIL):
            p = np.array([run[column].p for run in found])
            row[f"by {n:,}"] = f"{np.mean(p < 0.01):.0%} / {np.mean(p < 0.001):.0%}"
        last = [run[-1] for run in found if run[-1].changed]
        if last:
            held = [d.between[0] <= CHANGED_AT <= d.between[1] for d in last if d.between is not None]
            row["time held"] = f"{np.mean(held):.0%}"
            row["mean since held"] = f"{np.mean([MEAN + moved in d.since for d in last]):.0%}"
        rows.append(row)
    return rows


def verdicts() -> list[Row]:
    """50 reports of a run: what the interval they show holds, and whether a verdict is taken back."""
    looks = np.arange(VERDICT_N // 50, VERDICT_N + 1, VERDICT_N // 50)
    counts = dict.fromkeys(
        (
            "nothing changes, Delta 0.04: verdict taken back, intersection at points that depend on n",
            "the same, interval of the last look alone",
            "the same, decided_at of every unit",
            "no difference: a verdict at any unit (at most 5 %)",
            "a change halfway: looks with the estimate outside the intersection",
            "the same, outside the interval of its look",
        ),
        0.0,
    )
    names = list(counts)
    for child in children(7, VERDICT_RUNS):
        random = generator(child)
        x = values(random, VERDICT_N)
        x += DELTA - MEAN
        whole = asymptotic_sequence(x, np.arange(1, VERDICT_N + 1))
        moving = np.array([_moving(x[:n]) for n in looks])
        alone = (whole.low > 0) | (whole.high < 0)
        kept = np.array([asymptotic_sequence(x[:n], np.arange(1, n + 1)).decided_at() is not None for n in looks])
        for name, said in zip(names, (moving, alone[looks - 1], kept)):
            counts[name] += bool(np.any(said[:-1] & ~said[1:]))
        counts[names[3]] += asymptotic_sequence(x - DELTA, np.arange(1, VERDICT_N + 1)).decided_at() is not None
        x[VERDICT_N // 2 :] += 0.15
        band = asymptotic_sequence(x, np.arange(100, VERDICT_N + 1))
        later = band.units > VERDICT_N // 2
        for name, one in zip(names[4:], (band.intersected(), band)):
            counts[name] += float(np.mean(((one.mean < one.low) | (one.mean > one.high))[later]))
    return [_row(name, count / VERDICT_RUNS, VERDICT_RUNS) for name, count in counts.items()]


def _moving(x: FloatArray) -> bool:
    points = np.unique(np.append(np.geomspace(1, len(x), 60).astype(np.int64), len(x)))
    low, high = asymptotic_sequence(x, points).intersected().last
    return low > 0 or high < 0
