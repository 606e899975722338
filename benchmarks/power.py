"""Impressions to a decision of this version beside another one, through the public interface alone.

``POWER_BEFORE`` names the ``src`` folder of the other version (a checkout of it); both run the same world of ``verdicts``, the
same searches and the same users: ``Trial.create`` with nothing but ``k``, ``rank``, ``click`` and ``report`` at eight looks. A
run counts once a look names a winner that no failed guardrail stands before. ``POWER_RUNS`` sets how many runs a row has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

RUNS = int(os.environ.get("POWER_RUNS", "200"))
LOOKS = (200, 500, 1_000, 2_000, 3_500, 5_000, 7_000, 10_000)
DELTA = 0.03
Row = dict[str, object]


def run() -> list[Row]:
    sources = {"now": str(Path(__file__).parents[1] / "src")}
    if "POWER_BEFORE" in os.environ:
        sources = {"before": os.environ["POWER_BEFORE"]} | sources
    return [_row(name, source) for name, source in sources.items()]


def _row(name: str, source: str) -> Row:
    from benchmarks.verdicts import top_tail

    world = top_tail("position-based, rank^-0.75", 0.8, DELTA)
    pair, theta = world.pair, world.reader.slope
    assert pair.ids is not None
    ids = np.array(pair.ids)
    told = {
        "a": ids[pair.top_a].tolist(),
        "b": ids[pair.top_b].tolist(),
        "zeta": dict(zip(ids.tolist(), world.reader.zeta.tolist())),
        "theta": theta.tolist(),
    }
    with ThreadPoolExecutor(2) as pool:
        halves = list(pool.map(lambda half: _trials(source, told, half), range(2)))
    found = [one for half in halves for one in half]
    when = [at for at, _ in found if at]
    names = [first for _, first in found]
    row: Row = {
        "version": name,
        "delta": f"{DELTA:+.2f}",
        "runs": RUNS,
        "A": f"{names.count('A') / RUNS:.1%}",
        "B": f"{names.count('B') / RUNS:.1%}",
        "median impressions, of those decided": float(np.median(when)) if when else None,
        "decided by 10,000": f"{len(when) / RUNS:.1%}",
    }
    print(row, flush=True)
    return row


def _trials(source: str, world: dict[str, object], half: int) -> list[tuple[int, str]]:
    """The first look with a winner of every other trial, and who, by the version in ``source``, in a process of its own."""
    cache = Path(tempfile.gettempdir(), f"numba-{Path(source).parent.name}-{half}")  # a cold one is not to be shared
    done = subprocess.run(
        [sys.executable, "-P", __file__],  # modules beside this one have names of others
        input=json.dumps({"world": world, "seeds": list(range(half, RUNS, 2))}),
        env=os.environ | {"PYTHONPATH": source, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{source}: {done.stderr}")
    return [tuple(one) for one in json.loads(done.stdout)]


def winner_of(report: Any) -> str:
    """The winner that a report names; "" for none. Checkouts from before reports had one are read by their sentence."""
    if hasattr(report, "winner"):
        return report.winner or ""
    return next((name for name in "AB" if report.verdict.startswith(f"{name} gets")), "")


def one_trial(world: dict[str, list[list[int]]], zeta: dict[str, float], folder: str, seed: int) -> tuple[int, str]:
    from ranktrial import Trial

    random, theta = np.random.default_rng(seed), np.array(world["theta"])
    trial = Trial.create(f"{folder}/{seed}.db", name=f"t{seed}", k=len(theta))
    lists = [[[str(one) for one in ranked] for ranked in world[name]] for name in ("a", "b")]
    first = 0, ""
    for n in range(1, LOOKS[-1] + 1):
        q = int(random.integers(len(lists[0])))
        shown = trial.rank(f"q{q}", a=lists[0][q], b=lists[1][q], unit=f"u{n}")
        ranking = list(shown.ranking)[: len(theta)]
        for at in np.flatnonzero(random.random(len(ranking)) < theta[: len(ranking)] * [zeta[d] for d in ranking]):
            trial.click(shown.id, ranking[at])
        if n in LOOKS:
            winner = winner_of(trial.report())
            if winner:
                first = n, winner
                break
    trial.close()
    return first


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps([one_trial(asked["world"], asked["world"]["zeta"], folder, seed) for seed in asked["seeds"]]))
