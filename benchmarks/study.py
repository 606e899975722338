"""Cost of a study: processor seconds of each of the paper's methods on one pair, simulated and expected, 3 x 10^6 impressions.

BEFORE=FOLDER names a checkout of an earlier version, measured in the same go, one after the other, so that what else the
machine does weighs on both. HOW="expected" leaves out simulated runs, ONLY=Network methods without that in their text. YAHOO
and MSLR are numbers of queries; the paper's size by default, 0 leaves a set out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

QUERIES = {"yahoo": int(os.environ.get("YAHOO", "19944")), "mslr": int(os.environ.get("MSLR", "18919"))}
CLOSED = "loss=None, keep=0, holdback=0"
EVERY = (
    'AB(estimate="paper")',
    "AB()",
    "TeamDraft()",
    "Probabilistic(tau=4)",
    'Optimized(credit="inverse")',
    'Counterfactual(logging="uniform")',
    'Counterfactual(logging="ab")',
    'LogOptNetwork(bias="known")',
    'LogOptNetwork(bias="estimated")',
    'LogOptNetwork(relevance="true", schedule=(), steps=10000)',
    f'LogOpt(bias="known", estimate="ips", {CLOSED})',
    f"LogOpt({CLOSED})",
)
METHODS = tuple(text for text in EVERY if os.environ.get("ONLY", "") in text)


def measure(how: str, data: str) -> dict[str, float]:
    """Seconds of every method on one pair of random linear rankers; ``how`` is "simulate" or "expected"."""
    from ranktrial.methods import parse_method
    from ranktrial.paper.data import mslr_like, yahoo_like
    from ranktrial.rankings import Pair
    from ranktrial.users import position_based, rank_decay

    dataset = {"yahoo": yahoo_like, "mslr": mslr_like}[data](QUERIES[data], seed=0)
    random = np.random.default_rng(0)
    theta, zeta = rank_decay(10), (0.1 + 0.225 * np.arange(5))[dataset.labels]
    a, b = (dataset.features @ random.normal(size=dataset.n_features) for _ in range(2))
    points = np.unique(np.geomspace(100, 3e6, 500).astype(int))

    def world(queries: int) -> tuple[Pair, object]:
        end = dataset.offsets[queries]
        pair = Pair.from_scores(a[:end], b[:end], dataset.offsets[: queries + 1], 10)
        return pair.knowing(theta=theta, features=dataset.features[:end]), position_based(zeta[:end], theta)

    found = {}
    for text in METHODS:
        work = getattr(parse_method(text), how)
        work(*world(20), [1_100], seed=0)  # compiles
        pair, user = world(dataset.n_queries)
        start = time.process_time()
        work(pair, user, points, seed=1)
        found[text] = time.process_time() - start
    return found


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    before, hows = os.environ.get("BEFORE"), os.environ.get("HOW", "simulate expected").split()
    for data in (name for name, queries in QUERIES.items() if queries):
        columns = {}
        for how in hows:
            if before:
                columns[f"{how}, before"] = _elsewhere(Path(before), how, data)
            columns[how] = _elsewhere(Path(), how, data)
        for text in (*METHODS, "together"):
            row: dict[str, object] = {"method": text, "data": data}
            row |= {f"{name}, s": sum(c.values()) if text == "together" else c[text] for name, c in columns.items()}
            first, last = (list(columns.values())[i] for i in (0, -1))
            times = sum(first.values()) / sum(last.values()) if text == "together" else first[text] / last[text]
            rows.append({**row, "times faster": times})
    return rows


def _elsewhere(checkout: Path, how: str, data: str) -> dict[str, float]:
    """Measured by a process of its own, with the benchmark and the sources of that checkout and one thread."""
    root = Path(__file__).parent.parent if checkout == Path() else checkout.absolute()
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "NUMBA_CACHE_DIR": str(root / ".numba_cache")}
    environment |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-P", str(root / "benchmarks" / "study.py"), how, data],
        env=environment,
        capture_output=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2])))
